"""What `outlay build` found: the answer in words, parts, rules, notes; and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from outlay.currency import rate_in_words
from outlay.files import FLATTEN
from outlay.report.console import Page, Table, muted, table
from outlay.report.documents import Document, FactDocument, copied, fact_documents
from outlay.report.text import counted, in_currency, usd
from outlay.uncertainty import Estimate
from outlay.workstation.build import BuildReport
from outlay.workstation.machine import Build, State, Verdict
from outlay.workstation.parts import NOUNS, Kind, Part
from outlay.workstation.upgrade import Change, TrainingSpeed

_WIDE = 110
"""Columns from which fixes stand beside their rules."""
_FIX = "fix, or why not checked"
_NO_GAIN = 0.005
"""A share of speed below which a change is said to buy none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """What amounts are shown in besides dollars."""

    name: str = "USD"
    usd_per_unit: float = 1.0
    rate_as_of: str = ""
    """The day of the exchange rate; empty for dollars."""
    today: str = ""
    """What the age of the rate is counted to; empty where the user chose its day."""

    def money(self, amount_usd: float) -> str:
        """Dollars, and the user's own currency beside them."""
        return in_currency(amount_usd, self.name, self.usd_per_unit)


def print_build(
    out: Page, report: BuildReport, currency: Currency, *, sources: bool = False
) -> None:
    """The answer, the parts, the rules, and what to know; with `sources` also who says so."""
    for sentence in answer(report, currency):
        out.print(sentence)
    out.print()
    if report.changes:
        out.print("What to change, in this order")
        out.print(_changes_table(report, currency, out.width))
        out.print()
    else:
        out.print(_parts_table(report, currency, out.width))
        out.print()
    wide = out.width >= _WIDE
    out.print(_rules_table(report, out.width, fixes=wide))
    if not wide:
        out.print()
        out.print(_fixes_table(report, out.width))
    out.print()
    for note in (*report.notes, *_price_notes(report, currency)):
        out.print(muted(note))
    if sources:
        out.print()
        out.print(_sources_table(report, out.width))


def answer(report: BuildReport, currency: Currency) -> list[str]:
    """Three sentences at most: what it costs, whether it works, what to do or expect."""
    sentences = [_cost(report, currency), _verdict(report)]
    if report.over_budget_usd:
        over = currency.money(report.over_budget_usd)
        sentences.append(f"It is over the budget by {over}.")
    elif report.having("broken"):
        sentences.append(_first_fix(report))
    elif report.trained:
        sentences.append(_speed(report))
    return [sentence for sentence in sentences if sentence]


def _cost(report: BuildReport, currency: Currency) -> str:
    total = _total(report, currency)
    name = machine_name(report.build)
    if report.had is None:
        paid = report.build.paid_usd
        asking_price = (
            "" if paid is None else f"; {currency.money(paid)} is asked or was paid for it"
        )
        return f"{name}: its parts cost {total}{asking_price}."
    if not report.changes:
        return f"{name}: nothing is to be changed."
    return f"From {machine_name(report.had)} to {name}: {total}."


def machine_name(build: Build) -> str:
    """`2x RTX 3090, i7-10700K, 64 GB`."""
    cards = " + ".join(f"{count}x {card.gpu.name}" for card, count in build.counted_cards)
    ram = build.ram_bytes
    parts = [cards, build.cpu.name if build.cpu else "", f"{ram / 2**30:.0f} GB" if ram else ""]
    return ", ".join(filter(None, parts))


def _total(report: BuildReport, currency: Currency) -> str:
    """`$3,412 + unknown: case`."""
    unknown = report.not_priced
    priced = currency.money(report.cost_usd) if report.cost_usd or not unknown else ""
    missing = f"unknown: {', '.join(unknown)}" if unknown else ""
    return " + ".join(filter(None, (priced, missing)))


def _total_note(report: BuildReport, currency: Currency) -> str:
    """What stands beside the total: what is missing in it, and what it is in dollars."""
    own = "" if currency.name == "USD" else f"{report.cost_usd:,.0f} USD"
    missing = f"+ unknown: {', '.join(report.not_priced)}" if report.not_priced else ""
    return " ".join(filter(None, (own, missing)))


