"""Would acting on old prices have paid? Plans made in past weeks, charged at what came after.

    python tools/backtest.py --raw DIR [--until 2025-12-31] [--weekly FILE ...]

How prices move is fitted on the weeks up to `--until`; then, for every week after it, plans are
made for seven training runs with quotes that are 4, 8 and 12 weeks old, among all GPUs and among
those of one kind, in all regions and in those of one continent, on AWS and on GCP, and the run is
charged at the prices of the weeks in which it runs. Step times are held at their likely figure:
only prices have a truth here. Three choosers are compared with the best choice in hindsight:

    expected cost       what outlay does: nothing doubtful, least expected cost
    cheapest quote      the lowest last quote, spot or on demand
    cheapest on-demand  the lowest on-demand price

Of the spot options that outlay chose: what was paid over what was promised (the likely cost), and
how often the price paid lay within its 80 % range.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from statistics import NormalDist, mean, median

import numpy as np

from build_offers import read_csv
from fit_prices import Past, Weekly, move_rows, past_of, read_weekly
from outlay.errors import OutlayError
from outlay.offers.catalog import doubt_kinds
from outlay.offers.expected_price import (
    Movements,
    SpotMarket,
    at_best_zone,
    expected_price,
    highest_price,
    movements_of,
)
from outlay.offers.offer import Offer, Tenancy, ZoneQuote
from outlay.plan.from_measurement import profile_for
from outlay.plan.option import Option
from outlay.plan.pipeline import planner_of
from outlay.uncertainty import Estimate, at_deviations
from outlay.units import DAY_S, HOUR_S, WEEK_S
from outlay.workload.workload import Checkpoint, Length, Step, Workload

AGES = (4, 8, 12)
"""Weeks that a quote is old when a plan is made with it."""
LENGTHS = {
    "stylenat": 3e6,
    "resnet50": 2e8,
    "vit-b16": 2e8,
    "bert-large": 2e7,
    "gpt2-medium": 5e6,
    "llama-1b": 1e6,
    "latent-diffusion-unet": 1e7,
}
"""Samples of each bundled step: days to weeks of training on one GPU."""
CONTINENTS = {
    "aws": ("", "us-", "eu-", "ap-"),
    "gcp": ("", "us-", "europe-", "asia-"),
}
NOT_ON_DEMAND = ("acc:H100:1", "acc:H100:2", "acc:H100:4", "acc:H200:8", "acc:B200:8")
"""GCP lists a price for them on demand but does not start them so."""
_ACCELERATOR_GPUS = {
    "A100": "A100 40GB SXM",
    "A100-80GB": "A100 80GB SXM",
    "H100": "H100 SXM",
    "H100-MEGA": "H100 SXM",
}


# --- what a run takes on each type of machine ---


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run on a type of machine comes to: a sum, and hours times the price of one."""

    fixed_usd: float
    hours: float
    run_s: float

    def usd(self, usd_per_hour: float) -> float:
        """At a price."""
        return self.fixed_usd + self.hours * usd_per_hour


class Runs:
    """The bills of one workload on every type of machine, step times at likely."""

    def __init__(self, profile: str, samples: float) -> None:
        workload = Workload(
            name=profile,
            step=Step(profile=profile),
            length=Length(samples=samples),
            checkpoint=Checkpoint(size_bytes=2e9),
        )
        self._planner = planner_of(workload, profile_for(workload.step))
        self._bills: dict[tuple[str, Tenancy], Bill | None] = {}

    def bill(self, offer: Offer, tenancy: Tenancy) -> Bill | None:
        """None where it does not fit, or nothing is known of the GPU."""
        key = (offer.instance, tenancy)
        if key not in self._bills:
            self._bills[key] = self._worked_out(offer, tenancy)
        return self._bills[key]

    def _worked_out(self, offer: Offer, tenancy: Tenancy) -> Bill | None:
        dollar = replace(offer, price_usd_per_hour=1.0, spot_usd_per_hour=1.0, quoted=True)
        try:
            option: Option = self._planner.option(dollar, tenancy)
        except OutlayError:
            return None
        if option.run is None or option.cost is None or not option.runs or option.blocked:
            return None
        hours = float(option.run.busy_s) / HOUR_S
        return Bill(option.usd - hours, hours, float(option.run.calendar_s))


# --- one plan ---


