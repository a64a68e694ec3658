"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from outlay.offers.catalog import doubt_meanings
from outlay.offers.offer import Tenancy
from outlay.offers.price_book import PriceBook
from outlay.prices.alerts import CheapOffer
from outlay.prices.checks import BUNDLED, ComparedMachine, SourceComparison, SourcePrice
from outlay.prices.history import (
    LEAST_CASES,
    LEAST_MONTHS,
    GoodTime,
    LeftOut,
    PriceHistory,
    PricePoint,
    PriceSeries,
    RentTenancy,
    Waiting,
)
from outlay.prices.price_changes import ChangeTotal, PriceChange, PriceChanges
from outlay.prices.price_store import UNREAD, Attempt, State
from outlay.prices.status import Installed, KeyStatus, SetUp, SourceStatus
from outlay.report.console import Page, Table, table
from outlay.report.documents import Document, copied
from outlay.report.text import OLD_DAYS, counted, machine, prices_in_words, size, usd
from outlay.units import days_after, days_between

if TYPE_CHECKING:
    from outlay.prices.own_lists import ListSummary

# --- refresh ---


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshedSourceDocument:
    """What became of asking one source about one provider."""

    source: str
    provider: str
    """`all` where a source cannot even say which it has."""
    state: State
    """New prices; the same as before; no answer, so that the last good ones are kept; an answer
    that was refused whole, so that the last good ones are kept."""
    offers: int
    """That are kept of it now."""
    as_of: str | None
    """The day of those, null where there are none."""
    reason: str | None
    """Why the last good prices are kept."""
    missing_key: str
    """The variables that hold the key without which it is not answered; empty where none is
    needed, or it is set."""
    unknown_gpus: tuple[str, ...]
    """GPUs among its prices that outlay does not know."""
    is_new_provider: bool
    """Whether outlay knows nothing of the provider but these prices."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshDocument(Document):
    """What `outlay prices refresh --json` prints."""

    sources: tuple[RefreshedSourceDocument, ...]


def refresh_document(attempts: Sequence[Attempt]) -> RefreshDocument:
    """What a refresh brought, as JSON."""
    return RefreshDocument(
        sources=tuple(
            RefreshedSourceDocument(
                source=attempt.source,
                provider=attempt.provider,
                state=attempt.state,
                offers=attempt.offers,
                as_of=attempt.as_of,
                reason=attempt.reason,
                missing_key=attempt.missing_key,
                unknown_gpus=attempt.unknown_gpus,
                is_new_provider=attempt.is_new_provider,
                notes=attempt.notes,
            )
            for attempt in attempts
        )
    )


_MOST_NAMES = 12
_OTHER_NOUNS = {"rates": " rates", "spot-advisor": " types"}
"""What sources of something else than offers have so many of."""
_FAILED_STATES = {
    "kept": "no answer that could be used: the last good prices stay, if there are any",
    "refused": "an answer that is not to be believed: the last good prices stay",
}


def print_refresh(attempts: Sequence[Attempt]) -> None:
    """What a refresh brought: a row for each source and provider, then what is new."""
    page = Page()
    shown = [attempt for attempt in attempts if not attempt.missing_key]
    rows = [
        [
            attempt.source,
            attempt.provider,
            attempt.state,
            f"{attempt.offers:,}{_OTHER_NOUNS.get(attempt.source, '')}",
            attempt.as_of or "-",
            attempt.reason or "",
        ]
        for attempt in shown
    ]
    if rows:
        heads = ("source", "provider", "state", "offers", "as of", "reason")
        page.print(table(heads, rows, page.width, right=("offers",), wrap="reason"))
    for sentence in _refresh_remarks(attempts):
        page.print(sentence)


def _refresh_remarks(attempts: Sequence[Attempt]) -> Iterator[str]:
    """What is to be said of a refresh beside its table."""
    asked = [attempt for attempt in attempts if not attempt.missing_key]
    done = [attempt for attempt in asked if attempt.state in ("fresh", "unchanged")]
    if asked:
        yield f"Refreshed: {len(done)} of {counted(len(asked), 'list')}."
    states = {attempt.state for attempt in asked}
    yield from (
        f"  {state}: {words}." for state, words in _FAILED_STATES.items() if state in states
    )
    new = sorted({attempt.provider for attempt in attempts if attempt.is_new_provider})
    if new:
        yield f"New to outlay, without terms (billing, storage, transfer): {_first_of(new)}."
    gpus = sorted({gpu for attempt in attempts for gpu in attempt.unknown_gpus})
    if gpus:
        yield f"GPUs that outlay does not know, kept and in no plan: {_first_of(gpus)}."
    for attempt in attempts:
        unread = (note for note in attempt.notes if UNREAD in note)
        yield from (f"{attempt.provider} ({attempt.source}): {note}." for note in unread)
    keys = {attempt.provider: attempt.missing_key for attempt in attempts if attempt.missing_key}
    if keys:
        named = [
            f"{provider} ({key.replace(', ', ' or ')})" for provider, key in sorted(keys.items())
        ]
        yield f"Not asked, as no key is set: {', '.join(named)}."


def _first_of(names: Sequence[str]) -> str:
    """Names, but no more of them than one reads."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def refresh_failures(attempts: Sequence[Attempt]) -> str:
    """What could not be refreshed, on one line; empty where everything was."""
    failed = [
        attempt
        for attempt in attempts
        if attempt.state in ("kept", "refused") and not attempt.missing_key
    ]
    if not failed:
        return ""
    named = [f"{attempt.provider} ({attempt.source})" for attempt in failed]
    shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
    return f"not refreshed, so that the last good prices are used: {shown}"


