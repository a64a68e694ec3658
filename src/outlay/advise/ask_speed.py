"""Questions that the predictor answers: which TFLOPS, CPU cores, unlike cards, NVLink."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from outlay.advise.cards import (
    assumption_fact,
    assumption_number,
    assumption_range,
    bundled_profile,
    step_on,
)
from outlay.advise.questions import Answer, Figures, QuestionContext, answer_row, quoted, sources_of
from outlay.facts import Fact
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu, gpus
from outlay.offers.catalog import bundled_offers
from outlay.predict.network import Within
from outlay.predict.parallel import on_unlike
from outlay.predict.roofline import trace_at
from outlay.trace.store import bundled_profiles, find_profile
from outlay.units import HOUR_S, TERA

_KINDS = {
    "fp32": "32-bit without tensor cores",
    "tf32": "TF32 on tensor cores",
    "fp16": "16-bit on tensor cores",
    "fp16_fp16acc": "16-bit, summed in 16 bit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedGpu:
    """A GPU as a column of TFLOPS has it, and as it is predicted."""

    gpu: Gpu
    column: float
    """In TFLOP/s, as quoted."""
    nearest: str
    peak: float
    samples_per_s: float

    @property
    def clock_mhz(self) -> float:
        """The clock at which it would reach the column's figure."""
        return self.gpu.boost_hz / 1e6 * self.column / self.peak


def tflops(about: QuestionContext) -> Answer:
    """Which number the column is, and how far its order is from predicted speed."""
    judged = [_judged(one.answer, one.value or 0.0, about.profile) for one in answer_row("tflops")]
    column = [one.column for one in judged]
    speed = [one.samples_per_s for one in judged]
    high, low, off = worst_pair(judged)
    return Answer(
        topic="tflops",
        question="Which number is the TFLOPS column people go by, and why does it mislead?",
        words=(
            (
                f"It is nearest to {_common(judged)}: about the dense fp32 peak, at the highest "
                "clock of the card at hand rather than the rated one (see CLOCK). Training in 16 "
                "bit runs on tensor cores, which that number leaves out, and often waits for "
                "memory."
            ),
            (
                f"By that column {high.gpu.name} is {high.column / low.column:.1f}x "
                f"{low.gpu.name}; on {about.profile} it is predicted to be "
                f"{high.samples_per_s / low.samples_per_s:.2f}x: off by {off:.1f}x, the worst pair."
            ),
            (
                f"Rank correlation of the column with predicted speed on {about.profile}: "
                f"{rank_correlation(column, speed):.2f} (1: the same order, -1: the opposite)."
            ),
        ),
        figures=Figures(
            heads=("gpu", "column", "nearest", "dense peak", "clock", "fp16 peak", "samples/s"),
            rows=tuple(map(_judged_row, judged)),
            drop=("nearest", "fp16 peak"),
        ),
        sources=("gpus.csv (`outlay gpus NAME --facts`)", *sources_of("tflops")),
    )


def _judged(name: str, column: float, profile: str) -> RatedGpu:
    gpu = find_gpu(name).candidates[0]
    known = {kind: gpu.peak_flops_per_s.get(kind) for kind in _KINDS}
    peaks = {kind: peak / TERA for kind, peak in known.items() if peak is not None}
    # GeForce cards do TF32 as fast as fp32: rounded, so that the plain one is named.
    nearest = min(peaks, key=lambda kind: round(abs(math.log(column / peaks[kind])), 2))
    return RatedGpu(
        gpu=gpu,
        column=column,
        nearest=nearest,
        peak=peaks[nearest],
        samples_per_s=step_on(gpu, find_profile(profile)).samples_per_s,
    )


def _common(judged: Sequence[RatedGpu]) -> str:
    kinds = [one.nearest for one in judged]
    return _KINDS[max(kinds, key=kinds.count)]


