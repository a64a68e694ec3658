"""Constant values: those of tensors made from constants alone, which a trace has all the same.

A fake tensor has no values, but a mask made of `arange`, a list of lengths or a counter that only
ever had 1 added to it has them whatever the data. Each such storage has a twin in the host's
memory; operators that work on twins alone are run on them too. Views need nothing: they are read
out of the twin of their storage.
"""

from __future__ import annotations

import contextlib
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_iter, tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import UntypedStorage
    from torch._ops import OpOverload


Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_T = TypeVar("_T")

_MOST_ELEMENTS = 2**20
_MOST_FLOATS = 2**12
"""Masks and positions are kept up to the first size, floating-point values up to the second."""

_aten = torch.ops.aten
_FACTORIES = {
    _aten.arange,
    _aten.eye,
    _aten.full,
    _aten.linspace,
    _aten.ones,
    _aten.scalar_tensor,
    _aten.tril_indices,
    _aten.triu_indices,
    _aten.zeros,
}
_BY_SHAPE_ALONE = {
    _aten.full_like,
    _aten.new_full,
    _aten.new_ones,
    _aten.new_zeros,
    _aten.ones_like,
    _aten.zeros_like,
}


class ByStorage(Generic[_T]):
    """A mapping from storages to something known of them, for as long as the storage lives."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[UntypedStorage], _T]] = {}

    def get(self, tensor: Tensor) -> _T | None:
        """What is known of the tensor's storage."""
        if not self._entries or not isinstance(tensor, FakeTensor) or _has_no_storage(tensor):
            return None
        entry = self._entries.get(tensor.untyped_storage()._cdata)
        return None if entry is None else entry[1]

    def set(self, tensor: Tensor, value: _T) -> None:
        """Note something of the tensor's storage."""
        if _has_no_storage(tensor):
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._entries[key] = (weakref.ref(storage, lambda _: self._entries.pop(key, None)), value)

    def drop(self, tensor: Tensor) -> None:
        """Forget what is known of the tensor's storage."""
        if self._entries and not _has_no_storage(tensor):
            self._entries.pop(tensor.untyped_storage()._cdata, None)


class ConstantValues:
    """The twins of storages whose values are known."""

    def __init__(self) -> None:
        self._twins: ByStorage[UntypedStorage] = ByStorage()
        self.draws_on_host = False
        """Whether random numbers on the CPU are really drawn, as a script's own data needs them."""

    def of(self, tensor: Tensor) -> Tensor | None:
        """The values of a tensor, or None where only the data could tell."""
        if not isinstance(tensor, FakeTensor):
            small = tensor.numel() <= _MOST_ELEMENTS and tensor.device.type == "cpu"
            return tensor if small else None
        twin = self._twins.get(tensor)
        if twin is None:
            return None
        with without_dispatch():
            empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
            return empty.set_(twin, tensor.storage_offset(), tensor.shape, tensor.stride())

    def give(self, tensor: Tensor, values: Tensor) -> None:
        """Let a fake tensor with a storage of its own have these values."""
        most = _MOST_FLOATS if tensor.is_floating_point() else _MOST_ELEMENTS
        if not isinstance(tensor, FakeTensor) or tensor.numel() > most or tensor.is_complex():
            return
        with without_dispatch(), contextlib.suppress(RuntimeError):
            twin = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
            twin.copy_(values)
            if twin.untyped_storage().nbytes() == tensor.untyped_storage().nbytes():
                self._twins.set(tensor, twin.untyped_storage())

    def follow(self, func: OpOverload, args: Args, kwargs: Kwargs, out: object) -> None:
        """Do to the twins what an operator did to the tensors; call it when the operator ran."""
        places = written_arguments(func)
        if places:
            self._follow_in_place(func, args, kwargs, places)
        elif func.overloadpacket is _aten.lift_fresh:
            self._lift(args[0], out)
        elif not func.is_view and self._may_be_constant(func, args, out):
            self._follow_new(func, args, kwargs, out)

    def _lift(self, constant: Tensor, out: object) -> None:
        is_real = not isinstance(constant, FakeTensor)
        values = constant if is_real else getattr(out, "constant", None)
        if values is not None and isinstance(out, Tensor):
            self.give(out, values)

    def _may_be_constant(self, func: OpOverload, args: Args, out: object) -> bool:
        """Whether the results are small, and everything they depend on may be known."""
        packet = func.overloadpacket
        results = _tensors(out)
        if not results or any(result.numel() > _MOST_ELEMENTS for result in results):
            return False
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self.draws_on_host and all(result.device.type == "cpu" for result in results)
        if packet in _FACTORIES:
            return True
        if packet in _BY_SHAPE_ALONE:
            return not results[0].is_floating_point()
        first = next((arg for arg in tree_iter(args) if isinstance(arg, Tensor)), None)
        return first is not None and self.of(first) is not None

    def _follow_new(self, func: OpOverload, args: Args, kwargs: Kwargs, out: object) -> None:
        by_shape = func.overloadpacket in _BY_SHAPE_ALONE
        result = self._on_twins(func, args, kwargs, by_shape=by_shape)
        if result is None:
            return
        for tensor, values in zip(tree_iter(out), tree_iter(result), strict=False):
            are_tensors = isinstance(tensor, Tensor) and isinstance(values, Tensor)
            if are_tensors and tensor.shape == values.shape:
                self.give(tensor, values)

    def _follow_in_place(
        self, func: OpOverload, args: Args, kwargs: Kwargs, places: tuple[int | str, ...]
    ) -> None:
        written = list(_tensors_at(places, args, kwargs))
        if not any(self._twins.get(tensor) is not None for tensor in written):
            return
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if is_random or self._on_twins(func, args, kwargs) is None:
            for tensor in written:
                self._twins.drop(tensor)

    def _on_twins(
        self, func: OpOverload, args: Args, kwargs: Kwargs, *, by_shape: bool = False
    ) -> object | None:
        """The operator's result on values, or None where not all are known or it refuses."""
        unknown = False

        def real(value: object) -> object:
            nonlocal unknown
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if not isinstance(value, Tensor):
                return value
            values = self.of(value)
            if values is None and by_shape:
                with without_dispatch():
                    return torch.empty(value.shape, dtype=value.dtype, device="cpu")
            unknown = unknown or values is None
            return values

        real_args, real_kwargs = tree_map(real, (args, kwargs))
        if unknown:
            return None
        real_kwargs.pop("pin_memory", None)
        if "device" in {argument.name for argument in func._schema.arguments}:
            real_kwargs["device"] = torch.device("cpu")
        with without_dispatch(), torch.no_grad(), contextlib.suppress(Exception):
            result: object = func(*real_args, **real_kwargs)
            return result
        return None


@cache
def written_arguments(func: OpOverload) -> tuple[int | str, ...]:
    """Which of its arguments an operator writes into, by place or by name."""
    return tuple(
        argument.name if argument.kwarg_only else place
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _tensors_at(places: tuple[int | str, ...], args: Args, kwargs: Kwargs) -> Iterator[Tensor]:
    for place in places:
        if isinstance(place, int):
            value = args[place] if place < len(args) else None
        else:
            value = kwargs.get(place)
        yield from _tensors(value)


def _tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, Tensor)]


def without_dispatch() -> contextlib.AbstractContextManager[object]:
    """Compute on real tensors although fake ones are in force."""
    disabled: contextlib.AbstractContextManager[object] = torch._C._DisableTorchDispatch()
    return disabled


def _has_no_storage(tensor: Tensor) -> bool:
    return bool(tensor.layout != torch.strided)
