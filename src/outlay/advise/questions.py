"""Questions people ask before they buy or rent, and answers worked out from tables and predictor.

An answer is words, figures in a table, and where they come from; `answer` gives that of a topic.
First what all answers share, then buying, speed, renting. Questions that no figure of the user's
changes are answered in `docs/faq.md`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from outlay.advise.cards import (
    CardForSale,
    assumption_fact,
    assumption_number,
    assumption_range,
    bundled_profile,
    desktop_cards,
    dominated_cards,
    resale_usd,
    step_on,
)
from outlay.advise.request import purposes
from outlay.errors import InputError, NotKnown
from outlay.facts import (
    NOTHING_IMPORTED,
    Fact,
    ImportedPrices,
    assumed_range,
    assumptions,
    rows_of,
)
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu, gpus
from outlay.offers.catalog import reserved_offers
from outlay.offers.price_book import PriceBook, offers_of
from outlay.offers.terms import all_terms
from outlay.predict.network import GpuLink
from outlay.predict.parallel import mixed_gpus_step
from outlay.predict.roofline import trace_at
from outlay.trace.store import bundled_profiles, find_profile
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GB, GIB, HOUR_S, MINUTE_S, TERA

USUAL_PROFILE = "resnet50"
"""What questions about speed are answered on."""
UNKNOWN = "Unknown: no source was found for it."
FAQ = "docs/faq.md"

# --- what all answers share ---


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionContext:
    """What a question is asked about."""

    today: str
    profile: str = USUAL_PROFILE
    size_bytes: float | None = None
    prices: PriceBook | None = None
    """None: the bundled ones."""
    imported: ImportedPrices = NOTHING_IMPORTED
    """Prices of cards besides the bundled ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A table: heads and rows, as they are read."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    drop: tuple[str, ...] = ()
    """Columns to leave out first where the width does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What can be said to a question; `words` begin with the answer itself."""

    topic: str
    question: str
    words: tuple[str, ...]
    figures: Figures | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One row of `data/answers.csv`: what a source says to a topic."""

    answer: str
    value: float | None
    unit: str
    source: str
    as_of: str
    note: str

    @property
    def cited(self) -> str:
        """Its source and day."""
        return f"{self.source}, {self.as_of}"

    @property
    def sentence(self) -> str:
        """The answer with its figure and its note.

        The figure is left out where the answer has it already, or where it is a derived one.
        """
        figure = note = ""
        if self.value is not None and "derived" not in self.note and self.unit != "count":
            figure = "" if f"{self.value:g}" in self.answer else f": {self.value:g} {self.unit}"
        if self.note:
            note = f" ({self.note})"
        return f"{self.answer}{figure}{note}."


@cache
def answer_rows(topic: str) -> tuple[AnswerRow, ...]:
    """What sources say to a topic."""
    return tuple(
        AnswerRow(
            answer=row["answer"],
            value=float(row["value"]) if row["value"] else None,
            unit=row["unit"],
            source=row["source"],
            as_of=row["as_of"],
            note=row["note"],
        )
        for row in rows_of("answers.csv")
        if row["topic"] == topic
    )


def sentences_of(topic: str) -> tuple[str, ...]:
    """The answers of a topic as sentences; that nothing is known where there are none."""
    return tuple(row.sentence for row in answer_rows(topic)) or (UNKNOWN,)


def sources_of(topic: str) -> tuple[str, ...]:
    """Where the answers of a topic come from, each once."""
    return tuple(dict.fromkeys(row.cited for row in answer_rows(topic)))


# --- buying ---

_RESALE_YEARS = 2.0


def purpose(context: QuestionContext) -> Answer:  # noqa: ARG001
    """The purposes there are, and what each asks of a GPU."""
    return Answer(
        topic="purpose",
        question="Which card at all, by purpose and budget?",
        words=(
            (
                "Ask with your own figures: outlay advise --purpose NAME --budget N --usage "
                "2h/day. A purpose stands for a bundled step and the memory people advise for it."
            ),
        ),
        figures=Figures(
            heads=("purpose", "step", "gb least", "gb better", "gpus", "as of"),
            rows=tuple(
                (
                    use.name,
                    use.profile,
                    f"{use.memory_least_bytes / GIB:.0f}",
                    f"{use.memory_better_bytes / GIB:.0f}",
                    f"{use.gpus}",
                    use.as_of,
                )
                for use in purposes()
            ),
            drop=("gpus",),
        ),
        sources=tuple(dict.fromkeys(use.source for use in purposes())),
    )


def used(context: QuestionContext) -> Answer:
    """Used cards with a price, what they sell for later, and how old the price is."""
    cards = desktop_cards(context.today, context.imported)
    listed = [card for card in cards if card.condition == "used"]
    fresh = sum(not card.is_old for card in listed)
    keep, months = (
        assumption_number(name) for name in ("used_card_keep_per_year", "price_old_months")
    )

    def sold_usd(card: CardForSale) -> float:
        return resale_usd(card, _RESALE_YEARS, context.today, context.imported).likely

    return Answer(
        topic="used",
        question="Used cards: what do they cost, and what are they worth later?",
        words=(
            (
                f"{fresh} used cards have a price of the last {months:.0f} months, "
                f"{len(listed) - fresh} an older one, which advice does not go by. A used card "
                f"kept {keep:.0%} of its price a year lately."
            ),
        ),
        figures=Figures(
            heads=("card", "gb", "price", "as of", f"sold in {_RESALE_YEARS:.0f} years", "pytorch"),
            rows=tuple(
                (
                    card.gpu.name,
                    f"{card.gpu.memory_bytes / GIB:.0f}",
                    f"${card.listed_usd:,.0f}",
                    f"{card.as_of}{' (old)' if card.is_old else ''}",
                    f"${sold_usd(card):,.0f}",
                    card.gpu.software.runs,
                )
                for card in sorted(listed, key=lambda card: (card.is_old, card.listed_usd))
            ),
        ),
        sources=("card_prices.csv", assumption_fact("used_card_keep_per_year").note),
    )


def avoid(context: QuestionContext) -> Answer:
    """Every card that another one beats, and why."""
    beaten = dominated_cards(context.today, context.imported)
    old = [gpu.name for gpu in gpus().values() if gpu.software.runs in ("no", "old builds")]
    return Answer(
        topic="avoid",
        question="Which cards should one avoid?",
        words=(
            (
                f"{len(beaten)} cards cost as much as another one or more, have no more memory and "
                "are faster on none of the bundled steps."
            ),
            f"And GPUs that today's PyTorch hardly runs on or not at all: {', '.join(old)}.",
        ),
        figures=Figures(
            heads=("avoid", "price", "as of", "better", "costs", "as fast"),
            rows=tuple(
                (
                    f"{dominated.card.name}{' (leftover)' if dominated.card.is_leftover else ''}",
                    f"${dominated.card.listed_usd:,.0f}",
                    dominated.card.as_of,
                    dominated.better.name,
                    f"${dominated.better.listed_usd:,.0f}",
                    f"{dominated.times_as_fast:.1f}x+",
                )
                for dominated in beaten
            ),
        ),
        sources=("card_prices.csv", "software.csv"),
    )


def amd(context: QuestionContext) -> Answer:
    """AMD cards: what software says of them, and those with a price."""
    listed = [gpu for gpu in gpus().values() if gpu.vendor == "AMD"]
    priced = {card.gpu.name: card for card in desktop_cards(context.today, context.imported)}
    return Answer(
        topic="amd",
        question="AMD cards and their software?",
        words=(
            (
                "PyTorch has ROCm builds for some; a training script in plain PyTorch usually "
                "runs unchanged, packages with CUDA kernels of their own do not. No prediction of "
                "an AMD card was ever checked here: their ranges are wider, and plans and advice "
                "rank them by what they are expected to cost with that; --no-amd leaves them out."
            ),
            *sentences_of("amd"),
        ),
        figures=Figures(
            heads=("gpu", "target", "pytorch", "price", "source"),
            rows=tuple(
                (
                    gpu.name,
                    gpu.compute_capability,
                    gpu.software.runs,
                    f"${priced[gpu.name].listed_usd:,.0f}" if gpu.name in priced else "",
                    gpu.software.source,
                )
                for gpu in listed
            ),
        ),
        sources=("software.csv", *sources_of("amd")),
    )


# --- speed ---

_PEAKS = {
    "fp32": "32-bit without tensor cores",
    "tf32": "TF32 on tensor cores",
    "fp16": "16-bit on tensor cores",
    "fp16_fp16acc": "16-bit, summed in 16 bit",
}
"""The peaks that a column of TFLOPS may be."""


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


def tflops(context: QuestionContext) -> Answer:
    """Which number the column is, and how far its order is from predicted speed."""
    rated = [_rated(row.answer, row.value or 0.0, context.profile) for row in answer_rows("tflops")]
    column = [gpu.column for gpu in rated]
    speed = [gpu.samples_per_s for gpu in rated]
    high, low, off = worst_pair(rated)
    return Answer(
        topic="tflops",
        question="Which number is the TFLOPS column people go by, and why does it mislead?",
        words=(
            (
                f"It is nearest to {_commonest(rated)}: about the dense fp32 peak, at the highest "
                "clock of the card at hand rather than the rated one (see CLOCK). Training in 16 "
                "bit runs on tensor cores, which that number leaves out, and often waits for "
                "memory."
            ),
            (
                f"By that column {high.gpu.name} is {high.column / low.column:.1f}x "
                f"{low.gpu.name}; on {context.profile} it is predicted to be "
                f"{high.samples_per_s / low.samples_per_s:.2f}x: off by {off:.1f}x, the worst pair."
            ),
            (
                f"Rank correlation of the column with predicted speed on {context.profile}: "
                f"{rank_correlation(column, speed):.2f} (1: the same order, -1: the opposite)."
            ),
        ),
        figures=Figures(
            heads=("gpu", "column", "nearest", "dense peak", "clock", "fp16 peak", "samples/s"),
            rows=tuple(map(_rated_row, rated)),
            drop=("nearest", "fp16 peak"),
        ),
        sources=("gpus.csv (`outlay gpus NAME --facts`)", *sources_of("tflops")),
    )


def _rated(name: str, column: float, profile: str) -> RatedGpu:
    gpu = find_gpu(name).candidates[0]
    peaks = {
        kind: peak / TERA for kind in _PEAKS if (peak := gpu.peak_flops_per_s.get(kind)) is not None
    }
    # GeForce cards do TF32 as fast as fp32: rounded, so that the plain one is named.
    nearest = min(peaks, key=lambda kind: round(abs(math.log(column / peaks[kind])), 2))
    return RatedGpu(
        gpu=gpu,
        column=column,
        nearest=nearest,
        peak=peaks[nearest],
        samples_per_s=step_on(gpu, find_profile(profile)).samples_per_s,
    )


def _commonest(rated: Sequence[RatedGpu]) -> str:
    """The peak that most figures of the column are nearest to, in words."""
    kinds = [gpu.nearest for gpu in rated]
    return _PEAKS[max(kinds, key=kinds.count)]


def _rated_row(rated: RatedGpu) -> tuple[str, ...]:
    fp16 = rated.gpu.peak_flops_per_s.get("fp16")
    return (
        rated.gpu.name,
        f"{rated.column:g}",
        rated.nearest,
        f"{rated.peak:g}",
        f"{rated.clock_mhz:,.0f} of {rated.gpu.boost_hz / 1e6:,.0f} MHz",
        "-" if fp16 is None else f"{fp16 / TERA:g}",
        f"{rated.samples_per_s:,.0f}",
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: 1 - 6 sum(d^2) / (n (n^2 - 1)), for values without ties."""
    pairs = zip(_ranks(first), _ranks(second), strict=True)
    squares = sum(math.pow(rank - other, 2) for rank, other in pairs)
    return 1 - 6 * squares / (len(first) * (len(first) ** 2 - 1))


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    return [order.index(index) for index in range(len(values))]


