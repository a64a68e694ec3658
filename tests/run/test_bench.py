"""Trials: caps that hold together, one that fails hurts no other, nothing is started twice."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace

import pytest
from tests.builders import a_profile

from outlay.errors import InputError, LaunchFailed
from outlay.measurement.file import text_of
from outlay.measurement.measurement import MeasuredGpu, MeasuredMachine, Measurement, StepTime
from outlay.plan.pipeline import plan_workload
from outlay.run import bench as bench_module
from outlay.run import launch as launch_module
from outlay.run.bench import (
    Bench,
    BenchContext,
    BenchRequest,
    BenchTrial,
    allowances,
    bench_id,
    engine_for,
    probe_line,
    run_trials,
    trial_job,
    trial_machines,
    with_plan,
    worth_trying,
)
from outlay.run.engine import EngineState, JobFile
from outlay.run.run_store import RunStore
from outlay.workload.file import parse_workload

TEXT = """
name = "bench"
[step]
profile = "resnet50"
[length]
samples = 1_000_000
[consider]
bundled = false
[[offer]]
provider = "a"
gpu = "RTX 3090"
price_per_hour = 1.0
[[offer]]
provider = "b"
gpu = "A100-80GB"
price_per_hour = 3.0
[[offer]]
provider = "c"
gpu = "T4"
price_per_hour = 0.5
[run]
command = "python train.py --batch-size {batch}"
"""
SMALL = a_profile(flops_per_sample=1e9, bytes_per_sample=1e6, trainable_parameters=1000)


def workload_of(more="", text=TEXT):
    return parse_workload(text + more)


def plan_of(workload):
    return plan_workload(workload, SMALL)


def a_measurement(gpu="NVIDIA GeForce RTX 3090", step_s: float | None = 0.1, **values):
    step = None if step_s is None else StepTime(
        mean_s=step_s, low_s=step_s, high_s=step_s, median_s=step_s, p10_s=step_s, p90_s=step_s,
        steps=100, warm_up_steps=3, is_steady=True,
    )  # fmt: skip
    return Measurement(
        command=("python", "train.py"),
        measured_on="2026-11-01",
        ending="stopped",
        status=0,
        machine=MeasuredMachine(system="linux", gpus=(MeasuredGpu(name=gpu),) if gpu else ()),
        device="cuda" if gpu else "cpu",
        step=step,
        steps_seen=103,
        world_size=1,
        ranks=1,
        samples_per_step=8.0,
        passes_per_step=1.0,
        **values,
    )


GPUS = {
    "RTX 3090": "NVIDIA GeForce RTX 3090",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "T4": "Tesla T4",
}


@dataclass
class StubEngine:
    """Trials that take so many looks; some cannot be submitted, or fail, or cannot be asked."""

    name: str = "slurm"
    looks: int = 6
    refused: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    submitted: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    most_at_once: int = 0
    together: threading.Barrier | None = None
    """Submissions that wait for each other: as of a cloud that takes minutes for a machine."""

    def render(self, job):
        return JobFile(name="job.sh", text=job.command)

    def check(self, job):
        pass

    def submit(self, job, file, secrets):
        if job.machine.gpu in self.refused:
            raise LaunchFailed("The cluster has no such GPU.")
        if self.together is not None:
            self.together.wait()
        self.submitted.append(job.machine.gpu)
        self.seen[job.id] = 0
        self.most_at_once = max(self.most_at_once, len(self._going()))
        return f"h-{job.id}"

    def _going(self):
        return [run for run, looks in self.seen.items() if looks < self.looks]

    def find(self, job):
        return f"h-{job.id}" if job.id in self.seen else None

    def state(self, job, handle):
        if job.machine.gpu in self.silent:
            raise LaunchFailed("No answer.")
        self.seen[job.id] += 1
        if self.seen[job.id] < self.looks:
            return EngineState(state="running", held_since_s=1000.0)
        if job.machine.gpu in self.failing:
            reason = "exit status 1"
            return EngineState(
                state="failed", reason=reason, exit_status=1, held_since_s=1000.0, ended_s=1036.0
            )
        return EngineState(state="done", exit_status=0, held_since_s=1000.0, ended_s=1360.0)

    def logs(self, job, handle, offset=0):
        return b"start\nRuntimeError: no such file: data.bin\n"

    def fetch(self, job, handle, to):
        if job.machine.gpu in self.failing:
            return []
        path = to / "results" / "probe.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(a_measurement(GPUS[job.machine.gpu])))
        return [path]

    def stop(self, job, handle, *, grace_s):
        pass

    def delete(self, job, handle):
        self.deleted.append(job.machine.gpu)


@pytest.fixture
def engine(monkeypatch):
    stub = StubEngine()
    monkeypatch.setattr(bench_module, "engine_of", lambda _: stub)
    monkeypatch.setattr(launch_module, "engine_of", lambda _: stub)
    return stub


class Ticking:
    """A clock that a second passes on with every look, and every sleep."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        self.now_s += 1
        return self.now_s

    def sleep(self, time_s):
        self.now_s += time_s


