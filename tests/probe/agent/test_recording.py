"""What is profiled and recorded after the timing has no evaluation and no checkpoint in it."""

from __future__ import annotations

import types

import pytest
from tests.probe.made import written_reports

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import AgentRequest, KernelTimes
from outlay.probe.agent.recording import Recording
from outlay.probe.agent.step_watch import StepWatch

REQUEST = AgentRequest(profile_from=10, profile_until=13)
MS_NS = 10**6


class Event:
    """A kernel of a fake profile."""

    def __init__(self, start_ns, duration_ns):
        self._span = start_ns, duration_ns

    def device_type(self):
        return "DeviceType.CUDA"

    def name(self):
        return "gemm"

    def start_ns(self):
        return self._span[0]

    def duration_ns(self):
        return self._span[1]


class FakeProfiler:
    """Sees the kernels that the test's GPU runs between its start and its end."""

    gpu = None

    def __init__(self, activities, acc_events=True):
        self._from = 0

    def start(self):
        self._from = len(self.gpu)

    def stop(self):
        events = self.gpu[self._from :]
        results = types.SimpleNamespace(events=lambda: events)
        self.profiler = types.SimpleNamespace(kineto_results=results)


class Training:
    """Steps of 5 ms on a fake GPU, with evaluations of 100 ms before some of them."""

    def __init__(self):
        self.gpu = []
        profiler = type("Profiler", (FakeProfiler,), {"gpu": self.gpu})
        self.channel = Channel()
        torch = types.SimpleNamespace(
            profiler=types.SimpleNamespace(
                ProfilerActivity=types.SimpleNamespace(CUDA=1), profile=profiler
            ),
            cuda=types.SimpleNamespace(synchronize=lambda: None),
        )
        watch = types.SimpleNamespace(
            torch=torch,
            channel=self.channel,
            recorder=None,
            device=types.SimpleNamespace(index=0),
        )
        self.recording = Recording(watch)
        self.now_ns = 0

    def runs(self, ms):
        self.gpu.append(Event(self.now_ns, ms * MS_NS))
        self.now_ns += ms * MS_NS

    def kernels(self, evaluations):
        """What is reported of a profile, with an evaluation after each of the steps given."""
        for step in range(1, 20):
            self.runs(5)
            self.recording.after_step(step, REQUEST)
            if step in evaluations:
                self.recording.pause_begins(step)
                self.runs(100)
        return written_reports(self.channel, KernelTimes)


@pytest.mark.parametrize(
    ("evaluations", "steps"),
    [
        pytest.param((), 3, id="none"),
        pytest.param((9, 13), 3, id="before and after"),
        pytest.param((12,), 2, id="within"),
        pytest.param((10,), 2, id="before a whole step, which costs it"),
        pytest.param((10, 11), 1, id="twice"),
    ],
)
def test_a_profile_has_steps_alone(evaluations, steps):
    (kernels,) = Training().kernels(evaluations)
    assert kernels.optimizer_steps == steps
    assert kernels.busy_s == pytest.approx(5e-3 * steps)


def test_a_profile_without_a_whole_step_is_none():
    assert Training().kernels((10, 11, 12)) == []


class Paused:
    """Takes the place of the recording."""

    def __init__(self):
        self.at_steps = []
        self.kept_out = 0

    def pause_begins(self, step):
        self.at_steps.append(step)

    def step_was(self, *, is_pause):
        self.kept_out += is_pause


@pytest.mark.torch
@pytest.mark.parametrize(
    ("every", "kept_out"), [(1, []), (2, [*range(16, 41, 2)]), (10, [20, 30, 40])]
)
def test_what_is_part_of_nearly_every_step_is_no_pause(every, kept_out):
    """A generator in evaluation mode while its critic learns belongs to the training."""
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = StepWatch(torch, Channel())
    watch.install()
    try:
        for step in range(1, 41):
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
            if step == 15:
                watch.recording = paused = Paused()
            if step % every == 0:
                model.eval()
                model.train()
    finally:
        watch.recording = None
        watch.uninstall()
    assert paused.at_steps == kept_out


@pytest.mark.torch
@pytest.mark.parametrize("critics", [1, 3])
def test_what_always_follows_one_of_two_optimizers_is_no_pause(critics):
    """A GAN: 1 of 2 steps, or 3 of 4, come after the generator was in evaluation mode."""
    import torch

    model = torch.nn.Linear(2, 1)
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    watch = StepWatch(torch, Channel())
    watch.install()
    try:
        watch.recording = paused = Paused()
        for _ in range(20):
            for _ in range(critics):
                model.eval()
                model(torch.ones(3, 2)).sum().backward()
                model.train()
                first.step()
            model(torch.ones(3, 2)).sum().backward()
            second.step()
    finally:
        watch.recording = None
        watch.uninstall()
    # Until it is known how often: once at the start, and once after each of the two at most.
    assert len(paused.at_steps) <= 3
    assert paused.kept_out <= 3


def test_a_profile_that_a_pause_has_spoiled_begins_anew():
    """Nothing shows that the evaluation began: it is known when the step is over."""
    training = Training()
    for step in range(1, 20):
        training.runs(5)
        training.recording.step_was(is_pause=step == 12)
        training.recording.after_step(step, REQUEST)
        if step == 11:
            training.runs(100)
    (kernels,) = written_reports(training.channel, KernelTimes)
    assert len(training.channel.lines) == 1
    # Requested are 10 to 13: what began at 10 is lost, and 12 to 13 is left.
    assert kernels.optimizer_steps == 1
    assert kernels.busy_s == pytest.approx(5e-3)


@pytest.mark.torch
def test_an_evaluation_within_a_recorded_step_is_not_recorded():
    import torch

    from outlay.trace.capture.live_recorder import LiveRecorder

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def recorded(evaluates):
        recorder = LiveRecorder("cpu")
        recorder.start()
        if evaluates:
            with torch.no_grad():
                model(torch.ones(7, 4))
        model(torch.ones(5, 4)).sum().backward()
        recorder.before_update(optimizer)
        optimizer.step()
        recorder.after_update()
        recorder.step_was(is_pause=evaluates)
        return recorder.stop()

    recorded(evaluates=False)  # the first step makes what later ones have
    plain = recorded(evaluates=False)
    assert plain["rows"] == 5
    assert recorded(evaluates=True) == plain


@pytest.mark.torch
def test_what_is_frozen_again_after_its_update_is_trained():
    import torch

    from outlay.trace.capture.live_recorder import LiveRecorder

    turns, fixed = torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD([*turns.parameters(), *fixed.parameters()], lr=0.1)
    fixed.requires_grad_(False)
    recorder = LiveRecorder("cpu")
    recorder.start()
    turns(torch.ones(5, 4)).sum().backward()
    recorder.before_update(optimizer)
    optimizer.step()
    recorder.after_update()
    turns.requires_grad_(False)
    record = recorder.stop()
    assert (record["parameters"], record["trainable_parameters"]) == (24, 12)
