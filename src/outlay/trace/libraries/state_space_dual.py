"""Mamba 2: the scan as products of matrices over chunks of positions.

Within a chunk every position meets those before it; from chunk to chunk a state is handed on. The
kernels are Triton's, one for each product. Backward computes the chunks' states again, and in the
layer's fused form the convolution too: what is kept is the projected input and the output.

Source: mamba_ssm 2.3 (ops/triton/ssd_*.py, modules/mamba2.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.libraries.state_space import (
    causal_conv1d_backward,
    causal_conv1d_fn,
    causal_conv1d_forward,
)

# The kernels


_ROWS_TOGETHER = 32
"""Positions whose part in the step sizes' gradient one block of threads sums up, at the least."""


class _Chunks:
    """The sizes of one scan over chunks, and the kernels it runs."""

    def __init__(self, x: Tensor, b: Tensor, chunk: int) -> None:
        self.x, self.b = x, b
        self.batch, self.positions, self.heads, self.size = x.shape
        self.groups, self.states = b.shape[2:]
        self.chunk = chunk
        self.chunks = math.ceil(self.positions / chunk)
        rows = self.batch * self.positions
        self.by_state_flops = 2.0 * rows * self.heads * self.size * self.states
        """Of a product between the positions of a chunk and its state."""
        self.within_flops = 2.0 * rows * self.heads * self.size * chunk / 2
        """Of a product among the positions of a chunk, below the diagonal."""
        self.pairs_flops = 2.0 * rows * self.groups * self.states * chunk
        """Of how much each position of a chunk has to do with each other."""

    def empty(self, *shape: int, dtype: torch.dtype | None = torch.float32) -> Tensor:
        """A tensor of the batch's chunks."""
        return self.x.new_empty((self.batch, *shape), dtype=dtype or self.x.dtype)

    def steps(self) -> Tensor:
        """Of each head at each position, in fp32: step sizes, or their sums."""
        return self.empty(self.heads, self.chunks, self.chunk)

    def chunk_states(self, dtype: torch.dtype | None = torch.float32) -> Tensor:
        """The state at the end of each chunk."""
        return self.empty(self.chunks, self.heads, self.size, self.states, dtype=dtype)

    def pairs(self) -> Tensor:
        """Of each group, each position of a chunk with each other."""
        return self.empty(self.chunks, self.groups, self.chunk, self.chunk)

    def run(
        self, name: str, reads: Sequence[Tensor | None], writes: Sequence[Tensor], flops: float = 0
    ) -> None:
        """One kernel: a product where it has FLOPs, else a pass over its tensors."""
        kind = "gemm" if flops else "elementwise"
        launch(f"mamba_ssm.{name}", reads, writes, kind=kind, flops=flops)  # type: ignore[arg-type]

    def by_chunk(self, tensor: Tensor) -> Tensor:
        """(batch, positions, ..., size) with the positions of a chunk beside the size.

        What a product fills has to look like one: its last two dimensions are the result's.
        """
        if self.positions % self.chunk:
            return tensor.movedim(1, -2)
        return tensor.unflatten(1, (self.chunks, self.chunk)).movedim(2, -2)

    @property
    def splits(self) -> int:
        """Parts in which a group's heads are summed up, so that all multiprocessors have work."""
        multiprocessors = int(torch.cuda.get_device_properties(0).multi_processor_count)
        heads = self.heads // self.groups
        together = min(math.ceil(self.batch * self.chunks * self.heads / multiprocessors), heads)
        splits: int = math.ceil(heads / max(together, 1))
        return splits

    def prepare(
        self, dt: Tensor, c: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Sums of step sizes, step sizes, states of chunks as handed on, pairs, the last state."""
        sums, sizes = self.steps(), self.steps()
        self.run("chunk_cumsum", [dt], [sums, sizes])
        own = self.chunk_states()
        self.run("chunk_state", [self.b, self.x, sizes, sums], [own], self.by_state_flops)
        handed_on = self.chunk_states(dtype)
        last = self.empty(self.heads, self.size, self.states)
        self.run("state_passing", [own, sums], [handed_on, last])
        del own
        pairs = self.pairs()
        self.run("bmm_chunk", [c, self.b], [pairs], self.pairs_flops)
        return sums, sizes, handed_on, pairs, last


def scan_chunks(
    x: Tensor, dt: Tensor, b: Tensor, c: Tensor, d: Tensor | None, z: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Output, the output before the gate, and the sums of step sizes."""
    work = _Chunks(x, b, chunk)
    sums, sizes, states, pairs, _last = work.prepare(dt, c, c.dtype)
    out = torch.empty_like(x)
    ungated = None if z is None else torch.empty_like(x)
    written = [work.by_chunk(tensor) for tensor in (ungated, out) if tensor is not None]
    flops = work.within_flops + work.by_state_flops
    work.run("chunk_scan", [pairs, x, sizes, sums, c, states, d, z], written, flops)
    return out, ungated, sums


def scan_chunks_backward(
    grad: Tensor,
    x: Tensor,
    dt: Tensor,
    b: Tensor,
    c: Tensor,
    out: Tensor,
    d: Tensor | None,
    z: Tensor | None,
    chunk: int,
) -> dict[str, Tensor | None]:
    """Gradients of x, dt, A, B, C, D, z and of the bias of dt."""
    work = _Chunks(x, b, chunk)
    sums, sizes, states, pairs, _last = work.prepare(dt, c, torch.float32)
    to_z = None if z is None else torch.empty_like(z)
    if to_z is not None:
        ungated = torch.empty_like(grad)
        work.run("chunk_scan_dz", [x, z, out, grad], [to_z, ungated])
        grad = ungated
    to_states = work.chunk_states()
    work.run("chunk_scan_dstates", [c, sums, grad], [to_states], work.by_state_flops)
    to_chunks, narrowed = work.chunk_states(None), work.chunk_states(None)
    work.run("state_passing_backward", [states, sums, to_states], [to_chunks, narrowed])
    del to_states, states
    to_x, to_sizes = torch.empty_like(x), work.steps()
    work.run(
        "chunk_dx",
        [x, pairs, grad, sizes, sums, d, b, to_chunks],
        [to_sizes, work.by_chunk(to_x)],
        work.within_flops + work.by_state_flops,
    )
    to_sums, before = work.steps(), work.steps()
    parts = (work.positions, work.splits, work.groups, work.states)
    to_b = work.empty(*parts)
    work.run(
        "chunk_state_db",
        [x, sizes, sums, to_chunks, b],
        [to_sums, work.by_chunk(to_b)],
        work.by_state_flops,
    )
    to_b = to_b.sum(2)
    to_c = work.empty(*parts)
    work.run(
        "chunk_scan_dc",
        [narrowed, sums, grad, c],
        [before, work.by_chunk(to_c)],
        work.by_state_flops,
    )
    to_c = to_c.sum(2)
    to_pairs = work.empty(work.chunks, work.splits, work.groups, chunk, chunk)
    work.run("chunk_scan_dcb", [x, sizes, sums, grad], [to_pairs], work.within_flops)
    to_pairs = to_pairs.sum(2)
    results = [torch.empty_like(b), torch.empty_like(c)]
    for tensor, partial_sum, result in zip((c, b), (to_b, to_c), results, strict=True):
        work.run(
            "bmm_chunk_backward",
            [tensor, to_pairs, partial_sum],
            [work.by_chunk(result)],
            work.pairs_flops,
        )
    rows = math.ceil(chunk / _ROWS_TOGETHER)
    by_row = work.empty(work.heads, work.chunks, rows, chunk)
    summed = by_row[:, :, :, :1].expand(-1, -1, -1, chunk, -1)  # of a product that is not written
    work.run("chunk_scan_dsums", [x, sizes, sums, grad, pairs], [by_row, summed], work.within_flops)
    within = by_row.sum(3)
    del by_row, summed
    within += to_sums + before
    to_dt = torch.empty_like(dt)
    to_head = x.new_empty((work.heads,), dtype=torch.float32)
    work.run("chunk_cumsum_backward", [within, to_sizes, dt], [to_dt, to_head])
    to_d = None if d is None else torch.empty_like(d)
    return {
        "x": to_x, "dt": to_dt, "a": to_head, "b": results[0], "c": results[1], "d": to_d,
        "z": to_z, "bias": torch.empty_like(to_head),
    }  # fmt: skip


class _ChunkScan(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, chunk: int, *arguments: Any) -> Tensor:
        x, dt, a, b, c, d, z, bias = arguments
        out, ungated, sums = scan_chunks(x, dt, b, c, d, z, chunk)
        kept = out if ungated is None else ungated
        ctx.save_for_backward(kept, x, dt, sums, a, b, c, d, z, bias)
        ctx.chunk = chunk
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out, x, dt, _sums, _a, b, c, d, z, bias = ctx.saved_tensors
        grads = scan_chunks_backward(grad.contiguous(), x, dt, b, c, out, d, z, ctx.chunk)
        to_bias = None if bias is None else grads["bias"]
        return None, *(grads[name] for name in ("x", "dt", "a", "b", "c", "d", "z")), to_bias


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    chunk_size: int,
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    *_: object,
    return_final_states: bool = False,
    **__: object,
) -> Any:
    """The scanned rows of `x` (batch, positions, heads, size)."""
    del initial_states
    out = _ChunkScan.apply(chunk_size, x, dt, A, B, C, D, z, dt_bias)
    if not return_final_states:
        return out
    shape = (x.shape[0], x.shape[2], x.shape[3], B.shape[3])
    return out, x.new_empty(shape, dtype=torch.float32)


