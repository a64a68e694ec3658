"""From the machine one has to the one one wants: what to replace, in what order, what it buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outlay.uncertainty import Estimate
from outlay.workstation.assembly import Choice, assemble, cheapest_fix, with_choice
from outlay.workstation.machine import Build, Verdict, part_of
from outlay.workstation.parts import Card, Catalogue, Kind, Part
from outlay.workstation.rules import broken, judge

_MOST_ROUNDS = 12
_PLATFORM: tuple[Kind, ...] = ("board", "cpu", "cooler", "memory")
"""What is replaced together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpeed:
    """How fast a machine trains the workload, and what it waits for."""

    samples_per_s: Estimate
    bound: str


SpeedOf = Callable[[Build], TrainingSpeed | None]
"""None: nothing to train was given, or it does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One part replaced or added: why, for how much, and the speed before and after it."""

    kind: Kind
    new: Part
    pieces: int
    """How many are bought."""
    old: str
    """What goes; empty where it is added."""
    why: str
    build: Build
    """The machine after it."""
    before: TrainingSpeed | None
    after: TrainingSpeed | None
    instead: str = ""
    """What would do in its place, without buying."""

    @property
    def usd(self) -> float | None:
        """For all pieces; None where the price is unknown."""
        return None if self.new.price is None else self.pieces * self.new.price.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replacement:
    """A part to replace or add, before it is done."""

    kind: Kind
    choice: Choice
    why: str
    instead: str = ""


def upgrades_of(
    had: Build,
    cards: tuple[Card, ...],
    parts: Sequence[tuple[Kind, Choice]],
    catalogue: Catalogue,
    speed_of: SpeedOf,
) -> list[Change]:
    """The changes in order: what the new cards need, the cards, then everything else.

    `cards` are those the machine shall have, empty where they stay; `parts` are further ones
    the user names. Old parts are not sold: what they bring is not counted.
    """
    verdicts = judge(had) if had.cards else ()
    rules_held = {verdict.rule for verdict in verdicts if verdict.state != "broken"}
    named_kinds = {kind for kind, _ in parts}
    first, later = _needed(_requested(had, cards, parts), catalogue, rules_held, named_kinds)
    named = [_Replacement(kind=kind, choice=choice, why="asked for") for kind, choice in parts]
    changes: list[Change] = []
    build = had
    for replacement in first:
        changes.append(_part_change(build, replacement, speed_of))
        build = changes[-1].build
    if cards:
        changes += _card_changes(build, cards, speed_of)
        build = changes[-1].build if changes else build
    for replacement in (*named, *later):
        changes.append(_part_change(build, replacement, speed_of))
        build = changes[-1].build
    return changes


def _requested(had: Build, cards: tuple[Card, ...], parts: Sequence[tuple[Kind, Choice]]) -> Build:
    """The machine with all that the user names."""
    build = replace(had, cards=cards or had.cards)
    for kind, choice in parts:
        build = with_choice(build, kind, choice)
    return build


def _needed(
    build: Build, catalogue: Catalogue, rules_held: set[str], named_kinds: set[Kind]
) -> tuple[list[_Replacement], list[_Replacement]]:
    """Parts that mend what is broken: what broke by the change, and what was broken before.

    Kinds that the user names are left as they are.
    """
    first: list[_Replacement] = []
    later: list[_Replacement] = []
    for _ in range(_MOST_ROUNDS):
        fixes = _fixes(build, catalogue, named_kinds)
        if not fixes:
            break
        for verdict, kind, choice in fixes:
            held = verdict.rule in rules_held
            (first if held else later).append(_replacement(verdict, kind, choice, held=held))
            build = with_choice(build, kind, choice)
    return first, later


def _replacement(verdict: Verdict, kind: Kind, choice: Choice, *, held: bool) -> _Replacement:
    if kind != verdict.replaces:
        return _Replacement(kind=kind, choice=choice, why=f"goes with the new {verdict.replaces}")
    need = f"{verdict.rule}: needs {verdict.needed}, has {verdict.have}"
    why = f"must go along; {need}" if held else f"short already; {need}"
    return _Replacement(kind=kind, choice=choice, why=why, instead=verdict.fix)


def _fixes(
    build: Build, catalogue: Catalogue, named_kinds: set[Kind]
) -> list[tuple[Verdict, Kind, Choice]]:
    """The first broken rule that a part mends, or else another board with all that it needs."""
    faults = [verdict for verdict in broken(judge(build)) if verdict.replaces not in named_kinds]
    for verdict in faults:
        choice = cheapest_fix(build, verdict, catalogue)
        if choice is not None and verdict.replaces == choice.part.kind:
            return [(verdict, verdict.replaces, choice)]
    boards = [verdict for verdict in faults if verdict.replaces == "board"]
    is_free = named_kinds.isdisjoint(_PLATFORM)
    return _platform(build, boards[0], catalogue) if boards and is_free else []


def _platform(
    build: Build, verdict: Verdict, catalogue: Catalogue
) -> list[tuple[Verdict, Kind, Choice]]:
    """Another board with its CPU, cooler and memory, where that breaks fewer rules."""
    bare = replace(build, cpu=None, cooler=None, board=None, memory=None, kits=1)
    assembled = assemble(bare, catalogue)
    if len(broken(judge(assembled))) >= len(broken(judge(build))):
        return []
    return [
        (verdict, kind, Choice(part=part, pieces=assembled.kits if kind == "memory" else 1))
        for kind in _PLATFORM
        if (part := part_of(assembled, kind)) is not None
    ]


def _part_change(build: Build, replacement: _Replacement, speed_of: SpeedOf) -> Change:
    after = with_choice(build, replacement.kind, replacement.choice)
    old = part_of(build, replacement.kind)
    more = (
        replacement.kind == "memory"
        and old is not None
        and old.name == replacement.choice.part.name
    )
    added = old is None or more or replacement.kind in ("ssd", "hdd")
    return Change(
        kind=replacement.kind,
        new=replacement.choice.part,
        pieces=replacement.choice.pieces - (build.kits if more else 0),
        old="" if added or old is None else old.name,
        why=replacement.why,
        build=after,
        before=speed_of(build),
        after=speed_of(after),
        instead=replacement.instead,
    )


def _card_changes(build: Build, cards: tuple[Card, ...], speed_of: SpeedOf) -> list[Change]:
    """One change for each kind of card that is bought."""
    had = {card.name: count for card, count in build.counted_cards}
    after = replace(build, cards=cards)
    staying = {card.name for card, _ in after.counted_cards}
    gone = [f"{count}x {name}" for name, count in had.items() if name not in staying]
    changes = []
    for card, count in after.counted_cards:
        bought = count - had.get(card.name, 0)
        if bought > 0:
            changes.append(
                Change(
                    kind="card",
                    new=card.part,
                    pieces=bought,
                    old=", ".join(gone),
                    why="asked for",
                    build=after,
                    before=speed_of(build),
                    after=speed_of(after),
                )
            )
    return changes
