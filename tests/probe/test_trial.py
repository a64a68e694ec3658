"""What one run says of its batch size, whatever way it runs out of memory."""

from __future__ import annotations

import pytest
from tests.measured import a_short_measurement
from tests.probe.made import table

from outlay.probe.messages import ProcessLog
from outlay.probe.stages import ProbeLimits
from outlay.probe.trial import trial_of, usual_batch_size


def test_a_run_that_steps_fits() -> None:
    trial = trial_of(32, a_short_measurement(), b"")
    assert trial.outcome == "fits"
    assert trial.peak_allocated_bytes == 5e9


def test_an_alarm_that_the_script_survives_fits() -> None:
    # cuDNN asks for a large workspace, is refused, and takes another algorithm.
    assert trial_of(32, a_short_measurement(ran_out_of_memory=True), b"").outcome == "fits"


def test_a_fit_despite_an_alarm_says_so() -> None:
    assert "did with less" in trial_of(32, a_short_measurement(ran_out_of_memory=True), b"").why


GAVE_UP = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(("alarm", "words"), [(True, b""), (False, GAVE_UP), (True, GAVE_UP)])
def test_a_script_that_gives_up_by_itself_ran_out(alarm: bool, words: bytes) -> None:
    run = a_short_measurement(ending="finished", steps_seen=5, ran_out_of_memory=alarm)
    assert trial_of(32, run, words, limits=ProbeLimits(steps=20)).outcome == "out of memory"


def test_a_script_that_ends_early_in_peace_fits() -> None:
    run = a_short_measurement(ending="finished", steps_seen=5)
    hint = b"hint: set PYTORCH_ALLOC_CONF to avoid running out of memory\n"
    assert trial_of(32, run, hint, limits=ProbeLimits(steps=20)).outcome == "fits"


def test_a_script_that_made_its_steps_fits_whatever_it_says() -> None:
    run = a_short_measurement(ending="finished", steps_seen=20, ran_out_of_memory=True)
    assert trial_of(32, run, GAVE_UP, limits=ProbeLimits(steps=20)).outcome == "fits"


def test_a_short_last_batch_is_no_smaller_batch() -> None:
    # 500 samples in batches of 128: three whole ones and one of 116, 125 in the mean.
    run = a_short_measurement(ran_out_of_memory=True, samples_per_step=125.0)
    assert trial_of(128, run, b"").outcome == "fits"


def test_the_usual_pass_is_what_most_batches_have() -> None:
    def logs(sizes: list[int], batches: int = 1) -> list[ProcessLog]:
        marks = {place: {"samples": size} for place, size in enumerate(sizes)}
        return [ProcessLog(table=table([0] * len(sizes), batches=batches, marks=marks))]

    # 300 samples in batches of 256: every other one has 44, and the mean is 150.
    assert usual_batch_size(logs([256, 44, 256, 44])) == 256
    # Halved after its second step.
    assert usual_batch_size(logs([128, 128, 64, 64, 64, 64])) == 64
    # Four batches a step.
    assert usual_batch_size(logs([32, 32, 20], batches=4)) == 8
    assert usual_batch_size([]) is None
    # One batch for ten steps is cut up by the script.
    marks = {place: {"samples": 640, "batches": 1} for place in (0, 10)}
    assert usual_batch_size([ProcessLog(table=table([0] * 20, marks=marks))]) is None


def test_a_script_that_halves_its_batch_does_not_fit() -> None:
    run = a_short_measurement(ran_out_of_memory=True, samples_per_step=16.0)
    assert trial_of(32, run, b"").outcome == "out of memory"


@pytest.mark.parametrize(
    "words",
    [
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        b"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        b"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
        b"RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory",
        b"HIP out of memory. Tried to allocate 20.00 MiB",
    ],
)
def test_words_for_out_of_memory(words: bytes) -> None:
    run = a_short_measurement(ending="failed", status=1, steps_seen=0, step=None)
    trial = trial_of(32, run, b"Traceback\n" + words + b"\n")
    assert trial.outcome == "out of memory"
    assert trial.why == words.decode()


def test_a_run_that_the_kernel_killed_is_out_of_memory() -> None:
    run = a_short_measurement(ending="killed", status=137, steps_seen=2, step=None)
    assert trial_of(32, run, b"").outcome == "out of memory"


TORCHRUN = b"""[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================
train.py FAILED
-----------------------
Failures:
  <NO_OTHER_FAILURES>
-----------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : %s (pid: 5)
  traceback : %s
=======================
"""


def test_a_rank_that_the_kernel_killed_is_out_of_memory() -> None:
    run = a_short_measurement(ending="failed", status=1, steps_seen=0, step=None)
    words = TORCHRUN % (b"-9", b"Signal 9 (SIGKILL) received by PID 5")
    trial = trial_of(32, run, words)
    assert trial.outcome == "out of memory"
    assert "Signal 9 (SIGKILL) received" in trial.why
    words = TORCHRUN % (b"1", b"To enable traceback see the documentation")
    trial = trial_of(32, run, words)
    assert trial.outcome == "failed"
    assert trial.why == "status 1: [rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1"


@pytest.mark.parametrize(
    "words",
    [
        b"RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
        b"subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>.",
        b"ProcessExitedException: process 1 terminated with signal SIGKILL",
    ],
)
def test_words_for_a_process_that_was_killed(words: bytes) -> None:
    run = a_short_measurement(ending="failed", status=1, steps_seen=0, step=None)
    assert trial_of(32, run, words).outcome == "out of memory"


def test_an_exception_tells_more_than_what_was_printed_before_it() -> None:
    run = a_short_measurement(ending="failed", status=1, steps_seen=0, step=None)
    words = b"warning: large batches may go out of memory\nTraceback\nValueError: shapes\n-----\n"
    trial = trial_of(32, run, words)
    assert (trial.outcome, trial.why) == ("failed", "status 1: ValueError: shapes")


def test_another_failure_is_none_of_memory() -> None:
    run = a_short_measurement(ending="failed", status=1, steps_seen=0, step=None)
    trial = trial_of(32, run, b"ValueError: shapes\n")
    assert trial.outcome == "failed"
    assert trial.why == "status 1: ValueError: shapes"


def test_a_run_that_ends_before_three_steps_tells_nothing() -> None:
    run = a_short_measurement(ending="finished", steps_seen=1, step=None)
    assert trial_of(32, run, b"").outcome == "failed"


def test_long_steps_need_not_be_many() -> None:
    assert trial_of(32, a_short_measurement(steps_seen=1), b"").outcome == "fits"
    assert trial_of(32, a_short_measurement(steps_seen=0, step=None), b"").outcome == "failed"


def test_why_there_was_no_step() -> None:
    limits = ProbeLimits(duration_s=15.0, start_s=105.0)
    late = a_short_measurement(steps_seen=0, step=None, stopped_for="time", elapsed_s=140.0)
    assert trial_of(32, late, b"", limits=limits).why == "it made no step within 120 s"
    poor = a_short_measurement(steps_seen=0, step=None, stopped_for="cost")
    assert "money was spent" in trial_of(32, poor, b"", limits=limits).why
