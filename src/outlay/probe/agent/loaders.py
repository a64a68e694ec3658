"""Batches: how many came from DataLoaders, of how many samples, and the waiting for them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
import weakref
from typing import Any

_told: weakref.WeakSet[Any] = weakref.WeakSet()
_DEEP = 4


def count_batches(watch: Any) -> None:
    """Count what comes out of the DataLoaders of this process."""
    data = importlib.import_module("torch.utils.data")
    iterators = importlib.import_module("torch.utils.data.dataloader")
    watch.replace(data.DataLoader, "__iter__", _started(watch, data.DataLoader.__iter__))
    iterator = iterators._BaseDataLoaderIter
    watch.replace(iterator, "__next__", _waited(watch, iterator.__next__))


def _started(watch: Any, original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        watch.since.new_epoch = True
        before_s = time.perf_counter()
        iterator = original(self)
        watch.since.wait_s += time.perf_counter() - before_s
        with contextlib.suppress(AttributeError):
            iterator._outlay_batch_size = self.batch_size
        if self not in _told:
            _told.add(self)
            _introduce(watch, self)
        return iterator

    return __iter__


def _introduce(watch: Any, loader: Any) -> None:
    try:
        length: int | None = len(loader)
    except Exception:
        length = None
    watch.channel.tell_values(
        "loader",
        {
            "batch_size": loader.batch_size,
            "batches": length,
            "workers": loader.num_workers,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        },
    )


def _waited(watch: Any, original: Any) -> Any:
    since, clock = watch.since, time.perf_counter

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        recorder, before_s = watch.recorder, clock()
        if recorder is not None:
            recorder.paused += 1
        try:
            batch = original(self)
        finally:
            since.wait_s += clock() - before_s
            if recorder is not None:
                recorder.paused -= 1
        since.batches += 1
        since.samples += samples_in(watch.torch, batch, getattr(self, "_outlay_batch_size", None))
        return batch

    return __next__


def samples_in(torch: Any, batch: Any, batch_size: int | None) -> int:
    """Samples in a batch: the first dimension of its first tensor, or what the loader was told.

    0 where neither tells. A batch's tensors may have more rows than it has samples (graphs).
    """
    rows = _rows(torch, batch, _DEEP)
    if rows is None or (batch_size is not None and rows > batch_size):
        return batch_size or 0
    return rows


def _rows(torch: Any, value: Any, deep: int) -> int | None:
    if isinstance(value, torch.Tensor):
        return int(value.shape[0]) if value.dim() else None
    if not deep:
        return None
    if isinstance(value, (list, tuple)):
        parts: Any = value
    elif hasattr(value, "values") and callable(value.values):
        parts = value.values()
    else:
        return None
    for part in parts:
        rows = _rows(torch, part, deep - 1)
        if rows is not None:
            return rows
    return None
