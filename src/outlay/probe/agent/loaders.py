"""Batches: how many came from DataLoaders, of how many samples, and the waiting for them."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .channel import complain

# Samples in the batches of DataLoaders: by the indices that a batch is made of, else by its rows.
#
# Rows tell less: of images of different sizes the first dimension is their colours, of sequences
# that are padded it may be time.


_MAP = 0
"""The kind of a dataset that is asked for samples by index, as torch numbers them."""
_DEEP = 4


def note_indices(iterator: Any, index: Any) -> None:
    """Keep how many samples were asked for, 0 where that does not tell; workers load ahead."""
    if getattr(iterator, "_outlay_sampler", None) is not iterator._sampler_iter:  # a new epoch
        iterator._outlay_sampler, iterator._outlay_indices = iterator._sampler_iter, deque()
    is_batch = isinstance(index, list) or (iterator._auto_collation and hasattr(index, "__len__"))
    # Where a dataset is iterable, a whole batch is asked for even when less is left.
    is_exact = is_batch and iterator._dataset_kind == _MAP
    iterator._outlay_indices.append(len(index) if is_exact else 0)


def next_indices(iterator: Any) -> int:
    """Samples that were asked for in the batch that comes now; 0 where that is not known."""
    waiting = getattr(iterator, "_outlay_indices", None)
    return int(waiting.popleft()) if waiting else 0


def samples_in(torch: Any, batch: Any, iterator: Any) -> int:
    """Samples in a batch: what its loader was told, by its rows where fewer are left at an end.

    Rows tell that where the first batch has as many as the loader was told. 0 where nothing tells.
    """
    batch_size = getattr(iterator, "_outlay_batch_size", None)
    rows = _rows(torch, batch, batch_size, _DEEP)
    if batch_size is None:
        return rows or 0
    do_rows_tell = getattr(iterator, "_outlay_rows_tell", None)
    if do_rows_tell is None:
        do_rows_tell = iterator._outlay_rows_tell = rows == batch_size
    return min(rows or batch_size, batch_size) if do_rows_tell else int(batch_size)


def _rows(torch: Any, value: Any, batch_size: int | None, deep: int) -> int | None:
    if isinstance(value, torch.Tensor):
        return int(value.shape[0]) if value.dim() else None
    if not deep:
        return None
    if isinstance(value, (list, tuple)):
        if len(value) == batch_size or _are_samples(torch, value):
            return len(value)
        parts: Any = value
    elif hasattr(value, "values") and callable(value.values):
        parts = value.values()
    else:
        return None
    for part in parts:
        rows = _rows(torch, part, batch_size, deep - 1)
        if rows is not None:
            return rows
    return None


def _are_samples(torch: Any, parts: Any) -> bool:
    """Whether tensors are samples of one kind and different lengths, not inputs and targets."""
    if not all(isinstance(part, torch.Tensor) and part.dim() for part in parts):
        return False
    kinds = {(part.dim(), part.dtype) for part in parts}
    return len(kinds) == 1 and len({part.shape[0] for part in parts}) > 1


# Batches that are not trained on: those of an evaluation.
#
# They come without gradients, while a model is in evaluation mode, or their loader is at its end
# before any backward pass. The loader that was asked last before a step is known to be trained on.
# Where step after step has no other batches, those that were laid aside are trained on after all:
# some scripts load ahead without gradients, or train with all layers in evaluation mode.


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


_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_facts: dict[int, dict[str, Any]] = {}
"""What is to be told of loaders, once they are known to be trained on; a process may be watched
more than once, and each time it is told."""
_count = itertools.count(1)
_MOST = 50
"""Loaders of which may be told in one probe: a script may make one for each epoch or step."""


def count_batches(watch: Any) -> None:
    """Count what comes out of the DataLoaders of this process."""
    data = importlib.import_module("torch.utils.data")
    iterators = importlib.import_module("torch.utils.data.dataloader")
    watch.patches.replace(data.DataLoader, "__iter__", _started(watch, data.DataLoader.__iter__))
    iterator = iterators._BaseDataLoaderIter
    watch.patches.replace(iterator, "__next__", _waited(watch, iterator.__next__))
    watch.patches.replace(iterator, "_next_index", _counted(iterator._next_index))


def _started(watch: Any, original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        before_s = time.perf_counter()
        iterator = original(self)
        watch.since.wait_s += time.perf_counter() - before_s
        try:
            _note_start(watch, self, iterator)
        except Exception as error:
            complain(error)
        return iterator

    return __iter__


def _note_start(watch: Any, loader: Any, iterator: Any) -> None:
    number = _numbers.get(loader)
    if number is None:
        number = _numbers[loader] = next(_count)
    if number not in _facts and len(watch.loaders) < _MOST:
        _facts[number] = _facts_of(loader)
        if len(_facts) > _MOST:
            del _facts[next(iter(_facts))]
    if number not in watch.loaders or not is_evaluating(watch):
        watch.since.started = (*watch.since.started, number)
    iterator._outlay_batch_size = loader.batch_size
    iterator._outlay_number = number


def known_facts(number: int) -> dict[str, Any]:
    """What is known of a loader; nothing of one too many."""
    return _facts.get(number, {})


def _facts_of(loader: Any) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "batches": _length_of(loader),
        "workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
    }


def _length_of(loader: Any) -> int | None:
    """Batches of an epoch, asked without a trace.

    A loader of an iterable dataset that was once asked warns from then on where more come.
    """
    mark = "_IterableDataset_len_called"
    before = getattr(loader, mark, None)
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        if hasattr(loader, mark):
            setattr(loader, mark, before)


def _counted(original: Any) -> Any:
    """Keep how many indices each batch is made of, until it comes."""

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        index = original(self)
        try:
            note_indices(self, index)
        except Exception as error:
            complain(error)
        return index

    return _next_index


def _waited(watch: Any, original: Any) -> Any:
    since, clock, thread = watch.since, time.perf_counter, threading.get_ident

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        recorder, before_s = watch.recorder, clock()
        # A thread that loads ahead keeps nobody waiting.
        is_ahead = watch.thread and watch.thread != thread()
        if recorder is not None and not is_ahead:
            recorder.paused += 1
        try:
            batch = original(self)
        except StopIteration:
            withdraw(watch, self)
            raise
        finally:
            indices = next_indices(self)
            if not is_ahead:
                since.wait_s += clock() - before_s
            if recorder is not None and not is_ahead:
                recorder.paused -= 1
        samples = indices or _samples_by(watch, batch, self)
        number = getattr(self, "_outlay_number", 0)
        if is_evaluating(watch):
            withdraw(watch, self)  # the first one may come before the change of modes
            lay_aside(since, self, samples)
        else:
            if number not in watch.loaders:
                keep_in_mind(watch, self, samples)
            since.loader = number
            since.asked.add(number)
            since.batches += 1
            since.samples += samples
        return batch

    return __next__


def _samples_by(watch: Any, batch: Any, iterator: Any) -> int:
    try:
        return samples_in(watch.torch, batch, iterator)
    except Exception as error:  # a batch is whatever the script makes of it
        complain(error)
        return 0


# Which loaders are trained on, and when an epoch begins.
#
# The loader that was asked last before a step is trained on, those of an evaluation apart
# (`aside`). Beside it others may be: a second source of data, a set without labels. Of loaders that
# are used side by side the longest makes the epoch: shorter ones are started again and again in it.


_SIDE_BY_SIDE = 3
"""Steps in a row for which a loader is asked beside another, to be trained on as well."""

_MOST_ASKED = 50
"""Loaders that are kept in mind."""


class Epochs:
    """Loaders by their numbers, and the steps at which each was last asked and started."""

    def __init__(self, watch: Any, facts_of: Callable[[int], dict[str, Any]]) -> None:
        self._watch = watch
        self._facts_of = facts_of
        self._in_a_row: dict[int, tuple[int, int]] = {}
        self._asked: dict[int, int] = {}
        self._started: dict[int, int] = {}

    def begin(self) -> bool:
        """Whether an epoch began since the last step; called when a step was made."""
        watch, since = self._watch, self._watch.since
        if since.loader and since.loader not in watch.loaders:
            self._take(since.loader)
        elif since.aside_loader and not since.loader and since.aside_loader not in watch.loaders:
            self._ask_beside(since.aside_loader)
        take_back(since, since.aside_loader in watch.loaders)
        for number in since.asked - watch.loaders:
            self._ask_beside(number)
        begins = [number for number in since.started if self._makes_epoch(number)]
        if len(self._asked) > _MOST_ASKED:  # a loader for each step: they do not come back
            self.forget()
        self._asked.update(dict.fromkeys(since.asked, watch.steps))
        self._started.update(dict.fromkeys(since.started, watch.steps))
        return bool(begins)

    def forget(self) -> None:
        """Begin anew."""
        self._in_a_row.clear()
        self._asked.clear()
        self._started.clear()

    def _take(self, number: int) -> None:
        self._watch.loaders.add(number)
        facts = self._facts_of(number)
        if facts:
            self._watch.channel.tell_values("loader", facts)

    def _ask_beside(self, number: int) -> None:
        last, before = self._in_a_row.get(number, (0, 0))
        in_a_row = before + 1 if last == self._watch.steps - 1 else 1
        self._in_a_row[number] = self._watch.steps, in_a_row
        if in_a_row >= _SIDE_BY_SIDE:
            self._take(number)

    def _makes_epoch(self, number: int) -> bool:
        if number not in self._watch.loaders:
            return False
        length, before = self._length(number), self._started.get(number)
        if length is None or before is None:
            return True
        used = [one for one, last in self._asked.items() if one != number and last > before]
        return not any((self._length(one) or 0) > length for one in used)

    def _length(self, number: int) -> int | None:
        return self._facts_of(number).get("batches")
