"""What is going on: a line that moves on a terminal, and elsewhere a line a stage."""

from __future__ import annotations

import io
import sys
import time

import pytest

from outlay.report import progress_line
from outlay.report.progress_line import ProgressLine, ProgressLines, RemainingTime


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_line, "DELAY_S", 0.0)
    return Terminal()


def shown(line):
    for _ in range(500):
        if line._bar is not None and line._before is not None:
            return
        time.sleep(0.01)
    raise AssertionError("no line")


def test_the_rest_follows_from_the_pace():
    now = [100.0]
    remaining = RemainingTime(lambda: now[0])
    remaining.take(0, 4)
    assert remaining.seconds is None
    now[0] += 10
    remaining.take(1, 4)
    assert remaining.seconds == 30  # 3 more at 10 s each
    now[0] += 4
    assert remaining.seconds == 26
    now[0] += 36
    assert remaining.seconds == 0  # late, and not below nothing
    remaining.take(0, 2)
    assert remaining.seconds is None  # another stage


def test_lines_are_said_once_each():
    stream = io.StringIO()
    tell = ProgressLines(stream)
    for done in range(3):
        tell("Tracing at batch size 2 (1 of 2) ...", done / 3, 2)
    tell("Tracing at batch size 4 (2 of 2) ...", 1, 2)
    tell("Traced.")
    assert stream.getvalue().splitlines() == [
        "Tracing at batch size 2 (1 of 2) ...",
        "Tracing at batch size 4 (2 of 2) ...",
        "Traced.",
    ]


def test_the_line_moves_and_goes_before_anything_is_printed(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    tell = ProgressLine(terminal)
    tell("Planning ...", 1, 4)
    shown(tell)
    tell("Planning ...", 3, 4)
    assert sys.stdout is not terminal
    time.sleep(0.3)
    sys.stdout.write("The answer\n")
    assert sys.stdout is sys.stderr is terminal
    text = terminal.getvalue()
    assert "Planning ..." in text
    assert text.endswith("\x1b[2KThe answer\n")  # the line was erased
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back
    tell("Fitting ...")
    shown(tell)
    tell.finish()
    assert "Fitting ..." in terminal.getvalue()


def test_what_is_over_soon_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress_line, "DELAY_S", 30.0)
    tell = ProgressLine(terminal)
    tell("Planning ...", 1, 4)
    tell.finish()
    assert terminal.getvalue() == ""


def test_what_is_to_be_known_stays(terminal, monkeypatch):
    monkeypatch.setattr(progress_line, "DELAY_S", 30.0)
    tell = ProgressLine(terminal)
    tell("Planning ...")
    tell("Traced on 2026-11-18 and unchanged since.")
    tell("Traced on 2026-11-18 and unchanged since.")
    tell.finish()
    assert terminal.getvalue() == "Traced on 2026-11-18 and unchanged since.\n"
