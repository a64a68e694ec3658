"""`outlay diff`: the document, both answers, every change, what is refused, how it is printed."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from tests.measured import a_measurement

from outlay.measurement.file import write_measurement

BEFORE = """
[consider]
bundled = false
[[offer]]
provider = "north"
instance = "one"
gpu = "T4"
price_per_hour = 2.00
[[offer]]
provider = "south"
instance = "two"
gpu = "T4"
price_per_hour = 3.00
"""
# 6 h of training and half an hour of set-up: 6.5 h x $2.00 = $13.00, and 6.5 h x $3.00 = $19.50


@pytest.fixture
def files(workload, tmp_path, monkeypatch):
    """Two files, `a.toml` as above and `b.toml` with words of it replaced; in their folder."""
    monkeypatch.chdir(tmp_path)

    def write(*changes, before=BEFORE, length='time = "6h"\nhours_are_equal = true'):
        text = workload(before, length=length).read_text(encoding="utf-8")
        (tmp_path / "a.toml").write_text(text, encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "b.toml").write_text(text, encoding="utf-8")
        return "a.toml", "b.toml"

    return write


CHEAPER = ("price_per_hour = 3.00", "price_per_hour = 1.00")
LONGER = ("'30m'", "'1h'")


def test_document_validates_against_its_schema(outlay, files):
    ended = outlay("diff", *files(CHEAPER), "--json")
    assert (ended.code, ended.err) == (0, "")
    jsonschema.validate(ended.document, outlay("schema", "diff").document)


def test_document_has_the_choices_the_inputs_and_the_lines(outlay, files):
    document = outlay("diff", *files(CHEAPER, LONGER), "--json").document
    assert document["files"] == ["a.toml", "b.toml"]
    assert document["inputs"] == [
        {"key": "usage.setup", "before": "30m", "after": "1h"},
        {"key": "offer.south two.price_per_hour", "before": 3.0, "after": 1.0},
    ]
    assert document["before"]["provider"] == "north"
    assert document["after"]["provider"] == "south"
    # 7 h x $1.00 less 6.5 h x $2.00
    assert document["change_usd"] == pytest.approx(7 - 13)
    # an hour and half an hour of set-up, six hours of training
    changes = {
        line["name"]: (line["mark"], line["before_usd"], line["after_usd"])
        for line in document["lines"]
    }
    assert changes == {
        "set-up": ("=", pytest.approx(1.0), pytest.approx(1.0)),
        "compute": ("~", pytest.approx(12.0), pytest.approx(6.0)),
    }


def test_the_answers_come_before_the_tables(outlay, files):
    lines = outlay("diff", *files(CHEAPER)).out.splitlines()
    assert lines[0] == "First, a.toml: 1x T4 at north (one), on-demand: $13.00 in 6.5 h."
    assert lines[1] == "Second, b.toml: 1x T4 at south (two), on-demand: $6.50 in 6.5 h."
    assert lines[2] == "Amount: -$6.50 ($13.00 -> $6.50), time 6.5 h -> 6.5 h."
    stayed = "The first choice, in the second file: 1x T4 at north (one), on-demand: $13.00 in"
    assert lines[3].startswith(stayed)
    assert "(costs $6.50 more and takes as long)" in " ".join(lines[3:5])


def test_equal_files_have_nothing_to_tell(outlay, files):
    ended = outlay("diff", *files(), "--json")
    assert ended.code == 0
    assert ended.document["inputs"] == []
    assert ended.document["change_usd"] == 0
    assert {line["mark"] for line in ended.document["lines"]} == {"="}
    shown = outlay("diff", *files()).out
    assert "Inputs" not in shown
    assert "Amount: +$0.00" in shown
    assert "The first choice" not in shown


def test_dearer_has_its_sign(outlay, files):
    shown = outlay("diff", *files(LONGER)).out
    # half an hour more at $2.00
    assert "Amount: +$1.00 ($13.00 -> $14.00)" in shown
    (row,) = (line for line in shown.splitlines() if "set-up" in line)
    assert row.split() == ["~", "set-up", "$1.00", "$2.00", "+$1.00"]
    (row,) = (line for line in shown.splitlines() if "compute" in line)
    assert row.split() == ["=", "compute", "$12.00", "$12.00"]


def test_a_line_that_comes_and_one_that_goes(outlay, files):
    data = '[data]\nsize = "100GB"\nprepared = "once"\npreparation = "1m"\n'
    prices = '[[provider]]\nname = "north"\nvolume_per_gb_month = 1.00\n'
    with_data = BEFORE + data + prices
    pair = files((data, ""), before=with_data)
    marks = {
        line["name"]: line["mark"] for line in outlay("diff", *pair, "--json").document["lines"]
    }
    assert marks["storage"] == "-"
    assert marks["compute"] == "="
    back = outlay("diff", *reversed(pair), "--json").document["lines"]
    assert {line["name"]: line["mark"] for line in back}["storage"] == "+"


def test_lines_sum_to_the_change(outlay, files):
    document = outlay("diff", *files(CHEAPER, LONGER), "--json").document
    total = sum(line["after_usd"] - line["before_usd"] for line in document["lines"])
    assert total == pytest.approx(document["change_usd"])


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_too_long_and_no_figure_is_cut(outlay, files, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = outlay("diff", *files(CHEAPER, LONGER)).out
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["usage.setup", "30m", "1h"] in rows
    assert ["offer.south", "two.price_per_hour", "3.0", "1.0"] in rows
    assert ["~", "compute", "$12.00", "$6.00", "-$6.00"] in rows


# --- exit codes and what is refused ---

BUDGET = ("[consider]", "[limits]\nbudget = 1\n[consider]")


def test_a_second_file_without_an_answer_ends_with_3(outlay, files):
    ended = outlay("diff", *files(BUDGET), "--json")
    assert (ended.code, ended.err) == (3, "")
    assert ended.document["after"] is None
    assert ended.document["change_usd"] is None
    jsonschema.validate(ended.document, outlay("schema", "diff").document)
    shown = outlay("diff", "a.toml", "b.toml")
    assert shown.code == 3
    assert "b.toml: no option satisfies the limits." in shown.out


def test_a_first_file_without_an_answer_is_no_failure(outlay, files):
    files(BUDGET)
    ended = outlay("diff", "b.toml", "a.toml", "--json")
    assert ended.code == 0
    assert ended.document["before"] is None
    assert ended.document["after"]["provider"] == "north"


@pytest.mark.parametrize("names", [("a.toml", "no.toml"), ("no.toml", "a.toml")])
def test_a_file_that_is_not_there(outlay, files, names):
    files()
    ended = outlay("diff", *names)
    assert ended.code == 2
    assert ended.out == ""
    assert "no.toml" in ended.err
    assert "Traceback" not in ended.err


def test_a_typo_is_named_with_its_file_and_line(outlay, files):
    files(("price_per_hour = 3.00", "price_per_hou = 3.00"))
    written = Path("b.toml").read_text(encoding="utf-8").splitlines()
    line = written.index("price_per_hou = 3.00") + 1
    ended = outlay("diff", "a.toml", "b.toml")
    assert ended.code == 2
    assert f"b.toml, line {line}" in ended.err
    assert "'price_per_hour'" in ended.err


def test_one_file_is_not_enough(outlay, files):
    ended = outlay("diff", files()[0])
    assert ended.code == 2
    assert "SECOND" in ended.err


def test_the_real_program_prints_plain_text(program, files):
    ended = program("diff", *files(CHEAPER))
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out


def test_a_measurement_is_no_workload_file(outlay, files, tmp_path):
    files()
    write_measurement(a_measurement(), tmp_path / "probe.json")
    ended = outlay("diff", "a.toml", "probe.json")
    assert ended.code == 2
    assert "probe.json is a measurement; diff compares workload files" in ended.err
    assert '[step] profile = "probe.json"' in ended.err
