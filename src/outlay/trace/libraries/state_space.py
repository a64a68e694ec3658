"""Mamba's selective scan and the causal convolution before it.

The scan keeps its arguments and one pair of states for every 2048 positions; the states of the
others are computed again in backward. Mamba's whole inner function keeps its input, the projected
parameters and the scan's output, and computes convolution and step sizes again as well.

Source: mamba_ssm 2.3 (ops/selective_scan_interface.py, csrc/selective_scan), causal_conv1d 1.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.libraries.kernel_launch import launch

_CHUNK = 2048
"""Positions between two states that the scan keeps."""
_SCAN_FLOPS = 9
"""Of each state at each position. Source: VMamba (classification/models/vmamba.py) counts 9."""
_BACKWARD_FLOPS = 2.5 * _SCAN_FLOPS
# Assumes: the states again, and the scan in reverse with five gradients. A guess.
_EFFICIENCY = 0.3
# Assumes: a guess. Each state takes an exponential, of which a multiprocessor does an eighth as
# many as it does multiply-adds: at most 0.56 of the plain fp32 peak, and parts wait for each other.


# Causal convolution: a depthwise convolution over the positions before, and its activation


def causal_conv1d_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    final_states_out: Tensor | None = None,
    activation: bool = True,
) -> Tensor:
    """The convolved rows of `x` (batch, channels, positions)."""
    del activation
    out = torch.empty_like(x)
    launch(
        "causal_conv1d.forward",
        [x, weight, bias, seq_idx, initial_states],
        [out, final_states_out],
        kind="conv",
        flops=2 * x.numel() * weight.shape[-1],
    )
    return out


def causal_conv1d_backward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    grad_final_states: Tensor | None = None,
    to_x: Tensor | None = None,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of input, weight and bias; those of weight and bias are summed in fp32."""
    to_x = torch.empty_like(x) if to_x is None else to_x
    to_weight = torch.zeros_like(weight, dtype=torch.float32)
    to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    to_states = None if initial_states is None else torch.empty_like(initial_states)
    launch(
        "causal_conv1d.backward",
        [x, weight, bias, grad, seq_idx, initial_states, grad_final_states],
        [to_x, to_weight, to_bias, to_states],
        kind="conv",
        flops=4 * x.numel() * weight.shape[-1],
    )
    to_bias = None if to_bias is None or bias is None else to_bias.type_as(bias)
    return to_x, to_weight.type_as(weight), to_bias, to_states


class _CausalConvolution(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        seq_idx: Tensor | None,
        states: Tensor | None,
    ) -> Tensor:
        x = x if 1 in x.stride()[1:] else x.contiguous()
        ctx.save_for_backward(x, weight, bias, seq_idx, states)
        return causal_conv1d_forward(x, weight, bias, seq_idx, states)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, seq_idx, states = ctx.saved_tensors
        grad = grad if 1 in grad.stride()[1:] else grad.contiguous()
        grads = causal_conv1d_backward(x, weight, bias, grad, seq_idx, states)
        to_x, to_weight, to_bias, to_states = grads
        return to_x, to_weight, to_bias, None, to_states


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """The convolved rows of `x` (batch, channels, positions), activated."""
    del activation
    out = _CausalConvolution.apply(x, weight, bias, seq_idx, initial_states)
    if not return_final_states:
        return out
    if final_states_out is None:
        final_states_out = x.new_empty((*x.shape[:2], weight.shape[1] - 1))
    return out, final_states_out


# The scan


def scan_forward(
    u: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *_: object,
) -> list[Tensor]:
    """Output, states to go on from in backward and, with a gate `z`, the gated output."""
    out = torch.empty_like(delta)
    gated = None if z is None else torch.empty_like(z)
    batch, channels, positions = u.shape
    chunks = math.ceil(positions / _CHUNK)
    states = u.new_empty((batch, channels, chunks, 2 * a.shape[-1]), dtype=a.dtype)
    launch(
        "mamba_ssm.selective_scan",
        [u, delta, a, b, c, d, z, delta_bias],
        [out, states, gated],
        kind="other",
        flops=_SCAN_FLOPS * u.numel() * a.shape[-1],
        efficiency=_EFFICIENCY,
    )
    return [out, states] if gated is None else [out, states, gated]