@dataclass(frozen=True, slots=True)
class Choice:
    """An offer in a tenancy, what it was promised to cost, and what it did cost."""

    offer: Offer
    tenancy: Tenancy
    price: Estimate
    promised_usd: float
    expected_usd: float
    quoted_usd: float
    sound: bool
    paid_usd_per_hour: float
    """Over the weeks of the run; not a number where it was not sold then."""
    paid_usd: float


class History:
    """One provider's weeks, with what was known in each of them."""

    def __init__(self, weekly: Weekly, movements: Movements) -> None:
        self.weekly, self.movements = weekly, movements
        self._past: Past = past_of(weekly)
        self._usable = [number for number, offer in enumerate(map(_offer, weekly.series)) if offer]

    @cache  # noqa: B019
    def quotes(self, week: int) -> tuple[tuple[Offer, int], ...]:
        """Every zone on sale in a week as an offer with its past, and its row."""
        market = self._market(week)
        return tuple(self._quoted(week, market))

    def market(self, week: int) -> SpotMarket:
        """The spot prices of a week."""
        return self._market(week)

    @cache  # noqa: B019
    def _market(self, week: int) -> SpotMarket:
        quotes: dict[tuple[str, str, str], list[ZoneQuote]] = {}
        for number in self._usable:
            zone = self._zone(number, week)
            series = self.weekly.series[number]
            if zone is not None:
                key = (series.provider, series.instance, _place(series.region, series.zone))
                quotes.setdefault(key, []).append(zone)
        return SpotMarket(quotes)

    def _quoted(self, week: int, market: SpotMarket) -> Iterator[tuple[Offer, int]]:
        as_of = self.weekly.weeks[week]
        for number in self._usable:
            series, base = self.weekly.series[number], _offer(self.weekly.series[number])
            on_demand = _known(self.weekly.on_demand_usd[number, week])
            spot = _known(self.weekly.spot_usd[number, week])
            if base is None or on_demand is None:
                continue
            if spot is not None and spot >= 0.999 * on_demand:
                spot = None
            offer = replace(
                base,
                region=_place(series.region, series.zone),
                price_usd_per_hour=on_demand,
                spot_usd_per_hour=spot,
                as_of=as_of,
            )
            yield at_best_zone(offer, doubt_kinds(), as_of, market, self.movements), number

    def _zone(self, number: int, week: int) -> ZoneQuote | None:
        spot, share = self.weekly.spot_usd[number, week], self.weekly.log_share[number, week]
        if math.isnan(share):
            return None
        seen = np.flatnonzero(~np.isnan(self.weekly.log_share[number, : week + 1]))
        return ZoneQuote(
            zone=self.weekly.series[number].zone,
            usd_per_hour=float(spot),
            share=math.exp(share),
            weeks=int(self._past.seen[number, week]),
            seen_first=None if seen[0] == 0 else self.weekly.weeks[seen[0]],
            mean_share=math.exp(self._past.mean[number, week]),
            weekly_change=float(self._past.change[number, week]),
        )

    def paid_usd_per_hour(self, number: int, tenancy: Tenancy, start: int, run_s: float) -> float:
        """The price over the weeks of a run, each by the time the run is in it."""
        prices = self.weekly.spot_usd if tenancy == "spot" else self.weekly.on_demand_usd
        days, begin = self.weekly.days, self.weekly.days[start]
        end = begin + max(run_s / DAY_S, 0.1)
        edges = np.append(days[start:], days[-1] + 7).astype(float)
        inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0.0, None)
        charged = inside > 0
        if end > edges[-1] or np.isnan(prices[number, start:][charged]).any():
            return math.nan
        return float(np.average(prices[number, start:][charged], weights=inside[charged]))


def _place(region: str, zone: str) -> str:
    """Each zone stands for itself here."""
    return f"{region}/{zone}"


def _known(price: float) -> float | None:
    return None if math.isnan(price) else float(price)


@cache
def _offer(series: object) -> Offer | None:
    provider, instance = series.provider, series.instance  # type: ignore[attr-defined]
    gpu, gpus = _GPUS.get((provider, instance), ("", 0))
    if not gpu:
        return None
    return Offer(
        provider=provider,
        instance=instance,
        gpu=gpu,
        gpus=gpus,
        region="",
        price_usd_per_hour=None,
        as_of="",
        source="weekly prices",
    )


