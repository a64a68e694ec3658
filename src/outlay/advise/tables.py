"""What advice rests on where nobody said otherwise: rows of `data/advise_assumptions.csv`."""

from __future__ import annotations

from functools import cache

from outlay.chance import Uncertain
from outlay.currency import usd_per_unit
from outlay.errors import NotKnown
from outlay.estimate import Estimate
from outlay.facts import Fact, assumptions, fact_of, rows_of

_ELECTRICITY = {
    "us": "electricity_usd_per_kwh",
    "us commercial": "electricity_usd_per_kwh_us_commercial",
    "eu": "electricity_eur_per_kwh_eu_household",
    "eu commercial": "electricity_eur_per_kwh_eu_non_household",
    "kr": "electricity_krw_per_kwh_kr_household",
}
"""Places whose price of electricity is in the assumptions table."""


@cache
def taken() -> dict[str, dict[str, str]]:
    """The rows by name."""
    return {row["name"]: row for row in rows_of("advise_assumptions.csv")}


def taken_fact(name: str) -> Fact:
    """One row as a fact, with its source."""
    return fact_of(taken()[name])


def taken_number(name: str) -> float:
    """The number of a row."""
    return float(taken()[name]["value"])


def taken_range(name: str) -> Estimate:
    """The number of a row with its range; without one, exactly."""
    row = taken()[name]
    if not row["low"]:
        return Estimate.exactly(float(row["value"]))
    return Estimate(low=float(row["low"]), likely=float(row["value"]), high=float(row["high"]))


def electricity_usd_per_kwh(country: str) -> tuple[Uncertain, Fact]:
    """What a kilowatt-hour costs in a country, and the row behind it."""
    name = _ELECTRICITY.get(country.lower())
    if name is None:
        raise NotKnown(
            "country's electricity price",
            country,
            _ELECTRICITY,
            fix=f"Known: {', '.join(_ELECTRICITY)}; a workload file takes your own price.",
        )
    fact = assumptions()[name]
    rate, _ = usd_per_unit(fact.unit.partition("/")[0])
    return (fact.number or 0.0) * rate, fact
