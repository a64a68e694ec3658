"""Steps with the other names of CUDA packages, small: whether they can be traced at all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

Step = Callable[[], object]
BF16, FP32 = torch.bfloat16, torch.float32


def _made(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, device="cuda", requires_grad=True)


def _labels(rows: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, (rows,), device="cuda")


def _trained(model: nn.Module, optimizer: Any, x: torch.Tensor, amp: Any = None) -> Step:
    def step() -> None:
        loss = model(x).float().sum()
        if amp is None:
            loss.backward()
        else:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def apex_level_o1(batch_size: int) -> Step:
    """Autocast to fp16."""
    from apex import amp

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    return _trained(model, optimizer, torch.randn(batch_size, 64), amp)


def apex_level_o2_with_batch_norm(batch_size: int) -> Step:
    """A fused optimizer over copies in fp32, a batch norm that stays there."""
    from apex import amp, parallel
    from apex.optimizers import FusedAdam

    model: Any = nn.Sequential(nn.Conv2d(3, 8, 3), parallel.SyncBatchNorm(8))
    optimizer = FusedAdam(model.parameters())
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    images = torch.randn(batch_size, 3, 16, 16)
    return _trained(parallel.DistributedDataParallel(model), optimizer, images, amp)


def apex_lamb(batch_size: int) -> Step:
    """FusedLAMB and apex's MLP."""
    from apex.mlp import MLP
    from apex.optimizers import FusedLAMB

    model = MLP([64, 32, 16])
    return _trained(model, FusedLAMB(model.parameters(), lr=1e-3), torch.randn(batch_size, 64))


def apex_sgd(batch_size: int) -> Step:
    """FusedSGD within LARC."""
    from apex.fused_dense import FusedDenseGeluDense
    from apex.optimizers import FusedSGD
    from apex.parallel.LARC import LARC

    model = FusedDenseGeluDense(64, 32, 16)
    optimizer = LARC(FusedSGD(model.parameters(), lr=1e-3, momentum=0.9))
    return _trained(model, optimizer, torch.randn(batch_size, 64))


def apex_cross_entropy(batch_size: int) -> Step:
    """Cross entropy after a norm of mixed types."""
    from apex.contrib.xentropy import SoftmaxCrossEntropyLoss
    from apex.normalization.fused_layer_norm import MixedFusedLayerNorm

    norm = MixedFusedLayerNorm(100)

    def step() -> None:
        rows = norm(_made(batch_size, 100))
        SoftmaxCrossEntropyLoss.apply(rows, _labels(batch_size, 100), 0.1, 0).sum().backward()

    return step


def mmcv_attention(batch_size: int) -> Step:
    """The module around deformable attention."""
    from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttention

    model = MultiScaleDeformableAttention(64, 4, 2, 4, batch_first=True)

    def step() -> None:
        model(
            _made(batch_size, 50, 64, dtype=FP32),
            value=_made(batch_size, 125, 64, dtype=FP32),
            reference_points=torch.rand(batch_size, 50, 2, 2, device="cuda"),
            spatial_shapes=torch.tensor([[10, 10], [5, 5]], device="cuda"),
            level_start_index=torch.tensor([0, 100], device="cuda"),
        ).sum().backward()

    return step


def mmcv_convolution(batch_size: int) -> Step:
    """The first form of deformable convolution."""
    from mmcv.ops import DeformConv2dPack

    model = DeformConv2dPack(8, 16, 3, padding=1)
    return lambda: model(_made(batch_size, 8, 12, 12, dtype=FP32)).sum().backward()


def dcnv3(batch_size: int) -> Step:
    """The compiled functions of DCNv3."""
    import DCNv3

    def step() -> None:
        sizes = (3, 3, 1, 1, 1, 1, 1, 1, 4, 16, 1.0)
        x, offsets, mask = (
            _made(batch_size, 14, 14, channels).detach() for channels in (64, 4 * 9 * 2, 4 * 9)
        )
        out = DCNv3.dcnv3_forward(x, offsets, mask, *sizes, 256)
        DCNv3.dcnv3_backward(x, offsets, mask, *sizes, out, 256)

    return step


def flash_modules(batch_size: int) -> Step:
    """Attention to another sequence, with shared heads, and in separate products."""
    from flash_attn import flash_attn_with_kvcache
    from flash_attn.modules.mha import MHA, FlashCrossAttention

    cross = FlashCrossAttention(causal=True)
    shared = MHA(64, 4, num_heads_kv=2, use_flash_attn=True, rotary_emb_dim=16, dtype=BF16)
    separate = MHA(64, 4, dtype=BF16)

    def step() -> None:
        cross(_made(batch_size, 32, 4, 16), _made(batch_size, 64, 2, 4, 16)).sum().backward()
        separate(shared(_made(batch_size, 32, 64))).sum().backward()
        with torch.no_grad():
            cache = _made(batch_size, 64, 4, 16)
            flash_attn_with_kvcache(_made(batch_size, 1, 4, 16), cache, cache)

    return step