def _verdict(report: BuildReport) -> str:
    broken, tight, open_ = (report.having(state) for state in ("broken", "tight", "not checked"))
    guessed = [verdict for verdict in report.verdicts if verdict.guessed]
    others = ((tight, "tight"), (guessed, "on guessed figures"), (open_, "not checked"))
    rest = [f"{len(group)} {word}" for group, word in others if group]
    more = f" ({', '.join(rest)})" if rest else ""
    if not broken:
        checked = len(report.verdicts) - len(open_)
        return f"All {checked} rules that could be checked hold{more}."
    names = ", ".join(verdict.rule for verdict in broken)
    return f"{counted(len(broken), 'rule')} {_is(len(broken))} broken: {names}{more}."


def _is(amount: int) -> str:
    return "is" if amount == 1 else "are"


def _first_fix(report: BuildReport) -> str:
    fixes = [
        f"{verdict.rule}: {advice}"
        for verdict in report.having("broken")
        if (advice := _advice(verdict))
    ]
    return f"First of all, {fixes[0]}." if fixes else ""


def _speed(report: BuildReport) -> str:
    speed = report.speed
    if speed is None:
        return f"{report.trained} does not fit on it: `outlay fit` says what to change."
    before = report.changes[0].before if report.changes else None
    low, high = _figure(speed.samples_per_s.low), _figure(speed.samples_per_s.high)
    now = f"{_rate(speed)} samples/s ({low}-{high}) of {report.trained}, bound by {speed.bound}"
    if before is None:
        return f"It trains {now}."
    ratio = speed.samples_per_s.likely / before.samples_per_s.likely
    if abs(ratio - 1) < _NO_GAIN:
        return f"It trains {now}, no faster than before."
    return f"It trains {now}, {ratio:.2g} times the {_rate(before)} of before."


def _rate(speed: TrainingSpeed) -> str:
    return _figure(speed.samples_per_s.likely)


