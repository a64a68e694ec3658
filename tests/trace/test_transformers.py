"""transformers' models against their own arithmetic, at batch size 8 and 16 tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.sweep import count, flops, notes_text, report

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

FILE = Path(__file__).with_name("steps_transformers.py")
TOKENS = 8 * 16
HEAD = 96 * 32
"""Weights of a language head: vocabulary times width."""
# Scores and weighted values of one layer: 2 * 8 * 16 * 16 * (32 + 32) over all heads
ATTENTION = 2 * 8 * 256 * 64


def products(weights: int) -> int:
    """FLOPs of matrices that meet every token, forward and twice backward."""
    return 3 * 2 * TOKENS * weights


@pytest.mark.parametrize(
    ("step", "parameters"),
    [
        # embeddings of 96 words, 32 places and 2 types with a norm; two layers of 4 * (32 * 32
        # + 32), 32 * 64 + 64, 64 * 32 + 32 and two norms; a head of 32 * 32 + 32, norm and bias
        ("bert", (96 + 32 + 2 + 2) * 32 + 2 * (4224 + 4192 + 128) + 1056 + 64 + 96),
        # 96 words, 16 places; two layers of 32 * 96 + 96, 32 * 32 + 32, 32 * 128 + 128,
        # 128 * 32 + 32 and two norms; a last norm
        ("gpt2", (96 + 16) * 32 + 2 * (3168 + 1056 + 4224 + 4128 + 128) + 64),
        # words and head; two layers of q 1024, k and v 512, o 1024, three of 32 * 48; norms
        ("llama", 2 * HEAD + 2 * (3072 + 3 * 1536 + 64) + 32),
        # words (the head's too); encoder layers of 4 * 1024 and 2 * 2048, decoder layers of twice
        # 4 * 1024 and 2 * 2048, norms of 32 everywhere; 32 * 4 relative places in either
        ("t5", HEAD + 2 * (8192 + 64) + 2 * (12288 + 96) + 2 * (128 + 32)),
        # words and head, attention 3072, router 4 * 32, four experts of 3 * 32 * 64, norms
        ("mixtral", 2 * HEAD + 3072 + 128 + 4 * 6144 + 96),
        # ... attention with biases on q, k and v, router 8 * 32, eight experts of 3 * 32 * 16, a
        # shared one of 3 * 32 * 32 with its gate
        ("qwen_moe", 2 * HEAD + 3072 + 64 + 256 + 8 * 1536 + 3072 + 32 + 96),
    ],
)
def test_parameters(step: str, parameters: int) -> None:
    assert report(FILE, step).parameters == parameters


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # two layers of 4 * 32 * 32 and 2 * 32 * 64; the head's 32 * 32 and its words.
        # Attention: two products forward, five backward
        ("bert", products(2 * 8192 + 1024 + HEAD) + 3.5 * 2 * ATTENTION),
        # a causal mask halves attention
        ("gpt2", products(2 * 12288 + HEAD) + 3.5 * 2 * ATTENTION / 2),
        # separate products compute all of it, and four in backward
        ("gpt2_eager", products(2 * 12288 + HEAD) + 3 * 2 * ATTENTION),
        ("llama", products(2 * 7680 + HEAD) + 3.5 * 2 * ATTENTION / 2),
        # two encoder layers, two decoder layers with twice the attention: six in all. Four have a
        # mask of relative places, which is learned and for which there is no fused kernel.
        ("t5", products(2 * 8192 + 2 * 12288 + HEAD) + (4 * 3 + 2 * 3.5) * ATTENTION),
        # every token goes through two of four experts, whichever way they are run; attention
        # with shared key heads in fp32 has no fused kernel
        ("mixtral", products(3072 + 128 + 2 * 6144 + HEAD) + 3 * ATTENTION),
        ("mixtral_eager", products(3072 + 128 + 2 * 6144 + HEAD) + 3 * ATTENTION),
        # two of eight experts, the shared one and its gate
        ("qwen_moe", products(3072 + 256 + 2 * 1536 + 3072 + 32 + HEAD) + 3 * ATTENTION),
    ],
)
def test_flops(step: str, expected: float) -> None:
    result = report(FILE, step)
    assert result.flops == expected
    assert result.unknown_ops == {}


def test_checkpointing_runs_the_layers_again_but_for_their_last_product() -> None:
    again = report(FILE, "llama_checkpointed").flops - report(FILE, "llama").flops
    # Recomputing stops once all that backward needs is there: before the last 48 * 32 matrix.
    assert again == 2 * TOKENS * 2 * (7680 - 1536) + 2 * ATTENTION / 2
    plain, less = (report(FILE, step).peak.memory for step in ("llama", "llama_checkpointed"))
    assert less.activations < plain.activations


def test_an_expert_gets_its_share_of_tokens() -> None:
    result = report(FILE, "mixtral_eager")
    # 128 tokens with two choices among four experts: 64 rows each
    products = [op for op in result.ops if op.name == "aten.mm" and op.phase == "forward"]
    rows = [op.shapes[0][0] for op in products if op.shapes[1] in ((32, 128), (64, 32))]
    assert rows == [64, 64]
    assert [op.count for op in products if op.shapes[0][0] == 64] == [4, 4]
    assert "modeling_mixtral.py" in notes_text(result)
    assert "0.25 of its elements" in notes_text(result)


def test_attention_follows_the_implementation() -> None:
    fused = "aten._scaled_dot_product_efficient_attention"
    assert count(report(FILE, "gpt2"), fused) == 2
    assert count(report(FILE, "gpt2_eager"), fused) == 0
    assert count(report(FILE, "llama"), "aten._scaled_dot_product_flash_attention") == 2
    # A padding mask of ones masks nothing, and transformers then takes none.
    assert count(report(FILE, "bert"), fused) == 2


def test_whisper_convolutions() -> None:
    # 8 samples: 32 places of 8 to 32 channels, kernel 3; then every second of 32 to 32
    forward = 2 * 8 * (32 * 32 * 8 * 3 + 16 * 32 * 32 * 3)
    result = report(FILE, "whisper")
    assert flops(result, "conv", phase="forward") == forward
    # the encoder's attention, the decoder's own and its look at the encoder
    assert count(result, "aten._scaled_dot_product_efficient_attention") == 3


def test_ctc_loss_of_speech() -> None:
    result = report(FILE, "wav2vec2_ctc")
    assert count(result, "aten._ctc_loss", "forward") == 1
    assert count(result, "aten._ctc_loss_backward", "backward") == 1
    # labels above 0 are selected by a mask, and all of them were drawn from 1 on: 6 a sequence
    (loss,) = [op for op in result.ops if op.name == "aten._ctc_loss"]
    assert loss.shapes[-1][-1] == 2 * 6 + 1
