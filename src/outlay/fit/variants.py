"""Ways to run a step: as it is, with changes, in smaller passes, with its state elsewhere, spread.

Each is the traced step, predicted on a GPU, with the cheapest offer it would run on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from outlay.facts import assumed
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import bundled_offers, offer_gpus
from outlay.offers.offer import Offer
from outlay.predict.calibration import Calibration
from outlay.predict.memory import MemoryBudget, MemoryNeed, largest_batch, memory_need
from outlay.predict.parallel import StepRequest, best_step, parallel_step
from outlay.predict.parallel_memory import accumulated_gradients_bytes
from outlay.predict.step import (
    DEFAULT_CONDITIONS,
    Conditions,
    Placement,
    StepPrediction,
    predict_step,
)
from outlay.predict.strategy import ONE_GPU, StrategyRequest
from outlay.trace.profile import Profile
from outlay.trace.target import LORA_RANK, UNCHANGED, Changes
from outlay.uncertainty import Estimate
from outlay.units import HOUR_S

MILLION = 1_000_000
_MOST_GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run the step: what is changed, and what becomes of it."""

    name: str
    changes: Changes
    kinds: tuple[str, ...]
    """The changes one by one, as `fit_advice` knows them."""
    step: StepPrediction
    offer: Offer | None
    """The cheapest offer of these GPUs, None where nobody rents them out with a price."""
    saved_bytes: float | None = None
    """Less reserved than unchanged, at the same batch."""
    time_ratio: float | None = None
    """Time of a sample over unchanged; None where unchanged does not fit at any batch."""

    @property
    def usd_per_hour(self) -> float:
        """Of the cheapest offer; of GPUs nobody rents out, the electricity of one's own machine."""
        if self.offer is not None and self.offer.price_usd_per_hour is not None:
            return self.offer.price_usd_per_hour
        placement = self.step.placement
        watts = placement.gpus * placement.gpu.tdp_w + assumed("desktop_host_power_w")
        return watts / 1000 * assumed("electricity_usd_per_kwh")

    @property
    def usd_per_million_samples(self) -> float | None:
        """At that price; None where it does not fit."""
        if not self.step.fits:
            return None
        return self.usd_per_hour / HOUR_S / self.step.samples_per_s * MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """What somebody wants to run, and where."""

    gpu: Gpu
    batch_size: int | None = None
    memory_cap_bytes: float | None = None
    expandable_segments: bool = False
    moments: float = 2.0
    """Optimizer state for each parameter: Adam keeps two numbers, SGD with momentum one."""
    conditions: Conditions = DEFAULT_CONDITIONS

    def placement(self, gpu: Gpu | None = None, gpus: int = 1) -> Placement:
        """So many GPUs of one kind in a machine."""
        return Placement(
            gpu=gpu or self.gpu,
            gpus=gpus,
            memory_cap_bytes=self.memory_cap_bytes if gpu is None else None,
            expandable_segments=self.expandable_segments,
        )


# Names

SINGLE: dict[str, Changes] = {
    "bf16 autocast": Changes(arithmetic="bf16 autocast"),
    "fp16 autocast": Changes(arithmetic="fp16 autocast"),
    "pure bf16": Changes(arithmetic="bf16"),
    "recompute blocks": Changes(recompute="blocks"),
    "recompute cheap operations": Changes(recompute="selective"),
    "fused optimizer": Changes(update="fused"),
    "8-bit optimizer": Changes(update="8-bit"),
    "optimizer on the host": Changes(update="offloaded"),
    f"LoRA (rank {LORA_RANK})": Changes(lora_rank=LORA_RANK),
}
PAGED = "paged 8-bit optimizer"
ACCUMULATE = "smaller passes"


def names_of(changes: Changes) -> tuple[str, ...]:
    """The single changes that a combination is made of."""
    return tuple(name for name, single in SINGLE.items() if _has(changes, single))


def _has(changes: Changes, single: Changes) -> bool:
    return any(
        getattr(single, field) == getattr(changes, field) != getattr(UNCHANGED, field)
        for field in ("arithmetic", "recompute", "update", "lora_rank")
    )


# One GPU


