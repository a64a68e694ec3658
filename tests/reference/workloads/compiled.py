"""Steps whose speed under torch.compile somebody measured: published ones, and one of an H200.

The published ones are of PyTorch's own benchmarks (`benchmarks/dynamo`): models of transformers
with attention in plain operators, as they were early in 2023, fp16 autocast, SGD, random words.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

Step = Callable[[], None]


def _step(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Step:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()

    return step


def _words(batch_size: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch_size, length))


def gpt2_classifier(batch_size: int) -> Step:
    """GPT2ForSequenceClassification on 1024 tokens."""
    import transformers

    config = transformers.GPT2Config(attn_implementation="eager", num_labels=2, pad_token_id=0)
    labels = torch.zeros(batch_size, dtype=torch.long)
    words = _words(batch_size, 1024, config.vocab_size)
    model = transformers.GPT2ForSequenceClassification(config)
    return _step(model, {"input_ids": words, "labels": labels})


def roberta_answers(batch_size: int) -> Step:
    """RobertaForQuestionAnswering on 512 tokens."""
    import transformers

    config = transformers.RobertaConfig(
        attn_implementation="eager", max_position_embeddings=514, type_vocab_size=1
    )
    place = torch.zeros(batch_size, dtype=torch.long)
    words = _words(batch_size, 512, config.vocab_size)
    model = transformers.RobertaForQuestionAnswering(config)
    return _step(model, {"input_ids": words, "start_positions": place, "end_positions": place})


def gpt2_large(batch_size: int) -> Step:
    """GPT-2 large as a language model on 512 tokens (`hf_GPT2_large`)."""
    import transformers

    config = transformers.GPT2Config(
        n_embd=1280, n_layer=36, n_head=20, attn_implementation="eager"
    )
    words = _words(batch_size, 512, config.vocab_size)
    return _step(transformers.GPT2LMHeadModel(config), {"input_ids": words, "labels": words})


def resnet50_channels_last(batch_size: int) -> Step:
    """`tests/gpu/scripts/compiled.py`."""
    import torchvision

    model = torchvision.models.resnet50().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch_size, 3, 224, 224).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch_size,))

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    """Trace them anew into `tests/reference/data/compile`."""
    from outlay.trace.store import write_profile
    from outlay.trace.tracing import profile_of

    folder = Path(__file__).parent.parent / "data" / "compile"
    for name in ("roberta_answers", "gpt2_classifier", "gpt2_large", "resnet50_channels_last"):
        profile = profile_of(f"{__file__}:{name}", (2, 4, 8, 16), name=name, cache=False)
        write_profile(profile, folder / f"{name}.json.gz")


if __name__ == "__main__":
    main()
