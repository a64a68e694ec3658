"""The diagnosis of a measurement: where its time goes, what holds it back, whether it is healthy.

Checks     the list "is it training properly?": each line ok, look, bad or unknown, and why
Diagnosis  the measurement with its time shares, its finding and the list
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from outlay.errors import NotKnown
from outlay.hardware.gpu_names import find_gpu
from outlay.measurement.measurement import (
    Check,
    Holder,
    MeasuredMemory,
    Measurement,
    Sample,
    StepTime,
    TimeShares,
    Verdict,
)
from outlay.plan.placement import calibration
from outlay.predict.from_probe import evidence_of, measured_batch_size
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.probe.agent.protocol import CpuQueueTime, KernelTimes, LoaderInfo, MathSettings
from outlay.probe.bottleneck import (
    BUSY,
    LoaderSettings,
    OtherGpu,
    StepObservation,
    bottleneck_finding,
    has_channels_first,
    is_fused,
    product_shares,
    time_shares,
)
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import StepStatistics
from outlay.units import GIB, MB

# Checks: limits of what is ok, to look at, or bad

GPU_BUSY_OK = BUSY
"""As for what holds a run back: a GPU that idles more waits for something."""
GPU_BUSY_BAD = 0.3
INPUT_WAIT_OK = 0.1
INPUT_WAIT_BAD = 0.3
GPU_MEMORY_OK = 0.95
RAM_OK = 0.85
RAM_BAD = 0.95
SWAPPING_BYTES_PER_S = 1 * MB
"""Below, it is what a system tidies away by itself."""
DISK_BUSY_OK = 0.7
DISK_BUSY_BAD = 0.95
CLOCK_HELD_OK = 0.1
"""Of the samples: a clock that is held down more seldom does not show in a mean."""
STRAGGLER_OK = 0.05
SPREAD_OK = 0.5
"""Of the median, between the 10th and 90th percentile of steps."""
EQUAL_LOSSES = 10
"""Losses that are all exactly equal, from which it is no chance."""
DIVERGED = 1000.0
# Assumes: what learns does not end at a thousand times its first losses, and 1.


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What the checks are made from; None and empty where nothing is known."""

    device: str | None
    step: StepTime | None = None
    gpu_fraction: float | None = None
    shares: TimeShares = field(default_factory=TimeShares)
    holder: Holder | None = None
    """What holds the run back."""
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


def checks_of(inputs: HealthInputs) -> tuple[Check, ...]:
    """All checks; what makes no sense on the device or with one process is left out."""
    on_gpu = inputs.device not in (None, "cpu")
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
        ("ranks equally busy", _ranks, len(inputs.rank_work) > 1),
    ]
    return tuple(_check(name, *judge(inputs)) for name, judge, applies in checks if applies)


def _check(name: str, verdict: Verdict, why: str) -> Check:
    return Check(name=name, verdict=verdict, why=why)


def _gpu_busy(inputs: HealthInputs) -> tuple[Verdict, str]:
    share = inputs.shares.compute if inputs.shares.compute is not None else inputs.gpu_fraction
    if share is None:
        return "unknown", "Neither a profile nor the driver tells how busy the GPU is."
    text = f"The GPU works {share:.0%} of the time"
    if share >= GPU_BUSY_OK:
        return "ok", f"{text}."
    idle = f"{text}: you pay for {1 - share:.0%} of idling. See what holds it back."
    return ("look" if share >= GPU_BUSY_BAD else "bad"), idle


def _loss(inputs: HealthInputs) -> tuple[Verdict, str]:
    if not inputs.losses:
        return "unknown", "No loss was seen."
    broken = [step for step, loss in inputs.losses if loss is None or not math.isfinite(loss)]
    if broken and inputs.losses[-1][0] == broken[-1]:
        return "bad", (
            f"The loss is no finite number since step {_since(inputs)}: lower the learning rate,"
            " clip gradients, or look for a division by zero or bad samples."
        )
    if broken:
        return "look", (
            f"{len(broken)} of {len(inputs.losses)} losses were no finite numbers, the last at step"
            f" {broken[-1]}; a gradient scaler may have left those steps out."
        )
    values = [loss for _, loss in inputs.losses if loss is not None]
    if len(values) >= EQUAL_LOSSES and len(set(values)) == 1:
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


