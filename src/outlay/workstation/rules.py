"""Every rule of the trade, applied to a machine: which hold, which are broken, which are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlay.workstation.machine import Build
from outlay.workstation.parts import Kind
from outlay.workstation.rules_fit import (
    cooler_verdict,
    like_gpus_verdict,
    m2_verdict,
    memory_size_verdict,
    memory_type_verdict,
    ram_verdict,
    socket_verdict,
    ssd_verdict,
    threads_verdict,
)
from outlay.workstation.rules_power import connectors_verdict, psu_verdict, wall_verdict
from outlay.workstation.rules_space import (
    board_form_verdict,
    card_length_verdict,
    case_slots_verdict,
    cooling_verdict,
    lanes_verdict,
    slots_verdict,
)
from outlay.workstation.verdict import Verdict

Rule = Callable[[Build], Verdict | None]
"""None: the rule has nothing to say of such a machine."""

RULES: tuple[Rule, ...] = (
    ram_verdict,
    threads_verdict,
    slots_verdict,
    lanes_verdict,
    cooling_verdict,
    psu_verdict,
    connectors_verdict,
    wall_verdict,
    case_slots_verdict,
    card_length_verdict,
    board_form_verdict,
    socket_verdict,
    memory_type_verdict,
    memory_size_verdict,
    cooler_verdict,
    ssd_verdict,
    m2_verdict,
    like_gpus_verdict,
)


RULES_OF: dict[Kind, tuple[Rule, ...]] = {
    "card": RULES,
    "cpu": (threads_verdict, socket_verdict, lanes_verdict, memory_type_verdict),
    "board": (slots_verdict, lanes_verdict, cooling_verdict, socket_verdict, memory_type_verdict),
    "memory": (ram_verdict, memory_type_verdict, memory_size_verdict),
    "cooler": (cooler_verdict,),
    "psu": (psu_verdict, connectors_verdict, wall_verdict),
    "case": (case_slots_verdict, card_length_verdict, board_form_verdict, cooling_verdict),
    "ssd": (ssd_verdict, m2_verdict),
    "hdd": (),
}
"""The rules that choosing a part of a kind depends on."""


def judge(build: Build) -> tuple[Verdict, ...]:
    """What every rule says of a machine with at least one card."""
    found = (rule(build) for rule in RULES)
    return tuple(verdict for verdict in found if verdict is not None)


def broken(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that do not hold."""
    return [verdict for verdict in verdicts if verdict.state == "broken"]