def _judged_row(one: RatedGpu) -> tuple[str, ...]:
    fp16 = one.gpu.peak_flops_per_s.get("fp16")
    return (
        one.gpu.name,
        f"{one.column:g}",
        one.nearest,
        f"{one.peak:g}",
        f"{one.clock_mhz:,.0f} of {one.gpu.boost_hz / 1e6:,.0f} MHz",
        "-" if fp16 is None else f"{fp16 / TERA:g}",
        f"{one.samples_per_s:,.0f}",
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: 1 - 6 sum(d^2) / (n (n^2 - 1)), for values without ties."""
    pairs = zip(_ranks(first), _ranks(second), strict=True)
    squares = sum(math.pow(one - other, 2) for one, other in pairs)
    return 1 - 6 * squares / (len(first) * (len(first) ** 2 - 1))


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    return [order.index(index) for index in range(len(values))]


def worst_pair(judged: Sequence[RatedGpu]) -> tuple[RatedGpu, RatedGpu, float]:
    """Two GPUs, the higher in the column first, and by what factor it misjudges their ratio."""

    def off(pair: tuple[RatedGpu, RatedGpu]) -> float:
        one, other = pair
        said, real = one.column / other.column, one.samples_per_s / other.samples_per_s
        return abs(math.log(said / real))

    pair = max(combinations(judged, 2), key=off)
    high, low = sorted(pair, key=lambda one: -one.column)
    return high, low, math.exp(off(pair))


def cpu(about: QuestionContext) -> Answer:
    """When CPU cores are worth a look: their FLOPs against a GPU's predicted speed."""
    cores = assumption_number("many_cpu_cores")
    usd_per_s = assumption_number("cpu_core_usd_per_hour") * cores / HOUR_S
    rate, gpu_usd_per_s = _cpu_flops_per_s(cores), _t4_usd_per_hour(about.today) / HOUR_S
    compared = [_against_cores(name, rate) for name in bundled_profiles()]
    able = [one for one in compared if one.gpu_per_s]
    small = min(one.issued_flops for one in able)
    ratios = [one.gpu_per_s / one.cores_per_s for one in able]
    return Answer(
        topic="cpu",
        question="Train on many CPU cores instead of a GPU?",
        words=(
            (
                f"Rarely: on the bundled steps that fit it even a T4 is {min(ratios):.1f} to "
                f"{max(ratios):.1f} times as fast as {cores:.0f} cores, which cost about "
                f"${usd_per_s * HOUR_S:.2f} an hour against ${gpu_usd_per_s * HOUR_S:.2f}. outlay "
                "predicts GPUs only: this is arithmetic on an assumed peak, not a prediction."
            ),
            (
                f"Worth a look where a whole step has less than about {small / 1e9:,.0f} GFLOP: a "
                f"host needs as long just to issue its operations to a GPU as {cores:.0f} cores "
                "need to do them (small tabular models, small batches)."
            ),
            "No published comparison was read for it.",
        ),
        figures=Figures(
            heads=("profile", "gflop/sample", "cores/s", "t4/s", "cores $/million", "t4 $/million"),
            rows=tuple(
                (
                    one.name,
                    f"{one.sample_flops / 1e9:,.0f}",
                    f"{one.cores_per_s:,.2f}",
                    f"{one.gpu_per_s:,.2f}" if one.gpu_per_s else "does not fit",
                    f"${usd_per_s / one.cores_per_s * 1e6:,.0f}",
                    f"${gpu_usd_per_s / one.gpu_per_s * 1e6:,.0f}" if one.gpu_per_s else "",
                )
                for one in compared
            ),
            drop=("gflop/sample", "cores $/million"),
        ),
        sources=tuple(
            _cited(name, assumption_fact(name))
            for name in ("cpu_core_peak", "cpu_share_of_peak", "cpu_core_usd_per_hour")
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuComparison:
    """A profile on CPU cores, by their FLOPs, and on a T4, as predicted."""

    name: str
    sample_flops: float
    cores_per_s: float
    gpu_per_s: float
    """0 where it does not fit."""
    issued_flops: float
    """What the cores do while a host issues one step to a GPU."""


def _against_cores(name: str, rate: float) -> CpuComparison:
    step = step_on(gpus()["T4"], bundled_profile(name))
    sample_flops = trace_at(bundled_profile(name), 8).flops / 8
    return CpuComparison(
        name=name,
        sample_flops=sample_flops,
        cores_per_s=rate / sample_flops,
        gpu_per_s=step.samples_per_s if step.fits else 0.0,
        issued_flops=rate * step.host_time_s,
    )


def _t4_usd_per_hour(today: str) -> float:
    """The lowest price of a whole T4 on demand that nobody doubts."""
    return min(
        offer.price_usd_per_hour
        for offer in bundled_offers(today)
        if offer.gpu == "T4" and offer.gpus == 1 and offer.gpu_share == 1
        if offer.price_usd_per_hour
        if not offer.cautions("on-demand") and not offer.not_for_sale("on-demand")
    )


def _cpu_flops_per_s(cores: float) -> float:
    return cores * assumption_number("cpu_core_peak") * assumption_range("cpu_share_of_peak").likely


def _cited(name: str, fact: Fact) -> str:
    return f"{name} = {fact.text} {fact.unit}: {fact.note or fact.source}"


def nvlink(about: QuestionContext) -> Answer:  # noqa: ARG001
    """Two cards with a bridge, over PCIe, and through the host, and what was published."""
    gpu, names = gpus()["RTX 3090"], bundled_profiles()
    joined: tuple[Within, ...] = ("bridge", "host")
    rows, gains = [], []
    for name in names:
        steps = [
            step_on(gpu, bundled_profile(name), _half(gpu, name), count=2, within=by)
            for by in joined
        ]
        if not all(step.fits for step in steps):
            continue
        with_link, without = (step.samples_per_s for step in steps)
        gains.append(1 - without / with_link)
        rows.append((name, f"{with_link:,.1f}", f"{without:,.1f}", f"{gains[-1]:.0%}"))
    return Answer(
        topic="nvlink",
        question="Is SLI or NVLink worth it for training on two cards?",
        words=(
            (
                "Predicted for two RTX 3090 at half their largest batch: a bridge takes off "
                f"{min(gains):.0%} to {max(gains):.0%} of the time of a step against passing "
                "gradients through the host, as GeForce drivers do. SLI itself is for games."
            ),
            *quoted("nvlink"),
        ),
        figures=Figures(
            heads=("profile", "samples/s bridge", "through host", "less time"), rows=tuple(rows)
        ),
        sources=("docs/models/scaling.md", *sources_of("nvlink")),
    )


def _half(gpu: Gpu, profile: str) -> int:
    return max(step_on(gpu, bundled_profile(profile)).batch_size // 2, 1)


def mixed(about: QuestionContext) -> Answer:
    """Two unlike cards in one machine against each alone, on one profile."""
    big, small = gpus()["RTX 3090"], gpus()["RTX 2080 Ti"]
    profile = find_profile(about.profile)
    alone = {gpu.name: step_on(gpu, profile) for gpu in (big, small)}
    pair = on_unlike(
        lambda batch: [step_on(gpu, profile, batch, count=2) for gpu in (big, small)], None
    )
    common = pair.batch_size
    best = alone[big.name].samples_per_s
    together = sum(step.samples_per_s for step in alone.values())
    return Answer(
        topic="mixed",
        question="Two different cards in one machine?",
        words=(
            (
                f"One job over both is {pair.samples_per_s / best:.2f}x an {big.name} alone on "
                f"{about.profile}; two jobs, one on each, are {together / best:.2f}x. In one job "
                f"every step waits for the {small.name}, and the smaller memory sets the batch "
                f"({common})."
            ),
            'Other pairs: outlay predict PROFILE --gpu "RTX 3090 + RTX 2080 Ti".',
        ),
        figures=Figures(
            heads=("machine", "batch", "samples/s"),
            rows=(
                *(
                    (name, f"{step.batch_size}", f"{step.samples_per_s:,.1f}")
                    for name, step in alone.items()
                ),
                (f"{big.name} + {small.name}", f"{common} each", f"{pair.samples_per_s:,.1f}"),
            ),
        ),
        sources=("docs/models/scaling.md",),
    )