def worst_pair(rated: Sequence[RatedGpu]) -> tuple[RatedGpu, RatedGpu, float]:
    """Two GPUs, the higher in the column first, and by what factor it misjudges their ratio."""

    def log_error(pair: tuple[RatedGpu, RatedGpu]) -> float:
        gpu, other = pair
        by_column, by_speed = gpu.column / other.column, gpu.samples_per_s / other.samples_per_s
        return abs(math.log(by_column / by_speed))

    pair = max(combinations(rated, 2), key=log_error)
    high, low = sorted(pair, key=lambda gpu: -gpu.column)
    return high, low, math.exp(log_error(pair))


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


def cpu(context: QuestionContext) -> Answer:
    """When CPU cores are worth a look: their FLOPs against a GPU's predicted speed."""
    cores = assumption_number("many_cpu_cores")
    usd_per_s = assumption_number("cpu_core_usd_per_hour") * cores / HOUR_S
    rate, gpu_usd_per_s = _cpu_flops_per_s(cores), _t4_usd_per_hour(context) / HOUR_S
    compared = [_against_cores(name, rate) for name in bundled_profiles()]
    fitting = [profile for profile in compared if profile.gpu_per_s]
    small = min(profile.issued_flops for profile in fitting)
    ratios = [profile.gpu_per_s / profile.cores_per_s for profile in fitting]
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
                    profile.name,
                    f"{profile.sample_flops / 1e9:,.0f}",
                    f"{profile.cores_per_s:,.2f}",
                    f"{profile.gpu_per_s:,.2f}" if profile.gpu_per_s else "does not fit",
                    f"${usd_per_s / profile.cores_per_s * 1e6:,.0f}",
                    f"${gpu_usd_per_s / profile.gpu_per_s * 1e6:,.0f}" if profile.gpu_per_s else "",
                )
                for profile in compared
            ),
            drop=("gflop/sample", "cores $/million"),
        ),
        sources=tuple(
            _cited(name, assumption_fact(name))
            for name in ("cpu_core_peak", "cpu_share_of_peak", "cpu_core_usd_per_hour")
        ),
    )


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


