"""The three questions about a workstation: put one together, judge one, upgrade one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outlay.errors import InputError
from outlay.predict.machine import checked_limit_w
from outlay.workstation.asked import Asked, beginning
from outlay.workstation.assemble import assembled
from outlay.workstation.choose import Choice, cheapest, choices
from outlay.workstation.describe import Described
from outlay.workstation.judged import Judged, judged
from outlay.workstation.machine import Build, part_of
from outlay.workstation.parts import Kind, letters
from outlay.workstation.prices import card_price
from outlay.workstation.upgrade import upgraded
from outlay.workstation_speed import Training, input_note, speed_of


def put_together(asked: Asked, training: Training | None) -> Judged:
    """The cheapest machine around the cards asked for, judged."""
    if not asked.cards:
        raise InputError(
            "No GPU is given.",
            why="A workstation is built around its cards.",
            fix='Write for example --gpu "RTX 3090:2", or give a file that describes a machine.',
        )
    start = _used(beginning(asked), asked)
    build = assembled(start, asked.catalogue, asked.order)
    if "hdd" in asked.least:
        build = cheapest(
            build, asked.catalogue, "hdd", choices(asked.catalogue, "hdd", asked.least["hdd"])
        )
    return _judged(build, asked, training)


def judge_machine(described: Described, asked: Asked, training: Training | None) -> Judged:
    """A machine as it is described, judged; nothing is added to it."""
    build = _used(described.build, asked)
    return _judged(build, asked, training, described.notes)


def upgrade_machine(described: Described, asked: Asked, training: Training | None) -> Judged:
    """The machine that comes of an upgrade, judged, with the changes that lead to it."""
    had = _used(described.build, asked)
    parts = [*asked.parts, *_sized(had, asked)]
    if not asked.cards and not parts:
        raise InputError(
            "Nothing is asked for.",
            fix='Say what to change, for example --gpu "RTX 4090" or --ram 64GB.',
        )
    speed = speed_of(training)
    changes = upgraded(had, asked.cards, parts, asked.catalogue, speed)
    build = changes[-1].build if changes else had
    notes = (*described.notes, *_left_over(had, build, asked))
    return replace(_judged(build, asked, training, notes), changes=changes, had=had)


def _left_over(had: Build, build: Build, asked: Asked) -> list[str]:
    """What the cards that go are sold for, which no sum here counts."""
    kept = {card.name for card in build.cards}
    today = asked.catalogue.today
    return [
        f"Not counted: a used {card.gpu.name} sells for about ${price.usd:,.0f} ({price.as_of})."
        for card, _ in had.counted_cards
        if card.name not in kept
        if (price := card_price(card.gpu, today, used=True)) is not None and "used" in price.note
    ]


def _used(build: Build, asked: Asked) -> Build:
    limit_w = asked.power_limit_w or build.power_limit_w
    for card in (*build.cards, *asked.cards):
        checked_limit_w(limit_w, card.gpu)
    return replace(build, use=asked.use, power_limit_w=limit_w)


def _sized(had: Build, asked: Asked) -> list[tuple[Kind, Choice]]:
    """The best parts of the sizes asked for, in the machine one has."""
    wanted = replace(had, cards=asked.cards or had.cards)
    found: list[tuple[Kind, Choice]] = []
    for kind, least in asked.least.items():
        made = cheapest(wanted, asked.catalogue, kind, choices(asked.catalogue, kind, least))
        drives = {"ssd": made.ssds, "hdd": made.hdds}.get(kind)
        part = drives[-1] if drives else part_of(made, kind)
        if part is not None:
            found.append((kind, Choice(part=part, pieces=made.kits if kind == "memory" else 1)))
    return found


def _judged(
    build: Build, asked: Asked, training: Training | None, notes: Sequence[str] = ()
) -> Judged:
    return judged(
        build,
        asked.catalogue,
        notes=(*notes, *input_note(build, training), *_strangers(build, asked)),
        speed=speed_of(training)(build),
        trained=training.profile.name if training else "",
        budget_usd=asked.budget_usd,
    )


def _strangers(build: Build, asked: Asked) -> list[str]:
    """Prices of the user's that went nowhere, lest a misspelt name goes unnoticed."""
    here = {letters(part.name) for _, part, _ in build.parts}
    unused = [name for name in asked.catalogue.strangers if letters(name) not in here]
    return (
        [f"No part is known as {', '.join(unused)}: those prices are not used."] if unused else []
    )
