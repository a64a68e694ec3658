from __future__ import annotations

import gzip

import pytest

from outlay import facts
from outlay.errors import OutlayError
from outlay.facts import assumed, assumptions, fact_of, rows_of
from tests.builders import a_fact

PACKED = gzip.compress(b"a,b\n1,2\n", mtime=0)
"""The same at every run: the time of packing would be part of the names of tests."""


def test_a_number_is_read_as_one():
    fact = a_fact("12.5")
    assert fact.known
    assert fact.number == 12.5


def test_none_is_known_to_be_lacking():
    fact = a_fact("none")
    assert fact.known
    assert fact.number is None


def test_an_empty_value_is_unknown():
    row = {"value": "", "unit": "W", "source": "x", "as_of": "2026-01-01", "note": ""}
    fact = fact_of(row)
    assert fact.text is None
    assert not fact.known
    assert fact.number is None


def test_fact_of_keeps_unit_source_date_and_note():
    row = {"value": "3", "unit": "W", "source": "x", "as_of": "2026-01-01", "note": "about"}
    fact = fact_of(row)
    assert (fact.text, fact.unit, fact.source, fact.as_of, fact.note) == (
        "3",
        "W",
        "x",
        "2026-01-01",
        "about",
    )


@pytest.mark.parametrize(
    ("note", "source", "guess"),
    [("guess: felt right", "x", True), ("", "guess", True), ("a good guess", "x", False)],
)
def test_is_guess(note, source, guess):
    assert a_fact(1, note=note, source=source).is_guess is guess


def test_rows_of_reads_by_column_name(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    (tmp_path / "t.csv").write_text('a,b\n1,"x, y"\n2,\n', encoding="utf-8")
    assert rows_of("t.csv") == [{"a": "1", "b": "x, y"}, {"a": "2", "b": ""}]


def test_rows_of_reads_a_packed_table(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    (tmp_path / "t.csv.gz").write_bytes(PACKED)
    assert rows_of("t.csv.gz") == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", PACKED[:-9], PACKED[:12], b""],
)
def test_rows_of_a_damaged_packed_table_are_refused(tmp_path, monkeypatch, content):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    (tmp_path / "t.csv.gz").write_bytes(content)
    with pytest.raises(OutlayError, match="damaged"):
        rows_of("t.csv.gz")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n", "no rows"),
        (b"a,b\n1\n", "line 2"),
        (b"a,b\n1,2\n1,2,3\n", "line 3"),
        (b"a,b\n\xff,2\n", "damaged"),
    ],
)
def test_rows_of_a_damaged_table_are_refused(tmp_path, monkeypatch, content, said):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(OutlayError, match=said):
        rows_of("t.csv")


def test_rows_of_a_missing_table_is_an_error_of_the_installation():
    with pytest.raises(OutlayError, match="no_such_table.csv") as caught:
        rows_of("no_such_table.csv")
    assert caught.value.exit_code == 1
    assert "again" in caught.value.fix


def test_assumed_is_the_number_of_the_row():
    rows = {row["name"]: row["value"] for row in rows_of("assumptions.csv")}
    assert assumed("checkpoint_interval_s") == float(rows["checkpoint_interval_s"])
    assert set(assumptions()) == set(rows)


def test_assumed_without_a_number_is_refused(monkeypatch):
    monkeypatch.setattr(facts, "assumptions", lambda: {"speed": a_fact(None)})
    with pytest.raises(LookupError, match="speed"):
        assumed("speed")
