"""The other examples: published sizes, published arithmetic, and steps that run when made small."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import bert_large  # noqa: E402
import gpt2_medium  # noqa: E402
import latent_diffusion_unet  # noqa: E402
import llama_1b  # noqa: E402
import resnet50  # noqa: E402
import vit_b16  # noqa: E402
from common import parameters_of, training_step_of  # noqa: E402

pytestmark = pytest.mark.torch

PARAMETERS = [
    # Source: torchvision model pages, resnet50 and vit_b_16: num_params.
    (resnet50.ResNet, 25_557_032),
    (vit_b16.VisionTransformer, 86_567_656),
    # Source: the checkpoint openai-community/gpt2-medium, without its causal-mask buffers.
    (gpt2_medium.GPT2, 354_823_168),
    # Source: google-bert/bert-large-uncased: 335,141,888 in the encoder with pooler, and the heads:
    # 1,049,600 + 2,048 + 30,522 (masked tokens) + 2,050 (next sentence).
    (bert_large.Bert, 335_141_888 + 1_049_600 + 2_048 + 30_522 + 2_050),
    # Source: the checkpoint TinyLlama/TinyLlama-1.1B-Chat-v1.0.
    (llama_1b.Llama, 1_100_048_384),
    # Source: the U-Net of CompVis/stable-diffusion-v1-4 ("859.52 M" in its log).
    (latent_diffusion_unet.UNet, 859_520_964),
]


def image(size: int = 224) -> tuple[torch.Tensor]:
    return (torch.randn(1, 3, size, size),)


def ids(length: int) -> torch.Tensor:
    return torch.randint(2, (1, length))


def unet_inputs(size: int, text_width: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(1, 4, size, size), ids(1)[0], torch.randn(1, 77, text_width)


@pytest.mark.parametrize(("model", "parameters"), PARAMETERS)
def test_parameters(model: Callable[[], torch.nn.Module], parameters: int) -> None:
    with torch.device("meta"):
        assert parameters_of(model()) == parameters


def forward_multiply_adds(model: torch.nn.Module, *inputs: torch.Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops() / 2


def test_resnet_arithmetic() -> None:
    with torch.device("meta"):
        # Source: torchvision, resnet50: GFLOPS 4.09 (multiply-adds).
        assert forward_multiply_adds(resnet50.ResNet(), *image()) == pytest.approx(4.09e9, rel=2e-3)


def test_vit_arithmetic() -> None:
    with torch.device("meta"):
        # Source: torchvision, vit_b_16: GFLOPS 17.56 (multiply-adds).
        model = vit_b16.VisionTransformer()
        assert forward_multiply_adds(model, *image()) == pytest.approx(17.56e9, rel=2e-3)


def test_gpt2_arithmetic() -> None:
    with torch.device("meta"):
        model = gpt2_medium.GPT2()
        # A multiply-add per weight of a matrix and token (the tied one counts in the head;
        # 1,048,576 position entries and the 24 * 13 + 2 vectors of 1024 do not multiply),
        # and 2 * 1024 * 1024 per token and layer in attention, its causal half not left out.
        weights = 354_823_168 - 1_048_576 - (24 * 13 + 2) * 1024
        expected = 1024 * (weights + 24 * 2 * 1024 * 1024)
        assert forward_multiply_adds(model, ids(1024)) == pytest.approx(expected, rel=1e-6)


def test_unet_arithmetic() -> None:
    with torch.device("meta"):
        model = latent_diffusion_unet.UNet()
        total = forward_multiply_adds(model, *unet_inputs(64, 768))
    # Self attention, 2 * tokens**2 * channels each: 5 at 4096 tokens of 320, 5 at 1024 of 640, 5 at
    # 256 of 1280, 1 at 64 of 1280. Cross attention: 2 * tokens * 77 * channels.
    sites = [(5, 4096, 320), (5, 1024, 640), (5, 256, 1280), (1, 64, 1280)]
    attention = sum(count * 2 * tokens * (tokens + 77) * width for count, tokens, width in sites)
    # Source: published counts without attention's products are 339 to 340 G multiply-adds.
    assert total - attention == pytest.approx(339.5e9, rel=5e-3)


TINY = [
    (partial(resnet50.ResNet, depths=(1, 1), width=8, classes=4), partial(image, 32)),
    (partial(vit_b16.VisionTransformer, 32, 16, 32, 2, 2, 4), partial(image, 32)),
    (partial(gpt2_medium.GPT2, 32, 2, 2, 16, 50), lambda: (ids(16),)),
    (partial(bert_large.Bert, 32, 2, 2, 50), lambda: (ids(16), ids(16), ids(4))),
    (partial(llama_1b.Llama, 32, 2, 4, 2, 48, 50, 16), lambda: (ids(16),)),
    (partial(latent_diffusion_unet.UNet, 32, (1, 2), 16), partial(unet_inputs, 8, 16)),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16-amp", "fp16-amp", "bf16"])
@pytest.mark.parametrize(("model", "inputs"), TINY)
def test_a_small_step_changes_every_weight(
    model: Callable[[], torch.nn.Module],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    precision: str,
) -> None:
    network, arguments = model(), inputs()
    if precision == "bf16":
        arguments = [x.bfloat16() if x.is_floating_point() else x for x in arguments]

    def loss_of(network: torch.nn.Module) -> torch.Tensor:
        outputs = network(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return sum((output.float() - 1).square().mean() for output in outputs)

    step = training_step_of(network, loss_of, partial(torch.optim.AdamW, lr=1e-2), precision)
    before = [weight.detach().clone() for weight in network.parameters()]
    for _ in range(8):  # in fp16 the first scales may overflow, and the update is left out
        step()
    for old, new in zip(before, network.parameters(), strict=True):
        assert new.isfinite().all()
        assert new.grad is None
        assert not torch.equal(old, new)


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"precision must be one of .* got 'int8'"):
        training_step_of(torch.nn.Linear(1, 1), lambda _model: None, torch.optim.SGD, "int8")
