"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from outlay.offers.price_book import PriceBook
from outlay.prices.history import (
    LEAST_CASES,
    LEAST_MONTHS,
    ChangeTotal,
    GoodTime,
    LeftOut,
    PriceChange,
    PriceChanges,
    PriceHistory,
    PricePoint,
    PriceSeries,
    RentTenancy,
    Waiting,
)
from outlay.report.console import table
from outlay.report.documents import Document
from outlay.report.text import counted, usd
from outlay.units import days_after, days_between

OLD_DAYS = 14
"""Prices older than that are said to be old, with the command that renews them."""


def prices_in_words(book: PriceBook, today: str) -> str:
    """Whose prices, how old, and how to renew old ones: `the bundled snapshot of 2026-08-22`."""
    if book.kind == "past" or not today:
        return book.name
    days = days_between(book.as_of, today)
    age = "of today" if days <= 0 else f"{days} day{'s' * (days > 1)} old"
    renew = ": `outlay prices refresh` renews them" if days > OLD_DAYS else ""
    return f"{book.name}, {age}{renew}"


# --- refresh ---


# --- compare ---


# --- history ---

TENANCY_WORDS: dict[RentTenancy, str] = {"on-demand": "On demand", "spot": "Spot"}
LOW, HIGH = 0.25, 0.75
"""The share of months that were cheaper up to which a price is low, and from which it is high.

Assumes: the quarters of a year.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryDocument(Document):
    """What a GPU cost over time, per GPU-hour: the price of a machine over its GPUs."""

    gpu: str
    names: Sequence[str]
    """The GPUs that count: several where the name leaves memory or form open."""
    provider: str
    """The only one that counts; empty: all."""
    machine_gpus: int | None
    """Only machines of so many GPUs; None: of any number."""
    since: str
    """As it was asked for; empty: from the beginning."""
    until: str
    series: Sequence[PriceSeries]
    """Of each tenancy: all providers together (an empty name), then one by one; none where
    nothing is known."""
    good_time: Sequence[GoodTime]
    left_out: Sequence[LeftOut]


def history_document(
    history: PriceHistory, times: Sequence[GoodTime], since: str, until: str
) -> HistoryDocument:
    """What `outlay prices history --json` prints."""
    return HistoryDocument(
        gpu=history.gpu,
        names=history.names,
        provider=history.provider,
        machine_gpus=history.machine_gpus,
        since=since,
        until=until,
        series=history.series,
        good_time=times,
        left_out=history.left_out,
    )


def drawn_tenancies(history: PriceHistory) -> list[RentTenancy]:
    """Those that have any price."""
    return [tenancy for tenancy in TENANCY_WORDS if history.of(tenancy).points]


def history_title(history: PriceHistory) -> str:
    """`A100 80GB: dollars for a GPU-hour, 2022-10 to 2026-08`."""
    months = [point.month for series in history.series for point in series.points]
    return f"{_what(history)}: dollars for a GPU-hour, {min(months)} to {max(months)}"


def _what(history: PriceHistory) -> str:
    machines = "" if history.machine_gpus is None else f" in machines of {history.machine_gpus}"
    return f"{history.gpu}{machines}" + (f" at {history.provider}" if history.provider else "")


def line_words(history: PriceHistory) -> tuple[str, str]:
    """What the line of a chart is, and what its dots are."""
    if history.provider:
        return "the cheapest machine type", "the middle of all types"
    return "the cheapest of all providers", "the middle of all providers"


def nothing_known(history: PriceHistory) -> str:
    """What is said of a GPU without any price in the history."""
    return (
        f"No past price of {_what(history)} is known for the time asked: there is none in the "
        "bundled months (2022-07 to 2026-08) nor in what was refreshed here."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderYear:
    """One provider in the year up to the newest price: what a row of the table shows."""

    provider: str
    year_ago: PricePoint | None
    lowest: PricePoint
    highest: PricePoint
    now: PricePoint
    is_current: bool
    """Whether its newest price stands on the day of the newest price of all."""

    @property
    def change_fraction(self) -> float | None:
        """Of the price a year ago."""
        if self.year_ago is None or not self.is_current:
            return None
        return self.now.cheapest_usd_per_gpu_hour / self.year_ago.cheapest_usd_per_gpu_hour - 1


def provider_years(history: PriceHistory, tenancy: RentTenancy) -> list[ProviderYear]:
    """All providers together, then those that sell it now, the cheapest first, then the others.

    Of one provider alone there is but its own row.
    """
    together = history.of(tenancy)
    last = together.points[-1].at
    years = [_year(one, last) for one in history.providers(tenancy)]
    years.sort(key=lambda year: (not year.is_current, year.now.cheapest_usd_per_gpu_hour))
    return [_year(together, last), *years] if len(years) > 1 else years


def _year(series: PriceSeries, last: str) -> ProviderYear:
    now = series.points[-1]
    begin = days_after(now.day, -365)
    year_ago = series.current(begin)
    since = [point for point in series.points if begin <= point.day]
    points = since if year_ago is None else [year_ago, *since]
    return ProviderYear(
        provider=series.provider,
        year_ago=year_ago,
        lowest=min(points, key=lambda point: point.cheapest_usd_per_gpu_hour),
        highest=max(points, key=lambda point: point.cheapest_usd_per_gpu_hour),
        now=now,
        is_current=series.current(last) is now or now.at == last,
    )


def history_table(years: Sequence[ProviderYear], width: int) -> Table:
    """The cheapest price of each provider: a year ago, the lowest and highest since, and now."""
    rows = [history_cells(year) for year in years if year.is_current]
    return table(
        ("cheapest at", "year ago", "lowest", "highest", "now", "change", "middle", "as of",
         "types"),
        rows,
        width,
        right=("year ago", "lowest", "highest", "now", "change", "middle", "types"),
        drop=("types", "middle", "as of", "change"),
    )  # fmt: skip


def history_cells(year: ProviderYear) -> tuple[str, ...]:
    """A row of the table."""
    return (
        year.provider or "all together",
        _usd_of(year.year_ago),
        f"{_usd_of(year.lowest)} {year.lowest.month}",
        f"{_usd_of(year.highest)} {year.highest.month}",
        _usd_of(year.now),
        change_words(year.change_fraction),
        usd(year.now.median_usd_per_gpu_hour),
        year.now.day,
        str(year.now.machine_types),
    )


def _usd_of(point: PricePoint | None) -> str:
    return "-" if point is None else usd(point.cheapest_usd_per_gpu_hour)


def change_words(fraction: float | None) -> str:
    """`+12 %`, `-3 %`, or a dash where nothing is known."""
    if fraction is None:
        return "-"
    return f"{100 * fraction:+.0f} %" if abs(fraction) >= 0.005 else "0 %"


def good_time_words(time: GoodTime) -> list[str]:
    """Whether now is a good time, as sentences: where the price lies, and what waiting gained."""
    return [_standing_words(time), *_waiting_words(time.waiting)]


def _standing_words(time: GoodTime) -> str:
    now = f"{_usd_of(time.now)} ({time.now.cheapest_provider}, {time.now.day})"
    name = TENANCY_WORDS[time.tenancy]
    if not time.is_current:
        return (
            f"{name}: the newest price known is {now}; none is known to stand today, so that "
            "nothing is said of today."
        )
    if time.percentile is None or time.lowest is None or time.highest is None:
        return (
            f"{name}: {now}. Too little history to say whether that is low: {time.months} of the "
            f"12 months before have a price, and {LEAST_MONTHS} are needed."
        )
    level = "low" if time.percentile <= LOW else "high" if time.percentile >= HIGH else "usual"
    return (
        f"{name}: {now} is {level} for the year before: {_months_words(time)} "
        f"Lowest {_at(time.lowest)}, highest {_at(time.highest)}."
    )


def _months_words(time: GoodTime) -> str:
    cheaper, dearer = time.cheaper_months or "none", time.dearer_months or "none"
    return f"of {time.months} months {cheaper} were cheaper and {dearer} dearer."


def _at(point: PricePoint) -> str:
    return f"{_usd_of(point)} ({point.cheapest_provider}, {point.month})"


def _waiting_words(waits: Sequence[Waiting]) -> Iterator[str]:
    for wait in waits:
        months = counted(wait.months, "month")
        if wait.median_ratio is None or wait.best_ratio is None or wait.worst_ratio is None:
            yield (
                f"Waiting {months}: too little history to say "
                f"({counted(wait.cases, 'case')}, {LEAST_CASES} are needed)."
            )
            continue
        yield (
            f"Waiting {months}: cheaper in {wait.cheaper} of {wait.cases} cases, dearer in "
            f"{wait.dearer}; in the middle {_ratio_words(wait.median_ratio)}, at best "
            f"{_ratio_words(wait.best_ratio)}, at worst {_ratio_words(wait.worst_ratio)}."
        )
    yield from _conclusion(waits)


def _ratio_words(ratio: float) -> str:
    percent = round(100 * abs(ratio - 1))
    if not percent:
        return "no change"
    return f"{percent} % {'dearer' if ratio > 1 else 'cheaper'}"


def _conclusion(waits: Sequence[Waiting]) -> Iterator[str]:
    """What the longest wait that is known says, in one sentence to act on."""
    known = [wait for wait in waits if wait.median_ratio is not None]
    if not known:
        return
    wait = known[-1]
    months = counted(wait.months, "month")
    if not wait.cheaper and not wait.dearer:
        word = f"Waiting {months} has changed nothing in the past"
    elif 2 * wait.cheaper > wait.cases:
        word = f"Waiting {months} has paid more often than not in the past"
    elif wait.dearer > wait.cheaper:
        word = f"Waiting {months} has cost more often than it paid in the past"
    elif 4 * wait.cheaper >= wait.cases:
        word = f"Waiting {months} has paid sometimes in the past"
    else:
        word = f"Waiting {months} has rarely paid in the past"
    yield f"{word}; that is no forecast."


def history_notes(history: PriceHistory, today: str) -> list[str]:
    """What is to be known of the figures: which GPUs, whose prices are missing, how old."""
    return list(_history_notes(history, today))


def _history_notes(history: PriceHistory, today: str) -> Iterator[str]:
    yield (
        "A GPU-hour is the price of a machine over its GPUs; a list that only repeats the last one "
        "is no price, and what waiting did is of providers known before and after."
    )
    if len(history.names) > 1:
        names = ", ".join(history.names[:-1]) + f" and {history.names[-1]}"
        yield f'"{history.gpu}" leaves the form open: {names} count; name one to see it alone.'
    for tenancy in drawn_tenancies(history):
        gone = [
            f"{year.provider} ({year.now.month})"
            for year in provider_years(history, tenancy)
            if not year.is_current
        ]
        if gone:
            yield f"{TENANCY_WORDS[tenancy]}, no newer price than of: {', '.join(gone)}."
    words: dict[str, list[str]] = defaultdict(list)
    for left in history.left_out:
        words[left.doubt].append(f"{left.provider} {left.tenancy} {left.first} to {left.last}")
    for doubt, places in words.items():
        yield f'Not counted, as "{doubt}": {"; ".join(places)}.'
    newest = max(point.day for series in history.series for point in series.points)
    days = days_between(newest, today)
    if days > OLD_DAYS:
        yield f"The newest price is {days} days old: `outlay prices refresh` renews it."


# --- changes ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesDocument(Document):
    """What became dearer, cheaper, new or gone since a day."""

    since: str
    """As it was asked for; `totals` say where each comparison really begins."""
    changes: Sequence[PriceChange]
    """By provider, the largest first; what is new and gone after them."""
    totals: Sequence[ChangeTotal]


def changes_document(changes: PriceChanges) -> ChangesDocument:
    """What `outlay prices changes --json` prints."""
    return ChangesDocument(since=changes.since, changes=changes.changes, totals=changes.totals)


NOTHING_KEPT = (
    "No prices were refreshed here yet, so that there is nothing to compare: "
    "`outlay prices refresh` keeps today's."
)


def begin_words(changes: PriceChanges) -> list[str]:
    """Where comparisons begin on another day than was asked for, and why."""
    day = changes.since[:10]
    groups: dict[str, list[str]] = defaultdict(list)
    for total in changes.totals:
        name = f"{total.provider} ({total.source})"
        if total.begins == total.ends:
            groups[f"read once only, on {total.begins}: nothing to compare"].append(name)
        elif total.from_snapshot:
            groups[f"compared with the bundled snapshot of {total.begins}"].append(name)
        elif total.begins > day:
            groups[f"first read on {total.begins}, compared with that"].append(name)
        elif total.begins < day:
            groups[f"compared with {total.begins}, the last prices kept before"].append(name)
    return [f"{', '.join(names)}: {words}." for words, names in groups.items()]


def totals_table(totals: Sequence[ChangeTotal], width: int) -> Table:
    """How many prices changed, by provider."""
    rows = [
        (
            total.provider,
            total.source,
            total.begins,
            total.ends,
            *(str(number or "-") for number in _numbers(total)),
        )
        for total in totals
        if total.begins != total.ends
    ]
    numbers = ("dearer", "cheaper", "new", "gone", "same")
    return table(
        ("provider", "source", "from", "to", *numbers),
        rows,
        width,
        right=numbers,
        drop=("source", "same"),
    )


def _numbers(total: ChangeTotal) -> tuple[int, ...]:
    return (total.dearer, total.cheaper, total.new, total.gone, total.same)


def changes_table(changes: Sequence[PriceChange], width: int) -> Table:
    """One row for each price that changed."""
    rows = [
        (
            change.provider,
            change.instance,
            f"{change.gpus:g}x {change.gpu}",
            change.region,
            change.tenancy,
            "-" if change.before_usd_per_hour is None else usd(change.before_usd_per_hour),
            "-" if change.after_usd_per_hour is None else usd(change.after_usd_per_hour),
            change.kind if change.change_fraction is None else change_words(change.change_fraction),
            change.source,
        )
        for change in changes
    ]
    return table(
        ("provider", "instance", "gpu", "region", "tenancy", "before $/h", "after $/h", "change",
         "source"),
        rows,
        width,
        right=("before $/h", "after $/h", "change"),
        drop=("source", "gpu", "region"),
    )  # fmt: skip


# --- watch ---


# --- import ---


# --- what is installed, and which sources answer ---