def _t4_usd_per_hour(context: QuestionContext) -> float:
    """The lowest price of a whole T4 on demand that nobody doubts."""
    return min(
        offer.price_usd_per_hour
        for offer in offers_of(context.prices, context.today)
        if offer.gpu == "T4" and offer.gpus == 1 and offer.gpu_share == 1
        if offer.price_usd_per_hour
        if not offer.cautions("on-demand") and not offer.not_for_sale("on-demand")
    )


def _cpu_flops_per_s(cores: float) -> float:
    return cores * assumption_number("cpu_core_peak") * assumption_range("cpu_share_of_peak").likely


def _cited(name: str, fact: Fact) -> str:
    return f"{name} = {fact.text} {fact.unit}: {fact.note or fact.source}"


def nvlink(context: QuestionContext) -> Answer:  # noqa: ARG001
    """Two cards with a bridge, over PCIe, and through the host, and what was published."""
    gpu, names = gpus()["RTX 3090"], bundled_profiles()
    joined: tuple[GpuLink, ...] = ("bridge", "host")
    rows, gains = [], []
    for name in names:
        steps = [
            step_on(gpu, bundled_profile(name), _half(gpu, name), count=2, gpu_link=by)
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
            *sentences_of("nvlink"),
        ),
        figures=Figures(
            heads=("profile", "samples/s bridge", "through host", "less time"), rows=tuple(rows)
        ),
        sources=("docs/models/scaling.md", *sources_of("nvlink")),
    )


