"""What a short run at one batch size says: it fits, ran out of memory, or failed otherwise.

Out of memory is recognised by torch's own alarm, by the driver's and libraries' words in the
output, and by the death the kernel gives.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outlay.errors import InputError
from outlay.measurement.measurement import Measurement
from outlay.probe.messages import ProcessLog
from outlay.probe.stages import UNLIMITED, ProbeLimits
from outlay.trace import allocator
from outlay.trace.batch_scaling import FREED, history_of, storages_align
from outlay.trace.profile import History

# Batch sizes that were really tried, each in a process of its own, and what they tell.


Outcome = Literal["fits", "out of memory", "not taken", "failed"]
"""Not taken: the script ran, but with fewer samples than it was asked to take."""
KNEE_FRACTION = 0.95
"""Of the best throughput: from there on, more batch is hardly more speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One batch size, run for a few steps."""

    batch_size: int
    """What was tried."""
    outcome: Outcome
    """What came of it."""
    why: str = ""
    """What the script said where it did not fit or failed; what is odd where it fits."""
    peak_allocated_bytes: float | None = None
    """The most that tensors took, on the fullest GPU, in bytes."""
    peak_reserved_bytes: float | None = None
    """The most that torch's allocator reserved there, in bytes."""
    step_mean_s: float | None = None
    """Mean step time, in seconds."""
    samples_per_s: float | None = None
    """Of all ranks together."""
    elapsed_s: float = 0.0
    """What the trial took, in seconds, start-up included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSearch:
    """The search for the largest batch: what was tried, and what came out."""

    JSON_PROPERTIES = ("knee", "elapsed_s")
    trials: tuple[Trial, ...]
    """In the order they were run."""
    largest: int | None = None
    """The largest that ran; None where none did."""
    recommended: int | None = None
    """What to train with: a margin below the largest."""
    margin_fraction: float = 0.0
    """Of the limit, kept free at the recommended size."""
    fails_at: int | None = None
    """The smallest that ran out of memory; None where none did."""
    limit_bytes: float | None = None
    """What the allocator could take, in bytes."""
    is_interrupted: bool = False
    """Whether the user ended it before it had an answer."""
    notes: tuple[str, ...] = ()
    """What to know."""

    @property
    def knee(self) -> int | None:
        """The smallest batch with 95 % or more of the best samples/s."""
        return knee_of(self.trials)

    @property
    def is_recommended_tried(self) -> bool:
        """Whether the recommended size is one that ran."""
        fits = [trial for trial in self.trials if trial.outcome == "fits"]
        return any(trial.batch_size == self.recommended for trial in fits)

    @property
    def fails_otherwise_at(self) -> int | None:
        """The smallest above the largest that failed, but not for want of memory."""
        if self.is_interrupted:  # what was not run to its end did not fail
            return None
        return self._smallest_above("failed")

    @property
    def not_taken_at(self) -> int | None:
        """The smallest above the largest that the script did not take."""
        return self._smallest_above("not taken")

    def _smallest_above(self, outcome: Outcome) -> int | None:
        sizes = (trial.batch_size for trial in self.trials if trial.outcome == outcome)
        return min((size for size in sizes if size > (self.largest or 0)), default=None)

    @property
    def elapsed_s(self) -> float:
        """What all trials took together, in seconds."""
        return sum(trial.elapsed_s for trial in self.trials)


def knee_of(trials: Iterable[Trial]) -> int | None:
    """The smallest batch with 95 % or more of the best samples/s; None where none was measured."""
    paces = {
        trial.batch_size: trial.samples_per_s
        for trial in trials
        if trial.outcome == "fits" and trial.samples_per_s is not None
    }
    enough = KNEE_FRACTION * max(paces.values(), default=0.0)
    return min((size for size, pace in paces.items() if pace >= enough), default=None)


# What the output of a command that ended says of its end: out of memory, killed, or otherwise.


_OUT_OF_MEMORY = re.compile(
    # "running out of memory" is advice, not news.
    r"(?<!running )out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|RESOURCE_EXHAUSTED"
    r"|DefaultCPUAllocator|can't allocate memory|MemoryError|bad_alloc|NCCL.*memory",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(
    r"^\s*(\[\w+\]:\s*)*([\w.]+(Error|Exception|Failure|Interrupt)\b|what\(\):)"
)
_KILLED = re.compile(
    r"exitcode\s*:\s*-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL"
    r"|killed by signal:? (Killed|9\b)|terminated with signal SIGKILL|return code = -9\b"
)
_ROOT_CAUSE = "Root Cause"
"""Where a launcher says which process failed first; it ends the others itself."""
_OF_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
"""What says only that a process below failed."""
_LONGEST = 300


def out_of_memory_line(output: bytes) -> str | None:
    """The last line that says memory ran out; None where none does.

    Where exceptions were printed, only they count: what else speaks of memory is advice.
    """
    lines = _lines(output)
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    found = [line for line in exceptions or lines if _OUT_OF_MEMORY.search(line)]
    return found[-1] if found else None


def killed_line(output: bytes) -> str | None:
    """What a launcher or parent says of a process of its own that was killed; None: nothing."""
    text = "\n".join(_lines(output))
    _, mark, cause = text.rpartition(_ROOT_CAUSE)
    found = [line for line in (cause if mark else text).split("\n") if _KILLED.search(line)]
    return found[-1] if found else None


def last_line(output: bytes) -> str | None:
    """What it said at last: an exception, not one that only passes on a failure, or any words."""
    lines = [line for line in _lines(output) if any(letter.isalpha() for letter in line)]
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    own = [line for line in exceptions if not any(name in line for name in _OF_LAUNCHERS)]
    said = own or exceptions or lines
    return said[-1] if said else None


def _lines(output: bytes) -> list[str]:
    text = output.decode(errors="replace")
    return [line.strip()[:_LONGEST] for line in text.splitlines() if line.strip()]


LEAST_STEPS = 3
TAKEN = 0.9
"""Of the batch asked for: with fewer samples in its passes, a script did not take it."""
SURVIVED = "torch was refused memory on the way, and did with less"


def trial_of(
    batch_size: int,
    measurement: Measurement,
    words: bytes,
    *,
    limits: ProbeLimits = UNLIMITED,
    samples: int | None = None,
) -> Trial:
    """What one run says about its batch size; `samples` are those of most of its passes."""
    samples = measurement.batch_size if samples is None else samples
    outcome, why = _outcome(batch_size, measurement, words, limits, samples)
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


def usual_pass(told: Sequence[ProcessLog]) -> int | None:
    """Samples that most batches of the first rank had; None where no DataLoader shows them.

    The mean would be of no use: the last batch of an epoch is shorter.
    """
    if not told:
        return None
    batches, samples = told[0].table.column("batches"), told[0].table.column("samples")
    known = (batches > 0) & np.isfinite(samples)
    if not known.any() or known.mean() < 0.5:  # one batch for several steps, which cut it up
        return None
    sizes = Counter(np.rint(samples[known] / batches[known]).astype(int).tolist())
    return int(max(sizes, key=lambda size: (sizes[size], size)))


def is_taken(batch_size: int, samples: int | None) -> bool:
    """Whether passes of so many samples are those of the batch asked for; unknown ones are."""
    return samples is None or samples >= TAKEN * batch_size


def _samples_per_s(batch_size: int, measurement: Measurement) -> float | None:
    """Of all ranks; by the batch size asked for where the script does not show its own."""
    if measurement.samples_per_s is not None:
        return measurement.samples_per_s
    if measurement.step is None:
        return None
    return batch_size * max(measurement.world_size, 1) / measurement.step.mean_s


def _outcome(
    batch_size: int,
    measurement: Measurement,
    words: bytes,
    limits: ProbeLimits,
    samples: int | None,
) -> tuple[Outcome, str]:
    """Whether it fits. An alarm alone does not say it does not: cuDNN asks for much, and does with
    less; but a script that steps on with a smaller batch than it was given was helped by itself,
    and one that ends by itself before its steps gave up."""
    alarm, steps = measurement.ran_out_of_memory, measurement.steps_seen
    if measurement.ending == "interrupted":
        return "failed", "you stopped it"
    # What outlay stops makes one step more than those it had told of.
    is_stopped = measurement.ending == "stopped" and steps >= 1
    is_through = measurement.ending == "finished" and steps >= max(limits.steps or 0, LEAST_STEPS)
    if is_stopped or is_through:
        if alarm and not is_taken(batch_size, samples):
            return "out of memory", f"the script went on with a batch of {samples}"
        return "fits", SURVIVED if alarm else ""
    why = _why_out_of_memory(measurement, words)
    if why is not None:
        return "out of memory", why
    if measurement.ending == "finished" and steps >= LEAST_STEPS:
        return "fits", ""
    return "failed", _why_failed(measurement, words, limits)


def _why_out_of_memory(measurement: Measurement, words: bytes) -> str | None:
    """How a run that did not make its steps shows that memory ran out; None: not at all."""
    if measurement.ran_out_of_memory:
        return "torch could not get the memory it asked for"
    said = out_of_memory_line(words)
    if said is not None:
        return said
    if measurement.ending == "stopped":
        return None
    said = killed_line(words)
    if said is None and measurement.status != 128 + signal.SIGKILL:
        return None
    quoted = "" if said is None else f" ({said})"
    return f"it was killed, as the system does when its memory runs out{quoted}"


def _why_failed(measurement: Measurement, words: bytes, limits: ProbeLimits) -> str:
    if measurement.ending == "finished":
        steps = measurement.steps_seen
        return f"it ended by itself after {steps} steps; a trial needs {LEAST_STEPS}"
    if measurement.ending == "stopped" and measurement.stopped_for == "cost":
        return "its money was spent before its first step"
    if measurement.ending == "stopped":
        return f"it made no step within {limits.first_step_s or measurement.elapsed_s:,.0f} s"
    return f"status {measurement.status}: {last_line(words) or 'it said nothing'}"


# Where in a command its batch size goes: `{batch}` anywhere, or an option that it already has.


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSlot:
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


# The largest batch by what trials really allocated, played through the model of the allocator.
#
# Two trials that ask for the same storages in the same order give every size as a line in the batch
# size; `trace.simulate` then says up to which batch the allocator gets through. Where they do not
# line up (cuDNN chose other algorithms), there is no answer.


Events = Sequence[int]
"""Sizes in bytes in the order they were asked for; minus n where the n-th ended, from 1 on."""
_REACH = 64
"""Times the largest trial, beyond which nothing is said."""


def simulated_largest(trials: Mapping[int, Events], limit_bytes: float | None) -> int | None:
    """The largest batch that gets through; None where the trials do not tell."""
    history = _history(trials)
    if history is None or limit_bytes is None:
        return None
    low, high = max(trials), _REACH * max(trials)
    if not allocator.fits(history, low, limit_bytes) or allocator.fits(history, high, limit_bytes):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if allocator.fits(history, middle, limit_bytes) else (low, middle)
        )
    return low


def _history(trials: Mapping[int, Events]) -> History | None:
    """From the two largest trials, where they line up."""
    sizes = sorted(trials)[-2:]
    if len(sizes) < 2:
        return None
    first, second = ([*_storages(trials[size])] for size in sizes)
    if not first or not storages_align(first, second):
        return None
    return history_of(sizes, [first, second])


def _storages(events: Events) -> Iterator[tuple[int, int]]:
    made = 0
    for event in events:
        if event < 0:
            yield -event, FREED
        else:
            made += 1
            yield made, event
