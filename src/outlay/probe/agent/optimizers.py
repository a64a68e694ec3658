"""The optimizers of a training process, and the memory that stays from one step to the next.

`Optimizers` numbers them in the order of their first steps. What they update is not all that
stays: a base model under adapters, a teacher, an average of the weights, copies in 16 bits beside
an optimizer's own. Modules that are alive show those.
"""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from .backward import UnknownOptimizer
from .channel import log_error
from .protocol import UNKNOWN_OPTIMIZER, OptimizerInfo, PersistentMemory

# Bytes of tensors: each storage counts once, and of a sharded tensor the part that lies here


def tensor_bytes(tensor: Any) -> int:
    """What a tensor takes in this process."""
    return sum(int(part.numel()) * int(part.element_size()) for part in plain_tensors(tensor))


def plain_tensors(tensor: Any) -> list[Any]:
    """The plain tensors that a tensor is made of: of a sharded one, what lies here."""
    try:
        if hasattr(tensor, "__tensor_flatten__"):
            inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        else:
            inner = [tensor._local_tensor] if hasattr(tensor, "_local_tensor") else []
    except Exception as error:
        log_error(error)
        inner = []
    # Not a mesh of devices, which is among them as well
    tensors = [part for part in inner if hasattr(part, "untyped_storage")]
    return [plain for part in tensors for plain in plain_tensors(part)] or [tensor]


MOST_OBJECTS = 1_000_000
"""Python objects to go through in a step; at the end, all are. They take some 0.2 s."""


def frozen_bytes(
    torch: Any, device: tuple[str, int | None], trained: Iterable[Any], most: float = math.inf
) -> int | None:
    """Parameters and buffers of all modules on a device, but for those that optimizers train.

    Goes through all objects that Python knows; None where there are too many, or where it fails.
    """
    try:
        objects = gc.get_objects()
        if len(objects) > most:
            return None
        updated = list(_stored(trained, device))
        modules = _instances(torch.nn.Module, objects)
        storages = {key: size for key, size, _ in [*_stored(_tensors(modules), device), *updated]}
        return max(sum(storages.values()) - sum(size for *_, size in updated), 0)
    except Exception as error:
        log_error(error)
        return None


def _instances(module_class: Any, objects: list[Any]) -> list[Any]:
    # By `type` alone: `isinstance` asks objects that stand for others, and may wake them up.
    kinds = {kind for kind in set(map(type, objects)) if module_class in kind.__mro__}
    return [instance for instance in objects if type(instance) in kinds]


def _tensors(modules: Iterable[Any]) -> Iterator[Any]:
    for module in modules:
        for name in ("_parameters", "_buffers"):
            tensors = vars(module).get(name, {}).values()
            yield from [tensor for tensor in tensors if tensor is not None]


def _stored(
    tensors: Iterable[Any], device: tuple[str, int | None]
) -> Iterator[tuple[int, int, int]]:
    """Of tensors on a device: their storage, its bytes, and how many of them are the tensor's."""
    parts = {id(part): part for tensor in tensors for part in plain_tensors(tensor)}
    for part in parts.values():
        try:
            storage = part.untyped_storage()
            size = int(part.numel()) * int(part.element_size())
        except Exception as error:  # not yet made, or none of its own
            log_error(error)
            continue
        # By the storage: that of a tensor which only stands for one on a GPU lies elsewhere.
        kind, index = storage.device.type, storage.device.index
        if kind == device[0] and device[1] in (None, index):
            yield storage._cdata, int(storage.nbytes()), size


# The optimizers


def optimizer_key(optimizer: Any) -> int:
    """By what it trains: one that wraps another, and trains the same, is the same."""
    return next((id(parameter) for parameter in parameters_of(optimizer)), 0)


def live_optimizers(torch: Any, most: float = MOST_OBJECTS) -> set[int]:
    """The keys of all optimizers of torch's that are alive; none where there is no telling."""
    try:
        objects = gc.get_objects()
        if len(objects) > most:
            return set()
        alive = _instances(torch.optim.Optimizer, objects)
        return {optimizer_key(optimizer) for optimizer in alive} - {0}
    except Exception as error:
        log_error(error)
        return set()