# --- compare ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePriceDocument:
    """What one source says of a machine."""

    source: str
    """`skypilot`, `gpuhunt` ...; `bundled` for the snapshot that comes with outlay."""
    instance: str
    as_of: str
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    difference_fraction: float | None
    """How much more it is on demand than the price a plan takes (than the first, where a plan
    takes none); null for that price itself."""
    used: bool
    """Whether a plan takes this price."""
    doubts: Sequence[str]
    cited: str
    """Where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMachineDocument:
    """One machine as two or more sources list it."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    region: str
    apart_fraction: float | None
    """By how much the dearest price on demand is above the cheapest."""
    doubts: Sequence[str]
    """`sources disagree`, `sources far apart`, or none."""
    doubt_reasons: Mapping[str, str]
    why: str
    """Why a plan takes the price it takes."""
    prices: Sequence[SourcePriceDocument]
    """The one that a plan takes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(Document):
    """What sources say of the same machines, the farthest apart first."""

    gpu: str
    machines: Sequence[ComparedMachineDocument]
    only_one: Mapping[str, int]
    """How many machines a source alone lists, by source."""


def compare_document(gpu: str, comparison: SourceComparison) -> CompareDocument:
    """`outlay prices compare --json`."""
    return CompareDocument(
        gpu=gpu,
        machines=[_machine_document(machine) for machine in comparison.machines],
        only_one=comparison.only_one,
    )


def _machine_document(machine: ComparedMachine) -> ComparedMachineDocument:
    return copied(
        ComparedMachineDocument,
        machine.offer,
        apart_fraction=machine.apart_fraction,
        doubts=machine.doubts,
        doubt_reasons={word: doubt_meanings()[word] for word in machine.doubts},
        why=machine.why,
        prices=[_source_price_document(price) for price in machine.prices],
    )


def _source_price_document(price: SourcePrice) -> SourcePriceDocument:
    offer = price.offer
    return SourcePriceDocument(
        source=price.source,
        instance=offer.instance,
        as_of=offer.as_of,
        price_usd_per_hour=offer.price_usd_per_hour,
        spot_usd_per_hour=offer.spot_usd_per_hour,
        difference_fraction=price.more_fraction,
        used=price.is_used,
        doubts=[doubt.word for doubt in offer.doubts],
        cited=offer.source,
    )


def print_comparison(page: Page, gpu: str, comparison: SourceComparison, most: int) -> None:
    """Print what sources say of the same machines, a row for each source."""
    shown = comparison.machines[:most]
    if shown:
        page.print(f"{gpu} by source, the farthest apart first")
        page.print(_comparison_table(shown, page.width))
        words = {word for machine in shown for word in machine.doubts}
        for word, meaning in doubt_meanings().items():
            if word in words:
                page.print(f"  {word}: {meaning}.")
    total = len(comparison.machines)
    page.print(f"Shown {len(shown)} of {counted(total, 'machine')} that two or more sources list.")
    alone = [f"{source} {number:,}" for source, number in comparison.only_one.items()]
    if alone:
        page.print(f"Listed by one source alone: {', '.join(alone)}.")
    if set(comparison.only_one) <= {BUNDLED} and not total:
        page.print("`outlay prices refresh` brings further sources.")


def _comparison_table(machines: Sequence[ComparedMachine], width: int) -> Table:
    rows = [_comparison_row(machine, price) for machine in machines for price in machine.prices]
    return table(
        ("machine", "provider", "instance", "region", "source", "as of", "$/h", "spot $/h",
         "differs", "in a plan"),
        rows,
        width,
        right=("$/h", "spot $/h", "differs"),
        drop=("spot $/h",),
        fold=("in a plan", "instance", "region", "source", "as of"),
        wrap="in a plan",
    )  # fmt: skip


def _comparison_row(compared: ComparedMachine, price: SourcePrice) -> tuple[str, ...]:
    """The machine's name stands in its first row; what a plan takes and the doubts, too."""
    offer, first = price.offer, price is compared.prices[0]
    instance = offer.instance if first or offer.instance != compared.offer.instance else ""
    why = f"used: {compared.why}" if price.is_used else compared.why
    said = "; ".join((why, *compared.doubts)) if first else ""
    more = price.more_fraction
    return (
        machine(offer) if first else "",
        offer.provider if first else "",
        instance,
        offer.region if first or offer.region != compared.offer.region else "",
        price.source,
        offer.as_of,
        _price(offer.price_usd_per_hour),
        _price(offer.spot_usd_per_hour),
        "" if more is None else f"{100 * more:+.1f} %",
        said,
    )


