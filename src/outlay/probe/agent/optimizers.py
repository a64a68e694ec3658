"""The optimizers of a training process, numbered in the order they were first seen."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from .channel import complain

# Bytes that tensors really take in a training process: each storage once, of sharded ones a part.
#
# What optimizers update is not all that stays: a base model under adapters, a teacher, an average
# of the weights, copies in 16 bits beside an optimizer's own. Modules that are alive tell of those.


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


class Optimizers:
    """Those that stepped; several that step as one have one number."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._kinds: list[tuple[str, int, int]] = []
        """By number: class, parameters, and how many step as one."""

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._numbers.clear()
        self._kinds.clear()

    def number(self, together: tuple[Any, ...]) -> int:
        """The number of one, or of several that stepped together."""
        for one in together:
            known = self._numbers.get(one)
            if known is not None:
                return known
        return self._meet(together)

    def _meet(self, together: tuple[Any, ...]) -> int:
        """A number; that of those that are gone and were like them, where there are such.

        Scripts that make an optimizer anew for every task (MAML) have few kinds of them.
        """
        names = sorted({type(one).__name__ for one in together})
        elements = sum(int(p.numel()) for one in together for p in parameters_of(one))
        kind = ", ".join(names), elements, len(together)
        taken = set(self._numbers.values())
        gone = [n for n, known in enumerate(self._kinds) if known == kind and n not in taken]
        number = gone[0] if gone else len(self._kinds)
        for one in together:
            self._numbers[one] = number
        if not gone:
            self._kinds.append(kind)
            self._tell(number)
        return number

    def tell_held(self, most_objects: float = math.inf) -> None:
        """Tell what stays from step to step and how much it takes, while there are optimizers."""
        held = {one: self._held(one) for one in list(self._numbers)}
        if not held:
            return
        self._tell_grown(held)
        everything = {id(p): p for parameters in held.values() for p in parameters}.values()
        told: dict[str, int | None] = {
            "parameters": sum(bytes_of(p) for p in everything),
            "gradients": sum(bytes_of(p) for p in everything if p.requires_grad),
            "states": sum(self._state_bytes(one) for one in held),
        }
        place = self._watch.device.place
        told["frozen"] = frozen_bytes(self._watch.torch, place, everything, most_objects)
        self._watch.channel.tell_values("held", told)

    def _held(self, optimizer: Any) -> list[Any]:
        """All parameters that were updated: some take only a part of them into each step."""
        known = [p for p in optimizer.state if isinstance(p, self._watch.torch.Tensor)]
        return list({id(p): p for p in [*parameters_of(optimizer), *known]}.values())

    def _tell_grown(self, held: dict[Any, list[Any]]) -> None:
        elements = dict.fromkeys(range(len(self._kinds)), 0)
        for optimizer, parameters in held.items():
            elements[self._numbers[optimizer]] += sum(int(p.numel()) for p in parameters)
        for number, (name, met, count) in enumerate(self._kinds):
            if elements[number] > met:
                self._kinds[number] = name, elements[number], count
                self._tell(number)

    def _state_bytes(self, optimizer: Any) -> int:
        states = [state for state in optimizer.state.values() if hasattr(state, "values")]
        tensor = self._watch.torch.Tensor
        values = [v for state in states for v in state.values() if isinstance(v, tensor)]
        return sum(map(bytes_of, values))

    def _tell(self, number: int) -> None:
        name, elements, _ = self._kinds[number]
        told = {"number": number, "name": name, "parameters": elements}
        self._watch.channel.tell_values("optimizer", told)


def parameters_of(optimizer: Any) -> list[Any]:
    """All parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]
