"""Public data sets and weights that a traced script would download: what they look like.

A trace needs the shapes of a batch, not its values. Where a data set of torchvision is not on this
machine, images of its size stand for it; they go through the script's own transforms. Weights that
a model would download are left out: the model stays as it was made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from outlay.trace.capture.wrappers import AttributePatches


class _Images(NamedTuple):
    """A data set of images: so large in pixels, so many, of so many classes."""

    width: int
    height: int
    mode: str
    samples: int
    classes: int


# Source: the documentation of torchvision.datasets and the papers it names; sizes of photographs
# differ from file to file, and a common one stands for them.
_KNOWN = {
    "MNIST": _Images(28, 28, "L", 60_000, 10),
    "FashionMNIST": _Images(28, 28, "L", 60_000, 10),
    "KMNIST": _Images(28, 28, "L", 60_000, 10),
    "QMNIST": _Images(28, 28, "L", 60_000, 10),
    "EMNIST": _Images(28, 28, "L", 112_800, 47),
    "USPS": _Images(16, 16, "L", 7_291, 10),
    "CIFAR10": _Images(32, 32, "RGB", 50_000, 10),
    "CIFAR100": _Images(32, 32, "RGB", 50_000, 100),
    "SVHN": _Images(32, 32, "RGB", 73_257, 10),
    "STL10": _Images(96, 96, "RGB", 5_000, 10),
    "CelebA": _Images(178, 218, "RGB", 162_770, 40),
    "ImageNet": _Images(500, 375, "RGB", 1_281_167, 1000),
    "Food101": _Images(512, 512, "RGB", 75_750, 101),
    "Flowers102": _Images(667, 500, "RGB", 1_020, 102),
    "OxfordIIITPet": _Images(500, 375, "RGB", 3_680, 37),
    "StanfordCars": _Images(700, 480, "RGB", 8_144, 196),
    "DTD": _Images(500, 500, "RGB", 1_880, 47),
    "EuroSAT": _Images(64, 64, "RGB", 27_000, 10),
    "Caltech101": _Images(300, 250, "RGB", 8_677, 101),
    "Caltech256": _Images(400, 350, "RGB", 30_607, 257),
    "LSUN": _Images(256, 341, "RGB", 126_227, 10),
    "Places365": _Images(256, 256, "RGB", 1_803_460, 365),
    "ImageFolder": _Images(500, 375, "RGB", 10_000, 1000),
}


def patch_datasets(patches: AttributePatches, notes: set[str]) -> None:
    """Let data sets of torchvision that are not on this machine be made all the same."""
    datasets = importlib.import_module("torchvision.datasets")
    for name, images in _KNOWN.items():
        kind = getattr(datasets, name, None)
        if kind is not None:
            # By a copy of its methods: an object can only become one of a class made like its own.
            methods = {key: vars(_StandIn)[key] for key in ("prepare", "__len__", "__getitem__")}
            stand_in = type(name, (kind,), {**methods, "images": images})
            patches.set(kind, "__init__", _or_stand_in(kind.__init__, stand_in, notes))


def _or_stand_in(original: Callable[..., None], stand_in: type, notes: set[str]) -> Any:
    def initialise(dataset: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(dataset, *args, **kwargs)
        except Exception:  # what a missing file is depends on the data set
            dataset.__class__ = stand_in
            dataset.prepare(*args, **kwargs)
            images = stand_in.images  # type: ignore[attr-defined]
            notes.add(
                f"{stand_in.__name__} is not on this machine: {images.samples:,} images of "
                f"{images.width}x{images.height} stand for it."
            )

    return initialise


class _StandIn:
    """A data set without files."""

    images: _Images

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Keep what the script said of it."""
        transforms = importlib.import_module("torchvision.datasets.vision").StandardTransform
        functions = [arg for arg in args if callable(arg)]
        self.root = str(args[0] if args else kwargs.get("root", ""))
        self.transform = kwargs.get("transform", functions[0] if functions else None)
        self.target_transform = kwargs.get("target_transform")
        self.transforms = transforms(self.transform, self.target_transform)
        self.targets = _Targets(self.images)
        classes = [f"class {number}" for number in range(self.images.classes)]
        # Of some data sets these are properties, which cannot be set.
        vars(self).update(classes=classes, class_to_idx={name: i for i, name in enumerate(classes)})

    def __len__(self) -> int:
        return self.images.samples

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        pictures = importlib.import_module("PIL.Image")
        picture = pictures.new(self.images.mode, (self.images.width, self.images.height))
        target: Any = self.targets[index]
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, self.target_transform(target) if self.target_transform else target


class _Targets:
    """Classes by turns."""

    def __init__(self, images: _Images) -> None:
        self._images = images

    def __len__(self) -> int:
        return self._images.samples

    def __getitem__(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return index % self._images.classes


# Weights


class _NoWeights(dict[str, Any]):
    """Weights that were not downloaded."""


def patch_weights(patches: AttributePatches, notes: set[str]) -> None:
    """Leave weights out that would be downloaded."""

    def download(url: str, *_: object, **__: object) -> _NoWeights:
        name = url.rpartition("/")[2]
        notes.add(f"Weights were not downloaded ({name}): the model is as it was made.")
        return _NoWeights()

    original = nn.Module.load_state_dict

    def load(module: nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state, _NoWeights):
            return nn.modules.module._IncompatibleKeys([], [])
        return original(module, state, *args, **kwargs)

    patches.set(torch.hub, "load_state_dict_from_url", download)
    patches.set(nn.Module, "load_state_dict", load)