def run(engine, tmp_path, on="RTX 3090:1,A100-80GB:1", store=None, clock=None, text=TEXT, **values):
    workload = workload_of(text=text)
    request = BenchRequest(on=on, engine="slurm", **values)
    clock = clock or Ticking()
    store = store or RunStore(tmp_path / "runs.sqlite")
    return run_trials(
        workload, plan_of(workload), request, store,
        bench="bench-x-1", workload_file="outlay.toml", secrets={},
        progress=BenchContext(clock=clock, sleep=clock.sleep),
    )  # fmt: skip


def test_trials_run_at_once_and_are_given_back(engine, tmp_path):
    engine.together = threading.Barrier(2, timeout=20)
    trials = run(engine, tmp_path)
    assert [trial.state for trial in trials] == ["done", "done"]
    assert sorted(engine.deleted) == ["A100-80GB", "RTX 3090"]
    # 360 s at $1 and at $3 an hour.
    assert [trial.trial_cost_usd for trial in trials] == pytest.approx([0.10, 0.30])
    # 1000 steps of 0.1 s are 100 s: 100 / 3600 * $1.
    assert trials[0].usd_per_1000_iterations == pytest.approx(100 / 3600)
    assert Bench(id="x", trials=tuple(trials)).trial_cost_usd == pytest.approx(0.40)


def test_one_that_fails_hurts_no_other(engine, tmp_path):
    engine.failing = ("RTX 3090",)
    first, second = run(engine, tmp_path)
    assert (first.state, second.state) == ("failed", "done")
    assert first.reason == "RuntimeError: no such file: data.bin"
    assert first.trial_cost_usd == pytest.approx(0.01)  # 36 s at $1 an hour are paid all the same
    assert "RTX 3090" in engine.deleted


def test_one_that_is_refused_hurts_no_other(engine, tmp_path):
    engine.refused = ("A100-80GB",)
    first, second = run(engine, tmp_path)
    assert (first.state, second.state) == ("done", "failed")
    assert "no such GPU" in second.reason
    assert second.trial_cost_usd is None


def test_one_out_of_reach_hurts_no_other(engine, tmp_path, monkeypatch):
    def check(job):
        if job.machine.gpu == "A100-80GB":
            raise LaunchFailed("box cannot be reached by ssh.")

    monkeypatch.setattr(engine, "check", check)
    first, second = run(engine, tmp_path)
    assert (first.state, second.state) == ("done", "failed")
    assert (second.run, second.reason) == (None, "box cannot be reached by ssh.")


def test_a_share_that_pays_for_no_time_hurts_no_other(engine, tmp_path):
    # $0.0005 is 1.8 s at $1 an hour, and 0.6 s at $3: less than the second it is billed in.
    first, second = run(engine, tmp_path, each_usd=0.0005)
    assert (first.state, second.state) == ("done", "failed")
    assert "pays for no time" in second.reason
    assert engine.submitted == ["RTX 3090"]


def test_a_command_that_was_mended_is_tried_anew(engine, tmp_path):
    engine.failing = ("RTX 3090",)
    run(engine, tmp_path)
    engine.failing = ()
    mended = TEXT.replace("train.py", "mended.py")
    (first,) = run(engine, tmp_path, on="RTX 3090:1", text=mended)
    assert first.state == "done"
    assert sorted(engine.submitted) == ["A100-80GB", "RTX 3090", "RTX 3090"]


def test_one_without_a_step_says_so(engine, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "a_measurement", lambda _, make=a_measurement: make(step_s=None))
    (trial,) = run(engine, tmp_path, on="RTX 3090:1")
    assert (trial.state, trial.reason) == ("failed", "no training step was seen")


def test_what_was_refused_is_tried_again_and_what_ran_is_not(engine, tmp_path):
    engine.refused = ("A100-80GB",)
    run(engine, tmp_path)
    engine.refused = ()
    first, second = run(engine, tmp_path)
    assert (first.state, second.state) == ("done", "done")
    assert engine.submitted == ["RTX 3090", "A100-80GB"]