def _half(gpu: Gpu, profile: str) -> int:
    return max(step_on(gpu, bundled_profile(profile)).batch_size // 2, 1)


def mixed(context: QuestionContext) -> Answer:
    """Two unlike cards in one machine against each alone, on one profile."""
    big, small = gpus()["RTX 3090"], gpus()["RTX 2080 Ti"]
    profile = find_profile(context.profile)
    alone = {gpu.name: step_on(gpu, profile) for gpu in (big, small)}
    pair = mixed_gpus_step(
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
                f"{context.profile}; two jobs, one on each, are {together / best:.2f}x. In one job "
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


# --- renting ---

_MBIT_BYTES = 1e6 / 8
_USUAL_BYTES = 100 * GB


def share(context: QuestionContext) -> Answer:
    """Which offers are shares of a GPU."""
    offers = offers_of(context.prices, context.today)
    parts = [offer for offer in offers if offer.gpu_share != 1]
    counted = Counter((offer.provider, offer.gpu, f"{offer.gpu_share:g}") for offer in parts)
    return Answer(
        topic="share",
        question="Does a cloud give a whole GPU or a share?",
        words=(
            (
                f"A whole one: {len(offers) - len(parts):,} of the {len(offers):,} offers; "
                f"{len(parts)} are shares, under names of their own."
            ),
            *sentences_of("share"),
        ),
        figures=Figures(
            heads=("provider", "gpu", "share", "offers"),
            rows=tuple((*key, f"{count}") for key, count in sorted(counted.items())),
        ),
        sources=sources_of("share"),
    )


def upload(context: QuestionContext) -> Answer:
    """How long data takes from home, at what is assumed and at what was measured."""
    size = context.size_bytes or _USUAL_BYTES
    home = assumed_range("home_upload_bytes_per_s")
    assert isinstance(home, Estimate)
    rates = [
        ("assumed, slow", home.low, "guess"),
        ("assumed, likely", home.likely, "guess"),
        ("assumed, fast", home.high, "guess"),
        *(
            (row.answer, (row.value or 0.0) * _MBIT_BYTES, row.as_of)
            for row in answer_rows("upload")
        ),
    ]
    return Answer(
        topic="upload",
        question="How long does uploading the data from home take?",
        words=(
            (
                f"{size / GB:,.0f} GB take {_time(size / home.likely)} at "
                f"{home.likely / _MBIT_BYTES:.0f} Mbit/s, from {_time(size / home.high)} to "
                f"{_time(size / home.low)}. Fetch public data from the machine itself instead: "
                f"{_time(size / _rented_bytes_per_s())} there."
            ),
            'A plan counts it where data.at = "home"; data.upload_mbit takes your own rate.',
        ),
        figures=Figures(
            heads=("rate", "mbit/s", "time", "as of"),
            rows=tuple(
                (name, f"{rate / _MBIT_BYTES:,.1f}", _time(size / rate), day)
                for name, rate, day in rates
            ),
        ),
        sources=(assumptions()["home_upload_bytes_per_s"].note, *sources_of("upload")),
    )


def _rented_bytes_per_s() -> float:
    rate = assumed_range("data_download_bytes_per_s")
    return rate.likely if isinstance(rate, Estimate) else rate


def _time(seconds: float) -> str:
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:,.1f} days"
    return f"{seconds / HOUR_S:,.1f} h" if seconds >= HOUR_S else f"{seconds / MINUTE_S:,.0f} min"


def download(context: QuestionContext) -> Answer:
    """What leaving a provider costs, and how long the way home takes."""
    size = context.size_bytes or _USUAL_BYTES
    priced = sorted(_egress_usd(size))
    dearest = priced[-1][0] if priced else 0.0
    return Answer(
        topic="download",
        question="What about downloading the results, many images for example?",
        words=(
            (
                f"{size / GB:,.0f} GB cost nothing to ${dearest:,.2f} to fetch home, by provider "
                "(the free allowance of a month taken off). How fast homes download is in no "
                f"table here: at 100 Mbit/s it takes {_time(size / (100 * _MBIT_BYTES))}."
            ),
            (
                "Pack many small files into one first: each one fetched by itself waits for a "
                f"round trip ({faq_section('distance')}). A plan counts it with data.results."
            ),
        ),
        figures=Figures(
            heads=("provider", "usd", "source"),
            rows=tuple((name, f"${usd:,.2f}", source) for usd, name, source in priced),
        ),
        sources=("providers.csv",),
    )


def _egress_usd(size: float) -> Iterator[tuple[float, str, str]]:
    for terms in all_terms().values():
        if terms.egress_usd_per_byte is not None:
            billed = max(size - (terms.egress_free_bytes_per_month or 0.0), 0.0)
            yield billed * terms.egress_usd_per_byte, terms.name, terms.source_of("egress")


def tablet(context: QuestionContext) -> Answer:  # noqa: ARG001
    """Which providers give something to work with in a browser."""
    browser = {terms.name: terms.quality("browser") for terms in all_terms().values()}
    there = sorted(name for name, value in browser.items() if value == "yes")
    unknown = sum(value is None for value in browser.values())
    return Answer(
        topic="tablet",
        question="Can it be used from a tablet's browser?",
        words=(
            (
                f"Yes at {', '.join(there)}: a notebook or a terminal in the browser. Of {unknown} "
                "others it is not known. A full machine with ssh works from a tablet with an app, "
                "or with a notebook server on it."
            ),
        ),
        figures=Figures(
            heads=("provider", "browser", "gives"),
            rows=tuple(
                (terms.name, terms.quality("browser") or "", terms.quality("access") or "unknown")
                for terms in all_terms().values()
                if terms.quality("browser") is not None
            ),
        ),
        sources=("provider_qualities.csv",),
    )


def free(context: QuestionContext) -> Answer:  # noqa: ARG001
    """Free hours and credits, as far as they are known."""
    rows = [*_free_hours(), *_credits()]
    return Answer(
        topic="free",
        question="What is free: hours, trials, credits?",
        words=(
            (
                "Hours that cost nothing are in notebooks only; credits are for new customers, and "
                "GPUs often need an upgraded account first. What is not listed is not known."
            ),
        ),
        figures=Figures(heads=("provider", "free", "as of", "condition"), rows=tuple(rows)),
        sources=("provider_qualities.csv", "providers.csv", "credits.csv"),
    )


def _free_hours() -> Iterator[tuple[str, str, str, str]]:
    for terms in all_terms().values():
        fact = terms.facts.get("free_hours")
        if fact is not None and fact.text:
            unit = "" if fact.unit == "text" else f" {fact.unit}"
            yield terms.name, f"{fact.text}{unit}", fact.as_of, fact.note


def _credits() -> Iterator[tuple[str, str, str, str]]:
    """The credits table, and what only the providers table knows."""
    listed = [row for row in rows_of("credits.csv") if row["amount"]]
    for row in listed:
        days = f", {row['valid_days']} days" if row["valid_days"] else ""
        yield (
            row["provider"],
            f"{row['amount']} {row['unit']}",
            row["as_of"],
            row["condition"] + days,
        )
    providers = {row["provider"] for row in listed}
    for provider, terms in all_terms().items():
        fact = terms.facts.get("free_credit")
        if fact is not None and fact.text and provider not in providers:
            yield provider, f"{fact.text} {fact.unit}", fact.as_of, fact.note


def reserved(context: QuestionContext) -> Answer:
    """H100 for a term, what terms take off, and where one pays beforehand."""
    offers = offers_of(context.prices, context.today)
    h100s = [offer for offer in offers if offer.gpu.startswith("H100")]
    day = "" if context.prices is None else context.prices.day
    reservable = [offer for h100 in h100s for offer in reserved_offers(h100, day)]
    rows = {
        (offer.provider, offer.instance, offer.commitment.name): (
            offer.price_usd_per_hour,
            offer.hourly_usd("reserved"),
            offer.as_of,
        )
        for offer in sorted(reservable, key=lambda offer: -(offer.price_usd_per_hour or 0.0))
        if offer.commitment is not None
    }
    prepaid = [terms.name for terms in all_terms().values() if terms.quality("prepaid") == "yes"]
    discounts = [float(row["discount"]) for row in rows_of("commitments.csv")]
    return Answer(
        topic="reserved",
        question="H100 reserved, commitments, and balance that must be prepaid?",
        words=(
            (
                f"Terms of which a price is known take off {min(discounts):.0%} to "
                f"{max(discounts):.0%}, and every hour of the term is paid: with "
                f"{max(discounts):.0%} off a term pays from {1 - max(discounts):.0%} of all hours, "
                f"with {min(discounts):.0%} from {1 - min(discounts):.0%}. A plan tries them where "
                "usage.horizon is given."
            ),
            f"Paid beforehand at: {', '.join(sorted(prepaid))}.",
        ),
        figures=Figures(
            heads=("provider", "instance", "term", "on demand", "reserved", "as of"),
            rows=tuple(
                (*key, f"${usual or 0:,.2f}/h", f"${less or 0:,.2f}/h", day)
                for key, (usual, less, day) in rows.items()
            ),
        ),
        sources=tuple(
            dict.fromkeys(offer.commitment.source for offer in reservable if offer.commitment)
        ),
    )


# --- every topic ---

TOPICS: dict[str, tuple[Callable[[QuestionContext], Answer], str]] = {
    "purpose": (purpose, "Which card at all, by purpose and budget?"),
    "used": (used, "Used cards: what do they cost, and what are they worth later?"),
    "avoid": (avoid, "Which cards should one avoid?"),
    "tflops": (tflops, "Which number is the TFLOPS column, and why does it mislead?"),
    "nvlink": (nvlink, "Is SLI or NVLink worth it for training on two cards?"),
    "mixed": (mixed, "Two different cards in one machine?"),
    "amd": (amd, "AMD cards and their software?"),
    "cpu": (cpu, "Train on many CPU cores instead of a GPU?"),
    "share": (share, "Does a cloud give a whole GPU or a share?"),
    "upload": (upload, "How long does uploading the data from home take?"),
    "download": (download, "What about downloading the results?"),
    "tablet": (tablet, "Can it be used from a tablet's browser?"),
    "free": (free, "What is free: hours, trials, credits?"),
    "reserved": (reserved, "H100 reserved, commitments, prepaid balance?"),
}
LIST = "list"
IN_FAQ = {
    "tpu": "A TPU instead of a GPU?",
    "geforce": "May GeForce cards be used in a data centre?",
    "distance": "Does the region's distance matter?",
    "calculator": "Where do a price calculator's usual inputs go?",
    "driver": "Is the NVIDIA driver ready on the machine?",
    "colab": "How long do Colab's units last?",
}
"""Topics whose answer is the same for everybody, and their headings in the FAQ."""


def faq_section(topic: str) -> str:
    """Where the FAQ answers a topic: `docs/faq.md#a-tpu-instead-of-a-gpu`."""
    words = re.sub(r"[^a-z0-9 -]", "", IN_FAQ[topic].lower())
    return f"{FAQ}#{words.replace(' ', '-')}"


def answer(topic: str, context: QuestionContext) -> Answer:
    """The answer to a topic, or the list of topics."""
    name = topic.strip().lower()
    if name == LIST:
        return _list()
    if name in IN_FAQ:
        raise InputError(f"--ask {name} is answered in {faq_section(name)}.")
    if name not in TOPICS:
        raise NotKnown("question", topic, TOPICS, fix="`outlay advise --ask list` names them all.")
    answer_of, _ = TOPICS[name]
    if context.prices is not None:
        context = replace(context, today=context.prices.day_of_plan(context.today))
    return answer_of(context)


def _list() -> Answer:
    return Answer(
        topic=LIST,
        question="What can be asked?",
        words=(f"outlay advise --ask TOPIC answers one of these; {FAQ} answers more.",),
        figures=Figures(
            heads=("topic", "question"),
            rows=tuple((topic, question) for topic, (_, question) in TOPICS.items()),
        ),
    )
