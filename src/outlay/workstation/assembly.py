"""Putting a machine together around its cards: the cheapest parts under which every rule holds.

`cheapest` chooses one part, `cheapest_fix` the part that mends a broken rule, `assemble` every part
that is missing; a `BuildRequest` is what a person asks for, parts by name or by size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from outlay.errors import InputError, NoOption
from outlay.units import GB, size_bytes
from outlay.workstation.file import is_size, watts_in
from outlay.workstation.machine import Build, MachineUse, Verdict, part_of
from outlay.workstation.parts import NOUNS, Card, Catalogue, Kind, Part, card_of
from outlay.workstation.rules import RULES, RULES_OF, Rule, broken, judge
from outlay.workstation.rules_space import slots_verdict

_MOST_KITS = 4
_MOST_CARDS = 16
_FLAW_USD = 100.0
# Assumes: a rule that is tight or cannot be checked is worth a hundred dollars to avoid (a guess).

# --- one part ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A part, and how many of it."""

    part: Part
    pieces: int = 1

    @property
    def usd(self) -> float | None:
        """For all pieces; None where the price is unknown."""
        return None if self.part.price is None else self.pieces * self.part.price.usd


Merit = tuple[int, int, int, int, float]
"""Broken rules, those without a remedy, parts without a price, overtaken prices, dollars."""


def merit(build: Build, catalogue: Catalogue, rules: Sequence[Rule], *, spare: bool) -> Merit:
    """What a choice minimises; without `spare` it does not matter whether a rule holds tightly."""
    verdicts = [verdict for rule in rules if (verdict := rule(build)) is not None]
    states = [verdict.state for verdict in verdicts]
    flaws = states.count("not checked") + (states.count("tight") if spare else 0)
    return (
        states.count("broken"),
        sum(not verdict.fix for verdict in broken(verdicts)),
        len(build.not_priced),
        sum(catalogue.is_overtaken(part) for _, part, _ in build.parts),
        build.known_usd + flaws * _FLAW_USD,
    )


def with_choice(build: Build, kind: Kind, choice: Choice) -> Build:
    """The machine with another part of a kind; a drive is added to those there are."""
    part = choice.part
    if kind == "memory":
        return replace(build, memory=part, kits=choice.pieces)
    if kind == "ssd":
        return replace(build, ssds=(*build.ssds, part))
    if kind == "hdd":
        return replace(build, hdds=(*build.hdds, part))
    field_of_kind: Mapping[str, Part] = {kind: part}
    return replace(build, **field_of_kind)  # type: ignore[arg-type]


def choices(catalogue: Catalogue, kind: Kind, least: float | None = None) -> Iterator[Choice]:
    """Every part of a kind; memory also as several kits. `least` is the figure it must reach."""
    figure = "power" if kind == "psu" else "size"
    for pieces in range(1, _MOST_KITS + 1) if kind == "memory" else (1,):
        for part in catalogue.of(kind):
            if least is None or (part.number(figure) or 0.0) * pieces >= least:
                yield Choice(part=part, pieces=pieces)


def cheapest(
    build: Build,
    catalogue: Catalogue,
    kind: Kind,
    among: Iterable[Choice],
    *,
    spare: bool = True,
) -> Build:
    """The machine with the best part of a kind; as it is where there is none to choose from."""
    builds = [with_choice(build, kind, choice) for choice in among]
    rules = RULES_OF[kind]
    return min(builds, key=lambda made: merit(made, catalogue, rules, spare=spare), default=build)


# --- what mends a broken rule ---


def with_fixes(build: Build, verdicts: Sequence[Verdict], catalogue: Catalogue) -> list[Verdict]:
    """The verdicts, the broken ones with the cheapest part that mends them."""
    return [
        _with_part(verdict, cheapest_fix(build, verdict, catalogue))
        if verdict.state == "broken"
        else verdict
        for verdict in verdicts
    ]


def _with_part(verdict: Verdict, choice: Choice | None) -> Verdict:
    if choice is None:
        return verdict
    return replace(verdict, part=choice.part, pieces=choice.pieces)


def cheapest_fix(build: Build, verdict: Verdict, catalogue: Catalogue) -> Choice | None:
    """The cheapest part under which a rule holds and none breaks that held before."""
    kind = verdict.replaces
    if kind is None:
        return None
    broken_before = {other.rule for other in broken(judge(build))} - {verdict.rule}
    ranked = sorted(choices(catalogue, kind), key=lambda choice: _dearness(choice, catalogue))
    for choice in ranked:
        after = judge(with_choice(build, kind, choice))
        broken_after = {other.rule for other in broken(after)}
        holds = any(
            other.rule == verdict.rule and other.state in ("ok", "tight") for other in after
        )
        if holds and broken_after <= broken_before and not _is_there(build, kind, choice):
            return choice
    return _narrower_card(build, catalogue) if verdict.rule == "slots" else None


def _narrower_card(build: Build, catalogue: Catalogue) -> Choice | None:
    """The cheapest card with the same GPU that goes into the board's slots."""
    if len(build.counted_cards) > 1:
        return None
    gpu, pieces = build.cards[0].gpu, len(build.cards)
    for part in catalogue.of("card"):
        if part.text("gpu") == gpu.name:
            card = card_of(catalogue, part.name)
            if slots_verdict(replace(build, cards=(card,) * pieces)).state == "ok":
                return Choice(part=card.part, pieces=pieces)
    return None


