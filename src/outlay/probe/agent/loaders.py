"""DataLoaders: their batches and samples, the waiting for them, evaluations and epochs.

Samples      of a batch, by the indices it is made of, else by its rows
Evaluations  batches that are not trained on, and are set aside
Wrappers     of DataLoader and its iterators, which count and time
Epochs       which loaders are trained on, and when an epoch begins
"""

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

from .channel import log_error
from .protocol import LoaderInfo

# Samples: rows say less than indices. Of images of different sizes the first dimension is their
# colours, of sequences that are padded it may be time.

_MAP_STYLE = 0
"""The kind of a dataset that is asked for samples by index, as torch numbers them."""
_MOST_LEVELS = 4


def note_indices(iterator: Any, index: Any) -> None:
    """Keep how many samples were asked for, 0 where that is not exact; workers load ahead."""
    if getattr(iterator, "_outlay_sampler", None) is not iterator._sampler_iter:  # a new epoch
        iterator._outlay_sampler, iterator._outlay_indices = iterator._sampler_iter, deque()
    is_batch = isinstance(index, list) or (iterator._auto_collation and hasattr(index, "__len__"))
    # Where a dataset is iterable, a whole batch is asked for even when less is left.
    is_exact = is_batch and iterator._dataset_kind == _MAP_STYLE
    iterator._outlay_indices.append(len(index) if is_exact else 0)


def next_indices(iterator: Any) -> int:
    """Samples that were asked for in the batch that comes now; 0 where that is not known."""
    pending = getattr(iterator, "_outlay_indices", None)
    return int(pending.popleft()) if pending else 0


def samples_in(torch: Any, batch: Any, iterator: Any) -> int:
    """Samples in a batch: its loader's batch size, or its rows where fewer are left at an end.

    Rows count where the first batch has as many as the batch size. 0 where nothing is known.
    """
    batch_size = getattr(iterator, "_outlay_batch_size", None)
    rows = _rows(torch, batch, batch_size, _MOST_LEVELS)
    if batch_size is None:
        return rows or 0
    are_rows_samples = getattr(iterator, "_outlay_rows_are_samples", None)
    if are_rows_samples is None:
        are_rows_samples = iterator._outlay_rows_are_samples = rows == batch_size
    return min(rows or batch_size, batch_size) if are_rows_samples else int(batch_size)


def _rows(torch: Any, value: Any, batch_size: int | None, levels: int) -> int | None:
    if isinstance(value, torch.Tensor):
        return int(value.shape[0]) if value.dim() else None
    if not levels:
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
        rows = _rows(torch, part, batch_size, levels - 1)
        if rows is not None:
            return rows
    return None


def _are_samples(torch: Any, parts: Any) -> bool:
    """Whether tensors are samples of one kind and different lengths, not inputs and targets."""
    if not all(isinstance(part, torch.Tensor) and part.dim() for part in parts):
        return False
    kinds = {(part.dim(), part.dtype) for part in parts}
    return len(kinds) == 1 and len({part.shape[0] for part in parts}) > 1


# Evaluations: their batches come without gradients, while a model is in evaluation mode, or their
# loader is at its end before any backward pass. The loader of the last batch before a step is known
# to be trained on. Where step after step has no other batches, those that were set aside are
# trained on after all: some scripts load ahead without gradients, or train with all layers in
# evaluation mode.


def is_evaluating(watch: Any) -> bool:
    """Whether what is loaded now is most likely evaluated."""
    if not watch.torch.is_grad_enabled():
        return True
    return any(not module.training for module in watch.counters.eval_modules)


def set_aside_batch(counters: Any, iterator: Any, samples: int) -> None:
    """Count a batch as one that is not trained on."""
    counters.evaluation_batches += 1
    counters.evaluation_loader = getattr(iterator, "_outlay_number", 0)
    key, batches, samples_before = counters.last_set_aside
    if key != id(iterator):
        batches = samples_before = 0
    counters.last_set_aside = id(iterator), batches + 1, samples_before + samples


def restore_set_aside(counters: Any, is_trained_on: bool) -> None:
    """Before a step without other batches: count after all what was set aside last.

    Where its loader is trained on: the model may have been put back to train after the loading.
    """
    _, batches, samples = counters.last_set_aside
    if is_trained_on and not counters.batches and batches:
        counters.batches, counters.samples = batches, samples
        counters.loaders.add(counters.evaluation_loader)
        counters.evaluation_batches -= batches