class Optimizers:
    """The optimizers that have stepped; several that step as one have one number."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._kinds: list[tuple[str, int, int]] = []
        """By number: class, parameters, and how many step as one."""

    def reset(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._numbers.clear()
        self._kinds.clear()

    def number(self, optimizers: tuple[Any, ...]) -> int:
        """The number of an optimizer, or of several that stepped together."""
        for optimizer in optimizers:
            number = self._numbers.get(optimizer)
            if number is not None:
                return number
        return self._add(optimizers)

    def _add(self, optimizers: tuple[Any, ...]) -> int:
        """A number for new ones; that of others of their kind that are gone, if there are such.

        Scripts that make an optimizer anew for every task (MAML) have few kinds of them.
        """
        names = sorted({_name_of(optimizer) for optimizer in optimizers})
        parameters = [p for optimizer in optimizers for p in parameters_of(optimizer)]
        elements = sum(int(p.numel()) for p in parameters)
        kind = ", ".join(names), elements, len(optimizers)
        used = set(self._numbers.values())
        free = [n for n, other in enumerate(self._kinds) if other == kind and n not in used]
        number = free[0] if free else len(self._kinds)
        for optimizer in optimizers:
            self._numbers[optimizer] = number
        if not free:
            self._kinds.append(kind)
            self._report(number)
        return number

    def report_memory(self, most_objects: float = math.inf) -> None:
        """Report the bytes that stay from step to step, while there are optimizers."""
        trained = {optimizer: self._trained(optimizer) for optimizer in list(self._numbers)}
        if not trained:
            return
        self._report_grown(trained)
        parameters = {id(p): p for tensors in trained.values() for p in tensors}.values()
        with_state = {id(p) for optimizer in trained for p in optimizer.state}
        place = self._watch.device.place
        self._watch.channel.report(
            PersistentMemory(
                parameters=sum(tensor_bytes(p) for p in parameters),
                # Frozen between its turns in a step, a parameter still has its state.
                gradients=sum(
                    tensor_bytes(p)
                    for p in parameters
                    if p.requires_grad or p.grad is not None or id(p) in with_state
                ),
                optimizer_states=sum(self._state_bytes(optimizer) for optimizer in trained),
                frozen=frozen_bytes(self._watch.torch, place, parameters, most_objects),
            )
        )

    def _trained(self, optimizer: Any) -> list[Any]:
        """All parameters that were updated: some take only a part of them into each step."""
        with_state = [p for p in optimizer.state if isinstance(p, self._watch.torch.Tensor)]
        return list({id(p): p for p in [*parameters_of(optimizer), *with_state]}.values())

    def _report_grown(self, trained: dict[Any, list[Any]]) -> None:
        """Report those anew that have got more parameters."""
        elements = dict.fromkeys(range(len(self._kinds)), 0)
        for optimizer, parameters in trained.items():
            elements[self._numbers[optimizer]] += sum(int(p.numel()) for p in parameters)
        for number, (name, reported, count) in enumerate(self._kinds):
            if elements[number] > reported:
                self._kinds[number] = name, elements[number], count
                self._report(number)

    def _state_bytes(self, optimizer: Any) -> int:
        states = [state for state in optimizer.state.values() if hasattr(state, "values")]
        tensor = self._watch.torch.Tensor
        values = [v for state in states for v in state.values() if isinstance(v, tensor)]
        return sum(map(tensor_bytes, values))

    def _report(self, number: int) -> None:
        name, elements, _ = self._kinds[number]
        self._watch.channel.report(OptimizerInfo(number=number, name=name, parameters=elements))


def _name_of(optimizer: Any) -> str:
    is_unknown = isinstance(optimizer, UnknownOptimizer)
    return UNKNOWN_OPTIMIZER if is_unknown else type(optimizer).__name__


def parameters_of(optimizer: Any) -> list[Any]:
    """All parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]
