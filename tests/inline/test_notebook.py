from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.probe.apart import QUIET

from outlay.errors import ExtraMissing
from outlay.measurement.file import read_measurement


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """An IPython of the tests' own, with the magics."""
    core = pytest.importorskip("IPython.core.interactiveshell")
    before = os.environ.get("IPYTHONDIR")
    os.environ["IPYTHONDIR"] = str(tmp_path_factory.mktemp("ipython"))
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False
    shell = core.InteractiveShell.instance(config=config)
    shell.run_cell("%load_ext outlay").raise_error()
    shell.run_cell("from tests.probe.training import torch_as_it_is, train; train(2)").raise_error()
    yield shell
    core.InteractiveShell.clear_instance()
    if before is None:
        del os.environ["IPYTHONDIR"]
    else:
        os.environ["IPYTHONDIR"] = before


@pytest.fixture(autouse=True)
def fresh(request):
    if "shell" in request.fixturenames:
        shell = request.getfixturevalue("shell")
        for name in ("_probe", "reached"):
            shell.user_ns.pop(name, None)


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_cell_is_stopped_when_enough_was_seen(shell, tmp_path, capsys):
    saved = tmp_path / "a probe.json"
    before = shell.run_cell("torch_as_it_is()", silent=True).result
    cell = f'%%probe --steps 12 --price 3.6 --batch-size 4 --json "{saved}"\n'
    shell.run_cell(cell + "reached = 'in'\ntrain(10_000)\nreached = 'after'").raise_error()
    measurement = shell.user_ns["_probe"]
    assert (measurement.ending, measurement.steps_seen, measurement.batch_size) == (
        "stopped",
        12,
        4,
    )
    assert measurement.price_usd_per_hour == 3.6
    assert measurement.command == ("%%probe",)
    assert shell.user_ns["reached"] == "in"
    assert read_measurement(saved) == measurement
    page = capsys.readouterr().out
    assert "a step" in page
    assert "outlay predict" in page
    assert shell.run_cell("torch_as_it_is()", silent=True).result == before


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_cell_that_ends_by_itself_shows_its_value(shell):
    done = shell.run_cell("%%probe --until 2%\nreached = train(3)\nreached * 2")
    assert done.result == 6
    assert shell.user_ns["reached"] == 3
    assert shell.user_ns["_probe"].ending == "finished"


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_statement(shell):
    done = shell.run_cell("%probe --steps 8 --for=5m train(12)")
    assert done.result == 12 or shell.user_ns["_probe"].ending == "stopped"
    assert shell.user_ns["_probe"].steps_seen == 8
    assert shell.user_ns["_probe"].command == ("%probe train(12)",)


@pytest.mark.torch
@pytest.mark.frameworks
def test_an_error_in_a_cell_is_shown_and_what_was_seen_kept(shell):
    cell = "%%probe\ntrain(4)\nraise ZeroDivisionError('of the user')"
    done = shell.run_cell(cell)
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    assert (shell.user_ns["_probe"].ending, shell.user_ns["_probe"].steps_seen) == ("failed", 4)


@pytest.mark.torch
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%probe --stepps 5\ntrain(2)", "--stepps 5 is no option"),
        ("%%probe --steps many\ntrain(2)", "--steps 'many' is no number"),
        ("%%probe --until often\ntrain(2)", "--until 'often' is no precision"),
        ("%%probe --json no/such/folder/x.json\ntrain(2)", "there is no folder no/such/folder"),
        ("%%probe train(2)\ntrain(2)", "'train(2)' is no option of %%probe"),
        ("%%probe train(2)\ntrain(2)", "of %%probe. Options, each with a value: --steps, --for"),
        ("%%probe --batch-size 9999999\ntrain(2)", "may be 1,000,000 at most"),
        ("%probe --steps 5", "There is nothing to probe"),
    ],
)
def test_what_cannot_be_meant_is_one_line(shell, capsys, cell, words):
    done = shell.run_cell(cell)
    assert type(done.error_in_exec).__name__ == "UsageError"
    assert words in str(done.error_in_exec)
    assert "_probe" not in shell.user_ns


@pytest.mark.torch
@pytest.mark.frameworks
def test_the_magics_go_as_they_came(shell):
    shell.run_cell("%unload_ext outlay").raise_error()
    assert "probe" not in shell.magics_manager.magics["cell"]
    shell.run_cell("%load_ext outlay").raise_error()
    assert "probe" in shell.magics_manager.magics["cell"]


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_script_of_cells_in_ipython_itself(tmp_path):
    (tmp_path / "cells.ipy").write_text(
        "%load_ext outlay\nfrom training import train\n%probe --steps 8 train(10_000)\n"
        "print('seen', _probe.ending, _probe.steps_seen)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--quick", "cells.ipy"],
        cwd=tmp_path,
        env={**os.environ, **QUIET, "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "seen stopped 8" in done.stdout, done.stdout + done.stderr


def test_without_ipython_it_says_what_to_install(monkeypatch):
    import outlay

    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(ExtraMissing, match="pip install ipython"):
        outlay.load_ipython_extension(object())