def _price(amount: float | None) -> str:
    return "-" if amount is None else usd(amount)


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
        drop=("types", "middle"),
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
        "A GPU-hour is the price of a machine over its GPUs. The cheapest of all also moves when a "
        "provider joins or its list grows too old to count; what waiting did is of providers known "
        "before and after."
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
            yield (
                f"{TENANCY_WORDS[tenancy]}, last seen too long ago to count now: {', '.join(gone)}."
            )
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
        is_as_it_was = not (total.dearer or total.cheaper or total.new or total.gone)
        if is_as_it_was and total.begins != total.ends:
            continue
        if total.begins == total.ends:
            groups[f"read once only, on {total.begins}: nothing to compare"].append(name)
        elif not (total.dearer or total.cheaper or total.new or total.gone):
            continue
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
        drop=("source", "gpu"),
        fold=("instance", "region", "tenancy"),
    )  # fmt: skip


# --- watch ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapOfferDocument:
    """An offer below the price that is waited for."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    region: str
    tenancy: Tenancy
    usd_per_gpu_hour: float
    usd_per_hour: float
    """Of the whole machine."""
    as_of: str
    source: str
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapOffersDocument(Document):
    """What `outlay prices watch --json` prints at each look."""

    below_usd_per_gpu_hour: float
    happened: bool
    prices_as_of: str
    offers: tuple[CheapOfferDocument, ...]


def cheap_offers_document(
    cheap: Sequence[CheapOffer], below: float, book: PriceBook, today: str
) -> CheapOffersDocument:
    """The offers below a price as JSON."""
    return CheapOffersDocument(
        below_usd_per_gpu_hour=below,
        happened=bool(cheap),
        prices_as_of=book.as_of or today,
        offers=tuple(
            CheapOfferDocument(
                provider=found.offer.provider,
                instance=found.offer.instance,
                gpu=found.offer.gpu,
                gpus=found.offer.gpus,
                region=found.offer.region,
                tenancy=found.tenancy,
                usd_per_gpu_hour=found.usd_per_gpu_hour,
                usd_per_hour=found.usd_per_hour,
                as_of=found.offer.seen_on(found.tenancy),
                source=found.offer.source,
                doubts=tuple(doubt.word for doubt in found.offer.doubts),
            )
            for found in cheap
        ),
    )


def print_cheap_offers(
    cheap: Sequence[CheapOffer], gpus: Sequence[str], below: float, book: PriceBook, today: str
) -> None:
    """The offers below a price, or that there are none."""
    page, names = Page(), ", ".join(gpus)
    words = prices_in_words(book, today)
    if not cheap:
        page.print(f"No {names} below {usd(below)} a GPU-hour; {words}.")
        return
    page.print(f"{names} below {usd(below)} a GPU-hour: {counted(len(cheap), 'offer')}; {words}.")
    rows = [
        (
            found.offer.provider,
            machine(found.offer),
            found.tenancy,
            found.offer.region,
            usd(found.usd_per_gpu_hour),
            usd(found.usd_per_hour),
            found.offer.seen_on(found.tenancy),
            found.offer.instance,
        )
        for found in cheap[:20]
    ]
    heads = ("provider", "machine", "tenancy", "region", "$/gpu-h", "$/h", "as of", "instance")
    page.print(table(heads, rows, page.width, right=("$/gpu-h", "$/h"), wrap="instance"))
    if len(cheap) > len(rows):
        page.print(f"Shown {len(rows)} of {len(cheap)}; --json has all.")


# --- import ---


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnListDocument:
    """A price list of one's own that is kept, or the exchange rates."""

    name: str
    kind: Literal["offers", "discounts", "cards", "parts", "rates"] | None
    """None where it cannot be read; `notes` say why."""
    rows: int
    """Offers, cards or parts; of exchange rates, days."""
    discounts: int
    as_of: str | None
    """The newest day in it (YYYY-MM-DD)."""
    gpus: Sequence[str]
    """GPUs in it, as outlay names them."""
    unknown: Sequence[str]
    """Names in it that outlay does not know: kept, and in no plan."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesImportDocument:
    """What `outlay prices import` did, and what is kept now."""

    schema: Literal[1] = 1
    imported: OwnListDocument | None
    removed: str | None
    lists: Sequence[OwnListDocument]


def import_document(
    imported: ListSummary | None, removed: str | None, lists: Iterable[ListSummary]
) -> PricesImportDocument:
    """The document of an import."""
    return PricesImportDocument(
        imported=None if imported is None else _list_document(imported),
        removed=removed,
        lists=[_list_document(kept) for kept in lists],
    )


def _list_document(kept: ListSummary) -> OwnListDocument:
    return OwnListDocument(
        name=kept.name,
        kind=kept.kind,
        rows=kept.rows,
        discounts=kept.discounts,
        as_of=kept.as_of,
        gpus=kept.gpus,
        unknown=kept.unknown,
        notes=kept.notes,
    )


_ROWS = {
    "offers": "offer",
    "cards": "card price",
    "parts": "part price",
    "rates": "day",
}
"""What one row of a list is."""


def print_import(
    out: Page, imported: ListSummary | None, removed: str | None, lists: Sequence[ListSummary]
) -> None:
    """What was taken or removed; what is kept where neither was asked for."""
    if imported is not None:
        for sentence in _imported_in_words(imported):
            out.print(sentence)
    elif removed is not None:
        out.print(f"Removed {removed}; {counted(len(lists), 'list')} kept.")
    elif lists:
        out.print(_lists_table(lists, out.width))
    else:
        out.print("No list of your own is kept: `outlay prices import FILE` takes one.")


def _imported_in_words(taken: ListSummary) -> Iterator[str]:
    rows = counted(taken.rows, _ROWS[taken.kind]) if taken.kind in _ROWS else ""
    agreed = counted(taken.discounts, "discount") if taken.discounts else ""
    day = f", the newest of {taken.as_of}" if taken.as_of else ""
    yield f"Kept {taken.name}: {' and '.join(filter(None, (rows, agreed)))}{day}."
    if taken.gpus:
        yield f"GPUs: {', '.join(taken.gpus)}."
    if taken.unknown:
        yield (
            f"Not known to outlay, so kept and in no plan: {', '.join(taken.unknown)}. "
            "`outlay gpus` lists GPUs, `outlay build --list KIND` parts."
        )
    yield from taken.notes


def _lists_table(lists: Sequence[ListSummary], width: int) -> Table:
    heads = ("list", "kind", "rows", "discounts", "newest", "gpus", "not known", "notes")
    rows = [
        (
            kept.name,
            kept.kind or "cannot be read",
            f"{kept.rows:,}",
            f"{kept.discounts}" if kept.discounts else "",
            kept.as_of or "",
            ", ".join(kept.gpus),
            ", ".join(kept.unknown),
            " ".join(kept.notes),
        )
        for kept in lists
    ]
    return table(heads, rows, width, right=("rows", "discounts"), drop=("gpus",), wrap="notes")


# --- what is installed, and which sources answer ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAttemptDocument:
    """The last time that a source was asked about a provider."""

    source: str
    at: str
    state: State
    as_of: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAgeDocument:
    """How old the prices are that plans use of one provider."""

    provider: str
    as_of: str
    """The day of the middle one of its offers."""
    newest: str
    """The day of the newest of them."""
    age_days: int
    offers: int
    last_attempts: Sequence[LastAttemptDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument(Document):
    """What `outlay check --json` prints."""

    version: str
    data_folder: str
    kept_bytes: int | None
    """Of refreshed prices and their history; None where nothing was refreshed."""
    installed: Sequence[Installed]
    sources: Sequence[SourceStatus]
    providers: Sequence[ProviderAgeDocument]
    """Oldest first."""
    keys: Sequence[KeyStatus]
    """Of providers that are asked directly; never a value."""
    rates_as_of: str | None
    """The day of the newest exchange rate."""
    own_lists: Sequence[str]


def check_document(found: SetUp) -> CheckDocument:
    """What is there and what is missing, as JSON."""
    providers = [
        copied(
            ProviderAgeDocument,
            age,
            last_attempts=[copied(LastAttemptDocument, one) for one in age.last_attempts],
        )
        for age in found.providers
    ]
    return copied(CheckDocument, found, schema=1, providers=providers)


def print_set_up(found: SetUp, today: str) -> None:
    """One screen: what is there, what is missing for what, how old each provider's prices are."""
    page = Page()
    page.print(f"outlay {found.version}; what it keeps lies in {found.data_folder}.")
    page.print_section("Installed", _installed_table(found, page.width))
    page.print_section("Price sources", _sources_table(found, page.width))
    page.print_section("Prices that plans use", _ages_table(found, page.width))
    for line in _remarks(found, today):
        page.print(line)


