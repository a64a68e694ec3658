"""One dispatched operator as an `Op`: its kind, amounts, precision, layout and shapes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.formulas import Cost, Hint, cost_of
from outlay.trace.layout import layout_of
from outlay.trace.moved import tensors_in
from outlay.trace.trace import Kind, Op, Phase, Precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._ops import OpOverload

_PRECISIONS: dict[torch.dtype, Precision] = {
    torch.float64: "fp64",
    torch.complex128: "fp64",
    torch.float32: "fp32",
    torch.complex64: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_SHAPES_AT_MOST = 16
_aten = torch.ops.aten


def op_of(
    func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object, name: str = ""
) -> tuple[Op, bool]:
    """The operator as it ran, and whether there is a formula for it.

    `name` is that of the operator whose formula to take, where it is not its own.
    """
    name = name or str(func.overloadpacket)
    cost = cost_of(name, args, kwargs, out, hint=_hint(func))
    made = list(tensors_in(out))
    tensors: list[Tensor] = [*tensors_in(*args, *kwargs.values()), *made]
    op = Op(
        name=name,
        kind=cost.kind,
        phase=phase,
        precision=precision_of(cost.kind, tensors),
        count=1,
        flops=cost.flops,
        moved_bytes=cost.moved_bytes,
        launches=cost.launches,
        layout=layout_of(cost.kind, name, tensors, len(made)),
        shapes=_shapes(cost, tensors),
    )
    return op, cost.known


@cache
def _hint(func: OpOverload) -> Hint:
    """What torch says of an operator; of one in place, what it says of its plain form."""
    if func.is_view:
        return "view"
    name = func._schema.name.partition("::")[2]
    plain = getattr(_aten, name[:-1], None) if name.endswith("_") else None
    forms = [func, *(getattr(plain, one) for one in (plain.overloads() if plain else ()))]
    return "pointwise" if any(torch.Tag.pointwise in one.tags for one in forms) else ""


def precision_of(kind: Kind, tensors: list[Tensor]) -> Precision:
    """Of the first floating-point tensor; fp32 products follow the two TF32 switches."""
    dtype = next((t.dtype for t in tensors if t.dtype in _PRECISIONS), None)
    if dtype is None:
        return "int"
    if dtype == torch.float32 and _tf32_allowed(kind):
        return "tf32"
    return _PRECISIONS[dtype]


def _tf32_allowed(kind: Kind) -> bool:
    if kind in ("conv", "rnn"):
        operators = torch.backends.cudnn.conv if kind == "conv" else torch.backends.cudnn.rnn
        return _allows(operators, lambda: torch.backends.cudnn.allow_tf32)
    if kind in ("gemm", "attention"):
        matmul = torch.backends.cuda.matmul
        return _allows(matmul, lambda: matmul.allow_tf32)
    return False


def _allows(operators: object, old_switch: Callable[[], bool]) -> bool:
    """torch has an old and a new switch, and refuses to read the old one once the new is used."""
    try:
        return bool(old_switch())
    except RuntimeError:
        return getattr(operators, "fp32_precision", "") == "tf32"


def _shapes(cost: Cost, tensors: list[Tensor]) -> tuple[tuple[int, ...], ...]:
    """Shapes of arguments and results; of a multi-tensor update only the elements in total."""
    if cost.launches == 0:
        return ()
    if cost.kind == "optimizer":
        return ((sum(tensor.numel() for tensor in tensors),),)
    if cost.kind == "rnn":  # the input, then the states, whatever the number of weights
        tensors = [tensor for tensor in tensors if tensor.dim() == 3]
    return tuple(tuple(tensor.shape) for tensor in tensors[:_SHAPES_AT_MOST])
