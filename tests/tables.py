"""The tables that only tests read: they are in no wheel."""

from __future__ import annotations

import csv
from pathlib import Path

REFERENCE = Path(__file__).parent / "reference" / "data"


def rows_in(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by column name."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
