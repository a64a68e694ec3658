"""Bytes that tensors really take in a training process: each storage once, of sharded ones a part.

What optimizers update is not all that stays: a base model under adapters, a teacher, an average of
the weights, copies in 16 bits beside an optimizer's own. Modules that are alive tell of those.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator
from typing import Any

from .channel import complain


def bytes_of(tensor: Any) -> int:
    """What a tensor takes in this process."""
    return sum(int(part.numel()) * int(part.element_size()) for part in parts_of(tensor))


def parts_of(tensor: Any) -> list[Any]:
    """The plain tensors that one is made of: of a sharded one, what lies here."""
    try:
        if hasattr(tensor, "__tensor_flatten__"):
            inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        else:
            inner = [tensor._local_tensor] if hasattr(tensor, "_local_tensor") else []
    except Exception as error:
        complain(error)
        inner = []
    tensors = [one for one in inner if hasattr(one, "untyped_storage")]  # not a mesh of devices
    return [part for one in tensors for part in parts_of(one)] or [tensor]


MOST_OBJECTS = 1_000_000
"""Of Python's, to be gone through in a step; at the end, all are. They take some 0.2 s."""


def frozen_bytes(
    torch: Any, device: tuple[str, int | None], own: Iterable[Any], most: float = math.inf
) -> int | None:
    """Parameters and buffers of all modules on a device, beside the own ones of optimizers.

    Goes through all objects that Python knows; None where there are too many, or where it fails.
    """
    try:
        objects = gc.get_objects()
        if len(objects) > most:
            return None
        updated = list(_stored(own, device))
        modules = _alive(torch.nn.Module, objects)
        kept = {key: size for key, size, _ in [*_stored(_tensors(modules), device), *updated]}
        return max(sum(kept.values()) - sum(size for *_, size in updated), 0)
    except Exception as error:
        complain(error)
        return None


def _alive(module_class: Any, objects: list[Any]) -> list[Any]:
    # By `type` alone: `isinstance` asks objects that stand for others, and may wake them up.
    kinds = {kind for kind in set(map(type, objects)) if module_class in kind.__mro__}
    return [one for one in objects if type(one) in kinds]


def _tensors(modules: Iterable[Any]) -> Iterator[Any]:
    for module in modules:
        for name in ("_parameters", "_buffers"):
            yield from [one for one in vars(module).get(name, {}).values() if one is not None]


def _stored(
    tensors: Iterable[Any], device: tuple[str, int | None]
) -> Iterator[tuple[int, int, int]]:
    """Of tensors on a device: their storage, its bytes, and how many of them are the tensor's."""
    for part in {id(part): part for one in tensors for part in parts_of(one)}.values():
        try:
            storage = part.untyped_storage()
            size = int(part.numel()) * int(part.element_size())
        except Exception as error:  # not yet made, or none of its own
            complain(error)
            continue
        # By the storage: that of a tensor which only stands for one on a GPU lies elsewhere.
        kind, index = storage.device.type, storage.device.index
        if kind == device[0] and device[1] in (None, index):
            yield storage._cdata, int(storage.nbytes()), size
