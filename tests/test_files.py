"""Files are written whole or not at all; values become JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from outlay.errors import InputError
from outlay.files import (
    FLATTEN,
    check_folder,
    free_path,
    json_bytes,
    json_text,
    read_data,
    to_json,
    write_whole,
    yaml_text,
)


def test_json_is_utf_8_whatever_a_name_is():
    # a name of one byte, 0xe9, in a locale that does not have it
    assert json_bytes('{"name": "ä\udce9"}') == b'{"name": "\xc3\xa4?"}'


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_in_which_one_may_not_write_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    with pytest.raises(InputError, match="you may not write in"):
        check_folder(tmp_path / "a.txt")
    check_folder(Path("/dev/null"))  # written directly, not by a draft beside it


def test_a_free_name_is_one_that_nothing_has(tmp_path):
    assert free_path(tmp_path / "a.b", ".json").name == "a.b.json"
    (tmp_path / "a.b.json").touch()
    (tmp_path / "a.b-2.json").symlink_to(tmp_path / "nothing")
    assert free_path(tmp_path / "a.b", ".json").name == "a.b-3.json"


def test_what_has_no_end_is_not_read_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("outlay.files.LARGEST_BYTES", 2**20)
    path = tmp_path / "large"
    path.write_bytes(bytes(2**20))
    assert len(read_data(path)) == 2**20
    path.write_bytes(bytes(2**20 + 1))
    with pytest.raises(ValueError, match="more than 1 MiB"):
        read_data(path)


# --- values as JSON ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    usd: float
    as_of: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    JSON_PROPERTIES = ("total_usd",)
    name: str
    price: Price = field(metadata=FLATTEN)
    pieces: int
    tags: tuple[str, ...] = ()
    facts: dict[str, Price] = field(default_factory=dict)

    @property
    def total_usd(self):
        return self.pieces * self.price.usd


PART = Part(
    name='Lüfter "120"',
    price=Price(usd=1e-7, as_of=date(2026, 11, 1)),
    pieces=3,
    tags=("quiet", "\n"),
    facts={"new": Price(usd=2.0)},
)


def test_a_dataclass_is_an_object_of_its_fields_and_written_properties():
    assert to_json(PART) == {
        "name": 'Lüfter "120"',
        "usd": 1e-7,
        "as_of": "2026-11-01",
        "pieces": 3,
        "tags": ["quiet", "\n"],
        "facts": {"new": {"usd": 2.0, "as_of": None}},
        "total_usd": 3 * 1e-7,
    }


@pytest.mark.parametrize(
    "value", [PART, [], {}, (PART, PART), {"a": {"b": []}}, None, True, 3, 0.1, "é", np.float64(2)]
)
def test_the_text_is_as_the_standard_library_writes_it(value):
    standard = json.dumps(to_json(value), indent=1, ensure_ascii=False, allow_nan=False)
    assert json_text(value) == standard


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": np.float64("nan")}, object()])
def test_what_json_has_no_word_for_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        json_text(value)


# YAML

ODD_TEXTS = st.sampled_from(
    [
        "yes", "0x1", "1e3", "1_000", "12:30", "2001-01-01", "<<", "=", "null", "~", ".inf", "-",
        "---", "...", "a: b", "x #y", "a\n b\n", "\n", "# x\ny\n", "a\n\n\n", "a\n  \nb", "a\n\tb",
        "0o7", "1.", "_1", ".0", "+1", "a\r\nb", "\x1b\n", "a\x85\nb", "\ufeffa\nb", "", " ",
        "a\n ",
    ]
)  # fmt: skip
TEXTS = st.text(max_size=40) | st.text("ab #:-'\"\n\t\\|>&*!%@`{}[],?01.~é\x85\u2028", max_size=30)
TEXTS = TEXTS | ODD_TEXTS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, min_size=0, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
@example({"run": "set -u\n\nif [ 1 ]; then\n  echo 'a: b'\nfi\n", "list": [{"a": 1}, [], {}]})
def test_yaml_gives_back_what_was_written(values):
    assert yaml.safe_load(yaml_text(values)) == values


def test_yaml_that_a_person_reads():
    text = yaml_text({"name": "a-1", "run": "one\ntwo\n", "on": ["x", {"k": True, "usd": 1.25}]})
    assert text == ('name: a-1\nrun: |\n  one\n  two\n"on":\n  - x\n  - k: true\n    usd: 1.25\n')


@given(st.floats(0.001, 1e6))
def test_yaml_floats_are_read_as_floats(number):
    read = yaml.safe_load(yaml_text({"usd": number}))["usd"]
    assert isinstance(read, float)
    assert read == pytest.approx(number, abs=1e-9)
