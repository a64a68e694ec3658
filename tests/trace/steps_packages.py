"""Steps with CUDA packages that are not installed where they are traced."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]
ROWS, HEADS, SIZE = 256, 4, 64
"""Positions of a sequence, heads of attention, and the size of each."""


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
    """The SwiGLU layer."""
    from xformers.ops import SwiGLU

    model = SwiGLU(64, 256, bias=False)
    x = torch.randn(batch_size, ROWS, 64)

    def step() -> None:
        model(x).sum().backward()

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
        Function.apply(value, shapes, starts, places, weights).sum().backward()

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

    model = nn.Sequential(nn.Linear(64, 64, bias=False), FusedRMSNorm(64))
    optimizer = FusedAdam(model.parameters())
    x = torch.randn(batch_size, ROWS, 64)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def apex_amp(batch_size: int) -> Step:
    """Level O2 of apex.amp around plain SGD."""
    from apex import amp

    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    x = torch.randn(batch_size, 64)

    def step() -> None:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
