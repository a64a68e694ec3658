"""Every rule of the trade, applied to a machine: which hold, which are broken, which are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from outlay.workstation.machine import Build, Verdict
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
    verdicts = (rule(build) for rule in RULES)
    return tuple(
        replace(verdict, guessed=_stands_on_guess(build, verdict))
        for verdict in verdicts
        if verdict is not None
    )


_FIGURES: dict[str, tuple[tuple[Kind, str], ...]] = {
    "RAM": (("memory", "size"),),
    "CPU threads": (("cpu", "threads"),),
    "slots": (("board", "slots"), ("card", "slot_width")),
    "lanes": (("board", "slots"),),
    "cooling": (("board", "slots"), ("card", "slot_width"), ("card", "cooling")),
    "PSU watts": (("cpu", "power_max"), ("psu", "power")),
    "PSU connectors": (("psu", "pcie_8pin"), ("psu", "pcie_16pin"), ("card", "power_connectors")),
    "wall circuit": (("psu", "efficiency"),),
    "case slots": (("case", "expansion_slots"), ("board", "slots")),
    "card length": (("case", "gpu_length_max"), ("card", "length")),
    "board form": (("case", "form"), ("board", "form")),
    "CPU socket": (("board", "socket"), ("cpu", "socket")),
    "memory type": (("board", "memory_type"), ("cpu", "memory_type"), ("memory", "memory_type")),
    "memory size": (("board", "memory_max"), ("board", "memory_slots"), ("memory", "modules")),
    "CPU cooler": (("cooler", "rated_power"), ("cpu", "tdp")),
    "SSD": (("ssd", "size"),),
    "M.2 places": (("board", "m2_slots"), ("ssd", "interface")),
    "like GPUs": (),
}
"""The figures that decide each rule."""


def _stands_on_guess(build: Build, verdict: Verdict) -> bool:
    """Whether the rule's row, or a figure that decides it, says of itself that it is a guess."""
    if verdict.state == "not checked":
        return False
    deciding = _FIGURES[verdict.rule]
    facts = [verdict.source] + [
        part.facts.get(parameter)
        for kind, part, _ in build.parts
        for of_kind, parameter in deciding
        if kind == of_kind
    ]
    return any(fact is not None and fact.known and fact.is_guess for fact in facts)


def broken(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that do not hold."""
    return [verdict for verdict in verdicts if verdict.state == "broken"]