def _dearness(choice: Choice, catalogue: Catalogue) -> tuple[bool, bool, float]:
    return (choice.usd is None, catalogue.is_overtaken(choice.part), choice.usd or 0.0)


def _is_there(build: Build, kind: Kind, choice: Choice) -> bool:
    return kind != "memory" and part_of(build, kind) is choice.part


# --- a whole machine ---

CHOSEN: tuple[Kind, ...] = ("cooler", "memory", "ssd", "case", "psu")
"""What is chosen once CPU and board are, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the parts to choose must satisfy: at least so large, and within a budget."""

    least: Mapping[Kind, float] = field(default_factory=dict)
    """GB of memory or of a drive, watts of a supply."""
    budget_usd: float | None = None


def assemble(start: Build, catalogue: Catalogue, order: Order | None = None) -> Build:
    """The machine with every missing part chosen, each rule held with something to spare.

    Over the budget, one whose rules hold tightly is taken where it costs less.
    """
    order = order or Order()
    generous = _assembled(start, catalogue, order, spare=True)
    if order.budget_usd is None or generous.known_usd <= order.budget_usd:
        return generous
    plain = _assembled(start, catalogue, order, spare=False)
    worse = len(broken(judge(plain))) > len(broken(judge(generous)))
    return generous if worse or plain.known_usd >= generous.known_usd else plain


def _assembled(start: Build, catalogue: Catalogue, order: Order, *, spare: bool) -> Build:
    builds = []
    for base in _platforms(start, catalogue):
        build = base
        for kind in CHOSEN:
            if part_of(build, kind) is None:
                among = choices(catalogue, kind, order.least.get(kind))
                build = cheapest(build, catalogue, kind, among, spare=spare)
        builds.append(build)
    return min(builds, key=lambda build: merit(build, catalogue, RULES, spare=spare))


def _platforms(start: Build, catalogue: Catalogue) -> list[Build]:
    """Every CPU with every board that break the fewest rules together."""
    cpus = [start.cpu] if start.cpu else _parts(catalogue, "cpu")
    boards = [start.board] if start.board else _parts(catalogue, "board")
    pairs = [replace(start, cpu=cpu, board=board) for cpu, board in product(cpus, boards)]
    rules = dict.fromkeys((*RULES_OF["cpu"], *RULES_OF["board"]))
    ranks = [merit(pair, catalogue, list(rules), spare=False)[:2] for pair in pairs]
    return [pair for pair, rank in zip(pairs, ranks, strict=True) if rank == min(ranks)]


def _parts(catalogue: Catalogue, kind: Kind) -> list[Part] | list[None]:
    return [choice.part for choice in choices(catalogue, kind)] or [None]


# --- what a person asks for ---


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What a person asks for: cards, further parts, and how the machine will be used."""

    catalogue: Catalogue
    cards: tuple[Card, ...] = ()
    parts: Sequence[tuple[Kind, Choice]] = ()
    """Parts given by name."""
    least: Mapping[Kind, float] = field(default_factory=dict)
    """Kinds given by a size: at least so many GB, or watts of a supply."""
    use: MachineUse = field(default_factory=MachineUse)
    power_limit_w: float | None = None
    budget_usd: float | None = None

    @property
    def order(self) -> Order:
        """What the parts to choose must satisfy."""
        return Order(least=self.least, budget_usd=self.budget_usd)


def build_request(
    catalogue: Catalogue,
    cards: Sequence[tuple[str, int]],
    names: Mapping[Kind, str],
    *,
    use: MachineUse,
    power_limit_w: float | None = None,
    budget_usd: float | None = None,
) -> BuildRequest:
    """A request in words: cards with their numbers, other parts by name or size."""
    least = {kind: size for kind, name in names.items() if (size := _size(kind, name)) is not None}
    parts: list[tuple[Kind, Choice]] = [
        (kind, Choice(part=catalogue.find(kind, name)))
        for kind, name in names.items()
        if kind not in least
    ]
    for kind, size in least.items():
        if not any(choices(catalogue, kind, size)):
            raise NoOption(
                f"No {NOUNS[kind]} of {names[kind]} or more is known.",
                fix=f"Ask for less; `outlay build --list {kind}` lists what is known.",
            )
    return BuildRequest(
        catalogue=catalogue,
        cards=_cards(catalogue, cards),
        parts=parts,
        least=least,
        use=use,
        power_limit_w=power_limit_w,
        budget_usd=budget_usd,
    )


def _cards(catalogue: Catalogue, names: Sequence[tuple[str, int]]) -> tuple[Card, ...]:
    total = sum(count for _, count in names)
    if total > _MOST_CARDS:
        raise InputError(
            f"{total} cards do not go into one workstation.", fix=f"Ask for {_MOST_CARDS} or fewer."
        )
    return tuple(card for name, count in names for card in [card_of(catalogue, name)] * count)


def _size(kind: Kind, text: str) -> float | None:
    """GB or watts where a text is a size rather than a name."""
    if kind == "psu":
        return watts_in(text)
    if kind in ("memory", "ssd", "hdd") and is_size(text):
        return size_bytes(text.replace("iB", "B")) / GB
    return None


def starting_build(request: BuildRequest) -> Build:
    """A machine with just what the request names."""
    build = Build(name="this machine", cards=request.cards)
    for kind, choice in request.parts:
        build = with_choice(build, kind, choice)
    return build
