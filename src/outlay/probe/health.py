"""A measurement with a verdict: where its time goes, what holds it back, whether it is healthy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from outlay.measurement.measurement import (
    Check,
    MeasuredMemory,
    Measurement,
    Sample,
    StepTime,
    TimeShares,
    Verdict,
)
from outlay.probe.bottleneck import (
    LoaderSettings,
    StepObservation,
    bottleneck_of,
    has_channels_first,
    is_full_precision,
    is_fused,
    shares_of,
)
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import StepStatistics
from outlay.units import GB, MB

# The list "is it training properly?": each line ok, look, bad or unknown, and why.


GPU_BUSY = 0.7
GPU_IDLE = 0.3
STARVING = 0.3
WAITING = 0.1
BRIM = 0.95
RAM_LOOK = 0.85
RAM_BAD = 0.95
SWAPPING_BYTES_PER_S = 1 * MB
"""Below, it is what a system tidies away by itself."""
DISK_LOOK = 0.7
DISK_BAD = 0.95
OFTEN = 0.1
"""Of the samples: a clock that is held down more seldom does not show in a mean."""
STRAGGLER = 0.05
SPREAD = 0.5
"""Of the median, between the 10th and 90th percentile of steps."""
STUCK = 10
"""Losses that are all exactly equal, from which it is no chance."""
DIVERGED = 1000.0
# Assumes: what learns does not end at a thousand times its first losses, and 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What the list is made from; None and empty where nothing was seen."""

    device: str | None
    step: StepTime | None = None
    gpu_fraction: float | None = None
    shares: TimeShares = field(default_factory=TimeShares)
    losses: Sequence[tuple[int, float | None]] = ()
    samples: Sequence[Sample] = ()
    """Of the steady state, where there was one."""
    memory: MeasuredMemory = field(default_factory=MeasuredMemory)
    gpu_memory_bytes: float | None = None
    ram_bytes: float | None = None
    rank_work: Sequence[float | None] = ()
    """What each rank computed, in any one unit: it is not in their step times, since they wait for
    each other."""
    has_loader: bool = True
    """Whether waits were those of a DataLoader."""


def checks_of(seen: HealthInputs) -> tuple[Check, ...]:
    """The whole list; what makes no sense on the device or with one process is left out."""
    on_gpu = seen.device not in (None, "cpu")
    checks: list[tuple[str, Callable[[HealthInputs], tuple[Verdict, str]], bool]] = [
        ("GPU busy", _gpu_busy, on_gpu),
        ("loss finite", _loss, True),
        ("steps steady", _steady, True),
        ("input keeps up", _input, True),
        ("clock not held down", _clock, on_gpu),
        ("GPU memory left", _gpu_memory, on_gpu),
        ("host memory left", _host_memory, True),
        ("no swapping", _swap, True),
        ("disk keeps up", _disk, True),
        ("ranks equally busy", _ranks, len(seen.rank_work) > 1),
    ]
    return tuple(_check(name, judge(seen)) for name, judge, applies in checks if applies)


def _check(name: str, judged: tuple[Verdict, str]) -> Check:
    verdict, why = judged
    return Check(name=name, verdict=verdict, why=why)


def _gpu_busy(seen: HealthInputs) -> tuple[Verdict, str]:
    share = seen.shares.compute if seen.shares.compute is not None else seen.gpu_fraction
    if share is None:
        return "unknown", "Neither a profile nor the driver tells how busy the GPU is."
    said = f"The GPU works {share:.0%} of the time"
    if share >= GPU_BUSY:
        return "ok", f"{said}."
    idle = f"{said}: you pay for {1 - share:.0%} of idling. See what holds it back."
    return ("look" if share >= GPU_IDLE else "bad"), idle


