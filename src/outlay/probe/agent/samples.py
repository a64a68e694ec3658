"""Samples in the batches of DataLoaders: by the indices that a batch is made of, else by its rows.

Rows tell less: of images of different sizes the first dimension is their colours, of sequences
that are padded it may be time.
"""

from __future__ import annotations

from collections import deque
from typing import Any

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
