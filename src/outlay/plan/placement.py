"""A step on an offer: the GPUs it would run on, the best way to spread it, and its input.

Predictions are kept, so that plans that differ in money alone ask for each of them once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial

from outlay.caching import ById
from outlay.facts import rows_of
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import offer_gpus
from outlay.offers.instances import KnownLinks, disk_of, feed_rates, links_of
from outlay.offers.offer import Offer
from outlay.predict import input_pipeline
from outlay.predict.calibration import Calibration, calibration_of
from outlay.predict.evidence import NO_EVIDENCE, Evidence
from outlay.predict.network import GpuLink, Wiring
from outlay.predict.parallel import StepRequest, best_step, mixed_gpus_step
from outlay.predict.roofline import checked_power_limit_w
from outlay.predict.run_time import optimizer_steps
from outlay.predict.step import Conditions, Placement, StepPrediction, range_over_forms
from outlay.predict.strategy import StrategyRequest, parse_strategy
from outlay.trace.profile import Precision, Profile
from outlay.workload.workload import Step, Workload


@cache
def calibration() -> Calibration:
    """The fitted numbers, from the tables in `data/`."""
    return calibration_of(
        rows_of("calibration.csv"), rows_of("kernel_passes.csv"), rows_of("kernel_products.csv")
    )


def steps_on(
    workload: Workload, profile: Profile, evidence: Evidence = NO_EVIDENCE
) -> Callable[[Offer], StepPrediction]:
    """The step of a workload on any offer."""
    precision: Precision | None = workload.step.precision  # type: ignore[assignment]
    wanted = parse_strategy(workload.step.strategy or "auto")

    def predict_form(placement: Placement, batch_size: int | None = None) -> StepPrediction:
        batch_size = batch_size or workload.step.batch_size
        global_batch_size = workload.step.global_batch_size
        return _best_step(
            ById(profile),
            placement,
            batch_size,
            batch_limit(workload.step, profile, placement.site.total),
            global_batch_size,
            precision,
            wanted,
            ById(evidence),
            ById(calibration()),
            workload.data.feed is not None,
        )

    held: dict[object, StepPrediction] = {}
    known: dict[object, StepPrediction] = {}

    def predict(offer: Offer) -> StepPrediction:
        step = alone(offer)
        if workload.data.feed is None or not step.fits:
            return step
        host = _input_host(offer, workload)
        key = (ById(step), host)
        if key not in held:
            held[key] = _held_to_input(step, host, workload)
        return held[key]

    def alone(offer: Offer) -> StepPrediction:
        key = _hardware(offer)
        if key not in known:
            known[key] = worked_out(offer)
        return known[key]

    def worked_out(offer: Offer) -> StepPrediction:
        if offer.other_gpus:
            return mixed_gpus_step(partial(unlike, offer), workload.step.batch_size)
        forms = [predict_form(placement) for placement in placements_of(offer, workload)]
        return forms[0] if len(forms) == 1 else _over_forms(*map(ById, forms))

    def unlike(offer: Offer, batch_size: int | None) -> list[StepPrediction]:
        names = (offer.gpu, *offer.other_gpus)
        parts = [replace(offer, gpu=name, other_gpus=()) for name in names]
        return [
            range_over_forms(
                [predict_form(placement, batch_size) for placement in placements_of(part, workload)]
            )
            for part in parts
        ]

    return predict


def batch_limit(step: Step, profile: Profile, gpus: int) -> int | None:
    """The batch per GPU that the largest that fits is held to: the user's, or where nothing is
    said of the batch, what the step was published with; None where there is no such limit.
    """
    if step.max_batch_size is not None or step.batch_size is not None:
        return step.max_batch_size
    if profile.published is None or not step.batch_left_open or step.global_batch_size is not None:
        return None
    return profile.published.per_gpu_on(gpus)


@lru_cache(maxsize=8192)
def _over_forms(*forms: ById[StepPrediction]) -> StepPrediction:
    """The step of a GPU whose form is open; the same one for all offers of it."""
    return range_over_forms([form.value for form in forms])


@lru_cache(maxsize=8192)
def _best_step(
    profile: ById[Profile],
    placement: Placement,
    batch_size: int | None,
    batch_limit: int | None,
    global_batch_size: int | None,
    precision: Precision | None,
    wanted: StrategyRequest,
    evidence: ById[Evidence],
    numbers: ById[Calibration],
    is_fed: bool,
) -> StepPrediction:
    """The best way to run a step on a placement; asked again by another plan, the same.

    Where the input is looked at by itself (`is_fed`), a measured machine's loader is no limit.
    """
    question = StepRequest(
        profile=profile.value,
        placement=placement,
        batch_size=batch_size,
        batch_limit=batch_limit,
        global_batch_size=global_batch_size,
        precision=precision,
        strategy=wanted,
        conditions=Conditions(
            evidence=evidence.value, input_samples_per_s=math.inf if is_fed else None
        ),
    )
    return best_step(question, numbers.value, thorough=False)


def _input_host(offer: Offer, workload: Workload) -> input_pipeline.InputHost:
    """What an offer brings to the input pipeline."""
    disk = disk_of(offer, workload.data)
    return input_pipeline.InputHost(
        vcpus=offer.vcpus,
        gpus=offer.gpus,
        ram_bytes=offer.ram_bytes,
        disk_bytes_per_s=disk.bytes_per_s,
        disk=disk.name,
    )


def _held_to_input(
    step: StepPrediction, host: input_pipeline.InputHost, workload: Workload
) -> StepPrediction:
    """A step held to what its input pipeline delivers, where the workload says what that is."""
    data, feed = workload.data, workload.data.feed
    if feed is None:
        return step
    samples = workload.samples() or optimizer_steps(workload, step) * step.global_batch_size
    epochs = samples / data.samples if data.samples else 1.0
    rate = input_pipeline.input_rate(data, feed, host, epochs, feed_rates())
    if rate is None:
        note = "its input is not counted: neither its CPU threads nor the data's size are known"
        return replace(step, notes=(*step.notes, note))
    return input_pipeline.with_input_rate(step, rate)


_WITHIN: dict[str, GpuLink] = {
    "nvswitch": "nvlink",
    "nvlink mesh": "mesh",
    "nvlink bridge": "bridge",
    "pcie": "pcie",
}


def _hardware(offer: Offer) -> tuple[object, ...]:
    """What of an offer its placements depend on, in short: offers of a kind share a prediction."""
    return (
        offer.gpu, offer.other_gpus, offer.gpu_memory_bytes, offer.gpus, offer.gpu_share,
        offer.power_limit_w, offer.vcpus if offer.gpus > 1 else None, links_of(offer),
    )  # fmt: skip


def placements_of(offer: Offer, workload: Workload) -> list[Placement]:
    """Where a step would run on an offer: one placement for each form its GPU may have."""
    links = links_of(offer)
    return [
        Placement(
            gpu=gpu,
            gpus=offer.gpus,
            nodes=workload.usage.machines,
            gpu_share=offer.gpu_share,
            power_limit_w=checked_power_limit_w(offer.power_limit_w, gpu),
            vcpus=offer.vcpus if offer.gpus > 1 else None,
            wiring=Wiring(
                gpu_link=_gpu_link(gpu, links),
                network_bytes_per_s=links.network_bytes_per_s,
                network_kind=links.network_kind,
            ),
        )
        for gpu in offer_gpus(offer)
    ]


def _gpu_link(gpu: Gpu, links: KnownLinks) -> GpuLink | None:
    """What joins an offer's GPUs: as its provider says, or as cards without peers must."""
    link = _WITHIN.get(links.gpu_link)
    if link == "pcie" and gpu.peer_to_peer is False:
        return "host"
    return link