# The whole layer in one: convolution, scan, gated norm and output


@dataclass(frozen=True, slots=True)
class _Widths:
    """How the projected input is divided: gated rest, gate, what is convolved, step sizes."""

    rest: int
    inner: int
    group_states: int
    heads: int
    groups: int
    size: int

    def split(self, zxbcdt: Tensor) -> tuple[Tensor, ...]:
        """Gated rest, gate, what is convolved, step sizes."""
        convolved = self.inner + 2 * self.group_states
        return tuple(zxbcdt.split([2 * self.rest, self.inner, convolved, self.heads], -1))

    def parts(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, B and C."""
        x, b, c = convolved.split([self.inner, self.group_states, self.group_states], -1)
        per_group = (self.groups, -1)
        return (
            x.unflatten(-1, (self.heads, self.size)),
            b.unflatten(-1, per_group),
            c.unflatten(-1, per_group),
        )


class _FusedLayer(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, widths: _Widths, chunk: int, activation: object, zxbcdt: Tensor, *weights: Any
    ) -> Tensor:
        del activation
        conv_weight, conv_bias, _dt_bias, _a, d, norm_weight, out_weight, out_bias = weights
        rest, z, to_convolve, dt = widths.split(zxbcdt)
        convolved = causal_conv1d_forward(to_convolve.transpose(1, 2), conv_weight, conv_bias)
        x, b, c = widths.parts(convolved.transpose(1, 2))
        gate = z.unflatten(-1, x.shape[2:])
        scanned, ungated, _ = scan_chunks(
            x, dt, b, c, d, gate if norm_weight is None else None, chunk
        )
        kept = scanned if ungated is None else ungated
        out = zxbcdt.new_empty((*zxbcdt.shape[:2], widths.rest + widths.inner))
        rstd = None
        if widths.rest:
            launch("mamba_ssm.swiglu", [rest], [out[..., : widths.rest]])
        if norm_weight is None:
            out = (
                scanned.flatten(2)
                if not widths.rest
                else torch.cat([out[..., : widths.rest], scanned.flatten(2)], -1)
            )
        else:
            rstd = zxbcdt.new_empty((out.shape[0] * out.shape[1],), dtype=torch.float32)
            reads = [scanned, norm_weight, z]
            launch("mamba_ssm.gated_norm", reads, [out[..., widths.rest :], rstd], kind="norm")
        if out_weight is not None:
            if torch.is_autocast_enabled("cuda"):
                dtype = torch.get_autocast_dtype("cuda")
                out, out_weight = out.to(dtype), out_weight.to(dtype)
                out_bias = None if out_bias is None else out_bias.to(dtype)
            out = functional.linear(out, out_weight, out_bias)
        ctx.widths, ctx.chunk = widths, chunk
        ctx.save_for_backward(
            zxbcdt, kept, rstd, conv_weight, conv_bias, d, norm_weight, out_weight, out_bias
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        zxbcdt, kept, rstd, conv_weight, conv_bias, d, norm_weight, out_weight, out_bias = (
            ctx.saved_tensors
        )
        widths = ctx.widths
        rest, z, to_convolve, dt = widths.split(zxbcdt)
        turned = to_convolve.transpose(1, 2)
        convolved = causal_conv1d_forward(turned, conv_weight, conv_bias)
        x, b, c = widths.parts(convolved.transpose(1, 2))
        to_all = torch.empty_like(zxbcdt)
        to_rest, to_z, to_convolved, _to_dt = widths.split(to_all)
        to_out = grad
        again = None
        if out_weight is not None:
            again = zxbcdt.new_empty((*zxbcdt.shape[:2], widths.rest + widths.inner))
            to_out = functional.linear(grad, out_weight.t())
        if widths.rest:
            written = [to_rest, *([] if again is None else [again[..., : widths.rest]])]
            launch("mamba_ssm.swiglu_backward", [rest, to_out[..., : widths.rest]], written)
        to_inner = to_out[..., widths.rest :]
        gate = z.unflatten(-1, x.shape[2:])
        to_norm = None
        if norm_weight is not None:
            to_norm, to_scanned = torch.empty_like(norm_weight), torch.empty_like(to_inner)
            written = [to_scanned, to_z, to_norm, *([] if again is None else [again])]
            reads = [to_inner, kept, norm_weight, rstd, z]
            launch("mamba_ssm.gated_norm_backward", reads, written, kind="norm", launches=2)
            to_inner, gate = to_scanned, None
        to_inner = to_inner.unflatten(-1, x.shape[2:]).contiguous()
        grads = scan_chunks_backward(to_inner, x, dt, b, c, kept, d, gate, ctx.chunk)
        to_out_weight = to_out_bias = None
        if out_weight is not None and again is not None:
            to_out_weight = grad.flatten(0, 1).t() @ again.flatten(0, 1)
            to_out_bias = None if out_bias is None else grad.sum((0, 1))
        del again
        to_turned = torch.empty_like(to_convolve).transpose(1, 2)
        _, to_conv_weight, to_conv_bias, _ = causal_conv1d_backward(
            turned, conv_weight, conv_bias, to_turned, to_x=to_convolved.transpose(1, 2)
        )
        return (
            None, None, None, to_all, to_conv_weight, to_conv_bias, grads["bias"], grads["a"],
            grads["d"], to_norm, to_out_weight, to_out_bias,
        )  # fmt: skip


def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    dt_bias: Tensor,
    A: Tensor,  # noqa: N803
    D: Tensor,  # noqa: N803
    chunk_size: int,
    *_: object,
    activation: str = "silu",
    rmsnorm_weight: Tensor | None = None,
    outproj_weight: Tensor | None = None,
    outproj_bias: Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    **__: object,
) -> Tensor:
    """The layer's output from its projected input, as one function."""
    heads = D.shape[0]
    size = int(headdim or D.shape[1])
    inner = heads * size
    group_states = (conv1d_weight.shape[0] - inner) // 2
    rest = (zxbcdt.shape[-1] - 2 * inner - 2 * group_states - heads) // 2
    widths = _Widths(rest, inner, group_states, heads, ngroups, size)
    weights = (conv1d_weight, conv1d_bias, dt_bias, A, D)
    after = (rmsnorm_weight, outproj_weight, outproj_bias)
    result: Tensor = _FusedLayer.apply(widths, chunk_size, activation, zxbcdt, *weights, *after)
    return result


class _GatedNorm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, z: Tensor | None
    ) -> Tensor:
        out = torch.empty_like(x)
        rstd = x.new_empty((math.prod(x.shape[:-1]),), dtype=torch.float32)
        launch("mamba_ssm.gated_norm", [x, weight, bias, z], [out, rstd], kind="norm")
        ctx.save_for_backward(x, weight, bias, z, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, z, rstd = ctx.saved_tensors
        results = [None if t is None else torch.empty_like(t) for t in (x, weight, bias, z)]
        reads = [grad, x, weight, bias, z, rstd]
        launch("mamba_ssm.gated_norm_backward", reads, results, kind="norm", launches=2)
        return tuple(results)


def gated_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    z: Tensor | None = None,
    *_: object,
    **__: object,
) -> Tensor:
    """Rows normalised, times the activated gate."""
    result: Tensor = _GatedNorm.apply(x.contiguous(), weight, bias, z)
    return result