def scan_backward(
    u: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    grad: Tensor,
    states: Tensor,
    out: Tensor | None = None,
    to_z: Tensor | None = None,
    _softplus: bool = False,
    recompute_out_z: bool = False,
) -> list[Any]:
    """Gradients in the order of the arguments, with the gated output again where asked."""
    to_u, to_delta = torch.empty_like(u), torch.empty_like(delta)
    to_a = torch.zeros_like(a)
    to_b, to_c = (_zeros_in_fp32(tensor) for tensor in (b, c))
    to_d = None if d is None else torch.zeros_like(d)
    to_bias = None if delta_bias is None else torch.zeros_like(delta_bias)
    if z is not None and to_z is None:
        to_z = torch.empty_like(z)
    again = torch.empty_like(delta) if recompute_out_z else None
    launch(
        "mamba_ssm.selective_scan_backward",
        [u, delta, a, b, c, d, z, delta_bias, grad, states, out],
        [to_u, to_delta, to_a, to_b, to_c, to_d, to_bias, to_z, again],
        kind="other",
        flops=_BACKWARD_FLOPS * u.numel() * a.shape[-1],
        efficiency=_EFFICIENCY,
    )
    results = [to_u, to_delta, to_a, to_b.to(b.dtype), to_c.to(c.dtype), to_d, to_bias]
    return [*results, *(tensor for tensor in (to_z, again) if tensor is not None)]


def _zeros_in_fp32(tensor: Tensor) -> Tensor:
    """The gradient of a parameter: summed in fp32 where each position has its own."""
    return torch.zeros_like(tensor, dtype=torch.float32 if tensor.dim() > 2 else None)


def _ungated_forward(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, *others: Any
) -> list[Tensor]:
    """VMamba's forms of the kernel, which have no gate: D and the bias of delta follow."""
    tensors = [other for other in others if isinstance(other, Tensor)]
    return scan_forward(u, delta, a, b, c, *tensors[:1], None, *tensors[1:2])


def _ungated_backward(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, *others: Any
) -> list[Any]:
    d, delta_bias, grad, states, *_ = others
    return scan_backward(u, delta, a, b, c, d, None, delta_bias, grad, states)


class _SelectiveScan(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor | None) -> tuple[Tensor, Tensor]:
        u, delta, a, b, c, d, z, delta_bias = arguments
        u, delta, b, c = (_last_contiguous(tensor) for tensor in (u, delta, b, c))
        z = None if z is None else _last_contiguous(z)
        out, states, *rest = scan_forward(u, delta, a, b, c, d, z, delta_bias)
        kept = out if z is not None else None
        ctx.save_for_backward(u, delta, a, b, c, d, z, delta_bias, states, kept)
        last = states[:, :, -1, 1::2]
        ctx.mark_non_differentiable(last)
        return (rest[0] if rest else out), last

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
        u, delta, a, b, c, d, z, delta_bias, states, out = ctx.saved_tensors
        grad = _last_contiguous(grad)
        results = scan_backward(u, delta, a, b, c, d, z, delta_bias, grad, states, out)
        *others, to_d, to_bias = results[:7]
        to_z = results[7] if z is not None else None
        return *others, to_d, to_z, to_bias


def _last_contiguous(tensor: Any) -> Tensor:
    result: Tensor = tensor if tensor.stride(-1) == 1 else tensor.contiguous()
    return result


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """The scanned rows of `u` (batch, channels, positions), and the last state if asked."""
    del delta_softplus
    out, last = _SelectiveScan.apply(u, delta, A, B, C, D, z, delta_bias)
    return (out, last) if return_last_state else out


# Mamba's inner function: convolution, parameters, scan and output in one, with little kept


