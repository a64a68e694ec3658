from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys

import pytest
from tests.probe.apart import SEARCHED, documented

import outlay
from outlay.errors import ExtraMissing, InputError, ProbeFailed
from outlay.measurement.file import read_measurement

pytestmark = pytest.mark.torch


@pytest.fixture
def training():
    from tests.probe import training

    # What the first step of a process imports is no trace of a probe.
    training.train(2)
    return training


def test_a_block_is_timed_as_by_hand(training):
    ends = []
    with outlay.probing(steps=25) as probe:
        training.train(40, pause_s=0.004, ends=ends)
    measurement = probe.measurement
    assert len(ends) == 40  # without stop, the block goes on to its end
    assert measurement.steps_seen == 25
    assert measurement.ending == "finished"
    step = measurement.step
    assert step is not None
    lengths_s = [b - a for a, b in itertools.pairwise(ends[:25])]
    assert step.median_s == pytest.approx(statistics.median(lengths_s[-step.steps :]), rel=0.05)
    assert step.median_s > 0.004


def test_a_block_tells_what_it_trains(training):
    with outlay.probing(steps=12, price=3.6) as probe:
        training.train(30)
    measurement = probe.measurement
    assert measurement.device == "cpu"
    assert (measurement.ranks, measurement.batch_size) == (1, 8)
    assert [(optimizer.name, optimizer.per_step) for optimizer in measurement.optimizers] == [
        ("SGD", 1.0)
    ]
    # Linear(16, 32) and Linear(32, 1): 16 * 32 + 32 + 32 + 1 = 577 floats, and as many momenta,
    # though the optimizer is gone when the block ends.
    assert measurement.memory.parameters_bytes == 577 * 4
    assert measurement.memory.optimizer_bytes == 577 * 4
    assert measurement.usd == pytest.approx(measurement.elapsed_s / 1000)  # 3.6 USD an hour
    assert measurement.profile is not None
    assert measurement.profile.trainable_parameters == 577
    assert measurement.command[1:] == tuple(sys.argv)


def test_a_stopped_block_is_left_by_its_finally(training):
    left = []

    def block():
        try:
            training.train(10_000)
        finally:
            left.append("cleanly")

    before = training.torch_as_it_is()
    with outlay.probing(steps=12, stop=True) as probe:
        block()
        left.append("too late")
    assert left == ["cleanly"]
    assert probe.measurement.ending == "stopped"
    # 12 for the timing; what is recorded after it does not count.
    assert probe.measurement.steps_seen == 12
    assert training.torch_as_it_is() == before


def test_a_block_that_catches_everything_is_asked_five_times(training):
    caught = []

    def stubborn():
        for _ in range(8):
            try:
                training.train(40)
            except BaseException as error:
                caught.append(str(error))

    with outlay.probing(steps=10, stop=True, operations=False) as probe:
        stubborn()
    assert caught == ["outlay has seen enough of this block"] * 5
    assert probe.measurement.steps_seen == 10


def test_an_error_passes_through_and_nothing_is_left(training):
    before = training.torch_as_it_is()

    def fail(step):
        if step == 2:  # modules are still asked for their batch
            raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"), outlay.probing() as probe:
        training.train(5, each=fail)
    assert (probe.measurement.ending, probe.measurement.steps_seen) == ("failed", 2)
    assert training.torch_as_it_is() == before


def test_an_error_while_operations_are_recorded_leaves_nothing(training):
    before = training.torch_as_it_is()

    def fail(step):
        if training.torch_as_it_is()["modes"]:
            raise ZeroDivisionError(f"at {step}")

    with pytest.raises(ZeroDivisionError), outlay.probing(steps=10) as probe:
        training.train(60, each=fail)
    assert probe.measurement.profile is None
    assert training.torch_as_it_is() == before


