"""What is written about outlay is true: generated pages are current, links and files exist."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import PAGES, ROOT, name_of, tool

from outlay.cli.main import COMMANDS
from outlay.hardware.gpus import gpus
from outlay.offers.catalog import bundled_offers, doubt_kinds

GENERATED = tool("build_docs").pages()
PRICES = (ROOT / "docs" / "prices.md").read_text(encoding="utf-8")


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


def test_every_doubt_is_explained_with_its_kind():
    (table,) = re.findall(r"^### Every doubt\n(.*?)^### ", PRICES, re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    found = {}
    for words, kinds in rows:
        alternatives = [kind.strip() for kind in kinds.split("/")]
        named = re.findall(r"`([^`]+)`", words)
        for number, word in enumerate(named):
            assert word not in found
            found[word] = alternatives[min(number, len(alternatives) - 1)]
    assert found == {word: doubt.kind for word, doubt in doubt_kinds().items()}


def test_every_variable_that_prices_read_is_explained():
    (table,) = re.findall(r"^## Environment variables\n(.*?)^## ", PRICES, re.MULTILINE | re.DOTALL)
    source = ROOT / "src" / "outlay"
    files = [
        *source.glob("prices/*.py"),
        source / "cli" / "prices.py",
        source / "cli" / "options.py",
    ]
    texts = [path.read_text(encoding="utf-8") for path in files]
    read = {name for text in texts for name in re.findall(r'"(OUTLAY_[A-Z_]+)"', text)}
    keys = {
        name for text in texts for name in re.findall(r'"([A-Z]+_[A-Z_]*(?:KEY|TOKEN|ID))"', text)
    }
    assert len(read) >= 7
    assert len(keys) >= 5
    assert {name for name in read | keys if f"`{name}`" not in table} == set()
