"""What is published works by itself: the wheel in an empty environment, and the source archive.

Needs the package index, as `make plan` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import outlay

ROOT = Path(__file__).parents[2]
VERSION = outlay.__version__
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
DATA = "outlay/data"


def run(*command: object, cwd: Path) -> str:
    """What a command prints, where nothing of this checkout is on its path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", ROOT, "--no-deps", "--wheel-dir", folder, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    run(*PIP, "--python", python, "install", wheel, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def names_in_wheel(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_package_and_no_other(names_in_wheel):
    source = ROOT / "src"
    here = {
        path.relative_to(source).as_posix()
        for path in (source / "outlay").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    info = f"outlay-{VERSION}.dist-info/"
    assert {name for name in names_in_wheel if not name.startswith(info)} == here
    assert {f"{info}licenses/LICENSE", f"{info}licenses/NOTICE"} <= names_in_wheel
    assert {"outlay/py.typed", f"{DATA}/gpus.csv", f"{DATA}/template.toml"} <= names_in_wheel


def test_tables_that_only_tests_read_stay_out(names_in_wheel):
    for word in ("h200_", "published_", "measured_links"):
        assert not [name for name in names_in_wheel if f"{DATA}/{word}" in name]


def test_the_metadata_says_what_the_project_file_says(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"outlay-{VERSION}.dist-info/METADATA").decode()
    said = Parser().parsestr(text)
    assert said["Version"] == VERSION
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Summary"] == "What will this training run cost, and where should it run?"
    links = dict(line.split(", ") for line in said.get_all("Project-URL", []))
    assert set(links) == {"Homepage", "Documentation", "Changelog"}
    assert all(link.startswith("https://") for link in links.values())


def test_the_wheel_plans_in_an_empty_environment(environment, tmp_path):
    plan = run(
        environment / "outlay", "plan", ROOT / "examples/stylenat.toml", "--json", cwd=tmp_path
    )
    assert json.loads(plan)["chosen"]["provider"]


def test_the_wheel_knows_its_version_and_where_it_is(environment, tmp_path):
    assert run(environment / "outlay", "--version", cwd=tmp_path) == f"outlay {VERSION}\n"
    place = run(environment / "python", "-c", "import outlay; print(outlay.__file__)", cwd=tmp_path)
    assert place.startswith(str(environment.parent))


def test_the_source_archive_has_what_it_takes_to_build_and_test(environment, tmp_path):
    run(*PIP, "--python", environment / "python", "install", "hatchling>=1.25", cwd=tmp_path)
    run(environment / "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    with tarfile.open(tmp_path / f"outlay-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    roots = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "PKG-INFO"}
    assert {*roots, "README.md", "mkdocs.yml", "pyproject.toml"} <= names
    assert {
        "src/outlay/data/gpus.csv",
        "tools/build_docs.py",
        "tests/conftest.py",
        "tests/reference/data/measured_links.csv",
        "examples/stylenat.toml",
        "docs/commands.md",
    } <= names
    assert not [name for name in names if name.startswith((".venv", "build/", ".git/", ".ci"))]