def _since(inputs: HealthInputs) -> int:
    """The step of the first loss after which none was finite."""
    since = inputs.losses[-1][0]
    for step, loss in reversed(inputs.losses):
        if loss is not None and math.isfinite(loss):
            break
        since = step
    return since


def _steady(inputs: HealthInputs) -> tuple[Verdict, str]:
    step = inputs.step
    if step is None:
        return "unknown", "Too few steps were seen."
    spread = (step.p90_s - step.p10_s) / step.median_s
    text = f"8 of 10 steps take {_ms(step.p10_s)} to {_ms(step.p90_s)}"
    if not step.is_steady:
        return "look", f"No steady state was seen in {step.steps} steps; {text}. Let it run longer."
    if spread > SPREAD_OK:
        return "look", f"{text}: inputs of different sizes, or something that disturbs?"
    return "ok", f"{text}."


def _input(inputs: HealthInputs) -> tuple[Verdict, str]:
    share = inputs.shares.input
    if share is None:
        return "unknown", "It is not known how long steps wait for their batches."
    text = f"Steps wait for their batch {share:.0%} of the time"
    if share <= INPUT_WAIT_OK and inputs.holder != "input":
        return "ok", f"{text}."
    if not inputs.has_loader:
        return "look", (
            f"The process is asleep {share:.0%} of the time, and has no DataLoader: most likely it"
            " waits for data, an environment or another process."
        )
    return ("look" if share <= INPUT_WAIT_BAD else "bad"), f"{text}: the data come too slowly."


def _clock(inputs: HealthInputs) -> tuple[Verdict, str]:
    samples = [
        sample for sample in inputs.samples if sample.clock_fraction is not None or sample.slowed_by
    ]
    if not samples:
        return "unknown", "The driver tells no clocks."
    heat, fault, power = (_slowed_fraction(samples, why) for why in ("heat", "hardware", "power"))
    temperatures_c = [sample.temperature_c for sample in samples]
    hottest = max((degrees for degrees in temperatures_c if degrees is not None), default=None)
    at = "" if hottest is None else f" (up to {hottest:.0f} °C)"
    if heat > CLOCK_HELD_OK:
        return "bad", f"Too hot for its clock {heat:.0%} of the time{at}: see to its cooling."
    if fault > CLOCK_HELD_OK:
        return "bad", (
            f"The hardware slows the clock {fault:.0%} of the time: look at the power supply and"
            " its cables."
        )
    if power > CLOCK_HELD_OK:
        return "ok", (
            f"At its power limit {power:.0%} of the time{at}, as is normal for a GPU with enough"
            " to do."
        )
    return "ok", f"Nothing holds it down{at}."


def _slowed_fraction(samples: Sequence[Sample], why: str) -> float:
    return sum(why in sample.slowed_by for sample in samples) / len(samples)


def _gpu_memory(inputs: HealthInputs) -> tuple[Verdict, str]:
    limit = inputs.memory.limit_bytes or inputs.gpu_memory_bytes
    used = inputs.memory.reserved_bytes or inputs.memory.used_bytes
    if limit is None or used is None:
        return "unknown", "How much memory the GPU has, or how much is in use, is not known."
    text = f"{used / limit:.0%} of {limit / GIB:.1f} GiB are reserved"
    if used <= GPU_MEMORY_OK * limit:
        return "ok", f"{text}."
    return "look", f"{text}: one larger input may end the run. Leave 5 %, or save often."


def _host_memory(inputs: HealthInputs) -> tuple[Verdict, str]:
    sizes = [sample.process_bytes for sample in inputs.samples if sample.process_bytes]
    used = inputs.memory.host_bytes or max(sizes, default=None)
    if used is None or inputs.ram_bytes is None:
        return "unknown", "How much memory the machine has, or the command takes, is not known."
    share = used / inputs.ram_bytes
    text = f"The command takes {used / GIB:.1f} of {inputs.ram_bytes / GIB:.1f} GiB"
    if share <= RAM_OK:
        return "ok", f"{text}."
    return ("look" if share <= RAM_BAD else "bad"), f"{text}: fewer workers or a smaller cache."


