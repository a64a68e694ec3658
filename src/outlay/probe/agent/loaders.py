"""Batches: how many came from DataLoaders, of how many samples, and the waiting for them."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
import time
import weakref
from typing import Any

from .aside import is_evaluating, keep_in_mind, lay_aside, withdraw
from .channel import complain
from .samples import next_indices, note_indices, samples_in

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
