"""Liger's layers and losses, where the package is not installed, and unsloth's kernels.

Liger is made of Triton kernels: where it is installed its own code runs, and `triton_kernels`
records what it launches. What is here has the same memory: gradients in the place of what they are
of (RMS norm, SwiGLU, cross entropy), and of the last layer with its loss only a chunk of logits at
a time, with the gradients computed in forward.

Source: liger_kernel 0.8 (ops, transformers), unsloth 2026.9 (kernels).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.capture.wrappers import NotTraceable
from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.libraries.row_norms import NormLayer, RowNorm, gated, row_norm

# Norms and gates


def _liger_norm(*, is_rms: bool, in_place: bool = False) -> RowNorm:
    return RowNorm(library="liger", is_rms=is_rms, in_place=in_place, sums_by_multiprocessor=True)


class _LigerRMSNorm(NormLayer):
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *_: object,
        in_place: bool = True,
        elementwise_affine: bool = True,
        **__: object,
    ) -> None:
        super().__init__(hidden_size, weight=elementwise_affine)
        self.variance_epsilon = eps
        self.norm = _liger_norm(is_rms=True, in_place=in_place)


class _LigerLayerNorm(NormLayer):
    norm = _liger_norm(is_rms=False)

    def __init__(self, hidden_size: int, eps: float = 1e-6, *_: object, **__: object) -> None:
        super().__init__(hidden_size, bias=True)
        self.variance_epsilon = eps


def _rms_norm(x: Tensor, weight: Tensor, *_: object, in_place: bool = True, **__: object) -> Any:
    return row_norm(_liger_norm(is_rms=True, in_place=in_place), x, weight)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *_: object) -> Any:
    return row_norm(_liger_norm(is_rms=False), x, weight, bias)


class _LigerSwiGLUMLP(nn.Module):  # type: ignore[misc]
    """Gate, product and back, with the gradients of both in their own place."""

    kernel = "liger.swiglu"

    def __init__(
        self,
        config: Any,
        hidden_size: int | None = None,
        intermediate_size: int | None = None,
        **_: object,
    ) -> None:
        super().__init__()
        self.config = config
        self.hidden_size = hidden_size or config.hidden_size
        self.intermediate_size = intermediate_size or config.intermediate_size
        bias = bool(getattr(config, "mlp_bias", False))
        widths = (self.hidden_size, self.intermediate_size)
        self.gate_proj = nn.Linear(*widths, bias=bias)
        self.up_proj = nn.Linear(*widths, bias=bias)
        self.down_proj = nn.Linear(*reversed(widths), bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """The three products with the gate between them."""
        hidden = gated(self.kernel, self.gate_proj(x), self.up_proj(x), in_place=True)
        result: Tensor = self.down_proj(hidden)
        return result


class _LigerGEGLUMLP(_LigerSwiGLUMLP):
    kernel = "liger.geglu"


# Rotary embedding, in place


class _Rope(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        return _turned("liger.rope", q, k, cos, sin)

    @staticmethod
    def backward(ctx: Any, to_q: Tensor, to_k: Tensor) -> tuple[Tensor | None, ...]:
        return *_turned("liger.rope_backward", to_q, to_k, *ctx.saved_tensors), None, None


def _turned(name: str, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Both in place, where their positions come before their heads."""
    q, k = (tensor.transpose(1, 2).contiguous() for tensor in (q, k))
    launch(name, [q, k, cos, sin], [q, k])
    return q.transpose(1, 2), k.transpose(1, 2)


def liger_rotary_pos_emb(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_: object, **__: object
) -> tuple[Tensor, Tensor]:
    """Query and key (batch, heads, positions, size) with their positions."""
    turned: tuple[Tensor, Tensor] = _Rope.apply(q, k, cos, sin)
    return turned


# Cross entropy


class _CrossEntropyInPlace(torch.autograd.Function):  # type: ignore[misc]
    """The gradient is computed in forward, in the place of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        logits = logits.contiguous()
        losses = logits.new_zeros((logits.shape[0],), dtype=logits.dtype)
        launch("liger.cross_entropy", [logits, target], [logits, losses], kind="softmax")
        ctx.save_for_backward(logits)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        launch("liger.element_mul", [logits, grad], [logits])
        return logits, None


class _LigerCrossEntropyLoss(nn.Module):  # type: ignore[misc]
    def __init__(self, *_: object, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean loss of all rows."""
        result: Tensor = _CrossEntropyInPlace.apply(logits, target)
        return result


def _cross_entropy(logits: Tensor, target: Tensor, *_: object, **__: object) -> Tensor:
    """`torch.nn.functional.cross_entropy` as Liger has it."""
    result: Tensor = _CrossEntropyInPlace.apply(logits, target)
    return result


