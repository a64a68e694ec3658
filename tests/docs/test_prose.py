"""Pages read well as text: prose is wrapped, and lists begin where every Markdown sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, name_of

LONGEST = 120
ITEM = re.compile(r"\s*([-*+]|\d+\.) ")


def prose(page: Path) -> Iterator[tuple[int, str, str]]:
    """The lines of a page outside of code and tables, with their number and the line before."""
    in_code, before = False, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        if not (in_code or fence or line.startswith("    ") or line.lstrip().startswith("|")):
            yield number, line, before
        before = line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_prose_is_wrapped(page):
    long = [(number, line) for number, line, _ in prose(page) if len(line) > LONGEST]
    can_be_wrapped = [number for number, line in long if max(map(len, line.split())) < LONGEST - 20]
    assert can_be_wrapped == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_list_has_an_empty_line_before_it(page):
    run_in = [
        number
        for number, line, before in prose(page)
        if ITEM.match(line) and before.strip() and not before.startswith(("#", " "))
    ]
    items = {number for number, line, _ in prose(page) if ITEM.match(line)}
    assert [number for number in run_in if number - 1 not in items] == []
