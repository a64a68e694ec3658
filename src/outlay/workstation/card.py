"""Graphics cards: a GPU under any spelling, or a named card of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from outlay.errors import InputError, NotKnown
from outlay.facts import Fact
from outlay.gpu_names import find_gpu
from outlay.hardware import Gpu
from outlay.workstation.parts import Catalogue, Part, Price
from outlay.workstation.prices import card_price

CARD_FORM = "PCIe"
"""The form of a GPU that goes into a desktop's slot."""
REFERENCE = "Founders Edition"
"""What the maker's own board is called."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """A graphics card: a GPU, and the named board that carries it where that is known."""

    gpu: Gpu
    part: Part
    """Its own figures; of a card that is named for its GPU alone, the reference board's count."""

    @property
    def name(self) -> str:
        """As it is sold."""
        return self.part.name

    @property
    def price(self) -> Price | None:
        """Of one piece."""
        return self.part.price

    @property
    def memory_bytes(self) -> int:
        """Of all devices on it."""
        return self.gpu.memory_bytes * self.gpu.devices_per_board

    @property
    def shipped_w(self) -> float:
        """What it may draw as shipped."""
        return self.part.number("power_max") or self.gpu.board_tdp_w

    @property
    def slot_pitches(self) -> float | None:
        """How many slots wide it is."""
        own = self.part.number("slot_width")
        return own or (self.gpu.facts["slot_width"].number if self._is_reference else None)

    @property
    def length_mm(self) -> float | None:
        """From the bracket to its end."""
        return self.part.number("length")

    @property
    def cooling(self) -> str | None:
        """`open`, `blower`, `water`, `passive`; None where nobody knows."""
        own = self.part.text("cooling")
        return own or (self.gpu.facts["cooling"].text if self._is_reference else None)

    @property
    def connectors(self) -> str | None:
        """`2x 8-pin`, `1x 16-pin`, `none`; None where nobody knows."""
        own = self.part.text("power_connectors")
        return own or (self.gpu.facts["power_connectors"].text if self._is_reference else None)

    @property
    def _is_reference(self) -> bool:
        """Whether the GPU's own rows tell of it: those are of the maker's board."""
        return self.name == self.gpu.name or REFERENCE in self.name


def card_of(catalogue: Catalogue, name: str) -> Card:
    """The card a name means."""
    try:
        match = find_gpu(name)
    except NotKnown as not_a_gpu:
        return _named_card(catalogue, name, not_a_gpu)
    gpu = next((one for one in match.candidates if one.form == CARD_FORM), None)
    if gpu is None or " MIG " in gpu.name:
        raise InputError(
            f"{match.gpu.name} is no card for a workstation.",
            why=f"It comes as {match.gpu.form}, in machines made for it.",
            fix="`outlay gpus` lists the forms; take one of form PCIe.",
        )
    facts = _reference_facts(catalogue, gpu)
    return Card(
        gpu=gpu,
        part=Part(kind="card", name=gpu.name, facts=facts, price=_price(catalogue, gpu)),
    )


def _named_card(catalogue: Catalogue, name: str, not_a_gpu: NotKnown) -> Card:
    try:
        part = catalogue.find("card", name)
    except NotKnown:
        raise not_a_gpu from None
    gpu = find_gpu(part.text("gpu") or "").gpu
    return Card(gpu=gpu, part=replace(part, price=part.price or _price(catalogue, gpu)))


def _price(catalogue: Catalogue, gpu: Gpu) -> Price | None:
    """The user's own price of a card with this GPU, or the table's."""
    price = card_price(gpu, catalogue.today, used=catalogue.used)
    return catalogue.price_of(gpu.name, price)


def _reference_facts(catalogue: Catalogue, gpu: Gpu) -> Mapping[str, Fact]:
    """The figures of the maker's own card with a GPU, where the table has it."""
    for part in catalogue.parts:
        if part.kind == "card" and REFERENCE in part.name and part.text("gpu") == gpu.name:
            return {name: fact for name, fact in part.facts.items() if name != "price"}
    return {}
