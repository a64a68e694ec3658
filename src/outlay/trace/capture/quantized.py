"""Weights of 4 bits, as bitsandbytes keeps and multiplies them on a GPU.

A weight is a subclass of `Tensor` that replaces its own data when it moves to the GPU: fake tensors
become such subclasses here (`_make_subclass`). Its product is one operator in bitsandbytes, which
on a GPU is two kernels where there are many rows: the weight is written out in 16 bits, and
multiplied. Their memory and traffic are seen only if the operator runs as those two.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from outlay.trace.capture.wrappers import AttributePatches

_FEWEST_ROWS = 513
"""From so many rows on the weight is written out.

Source: bitsandbytes 0.50.2, backends/cuda/ops.py. Ignores that small weights (below 4 M values) are
multiplied from their 4 bits up to 1536 rows on an A100, and written out from fewer rows on others.
"""
_SCALES_IN_A_BLOCK = 256

_libraries: list[torch.library.Library] = []
_make_real_subclass = Tensor._make_subclass


def patch_subclasses(patches: AttributePatches) -> None:
    """Let fake tensors become subclasses of `Tensor`, with the methods of both."""
    patches.set(Tensor, "_make_subclass", staticmethod(_subclass_of_fake))


def patch_bitsandbytes(patches: AttributePatches) -> None:
    """Run products with 4-bit weights as a GPU would, once bitsandbytes is imported; for good.

    State of optimizers in paged memory is kept on the host: CUDA moves it to the GPU and back, and
    torch's allocator has no part in it.
    """
    functional = sys.modules.get("bitsandbytes.functional")
    if functional is None:
        return
    patches.set(functional, "get_paged", _on_the_host)
    for name in ("prefetch_tensor", "fill"):
        patches.set(functional, name, lambda *_, **__: None)
    if not _libraries:
        library = torch.library.Library("bitsandbytes", "IMPL")
        if hasattr(torch.ops.bitsandbytes, "gemm_4bit"):  # since 0.50
            library.impl("gemm_4bit", _product, "AutogradCUDA")
        _libraries.append(library)


def _on_the_host(*shape: int, dtype: torch.dtype = torch.float32, **_: object) -> Tensor:
    tensor: Any = torch.zeros(shape, dtype=dtype, device="cpu")
    tensor.is_paged, tensor.page_deviceid = True, 0
    return tensor


def values_of(parameter: Tensor) -> int:
    """How many values a parameter has: of a packed one, those it was made of."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return parameter.numel() if shape is None else math.prod(shape)


def _subclass_of_fake(
    kind: type[Tensor], data: Tensor, require_grad: bool = False, **options: Any
) -> Tensor:
    if not isinstance(data, FakeTensor):
        real: Tensor = _make_real_subclass(kind, data, require_grad, **options)
        return real
    tensor = data.detach()
    tensor.__class__ = _fake_kind(kind)
    if issubclass(kind, nn.Parameter):
        tensor._is_param = True
    return tensor.requires_grad_(require_grad)


_fake_kinds: dict[type[Tensor], type[Tensor]] = {}


def _fake_kind(kind: type[Tensor]) -> type[Tensor]:
    if kind not in _fake_kinds:
        _fake_kinds[kind] = type(kind.__name__, (kind, FakeTensor), {})
    return _fake_kinds[kind]


def _product(
    x: Tensor,
    packed: Tensor,
    shape: Sequence[int],
    scales: Tensor,
    block: int,
    quant_type: str,
    bias: Tensor | None = None,
    absmax_8bit: Tensor | None = None,
    absmax_code: Tensor | None = None,
    absmax_offset: Tensor | None = None,
) -> Tensor:
    """x [rows, inputs] times the weight [outputs, inputs]."""
    operators = torch.ops.bitsandbytes
    rows = x.numel() // x.shape[-1]
    if rows < _FEWEST_ROWS:
        with torch._C._AutoDispatchBelowAutograd():
            one: Tensor = operators.gemm_4bit.default(
                x, packed, shape, scales, block, quant_type, bias,
                absmax_8bit, absmax_code, absmax_offset,
            )  # fmt: skip
        return one
    if absmax_8bit is not None:  # the scales have 8 bits, and a scale for each block of theirs
        scales = operators.dequantize_blockwise.default(
            absmax_8bit, scales, absmax_code, _SCALES_IN_A_BLOCK, torch.float32
        )
        scales = scales + absmax_offset
    weight = operators.dequantize_4bit.default(packed, scales, block, quant_type, shape, x.dtype)
    result: Tensor = nn.functional.linear(x, weight, bias)
    return result
