"""The three questions about a workstation: build one, judge one, upgrade one.

Each gives a `BuildReport`: the machine, its cost, which rules hold, and what to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outlay.errors import InputError
from outlay.hardware.gpus import Gpu
from outlay.predict.roofline import checked_power_limit_w
from outlay.units import DAY_S, HOUR_S
from outlay.workstation.assembly import (
    BuildRequest,
    Choice,
    assemble,
    cheapest,
    choices,
    starting_build,
    with_fixes,
)
from outlay.workstation.file import MachineDescription
from outlay.workstation.machine import Build, State, Verdict, part_of, rule_value
from outlay.workstation.parts import NOUNS, Catalogue, Kind, Price, card_price, letters
from outlay.workstation.rules import judge
from outlay.workstation.rules_power import load_w, slowdown, wall_w
from outlay.workstation.rules_space import throttling, water_usd
from outlay.workstation.speed import Training, input_note, speed_of
from outlay.workstation.upgrade import Change, TrainingSpeed, upgrades_of

# --- the report ---


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """A machine, judged; of an upgrade also the changes that lead to it."""

    build: Build
    verdicts: Sequence[Verdict]
    notes: Sequence[str]
    old_usd: float
    """What of the total stands on prices older than a year."""
    changes: Sequence[Change] = ()
    had: Build | None = None
    """The machine before an upgrade."""
    speed: TrainingSpeed | None = None
    trained: str = ""
    """What is trained, where that was said."""
    budget_usd: float | None = None

    def having(self, state: State) -> list[Verdict]:
        """The verdicts of a state."""
        return [verdict for verdict in self.verdicts if verdict.state == state]

    @property
    def cost_usd(self) -> float:
        """What is to be paid, as far as it is known: the changes of an upgrade, else all parts."""
        if self.had is None:
            return self.build.known_usd
        return sum(change.usd for change in self.changes if change.usd is not None)

    @property
    def not_priced(self) -> list[str]:
        """The kinds of what has no price."""
        if self.had is None:
            kinds = [part.kind for part in self.build.not_priced]
        else:
            kinds = [change.kind for change in self.changes if change.usd is None]
        return list(dict.fromkeys(NOUNS[kind] for kind in kinds))

    @property
    def over_budget_usd(self) -> float:
        """By how much the known prices exceed the budget; 0 where they do not."""
        return max(self.cost_usd - self.budget_usd, 0.0) if self.budget_usd is not None else 0.0

    @property
    def works(self) -> bool:
        """Whether no rule is broken and the budget is kept."""
        return not self.having("broken") and not self.over_budget_usd


def build_report(
    build: Build,
    catalogue: Catalogue,
    *,
    notes: Sequence[str] = (),
    changes: Sequence[Change] = (),
    had: Build | None = None,
    speed: TrainingSpeed | None = None,
    trained: str = "",
    budget_usd: float | None = None,
) -> BuildReport:
    """A machine with its verdicts, the fixes of broken rules, and notes on heat and power."""
    verdicts = with_fixes(build, judge(build), catalogue)
    return BuildReport(
        build=build,
        verdicts=verdicts,
        notes=(*heat_and_power_notes(build), *notes, *_guess_notes(verdicts)),
        old_usd=_old_usd(build, catalogue),
        changes=changes,
        had=had,
        speed=speed,
        trained=trained,
        budget_usd=budget_usd,
    )


def _old_usd(build: Build, catalogue: Catalogue) -> float:
    return sum(
        count * part.price.usd
        for _, part, count in build.parts
        if part.price is not None and part.price.is_old(catalogue.today)
    )


def heat_and_power_notes(build: Build) -> list[str]:
    """What to expect of heat and power, whatever the verdicts are."""
    notes = [_heat_note(build)]
    peak_w, wall = load_w(build), wall_w(build)
    if peak_w is not None and wall is not None:
        kwh = wall * DAY_S / HOUR_S / 1000
        notes.append(
            f"Power: {peak_w:,.0f} W at most; {wall:,.0f} W from the wall while training, "
            f"{kwh:.0f} kWh a day."
        )
    if build.power_limit_w is not None:
        notes.append(_power_limit_note(build, build.power_limit_w))
    if len(build.cards) > 1 and any(card.gpu.nvlink_reach == "pair" for card in build.cards):
        notes.append("NVLink bridges are left out: they pay in clusters, not in a workstation.")
    return notes


def _heat_note(build: Build) -> str:
    low, high, cards = throttling(build)
    if high == 0:
        return "Heat: cooled by water, no throttling is expected."
    loss = f"Heat: {cards} may lose {100 * low:.0f} to {100 * high:.0f} % of speed to throttling"
    if not cards.endswith("side by side"):
        return f"{loss}."
    worst = "" if "blower" in cards else f", at worst {100 * rule_value('throttling_worst'):.0f} %"
    return f"{loss}{worst}; water for about ${water_usd(build):,.0f} takes that away."


def _power_limit_note(build: Build, limit_w: float) -> str:
    shipped_w = max(card.shipped_w for card in build.cards)
    return (
        f"Each GPU is held to {limit_w:.0f} W of {shipped_w:.0f} "
        f"(nvidia-smi -pl {limit_w:.0f}): {slowdown(build, limit_w)}."
    )


def _guess_notes(verdicts: Sequence[Verdict]) -> list[str]:
    if not any(verdict.guessed for verdict in verdicts):
        return []
    return ["Where a verdict says guess, a figure behind it was inferred or remembered, not read."]


# --- the three questions ---


def build_workstation(request: BuildRequest, training: Training | None = None) -> BuildReport:
    """The cheapest machine around the cards asked for under which every rule holds, judged.

    `training` is what it will train, for its speed; None leaves that out.
    """
    if not request.cards:
        raise InputError(
            "No GPU is given.",
            why="A workstation is built around its cards.",
            fix='Write for example --gpu "RTX 3090:2", or give a file that describes a machine.',
        )
    start = _in_use(starting_build(request), request)
    build = assemble(start, request.catalogue, request.order)
    if "hdd" in request.least:
        build = cheapest(
            build, request.catalogue, "hdd", choices(request.catalogue, "hdd", request.least["hdd"])
        )
    return _report(build, request, training)


def judge_workstation(
    description: MachineDescription, request: BuildRequest, training: Training | None = None
) -> BuildReport:
    """A machine as it is described, judged; nothing is added to it.

    The request says how it will be used; its cards and parts do not count.
    """
    build = _in_use(description.build, request)
    return _report(build, request, training, description.notes)


def upgrade_workstation(
    description: MachineDescription, request: BuildRequest, training: Training | None = None
) -> BuildReport:
    """The machine that comes of an upgrade, judged, with the changes that lead to it.

    The cards of the request take the place of those there are; none leaves them.
    """
    had = _in_use(description.build, request)
    parts = [*request.parts, *_parts_by_size(had, request)]
    if not request.cards and not parts:
        raise InputError(
            "Nothing is asked for.",
            fix='Say what to change, for example --gpu "RTX 4090" or --ram 64GB.',
        )
    speed = speed_of(training)
    changes = upgrades_of(had, request.cards, parts, request.catalogue, speed)
    build = changes[-1].build if changes else had
    notes = (*description.notes, *_resale_notes(had, build, request))
    return replace(_report(build, request, training, notes), changes=changes, had=had)


def _resale_notes(had: Build, build: Build, request: BuildRequest) -> list[str]:
    """What the cards that go are sold for, which no sum here counts."""
    staying = {card.name for card in build.cards}
    return [
        f"Not counted: a used {card.gpu.name} sells for about ${price.usd:,.0f} ({price.as_of})."
        for card, _ in had.counted_cards
        if card.name not in staying
        if (price := _used_price(card.gpu, request.catalogue)) is not None
    ]


def _used_price(gpu: Gpu, known: Catalogue) -> Price | None:
    """What a used card costs; None where only a new one's price is known."""
    price = card_price(gpu, known.today, used=True, imported=known.imported)
    return price if price is not None and "used" in price.note else None


