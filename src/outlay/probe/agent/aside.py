"""Batches that are not trained on: those of an evaluation.

They come without gradients, while a model is in evaluation mode, or their loader is at its end
before any backward pass. The loader that was asked last before a step is known to be trained on.
Where step after step has no other batches, those that were laid aside are trained on after all:
some scripts load ahead without gradients, or train with all layers in evaluation mode.
"""

from __future__ import annotations

from typing import Any


def is_evaluating(watch: Any) -> bool:
    """Whether what is loaded now is most likely evaluated."""
    if not watch.torch.is_grad_enabled():
        return True
    return any(not module.training for module in watch.since.switched)


def lay_aside(since: Any, number: int, samples: int) -> None:
    """Count a batch as one that is not trained on."""
    since.aside_loader = number
    since.aside += 1
    since.aside_samples += samples


def take_back(since: Any, is_known: bool) -> None:
    """Before a step without other batches: count those of a known loader after all."""
    if is_known and not since.batches and since.aside:
        since.batches, since.samples = since.aside, since.aside_samples
        since.asked.add(since.aside_loader)
        since.aside = since.aside_samples = 0


def keep_in_mind(watch: Any, iterator: Any, samples: int) -> None:
    """Keep in mind a batch of a loader that is not known to be trained on, but may be."""
    when = watch.steps, watch.since.passes
    if getattr(iterator, "_outlay_when", None) != when:
        iterator._outlay_when, iterator._outlay_given = when, [0, 0]
    iterator._outlay_given[0] += 1
    iterator._outlay_given[1] += samples


def set_aside(watch: Any, iterator: Any) -> None:
    """Count those no more that a loader gave since the last backward pass or step.

    Called when it is at its end, or gives batches to an evaluation.
    """
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
    since.aside_samples += samples
    number = getattr(iterator, "_outlay_number", 0)
    since.asked.discard(number)
    since.aside_loader = number
    if since.loader == number:
        since.loader = 0
    iterator._outlay_when = None
