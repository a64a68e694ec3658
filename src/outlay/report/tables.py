"""Offers, GPUs, predictions and profiles as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from outlay.hardware import Gpu
from outlay.offers.offer import Offer
from outlay.predict.step import StepPrediction
from outlay.report.console import table
from outlay.report.text import count, duration, gib, tera, usd
from outlay.trace.trace import Profile
from outlay.units import GIB


def offers_table(offers: Sequence[Offer]) -> Table:
    """One row per offer."""
    made = table(
        "provider", "instance", "gpu", "mem", "vcpus", "ram", "region", "$/h", "spot $/h",
        "$/gpu-h", "as of", "doubts", right=("mem", "vcpus", "ram", "$/h", "spot $/h", "$/gpu-h"),
    )  # fmt: skip
    for offer in offers:
        share = f" ({offer.gpu_share:g} of one)" if offer.gpu_share != 1 else ""
        made.add_row(
            offer.provider,
            offer.instance,
            f"{offer.gpus}x {offer.gpu}{share}",
            _gib(offer.gpu_memory_bytes),
            "" if offer.vcpus is None else f"{offer.vcpus:g}",
            _gib(offer.ram_bytes),
            offer.region,
            _price(offer.price_usd_per_hour),
            _price(offer.spot_usd_per_hour),
            _price(_per_gpu(offer)),
            offer.as_of,
            ", ".join(doubt.word for doubt in offer.doubts),
        )
    return made


def _gib(amount: float | None) -> str:
    return "" if amount is None else f"{amount / GIB:g}G"


def _price(amount: float | None) -> str:
    return "-" if amount is None else usd(amount)


def _per_gpu(offer: Offer) -> float | None:
    price = offer.price_usd_per_hour
    return None if price is None else price / (offer.gpus * offer.gpu_share)


def gpus_table(gpus: Sequence[Gpu]) -> Table:
    """One row per GPU: the figures that decide."""
    made = table(
        "gpu", "architecture", "form", "mem", "usable", "gb/s", "sms", "mhz", "fp32", "tf32",
        "fp16", "bf16", "fp8", "tdp", "cc",
        right=("mem", "usable", "gb/s", "sms", "mhz", "fp32", "tf32", "fp16", "bf16", "fp8", "tdp"),
    )  # fmt: skip
    for gpu in gpus:
        peaks = gpu.peak_flops_per_s
        made.add_row(
            gpu.name,
            gpu.architecture,
            gpu.form,
            _gib(gpu.memory_bytes),
            f"{gpu.usable_bytes / GIB:.1f}",
            f"{gpu.memory_bytes_per_s / 1e9:,.0f}",
            str(gpu.sm_count),
            f"{gpu.boost_hz / 1e6:.0f}",
            *(tera(peaks.get(kind)) for kind in ("fp32", "tf32", "fp16", "bf16", "fp8")),
            f"{gpu.board_tdp_w:.0f} W",
            gpu.compute_capability,
        )
    return made


def facts_table(gpu: Gpu) -> Table:
    """Every row the facts table has on one GPU, with its source."""
    made = table("parameter", "value", "unit", "as of", "source", "note", right=("value",))
    for name, fact in gpu.facts.items():
        made.add_row(name, fact.text or "unknown", fact.unit, fact.as_of, fact.source, fact.note)
    return made


def predictions_table(predictions: Sequence[StepPrediction]) -> Table:
    """One row per GPU."""
    made = table(
        "gpu", "batch", "max batch", "step", "range", "samples/s", "bound", "reserves", "has",
        "fits",
        right=("batch", "max batch", "step", "samples/s", "reserves", "has"),
    )  # fmt: skip
    for one in predictions:
        made.add_row(
            one.placement.gpu.name,
            str(one.batch_size),
            str(one.max_batch_size),
            duration(one.step_time_s.likely),
            f"{duration(one.step_time_s.low)} - {duration(one.step_time_s.high)}",
            f"{one.samples_per_s:,.1f}" if one.batch_size else "-",
            one.bound,
            gib(one.memory.reserved_bytes.likely),
            gib(one.memory.available_bytes),
            "yes" if one.fits else "no",
        )
    return made


def profiles_table(profiles: Sequence[Profile]) -> Table:
    """One row per bundled profile."""
    made = table(
        "name", "parameters", "sample", "gflop/sample", "description",
        right=("parameters", "gflop/sample"),
    )  # fmt: skip
    for profile in profiles:
        made.add_row(
            profile.name,
            count(profile.parameters),
            profile.sample,
            f"{profile.at(16).flops / 16 / 1e9:,.0f}",
            profile.description,
        )
    return made
