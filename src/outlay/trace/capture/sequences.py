"""Packed sequences: what torch works out from lengths in C++, where a trace cannot follow it.

`pack` needs the lengths. Made from a list they are known; lengths that only the data could tell are
taken to be full, with a note.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outlay.trace.capture.selection import Selection

_registered: list[torch.library.Library] = []


def install() -> None:
    """Route padding and the backward of packing through here. Does nothing the second time."""
    if _registered:
        return
    library = torch.library.Library("aten", "IMPL")
    library.impl("_pad_packed_sequence", _pad, "AutogradCUDA")
    library.impl("_pack_padded_sequence_backward", _pack_backward, "AutogradCUDA")
    _registered.append(library)


def pack(
    selection: Selection, padded: Tensor, lengths: Tensor, batch_first: bool
) -> tuple[Tensor, Tensor]:
    """`aten._pack_padded_sequence`: all time steps one after the other, and the size of each."""
    batch, longest = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    known = selection.values.of(lengths)
    with torch._C._DisableTorchDispatch():
        values = torch.full((batch,), longest) if known is None else known
        sizes = (values[:, None] > torch.arange(int(values.max()))).sum(0)
        total = int(values.sum())
    if known is None:
        selection.note("pack_padded_sequence", "every sequence was assumed to have full length")
    batch_sizes = torch.empty(sizes.shape, dtype=torch.int64, device="cpu")
    selection.values.give(batch_sizes, sizes)
    return padded.new_empty((total, *padded.shape[2:])), batch_sizes


def _pad(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    """A padded tensor into which each run of steps with as many sequences is copied."""
    sizes = batch_sizes.tolist()
    longest = max(total_length, len(sizes))
    padded = data.new_full((longest, sizes[0], *data.shape[1:]), padding_value)
    for step, steps, size, part in _runs(sizes, data):
        padded[step : step + steps, :size] = part.view(steps, size, *data.shape[1:])
    lengths = [sum(size > place for size in sizes) for place in range(sizes[0])]
    result = padded.transpose(0, 1) if batch_first else padded
    return result, torch.tensor(lengths, device="cpu")


def _pack_backward(
    grad: Tensor, input_size: Sequence[int], batch_sizes: Tensor, batch_first: bool
) -> Tensor:
    """Zeros of the padded size into which the runs are copied back."""
    batch, longest = input_size[:2] if batch_first else (input_size[1], input_size[0])
    padded = grad.new_zeros((longest, batch, *input_size[2:]))
    for step, steps, size, part in _runs(batch_sizes.tolist(), grad):
        padded[step : step + steps, :size] = part.view(steps, size, *grad.shape[1:])
    return padded.transpose(0, 1) if batch_first else padded


def _runs(sizes: Sequence[int], data: Tensor) -> Iterator[tuple[int, int, int, Tensor]]:
    """First step, steps, sequences and rows of each run of steps with as many sequences."""
    step = row = 0
    for size, run in groupby(sizes):
        steps = len(list(run))
        yield step, steps, size, data[row : row + steps * size]
        step, row = step + steps, row + steps * size
