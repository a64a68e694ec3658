"""What a short run at one batch size says: it fits, ran out of memory, or failed otherwise.

Out of memory is recognised by torch's own alarm, by the driver's and libraries' words in the
output, and by the death the kernel gives.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

import numpy as np

from outlay.measurement import Measurement
from outlay.probe.batches import Outcome, Trial
from outlay.probe.course import UNLIMITED, Limits
from outlay.probe.listen import Told
from outlay.probe.said import killed_line, last_line, out_of_memory_line

LEAST_STEPS = 3
TAKEN = 0.9
"""Of the batch asked for: with fewer samples in its passes, a script did not take it."""
SURVIVED = "torch was refused memory on the way, and did with less"


def trial_of(
    batch_size: int,
    measurement: Measurement,
    words: bytes,
    *,
    limits: Limits = UNLIMITED,
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


def usual_pass(told: Sequence[Told]) -> int | None:
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
    batch_size: int, measurement: Measurement, words: bytes, limits: Limits, samples: int | None
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


def _why_failed(measurement: Measurement, words: bytes, limits: Limits) -> str:
    if measurement.ending == "finished":
        steps = measurement.steps_seen
        return f"it ended by itself after {steps} steps; a trial needs {LEAST_STEPS}"
    if measurement.ending == "stopped" and measurement.stopped_for == "cost":
        return "its money was spent before its first step"
    if measurement.ending == "stopped":
        return f"it made no step within {limits.first_step_s or measurement.elapsed_s:,.0f} s"
    return f"status {measurement.status}: {last_line(words) or 'it said nothing'}"