def flash_without_padding(batch_size: int) -> Step:
    """Padding taken out before attention and put back after it."""
    from flash_attn import flash_attn_varlen_qkvpacked_func
    from flash_attn.bert_padding import pad_input, unpad_input

    def step() -> None:
        kept = torch.rand(batch_size, 64, device="cuda") < 0.75
        rows, indices, starts, longest, *_ = unpad_input(_made(batch_size, 64, 3, 4, 16), kept)
        out = flash_attn_varlen_qkvpacked_func(rows, starts, longest)
        pad_input(out, indices, batch_size, 64).sum().backward()

    return step


def flash_layers(batch_size: int) -> Step:
    """Norms with dropout and a residual, the fused MLP and SwiGLU."""
    from flash_attn.ops.activations import swiglu
    from flash_attn.ops.fused_dense import FusedMLP
    from flash_attn.ops.layer_norm import DropoutAddLayerNorm
    from flash_attn.ops.triton.layer_norm import RMSNorm

    first = DropoutAddLayerNorm(64, prenorm=True, p=0.1, dtype=BF16)
    second, mlp = RMSNorm(64, dtype=BF16), FusedMLP(64, 128, dtype=BF16)

    def step() -> None:
        rows, total = first(_made(batch_size, 32, 64), _made(batch_size, 32, 64))
        rows = second(rows, residual=total)
        swiglu(mlp(rows), rows).sum().backward()

    return step


def xformers_biases(batch_size: int) -> Step:
    """Every kind of bias."""
    import xformers.ops as xops
    from xformers.ops.fmha.attn_bias import LocalAttentionFromBottomRightMask

    def step() -> None:
        bias = _made(batch_size, 4, 32, 32)
        biases = (
            bias,
            xops.LowerTriangularMask().add_bias(bias),
            LocalAttentionFromBottomRightMask(4, 4),
        )
        for each in biases:
            rows = [_made(batch_size, 32, 4, 16) for _ in range(3)]
            xops.memory_efficient_attention(*rows, attn_bias=each).sum().backward()
        several = [_made(1, 3, 4, 16), _made(2, 6, 4, 16)]
        mask, x = xops.fmha.BlockDiagonalMask.from_tensor_list(several)
        out = xops.memory_efficient_attention(x, x, x, attn_bias=mask.make_causal())
        assert [part.shape for part in mask.split(out)] == [part.shape for part in several]
        out.sum().backward()

    return step


def scan_of_vmamba(batch_size: int) -> Step:
    """The scan in the form VMamba builds."""
    import selective_scan_cuda_oflex as extension

    def step() -> None:
        with torch.no_grad():
            u, delta = (_made(batch_size, 32, 64, dtype=FP32) for _ in range(2))
            b, c = (_made(batch_size, 1, 4, 64, dtype=FP32) for _ in range(2))
            a, d, bias = _made(32, 4, dtype=FP32), _made(32, dtype=FP32), _made(32, dtype=FP32)
            out, states, *_ = extension.fwd(u, delta, a, b, c, d, bias, True, 1, True)
            extension.bwd(u, delta, a, b, c, d, bias, out, states, True, 1)

    return step


def mamba_language_model(batch_size: int) -> Step:
    """Blocks of Mamba and a head."""
    from mamba_ssm.models.config_mamba import MambaConfig
    from mamba_ssm.models.mixer_seq_simple import MambaLMHeadModel

    config = MambaConfig(d_model=64, n_layer=2, vocab_size=100, d_intermediate=128)
    model = MambaLMHeadModel(config, dtype=BF16)

    def step() -> None:
        model(_labels(batch_size * 32, 100).unflatten(0, (batch_size, 32))).logits.sum().backward()

    return step


def unsloth_kernels(batch_size: int) -> Step:
    """A norm, a gate and cross entropy."""
    from unsloth.kernels import fast_cross_entropy_loss, fast_rms_layernorm, swiglu_fg_kernel

    norm = nn.RMSNorm(64, dtype=BF16)

    def step() -> None:
        rows = fast_rms_layernorm(norm, _made(batch_size, 32, 64))
        hidden = swiglu_fg_kernel(rows, _made(batch_size, 32, 64))
        labels = _labels(batch_size * 32, 64).unflatten(0, (batch_size, 32))
        fast_cross_entropy_loss(hidden, labels).backward()

    return step


def liger_layers(batch_size: int) -> Step:
    """Layer norm, GEGLU and cross entropy."""
    from liger_kernel.transformers import LigerCrossEntropyLoss, LigerGEGLUMLP, LigerLayerNorm

    config = SimpleNamespace(hidden_size=64, intermediate_size=128)
    model = nn.Sequential(LigerLayerNorm(64), LigerGEGLUMLP(config))
    loss = LigerCrossEntropyLoss()

    def step() -> None:
        rows = model(_made(batch_size * 8, 64, dtype=FP32))
        loss(rows, _labels(batch_size * 8, 64)).backward()

    return step
