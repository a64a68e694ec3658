"""Layers that work on sequences as CUDA runs them: recurrent layers and cells, packing, CTC loss.

torch takes cuDNN for `nn.LSTM`, `nn.GRU` and `nn.RNN` where it finds it: one call a layer stack.
For fake tensors it would unroll the sequence. What torch works out from lengths in C++, where a
trace cannot follow it, is worked out here.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture.constant_values import without_dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from outlay.trace.capture.data_dependent import SelectionSizes


_libraries: list[torch.library.Library] = []


def install() -> None:
    """Route these operators on CUDA tensors through here. Does nothing the second time."""
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL")
    for name, mode in _MODES.items():
        library.impl(f"{name}.input", _layer(mode), "AutogradCUDA")
        library.impl(f"{name}.data", _packed_layer(mode), "AutogradCUDA")
    library.impl("_pad_packed_sequence", _pad, "AutogradCUDA")
    library.impl("_pack_padded_sequence_backward", _pack_backward, "AutogradCUDA")
    library.impl("ctc_loss.IntList", _ctc_loss_of_lists, "AutogradCUDA")
    _libraries.append(library)


# Recurrent layers


_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_SAVED_PER_POSITION = {0: 1, 1: 1, 2: 5, 3: 6}
# Found on an H200: what cuDNN saves of each position for the backward pass, in hidden sizes; and
# the output of every layer but the last.


def _layer(mode: int) -> Callable[..., tuple[Tensor, ...]]:
    def layer(
        x: Tensor,
        hx: Tensor | Sequence[Tensor],
        weights: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        batch_sizes: Sequence[int] = (),
    ) -> tuple[Tensor, ...]:
        state, cell = hx if isinstance(hx, list | tuple) else (hx, None)
        x, state, cell, *weights = _autocast([x, state, cell, *weights])
        hidden = (state if cell is None else cell).shape[2]
        projection = state.shape[2] if state.shape[2] != hidden else 0
        per_layer = (4 if has_biases else 2) + bool(projection)
        out = torch.ops.aten._cudnn_rnn(
            x,
            weights,
            per_layer,
            x.new_empty(0),
            state.contiguous(),
            cell,
            mode,
            hidden,
            projection,
            num_layers,
            batch_first,
            dropout,
            train,
            bidirectional,
            list(batch_sizes),
            None,
        )
        return tuple(out[: 2 if cell is None else 3])

    return layer


def _packed_layer(mode: int) -> Callable[..., tuple[Tensor, ...]]:
    layer = _layer(mode)

    def packed_layer(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor | Sequence[Tensor],
        *options: Any,
    ) -> tuple[Tensor, ...]:
        """Options: weights, has_biases, num_layers, dropout, train, bidirectional."""
        return layer(data, hx, *options, False, batch_sizes.tolist())

    return packed_layer


def _autocast(tensors: list[Tensor | None]) -> list[Tensor]:
    """The tensors in fp16: autocast has it so for cuDNN layers, even where it is set to bf16."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    return [tensor if tensor is None else tensor.to(torch.float16) for tensor in tensors]


