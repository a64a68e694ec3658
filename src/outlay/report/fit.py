"""What `outlay fit` found: a sentence, a table, the lines to write; and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlay.fit.advice import PLACE_OF, advice_for
from outlay.fit.search import Fit
from outlay.fit.variants import Variant
from outlay.predict.step import StepPrediction
from outlay.report.console import Page, Table, muted, table
from outlay.report.documents import Document, copied
from outlay.report.text import duration, gib, or_more, usd
from outlay.trace.target import Changes
from outlay.uncertainty import Estimate

_SHOWN = 12
_WITH_LINES = 3


def print_fit(
    out: Page,
    target: str,
    fit: Fit,
    places: Mapping[str, str],
    *,
    show_all: bool = False,
    notes: Sequence[str] = (),
) -> None:
    """The answer in words, the ways as a table, and the lines of the best of them."""
    for sentence in answer(target, fit):
        out.print(sentence)
    fitting = [variant for variant in fit.variants if variant.step.fits]
    shown = list(fit.variants) if show_all else fitting[:_SHOWN] or list(fit.variants)[:_SHOWN]
    out.print()
    out.print(_table([fit.unchanged, *shown], out.width))
    if len(fitting) > len(shown):
        out.print(muted(f"{len(fitting) - len(shown)} more fit: --all shows them."))
    for variant in fitting[:_WITH_LINES]:
        out.print()
        out.print(f"{variant.name}:")
        for line in lines_of(variant, places):
            out.print(f"  {line}")
    if fit.left_out:
        out.print()
    for name, reason in fit.left_out.items():
        out.print(muted(f"{name}: left out, {reason}."))
    for note in notes:
        out.print(muted(note))


def answer(target: str, fit: Fit) -> list[str]:
    """Three sentences at most: does it fit, what is cheapest, and what a bigger GPU would cost."""
    gpu, alone = fit.gpu.name, fit.unchanged.step
    size = f" at batch {fit.batch_size}" if fit.batch_size else ""
    if alone.fits:
        sentences = [
            f"{target} fits on {gpu} as it is{size}: its largest batch is {_largest(alone)}."
        ]
    else:
        sentences = [
            f"{target} does not fit on {gpu}{size}: it would reserve "
            f"{gib(alone.memory.reserved_bytes.likely)} of {gib(alone.memory.available_bytes)}"
            + (f" (its largest batch is {_largest(alone)})." if alone.max_batch_size else ".")
        ]
    best = next((variant for variant in fit.variants if variant.step.fits and variant.kinds), None)
    if best is None:
        sentences.append("Nothing that was tried makes it fit.")
    else:
        sentences.append(f"Cheapest change: {best.name}{_priced(best)}.")
    if fit.bigger is not None and not alone.fits:
        bigger = fit.bigger
        sentences.append(f"Unchanged, it runs cheapest on {bigger.name}{_priced(bigger)}.")
        sentences += _verdict(best, bigger)
    return sentences


def _priced(variant: Variant) -> str:
    cost = variant.usd_per_million_samples
    if cost is None:
        return ""
    offer = variant.offer
    where = f"{offer.provider} {offer.instance}" if offer else "electricity of your own machine"
    return f", {usd(cost)} for a million samples ({where})"


def _verdict(best: Variant | None, bigger: Variant) -> list[str]:
    """Whether a bigger GPU is worth it, in money."""
    mine = None if best is None else best.usd_per_million_samples
    theirs = bigger.usd_per_million_samples
    if mine is None or theirs is None:
        return []
    if best is not None and best.offer is None:
        return [f"On a card you have, the change costs {usd(mine)} of electricity, not the card."]
    if mine <= theirs:
        return [f"It needs no bigger GPU: the change saves {usd(theirs - mine)} a million samples."]
    return [f"The bigger GPU is cheaper by {usd(mine - theirs)} a million samples."]


def _largest(step: StepPrediction) -> str:
    return f"{step.max_batch_size}{or_more(step.max_batch_size)}"


def _table(variants: Sequence[Variant], width: int) -> Table:
    rows = [
        (
            variant.name,
            "yes" if variant.step.fits else "no",
            _batch(variant),
            _largest(variant.step),
            gib(variant.step.memory.reserved_bytes.likely) if variant.step.batch_size else "-",
            "-" if variant.saved_bytes is None else gib(variant.saved_bytes),
            duration(variant.step.step_time_s.likely) if variant.step.batch_size else "-",
            "-" if variant.time_ratio is None else f"{variant.time_ratio:.2f}x",
            _or_dash(variant.usd_per_million_samples),
        )
        for variant in variants
    ]
    return table(
        ("change", "fits", "batch", "max batch", "reserves", "saves", "step", "per sample",
         "$/M samples"),
        rows,
        width,
        right=("batch", "max batch", "reserves", "saves", "step", "per sample", "$/M samples"),
        drop=("step", "max batch", "saves"),
        wrap="change",
    )  # fmt: skip


def _or_dash(amount_usd: float | None) -> str:
    return "-" if amount_usd is None else usd(amount_usd)


def _batch(variant: Variant) -> str:
    passes = f" x{variant.step.micro_batches}" if variant.step.micro_batches > 1 else ""
    return f"{variant.step.batch_size}{passes}"


def lines_of(variant: Variant, places: Mapping[str, str]) -> list[str]:
    """What to write for a way, at the user's own lines where they were found."""
    lines: list[str] = []
    for kind in variant.kinds:
        advice = advice_for(kind)
        place = places.get(PLACE_OF.get(kind, ""))
        if place:
            lines.append(f"# at {place}")
        lines += advice.lines
        if advice.caution:
            lines.append(f"# {advice.caution}")
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOfferDocument:
    """The offer that a way is priced at."""

    provider: str
    instance: str
    region: str
    price_usd_per_hour: float | None
    as_of: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WayDocument:
    """One way to run the step: what is changed, and what becomes of it."""

    name: str
    changes: Changes
    kinds: Sequence[str]
    gpu: str
    gpus: int
    strategy: str
    fits: bool
    batch_size: int
    micro_batches: int
    global_batch_size: int
    max_batch_size: int
    step_time_s: Estimate
    peak_allocated_bytes: Estimate
    peak_reserved_bytes: Estimate
    available_bytes: float
    saved_bytes: float | None
    time_ratio: float | None
    usd_per_hour: float
    usd_per_million_samples: float | None
    offer: FitOfferDocument | None
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitDocument(Document):
    """The step as it is, every way to change it, and the cheapest GPU that takes it unchanged."""

    target: str
    gpu: str
    batch_size: int | None
    answer: Sequence[str]
    unchanged: WayDocument
    ways: Sequence[WayDocument]
    left_out: Mapping[str, str]
    bigger_gpu: WayDocument | None


