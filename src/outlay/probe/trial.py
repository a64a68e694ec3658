"""One batch size, run for a few steps: it fits, ran out of memory, or failed otherwise.

Out of memory is recognised by torch's own alarm, by the driver's and libraries' words in the
output, and by the death the kernel gives.

Output      what the output of a command says of its end
Outcome     `trial_of` a measurement and that output
Batch size  `BatchSlot`: where in a command it goes
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outlay.errors import InputError
from outlay.measurement.measurement import Measurement
from outlay.probe.messages import ProcessLog
from outlay.probe.stages import UNLIMITED, ProbeLimits

Outcome = Literal["fits", "out of memory", "not taken", "failed"]
"""Not taken: the script ran, but with fewer samples than it was asked to take."""


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


# Output

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
_LAUNCHER_ERRORS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
"""What says only that a process below failed."""
_LONGEST_LINE = 300


def out_of_memory_line(output: bytes) -> str | None:
    """The last line that says memory ran out; None where none does.

    Where exceptions were printed, only they count: what else speaks of memory is advice.
    """
    lines = _lines(output)
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    matches = [line for line in exceptions or lines if _OUT_OF_MEMORY.search(line)]
    return matches[-1] if matches else None


def killed_line(output: bytes) -> str | None:
    """What a launcher or parent says of a process of its own that was killed; None: nothing."""
    text = "\n".join(_lines(output))
    _, mark, cause = text.rpartition(_ROOT_CAUSE)
    matches = [line for line in (cause if mark else text).split("\n") if _KILLED.search(line)]
    return matches[-1] if matches else None


def last_line(output: bytes) -> str | None:
    """The last exception, but for those that only pass on a failure; else the last words."""
    lines = [line for line in _lines(output) if any(letter.isalpha() for letter in line)]
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    own = [line for line in exceptions if not any(name in line for name in _LAUNCHER_ERRORS)]
    candidates = own or exceptions or lines
    return candidates[-1] if candidates else None


def _lines(output: bytes) -> list[str]:
    text = output.decode(errors="replace")
    return [line.strip()[:_LONGEST_LINE] for line in text.splitlines() if line.strip()]


# Outcome

LEAST_STEPS = 3
APPLIED_FRACTION = 0.9
"""Of the batch size given: with fewer samples in its passes, a script did not apply it."""
SURVIVED = "torch was refused memory on the way, and did with less"


def trial_of(
    batch_size: int,
    measurement: Measurement,
    output: bytes,
    *,
    limits: ProbeLimits = UNLIMITED,
    samples: int | None = None,
) -> Trial:
    """The trial of a batch size, by one run; `samples` are those of most of its passes."""
    samples = measurement.batch_size if samples is None else samples
    outcome, why = _outcome(batch_size, measurement, output, limits, samples)
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


def usual_batch_size(logs: Sequence[ProcessLog]) -> int | None:
    """Samples that most batches of the first rank had; None where no DataLoader shows them.

    The mean would be of no use: the last batch of an epoch is shorter.
    """
    if not logs:
        return None
    batches, samples = logs[0].table.column("batches"), logs[0].table.column("samples")
    known = (batches > 0) & np.isfinite(samples)
    if not known.any() or known.mean() < 0.5:  # one batch for several steps, which cut it up
        return None
    sizes = Counter(np.rint(samples[known] / batches[known]).astype(int).tolist())
    return int(max(sizes, key=lambda size: (sizes[size], size)))


def is_applied(batch_size: int, samples: int | None) -> bool:
    """Whether passes of so many samples are those of the batch size given; unknown ones are."""
    return samples is None or samples >= APPLIED_FRACTION * batch_size


def _samples_per_s(batch_size: int, measurement: Measurement) -> float | None:
    """Of all ranks; by the batch size given where the script does not show its own."""
    if measurement.samples_per_s is not None:
        return measurement.samples_per_s
    if measurement.step is None:
        return None
    return batch_size * max(measurement.world_size, 1) / measurement.step.mean_s


def _outcome(
    batch_size: int,
    measurement: Measurement,
    output: bytes,
    limits: ProbeLimits,
    samples: int | None,
) -> tuple[Outcome, str]:
    """Whether it fits. An alarm alone does not say it does not: cuDNN asks for much, and does with
    less; but a script that steps on with a smaller batch than it was given was helped by itself,
    and one that ends by itself before its steps gave up."""
    alarm, steps = measurement.ran_out_of_memory, measurement.steps_seen
    if measurement.ending == "interrupted":
        return "failed", "you stopped it"
    # What outlay stops makes one step more than those it had reported.
    is_stopped = measurement.ending == "stopped" and steps >= 1
    is_through = measurement.ending == "finished" and steps >= max(limits.steps or 0, LEAST_STEPS)
    if is_stopped or is_through:
        if alarm and not is_applied(batch_size, samples):
            return "out of memory", f"the script went on with a batch of {samples}"
        return "fits", SURVIVED if alarm else ""
    why = _why_out_of_memory(measurement, output)
    if why is not None:
        return "out of memory", why
    if measurement.ending == "finished" and steps >= LEAST_STEPS:
        return "fits", ""
    return "failed", _why_failed(measurement, output, limits)


def _why_out_of_memory(measurement: Measurement, output: bytes) -> str | None:
    """How a run that did not make its steps shows that memory ran out; None: not at all."""
    if measurement.ran_out_of_memory:
        return "torch could not get the memory it asked for"
    line = out_of_memory_line(output)
    if line is not None:
        return line
    if measurement.ending == "stopped":
        return None
    line = killed_line(output)
    if line is None and measurement.status != 128 + signal.SIGKILL:
        return None
    quoted = "" if line is None else f" ({line})"
    return f"it was killed, as the system does when its memory runs out{quoted}"


def _why_failed(measurement: Measurement, output: bytes, limits: ProbeLimits) -> str:
    if measurement.ending == "finished":
        steps = measurement.steps_seen
        return f"it ended by itself after {steps} steps; a trial needs {LEAST_STEPS}"
    if measurement.ending == "stopped" and measurement.stopped_for == "cost":
        return "its money was spent before its first step"
    if measurement.ending == "stopped":
        return f"it made no step within {limits.first_step_s or measurement.elapsed_s:,.0f} s"
    return f"status {measurement.status}: {last_line(output) or 'it said nothing'}"


# Batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSlot:
    """Where in a command its batch size goes: `{batch}` anywhere, or an option that it has."""

    command: tuple[str, ...]
    argument: str

    def command_at(self, batch_size: int) -> tuple[str, ...]:
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
    def current(self) -> int | None:
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
        self.command_at(1)
