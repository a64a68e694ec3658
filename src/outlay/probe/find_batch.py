"""The largest batch for real: trials in fresh processes, each a short probe.

The command says where its batch size goes: `{batch}` anywhere in it, or an option that it already
has. A trial fits if it makes a few steps; out of memory is recognised by torch's own alarm, by the
driver's and libraries' words in the output, and by the death the kernel gives.
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.errors import InputError
from outlay.measurement import Measurement
from outlay.probe.agent.allocations import WANTED
from outlay.probe.batches import BatchSearch, Outcome, Trial
from outlay.probe.course import Limits
from outlay.probe.hunt import Known, allocated, bracket, memory_line, next_size
from outlay.probe.listen import Told
from outlay.probe.played import Events, simulated_largest
from outlay.probe.run import Asking, Show, probe_and_hear
from outlay.units import HOUR_S

TRIAL_STEPS = 20
TRIAL_S = 15.0
LEAST_STEPS = 3
MARGIN = 0.03
"""Of the limit, left free at the recommended size: longer runs meet longer samples."""
START = 8
_LAST_WORDS_BYTES = 65_536
_OUT_OF_MEMORY = re.compile(
    rb"out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    rb"|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|RESOURCE_EXHAUSTED|DefaultCPUAllocator"
    rb"|can't allocate memory|MemoryError|bad_alloc|NCCL.*memory",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where in a command its batch size goes."""

    command: tuple[str, ...]
    argument: str

    def filled(self, batch_size: int) -> tuple[str, ...]:
        """The command at a batch size."""
        mark, text = self._mark, str(batch_size)
        if any(mark in part for part in self.command):
            return tuple(part.replace(mark, text) for part in self.command)
        parts = list(self.command)
        place, joined = self._place()
        if joined:
            parts[place] = f"{self.argument}={text}"
        else:
            parts[place + 1] = text
        return tuple(parts)

    @property
    def present(self) -> int | None:
        """The size that the command has now."""
        if any(self._mark in part for part in self.command):
            return None
        place, joined = self._place()
        text = self.command[place].partition("=")[2] if joined else self.command[place + 1]
        return int(text) if text.isdecimal() and int(text) > 0 else None

    @property
    def _mark(self) -> str:
        return "{" + self.argument.strip("{}") + "}"

    def _place(self) -> tuple[int, bool]:
        for place, part in enumerate(self.command):
            if part.startswith(f"{self.argument}="):
                return place, True
            if part == self.argument and place + 1 < len(self.command):
                return place, False
        raise InputError(
            f"The command has neither {self._mark} nor {self.argument}.",
            why="outlay must know where the batch size goes.",
            fix="Write for example: outlay probe --find-batch batch -- "
            "python train.py --batch-size {batch}",
        )

    def check(self) -> None:
        """Raise where the command has no place for a batch size."""
        self.filled(1)


Tell = Callable[[str], None]


def find_batch(
    asking: Asking,
    argument: str,
    *,
    known: Known,
    show: Show | None = None,
    tell: Tell = lambda _: None,
) -> BatchSearch:
    """Trials until the largest batch is known well enough, or something ends them."""
    slot = Slot(command=asking.command, argument=argument)
    slot.check()
    hunt = _Hunt(asking, slot, known, show, tell)
    while (size := hunt.next_size()) is not None:
        hunt.try_size(size)
    return hunt.found()


