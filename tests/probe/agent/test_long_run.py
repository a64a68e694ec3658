"""A run that is only looked at, for days: steps are counted, little is written, torch is left."""

from __future__ import annotations

import json
import threading
import time

import pytest

from outlay.probe.agent.channel import Channel, FileChannel
from outlay.probe.agent.protocol import LONG_RUN_FILE, Loss, ProcessInfo, RunProgress
from outlay.probe.agent.step_watch import LongRunWatch, long_run_beat_s, stack_of

pytestmark = pytest.mark.torch


@pytest.fixture
def watch():
    import torch

    made = LongRunWatch(torch, Channel(), 0.02)
    made.install()
    yield made
    made.uninstall()


def reports(channel, kind):
    said = [json.loads(line) for line in channel.lines]
    return [kind(**values) for name, values in said if name == kind.__name__]


def model(count=1):
    import torch

    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(count)]
    return weights, [torch.optim.SGD([weight], lr=0.01) for weight in weights]


def train(weights, optimizers, steps):
    for _ in range(steps):
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()


def until(is_true, within_s=10.0):
    ends_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < ends_s, "it never came about"
        time.sleep(0.01)


def test_steps_are_counted_and_written_by_a_thread(watch):
    weights, optimizers = model()
    train(weights, optimizers, 500)
    until(lambda: reports(watch.channel, RunProgress)[-1:] != [])
    until(lambda: reports(watch.channel, RunProgress)[-1].steps == 500)
    assert len(reports(watch.channel, RunProgress)) < 100  # not one for each step
    assert reports(watch.channel, ProcessInfo)[0].device == "cpu"
    train(weights, optimizers, 1)
    until(lambda: reports(watch.channel, Loss))
    assert reports(watch.channel, Loss)[0].value == pytest.approx(2.0)  # of the first pass: 1 + 1


def test_optimizers_that_step_by_turns_make_one_step_together(watch):
    train(*model(3), steps=20)
    assert watch.steps == 60
    assert watch.training_steps == 20


def test_a_new_optimizer_for_each_epoch_goes_on_counting(watch):
    for _ in range(5):
        train(*model(), steps=10)
    # The first step of each new one is of the same round as the last of the one before.
    assert 46 <= watch.training_steps <= 50


def test_passes_without_an_optimizer_are_steps(watch):
    import torch

    weight = torch.nn.Parameter(torch.ones(2))
    for _ in range(100):
        (weight**2).sum().backward()
    assert watch.training_steps == 100 - 63  # the 64th shows that there is no optimizer


def test_batches_and_checkpoints_count_without_a_step(watch, tmp_path):
    import torch

    train(*model(), steps=1)
    loader = torch.utils.data.DataLoader(torch.ones(8), batch_size=2)
    for _ in range(3):
        list(loader)
    torch.save({"weight": torch.ones(3)}, tmp_path / "saved.pt")
    # 4 batches, and the call that finds the end, each time
    until(lambda: [one.batches for one in reports(watch.channel, RunProgress)][-1:] == [15])
    until(lambda: reports(watch.channel, RunProgress)[-1].checkpoints == 1)


def test_torch_is_left_as_it_was(watch):
    import torch

    watch.uninstall()
    before = watch.steps
    train(*model(), steps=3)
    assert watch.steps == before
    assert torch.autograd.backward.__module__ == "torch.autograd"


def test_passes_are_not_looked_at_once_there_is_an_optimizer(watch):
    import torch

    original = torch.autograd.backward.__wrapped__
    train(*model(), steps=2)
    watch._loss_is_due = False
    train(*model(), steps=2)
    assert torch.autograd.backward is original


def test_the_file_does_not_grow_without_end(tmp_path, monkeypatch):
    import torch

    from outlay.probe.agent import step_watch

    monkeypatch.setattr(step_watch, "_MOST_BYTES", 2000)
    watch = LongRunWatch(torch, FileChannel(str(tmp_path)), 100.0)
    watch.channel.is_shared = False  # no handlers that outlive this test
    watch.install()
    try:
        for _ in range(100):
            train(*model(), steps=2)
            watch._beat()
        (path,) = tmp_path.glob("*.lines")
        assert path.stat().st_size < 4000
        kinds = [json.loads(line)[0] for line in path.read_text().splitlines()]
        assert "ProcessInfo" in kinds  # who reads it from here on knows whose it is
        assert kinds[-1] == "RunProgress"
    finally:
        watch.uninstall()


def test_a_run_is_known_by_its_variable_or_its_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("OUTLAY_PROBE_LONG_RUN", raising=False)
    assert long_run_beat_s(str(tmp_path)) == 0.0
    (tmp_path / LONG_RUN_FILE).write_text("2.5")
    assert long_run_beat_s(str(tmp_path)) == 2.5
    monkeypatch.setenv("OUTLAY_PROBE_LONG_RUN", "odd")
    assert long_run_beat_s(str(tmp_path)) == 1.0


# Where a thread is


def _stack_while(call):
    """What is said of a thread that is in a call which does not return by itself."""
    import torch

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(0.2)
    first, second = (stack_of(torch, thread.ident) for _ in range(2))
    assert first == second
    return first[:2]


def test_a_thread_that_waits_within_torch_is_blocked():
    import torch

    future = torch.futures.Future()
    assert _stack_while(lambda: future.wait())[0] == "blocked"
    future.set_result(1)


def test_a_method_that_is_not_written_in_python_is_known_by_its_call():
    class Work:
        """As `torch.distributed.Work`: its `wait` is no Python."""

        def __init__(self):
            self.lock = threading.Lock()
            self.lock.acquire()
            self.wait = self.lock.acquire

    work, other = Work(), Work()
    stack, where = _stack_while(lambda: work.wait())
    assert (stack, where.endswith("wait()")) == ("blocked", True)
    assert _stack_while(lambda: other.lock.acquire())[0] == "other"
    for one in (work, other):
        one.lock.release()


def test_a_thread_that_sleeps_or_calculates_is_not_blocked():
    event = threading.Event()
    assert _stack_while(event.wait)[0] == "other"  # of threading, not of torch
    event.set()


def test_a_thread_that_is_gone_is_nowhere():
    import torch

    assert stack_of(torch, 1) == ("other", "", ())
