"""torchvision without its compiled part, which a CPU build of torch cannot load.

Its wheel needs CUDA libraries; without them its import fails, and that of every library which
imports it. Its operators are declared here in its place. What their results look like and how
they are differentiated, torchvision says itself, in Python.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXTENSION = "torchvision.extension"
_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SAMPLED = "int sampling_ratio"
_GRAD = "Tensor grad, Tensor rois"
_MAPPED = f"{_GRAD}, Tensor channel_mapping"
_FIVE = "(Tensor, Tensor, Tensor, Tensor, Tensor)"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORMED = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
# Source: torchvision/csrc/ops/*.cpp (0.28), where they are declared with these arguments.
_SCHEMAS = (
    "_cuda_version() -> int",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_POOLED}, {_SAMPLED}, bool aligned) -> Tensor",
    f"_roi_align_backward({_GRAD}, {_POOLED}, {_IMAGE}, {_SAMPLED}, bool aligned) -> Tensor",
    f"qroi_align(Tensor input, Tensor rois, {_POOLED}, {_SAMPLED}, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, {_IMAGE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOLED}, {_SAMPLED}) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({_MAPPED}, {_POOLED}, {_SAMPLED}, {_IMAGE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({_MAPPED}, {_POOLED}, {_IMAGE}) -> Tensor",
    f"deform_conv2d({_DEFORMED}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORMED}) -> {_FIVE}",
)

_declared: list[torch.library.Library] = []


def install() -> None:
    """Declare torchvision's operators when it is imported. Does nothing the second time."""
    is_installed = any(isinstance(finder, _ExtensionFinder) for finder in sys.meta_path)
    if _EXTENSION not in sys.modules and not is_installed:
        sys.meta_path.insert(0, _ExtensionFinder())


class _ExtensionFinder(importlib.abc.MetaPathFinder):
    """Finds the part of torchvision that loads its operators, with a loader of our own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of `torchvision.extension` with a loader around its own; None of any other."""
        if fullname != _EXTENSION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ExtensionLoader(spec.loader)
        return spec


class _ExtensionLoader(importlib.abc.Loader):
    """Loads it, and declares the operators where that failed."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As torchvision's own."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run it; where it could not load its operators, declare them."""
        self._loader.exec_module(module)
        if not module._has_ops():
            _declare()
            vars(module)["_has_ops"] = lambda: True


def _declare() -> None:
    if _declared:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        if not _is_declared(schema.partition("(")[0]):
            library.define(schema)
    library.impl("_cuda_version", lambda: -1, "CompositeImplicitAutograd")
    _declared.append(library)


def _is_declared(name: str) -> bool:
    """Whether somebody else, such as the user's own file, has declared an operator."""
    return bool(torch._C._jit_get_schemas_for_operator(f"torchvision::{name}"))
