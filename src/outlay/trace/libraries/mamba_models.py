"""Whole models of Mamba: blocks that add, normalise and mix, and a language model of them.

Source: mamba_ssm 2.3 (modules/block.py, modules/mlp.py, models/mixer_seq_simple.py).
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.libraries.flash_layers import norm_fn, norm_module
from outlay.trace.libraries.state_space import Mamba
from outlay.trace.libraries.state_space_dual import Mamba2

_rms_norm: Any = norm_module("mamba_ssm", is_rms=True)
_layer_norm_fn = norm_fn("mamba_ssm", is_rms=False)


class _Block(nn.Module):  # type: ignore[misc]
    """Addition and norm, then the mixer; a gated MLP where there is one."""

    def __init__(
        self,
        dim: int,
        mixer_cls: Callable[..., nn.Module],
        mlp_cls: Callable[..., nn.Module] = nn.Identity,
        norm_cls: Callable[..., nn.Module] = nn.LayerNorm,
        fused_add_norm: bool = False,
        residual_in_fp32: bool = False,
    ) -> None:
        super().__init__()
        self.fused_add_norm, self.residual_in_fp32 = fused_add_norm, residual_in_fp32
        self.norm, self.mixer = norm_cls(dim), mixer_cls(dim)
        has_mlp = mlp_cls is not nn.Identity
        self.norm2 = norm_cls(dim) if has_mlp else None
        self.mlp = mlp_cls(dim) if has_mlp else None

    def forward(
        self, hidden_states: Tensor, residual: Tensor | None = None, *_: object, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """What the mixer puts out, and the sum so far."""
        hidden_states, residual = self._normalised(self.norm, hidden_states, residual)
        hidden_states = self.mixer(hidden_states, **options)
        if self.mlp is not None:
            hidden_states, residual = self._normalised(self.norm2, hidden_states, residual)
            hidden_states = self.mlp(hidden_states)
        return hidden_states, residual

    def _normalised(
        self, norm: Any, hidden_states: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.fused_add_norm:
            both: tuple[Tensor, Tensor] = _layer_norm_fn(
                hidden_states,
                norm.weight,
                norm.bias,
                residual,
                prenorm=True,
                residual_in_fp32=self.residual_in_fp32,
                is_rms_norm=isinstance(norm, _rms_norm),
            )
            return both
        total = hidden_states if residual is None else hidden_states + residual
        hidden_states = norm(total.to(norm.weight.dtype))
        return hidden_states, total.float() if self.residual_in_fp32 else total


class _GatedMLP(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        *_: object,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **__: object,
    ) -> None:
        super().__init__()
        hidden = hidden_features or int(8 * in_features / 3)
        hidden = math.ceil(hidden / 128) * 128
        options = {"device": device, "dtype": dtype, "bias": bias}
        self.fc1 = nn.Linear(in_features, 2 * hidden, **options)
        self.fc2 = nn.Linear(hidden, out_features or in_features, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Two products with a gate between them."""
        y, gate = self.fc1(x).chunk(2, -1)
        result: Tensor = self.fc2(y * functional.silu(gate))
        return result


@dataclass
class _MambaConfig:
    d_model: int = 2560
    d_intermediate: int = 0
    n_layer: int = 64
    vocab_size: int = 50277
    ssm_cfg: dict[str, Any] = field(default_factory=dict)
    attn_layer_idx: list[int] = field(default_factory=list)
    attn_cfg: dict[str, Any] = field(default_factory=dict)
    rms_norm: bool = True
    residual_in_fp32: bool = True
    fused_add_norm: bool = True
    pad_vocab_size_multiple: int = 8
    tie_embeddings: bool = True


_Logits = namedtuple("_Logits", ["logits"])


class _MixerModel(nn.Module):  # type: ignore[misc]
    """Embedding, blocks, and the last addition and norm."""

    def __init__(self, config: _MambaConfig, vocabulary: int, device: Any, dtype: Any) -> None:
        super().__init__()
        if config.attn_layer_idx:
            raise NotImplementedError("a Mamba model with layers of attention has no formula")
        options = {"device": device, "dtype": dtype}
        chosen = dict(config.ssm_cfg)
        mixer = Mamba2 if chosen.pop("layer", "Mamba1") == "Mamba2" else Mamba
        norm = partial(_rms_norm if config.rms_norm else nn.LayerNorm, **options)
        mlp: Callable[..., nn.Module] = nn.Identity
        if config.d_intermediate:
            mlp = partial(_GatedMLP, hidden_features=config.d_intermediate, **options)
        self.embedding = nn.Embedding(vocabulary, config.d_model, **options)
        self.layers = nn.ModuleList(
            _Block(
                config.d_model,
                partial(mixer, **chosen, **options),
                mlp,
                norm,
                config.fused_add_norm,
                config.residual_in_fp32,
            )
            for _ in range(config.n_layer)
        )
        self.norm_f = norm(config.d_model)
        self.config = config

    def forward(self, input_ids: Tensor, **options: Any) -> Tensor:
        """The last hidden states."""
        hidden_states, residual = self.embedding(input_ids), None
        for layer in self.layers:
            hidden_states, residual = layer(hidden_states, residual, **options)
        if self.config.fused_add_norm:
            result: Tensor = _layer_norm_fn(
                hidden_states,
                self.norm_f.weight,
                self.norm_f.bias,
                residual,
                is_rms_norm=self.config.rms_norm,
            )
            return result
        total = hidden_states if residual is None else hidden_states + residual
        normalised: Tensor = self.norm_f(total.to(self.norm_f.weight.dtype))
        return normalised


class _MambaLMHeadModel(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        config: _MambaConfig,
        initializer_cfg: object = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        del initializer_cfg
        multiple = config.pad_vocab_size_multiple
        vocabulary = math.ceil(config.vocab_size / multiple) * multiple
        self.config = config
        self.backbone = _MixerModel(config, vocabulary, device, dtype)
        self.lm_head = nn.Linear(config.d_model, vocabulary, bias=False, device=device, dtype=dtype)
        if config.tie_embeddings:
            self.lm_head.weight = self.backbone.embedding.weight

    def forward(
        self,
        input_ids: Tensor,
        position_ids: object = None,
        inference_params: object = None,
        num_last_tokens: int = 0,
        **options: Any,
    ) -> Any:
        """A tuple with the logits."""
        del position_ids, inference_params
        hidden_states = self.backbone(input_ids, **options)
        if num_last_tokens > 0:
            hidden_states = hidden_states[:, -num_last_tokens:]
        return _Logits(self.lm_head(hidden_states))


_NORMS: Mapping[str, object] = {
    "layer_norm_fn": _layer_norm_fn,
    "rms_norm_fn": norm_fn("mamba_ssm", is_rms=True),
    "RMSNorm": _rms_norm,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "mamba_ssm": {"MambaLMHeadModel": _MambaLMHeadModel},
    "mamba_ssm.ops.triton.layer_norm": _NORMS,
    "mamba_ssm.ops.triton.layernorm": _NORMS,
    "mamba_ssm.modules.mamba_simple": {"Block": _Block},
    "mamba_ssm.modules.block": {"Block": _Block},
    "mamba_ssm.modules.mlp": {"GatedMLP": _GatedMLP},
    "mamba_ssm.models.config_mamba": {"MambaConfig": _MambaConfig},
    "mamba_ssm.models.mixer_seq_simple": {"MambaLMHeadModel": _MambaLMHeadModel},
}