def test_what_others_changed_meanwhile_stays(training, monkeypatch):
    import torch

    original = torch.save
    with outlay.probing(operations=False):
        watched = torch.save
        theirs = lambda *args: watched(*args)  # noqa: E731
        monkeypatch.setattr(torch, "save", theirs)
        training.train(3)
    assert torch.save is theirs
    monkeypatch.setattr(torch, "save", original)


def test_blocks_within_blocks_and_after_blocks(training):
    before = training.torch_as_it_is()
    with outlay.probing(steps=20) as outer:
        with outlay.probing(steps=10, stop=True) as inner:
            training.train(10_000)
        training.train(60)
    assert inner.measurement.steps_seen == 10
    assert any("not asked for" in note for note in inner.measurement.notes)
    assert inner.measurement.profile is None  # it would slow down what the outer one times
    assert outer.measurement.steps_seen == 20
    assert outer.measurement.profile is not None
    assert training.torch_as_it_is() == before


def test_a_block_may_be_opened_again(training):
    probe = outlay.probing(steps=8, stop=True, operations=False)
    for _ in range(2):
        with probe:
            training.train(10_000)
        assert (probe.measurement.ending, probe.measurement.steps_seen) == ("stopped", 8)


def test_every_block_knows_how_long_an_epoch_is(training, monkeypatch):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    # However many loaders there are: more than are kept in mind.
    monkeypatch.setattr("outlay.probe.agent.loaders._MOST_REPORTED", 3)
    # 60 samples, 2 in a batch: 30 steps, of which 12 are seen.
    data = TensorDataset(torch.randn(60, 4))
    loaders = [DataLoader(data, batch_size=2) for _ in range(5)]
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def epoch(loader):
        for (inputs,) in loader:
            model(inputs).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    measurement = []
    for loader in (loaders[0], *loaders):
        with outlay.probing(steps=12, stop=True, operations=False) as probe:
            epoch(loader)
        measurement.append(probe.measurement.steps_per_epoch)
    assert set(measurement) == {30}


def test_steps_of_two_lengths_by_turns_are_said(training):
    """An iteration of 50 ms and of none: the order of one optimizer does not tell them apart."""
    import time

    with outlay.probing(steps=30, operations=False) as probe:
        training.train(30, each=lambda step: time.sleep(0.05 * (step % 2)))
    modes = probe.measurement.step_modes
    assert modes is not None
    assert modes.slow_s > 0.05 > modes.fast_s
    assert modes.period == 2
    (note,) = (note for note in probe.measurement.notes if "Steps take" in note)
    assert "by turns" in note
    assert note.endswith("--optimizer-steps 2.")


def test_a_block_without_training_says_so():
    with outlay.probing() as probe:
        pass
    assert probe.measurement.step is None
    assert any("no optimizer made a step" in note for note in probe.measurement.notes)


def test_there_is_no_measurement_before_the_end():
    probe = outlay.probing()
    with pytest.raises(ProbeFailed, match="no measurement yet"):
        _ = probe.measurement
    with probe, pytest.raises(ProbeFailed, match="after the block"):
        _ = probe.measurement


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExtraMissing, match="pip install"), outlay.probing():
        pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": 0}, "steps=0"),
        ({"seconds": -1.0}, "seconds=-1.0"),
        ({"precision": 2.0}, "0.02 for 2 %"),
        ({"price": 0.0}, "price=0.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"total_steps": 0}, "total_steps=0"),
        ({"steps": "a"}, "steps='a' is no number"),
        ({"seconds": "10"}, "seconds='10' is no number"),
        ({"precision": "2 %"}, "precision='2 %' is no number"),
        ({"price": [1]}, r"price=\[1\] is no number"),
        ({"batch_size": "64"}, "batch_size='64' is no number"),
        ({"total_steps": {}}, "total_steps={} is no number"),
        ({"steps": True}, "steps=True is no number"),
        ({"seconds": float("nan")}, "seconds=nan is not above zero"),
        ({"price": 1e308}, r"price is 1e\+308, and may be 1,000,000 at most"),
        ({"batch_size": 10**400}, "batch_size is inf, and may be 1,000,000 at most"),
    ],
)
def test_limits_that_are_none(given, words):
    with pytest.raises(InputError, match=words):
        outlay.probing(**given)


