"""Choosing parts: what a machine is worth beside another, and the cheapest part that mends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from outlay.workstation.card import card_of
from outlay.workstation.machine import Build, part_of
from outlay.workstation.parts import Catalogue, Kind, Part
from outlay.workstation.rules import RULES_OF, Rule, broken, judge
from outlay.workstation.rules_space import slots_verdict
from outlay.workstation.verdict import Verdict

_MOST_KITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A part, and how many of it."""

    part: Part
    pieces: int = 1

    @property
    def usd(self) -> float | None:
        """For all pieces; None where the price is unknown."""
        return None if self.part.price is None else self.pieces * self.part.price.usd


Merit = tuple[int, int, int, int, float]
"""Broken rules, those without a way out, parts without a price, overtaken prices, dollars."""
_FLAW_USD = 100.0
# Assumes: a rule that is tight or cannot be checked is worth a hundred dollars to avoid (a guess).


def merit(build: Build, catalogue: Catalogue, rules: Sequence[Rule], *, spare: bool) -> Merit:
    """What is minimised; without `spare` it does not matter whether a rule holds tightly."""
    verdicts = [verdict for rule in rules if (verdict := rule(build)) is not None]
    states = [verdict.state for verdict in verdicts]
    flaws = states.count("not checked") + (states.count("tight") if spare else 0)
    return (
        states.count("broken"),
        sum(not verdict.fix for verdict in broken(verdicts)),
        len(build.not_priced),
        sum(catalogue.is_overtaken(part) for _, part, _ in build.parts),
        build.known_usd + flaws * _FLAW_USD,
    )


def with_choice(build: Build, kind: Kind, choice: Choice) -> Build:
    """The machine with another part of a kind; a drive is added to those there are."""
    part = choice.part
    if kind == "memory":
        return replace(build, memory=part, kits=choice.pieces)
    if kind == "ssd":
        return replace(build, ssds=(*build.ssds, part))
    if kind == "hdd":
        return replace(build, hdds=(*build.hdds, part))
    one: Mapping[str, Part] = {kind: part}
    return replace(build, **one)  # type: ignore[arg-type]


def choices(catalogue: Catalogue, kind: Kind, least: float | None = None) -> Iterator[Choice]:
    """Every part of a kind; memory also as several kits. `least` is the figure it must reach."""
    figure = "power" if kind == "psu" else "size"
    for pieces in range(1, _MOST_KITS + 1) if kind == "memory" else (1,):
        for part in catalogue.of(kind):
            if least is None or (part.number(figure) or 0.0) * pieces >= least:
                yield Choice(part=part, pieces=pieces)


def cheapest(
    build: Build,
    catalogue: Catalogue,
    kind: Kind,
    among: Iterable[Choice],
    *,
    spare: bool = True,
) -> Build:
    """The machine with the best part of a kind; as it is where there is none to choose from."""
    made = [with_choice(build, kind, choice) for choice in among]
    rules = RULES_OF[kind]
    return min(made, key=lambda one: merit(one, catalogue, rules, spare=spare), default=build)


def mended(build: Build, verdicts: Sequence[Verdict], catalogue: Catalogue) -> list[Verdict]:
    """The verdicts, the broken ones with the cheapest part that mends them."""
    return [
        one if one.state != "broken" else _with_part(one, mend(build, one, catalogue))
        for one in verdicts
    ]


def _with_part(verdict: Verdict, choice: Choice | None) -> Verdict:
    if choice is None:
        return verdict
    return replace(verdict, part=choice.part, pieces=choice.pieces)


def mend(build: Build, verdict: Verdict, catalogue: Catalogue) -> Choice | None:
    """The cheapest part under which a rule holds and none breaks that held before."""
    kind = verdict.replaces
    if kind is None:
        return None
    before = {one.rule for one in broken(judge(build))} - {verdict.rule}
    ranked = sorted(choices(catalogue, kind), key=lambda choice: _dearness(choice, catalogue))
    for choice in ranked:
        after = judge(with_choice(build, kind, choice))
        breaks = {one.rule for one in broken(after)}
        holds = any(one.rule == verdict.rule and one.state in ("ok", "tight") for one in after)
        if holds and breaks <= before and not _is_there(build, kind, choice):
            return choice
    return _narrower(build, catalogue) if verdict.rule == "slots" else None


def _narrower(build: Build, catalogue: Catalogue) -> Choice | None:
    """The cheapest card with the same GPU that goes into the board's slots."""
    if len(build.counted_cards) > 1:
        return None
    gpu, pieces = build.cards[0].gpu, len(build.cards)
    for part in catalogue.of("card"):
        if part.text("gpu") == gpu.name:
            card = card_of(catalogue, part.name)
            if slots_verdict(replace(build, cards=(card,) * pieces)).state == "ok":
                return Choice(part=card.part, pieces=pieces)
    return None


def _dearness(choice: Choice, catalogue: Catalogue) -> tuple[bool, bool, float]:
    return (choice.usd is None, catalogue.is_overtaken(choice.part), choice.usd or 0.0)


def _is_there(build: Build, kind: Kind, choice: Choice) -> bool:
    return kind != "memory" and part_of(build, kind) is choice.part
