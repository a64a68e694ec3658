"""Steps whose training speed others have published, rebuilt as they ran them.

ResNet-50, question answering with BERT on sequences of 384, and SSD300: NVIDIA's
DeepLearningExamples, as in Lambda's benchmark (github.com/lambdal/deeplearning-benchmark): images
in torch's usual order, attention as separate products, Adam. Image models of timm: its own
benchmark of training (github.com/huggingface/pytorch-image-models, benchmark.py), fp16 autocast
without a scaler.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
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


def bert_base_fp16_o2(batch_size: int) -> Step:
    return _bert_o2(batch_size, 768, 12)


def bert_large_fp16_o2(batch_size: int) -> Step:
    return _bert_o2(batch_size, 1024, 24)


def bert_large_tf32(batch_size: int) -> Step:
    return _bert(batch_size, "tf32", 1024, 24)


def bert_large_fp32(batch_size: int) -> Step:
    return _bert(batch_size, "fp32", 1024, 24)


def ssd_fp16_amp(batch_size: int) -> Step:
    return _ssd(batch_size, "fp16-amp")


def ssd_tf32(batch_size: int) -> Step:
    return _ssd(batch_size, "tf32")


def ssd_fp32(batch_size: int) -> Step:
    return _ssd(batch_size, "fp32")


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
    model = _question_answering(width, layers)
    return step_of(model, _answers(batch_size), precision, "adam")


def _bert_o2(batch_size: int, width: int, layers: int) -> Step:
    """As apex's O2 trains: weights in fp16, which fused Adam updates by copies in fp32."""
    model = _question_answering(width, layers).half().train()
    loss_of = _answers(batch_size)
    weights = list(model.parameters())
    copies = [weight.detach().float() for weight in weights]
    update = torch.optim.Adam(copies, lr=1e-4, fused=True)

    def step() -> None:
        (1024.0 * loss_of(model).float()).backward()
        for copy in copies:
            copy.grad = torch.empty_like(copy)
        torch._foreach_copy_([copy.grad for copy in copies], [weight.grad for weight in weights])
        torch._foreach_mul_([copy.grad for copy in copies], 1 / 1024)
        update.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, copies)
        model.zero_grad(set_to_none=True)

    return step


def _question_answering(width: int, layers: int) -> nn.Module:
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    config._attn_implementation = "eager"
    return BertForQuestionAnswering(config)


def _answers(batch_size: int) -> Callable[[nn.Module], Tensor]:
    tokens = torch.randint(30_000, (batch_size, 384))
    starts, ends = (torch.randint(384, (batch_size,)) for _ in range(2))
    return lambda m: m(input_ids=tokens, start_positions=starts, end_positions=ends).loss


def _ssd(batch_size: int, precision: str) -> Step:
    images = torch.randn(batch_size, 3, 300, 300)
    boxes = torch.rand(batch_size, 4, _Detector.boxes)
    labels = torch.randint(_Detector.labels, (batch_size, _Detector.boxes))
    return step_of(
        _Detector(),
        lambda model: _detection_loss(*model(images), boxes, labels),
        precision,
        "momentum",
    )


class _Detector(nn.Module):
    """SSD300: ResNet-50 up to its third stage, which keeps 38x38 pixels, and five smaller maps."""

    labels = 81
    boxes = 8732  # 4 x 38^2 + 6 x (19^2 + 10^2 + 5^2) + 4 x (3^2 + 1)

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        resnet = torchvision.models.resnet50()
        first = resnet.layer3[0]
        for convolution in (first.conv1, first.conv2, first.downsample[0]):
            convolution.stride = (1, 1)
        widths, inner = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.backbone = nn.Sequential(*list(resnet.children())[:7])
        self.smaller = nn.ModuleList(
            nn.Sequential(
                *_convolved(widths[i], inner[i], kernel_size=1),
                *_convolved(
                    inner[i],
                    widths[i + 1],
                    kernel_size=3,
                    **({"padding": 1, "stride": 2} if i < 3 else {}),
                ),
            )
            for i in range(5)
        )
        counts = (4, 6, 6, 6, 4, 4)
        heads = list(zip(widths, counts, strict=True))
        self.places = nn.ModuleList(nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in heads)
        self.classes = nn.ModuleList(nn.Conv2d(w, self.labels * n, 3, padding=1) for w, n in heads)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.backbone(x)]
        for smaller in self.smaller:
            maps.append(smaller(maps[-1]))
        places = [
            head(m).reshape(m.size(0), 4, -1) for m, head in zip(maps, self.places, strict=True)
        ]
        classes = [
            head(m).reshape(m.size(0), self.labels, -1)
            for m, head in zip(maps, self.classes, strict=True)
        ]
        return torch.cat(places, 2).float(), torch.cat(classes, 2).float()


def _convolved(channels: int, out: int, **shape: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels, out, bias=False, **shape),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


def _detection_loss(places: Tensor, classes: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
    """Places of the boxes that hold something, and classes of these and three times as many."""
    holds = labels > 0
    positive = holds.sum(dim=1)
    off = functional.smooth_l1_loss(places, boxes, reduction="none").sum(dim=1)
    off = (holds.float() * off).sum(dim=1)
    wrong = functional.cross_entropy(classes, labels, reduction="none")
    _, order = wrong.detach().masked_fill(holds, 0).sort(dim=1, descending=True)
    _, rank = order.sort(dim=1)
    hardest = rank < (3 * positive).clamp(max=holds.size(1)).unsqueeze(-1)
    wrong = (wrong * (holds | hardest).float()).sum(dim=1)
    return ((off + wrong) / positive.float().clamp(min=1e-6)).mean()
