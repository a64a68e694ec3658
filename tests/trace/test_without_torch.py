from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outlay.errors import ExtraMissing
from outlay.trace.tracing import profile_of

if TYPE_CHECKING:
    from pathlib import Path


def test_tracing_without_torch_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "torch.py").write_text("raise ImportError('no torch here')\n")
    (tmp_path / "train.py").write_text("def step(batch_size): ...\n")
    monkeypatch.setenv("PYTHONPATH", str(shadow))
    with pytest.raises(ExtraMissing, match=r'pip install (-e )?"\S*\[torch\]"'):
        profile_of(f"{tmp_path / 'train.py'}:step")
