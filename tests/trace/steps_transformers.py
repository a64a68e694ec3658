"""Steps with transformers' own models, in small configurations."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import nn

Step = Callable[[], object]

LENGTH = 16
VOCABULARY = 96


def _ids(batch_size: int, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch_size, length))


def _step(model: nn.Module, **inputs: torch.Tensor) -> Step:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bert(batch_size: int) -> Step:
    """Masked-language BERT with a padding mask of ones."""
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    ids = _ids(batch_size)
    model = transformers.BertForMaskedLM(config)
    return _step(model, input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)


def _gpt2(attention: str) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4
    )
    config._attn_implementation = attention
    return transformers.GPT2LMHeadModel(config)


def gpt2(batch_size: int) -> Step:
    """GPT-2 with torch's fused attention."""
    ids = _ids(batch_size)
    return _step(_gpt2("sdpa"), input_ids=ids, labels=ids)


def gpt2_eager(batch_size: int) -> Step:
    """GPT-2 with attention in separate products."""
    ids = _ids(batch_size)
    return _step(_gpt2("eager"), input_ids=ids, labels=ids)


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config)


def llama(batch_size: int) -> Step:
    """A Llama in bf16 with shared key heads."""
    ids = _ids(batch_size)
    return _step(_llama().bfloat16(), input_ids=ids, labels=ids)


def llama_checkpointed(batch_size: int) -> Step:
    """The same with transformers' own activation checkpointing."""
    ids, model = _ids(batch_size), _llama().bfloat16()
    model.gradient_checkpointing_enable()
    return _step(model, input_ids=ids, labels=ids)


def t5(batch_size: int) -> Step:
    """Encoder and decoder, with transformers' Adafactor."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    config.decoder_start_token_id = 0
    model = transformers.T5ForConditionalGeneration(config).train()
    ids = _ids(batch_size)
    optimizer = transformers.Adafactor(model.parameters())

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _mixtral_config() -> transformers.MixtralConfig:
    return transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
    )


def mixtral(batch_size: int) -> Step:
    """Four experts, two a token, as transformers runs them by default."""
    ids = _ids(batch_size)
    return _step(transformers.MixtralForCausalLM(_mixtral_config()), input_ids=ids, labels=ids)


def mixtral_eager(batch_size: int) -> Step:
    """Four experts, two a token, one after the other."""
    config = _mixtral_config()
    config._experts_implementation = "eager"
    ids = _ids(batch_size)
    return _step(transformers.MixtralForCausalLM(config), input_ids=ids, labels=ids)


def qwen_moe(batch_size: int) -> Step:
    """Qwen's mixture with a shared expert."""
    config = transformers.Qwen2MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=8,
        num_experts_per_tok=2,
    )
    ids = _ids(batch_size)
    return _step(transformers.Qwen2MoeForCausalLM(config), input_ids=ids, labels=ids)


def whisper(batch_size: int) -> Step:
    """Speech to text: convolutions, encoder, decoder."""
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    return _step(model, input_features=torch.randn(batch_size, 8, 32), labels=_ids(batch_size, 12))


def wav2vec2_ctc(batch_size: int) -> Step:
    """Speech with a CTC loss."""
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 4),
        conv_kernel=(10, 4),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        num_feat_extract_layers=2,
        mask_time_prob=0.0,
        layerdrop=0.0,
    )
    model = transformers.Wav2Vec2ForCTC(config)
    labels = torch.randint(1, 32, (batch_size, 6))
    return _step(model, input_values=torch.randn(batch_size, 800), labels=labels)
