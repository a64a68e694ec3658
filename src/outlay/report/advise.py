"""Advice for people: three lines to act on, then the figures behind them; and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from outlay.advise.alternatives import RENTED, Alternative
from outlay.advise.alternatives import Kind as AlternativeKind
from outlay.advise.cards import CardForSale, Condition, fitting_profiles
from outlay.advise.questions import Answer
from outlay.advise.recommendation import Recommendation, RuleTest, TurningPoint, UpgradePath
from outlay.advise.request import AdviceRequest
from outlay.currency import rate_in_words
from outlay.offers.price_book import bundled_book
from outlay.report.console import Page, Table, bullets, muted, table
from outlay.report.documents import Document, OptionDocument, copied, option_document
from outlay.report.plan import machine_of, place_of
from outlay.report.text import (
    clipped_percent,
    counted,
    in_currency,
    prices_in_words,
    usd,
    usd_range,
)
from outlay.trace.store import bundled_profiles
from outlay.uncertainty import Estimate
from outlay.units import GIB

_DO = {
    "keep": "Keep what you have",
    "buy used": "Buy used",
    "buy new": "Buy new",
    "on demand": "Rent on demand",
    "reserved": "Rent for a term",
    "spot": "Rent spot",
    "free notebook": "Use a free notebook",
    "notebook": "Use a notebook",
}
_CARDS = 6
"""Cards to buy that are shown; --json has all."""
_BEATEN = 8
"""Cards to avoid that are shown; --json has all."""


def print_advice(page: Page, advice: Recommendation) -> None:
    """The answer, the use, the alternatives, when another is better, caveats, cards to avoid."""
    for line in _answer(advice):
        page.print(line)
    page.print()
    for sentence in _use(advice):
        page.print(sentence)
    page.print()
    page.print(Text("Ways to get that work done", style="bold"))
    page.print(_alternatives_table(advice, page.width))
    for alternative in advice.alternatives:
        if alternative.why_not:
            page.print(muted(f"x {alternative.kind}: {alternative.why_not}"))
    _print_cards(page, advice)
    _print_list(page, "When the other way is better", _turning_words(advice))
    _print_list(page, "Before you take it", advice.caveats)
    _print_dominated(page, advice)
    if advice.upgrade is not None:
        _print_list(page, "Small first, bigger later", [_upgrade_words(advice.upgrade)])
    _print_list(page, "Assumed", _assumed(advice))


def _print_list(
    page: Page, head: str, entries: Iterator[str] | tuple[str, ...] | list[str]
) -> None:
    lines = list(entries)
    if not lines:
        return
    page.print()
    page.print(Text(head, style="bold"))
    page.print(bullets(lines, ""))


def _answer(advice: Recommendation) -> Iterator[Text]:
    chosen = advice.chosen
    if chosen is None:
        yield Text("Nothing does that work within the budget.", style="bold red")
        yield Text(_nearest(advice))
        return
    text = Text(f"{_DO[chosen.kind]}: ", style="bold green")
    yield text.append(f"{_thing(chosen)}.", style="none")
    yield Text(_costs(chosen, advice.request))
    yield Text(_otherwise(advice, chosen))


def _thing(alternative: Alternative) -> str:
    """The machine in words: what to buy, or where to rent it."""
    if alternative.card is not None:
        gpus = alternative.option.offer.gpus
        count = f"{gpus}x " if gpus > 1 else ""
        return f"{count}{alternative.card.gpu.name}, {usd(alternative.upfront_usd)} at once"
    if alternative.is_bought:
        return f"{alternative.option.offer.instance}, {usd(alternative.upfront_usd)} at once"
    if alternative.kind == "keep":
        return alternative.option.offer.gpu
    return f"{machine_of(alternative.option)} at {place_of(alternative.option)}"


def _costs(alternative: Alternative, request: AdviceRequest) -> str:
    """What a month costs, with its range, and over all months."""
    month, limits = alternative.usd_per_month, usd_range(alternative.usd_per_month)
    bracketed = f" ({limits})" if limits else ""
    resale = ", resale taken off" if alternative.is_bought else ""
    return (
        f"{_money(month.likely, request)} a month{bracketed}, "
        f"{_money(month.likely * request.months, request)} over {request.months:g} months{resale}; "
        f"{alternative.busy_hours:,.0f} h of use a month."
    )


def _money(amount_usd: float, request: AdviceRequest) -> str:
    return in_currency(amount_usd, request.currency, request.usd_per_unit)


def _otherwise(advice: Recommendation, chosen: Alternative) -> str:
    """When buying, or renting, would be better."""
    if chosen.is_bought:
        points = [point for point in advice.turning_points if point.buy is chosen]
    else:
        points = [point for point in advice.turning_points if point.rent is chosen]
    sentences = [_meets(point, bought=chosen.is_bought) for point in points]
    if sentences:
        return " ".join([*sentences, *_doubtful(points)])
    second = next(
        (
            alternative
            for alternative in advice.alternatives
            if alternative is not chosen and alternative.why_not is None
        ),
        None,
    )
    if second is None:
        return "Nothing else within the budget does that work."
    return f"Next best: {_thing(second)}, {usd(second.usd_per_month.likely)} a month."


def _doubtful(points: list[TurningPoint]) -> Iterator[str]:
    """How likely the cheapest way of the other side turns out to be the cheaper one."""
    nearest = min(points, key=lambda point: point.rent.usd_per_month.likely)
    chance = nearest.buying_wins
    if nearest.buying_is_cheaper:
        yield f"Chance that renting turns out cheaper: {clipped_percent(1 - chance)}."
    else:
        yield f"Chance that buying turns out cheaper: {clipped_percent(chance)}."


def _meets(point: TurningPoint, *, bought: bool) -> str:
    """Where a purchase and a rental cost the same, from the side of what is chosen."""
    rent = f"renting {point.rent.option.offer.gpu} ({point.rent.kind})"
    if point.hours_per_day is None or point.months is None:
        return f"Buying {point.buy.option.offer.gpu} never becomes cheaper than {rent}."
    daily = f"{point.hours_per_day:.1f} h a day"
    if bought:
        return f"Below {daily}, or for less than {point.months:.0f} months, {rent} is cheaper."
    if not point.within_reach:
        return f"Buying a {point.buy.option.offer.instance} is not cheaper even at 24/7 use."
    return (
        f"Buying a {point.buy.option.offer.instance} ({usd(point.buy.upfront_usd)}) is cheaper "
        f"from {daily}, or at this use after {point.months:.0f} months."
    )


def _nearest(advice: Recommendation) -> str:
    """What the purse would have to be, and what it does for as it is."""
    if not advice.alternatives:
        return "The step fits nothing that was looked at; `outlay fit` says what to change."
    request = advice.request
    rented = [
        alternative
        for alternative in advice.alternatives
        if alternative.kind in RENTED and alternative.option.sound
    ]
    if request.monthly_usd is None or not rented:
        first = advice.alternatives[0]
        return (
            f"Nearest: {_thing(first)}, {usd(first.usd_per_month.likely)} a month: {first.why_not}."
        )
    cheapest = min(rented, key=lambda alternative: alternative.usd_per_month.likely)
    month = cheapest.usd_per_month.likely
    hours = request.use.hours_per_day * request.monthly_usd / month
    return (
        f"Nearest: {_thing(cheapest)} ({cheapest.kind}), {usd(month)} a month, for a budget of "
        f"{_money(month * request.months, request)}; your budget buys {hours:.1f} h a day there "
        f"instead of {request.use.hours_per_day:.1f}."
    )


def _use(advice: Recommendation) -> Iterator[str]:
    """What the usage comes to, and whether rules of thumb hold."""
    use, reference, request = advice.request.use, advice.reference, advice.request
    gpus = f"{request.gpus}x " if request.gpus > 1 else ""
    yield (
        f"Use: {use.text} is {use.hours_per_month:,.0f} h a month, counted on "
        f"{gpus}{reference.gpu} ({reference.why}): a machine of your own would be in use "
        f"{clipped_percent(use.busy_fraction)} of the time."
    )
    for rule in advice.rules:
        verdict = "right" if rule.holds else "wrong"
        yield f'Rule "{rule.rule}": says {rule.says}, {verdict} here: {rule.because}.'


def _alternatives_table(advice: Recommendation, width: int) -> Table:
    heads = ("", "way", "what", "at once", "$/month", "range", "h/month")
    rows = [
        _row(alternative, chosen=alternative is advice.chosen)
        for alternative in advice.alternatives
    ]
    return table(
        heads,
        rows,
        width,
        right=("at once", "$/month", "h/month"),
        drop=("h/month",),
        fold=("what", "range", "at once"),
    )


def _row(alternative: Alternative, *, chosen: bool) -> tuple[str, ...]:
    return (
        "✔" if chosen else "x" if alternative.why_not else "",
        alternative.kind,
        _short(alternative),
        usd(alternative.upfront_usd) if alternative.upfront_usd else "",
        usd(alternative.usd_per_month.likely),
        usd_range(alternative.usd_per_month),
        f"{alternative.busy_hours:,.0f}",
    )


def _short(alternative: Alternative) -> str:
    offer = alternative.option.offer
    if offer.owned is not None:
        return f"{offer.gpus}x {offer.gpu}"
    return f"{machine_of(alternative.option)} {offer.provider}"


def _print_cards(page: Page, advice: Recommendation) -> None:
    """The cards within the purse, with what they hold besides this step."""
    if not advice.cards:
        return
    page.print()
    page.print(Text("Cards one could buy for it", style="bold"))
    heads = ("", "card", "gb", "at once", "$/month", "range", "h/month", "holds")
    rows = [_card_row(alternative) for alternative in advice.cards[:_CARDS]]
    right = ("gb", "at once", "$/month", "h/month")
    page.print(table(heads, rows, page.width, right=right, drop=("h/month",)))
    every = len(bundled_profiles())
    notes = [f"holds: how many of the {every} bundled models fit with a batch of 1"]
    if any(alternative.why_not for alternative in advice.cards[:_CARDS]):
        notes.append("x: too slow for all of this work")
    if len(advice.cards) > _CARDS:
        notes.append(f"{counted(len(advice.cards) - _CARDS, 'card')} more in --json")
    page.print(muted("; ".join(notes)))


def _card_row(alternative: Alternative) -> tuple[str, ...]:
    assert alternative.card is not None
    fits, too_big = fitting_profiles(alternative.card.gpu.name)
    return (
        "x" if alternative.why_not else "",
        alternative.card.name,
        f"{alternative.card.gpu.memory_bytes / GIB:.0f}",
        usd(alternative.upfront_usd),
        usd(alternative.usd_per_month.likely),
        usd_range(alternative.usd_per_month),
        f"{alternative.busy_hours:,.0f}",
        f"{len(fits)} of {len(fits) + len(too_big)}",
    )


def _turning_words(advice: Recommendation) -> Iterator[str]:
    """Each break-even as a sum: (purchase - resale) / (rent - electricity)."""
    for point in advice.turning_points:
        even = point.even
        name = f"{point.buy.option.offer.instance} against {point.rent.kind}"
        lost = f"({usd(even.purchase_usd)} - {usd(even.resale_usd)} resale)"
        gain = f"(${even.rented_usd_per_hour:.4f}/h - ${even.owned_usd_per_hour:.4f}/h)"
        if point.hours is None or point.months is None or point.hours_per_day is None:
            yield f"{name}: {lost} / {gain}: never; electricity alone costs as much an hour."
        else:
            yield (
                f"{name}: {lost} / {gain} = {point.hours:,.0f} h of it: {point.months:,.1f} "
                f"months at this use, or {point.hours_per_day:,.1f} h a day over "
                f"{advice.request.months:g} months."
            )


def _print_dominated(page: Page, advice: Recommendation) -> None:
    if not advice.dominated:
        return
    page.print()
    page.print(Text("Cards to avoid: another is nowhere slower and costs no more", style="bold"))
    rows = [
        (
            dominated.card.name,
            usd(dominated.card.listed_usd),
            dominated.better.name,
            usd(dominated.better.listed_usd),
            f"{dominated.times_as_fast:.1f}x and more",
        )
        for dominated in advice.dominated[:_BEATEN]
    ]
    heads = ("avoid", "price", "better", "its price", "as fast")
    page.print(table(heads, rows, page.width, right=("price", "its price")))
    if len(advice.dominated) > _BEATEN:
        more = counted(len(advice.dominated) - _BEATEN, "card")
        page.print(muted(f"{more} more: outlay advise --ask avoid"))


def _upgrade_words(path: UpgradePath) -> str:
    verb = "saves" if path.saved_usd > 0 else "costs"
    return (
        f"{path.small.name} now ({usd(path.first_outlay_usd)}), sold after "
        f"{path.after_months:g} months for a used {path.big.gpu.name}: {usd(path.in_steps_usd)} in "
        f"all, against {usd(path.at_once_usd)} for a {path.big.name} at once. It {verb} "
        f"{usd(abs(path.saved_usd))}; the big one is {path.speed_ratio:.1f}x as fast."
    )


def _assumed(advice: Recommendation) -> Iterator[str]:
    request = advice.request
    yield (
        f"Every machine does the same work: what {advice.reference.gpu} trains of "
        f"{request.profile.name} in those hours; slower machines take longer, faster ones less."
    )
    if request.budget_usd is not None:
        monthly = request.budget_usd / request.months
        yield (
            f"The budget of {_money(request.budget_usd, request)} is for a purchase at once, "
            f"or for {usd(monthly)} a month."
        )
    prices = prices_in_words(request.prices or bundled_book(), request.today)
    yield f"Prices of rented machines: {prices}."
    if request.rate_as_of:
        rate = rate_in_words(request.rate_as_of, request.today)
        yield f"1 {request.currency} is {request.usd_per_unit:.6g} USD, {rate}."
    yield from (f"Desktop and cards: {note}" for note in _purchase_notes(request))


def _purchase_notes(request: AdviceRequest) -> Iterator[str]:
    from outlay.advise.cards import assumption_range, electricity_usd_per_kwh
    from outlay.advise.machines import cards_for_sale, rest_usd

    rest, keep = rest_usd(request), assumption_range("used_card_keep_per_year").likely
    if rest.likely and cards_for_sale(request):
        yield (
            f"the desktop without cards costs {usd(rest.likely)} ({usd_range(rest)}); a used "
            f"card keeps {keep:.0%} of its price a year."
        )
    price, fact = electricity_usd_per_kwh(request.country)
    likely = price if isinstance(price, float | int) else price.likely
    yield f"electricity costs ${likely:.3f}/kWh ({request.country}, {fact.as_of})."


# `outlay advise --json`


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDocument:
    """The use asked about, and the GPU that its hours are counted on."""

    said: str
    assumed: bool
    hours_per_month: float
    sessions_per_month: float
    busy_fraction: float
    counted_on: str
    samples_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardDocument:
    """A card at a price somebody asked on some day."""

    gpu: str
    condition: Condition
    price_usd: float
    as_of: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeDocument:
    """One way to get the work of a month done."""

    kind: AlternativeKind
    usd_per_month: Estimate
    expected_usd_per_month: float
    """The mean over simulated months: what alternatives are ranked by."""
    upfront_usd: float
    busy_hours_per_month: float
    why_not: str | None
    card: CardDocument | None
    option: OptionDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPointDocument:
    """How much use makes buying a machine cheaper than one way of renting."""

    buy: str
    against: AlternativeKind
    rent: str
    purchase_usd: float
    resale_usd: float
    owned_usd_per_hour: float
    rented_usd_per_hour: float
    hours: float | None
    months: float | None
    hours_per_day: float | None
    buying_is_cheaper: bool
    buying_wins_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DominatedCardDocument:
    """A card that nobody should buy at its price, and the one to buy instead."""

    card: CardDocument
    by: CardDocument
    times_as_fast: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeDocument:
    """A small card first and a big one later, against the big one at once."""

    small: CardDocument
    big: CardDocument
    after_months: float
    at_once_usd: float
    in_steps_usd: float
    speed_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceDocument:
    """What to buy or rent for a purpose, a purse and a use."""

    purpose: str | None
    profile: str
    usage: UsageDocument
    gpus: int
    months: float
    budget_usd: float | None
    chosen: AlternativeDocument | None
    ways: Sequence[AlternativeDocument]
    cards: Sequence[AlternativeDocument]
    break_even: Sequence[TurningPointDocument]
    rules: Sequence[RuleTest]
    caveats: Sequence[str]
    avoid: Sequence[DominatedCardDocument]
    upgrade: UpgradeDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDocument:
    """What can be said to a question."""

    topic: str
    question: str
    answer: Sequence[str]
    figures: Sequence[Mapping[str, str]]
    sources: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseDocument(Document):
    """Advice, or the answer to one question; the other one is null."""

    advice: AdviceDocument | None = None
    answer: AnswerDocument | None = None


def advice_document(advice: Recommendation) -> AdviseDocument:
    """`outlay advise --json`."""
    return AdviseDocument(advice=_advice_document(advice))


def answer_document(answer: Answer) -> AdviseDocument:
    """`outlay advise --ask TOPIC --json`."""
    table = answer.figures
    figures = [dict(zip(table.heads, row, strict=True)) for row in table.rows] if table else []
    return AdviseDocument(
        answer=copied(AnswerDocument, answer, answer=answer.words, figures=figures)
    )


def _advice_document(advice: Recommendation) -> AdviceDocument:
    """Everything `print_advice` says, in plain figures."""
    request = advice.request
    counted_on = {
        "counted_on": advice.reference.gpu,
        "samples_per_month": advice.reference.samples_per_month,
    }
    return AdviceDocument(
        purpose=request.purpose.name if request.purpose else None,
        profile=request.profile.name,
        usage=copied(UsageDocument, request.use, said=request.use.text, **counted_on),
        gpus=request.gpus,
        months=request.months,
        budget_usd=request.budget_usd,
        chosen=None if advice.chosen is None else _alternative_document(advice.chosen),
        ways=[_alternative_document(alternative) for alternative in advice.alternatives],
        cards=[_alternative_document(alternative) for alternative in advice.cards],
        break_even=[_turning_point_document(point) for point in advice.turning_points],
        rules=advice.rules,
        caveats=advice.caveats,
        avoid=[
            DominatedCardDocument(
                card=_card_document(worse.card),
                by=_card_document(worse.better),
                times_as_fast=worse.times_as_fast,
            )
            for worse in advice.dominated
        ],
        upgrade=None if advice.upgrade is None else _upgrade_document(advice.upgrade),
    )


def _alternative_document(alternative: Alternative) -> AlternativeDocument:
    return copied(
        AlternativeDocument,
        alternative,
        busy_hours_per_month=alternative.busy_hours,
        card=None if alternative.card is None else _card_document(alternative.card),
        option=option_document(alternative.option),
    )


def _card_document(card: CardForSale) -> CardDocument:
    return copied(CardDocument, card, gpu=card.gpu.name, price_usd=card.listed_usd)


def _upgrade_document(path: UpgradePath) -> UpgradeDocument:
    cards = {"small": _card_document(path.small), "big": _card_document(path.big)}
    return copied(UpgradeDocument, path, **cards)


def _turning_point_document(point: TurningPoint) -> TurningPointDocument:
    rent, even = point.rent.option.offer, point.even
    return TurningPointDocument(
        buy=point.buy.option.offer.instance,
        against=point.rent.kind,
        rent=f"{rent.provider} {rent.instance}",
        purchase_usd=even.purchase_usd,
        resale_usd=even.resale_usd,
        owned_usd_per_hour=even.owned_usd_per_hour,
        rented_usd_per_hour=even.rented_usd_per_hour,
        hours=point.hours,
        months=point.months,
        hours_per_day=point.hours_per_day,
        buying_is_cheaper=point.buying_is_cheaper,
        buying_wins_chance=point.buying_wins,
    )


# An answer: words, a table, and where it comes from


_NUMBER = re.compile(r"[-<]?\$?[0-9][0-9.,]*( ?%|x|/h| h| min| days)?")
_FREE_TEXT = ("condition", "source", "note", "rate", "question", "gives")
"""Columns that are folded where the width does not do."""


def print_answer(page: Page, answer: Answer) -> None:
    """Print one answer."""
    page.print(Text(answer.question, style="bold"))
    for words in answer.words:
        page.print(words)
    figures = answer.figures
    if figures is not None and figures.rows:
        page.print()
        folded = next((head for head in figures.heads if head in _FREE_TEXT), None)
        right = [head for head in figures.heads if _is_number(figures.heads.index(head), answer)]
        page.print(
            table(
                figures.heads,
                figures.rows,
                page.width,
                right=right,
                drop=figures.drop,
                wrap=folded,
            )
        )
    if answer.sources:
        page.print()
        page.print(muted(f"From: {'; '.join(answer.sources)}"))


def _is_number(column: int, answer: Answer) -> bool:
    """Whether every cell of a column is a number, perhaps with a unit."""
    assert answer.figures is not None
    cells = [row[column] for row in answer.figures.rows if row[column]]
    return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
