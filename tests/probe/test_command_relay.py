"""The line below a command's output, at a terminal: it stays out of the command's own rows."""

from __future__ import annotations

import io
import sys

import pytest
from tests.probe.probed import OUTLAY, PYTHON, at_a_terminal

from outlay.probe.command import _OTHER_ROWS, _as_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a terminal of Linux")
OURS = "no step yet"
"""What our line says of a command that does not train."""
BAR = "w('one bar 1 %'); sleep(1.5); w('\\rone bar 2 %'); sleep(1.2); "


BEGIN = "import sys, time; sleep = time.sleep\ndef w(x): sys.stderr.write(x); sys.stderr.flush()"


def probed_at_a_terminal(folder, script):
    return at_a_terminal(folder, *OUTLAY, "--", PYTHON, "-c", f"{BEGIN}\n{script}")


MOVES = ["\x1b[A", "\x1b[2A", "\x1bM", "\x1b[3;1H", "\x1b[?1049h", "\x1b7", "\x1b[2;20r"]
STAYS = ["\r 40 %", "\x1b[K", "\x1b[31mred\x1b[0m", "a line\n", "\x1b[2D", "\x1b[?25l"]


def test_what_goes_to_other_rows():
    assert all(_OTHER_ROWS.search(text.encode()) for text in MOVES)
    assert not any(_OTHER_ROWS.search(text.encode()) for text in STAYS)


def test_our_line_is_in_the_encoding_of_standard_error(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "iso8859-1", errors="replace")
    monkeypatch.setattr(sys, "stderr", stream)
    # ± is 0xb1 in Latin-1, which has no check mark
    assert _as_bytes("± 1 % ✔") == b"\xb1 1 % ?"


def test_a_command_that_goes_to_other_rows_has_them_for_itself(tmp_path):
    moves = "\\n\\rsecond bar\\x1b[A"
    output = probed_at_a_terminal(tmp_path, f"{BAR}w('<{moves}>'); sleep(1.5); w('last\\n')")
    before, _, after = output.partition("<")
    assert OURS in before
    # Ours is taken away first, from the row below the bar.
    assert before.endswith("\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K\x1b8")
    assert OURS not in after
    assert "No training step seen" in after


def test_a_sequence_that_comes_in_two_parts(tmp_path):
    script = f"{BAR}w('<\\x1b['); sleep(1.5); w('A>'); sleep(1.2); w('\\n')"
    output = probed_at_a_terminal(tmp_path, script)
    before, _, after = output.partition("<")
    assert OURS in before
    assert after.startswith("\x1b[")
    # Nothing gets in between its parts but what takes our line away, once it is complete.
    assert OURS not in after


def test_bars_and_lines_and_colours_have_it_below_them(tmp_path):
    script = f"{BAR}w('\\x1b[32mgreen\\x1b[0m\\x1b[K'); sleep(1.5); print('a line'); sleep(1.5)"
    output = probed_at_a_terminal(tmp_path, script)
    for part in ("one bar 2 %", "green", "a line"):
        assert OURS in output.split(part)[1]


def test_output_and_errors_keep_their_order(tmp_path):
    script = "for i in range(300): print(f'<o{i}>', flush=True); w(f'<e{i}>')"
    output = probed_at_a_terminal(tmp_path, script)
    parts = [part.split(">")[0] for part in output.split("<")[1:]]
    assert parts == [f"{end}{i}" for i in range(300) for end in "oe"]


def test_the_report_begins_a_line_also_after_a_short_command(tmp_path):
    output = probed_at_a_terminal(tmp_path, "w('no end of line')")
    before, _, _ = output.partition("\x1b[1mNo training step seen")
    assert before.partition("no end of line")[2].endswith("\r\n")
