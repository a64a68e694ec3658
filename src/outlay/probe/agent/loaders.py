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
from .patches import hide_frames
from .protocol import LoaderInfo, LoaderUse, LoaderUses

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
# evaluation mode. Others sample in evaluation mode after a step, load the next batch, and put the
# model back to train only then: `correct_loads` tells the two apart.


class Load:
    """Batches that one iterator gave in a row, and whether they were set aside."""

    __slots__ = ("batches", "evals", "has_gradients", "is_set_aside", "loader", "samples", "start")

    def __init__(self, loader: int, start: int, samples: int, evals: int) -> None:
        self.loader = loader
        self.start = start
        """Which of all starts of loaders it comes from."""
        self.batches, self.samples = 1, samples
        self.evals = evals
        """Changes into evaluation mode before it."""
        self.is_set_aside, self.has_gradients = False, True


def is_evaluating(watch: Any) -> bool:
    """Whether what is loaded now is most likely evaluated."""
    if not watch.torch.is_grad_enabled():
        return True
    return any(not module.training for module in watch.counters.eval_modules)


def note_load(watch: Any, iterator: Any, samples: int, *, is_set_aside: bool) -> None:
    """Count a batch, as one that is trained on or as one that is set aside."""
    counters = watch.counters
    number, start = getattr(iterator, "_outlay_number", 0), getattr(iterator, "_outlay_start", 0)
    loads = counters.loads  # the same list throughout: a thread may load while another steps
    last = loads[-1] if loads else None
    if last is not None and last.start == start and last.is_set_aside == is_set_aside:
        last.batches += 1
        last.samples += samples
    else:
        load = Load(number, start, samples, len(counters.eval_modules))
        loads.append(load)
        if is_set_aside:
            load.is_set_aside, load.has_gradients = True, watch.torch.is_grad_enabled()
    if is_set_aside:
        counters.evaluation_batches += 1
        return
    counters.last_loader = number
    counters.loaders.add(number)
    counters.batches += 1
    counters.samples += samples


def last_set_aside(counters: Any) -> Load | None:
    """What was set aside last, if anything was."""
    return next((load for load in reversed(counters.loads) if load.is_set_aside), None)


def restore_set_aside(counters: Any, trained_on: set[int]) -> None:
    """Before a step without other batches: count after all what was set aside last.

    Where its loader is trained on: the model may have been put back to train after the loading. Of
    several that are, the last of each, up to what another loader gave.
    """
    aside = [load for load in counters.loads if load.is_set_aside]
    for load in reversed(aside):
        is_alike = load.has_gradients == aside[-1].has_gradients
        if load.loader not in trained_on or not is_alike:
            break
        if load.loader not in counters.loaders:
            counters.batches += load.batches
            counters.samples += load.samples
            counters.loaders.add(load.loader)
            counters.evaluation_batches -= load.batches
            load.is_set_aside = False


def set_aside(counters: Any, loads: list[Load]) -> None:
    """Count loads as an evaluation's after all, those that are not yet."""
    for load in [load for load in loads if not load.is_set_aside]:
        counters.batches -= load.batches
        counters.samples -= load.samples
        counters.evaluation_batches += load.batches
        load.is_set_aside, load.has_gradients = True, False
    counted = [load for load in counters.loads if not load.is_set_aside]
    counters.loaders = {load.loader for load in counted}
    counters.last_loader = counted[-1].loader if counted else 0


def correct_loads(
    watch: Any, is_new: Callable[[Load], bool], gives_the_same: Callable[[int], bool]
) -> None:
    """Set aside what was loaded for an evaluation before the model was put into its mode.

    `is_new` says of a load that its loader was begun for this step, `gives_the_same` of a loader
    that it begins with the same batch each time.
    """
    counters, known = watch.counters, watch.training_loaders
    last = counters.loads[-1]
    counted = [load for load in counters.loads if not load.is_set_aside]
    is_back = all(module.training for module in counters.eval_modules)
    if not counted or not counters.eval_modules or not is_back:
        return
    if last.is_set_aside and last.has_gradients:
        # A batch to sample from, `eval`, the sampling, the next batch to train on, `train`
        are_others = last.loader in known and all(load.loader not in known for load in counted)
        go_on = not is_new(last) and all(is_new(load) for load in counted)
        are_fixed = all(is_new(load) and gives_the_same(load.loader) for load in counted)
        if are_others or go_on or (are_fixed and not gives_the_same(last.loader)):
            set_aside(counters, counted)
    elif not last.is_set_aside and last.evals < len(counters.eval_modules) and is_new(last):
        # The batch to train on, one to sample from, `eval`, the sampling, `train`
        others = [load for load in counted if load.loader != last.loader]
        if others and (last.loader not in known or gives_the_same(last.loader)):
            set_aside(counters, [load for load in counted if load.loader == last.loader])


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
    number = getattr(iterator, "_outlay_number", 0)
    if number in watch.training_loaders or when != (watch.steps, counters.passes):
        return
    batches, samples = iterator._outlay_provisional
    if batches > counters.batches:
        return
    counters.batches -= batches
    counters.samples -= samples
    counters.evaluation_batches += batches
    counters.loaders.discard(number)
    counters.loads = [load for load in counters.loads if load.loader != number]
    if counters.last_loader == number:
        counters.last_loader = 0
    iterator._outlay_provisional_at = None


