"""The largest batch by trials, made up and of a real script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.measured import a_short_measurement
from tests.probe.probed import PYTHON, SCRIPTS, probe

from outlay.errors import InputError
from outlay.measurement.measurement import MeasuredMemory, Measurement
from outlay.probe import find_batch as find_batch_module
from outlay.probe.find_batch import BatchSearch, SearchBounds, find_batch
from outlay.probe.runner import ProbeRequest
from outlay.probe.stages import ProbeLimits
from outlay.probe.trial import BatchSlot
from outlay.report.batches import answer, batches_document
from outlay.report.documents import dumps

SCRIPT = SCRIPTS / "runs_out.py"


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
    filled = BatchSlot(command=command, argument=argument).command_at(64)
    assert "--batch-size 64" in " ".join(filled)


def test_slot_of_an_assignment() -> None:
    slot = BatchSlot(command=("python", "train.py", "data.batch=32"), argument="data.batch")
    assert slot.current == 32
    assert slot.command_at(7) == ("python", "train.py", "data.batch=7")


def test_no_slot() -> None:
    with pytest.raises(InputError, match="neither {batch} nor batch"):
        BatchSlot(command=("python", "train.py"), argument="batch").check()


def test_a_first_step_is_waited_for_as_earlier_trials_suggest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_s = []

    def run(_: object, command: tuple[str, ...], limits: ProbeLimits, *rest: object) -> object:
        waits_s.append(limits.first_step_s)
        size = int(command[-1])
        return at(size, elapsed_s=size / 2), [], b""

    monkeypatch.setattr(find_batch_module, "_run_trial", run)
    find_batch(ProbeRequest(command=("train", "{batch}")), "batch", bounds=SearchBounds(largest=64))
    # 15 s to train, and at first ten minutes. Then 8 / 2, 16 / 2 and 32 / 2 s were the longest:
    # ten times that, but no less than 105 s.
    assert waits_s == [615, 120, 120, 175]


def searched(
    monkeypatch: pytest.MonkeyPatch,
    run_at: Callable[[int], Measurement],
    largest: int = 64,
    trials: int | None = None,
    **limits: float,
) -> BatchSearch:
    """A search whose trials are made up."""

    def run(_: object, command: tuple[str, ...], *rest: object) -> tuple[Measurement, list, bytes]:
        return run_at(int(command[-1])), [], b""

    monkeypatch.setattr(find_batch_module, "_run_trial", run)
    asking = ProbeRequest(command=("train", "{batch}"), limits=ProbeLimits(**limits))
    return find_batch(asking, "batch", bounds=SearchBounds(largest=largest, trials=trials))


def at(size: int, **changes: object) -> Measurement:
    return a_short_measurement(
        **{"samples_per_step": float(size), "memory": MeasuredMemory(), **changes}
    )


def test_a_search_that_the_user_stops_ran_out_of_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = {"ending": "interrupted", "status": 130, "steps_seen": 5}
    search = searched(monkeypatch, lambda size: at(size, **(stopped if size == 32 else {})))
    assert (search.largest, search.fails_at, search.recommended) == (16, None, 16)
    assert "Batch 32 was not tried to its end: you stopped it" in search.notes
    assert search.is_interrupted
    assert (search.is_finished, search.gave_up_for) == (False, "interrupted")


def test_a_larger_size_that_fails_otherwise_is_no_limit_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = {"ending": "failed", "status": 1, "steps_seen": 0, "step": None}
    room = MeasuredMemory(available_bytes=24e9)
    search = searched(
        monkeypatch, lambda size: at(size, memory=room, **(failed if size > 8 else {}))
    )
    assert (search.largest, search.fails_at) == (8, None)
    assert search.fails_otherwise_at == search.trials[-1].batch_size
    assert "No larger size was seen to fail." not in search.notes


def test_all_is_recommended_where_nothing_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = searched(monkeypatch, at)
    assert (search.largest, search.recommended, search.margin_fraction) == (64, 64, 0.0)
    assert search.is_finished  # no larger one was wanted


def test_a_command_that_ignores_its_batch_has_no_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    search = searched(monkeypatch, lambda _: at(32))
    assert search.largest is None
    assert [trial.batch_size for trial in search.trials] == [8, 16]
    assert "does not take its batch size from there" in search.notes[-1]


def test_a_data_set_smaller_than_the_batch_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    search = searched(monkeypatch, lambda size: at(min(size, 20)))
    assert (search.largest, search.fails_at) == (16, None)
    # 32 and 64 alike have 20; that is all the data.
    assert search.not_taken_at == 32
    assert search.fails_otherwise_at is None
    assert "takes no larger batches" in search.notes[-1]


def test_a_size_that_ran_stays_where_a_larger_one_runs_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = searched(monkeypatch, lambda size: at(size if size <= 16 else size // 2))
    # 32 runs with 16 samples, as 16 does.
    assert (search.largest, search.not_taken_at) == (16, 32)
    assert [trial.outcome for trial in search.trials] == ["fits", "fits", "not taken"]


def test_a_last_batch_that_is_a_little_short_is_not_worth_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = searched(monkeypatch, lambda size: at(size - size // 16))
    assert (search.largest, search.notes) == (64, ())


def test_what_is_recommended_is_tried_while_trials_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_at(size: int) -> Measurement:
        # 10 MiB for each sample, and 24 GiB: 2457 samples fit.
        ending = {"ending": "failed", "status": 1} if size > 2457 else {}
        samples = MeasuredMemory(allocated_bytes=size * 10 * 2.0**20, available_bytes=24 * 2.0**30)
        return at(size, memory=samples, ran_out_of_memory=size > 2457, **ending)

    search = searched(monkeypatch, run_at, largest=10**6)
    sizes = [trial.batch_size for trial in search.trials]
    assert search.is_recommended_tried
    assert len(sizes) <= 6
    assert search.recommended <= 0.97 * 2457.6 * 1.01


def with_largest(largest: int, waste: float = 0.0) -> Callable[[int], Measurement]:
    """Trials of a step that takes 10 MiB for each sample, under an allocator that wastes some."""

    def run_at(size: int) -> Measurement:
        has_failed = size > largest
        ending = {"ending": "failed", "status": 1} if has_failed else {}
        limit_bytes = largest * 10 * 2.0**20 / (1 - waste)
        samples = MeasuredMemory(allocated_bytes=size * 10 * 2.0**20, available_bytes=limit_bytes)
        return at(size, memory=samples, ran_out_of_memory=has_failed, **ending)

    return run_at


def test_a_search_goes_on_until_it_knows_the_largest_to_2_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """117 fit, and the allocator wastes a tenth: six trials leave sizes 6 % apart."""
    search = searched(monkeypatch, with_largest(117, waste=0.1), largest=10**6)
    assert search.is_finished
    assert search.gave_up_for is None
    assert search.fails_at - search.largest <= 2  # 2 % of 117 are 2.3
    assert not any("gave up" in line for line in answer(search))


def test_a_search_that_gives_up_says_between_which_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    run_at = with_largest(117, waste=0.1)
    search = searched(monkeypatch, run_at, largest=10**6, trials=4)
    assert len(search.trials) == 4
    assert (search.is_finished, search.gave_up_for) == (False, "trials")
    low, last = search.largest, search.fails_at - 1
    assert last - low > 2
    said = f"The largest is between {low} and {last}: the search gave up after 4 trials"
    assert any(said in line and "--trials 8 goes on" in line for line in answer(search))
    document = json.loads(dumps(batches_document(search)))
    assert (document["is_finished"], document["gave_up_for"]) == (False, "trials")
    # With as many as it says, it comes to the end.
    assert searched(monkeypatch, run_at, largest=10**6, trials=8).is_finished


def test_a_search_that_gives_up_before_any_failed_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = searched(monkeypatch, at, largest=10**6, trials=2)
    assert (search.largest, search.gave_up_for) == (16, "trials")
    assert any("gave up after 2 trials" in line for line in answer(search))


def test_money_is_for_the_whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # $1 an hour and 600 s a trial: 0.17 dollars each, so that the second spends the last of 0.30.
    run = {"price_usd_per_hour": 1.0, "max_usd": 0.3}
    search = searched(monkeypatch, lambda size: at(size, elapsed_s=600.0), **run)
    assert len(search.trials) == 2
    assert "money for this search is spent" in search.notes[-1]
    assert search.gave_up_for == "cost"
    assert any("a larger --max-cost goes on" in line for line in answer(search))


@pytest.mark.torch
@pytest.mark.parametrize("argument", ["raise", "exit"])
def test_search_with_a_real_script(tmp_path: Path, argument: str) -> None:
    command = ("--", PYTHON, SCRIPT, argument, "10", "--batch-size", "{batch}")
    done = probe(tmp_path, "--find-batch", "batch", "--steps", "6", *command)
    assert done.code == 0, done.err
    search = json.loads((tmp_path / "probe.json").read_bytes())
    # Nothing tells how much memory it takes: 8 fits, 16 fails, then halves: 12, 10, 11. And 3 %
    # below 10 is 9, which is recommended, and tried.
    assert [trial["batch_size"] for trial in search["trials"]] == [8, 16, 12, 10, 11, 9]
    assert (search["largest"], search["recommended"]) == (10, 9)
    assert search["fails_at"] == 11
    assert "largest that ran is 10" in done.err


@pytest.mark.torch
def test_search_that_fails_otherwise_says_so(tmp_path: Path) -> None:
    command = ("--", PYTHON, SCRIPT, "other", "0", "--batch-size", "64")
    done = probe(tmp_path, "--find-batch", "--batch-size", "--steps", "6", *command)
    assert done.code == 1
    assert "ValueError: no such column" in done.err


def test_a_frozen_base_is_part_of_what_no_batch_size_changes():
    memory = MeasuredMemory(
        parameters_bytes=2e8, gradients_bytes=2e8, optimizer_bytes=4e8, frozen_bytes=14e9
    )
    known = find_batch_module._with_memory(
        SearchBounds(), a_short_measurement(memory=memory), cap_mib=None
    )
    assert known.fixed_bytes == pytest.approx(14.8e9)
