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


def lay_aside(since: Any, iterator: Any, samples: int) -> None:
    """Count a batch as one that is not trained on."""
    since.aside += 1
    since.aside_loader = getattr(iterator, "_outlay_number", 0)
    which, batches, before = since.aside_last
    if which != id(iterator):
        batches = before = 0
    since.aside_last = id(iterator), batches + 1, before + samples


def take_back(since: Any, is_known: bool) -> None:
    """Before a step without other batches: count what a known loader gave last after all.

    It may have been loaded before the model was put back to train.
    """
    _, batches, samples = since.aside_last
    if is_known and not since.batches and batches:
        since.batches, since.samples = batches, samples
        since.asked.add(since.aside_loader)
        since.aside -= batches


def keep_in_mind(watch: Any, iterator: Any, samples: int) -> None:
    """Keep in mind a batch of a loader that is not known to be trained on, but may be."""
    when = watch.steps, watch.since.passes
    if getattr(iterator, "_outlay_when", None) != when:
        iterator._outlay_when, iterator._outlay_given = when, [0, 0]
    iterator._outlay_given[0] += 1
    iterator._outlay_given[1] += samples


def withdraw(watch: Any, iterator: Any) -> None:
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
    number = getattr(iterator, "_outlay_number", 0)
    since.asked.discard(number)
    since.aside_loader, since.aside_last = number, (0, 0, 0)
    if since.loader == number:
        since.loader = 0
    iterator._outlay_when = None
