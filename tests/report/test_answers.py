"""Answers on paper of any width: nothing is cut."""

from __future__ import annotations

import pytest

from outlay.advise.questions import TOPICS, QuestionContext, answer
from outlay.report.advise import _FREE_TEXT, print_answer
from outlay.report.console import Page

ABOUT = QuestionContext(today="2026-11-15")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("topic", TOPICS)
def test_no_cell_is_cut(topic, width, capsys):
    found = answer(topic, ABOUT)
    print_answer(Page(width), found)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert found.question in text.replace("\n", " ")
    if found.figures is None:
        return
    heads = text.partition("Left out here")[0]
    shown = [head for head in found.figures.heads if head.upper() in heads]
    for row in found.figures.rows:
        for head, cell in zip(found.figures.heads, row, strict=True):
            assert head not in shown or head in _FREE_TEXT or cell in text, (head, cell)
    missing = [head for head in found.figures.heads if head not in shown]
    assert set(missing) <= set(found.figures.drop)
