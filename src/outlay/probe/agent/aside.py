"""Batches that are not trained on: those of an evaluation, which has a loader of its own.

They come without gradients, or their loader is at its end before any backward pass. The loader
that was asked last before a step is known to be trained on, and so is all that it gives.
"""

from __future__ import annotations

from typing import Any


def is_trained_on(watch: Any, iterator: Any, samples: int) -> bool:
    """Whether a batch may be, of a loader that is not known to be."""
    if not watch.torch.is_grad_enabled():
        return False
    when = watch.steps, watch.since.passes
    if getattr(iterator, "_outlay_when", None) != when:
        iterator._outlay_when, iterator._outlay_given = when, [0, 0]
    iterator._outlay_given[0] += 1
    iterator._outlay_given[1] += samples
    return True


def set_aside(watch: Any, iterator: Any) -> None:
    """Count those no more that a loader at its end gave since the last backward pass or step."""
    since, when = watch.since, getattr(iterator, "_outlay_when", None)
    is_known = getattr(iterator, "_outlay_number", 0) in watch.loaders
    if is_known or when != (watch.steps, since.passes):
        return
    batches, samples = iterator._outlay_given
    if batches > since.batches:
        return
    since.batches -= batches
    since.samples -= samples
    since.aside += batches
    since.asked.discard(getattr(iterator, "_outlay_number", 0))
    iterator._outlay_when = None
