"""What is bundled is used: a table that no module reads belongs to the tests or the tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import outlay

SOURCE = Path(outlay.__file__).parent
DATED = re.compile(r"_\d{4}-\d{2}-\d{2}$")
TABLES = sorted(path.stem for path in SOURCE.glob("data/*.csv"))
PACKED = sorted(path.name for path in SOURCE.glob("data/*.csv.gz"))
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
README = (SOURCE / "data" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES)
def test_every_bundled_table_is_read_by_a_module(table):
    dated = DATED.search(table) is not None
    call = f'newest("{DATED.sub("", table)}")' if dated else f'rows_of("{table}.csv")'
    assert call in TEXT


@pytest.mark.parametrize("table", TABLES)
def test_every_bundled_table_is_explained(table):
    assert f"{DATED.sub('_DATE', table)}.csv" in README


@pytest.mark.parametrize("name", PACKED)
def test_every_packed_table_is_read_and_explained(name):
    assert f'rows_of("{name}")' in TEXT
    assert name in README
