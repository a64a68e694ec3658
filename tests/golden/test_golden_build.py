"""A whole judgement of a workstation, in and out: its description, the table, the JSON.

The machine is described by its figures, so that new parts and prices leave these files alone; the
parts that would mend it are of the table, and left out. UPDATE_GOLDEN=1 writes them anew: check the
difference against `sums.md`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from outlay.cli.main import main

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/machine.toml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judgement_is_the_golden_one(case, monkeypatch, capsys):
    found = judged(case, monkeypatch, capsys)
    if os.environ.get("UPDATE_GOLDEN"):
        (case / "table.txt").write_text(found[0], encoding="utf-8")
        (case / "build.json").write_text(found[1], encoding="utf-8")
    assert found == tuple(
        (case / name).read_text(encoding="utf-8") for name in ("table.txt", "build.json")
    )


def judged(case, monkeypatch, capsys):
    """The table without what the parts table adds to it, and the JSON."""
    table = run(case, [], monkeypatch, capsys)
    document = json.loads(run(case, ["--json"], monkeypatch, capsys))
    for rule in document["rules"]:
        rule["fix_part"] = None
        rule["fix_pieces"] = 1
    document["answer"] = document["answer"][:2]
    rules = "\n".join(re.sub(r"  broken .*", "  broken", line) for line in table.splitlines())
    kept = [line for line in rules.splitlines() if not line.startswith(("First of all", " " * 60))]
    return "\n".join(kept) + "\n", json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def run(case, more, monkeypatch, capsys):
    path = str(case / "machine.toml")
    monkeypatch.setattr(sys, "argv", ["outlay", "build", path, "--country", "us", *more])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")  # 2026-11-15
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    return capsys.readouterr().out
