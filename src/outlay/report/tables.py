"""Offers, GPUs, predictions and profiles as tables."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import doubt_meanings
from outlay.offers.offer import HostQuality, Offer
from outlay.predict.step import StepPrediction
from outlay.report.console import Table, table
from outlay.report.text import count, duration, gib, machine, or_more, tera, usd
from outlay.trace.profile import Kind, Profile
from outlay.units import GIB, MB


def offers_table(offers: Sequence[Offer], width: int, *, ranked_by: str = "$/h") -> Table:
    """One row per offer; what is known of single hosts of marketplaces where the page is wide.

    `ranked_by` is the column whose order they are in.
    """
    has_hosts = any(offer.host is not None for offer in offers)
    rows = [
        (
            offer.provider,
            offer.instance,
            machine(offer),
            _gib(offer.gpu_memory_bytes),
            "" if offer.vcpus is None else f"{offer.vcpus:g}",
            _gib(offer.ram_bytes),
            offer.region,
            _price(offer.price_usd_per_hour),
            _price(offer.spot_usd_per_hour),
            _price(_per_gpu(offer)),
            offer.as_of,
            *([_host(offer.host)] if has_hosts else []),
            ", ".join(doubt.word for doubt in offer.doubts),
        )
        for offer in offers
    ]
    hosts = ["host"] if has_hosts else []
    return table(
        ("provider", "instance", "gpu", "mem", "vcpus", "ram", "region", "$/h", "spot $/h",
         "$/gpu-h", "as of", *hosts, "doubts"),
        rows,
        width,
        right=("mem", "vcpus", "ram", "$/h", "spot $/h", "$/gpu-h"),
        drop=[name for name in ("vcpus", "ram", "mem", "$/gpu-h", *hosts) if name != ranked_by],
        fold=("doubts", "instance", "as of", "region", "provider", "spot $/h"),
        wrap="doubts",
    )  # fmt: skip


def doubts_explained(offers: Sequence[Offer]) -> list[str]:
    """What the doubts of the offers shown mean, a line for each word."""
    words = {doubt.word for offer in offers for doubt in offer.doubts}
    return [f"  {word}: {why}." for word, why in doubt_meanings().items() if word in words]


def _host(host: HostQuality | None) -> str:
    """`disk 2545, net 13/9.7 MB/s, 97.0 %`: what a marketplace measured of a single host."""
    if host is None:
        return ""
    down, up = (_mb_per_s(rate) for rate in (host.download_bytes_per_s, host.upload_bytes_per_s))
    speeds = f"disk {_mb_per_s(host.disk_bytes_per_s)}, net {down}/{up} MB/s"
    there = host.reliability_fraction
    return speeds if there is None else f"{speeds}, {there:.1%}"


def _mb_per_s(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / MB:.2g}" if rate < 10 * MB else f"{rate / MB:.0f}"


def _gib(amount: float | None) -> str:
    return "" if amount is None else f"{amount / GIB:g}G"


def _price(amount: float | None) -> str:
    return "-" if amount is None else usd(amount)


def _per_gpu(offer: Offer) -> float | None:
    price = offer.price_usd_per_hour
    return None if price is None else price / (offer.gpus * offer.gpu_share)


def gpus_table(gpus: Sequence[Gpu], width: int) -> Table:
    """One row per GPU: the figures that decide."""
    kinds = ("fp32", "tf32", "fp16", "bf16", "fp8")
    rows = [
        (
            gpu.name,
            gpu.architecture,
            gpu.form,
            _gib(gpu.memory_bytes),
            f"{gpu.usable_bytes / GIB:.1f}",
            f"{gpu.memory_bytes_per_s / 1e9:,.0f}",
            str(gpu.sm_count),
            f"{gpu.boost_hz / 1e6:.0f}",
            *(tera(gpu.peak_flops_per_s.get(kind)) for kind in kinds),
            f"{gpu.board_tdp_w:.0f} W",
            gpu.compute_capability,
        )
        for gpu in gpus
    ]
    return table(
        ("gpu", "architecture", "form", "mem", "usable", "gb/s", "sms", "mhz", *kinds, "tdp", "cc"),
        rows,
        width,
        right=("mem", "usable", "gb/s", "sms", "mhz", *kinds, "tdp"),
        drop=("cc", "mhz", "fp8", "sms", "form", "usable", "architecture", "fp32"),
    )


def facts_table(gpu: Gpu, width: int) -> Table:
    """Every row the facts table has on one GPU, with its source."""
    rows = [
        (
            name,
            fact.text or "unknown",
            fact.unit,
            fact.as_of,
            fact.source + (f" ({fact.note})" if fact.note else ""),
        )
        for name, fact in gpu.facts.items()
    ]
    return table(
        ("parameter", "value", "unit", "as of", "source and note"),
        rows,
        width,
        right=("value",),
        wrap="source and note",
    )


def predictions_table(predictions: Sequence[StepPrediction], width: int) -> Table:
    """One row per GPU; how a step is spread over several where there are."""
    several = _has_several_gpus(predictions)
    rows = [
        (
            _where(prediction),
            *([prediction.strategy.name] if several else []),
            _batch(prediction),
            f"{prediction.max_batch_size}{or_more(prediction.max_batch_size)}",
            duration(prediction.step_time_s.likely),
            f"{duration(prediction.step_time_s.low)} - {duration(prediction.step_time_s.high)}",
            f"{prediction.samples_per_s:,.1f}" if prediction.batch_size else "-",
            prediction.bound,
            f"{prediction.mfu:.0%}",
            gib(prediction.memory.reserved_bytes.likely),
            gib(prediction.memory.available_bytes),
            "yes" if prediction.fits else "no",
        )
        for prediction in predictions
    ]
    return table(
        ("gpu", *(["strategy"] if several else []), "batch", "max batch", "step", "range",
         "samples/s", "bound", "mfu", "reserves", "has", "fits"),
        rows,
        width,
        right=("batch", "max batch", "step", "samples/s", "mfu", "reserves", "has"),
        drop=("mfu", "has", "samples/s", "bound", "reserves"),
    )  # fmt: skip


def _has_several_gpus(predictions: Sequence[StepPrediction]) -> bool:
    return any(prediction.placement.site.total > 1 for prediction in predictions)


def _where(prediction: StepPrediction) -> str:
    """`RTX 3090`, `8x RTX 3090`, `4 x 8x H100 SXM`."""
    placement = prediction.placement
    count = f"{placement.gpus}x " if placement.gpus > 1 else ""
    nodes = f"{placement.nodes} x " if placement.nodes > 1 else ""
    return f"{nodes}{count}{placement.gpu.name}"


def _batch(prediction: StepPrediction) -> str:
    """Of one pass, with the number of passes in an update."""
    return str(prediction.batch_size) + (
        f" x{prediction.micro_batches}" if prediction.micro_batches > 1 else ""
    )


def breakdown_table(predictions: Sequence[StepPrediction], width: int) -> Table:
    """The device's time by kind of operation, a row for each GPU; host and input beside it."""
    totals: dict[Kind, float] = {}
    for prediction in predictions:
        for kind, time_s in prediction.by_kind_s.items():
            totals[kind] = totals.get(kind, 0.0) + time_s / prediction.device_time_s
    kinds = sorted(totals, key=lambda kind: -totals[kind])
    several = _has_several_gpus(predictions)
    exchange = ("exchange",) if several else ()
    rows = [
        (
            _where(prediction),
            duration(prediction.device_time_s),
            duration(prediction.host_time_s),
            *((duration(prediction.exchange_s.likely),) if several else ()),
            *(
                f"{prediction.by_kind_s.get(kind, 0.0) / prediction.device_time_s:.0%}"
                for kind in kinds
            ),
        )
        for prediction in predictions
    ]
    names: tuple[str, ...] = ("gpu", "device", "host", *exchange, *kinds)
    return table(names, rows, width, right=names[1:], drop=tuple(reversed(kinds[3:])))


def profiles_table(profiles: Sequence[Profile], width: int) -> Table:
    """One row per profile."""
    rows = [
        (
            profile.name,
            count(profile.parameters),
            profile.sample,
            f"{profile.at(16, shapes=False).flops / 16 / 1e9:,.0f}",
            profile.description,
        )
        for profile in profiles
    ]
    return table(
        ("name", "parameters", "sample", "gflop/sample", "description"),
        rows,
        width,
        right=("parameters", "gflop/sample"),
        drop=("sample", "description"),
        wrap="description",
    )
