"""What was told becomes a measurement, and what told nothing stays unknown."""

from __future__ import annotations

import pytest
from tests.measured import STEP

from outlay.measurement_file import measurement_from_json, measurement_to_json
from outlay.probe.assemble import Circumstances, measurement_of
from outlay.probe.course import Limits
from outlay.probe.gpu_driver import GpuDevice
from outlay.probe.listen import Told
from outlay.probe.steps import StepsSeen


class NoSampler:
    """A machine that nothing was read from."""

    samples = ()

    def describe_gpus(self):
        return ()

    def energy_j(self, begin_s, end_s):
        return None


def measured(ending="stopped", stopped_for=None, *, batch_size=None, loader_s=None, **facts):
    told = [Told(facts=facts)]
    seen = StepsSeen(
        step=STEP, steps_seen=100, per_step=(1.0,), skipped=(0,), samples_per_step=loader_s
    )
    circumstances = Circumstances(
        command=("python", "train.py"),
        ending=ending,
        status=0,
        stopped_for=stopped_for,
        started_s=0.0,
        elapsed_s=60.0,
        limits=Limits(),
        batch_size=batch_size,
    )
    return measurement_of(seen, told, told, NoSampler(), circumstances)


@pytest.mark.parametrize(("busy_s", "known_s"), [(0.0, None), (0.8, 0.2)])
def test_a_profile_without_kernels_says_nothing_of_their_time(busy_s, known_s):
    # 0.8 s of kernels in 4 steps are 0.2 s each
    found = measured(kernels={"optimizer_steps": 4, "busy_s": busy_s, "exchange_s": 0.0})
    assert found.busy_s == known_s
    assert measurement_from_json(measurement_to_json(found)).busy_s == known_s


def test_a_batch_without_rows_is_no_batch():
    assert measured(batch={"samples": 0}).samples_per_step is None
    assert measured(batch={"samples": 8}).samples_per_step == 8


@pytest.mark.parametrize(("told_w", "known_w"), [(0.0, None), (None, None), (450.0, 450.0)])
def test_a_power_limit_of_nothing_is_none(told_w, known_w):
    device = GpuDevice(index=0, name="NVIDIA L4", power_limit_w=told_w)
    assert device.seen.power_limit_w == known_w


def test_a_given_batch_size_that_is_not_the_one_seen_is_said():
    def said(found):
        return [note for note in found.notes if "batch size" in note]

    other = measured(batch_size=7, loader_s=32.0)
    assert other.samples_per_step == 7
    assert said(other) == [
        "The given batch size of 7 is what is counted; its DataLoader has 32 samples a pass."
    ]
    assert "a module's input has 8 samples" in said(measured(batch_size=7, batch={"samples": 8}))[0]
    # 31.5 in the mean: a batch at the end of an epoch was cut short
    assert said(measured(batch_size=32, loader_s=31.5)) == []
    assert said(measured(batch_size=7)) == said(measured(loader_s=32.0)) == []


@pytest.mark.parametrize(
    ("ending", "limit", "words"),
    [
        ("stopped", "time", "--optimizer-steps 32"),
        ("stopped", "cost", "Give a larger --max-cost"),
        ("finished", "time", "the command ended before"),
        ("interrupted", None, "you stopped the command before"),
    ],
)
def test_why_no_operations_were_recorded(ending, limit, words):
    found = measured(ending, limit)
    (note,) = (note for note in found.notes if note.startswith("The operations of a step"))
    assert words in note
    assert ("ended before" in note) is (ending == "finished")


def test_the_limit_is_told_only_where_it_ended_the_command():
    assert measured("stopped", "cost").stopped_for == "cost"
    assert measured("stopped").stopped_for is None
    assert measured("finished", "precision").stopped_for is None
    again = measurement_from_json(measurement_to_json(measured("stopped", "time")))
    assert again.stopped_for == "time"