class _Hunt:
    """Where a search stands."""

    def __init__(
        self, asking: Asking, slot: Slot, known: Known, show: Show | None, tell: Tell
    ) -> None:
        self._asking = asking
        self._slot = slot
        self._known = known
        self._show = show
        self._tell = tell
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._played: dict[int, Events] = {}
        """What trials that fit asked their allocator for."""
        self._samples: dict[int, int | None] = {}
        """What the passes of trials that fit really had."""
        self._is_over = self._is_interrupted = False

    def next_size(self) -> int | None:
        """The size to try, or None when that is all."""
        if self._is_over:
            return None
        size = next_size(self._trials, self._known, self._slot.present or START)
        left_usd = self._left_usd()
        if size is not None and left_usd is not None and left_usd <= 0:
            self._notes.append("The money for this search is spent: a larger batch may fit.")
            return None
        return size

    def try_size(self, size: int) -> None:
        """Run the command at a batch size, and learn from it."""
        self._tell(f"Trial {len(self._trials) + 1}: batch {size} ...")
        command = self._slot.filled(size)
        measurement, told, words = _run(self._asking, command, self._left_usd(), self._show)
        trial = trial_of(size, measurement, words)
        self._trials.append(trial)
        self._tell(_said(trial))
        self._learn(trial, measurement, told)
        if trial.outcome == "failed":
            self._notes.append(f"Batch {size} {_failed_words(measurement)}: {trial.why}")
            self._is_interrupted = measurement.ending == "interrupted"
            self._is_over = True
        elif trial.outcome == "fits":
            self._check_samples(size, measurement.batch_size)

    def _learn(self, trial: Trial, measurement: Measurement, told: Sequence[Told]) -> None:
        known = _learned(self._known, measurement, self._asking.memory_cap_mib)
        self._played.update(_allocations(trial, told))
        simulated = simulated_largest(self._played, known.limit_bytes)
        self._known = replace(known, simulated=simulated)

    def _check_samples(self, size: int, samples: int | None) -> None:
        """End it where the script goes by another batch size than it is given."""
        self._samples[size] = samples
        alike = [one for one, found in self._samples.items() if found == samples]
        if samples is None or samples == size:
            return
        if len(alike) == 1:
            self._notes.append(
                f"Batch {size} was asked for, but the script's passes had {samples} samples on a "
                "GPU."
            )
            return
        why = f"its passes had {samples:,} samples"
        self._trials = [
            _ignored(one, why) if one.batch_size in alike else one for one in self._trials
        ]
        sizes = " and ".join(f"{one:,}" for one in sorted(alike))
        self._notes.append(
            f"The script's passes had {samples:,} samples at batch {sizes} alike: it does not "
            "take its batch size from there, or its data have no more."
        )
        self._is_over = True

    def _left_usd(self) -> float | None:
        """What is left of the money for all trials together; None without a limit."""
        limits = self._asking.limits
        if limits.max_usd is None or limits.price_usd_per_hour is None:
            return None
        spent_s = sum(trial.elapsed_s for trial in self._trials)
        return limits.max_usd - limits.price_usd_per_hour * spent_s / HOUR_S

    def found(self) -> BatchSearch:
        """What came out."""
        search = _search(self._trials, self._known, self._notes)
        return replace(search, is_interrupted=self._is_interrupted)


def _failed_words(measurement: Measurement) -> str:
    if measurement.ending == "interrupted":
        return "was not tried to its end"
    return "failed for another reason"


def _ignored(trial: Trial, why: str) -> Trial:
    return replace(trial, outcome="failed", why=why, step_mean_s=None, samples_per_s=None)


def _run(
    asking: Asking, command: tuple[str, ...], left_usd: float | None, show: Show | None
) -> tuple[Measurement, list[Told], bytes]:
    """A short probe, what its processes told, and the end of what the command printed."""
    limits = Limits(
        steps=asking.limits.steps or TRIAL_STEPS,
        duration_s=asking.limits.duration_s or TRIAL_S,
        price_usd_per_hour=asking.limits.price_usd_per_hour,
        max_usd=left_usd,
        operations=False,
    )
    with tempfile.TemporaryDirectory(prefix="outlay-trial-") as folder:
        log = Path(folder) / "log"
        given = {**asking.environment, WANTED: "1"}
        asking = replace(asking, command=command, limits=limits, log=log, environment=given)
        measurement, told = probe_and_hear(asking, show)
        return measurement, told, log.read_bytes()[-_LAST_WORDS_BYTES:]


def _allocations(trial: Trial, told: Sequence[Told]) -> dict[int, Events]:
    """What the first rank of a trial that fits asked its allocator for."""
    found = [one.facts["allocations"]["events"] for one in told if "allocations" in one.facts]
    return {trial.batch_size: found[0]} if found and trial.outcome == "fits" else {}


def trial_of(batch_size: int, measurement: Measurement, words: bytes) -> Trial:
    """What one run says about its batch size."""
    outcome, why = _outcome(batch_size, measurement, words)
    step = measurement.step
    return Trial(
        batch_size=batch_size,
        outcome=outcome,
        why=why,
        peak_allocated_bytes=measurement.memory.allocated_bytes,
        peak_reserved_bytes=measurement.memory.reserved_bytes,
        step_mean_s=step.mean_s if step and outcome == "fits" else None,
        samples_per_s=_samples_per_s(batch_size, measurement) if outcome == "fits" else None,
        elapsed_s=measurement.elapsed_s,
    )


