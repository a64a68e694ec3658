"""Fine-tuning of language models of 1.6 to 8 billion parameters, with random weights.

Whole models in bf16, or corrections of rank 16 to the linear layers of a frozen one; sizes are
those of the models named. 2048 tokens a sample, GPT-2's are 1024.
"""

from __future__ import annotations

import torch
import training  # noqa: F401  before transformers, which imports torchvision
import transformers as tf
from torch import Tensor, nn
from training import Step, step_of

_LLAMA_3B = (3072, 28, 24, 8, 8192, 128256)
_LLAMA_8B = (4096, 32, 32, 8, 14336, 128256)
_MISTRAL_7B = (4096, 32, 32, 8, 14336, 32768)
_QWEN_7B = (3584, 28, 28, 4, 18944, 152064)


def gpt2_xl_bf16_amp(batch_size: int) -> Step:
    model = tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=1600, n_layer=48, n_head=25))
    return _train(model, batch_size, 1024, 50257, "bf16-amp")


def llama_3b_bf16(batch_size: int) -> Step:
    return _train(_model("Llama", _LLAMA_3B), batch_size, 2048, 128256)


def llama_3b_low_rank_bf16(batch_size: int) -> Step:
    return _train(_low_rank(_model("Llama", _LLAMA_3B)), batch_size, 2048, 128256)


def pythia_7b_checkpointed_bf16(batch_size: int) -> Step:
    config = tf.GPTNeoXConfig(
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        intermediate_size=16384,
        vocab_size=50432,
    )
    model = _checkpointed(tf.GPTNeoXForCausalLM(config))
    return _train(model, batch_size, 2048, 50432)


def mistral_7b_checkpointed_bf16(batch_size: int) -> Step:
    return _train(_checkpointed(_model("Mistral", _MISTRAL_7B)), batch_size, 2048, 32768)


def qwen_7b_low_rank_checkpointed_bf16(batch_size: int) -> Step:
    model = _low_rank(_checkpointed(_model("Qwen2", _QWEN_7B)))
    return _train(model, batch_size, 2048, 152064)


def llama_8b_checkpointed_bf16(batch_size: int) -> Step:
    return _train(_checkpointed(_model("Llama", _LLAMA_8B)), batch_size, 2048, 128256)


def _model(family: str, sizes: tuple[int, ...]) -> nn.Module:
    config = getattr(tf, f"{family}Config")(
        hidden_size=sizes[0],
        num_hidden_layers=sizes[1],
        num_attention_heads=sizes[2],
        num_key_value_heads=sizes[3],
        intermediate_size=sizes[4],
        vocab_size=sizes[5],
        dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        return getattr(tf, f"{family}ForCausalLM")(config)
    finally:
        torch.set_default_dtype(torch.float32)


def _checkpointed(model: nn.Module) -> nn.Module:
    model.gradient_checkpointing_enable()
    return model


class _LowRank(nn.Module):
    """A frozen linear layer and a trained correction of low rank."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 16, bias=False)
        self.up = nn.Linear(16, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


def _low_rank(model: nn.Module) -> nn.Module:
    model.requires_grad_(False)
    model.enable_input_require_grads()
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, _LowRank(child))
    return model


def _train(
    model: nn.Module, batch_size: int, length: int, vocabulary: int, precision: str = "bf16"
) -> Step:
    ids = torch.randint(vocabulary, (batch_size, length))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    return step_of(model, loss_of, precision, "adamw-fused")
