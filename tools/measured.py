"""Measured operations as the prediction sees them: the rows of `measure_operations` as `Op`s.

The rows hold what torch's dispatcher saw: the operator's name, its tensors with dtypes and strides,
its other arguments. The formulas of `outlay.trace` count them exactly as in a trace.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.trace.formulas import cost_of
from outlay.trace.profile import Op, Precision
from outlay.trace.traffic import layout_of, tensors_in

ITEM_BYTES = {
    "float64": 8, "complex128": 16, "complex64": 8, "float32": 4, "bfloat16": 2, "float16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
PRECISIONS: dict[str, Precision] = {
    "float64": "fp64", "complex128": "fp64", "float32": "fp32", "complex64": "fp32",
    "float16": "fp16", "bfloat16": "bf16",
}  # fmt: skip
_LISTS = {"_foreach_addcdiv_": 3, "_foreach_addcmul_": 3, "_foreach_lerp_": 2, "_fused_": 4}
_TRACED_AS = {
    "aten._scaled_dot_product_cudnn_attention_backward": (
        "aten._scaled_dot_product_efficient_attention_backward"
    ),
    "aten.cudnn_batch_norm": "aten.native_batch_norm",
    "aten.cudnn_batch_norm_backward": "aten.native_batch_norm_backward",
}
"""Operators that a trace without a GPU has under another name."""


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type by its name."""

    name: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES.get(self.name, 4)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A tensor as it was recorded."""

    shape: tuple[int, ...]
    dtype: Dtype
    strides: tuple[int, ...]

    def stride(self) -> tuple[int, ...]:
        """Elements between neighbours, by dimension."""
        return self.strides


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An operation of a measured step: how often, how long each, and its kernels."""

    workload: str
    batch_size: int
    op: Op
    count: int
    time_s: float
    kernels: tuple[tuple[str, float], ...]


def steps_in(path: Path) -> Iterator[dict[str, Any]]:
    """The measured steps of a file, one a line; a file cut short gives those it has."""
    with gzip.open(path, "rt") as file:
        try:
            for line in file:
                yield json.loads(line)
        except (EOFError, json.JSONDecodeError):
            return


def operations_of(step: dict[str, Any]) -> list[Measured]:
    """Every operation of one measured step that started a kernel."""
    tf32 = _tf32_of(step["workload"])
    found = []
    for row in step["rows"]:
        op = _op_of(row["op"], tf32=tf32)
        if op is not None:
            found.append(
                Measured(
                    workload=step["workload"],
                    batch_size=step["batch_size"],
                    op=op,
                    count=row["count"],
                    time_s=row["us"] / 1e6,
                    kernels=tuple((name, us) for name, us in row["kernels"]),
                )
            )
    return found


def _tf32_of(workload: str) -> bool:
    """Whether fp32 products may use TF32: all but the steps that say fp32 in their name."""
    return "fp32" not in workload


def _op_of(row: Sequence[Any], *, tf32: bool) -> Op | None:
    name, given, made, rest = row
    if name == "none":
        return None
    plain = ".".join(name.split(".")[:2])
    if plain == "aten.cudnn_batch_norm_backward":
        given = [given[1], given[0], *given[2:]]  # the gradient first, as torch's own has it
    plain = _TRACED_AS.get(plain, plain)
    if "foreach" in plain or "fused_a" in plain or any(one[0] == "list" for one in given):
        return _many(name, given, made)
    arguments = _arguments(plain, [_tensor(one) for one in given], rest)
    out = [_tensor(one) for one in made]
    several = len(out) != 1 or plain == "aten.convolution_backward"
    result: object = tuple(out) if several else out[0]
    hint = "pointwise"
    cost = cost_of(plain, arguments, {}, result, hint=hint)  # type: ignore[arg-type]
    tensors = [*tensors_in(*arguments), *out]
    if cost.kind == "rnn":
        tensors = [one for one in map(_tensor, given) if len(one.shape) == 3]
    precision = _precision(tensors)
    if precision == "fp32" and tf32 and cost.kind in ("gemm", "conv", "rnn", "attention"):
        precision = "tf32"
    return Op(
        name=plain,
        kind=cost.kind,
        phase="forward",
        precision=precision,
        count=1,
        flops=cost.flops,
        moved_bytes=cost.moved_bytes,
        launches=cost.launches,
        layout=layout_of(cost.kind, plain, tensors, len(out)),
        shapes=tuple(tuple(one.shape) for one in tensors[:16]),
    )


def _tensor(row: Sequence[Any]) -> Recorded:
    shape, dtype, strides = row
    return Recorded(tuple(shape), Dtype(dtype), tuple(strides) or (1,) * len(shape))


def _precision(tensors: Sequence[Any]) -> Precision:
    names = (one.dtype.name for one in tensors)
    return next((PRECISIONS[name] for name in names if name in PRECISIONS), "int")


def _arguments(name: str, tensors: list[Recorded], rest: str) -> list[object]:
    """The operator's arguments in their places, as far as the formulas look at them."""
    try:
        others = json.loads(rest)
    except json.JSONDecodeError:
        others = []
    if name == "aten.convolution":
        return [*tensors[:2], tensors[2] if len(tensors) > 2 else None, *others]
    if name == "aten.convolution_backward":
        bias = [] if len(others) == 8 else [None]
        return [*tensors[:3], *bias, *others]
    if "_cudnn_rnn" in name:
        weights = [one for one in tensors[1:] if len(one.shape) < 3]
        return [tensors[0], weights]
    if name.endswith("_attention"):
        bias_given = len(tensors) > 3 and len(tensors[3].shape) == 4
        return [*tensors[:3], tensors[3] if bias_given else None, *others]
    if name.endswith("_attention_backward"):
        causal = bool(others) and others[-1] is True
        return [*tensors[:4], None, None, None, None, None, 0.0, None, causal]
    return list(tensors)


def _many(full_name: str, given: Sequence[Any], made: Sequence[Any]) -> Op | None:
    """A multi-tensor update, whose lists were counted together."""
    name = ".".join(full_name.split(".")[:2])
    if "foreach" not in name and "fused" not in name:
        return None
    counted = [one for one in (*given, *made) if one[0] == "list"]
    if counted:
        _, tensors, elements, dtypes = counted[0]
    else:
        tensors, dtypes = len(given), [given[0][1]]
        elements = sum(math.prod(one[0]) for one in given)
    lists = next((n for start, n in _LISTS.items() if name.startswith(f"aten.{start}")), 0)
    if not lists:
        lists = 2 if full_name.endswith(".List") and tensors > 1 else 1
    size = ITEM_BYTES.get(dtypes[0], 4)
    per_list = elements / lists
    written = per_list * (3 if "fused" in name else 1)
    return Op(
        name=name,
        kind="optimizer",
        phase="optimizer",
        precision="fp32",
        count=1,
        flops=0.0,
        moved_bytes=size * (elements + written),
        launches=max(math.ceil(per_list / 65_536 / 320), math.ceil(tensors / lists / 64)),
        shapes=((int(elements),),),
    )
