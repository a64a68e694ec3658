"""The page about the architecture has the packages there are, in the layers that are checked."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT, tool

SOURCE = ROOT / "src" / "outlay"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PACKAGES = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
MODULES = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}


def listed(section: str) -> list[str]:
    """The names in the first column of a section's table."""
    return re.findall(r"^\| `(\w+)` \|", SECTIONS[section], re.MULTILINE)


def test_every_package_is_named_once_and_no_other():
    assert len(listed("Packages")) == len(PACKAGES)
    assert set(listed("Packages")) == PACKAGES


def test_every_root_module_is_named_once_and_no_other():
    assert len(listed("Root modules")) == len(MODULES)
    assert set(listed("Root modules")) == MODULES


def test_layers_are_those_that_are_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    (block,) = re.findall(r"```text\n(.*?)```", SECTIONS["Layers"], re.DOTALL)
    assert block.splitlines() == layers


def test_the_picture_has_every_package_and_what_is_foreseen():
    picture = tool("draw_architecture")
    drawn = {
        kind: [box.name for box in picture.BOXES if box.kind == kind]
        for kind in ("box", "foreseen")
    }
    assert sorted(drawn["box"]) == sorted(PACKAGES)
    assert sorted(picture.ROOT_MODULES) == sorted(MODULES)
    assert not {*drawn["foreseen"]} & PACKAGES
    for name in drawn["foreseen"]:
        assert f"`{name}`" in SECTIONS["Room for more"]


def test_the_picture_is_readable_in_light_and_dark():
    svg = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in svg
    assert svg.startswith("<svg")
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
