"""How fast a workstation trains: its GPUs by the predictor, its input by CPU and SSD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outlay.facts import assumed
from outlay.hardware.gpus import Gpu
from outlay.offers.instances import feed_rates
from outlay.plan.placement import calibration
from outlay.predict.input_pipeline import thread_samples_per_s
from outlay.predict.parallel import StepRequest, best_step, mixed_gpus_step
from outlay.predict.roofline import checked_power_limit_w, speed_at_power_share
from outlay.predict.step import Conditions, Placement, StepPrediction
from outlay.predict.strategy import parse_strategy
from outlay.trace.profile import Profile
from outlay.uncertainty import Estimate
from outlay.units import MB
from outlay.workload.workload import Dataset, Step
from outlay.workstation.machine import Build, drives_bytes
from outlay.workstation.upgrade import SpeedOf, TrainingSpeed

IMAGES = "image"
"""What a profile calls a sample that must be decoded and cropped while training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained on a machine: the step, and its data as far as they are known."""

    profile: Profile
    step: Step
    data: Dataset


def power_speed() -> Callable[[float], float]:
    """Training speed at a share of the shipped power limit."""
    return lambda share: speed_at_power_share(share, calibration())


def speed_of(training: Training | None) -> SpeedOf:
    """The speed of machines at this training; of none where nothing is to be trained."""
    speeds: dict[tuple[object, ...], TrainingSpeed | None] = {}

    def speed(build: Build) -> TrainingSpeed | None:
        if training is None or not build.cards:
            return None
        rate = input_samples_per_s(build, training)
        gpus = tuple(card.gpu.name for card in build.cards)
        key = (gpus, _threads(build), build.power_limit_w, rate)
        if key not in speeds:
            speeds[key] = _speed(build, training, rate)
        return speeds[key]

    return speed


def _speed(build: Build, training: Training, input_rate: float | None) -> TrainingSpeed | None:
    step = _step(build, training, Conditions(node_samples_per_s=input_rate))
    if not step.fits:
        return None
    batch, time_s = step.global_batch_size, step.step_time_s
    return TrainingSpeed(
        samples_per_s=Estimate(
            low=batch / time_s.high, likely=batch / time_s.likely, high=batch / time_s.low
        ),
        bound=step.bound,
    )


def _step(build: Build, training: Training, conditions: Conditions) -> StepPrediction:
    """The best step on all of a machine's GPUs, which may differ."""
    gpus = list(dict.fromkeys(card.gpu for card in build.cards))
    total = sum(card.gpu.devices_per_board for card in build.cards)

    def on(gpu: Gpu, batch_size: int | None) -> StepPrediction:
        placement = Placement(
            gpu=gpu,
            gpus=total,
            power_limit_w=checked_power_limit_w(build.power_limit_w, gpu),
            vcpus=_threads(build) if total > 1 else None,
        )
        question = StepRequest(
            profile=training.profile,
            placement=placement,
            batch_size=batch_size,
            global_batch_size=training.step.global_batch_size,
            precision=training.step.precision,  # type: ignore[arg-type]
            strategy=parse_strategy(training.step.strategy or "auto"),
            conditions=conditions,
        )
        return best_step(question, calibration(), thorough=False)

    if len(gpus) == 1:
        return on(gpus[0], training.step.batch_size)
    return mixed_gpus_step(
        lambda batch_size: [on(gpu, batch_size) for gpu in gpus], training.step.batch_size
    )


def _threads(build: Build) -> float | None:
    return build.cpu.number("threads") if build.cpu else None


def input_samples_per_s(build: Build, training: Training) -> float | None:
    """What CPU and SSD deliver to all GPUs together; None where neither is known to bound it.

    The CPU counts where images are preprocessed while training; the SSD where the data do not
    stay in RAM.
    """
    rates = [_decoded_per_s(build, training), _read_per_s(build, training)]
    return min((rate for rate in rates if rate is not None), default=None)


def _decoded_per_s(build: Build, training: Training) -> float | None:
    threads = _threads(build)
    if threads is None or not build.use.while_training or IMAGES not in training.profile.sample:
        return None
    return threads * _decode_rate_per_thread(training)


def _decode_rate_per_thread(training: Training) -> float:
    """As the workload says what a sample is, or as images usually are."""
    feed = training.data.feed
    each = None if feed is None else thread_samples_per_s(feed, feed_rates())
    return assumed("cpu_decode_images_per_s_per_vcpu") if each is None else each.likely


def _read_per_s(build: Build, training: Training) -> float | None:
    data = training.data
    speeds = [part.number("read_bandwidth") for part in build.ssds]
    fastest = max((speed for speed in speeds if speed is not None), default=None)
    if fastest is None or not data.size_bytes or not data.samples:
        return None
    stays = build.ram_bytes is not None and data.size_bytes < build.ram_bytes
    capacity_bytes = drives_bytes(build.ssds)
    if stays or capacity_bytes is None or capacity_bytes < data.size_bytes:
        return None
    return fastest * MB / (data.size_bytes / data.samples)


def input_note(build: Build, training: Training | None) -> list[str]:
    """What was assumed of the input, where it may bound the training."""
    if training is None:
        return []
    decoded = _decoded_per_s(build, training)
    if decoded is None:
        return []
    each = _decode_rate_per_thread(training)
    rates = (
        f"{_threads(build):.0f} threads prepare {each:.0f} images a second each (low confidence)"
    )
    return [f"Input: {rates}, {decoded:,.0f} in all; --input before leaves that out."]
