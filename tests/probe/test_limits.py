"""When a probe stops, and what is refused before anything is started."""

from __future__ import annotations

import sys

import pytest
from tests.probe.probed import PYTHON, SCRIPTS, probe, probe_script

from outlay.cli.main import main

NEVER = ("--", PYTHON, "-c", "open('started', 'w')")


@pytest.mark.torch
def test_for_a_time(tmp_path):
    """With `python -m`, and a length to work out time and cost to finish."""
    options = ("--for", "1s", "--no-operations", "--length", "360,000 steps", "--price", "$1")
    command = ("--", PYTHON, "-m", "package.train", "clock.json")
    probed = probe(tmp_path, *options, *command, PYTHONPATH=str(SCRIPTS))
    measurement = probed.measurement
    assert (probed.code, measurement.ending) == (0, "stopped")
    own_s = probed.own_s()
    # A second since the first step, up to half of one until it is looked at, and a step.
    assert 1.0 < own_s[-1] - own_s[0] < 3.0
    assert measurement.price_usd_per_hour == 1
    assert measurement.usd == pytest.approx(measurement.elapsed_s / 3600)
    hours = 360_000 * probed.step.mean_s / 3600
    assert 0.8 < hours < 1.6  # 8 ms a step and what a busy machine adds
    assert "360,000 steps" in " ".join(probed.err.split())
    assert measurement.profile is None


@pytest.mark.torch
def test_until_it_is_known_well_enough(tmp_path):
    probed = probe_script(tmp_path, "lean.py", options=("--until", "15%", "--no-operations"))
    assert (probed.code, probed.measurement.ending) == (0, "stopped")
    assert probed.step.precision <= 0.15
    # At least 3 s of steady state, and no more than the time that took.
    assert 3.0 <= probed.step.mean_s * probed.step.steps <= probed.measurement.elapsed_s


@pytest.mark.torch
def test_to_its_end(tmp_path):
    """A command that is only watched goes on to its own end, with its own words."""
    options = ("--steps", 30, "--to-end")
    probed = probe_script(tmp_path, "plain.py", 0, "-", 180, options=options)
    assert (probed.code, probed.measurement.ending) == (0, "finished")
    assert probed.out == "trained to the end\n"
    assert len(probed.own_s()) == 180
    assert probed.measurement.profile is not None
    assert 30 <= probed.measurement.steps_seen <= 180


@pytest.mark.torch
def test_what_it_may_cost(tmp_path):
    # At 36,000 dollars an hour a dollar is gone after a tenth of a second: before torch is
    # imported. The first step is the last one then.
    options = ("--price", "36000", "--max-cost", "$1")
    probed = probe_script(tmp_path, "lean.py", options=options)
    assert (probed.code, probed.measurement.ending) == (0, "stopped")
    assert len(probed.own_s()) == 0  # stopped within its first step
    assert probed.measurement.usd >= 1
    assert probed.measurement.step is None


@pytest.mark.torch
def test_a_script_that_ends_before_the_limit(tmp_path):
    """What there is of it is told: too few steps are no step time."""
    probed = probe_script(tmp_path, "plain.py", 0, "-", 2, options=("--steps", 40))
    assert (probed.code, probed.measurement.ending) == (0, "finished")
    assert probed.out == "trained to the end\n"
    assert probed.measurement.steps_seen == 2
    assert probed.measurement.step is None
    assert probed.measurement.batch_size == 8


WRONG = [
    ("--steps", "0"),
    ("--steps", "many"),
    ("--for", "soon"),
    ("--for", "0s"),
    ("--until", "2"),
    ("--until", "0%"),
    ("--until", "well"),
    ("--price", "free"),
    ("--price", "-1"),
    ("--max-cost", "$2"),
    ("--price", "1", "--max-cost", "nan"),
    ("--length", "90 weeks"),
    ("--length", "long"),
    ("--length", "90"),
    ("--length", "90 hours"),
    ("--length", "1e30 steps"),
    ("--price", "1e308"),
    ("--price", "1", "--max-cost", "1e30"),
    ("--batch-size", "0"),
    ("--batch-size", str(10**30)),
    ("--steps", str(10**30)),
    ("--optimizer-steps", str(10**7)),
    ("--optimizer-steps", "0"),
    ("--largest", "8"),
    ("--target", "step.py:step"),
    ("--json", "missing/probe.json"),
    ("--json", "."),
    ("--json", "-"),
    ("--plot", "missing/plot.html"),
    ("--plot", "plot.doc"),
    ("--stepps", "5"),
    ("--find-batch", "batch"),
    ("--find-batch", "batch", "--plot", "plot.html"),
    ("--find-batch", "batch", "--until", "2%"),
    ("--find-batch", "batch", "--batch-size", "8"),
    ("--show", "probe.json", "--json", "other.json"),
    ("--show", "probe.json", "--find-batch", "batch"),
]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """What is said to options that are refused, without a process of its own."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["outlay", "probe", *arguments])
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
        with pytest.raises(SystemExit) as gone:
            main()
        assert gone.value.code == 2
        assert not (tmp_path / "started").exists()
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize("options", WRONG, ids=" ".join)
def test_what_is_refused_at_once(refused, options):
    words = refused(*options, *NEVER)
    assert options[-2] in words or options[-1] in words
    assert len(words.splitlines()) <= 5


def test_an_empty_command(refused):
    assert "The command to probe is empty" in refused("--", "")


def test_no_command(refused):
    assert "outlay probe -- python train.py" in refused("--steps", "5", "--")
