"""What people get wrong: one message that names it, the right exit code, and never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import outlay as package
from outlay.facts import DATA

STEP = '[step]\nprofile = "resnet50"\nbatch_size = 32\n'
RIGHT = STEP + '[length]\ntime = "6h"\n'
OFFER = '[[offer]]\nprovider = "north"\ngpu = "T4"\n'
PROFILE = gzip.decompress((DATA / "profiles" / "resnet50.json.gz").read_bytes())


def said_once(ended, code, fragments):
    """The command failed as documented, with one message that has all fragments."""
    assert "Traceback" not in ended.out + ended.err
    assert ended.code == code
    assert ended.out == ""
    first = ended.err.splitlines()[0]
    assert first.startswith(("outlay: ", "Usage: outlay "))
    assert ended.err.count("outlay: ") + ended.err.count("Error: ") == 1
    for fragment in fragments:
        assert fragment in ended.err


WORKLOADS = {
    "unknown GPU": (
        RIGHT + '[consider]\ngpus = ["RTX 3099"]',
        ["'RTX 3099'", '"RTX 3090"'],
    ),
    "unknown GPU in an offer": (
        RIGHT + OFFER.replace("T4", "RTX 9999"),
        ["'RTX 9999'", "outlay gpus"],
    ),
    "unknown GPU in a machine": (
        RIGHT + '[[machine]]\nname = "desktop"\ngpu = "RTX 3900"',
        ["'RTX 3900'", '"RTX 3090"'],
    ),
    "unknown provider": (RIGHT + '[consider]\nproviders = ["lamda"]', ["'lamda'", '"lambda"']),
    "unknown provider left out": (
        RIGHT + '[leave_out]\nproviders = ["vats"]',
        ["'vats'", '"vast"'],
    ),
    "unknown provider's terms": (RIGHT + '[[provider]]\nname = "awss"', ["'awss'", '"aws"']),
    "unknown region": (RIGHT + '[consider]\nregions = ["us-wset"]', ["'us-wset'", "us-west"]),
    "unknown currency": (
        'currency = "KRX"\n' + RIGHT,
        ["currency", "'KRX'", '"KRW"', "usd_per_unit"],
    ),
    "unknown tenancy": (
        RIGHT + '[consider]\ntenancies = ["sport"]',
        ["line 7", "'sport'", "'spot'"],
    ),
    "unknown precision": (
        STEP + 'precision = "fp8"\n[length]\ntime = "6h"',
        ["line 4", "step.precision", "'fp8'", "'bf16'"],
    ),
    "unknown key": (
        RIGHT + "[limits]\nbugdet = 5",
        ["work.toml, line 7", "'limits.bugdet'", "'budget'"],
    ),
    "unknown table": (RIGHT + "[limit]\nbudget = 5", ["line 6", "'limit'", "'limits'"]),
    "unknown key without a near one": (
        RIGHT + "[limits]\nxyzzy = 5",
        ["line 7", "'limits.xyzzy'", "budget, cash_upfront"],
    ),
    "unknown key of the second offer": (
        RIGHT + OFFER + "price_per_hour = 1\n" + OFFER + "price_per_huor = 1",
        ["line 13", "price_per_huor", "'price_per_hour'"],
    ),
    "unknown unit of a duration": (
        RIGHT + '[limits]\ndeadline = "14 fortnights"',
        ["line 7", "limits.deadline", "'14 fortnights'", '"3d"'],
    ),
    "unknown unit of a size": (
        RIGHT + '[data]\nsize = "14 GBs"',
        ["line 7", "data.size", "'14 GBs'", '"13.8GB"'],
    ),
    "duration without a unit": (
        RIGHT + "[limits]\ndeadline = 14",
        ["line 7", "limits.deadline = 14", "unit"],
    ),
    "size without a unit": (RIGHT + "[data]\nsize = 14", ["line 7", "data.size = 14", "unit"]),
    "negative budget": (RIGHT + "[limits]\nbudget = -5", ["line 7", "limits.budget = -5", "0"]),
    "negative duration": (RIGHT + '[limits]\ndeadline = "-5d"', ["line 7", "'-5d'"]),
    "zero duration": (STEP + '[length]\ntime = "0h"', ["line 5", "'0h'", "above zero"]),
    "zero price": (
        RIGHT + OFFER + "price_per_hour = 0",
        ["line 9", "price_per_hour = 0", "greater than 0"],
    ),
    "zero batch": (RIGHT.replace("32", "0"), ["line 3", "step.batch_size = 0"]),
    "text for a batch": (RIGHT.replace("32", '"x"'), ["line 3", "step.batch_size = 'x'"]),
    "absurd budget": (RIGHT + "[limits]\nbudget = 1e30", ["line 7", "limits.budget = 1e+30"]),
    "endless budget": (RIGHT + "[limits]\nbudget = inf", ["line 7", "limits.budget = inf"]),
    "budget that is no number": (
        RIGHT + "[limits]\nbudget = nan",
        ["line 7", "limits.budget = nan"],
    ),
    "absurd price": (RIGHT + OFFER + "price_per_hour = 1e30", ["line 9", "1e+30"]),
    "absurd size": (RIGHT + '[data]\nsize = "1e30GB"', ["line 7", "'1e30GB'", "exabyte"]),
    "absurd duration": (
        RIGHT + '[limits]\ndeadline = "1e400d"',
        ["line 7", "'1e400d'", "hundred years"],
    ),
    "absurd number of machines": (
        RIGHT + "[usage]\nmachines = 10000000000",
        ["line 7", "machines"],
    ),
    "absurd number of samples": (STEP + "[length]\nsamples = 1e30", ["line 5", "length.samples"]),
    "more than a day a day": (RIGHT + "[usage]\nhours_per_day = 25", ["line 7", "hours_per_day"]),
    "two lengths": (
        RIGHT + "samples = 3",
        ["line 4", "length", "exactly one of samples, epochs, iterations and time"],
    ),
    "two steps": (
        STEP + 'target = "a.py:f"\n[length]\ntime = "6h"',
        ["line 1", "step", "exactly one of profile, target and model"],
    ),
    "epochs of nothing": (STEP + "[length]\nepochs = 3", ["length.epochs", "data.samples"]),
    "no length": (STEP, ["'length' is missing", "outlay init"]),
    "purchase without use": (
        RIGHT + '[[machine]]\nname = "new"\ngpu = "T4"\npurchase = 900',
        ["line 6", "machine", "use"],
    ),
    "resale above purchase": (
        RIGHT + '[[machine]]\nname = "new"\ngpu = "T4"\npurchase = 9\nuse = "9h"\nresale = 10',
        ["line 6", "resale is above purchase"],
    ),
    "two offers with one identity": (
        RIGHT + 2 * (OFFER + 'instance = "a"\nprice_per_hour = 1\n'),
        ["Two [[offer]]", "north / a / any", "instance"],
    ),
    "no candidate": (RIGHT + "[consider]\nbundled = false", ["No candidate", "[[offer]]"]),
    "no candidate of that provider": (
        RIGHT + '[consider]\ngpus = ["RTX 3060"]\nproviders = ["lambda"]',
        ["No candidate", "outlay offers"],
    ),
    "not TOML": ("hello world", ["work.toml", "not valid TOML", "line 1"]),
    "truncated TOML": ('[step]\nprofile = "resn', ["work.toml", "not valid TOML"]),
    "truncated table": ("[step", ["work.toml", "not valid TOML"]),
    "empty file": ("", ["work.toml", "'step' is missing", "outlay init"]),
    "missing profile": (RIGHT.replace("resnet50", "resnet5"), ["'resnet5'", '"resnet50"']),
    "missing profile file": (RIGHT.replace("resnet50", "gone.json"), ["no profile", "gone.json"]),
    "missing target file": (
        '[step]\ntarget = "gone.py:step"\n[length]\ntime = "6h"',
        ["no file", "gone.py", "path/to/file.py:function"],
    ),
    "target without a function": (
        '[step]\ntarget = "gone.py"\n[length]\ntime = "6h"',
        ["gone.py", "path/to/file.py:function"],
    ),
}


@pytest.mark.parametrize("case", WORKLOADS)
def test_workload_file(outlay, tmp_path, case):
    text, fragments = WORKLOADS[case]
    path = tmp_path / "work.toml"
    path.write_text(text)
    said_once(outlay("plan", path), 2, fragments)
    said_once(outlay("plan", path, "--json"), 2, fragments)


def test_workload_file_is_binary(outlay, tmp_path):
    path = tmp_path / "work.toml"
    path.write_bytes(bytes(range(256)))
    said_once(outlay("plan", path), 2, ["work.toml", "cannot be read"])


def test_workload_file_is_nothing_but_zeros(outlay, tmp_path):
    path = tmp_path / "work.toml"
    path.write_bytes(bytes(64))
    said_once(outlay("plan", path), 2, ["work.toml", "binary data"])


def test_workload_file_is_a_folder(outlay, tmp_path):
    said_once(outlay("plan", tmp_path), 2, [str(tmp_path), "directory"])


def test_workload_file_is_missing(outlay, tmp_path):
    path = tmp_path / "gone.toml"
    said_once(outlay("plan", path), 2, [str(path), "outlay init"])


OPTIONS = {
    "unknown command": (["plann"], ["'plann'", "'plan'"]),
    "unknown command without a near one": (["xyzzy"], ["'xyzzy'", "outlay --help"]),
    "unknown option": (["plan", "x.toml", "--jsn"], ["--jsn", "--json"]),
    "unknown option of outlay": (["--verzion"], ["--verzion", "--version"]),
    "one argument too many": (["plan", "a.toml", "b.toml"], ["b.toml"]),
    "words for a count": (
        ["plan", "a.toml", "--best", "x"],
        ["--best", "'x' is not a whole number"],
    ),
    "words for an amount": (["offers", "--max-price", "x"], ["--max-price", "'x' is not a number"]),
    "a name too long": (["trace", f"{'x' * 300}.py:f"], ["File name too long", "Check the path."]),
    "no rows": (["plan", "a.toml", "--best", "0"], ["--best", "0"]),
    "predict: unknown GPU": (
        ["predict", "resnet50", "--gpu", "RTX 3099"],
        ["'RTX 3099'", '"RTX 3090"'],
    ),
    "predict: empty GPU": (["predict", "resnet50", "--gpu", ""], ["''", "outlay gpus"]),
    "predict: no GPU": (["predict", "resnet50"], ["--gpu"]),
    "predict: GPU zero times": (["predict", "resnet50", "--gpu", "A100:0"], ["'A100:0'"]),
    "predict: second GPU unknown": (
        ["predict", "resnet50", "--gpu", "T4,RTX 3099"],
        ["'RTX 3099'"],
    ),
    "predict: batch 0": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "0"],
        ["'0'", "--batch-size max"],
    ),
    "predict: batch x": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "x"],
        ["'x'", "--batch-size max"],
    ),
    "predict: batch -1": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "-1"],
        ["'-1'", "--batch-size max"],
    ),
    "predict: batch 1.5": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "1.5"],
        ["'1.5'", "--batch-size max"],
    ),
    "predict: cap 0": (
        ["predict", "resnet50", "--gpu", "T4", "--memory-cap-mib", "0"],
        ["--memory-cap-mib", "0"],
    ),
    "predict: cap x": (
        ["predict", "resnet50", "--gpu", "T4", "--memory-cap-mib", "x"],
        ["--memory-cap-mib", "'x'"],
    ),
    "predict: measured without seconds": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64"],
        ["--measured 'T4@64'", "RTX 3090@64=0.101"],
    ),
    "predict: measured at batch x": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@x=0.1"],
        ["--measured 'T4@x=0.1'", "RTX 3090@64=0.101"],
    ),
    "predict: host speed nan": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--host-speed", "nan"],
        ["--host-speed", "nan is no number"],
    ),
    "predict: input rate inf": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--input-rate", "inf"],
        ["--input-rate", "inf is no number"],
    ),
    "predict: measured seconds x": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64=x"],
        ["--measured 'T4@64=x'", "RTX 3090@64=0.101"],
    ),
    "predict: measured no GPU": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "=0.1"],
        ["--measured '=0.1'", "RTX 3090@64=0.101"],
    ),
    "predict: measured no seconds": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64="],
        ["--measured 'T4@64='", "RTX 3090@64=0.101"],
    ),
    "predict: measured seconds 0": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64=0"],
        ["--measured 'T4@64=0'", "RTX 3090@64=0.101"],
    ),
    "predict: measured seconds -1": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64=-1"],
        ["--measured 'T4@64=-1'", "RTX 3090@64=0.101"],
    ),
    "predict: measured seconds nan": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64=nan"],
        ["--measured 'T4@64=nan'", "RTX 3090@64=0.101"],
    ),
    "predict: measured seconds inf": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@64=inf"],
        ["--measured 'T4@64=inf'", "RTX 3090@64=0.101"],
    ),
    "predict: measured batch 0": (
        ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8", "--measured", "T4@0=0.1"],
        ["--measured 'T4@0=0.1'", "RTX 3090@64=0.101"],
    ),
    "predict: measured at no batch": (
        ["predict", "resnet50", "--gpu", "T4", "--measured", "T4=0.1"],
        ["--measured 'T4=0.1'", "at which batch size", "T4@64=0.1"],
    ),
    "predict: measured on an unknown GPU": (
        ["predict", "resnet50", "--gpu", "T4", "--measured", "RTX 3099@64=0.1"],
        ["'RTX 3099'", '"RTX 3090"'],
    ),
    "predict: host speed 0": (
        ["predict", "resnet50", "--gpu", "T4", "--host-speed", "0"],
        ["--host-speed", "0"],
    ),
    "predict: host speed x": (
        ["predict", "resnet50", "--gpu", "T4", "--host-speed", "x"],
        ["--host-speed", "'x'"],
    ),
    "predict: input rate -1": (
        ["predict", "resnet50", "--gpu", "T4", "--input-rate", "-1"],
        ["--input-rate", "-1"],
    ),
    "predict: input rate x": (
        ["predict", "resnet50", "--gpu", "T4", "--input-rate", "x"],
        ["--input-rate", "'x'"],
    ),
    "predict: unknown profile": (
        ["predict", "resnet5", "--gpu", "T4"],
        ["'resnet5'", '"resnet50"', "outlay profiles"],
    ),
    "predict: missing profile": (["predict", "gone.json", "--gpu", "T4"], ["gone.json"]),
    "predict: missing target": (
        ["predict", "gone.py:step", "--gpu", "T4"],
        ["no file", "gone.py", "path/to/file.py:function"],
    ),
    "trace: missing target": (["trace", "gone.py:step"], ["no file", "gone.py"]),
    "trace: no function": (["trace", "gone.py"], ["'gone.py'", "path/to/file.py:function"]),
    "trace: not a name": (["trace", "gone.py:a b"], ["'gone.py:a b'"]),
    "gpus: unknown GPU": (["gpus", "RTX 3099"], ["'RTX 3099'", '"RTX 3090"']),
    "gpus: empty name": (["gpus", ""], ["''", "outlay gpus"]),
    "offers: unknown GPU": (["offers", "--gpu", "RTX 3099"], ["'RTX 3099'", '"RTX 3090"']),
    "offers: empty GPU": (["offers", "--gpu", ""], ["''", "outlay gpus"]),
    "offers: GPU zero times": (["offers", "--gpu", "A100:0"], ["'A100:0'", "A100-80GB:8"]),
    "offers: GPU x times": (["offers", "--gpu", "A100:x"], ["'A100:x'", "A100-80GB:8"]),
    "offers: unknown provider": (["offers", "--provider", "lamda"], ["'lamda'", '"lambda"']),
    "offers: unknown region": (["offers", "--region", "us-wset"], ["'us-wset'", "us-west"]),
    "offers: price 0": (["offers", "--max-price", "0"], ["--max-price", "0"]),
    "offers: price -1": (["offers", "--max-price", "-1"], ["--max-price", "-1"]),
    "offers: price cheap": (["offers", "--max-price", "cheap"], ["--max-price", "'cheap'"]),
    "offers: no rows": (["offers", "--max-offers", "0"], ["--max-offers", "0"]),
    "offers: unknown order": (["offers", "--sort", "prise"], ["--sort", "'prise'", "'price'"]),
    "schema: unknown name": (["schema", "plans"], ["'plans'", "'plan'"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_arguments(outlay, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    arguments, fragments = OPTIONS[case]
    said_once(outlay(*arguments), 2, fragments)


@pytest.mark.parametrize("arguments", [["plan"], ["predict"], ["trace"], ["schema"], []])
def test_nothing_given_shows_the_help(outlay, arguments):
    ended = outlay(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("Usage: outlay")


PROFILES = {
    "truncated": (PROFILE[:2_000], "cannot be read as a profile"),
    "truncated gzip": (gzip.compress(PROFILE)[:1_000], "cannot be read as a profile"),
    "empty": (b"", "cannot be read as a profile"),
    "binary": (bytes(range(256)), "cannot be read as a profile"),
    "foreign": (b'{"name": "package", "version": "1.0.0"}', "no profile written by outlay"),
    "a list": (b"[1, 2]", "no profile written by outlay"),
    "of the future": (b'{"schema": 2, "kind": "outlay profile"}', "schema 2"),
    "a head alone": (b'{"schema": 1, "kind": "outlay profile"}', "missing or odd"),
    "odd operations": (json.dumps({**json.loads(PROFILE), "ops": [1]}).encode(), "missing or odd"),
    "odd memory": (
        json.dumps({**json.loads(PROFILE), "memory": {"x": {}}}).encode(),
        "missing or odd",
    ),
}


@pytest.mark.parametrize("case", PROFILES)
def test_profile(outlay, tmp_path, case):
    content, fragment = PROFILES[case]
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    said_once(outlay("predict", path, "--gpu", "T4", "--json"), 2, [str(path), fragment])


def test_profile_is_a_folder(outlay, tmp_path):
    path = tmp_path / "mine.json"
    path.mkdir()
    said_once(outlay("predict", path, "--gpu", "T4"), 2, [str(path), "directory"])


@pytest.mark.torch
def test_target_function_that_does_not_exist(outlay, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def training_step(batch_size):\n    return lambda: None\n")
    ended = outlay("predict", f"{path}:trainig_step", "--gpu", "T4")
    said_once(ended, 2, ["train.py", "'trainig_step'", '"training_step"'])


FAULTY_WAYS = {
    "a full disk": ("/dev/full", "No space left"),
    "a missing folder": ("missing/outlay.toml", "No such file"),
    "a file as the folder": ("file/outlay.toml", "Not a directory"),
    "a folder": ("folder", "Is a directory"),
    "a file system that takes none": ("/proc/outlay.toml", ""),
}


@pytest.mark.parametrize("case", FAULTY_WAYS)
def test_init_cannot_write(outlay, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    path, reason = FAULTY_WAYS[case]
    ended = outlay("init", path, "--force")
    said_once(ended, 2, [path, "cannot be written", reason])
    assert len(ended.err.splitlines()) <= 2  # what, and what to do next


def start(*arguments, **streams):
    """The real program, started."""
    return subprocess.Popen(
        [sys.executable, "-m", "outlay.cli.main", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **streams,
    )


@pytest.mark.parametrize("arguments", [["offers"], ["gpus"], ["profiles", "--json"], ["--help"]])
def test_output_to_a_closed_pipe_is_no_drama(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    running = start(*arguments, stdout=writer)
    os.close(writer)
    _, said = running.communicate(timeout=60)
    assert said == ""
    assert running.returncode in (0, 1)


def test_output_cut_off_after_a_line(tmp_path):
    running = start("offers", "--json", stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == "{\n"
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(timeout=60) == 0


@pytest.mark.parametrize("arguments", [["offers"], ["profiles", "--json"], ["schema", "plan"]])
def test_output_to_a_full_disk_is_one_message(arguments):
    with Path("/dev/full").open("w") as full:
        running = start(*arguments, stdout=full)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    what, fix = said.splitlines()
    assert what == "outlay: What was to be printed could not be written: No space left on device."
    assert fix == "  Make room where the output goes, or send it elsewhere."


def test_interrupted_without_a_traceback(tmp_path):
    """The workload file is a pipe that gives nothing, so the program surely is at work."""
    path = tmp_path / "work.toml"
    os.mkfifo(path)
    running = start(
        "plan",
        path,
        stdout=subprocess.PIPE,
        # A test run in the background may ignore the signal, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with path.open("w"):
        running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == ""
    assert said.strip() == "outlay: Interrupted."


@pytest.fixture
def installed(tmp_path):
    """A copy of the package, and its data folder, to be spoiled."""
    copy = tmp_path / "lib" / "outlay"
    source = Path(package.__file__).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def cut_inside_a_row(path):
    """Keep the first half of a table and a few characters of the row it ends in."""
    content = path.read_bytes()
    end = content.rindex(b"\n", 0, len(content) // 2)
    path.write_bytes(content[: end + 4])


@pytest.mark.parametrize(
    ("table", "arguments"),
    [
        ("offers_*.csv", ["offers"]),
        ("offers_*.csv", ["plan", "work.toml", "--json"]),
        ("gpus.csv", ["gpus"]),
        ("gpus.csv", ["predict", "resnet50", "--gpu", "T4"]),
        ("calibration.csv", ["predict", "resnet50", "--gpu", "T4"]),
        ("assumptions.csv", ["plan", "work.toml"]),
    ],
)
def test_truncated_table_of_the_package(program, installed, tmp_path, table, arguments):
    (tmp_path / "work.toml").write_text(RIGHT)
    for path in (installed / "data").glob(table):
        cut_inside_a_row(path)
    ended = program(*arguments, package=installed.parent)
    assert ended.code in (1, 2)
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert ended.err.startswith("outlay: ")
    assert len(ended.err.splitlines()) <= 3


@pytest.mark.parametrize("arguments", [["profiles"], ["predict", "resnet50", "--gpu", "T4"]])
def test_truncated_profile_of_the_package(program, installed, arguments):
    path = installed / "data" / "profiles" / "resnet50.json.gz"
    path.write_bytes(path.read_bytes()[:1_000])
    ended = program(*arguments, package=installed.parent)
    said_once(ended, 2, ["resnet50.json.gz", "cannot be read as a profile"])


def test_missing_table_of_the_package(program, installed):
    (installed / "data" / "gpus.csv").unlink()
    ended = program("gpus", package=installed.parent)
    said_once(ended, 1, ["gpus.csv", "cannot be read", "Install outlay again."])


def test_missing_template_of_the_package(program, installed):
    (installed / "data" / "template.toml").unlink()
    ended = program("init", package=installed.parent)
    said_once(ended, 1, ["template.toml"])
