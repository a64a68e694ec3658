"""Whole plans, in and out: a workload and its profile, the table a person sees, the JSON.

Each case is a folder; `sums.md` in it has the arithmetic. Figures that follow from the fitted step
time are left out, so that a new calibration leaves these files alone. UPDATE_GOLDEN=1 writes the
expected files anew: read the difference, and check it against the sums.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from outlay.cli.main import main

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/workload.toml"))
FITTED = {
    "max_batch_size",
    "samples",
    "step_time_s",
    "training_usd_per_million_samples",
    "usd_per_million_samples",
}
"""What follows from the calibration."""
NOT_COMPARED = ("Best ", "No price known", "Assumed")
"""Sections of the table with fitted figures, and the one that tells of the data's date."""
CHOICE_OR_NONE = {0: True, 3: False}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_is_the_golden_one(case, monkeypatch, capsys):
    assert planned(case, monkeypatch, capsys) == expected(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lines_of_the_golden_plan_sum_up(case):
    for option in json.loads((case / "plan.json").read_text(encoding="utf-8"))["options"]:
        if option["cost_usd"] is not None:
            total = sum(line["usd"] for line in option["lines"])
            assert total == pytest.approx(option["cost_usd"]["likely"], abs=1e-6)


def planned(case, monkeypatch, capsys) -> tuple[str, Any]:
    """The table and the JSON of a case, less what is not compared; written where asked to."""
    table_code, table = run(["plan", str(case / "workload.toml"), "--full"], monkeypatch, capsys)
    json_code, text = run(["plan", str(case / "workload.toml"), "--json"], monkeypatch, capsys)
    document = without_fitted(json.loads(text))
    assert table_code == json_code
    assert CHOICE_OR_NONE[json_code] == (document["chosen"] is not None)
    found = (sections(table), document)
    if os.environ.get("UPDATE_GOLDEN"):
        (case / "table.txt").write_text(found[0], encoding="utf-8")
        (case / "plan.json").write_text(
            json.dumps(found[1], indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return found


def expected(case) -> tuple[str, Any]:
    """The golden table and JSON of a case."""
    table = (case / "table.txt").read_text(encoding="utf-8")
    return table, json.loads((case / "plan.json").read_text(encoding="utf-8"))


def run(arguments, monkeypatch, capsys) -> tuple[int, str]:
    """A command in this process: its exit code and output; it must not complain."""
    monkeypatch.setattr(sys, "argv", ["outlay", *arguments])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1793491200")  # 2026-11-01
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert said.err == ""
    return int(ended.value.code or 0), said.out


def sections(table: str) -> str:
    """The table's sections that are compared, without spaces at the ends of lines."""
    lines = "\n".join(line.rstrip() for line in table.splitlines())
    kept = [part for part in lines.split("\n\n") if not part.startswith(NOT_COMPARED)]
    return "\n\n".join(kept) + "\n"


def without_fitted(document: Any) -> Any:
    """The document without fitted figures and assumptions, numbers to nine digits."""
    kept = {key: value for key, value in document.items() if key != "assumptions"}
    return _plain(kept)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in FITTED}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