def recurrent_forward(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """What `aten._cudnn_rnn` returns, with a reserve that has a size."""
    out, *others, _reserve, buffer = torch.ops.aten._cudnn_rnn(x, *args)
    _, _, _, _, _, mode, hidden, _, num_layers, batch_first, _, _, bidirectional, *_ = args
    states = math.prod(x.shape[:-1]) * hidden * (2 if bidirectional else 1)
    reserve_bytes = (
        states * (_SAVED_PER_POSITION[mode] * num_layers + num_layers - 1) * x.dtype.itemsize
    )
    if batch_first and out.dim() == 3:
        out = out.new_empty(out.shape[1], out.shape[0], out.shape[2]).transpose(0, 1)
    return out, *others, x.new_empty(reserve_bytes, dtype=torch.uint8), buffer


def recurrent_backward(
    x: Tensor, weights: Sequence[Tensor], *args: Tensor | None
) -> tuple[object, ...]:
    """What `aten._cudnn_rnn_backward` returns: gradients of input, states and weights.

    Those of the weights lie in one piece.
    """
    state, cell = args[2], args[3]
    flat = x.new_empty(sum(tensor.numel() for tensor in weights))
    parts = flat.split([tensor.numel() for tensor in weights])
    grads = [part.view(tensor.shape) for part, tensor in zip(parts, weights, strict=True)]
    to_cell = x.new_empty(0) if cell is None else torch.empty_like(cell)
    return torch.empty_like(x), torch.empty_like(state), to_cell, grads


# Cells (`nn.GRUCell`, `nn.LSTMCell`): one fused kernel after the two products.
# Source: aten/src/ATen/native/cuda/RNN.cu


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *_: object
) -> tuple[Tensor, Tensor]:
    """The new state, and what backward needs: five values of the state's size."""
    del input_gates, hidden_gates
    return torch.empty_like(hx), hx.new_empty((hx.shape[0], 5 * hx.shape[1]))


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of both products, of the state and of the biases."""
    gates = 3 * workspace.shape[1] // 5
    grads = [grad_hy.new_empty((workspace.shape[0], gates)) for _ in range(2)]
    biases = [grad_hy.new_empty((gates,)) if has_bias else None for _ in range(2)]
    return grads[0], grads[1], torch.empty_like(grad_hy), biases[0], biases[1]


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    """The new state, the new cell, and what backward needs: the gates."""
    del hidden_gates
    return torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(input_gates)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the gates, of the cell and of the bias."""
    del grad_hy, grad_cy, cy
    bias = workspace.new_empty((workspace.shape[1],)) if has_bias else None
    return torch.empty_like(workspace), torch.empty_like(cx), bias


# Packed sequences. `pack` needs the lengths. Made from a list they are known; drawn ones, and sums
# of a mask, are likely; lengths that only the data could tell are taken to be full, with a note.


def pack(
    selection: SelectionSizes, padded: Tensor, lengths: Tensor, batch_first: bool
) -> tuple[Tensor, Tensor]:
    """`aten._pack_padded_sequence`: all time steps one after the other, and the size of each."""
    batch, longest = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    likely = selection.likely.of(lengths)
    with without_dispatch():
        values = torch.full((batch,), longest)
        is_sensible = likely is not None and 0 < int(likely.min()) <= int(likely.max()) <= longest
        if likely is not None and is_sensible:
            values = likely
        sizes = (values[:, None] > torch.arange(int(values.max()))).sum(0)
        total = int(values.sum())
    if is_sensible:
        what = f"{total} of {batch * longest} time steps are counted"
        selection.note_example("pack_padded_sequence", lengths, what)
    else:
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
    lengths = [sum(size > sequence for size in sizes) for sequence in range(sizes[0])]
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


# CTC loss: torch's own kernels, one each way


def _ctc_loss_of_lists(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    *options: int,
) -> Tensor:
    """With lengths as tensors, as the other form of the operator has them."""
    device = log_probs.device
    lengths = [torch.tensor(list(n), device=device) for n in (input_lengths, target_lengths)]
    on_gpu = targets.to(device)
    loss: Tensor = torch.ops.aten.ctc_loss.Tensor(log_probs, on_gpu, *lengths, *options)
    return loss


def ctc_loss(
    selection: SelectionSizes,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],  # noqa: ARG001
    target_lengths: Tensor | Sequence[int],
    *_: object,
) -> tuple[Tensor, Tensor]:
    """A loss a sequence, and the alignments kept for the backward: 2 labels + 1 at each position.

    Source: aten/src/ATen/native/cuda/LossCTC.cu.
    """
    positions, batch, _classes = log_probs.shape
    labels = _longest(selection, target_lengths)
    if labels is None:
        labels = targets.shape[1] if targets.dim() == 2 else -(-targets.numel() // batch)
        selection.note("ctc_loss", f"targets were assumed to be {labels} labels long")
    alignments = log_probs.new_empty((batch, positions, 2 * labels + 1))
    return log_probs.new_empty((batch,)), alignments


def _longest(selection: SelectionSizes, lengths: Tensor | Sequence[int]) -> int | None:
    if not isinstance(lengths, Tensor):
        return max(lengths, default=0)
    likely = selection.likely.of(lengths)
    if likely is None:
        return None
    with without_dispatch():
        longest = int(likely.max().item())
    selection.note_example("ctc_loss", lengths, f"targets are up to {longest} labels long")
    return longest


def ctc_loss_backward(_grad: Tensor, log_probs: Tensor, *_: object) -> Tensor:
    """A gradient for each log probability."""
    return torch.empty_like(log_probs)
