"""The optimizers of a training process, numbered in the order they were first seen."""

from __future__ import annotations

import math
import weakref
from typing import Any

from .holding import bytes_of, frozen_bytes


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
