"""When a probe ends, as the options of `outlay probe` and of notebooks say it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from outlay.errors import InputError
from outlay.measurement_check import HIGHEST_PRICE_USD

if TYPE_CHECKING:
    from outlay.probe.course import Limits


def limits_of(
    steps: int | None,
    duration: str | None,
    until: str | None,
    price: str | None,
    max_cost: str | None = None,
    to_end: bool = False,
    no_operations: bool = False,
) -> Limits:
    """The limits that options give; notebooks have the same."""
    from outlay.probe.course import Limits

    price_usd = None if price is None else _dollars("--price", price)
    max_usd = None if max_cost is None else _dollars("--max-cost", max_cost)
    if max_usd is not None and price_usd is None:
        raise InputError(
            f"--max-cost {max_cost} needs the price of this machine.",
            fix="Give it, for example --price 1.10 (dollars an hour).",
        )
    return Limits(
        steps=steps,
        duration_s=None if duration is None else _time_s(duration),
        precision=None if until is None else _fraction(until),
        max_usd=max_usd,
        price_usd_per_hour=price_usd,
        to_end=to_end,
        operations=not no_operations,
    )


def _time_s(text: str) -> float:
    from outlay.units import duration_s

    time_s = duration_s(text)
    if not 0 < time_s < math.inf:
        raise InputError(f"--for {text!r} is no time.", fix="Write for example --for 5m.")
    return time_s


def _dollars(option: str, text: str) -> float:
    plain = text.strip().removeprefix("$").removesuffix("USD").removesuffix("$").strip()
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(
            f"{option} {text!r} is no amount of dollars.", fix=f"Write for example {option} 1.50."
        )
    if value > HIGHEST_PRICE_USD:
        raise InputError(
            f"{option} {text!r} is more than any machine costs: at most {HIGHEST_PRICE_USD:,.0f}.",
            fix=f"Write for example {option} 1.50.",
        )
    return value


def _fraction(text: str) -> float:
    """`2%` and `0.02` are the same."""
    is_percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%")) / (100 if is_percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise InputError(f"--until {text!r} is no precision.", fix="Write for example --until 2%.")
    return value
