"""What a rule says of a machine, and the rows of `data/build_rules.csv` that rules stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from outlay.facts import Fact, fact_of, rows_of
from outlay.workstation.parts import Kind, Part

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


def ruled(name: str) -> float:
    """The number of a rule; it must be known."""
    number = rulebook()[name].number
    if number is None:
        raise LookupError(f"the rule {name} has no number")
    return number