# Wrappers

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_infos: dict[int, LoaderInfo] = {}
"""What to report of loaders once they are known to be trained on; a process may be watched more
than once, and each time it is reported."""
_fixed: set[int] = set()
"""Loaders that give the same batches in the same order each time."""
_count = itertools.count(1)
_starts = itertools.count(1)
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
        try:
            iterator = original(self)
        except BaseException as error:
            hide_frames(error)
            raise
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
        if type(getattr(loader, "sampler", None)).__name__ == "SequentialSampler":
            _fixed.add(number)
    iterator._outlay_batch_size = loader.batch_size
    iterator._outlay_number = number
    iterator._outlay_start = next(_starts)


def gives_the_same(number: int) -> bool:
    """Whether a loader begins with the same batch each time it is begun: its data in order."""
    return number in _fixed


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
        try:
            index = original(self)
        except BaseException as error:
            hide_frames(error)
            raise
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
        except BaseException as error:
            if isinstance(error, StopIteration):
                withdraw_provisional(watch, self)
                watch.loader_ended(
                    getattr(self, "_outlay_number", 0), getattr(self, "_outlay_start", 0)
                )
            hide_frames(error)
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
            note_load(watch, self, samples, is_set_aside=True)
            counters.set_aside_from_s = counters.set_aside_from_s or before_s
            counters.evaluated_until_s = time.perf_counter()
        else:
            if number not in watch.training_loaders:
                note_provisional_batch(watch, self, samples)
            note_load(watch, self, samples, is_set_aside=False)
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
# side by side the longest makes the epoch: shorter ones are started again and again in it. An epoch
# begins when a loader gives its first batch to train on after it was begun anew; what each has
# given is reported, for the length of an epoch to be told from.

_SIDE_BY_SIDE = 3
"""Steps in a row for which a loader is used beside another, to be trained on as well."""

_MOST_USED = 50
"""Loaders of which the last use is kept."""
_STARTS_KEPT = 32


class Use:
    """What one loader has given to train on."""

    __slots__ = (
        "batches",
        "ends",
        "first_step",
        "in_last_step",
        "last_step",
        "start",
        "started_at",
        "starts",
        "steps",
    )

    def __init__(self, step: int) -> None:
        self.steps = self.batches = self.in_last_step = self.starts = self.ends = 0
        self.first_step = self.last_step = step
        self.start = 0
        """The one that it gave the last batch of."""
        self.started_at: deque[int] = deque(maxlen=_STARTS_KEPT)

    def add(self, load: Load, step: int) -> None:
        """Take in batches that were trained on in a step."""
        if load.start != self.start:
            self.start = load.start
            self.starts += 1
            self.started_at.append(step)
        if step != self.last_step or not self.steps:
            self.steps += 1
            self.in_last_step = 0
        self.in_last_step += load.batches
        self.batches += load.batches
        self.last_step = step