def test_a_machine_nobody_answers_for_is_given_up_after_its_time(engine, tmp_path):
    engine.silent = ("RTX 3090",)
    clock = Ticking()
    first, second = run(engine, tmp_path, longest_s=600.0, clock=clock)
    assert (first.state, second.state) == ("failed", "done")
    assert 1000 + 600 + 900 < clock.now_s < 1000 + 600 + 900 + 60


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("step", range(1, 30))
def test_killed_at_any_step_it_goes_on_without_paying_twice(engine, tmp_path, monkeypatch, step):
    store = RunStore(tmp_path / "runs.sqlite")
    calls = 0

    def counted(name):
        original = getattr(RunStore, name)

        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == step:
                raise Killed
            result = original(*args, **kwargs)
            calls += 1
            if calls == step:
                raise Killed
            return result

        monkeypatch.setattr(RunStore, name, call)

    with monkeypatch.context() as patched:
        monkeypatch = patched
        for name in ("add", "change"):
            counted(name)
        try:
            run(engine, tmp_path, store=store)
            assert calls < step
        except Killed:
            pass
    trials = run(engine, tmp_path, store=store)
    assert [trial.state for trial in trials] == ["done", "done"]
    assert sorted(engine.submitted) == ["A100-80GB", "RTX 3090"]
    assert len(store.runs()) == 2


def test_trials_of_one_host_come_one_after_the_other(engine, tmp_path):
    engine.name = "ssh"
    workload = workload_of("""
[[run.host]]
address = "box"
gpu = "RTX 3090:1"
[[run.host]]
address = "big"
gpu = "A100-80GB:1"
[[run.host]]
address = "small"
gpu = "T4:1"
""")
    request = BenchRequest(on="RTX 3090:1,A100-80GB:1,T4:1", engine="ssh")
    workload = replace(
        workload,
        run=replace(
            workload.run, hosts=tuple(replace(host, address="box") for host in workload.run.hosts)
        ),
    )
    clock = Ticking()
    trials = run_trials(
        workload, plan_of(workload), request, RunStore(tmp_path / "runs.sqlite"),
        bench="bench-x-1", workload_file="f", secrets={},
        progress=BenchContext(clock=clock, sleep=clock.sleep),
    )  # fmt: skip
    assert [trial.state for trial in trials] == ["done"] * 3
    assert engine.most_at_once == 1


# Caps


def candidates(on="RTX 3090:1,A100-80GB:1"):
    workload = workload_of()
    return trial_machines(on, plan_of(workload), workload.run, "slurm")


def test_one_cap_over_all_is_never_passed():
    # $1 and $3 an hour: $2 pay for half an hour of both, $0.50 and $1.50.
    shares = allowances(candidates(), BenchRequest(on="", cap_usd=2.0, training_s=7200.0))
    assert shares == [(pytest.approx(0.5), 1800.0), (pytest.approx(1.5), 1800.0)]


def test_each_trial_has_a_cap_of_its_own():
    # $0.60 each: 36 minutes at $1, 12 at $3.
    shares = allowances(candidates(), BenchRequest(on="", each_usd=0.6, training_s=7200.0))
    assert shares == [
        (pytest.approx(0.6), pytest.approx(2160.0)),
        (pytest.approx(0.6), pytest.approx(720.0)),
    ]


def test_what_was_spent_before_is_off_the_cap():
    shares = allowances(candidates(), BenchRequest(on="", cap_usd=2.0), spent_usd=2.0)
    assert [money for money, _ in shares] == [0.0, 0.0]


def test_no_cap_is_the_time_alone():
    request = BenchRequest(on="", training_s=600.0)
    assert [held_s for _, held_s in allowances(candidates(), request)] == [2400.0, 2400.0]


T4 = 'gpu = "T4"\nprice_per_hour = 0.5'


def test_spot_is_tried_where_nothing_else_is_sold():
    workload = workload_of(text=TEXT.replace(T4, 'gpu = "T4"\nspot_per_hour = 0.5'))
    (found,) = trial_machines("T4:1", plan_of(workload), workload.run, "slurm")
    assert found.option.tenancy == "spot"


def test_a_cap_needs_prices():
    workload = workload_of(text=TEXT.replace(T4, 'gpu = "T4"'))
    found = trial_machines("T4:1", plan_of(workload), workload.run, "slurm")
    assert found[0].price_usd_per_hour is None
    with pytest.raises(InputError, match="price is not known"):
        allowances(found, BenchRequest(on="", cap_usd=2.0))
    assert allowances(found, BenchRequest(on="", cap_usd=2.0, price_usd_per_hour=4.0)) == [
        (pytest.approx(2.0), 1800.0)  # $2 at $4 an hour
    ]


# Candidates and their jobs


