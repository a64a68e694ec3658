"""Steps with timm's, torchvision's and diffusers' own models, in small configurations."""

from __future__ import annotations

from collections.abc import Callable

import diffusers
import timm
import torch
import torch.nn.functional as F  # noqa: N812
import torchvision
from torch import nn

Step = Callable[[], object]


def _trained(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _classifier(name: str, batch_size: int, size: int = 64, **options: object) -> Step:
    model = timm.create_model(name, num_classes=10, **options).train()
    x, y = torch.randn(batch_size, 3, size, size), torch.randint(10, (batch_size,))
    return _trained(model, lambda: F.cross_entropy(model(x), y))


def resnet18(batch_size: int) -> Step:
    """timm's ResNet-18."""
    return _classifier("resnet18", batch_size)


def resnet18_channels_last(batch_size: int) -> Step:
    """In channels last and bf16 autocast."""
    model = timm.create_model("resnet18", num_classes=10).train()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(batch_size, 3, 64, 64).to(memory_format=torch.channels_last)

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return model(x).float().square().mean()

    return _trained(model, loss)


def convnext(batch_size: int) -> Step:
    """ConvNeXt of the smallest size."""
    return _classifier("convnext_atto", batch_size)


def vit(batch_size: int) -> Step:
    """A vision transformer."""
    return _classifier("vit_tiny_patch16_224", batch_size, img_size=64, depth=2)


def efficientnet(batch_size: int) -> Step:
    """Depthwise convolutions and squeeze-and-excite."""
    return _classifier("efficientnet_lite0", batch_size)


def swin(batch_size: int) -> Step:
    """Shifted windows."""
    return _classifier(
        "swin_tiny_patch4_window7_224", batch_size, img_size=64, window_size=4, depths=(2, 2, 2, 2)
    )


def unet(batch_size: int) -> Step:
    """diffusers' UNet2DModel learning to denoise."""
    model = diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    schedule = diffusers.DDPMScheduler()
    x = torch.randn(batch_size, 3, 16, 16)

    def loss() -> torch.Tensor:
        noise = torch.randn_like(x)
        times = torch.randint(0, 1000, (batch_size,), device=x.device)
        return F.mse_loss(model(schedule.add_noise(x, noise, times), times).sample, noise)

    return _trained(model, loss)


def unet_condition(batch_size: int) -> Step:
    """diffusers' UNet2DConditionModel with text."""
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    x, text = torch.randn(batch_size, 4, 16, 16), torch.randn(batch_size, 7, 32)
    times = torch.randint(0, 1000, (batch_size,))
    return _trained(model, lambda: model(x, times, text).sample.square().mean())


def autoencoder(batch_size: int) -> Step:
    """diffusers' AutoencoderKL."""
    model = diffusers.AutoencoderKL(block_out_channels=(32,), norm_num_groups=8)
    x = torch.randn(batch_size, 3, 16, 16)

    def loss() -> torch.Tensor:
        posterior = model.encode(x).latent_dist
        return F.mse_loss(model.decode(posterior.sample()).sample, x) + posterior.kl().mean()

    return _trained(model, loss)


def dit(batch_size: int) -> Step:
    """diffusers' diffusion transformer."""
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, num_layers=2, sample_size=8, norm_num_groups=4
    )
    x, times = torch.randn(batch_size, 4, 8, 8), torch.randint(0, 1000, (batch_size,))
    labels = torch.randint(0, 1000, (batch_size,))
    return _trained(
        model, lambda: model(x, timestep=times, class_labels=labels).sample.square().mean()
    )


def resnet18_torchvision(batch_size: int) -> Step:
    """torchvision's ResNet-18, which has the parameters of timm's."""
    model = torchvision.models.resnet18(num_classes=10)
    x = torch.randn(batch_size, 3, 64, 64)
    return _trained(model, lambda: model(x).square().mean())


def boxes(batch_size: int) -> Step:
    """Non-maximum suppression and pooling of regions."""
    features = nn.Conv2d(3, 8, 3, padding=1)
    x = torch.randn(batch_size, 3, 32, 32)
    candidates, scores = torch.rand(40, 4), torch.rand(40)

    def loss() -> torch.Tensor:
        kept = torchvision.ops.nms(candidates, scores, 0.5)
        per_class = torchvision.ops.batched_nms(
            candidates, scores, torch.zeros(40, dtype=torch.int64, device=x.device), 0.5
        )
        regions = torch.cat([torch.zeros_like(scores)[:, None], candidates], 1)
        result = torch.cat([regions[kept], regions[per_class]])
        return torchvision.ops.roi_align(features(x), result, (4, 4)).sum()

    return _trained(features, loss)


def faster_rcnn(_batch_size: int) -> Step:
    """torchvision's detector, two images with two boxes each whatever the batch size."""
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64
    ).train()
    images = [torch.rand(3, 64, 64) for _ in range(2)]
    targets = [
        {
            "boxes": torch.tensor([[4.0, 4.0, 20.0, 20.0], [8.0, 8.0, 40.0, 40.0]], device="cuda"),
            "labels": torch.ones(2, dtype=torch.int64),
        }
        for _ in range(2)
    ]
    return _trained(model, lambda: sum(model(images, targets).values()))
