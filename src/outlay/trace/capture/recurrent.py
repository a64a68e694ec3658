"""Recurrent layers as CUDA runs them: one cuDNN call a layer stack, not one operator a time step.

torch takes cuDNN for `nn.LSTM`, `nn.GRU` and `nn.RNN` where it finds it; for fake tensors it would
unroll the sequence. Packed sequences take the same road: see `sequences`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_KEPT_PER_POSITION = {0: 1, 1: 1, 2: 5, 3: 6}
# Found on an H200: what cuDNN keeps of each position for the backward pass, in hidden sizes; and
# the output of every layer but the last.

_Argument = Any
_registered: list[torch.library.Library] = []


def install() -> None:
    """Route recurrent layers on CUDA tensors through cuDNN. Does nothing the second time."""
    if _registered:
        return
    library = torch.library.Library("aten", "IMPL")
    for name, mode in _MODES.items():
        library.impl(f"{name}.input", _layer(mode), "AutogradCUDA")
        library.impl(f"{name}.data", _packed_layer(mode), "AutogradCUDA")
    _registered.append(library)


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


def forward(x: Tensor, *args: _Argument) -> tuple[Tensor, ...]:
    """What `aten._cudnn_rnn` returns, with a reserve that has a size."""
    out, *others, _reserve, buffer = torch.ops.aten._cudnn_rnn(x, *args)
    _, _, _, _, _, mode, hidden, _, num_layers, batch_first, _, _, bidirectional, *_ = args
    states = math.prod(x.shape[:-1]) * hidden * (2 if bidirectional else 1)
    kept = states * (_KEPT_PER_POSITION[mode] * num_layers + num_layers - 1) * x.dtype.itemsize
    if batch_first and out.dim() == 3:
        out = out.new_empty(out.shape[1], out.shape[0], out.shape[2]).transpose(0, 1)
    return out, *others, x.new_empty(kept, dtype=torch.uint8), buffer


def backward(x: Tensor, weights: Sequence[Tensor], *args: Tensor | None) -> tuple[object, ...]:
    """What `aten._cudnn_rnn_backward` returns: gradients of input, states and weights.

    Those of the weights lie in one piece.
    """
    state, cell = args[2], args[3]
    flat = x.new_empty(sum(tensor.numel() for tensor in weights))
    parts = flat.split([tensor.numel() for tensor in weights])
    grads = [part.view(tensor.shape) for part, tensor in zip(parts, weights, strict=True)]
    no_cell = x.new_empty(0) if cell is None else torch.empty_like(cell)
    return torch.empty_like(x), torch.empty_like(state), no_cell, grads


# Single cells (`nn.GRUCell`, `nn.LSTMCell`): one fused kernel after the two products.
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