def logits_chunk(rows: int, width: int, vocabulary: int) -> int:
    """Rows whose logits are held at a time: they take no more than the input does."""
    parts = math.ceil(vocabulary / width)
    chunk = 1 << (math.ceil(rows / parts) - 1).bit_length()
    return min(chunk, rows)


class _FusedLinearCrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None) -> Tensor:
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            x, weight = x.to(dtype), weight.to(dtype)
        rows, vocabulary = x.shape[0], weight.shape[0]
        chunk = logits_chunk(rows, x.shape[1], vocabulary)
        to_x = torch.zeros_like(x)
        trains = ctx.needs_input_grad[1]
        to_weight = torch.zeros_like(weight) if trains else None
        to_bias = None if bias is None else torch.zeros_like(bias)
        losses = x.new_zeros((rows,), dtype=torch.float32)
        logits = x.new_empty((chunk, vocabulary))
        for start in range(0, rows, chunk):
            part, labels = x[start : start + chunk], target[start : start + chunk]
            scores = logits[: part.shape[0]]
            torch.mm(part, weight.t(), out=scores)
            if bias is not None:
                scores.add_(bias)
            lost = losses[start : start + chunk]
            launch("liger.cross_entropy", [scores, labels], [scores, lost], kind="softmax")
            torch.mm(scores, weight, out=to_x[start : start + chunk])
            if to_weight is not None:
                torch.addmm(to_weight, scores.t(), part, out=to_weight)
            if to_bias is not None:
                to_bias.add_(scores.sum(0))
        ctx.save_for_backward(to_x, to_weight, to_bias)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        del grad  # 1 where the loss is the last operation; Liger multiplies by it otherwise
        to_x, to_weight, to_bias = ctx.saved_tensors
        return to_x, to_weight, None, to_bias


def liger_fused_linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None, *_: object, **__: object
) -> Tensor:
    """The loss of the logits `x weight`, which are never there all at once."""
    result: Tensor = _FusedLinearCrossEntropy.apply(x, weight, target, bias)
    return result