def _installed_table(found: SetUp, width: int) -> Table:
    rows = [
        (
            one.name,
            "no" if one.version is None else one.version or "yes",
            one.purpose,
            one.fix or "" if one.version is None else "",
        )
        for one in found.installed
    ]
    return table(("name", "there", "what it is for", "to have it"), rows, width, wrap="to have it")


def _sources_table(found: SetUp, width: int) -> Table:
    said = {True: "yes", False: "no", None: "not asked"}
    rows = [
        (
            one.source,
            said[one.answers],
            "" if one.seconds is None else f"{one.seconds:.1f} s",
            one.reason or one.address,
        )
        for one in found.sources
    ]
    heads = ("source", "answers", "in", "address, or why not")
    return table(heads, rows, width, right=("in",), wrap=heads[3])


def _ages_table(found: SetUp, width: int) -> Table:
    rows = [
        (
            age.provider,
            str(age.offers),
            age.as_of,
            "today" if age.age_days == 0 else counted(age.age_days, "day"),
            "" if age.newest == age.as_of else age.newest,
            _last_asked(age.last_attempts),
        )
        for age in found.providers
    ]
    heads = ("provider", "offers", "as of", "age", "newest", "last asked")
    return table(heads, rows, width, right=("offers", "age"), wrap="last asked")


