"""The version is written once, and a checkout that was never installed knows it, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import outlay

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCE = Path(outlay.__file__).parents[1]


def test_the_build_reads_the_version_from_the_package():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert ROOT / PROJECT["tool"]["hatch"]["version"]["path"] == Path(outlay.__file__)


def test_the_changelog_has_the_version():
    assert f"## [{outlay.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """Everything that is installed but outlay itself."""
    folder = tmp_path_factory.mktemp("libraries")
    for place in (Path(place) for place in sys.path if place.endswith("-packages")):
        for entry in place.iterdir():
            link = folder / entry.name
            if "outlay" not in entry.name and entry.suffix != ".pth" and not link.exists():
                link.symlink_to(entry)
    return folder


def checkout(code: str, libraries: Path) -> str:
    """What code prints where the source is on the path and no metadata of outlay's is."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(libraries)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_metadata_is_really_no_metadata(libraries):
    code = (
        "import importlib.metadata as metadata\n"
        "try:\n    metadata.version('outlay')\n"
        "except metadata.PackageNotFoundError:\n    print('none')\n"
    )
    assert checkout(code, libraries) == "none\n"


def test_a_checkout_without_metadata_prints_its_version(libraries):
    code = "import sys; sys.argv[1:] = ['--version']; from outlay.cli.main import main; main()"
    assert checkout(code, libraries) == f"outlay {outlay.__version__}\n"


def test_a_checkout_without_metadata_writes_measurements(libraries):
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.measured import a_measurement\n"
        "from outlay.measurement.file import text_of\n"
        "print(text_of(a_measurement()))\n"
    )
    assert json.loads(checkout(code, libraries))["outlay"] == outlay.__version__
