"""What `outlay probe --find-batch` found: a sentence, throughput against batch; and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from outlay.files import FLATTEN
from outlay.probe.find_batch import KNEE_FRACTION, BatchSearch
from outlay.probe.trial import Trial
from outlay.report.console import INDENT, Page, Table, bullets, table
from outlay.report.documents import Document
from outlay.report.text import clock, count, counted, gib, percent, rate, step_time

_BARS = 20


def print_batches(page: Page, search: BatchSearch) -> None:
    """Print the batch to take, why, and every trial by size."""
    first, *rest = answer(search)
    page.print(Text(first, style="bold"))
    for line in rest:
        page.print(line)
    if search.trials:
        page.print_section("Throughput against batch", _table(search, page.width - INDENT))
    if search.notes:
        page.print()
        page.print(bullets(search.notes), indent=INDENT)


def answer(search: BatchSearch) -> list[str]:
    """The batch to take, then where the limit and the knee are, and what it took to know."""
    took = f"{counted(len(search.trials), 'trial')} in {clock(search.elapsed_s)}"
    if search.largest is None:
        return [f"No batch size ran ({took}).", *_why_none(search), *_smaller_untried(search)]
    return [
        _take(search),
        *_limits(search),
        *_how_far(search),
        *_knee(search),
        f"It took {took}.",
    ]


def _why_none(search: BatchSearch) -> Iterator[str]:
    last = search.trials[-1] if search.trials else None
    if last is None:
        yield "None was tried."
    elif last.outcome in ("failed", "not taken"):
        why = last.why or "its own output says why."
        yield f"At batch {count(last.batch_size)} the trial did not succeed: {why}"
    else:
        yield f"Even batch {count(min(trial.batch_size for trial in search.trials))} is too large."


def _smaller_untried(search: BatchSearch) -> Iterator[str]:
    if search.gave_up_for == "trials":
        yield f"Smaller ones were not tried: --trials {2 * len(search.trials)} goes on."


def _take(search: BatchSearch) -> str:
    if search.recommended is None:
        return f"The largest batch that ran is {count(search.largest)}, without a margin."
    if search.recommended == search.largest:
        return f"Take batch {count(search.largest)}, the largest that ran."
    margin = f", with {percent(search.margin_fraction)} of the memory kept free"
    untried = "" if search.is_recommended_tried else " It was not tried itself."
    return (
        f"Take batch {count(search.recommended)}{margin if search.margin_fraction else ''}; "
        f"the largest that ran is {count(search.largest)}.{untried}"
    )


def _limits(search: BatchSearch) -> Iterator[str]:
    limit = "" if search.limit_bytes is None else f" (it may take {gib(search.limit_bytes)})"
    failed = search.fails_otherwise_at
    if search.fails_at is None and failed is not None:
        yield (
            f"None ran out of memory{limit}, but batch {count(failed)} failed for another reason: "
            "whether larger ones fit is not known."
        )
    elif search.fails_at is None and search.not_taken_at is not None:
        yield (
            f"None ran out of memory{limit}, but the script did not take batch "
            f"{count(search.not_taken_at)}: whether larger ones fit is not known."
        )
    elif search.fails_at is None:
        yield f"None ran out of memory{limit}: larger ones may fit as well."
    else:
        yield f"Batch {count(search.fails_at)} runs out of memory{limit}."


def _how_far(search: BatchSearch) -> Iterator[str]:
    """Where a search gave up before the largest was known as well as promised, and what goes on."""
    if search.gave_up_for not in ("trials", "cost"):  # others are said by their trial
        return
    trials = counted(len(search.trials), "trial")
    if search.gave_up_for == "trials":
        how = f"the search gave up after {trials}; --trials {2 * len(search.trials)} goes on"
    else:
        how = f"the money for the search was spent after {trials}; a larger --max-cost goes on"
    if search.fails_at is None:
        yield f"How large the largest is, is not known: {how}."
    else:
        largest, last = count(search.largest), count(search.fails_at - 1)
        yield f"The largest is between {largest} and {last}: {how}."


def _knee(search: BatchSearch) -> Iterator[str]:
    """What the knee means for the choice; nothing where throughput was not measured twice."""
    knee, paces = search.knee, [trial for trial in search.trials if trial.samples_per_s is not None]
    if knee is None or len(paces) < 2:
        return
    if knee == max(trial.batch_size for trial in paces):
        memory = "" if search.fails_at is None else ": more memory would make it faster"
        yield f"Throughput still grows with the batch{memory}."
    else:
        yield (
            f"From batch {count(knee)} on, more is hardly faster: it has {percent(KNEE_FRACTION)} "
            "or more of the best throughput, and leaves memory free."
        )


def _table(search: BatchSearch, width: int) -> Table:
    best = max((trial.samples_per_s or 0.0 for trial in search.trials), default=0.0)
    ordered = sorted(search.trials, key=lambda trial: trial.batch_size)
    rows = [_row(trial, search, best) for trial in ordered]
    heads = ("batch", "outcome", "step", "samples/s", "", "allocated", "reserved", "took", "remark")
    right = ("batch", "step", "samples/s", "allocated", "reserved", "took")
    drop = ("took", "allocated", "", "step", "reserved")
    return table(heads, rows, width, right=right, drop=drop, wrap="remark")


def _row(trial: Trial, search: BatchSearch, best: float) -> Sequence[str]:
    pace = trial.samples_per_s
    return (
        count(trial.batch_size),
        trial.outcome,
        "-" if trial.step_mean_s is None else step_time(trial.step_mean_s),
        "-" if pace is None else rate(pace),
        "█" * round(_BARS * (pace or 0.0) / best) if best else "",
        "-" if trial.peak_allocated_bytes is None else gib(trial.peak_allocated_bytes),
        "-" if trial.peak_reserved_bytes is None else gib(trial.peak_reserved_bytes),
        clock(trial.elapsed_s),
        ", ".join(_remarks(trial, search)),
    )


def _remarks(trial: Trial, search: BatchSearch) -> Iterator[str]:
    if trial.outcome == "fits":
        for name, size in (("knee", search.knee), ("largest", search.largest)):
            if trial.batch_size == size:
                yield name
        if trial.batch_size == search.recommended:
            yield "recommended"
    if trial.why:
        yield trial.why


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesDocument(Document):
    """The search for the largest batch."""

    search: BatchSearch = field(metadata=FLATTEN)
    answer: Sequence[str]
    """The same in sentences."""


def batches_document(search: BatchSearch) -> BatchesDocument:
    """`outlay probe --find-batch --json`."""
    return BatchesDocument(search=search, answer=answer(search))
