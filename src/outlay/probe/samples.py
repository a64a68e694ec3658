"""Samples and passes of a training step: as the user says, as loaders tell, by what modules got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outlay.probe.listen import Told
from outlay.probe.steps import StepsSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user says of it; None where that is left to what is seen."""

    batch_size: int | None = None
    """Samples of one pass."""
    samples_per_step: int | None = None
    """Samples of a whole training step."""


NOTHING = Given()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """Samples of a training step, and in how many passes they are."""

    samples: float | None = None
    passes: float | None = None

    @property
    def a_pass(self) -> float | None:
        """Samples of one pass."""
        return None if self.samples is None else self.samples / (self.passes or 1.0)


def step_size(seen: StepsSeen, told: Told, given: Given) -> StepSize:
    """What counts for a step, the user's word first."""
    found = _seen_size(seen, told)
    if given.samples_per_step is not None:
        return StepSize(samples=float(given.samples_per_step), passes=found.passes)
    if given.batch_size is not None:
        return StepSize(samples=given.batch_size * (found.passes or 1.0), passes=found.passes)
    return found


def _seen_size(seen: StepsSeen, told: Told) -> StepSize:
    look = told.facts.get("batch", {})
    if seen.samples_per_step is not None:
        return StepSize(samples=seen.samples_per_step, passes=_loaded_passes(seen, look))
    if look.get("inputs") and has_one_optimizer(seen):
        return _looked_size(seen, look)
    rows = look.get("samples") or told.facts.get("operations", {}).get("rows")
    passes = seen.passes_per_step
    return StepSize(samples=float(rows) * (passes or 1.0) if rows else None, passes=passes)


def has_one_optimizer(seen: StepsSeen) -> bool:
    """Whether one optimizer makes a training step; else each may have batches of its own."""
    return sum(often > 0 for often in seen.per_step) < 2


def _loaded_passes(seen: StepsSeen, look: Mapping[str, Any]) -> float | None:
    """Batches of loaders; the parts of them where modules got each of them in several."""
    passes = seen.passes_per_step
    if passes is None or not has_one_optimizer(seen) or not is_cut_up(look):
        return passes
    return passes * float(look["inputs"]) / float(look["batches"])


def is_cut_up(look: Mapping[str, Any]) -> bool:
    """Whether the batches of a step went through the model in more parts, all of their samples."""
    batches = look.get("batches", 0)
    return bool(batches) and look["inputs"] > batches and look["rows"] == look["loaded"]


def _looked_size(seen: StepsSeen, look: Mapping[str, Any]) -> StepSize:
    """By the inputs of one step of one optimizer.

    Where each pass had one of its own, as many as a step has passes; else (SAM, L-BFGS, several
    losses of one forward pass) as many as were seen, however many passes a step makes of them.
    """
    inputs, passes = float(look["inputs"]), seen.passes_per_step
    if look["passes"] > inputs and passes is not None:
        passes = inputs * max(round(passes / look["passes"]), 1)
    return StepSize(samples=look["rows"] / inputs * (passes or 1.0) or None, passes=passes)
