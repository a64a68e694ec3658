"""What the input pipeline delivers: a step cannot be faster than its data.

In: a `Dataset` and its `Feed`, and what a machine brings (`InputHost`). Out: an `InputRate`, and
the step held to it (`with_input_rate`). Samples a second of a machine are the least of what its CPU
threads decode and augment and of what its disk reads; data that fits into RAM is read from the disk
once. The rule "slowest stage" was within 4 % of measured speeds (Mohan et al., PVLDB 14(5), 2021,
doi 10.14778/3446095.3446100). Rates and their sources: docs/models/feed.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outlay.errors import InputError
from outlay.predict.step import StepPrediction
from outlay.uncertainty import Estimate, Uncertain
from outlay.workload.workload import Dataset, Feed

Rates = Mapping[str, Estimate]
"""The rows of `data/feed_rates.csv` by name."""

_KIND = re.compile(
    r"(?P<format>jpe?g|png|raw) (?P<width>[1-9]\d*)(?:x(?P<height>[1-9]\d*))?"
    r"(?: to (?P<crop>[1-9]\d*))?"
)
_MOSTLY_LATER = 1.5
"""Epochs from which the later ones say more of a run than the first."""
NOT_DECODED = ("tokens", "ready")
"""Kinds that cost the CPU nothing worth counting: token ids, tensors as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputHost:
    """What a machine brings to the input pipeline."""

    vcpus: float | None
    gpus: int
    ram_bytes: float | None
    disk_bytes_per_s: Uncertain
    disk: str
    """Its disk in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRate:
    """Samples a second that reach the GPUs of one machine, and what limits them."""

    first: Estimate
    """In the first epoch, which is read from the disk."""
    later: Estimate
    """In the others, which may come from RAM."""
    epochs: float
    limited_by: str
    """`decoding` or `reading`, with the figures, in words."""


Stage = tuple[Estimate, str]
"""Samples a second of one stage, and the stage in words."""


def input_rate(
    data: Dataset, feed: Feed, host: InputHost, epochs: float, rates: Rates
) -> InputRate | None:
    """What reaches the GPUs of a machine: the slowest stage, in the first epoch and later.

    None where nothing is known that could limit it.
    """
    decoding = _decoding(feed, host, rates)
    first, later = _reading(data, feed, host, rates)
    first_stages = [stage for stage in (decoding, first) if stage is not None]
    later_stages = [stage for stage in (decoding, later) if stage is not None]
    if not first_stages:
        return None
    _, limited_by = min(
        later_stages if epochs > _MOSTLY_LATER else first_stages, key=lambda stage: stage[0].likely
    )
    return InputRate(
        first=_slowest(first_stages),
        later=_slowest(later_stages),
        epochs=max(epochs, 1.0),
        limited_by=limited_by,
    )


def _slowest(stages: Sequence[Stage]) -> Estimate:
    """The slowest of several stages, at each end of their ranges."""
    rates = [rate for rate, _ in stages]
    return Estimate(
        low=min(rate.low for rate in rates),
        likely=min(rate.likely for rate in rates),
        high=min(rate.high for rate in rates),
    )


def _decoding(feed: Feed, host: InputHost, rates: Rates) -> Stage | None:
    """All threads that are not busy with a GPU, decoding; unknown without their number."""
    each = thread_samples_per_s(feed, rates)
    if each is None or host.vcpus is None:
        return None
    threads = max(host.vcpus - host.gpus, 1.0)
    return (
        each.scaled(threads),
        f"decoding, {threads:g} CPU threads x {each.likely:,.0f} samples/s",
    )


def thread_samples_per_s(feed: Feed, rates: Rates) -> Estimate | None:
    """What one CPU thread decodes and augments; None where that is nothing worth counting."""
    stated = feed.samples_per_s_per_vcpu
    if stated is not None:
        return stated if isinstance(stated, Estimate) else Estimate.exactly(stated)
    kind = (feed.kind or "ready").strip().lower()
    if kind in NOT_DECODED:
        return None
    match = _KIND.fullmatch(kind)
    if match is None:
        raise InputError(
            f"data.kind = {feed.kind!r} is no kind of sample.",
            why='Known are "jpeg 500x375 to 224", "png 256", "raw 256", "tokens" and "ready".',
            fix="Or give data.decode_per_vcpu: what one CPU thread delivers in your loader.",
        )
    return _image_samples_per_s(match, rates)


def _image_samples_per_s(match: re.Match[str], rates: Rates) -> Estimate:
    """Decoding all pixels, augmenting those that are left, in a thread among busy ones."""
    width = int(match["width"])
    pixels = width * int(match["height"] or width)
    cropped = min(int(match["crop"]) ** 2 if match["crop"] else pixels, pixels)
    decode = {"png": "png_decode", "raw": None}.get(match["format"], "jpeg_decode")
    share = rates["vcpu_share"]

    def at(end: str) -> float:
        decode_s = pixels / getattr(rates[decode], end) if decode else 0.0
        return float(getattr(share, end) / (decode_s + cropped / getattr(rates["augment"], end)))

    return Estimate(low=at("low"), likely=at("likely"), high=at("high"))


def _reading(
    data: Dataset, feed: Feed, host: InputHost, rates: Rates
) -> tuple[Stage | None, Stage | None]:
    """What the disk delivers in the first epoch, and in later ones beside what RAM holds."""
    sample_bytes = feed.sample_bytes
    if sample_bytes is None and data.size_bytes is not None and data.samples:
        sample_bytes = data.size_bytes / data.samples
    if sample_bytes is None:
        return None, None
    disk = host.disk_bytes_per_s
    bytes_per_s = disk if isinstance(disk, Estimate) else Estimate.exactly(disk)
    text = (
        f"reading, {host.disk} at {bytes_per_s.likely / 1e6:,.0f} MB/s, "
        f"{sample_bytes / 1e3:,.0f} KB a sample"
    )
    share = _reread_share(data, feed, host, rates)
    cached = "" if share == 1 else f", {share:.0%} of it from there and the rest from RAM"
    first = (bytes_per_s.scaled(1 / sample_bytes), text)
    return first, (bytes_per_s.scaled(1 / (sample_bytes * max(share, 1e-6))), text + cached)


def _reread_share(data: Dataset, feed: Feed, host: InputHost, rates: Rates) -> float:
    """The share of the data that comes from the disk again in each later epoch."""
    if feed.cached is not None:
        return 0.0 if feed.cached else 1.0
    if data.size_bytes is None or host.ram_bytes is None:
        return 1.0
    fits = host.ram_bytes * rates["ram_for_cache"].likely / data.size_bytes
    points = (
        (0.0, 1.0),
        (0.35, rates["page_cache_35"].likely),
        (0.65, rates["page_cache_65"].likely),
        (1.0, 0.0),
    )
    for (left, high), (right, low) in pairwise(points):
        if fits <= right:
            return high + (low - high) * (fits - left) / (right - left)
    return 0.0


def with_input_rate(step: StepPrediction, rate: InputRate) -> StepPrediction:
    """A step that waits for its input where that takes longer than the step itself.

    Its time is the mean over all epochs: the first one, and those that RAM helps.
    """
    samples = step.global_batch_size / max(step.placement.nodes, 1)
    share = 1 / rate.epochs

    def at(time_s: float, first: float, later: float) -> float:
        return share * max(time_s, samples / first) + (1 - share) * max(time_s, samples / later)

    time_s = Estimate(
        low=at(step.step_time_s.low, rate.first.high, rate.later.high),
        likely=at(step.step_time_s.likely, rate.first.likely, rate.later.likely),
        high=at(step.step_time_s.high, rate.first.low, rate.later.low),
    )
    usual = rate.later if rate.epochs > _MOSTLY_LATER else rate.first
    input_s = samples / usual.likely
    waits = input_s > step.step_time_s.likely
    needed = samples / step.step_time_s.likely
    text = f"{rate.limited_by}: {usual.likely:,.0f} samples/s, the GPUs take {needed:,.0f}"
    return replace(
        step,
        input_s=input_s,
        step_time_s=time_s,
        bound="input" if waits else step.bound,
        notes=(*step.notes, f"{'waits for its input' if waits else 'input keeps up'}: {text}"),
    )