def _in_use(build: Build, request: BuildRequest) -> Build:
    """The machine used as the request says, its cards held to a limit they take."""
    limit_w = request.power_limit_w or build.power_limit_w
    for card in (*build.cards, *request.cards):
        checked_power_limit_w(limit_w, card.gpu)
    return replace(build, use=request.use, power_limit_w=limit_w)


def _parts_by_size(had: Build, request: BuildRequest) -> list[tuple[Kind, Choice]]:
    """The best parts of the sizes asked for, in the machine one has."""
    target = replace(had, cards=request.cards or had.cards)
    parts: list[tuple[Kind, Choice]] = []
    for kind, least in request.least.items():
        build = cheapest(target, request.catalogue, kind, choices(request.catalogue, kind, least))
        drives = {"ssd": build.ssds, "hdd": build.hdds}.get(kind)
        part = drives[-1] if drives else part_of(build, kind)
        if part is not None:
            parts.append((kind, Choice(part=part, pieces=build.kits if kind == "memory" else 1)))
    return parts


def _report(
    build: Build, request: BuildRequest, training: Training | None, notes: Sequence[str] = ()
) -> BuildReport:
    return build_report(
        build,
        request.catalogue,
        notes=(*notes, *input_note(build, training), *_unused_price_notes(build, request)),
        speed=speed_of(training)(build),
        trained=training.profile.name if training else "",
        budget_usd=request.budget_usd,
    )


def _unused_price_notes(build: Build, request: BuildRequest) -> list[str]:
    """Prices of the user's that went nowhere, lest a misspelt name goes unnoticed."""
    here = {letters(part.name) for _, part, _ in build.parts}
    unused = [name for name in request.catalogue.unknown_names if letters(name) not in here]
    return (
        [f"No part is known as {', '.join(unused)}: those prices are not used."] if unused else []
    )
