"""timm, torchvision and diffusers against published counts and hand arithmetic, at batch size 8."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.sweep import count, flops, notes_text, report

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

FILE = Path(__file__).with_name("steps_vision.py")


@pytest.mark.parametrize(
    ("step", "published", "head"),
    [
        # parameters for 1000 classes as timm and torchvision publish them, and the head's width
        ("resnet18", 11_689_512, 512),
        ("resnet18_torchvision", 11_689_512, 512),
        ("convnext", 3_695_520, 320),
        ("efficientnet", 4_652_008, 1280),
    ],
)
def test_parameters(step: str, published: int, head: int) -> None:
    # ten classes instead of a thousand: 990 rows of the head and their biases less
    assert report(FILE, step).parameters == published - 990 * (head + 1)


@pytest.mark.parametrize("step", ["resnet18", "resnet18_torchvision", "resnet18_channels_last"])
def test_resnet18_against_the_published_1_81_gigamacs(step: str) -> None:
    # 1,814,073,344 multiply-adds at 224 x 224, of which 512,000 are the head's; the rest grows
    # with the area, and 64 x 64 is 4 / 49 of it. Ten classes take 5,120.
    forward = 2 * 8 * ((1_814_073_344 - 512_000) * 4 // 49 + 5_120)
    # Backward doubles it, less the gradient of the images: 32 x 32 x 64 outputs of 3 * 7 * 7
    assert report(FILE, step).flops == 3 * forward - 2 * 8 * 32 * 32 * 64 * 147


def test_vision_transformer_by_hand() -> None:
    result = report(FILE, "vit")
    # patches 192 * 768 + 192, class and 17 places of 192; two blocks of 192 * 576 + 576,
    # 192 * 192 + 192, 192 * 768 + 768, 768 * 192 + 192 and two norms; a norm and a head
    block = 111_168 + 37_056 + 148_224 + 147_648 + 2 * 384
    assert result.parameters == 147_648 + 18 * 192 + 2 * block + 384 + 1930
    # scores and weighted values: 2 * 8 * 17 * 17 * (192 + 192) a block
    assert flops(result, "attention", phase="forward") == 2 * (2 * 8 * 17 * 17 * 384)


def test_swin_attends_in_windows() -> None:
    result = report(FILE, "swin")
    # timm takes separate products here: a softmax in each of eight blocks
    assert count(result, "aten._softmax", "forward") == 8
    # 16 x 16 patches in windows of 4 x 4: 128 windows of 16, 3 heads of 32, in two blocks
    scores = [op for op in result.ops if op.name == "aten.bmm" and op.phase == "forward"]
    first = [op for op in scores if op.shapes[-1] == (128 * 3, 16, 16)]
    assert sum(op.flops for op in first) == 2 * (2 * 128 * 3 * 16 * 16 * 32)


@pytest.mark.parametrize(
    ("step", "attentions"),
    [
        ("unet", 1 + 1 + 2),  # a block down, the middle, two up
        ("unet_condition", 2 * (1 + 1 + 2)),  # each looks at itself and at the text
        ("autoencoder", 2),  # in the middle of encoder and decoder
        ("dit", 2),
    ],
)
def test_diffusers_attentions(step: str, attentions: int) -> None:
    result = report(FILE, step)
    assert count(result, "aten._scaled_dot_product_efficient_attention", "forward") == attentions
    assert result.unknown_ops == {}


def test_diffusers_by_hand() -> None:
    # 8 x 8 latents in patches of 2 x 2: 16 tokens of 4 heads of 8, in two layers
    dit = report(FILE, "dit")
    assert flops(dit, "attention", phase="forward") == 2 * (2 * 8 * 4 * 16 * 16 * (8 + 8))
    # the first convolution of the U-Net: 16 x 16 positions of 3 to 32 channels, kernel 3
    (first,) = [
        op
        for op in report(FILE, "unet").ops
        if op.name == "aten.convolution" and op.shapes[:2] == ((8, 3, 16, 16), (32, 3, 3, 3))
    ]
    assert first.flops == 2 * 8 * 256 * 32 * 27


def test_half_of_the_boxes_are_kept() -> None:
    result = report(FILE, "boxes")
    (pooled,) = [op for op in result.ops if op.name == "torchvision.roi_align"]
    # 20 of 40 candidates, twice: regions of 8 x 4 x 4
    assert pooled.shapes[-1] == (40, 8, 4, 4)
    assert "nms at torchvision/ops/boxes.py" in notes_text(result)
    assert "from steps_vision.py" in notes_text(result)


def test_a_detector_is_traced_with_its_assumptions_named() -> None:
    result = report(FILE, "faster_rcnn")
    assert count(result, "torchvision.nms") == 2  # one an image
    assert "torchvision/models/detection/rpn.py" in notes_text(result)
    assert result.unknown_ops == {}
