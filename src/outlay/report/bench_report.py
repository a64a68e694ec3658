"""Trials for people and programs: one table of what each machine really did, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from outlay.report.console import Page, bullets, table
from outlay.report.documents import Document, PlanDocument, plan_document
from outlay.report.text import clipped_percent, count, duration, rate, step_time, usd, usd_range
from outlay.run.bench import Bench, BenchTrial, TrialMachine, TrialState
from outlay.uncertainty import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTrialDocument:
    """One machine, really tried."""

    gpu: str
    gpus: int
    state: TrialState
    """`capped`: ended at its time or money; what it measured until then counts."""
    run: str | None
    """The run that it was, for `outlay runs` and `outlay logs`."""
    machine: str
    batch_size: int | None
    """Of one pass on a GPU, as measured."""
    step_time_s: float | None
    """Mean of the steady state."""
    iterations_per_s: float | None
    samples_per_s: float | None
    """Of all GPUs together."""
    gpu_fraction: float | None
    """Time in which some kernel ran."""
    held_back_by: str | None
    price_usd_per_hour: float | None
    usd_per_1000_iterations: float | None
    full_run_cost_usd: Estimate | None
    """The whole run there, in the plan with what was measured; null where nothing was measured on
    that GPU."""
    full_run_time_s: Estimate | None
    trial_cost_usd: float | None
    """What the trial itself cost; null where no price is known or nothing was held."""
    measurement: str | None
    """Its file."""
    reason: str | None
    """Why it failed or was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDocument(Document):
    """Trials of a workload on several machines, and the plan with what was measured."""

    bench: str
    trials: Sequence[BenchTrialDocument]
    trial_cost_usd: float | None
    """Of all of them together."""
    plan: PlanDocument | None
    """As of `outlay plan`; null where nothing could be planned."""
    notes: Sequence[str]


def bench_document(bench: Bench, name: str, max_options: int | None = None) -> BenchDocument:
    """`outlay bench --json`."""
    return BenchDocument(
        bench=bench.id,
        trials=[_trial_document(trial) for trial in bench.trials],
        trial_cost_usd=bench.trial_cost_usd,
        plan=None if bench.plan is None else plan_document(bench.plan, name, max_options),
        notes=bench.notes,
    )


def _trial_document(trial: BenchTrial) -> BenchTrialDocument:
    measured, step_s = trial.measurement, trial.step_time_s
    finding = None if measured is None else measured.finding
    cost, time = _full_run(trial)
    return BenchTrialDocument(
        gpu=trial.gpu,
        gpus=trial.gpus,
        state=trial.state,
        run=trial.run,
        machine=trial.machine,
        batch_size=None if measured is None else measured.batch_size,
        step_time_s=step_s,
        iterations_per_s=None if not step_s else 1 / step_s,
        samples_per_s=None if measured is None else measured.samples_per_s,
        gpu_fraction=None if measured is None else measured.gpu_fraction,
        held_back_by=None if finding is None else finding.holder,
        price_usd_per_hour=trial.price_usd_per_hour,
        usd_per_1000_iterations=trial.usd_per_1000_iterations,
        full_run_cost_usd=cost,
        full_run_time_s=time,
        trial_cost_usd=trial.trial_cost_usd,
        measurement=trial.file,
        reason=trial.reason or None,
    )


def _full_run(trial: BenchTrial) -> tuple[Estimate | None, Estimate | None]:
    option = trial.option if trial.is_on_its_gpu else None
    ranges = None if option is None else option.ranges
    return (None, None) if ranges is None else (ranges.cost_usd, ranges.run_time_s)


def print_candidates(
    page: Page,
    candidates: Sequence[TrialMachine],
    shares: Sequence[tuple[float | None, float] | None],
) -> None:
    """What is about to be tried, and what it may cost at most."""
    rows = []
    for candidate, share in zip(candidates, shares, strict=True):
        offer = None if candidate.option is None else candidate.option.offer
        where = "" if offer is None else f"{offer.provider} {offer.instance}"
        rows.append(
            (
                f"{candidate.gpus}x {candidate.gpu}",
                where if not candidate.host else candidate.host,
                usd(candidate.price_usd_per_hour),
                "" if share is None else duration(share[1]),
                "" if share is None else usd(share[0]),
                candidate.why_not and f"not tried: {candidate.why_not}",
            )
        )
    heads = ("machine", "where", "$/h", "at most", "or", "why not")
    page.print(table(heads, rows, page.width, right=("$/h", "at most", "or"), wrap="why not"))


def print_bench(page: Page, bench: Bench) -> None:
    """The table of trials, and what they cost."""
    page.print(Text("Really trained:", style="bold"))
    rows = [_row(trial) for trial in bench.trials]
    heads = (
        "machine", "batch", "it/s", "samples/s", "gpu", "held back by", "$/1000 it",
        "full run", "range", "trial", "remark",
    )  # fmt: skip
    right = ("batch", "it/s", "samples/s", "gpu", "$/1000 it", "full run", "trial")
    drop = ("samples/s", "held back by", "gpu")
    page.print(table(heads, rows, page.width, right=right, drop=drop, wrap="remark"))
    page.print(f"The trials cost {usd(bench.trial_cost_usd)} together.")
    if bench.notes:
        page.print(bullets(bench.notes))


def _row(trial: BenchTrial) -> Sequence[str]:
    measured, step_s = trial.measurement, trial.step_time_s
    finding = None if measured is None else measured.finding
    cost, _ = _full_run(trial)
    samples_per_s = None if measured is None else measured.samples_per_s
    fraction = None if measured is None else measured.gpu_fraction
    return (
        f"{trial.gpus}x {trial.gpu}",
        "-" if measured is None or measured.batch_size is None else count(measured.batch_size),
        "-" if not step_s else (f"{1 / step_s:,.2f}" if step_s < 10 else step_time(step_s)),
        "-" if samples_per_s is None else rate(samples_per_s),
        "-" if fraction is None else clipped_percent(fraction),
        "-" if finding is None else finding.holder,
        "-" if trial.usd_per_1000_iterations is None else usd(trial.usd_per_1000_iterations),
        "-" if cost is None else usd(cost.likely),
        "" if cost is None else usd_range(cost),
        "-" if trial.trial_cost_usd is None else usd(trial.trial_cost_usd),
        " ".join(
            part for part in (trial.state if trial.state != "done" else "", trial.reason) if part
        ),
    )
