"""Values of small tensors that follow from constants alone, as models are built from them.

A fake tensor has no values. But `torch.linspace(0, 0.1, depth)` gives each block its rate, and
widths of some models are rounded and read back: answered with 0, they would make another model.
So small tensors made of constants are computed for real, on the CPU, beside the fake ones. What
comes from data, from chance or from a large tensor stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from torch._ops import OpOverload

_MOST_ELEMENTS = 4096
_aten = torch.ops.aten
_FACTORIES = frozenset(
    {
        _aten.arange,
        _aten.linspace,
        _aten.logspace,
        _aten.full,
        _aten.zeros,
        _aten.ones,
        _aten.eye,
        _aten.scalar_tensor,
    }
)


def known_value(tensor: Tensor) -> Tensor | None:
    """The tensor's values on the CPU, or None where they are not known."""
    if not isinstance(tensor, FakeTensor):
        return tensor if isinstance(tensor, Tensor) and tensor.device.type == "cpu" else None
    if tensor.constant is not None:
        constant: Tensor = tensor.constant
        return constant
    value, version = getattr(tensor, "outlay_value", (None, -1))
    return value if version == _version(tensor) else None


def follow_values(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: object
) -> None:
    """Compute an operator's results for real, where all that goes in is known and small."""
    results = [t for t in tree_flatten(out)[0] if isinstance(t, FakeTensor)]
    if not results or sum(t.numel() for t in results) > _MOST_ELEMENTS:
        return
    if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable:
        return
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    if not tensors and func.overloadpacket not in _FACTORIES:
        return
    values = {id(t): known_value(t) for t in tensors}
    if any(value is None or value.numel() > _MOST_ELEMENTS for value in values.values()):
        return
    _attach(results, _computed(func, args, kwargs, values))


def _computed(
    func: OpOverload, args: Any, kwargs: dict[str, Any], values: dict[int, Tensor | None]
) -> list[Tensor]:
    def real(value: object) -> object:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return values[id(value)] if isinstance(value, Tensor) else value

    on_cpu = {key: real(value) for key, value in tree_map(real, kwargs).items()}
    if "device" in on_cpu:
        on_cpu["device"] = torch.device("cpu")
    try:
        with torch._C._DisableTorchDispatch():
            found = func(*tree_map(real, args), **on_cpu)
    except (RuntimeError, NotImplementedError, TypeError):
        return []
    return [t for t in tree_flatten(found)[0] if isinstance(t, Tensor)]


def _attach(results: list[FakeTensor], values: list[Tensor]) -> None:
    if len(results) != len(values):
        return
    for result, value in zip(results, values, strict=True):
        if result.shape == value.shape:
            result.outlay_value = value, _version(result)


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; a view shares it with what it is a view of."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return -2