def note_provisional_batch(watch: Any, iterator: Any, samples: int) -> None:
    """Keep that a batch was counted whose loader is not known to be trained on."""
    when = watch.steps, watch.counters.passes
    if getattr(iterator, "_outlay_provisional_at", None) != when:
        iterator._outlay_provisional_at, iterator._outlay_provisional = when, [0, 0]
    iterator._outlay_provisional[0] += 1
    iterator._outlay_provisional[1] += samples


def withdraw_provisional(watch: Any, iterator: Any) -> None:
    """Count those as an evaluation's that a loader gave since the last backward pass or step.

    Called when it is at its end, or gives batches to an evaluation.
    """
    counters, when = watch.counters, getattr(iterator, "_outlay_provisional_at", None)
    is_trained_on = getattr(iterator, "_outlay_number", 0) in watch.training_loaders
    if is_trained_on or when != (watch.steps, counters.passes):
        return
    batches, samples = iterator._outlay_provisional
    if batches > counters.batches:
        return
    counters.batches -= batches
    counters.samples -= samples
    counters.evaluation_batches += batches
    number = getattr(iterator, "_outlay_number", 0)
    counters.loaders.discard(number)
    counters.evaluation_loader, counters.last_set_aside = number, (0, 0, 0)
    if counters.last_loader == number:
        counters.last_loader = 0
    iterator._outlay_provisional_at = None


# Wrappers

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_infos: dict[int, LoaderInfo] = {}
"""What to report of loaders once they are known to be trained on; a process may be watched more
than once, and each time it is reported."""
_count = itertools.count(1)
_MOST_REPORTED = 50
"""Loaders that may be reported in one probe: a script may make one for each epoch or step."""


def patch_loaders(watch: Any) -> None:
    """Count what comes out of the DataLoaders of this process."""
    data = importlib.import_module("torch.utils.data")
    iterators = importlib.import_module("torch.utils.data.dataloader")
    watch.patches.replace(data.DataLoader, "__iter__", _timed_iter(watch, data.DataLoader.__iter__))
    iterator = iterators._BaseDataLoaderIter
    watch.patches.replace(iterator, "__next__", _timed_next(watch, iterator.__next__))
    watch.patches.replace(iterator, "_next_index", _counted_next_index(iterator._next_index))
    for name in ("__init__", "_reset"):  # in which an iterator begins at the first batch
        watch.patches.wrap(iterator, name, _keep_loader)


