"""Batches that are not trained on: those of an evaluation, which has a loader of its own.

They come without gradients, while a model is in evaluation mode, or their loader is at its end
before any backward pass. The loader that was asked last before a step is known to be trained on,
and so is all that it gives; one whose batches were set aside only where no other was asked.
"""

from __future__ import annotations

from typing import Any


def is_trained_on(watch: Any, iterator: Any, samples: int) -> bool:
    """Whether a batch may be, of a loader that is not known to be."""
    if not watch.torch.is_grad_enabled() or _is_evaluating(watch.since.switched):
        return False
    when = watch.steps, watch.since.passes
    if getattr(iterator, "_outlay_when", None) != when:
        iterator._outlay_when, iterator._outlay_given = when, [0, 0]
    iterator._outlay_given[0] += 1
    iterator._outlay_given[1] += samples
    return True


def _is_evaluating(switched: tuple[Any, ...]) -> bool:
    return any(not module.training for module in switched)


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
    number = getattr(iterator, "_outlay_number", 0)
    since.asked.discard(number)
    since.aside_loader = number
    if since.loader == number:
        since.loader = 0
    iterator._outlay_when = None