def _last_asked(attempts: Sequence[Attempt]) -> str:
    """Each source that was asked, when, and what it said where that was no good."""
    if not attempts:
        return "never: the bundled snapshot"
    return "; ".join(
        f"{one.source} {one.at[:10]}" + (f" ({one.state})" if one.state in _NO_GOOD else "")
        for one in attempts
    )


_NO_GOOD = ("kept", "refused")


def _remarks(found: SetUp, today: str) -> Iterator[str]:
    """What else a person should know, a line each."""
    missing = [f"{one.provider} ({one.missing})" for one in found.keys if one.missing]
    there = [one.provider for one in found.keys if not one.missing]
    yield ""
    if there:
        yield f"Asked directly, no key missing: {', '.join(there)}."
    if missing:
        yield f"Not asked, as a variable with their key is not set: {', '.join(missing)}."
    if found.rates_as_of:
        age = days_between(found.rates_as_of, today)
        yield f"Exchange rates of {found.rates_as_of}, {counted(max(age, 0), 'day')} old."
    if found.own_lists:
        yield f"Your own lists: {', '.join(found.own_lists)}."
    if found.kept_bytes is None:
        yield "No prices were refreshed yet: `outlay prices refresh` has today's."
    else:
        yield f"Refreshed prices and their history take {size(found.kept_bytes)}."
