"""Steps with CUDA packages that are not installed where they are traced."""

from __future__ import annotations

import importlib.machinery
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).with_name("mini_packages")))

import triton
import triton.language as tl

Step = Callable[[], object]
ROWS, HEADS, SIZE = 256, 4, 64
"""Positions of a sequence, heads of attention, and the size of each."""
WIDTH, VOCABULARY = 64, 4096


def _made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor on the GPU that wants a gradient."""
    return torch.randn(shape, dtype=dtype, device="cuda", requires_grad=True)


def _attention(batch_size: int, attend: Callable[..., torch.Tensor], parts: int = 3) -> Step:
    """A step of attention alone: `parts` tensors made on the GPU that want gradients."""

    def step() -> None:
        tensors = [_made(batch_size, ROWS, HEADS, SIZE) for _ in range(parts)]
        attend(*tensors).sum().backward()

    return step


def flash(batch_size: int) -> Step:
    """flash_attn_func with a causal mask."""
    from flash_attn import flash_attn_func

    return _attention(batch_size, lambda q, k, v: flash_attn_func(q, k, v, causal=True))


def flash_packed(batch_size: int) -> Step:
    """flash_attn_qkvpacked_func."""
    from flash_attn import flash_attn_qkvpacked_func

    def step() -> None:
        qkv = _made(batch_size, ROWS, 3, HEADS, SIZE)
        flash_attn_qkvpacked_func(qkv).sum().backward()

    return step


def flash_shared_heads(batch_size: int) -> Step:
    """Two query heads to each head of key and value, which lie in one tensor."""
    from flash_attn import flash_attn_kvpacked_func

    def step() -> None:
        q = _made(batch_size, ROWS, HEADS, SIZE)
        kv = _made(batch_size, ROWS, 2, HEADS // 2, SIZE)
        flash_attn_kvpacked_func(q, kv).sum().backward()

    return step


def flash_window(batch_size: int) -> Step:
    """A window of 64 positions to the left."""
    from flash_attn.flash_attn_interface import flash_attn_func

    return _attention(
        batch_size, lambda q, k, v: flash_attn_func(q, k, v, causal=True, window_size=(63, 0))
    )


def flash_known_lengths(batch_size: int) -> Step:
    """Sequences of a quarter and three quarters of the rows, in one tensor."""
    from flash_attn import flash_attn_varlen_func

    quarter = batch_size * ROWS // 4

    def step() -> None:
        q, k, v = (_made(4 * quarter, HEADS, SIZE) for _ in range(3))
        starts = torch.tensor([0, quarter, 4 * quarter], dtype=torch.int32, device="cuda")
        flash_attn_varlen_func(q, k, v, starts, starts, 3 * quarter, 3 * quarter).sum().backward()

    return step


def flash_unknown_lengths(batch_size: int) -> Step:
    """Lengths that only the data could tell."""
    from flash_attn import flash_attn_varlen_func

    def step() -> None:
        q, k, v = (_made(batch_size * ROWS, HEADS, SIZE) for _ in range(3))
        starts = torch.randint(0, ROWS, (batch_size + 1,), dtype=torch.int32, device="cuda")
        flash_attn_varlen_func(q, k, v, starts, starts, ROWS, ROWS).sum().backward()

    return step


def flash_module(batch_size: int) -> Step:
    """MHA with a rotary embedding, RMS norm before it, cross entropy after it."""
    from flash_attn.losses.cross_entropy import CrossEntropyLoss
    from flash_attn.modules.mha import MHA
    from flash_attn.ops.rms_norm import RMSNorm

    width = HEADS * SIZE
    model = nn.Sequential(
        RMSNorm(width), MHA(width, HEADS, rotary_emb_dim=SIZE, use_flash_attn=True)
    ).to(torch.bfloat16)
    loss = CrossEntropyLoss()
    x = torch.randn(batch_size, ROWS, width, dtype=torch.bfloat16)
    target = torch.randint(0, width, (batch_size * ROWS,))

    def step() -> None:
        loss(model(x).flatten(0, 1), target).backward()

    return step


def xformers_causal(batch_size: int) -> Step:
    """memory_efficient_attention below the diagonal."""
    import xformers.ops as xops

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = xops.LowerTriangularMask()
        return xops.memory_efficient_attention(q, k, v, attn_bias=mask)

    return _attention(batch_size, attend)


def xformers_blocks(batch_size: int) -> Step:
    """Sequences of one and three quarters of the rows side by side."""
    from xformers.ops import fmha, memory_efficient_attention

    lengths = [ROWS // 4, 3 * ROWS // 4] * batch_size

    def step() -> None:
        mask = fmha.BlockDiagonalMask.from_seqlens(lengths)
        q, k, v = (_made(1, sum(lengths), HEADS, SIZE) for _ in range(3))
        memory_efficient_attention(q, k, v, mask).sum().backward()

    return step


def xformers_swiglu(batch_size: int) -> Step:
    """The SwiGLU layer in 16 bits."""
    from xformers.ops import SwiGLU

    model = SwiGLU(WIDTH, 4 * WIDTH, bias=False).to(torch.bfloat16)

    def step() -> None:
        model(_made(batch_size, ROWS, WIDTH)).sum().backward()

    return step


def deformable_attention(batch_size: int) -> Step:
    """The compiled functions of Deformable-DETR."""
    import MultiScaleDeformableAttention

    extension = MultiScaleDeformableAttention

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value, shapes, starts, places, weights):
            ctx.save_for_backward(value, shapes, starts, places, weights)
            return extension.ms_deform_attn_forward(value, shapes, starts, places, weights, 64)

        @staticmethod
        def backward(ctx, grad):
            to_value, to_places, to_weights = extension.ms_deform_attn_backward(
                *ctx.saved_tensors, grad, 64
            )
            return to_value, None, None, to_places, to_weights

    def step() -> None:
        value = _made(batch_size, 20 * 20 + 10 * 10, 8, 32)
        shapes = torch.tensor([[20, 20], [10, 10]], device="cuda")
        starts = torch.tensor([0, 400], device="cuda")
        places = _made(batch_size, 100, 8, 2, 4, 2)
        weights = _made(batch_size, 100, 8, 2, 4)
        Function.apply(value, shapes, starts, places, weights).square().sum().backward()

    return step


def deformable_convolution(batch_size: int) -> Step:
    """mmcv's modulated deformable convolution that computes its own offsets."""
    from mmcv.ops import ModulatedDeformConv2dPack

    model = ModulatedDeformConv2dPack(16, 32, 3, padding=1)
    x = torch.randn(batch_size, 16, 24, 24)

    def step() -> None:
        model(x).sum().backward()

    return step


