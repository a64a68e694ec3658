"""What a short run at one batch size says: it fits, ran out of memory, or failed otherwise.

Out of memory is recognised by torch's own alarm, by the driver's and libraries' words in the
output, and by the death the kernel gives.
"""

from __future__ import annotations

import re
import signal

from outlay.measurement import Measurement
from outlay.probe.batches import Outcome, Trial

LEAST_STEPS = 3
_OUT_OF_MEMORY = re.compile(
    rb"out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    rb"|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|RESOURCE_EXHAUSTED|DefaultCPUAllocator"
    rb"|can't allocate memory|MemoryError|bad_alloc|NCCL.*memory",
    re.IGNORECASE,
)


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
