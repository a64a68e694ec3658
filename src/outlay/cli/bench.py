"""`outlay bench`: really train for a while on several machines, and compare."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.launch import ENGINES, ask, gpus_here, planned
from outlay.cli.options import (
    cache_option,
    json_option,
    learned_calibration,
    prices_of,
    prices_option,
    print_document,
    progress_option,
    tell,
    today,
    trust_option,
    warn,
)
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.plan.ranking import Plan
    from outlay.run.bench import Bench, BenchRequest, BenchTrial
    from outlay.run.run_store import RunStore
    from outlay.workload.workload import EngineName, Workload

WORTH_IT = "worth-it"
_MOST_ROUNDS = 8


@click.command("bench", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--on",
    required=True,
    metavar="GPUS",
    help='Machines to try: "RTX 3090:8,A100-80GB:4"; worth-it: those whose trial pays for itself.',
)
@click.option("--engine", type=click.Choice(ENGINES), help="Where: without it, what [run] says.")
@click.option(
    "--cap-usd",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="What all trials together may cost.",
)
@click.option(
    "--each-usd",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="What each may cost.",
)
@click.option("--for", "duration", metavar="TIME", help="How long each trains.  [default: 10m]")
@click.option("--steps", type=click.IntRange(1), help="Or how many steps: 1000.")
@click.option("--longest", metavar="TIME", help="On a machine at most, set-up included.")
@click.option(
    "--batch-size", type=click.IntRange(1), help="Per GPU, instead of the largest that fits."
)
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="USD/H",
    help="What each machine costs an hour, if not what its offer does.",
)
@click.option("--again", is_flag=True, help="Anew, where the same trials were run before.")
@click.option("--dry-run", is_flag=True, help="Show what would be tried, and what it may cost.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before spending.")
@click.option("--max-options", type=click.IntRange(1), help="Options of the plan in JSON.")
@prices_option
@trust_option
@cache_option
@progress_option
@json_option
def command(
    file: Path,
    on: str,
    engine: EngineName | None,
    cap_usd: float | None,
    each_usd: float | None,
    duration: str | None,
    steps: int | None,
    longest: str | None,
    batch_size: int | None,
    price: float | None,
    again: bool,
    dry_run: bool,
    yes: bool,
    max_options: int | None,
    prices: str,
    trust: str | None,
    as_json: bool,
) -> int:
    """Really train for a while on several machines: speed and cost of each.

    Each machine gets the command of FILE's [run] table with the largest batch that fits ({batch} in
    it), is watched by `outlay probe`, and given back the moment its trial ends or its time or money
    is up. Then the plan again, with what was measured.

    \b
    Example:
      outlay bench outlay.toml --on "RTX 3090:8,RTX A6000:8,A100-80GB:4" --cap-usd 10
      outlay bench outlay.toml --on worth-it --cap-usd 5     only trials that pay for themselves
      outlay bench outlay.toml --on H200 --engine local --steps 1000
      outlay bench outlay.toml --on "A100:1,RTX 3090:1" --engine slurm --dry-run

    Ctrl-C leaves trials running to their caps; the same command again goes on with them. Exits with
    1 where no trial gave a measurement.
    """
    from outlay.run.bench import TRIAL_S, BenchRequest
    from outlay.units import duration_s

    if steps is not None and duration is not None:
        raise click.UsageError("--steps and --for exclude each other: give one.")
    request = BenchRequest(
        on=on,
        engine=engine,
        cap_usd=cap_usd,
        each_usd=each_usd,
        training_s=TRIAL_S if duration is None else duration_s(duration),
        steps=steps,
        longest_s=None if longest is None else duration_s(longest),
        batch_size=batch_size,
        price_usd_per_hour=price,
        gpus_here=gpus_here(),
    )
    workload, plan = planned(file, (), prices, trust)
    from outlay.run.run_store import RunStore

    with RunStore() as store:
        session = _Session(workload, file, request, store, prices, trust, again=again)
        if on == WORTH_IT:
            bench = session.worth_it(plan, yes=yes, dry_run=dry_run, as_json=as_json)
        else:
            if not session.is_agreed(plan, request, yes=yes, dry_run=dry_run, as_json=as_json):
                return 0
            bench = session.tried(plan, request)
    if bench is None:
        return 0
    _show(bench, workload, max_options, as_json=as_json)
    has_measured = any(trial.step_time_s for trial in bench.trials)
    return 0 if has_measured or not bench.trials else 1


class _Session:
    """One call of the command."""

    def __init__(
        self,
        workload: Workload,
        file: Path,
        request: BenchRequest,
        store: RunStore,
        prices: str,
        trust: str | None,
        *,
        again: bool,
    ) -> None:
        from outlay.run.bench import bench_id

        self._workload = workload
        self._file = str(file.resolve())
        self._request = request
        self._store = store
        self._prices = prices
        self._trust = trust
        self._id = bench_id(store, self._file, request.on, again=again)

    def is_agreed(
        self, plan: Plan, request: BenchRequest, *, yes: bool, dry_run: bool, as_json: bool
    ) -> bool:
        """Show what is to be tried, and ask; not where it was asked before."""
        from outlay.report.bench_report import print_candidates
        from outlay.report.console import Page
        from outlay.report.text import amounts_in, usd
        from outlay.run.bench import allowances, engine_for, trial_machines
        from outlay.run.launch import settings_of
        from outlay.units import HOUR_S, MINUTE_S

        settings = settings_of(self._workload, self._file)
        engine = engine_for(request, settings)
        candidates = trial_machines(request.on, plan, settings, engine, request.gpus_here)
        able = [candidate for candidate in candidates if not candidate.why_not]
        shares = dict(zip(map(id, able), allowances(able, request), strict=True))
        page = Page(to_stderr=as_json)
        known = [money for money, _ in shares.values() if money is not None]
        with amounts_in(self._workload.currency, self._workload.usd_per_unit):
            print_candidates(page, candidates, [shares.get(id(each)) for each in candidates])
            most = f"never more than {usd(sum(known))}" if known else "at a price that is not known"
            idle_s = settings.skypilot.idle_minutes * MINUTE_S if engine == "skypilot" else 0.0
            idle_usd = sum(each.price_usd_per_hour or 0.0 for each in able) * idle_s / HOUR_S
            if known and idle_usd:
                most += f" (and {usd(idle_usd)} of idle machines, should this command be cut short)"
        if dry_run:
            return False
        if not able:
            raise InputError("None of these machines can be tried.", fix="The table says why.")
        if not yes and not self._store.runs(bench=self._id):
            ask(f"Run {len(able)} trials on {engine}, {most}?")
        return True

    def tried(self, plan: Plan, request: BenchRequest) -> Bench:
        """The trials, then the plan with what they measured."""
        from outlay.run.bench import Bench, with_plan

        ended = {run.id for run in self._store.runs(bench=self._id) if run.has_ended}
        trials = tuple(self._run(plan, request))
        count = sum(trial.run in ended for trial in trials)
        said = (
            f"{count} of them ran before, and {'was' if count == 1 else 'were'} read: --again runs"
        )
        notes = (f"{said} all anew.",) if count else ()
        return with_plan(Bench(id=self._id, trials=trials, notes=notes), self._planned)

    def _run(self, plan: Plan, request: BenchRequest) -> list[BenchTrial]:
        from outlay.run.bench import BenchContext, run_trials
        from outlay.run.launch import passed_values, settings_of

        names = settings_of(self._workload, self._file).pass_on
        try:
            return run_trials(
                self._workload,
                plan,
                request,
                self._store,
                bench=self._id,
                workload_file=self._file,
                secrets=passed_values(names, os.environ),
                progress=BenchContext(say=tell, clock=time.time),
            )
        except KeyboardInterrupt:
            self._say_what_goes_on()
            raise

    def _say_what_goes_on(self) -> None:
        """Trials that were started go on to their caps, and cost money meanwhile."""
        going = [run.id for run in self._store.runs(bench=self._id) if not run.has_ended]
        if going:
            warn(
                f"Trials go on to their caps: {', '.join(going)}. The same command goes on with "
                "them; `outlay stop RUN` ends one."
            )

    def _planned(self, measured: Sequence[str]) -> Plan:
        from outlay.plan.pipeline import plan_workload

        tell("Planning again with what was measured ...")
        return plan_workload(
            self._workload,
            measured=measured,
            learned=learned_calibration(),
            today=today(),
            prices=prices_of(self._prices, None, self._trust),
            progress=tell,
        )

    def worth_it(self, plan: Plan, *, yes: bool, dry_run: bool, as_json: bool) -> Bench | None:
        """Trials that pay for themselves, round after round, until none does any more."""
        from dataclasses import replace

        from outlay.report.text import usd
        from outlay.run.bench import Bench, with_plan, worth_trying

        trials: list[BenchTrial] = []
        notes: list[str] = []
        bench = Bench(id=self._id, trials=(), plan=plan)
        for _ in range(_MOST_ROUNDS):
            found = worth_trying(plan, ((trial.gpu, trial.gpus) for trial in trials))
            if found is None:
                break
            on, value = found
            spent_usd = sum(trial.trial_cost_usd or 0.0 for trial in trials)
            cap_usd = self._request.cap_usd
            left_usd = None if cap_usd is None else cap_usd - spent_usd
            if left_usd is not None and left_usd <= 0:
                notes.append("The cap is spent.")
                break
            notes.append(
                f"Tried {on}: about {usd(value.cost_usd)} for {usd(value.gain_usd)} that knowing "
                "it saves on average."
            )
            request = replace(self._request, on=on, cap_usd=left_usd)
            if not self.is_agreed(plan, request, yes=yes, dry_run=dry_run, as_json=as_json):
                return None
            trials += self._run(plan, request)
            bench = with_plan(Bench(id=self._id, trials=tuple(trials)), self._planned)
            assert bench.plan is not None
            plan = bench.plan
        else:
            warn("More trials may still pay for themselves: the same command again goes on.")
        notes.append("No further trial pays for itself." if trials else "No trial pays for itself.")
        return replace(bench, notes=(*notes, *bench.notes))


def _show(bench: Bench, workload: Workload, max_options: int | None, *, as_json: bool) -> None:
    from outlay.plan.sensitivity import trial_value
    from outlay.report.bench_report import bench_document, print_bench
    from outlay.report.console import Page
    from outlay.report.plan import print_plan
    from outlay.report.text import amounts_in

    if as_json:
        print_document(bench_document(bench, workload.name, max_options))
        return
    page, plan = Page(), bench.plan
    with amounts_in(workload.currency, workload.usd_per_unit):
        print_bench(page, bench)
        if plan is not None and plan.profile is not None:
            page.print()
            trial = trial_value(plan)
            print_plan(page, plan, workload, plan.profile, best=5, swing=None, trial=trial)