def test_it_is_printed_and_saved(training, tmp_path, capsys):
    with outlay.probing(steps=12, operations=False) as probe:
        training.train(14)
    probe.save(tmp_path / "probe.json")
    probe.report()
    page = capsys.readouterr().out
    assert "a step" in page
    assert "on the CPU" in page
    assert str(tmp_path / "probe.json") in page  # what to do next names the file
    assert read_measurement(tmp_path / "probe.json") == probe.measurement


def test_the_documented_block_runs(training, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(documented("outlay.probing"), {"train": lambda: training.train(30)})
    assert read_measurement(tmp_path / "probe.json").steps_seen == 30
    assert "a step" in capsys.readouterr().out


INSIDE = """
import sys
import outlay, training

with outlay.probing(steps=5, stop=True) as probe:
    training.train(60)
    print("went on")
probe.report()
probe.save(sys.argv[1])
print(probe.measurement.notes[0])
"""


def test_under_outlay_probe_a_block_stands_aside(tmp_path, capfd, monkeypatch):
    from outlay.probe.runner import ProbeRequest, probe_command
    from outlay.probe.stages import ProbeLimits

    monkeypatch.setenv("PYTHONPATH", SEARCHED)
    (tmp_path / "inside.py").write_text(INSIDE)
    saved = tmp_path / "probe.json"
    measurement = probe_command(
        ProbeRequest(
            command=(sys.executable, str(tmp_path / "inside.py"), str(saved)),
            limits=ProbeLimits(to_end=True, operations=False),
        )
    )
    words = capfd.readouterr()
    assert (measurement.status, measurement.ending, measurement.steps_seen) == (0, "finished", 60)
    assert "went on" in words.out
    assert "This process is probed as a whole" in words.out
    assert "outlay: This process is probed as a whole" in words.err
    assert f"outlay: {saved} is not written. This process is probed" in words.err
    assert "No training step" not in words.out
    assert not saved.exists()


def test_the_documented_block_runs_under_outlay_probe(tmp_path, capfd, monkeypatch):
    from outlay.probe.runner import ProbeRequest, probe_command
    from outlay.probe.stages import ProbeLimits

    monkeypatch.setenv("PYTHONPATH", SEARCHED)
    monkeypatch.chdir(tmp_path)
    train = "import training\ntrain = lambda: training.train(30)\n"
    (tmp_path / "inside.py").write_text(train + documented("outlay.probing"))
    limits = ProbeLimits(to_end=True, operations=False)
    measurement = probe_command(ProbeRequest(command=(sys.executable, "inside.py"), limits=limits))
    assert (measurement.status, measurement.ending, measurement.steps_seen) == (0, "finished", 30)
    assert not (tmp_path / "probe.json").exists()
    assert capfd.readouterr().out.count("probed as a whole") == 1


RANK = """
import json, sys, time
import torch, outlay, training

rank = int(sys.argv[1])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2
)
# The second rank sees each step a little later than the first, as ranks do.
steps = []
with outlay.probing(steps=30, stop=True) as probe:
    def each(step):
        steps.append(step)
        torch.distributed.barrier()
    training.train(20_000, each=each, pause_s=0.002 * (1 + rank))
print(json.dumps([len(steps), probe.measurement.ending, probe.measurement.steps_seen]))
torch.distributed.destroy_process_group()
"""


def test_ranks_stop_at_the_same_step(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, tmp_path / "rank.py", str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SEARCHED},
        )
        for rank in (0, 1)
    ]
    first, second = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert first[:2] == second[:2]
    assert first[1] == "stopped"
    assert first[2] >= 30
