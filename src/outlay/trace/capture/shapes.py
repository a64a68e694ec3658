"""Results of operators whose shapes torch itself cannot tell without running them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from outlay.trace.capture.selection import Selection

_MOST_ELEMENTS = 2**24
"""Elements up to which an operator is run on the host to see what it returns."""


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,  # noqa: ARG001
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`aten._grouped_mm` in any precision; torch's own shapes are for bf16 alone.

    Two matrices share the dimension that is cut into groups; otherwise rows or columns are cut.
    """
    dtype = out_dtype or a.dtype
    if a.dim() == 2 and b.dim() == 2:
        groups = 1 if offs is None else offs.shape[0]
        return a.new_empty((groups, a.shape[0], b.shape[1]), dtype=dtype)
    if a.dim() == 3 and b.dim() == 3:
        return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=dtype)
    return a.new_empty((a.shape[-2], b.shape[-1]), dtype=dtype)


def as_on_the_host(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: Selection
) -> object:
    """What an operator returns, found by running it on the host; NotImplemented if it will not.

    For operators without a fake implementation: zeros stand for values nobody knows.
    """
    tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
    if sum(one.numel() for one in tensors) > _MOST_ELEMENTS or not tensors:
        return NotImplemented
    host = torch.device("cpu")

    def real(value: object) -> object:
        if isinstance(value, Tensor):
            return selection.answers(value)
        return host if isinstance(value, torch.device) else value

    def fake(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        device = next((one.device for one in tensors if one.device.type == "cuda"), host)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    real_args, real_kwargs = tree_map(real, (args, kwargs))
    with contextlib.suppress(Exception):
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            result = func(*real_args, **real_kwargs)
        return tree_map(fake, result)
    return NotImplemented
