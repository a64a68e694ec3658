"""Build what outlay knows of how prices move, from weekly and monthly price lists.

    python tools/fit_prices.py --raw DIR [--out DIR]

The raw folder holds `offers_<date>.csv.gz` (one row per instance type and zone),
`spot_weekly.csv.gz` (the spot price of every zone of AWS and GCP, week by week),
`spot_volatility.csv` (how many weeks a type was seen in a region, where the weekly file lacks it)
and `history_monthly_instances.csv.gz` (the cheapest price of every type of every provider, month by
month). Written:

    spot_history_<date>.csv  every zone's spot price at the snapshot, and its past
    price_moves.csv          how far prices move in how many weeks: `outlay.offers.expected_price`

AWS's spot prices are fitted zone by zone (quantile regression on what each price became after 1 to
20 weeks). Other providers' prices stand still for weeks and then move, so that a few months tell
little: what they moved over years of monthly lists is taken, the same up and down, and for spot
made wider as AWS's.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from build_offers import Row, aws_region, gcp_region, only_file, read_csv, write_csv
from outlay.offers.expected_price import (
    CHANGE_WEEKS,
    LEAST_SHARE,
    LOW_SHARE,
    QUARTER_WEEKS,
    TYPE_WEEKS,
    USUAL_CHANGE,
)
from outlay.prices.past_books import WEEKS_OF_A_MONTH, weeks_listed
from outlay.uncertainty import PERCENTILE_90

Array = npt.NDArray[np.float64]
HORIZONS = (1, 2, 4, 6, 8, 12, 16, 20)
"""Weeks after a quote at which its price is looked at again."""
_DAYS_OFF = 4
"""A look so many days from the day it should be of still counts."""
AWS_HALF_WEEKS = 4.0
MONTHS = (1, 2, 3, 6, 12)
LEAST_CASES = 100
"""Changes of a provider's lists from which its own spread is taken, not everybody's."""
RENEWALS = 6.0
"""Renewals of a provider's list from which its own spread weighs more than everybody's."""
RANGE_HOLDS = 0.8
_SAVES_NOTHING = -0.001
"""Logarithm of the share of on-demand from which spot saves nothing and is not for sale."""
LEFT_OUT = frozenset({"mithril"})
"""An auction's lowest bid is no price."""
_ACCELERATORS = {
    "A100 40GB": "A100",
    "A100 80GB": "A100-80GB",
    "H100 SXM": "H100",
    "H200": "H200",
    "B200": "B200",
}
"""How the weekly file calls GPUs that GCP lists apart from their host; others as we do."""


# --- the weekly file: one series for each zone ---


@dataclass(frozen=True, slots=True)
class Series:
    """The prices of one type in one zone, week by week."""

    provider: str
    instance: str
    region: str
    zone: str

    @property
    def family(self) -> str:
        """`g5` of `g5.xlarge`."""
        return self.instance.split(".")[0]


@dataclass(frozen=True, slots=True)
class Weekly:
    """All series of a provider: rows are zones, columns weeks; not a number where not seen."""

    series: tuple[Series, ...]
    weeks: tuple[str, ...]
    days: npt.NDArray[np.int64]
    on_demand_usd: Array
    spot_usd: Array

    @property
    def log_share(self) -> Array:
        """The logarithm of spot as a share of on-demand, at most 0."""
        return np.minimum(np.log(self.spot_usd / self.on_demand_usd), 0.0)

    def until(self, day: str) -> Weekly:
        """What had been seen by a day."""
        width = sum(week <= day for week in self.weeks)
        return Weekly(
            self.series,
            self.weeks[:width],
            self.days[:width],
            self.on_demand_usd[:, :width],
            self.spot_usd[:, :width],
        )