def fit_document(target: str, fit: Fit, places: Mapping[str, str]) -> FitDocument:
    """`outlay fit --json`."""
    return FitDocument(
        target=target,
        gpu=fit.gpu.name,
        batch_size=fit.batch_size,
        answer=answer(target, fit),
        unchanged=_variant_document(fit.unchanged, places),
        ways=[_variant_document(variant, places) for variant in fit.variants],
        left_out=fit.left_out,
        bigger_gpu=None if fit.bigger is None else _variant_document(fit.bigger, places),
    )


def _variant_document(variant: Variant, places: Mapping[str, str]) -> WayDocument:
    step = variant.step
    return WayDocument(
        name=variant.name,
        changes=variant.changes,
        kinds=variant.kinds,
        gpu=step.placement.gpu.name,
        gpus=step.placement.gpus,
        strategy=step.strategy.name,
        fits=step.fits,
        batch_size=step.batch_size,
        micro_batches=step.micro_batches,
        global_batch_size=step.global_batch_size,
        max_batch_size=step.max_batch_size,
        step_time_s=step.step_time_s,
        peak_allocated_bytes=step.memory.allocated_bytes,
        peak_reserved_bytes=step.memory.reserved_bytes,
        available_bytes=step.memory.available_bytes,
        saved_bytes=variant.saved_bytes,
        time_ratio=variant.time_ratio,
        usd_per_hour=variant.usd_per_hour,
        usd_per_million_samples=variant.usd_per_million_samples,
        offer=None if variant.offer is None else copied(FitOfferDocument, variant.offer),
        lines=lines_of(variant, places),
    )