def variant_of(
    profile: Profile, changes: Changes, request: FitRequest, calibration: Calibration
) -> Variant:
    """The step on the GPU, traced with all of the changes but accumulation."""
    placement = request.placement()
    passes = changes.accumulate
    if passes > 1 and request.batch_size is not None:
        step = _in_passes(profile, request.batch_size // passes, passes, request, calibration)
    else:
        largest = largest_batch(profile, placement.memory_budget, calibration)
        step = predict_step(
            profile,
            placement,
            request.batch_size,
            calibration,
            largest=largest,
            conditions=request.conditions,
        )
    if changes.recompute == "selective":
        step = _through_python(step, calibration)
    if changes.update == "offloaded":
        step = _updated_elsewhere(step, profile, request.moments, calibration)
    kinds = (*names_of(changes), *((ACCUMULATE,) if passes > 1 else ()))
    words = (*names_of(changes), *((f"{passes} passes of {step.batch_size}",) * (passes > 1)))
    return Variant(
        name=" + ".join(words) or "as it is",
        changes=changes,
        kinds=kinds,
        step=step,
        offer=cheapest_offer(request.gpu, 1),
    )


def _through_python(step: StepPrediction, calibration: Calibration) -> StepPrediction:
    """The step where every operation of a block is looked at in Python: the host takes longer."""
    slower = calibration.estimate("host_selective")
    host_s = step.host_time_s * slower.likely
    time_s = step.step_time_s
    return replace(
        step,
        host_time_s=host_s,
        step_time_s=Estimate(
            low=max(time_s.low, step.host_time_s * slower.low * time_s.low / time_s.likely),
            likely=max(time_s.likely, host_s),
            high=max(time_s.high, step.host_time_s * slower.high),
        ),
        bound="host" if host_s > step.device_time_s else step.bound,
    )


def _in_passes(
    profile: Profile, size: int, passes: int, request: FitRequest, calibration: Calibration
) -> StepPrediction:
    """The step with its samples in several passes, gradients kept between them."""
    placement = request.placement()
    room = _beside_gradients(profile, size, placement)
    step = parallel_step(
        profile,
        placement,
        ONE_GPU,
        size,
        calibration,
        micro_batches=passes,
        largest=largest_batch(profile, room, calibration),
        conditions=request.conditions,
    )
    need = memory_need(profile, size, room, calibration)
    return replace(step, memory=_more(need, accumulated_gradients_bytes(profile, size), placement))


def _beside_gradients(profile: Profile, size: int, placement: Placement) -> MemoryBudget:
    """The room that is left where gradients stay between passes."""
    kept = accumulated_gradients_bytes(profile, size)
    return replace(
        placement.memory_budget, available_bytes=placement.memory_budget.available_bytes - kept
    )


def _updated_elsewhere(
    step: StepPrediction, profile: Profile, moments: float, calibration: Calibration
) -> StepPrediction:
    """The step with gradients sent to the host, the update there, and parameters sent back.

    The update there passes over parameters and as many `moments` of them as the optimizer keeps.
    """
    rate = _pcie_bytes_per_s(step.placement.gpu, calibration)
    sent_bytes = profile.gradient_bytes + profile.memory_at(1).parameters
    host_s = calibration.estimate("host_optimizer_s").scaled(
        profile.trainable_parameters * (1 + moments) / 3
    )
    sending = calibration.estimate("host_copy_fraction")
    extra = Estimate(
        low=sent_bytes / (rate * sending.high) + host_s.low,
        likely=sent_bytes / (rate * sending.likely) + host_s.likely,
        high=sent_bytes / (rate * sending.low) + host_s.high,
    )
    return replace(step, step_time_s=step.step_time_s.plus(extra), exchange_s=extra)


def _pcie_bytes_per_s(gpu: Gpu, calibration: Calibration) -> float:
    return gpu.pcie_bytes_per_s or calibration.number("pcie_unknown_bytes_per_s")


def _more(need: MemoryNeed, extra_bytes: float, placement: Placement) -> MemoryNeed:
    """A need with gradients kept beside it, on the whole of the GPU."""
    allocated, reserved = (
        Estimate(
            low=estimate.low + extra_bytes,
            likely=estimate.likely + extra_bytes,
            high=estimate.high + extra_bytes,
        )
        for estimate in (need.allocated_bytes, need.reserved_bytes)
    )
    return replace(
        need,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        available_bytes=placement.memory_budget.available_bytes,
    )


# Other ways


def smaller_passes(
    traced: Sequence[tuple[str, Changes, Profile]], request: FitRequest, calibration: Calibration
) -> Iterator[Variant]:
    """Where the batch asked for does not fit: the same samples in passes that do."""
    if request.batch_size is None:
        return
    placement = request.placement()
    for _, changes, profile in traced:
        if memory_need(profile, request.batch_size, placement.memory_budget, calibration).fits:
            continue
        room = _beside_gradients(profile, max(request.batch_size // 2, 1), placement)
        most = largest_batch(profile, room, calibration)
        size = max((n for n in range(1, most + 1) if request.batch_size % n == 0), default=0)
        if size:
            split = replace(changes, accumulate=request.batch_size // size)
            yield variant_of(profile, split, request, calibration)


def paged(
    profiles: Mapping[str, tuple[Changes, Profile]], request: FitRequest, calibration: Calibration
) -> Iterator[Variant]:
    """8-bit state in memory that moves to the host where there is no room for it on the GPU."""
    placement = request.placement()
    for name, (changes, profile) in profiles.items():
        if changes.update != "8-bit":
            continue
        size = (
            request.batch_size or largest_batch(profile, placement.memory_budget, calibration) or 1
        )
        state_bytes = profile.memory_at(size).optimizer_state
        room = replace(
            placement.memory_budget,
            available_bytes=placement.memory_budget.available_bytes + state_bytes,
        )
        step = predict_step(profile, placement, size, calibration, conditions=request.conditions)
        need = memory_need(profile, size, room, calibration)
        if step.fits or not need.fits:
            continue
        rate = _pcie_bytes_per_s(request.gpu, calibration)
        moved = calibration.estimate("host_copy_fraction")
        extra = Estimate(
            low=2 * state_bytes / (rate * moved.high),
            likely=2 * state_bytes / (rate * moved.likely),
            high=2 * state_bytes / (rate * moved.low),
        )
        yield Variant(
            name=name.replace("8-bit optimizer", PAGED),
            changes=changes,
            kinds=tuple(PAGED if kind == "8-bit optimizer" else kind for kind in names_of(changes)),
            step=replace(
                step,
                step_time_s=step.step_time_s.plus(extra),
                exchange_s=extra,
                max_batch_size=largest_batch(profile, room, calibration),
                memory=_more(need, -state_bytes, placement),
            ),
            offer=cheapest_offer(request.gpu, 1),
        )


SPREAD = {
    "DDP": StrategyRequest(sharding="none", tensor=1, pipeline=1, within_node=False),
    "ZeRO-2": StrategyRequest(sharding="zero2", tensor=1, pipeline=1, within_node=False),
    "FSDP": StrategyRequest(sharding="zero3", tensor=1, pipeline=1, within_node=False),
    "tensor parallel": StrategyRequest(sharding="none", pipeline=1, within_node=False),
    "pipeline parallel": StrategyRequest(sharding="none", tensor=1, within_node=False),
}


def more_gpus(
    traced: Sequence[tuple[str, Changes, Profile]], request: FitRequest, calibration: Calibration
) -> Iterator[Variant]:
    """Where one GPU is too small: the fewest of them that take it, by each way to spread it."""
    name, changes, profile = traced[0]
    alone = memory_need(
        profile, request.batch_size or 1, request.placement().memory_budget, calibration
    )
    if request.memory_cap_bytes is not None or alone.fits:
        return
    for kind, wanted in SPREAD.items():
        for gpus in (2, 4, _MOST_GPUS):
            exact = replace(
                wanted,
                tensor=gpus if kind == "tensor parallel" else wanted.tensor,
                pipeline=gpus if kind == "pipeline parallel" else wanted.pipeline,
            )
            step = best_step(
                StepRequest(
                    profile=profile,
                    placement=request.placement(gpus=gpus),
                    global_batch_size=request.batch_size,
                    strategy=exact,
                    conditions=request.conditions,
                ),
                calibration,
            )
            if not step.fits or not exact.allows(step.strategy):
                continue
            yield Variant(
                name=" + ".join(filter(None, (name, f"{step.strategy.name} on {gpus} GPUs"))),
                changes=changes,
                kinds=(kind,),
                step=step,
                offer=cheapest_offer(request.gpu, gpus),
            )
            break


# Money


def cheapest_offer(gpu: Gpu, gpus: int) -> Offer | None:
    """The cheapest machine on demand with so many of this GPU, sold and not doubted."""
    offers = [offer for offer in priced_offers() if offer.gpus == gpus and gpu in offer_gpus(offer)]
    return min(offers, key=lambda offer: offer.price_usd_per_hour or 0.0, default=None)


def priced_offers() -> list[Offer]:
    """Whole machines that are sold on demand at a price nobody doubts."""
    return [
        offer
        for offer in bundled_offers()
        if offer.price_usd_per_hour
        and offer.gpu_share == 1
        and not offer.cautions("on-demand")
        and not offer.not_for_sale("on-demand")
    ]
