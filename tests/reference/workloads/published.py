"""Steps whose training speed others have published, rebuilt as they ran them.

ResNet-50 and question answering with BERT on sequences of 384: NVIDIA's DeepLearningExamples, as
in Lambda's benchmark (github.com/lambdal/deeplearning-benchmark): images in torch's usual order,
attention as separate products, Adam. Image models of timm: its own benchmark of training
(github.com/huggingface/pytorch-image-models, benchmark.py), fp16 autocast without a scaler.
"""

from __future__ import annotations

import os

import torch
from torch.nn import functional
from training import Step, allow_tf32, classify, step_of


def resnet50_fp16_amp(batch_size: int) -> Step:
    return _resnet50(batch_size, "fp16-amp")


def resnet50_tf32(batch_size: int) -> Step:
    return _resnet50(batch_size, "tf32")


def resnet50_fp32(batch_size: int) -> Step:
    return _resnet50(batch_size, "fp32")


def bert_base_fp16_amp(batch_size: int) -> Step:
    return _bert(batch_size, "fp16-amp", 768, 12)


def bert_base_tf32(batch_size: int) -> Step:
    return _bert(batch_size, "tf32", 768, 12)


def bert_base_fp32(batch_size: int) -> Step:
    return _bert(batch_size, "fp32", 768, 12)


def bert_large_fp16_amp(batch_size: int) -> Step:
    return _bert(batch_size, "fp16-amp", 1024, 24)


def bert_large_tf32(batch_size: int) -> Step:
    return _bert(batch_size, "tf32", 1024, 24)


def bert_large_fp32(batch_size: int) -> Step:
    return _bert(batch_size, "fp32", 1024, 24)


def timm_model(batch_size: int) -> Step:
    """The model named in OUTLAY_TIMM: `name,image size,nchw or nhwc`."""
    import timm

    name, size, layout = os.environ["OUTLAY_TIMM"].split(",")
    model = timm.create_model(name, num_classes=1000)
    x = torch.randn(batch_size, 3, int(size), int(size))
    y = torch.randint(1000, (batch_size,))
    if layout == "nhwc":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    model.train()
    allow_tf32(True)
    update = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast("cuda", torch.float16):
            out = model(x)
            out = out[0] if isinstance(out, tuple | list) else out
            loss = functional.cross_entropy(out, y)
        loss.backward()
        update.step()
        update.zero_grad()

    return step


def _resnet50(batch_size: int, precision: str) -> Step:
    import torchvision

    return classify(torchvision.models.resnet50(), batch_size, precision)


def _bert(batch_size: int, precision: str, width: int, layers: int) -> Step:
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    config._attn_implementation = "eager"
    model = BertForQuestionAnswering(config)
    tokens = torch.randint(30_000, (batch_size, 384))
    starts, ends = (torch.randint(384, (batch_size,)) for _ in range(2))
    return step_of(
        model,
        lambda m: m(input_ids=tokens, start_positions=starts, end_positions=ends).loss,
        precision,
        "adam",
    )
