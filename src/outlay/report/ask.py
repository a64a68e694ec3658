"""An answer for people: words, a table, and where it comes from."""

from __future__ import annotations

import re

from rich.text import Text

from outlay.advise.questions import Answer
from outlay.report.console import Page, muted, table

_NUMBER = re.compile(r"[-<]?\$?[0-9][0-9.,]*( ?%|x|/h| h| min| days)?")
_FREE_TEXT = ("condition", "source", "note", "rate", "question", "gives")
"""Columns that are folded where the width does not do."""


def print_answer(page: Page, answer: Answer) -> None:
    """Print one answer."""
    page.print(Text(answer.question, style="bold"))
    for words in answer.words:
        page.print(words)
    figures = answer.figures
    if figures is not None and figures.rows:
        page.print()
        folded = next((head for head in figures.heads if head in _FREE_TEXT), None)
        right = [head for head in figures.heads if _is_number(figures.heads.index(head), answer)]
        page.print(
            table(
                figures.heads,
                figures.rows,
                page.width,
                right=right,
                drop=figures.drop,
                wrap=folded,
            )
        )
    if answer.sources:
        page.print()
        page.print(muted(f"From: {'; '.join(answer.sources)}"))


def _is_number(column: int, answer: Answer) -> bool:
    """Whether every cell of a column is a number, perhaps with a unit."""
    assert answer.figures is not None
    cells = [row[column] for row in answer.figures.rows if row[column]]
    return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