def _samples_per_s(batch_size: int, measurement: Measurement) -> float | None:
    """Of all ranks; by the batch size asked for where the script does not show its own."""
    if measurement.samples_per_s is not None:
        return measurement.samples_per_s
    if measurement.step is None:
        return None
    return batch_size * max(measurement.world_size, 1) / measurement.step.mean_s


def _outcome(batch_size: int, measurement: Measurement, words: bytes) -> tuple[Outcome, str]:
    """Whether it fits. An alarm alone does not say it does not: cuDNN asks for much, and does with
    less; but a script that steps on with a smaller batch than it was given was helped by itself."""
    alarm, seen = measurement.ran_out_of_memory, measurement.batch_size
    # What outlay stops makes one step more than those it had told of.
    least = 1 if measurement.ending == "stopped" else LEAST_STEPS
    stepped = measurement.steps_seen >= least
    if measurement.ending == "interrupted":
        return "failed", "you stopped it"
    if measurement.ending in ("stopped", "finished") and stepped:
        if alarm and seen is not None and seen < batch_size:
            return "out of memory", f"the script went on with a batch of {seen}"
        return "fits", ""
    if alarm:
        return "out of memory", "torch could not get the memory it asked for"
    found = [match.start() for match in _OUT_OF_MEMORY.finditer(words)]
    if found:
        return "out of memory", _line_around(words, found[-1])
    if measurement.status == 128 + signal.SIGKILL:
        return "out of memory", "it was killed, as the system does when its memory runs out"
    if measurement.ending == "finished":
        return "failed", (
            f"it ended by itself after {measurement.steps_seen} steps; a trial needs {LEAST_STEPS}"
        )
    if measurement.ending == "stopped":
        return "failed", "its time or money was spent before its first step"
    last = words.decode(errors="replace").strip().splitlines()
    return "failed", f"status {measurement.status}: {last[-1] if last else 'it said nothing'}"


def _line_around(words: bytes, place: int) -> str:
    start = words.rfind(b"\n", 0, place) + 1
    end = words.find(b"\n", place)
    line = words[start : end if end >= 0 else None]
    return line.decode(errors="replace").strip()[:300]


def _learned(known: Known, measurement: Measurement, cap_mib: int | None) -> Known:
    """The limit and what is fixed, as the last trial showed them."""
    memory = measurement.memory
    parts = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes)
    fixed = sum(part for part in parts if part is not None) if any(parts) else known.fixed_bytes
    limit = known.limit_bytes
    if cap_mib is not None:
        limit = float(cap_mib * 2**20)
    if memory.limit_bytes is not None:
        limit = memory.limit_bytes
    elif limit is None:
        limit = memory.available_bytes
    return replace(known, fixed_bytes=fixed, limit_bytes=limit)


def _search(trials: Sequence[Trial], known: Known, notes: Sequence[str]) -> BatchSearch:
    low, _ = bracket(trials)
    full = [one.batch_size for one in trials if one.outcome == "out of memory"]
    high = min((size for size in full if size > low), default=0)
    larger_failed = any(one.outcome == "failed" and one.batch_size > low for one in trials)
    if low and not high and not larger_failed and known.limit_bytes is not None:
        notes = [*notes, "No larger size was seen to fail."]
    return BatchSearch(
        trials=tuple(trials),
        largest=low or None,
        recommended=_recommended(trials, low, high, known),
        margin_fraction=MARGIN if high else 0.0,
        fails_at=high or None,
        limit_bytes=known.limit_bytes,
        notes=tuple(dict.fromkeys(notes)),
    )


def _recommended(trials: Sequence[Trial], largest: int, fails_at: int, known: Known) -> int | None:
    """The largest size that leaves the margin free; all of it where none ran out of memory."""
    if not largest or not fails_at:
        return largest or None
    line = memory_line(allocated(trials), known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return max(int(largest * (1 - MARGIN)), 1)
    start_bytes, slope_bytes, _ = line
    by_line = int((known.limit_bytes * (1 - MARGIN) - start_bytes) / slope_bytes)
    return max(min(by_line, largest - (largest > 1)), 1)


def _said(trial: Trial) -> str:
    pace = "" if trial.samples_per_s is None else f", {trial.samples_per_s:,.0f} samples/s"
    why = f" ({trial.why})" if trial.why else ""
    return f"  {trial.outcome}{pace}{why}"