def test_an_unknown_gpu_is_said_before_anything_is_spent():
    with pytest.raises(InputError, match="RTX 3091"):
        candidates("RTX 3091:2")


@pytest.mark.parametrize("text", ["", " , ", "RTX 3090:0", "RTX 3090:x", ":4"])
def test_a_list_that_is_none(text):
    with pytest.raises(InputError):
        candidates(text)


def test_a_machine_nobody_sells_is_no_trial():
    found = candidates("RTX 3090:7")
    assert found[0].why_not == "no offer has 7x RTX 3090 on which the step fits"


def test_hosts_are_found_by_what_they_have():
    workload = workload_of('[[run.host]]\naddress = "me@box"\ngpu = "rtx3090:2"\n')
    plan = plan_of(workload)
    found = trial_machines("RTX 3090:1,T4:1", plan, workload.run, "ssh")
    assert [one.host for one in found] == ["me@box", ""]
    assert found[1].why_not == "no [[run.host]] says that it has 1x T4"


def test_a_cap_is_kept_at_what_machines_really_cost():
    workload = workload_of(
        '[[run.host]]\naddress = "me@box"\ngpu = "RTX 3090"\nprice_per_hour = 2.0\n'
        "[run.slurm]\nprice_per_gpu_hour = 0.25\n"
    )
    plan = plan_of(workload)
    for engine, usd in (("ssh", 2.0), ("slurm", 0.25), ("skypilot", None)):
        (found,) = trial_machines("RTX 3090:1", plan, workload.run, engine)
        if usd is not None:
            assert found.price_usd_per_hour == usd
            # $1 pays for half an hour at $2, and for four at $0.25.
            request = BenchRequest(on="", cap_usd=1.0, longest_s=36_000)
            assert allowances([found], request) == [(1.0, 3600 / usd)]


def test_this_machine_has_what_it_has():
    workload = workload_of()
    found = trial_machines(
        "T4:1,RTX 3090:1", plan_of(workload), workload.run, "local", ["Tesla T4"]
    )
    assert [one.why_not for one in found] == ["", "this machine has 1x Tesla T4"]


def job_of(more="", request=None, text=TEXT):
    workload = workload_of(more, text)
    plan = plan_of(workload)
    request = request or BenchRequest(on="RTX 3090:1", engine="slurm")
    candidate = trial_machines("RTX 3090:1", plan, workload.run, "slurm")[0]
    return trial_job(workload, plan, candidate, request, "slurm", (0.5, 1800.0)), workload


def test_a_trial_searches_for_the_batch_and_carries_its_caps():
    job, _ = job_of()
    assert job.command == (
        "outlay probe --no-keep --find-batch batch --then-probe 600s --price 1 --max-cost 0.5 "
        "--json \"$OUTLAY_RESULTS/probe.json\" -- sh -c 'python train.py --batch-size {batch}'"
    )
    assert (job.kind, job.budget_usd, job.longest_s) == ("trial", 0.5, 1800.0)
    assert not job.watch.agent


def test_a_batch_that_is_said_is_not_searched_for():
    request = BenchRequest(on="RTX 3090:1", batch_size=32, steps=1000)
    job, _ = job_of(request=request)
    assert job.command == (
        "outlay probe --no-keep --steps 1000 --price 1 --max-cost 0.5 "
        "--json \"$OUTLAY_RESULTS/probe.json\" -- sh -c 'python train.py --batch-size 32'"
    )


def test_the_largest_batch_wanted_bounds_the_search():
    text = TEXT.replace('profile = "resnet50"', 'profile = "resnet50"\nmax_batch_size = 64')
    job, _ = job_of(text=text)
    assert "--largest 64" in job.command


def test_a_trial_needs_outlay_there():
    with pytest.raises(InputError, match="exclude each other"):
        job_of('outlay = "none"\n')


def test_several_gpus_are_started_by_torchrun():
    text = TEXT.replace('gpu = "RTX 3090"', 'gpu = "RTX 3090"\ngpus = 4')
    workload = workload_of(text=text)
    plan = plan_of(workload)
    candidate = trial_machines("RTX 3090:4", plan, workload.run, "slurm")[0]
    request = BenchRequest(on="")
    job = trial_job(workload, plan, candidate, request, "slurm", (None, 60.0))
    assert "torchrun --standalone --nproc-per-node 4 train.py" in probe_line(
        job, workload, workload.run, request, None
    )


def test_the_engine_is_what_the_file_has_settings_of():
    request = BenchRequest(on="")
    assert engine_for(request, workload_of().run) == "skypilot"
    assert engine_for(request, workload_of('[run.slurm]\npartition = "gpu"\n').run) == "slurm"
    assert engine_for(request, workload_of('[[run.host]]\naddress = "box"\n').run) == "ssh"
    assert engine_for(request, workload_of('engine = "local"\n').run) == "local"


