"""Files as people have them: in other encodings, links, folders, on full disks, from a pipe."""

from __future__ import annotations

import errno
import io
import sys
from functools import partial

import pytest
from tests.measured import a_measurement

import outlay.errors
from outlay.cli.options import writing
from outlay.errors import FileNotWritten, OutlayError, pip_command
from outlay.files import text_of_file, write_whole
from outlay.measurement.file import write_measurement

RIGHT = '[step]\nprofile = "resnet50"\nbatch_size = 32\n[length]\ntime = "6h"\n'
QUOTE = '[consider]\nbundled = false\n[[offer]]\nprovider = "a"\ngpu = "T4"\nprice_per_hour = 1\n'
BOM = b"\xef\xbb\xbf"


def refused(ended, *fragments):
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("outlay: ")
    assert "Errno" not in ended.err
    assert "codec" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err, ended.err


# --- what a file is ---

CONTENTS = {
    "UTF-16": ("a = 1\nb = 2\n".encode("utf-16"), "It is UTF-16 text: save it as UTF-8."),
    "UTF-16 without a mark": ("a = 1\nb = 2\n".encode("utf-16-le"), "It is UTF-16 text"),
    "the other UTF-16": ("a = 1\nb = 2\n".encode("utf-16-be"), "It is UTF-16 text"),
    "Latin-1": ("a = 1\n# café\n".encode("latin-1"), "Its line 2 is not UTF-8 (byte 0xe9)"),
    "binary": (bytes(range(1, 256)), "It is not text, but binary data."),
    "zeros": (b"a = 1\n\0\0", "It is not text, but binary data."),
}


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "FILE"),
        ("diff", "FILE", "FILE"),
        ("build", "FILE"),
        ("build", "--budget", "2000", "--prices", "FILE"),
        ("advise", "--workload", "FILE"),
    ],
)
def test_what_is_no_text_in_utf_8_is_named_for_what_it_is(outlay, tmp_path, kind, arguments):
    path = tmp_path / "odd.toml"
    data, words = CONTENTS[kind]
    path.write_bytes(data)
    refused(outlay(*(path if word == "FILE" else word for word in arguments)), str(path), words)


def test_a_mark_at_the_start_of_utf_8_is_no_part_of_the_text(outlay, tmp_path):
    path = tmp_path / "work.toml"
    path.write_bytes(BOM + (RIGHT + QUOTE).encode())
    assert outlay("plan", path).code == 0
    assert text_of_file(path, "workload file").startswith("[step]")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "It is a directory."),
        (lambda path: path.symlink_to(path), "a link that leads back to itself"),
        (lambda path: path.parent.joinpath("x").write_text(""), "There is no workload file"),
    ],
)
def test_what_is_no_file_is_named_for_what_it_is(outlay, tmp_path, make, words):
    path = tmp_path / "work.toml"
    make(path)
    refused(outlay("plan", path), str(path), words)


def test_a_name_that_is_too_long_or_within_a_file(outlay, tmp_path):
    (tmp_path / "file").write_text("")
    refused(outlay("plan", tmp_path / ("x" * 300)), "longer than a file's can be")
    refused(outlay("plan", tmp_path / "file" / "work.toml"), "is a file, not a folder")


# --- standard input ---


class Piped:
    """Standard input with bytes in it."""

    closed = False

    def __init__(self, text: str) -> None:
        self.buffer = io.BytesIO(text.encode())


@pytest.mark.parametrize("more", [(), ("--vary", "length.time=5h,6h")])
def test_a_workload_file_may_come_from_a_pipe(outlay, monkeypatch, more):
    monkeypatch.setattr(sys, "stdin", Piped(RIGHT + "[usage]\nsetup = '30m'\n" + QUOTE))
    document = outlay("plan", "-", *more, "--json").document
    # 6 h and half an hour of set-up, x $1.00
    costs = [point["cost_usd"] for point in document["points"]] if more else []
    assert costs[1:] or [document["chosen"]["cost_usd"]["likely"]] == [pytest.approx(6.5)]


def test_messages_call_it_standard_input(outlay, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Piped(RIGHT + "[limits]\nbugdet = 5\n"))
    refused(outlay("plan", "-"), "standard input, line 7: there is no key 'limits.bugdet'")
    monkeypatch.setattr(sys, "stdin", Piped("hello"))
    refused(outlay("plan", "-"), "standard input is not valid TOML")


def test_two_files_are_compared_of_which_one_comes_from_a_pipe(outlay, tmp_path, monkeypatch):
    path = tmp_path / "work.toml"
    path.write_text(RIGHT + QUOTE)
    monkeypatch.setattr(sys, "stdin", Piped(RIGHT + QUOTE.replace("= 1", "= 2")))
    out = outlay("diff", "-", path).out
    assert out.startswith("First, standard input: 1x T4 at a")


def test_a_run_needs_a_file(outlay, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Piped(RIGHT))
    refused(outlay("launch", "-", "--engine", "local"), "standard input", "name that")


