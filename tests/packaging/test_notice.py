"""NOTICE names every bundled table that has sources, and the files it names exist."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "outlay" / "data"
NOTICE = (ROOT / "NOTICE").read_text(encoding="utf-8")


def head_of(path: Path) -> str:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return text.partition("\n")[0]


def test_every_table_with_sources_is_named():
    with_sources = {
        path.name
        for path in (*DATA.glob("*.csv"), *DATA.glob("*.csv.gz"))
        if "source" in head_of(path).split(",")
    }
    assert {name for name in with_sources if name not in NOTICE} == set()


def test_tables_that_are_named_exist():
    places = (DATA, ROOT / "tools" / "data", ROOT / "tests" / "reference" / "data")
    for name in re.findall(r"[\w-]+\.csv(?:\.gz)?", NOTICE):
        assert any((place / name).exists() for place in places), name
