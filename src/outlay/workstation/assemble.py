"""Putting a machine together around its cards: the cheapest parts under which every rule holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from outlay.workstation.choose import cheapest, choices, merit
from outlay.workstation.machine import Build, part_of
from outlay.workstation.parts import Catalogue, Kind, Part
from outlay.workstation.rules import RULES, RULES_OF, broken, judge

CHOSEN: tuple[Kind, ...] = ("cooler", "memory", "ssd", "case", "psu")
"""What is chosen once CPU and board are, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the user said of the parts to choose: at least so large, and within a budget."""

    least: Mapping[Kind, float] = field(default_factory=dict)
    """GB of memory or of a drive, watts of a supply."""
    budget_usd: float | None = None


def assembled(start: Build, catalogue: Catalogue, order: Order | None = None) -> Build:
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
    made = []
    for base in _bases(start, catalogue):
        build = base
        for kind in CHOSEN:
            if part_of(build, kind) is None:
                among = choices(catalogue, kind, order.least.get(kind))
                build = cheapest(build, catalogue, kind, among, spare=spare)
        made.append(build)
    return min(made, key=lambda build: merit(build, catalogue, RULES, spare=spare))


def _bases(start: Build, catalogue: Catalogue) -> list[Build]:
    """Every CPU with every board that break the fewest rules together."""
    cpus = [start.cpu] if start.cpu else _parts(catalogue, "cpu")
    boards = [start.board] if start.board else _parts(catalogue, "board")
    pairs = [replace(start, cpu=cpu, board=board) for cpu, board in product(cpus, boards)]
    rules = dict.fromkeys((*RULES_OF["cpu"], *RULES_OF["board"]))
    ranks = [merit(pair, catalogue, list(rules), spare=False)[:2] for pair in pairs]
    return [pair for pair, rank in zip(pairs, ranks, strict=True) if rank == min(ranks)]


def _parts(catalogue: Catalogue, kind: Kind) -> list[Part] | list[None]:
    return [choice.part for choice in choices(catalogue, kind)] or [None]
