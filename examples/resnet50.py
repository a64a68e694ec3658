"""ResNet-50 on ImageNet-size images: SGD with momentum under bf16 autocast.

He et al., "Deep Residual Learning", arXiv 1512.03385, with the stride in the 3x3 convolution as
torchvision has it (v1.5). 25,557,032 parameters; 4.09 G multiply-adds forward an image. A sample
is an image of 224x224 and its class of 1000.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of


def conv_norm(inputs: int, outputs: int, kernel_size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, and batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel_size, stride, kernel_size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = conv_norm(inputs, width, 1)
        self.conv2 = conv_norm(width, width, 3, stride)
        self.conv3 = conv_norm(width, outputs, 1)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """A map [B, 4 width, H / stride, W / stride]."""
        y = F.relu(self.conv1(x), inplace=True)
        y = F.relu(self.conv2(y), inplace=True)
        return F.relu(self.conv3(y) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, and a linear classifier."""

    def __init__(
        self, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 7, stride=2)
        self.stages = nn.Sequential()
        inputs = width
        for level, depth in enumerate(depths):
            inner = width * 2**level
            for index in range(depth):
                stride = 2 if level > 0 and index == 0 else 1
                self.stages.append(Bottleneck(inputs, inner, stride))
                inputs = 4 * inner
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [B, classes] of images [B, 3, H, W]."""
        x = F.max_pool2d(F.relu(self.stem(images), inplace=True), 3, stride=2, padding=1)
        return self.head(self.stages(x).mean((2, 3)))


def training_step(
    batch_size: int, precision: str = "bf16-amp", channels_last: bool = False
) -> Step:
    """One step at a batch size, in NCHW or in channels-last layout."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = ResNet().to(memory_format=layout)
    images = torch.randn(batch_size, 3, 224, 224).to(memory_format=layout)
    images = images.bfloat16() if precision == "bf16" else images
    labels = torch.randint(1000, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(images).float(), labels)

    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4)
    return training_step_of(model, loss_of, sgd, precision)