def read_weekly(rows: Iterable[Mapping[str, str]], provider: str) -> Weekly:
    """The series of one provider's GPUs."""
    prices: dict[Series, dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        if row["provider"] != provider or "tpu" in row["instance"].lower():
            continue
        series = Series(provider, row["instance"], row["region"], row["zone"])
        prices[series][row["week_of"]] = (
            _price(row["usd_per_hour"]),
            _price(row["spot_usd_per_hour"]),
        )
    weeks = sorted({week for by_week in prices.values() for week in by_week})
    table = np.full((2, len(prices), len(weeks)), np.nan)
    place = {week: number for number, week in enumerate(weeks)}
    for number, by_week in enumerate(prices.values()):
        for week, both in by_week.items():
            table[:, number, place[week]] = both
    days = np.array([date.fromisoformat(week).toordinal() for week in weeks])
    return Weekly(tuple(prices), tuple(weeks), days, table[0], table[1])


def _price(text: str) -> float:
    return float(text) if text and float(text) > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Past:
    """What was known of every zone's spot price at each week."""

    seen: npt.NDArray[np.int64]
    """Weeks in which a price was seen."""
    mean: Array
    """Mean logarithm of the share."""
    change: Array
    """Root mean square of its changes in the last `CHANGE_WEEKS`, and of one usual change."""
    type_level: Array
    """Middle of the type's other zones in that week; of all types where it has none."""


def past_of(weekly: Weekly) -> Past:
    """The past of every zone at each week, that week included."""
    share = weekly.log_share
    known = ~np.isnan(share)
    seen = np.cumsum(known, axis=1)
    mean = np.cumsum(np.nan_to_num(share), axis=1) / np.maximum(seen, 1)
    steps = np.diff(share, axis=1, prepend=np.nan)
    squares = _of_late(np.nan_to_num(steps) ** 2)
    change = np.sqrt((squares + USUAL_CHANGE**2) / (_of_late(~np.isnan(steps)) + 1))
    return Past(seen, mean, change, _type_level(weekly, share))


def _of_late(values: npt.NDArray[np.float64] | npt.NDArray[np.bool_]) -> Array:
    """The sum of each week and those before it, `CHANGE_WEEKS` in all."""
    total = np.cumsum(values, axis=1, dtype=float)
    total[:, CHANGE_WEEKS:] -= total[:, :-CHANGE_WEEKS].copy()
    return total


def _type_level(weekly: Weekly, share: Array) -> Array:
    types: dict[str, list[int]] = defaultdict(list)
    for number, series in enumerate(weekly.series):
        types[series.instance].append(number)
    level = np.full(share.shape, np.nan)
    for rows in types.values():
        for row in rows:
            others = [other for other in rows if other != row]
            if others:
                level[row] = _median(share[others])
    everybody = _median(share)
    return np.where(np.isnan(level), everybody[None, :], level)


def _median(values: Array) -> Array:
    """Of each column, not a number where it has none."""
    result = np.full(values.shape[1], np.nan)
    has = ~np.isnan(values).all(axis=0)
    result[has] = np.nanmedian(values[:, has], axis=0)
    return result


# --- AWS: what each price became ---


TERMS = ("constant", "below", "above", "change", "low")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every zone's price in a week, and what it became some weeks later."""

    features: Array
    moved: Array
    """The change of the logarithm of its share of on-demand."""
    share: Array
    """The logarithm it was."""
    group: npt.NDArray[np.int64]
    """One number for each family of types, week and time between: what one would choose among."""
    day: npt.NDArray[np.int64]
    """Of the later week."""

    def since(self, week: str) -> Pairs:
        """Those whose later week comes after one."""
        last = date.fromisoformat(week).toordinal()
        later = self.day > last
        return Pairs(
            self.features[later],
            self.moved[later],
            self.share[later],
            self.group[later],
            self.day[later],
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """Low, middle and high coefficient of each term, and how much wider the range was made."""

    terms: Mapping[str, Sequence[float]]
    wider: float
    cases: int


def fit_zones(weekly: Weekly) -> Fit:
    """The percentiles of what prices became, made wider by what the weeks to come will bring.

    A fit on some months knows those months. So the first half of the weeks is fitted alone, and the
    range widened until it holds 80 % of what least expected cost would have chosen in the second
    half, of each family of types in each week. A fit on all weeks has twice as many: what it lacks
    is taken to be half as large.
    """
    pairs = pairs_of(weekly)
    half = weekly.weeks[len(weekly.weeks) // 2]
    later = pairs.since(half)
    by_half = _chosen_width(later, *_percentiles(pairs_of(weekly.until(half))))
    wider = 1 + (by_half - 1) / 2
    low, middle, high = _percentiles(pairs)
    low, high = middle + wider * (low - middle), middle + wider * (high - middle)
    terms = {
        name: [float(level[number]) for level in (low, middle, high)]
        for number, name in enumerate(TERMS)
    }
    return Fit(terms, wider, len(pairs.moved))


def _percentiles(pairs: Pairs) -> tuple[Array, Array, Array]:
    low, middle, high = (
        quantile_regression(pairs.features, pairs.moved, level) for level in (0.1, 0.5, 0.9)
    )
    return low, middle, high


def _chosen_width(pairs: Pairs, low: Array, middle: Array, high: Array) -> float:
    """How much wider the range is to be for the prices that get chosen."""
    center, below, above = (pairs.features @ level for level in (middle, low, high))
    below, above = np.minimum(below - center, 0.0), np.maximum(above - center, 0.0)
    for wider in np.arange(1.0, 2.0, 0.02):
        expected = pairs.share + center + (wider * above / PERCENTILE_90) ** 2 / 4
        order = np.lexsort((expected, pairs.group))
        first = order[np.append(True, np.diff(pairs.group[order]) > 0)]
        off = pairs.moved[first] - center[first]
        # No price goes below the floor: what lies there is within any range that would.
        floor = np.minimum(math.log(LEAST_SHARE) - pairs.share[first] - center[first], 0.0)
        lowest = np.maximum(wider * below[first], floor)
        inside = (off >= lowest - 1e-6) & (off <= wider * above[first] + 1e-6)
        if inside.mean() >= RANGE_HOLDS:
            return float(wider)
    return 2.0


def pairs_of(weekly: Weekly) -> Pairs:
    """All pairs of weeks of all zones whose spot price saved something."""
    share, past = weekly.log_share, past_of(weekly)
    weight = past.seen / (past.seen + TYPE_WEEKS)
    level = weight * past.mean + (1 - weight) * past.type_level
    named = dict.fromkeys(series.family for series in weekly.series)
    families = {name: number for number, name in enumerate(named)}
    of_family = np.array([families[series.family] for series in weekly.series])
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    below_on_demand = share < _SAVES_NOTHING
    for number, (now, later, weeks) in enumerate(_looks(weekly.days)):
        known = below_on_demand[:, now] & ~np.isnan(share[:, later])
        gap = (level - share)[known, now]
        growth = weeks / (weeks + AWS_HALF_WEEKS)
        quote = share[known, now]
        terms = (
            np.ones(len(gap)),
            np.maximum(gap, 0),
            np.maximum(-gap, 0),
            past.change[known, now],
            np.maximum(math.log(LOW_SHARE) - quote, 0),
        )
        features = growth * np.stack(terms, axis=1)
        moved = share[known, later] - quote
        groups = number * len(families) + of_family[known]
        days = np.full(len(quote), weekly.days[later])
        parts.append((features, moved, quote, groups, days))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _looks(days: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """A week, a later one, and how many weeks lie between them."""
    for now, day in enumerate(days):
        for weeks in HORIZONS:
            later = int(np.argmin(np.abs(days - (day + 7 * weeks))))
            if abs(int(days[later] - day) - 7 * weeks) <= _DAYS_OFF:
                yield now, later, weeks


def quantile_regression(features: Array, values: Array, level: float) -> Array:
    """The coefficients whose sum lies above a share `level` of the values (Koenker 1978).

    By least squares weighted anew until they stand still, which is what minimising absolute
    deviations comes to. What no value tells anything of (no quote was ever low) is 0.
    """
    fit = _least_squares(features, values)
    for _ in range(300):
        off = values - features @ fit
        weights = np.where(off >= 0, level, 1 - level) / np.maximum(np.abs(off), 1e-3)
        weighted = features * weights[:, None]
        new = _least_squares(weighted.T @ features, weighted.T @ values)
        if np.abs(new - fit).max() < 1e-6:
            return new
        fit = new
    return fit


def _least_squares(features: Array, values: Array) -> Array:
    return np.asarray(np.linalg.lstsq(features, values, rcond=None)[0], float)


# --- other providers, and prices on demand: what lists moved over the months ---


def monthly_moves(
    rows: Iterable[Mapping[str, str]], columns: Sequence[str], until: str
) -> dict[str, dict[int, Array]]:
    """Changes of the logarithm of a price by provider and months, of lists that were renewed.

    Of several columns the one that moves least: the cheapest region's price on demand and the
    middle one's also move when regions come and go.
    """
    series: dict[tuple[str, str], dict[int, Mapping[str, str]]] = defaultdict(dict)
    for row in rows:
        known = row["provider"] not in LEFT_OUT and "tpu" not in row["instance_type"].lower()
        if known and _was_seen(row, until):
            series[row["provider"], row["instance_type"]][_month(row["month"])] = row
    moves: dict[str, dict[int, dict[str, list[float]]]] = {}
    for (provider, _), months in series.items():
        for month, row in months.items():
            for later in MONTHS:
                then = months.get(month + later)
                if then is None or then["last_changed"] == row["last_changed"]:
                    continue
                for column in columns:
                    change = math.log(_price(then[column]) / _price(row[column]))
                    if not math.isnan(change):
                        by_column = moves.setdefault(provider, {}).setdefault(later, {})
                        by_column.setdefault(column, []).append(change)
    return {
        provider: {
            later: min((np.array(values) for values in by_column.values()), key=_spread)
            for later, by_column in by_months.items()
        }
        for provider, by_months in moves.items()
    }


def _was_seen(row: Mapping[str, str], until: str) -> bool:
    """Whether a month's row, and the list it was read in, is from no later than a day."""
    return row["month"] <= until[:7] and row["last_changed"] <= until


def _month(text: str) -> int:
    year, month = text.split("-")
    return 12 * int(year) + int(month)


def _spread(changes: Array) -> float:
    return float(np.sqrt(np.mean(changes**2)))


@dataclass(frozen=True, slots=True)
class Spread:
    """How far prices move in a quarter: the deviation of their logarithm."""

    deviation: float
    cases: int

    def towards(self, everybody: Spread, renewals: int) -> Spread:
        """With everybody's spread as far as a provider's list was renewed too seldom to tell."""
        weight = renewals / (renewals + RENEWALS)
        variance = weight * self.deviation**2 + (1 - weight) * everybody.deviation**2
        return Spread(math.sqrt(variance), self.cases)


def spread_of(changes: Mapping[int, Array]) -> Spread:
    """The spread in a quarter that fits what prices moved in 1 to 12 months: it grows by the root
    of the time."""
    growths = {months: math.sqrt(months * WEEKS_OF_A_MONTH / QUARTER_WEEKS) for months in changes}
    top = sum(growths[months] * _spread(values) for months, values in changes.items())
    deviation = top / sum(growth**2 for growth in growths.values())
    return Spread(deviation, max(len(values) for values in changes.values()))


def renewals_of(monthly: Iterable[Mapping[str, str]], until: str) -> Counter[str]:
    """How often each provider's list was renewed by a day."""
    days = {(row["provider"], row["last_changed"]) for row in monthly if _was_seen(row, until)}
    return Counter(provider for provider, _ in days)


def spreads_of(
    moves: Mapping[str, Mapping[int, Array]], renewals: Mapping[str, int]
) -> dict[str, Spread]:
    """Of each provider with enough cases, and of all of them for the others (`*`)."""
    own = {
        provider: spread_of(changes)
        for provider, changes in moves.items()
        if max(len(values) for values in changes.values()) >= LEAST_CASES and len(changes) > 1
    }
    pooled = {
        months: np.array(
            [
                _spread(changes[months])
                for provider, changes in moves.items()
                if provider in own and months in changes
            ]
        )
        for months in MONTHS
    }
    everybody = spread_of({months: values for months, values in pooled.items() if len(values)})
    shrunk = {name: spread.towards(everybody, renewals[name]) for name, spread in own.items()}
    return {**shrunk, "*": everybody}


# --- the tables ---


def move_rows(
    weekly_rows: Sequence[Mapping[str, str]], monthly: Sequence[Mapping[str, str]], until: str
) -> list[Row]:
    """The rows of `price_moves.csv`, from what had been seen by a day."""
    aws = read_weekly(weekly_rows, "aws").until(until)
    fit = fit_zones(aws)
    rows = _zone_rows(aws, fit)
    for tenancy, columns in (
        ("spot", ("spot_min",)),
        ("on-demand", ("ondemand_min", "ondemand_median")),
    ):
        moves = monthly_moves(monthly, columns, until)
        spreads = spreads_of(moves, renewals_of(monthly, until))
        for provider, spread in sorted(spreads.items()):
            if (provider, tenancy) != ("aws", "spot"):
                wider = fit.wider if tenancy == "spot" else 1.0
                rows.append(_spread_row(provider, tenancy, spread, wider, monthly, until))
    return rows


def _zone_rows(aws: Weekly, fit: Fit) -> list[Row]:
    source = (
        "skypilot-catalog, catalogs/v7/aws/vms.csv: the last commit of each week from "
        f"{aws.weeks[0]} to {aws.weeks[-1]}"
    )
    note = (
        f"quantile regression over {fit.cases} pairs of weeks, made {fit.wider:.2f} times as wide"
    )
    return [
        _move_row("aws", "spot", term, values, AWS_HALF_WEEKS, source, aws.weeks[-1], note)
        for term, values in fit.terms.items()
    ]


def _spread_row(
    provider: str,
    tenancy: str,
    spread: Spread,
    wider: float,
    monthly: Sequence[Mapping[str, str]],
    until: str,
) -> Row:
    end = wider * PERCENTILE_90 * spread.deviation
    seen = [row for row in monthly if _was_seen(row, until)]
    months = [row["month"] for row in seen]
    source = f"skypilot-catalog: the last commit of each month from {min(months)} to {max(months)}"
    whose = "middle of all providers" if provider == "*" else f"{spread.cases} changes of its list"
    note = f"{wider * PERCENTILE_90:.2f} standard deviations in a quarter: {whose}"
    values = (-end, 0.0, end)
    as_of = max(row["last_changed"] for row in seen)
    return _move_row(provider, tenancy, "constant", values, None, source, as_of, note)


def _move_row(
    provider: str,
    tenancy: str,
    term: str,
    values: Sequence[float],
    half_weeks: float | None,
    source: str,
    as_of: str,
    note: str,
) -> Row:
    low, middle, high = (f"{value:.3g}" for value in values)
    return {
        "provider": provider,
        "tenancy": tenancy,
        "term": term,
        "low": low,
        "middle": middle,
        "high": high,
        "unit": "log of price",
        "half_weeks": "" if half_weeks is None else f"{half_weeks:g}",
        "source": source,
        "as_of": as_of,
        "note": note,
    }


def history_rows(
    offers: Sequence[Row],
    weekly_rows: Sequence[Mapping[str, str]],
    volatility: Sequence[Row],
    monthly: Sequence[Mapping[str, str]],
) -> list[Row]:
    """The rows of `spot_history_<date>.csv`: every zone with a spot price, and its past."""
    zones = {}
    for provider in ("aws", "gcp"):
        weekly = read_weekly(weekly_rows, provider)
        past = past_of(weekly)
        for number, series in enumerate(weekly.series):
            zones[series] = _zone_past(weekly, past, number)
    regions = {(row["provider"], row["instance_type"], row["region"]): row for row in volatility}
    rows = [
        _history_row(row, zones, regions)
        for row in offers
        if row["provider"] in ("aws", "gcp") and row["spot_usd_hour"]
    ]
    rows += _monthly_history(offers, monthly)
    return sorted(
        rows,
        key=lambda row: tuple(row[name] for name in ("provider", "instance", "region", "zone")),
    )


def _zone_past(weekly: Weekly, past: Past, number: int) -> Row:
    known = np.flatnonzero(~np.isnan(weekly.log_share[number]))
    if not len(known):
        return {}
    last = int(known[-1])
    return {
        "weeks": str(int(past.seen[number, last])),
        "seen_first": weekly.weeks[int(known[0])],
        "mean_share": f"{math.exp(past.mean[number, last]):.4g}",
        "weekly_change": f"{past.change[number, last]:.3g}",
    }


def _history_row(
    row: Row, zones: Mapping[Series, Row], regions: Mapping[tuple[str, str, str], Row]
) -> Row:
    provider, zone = row["provider"], row["region"]
    region = aws_region(zone) if provider == "aws" else gcp_region(zone)
    listed = row["instance_type"] if provider == "aws" else _accelerator(row)
    past = dict(zones.get(Series(provider, listed, region, zone)) or {})
    if past:
        past["weeks"] = str(int(past["weeks"]) + 1)  # and the week of the snapshot
    else:
        past = _region_past(row, regions.get((provider, row["instance_type"], region)))
    return {
        "provider": provider,
        "instance": row["instance_type"],
        "region": region,
        "zone": zone,
        "spot_usd_hour": _short(row["spot_usd_hour"]),
        "share": _share(row),
        **past,
        "as_of": row["last_changed"],
        "source": row["source"].split(":")[0],
    }


def _region_past(row: Row, region: Row | None) -> Row:
    """The past of a zone that the weekly file lacks: its region's, or nothing."""
    if region is None:
        return {
            "weeks": "1",
            "seen_first": row["last_changed"],
            "mean_share": "",
            "weekly_change": "",
        }
    weeks = int(region["weeks"])
    first = date.fromordinal(date.fromisoformat(row["last_changed"]).toordinal() - 7 * (weeks - 1))
    share = float(region["spot_mean"]) / _price(region["ondemand_median"])
    return {
        "weeks": str(weeks),
        "seen_first": first.isoformat(),
        "mean_share": "" if math.isnan(share) else f"{min(share, 1.0):.4g}",
        "weekly_change": "",
    }


def _accelerator(row: Row) -> str:
    """`acc:H100:8` for eight H100s, `acc:H100-MEGA:8` where the host is a3-megagpu."""
    name = _ACCELERATORS.get(row["gpu"], row["gpu"].split(" ")[0])
    if row["instance_type"].startswith("a3-megagpu"):
        name = "H100-MEGA"
    return f"acc:{name}:{int(float(row['gpu_count']))}"


def _monthly_history(offers: Sequence[Row], monthly: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    """Types of other providers: in how many months' lists their spot price stood."""
    sold: dict[tuple[str, str], Row] = {}
    for row in offers:
        elsewhere = row["provider"] not in ("aws", "gcp", *LEFT_OUT)
        if elsewhere and _price(row["spot_usd_hour"]) < _price(row["price_usd_hour"]):
            sold.setdefault((row["provider"], row["instance_type"]), row)
    seen: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for past in monthly:
        if past["spot_median"] and past["ondemand_median"]:
            seen[past["provider"], past["instance_type"]].append(past)
    for key, row in sold.items():
        months = {
            past["last_changed"]: past
            for past in seen[key]
            if _price(past["spot_median"]) < _price(past["ondemand_median"])
        }
        if len(months) < 2:
            continue
        shares = [
            math.log(_price(past["spot_median"]) / _price(past["ondemand_median"]))
            for past in months.values()
        ]
        yield {
            "provider": key[0],
            "instance": key[1],
            "region": "",
            "zone": "",
            "spot_usd_hour": "",
            "share": "",
            "weeks": str(weeks_listed(months, row["last_changed"])),
            "seen_first": min(months),
            "mean_share": f"{math.exp(sum(shares) / len(shares)):.4g}",
            "weekly_change": "",
            "as_of": row["last_changed"],
            "source": "skypilot-catalog, monthly",
        }


def _short(text: str) -> str:
    return f"{float(text):.5g}"


def _share(row: Row) -> str:
    price = _price(row["price_usd_hour"])
    return "" if math.isnan(price) else f"{min(float(row['spot_usd_hour']) / price, 1.0):.4g}"


def build(raw: Path, out: Path) -> None:
    """Read the raw files, write both tables."""
    offers = read_csv(only_file(raw, "offers_*.csv.gz"))
    weekly = read_csv(raw / "spot_weekly.csv.gz")
    monthly = read_csv(raw / "history_monthly_instances.csv.gz")
    volatility = read_csv(raw / "spot_volatility.csv")
    history = history_rows(offers, weekly, volatility, monthly)
    write_csv(out / f"spot_history_{offers[0]['snapshot_date']}.csv", history[0], history)
    moves = move_rows(weekly, monthly, offers[0]["snapshot_date"])
    write_csv(out / "price_moves.csv", moves[0], moves)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Build outlay's tables of how prices move.")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw price files")
    data = Path(__file__).parents[1] / "src" / "outlay" / "data"
    parser.add_argument("--out", type=Path, default=data, help="folder of the tables")
    arguments = parser.parse_args()
    build(arguments.raw, arguments.out)


if __name__ == "__main__":
    main()