# What they say


def test_the_plan_takes_what_was_measured_on_the_gpu_alone(engine, tmp_path):
    trials = run(engine, tmp_path)
    on_cpu = replace(trials[1], measurement=a_measurement(gpu=""))
    taken = []

    def planned(files):
        taken.append(files)
        return plan_of(workload_of())

    bench = with_plan(Bench(id="x", trials=(trials[0], on_cpu)), planned)
    assert taken == [(trials[0].file,)]
    assert bench.files == (trials[0].file,)
    assert bench.notes == ("1x A100-80GB was measured on a CPU: not used in the plan.",)
    assert bench.trials[0].option.offer.gpu == "RTX 3090"


def test_measurements_of_another_step_do_not_lose_what_was_paid_for(engine, tmp_path):
    bench = Bench(id="x", trials=tuple(run(engine, tmp_path)))

    def planned(files):
        if files:
            raise InputError("probe.json is of another step.", why="It has more parameters.")
        return plan_of(workload_of())

    bench = with_plan(bench, planned)
    assert bench.plan.options
    assert [trial.option for trial in bench.trials] == [None, None]
    (note,) = bench.notes
    assert note == (
        "The plan is without what was measured: probe.json is of another step. It has more "
        "parameters."
    )
    assert [trial.step_time_s for trial in bench.trials] == [0.1, 0.1]


def test_a_trial_ended_at_its_money_is_capped(engine, tmp_path):
    (trial,) = run(engine, tmp_path, on="RTX 3090:1")
    record = RunStore(tmp_path / "runs.sqlite").get(trial.run)
    plain = BenchTrial(gpu="RTX 3090", gpus=1, state="failed")
    over = replace(record, state="stopped", reason="budget: $0.50 would be passed")
    assert bench_module.trial_of(over, plain).state == "capped"
    timed_out = replace(record, state="failed", exit_status=124)
    assert bench_module.trial_of(timed_out, plain).state == "capped"


def test_the_same_question_is_the_same_bench(tmp_path):
    store = RunStore(tmp_path / "runs.sqlite")
    first = bench_id(store, "a.toml", "T4:1")
    assert first == bench_id(store, "a.toml", "T4:1")
    assert first != bench_id(store, "a.toml", "T4:2")
    assert first == bench_id(store, "a.toml", "T4:1", again=True)  # there was none yet
    job, _ = job_of()
    store.add(job, "job.sh", "", at_s=1.0, bench=first)
    assert first == bench_id(store, "a.toml", "T4:1")
    second = bench_id(store, "a.toml", "T4:1", again=True)
    assert second != first
    store.add(replace(job, id="other-1"), "job.sh", "", at_s=2.0, bench=second)
    assert second == bench_id(store, "a.toml", "T4:1")


def test_trials_that_pay_for_themselves(monkeypatch):
    plan = plan_of(workload_of())
    first, second = plan.options[0], plan.options[1]
    value = bench_module.TrialValue(
        first=first, second=second, cost_usd=1.0, gain_usd=5.0, second_wins=0.4
    )
    monkeypatch.setattr(bench_module, "trial_value", lambda _: value)
    one, other = (f"{option.offer.gpu}:{option.offer.gpus}" for option in (first, second))
    assert worth_trying(plan, ())[0] == f"{one},{other}"
    assert worth_trying(plan, [(first.offer.gpu, 1)])[0] == other
    assert worth_trying(plan, [(first.offer.gpu, 1), (second.offer.gpu, 1)]) is None
    monkeypatch.setattr(bench_module, "trial_value", lambda _: replace(value, gain_usd=0.5))
    assert worth_trying(plan, ()) is None


def test_the_document_has_the_contract(engine, tmp_path):
    from outlay.files import to_json
    from outlay.report.bench_report import bench_document

    bench = with_plan(
        Bench(id="x", trials=tuple(run(engine, tmp_path))), lambda _: plan_of(workload_of())
    )
    document = to_json(bench_document(bench, "bench"))
    json.dumps(document)
    assert document["schema"] == 1
    for trial in document["trials"]:
        assert {
            "gpu", "gpus", "state", "batch_size", "step_time_s", "samples_per_s",
            "usd_per_1000_iterations", "trial_cost_usd", "reason",
        } <= set(trial)  # fmt: skip
    assert document["trials"][0]["samples_per_s"] == pytest.approx(80.0)  # 8 in 0.1 s
    assert document["plan"]["options"]
