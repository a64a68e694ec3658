"""A workstation: its cards and parts, what they draw, and how the cards sit on the board.

Last what a rule says of one (`Verdict`), and the rows of `data/build_rules.csv` behind the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise
from typing import Literal

from outlay.facts import NONE, Fact, fact_of, rows_of
from outlay.units import GB, GIB
from outlay.workstation.parts import Card, Kind, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for a card: its height on the board in slot pitches, and its lanes."""

    position: int
    lanes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """How the machine will be used, as far as rules depend on it."""

    speed_at: Callable[[float], float] = lambda _: 1.0
    """Training speed at a share of the shipped power limit, over that at the shipped one."""
    while_training: bool = True
    """Whether samples are preprocessed while training, rather than before."""
    country: str | None = None
    """Whose wall sockets; None: not given."""
    dataset_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A workstation. A part that is None is not there, or it is not known which it is."""

    name: str = "machine"
    cards: tuple[Card, ...] = ()
    cpu: Part | None = None
    cooler: Part | None = None
    board: Part | None = None
    memory: Part | None = None
    kits: int = 1
    """How many of the memory kit."""
    ssds: tuple[Part, ...] = ()
    hdds: tuple[Part, ...] = ()
    psu: Part | None = None
    case: Part | None = None
    power_limit_w: float | None = None
    """What each card is held to, where that is less than it was shipped with."""
    paid_usd: float | None = None
    """What the whole machine cost or is offered for."""
    use: MachineUse = field(default_factory=MachineUse)

    @property
    def ram_bytes(self) -> float | None:
        """All kits together; None where unknown."""
        size_gib = self.memory.number("size") if self.memory else None
        return None if size_gib is None else size_gib * self.kits * GIB

    @property
    def modules(self) -> float | None:
        """Of all kits together."""
        each = self.memory.number("modules") if self.memory else None
        return None if each is None else each * self.kits

    @property
    def cpu_w(self) -> float | None:
        """What the CPU may draw: its peak, or else its TDP."""
        if self.cpu is None:
            return None
        return self.cpu.number("power_max") or self.cpu.number("tdp")

    def card_w(self, card: Card) -> float:
        """What a card may draw here."""
        return min(card.shipped_w, self.power_limit_w or card.shipped_w)

    @property
    def cards_w(self) -> float:
        """All cards together."""
        return sum(self.card_w(card) for card in self.cards)

    @property
    def slots(self) -> tuple[Slot, ...] | None:
        """The board's places for cards, top first; None where unknown."""
        text = self.board.text("slots") if self.board else None
        return None if text is None else slots_in(text)

    @property
    def parts(self) -> list[tuple[Kind, Part, int]]:
        """Every part that is there, with how many of it: what is on the bill."""
        kinds: list[tuple[Kind, Part | None, int]] = [
            *(("card", card.part, count) for card, count in self.counted_cards),
            ("cpu", self.cpu, 1),
            ("cooler", self.cooler, 1),
            ("board", self.board, 1),
            ("memory", self.memory, self.kits),
            *(("ssd", part, 1) for part in self.ssds),
            *(("hdd", part, 1) for part in self.hdds),
            ("psu", self.psu, 1),
            ("case", self.case, 1),
        ]
        return [(kind, part, count) for kind, part, count in kinds if part is not None]

    @property
    def counted_cards(self) -> list[tuple[Card, int]]:
        """Each kind of card once, with its number."""
        names = [card.name for card in self.cards]
        first = {card.name: card for card in reversed(self.cards)}
        return [(first[name], names.count(name)) for name in dict.fromkeys(names)]

    @property
    def known_usd(self) -> float:
        """The sum of the prices that are known."""
        return sum(count * part.price.usd for _, part, count in self.parts if part.price)

    @property
    def not_priced(self) -> list[Part]:
        """The parts without a price."""
        return [part for _, part, _ in self.parts if part.price is None]


def part_of(build: Build, kind: Kind) -> Part | None:
    """The part of a kind that a machine has one of; of several drives the first."""
    return next((part for part_kind, part, _ in build.parts if part_kind == kind), None)


