"""What is written about outlay is true: generated pages are current, links and files exist."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import PAGES, ROOT, name_of, tool

from outlay.cli.main import COMMANDS
from outlay.hardware.gpus import gpus
from outlay.offers.catalog import bundled_offers

GENERATED = tool("build_docs").pages()


@pytest.mark.parametrize("path", sorted(GENERATED), ids=lambda path: path.name)
def test_generated_pages_are_current(path):
    assert path.read_text(encoding="utf-8") == GENERATED[path](), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_explained(name):
    assert f"## outlay {name}\n" in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_readme_counts_are_right():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    offers = bundled_offers()
    providers = {offer.provider for offer in offers}
    assert f"on {len(gpus())} GPUs" in text
    assert f"{len(offers):,} offers of {len(providers)} providers" in text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_pages_name_exist(page):
    source, reference = ROOT / "src" / "outlay", ROOT / "tests" / "reference"
    places = (ROOT, source, source / "data", reference / "workloads", page.parent)
    for name in FILE_NAMED.findall(page.read_text(encoding="utf-8")):
        made_up = name == "train.py"
        assert made_up or any((place / name).exists() for place in places), name
