"""The command line as tests call it: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outlay.cli.main import main
from outlay.offers import candidates, price_book
from outlay.offers.catalog import bundled_offers
from outlay.offers.offer import Offer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON; fails where anything else is on standard output."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run on 2026-11-15, whenever the tests do: prices are as old as they are then."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")


@pytest.fixture
def outlay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable:
    """Run a command in this process: `outlay("plan", path)`."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["outlay", *map(str, arguments)])
        # Else click shows how pytest was started as the program's name.
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ended(code=int(ended.value.code or 0), out=said.out, err=said.err)

    return run


@pytest.fixture
def few_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans look at the bundled offers of one provider alone: predicting all takes seconds."""

    def of_one_provider(today: str = "") -> tuple[Offer, ...]:
        return tuple(offer for offer in bundled_offers(today) if offer.provider == "lambda")

    for module in (candidates, price_book):
        monkeypatch.setattr(module, "bundled_offers", of_one_provider)


@pytest.fixture
def program(tmp_path: Path) -> Callable:
    """Run a command as the real program, in an empty folder."""

    def run(*arguments: object, package: Path | None = None, **environment: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "outlay.cli.main", *map(str, arguments)],
            cwd=tmp_path,
            env=_environment(package, environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


def _environment(package: Path | None, more: dict[str, str]) -> dict[str, str]:
    own = {"PYTHONPATH": str(package or ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    return {**os.environ, **own, **more}


@pytest.fixture
def workload(tmp_path: Path) -> Callable[..., Path]:
    """Write a workload of six hours on resnet50 with half an hour of set-up, and more tables."""

    def write(more: str = "", *, length: str = 'time = "6h"', step: str = "") -> Path:
        path = tmp_path / "work.toml"
        step = step or 'profile = "resnet50"\nbatch_size = 32'
        text = f"[step]\n{step}\n[length]\n{length}\n[usage]\nsetup = '30m'\n{more}\n"
        path.write_text(text, encoding="utf-8")
        return path

    return write
