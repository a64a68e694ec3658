"""The source tree stays one that a newcomer finds their way in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import house as tool

SRC = Path(__file__).parents[2] / "src" / "outlay"


@pytest.fixture(scope="module")
def house():
    return tool.house_of(SRC)


def test_the_tree_keeps_its_bounds(house):
    assert len(house.lines) <= 290
    assert len(house.at_root) <= 9
    assert len(house.with_one_importer) <= 60
    assert len(house.module_names_used_twice) <= 19
    assert len(house.class_names_used_twice) <= 4
    assert house.layers <= 15


def test_figures_of_a_made_tree(tmp_path):
    package = tmp_path / "made"
    for name in ("", "inner/", "other/"):
        (package / name).mkdir(parents=True, exist_ok=True)
        (package / name / "__init__.py").write_text("")
    (package / "root.py").write_text("class Thing: ...\n")
    (package / "inner" / "step.py").write_text(
        "from made.root import Thing\nfrom .near import x\n\nclass Thing2: ...\nclass _Own: ...\n"
    )
    (package / "inner" / "near.py").write_text("x = 1\n")
    (package / "other" / "step.py").write_text(
        "from made import root\nfrom made.inner import step\n\nclass Thing: ...\nclass _Own: ...\n"
    )
    house = tool.house_of(package)
    assert house.lines == {"inner.near": 1, "inner.step": 5, "other.step": 5, "root": 1}
    assert house.at_root == ["root"]
    # near is imported by inner.step alone, inner.step by other.step alone; root by both.
    assert house.with_one_importer == ["inner.near", "inner.step"]
    assert house.module_names_used_twice == ["step"]
    assert house.class_names_used_twice == ["Thing"]