def _loss(seen: HealthInputs) -> tuple[Verdict, str]:
    if not seen.losses:
        return "unknown", "No loss was seen."
    broken = [step for step, loss in seen.losses if loss is None or not math.isfinite(loss)]
    if broken and seen.losses[-1][0] == broken[-1]:
        return "bad", (
            f"The loss is no finite number since step {_since(seen)}: lower the learning rate,"
            " clip gradients, or look for a division by zero or bad samples."
        )
    if broken:
        return "look", (
            f"{len(broken)} of {len(seen.losses)} losses were no finite numbers, the last at step"
            f" {broken[-1]}; a gradient scaler may have left those steps out."
        )
    values = [loss for _, loss in seen.losses if loss is not None]
    if len(values) >= STUCK and len(set(values)) == 1:
        return "bad", (
            f"The loss is exactly {values[0]:.6g} in all {len(values)} steps looked at: nothing is"
            " learned. Are the optimizer's parameters the model's, and do gradients reach them?"
        )
    beginning = [abs(value) for value in values[: len(values) // 4 + 1]]
    if abs(values[-1]) > DIVERGED * max(1.0, *beginning):
        return "look", (
            f"The loss grew from {values[0]:.4g} to {values[-1]:.4g}, which is finite but hardly"
            " learns: lower the learning rate, warm it up, or clip gradients."
        )
    if len(values) == 1:
        return "ok", f"The one loss looked at is finite: {values[0]:.4g}."
    return (
        "ok",
        f"All {len(values)} losses looked at are finite: {values[0]:.4g} to {values[-1]:.4g}.",
    )


def _since(seen: HealthInputs) -> int:
    """The step of the first loss after which none was finite."""
    since = seen.losses[-1][0]
    for step, loss in reversed(seen.losses):
        if loss is not None and math.isfinite(loss):
            break
        since = step
    return since


def _steady(seen: HealthInputs) -> tuple[Verdict, str]:
    step = seen.step
    if step is None:
        return "unknown", "Too few steps were seen."
    spread = (step.p90_s - step.p10_s) / step.median_s
    said = f"8 of 10 steps take {_ms(step.p10_s)} to {_ms(step.p90_s)}"
    if not step.is_steady:
        return "look", f"No steady state was seen in {step.steps} steps; {said}. Let it run longer."
    if spread > SPREAD:
        return "look", f"{said}: inputs of different sizes, or something that disturbs?"
    return "ok", f"{said}."


def _input(seen: HealthInputs) -> tuple[Verdict, str]:
    share = seen.shares.input
    if share is None:
        return "unknown", "It is not known how long steps wait for their batches."
    said = f"Steps wait for their batch {share:.0%} of the time"
    if share <= WAITING:
        return "ok", f"{said}."
    if not seen.has_loader:
        return "look", (
            f"The process is asleep {share:.0%} of the time, and has no DataLoader: most likely it"
            " waits for data, an environment or another process."
        )
    return ("look" if share <= STARVING else "bad"), f"{said}: the data come too slowly."


def _clock(seen: HealthInputs) -> tuple[Verdict, str]:
    told = [one for one in seen.samples if one.clock_fraction is not None or one.slowed_by]
    if not told:
        return "unknown", "The driver tells no clocks."
    heat, fault, power = (_often(told, why) for why in ("heat", "hardware", "power"))
    hottest = max(
        (one.temperature_c for one in told if one.temperature_c is not None), default=None
    )
    at = "" if hottest is None else f" (up to {hottest:.0f} °C)"
    if heat > OFTEN:
        return "bad", f"Too hot for its clock {heat:.0%} of the time{at}: see to its cooling."
    if fault > OFTEN:
        return "bad", (
            f"The hardware slows the clock {fault:.0%} of the time: look at the power supply and"
            " its cables."
        )
    if power > OFTEN:
        return "ok", (
            f"At its power limit {power:.0%} of the time{at}, as is normal for a GPU with enough"
            " to do."
        )
    return "ok", f"Nothing holds it down{at}."


def _often(samples: Sequence[Sample], why: str) -> float:
    return sum(why in one.slowed_by for one in samples) / len(samples)


def _gpu_memory(seen: HealthInputs) -> tuple[Verdict, str]:
    limit = seen.memory.limit_bytes or seen.gpu_memory_bytes
    held = seen.memory.reserved_bytes or seen.memory.used_bytes
    if limit is None or held is None:
        return "unknown", "How much memory the GPU has, or how much is in use, is not known."
    said = f"{held / limit:.0%} of {limit / GB:.1f} GB are reserved"
    if held <= BRIM * limit:
        return "ok", f"{said}."
    return "look", f"{said}: one larger input may end the run. Leave 5 %, or save often."


def _host_memory(seen: HealthInputs) -> tuple[Verdict, str]:
    most = max((one.process_bytes for one in seen.samples if one.process_bytes), default=None)
    held = seen.memory.host_bytes or most
    if held is None or seen.ram_bytes is None:
        return "unknown", "How much memory the machine has, or the command takes, is not known."
    share = held / seen.ram_bytes
    said = f"The command takes {held / GB:.1f} of {seen.ram_bytes / GB:.1f} GB"
    if share <= RAM_LOOK:
        return "ok", f"{said}."
    return ("look" if share <= RAM_BAD else "bad"), f"{said}: fewer workers or a smaller cache."


def _swap(seen: HealthInputs) -> tuple[Verdict, str]:
    rates = [one.swapped_bytes_per_s for one in seen.samples if one.swapped_bytes_per_s is not None]
    if not rates:
        return "unknown", "Swapping could not be read."
    mean = sum(rates) / len(rates)
    if mean < SWAPPING_BYTES_PER_S:
        return "ok", "The machine does not swap."
    return "bad", f"{mean / MB:.0f} MB/s are swapped: memory is short. Fewer workers, or more RAM."


def _disk(seen: HealthInputs) -> tuple[Verdict, str]:
    shares = [one.disk_fraction for one in seen.samples if one.disk_fraction is not None]
    if not shares:
        return "unknown", "How busy disks are could not be read."
    mean = sum(shares) / len(shares)
    said = f"The busiest disk has work {mean:.0%} of the time"
    if mean < DISK_LOOK:
        return "ok", f"{said}."
    # An NVMe drive serves many requests at once: always busy is not yet saturated.
    if mean < DISK_BAD or (seen.shares.input or 0.0) <= WAITING:
        return "look", f"{said}: it may soon hold the input back."
    return "bad", f"{said}, and steps wait for their data: a faster disk, or data kept in RAM."


def _ranks(seen: HealthInputs) -> tuple[Verdict, str]:
    known = [work for work in seen.rank_work if work is not None]
    if len(known) < len(seen.rank_work) or not all(known):
        return "unknown", (
            "Ranks wait for each other, so that their steps take the same time; what each of them"
            " computes was not measured."
        )
    most, least = max(known), min(known)
    behind = most / least - 1
    rank = list(seen.rank_work).index(most)
    said = f"Rank {rank} computes {behind:.0%} more of the time than the least busy"
    if behind <= STRAGGLER:
        return "ok", f"All {len(known)} compute for about the same time."
    return "look", f"{said}: the others wait for it. Look at its share of the data and its GPU."


def _ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


_MOSTLY = 0.5


def judged(
    measurement: Measurement,
    seen: StepStatistics,
    told: Sequence[ProcessLog],
    samples: Sequence[Sample],
    exchange_s: float | None,
) -> Measurement:
    """The measurement with shares, finding and checks; `samples` are of the steady state."""
    observed = _observed(measurement, seen, told, samples, exchange_s)
    if observed is not None:
        measurement = replace(
            measurement, shares=shares_of(observed), finding=bottleneck_of(observed)
        )
    gpus = measurement.machine.gpus
    watched = HealthInputs(
        device=measurement.device,
        step=measurement.step,
        gpu_fraction=measurement.gpu_fraction,
        shares=measurement.shares,
        losses=measurement.losses,
        samples=samples,
        memory=measurement.memory,
        gpu_memory_bytes=max((gpu.memory_bytes or 0.0 for gpu in gpus), default=0.0) or None,
        ram_bytes=measurement.machine.ram_bytes,
        rank_work=_rank_work(measurement, seen, told),
        has_loader=seen.wait_s is not None,
    )
    if not measurement.steps_seen:
        return measurement
    return replace(measurement, checks=checks_of(watched))


def _observed(
    measurement: Measurement,
    seen: StepStatistics,
    told: Sequence[ProcessLog],
    samples: Sequence[Sample],
    exchange_s: float | None,
) -> StepObservation | None:
    step, device = measurement.step, measurement.device
    if step is None or device is None:
        return None
    return StepObservation(
        step_s=step.mean_s,
        device=device,
        busy_s=measurement.busy_s,
        exchange_s=exchange_s,
        gpu_fraction=measurement.gpu_fraction,
        wait_s=seen.wait_s,
        cpus=seen.cpus,
        queued_fraction=max((_queued(one) for one in told), default=0.0),
        ranks=max(measurement.ranks, 1),
        cpu_threads=measurement.machine.cpu_threads,
        loader=_loader(told),
        read_bytes_per_s=_mean([sample.read_bytes_per_s for sample in samples]),
        disk_fraction=_mean([sample.disk_fraction for sample in samples]),
        machine_cpu_fraction=_mean([sample.cpu_fraction for sample in samples]),
        memory_fraction=_memory_fraction(measurement),
        is_full_precision=is_full_precision(measurement.profile),
        has_channels_first=has_channels_first(measurement.profile),
        is_fused=is_fused(measurement.profile),
        is_compiled=measurement.is_compiled,
        slowed_by=_slowed_by(samples),
    )


def _queued(told: ProcessLog) -> float:
    return float(told.facts.get("queue", {}).get("fraction", 0.0))


def _rank_work(
    measurement: Measurement, seen: StepStatistics, told: Sequence[ProcessLog]
) -> tuple[float | None, ...]:
    """What each rank computed: its kernels by the profile, on a CPU its CPU time."""
    if measurement.device == "cpu":
        return seen.rank_cpus
    kernels = [one.facts.get("kernels") for one in told]
    return tuple(
        one["busy_s"] / one["optimizer_steps"] if one and one["optimizer_steps"] else None
        for one in kernels
    )


def _loader(told: Sequence[ProcessLog]) -> LoaderSettings | None:
    """The one that was met first: the training data's."""
    met = [one for process in told for one in process.lists.get("loader", [])]
    if not met:
        return None
    first = met[0]
    return LoaderSettings(
        num_workers=first["workers"],
        pin_memory=first["pin_memory"],
        persistent_workers=first["persistent_workers"],
    )


def _memory_fraction(measurement: Measurement) -> float | None:
    memory = measurement.memory
    limit = memory.limit_bytes or memory.available_bytes
    if memory.reserved_bytes is None or not limit:
        return None
    return memory.reserved_bytes / limit


def _slowed_by(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Reasons that held for most of the time."""
    reasons = {reason for sample in samples for reason in sample.slowed_by}
    return tuple(
        reason
        for reason in sorted(reasons)
        if sum(reason in sample.slowed_by for sample in samples) > _MOSTLY * len(samples)
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
