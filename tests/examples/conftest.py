"""The examples' folder is importable, as outlay makes it when it traces one of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(autouse=True)
def _torch_settings() -> Iterator[None]:
    """A seed for each test, and torch's global switches as they were before it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    precision = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    switches = cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(precision)
    cudnn.allow_tf32, cudnn.benchmark = switches
