"""Which torch a trace was made with, and what is said of others."""

from __future__ import annotations

import pytest

from outlay.errors import TraceFailed
from outlay.trace import child

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.13"])
def test_a_tried_torch_needs_no_note(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(child, "_versions", lambda: {"torch": version})
    assert child._version_notes() == []


@pytest.mark.parametrize("version", ["2.4.1", "2.15.0", "2.130.0"])
def test_another_torch_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(child, "_versions", lambda: {"torch": version})
    (note,) = child._version_notes()
    assert f"Traced with torch {version}" in note
    assert "2.13" in note


def test_a_torch_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from outlay.trace.capture import fake_cuda

    monkeypatch.setattr(fake_cuda, "_version", lambda: (2, 3))
    with pytest.raises(TraceFailed, match=r"older than 2\.4.*pip install torch==2\.13\.0"):
        fake_cuda.install()
