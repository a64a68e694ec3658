"""The largest batch by trials of a real script, whatever way it runs out of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.measured import a_step
from tests.probe.made import table
from tests.probe.probed import PYTHON, SCRIPTS, probe

from outlay.errors import InputError
from outlay.measurement import MachineSeen, Measurement, MemorySeen
from outlay.probe import find_batch as find_batch_module
from outlay.probe.batches import BatchSearch
from outlay.probe.course import Limits
from outlay.probe.find_batch import find_batch
from outlay.probe.hunt import Known
from outlay.probe.listen import Told
from outlay.probe.run import Asking
from outlay.probe.slot import Slot
from outlay.probe.trial import trial_of, usual_pass

SCRIPT = SCRIPTS / "runs_out.py"


def a_run(**changes: object) -> Measurement:
    given = {
        "command": ("python", "train.py"),
        "measured_on": "2026-11-15",
        "ending": "stopped",
        "status": 0,
        "machine": MachineSeen(system="Linux"),
        "device": "cuda",
        "step": a_step(),
        "steps_seen": 20,
        "samples_per_step": 32.0,
        "memory": MemorySeen(allocated_bytes=5e9, reserved_bytes=6e9),
    }
    return Measurement(**{**given, **changes})


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        (("python", "train.py", "--batch-size", "{batch}"), "batch"),
        (("python", "train.py", "--batch-size", "{batch}"), "{batch}"),
        (("python", "train.py", "--batch-size", "8"), "--batch-size"),
        (("bash", "-c", "python train.py --batch-size {n}"), "n"),
    ],
)
def test_slot_puts_the_size_into_the_command(command: tuple[str, ...], argument: str) -> None:
    filled = Slot(command=command, argument=argument).filled(64)
    assert "--batch-size 64" in " ".join(filled)


def test_slot_of_an_assignment() -> None:
    slot = Slot(command=("python", "train.py", "data.batch=32"), argument="data.batch")
    assert slot.present == 32
    assert slot.filled(7) == ("python", "train.py", "data.batch=7")


def test_no_slot() -> None:
    with pytest.raises(InputError, match="neither {batch} nor batch"):
        Slot(command=("python", "train.py"), argument="batch").check()


def test_a_run_that_steps_fits() -> None:
    trial = trial_of(32, a_run(), b"")
    assert trial.outcome == "fits"
    assert trial.peak_allocated_bytes == 5e9


def test_an_alarm_that_the_script_survives_fits() -> None:
    # cuDNN asks for a large workspace, is refused, and takes another algorithm.
    assert trial_of(32, a_run(ran_out_of_memory=True), b"").outcome == "fits"


def test_a_fit_despite_an_alarm_says_so() -> None:
    assert "did with less" in trial_of(32, a_run(ran_out_of_memory=True), b"").why


GAVE_UP = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(("alarm", "words"), [(True, b""), (False, GAVE_UP), (True, GAVE_UP)])
def test_a_script_that_gives_up_by_itself_ran_out(alarm: bool, words: bytes) -> None:
    run = a_run(ending="finished", steps_seen=5, ran_out_of_memory=alarm)
    assert trial_of(32, run, words, limits=Limits(steps=20)).outcome == "out of memory"


def test_a_script_that_ends_early_in_peace_fits() -> None:
    run = a_run(ending="finished", steps_seen=5)
    hint = b"hint: set PYTORCH_ALLOC_CONF to avoid running out of memory\n"
    assert trial_of(32, run, hint, limits=Limits(steps=20)).outcome == "fits"


def test_a_script_that_made_its_steps_fits_whatever_it_says() -> None:
    run = a_run(ending="finished", steps_seen=20, ran_out_of_memory=True)
    assert trial_of(32, run, GAVE_UP, limits=Limits(steps=20)).outcome == "fits"


def test_a_short_last_batch_is_no_smaller_batch() -> None:
    # 500 samples in batches of 128: three whole ones and one of 116, 125 in the mean.
    run = a_run(ran_out_of_memory=True, samples_per_step=125.0)
    assert trial_of(128, run, b"").outcome == "fits"


def test_the_usual_pass_is_what_most_batches_have() -> None:
    def told(sizes: list[int], batches: int = 1) -> list[Told]:
        marks = {place: {"samples": size} for place, size in enumerate(sizes)}
        return [Told(table=table([0] * len(sizes), batches=batches, marks=marks))]

    # 300 samples in batches of 256: every other one has 44, and the mean is 150.
    assert usual_pass(told([256, 44, 256, 44])) == 256
    # Halved after its second step.
    assert usual_pass(told([128, 128, 64, 64, 64, 64])) == 64
    # Four batches a step.
    assert usual_pass(told([32, 32, 20], batches=4)) == 8
    assert usual_pass([]) is None
    # One batch for ten steps is cut up by the script.
    marks = {place: {"samples": 640, "batches": 1} for place in (0, 10)}
    assert usual_pass([Told(table=table([0] * 20, marks=marks))]) is None


def test_a_script_that_halves_its_batch_does_not_fit() -> None:
    run = a_run(ran_out_of_memory=True, samples_per_step=16.0)
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
    run = a_run(ending="failed", status=1, steps_seen=0, step=None)
    trial = trial_of(32, run, b"Traceback\n" + words + b"\n")
    assert trial.outcome == "out of memory"
    assert trial.why == words.decode()


def test_a_run_that_the_kernel_killed_is_out_of_memory() -> None:
    run = a_run(ending="killed", status=137, steps_seen=2, step=None)
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
    run = a_run(ending="failed", status=1, steps_seen=0, step=None)
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
    run = a_run(ending="failed", status=1, steps_seen=0, step=None)
    assert trial_of(32, run, words).outcome == "out of memory"


def test_an_exception_tells_more_than_what_was_printed_before_it() -> None:
    run = a_run(ending="failed", status=1, steps_seen=0, step=None)
    words = b"warning: large batches may go out of memory\nTraceback\nValueError: shapes\n-----\n"
    trial = trial_of(32, run, words)
    assert (trial.outcome, trial.why) == ("failed", "status 1: ValueError: shapes")


def test_another_failure_is_none_of_memory() -> None:
    run = a_run(ending="failed", status=1, steps_seen=0, step=None)
    trial = trial_of(32, run, b"ValueError: shapes\n")
    assert trial.outcome == "failed"
    assert trial.why == "status 1: ValueError: shapes"


def test_a_run_that_ends_before_three_steps_tells_nothing() -> None:
    run = a_run(ending="finished", steps_seen=1, step=None)
    assert trial_of(32, run, b"").outcome == "failed"


def test_long_steps_need_not_be_many() -> None:
    assert trial_of(32, a_run(steps_seen=1), b"").outcome == "fits"
    assert trial_of(32, a_run(steps_seen=0, step=None), b"").outcome == "failed"


def test_why_there_was_no_step() -> None:
    limits = Limits(duration_s=15.0, start_s=105.0)
    late = a_run(steps_seen=0, step=None, stopped_for="time", elapsed_s=140.0)
    assert trial_of(32, late, b"", limits=limits).why == "it made no step within 120 s"
    poor = a_run(steps_seen=0, step=None, stopped_for="cost")
    assert "money was spent" in trial_of(32, poor, b"", limits=limits).why


def test_a_first_step_is_waited_for_as_earlier_trials_suggest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_s = []

    def run(_: object, command: tuple[str, ...], limits: Limits, *rest: object) -> object:
        waits_s.append(limits.first_step_s)
        size = int(command[-1])
        return at(size, elapsed_s=size / 2), [], b""

    monkeypatch.setattr(find_batch_module, "_run", run)
    find_batch(Asking(command=("train", "{batch}")), "batch", known=Known(largest=64))
    # 15 s to train, and at first ten minutes. Then 8 / 2, 16 / 2 and 32 / 2 s were the longest:
    # ten times that, but no less than 105 s.
    assert waits_s == [615, 120, 120, 175]


def searched(
    monkeypatch: pytest.MonkeyPatch,
    run_at: Callable[[int], Measurement],
    largest: int = 64,
    **limits: float,
) -> BatchSearch:
    """A search whose trials are made up."""

    def run(_: object, command: tuple[str, ...], *rest: object) -> tuple[Measurement, list, bytes]:
        return run_at(int(command[-1])), [], b""

    monkeypatch.setattr(find_batch_module, "_run", run)
    asking = Asking(command=("train", "{batch}"), limits=Limits(**limits))
    return find_batch(asking, "batch", known=Known(largest=largest))


def at(size: int, **changes: object) -> Measurement:
    return a_run(**{"samples_per_step": float(size), "memory": MemorySeen(), **changes})


def test_a_search_that_the_user_stops_ran_out_of_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = {"ending": "interrupted", "status": 130, "steps_seen": 5}
    found = searched(monkeypatch, lambda size: at(size, **(stopped if size == 32 else {})))
    assert (found.largest, found.fails_at, found.recommended) == (16, None, 16)
    assert "Batch 32 was not tried to its end: you stopped it" in found.notes
    assert found.is_interrupted


def test_a_larger_size_that_fails_otherwise_is_no_limit_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = {"ending": "failed", "status": 1, "steps_seen": 0, "step": None}
    room = MemorySeen(available_bytes=24e9)
    found = searched(
        monkeypatch, lambda size: at(size, memory=room, **(failed if size > 8 else {}))
    )
    assert (found.largest, found.fails_at) == (8, None)
    assert found.fails_otherwise_at == found.trials[-1].batch_size
    assert "No larger size was seen to fail." not in found.notes


def test_all_is_recommended_where_nothing_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = searched(monkeypatch, at)
    assert (found.largest, found.recommended, found.margin_fraction) == (64, 64, 0.0)


def test_a_command_that_ignores_its_batch_has_no_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, lambda _: at(32))
    assert found.largest is None
    assert [trial.batch_size for trial in found.trials] == [8, 16]
    assert "does not take its batch size from there" in found.notes[-1]


def test_a_data_set_smaller_than_the_batch_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, lambda size: at(min(size, 20)))
    assert (found.largest, found.fails_at) == (16, None)
    # 32 and 64 alike have 20; that is all the data.
    assert found.not_taken_at == 32
    assert found.fails_otherwise_at is None
    assert "takes no larger batches" in found.notes[-1]


def test_a_size_that_ran_stays_where_a_larger_one_runs_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = searched(monkeypatch, lambda size: at(size if size <= 16 else size // 2))
    # 32 runs with 16 samples, as 16 does.
    assert (found.largest, found.not_taken_at) == (16, 32)
    assert [trial.outcome for trial in found.trials] == ["fits", "fits", "not taken"]


def test_a_last_batch_that_is_a_little_short_is_not_worth_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = searched(monkeypatch, lambda size: at(size - size // 16))
    assert (found.largest, found.notes) == (64, ())


def test_what_is_recommended_is_tried_while_trials_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_at(size: int) -> Measurement:
        # 10 MiB for each sample, and 24 GiB: 2457 samples fit.
        ending = {"ending": "failed", "status": 1} if size > 2457 else {}
        taken = MemorySeen(allocated_bytes=size * 10 * 2.0**20, available_bytes=24 * 2.0**30)
        return at(size, memory=taken, ran_out_of_memory=size > 2457, **ending)

    found = searched(monkeypatch, run_at, largest=10**6)
    sizes = [trial.batch_size for trial in found.trials]
    assert found.is_recommended_tried
    assert len(sizes) <= 6
    assert found.recommended <= 0.97 * 2457.6 * 1.01


def test_money_is_for_the_whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # $1 an hour and 600 s a trial: 0.17 dollars each, so that the second spends the last of 0.30.
    run = {"price_usd_per_hour": 1.0, "max_usd": 0.3}
    found = searched(monkeypatch, lambda size: at(size, elapsed_s=600.0), **run)
    assert len(found.trials) == 2
    assert "money for this search is spent" in found.notes[-1]


@pytest.mark.torch
@pytest.mark.parametrize("way", ["raise", "exit"])
def test_search_with_a_real_script(tmp_path: Path, way: str) -> None:
    command = ("--", PYTHON, SCRIPT, way, "10", "--batch-size", "{batch}")
    done = probe(tmp_path, "--find-batch", "batch", "--steps", "6", *command)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "probe.json").read_bytes())
    # Nothing tells how much memory it takes: 8 fits, 16 fails, then halves: 12, 10, 11.
    assert [trial["batch_size"] for trial in found["trials"]] == [8, 16, 12, 10, 11]
    assert found["largest"] == 10
    assert found["fails_at"] == 11
    assert "largest that ran is 10" in done.err


@pytest.mark.torch
def test_search_that_fails_otherwise_says_so(tmp_path: Path) -> None:
    command = ("--", PYTHON, SCRIPT, "other", "0", "--batch-size", "64")
    done = probe(tmp_path, "--find-batch", "--batch-size", "--steps", "6", *command)
    assert done.code == 1
    assert "ValueError: no such column" in done.err