class _MambaInner(torch.autograd.Function):  # type: ignore[misc]
    """Arguments: input and gate, weights, A, D, and the bias of delta."""

    @staticmethod
    def forward(
        ctx: Any,
        xz: Tensor,
        conv_weight: Tensor,
        conv_bias: Tensor | None,
        x_weight: Tensor,
        delta_weight: Tensor,
        out_weight: Tensor,
        out_bias: Tensor | None,
        a: Tensor,
        d: Tensor | None,
        delta_bias: Tensor | None,
    ) -> Tensor:
        weights = _autocast(x_weight, delta_weight, out_weight, out_bias)
        x_weight, delta_weight, out_weight, out_bias = weights
        xz = _last_contiguous(xz)
        x, z = xz.chunk(2, 1)
        conv_weight = conv_weight.squeeze(1)
        convolved = causal_conv1d_forward(x, conv_weight, conv_bias)
        rows = functional.linear(_by_position(convolved), x_weight)
        rank, states = delta_weight.shape[1], a.shape[-1]
        delta = _delta(delta_weight, rows, xz.shape)
        b, c = (
            _by_state(rows[:, start : start + states], xz.shape)
            for start in (rank, rows.shape[1] - states)
        )
        out, kept, gated = scan_forward(convolved, delta, a, b, c, d, z, delta_bias)
        ctx.save_for_backward(
            xz, conv_weight, conv_bias, rows, x_weight, delta_weight, out_weight, out_bias,
            a, b, c, d, delta_bias, kept, out,
        )  # fmt: skip
        return functional.linear(gated.transpose(1, 2), out_weight, out_bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (
            xz, conv_weight, conv_bias, rows, x_weight, delta_weight, out_weight, out_bias,
            a, b, c, d, delta_bias, kept, out,
        ) = ctx.saved_tensors  # fmt: skip
        batch, _, positions = xz.shape
        rank, states = delta_weight.shape[1], a.shape[-1]
        x, z = xz.chunk(2, 1)
        convolved = causal_conv1d_forward(x, conv_weight, conv_bias)
        delta = _delta(delta_weight, rows, xz.shape)
        to_xz = torch.empty_like(xz)
        to_x, to_z = to_xz.chunk(2, 1)
        flat = grad.contiguous().flatten(0, 1)
        to_gated = (out_weight.t() @ flat.t()).unflatten(1, (batch, positions)).transpose(0, 1)
        results = scan_backward(
            convolved, delta, a, b, c, d, z, delta_bias, to_gated, kept, out, to_z, True, True
        )
        to_convolved, to_delta, to_a, to_b, to_c, to_d, to_bias, _, gated = results
        to_out_weight = flat.t() @ _by_position(gated)
        to_out_bias = None if out_bias is None else grad.sum((0, 1))
        to_rows = torch.empty_like(rows)
        to_rows[:, rank : rank + states] = _by_position(to_b.squeeze(1))
        to_rows[:, rows.shape[1] - states :] = _by_position(to_c.squeeze(1))
        by_channel = to_delta.transpose(0, 1).flatten(1)
        to_delta_weight = by_channel @ rows[:, :rank]
        to_rows[:, :rank] = by_channel.t() @ delta_weight
        to_x_weight = to_rows.t() @ _by_position(convolved)
        summed = to_convolved.transpose(0, 1).flatten(1)
        torch.addmm(summed, x_weight.t(), to_rows.t(), out=summed)
        to_convolved = summed.unflatten(1, (batch, positions)).transpose(0, 1)
        _, to_conv_weight, to_conv_bias, _ = causal_conv1d_backward(
            x, conv_weight, conv_bias, to_convolved, to_x=to_x
        )
        return (
            to_xz, to_conv_weight.unsqueeze(1), to_conv_bias, to_x_weight, to_delta_weight,
            to_out_weight, to_out_bias, to_a, to_d, to_bias,
        )  # fmt: skip


def _autocast(*weights: Tensor | None) -> tuple[Any, ...]:
    if not torch.is_autocast_enabled("cuda"):
        return weights
    dtype = torch.get_autocast_dtype("cuda")
    return tuple(None if weight is None else weight.to(dtype) for weight in weights)


def _by_position(x: Tensor) -> Tensor:
    """(batch, channels, positions) as (batch * positions, channels)."""
    return x.transpose(1, 2).reshape(-1, x.shape[1])


def _delta(weight: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Step sizes (batch, channels, positions), whose channels lie apart the farthest."""
    delta = weight @ rows[:, : weight.shape[1]].t()
    return delta.unflatten(1, (shape[0], shape[2])).transpose(0, 1)


def _by_state(rows: Tensor, shape: torch.Size) -> Tensor:
    """(batch, 1, states, positions) of (batch * positions, states)."""
    return rows.unflatten(0, (shape[0], shape[2])).transpose(1, 2).unsqueeze(1).contiguous()


def mamba_inner_fn(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    A: Tensor,  # noqa: N803
    B: Tensor | None = None,  # noqa: N803
    C: Tensor | None = None,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    delta_bias: Tensor | None = None,
    *_: object,
    **__: object,
) -> Tensor:
    """The output (batch, positions, width) of input and gate (batch, 2 * channels, positions)."""
    if B is not None or C is not None:
        raise NotImplementedError("mamba_inner_fn with B or C of its own has no formula")
    result: Tensor = _MambaInner.apply(
        xz,
        conv1d_weight,
        conv1d_bias,
        x_proj_weight,
        delta_proj_weight,
        out_proj_weight,
        out_proj_bias,
        A,
        D,
        delta_bias,
    )
    return result


class Mamba(nn.Module):  # type: ignore[misc]
    """One layer: input and gate, the inner function, output."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: float = 2,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        use_fast_path: bool = True,
        layer_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **_: object,
    ) -> None:
        super().__init__()
        del dt_min, dt_max, dt_init, dt_scale, dt_init_floor
        options = {"device": device, "dtype": dtype}
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner = int(expand * d_model)
        self.dt_rank = math.ceil(d_model / 16) if isinstance(dt_rank, str) else dt_rank
        self.use_fast_path, self.layer_idx = use_fast_path, layer_idx
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias, **options)
        self.conv1d = nn.Conv1d(
            self.d_inner,
            self.d_inner,
            d_conv,
            padding=d_conv - 1,
            groups=self.d_inner,
            bias=conv_bias,
            **options,
        )
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False, **options)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner, bias=True, **options)
        in_fp32 = {"device": device, "dtype": torch.float32}
        self.A_log = nn.Parameter(torch.zeros(self.d_inner, d_state, **in_fp32))
        self.D = nn.Parameter(torch.ones(self.d_inner, **in_fp32))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **options)

    def forward(
        self, hidden_states: Tensor, inference_params: object = None, **_: object
    ) -> Tensor:
        """Rows (batch, positions, width), mixed."""
        del inference_params
        batch, positions, _width = hidden_states.shape
        product = self.in_proj.weight @ hidden_states.permute(2, 0, 1).flatten(1)
        xz = product.unflatten(1, (batch, positions)).transpose(0, 1)
        if self.in_proj.bias is not None:
            xz = xz + self.in_proj.bias.to(xz.dtype)[:, None]
        a = -torch.exp(self.A_log.float())
        bias = self.dt_proj.bias.float()
        if self.use_fast_path:
            weights = (self.x_proj.weight, self.dt_proj.weight)
            out = (self.out_proj.weight, self.out_proj.bias)
            conv = (self.conv1d.weight, self.conv1d.bias)
            return mamba_inner_fn(xz, *conv, *weights, *out, a, None, None, self.D.float(), bias)
        return self._in_parts(xz, a, bias)

    def _in_parts(self, xz: Tensor, a: Tensor, bias: Tensor) -> Tensor:
        """The same by single functions, which keep more."""
        x, z = xz.chunk(2, 1)
        x = causal_conv1d_fn(x, self.conv1d.weight.squeeze(1), self.conv1d.bias)
        rows = self.x_proj(_by_position(x))
        delta = _delta(self.dt_proj.weight, rows, xz.shape)
        b, c = (
            _by_state(part, xz.shape).squeeze(1) for part in rows[:, self.dt_rank :].chunk(2, 1)
        )
        y = selective_scan_fn(x, delta, a, b, c, self.D.float(), z, bias)
        result: Tensor = self.out_proj(y.transpose(1, 2))
        return result


