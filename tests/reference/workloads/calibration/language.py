"""Language models (transformers, built from configs: nothing is downloaded)."""

import torch
import transformers as hf

from common import causal_lm, train


def gpt2_medium_bf16amp(batch_size, seq=1024):
    cfg = hf.GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    return causal_lm(hf.GPT2LMHeadModel(cfg), batch_size, seq, cfg.vocab_size, precision="bf16-amp")


def gpt2_small_fp32(batch_size, seq=1024):
    cfg = hf.GPT2Config(use_cache=False)
    return causal_lm(hf.GPT2LMHeadModel(cfg), batch_size, seq, cfg.vocab_size, precision="fp32")


def bert_base_fp16amp(batch_size, seq=512):
    cfg = hf.BertConfig()
    model = hf.BertForMaskedLM(cfg)
    ids = torch.randint(cfg.vocab_size, (batch_size, seq))
    return train(model, lambda m: m(input_ids=ids, labels=ids).loss, precision="fp16-amp")


def llama_1b_bf16(batch_size, seq=2048):
    cfg = hf.LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        use_cache=False,
    )
    return causal_lm(hf.LlamaForCausalLM(cfg), batch_size, seq, cfg.vocab_size, precision="bf16")