# --- names that nobody knows ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[consider]\ngpus = ["T4",\n  "RTX 3099"]\n', 8),
        ('[[offer]]\nprovider = "a"\ngpu = "RTX 3099"\nprice_per_hour = 1\n', 8),
        ('[[machine]]\nname = "RTX 3099?"\ngpu = "RTX 3099"\n', 8),
        ('[leave_out]\nproviders = ["RTX 3099"]\n', 7),
    ],
)
@pytest.mark.parametrize("command", ["plan", "vary", "diff"])
def test_a_mistyped_name_has_its_file_and_line(outlay, tmp_path, text, line, command):
    path = tmp_path / "work.toml"
    path.write_text(RIGHT + text)
    arguments = {
        "plan": ("plan", path),
        "vary": ("plan", path, "--vary", "length.time=5h,6h"),
        "diff": ("diff", path, path),
    }
    refused(outlay(*arguments[command]), f"{path}, line {line}: No ", "'RTX 3099'")


# --- writing ---


def test_each_file_is_written_whatever_becomes_of_the_others(tmp_path, capsys):
    fine, gone = tmp_path / "fine", tmp_path / "gone" / "file"
    results = []

    def write_three() -> None:
        with writing() as write:
            paths = (gone, fine, gone.with_name("other"))
            results.extend(write(partial(write_whole, path, b"2")) for path in paths)

    with pytest.raises(FileNotWritten) as caught:
        write_three()
    assert results == [False, True, False]
    assert fine.read_bytes() == b"2"
    assert str(gone) in caught.value.what
    assert "other cannot be written" in capsys.readouterr().err


def test_a_folder_that_was_removed_is_named(outlay, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    refused(outlay("plan", "work.toml"), "The current folder is gone", "cd into a folder")
    question = ("init", "--model", "llama-3.2-1b", "--samples", "1k")
    refused(outlay(*question), "The current folder is gone", "cd into a folder")


def test_calibrate_where_nothing_can_be_kept(outlay, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "file" / "data"))
    path = tmp_path / "probe.json"
    write_measurement(a_measurement(), path)
    refused(outlay("calibrate", path), "data/measurements cannot be written", "OUTLAY_DATA=FOLDER")


def test_an_error_of_the_system_says_what_to_do(outlay, monkeypatch):
    def full(*_arguments, **_more):
        raise PermissionError(errno.EACCES, "Permission denied", "/some/place")

    monkeypatch.setattr("outlay.trace.store.read_profile", full)
    monkeypatch.setattr("outlay.report.tables.profiles_table", full, raising=False)
    monkeypatch.setattr("outlay.plan.from_measurement.find_profile", full)
    ended = outlay("predict", "resnet50", "--gpu", "T4")
    assert ended.code == 1
    assert "/some/place cannot be read or written: Permission denied." in ended.err
    assert "OUTLAY_DATA" in ended.err


# --- how an extra is installed ---


def origin(monkeypatch, tmp_path, note):
    """An outlay that is not run from a clone, and what pip noted of where it came from."""
    monkeypatch.setattr(outlay.errors, "__file__", str(tmp_path / "lib" / "outlay" / "errors.py"))
    monkeypatch.setattr(outlay.errors, "_installed_from", lambda: note)


def test_from_a_clone_an_extra_is_installed_there(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    here = tmp_path / "src" / "outlay" / "errors.py"
    monkeypatch.setattr(outlay.errors, "__file__", str(here))
    assert pip_command("torch") == f'pip install -e "{tmp_path}[torch]"'


def test_from_a_folder_or_a_file_an_extra_is_installed_from_it(monkeypatch, tmp_path):
    folder = tmp_path / "my clone"
    folder.mkdir()
    note = {"url": folder.as_uri(), "dir_info": {}}
    origin(monkeypatch, tmp_path, note)
    assert pip_command("plot") == f'pip install "{folder}[plot]"'
    folder.rmdir()  # it is gone: the name is all there is
    assert pip_command("plot") == 'pip install "outlay[plot]"'


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "option",
    [
        ("predict", "resnet50", "--gpu", "T4", "--host-speed"),
        ("plan", "gone.toml", "--alert-below"),
        ("offers", "--max-price"),
        ("advise", "--purpose", "kaggle", "--budget"),
        ("bench", "gone.toml", "--cap-usd"),
        ("prices", "watch", "--gpu", "T4", "--below"),
    ],
)
def test_no_option_takes_a_number_that_is_none(outlay, option, value):
    *words, name = option
    ended = outlay(*words, f"{name}={value}")
    assert (ended.code, ended.out) == (2, "")
    assert f"Error: Invalid value for '{name}': {value} is" in ended.err


@pytest.mark.parametrize(
    ("note", "requirement"),
    [
        ({}, "outlay[torch]"),
        (
            {"url": "https://host/outlay", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "outlay[torch] @ git+https://host/outlay@abc",
        ),
        (
            {
                "url": "https://host/outlay",
                "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "abc"},
            },
            "outlay[torch] @ git+https://host/outlay@main",
        ),
        (
            {"url": "https://host/outlay.whl", "archive_info": {}},
            "outlay[torch] @ https://host/outlay.whl",
        ),
    ],
)
def test_from_elsewhere_an_extra_is_installed_from_there(monkeypatch, tmp_path, note, requirement):
    origin(monkeypatch, tmp_path, note)
    assert pip_command("torch") == f'pip install "{requirement}"'


def test_errors_with_a_place_keep_their_parts():
    error = OutlayError("What.", why="Why.", fix="Fix.").at("x.toml, line 2")
    assert str(error) == "x.toml, line 2: What. Why. Fix."
