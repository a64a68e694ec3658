"""A measurement with a verdict: where its time goes, what holds it back, whether it is healthy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outlay.measurement import Measurement, Sample
from outlay.probe.checks import Watched, checks_of
from outlay.probe.finding import finding_of, shares_of
from outlay.probe.listen import Told
from outlay.probe.manner import has_channels_first, is_full_precision, is_fused
from outlay.probe.observed import LoaderSeen, Observed
from outlay.probe.steps import StepsSeen

_MOSTLY = 0.5


def judged(
    measurement: Measurement,
    seen: StepsSeen,
    told: Sequence[Told],
    samples: Sequence[Sample],
    exchange_s: float | None,
) -> Measurement:
    """The measurement with shares, finding and checks; `samples` are of the steady state."""
    observed = _observed(measurement, seen, told, samples, exchange_s)
    if observed is not None:
        measurement = replace(measurement, shares=shares_of(observed), finding=finding_of(observed))
    gpus = measurement.machine.gpus
    watched = Watched(
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
    seen: StepsSeen,
    told: Sequence[Told],
    samples: Sequence[Sample],
    exchange_s: float | None,
) -> Observed | None:
    step, device = measurement.step, measurement.device
    if step is None or device is None:
        return None
    return Observed(
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


def _queued(told: Told) -> float:
    return float(told.facts.get("queue", {}).get("fraction", 0.0))


def _rank_work(
    measurement: Measurement, seen: StepsSeen, told: Sequence[Told]
) -> tuple[float | None, ...]:
    """What each rank computed: its kernels by the profile, on a CPU its CPU time."""
    if measurement.device == "cpu":
        return seen.rank_cpus
    kernels = [one.facts.get("kernels") for one in told]
    return tuple(
        one["busy_s"] / one["optimizer_steps"] if one and one["optimizer_steps"] else None
        for one in kernels
    )


def _loader(told: Sequence[Told]) -> LoaderSeen | None:
    """The one that was met first: the training data's."""
    met = [one for process in told for one in process.lists.get("loader", [])]
    if not met:
        return None
    first = met[0]
    return LoaderSeen(
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
