"""Any text on any stream: what an encoding lacks has a stand-in, and JSON stays JSON."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from outlay.report.encoding import encoding_of, is_unicode, json_shown, show_whatever_comes, shown

ENCODINGS = (
    "ascii", "iso8859-1", "cp1252", "cp437", "koi8-r", "euc-kr", "cp949", "shift_jis", "gb2312",
    "big5", "iso2022_jp", "utf-8", "utf-16",
)  # fmt: skip
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
"""Surrogates, too: bytes of a file name that the locale cannot read."""


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("CHOSEN ✔", "ascii", "CHOSEN *"),
        ("✘ bad", "euc-kr", "x bad"),
        ("long na…", "iso8859-1", "long na..."),
        ("2 × 3 ≥ 5 – 1", "ascii", "2 x 3 >= 5 - 1"),
        ("2 × 3", "iso8859-1", "2 × 3"),
        ("€12.30", "iso8859-1", "EUR 12.30"),
        ("€12.30 ₩", "cp1252", "€12.30 KRW "),
        ("± 1.3 %, 20 µs", "ascii", "+- 1.3 %, 20 us"),
        ("└─┬│", "ascii", "+-+|"),
        ("▁▄█", "ascii", "_-#"),
        # a braille cell with all eight dots, one with none, one with one
        ("\u28ff\u2800\u2801", "ascii", "# ."),
        ("Müller", "ascii", "Muller"),
        ("Müller", "iso8859-1", "Müller"),
        # as wide as it was: two columns a syllable
        ("한국 1", "iso8859-1", "???? 1"),
        ("한국 1", "euc-kr", "한국 1"),
        ("Œ\udcff", "utf-8", "Œ?"),
    ],
)
def test_shown(text, encoding, expected):
    assert shown(text, encoding) == expected


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=ANY_TEXT)
@settings(max_examples=40, deadline=None)
def test_every_text_can_be_shown_in_every_encoding(encoding, text):
    shown(text, encoding).encode(encoding)


@pytest.mark.parametrize("character", "✔✘×·…≥–—±µ°│┌█▁한ü‘“€→")
def test_a_stand_in_is_at_least_as_wide(character):
    assert cell_len(shown(character, "ascii")) >= cell_len(character)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_says_the_same_in_every_encoding(encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    document = {"name": "Müller’s 한국 ✔ \U0001f600", "path": "a\\b"}
    text = json_shown(json.dumps(document, ensure_ascii=False), stream)
    assert json.loads(text.encode(encoding).decode(encoding)) == document


def test_json_has_no_half_characters():
    # ä in a locale that does not read it: two bytes, for which Python has two surrogates
    assert json_shown('"w\udcc3\udca4rk"', io.TextIOWrapper(io.BytesIO(), "utf-8")) == (
        '"w\\u003f\\u003frk"'
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_streams_take_any_text(encoding, monkeypatch):
    raw = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, bytes_io in raw.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(bytes_io, encoding=encoding))
    show_whatever_comes()
    for name, bytes_io in raw.items():
        stream = getattr(sys, name)
        stream.write("✔ Müller 한국 \udcff\n")
        stream.flush()
        # What comes out can be read in the encoding of the terminal, ASCII as well.
        said = bytes_io.getvalue().decode(encoding)
        assert said.startswith(shown("✔ Müller", encoding))
        assert encoding_of(stream) == encoding


def test_which_encodings_have_everything():
    assert [name for name in ENCODINGS if is_unicode(name)] == ["utf-8", "utf-16"]
