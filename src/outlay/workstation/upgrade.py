"""From the machine one has to the one one wants: what to replace, in what order, what it buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outlay.uncertainty import Estimate
from outlay.workstation.assembly import Choice, assemble, mend, with_choice
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
class _Candidate:
    """A change that is not made yet."""

    kind: Kind
    choice: Choice
    why: str
    instead: str = ""


def upgrades_of(
    have: Build,
    cards: tuple[Card, ...],
    asked: Sequence[tuple[Kind, Choice]],
    catalogue: Catalogue,
    speed_of: SpeedOf,
) -> list[Change]:
    """The changes in order: what the new cards need, the cards, then everything else.

    `cards` are those the machine shall have, empty where they stay; `asked` are further parts
    the user names. Old parts are not sold: what they bring is not counted.
    """
    held = {one.rule for one in judge(have) if one.state != "broken"} if have.cards else set()
    kept = {kind for kind, _ in asked}
    first, later = _needed(_wished(have, cards, asked), catalogue, held, kept)
    wishes = [_Candidate(kind=kind, choice=choice, why="asked for") for kind, choice in asked]
    changes: list[Change] = []
    build = have
    for wish in first:
        changes.append(_part_change(build, wish, speed_of))
        build = changes[-1].build
    if cards:
        changes += _card_changes(build, cards, speed_of)
        build = changes[-1].build if changes else build
    for wish in (*wishes, *later):
        changes.append(_part_change(build, wish, speed_of))
        build = changes[-1].build
    return changes


def _wished(have: Build, cards: tuple[Card, ...], asked: Sequence[tuple[Kind, Choice]]) -> Build:
    build = replace(have, cards=cards or have.cards)
    for kind, choice in asked:
        build = with_choice(build, kind, choice)
    return build


def _needed(
    build: Build, catalogue: Catalogue, held: set[str], kept: set[Kind]
) -> tuple[list[_Candidate], list[_Candidate]]:
    """Parts that mend what is broken: what broke by the change first, what was broken before.

    `kept` are the kinds that the user has chosen.
    """
    first: list[_Candidate] = []
    later: list[_Candidate] = []
    for _ in range(_MOST_ROUNDS):
        found = _mending(build, catalogue, kept)
        if not found:
            break
        for verdict, kind, choice in found:
            wish = _wish(verdict, kind, choice, held)
            (first if verdict.rule in held else later).append(wish)
            build = with_choice(build, kind, choice)
    return first, later


def _wish(verdict: Verdict, kind: Kind, choice: Choice, held: set[str]) -> _Candidate:
    if kind != verdict.replaces:
        return _Candidate(kind=kind, choice=choice, why=f"goes with the new {verdict.replaces}")
    why = _reason(verdict, verdict.rule in held)
    return _Candidate(kind=kind, choice=choice, why=why, instead=verdict.fix)


def _mending(
    build: Build, catalogue: Catalogue, kept: set[Kind]
) -> list[tuple[Verdict, Kind, Choice]]:
    """The first broken rule that a part mends, or else another board with all that it needs."""
    faults = [one for one in broken(judge(build)) if one.replaces not in kept]
    for verdict in faults:
        choice = mend(build, verdict, catalogue)
        if choice is not None and verdict.replaces == choice.part.kind:
            return [(verdict, verdict.replaces, choice)]
    boards = [verdict for verdict in faults if verdict.replaces == "board"]
    free = kept.isdisjoint(_PLATFORM)
    return _platform(build, boards[0], catalogue) if boards and free else []


def _platform(
    build: Build, verdict: Verdict, catalogue: Catalogue
) -> list[tuple[Verdict, Kind, Choice]]:
    """Another board with its CPU, cooler and memory, where that breaks fewer rules."""
    bare = replace(build, cpu=None, cooler=None, board=None, memory=None, kits=1)
    made = assemble(bare, catalogue)
    if len(broken(judge(made))) >= len(broken(judge(build))):
        return []
    return [
        (verdict, kind, Choice(part=part, pieces=made.kits if kind == "memory" else 1))
        for kind in _PLATFORM
        if (part := part_of(made, kind)) is not None
    ]


def _reason(verdict: Verdict, held: bool) -> str:
    need = f"{verdict.rule}: needs {verdict.needed}, has {verdict.have}"
    return f"must go along; {need}" if held else f"short already; {need}"


def _part_change(build: Build, wish: _Candidate, speed_of: SpeedOf) -> Change:
    after = with_choice(build, wish.kind, wish.choice)
    old = part_of(build, wish.kind)
    more = wish.kind == "memory" and old is not None and old.name == wish.choice.part.name
    added = old is None or more or wish.kind in ("ssd", "hdd")
    return Change(
        kind=wish.kind,
        new=wish.choice.part,
        pieces=wish.choice.pieces - (build.kits if more else 0),
        old="" if added or old is None else old.name,
        why=wish.why,
        build=after,
        before=speed_of(build),
        after=speed_of(after),
        instead=wish.instead,
    )


def _card_changes(build: Build, cards: tuple[Card, ...], speed_of: SpeedOf) -> list[Change]:
    """One change for each kind of card that is bought."""
    had = {card.name: count for card, count in build.counted_cards}
    wanted = replace(build, cards=cards)
    kept = {card.name for card, _ in wanted.counted_cards}
    gone = [f"{count}x {name}" for name, count in had.items() if name not in kept]
    changes = []
    for card, count in wanted.counted_cards:
        bought = count - had.get(card.name, 0)
        if bought > 0:
            changes.append(
                Change(
                    kind="card",
                    new=card.part,
                    pieces=bought,
                    old=", ".join(gone),
                    why="asked for",
                    build=wanted,
                    before=speed_of(build),
                    after=speed_of(wanted),
                )
            )
    return changes
