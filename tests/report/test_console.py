"""Pages of any width: nothing is cut, nothing that is needed is left out, and the rest is named."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Group

from outlay.report.console import Page, bullets, table
from outlay.report.text import amounts_in

HEADS = ("#", "provider", "machine", "ram", "cost", "why")
ROWS = (
    ("1", "north", "1x T4", "32G", "$7.50", ""),
    ("12", "south-and-west", "8x H100 SXM", "1024G", "$1,250", "doubtful: stale, second-hand"),
)
# Widths: 2, 14, 11, 5, 6, 28, and 2 between: 76.
WHOLE = """\
 #  PROVIDER        MACHINE        RAM    COST  WHY
 1  north           1x T4          32G   $7.50
12  south-and-west  8x H100 SXM  1024G  $1,250  doubtful: stale, second-hand
"""
LEFT_OUT = "Left out here: RAM. A page 76 wide shows all, as `| less -S` does.\n"


def printed(capsys, width=None, rows=ROWS, *, indent=0, **options):
    """The table as a page prints it."""
    options = {"right": ("#", "ram", "cost"), "drop": ("ram",)} | options
    page = Page(width)
    page.print(table(HEADS, rows, page.width - indent, **options), indent=indent)
    return capsys.readouterr().out


def test_whole_where_there_is_room(capsys):
    assert printed(capsys, 76) == WHOLE


def test_what_can_be_done_without_is_left_out_and_named(capsys):
    assert printed(capsys, 75) == (
        " #  PROVIDER        MACHINE        COST  WHY\n"
        " 1  north           1x T4         $7.50\n"
        "12  south-and-west  8x H100 SXM  $1,250  doubtful: stale, second-hand\n" + LEFT_OUT
    )


def test_what_cannot_be_done_without_is_folded(capsys):
    # Without RAM 69 columns; without the reason 39. North has none, and no line for it.
    assert printed(capsys, 68) == (
        " #  PROVIDER        MACHINE        COST\n"
        "  WHY\n"
        " 1  north           1x T4         $7.50\n"
        "12  south-and-west  8x H100 SXM  $1,250\n"
        "  doubtful: stale, second-hand\n" + LEFT_OUT
    )


def test_the_column_that_is_folded_first(capsys):
    # Without provider and RAM 69 - 16 = 53 columns.
    assert printed(capsys, 60, fold=("provider",)).splitlines()[:4] == [
        " #  MACHINE        COST  WHY",
        "  PROVIDER",
        " 1  1x T4         $7.50",
        "  north",
    ]


def test_free_text_is_folded_in_its_column_first(capsys):
    # 69 - 28 + 24 = 65 columns are enough for a text of 24
    assert printed(capsys, 65, wrap="why").splitlines()[2:4] == [
        "12  south-and-west  8x H100 SXM  $1,250  doubtful: stale,",
        "                                         second-hand",
    ]


@pytest.mark.parametrize("width", range(5, 80))
@pytest.mark.parametrize("indent", [0, 2])
def test_no_width_cuts_anything(capsys, width, indent):
    text = printed(capsys, width, indent=indent)
    assert max(map(len, text.splitlines())) <= max(width, indent + 4)
    said = "".join(text.split())
    cells = ("12", "south-and-west", "8xH100SXM", "$1,250", "doubtful:stale,second-hand")
    if width > 16 + indent:  # whole words, each in a line of its own at least
        assert all(cell in said for cell in cells[:4])
        assert ("1024G" in said) == (width >= 76 + indent)
        assert ("Leftouthere:RAM" in said) == (width < 76 + indent)
    for letter in "-abcdehlostu":  # of the reason, not of what is said below
        table_only = said.partition("Left")[0]
        assert table_only.count(letter) >= "".join(cells).count(letter)


def test_piped_a_table_is_as_wide_as_it_needs_and_words_are_folded(capsys):
    wide = [("1", "p" * 90, "m" * 90, "32G", "$1.00", "because " * 9)]
    head, row = printed(capsys, rows=wide).splitlines()
    assert row.endswith("because " * 8 + "because")
    # 120 columns for words
    Page().print("word " * 30)
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [119, 29]
    assert len(head) > 200


def test_piped_a_table_with_a_note_below_is_as_wide_as_it_needs(capsys):
    cells = [("1", "p" * 90, "m" * 90, "32G", "$1.00", "stale")]
    Page().print(Group(table(HEADS, cells, 80, drop=("ram",)), "word " * 30))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[1]) > 190
    assert "32G" in lines[1]
    assert max(map(len, lines[2:])) <= 120


def test_piped_free_text_has_what_is_left_of_a_page(capsys):
    long = [("1", "north", "1x T4", "32G", "$1.00", "because " * 30)]
    # 1 + 8 + 7 + 3 + 5 and five gaps are 34 of 120
    lines = printed(capsys, rows=long, wrap="why").splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[1].count("because") == (120 - 34) // 8


@pytest.mark.parametrize("is_terminal", [False, True])
def test_columns_says_how_wide_a_page_is(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "40")
    assert Page().width == 40
    assert max(map(len, printed(capsys).splitlines())) <= 40 + len("\x1b[1m\x1b[0m")
    monkeypatch.setenv("TERM", "dumb")
    assert max(map(len, printed(capsys).splitlines())) <= 40


@pytest.mark.parametrize("columns", ["", "0", "wide", "-5", "²", "9" * 40])
def test_columns_that_say_nothing(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert Page().width == 120


def test_remarks_stand_under_their_words(capsys):
    Page(16).print(bullets(["one two three four", "five"]))
    assert capsys.readouterr().out == "- one two three\n  four\n- five\n"


def test_columns_are_straight_whatever_the_letters(monkeypatch):
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, encoding="iso8859-1"))
    rows = [("한국", "✔ one"), ("nörth…", "≥ two")]
    Page(40).print(table(("name", "mark"), rows, 40))
    # five letters and three dots are 8 columns, two syllables are 4
    assert said.getvalue().decode("iso8859-1") == (
        "NAME      MARK\n????      * one\nnörth...  >= two\n"
    )


def test_a_page_in_euros(capsys):
    # $7.50 / 1.25 = 6 euros; $1,250 are 1,000 euros; amounts in words as well
    with amounts_in("EUR", 1.25):
        page = Page(76)
        page.print("It costs $2.50 more; 5 $ bills and US$ stay.")
        page.print(table(("$/h", "why"), [("-", "over budget by $1,250.00")], page.width))
    assert capsys.readouterr().out == (
        "It costs €2.00 more; 5 $ bills and US$ stay.\n€/H  WHY\n-    over budget by €1,000.00\n"
    )