_CONVOLUTION: Mapping[str, object] = {"causal_conv1d_fn": causal_conv1d_fn}
_SCAN: Mapping[str, object] = {
    "selective_scan_fn": selective_scan_fn,
    "mamba_inner_fn": mamba_inner_fn,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "causal_conv1d": {"__version__": "1.6.0", **_CONVOLUTION},
    "causal_conv1d.causal_conv1d_interface": _CONVOLUTION,
    "causal_conv1d.cpp_functions": {
        "causal_conv1d_fwd_function": causal_conv1d_forward,
        "causal_conv1d_bwd_function": causal_conv1d_backward,
    },
    "causal_conv1d_cuda": {
        "causal_conv1d_fwd": causal_conv1d_forward,
        "causal_conv1d_bwd": causal_conv1d_backward,
    },
    "selective_scan_cuda": {"fwd": scan_forward, "bwd": scan_backward},
    **{
        f"selective_scan_cuda_{form}": {"fwd": _ungated_forward, "bwd": _ungated_backward}
        for form in ("core", "oflex", "nrow", "ndstate")
    },
    "mamba_ssm": {"__version__": "2.3.0", **_SCAN, "Mamba": Mamba},
    "mamba_ssm.ops.selective_scan_interface": _SCAN,
    "mamba_ssm.modules.mamba_simple": {"Mamba": Mamba},
}
