"""Trials: really train for a while on several machines, then plan again with what was measured.

    TrialMachine  a GPU and how many, with the plan's best offer of it
    BenchTrial    what came of one: the measurement, its cost, or why there is none
    Bench         all of them, one cap over all, and the plan with the measurements

A trial is a run of its own (`run_store`, kind `trial`): set-up, then `outlay probe` of the user's
command with the largest batch that fits, then its measurement is brought back and the machine is
given back at once. A bench that is cut short goes on where it was: its trials are in the store, and
a trial that was started is never started again.

Caps hold without us: each trial carries its own share of the money and its own time limit to the
machine.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from outlay.errors import InputError, LaunchFailed, NoOption, OutlayError
from outlay.files import data_folder
from outlay.hardware.gpu_names import find_gpu
from outlay.measurement.file import read_measurement
from outlay.measurement.measurement import Measurement
from outlay.plan.option import Option
from outlay.plan.ranking import Plan
from outlay.plan.sensitivity import TrialValue, trial_value
from outlay.run.engine import Engine, engine_of
from outlay.run.job import RESULTS, Job, JobMachine, command_line, has_batch
from outlay.run.launch import (
    Clock,
    LaunchRequest,
    best_of_gpu,
    job_for,
    launch,
    parse_machine,
    recovered,
    said_usd_per_hour,
    settings_of,
    submitted,
    updated,
)
from outlay.run.redaction import redacted
from outlay.run.run_store import RunRecord, RunStore
from outlay.units import HOUR_S
from outlay.workload.workload import EngineName, RunHost, RunSettings, Workload

TrialState = Literal["waiting", "running", "done", "failed", "capped"]
"""`capped`: it was ended at its time or money; what it measured until then counts."""
TRIAL_S = 600.0
"""How long a trial trains, where nothing is said."""
_AROUND_S = 1800.0
"""What set-up, data and the search for the batch may take besides."""
_POLL_S = 1.0
_POLL_CLOUD_S = 15.0
"""Between looks at a trial; SkyPilot takes seconds for each."""
_GIVEN_UP_S = 900.0
"""After its time a trial that cannot be asked is waited for so much longer."""
_LOG_BYTES = 100_000
MEASUREMENT = "probe.json"
CAPPED = ("budget", "deadline", "time limit")
"""What a guard stops a trial for, where that is no failure."""
_THEN_COMMAND = " -- sh -c "
_TIMED_OUT = 124
# Source: the exit status of timeout of the GNU coreutils.


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """Which trials, and what they may take."""

    on: str
    """`RTX 3090:8,A100-80GB:4`."""
    engine: EngineName | None = None
    cap_usd: float | None = None
    """Of all trials together."""
    each_usd: float | None = None
    """Of each."""
    training_s: float = TRIAL_S
    """How long each trains, once its batch is known ..."""
    steps: int | None = None
    """... or so many steps."""
    longest_s: float | None = None
    """On a machine at most, set-up included; None: the training and half an hour."""
    batch_size: int | None = None
    """Per GPU, instead of the largest that fits."""
    price_usd_per_hour: float | None = None
    gpus_here: tuple[str, ...] = ()

    @property
    def held_s(self) -> float:
        """How long a machine may be held for a trial."""
        return self.longest_s or self.training_s + _AROUND_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMachine:
    """A GPU to try, and where; or why it cannot be tried."""

    gpu: str
    gpus: int
    option: Option | None = field(default=None, repr=False)
    host: str = ""
    said_usd_per_hour: float | None = None
    """What `[run]` says that its machine costs."""
    why_not: str = ""

    @property
    def price_usd_per_hour(self) -> float | None:
        """Of its machine: what `[run]` says, else its offer."""
        if self.said_usd_per_hour is not None or self.option is None:
            return self.said_usd_per_hour
        return self.option.hourly_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTrial:
    """What came of a trial."""

    gpu: str
    gpus: int
    state: TrialState
    run: str | None = None
    reason: str = ""
    measurement: Measurement | None = field(default=None, repr=False)
    file: str | None = None
    """The measurement's file."""
    price_usd_per_hour: float | None = None
    trial_cost_usd: float | None = None
    machine: str = ""
    option: Option | None = field(default=None, repr=False)
    """The same offer in the plan with what was measured."""

    @property
    def step_time_s(self) -> float | None:
        """As measured."""
        step = None if self.measurement is None else self.measurement.step
        return None if step is None else step.mean_s

    @property
    def usd_per_1000_iterations(self) -> float | None:
        """What a thousand steps cost at the machine's price."""
        if self.step_time_s is None or self.price_usd_per_hour is None:
            return None
        return 1000 * self.step_time_s / HOUR_S * self.price_usd_per_hour

    @property
    def is_on_its_gpu(self) -> bool:
        """Whether it was measured on the GPU that it is of: else it says nothing of it."""
        if self.measurement is None or self.measurement.device in (None, "cpu", "mps"):
            return False
        meant = {gpu.name for gpu in find_gpu(self.gpu).candidates}
        seen = {
            gpu.name
            for measured in self.measurement.machine.gpus
            for gpu in find_gpu(measured.name).candidates
        }
        return bool(meant & seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All trials of a workload, and what they say."""

    id: str
    trials: tuple[BenchTrial, ...]
    plan: Plan | None = field(default=None, repr=False)
    """With what was measured; None while trials run."""
    is_planned_with: bool = True
    """Whether the plan takes the measurements: not, where they are of another step than it is."""
    notes: tuple[str, ...] = ()

    @property
    def trial_cost_usd(self) -> float | None:
        """What all of them cost together; None where a machine's price is not known."""
        held = [trial for trial in self.trials if trial.run is not None]
        costs = [trial.trial_cost_usd for trial in held if trial.trial_cost_usd is not None]
        return None if held and not costs else sum(costs)

    @property
    def files(self) -> tuple[str, ...]:
        """Measurements that say something of a GPU, for the plan."""
        return tuple(trial.file for trial in self.trials if trial.file and trial.is_on_its_gpu)


# Candidates and their jobs


def trial_machines(
    text: str, plan: Plan, settings: RunSettings, engine: EngineName, here: Sequence[str] = ()
) -> list[TrialMachine]:
    """The machines that a list names; one that cannot be had says why, and hurts no other."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError("--on names no GPU.", fix='Write for example --on "RTX 3090:8,A100:4".')
    return [_candidate(*parse_machine(name), plan, settings, engine, here) for name in names]


def _candidate(
    gpu: str,
    gpus: int,
    plan: Plan,
    settings: RunSettings,
    engine: EngineName,
    here: Sequence[str],
) -> TrialMachine:
    find_gpu(gpu)  # a typing mistake is said before anything is spent
    # A trial is over before spot pays for being taken away, and set up anew elsewhere.
    usable = [option for option in plan.options if engine != "skypilot" or _is_rentable(option)]
    kept = [option for option in usable if option.tenancy != "spot"]
    option = best_of_gpu(kept, gpu, gpus) or best_of_gpu(usable, gpu, gpus)
    if option is None:
        can = " that SkyPilot can rent" if engine == "skypilot" else ""
        why = f"no offer{can} has {gpus}x {gpu} on which the step fits"
        return TrialMachine(gpu=gpu, gpus=gpus, why_not=why)
    host = _host_with(settings, gpu, gpus) if engine == "ssh" else None
    why = ""
    if engine == "ssh" and host is None:
        why = f"no [[run.host]] says that it has {gpus}x {gpu}"
    if engine == "local" and here and not _is_here(gpu, gpus, here):
        why = f"this machine has {len(here)}x {here[0]}"
    return TrialMachine(
        gpu=gpu,
        gpus=gpus,
        option=option,
        host="" if host is None else host.address,
        said_usd_per_hour=said_usd_per_hour(settings, engine, host, option.offer.gpus),
        why_not=why,
    )


def _is_rentable(option: Option) -> bool:
    from outlay.run.skypilot import is_rentable

    offer = option.offer
    return is_rentable(JobMachine(provider=offer.provider, tenancy=option.tenancy))


def _host_with(settings: RunSettings, gpu: str, gpus: int) -> RunHost | None:
    meant = {found.name for found in find_gpu(gpu).candidates}
    for host in settings.hosts:
        if host.gpu:
            name, count = parse_machine(host.gpu)
            has = {found.name for found in find_gpu(name).candidates}
            if has & meant and count >= gpus:
                return host
    return None


def _is_here(gpu: str, gpus: int, here: Sequence[str]) -> bool:
    meant = {found.name for found in find_gpu(gpu).candidates}
    there = [name for name in here if {g.name for g in find_gpu(name).candidates} & meant]
    return len(there) >= gpus


def allowances(
    candidates: Sequence[TrialMachine], request: BenchRequest, spent_usd: float = 0.0
) -> list[tuple[float | None, float]]:
    """The money and the time that each trial may take: together never more than the cap.

    Equal time for all, as much as the cap pays for at their prices together.
    """
    prices = [request.price_usd_per_hour or c.price_usd_per_hour for c in candidates]
    held_s = request.held_s
    known = sum(price for price in prices if price)
    if request.cap_usd is not None:
        if any(price is None for price in prices):
            raise InputError(
                f"A cap of ${request.cap_usd:,.2f} cannot be kept: a machine's price is not known.",
                fix="Give --price, or leave that machine out.",
            )
        left_usd = max(request.cap_usd - spent_usd, 0.0)
        held_s = min(held_s, left_usd / known * HOUR_S if known else held_s)
    return [_allowance(price, held_s, request.each_usd) for price in prices]


def _allowance(
    price_usd: float | None, held_s: float, each_usd: float | None
) -> tuple[float | None, float]:
    if not price_usd:
        return None, held_s
    if each_usd is not None:
        held_s = min(held_s, each_usd / price_usd * HOUR_S)
    return price_usd * held_s / HOUR_S, held_s


def trial_job(
    workload: Workload,
    plan: Plan,
    candidate: TrialMachine,
    request: BenchRequest,
    engine: EngineName,
    allowance: tuple[float | None, float],
) -> Job:
    """The job that tries a candidate."""
    assert candidate.option is not None
    settings = settings_of(workload, workload.name)
    if settings.outlay == "none":
        raise InputError(
            'run.outlay = "none" and a trial exclude each other.',
            why="A trial is a probe, which needs outlay on the machine.",
            fix="Leave run.outlay out: this outlay is sent there.",
        )
    money_usd, held_s = allowance
    job = job_for(
        workload,
        plan,
        LaunchRequest(
            on=str(candidate.option.rank),
            engine=engine,
            host=candidate.host,
            price_usd_per_hour=request.price_usd_per_hour,
            budget_usd=money_usd,
            kind="trial",
            command=":",  # the probe's line needs the machine, which the job has
        ),
    )
    watch = replace(job.watch, agent=False, stall_s=None, stop_on_bad_loss=False)
    return replace(
        job,
        command=probe_line(job, workload, settings, request, money_usd),
        budget_usd=money_usd,
        deadline_s=None,
        longest_s=held_s,
        resume=None,
        fetch=(),
        alternatives=(),
        watch=watch,
        pass_on=settings.pass_on,
    )


def probe_line(
    job: Job,
    workload: Workload,
    settings: RunSettings,
    request: BenchRequest,
    money_usd: float | None,
) -> str:
    """`outlay probe` of the user's command: first the largest batch, where that is open."""
    fixed = request.batch_size or workload.step.batch_size
    searches = fixed is None and has_batch(settings.command)
    line = command_line(
        settings.command,
        job.machine,
        batch_size=fixed or job.batch_size,
        checkpoints=settings.checkpoints,
        processes=settings.processes,
        keep_batch=searches,
    )
    limit = str(request.steps) if request.steps else f"{request.training_s:.0f}s"
    words = ["outlay", "probe", "--no-keep"]
    if searches:
        words += ["--find-batch", "batch", "--then-probe", limit]
        if workload.step.max_batch_size is not None:
            words += ["--largest", str(workload.step.max_batch_size)]
    elif request.steps:
        words += ["--steps", limit]
    else:
        words += ["--for", limit]
    price_usd = job.machine.price_usd_per_hour
    if price_usd and money_usd:
        words += ["--price", f"{price_usd:.6g}", "--max-cost", f"{money_usd:.6g}"]
    probe = shlex.join(words)
    return f'{probe} --json "$OUTLAY_RESULTS/{MEASUREMENT}"{_THEN_COMMAND}{shlex.quote(line)}'


# Running them


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext:
    """What a bench has from outside: a clock, and somebody to tell."""

    say: Callable[[str], None] = lambda _: None
    clock: Clock = time.time
    sleep: Callable[[float], None] = time.sleep
    poll_s: float | None = None
    """Between looks at a trial; None: as often as its engine answers quickly."""


def bench_id(store: RunStore, workload_file: str, text: str, *, again: bool = False) -> str:
    """The same for the same question, so that what was cut short is found; `again`: a new one."""
    digest = hashlib.sha256(f"{workload_file}\0{text}".encode()).hexdigest()[:8]
    number = 1
    while store.runs(bench=f"bench-{digest}-{number + 1}"):
        number += 1
    if again and store.runs(bench=f"bench-{digest}-{number}"):
        number += 1
    return f"bench-{digest}-{number}"


def run_trials(
    workload: Workload,
    plan: Plan,
    request: BenchRequest,
    store: RunStore,
    *,
    bench: str,
    workload_file: str,
    secrets: Mapping[str, str],
    progress: BenchContext,
) -> list[BenchTrial]:
    """Try every candidate, at once where they do not share a machine; what came of each.

    Trials of the same bench that are in the store already are gone on with, or taken as they ended.
    """
    settings = settings_of(workload, workload_file)
    engine = engine_for(request, settings)
    candidates = trial_machines(request.on, plan, settings, engine, request.gpus_here)
    able = [candidate for candidate in candidates if not candidate.why_not]
    shares = dict(zip(map(id, able), allowances(able, request), strict=True))
    before = {
        _of(record): record
        for record in store.runs(bench=bench)
        if record.state != "failed" or record.handle is not None
    }
    runner = _Runner(store, bench, workload_file, secrets, progress)
    slots = []
    for candidate in candidates:
        slot = _Slot(candidate, failed=candidate.why_not)
        slots.append(slot)
        if not candidate.why_not:
            share = shares[id(candidate)]
            try:
                slot.job = trial_job(workload, plan, candidate, request, engine, share)
            except (NoOption, LaunchFailed) as error:  # its share of the cap pays for no time
                slot.failed = f"{error.what} {error.why}".strip()
        record = before.get((candidate.gpu, candidate.gpus))
        if record is not None and _is_same_trial(record, slot.job):
            slot.run, slot.job, slot.failed = record.id, record.job, ""
    runner.run_all(slots)
    return [runner.result(slot) for slot in slots]


def engine_for(request: BenchRequest, settings: RunSettings) -> EngineName:
    """The engine that trials run on."""
    if request.engine or settings.engine:
        return request.engine or settings.engine or "local"
    if settings.hosts:
        return "ssh"
    slurm = settings.slurm
    return "slurm" if slurm.login or slurm.partition or slurm.gpu_types else "skypilot"


def _is_same_trial(record: RunRecord, job: Job | None) -> bool:
    """Whether a trial that was begun before is the one that is asked for now: one that goes on is,
    one that has ended is unless the user's own lines have changed since."""
    if job is None or not record.has_ended:
        return True
    return _own_lines(record.job) == _own_lines(job)


def _own_lines(job: Job) -> tuple[object, ...]:
    """What a trial's job has from the `[run]` table, whatever caps and prices are now."""
    return job.command.partition(_THEN_COMMAND)[2], job.setup, job.environment, job.image


def _of(record: RunRecord) -> tuple[str, int]:
    """Which candidate a trial in the store is of."""
    return record.bench_gpu, record.bench_gpus


@dataclass(slots=True, kw_only=False)
class _Slot:
    """A candidate and how far its trial has come."""

    candidate: TrialMachine
    job: Job | None = None
    run: str | None = None
    failed: str = ""
    is_collected: bool = False
    problem: str = ""
    """What was last said of it."""

    @property
    def machine(self) -> str:
        """What it would share with another: trials on one host come one after the other."""
        job = self.job
        if job is None or job.engine in ("slurm", "skypilot"):
            return ""
        return job.machine.host or "here"


class _Runner:
    """Runs trials to their ends."""

    def __init__(
        self,
        store: RunStore,
        bench: str,
        workload_file: str,
        secrets: Mapping[str, str],
        progress: BenchContext,
    ) -> None:
        self._path = store.path
        self._bench = bench
        self._workload_file = workload_file
        self._secrets = secrets
        self._progress = progress
        self._is_left = threading.Event()

    def run_all(self, slots: Sequence[_Slot]) -> None:
        """Run all to their ends: at once, but those that share a machine one after the other."""
        groups: dict[str, list[_Slot]] = {}
        for number, slot in enumerate(slots):
            groups.setdefault(slot.machine or str(number), []).append(slot)
        with ThreadPoolExecutor(max_workers=max(len(groups), 1)) as pool:
            futures = [pool.submit(self._run_group, group) for group in groups.values()]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C: what was started goes on there, we look no longer
                self._is_left.set()
                raise

    def _run_group(self, slots: Sequence[_Slot]) -> None:
        with RunStore(self._path) as store:  # one for each thread
            for slot in slots:
                while not self._is_over(slot) and not self._is_left.is_set():
                    self._guarded(slot, store)
                    if not self._is_over(slot):
                        self._progress.sleep(self._poll_s(slot))

    def _poll_s(self, slot: _Slot) -> float:
        is_cloud = slot.job is not None and slot.job.engine == "skypilot"
        return self._progress.poll_s or (_POLL_CLOUD_S if is_cloud else _POLL_S)

    def _is_over(self, slot: _Slot) -> bool:
        return bool(slot.failed) or slot.is_collected

    def _guarded(self, slot: _Slot, store: RunStore) -> None:
        """Bring a trial further; one that fails must not hurt the others."""
        try:
            self._advance(slot, store)
        except OutlayError as error:
            words = redacted(str(error), self._secrets.values())
            if self._is_hopeless(slot, store):
                slot.failed = words
                if slot.run is not None and self._has(slot.run, store):
                    store.change(slot.run, state="failed", reason=words)
                else:  # refused before it was written down
                    slot.run = None
            if words != slot.problem:
                slot.problem = words
                self._progress.say(f"{slot.candidate.gpus}x {slot.candidate.gpu}: {words}")

    def _has(self, run: str, store: RunStore) -> bool:
        return any(record.id == run for record in store.runs(bench=self._bench))

    def _is_hopeless(self, slot: _Slot, store: RunStore) -> bool:
        """Whether a trial that could not be asked is given up: it was not submitted, or its time
        on the machine is over, so that it costs nothing any more."""
        if slot.run is None or not self._has(slot.run, store):
            return True
        record = store.get(slot.run)
        if record.handle is None:
            try:  # a submission whose reply was lost may have taken hold
                return recovered(store, slot.run, clock=self._progress.clock).handle is None
            except OutlayError:
                pass
        longest_s = record.job.longest_s or TRIAL_S + _AROUND_S
        return self._progress.clock() - record.created_s > longest_s + _GIVEN_UP_S

    def _advance(self, slot: _Slot, store: RunStore) -> None:
        if slot.run is None:
            self._start(slot, store)
        record = self._looked_at(slot, store)
        if record.has_ended:
            self._collect(slot, record, store)

    def _start(self, slot: _Slot, store: RunStore) -> None:
        assert slot.job is not None
        job, candidate = slot.job, slot.candidate
        engine = engine_of(job)
        file = engine.render(job)
        self._progress.say(f"{candidate.gpus}x {candidate.gpu}: starting on {job.machine.name}")
        slot.run = job.id
        launch(
            job, file, store, secrets=self._secrets, clock=self._progress.clock,
            engine=engine, workload=self._workload_file, bench=self._bench,
            bench_gpu=candidate.gpu, bench_gpus=candidate.gpus,
        )  # fmt: skip

    def _looked_at(self, slot: _Slot, store: RunStore) -> RunRecord:
        assert slot.run is not None
        record = store.get(slot.run)
        if record.state in ("planned", "submitting"):
            recovered(store, slot.run, clock=self._progress.clock)
            submitted(store, slot.run, secrets=self._secrets, clock=self._progress.clock)
        return updated(store, slot.run, clock=self._progress.clock)

    def _collect(self, slot: _Slot, record: RunRecord, store: RunStore) -> None:
        """Bring its measurement and log back, then give its machine back."""
        engine, handle = engine_of(record.job), record.handle or ""
        if not record.fetched and record.deleted_s is None:
            self._bring(engine, record, handle, store)
        if record.deleted_s is None:
            engine.delete(record.job, handle)
            at_s = self._progress.clock()
            store.change(record.id, deleted_s=at_s, event="Given back", at_s=at_s)
        slot.is_collected = True
        self._progress.say(f"{slot.candidate.gpus}x {slot.candidate.gpu}: {record.state}")

    def _bring(self, engine: Engine, record: RunRecord, handle: str, store: RunStore) -> None:
        folder = trial_folder(self._bench, record.id)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            log = engine.logs(record.job, handle)[-_LOG_BYTES:]
            (folder / "log").write_text(redacted(log.decode(errors="replace")), encoding="utf-8")
            engine.fetch(record.job, handle, folder)
        except OutlayError as error:
            if record.state == "done":
                raise
            self._progress.say(f"Its log could not be brought: {error.what}")
        store.change(record.id, fetched=str(folder))

    def result(self, slot: _Slot) -> BenchTrial:
        """What came of a trial."""
        candidate = slot.candidate
        plain = BenchTrial(
            gpu=candidate.gpu, gpus=candidate.gpus, state="failed", reason=slot.failed, run=slot.run
        )
        if slot.run is None:
            return plain
        with RunStore(self._path) as store:
            return trial_of(store.get(slot.run), plain)


def trial_folder(bench: str, run: str) -> Path:
    """Where what a trial left is kept."""
    return data_folder() / "benches" / bench / run


def trial_of(record: RunRecord, plain: BenchTrial) -> BenchTrial:
    """What came of a trial that is in the store."""
    path = Path(record.fetched or ".") / RESULTS / MEASUREMENT
    measurement, problem = None, ""
    if path.is_file():
        try:
            measurement = read_measurement(path)
        except OutlayError as error:
            problem = error.what
    is_capped = any(word in record.reason for word in CAPPED) or record.exit_status == _TIMED_OUT
    measured = measurement is not None and measurement.step is not None
    state: TrialState = "done" if record.state == "done" and measured else "failed"
    if is_capped or (measured and measurement and measurement.stopped_for == "cost"):
        state = "capped"
    reason = plain.reason or ("" if state == "done" else record.reason or problem)
    if record.state == "done" and measurement is not None and not measured:
        reason = reason or "no training step was seen"
    elif state != "done" and not is_capped:
        reason = _last_words(Path(record.fetched or ".")) or reason
    return replace(
        plain,
        state=state,
        reason=reason,
        measurement=measurement,
        file=str(path) if measured else None,
        price_usd_per_hour=record.job.machine.price_usd_per_hour,
        trial_cost_usd=record.cost_usd,
        machine=record.job.machine.name,
    )


def _last_words(folder: Path) -> str:
    """The last line of a trial's log that says something of its end, but for the guard's."""
    from outlay.probe.trial import last_line

    try:
        lines = (folder / "log").read_bytes().splitlines()
    except OSError:
        return ""
    return last_line(b"\n".join(line for line in lines if not line.startswith(b"outlay: "))) or ""


# Which trials pay for themselves


def worth_trying(plan: Plan, tried: Iterable[tuple[str, int]]) -> tuple[str, TrialValue] | None:
    """The machines whose trial saves more than it costs, as `--on` has them; None where none does.

    Those that were tried are left out: a second trial of the same tells nothing new.
    """
    value = trial_value(plan)
    if value is None or not value.is_worth_it:
        return None
    before = set(tried)
    names = [
        f"{option.offer.gpu}:{option.offer.gpus}"
        for option in (value.first, value.second)
        if (option.offer.gpu, option.offer.gpus) not in before
    ]
    return (",".join(dict.fromkeys(names)), value) if names else None


def with_plan(bench: Bench, planned: Callable[[Sequence[str]], Plan]) -> Bench:
    """A bench with the plan that its measurements give, and each trial's offer in it.

    `planned` plans with some measurements. Where they do not go with the workload's step, the plan
    is without them, and a note says why: what was paid for is not lost.
    """
    try:
        plan = planned(bench.files)
    except OutlayError as error:
        if not bench.files:
            raise
        plan = planned(())
        note = f"The plan is without what was measured: {error.what} {error.why}".strip()
        bench = replace(bench, is_planned_with=False, notes=(*bench.notes, note))
    is_used = bench.is_planned_with
    trials = tuple(
        replace(
            trial,
            option=best_of_gpu(plan.options, trial.gpu, trial.gpus) if is_used else None,
        )
        for trial in bench.trials
    )
    elsewhere = [
        f"{trial.gpus}x {trial.gpu} was measured on {_measured_on(trial)}: not used in the plan."
        for trial in bench.trials
        if trial.file and not trial.is_on_its_gpu
    ]
    return replace(bench, trials=trials, plan=plan, notes=(*bench.notes, *elsewhere))


def _measured_on(trial: BenchTrial) -> str:
    assert trial.measurement is not None
    gpus = trial.measurement.machine.gpus
    return gpus[0].name if gpus else "a CPU"
