"""The largest batch by trials of a real script, whatever way it runs out of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.measured import a_step
from tests.probe.probed import PYTHON, SCRIPTS, probe

from outlay.errors import InputError
from outlay.measurement import MachineSeen, Measurement, MemorySeen
from outlay.probe import find_batch as find_batch_module
from outlay.probe.batches import BatchSearch
from outlay.probe.course import Limits
from outlay.probe.find_batch import find_batch
from outlay.probe.hunt import Known
from outlay.probe.run import Asking
from outlay.probe.slot import Slot
from outlay.probe.trial import trial_of

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


def searched(
    monkeypatch: pytest.MonkeyPatch, run_at: Callable[[int], Measurement], **limits: float
) -> BatchSearch:
    """A search whose trials are made up."""

    def run(_: object, command: tuple[str, ...], *rest: object) -> tuple[Measurement, list, bytes]:
        return run_at(int(command[-1])), [], b""

    monkeypatch.setattr(find_batch_module, "_run", run)
    asking = Asking(command=("train", "{batch}"), limits=Limits(**limits))
    return find_batch(asking, "batch", known=Known(largest=64))


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


def test_a_frozen_base_is_part_of_what_no_batch_size_changes():
    memory = MemorySeen(
        parameters_bytes=2e8, gradients_bytes=2e8, optimizer_bytes=4e8, frozen_bytes=14e9
    )
    known = find_batch_module._learned(Known(), a_run(memory=memory), cap_mib=None)
    assert known.fixed_bytes == pytest.approx(14.8e9)