_GPUS: dict[tuple[str, str], tuple[str, int]] = {}
"""The GPU of each instance type and their number, as the weekly file says."""


def read_gpus(rows: Iterable[Mapping[str, str]]) -> None:
    """Note the GPU of each instance type."""
    from outlay.hardware.gpu_names import find_gpu

    for row in rows:
        key = (row["provider"], row["instance"])
        if key in _GPUS:
            continue
        name, count = _ACCELERATOR_GPUS.get(row["gpu"], row["gpu"]), float(row["gpus"])
        try:
            _GPUS[key] = (find_gpu(name).meaning, int(count)) if count >= 1 else ("", 0)
        except OutlayError:
            _GPUS[key] = ("", 0)


def choices(history: History, runs: Runs, quoted: int, start: int) -> Iterator[Choice]:
    """Every offer of a week in every tenancy, promised and paid."""
    weeks = (history.weekly.days[start] - history.weekly.days[quoted]) * DAY_S / WEEK_S
    market = history.market(quoted)
    for offer, number in history.quotes(quoted):
        for tenancy in offer.tenancies:
            if tenancy == "on-demand" and offer.instance in NOT_ON_DEMAND:
                continue
            bill = runs.bill(offer, tenancy)
            if bill is None:
                continue
            middle = weeks + bill.run_s / 2 / WEEK_S
            price = expected_price(offer, tenancy, middle, market, history.movements)
            assert price is not None
            paid = history.paid_usd_per_hour(number, tenancy, start, bill.run_s)
            yield Choice(
                offer=offer,
                tenancy=tenancy,
                price=price,
                promised_usd=bill.usd(price.likely),
                expected_usd=bill.usd(mean_of(price, highest_price(offer, tenancy))),
                quoted_usd=bill.usd(offer.hourly_usd(tenancy) or math.inf),
                sound=not offer.cautions(tenancy),
                paid_usd_per_hour=paid,
                paid_usd=bill.usd(paid),
            )


_LEVELS = np.array([NormalDist().inv_cdf((number + 0.5) / 200) for number in range(200)])


def mean_of(value: Estimate, most: float | None) -> float:
    """What draws of a price average to, none of them above `most`."""
    if value.low == value.high:
        return value.likely
    draws = at_deviations(value, _LEVELS)
    return float((draws if most is None else np.minimum(draws, most)).mean())


@dataclass(frozen=True, slots=True)
class Outcome:
    """One plan: what each chooser took, and the best in hindsight."""

    provider: str
    age: int
    expected: Choice
    quote: Choice
    on_demand: Choice | None
    best_usd: float


def outcomes(history: History, all_runs: Mapping[str, Runs], until: str) -> Iterator[Outcome]:
    """All plans that can be charged: the run ends within the recorded weeks."""
    weekly = history.weekly
    provider = weekly.series[0].provider
    for start, week in enumerate(weekly.weeks):
        if week <= until:
            continue
        for age in AGES:
            quoted = int(np.argmin(np.abs(weekly.days - (weekly.days[start] - 7 * age))))
            if abs(int(weekly.days[start] - weekly.days[quoted]) - 7 * age) > 4:
                continue
            for runs in all_runs.values():
                everything = list(choices(history, runs, quoted, start))
                for group in _groups(everything, CONTINENTS[provider]):
                    outcome = _outcome(provider, age, group)
                    if outcome is not None:
                        yield outcome


def _groups(everything: Sequence[Choice], continents: Sequence[str]) -> Iterator[list[Choice]]:
    """What people choose among: all GPUs or one kind, all regions or those of a continent."""
    for continent in continents:
        near = [choice for choice in everything if choice.offer.region.startswith(continent)]
        yield near
        for gpu in sorted({choice.offer.gpu for choice in near}):
            yield [choice for choice in near if choice.offer.gpu == gpu]


def _outcome(provider: str, age: int, everything: Sequence[Choice]) -> Outcome | None:
    charged = [choice for choice in everything if not math.isnan(choice.paid_usd)]
    sound = [choice for choice in charged if choice.sound]
    on_demand = [choice for choice in charged if choice.tenancy == "on-demand"]
    if not sound:
        return None
    return Outcome(
        provider=provider,
        age=age,
        expected=min(sound, key=lambda choice: choice.expected_usd),
        quote=min(charged, key=lambda choice: choice.quoted_usd),
        on_demand=min(on_demand, key=lambda choice: choice.quoted_usd, default=None),
        best_usd=min(choice.paid_usd for choice in charged),
    )


