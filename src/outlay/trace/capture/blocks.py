"""The blocks a model is made of: what can be recomputed, gathered or placed one by one.

A block is a module with modules of its own and parameters, in a list or sequence of a model, of a
class that the model has at least twice: an encoder layer, a bottleneck, a stage of a U-Net.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor, nn

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def living_models() -> list[nn.Module]:
    """Modules on the GPU that are no part of another one, in the order they were made."""
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    parts = {id(child) for module in modules for child in module.children()}
    return [one for one in modules if id(one) not in parts and _is_on_gpu(one)]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The outermost blocks of a model, in order."""
    found = list(_in_lists(model))
    kinds = Counter(type(block) for block in found)
    return [block for block in found if kinds[type(block)] > 1]


def _in_lists(module: nn.Module) -> Iterator[nn.Module]:
    listed = isinstance(module, _LISTS)
    for child in module.children():
        if listed and not isinstance(child, _LISTS) and _is_composed(child):
            yield child
        else:
            yield from _in_lists(child)


def _is_composed(module: nn.Module) -> bool:
    """Whether it has modules and parameters of its own."""
    return next(module.children(), None) is not None and any(True for _ in module.parameters())


def _is_on_gpu(module: nn.Module) -> bool:
    return any(parameter.device.type == "cuda" for parameter in module.parameters())


def parameters_of(module: nn.Module) -> int:
    """How many parameters a module has."""
    return sum(parameter.numel() for parameter in module.parameters())


def first_tensor(value: object) -> Tensor | None:
    """The first tensor in what a module returns."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        return _first(value.values())
    if isinstance(value, (tuple, list)):
        return _first(value)
    return None


def _first(values: Iterable[object]) -> Tensor | None:
    return next((t for t in map(first_tensor, values) if t is not None), None)
