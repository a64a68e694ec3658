"""Text and speech models of transformers, with random weights."""

from __future__ import annotations

import torch
import training  # noqa: F401  before transformers, which imports torchvision
import transformers as tf
from torch import Tensor, nn
from training import Step, step_of


def _causal(
    model: nn.Module, batch_size: int, length: int, vocabulary: int, *args: str, **choices: object
) -> Step:
    ids = torch.randint(vocabulary, (batch_size, length))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    return step_of(model, loss_of, *args, **choices)


def gpt2_small_checkpointed_bf16_amp(batch_size: int) -> Step:
    model = tf.GPT2LMHeadModel(tf.GPT2Config())
    model.gradient_checkpointing_enable()
    return _causal(model, batch_size, 1024, 50257)


def gpt2_small_tf32(batch_size: int) -> Step:
    return _causal(tf.GPT2LMHeadModel(tf.GPT2Config()), batch_size, 512, 50257, "tf32")


def gpt2_small_eager_attention_fp16_amp(batch_size: int) -> Step:
    model = tf.GPT2LMHeadModel(tf.GPT2Config(attn_implementation="eager"))
    return _causal(model, batch_size, 1024, 50257, "fp16-amp", clip=True)


def _pythia_410m() -> nn.Module:
    config = tf.GPTNeoXConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        vocab_size=50304,
    )
    return tf.GPTNeoXForCausalLM(config)


def pythia_410m_bf16(batch_size: int) -> Step:
    return _causal(_pythia_410m(), batch_size, 2048, 50304, "bf16", "adamw-fused")


def _llama(**changes: int) -> nn.Module:
    sizes = {
        "hidden_size": 1024,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 2816,
        "vocab_size": 32000,
    }
    return tf.LlamaForCausalLM(tf.LlamaConfig(**{**sizes, **changes}))


def llama_300m_bf16_amp(batch_size: int) -> Step:
    return _causal(_llama(), batch_size, 1024, 32000)


def llama_300m_accumulate4_bf16(batch_size: int) -> Step:
    return _causal(_llama(), batch_size, 1024, 32000, "bf16", accumulate=4, clip=True)


def llama_3b_checkpointed_adafactor_bf16(batch_size: int) -> Step:
    model = _llama(
        hidden_size=3072,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128256,
    )
    model.gradient_checkpointing_enable()
    return _causal(model, batch_size, 2048, 128256, "bf16", "adafactor")


def llama_300m_long_tf32(batch_size: int) -> Step:
    return _causal(_llama(), batch_size, 4096, 32000, "tf32", "adamw-loop")


def mixtral_small_bf16(batch_size: int) -> Step:
    config = tf.MixtralConfig(
        hidden_size=768,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=2048,
        num_local_experts=8,
        vocab_size=32000,
    )
    return _causal(tf.MixtralForCausalLM(config), batch_size, 1024, 32000, "bf16")


def opt_350m_fp16_amp(batch_size: int) -> Step:
    config = tf.OPTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        ffn_dim=4096,
        num_attention_heads=16,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )
    return _causal(tf.OPTForCausalLM(config), batch_size, 1024, 50272, "fp16-amp")


def bert_base_tf32(batch_size: int) -> Step:
    model = tf.BertForSequenceClassification(tf.BertConfig(num_labels=2))
    ids = torch.randint(30000, (batch_size, 128))
    mask = torch.ones(batch_size, 128, dtype=torch.long)
    y = torch.randint(2, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, attention_mask=mask, labels=y).loss

    return step_of(model, loss_of, "tf32")


def distilbert_bf16_amp(batch_size: int) -> Step:
    model = tf.DistilBertForMaskedLM(tf.DistilBertConfig())
    ids = torch.randint(30000, (batch_size, 256))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    return step_of(model, loss_of)


def roberta_large_frozen_below_bf16_amp(batch_size: int) -> Step:
    """Only the last six of 24 layers and the head are trained."""
    config = tf.RobertaConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        num_labels=2,
        vocab_size=50265,
        max_position_embeddings=514,
    )
    model = tf.RobertaForSequenceClassification(config)
    model.roberta.embeddings.requires_grad_(False)
    model.roberta.encoder.layer[:18].requires_grad_(False)
    ids = torch.randint(50000, (batch_size, 256))
    y = torch.randint(2, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=y).loss

    return step_of(model, loss_of)


def t5_base_bf16_amp(batch_size: int) -> Step:
    config = tf.T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12)
    config.decoder_start_token_id = 0
    model = tf.T5ForConditionalGeneration(config)
    ids = torch.randint(32000, (batch_size, 512))
    labels = torch.randint(32000, (batch_size, 128))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=labels, use_cache=False).loss

    return step_of(model, loss_of, "bf16-amp", "adafactor")


def bart_base_fp32(batch_size: int) -> Step:
    config = tf.BartConfig(
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
    )
    model = tf.BartForConditionalGeneration(config)
    ids = torch.randint(50000, (batch_size, 256))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    return step_of(model, loss_of, "fp32")


def whisper_small_bf16_amp(batch_size: int) -> Step:
    config = tf.WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )
    model = tf.WhisperForConditionalGeneration(config)
    sound = torch.randn(batch_size, 80, 3000)
    labels = torch.randint(50000, (batch_size, 128))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_features=sound, labels=labels, use_cache=False).loss

    return step_of(model, loss_of)


def wav2vec2_features_tf32(batch_size: int) -> Step:
    config = tf.Wav2Vec2Config(mask_time_prob=0.0, layerdrop=0.0, apply_spec_augment=False)
    model = tf.Wav2Vec2Model(config)
    sound = torch.randn(batch_size, 80_000)

    def loss_of(model: nn.Module) -> Tensor:
        return model(sound).last_hidden_state.float().square().mean()

    return step_of(model, loss_of, "tf32")


def clip_vit_b32_bf16_amp(batch_size: int) -> Step:
    model = tf.CLIPModel(tf.CLIPConfig())
    pixels = torch.randn(batch_size, 3, 224, 224)
    ids = torch.randint(49000, (batch_size, 77))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, pixel_values=pixels, return_loss=True).loss

    return step_of(model, loss_of)


def segformer_b1_bf16_amp(batch_size: int) -> Step:
    config = tf.SegformerConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 320, 512], num_labels=19
    )
    model = tf.SegformerForSemanticSegmentation(config)
    pixels = torch.randn(batch_size, 3, 512, 512)
    labels = torch.randint(19, (batch_size, 512, 512))

    def loss_of(model: nn.Module) -> Tensor:
        return model(pixel_values=pixels, labels=labels).loss

    return step_of(model, loss_of)
