"""How fast a GPU is on bundled profiles, alone or in a pair: what comparisons of cards rest on."""

from __future__ import annotations

from functools import cache

from outlay.hardware import Gpu, gpus
from outlay.placing import calibration
from outlay.predict.compute import device_time
from outlay.predict.links import Wiring, Within
from outlay.predict.memory import memory_need
from outlay.predict.search import Question, best_step
from outlay.predict.step import Placement, StepPrediction
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.bundled import bundled_profiles, find_profile
from outlay.trace.trace import Profile

_BATCH = 8
"""Cards are compared at a batch that keeps any of them busy, whether it fits there or not."""


@cache
def bundled(name: str) -> Profile:
    """A bundled profile, read once."""
    return find_profile(name)


def step_on(
    gpu: Gpu,
    profile: Profile,
    batch_size: int | None = None,
    *,
    count: int = 1,
    within: Within | None = None,
) -> StepPrediction:
    """One step on so many GPUs of one kind; without a batch size, at the largest that fits."""
    placement = Placement(gpu=gpu, gpus=count, wiring=Wiring(within=within))
    question = Question(profile=profile, placement=placement, batch_size=batch_size)
    return best_step(question, calibration(), thorough=False)


@cache
def device_times_s(name: str) -> tuple[float, ...]:
    """A GPU's own time for a step of each bundled profile, the host left out."""
    return tuple(_device_s(name, profile) for profile in bundled_profiles())


def _device_s(name: str, profile: str) -> float:
    trace = trace_at(bundled(profile), _BATCH)
    return device_time(trace, machine_at(gpus()[name], calibration()), calibration()).total_s


def least_ratio(one: Gpu, other: Gpu) -> float:
    """How many times as fast one GPU is as another, on the profile where that is least."""
    pairs = zip(device_times_s(other.name), device_times_s(one.name), strict=True)
    return min(slow_s / fast_s for slow_s, fast_s in pairs)


@cache
def fitting_profiles(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bundled profiles that fit a GPU with one sample, and those that do not."""
    room = Placement(gpu=gpus()[name]).room
    fits = {
        profile: memory_need(bundled(profile), 1, room, calibration()).fits
        for profile in bundled_profiles()
    }
    return (
        tuple(profile for profile, does in fits.items() if does),
        tuple(profile for profile, does in fits.items() if not does),
    )
