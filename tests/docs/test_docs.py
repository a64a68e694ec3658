"""What is written about outlay is true: generated pages are current, examples run, links lead."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.measured import a_measurement

from outlay.cli.main import COMMANDS, cli
from outlay.hardware.gpus import gpus
from outlay.measurement.file import write_measurement
from outlay.offers.catalog import bundled_offers
from outlay.trace.store import find_profile

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"])


def tool(name: str):
    """A script of tools/, as a module; those beside it can be imported by it."""
    if str(ROOT / "tools") not in sys.path:
        sys.path.append(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


GENERATED = tool("build_docs").pages()


@pytest.mark.parametrize("path", sorted(GENERATED), ids=lambda path: path.name)
def test_generated_pages_are_current(path):
    assert path.read_text(encoding="utf-8") == GENERATED[path](), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_explained(name):
    assert f"## outlay {name}\n" in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def examples(page: Path) -> list[str]:
    """The outlay commands in shell blocks of a page that run as they stand."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [
        line.partition("#")[0].strip()
        for line in lines
        if line.startswith("outlay ")
        and "train.py" not in line
        and "mine." not in line
        and "|" not in line
    ]


EXAMPLES = sorted({line for page in PAGES for line in examples(page)})


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    if " init" in line or "outlay.toml" in line or "probe.json" in line:
        monkeypatch.chdir(tmp_path)
        CliRunner().invoke(cli, ["init"])
        measurement = a_measurement(profile=find_profile("resnet50"))
        write_measurement(measurement, tmp_path / "probe.json")
    words = shlex.split(line)[1:]
    if words == ["init"]:
        words = ["init", "--force"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output


def test_readme_counts_are_right():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    offers = bundled_offers()
    providers = {offer.provider for offer in offers}
    assert f"on {len(gpus())} GPUs" in text
    assert f"{len(offers):,} offers of {len(providers)} providers" in text


def test_readme_has_examples_that_are_checked():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    for target in targets:
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_nothing_speaks_of_places_on_somebodys_machine():
    words = ("/home/", "/root/", "/Users/", "../..")
    for path in [*PAGES, *ROOT.glob("src/**/*.py"), *ROOT.glob("tools/*"), *ROOT.glob("*.toml")]:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert not [word for word in words if word in text], path


FILE_NAMED = re.compile(r"`([a-z_0-9/]+(?:\.py|\.csv|/))(?: [^`]*)?`")
"""A Python file, a table or a folder in backticks, perhaps with arguments."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    places = (ROOT, ROOT / "src" / "outlay", page.parent)
    for name in FILE_NAMED.findall(page.read_text(encoding="utf-8")):
        made_up = name == "train.py"
        assert made_up or any((place / name).exists() for place in places), name