def drives_bytes(parts: tuple[Part, ...]) -> float | None:
    """The drives together; None where one's size is unknown."""
    sizes = [part.number("size") for part in parts]
    known = [size for size in sizes if size is not None]
    return sum(known) * GB if len(known) == len(sizes) else None


# --- slots and how cards sit in them ---

_SLOT = re.compile(r"(\d+):x(\d+)")


def slots_in(text: str) -> tuple[Slot, ...]:
    """The places in `1:x8 4:x8`: position in slot pitches, and lanes when all are filled."""
    if text == NONE:
        return ()
    words = text.split()
    matches = [_SLOT.fullmatch(word) for word in words]
    if not words or None in matches:
        raise ValueError(f"{text!r} is not a list of slots such as '1:x8 4:x8'")
    slots = [Slot(position=int(match[1]), lanes=int(match[2])) for match in matches if match]
    return tuple(sorted(slots, key=lambda slot: slot.position))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Cards in slots: the slots used, the free pitches between neighbours, where the last ends."""

    slots: tuple[Slot, ...]
    gap: int | None
    """The narrowest gap between two cards, in slot pitches; None with one card."""
    last_pitch: int


def seating(slots: tuple[Slot, ...], widths: list[int], most_pitches: int | None) -> Seating | None:
    """The widest spaced seating of cards of these widths; None where they do not go in.

    Cards are taken in the order given. `most_pitches` is what the case has room for. Among
    seatings with the same gap, the one with the most lanes for its poorest card.
    """
    seatings = [
        candidate
        for chosen in combinations(slots, len(widths))
        if (candidate := _seating_in(chosen, widths)) is not None
        if most_pitches is None or candidate.last_pitch <= most_pitches
    ]
    return max(seatings, key=_comfort, default=None)


def _comfort(candidate: Seating) -> tuple[int, int]:
    return (candidate.gap or 0, min(slot.lanes for slot in candidate.slots))


def _seating_in(chosen: tuple[Slot, ...], widths: list[int]) -> Seating | None:
    """Each card in its slot; None where two overlap."""
    covered = [
        (slot.position, slot.position + width) for slot, width in zip(chosen, widths, strict=True)
    ]
    gaps = [below[0] - above[1] for above, below in pairwise(covered)]
    if any(gap < 0 for gap in gaps):
        return None
    return Seating(slots=chosen, gap=min(gaps, default=None), last_pitch=covered[-1][1] - 1)


# --- what a rule says of a machine ---


State = Literal[
    "ok",
    "tight",  # it works, with a loss or little to spare
    "broken",
    "not checked",  # a figure that decides is unknown
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One rule applied to one machine."""

    rule: str
    state: State
    needed: str
    have: str
    source: Fact | None
    """The row it stands on: of the rules, or of the part whose figure decides; None: none is
    needed to see it."""
    fix: str = ""
    """What to do, in words, besides another part."""
    replaces: Kind | None = None
    """The kind of part to replace or add where it is broken."""
    part: Part | None = None
    """The cheapest known part that mends it."""
    pieces: int = 1
    """How many of it."""
    guessed: bool = False
    """Whether a figure behind it is a guess."""


def unchecked(rule: str, why: str, source: Fact | None, needed: str = "") -> Verdict:
    """A rule that a missing figure leaves open: never passed silently."""
    return Verdict(rule=rule, state="not checked", needed=needed, have=why, source=source)


def fact_in(part: Part | None, parameter: str) -> Fact | None:
    """The row of a part's figure, where there is one."""
    return None if part is None else part.facts.get(parameter)


@cache
def rulebook() -> Mapping[str, Fact]:
    """Every row of the rules table, by name."""
    return {row["rule"]: fact_of(row) for row in rows_of("build_rules.csv")}


def rule_value(name: str) -> float:
    """The number of a rule; it must be known."""
    number = rulebook()[name].number
    if number is None:
        raise LookupError(f"the rule {name} has no number")
    return number