def apex_adam(batch_size: int) -> Step:
    """FusedAdam and FusedRMSNorm around a product."""
    from apex.normalization import FusedRMSNorm
    from apex.optimizers import FusedAdam

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), FusedRMSNorm(WIDTH))
    optimizer = FusedAdam(model.parameters())
    x = torch.randn(batch_size, ROWS, WIDTH)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def apex_amp(batch_size: int) -> Step:
    """Level O2 of apex.amp around plain SGD."""
    from apex import amp

    model = nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    x = torch.randn(batch_size, WIDTH)

    def step() -> None:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


CHANNELS, STATES, POSITIONS = 32, 16, 4096


def mamba_scan(batch_size: int) -> Step:
    """The selective scan over two chunks of 2048 positions, with a gate."""
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    def step() -> None:
        u, delta, z = (_made(batch_size, CHANNELS, POSITIONS) for _ in range(3))
        b, c = (_made(batch_size, STATES, POSITIONS) for _ in range(2))
        a = _made(CHANNELS, STATES, dtype=torch.float32)
        selective_scan_fn(u, delta, a, b, c, z=z, delta_softplus=True).sum().backward()

    return step


def mamba_layer(batch_size: int) -> Step:
    """One layer of Mamba."""
    from mamba_ssm import Mamba

    model = Mamba(WIDTH, d_state=STATES, dtype=torch.bfloat16)

    def step() -> None:
        model(_made(batch_size, ROWS, WIDTH)).sum().backward()

    return step


def mamba2_layer(batch_size: int) -> Step:
    """One layer of Mamba 2, of two heads."""
    from mamba_ssm import Mamba2

    model = Mamba2(WIDTH, d_state=STATES, headdim=WIDTH, chunk_size=64, dtype=torch.bfloat16)

    def step() -> None:
        model(_made(batch_size, ROWS, WIDTH)).sum().backward()

    return step