def _swap(inputs: HealthInputs) -> tuple[Verdict, str]:
    mean = _mean([sample.swapped_bytes_per_s for sample in inputs.samples])
    if mean is None:
        return "unknown", "Swapping could not be read."
    if mean < SWAPPING_BYTES_PER_S:
        return "ok", "The machine does not swap."
    return "bad", f"{mean / MB:.0f} MB/s are swapped: memory is short. Fewer workers, or more RAM."


def _disk(inputs: HealthInputs) -> tuple[Verdict, str]:
    mean = _mean([sample.disk_fraction for sample in inputs.samples])
    if mean is None:
        return "unknown", "How busy disks are could not be read."
    text = f"The busiest disk has work {mean:.0%} of the time"
    if mean < DISK_BUSY_OK:
        return "ok", f"{text}."
    # An NVMe drive serves many requests at once: always busy is not yet saturated.
    if mean < DISK_BUSY_BAD or (inputs.shares.input or 0.0) <= INPUT_WAIT_OK:
        return "look", f"{text}: it may soon hold the input back."
    return "bad", f"{text}, and steps wait for their data: a faster disk, or data kept in RAM."


def _ranks(inputs: HealthInputs) -> tuple[Verdict, str]:
    known = [work for work in inputs.rank_work if work is not None]
    if len(known) < len(inputs.rank_work) or not all(known):
        return "unknown", (
            "Ranks wait for each other, so that their steps take the same time; what each of them"
            " computes was not measured."
        )
    most, least = max(known), min(known)
    behind = most / least - 1
    rank = list(inputs.rank_work).index(most)
    text = f"Rank {rank} computes {behind:.0%} more of the time than the least busy"
    if behind <= STRAGGLER_OK:
        return "ok", f"All {len(known)} compute for about the same time."
    return "look", f"{text}: the others wait for it. Look at its share of the data and its GPU."


def _ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


# Diagnosis

_MOSTLY = 0.5


def add_diagnosis(
    measurement: Measurement,
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
    samples: Sequence[Sample],
    exchange_s: float | None,
) -> Measurement:
    """The measurement with shares, finding and checks; `samples` are of the steady state."""
    observation = _observation(measurement, statistics, logs, samples, exchange_s)
    if observation is not None:
        shares, finding = time_shares(observation), bottleneck_finding(observation)
        measurement = replace(measurement, shares=shares, finding=finding)
    gpus = measurement.machine.gpus
    inputs = HealthInputs(
        device=measurement.device,
        step=measurement.step,
        gpu_fraction=measurement.gpu_fraction,
        shares=measurement.shares,
        holder=None if measurement.finding is None else measurement.finding.holder,
        losses=measurement.losses,
        samples=samples,
        memory=measurement.memory,
        gpu_memory_bytes=max((gpu.memory_bytes or 0.0 for gpu in gpus), default=0.0) or None,
        ram_bytes=measurement.machine.ram_bytes,
        rank_work=_rank_work(measurement, statistics, logs),
        has_loader=statistics.wait_s is not None,
    )
    if not measurement.steps_seen:
        return measurement
    return replace(measurement, checks=checks_of(inputs))


def _observation(
    measurement: Measurement,
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
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
        wait_s=statistics.wait_s,
        cpus=statistics.cpus,
        queued_fraction=max((_queued_fraction(log) for log in logs), default=0.0),
        ranks=max(measurement.ranks, 1),
        cpu_threads=measurement.machine.cpu_threads,
        loader=_loader_settings(logs),
        read_bytes_per_s=_mean([sample.read_bytes_per_s for sample in samples]),
        disk_fraction=_mean([sample.disk_fraction for sample in samples]),
        machine_cpu_fraction=_mean([sample.cpu_fraction for sample in samples]),
        memory_fraction=_memory_fraction(measurement),
        products=product_shares(measurement.profile, has_tf32=has_tf32(logs, measurement)),
        has_tf32=has_tf32(logs, measurement),
        matmul_tf32=_math_settings(logs).matmul_tf32,
        other_gpus=step_on_others(measurement),
        one_thread_s=_one_thread_s(measurement),
        has_channels_first=has_channels_first(measurement.profile),
        is_fused=is_fused(measurement.profile),
        is_compiled=measurement.is_compiled,
        slowed_by=_slowed_by(samples),
    )