def _keep_loader(original: Any, iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep whose iterator it is: some loaders have an `__iter__` of their own (torchdata's)."""
    result = original(iterator, loader, *args, **kwargs)
    try:
        iterator._outlay_loader = weakref.ref(loader)
    except Exception as error:
        log_error(error)
    return result


def _note_own_start(watch: Any, iterator: Any) -> None:
    """At the first batch of an iterator that did not come from DataLoader's `__iter__`."""
    reference = getattr(iterator, "_outlay_loader", None)
    loader = None if reference is None else reference()
    if loader is not None:
        try:
            _note_start(watch, loader, iterator)
        except Exception as error:
            log_error(error)


def _timed_iter(watch: Any, original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        before_s = time.perf_counter()
        iterator = original(self)
        watch.counters.wait_s += time.perf_counter() - before_s
        try:
            _note_start(watch, self, iterator)
        except Exception as error:
            log_error(error)
        return iterator

    return __iter__


def _note_start(watch: Any, loader: Any, iterator: Any) -> None:
    iterator._outlay_loader = None  # it has begun
    number = _numbers.get(loader)
    if number is None:
        number = _numbers[loader] = next(_count)
    if number not in _infos and len(watch.training_loaders) < _MOST_REPORTED:
        _infos[number] = _info_of(loader)
        if len(_infos) > _MOST_REPORTED:
            del _infos[next(iter(_infos))]
    if number not in watch.training_loaders or not is_evaluating(watch):
        watch.counters.started_loaders = (*watch.counters.started_loaders, number)
    iterator._outlay_batch_size = loader.batch_size
    iterator._outlay_number = number


def loader_info(number: int) -> LoaderInfo | None:
    """What is known of a loader; nothing of one too many."""
    return _infos.get(number)


def _info_of(loader: Any) -> LoaderInfo:
    return LoaderInfo(
        batch_size=loader.batch_size,
        batches=_length_of(loader),
        workers=loader.num_workers,
        pin_memory=bool(loader.pin_memory),
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
    )


def _length_of(loader: Any) -> int | None:
    """Batches of an epoch, without a trace in the loader.

    One of an iterable dataset whose length was once read warns from then on where more come.
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


def _counted_next_index(original: Any) -> Any:
    """Keep how many indices each batch is made of, until it comes."""

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        index = original(self)
        try:
            note_indices(self, index)
        except Exception as error:
            log_error(error)
        return index

    return _next_index


def _timed_next(watch: Any, original: Any) -> Any:
    counters, clock, thread = watch.counters, time.perf_counter, threading.get_ident

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        recorder, before_s = watch.recorder, clock()
        _note_own_start(watch, self)
        # A thread that loads ahead keeps nobody waiting.
        is_ahead = watch.training_thread and watch.training_thread != thread()
        if recorder is not None and not is_ahead:
            recorder.paused += 1
        try:
            batch = original(self)
        except StopIteration:
            withdraw_provisional(watch, self)
            raise
        finally:
            indices = next_indices(self)
            if not is_ahead:
                counters.wait_s += clock() - before_s
            if recorder is not None and not is_ahead:
                recorder.paused -= 1
        samples = indices or _samples_or_zero(watch, batch, self)
        number = getattr(self, "_outlay_number", 0)
        if is_evaluating(watch):
            withdraw_provisional(watch, self)  # the first may come before the change of modes
            set_aside_batch(counters, self, samples)
        else:
            if number not in watch.training_loaders:
                note_provisional_batch(watch, self, samples)
            counters.last_loader = number
            counters.loaders.add(number)
            counters.batches += 1
            counters.samples += samples
        return batch

    return __next__


def _samples_or_zero(watch: Any, batch: Any, iterator: Any) -> int:
    try:
        return samples_in(watch.torch, batch, iterator)
    except Exception as error:  # a batch is whatever the script makes of it
        log_error(error)
        return 0


# Epochs: the loader of the last batch before a step is trained on, those of an evaluation apart.
# Beside it others may be: a second source of data, a set without labels. Of loaders that are used
# side by side the longest makes the epoch: shorter ones are started again and again in it.

_SIDE_BY_SIDE = 3
"""Steps in a row for which a loader is used beside another, to be trained on as well."""

_MOST_USED = 50
"""Loaders of which the last use is kept."""


class Epochs:
    """Loaders by their numbers, and the steps at which each was last used and started."""

    def __init__(self, watch: Any, info_of: Callable[[int], LoaderInfo | None]) -> None:
        self._watch = watch
        self._info_of = info_of
        self._in_a_row: dict[int, tuple[int, int]] = {}
        """The last step of which a loader was used beside another, and how many in a row."""
        self._used: dict[int, int] = {}
        self._started: dict[int, int] = {}

    def begin(self) -> bool:
        """Whether an epoch began since the last step; called when a step was made."""
        watch, counters = self._watch, self._watch.counters
        last, evaluation = counters.last_loader, counters.evaluation_loader
        if last and last not in watch.training_loaders:
            self._train_on(last)
        elif evaluation and not last and evaluation not in watch.training_loaders:
            self._use_beside(evaluation)
        restore_set_aside(counters, evaluation in watch.training_loaders)
        for number in counters.loaders - watch.training_loaders:
            self._use_beside(number)
        begins = [number for number in counters.started_loaders if self._makes_epoch(number)]
        if len(self._used) > _MOST_USED:  # a loader for each step: they do not come back
            self.reset()
        self._used.update(dict.fromkeys(counters.loaders, watch.steps))
        self._started.update(dict.fromkeys(counters.started_loaders, watch.steps))
        return bool(begins)

    def reset(self) -> None:
        """Begin anew."""
        self._in_a_row.clear()
        self._used.clear()
        self._started.clear()

    def _train_on(self, number: int) -> None:
        self._watch.training_loaders.add(number)
        info = self._info_of(number)
        if info is not None:
            self._watch.channel.report(info)

    def _use_beside(self, number: int) -> None:
        last_step, before = self._in_a_row.get(number, (0, 0))
        in_a_row = before + 1 if last_step == self._watch.steps - 1 else 1
        self._in_a_row[number] = self._watch.steps, in_a_row
        if in_a_row >= _SIDE_BY_SIDE:
            self._train_on(number)

    def _makes_epoch(self, number: int) -> bool:
        if number not in self._watch.training_loaders:
            return False
        length, started = self._length(number), self._started.get(number)
        if length is None or started is None:
            return True
        others = [other for other, step in self._used.items() if other != number and step > started]
        return not any((self._length(other) or 0) > length for other in others)

    def _length(self, number: int) -> int | None:
        info = self._info_of(number)
        return None if info is None else info.batches
