"""What to know beside the figures of a probe: what was not seen, and what is a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outlay.measurement import Measurement
from outlay.probe.agent.backward import PASSES_ALONE, Unseen
from outlay.probe.gpu_driver import Driver, NoDriver
from outlay.probe.listen import Told, beside
from outlay.probe.samples import Given, StepSize
from outlay.probe.steps import StepsSeen

OWN_S = 20e-6
"""What the agent takes of a step, about (tests/probe/test_agent_cost.py holds it below 60)."""
_WORTH_SAYING = 0.01
_MOSTLY = 0.5
_SAME_BATCH = 0.05
"""Batches that are cut short at the end of an epoch make so much of a difference."""


def not_seen(
    measurement: Measurement,
    told: Sequence[Told],
    everyone: Sequence[Told],
    driver: Driver | NoDriver | None,
) -> list[str]:
    """What of the command was not seen, and why."""
    notes = []
    if isinstance(driver, NoDriver) and measurement.device != "cpu":
        notes.append(str(driver))
    if not everyone:
        notes.append(
            "No Python of the command imported torch where outlay could see it: another "
            "interpreter option (-I, -E, -S), a PYTHONPATH of its own without what outlay put "
            "there, a container or another machine hides it."
        )
    elif not told:
        notes.append(
            "torch was imported, but no optimizer made a step. One that is no "
            f"torch.optim.Optimizer is not seen, but after {PASSES_ALONE} backward passes."
        )
    if measurement.world_size > measurement.ranks > 0:
        notes.append(
            f"{measurement.ranks} of {measurement.world_size} ranks were watched; of the others "
            "nothing was seen."
        )
    notes += _others(told, everyone)
    for one in told:
        failed = one.lists.get("failed", [])
        notes += [f"The {part['phase']} of a step failed: {part['why']}." for part in failed]
        if "broken" in one.facts:
            notes.append(f"The agent stopped watching: {one.facts['broken']['error']}.")
    return list(dict.fromkeys(notes))


def _others(told: Sequence[Told], everyone: Sequence[Told]) -> Iterator[str]:
    """Say that other processes of the command trained, before or beside."""
    others = beside(told, everyone)
    earlier = [one for one in others if all(one.is_before(now) for now in told)]
    if earlier:
        steps = " and ".join(f"{one.last_step:,}" for one in earlier)
        yield (
            f"Before it another process of the command trained ({steps} optimizer steps): the "
            "figures are of the last alone."
        )
    elif others:
        steps = " and ".join(f"{one.last_step:,}" for one in others)
        yield (
            f"Another process of the command trained by itself ({steps} optimizer steps): the "
            "figures are of one of them alone, and slower by what they share."
        )


def _steps_evaluated(told: Told) -> int:
    return int((told.table.column("aside") > 0).sum())


def doubts(measurement: Measurement, seen: StepsSeen, told: Sequence[Told]) -> Iterator[str]:
    """What to know of the step time."""
    if any(one.name == Unseen.__name__ for one in measurement.optimizers):
        yield (
            "No optimizer of torch's made a step: each backward pass counts as a training step"
            " (--optimizer-steps 4 makes one of four). The start-up has"
            f" {PASSES_ALONE - 1} of them in it."
        )
    if not seen.is_regular:
        yield (
            "Its optimizers step in no order that repeats: what counts as one training step is a"
            " guess. --optimizer-steps 1 counts each of their steps."
        )
    if seen.are_blocks:
        yield (
            "Its optimizers step many times in a row, one after the other: each of their steps"
            " counts as a training step. --optimizer-steps 60 makes one of sixty."
        )
    if told and _steps_evaluated(told[0]) > _MOSTLY * seen.steps_seen:
        yield (
            "Nearly every step comes with an evaluation, on a DataLoader of its own: its time is in"
            " that of the step, its samples are not."
        )
    step = measurement.step
    if step is not None and step.mean_s * _WORTH_SAYING < OWN_S:
        yield (
            f"outlay itself takes some {OWN_S * 1e6:.0f} µs of a step, {OWN_S / step.mean_s:.0%} of"
            " this one; they are in its time."
        )


def other_batch(given: Given, seen: StepsSeen, found: StepSize) -> Iterator[str]:
    """Say so where samples that were given are others than were seen."""
    teller = "a module's input" if seen.samples_per_step is None else "its DataLoader"
    if given.samples_per_step is not None:
        what, of = f"The given {given.samples_per_step:,} samples of a step are", "a step"
        said, has = given.samples_per_step, found.samples
    elif given.batch_size is not None:
        what, of = f"The given batch size of {given.batch_size:,} is", "a pass"
        said, has = given.batch_size, found.a_pass
    else:
        return
    if has is not None and abs(has - said) > _SAME_BATCH * has:
        yield f"{what} what is counted; {teller} has {has:,.4g} samples {of}."
