"""`linear` as it runs on real tensors: a bias is added in place.

torch adds it out of place where it sees a tensor that is not plain, as fake ones are not, and that
takes memory for a second result. It only does so for inputs with gaps and more than two dimensions;
all others are one matrix product with the bias in it.
"""

from __future__ import annotations

import torch
from torch import Tensor

_registered: list[torch.library.Library] = []


def install() -> None:
    """Route `linear` on CUDA tensors through `_linear`. Does nothing the second time."""
    if not _registered:
        library = torch.library.Library("aten", "IMPL")
        library.impl("linear", _linear, "AutogradCUDA")
        _registered.append(library)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or x.dim() <= 2 or x.is_contiguous():
        result: Tensor = torch.ops.aten.linear.default.decompose(x, weight, bias)
        return result
    return torch.matmul(x, weight.t()).add_(bias)
