"""Steps with weights of 4 bits."""

from __future__ import annotations

from collections.abc import Callable

import bitsandbytes
import torch
from torch import nn

INPUTS, OUTPUTS = 512, 256


def _packed(*, double: bool) -> nn.Module:
    layer = bitsandbytes.nn.Linear4bit(
        INPUTS,
        OUTPUTS,
        bias=False,
        compute_dtype=torch.bfloat16,
        compress_statistics=double,
        quant_type="nf4",
    )
    return layer.to("cuda")


def many_rows(batch_size: int) -> Callable[[], object]:
    """1024 rows a sample through one frozen layer, back to what goes in."""
    layer = _packed(double=True)
    x = torch.zeros(batch_size, 1024, INPUTS, dtype=torch.bfloat16, requires_grad=True)
    return lambda: layer(x).sum().backward()


def few_rows(batch_size: int) -> Callable[[], object]:
    """4 rows a sample: bitsandbytes multiplies them with the weight as it is packed."""
    layer = _packed(double=False)
    x = torch.zeros(batch_size, 4, INPUTS, dtype=torch.bfloat16, requires_grad=True)
    return lambda: layer(x).sum().backward()


def paged_state(batch_size: int) -> Callable[[], object]:
    """512 x 256 trained values, more than the 100,000 from which their state is paged."""
    layer = nn.Linear(INPUTS, OUTPUTS, bias=False)
    x = torch.zeros(batch_size, INPUTS)
    optimizer = bitsandbytes.optim.PagedAdamW8bit(layer.parameters())

    def step() -> None:
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
