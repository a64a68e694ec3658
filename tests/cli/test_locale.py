"""Every command in locales that are not UTF-8: whole pages, whole JSON, UTF-8 in files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from outlay.cli.main import main
from outlay.report.encoding import shown

NAME = "Müllers’ Lauf 한국 ✔ ≥ 2 × …"
WORKLOAD = f"""
name = "{NAME}"
currency = "EUR"
usd_per_unit = 1.25
[step]
profile = "resnet50"
batch_size = 32
[length]
time = "6h"
[data]
size = "10GB"
[limits]
budget = 20
[consider]
bundled = false
[[offer]]
provider = "nörd–süd"
gpu = "T4"
price_per_hour = 1
[[offer]]
provider = "서울"
instance = "✔ great…"
gpu = "A10"
price_per_hour = 2
[[offer]]
provider = "west"
gpu = "L4"
"""
LOCALES = ("ascii", "iso8859-1", "euc-kr")


@pytest.fixture
def spoken(monkeypatch) -> Callable:
    """Run a command with streams in an encoding: its status, and both streams read back in it."""

    def run(encoding, *arguments):
        raw = {name: io.BytesIO() for name in ("stdout", "stderr")}
        with monkeypatch.context() as patch:
            for name, bytes_io in raw.items():
                patch.setattr(sys, name, io.TextIOWrapper(bytes_io, encoding=encoding))
            patch.setattr(sys, "argv", ["outlay", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
            for name in raw:
                getattr(sys, name).flush()
            # Read in the terminal's encoding: what is no such text raises here.
            out, err = (bytes_io.getvalue().decode(encoding) for bytes_io in raw.values())
        assert "inside outlay" not in err
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "läuf.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return path


@pytest.mark.parametrize("encoding", LOCALES)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--explain", "1", "--sources"),
        ("--vary", "length.time=3h,6h"),
        ("--alert-below", "0.01"),
    ],
)
def test_a_plan_is_whole_in_every_locale(spoken, file, encoding, options):
    code, out, err = spoken(encoding, "plan", file, *options)
    assert (code, err) == (3 if "--alert-below" in options else 0, "")
    assert shown(NAME, encoding) in " ".join(out.split()) or "--explain" in options
    # Nothing is missing at the end: as many parts as in UTF-8, and the same last words.
    _, whole, _ = spoken("utf-8", "plan", file, *options)
    assert out.count("\n\n") == whole.count("\n\n")
    assert out.split()[-3:] == shown(whole, encoding).split()[-3:]


@pytest.mark.parametrize("encoding", LOCALES)
@pytest.mark.parametrize(
    "arguments",
    [
        ("offers", "--gpu", "T4", "--max-offers", "5"),
        ("gpus", "T4", "--facts"),
        ("profiles",),
        ("predict", "resnet50", "--gpu", "T4,A10"),
        ("fit", "resnet50", "--gpu", "T4", "--batch-size", "512"),
        ("advise", "--ask", "free"),
        ("build", "--list", "psu"),
        ("prices", "history", "T4"),
        ("prices", "compare", "T4"),
        ("check",),
        ("runs",),
        ("schema", "workload"),
        ("--help",),
    ],
)
def test_other_commands_in_every_locale(spoken, encoding, arguments):
    code, out, _ = spoken(encoding, *arguments)
    assert code == 0
    assert out
    assert "…" not in out or encoding == "euc-kr"


@pytest.mark.parametrize("encoding", LOCALES)
def test_a_difference_of_two_files(spoken, file, tmp_path, encoding):
    other = tmp_path / "zwei’.toml"
    other.write_text(WORKLOAD.replace("hour = 1", "hour = 3"), encoding="utf-8")
    code, out, err = spoken(encoding, "diff", file, other)
    assert (code, err) == (0, "")
    assert shown("zwei’.toml", encoding) in out


@pytest.mark.parametrize("encoding", LOCALES)
def test_errors_name_what_was_given(spoken, tmp_path, encoding):
    code, out, err = spoken(encoding, "plan", tmp_path / "한국✔.toml")
    assert (code, out) == (2, "")
    assert shown("한국✔.toml", encoding) in err
    code, _, err = spoken(encoding, "offers", "--gpu", "Grafikkarte „schnell“")
    assert code == 2
    assert shown("Grafikkarte „schnell“", encoding) in err
    code, _, err = spoken(encoding, "plän")
    assert code == 2
    assert shown("There is no command 'plän'.", encoding) in err


@pytest.mark.parametrize("encoding", LOCALES)
def test_json_is_the_same_in_every_locale(spoken, file, encoding):
    code, out, _ = spoken(encoding, "plan", file, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["workload"] == NAME
    assert {option["provider"] for option in document["options"]} == {"nörd–süd", "서울", "west"}
    # dollars, and what a page without --json is in
    assert (document["currency"], document["usd_per_unit"]) == ("EUR", 1.25)


def test_files_are_utf_8_in_every_locale(spoken, tmp_path):
    code, _, _ = spoken("ascii", "init", tmp_path / "ü.toml")
    assert code == 0
    assert (tmp_path / "ü.toml").read_text(encoding="utf-8")


def test_the_real_program_in_a_locale_of_bytes(tmp_path):
    """As in a container without any locale: names of files are bytes to it."""
    folder = tmp_path / "wörk"
    folder.mkdir()
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = [
        subprocess.run(
            [sys.executable, "-m", "outlay.cli.main", name, folder / "ü.toml"],
            env={**os.environ, **environment},
            capture_output=True,
            check=False,
            timeout=60,
        )
        for name in ("plan", "init")
    ]
    assert [one.returncode for one in done] == [2, 0]
    assert b"There is no workload file" in done[0].stderr
    assert b"/w??rk/??.toml" in done[0].stderr
    assert b"/w??rk/??.toml" in done[1].stdout
    assert (folder / "ü.toml").read_text(encoding="utf-8")