# --- the table ---


@dataclass(frozen=True, slots=True)
class Score:
    """What the plans of one provider and age come to."""

    plans: int
    spot_share: float
    distinct: int
    paid_over_promised: float
    inside: float
    regret: float
    quote_regret: float
    on_demand_regret: float
    worst_tenth: float
    quote_worst_tenth: float


def score(results: Sequence[Outcome]) -> Score:
    """The figures of a set of plans; those of spot are not numbers where none was chosen."""
    spot = [result.expected for result in results if result.expected.tenancy == "spot"]
    kept = [result for result in results if result.on_demand is not None]

    def regrets(paid: Iterable[tuple[float, float]]) -> list[float]:
        return [usd / best - 1 for usd, best in paid]

    ours = regrets((result.expected.paid_usd, result.best_usd) for result in results)
    quotes = regrets((result.quote.paid_usd, result.best_usd) for result in results)
    return Score(
        plans=len(results),
        spot_share=len(spot) / len(results),
        distinct=len({choice.offer.identity for choice in spot}),
        paid_over_promised=(
            median(choice.paid_usd / choice.promised_usd for choice in spot) if spot else math.nan
        ),
        inside=_mean([_is_inside(choice) for choice in spot]),
        regret=mean(ours),
        quote_regret=mean(quotes),
        on_demand_regret=_mean(
            regrets(
                (result.on_demand.paid_usd, result.best_usd) for result in kept if result.on_demand
            )
        ),
        worst_tenth=float(np.quantile(ours, 0.9)),
        quote_worst_tenth=float(np.quantile(quotes, 0.9)),
    )


def _is_inside(choice: Choice) -> float:
    """1 where the price paid lay within its range, else 0; a hair is rounding."""
    low, high = choice.price.low * (1 - 1e-9), choice.price.high * (1 + 1e-9)
    return float(low <= choice.paid_usd_per_hour <= high)


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else math.nan


_HEADS = (
    "provider",
    "quotes old",
    "plans",
    "spot chosen",
    "different",
    "paid / promised",
    "in range",
    "regret",
    "of cheapest quote",
    "of on-demand",
)


def table(results: Sequence[Outcome]) -> list[str]:
    """The scores of every provider and age, as a Markdown table."""
    lines = [
        f"| {' | '.join(_HEADS)} |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for provider in ("aws", "gcp"):
        for age in (*AGES, 0):
            chosen = [r for r in results if r.provider == provider and age in (0, r.age)]
            if not chosen:
                continue
            figures = score(chosen)
            lines.append(
                f"| {provider} | {f'{age} weeks' if age else 'all'} | {figures.plans:,} "
                f"| {figures.spot_share:.0%} | {figures.distinct} "
                f"| {figures.paid_over_promised:.2f} | {figures.inside:.0%} | {figures.regret:.1%} "
                f"| {figures.quote_regret:.1%} | {figures.on_demand_regret:.0%} |"
            )
    return lines


def backtest(
    weekly_rows: Sequence[Mapping[str, str]], monthly: Sequence[Mapping[str, str]], until: str
) -> list[Outcome]:
    """Every plan of both providers, with price moves as known at the end of a day."""
    movements = movements_of(move_rows(weekly_rows, monthly, until))
    read_gpus(weekly_rows)
    all_runs = {name: Runs(name, samples) for name, samples in LENGTHS.items()}
    results: list[Outcome] = []
    for provider in ("aws", "gcp"):
        weekly = read_weekly(weekly_rows, provider)
        results += outcomes(History(weekly, movements), all_runs, until)
    return results


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Charge past plans at the prices that came.")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw price files")
    parser.add_argument(
        "--weekly", type=Path, nargs="*", default=[], help="files of further weeks, added to those"
    )
    parser.add_argument("--until", default="2025-12-31", help="the last day to fit on")
    arguments = parser.parse_args()
    files = (arguments.raw / "spot_weekly.csv.gz", *arguments.weekly)
    weekly_rows = [row for file in files for row in read_csv(file)]
    monthly = read_csv(arguments.raw / "history_monthly_instances.csv.gz")
    date.fromisoformat(arguments.until)
    print("\n".join(table(backtest(weekly_rows, monthly, arguments.until))))


if __name__ == "__main__":
    main()