def _figure(amount: float) -> str:
    """Three figures, and no fewer than stand before the point."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _parts_table(report: BuildReport, currency: Currency, width: int) -> Table:
    rows = [
        (
            NOUNS[kind],
            f"{count}x {part.name}" if count > 1 else part.name,
            "unknown" if part.price is None else usd(count * part.price.usd),
            "" if part.price is None else part.price.as_of,
            _price_source(part),
        )
        for kind, part, count in report.build.parts
    ]
    note = _total_note(report, currency) if report.had is None else ""
    rows.append(("total", "", usd(report.build.known_usd), "", note))
    return table(
        ("kind", "part", "price", "as of", "source"),
        rows,
        width,
        right=("price",),
        wrap="source",
    )


def _price_source(part: Part) -> str:
    price = part.price
    if price is None:
        return "no price is known"
    return ", ".join(filter(None, (price.note, _place(price.source))))


def _place(source: str) -> str:
    """The site of a source, on GitHub with its repository; or the source where it is no address."""
    if "://" not in source:
        return source
    address = urlsplit(source)
    repository = address.path.split("/")[1:3] if address.netloc == "github.com" else []
    return "/".join([address.netloc.removeprefix("www."), *repository])


def _changes_table(report: BuildReport, currency: Currency, width: int) -> Table:
    rows = [
        (
            str(number),
            f"{change.pieces}x {change.new.name}" if change.pieces > 1 else change.new.name,
            "unknown" if change.usd is None else usd(change.usd),
            _gain(change),
            _why(change),
        )
        for number, change in enumerate(report.changes, 1)
    ]
    rows.append(("", "total", usd(report.cost_usd), "", _total_note(report, currency)))
    return table(
        ("#", "part", "price", "samples/s", "why"),
        rows,
        width,
        right=("#", "price"),
        wrap="why",
    )


def _gain(change: Change) -> str:
    """Samples a second before and after, or that it buys none."""
    before, after = change.before, change.after
    if after is None:
        return "does not fit" if before is not None else "-"
    if before is None:
        return f"{_rate(after)} (did not fit)"
    gain = after.samples_per_s.likely / before.samples_per_s.likely - 1
    if abs(gain) < _NO_GAIN:
        return "no faster"
    return f"{_rate(before)} to {_rate(after)} ({gain:+.0%})"


def _why(change: Change) -> str:
    replaces = f"for {change.old}" if change.old else "added"
    instead = f"instead: {change.instead}" if change.instead else ""
    return "; ".join(filter(None, (replaces, change.why, instead)))


def _rules_table(report: BuildReport, width: int, *, fixes: bool) -> Table:
    heads = ["rule", "needed", "have", "verdict", *([_FIX] if fixes else [])]
    rows = [
        (
            verdict.rule,
            verdict.needed,
            "-" if verdict.state == "not checked" else verdict.have,
            f"{verdict.state} (guess)" if verdict.guessed else verdict.state,
            *([_advice(verdict)] if fixes else []),
        )
        for verdict in report.verdicts
    ]
    return table(heads, rows, width, wrap=heads[-1] if fixes else None)


def _fixes_table(report: BuildReport, width: int) -> Table:
    """Below the rules where they leave no room for it."""
    rows = [(verdict.rule, advice) for verdict in report.verdicts if (advice := _advice(verdict))]
    return table(("rule", _FIX), rows, width, wrap=_FIX)


def _sources_table(report: BuildReport, width: int) -> Table:
    """Where rules and prices were read."""
    rules = [
        (verdict.rule, verdict.source.as_of, _cited(verdict.source.source, verdict.source.note))
        for verdict in report.verdicts
        if verdict.source is not None and verdict.source.source
    ]
    prices = [
        (part.name, part.price.as_of, _cited(part.price.source, part.price.note))
        for part in (*(part for _, part, _ in report.build.parts), *_new_parts(report))
        if part.price is not None
    ]
    heads = ("rule or price", "as of", "source and note")
    return table(heads, [*rules, *dict.fromkeys(prices)], width, wrap="source and note")


def _new_parts(report: BuildReport) -> list[Part]:
    """Parts with a price that are not in the machine: those that would mend a rule."""
    return [verdict.part for verdict in report.verdicts if verdict.part is not None]


def _cited(source: str, note: str) -> str:
    return f"{source} ({note})" if note else source


def _advice(verdict: Verdict) -> str:
    """What to do about a rule, the cheapest part first; or why it was not checked."""
    if verdict.state == "not checked":
        return verdict.have
    fixes = [_bought(verdict)] if verdict.part is not None else []
    if verdict.state == "broken" and not (fixes or verdict.fix) and verdict.replaces is not None:
        fixes = [f"no {NOUNS[verdict.replaces]} in the table fixes it alone"]
    return ", or ".join(filter(None, (*fixes, verdict.fix)))


def _bought(verdict: Verdict) -> str:
    part = verdict.part
    if part is None:
        return ""
    pieces = f"{verdict.pieces}x " if verdict.pieces > 1 else ""
    price = "price unknown" if part.price is None else usd(verdict.pieces * part.price.usd)
    return f"{pieces}{part.name} ({price})"


def _price_notes(report: BuildReport, currency: Currency) -> list[str]:
    notes = []
    parts = [part for _, part, _ in report.build.parts]
    used = [part.name for part in parts if part.price and "used" in part.price.note]
    if used and report.had is None:
        notes.append(f"Price of a used card: {', '.join(used)}.")
    if report.old_usd and report.had is None:
        notes.append(
            f"{currency.money(report.old_usd)} of the total rest on prices more than a year old; "
            "`outlay prices import FILE` takes newer ones."
        )
    if currency.rate_as_of:
        rate = rate_in_words(currency.rate_as_of, currency.today)
        notes.append(f"1 {currency.name} is {currency.usd_per_unit:.5g} USD, {rate}.")
    if report.budget_usd is not None and not report.over_budget_usd and report.not_priced:
        left = currency.money(report.budget_usd - report.cost_usd)
        notes.append(f"The budget leaves {left} for what has no price.")
    return notes


def print_parts(out: Page, parts: list[Part]) -> None:
    """The known parts of a kind, each with its figures."""
    rows = [
        (
            part.name,
            "unknown" if part.price is None else usd(part.price.usd),
            "" if part.price is None else part.price.as_of,
            ", ".join(
                f"{name} {fact.text}{'' if fact.unit in ('text', 'count') else f' {fact.unit}'}"
                for name, fact in part.facts.items()
                if fact.known and name != "price"
            ),
        )
        for part in parts
    ]
    heads = ("part", "price", "as of", "figures")
    out.print(table(heads, rows, out.width, right=("price",), wrap="figures"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPart:
    """A part and what one piece of it costs."""

    part: str
    price_usd: float | None
    price_source: str | None
    price_as_of: str | None
    price_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDocument:
    """A part of the machine."""

    kind: Kind
    pieces: int
    priced: PricedPart = field(metadata=FLATTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDocument:
    """One rule applied to the machine."""

    rule: str
    verdict: State
    guessed: bool
    needed: str
    have: str | None
    why_not_checked: str | None
    fix: str
    fix_part: PricedPart | None
    fix_pieces: int
    source: str | None
    as_of: str | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDocument:
    """One part replaced or added: why, for how much, and the speed before and after it."""

    kind: Kind
    replaces: str
    priced: PricedPart = field(metadata=FLATTEN)
    pieces: int
    usd: float | None
    why: str
    instead: str
    samples_per_s_before: Estimate | None
    samples_per_s_after: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildDocument(Document):
    """A machine, judged; of an upgrade also the changes that lead to it."""

    machine: str
    answer: Sequence[str]
    works: bool
    currency: str
    usd_per_unit: float
    parts: Sequence[PartDocument]
    total_usd: float
    not_priced: Sequence[str]
    old_prices_usd: float
    budget_usd: float | None
    paid_usd: float | None
    power_limit_w: float | None
    rules: Sequence[RuleDocument]
    changes: Sequence[ChangeDocument]
    samples_per_s: Estimate | None
    notes: Sequence[str]


def build_document(report: BuildReport, currency: Currency) -> BuildDocument:
    """`outlay build --json`."""
    return BuildDocument(
        machine=machine_name(report.build),
        answer=answer(report, currency),
        works=report.works,
        currency=currency.name,
        usd_per_unit=currency.usd_per_unit,
        parts=[
            PartDocument(kind=kind, pieces=count, priced=_priced_part(part))
            for kind, part, count in report.build.parts
        ],
        total_usd=report.cost_usd,
        not_priced=report.not_priced,
        old_prices_usd=report.old_usd,
        budget_usd=report.budget_usd,
        paid_usd=report.build.paid_usd,
        power_limit_w=report.build.power_limit_w,
        rules=[_rule_document(verdict) for verdict in report.verdicts],
        changes=[_change_document(change) for change in report.changes],
        samples_per_s=_samples_per_s(report.speed),
        notes=[*report.notes, *_price_notes(report, currency)],
    )


def _priced_part(part: Part) -> PricedPart:
    price = part.price
    return PricedPart(
        part=part.name,
        price_usd=None if price is None else price.usd,
        price_source=None if price is None else price.source,
        price_as_of=None if price is None else price.as_of,
        price_note="" if price is None else price.note,
    )


def _rule_document(verdict: Verdict) -> RuleDocument:
    source = verdict.source
    is_open = verdict.state == "not checked"
    return RuleDocument(
        rule=verdict.rule,
        verdict=verdict.state,
        guessed=verdict.guessed,
        needed=verdict.needed,
        have=None if is_open else verdict.have,
        why_not_checked=verdict.have if is_open else None,
        fix=verdict.fix,
        fix_part=None if verdict.part is None else _priced_part(verdict.part),
        fix_pieces=verdict.pieces,
        source=None if source is None else source.source,
        as_of=None if source is None else source.as_of,
        note="" if source is None else source.note,
    )


def _change_document(change: Change) -> ChangeDocument:
    return copied(
        ChangeDocument,
        change,
        replaces=change.old,
        priced=_priced_part(change.new),
        samples_per_s_before=_samples_per_s(change.before),
        samples_per_s_after=_samples_per_s(change.after),
    )


def _samples_per_s(speed: TrainingSpeed | None) -> Estimate | None:
    return None if speed is None else speed.samples_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartDocument:
    """A part that is in the tables, with every fact about it."""

    kind: Kind
    priced: PricedPart = field(metadata=FLATTEN)
    facts: Mapping[str, FactDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartsDocument(Document):
    """The known parts of a kind."""

    known_parts: Sequence[KnownPartDocument]


def parts_document(parts: Sequence[Part]) -> KnownPartsDocument:
    """`outlay build --list KIND --json`."""
    return KnownPartsDocument(
        known_parts=[
            KnownPartDocument(
                kind=part.kind, priced=_priced_part(part), facts=fact_documents(part.facts)
            )
            for part in parts
        ]
    )
