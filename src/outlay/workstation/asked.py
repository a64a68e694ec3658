"""The parts somebody asks for, by name or by size, as the beginning of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlay.errors import InputError, NoOption
from outlay.units import GB, size_bytes
from outlay.workstation.assemble import Order
from outlay.workstation.card import Card, card_of
from outlay.workstation.choose import Choice, choices, with_choice
from outlay.workstation.describe_schema import is_size, watts_in
from outlay.workstation.machine import Build, Use
from outlay.workstation.parts import NOUNS, Catalogue, Kind

_MOST_CARDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks for: cards, further parts, and how the machine will be used."""

    catalogue: Catalogue
    cards: tuple[Card, ...] = ()
    parts: Sequence[tuple[Kind, Choice]] = ()
    """Parts given by name."""
    least: Mapping[Kind, float] = field(default_factory=dict)
    """Kinds given by a size: at least so many GB, or watts of a supply."""
    use: Use = field(default_factory=Use)
    power_limit_w: float | None = None
    budget_usd: float | None = None

    @property
    def order(self) -> Order:
        """What is said of the parts to choose."""
        return Order(least=self.least, budget_usd=self.budget_usd)


def asked_for(
    catalogue: Catalogue,
    cards: Sequence[tuple[str, int]],
    names: Mapping[Kind, str],
    *,
    use: Use,
    power_limit_w: float | None = None,
    budget_usd: float | None = None,
) -> Asked:
    """What was asked for in words: cards with their numbers, other parts by name or size."""
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
    return Asked(
        catalogue=catalogue,
        cards=_cards(catalogue, cards),
        parts=parts,
        least=least,
        use=use,
        power_limit_w=power_limit_w,
        budget_usd=budget_usd,
    )


def _cards(catalogue: Catalogue, wanted: Sequence[tuple[str, int]]) -> tuple[Card, ...]:
    total = sum(count for _, count in wanted)
    if total > _MOST_CARDS:
        raise InputError(
            f"{total} cards do not go into one workstation.", fix=f"Ask for {_MOST_CARDS} or fewer."
        )
    return tuple(card for name, count in wanted for card in [card_of(catalogue, name)] * count)


def _size(kind: Kind, text: str) -> float | None:
    """GB or watts where a text is a size rather than a name."""
    if kind == "psu":
        return watts_in(text)
    if kind in ("memory", "ssd", "hdd") and is_size(text):
        return size_bytes(text.replace("iB", "B")) / GB
    return None


def beginning(asked: Asked, build: Build | None = None) -> Build:
    """A machine with what was asked for by name, on top of another or of nothing."""
    made = build or Build(name="this machine", cards=asked.cards)
    for kind, choice in asked.parts:
        made = with_choice(made, kind, choice)
    return made