def _math_settings(logs: Sequence[ProcessLog]) -> MathSettings:
    reports = (log.last(MathSettings) for log in logs)
    return next((report for report in reports if report is not None), MathSettings())


def has_tf32(logs: Sequence[ProcessLog], measurement: Measurement) -> bool | None:
    """Whether the GPU has TF32, as torch or else the table of GPUs has it; only NVIDIA's do."""
    if measurement.device != "cuda":
        return False
    known = _math_settings(logs).has_tf32
    gpus = measurement.machine.gpus
    if known is not None or not gpus:
        return known
    try:
        return "tf32" in find_gpu(gpus[0].name).gpu.peak_flops_per_s
    except NotKnown:
        return None


OTHER_GPUS = ("L4", "RTX 4090", "A100 80GB SXM", "H100 SXM", "H200 SXM", "B200")
"""On which a step is predicted for advice: what is rented most, from small to large."""


def step_on_others(measurement: Measurement) -> tuple[OtherGpu, ...] | None:
    """A step of one process as predicted on other GPUs that it fits, the fastest first.

    None where it cannot be predicted: no operations, or several GPUs.
    """
    profile, own = measurement.profile, {gpu.name for gpu in measurement.machine.gpus}
    if profile is None or measurement.step is None or measurement.world_size > 1:
        return None
    try:
        conditions = Conditions(evidence=evidence_of([("", measurement)], profile))
        batch = measured_batch_size(measurement)
        own = {find_gpu(name).gpu.name for name in own}
        gpus = [gpu for name in OTHER_GPUS if (gpu := find_gpu(name).gpu).name not in own]
        steps = [
            predict_step(
                profile,
                Placement(gpu=gpu),
                batch,
                calibration(),
                largest=batch,
                conditions=conditions,
            )
            for gpu in gpus
        ]
    except Exception:  # advice is worth no measurement
        return None
    others = [
        OtherGpu(
            name=step.placement.gpu.name,
            step_s=step.step_time_s.likely,
            is_host_bound=step.host_time_s > step.device_time_s,
        )
        for step in steps
        if step.fits
    ]
    fastest_s = min((other.step_s for other in others), default=0.0)
    # Of those that are about as fast, the smallest: it is the cheapest.
    return tuple(sorted(others, key=lambda other: max(other.step_s, _AS_FAST * fastest_s)))


_AS_FAST = 1.1


_THREAD_FLOPS_PER_S = 10e9
_THREAD_BYTES_PER_S = 5e9
# Assumes: one thread of a CPU of the last ten years does at least so much of fp32 products, and of
# reading and writing; a guess, and far from what is good enough for more than telling tiny steps.


def _one_thread_s(measurement: Measurement) -> float | None:
    if measurement.profile is None:
        return None
    trace = measurement.profile.at(measured_batch_size(measurement), shapes=False)
    moved_bytes = sum(op.moved_bytes * op.count for op in trace.ops)
    return trace.flops / _THREAD_FLOPS_PER_S + moved_bytes / _THREAD_BYTES_PER_S


def _queued_fraction(log: ProcessLog) -> float:
    return (log.last(CpuQueueTime) or CpuQueueTime()).fraction


def _rank_work(
    measurement: Measurement, statistics: StepStatistics, logs: Sequence[ProcessLog]
) -> tuple[float | None, ...]:
    """What each rank computed: its kernels by the profile, on a CPU its CPU time."""
    if measurement.device == "cpu":
        return statistics.rank_cpus
    profiles = [log.last(KernelTimes) for log in logs]
    return tuple(
        kernels.busy_s / kernels.optimizer_steps if kernels and kernels.optimizer_steps else None
        for kernels in profiles
    )


def _loader_settings(logs: Sequence[ProcessLog]) -> LoaderSettings | None:
    """Those of the first loader: the training data's."""
    loaders = [info for log in logs for info in log.all(LoaderInfo)]
    if not loaders:
        return None
    return LoaderSettings(
        num_workers=loaders[0].workers,
        pin_memory=loaders[0].pin_memory,
        persistent_workers=loaders[0].persistent_workers,
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