class _LigerFusedLinearCrossEntropyLoss(nn.Module):  # type: ignore[misc]
    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def forward(
        self, lin_weight: Tensor, x: Tensor, target: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """The loss of the logits `x lin_weight`."""
        return liger_fused_linear_cross_entropy(x, lin_weight, target, bias)


# Models of transformers


def _apply_to(family: str, mlp: type[nn.Module]) -> Callable[..., None]:
    """`apply_liger_kernel_to_...` for models that are built as Llama is."""

    def apply(
        rope: bool = True,
        cross_entropy: bool = False,
        fused_linear_cross_entropy: bool = True,
        rms_norm: bool = True,
        swiglu: bool = True,
        model: nn.Module | None = None,
        **_: object,
    ) -> None:
        if model is not None:
            raise NotImplementedError(
                "Liger put into a finished model has no formula: apply it before the model is made"
            )
        modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        found = vars(modeling)
        chosen: dict[str, object] = {}
        if rope:
            chosen["apply_rotary_pos_emb"] = liger_rotary_pos_emb
        if rms_norm:
            chosen |= {name: _LigerRMSNorm for name in found if name.endswith("RMSNorm")}
        if swiglu:
            chosen |= {name: mlp for name in found if name.endswith("MLP")}
        for name, value in chosen.items():
            if name in found:
                setattr(modeling, name, value)
        heads = [found[name] for name in found if name.endswith("ForCausalLM")]
        for head in heads if fused_linear_cross_entropy else ():
            head.forward = _causal_forward
        if cross_entropy:
            vars(functional)["cross_entropy"] = _cross_entropy

    return apply


def _causal_forward(model: Any, *args: Any, labels: Tensor | None = None, **kwargs: Any) -> Any:
    """The forward of a causal language model that computes its loss without its logits."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    kwargs.pop("logits_to_keep", None)
    hidden = model.model(*args, **kwargs)[0]
    if labels is None or not model.training:
        return CausalLMOutputWithPast(logits=model.lm_head(hidden))
    shifted = functional.pad(labels, (0, 1), value=-100)[..., 1:].flatten()
    loss = liger_fused_linear_cross_entropy(
        hidden.flatten(0, -2), model.lm_head.weight, shifted, model.lm_head.bias
    )
    return CausalLMOutputWithPast(loss=loss)


# unsloth's kernels, which are called with layers of transformers


def _unsloth_norm(layer: Any, x: Tensor, *_: object, is_rms: bool, **__: object) -> Any:
    norm = RowNorm(library="unsloth", is_rms=is_rms, in_place=is_rms)
    return row_norm(norm, x, layer.weight, None if is_rms else layer.bias)


def _unsloth_cross_entropy(
    logits: Tensor, labels: Tensor, *_: object, n_items: Any = None, **__: object
) -> Tensor:
    loss = _CrossEntropyOfLogits.apply(logits.flatten(0, -2), labels.flatten())
    return loss.sum() / (labels.numel() if n_items is None else n_items)


class _CrossEntropyOfLogits(torch.autograd.Function):  # type: ignore[misc]
    """The gradient in the place of the logits, in backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        losses, sums = (logits.new_empty((logits.shape[0],), dtype=torch.float32) for _ in "ab")
        launch("unsloth.cross_entropy", [logits, labels], [losses, sums], kind="softmax")
        ctx.save_for_backward(logits, sums, labels)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, sums, labels = ctx.saved_tensors
        reads = [logits, grad, sums, labels]
        launch("unsloth.cross_entropy_backward", reads, [logits], kind="softmax")
        return logits, None


class _FastLanguageModel:
    """unsloth's way to a model, which loads weights and asks the GPU."""

    @staticmethod
    def from_pretrained(*_: object, **__: object) -> None:
        """Say how the same training can be traced."""
        raise NotTraceable(
            "unsloth.FastLanguageModel loads a model onto a GPU, and has to have both.",
            fix="Make the same model with transformers (AutoModelForCausalLM.from_config), put "
            "peft's LoRA on it, apply liger_kernel, whose kernels are of the same kind, and trace "
            "that.",
        )


_LOSSES: Mapping[str, object] = {
    "LigerCrossEntropyLoss": _LigerCrossEntropyLoss,
    "LigerFusedLinearCrossEntropyLoss": _LigerFusedLinearCrossEntropyLoss,
}
_LAYERS: Mapping[str, object] = {
    "LigerRMSNorm": _LigerRMSNorm,
    "LigerLayerNorm": _LigerLayerNorm,
    "LigerSwiGLUMLP": _LigerSwiGLUMLP,
    "LigerGEGLUMLP": _LigerGEGLUMLP,
    "liger_rotary_pos_emb": liger_rotary_pos_emb,
}
_APPLIED: Mapping[str, object] = {
    f"apply_liger_kernel_to_{family}": _apply_to(family, mlp)
    for family, mlp in (
        ("llama", _LigerSwiGLUMLP),
        ("mistral", _LigerSwiGLUMLP),
        ("qwen2", _LigerSwiGLUMLP),
        ("qwen3", _LigerSwiGLUMLP),
        ("granite", _LigerSwiGLUMLP),
        ("smollm3", _LigerSwiGLUMLP),
        ("gemma", _LigerGEGLUMLP),
    )
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "liger_kernel": {"__version__": "0.8.5"},
    "liger_kernel.transformers": {**_LAYERS, **_LOSSES, **_APPLIED},
    "liger_kernel.transformers.monkey_patch": _APPLIED,
    "liger_kernel.transformers.rms_norm": {"LigerRMSNorm": _LigerRMSNorm},
    "liger_kernel.transformers.layer_norm": {"LigerLayerNorm": _LigerLayerNorm},
    "liger_kernel.transformers.swiglu": {"LigerSwiGLUMLP": _LigerSwiGLUMLP},
    "liger_kernel.transformers.geglu": {"LigerGEGLUMLP": _LigerGEGLUMLP},
    "liger_kernel.transformers.rope": {"liger_rotary_pos_emb": liger_rotary_pos_emb},
    "liger_kernel.transformers.cross_entropy": {"LigerCrossEntropyLoss": _LigerCrossEntropyLoss},
    "liger_kernel.transformers.fused_linear_cross_entropy": {
        "LigerFusedLinearCrossEntropyLoss": _LigerFusedLinearCrossEntropyLoss
    },
    "liger_kernel.transformers.functional": {
        "liger_cross_entropy": _cross_entropy,
        "liger_fused_linear_cross_entropy": liger_fused_linear_cross_entropy,
        "liger_rms_norm": _rms_norm,
        "liger_layer_norm": _layer_norm,
        "liger_rope": liger_rotary_pos_emb,
        "liger_swiglu": partial(gated, "liger.swiglu", in_place=True),
        "liger_geglu": partial(gated, "liger.geglu", in_place=True),
    },
    "unsloth": {"FastLanguageModel": _FastLanguageModel, "FastModel": _FastLanguageModel},
    "unsloth.kernels": {
        "fast_rms_layernorm": partial(_unsloth_norm, is_rms=True),
        "fast_layernorm": partial(_unsloth_norm, is_rms=False),
        "fast_rope_embedding": liger_rotary_pos_emb,
        "fast_cross_entropy_loss": _unsloth_cross_entropy,
        "swiglu_fg_kernel": partial(gated, "unsloth.swiglu"),
        "geglu_exact_forward_kernel": partial(gated, "unsloth.geglu"),
        "geglu_approx_forward_kernel": partial(gated, "unsloth.geglu"),
    },
}
NOT_REPLACED = frozenset({"liger_kernel", "unsloth"})
"""Installed, their own code runs: `triton_kernels` records what it launches."""