class _RMSNormGated(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del group_size
        self.eps, self.norm_before_gate = eps, norm_before_gate
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = None

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Rows normalised, times the activated gate."""
        return gated_norm(x, self.weight, None, z)


class Mamba2(nn.Module):  # type: ignore[misc]
    """One layer: projected input, the fused function, output."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        conv_init: float | None = None,
        expand: float = 2,
        headdim: int = 64,
        d_ssm: int | None = None,
        ngroups: int = 1,
        A_init_range: tuple[float, float] = (1, 16),  # noqa: N803
        D_has_hdim: bool = False,  # noqa: N803
        rmsnorm: bool = True,
        norm_before_gate: bool = False,
        *_: object,
        bias: bool = False,
        conv_bias: bool = True,
        chunk_size: int = 256,
        use_mem_eff_path: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **__: object,
    ) -> None:
        super().__init__()
        del conv_init, A_init_range, norm_before_gate
        options = {"device": device, "dtype": dtype}
        self.d_inner, self.headdim, self.ngroups = int(expand * d_model), headdim, ngroups
        self.d_ssm = self.d_inner if d_ssm is None else d_ssm
        self.d_state, self.chunk_size, self.use_mem_eff_path = d_state, chunk_size, use_mem_eff_path
        self.nheads, self.D_has_hdim = self.d_ssm // headdim, D_has_hdim
        width = 2 * self.d_inner + 2 * ngroups * d_state + self.nheads
        self.in_proj = nn.Linear(d_model, width, bias=bias, **options)
        convolved = self.d_ssm + 2 * ngroups * d_state
        self.conv1d = nn.Conv1d(
            convolved,
            convolved,
            d_conv,
            groups=convolved,
            padding=d_conv - 1,
            bias=conv_bias,
            **options,
        )
        self.dt_bias = nn.Parameter(torch.zeros(self.nheads, **options))
        self.A_log = nn.Parameter(torch.zeros(self.nheads, **options))
        self.D = nn.Parameter(torch.ones(self.d_ssm if D_has_hdim else self.nheads, device=device))
        self.norm = _RMSNormGated(self.d_ssm, **options) if rmsnorm else None
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **options)

    def forward(self, u: Tensor, seqlen: int | None = None, *_: object, **__: object) -> Tensor:
        """Rows (batch, positions, width), mixed."""
        zxbcdt = self.in_proj(u)
        if seqlen is not None:
            zxbcdt = zxbcdt.unflatten(0, (-1, seqlen))
        a = -torch.exp(self.A_log.float())
        d = self.D.unflatten(0, (-1, self.headdim)) if self.D_has_hdim else self.D
        norm_weight = None if self.norm is None else self.norm.weight
        if self.use_mem_eff_path:
            out = mamba_split_conv1d_scan_combined(
                zxbcdt,
                self.conv1d.weight.squeeze(1),
                self.conv1d.bias,
                self.dt_bias,
                a,
                d,
                self.chunk_size,
                rmsnorm_weight=norm_weight,
                outproj_weight=self.out_proj.weight,
                outproj_bias=self.out_proj.bias,
                headdim=self.headdim,
                ngroups=self.ngroups,
            )
        else:
            out = self._in_parts(zxbcdt, a, d)
        return out if seqlen is None else out.flatten(0, 1)

    def _in_parts(self, zxbcdt: Tensor, a: Tensor, d: Tensor) -> Tensor:
        """The same by single functions, which keep more."""
        states = self.ngroups * self.d_state
        rest = (zxbcdt.shape[-1] - 2 * self.d_ssm - 2 * states - self.nheads) // 2
        widths = _Widths(rest, self.d_ssm, states, self.nheads, self.ngroups, self.headdim)
        gated_rest, z, to_convolve, dt = widths.split(zxbcdt)
        weight = self.conv1d.weight.squeeze(1)
        convolved = causal_conv1d_fn(to_convolve.transpose(1, 2), weight, self.conv1d.bias)
        x, b, c = widths.parts(convolved.transpose(1, 2))
        gate = z.unflatten(-1, x.shape[2:]) if self.norm is None else None
        y = mamba_chunk_scan_combined(x, dt, a, b, c, self.chunk_size, d, gate, self.dt_bias)
        y = y.flatten(2) if self.norm is None else self.norm(y.flatten(2), z)
        if rest:
            first, second = gated_rest.chunk(2, -1)
            y = torch.cat([functional.silu(first) * second, y], -1)
        result: Tensor = self.out_proj(y)
        return result


_COMBINED: Mapping[str, object] = {
    "mamba_chunk_scan_combined": mamba_chunk_scan_combined,
    "mamba_split_conv1d_scan_combined": mamba_split_conv1d_scan_combined,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "mamba_ssm": {"Mamba2": Mamba2},
    "mamba_ssm.ops.triton.ssd_combined": _COMBINED,
    "mamba_ssm.ops.triton.layernorm_gated": {
        "RMSNorm": _RMSNormGated,
        "rmsnorm_fn": gated_norm,
        "layernorm_fn": gated_norm,
    },
    "mamba_ssm.modules.mamba2": {"Mamba2": Mamba2},
    "mamba_ssm.modules.mamba2_simple": {"Mamba2Simple": Mamba2},
}