class Epochs:
    """Loaders by their numbers, and the steps at which each was last used and started."""

    def __init__(self, watch: Any, info_of: Callable[[int], LoaderInfo | None]) -> None:
        self._watch = watch
        self._info_of = info_of
        self._records: dict[int, list[int]] = {}
        """Steps of each optimizer so far, and those that loaders gave something for."""
        self._in_a_row: dict[tuple[int, int], tuple[int, int]] = {}
        """By optimizer and loader: the last of those for which the loader was used, and how many in
        a row it was used for."""
        self._uses: dict[int, Use] = {}
        self._seen: dict[int, None] = {}
        """The last starts of loaders that anything came from."""

    def begin(self) -> bool:
        """Whether an epoch began since the last step; called when a step was made."""
        watch, counters = self._watch, self._watch.counters
        loads, records = counters.loads, self._records.setdefault(counters.optimizer, [0, 0])
        records[0] += 1
        if not loads:
            return False
        records[1] += 1
        if len(loads) == 1 and self._goes_on(loads[0]):
            return False
        if len(loads) > 1:
            correct_loads(watch, self._is_unseen, gives_the_same)
        if counters.loaders - watch.training_loaders:
            self._find_trained_on()
        aside = last_set_aside(counters)
        if aside is not None and not counters.batches:
            if aside.loader not in watch.training_loaders:
                self._use_beside(aside.loader, is_loaded=False)
            restore_set_aside(counters, watch.training_loaders)
        counted = [load for load in loads if not load.is_set_aside]
        begun = [load.loader for load in counted if self._is_begun(load)]
        is_epoch = any(self._makes_epoch(number) for number in begun)
        for load in counted:
            self._use(load.loader).add(load, watch.steps)
        self._see(loads)
        return is_epoch

    def ended(self, number: int, start: int) -> None:
        """Take in that a loader has no more batches."""
        use = self._uses.get(number)
        if use is not None and use.start == start:
            use.ends += 1

    def _goes_on(self, load: Load) -> bool:
        """Whether it is one more of a loader that is trained on: the usual case, which is quick."""
        use = self._uses.get(load.loader)
        if use is None or use.start != load.start or load.is_set_aside:
            return False
        if load.loader not in self._watch.training_loaders:
            return False
        use.add(load, self._watch.steps)
        return True

    def _find_trained_on(self) -> None:
        """Which of the loaders that gave something for this step are trained on, not known so far.

        One alone is; beside others it is where they come together again and again. What comes
        beside those that are known, and did not for the last step, is looked at now and then.
        """
        watch, counters = self._watch, self._watch.counters
        has_known = bool(counters.loaders & watch.training_loaders)
        if len(counters.loaders) == 1:
            self._train_on(counters.last_loader)
            return
        for number in sorted(counters.loaders - watch.training_loaders):
            in_a_row = self._use_beside(number, is_loaded=True)
            if has_known and in_a_row == 1 and number in self._uses:
                set_aside(counters, [load for load in counters.loads if load.loader == number])

    def report(self) -> None:
        """Report what loaders have given so far, of those that came last where there are many."""
        if not self._uses:
            return
        uses = [self._report_of(number, use)._asdict() for number, use in self._uses.items()]
        self._watch.channel.report(LoaderUses(loaders=uses))

    def reset(self) -> None:
        """Begin anew."""
        self._records.clear()
        self._in_a_row.clear()
        self._uses.clear()
        self._seen.clear()

    def _report_of(self, number: int, use: Use) -> LoaderUse:
        return LoaderUse(
            number=number,
            length=self._length(number),
            is_trained_on=number in self._watch.training_loaders,
            steps=use.steps,
            batches=use.batches,
            batches_before_last=use.batches - use.in_last_step,
            first_step=use.first_step,
            last_step=use.last_step,
            starts=use.starts,
            ends=use.ends,
            started_at=list(use.started_at),
        )

    def _use(self, number: int) -> Use:
        use = self._uses.get(number)
        if use is None:
            if len(self._uses) >= _MOST_USED:  # a loader for each step: they do not come back
                self._in_a_row.clear()
                self._uses.clear()
            use = self._uses[number] = Use(self._watch.steps)
        return use

    def _is_begun(self, load: Load) -> bool:
        """Whether it is the first to train on since its loader was begun."""
        use = self._uses.get(load.loader)
        return use is None or use.start != load.start

    def _is_unseen(self, load: Load) -> bool:
        """Whether nothing came from this start of its loader before this step."""
        return load.start not in self._seen

    def _see(self, loads: list[Load]) -> None:
        for load in loads[-_MOST_USED:]:
            self._seen.pop(load.start, None)
            self._seen[load.start] = None
        while len(self._seen) > _MOST_USED:
            del self._seen[next(iter(self._seen))]

    def _train_on(self, number: int) -> None:
        self._watch.training_loaders.add(number)
        info = self._info_of(number)
        if info is not None:
            self._watch.channel.report(info)

    def _use_beside(self, number: int, *, is_loaded: bool) -> int:
        """For how many steps of this optimizer in a row a loader was used.

        `is_loaded`, of those alone that any loader gave something for.
        """
        optimizer = self._watch.counters.optimizer
        now = self._records[optimizer][is_loaded]
        last, before = self._in_a_row.get((optimizer, number), (0, 0))
        in_a_row = before + 1 if last == now - 1 else 1
        self._in_a_row[optimizer, number] = now, in_a_row
        if in_a_row >= _SIDE_BY_SIDE:
            self._train_on(number)
        return in_a_row

    def _makes_epoch(self, number: int) -> bool:
        known = self._watch.training_loaders
        if known and number not in known:
            return False
        length, use = self._length(number), self._uses.get(number)
        if length is None or use is None:
            return True
        started = use.started_at[-1]
        others = [
            other
            for other, its_use in self._uses.items()
            if other != number and its_use.last_step > started
        ]
        return not any((self._length(other) or 0) > length for other in others)

    def _length(self, number: int) -> int | None:
        info = self._info_of(number)
        return None if info is None else info.batches