def convolution_of_an_installed_package(batch_size: int) -> Step:
    """causal_conv1d, which is there (in mini_packages) but runs on a GPU alone."""
    from causal_conv1d import causal_conv1d_fn

    def step() -> None:
        x = _made(batch_size, CHANNELS, POSITIONS)
        weight = _made(CHANNELS, 4)
        causal_conv1d_fn(x, weight, activation="silu").sum().backward()

    return step


def scan_of_a_broken_extension(batch_size: int) -> Step:
    """A compiled module that is there and cannot be loaded, as without CUDA's libraries."""
    folder = Path(tempfile.mkdtemp())
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (folder / f"selective_scan_cuda{suffix}").write_text("no library")
    sys.path.insert(0, str(folder))
    import selective_scan_cuda

    def step() -> None:
        u, delta = (_made(batch_size, CHANNELS, POSITIONS).detach() for _ in range(2))
        b, c = (_made(batch_size, 1, STATES, POSITIONS).detach() for _ in range(2))
        a = torch.zeros(CHANNELS, STATES, device="cuda")
        selective_scan_cuda.fwd(u, delta, a, b, c, None, None, None, True)

    return step


def liger_loss(batch_size: int) -> Step:
    """The last layer with its loss, of which no more than a chunk of logits is there."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    layer = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.bfloat16)
    loss = LigerFusedLinearCrossEntropyLoss()

    def step() -> None:
        x = _made(batch_size * ROWS, WIDTH)
        target = torch.randint(0, VOCABULARY, (batch_size * ROWS,), device="cuda")
        loss(layer.weight, x, target).backward()

    return step


def liger_layers(batch_size: int) -> Step:
    """RMS norm, rotary embedding and SwiGLU."""
    from types import SimpleNamespace

    from liger_kernel.transformers import LigerRMSNorm, LigerSwiGLUMLP, liger_rotary_pos_emb

    config = SimpleNamespace(hidden_size=WIDTH, intermediate_size=4 * WIDTH)
    model = nn.Sequential(LigerRMSNorm(WIDTH), LigerSwiGLUMLP(config)).to(torch.bfloat16)

    def step() -> None:
        out = model(_made(batch_size, ROWS, WIDTH)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        angles = torch.randn(1, ROWS, WIDTH // HEADS, device="cuda", dtype=torch.bfloat16)
        q, k = liger_rotary_pos_emb(out, out * 2, angles, angles)
        (q + k).sum().backward()

    return step


@triton.jit
def _scaled(x_ptr, y_ptr, out_ptr, size, HAS_Y: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Twice x, plus y where there is one."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_ptrs = x_ptr + offsets
    value = 2 * tl.load(x_ptrs, mask=offsets < size)
    if HAS_Y:
        value += tl.load(y_ptr + offsets, mask=offsets < size)
    tl.store(out_ptr + offsets, value, mask=offsets < size)


@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["size"])
@triton.jit
def _product(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):  # noqa: N803
    """A product of matrices."""
    a = tl.load(a_ptr + tl.arange(0, BLOCK))
    b = tl.load(b_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.dot(a, b))


def triton_kernels(batch_size: int) -> Step:
    """Kernels of one's own."""

    def step() -> None:
        x = torch.randn(batch_size * ROWS, WIDTH, device="cuda")
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)  # noqa: E731
        _scaled[grid](x, out, out, x.numel(), HAS_Y=False, BLOCK=1024)
        _scaled[grid](x, out, x, x.numel(), HAS_Y=True, BLOCK=1024)
        _product[grid](x, x, out, x.numel())

    return step


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return 2 * x

    @staticmethod
    def backward(_ctx, grad):
        return grad * torch.tensor([2.0], device=grad.device)


def backward_that_makes_a_tensor(batch_size: int) -> Step:
    """A backward function of one's own, which makes a tensor on the GPU from a list."""

    def step() -> None:
        _Doubled.apply(_made(batch_size, WIDTH, dtype=torch.float32)).backward(
            torch.ones(batch_size, WIDTH, device="cuda")
        )

    return step
