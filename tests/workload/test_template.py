"""The template of a workload file, filled in."""

from __future__ import annotations

import tomllib

import pytest

from outlay.workload.template import TEMPLATE, Entry, filled_template


def test_what_is_set_stands_there_and_the_rest_is_a_comment():
    text = filled_template({"": {"name": Entry('"x"')}, "length": {"samples": Entry("5")}}, "Mine.")
    assert tomllib.loads(text) == {
        "name": "x",
        "step": {},
        "length": {"samples": 5},
        "data": {},
        "checkpoint": {},
        "usage": {},
        "limits": {},
        "consider": {},
        "leave_out": {},
    }
    assert text.startswith("# Mine.\n")
    assert "# budget = 500" in text


def test_every_line_of_the_template_is_still_there():
    before = TEMPLATE.read_text(encoding="utf-8").splitlines()
    after = filled_template({"limits": {"budget": Entry("7")}}).splitlines()
    assert len(after) == len(before)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [line for line in changed if not line.startswith("# ")] == [
        "budget = 7                          # also of what is paid on the first day, but for ..."
    ]


def test_a_table_that_is_a_comment_appears_with_its_key():
    text = filled_template({"evaluation": {"every": Entry('"epoch"', "mine")}})
    assert tomllib.loads(text)["evaluation"] == {"every": "epoch"}
    assert 'every = "epoch"                     # mine' in text
    assert "\n# [own_time]" in text


def test_a_key_that_the_template_does_not_show_stands_at_the_end_of_its_table():
    text = filled_template({"limits": {"budget": Entry("7"), "odd": Entry("1")}})
    assert tomllib.loads(text)["limits"] == {"budget": 7, "odd": 1}
    lines = text.splitlines()
    assert lines[lines.index("odd = 1") + 1] == ""


@pytest.mark.parametrize("value", ["1", '"' + "x" * 60 + '"'])
def test_a_comment_never_touches_its_value(value):
    text = filled_template({"limits": {"deadline": Entry(value, "by then")}})
    (line,) = (line for line in text.splitlines() if line.startswith("deadline"))
    assert " # by then" in line
