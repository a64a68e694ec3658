"""Made-up parts and machines: round figures, so that sums can be done in the head."""

from __future__ import annotations

from tests.builders import a_fact, a_gpu

from outlay.workstation.machine import Build, MachineUse
from outlay.workstation.parts import Card, Catalogue, Part, Price


def a_price(usd, as_of="2026-10-01", note=""):
    return Price(usd=usd, source="made up", as_of=as_of, note=note)


def a_part(kind, name=None, *, usd=None, as_of="2026-10-01", **figures):
    """A part with the figures given, at a price where one is given."""
    return Part(
        kind=kind,
        name=name or f"some {kind}",
        facts={name: a_fact(value) for name, value in figures.items()},
        price=None if usd is None else a_price(usd, as_of),
    )


CARD_FACTS = {"slot_width": 2, "cooling": "open", "power_connectors": "2x 8-pin"}


def a_card(name="Card", *, watts=300, memory_gib=24, usd=1000, figures=None, **gpu):
    """A card of 300 W and 24 GB, two slots wide, with two 8-pin sockets and open fans."""
    facts = CARD_FACTS | (figures or {})
    made = a_gpu(
        name,
        board_tdp_w=watts,
        memory_gib=memory_gib,
        facts={name: a_fact(value) for name, value in facts.items()},
        **gpu,
    )
    price = None if usd is None else a_price(usd)
    return Card(gpu=made, part=Part(kind="card", name=name, price=price))


CPU = {"threads": 16, "power_max": 150, "tdp": 100, "socket": "S1", "memory_type": "DDR4",
       "pcie_lanes": 16, "memory_max": 128}  # fmt: skip
BOARD = {"socket": "S1", "memory_type": "DDR4", "memory_slots": 4, "memory_max": 128,
         "form": "ATX", "slots": "1:x8 4:x8", "m2_slots": 1}  # fmt: skip
MEMORY = {"size": 64, "modules": 2, "memory_type": "DDR4"}
PSU = {"power": 1000, "pcie_8pin": 6, "pcie_16pin": 1, "efficiency": "Gold"}
CASE = {"expansion_slots": 7, "gpu_length_max": 350, "form": "ATX"}


def a_cpu(name="some cpu", usd=200, **figures):
    return a_part("cpu", name, usd=usd, **(CPU | figures))


def a_board(name="some board", usd=200, **figures):
    return a_part("board", name, usd=usd, **(BOARD | figures))


def a_memory(name="some memory", usd=150, **figures):
    return a_part("memory", name, usd=usd, **(MEMORY | figures))


def a_psu(name="some psu", usd=150, **figures):
    return a_part("psu", name, usd=usd, **(PSU | figures))


def a_case(name="some case", usd=100, **figures):
    return a_part("case", name, usd=usd, **(CASE | figures))


def a_cooler(name="some cooler", usd=50, **figures):
    return a_part("cooler", name, usd=usd, **({"rated_power": 150} | figures))


def an_ssd(name="some ssd", usd=100, **figures):
    return a_part("ssd", name, usd=usd, **({"size": 1000, "interface": "NVMe"} | figures))


def a_use(**changes):
    """A use in which a GPU's speed goes with its power."""
    return MachineUse(**({"speed_at": lambda share: share} | changes))


def a_build(cards=1, card=None, **changes):
    """A machine under which every rule holds, but that no country is said."""
    said = {
        "cards": (card or a_card(),) * cards,
        "cpu": a_cpu(),
        "cooler": a_cooler(),
        "board": a_board(),
        "memory": a_memory(),
        "ssds": (an_ssd(),),
        "psu": a_psu(),
        "case": a_case(),
        "use": a_use(),
    }
    return Build(**(said | changes))


def a_catalogue(*parts, **more):
    return Catalogue(parts=parts, **more)
