"""The documentation site is built without a warning, with every page, and fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import ROOT, tool

PAGES = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_on_the_site(site):
    for page in {*PAGES, "contributing.md", "changelog.md"}:
        assert (site / page).with_suffix(".html").exists(), page


def test_every_page_is_in_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def targets(entry):
        if isinstance(entry, str):
            return {entry}
        return set().union(*map(targets, entry.values() if isinstance(entry, dict) else entry))

    assert targets(settings["nav"]) == {*PAGES, "contributing.md", "changelog.md"}


def test_schemas_are_on_the_site(site):
    assert (site / "schema" / "plan.json").read_bytes() == (
        ROOT / "docs" / "schema" / "plan.json"
    ).read_bytes()


def test_nothing_is_fetched_from_elsewhere(site):
    fetched = re.compile(r"<(?:link|script|img|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//")
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text(encoding="utf-8")), page.name


def test_root_pages_link_into_the_site():
    hooks = tool("site_hooks")
    text = hooks.page_text(ROOT / "CONTRIBUTING.md")
    assert "](architecture.md)" in text
    assert "](changelog.md)" in text
    assert "](docs/" not in text
    assert "](src/" not in text
