"""A test over a table names every row that fails, and says why."""

from __future__ import annotations

import inspect

import pytest

from tests.rows import for_every


def failures_of(test, **others):
    with pytest.raises(pytest.fail.Exception) as failed:
        test(**others)
    return str(failed.value)


def test_every_failing_row_is_named_with_its_reason():
    @for_every("row", [{"gpu": "T4", "watts": 70}, {"gpu": "A9", "watts": -1}, {"gpu": "B9"}])
    def power_is_positive(row):
        assert row["watts"] > 0

    said = failures_of(power_is_positive)
    assert said.startswith("2 of 3 rows fail\n")
    assert "{'gpu': 'A9', 'watts': -1}\n    test_rows.py:" in said
    assert "assert -1 > 0" in said
    assert "{'gpu': 'B9'}\n" in said
    assert "KeyError: 'watts'" in said
    assert "T4" not in said


def test_a_missing_exception_fails_its_row():
    @for_every("text", ["one", "2"])
    def is_no_number(text):
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    said = failures_of(is_no_number)
    assert said.startswith("1 of 2 rows fail\n2\n")
    assert "DID NOT RAISE" in said


def test_rows_of_several_values():
    @for_every("low, high", [(1, 2), (4, 3)])
    def ordered(low, high):
        assert low < high

    assert "(4, 3)\n" in failures_of(ordered)


def test_what_else_a_test_asks_for_is_left_to_pytest():
    seen = []

    @for_every("row", [1, 2])
    def with_others(row, tmp_path, case):
        seen.append((row, tmp_path, case))

    assert list(inspect.signature(with_others).parameters) == ["tmp_path", "case"]
    with_others(tmp_path="folder", case="x")
    assert seen == [(1, "folder", "x"), (2, "folder", "x")]


@pytest.mark.parametrize("case", ["first", "second"])
@for_every("row", [1, 2])
def test_cases_may_stand_above(row, case):
    assert row in (1, 2)
    assert case in ("first", "second")


def test_a_table_without_rows_is_an_error():
    @for_every("row", [])
    def nothing(row):
        raise NotImplementedError

    with pytest.raises(AssertionError, match="no rows"):
        nothing()
