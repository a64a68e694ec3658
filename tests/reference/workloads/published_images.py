"""Image models of timm's training benchmark that torch and torchvision can build as well.

Named as timm names them, so that a published speed on another GPU has a measured one beside it
where timm is not installed. Built as timm 0.6 built them for its benchmark on torch 1.12:
attention as separate products, VGG's last layers as convolutions, no dropped paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Step, allow_tf32


def image_model(batch_size: int) -> Step:
    """The model named in OUTLAY_IMAGES: `name,image size,nchw or nhwc`."""
    name, size, layout = os.environ["OUTLAY_IMAGES"].split(",")
    return image_step(name, batch_size, int(size), layout)


def image_step(name: str, batch_size: int, size: int, layout: str) -> Step:
    """A step as timm's benchmark has it: fp16 autocast without a scaler, SGD with momentum."""
    model = MODELS[name]().train()
    x = torch.randn(batch_size, 3, size, size)
    y = torch.randint(1000, (batch_size,))
    if layout == "nhwc":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    allow_tf32(True)
    update = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        update.step()
        update.zero_grad()

    return step


class Attention(nn.Module):
    """Attention as separate products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    """A block of a vision transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """A vision transformer for images of 224 pixels."""

    def __init__(self, width: int, layers: int, heads: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (224 // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1) + self.positions
        out: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return out


def _vision(name: str, **choices: object) -> Callable[[], nn.Module]:
    """A model of torchvision."""

    def build() -> nn.Module:
        import torchvision

        model: nn.Module = torchvision.models.get_model(name, **choices)
        return model

    return build


def _vgg(name: str) -> Callable[[], nn.Module]:
    """A VGG whose first linear layers are convolutions over all that is left of the image."""

    def build() -> nn.Module:
        features = _vision(name, init_weights=False)().features
        return nn.Sequential(
            *features,
            nn.Conv2d(512, 4096, 7),
            nn.ReLU(inplace=True),
            nn.Conv2d(4096, 4096, 1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4096, 1000),
        )

    return build


def _vit(*sizes: int) -> Callable[[], nn.Module]:
    return lambda: VisionTransformer(*sizes)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ssl_resnet18": _vision("resnet18"),
    "resnet34": _vision("resnet34"),
    "tv_resnet50": _vision("resnet50"),
    "resnet101": _vision("resnet101"),
    "tv_resnet152": _vision("resnet152"),
    "resnext50_32x4d": _vision("resnext50_32x4d"),
    "resnext101_32x8d": _vision("resnext101_32x8d"),
    "resnext101_64x4d": _vision("resnext101_64x4d"),
    "tv_densenet121": _vision("densenet121"),
    "densenet169": _vision("densenet169"),
    "densenet201": _vision("densenet201"),
    "inception_v3": _vision("inception_v3", aux_logits=False, init_weights=False),
    "mobilenetv2_100": _vision("mobilenet_v2"),
    "mnasnet_050": _vision("mnasnet0_5"),
    "mnasnet_100": _vision("mnasnet1_0"),
    "efficientnetv2_s": _vision("efficientnet_v2_s", stochastic_depth_prob=0.0),
    "convnext_tiny": _vision("convnext_tiny", stochastic_depth_prob=0.0),
    "convnext_small": _vision("convnext_small", stochastic_depth_prob=0.0),
    "convnext_base": _vision("convnext_base", stochastic_depth_prob=0.0),
    "regnetx_008": _vision("regnet_x_800mf"),
    "regnetx_016": _vision("regnet_x_1_6gf"),
    "regnetx_032": _vision("regnet_x_3_2gf"),
    "vgg11": _vgg("vgg11"),
    "vgg11_bn": _vgg("vgg11_bn"),
    "vgg13_bn": _vgg("vgg13_bn"),
    "vit_tiny_patch16_224": _vit(192, 12, 3, 16),
    "vit_small_patch16_224": _vit(384, 12, 6, 16),
    "vit_base_patch16_224": _vit(768, 12, 12, 16),
    "vit_base_patch32_224": _vit(768, 12, 12, 32),
    "vit_large_patch16_224": _vit(1024, 24, 16, 16),
    "vit_large_patch32_224": _vit(1024, 24, 16, 32),
}
"""By timm's name of the row with the same layers."""
