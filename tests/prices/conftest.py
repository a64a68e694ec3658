"""What the tests of prices share: a data folder of their own, real files where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of one test, empty; nobody is asked but who the test names."""
    folder = tmp_path / "data"
    monkeypatch.setenv("OUTLAY_DATA", str(folder))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "OUTLAY_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def price_sources() -> Path:
    """The folder of real files: `skypilot/DATE/CLOUD.csv.gz`."""
    return Path(os.environ["OUTLAY_TEST_PRICE_SOURCES"])
