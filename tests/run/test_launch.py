"""From an option of a plan to a run, and what becomes of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from outlay.errors import InputError, LaunchFailed, NoOption
from outlay.plan.pipeline import plan_workload
from outlay.run import launch as launching
from outlay.run.engine import EngineState, JobFile
from outlay.run.host_engine import HostEngine
from outlay.run.job import NOTIFY_VARIABLE, Job, JobMachine
from outlay.run.launch import (
    LaunchRequest,
    as_run_there,
    fetch,
    given_up,
    held_cost_usd,
    is_same_work,
    job_for,
    kept_path,
    launch,
    launch_notes,
    longest_s,
    parse_machine,
    recovered,
    secrets_of,
    stop,
    submitted,
    unfinished,
    updated,
    with_addresses,
    with_id,
    write_draft,
)
from outlay.run.run_folder import job_json
from outlay.run.run_store import RunStore
from outlay.run.shell import HereShell
from outlay.run.skypilot import candidates
from outlay.workload.file import parse_workload, read_workload

TEXT = """\
name = "tiny"
[step]
profile = "resnet50"
batch_size = 32
[length]
iterations = 100_000
[limits]
budget = 100
[consider]
bundled = false
[[offer]]
provider = "friend"
instance = "one"
gpu = "RTX 3090"
price_per_hour = 0.6
[[offer]]
provider = "lab"
instance = "eight"
gpu = "A100-80GB"
gpus = 8
price_per_hour = 12
"""
RUN = """
[run]
command = "python train.py --batch-size {batch} --out {checkpoints}"
resume = ["python", "train.py", "--resume", "{checkpoints}"]
checkpoints = "out"
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A workload with two offers, and its plan."""

    def read(more: str = RUN):
        path = tmp_path_factory.mktemp("w") / "tiny.toml"
        path.write_text(TEXT + more)
        return read_workload(path)

    return read, plan_workload(read(), today="2026-11-15")


def made(planned, request: LaunchRequest, more: str = RUN) -> Job:
    read, plan = planned
    return job_for(read(more), plan, request, "tiny.toml")


# What is launched


def test_a_job_of_an_option_has_its_machine_price_and_limits(planned):
    job = made(planned, LaunchRequest(on="lab", engine="slurm"))
    assert (job.machine.provider, job.machine.gpus, job.machine.machines) == ("lab", 8, 1)
    assert job.machine.price_usd_per_hour == 12
    assert job.batch_size == 32
    assert job.command.startswith("torchrun --standalone --nproc-per-node 8 train.py")
    assert job.command.endswith("--batch-size 32 --out out")
    assert job.resume == "torchrun --standalone --nproc-per-node 8 train.py --resume out"
    # What the budget of 100 dollars pays for at 12 dollars an hour: 8.33 h, less what is kept
    # back for storage.
    assert job.longest_s == pytest.approx(job.budget_usd / 12 * 3600, abs=1)
    assert 0 < job.budget_usd <= 100
    assert job.cost_usd.low <= job.cost_usd.likely <= job.cost_usd.high


def test_local_runs_here_whatever_was_chosen(planned):
    job = made(planned, LaunchRequest(on="lab", engine="local"))
    assert job.command.startswith("python train.py")
    assert job.machine.price_usd_per_hour == 12
    two = made(planned, LaunchRequest(on="lab", engine="local", gpus_here=("T4", "T4")))
    assert two.command.startswith("torchrun --standalone --nproc-per-node 2 train.py")


def test_what_is_known_to_be_there_is_what_is_priced(planned):
    here = LaunchRequest(engine="local", gpus_here=("NVIDIA A100 80GB PCIe",) * 8)
    assert made(planned, here).machine.provider == "lab"
    host = RUN + '[[run.host]]\naddress = "me@box"\ngpu = "A100-80GB:8"\nprice_per_hour = 9\n'
    job = made(planned, LaunchRequest(), host)
    assert (job.engine, job.machine.host, job.machine.provider) == ("ssh", "me@box", "lab")
    assert job.machine.price_usd_per_hour == 9
    # Nine dollars for every hour of the expected time.
    assert job.cost_usd.likely == pytest.approx(job.run_time_s.likely / 3600 * 9)


def test_a_price_that_is_said_is_the_one_of_the_limits(planned):
    job = made(
        planned, LaunchRequest(on="lab", engine="local", price_usd_per_hour=50, budget_usd=10)
    )
    assert job.longest_s == 720  # 10 / 50 h
    free = made(planned, LaunchRequest(on="lab", engine="local", price_usd_per_hour=0))
    assert free.longest_s is None
    assert free.cost_usd.likely == 0


def test_the_best_on_a_cloud_is_the_best_that_skypilot_rents(tmp_path):
    path = tmp_path / "tiny.toml"
    cheap = '[[offer]]\nprovider = "hyperstack"\ngpu = "RTX 3090"\nprice_per_hour = 0.1\n'
    rented = (
        '[[offer]]\nprovider = "lambda"\ngpu = "A10"\nregion = "us-east-1"\nprice_per_hour = 1\n'
    )
    path.write_text(TEXT.partition("[[offer]]")[0] + cheap + rented + RUN)
    workload = read_workload(path)
    plan = plan_workload(workload, today="2026-11-15")
    assert plan.chosen.offer.provider == "hyperstack"
    request = LaunchRequest(engine="skypilot")
    job = job_for(workload, plan, request)
    assert job.machine.provider == "lambda"
    notes = " ".join(launch_notes(job, workload, plan, request))
    assert "SkyPilot does not rent" in notes
    named = job_for(workload, plan, LaunchRequest(engine="skypilot", on="hyperstack"))
    assert named.machine.provider == "hyperstack"  # the engine says why it cannot


def test_it_is_said_to_go_only_where_its_task_can(tmp_path):
    offer = '[[offer]]\nprovider = "{}"\ngpu = "{}"\nprice_per_hour = {}\n'
    # Of these five RunPod alone cannot mount a bucket, and would have taken the first four places.
    cheap = [offer.format("runpod", gpu, 1.1) for gpu in ("A40", "A5000", "L40", "RTX A6000")]
    text = offer.format("gcp", "L4", 1) + "".join(cheap) + offer.format("aws", "L4", 1.2)
    path = tmp_path / "tiny.toml"
    bucket = '[run.skypilot]\nbucket = "s3://mine"\n'
    path.write_text(TEXT.partition("[[offer]]")[0] + text + RUN + bucket)
    workload = read_workload(path)
    job = job_for(
        workload,
        plan_workload(workload, today="2026-11-15"),
        LaunchRequest(engine="skypilot", on="gcp"),
    )
    assert [machine.provider for machine in job.alternatives] == ["aws"]
    assert candidates(job) == (job.machine, *job.alternatives)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"on": "99"}, InputError, "'99'"),
        ({"on": "mars"}, InputError, "'mars'"),
        ({"engine": "ssh"}, InputError, "needs a host"),
        ({"engine": "ssh", "host": "-oProxyCommand=touch PWNED"}, InputError, "no address"),
        ({"engine": "ssh", "host": "a b"}, InputError, "no address"),
        ({"on": "lab", "engine": "local", "budget_usd": 1e-4}, NoOption, "pays for no time"),
    ],
)
def test_what_cannot_be_launched_is_said(planned, given, kind, said):
    with pytest.raises(kind, match=said):
        made(planned, LaunchRequest(**given))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "no \\[run\\] table"),
        ('[run]\ncommand = "x {bath}"', r"\{batch\}"),
        ('[run]\ncommand = "x"\nresume = "x {checkpoint}"', r"\{checkpoints\}"),
        ('[run]\ncommand = "x"\nfolder = "nowhere"', "nowhere"),
        ('[run]\ncommand = "x"\nsend = ["gone"]', r"gone of run\.send"),
    ],
)
def test_a_table_that_cannot_be_used_is_said(planned, table, said):
    with pytest.raises(InputError, match=said):
        made(planned, LaunchRequest(engine="local"), table)


def test_notes_say_what_to_know(planned):
    read, plan = planned

    def notes(request: LaunchRequest, more: str = RUN) -> str:
        workload = read(more)
        return " ".join(launch_notes(job_for(workload, plan, request), workload, plan, request))

    assert "no GPU that can be seen" in notes(LaunchRequest(engine="local"))
    assert "--price" not in notes(LaunchRequest(engine="local", price_usd_per_hour=1))
    assert "Nothing is brought back" in notes(LaunchRequest(on="lab", engine="slurm"))
    script = '[run]\ncommand = "./train.sh"\n'
    assert "{python}" in notes(LaunchRequest(on="lab", engine="slurm"), script)
    assert "{python}" not in notes(LaunchRequest(on="lab", engine="slurm"))
    one = script + 'processes = "one"\n'
    assert "{python}" not in notes(LaunchRequest(on="lab", engine="slurm"), one)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("", "Which GPUs me@box has is not said"),
        ('gpu = "RTX 3090"', "What me@box costs is not said: the price is that of 1x RTX 3090"),
        ('gpu = "RTX 3090"\nprice_per_hour = 0.2', ""),
    ],
)
def test_what_a_host_is_priced_as_is_said(planned, host, said):
    read, plan = planned
    workload = read(f'{RUN}fetch = ["out"]\n[[run.host]]\naddress = "me@box"\n{host}\n')
    request = LaunchRequest(engine="ssh")
    job = job_for(workload, plan, request, "tiny.toml")
    notes = " ".join(launch_notes(job, workload, plan, request))
    assert said in notes
    assert bool(said) == ("me@box" in notes)


@pytest.mark.parametrize(
    ("text", "machine"),
    [("RTX 3090:8", ("RTX 3090", 8)), ("RTX 3090", ("RTX 3090", 1)), (" T4 : 2", ("T4", 2))],
)
def test_machines_are_read(text, machine):
    assert parse_machine(text) == machine


@pytest.mark.parametrize("text", ["T4:0", "T4:x", ":2", "T4:", "T4:-1"])
def test_machines_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="RTX 3090:8"):
        parse_machine(text)


# Money and time


def test_held_time_is_billed_in_steps():
    hourly = JobMachine(price_usd_per_hour=2.0, billing_step_s=3600.0)
    assert held_cost_usd(hourly, 0.0) == 0
    assert held_cost_usd(hourly, 1.0) == 2  # an hour begun
    assert held_cost_usd(hourly, 3600.0) == 2
    assert held_cost_usd(hourly, 3601.0) == 4
    minute = JobMachine(price_usd_per_hour=60.0, billing_minimum_s=600.0)
    assert held_cost_usd(minute, 5.0) == pytest.approx(10)  # ten minutes at a dollar
    assert held_cost_usd(JobMachine(), 5.0) is None


def test_the_longest_time_is_what_budget_and_deadline_allow():
    machine = JobMachine(price_usd_per_hour=2.0, billing_step_s=3600.0)
    assert longest_s(machine, 5.0, None) == 7200  # 2.5 h, and the third hour is not paid for
    assert longest_s(machine, 5.0, 100.0) == 100
    assert longest_s(machine, None, None) is None
    assert longest_s(JobMachine(), 5.0, None) is None
    assert longest_s(replace(machine, price_usd_per_hour=0.0), 5.0, None) is None


# Submitting


@dataclass
class FakeEngine:
    """An engine that has what was submitted, and says what it is told to."""

    name: str = "local"
    has: dict[str, str] = field(default_factory=dict)
    submissions: list[dict[str, str]] = field(default_factory=list)
    fails: Exception | None = None
    takes_it_before_failing: bool = False
    says: EngineState = field(default_factory=lambda: EngineState(state="running"))
    stops: bool = True

    def check(self, job):
        pass

    def submit(self, job, file, secrets):
        if self.fails is None or self.takes_it_before_failing:
            self.submissions.append(dict(secrets))
            self.has[job.id] = "somewhere"
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        return "somewhere"

    def find(self, job):
        return self.has.get(job.id)

    def state(self, job, handle):
        return self.says

    def stop(self, job, handle, *, grace_s):
        if self.stops:
            self.says = replace(self.says, state="stopped")

    def delete(self, job, handle):
        self.has.pop(job.id, None)


@pytest.fixture
def engine(monkeypatch):
    fake = FakeEngine()
    monkeypatch.setattr(launching, "engine_of", lambda _: fake)
    return fake


@pytest.fixture
def store(own_folder):
    with RunStore() as store:
        yield store


FILE = JobFile(name="job.sh", text="#!/bin/sh\n")


def a_job(run: str = "tiny-123456", **given) -> Job:
    machine = JobMachine(price_usd_per_hour=3.6)
    usual = {"id": run, "name": "tiny", "engine": "local", "command": "x", "machine": machine}
    return Job(**{**usual, **given})


def clock() -> float:
    return 10_000.0


def test_a_launch_is_written_down_at_every_step(store, engine):
    record = launch(a_job(), FILE, store, secrets={"K": "v"}, clock=clock, workload="/w.toml")
    assert (record.state, record.handle, record.submitted_s) == ("running", "somewhere", 10_000.0)
    assert engine.submissions == [{"K": "v"}]
    assert kept_path(record.job, "job.sh").read_text() == FILE.text
    assert [event.text for event in store.events(record.id)] == [
        "Submitted to local: somewhere",
        "running",
    ]


def test_a_submission_that_fails_says_so_and_can_be_gone_on_with(store, engine):
    engine.fails = LaunchFailed("No.", why="The password=hunter2222 is wrong, abcdefgh.")
    with pytest.raises(LaunchFailed, match="No"):
        launch(a_job(), FILE, store, secrets={"K": "abcdefgh"}, clock=clock, workload="/w.toml")
    record = store.get("last")
    assert record.state == "submitting"
    assert "The password" in record.reason
    for secret in ("hunter2222", "abcdefgh"):
        assert secret not in record.reason
        assert secret not in store.events(record.id)[0].text
    assert [each.id for each in unfinished(store, "/w.toml", "local")] == [record.id]
    assert unfinished(store, "/other.toml", "local") == []
    assert unfinished(store, "/w.toml", "ssh") == []
    assert submitted(store, record.id, secrets={}, clock=clock).state == "running"
    assert len(engine.submissions) == 1


def test_a_reply_that_is_lost_starts_nothing_twice(store, engine):
    engine.fails, engine.takes_it_before_failing = LaunchFailed("Timed out."), True
    with pytest.raises(LaunchFailed):
        launch(a_job(), FILE, store, secrets={}, clock=clock)
    assert recovered(store, "last", clock=clock).state == "running"
    assert submitted(store, store.get("last").id, secrets={}).state == "running"
    assert len(engine.submissions) == 1


def test_a_run_that_the_engine_never_got_is_planned_again_with_its_reason(store, engine):
    engine.fails = LaunchFailed("Its disk is full.")
    with pytest.raises(LaunchFailed):
        launch(a_job(), FILE, store, secrets={}, clock=clock)
    record = recovered(store, store.get("last").id, clock=clock)
    assert (record.state, record.reason) == ("planned", "Its disk is full.")
    # Nevertheless the engine is asked before it is submitted again.
    engine.has[record.id] = "somewhere"
    assert submitted(store, record.id, secrets={}).handle == "somewhere"
    assert engine.submissions == []


def test_one_that_is_being_submitted_is_left_alone(store, engine, monkeypatch):
    monkeypatch.setattr(launching, "_OTHERS_S", 0.2)
    store.add(a_job(), "job.sh", "", at_s=1.0, workload="/w.toml")
    store.change("tiny-123456", state="submitting", submitted_s=1.0)
    with RunStore(store.path) as other, other.submission("tiny-123456") as is_held:
        assert is_held
        assert recovered(store, "tiny-123456").state == "submitting"
        assert unfinished(store, "/w.toml", "local") == []
        with pytest.raises(LaunchFailed, match="another process"):
            submitted(store, "tiny-123456", secrets={})
    assert engine.submissions == []


def test_what_is_not_to_go_on_is_given_up_unless_it_runs(store, engine):
    for number, run in enumerate(("a-111111", "a-222222")):
        store.add(a_job(run), "job.sh", "", at_s=float(number))
        store.change(run, state="submitting", submitted_s=1.0)
    engine.has["a-111111"] = "somewhere"
    assert given_up(store, "a-111111", clock=clock).state == "running"
    record = given_up(store, "a-222222", clock=clock)
    assert (record.state, record.ended_s) == ("failed", 10_000.0)
    assert "never started" in record.reason


def test_the_same_work_is_told_from_another():
    job = a_job()
    assert is_same_work(job, replace(job, id="b-123456", cost_usd=None, longest_s=7.0))
    for changed in (
        {"command": "y"}, {"setup": ("x",)}, {"environment": (("A", "b"),)}, {"budget_usd": 1.0},
        {"machine": replace(job.machine, host="other")}, {"folder": "/x"},
    ):  # fmt: skip
        assert not is_same_work(job, replace(job, **changed))


# What becomes of it


def launched(store, engine, **says) -> str:
    engine.says = EngineState(**{"state": "running", "held_since_s": 9_000.0, **says})
    return launch(a_job(), FILE, store, secrets={}, clock=clock).id


def test_costs_grow_with_the_time_held(store, engine):
    run = launched(store, engine)
    assert store.get(run).cost_usd == pytest.approx(1.0)  # 1,000 s at 3.60 an hour
    engine.says = replace(engine.says, state="done", exit_status=0, ended_s=9_500.0)
    record = updated(store, run, clock=clock)
    assert (record.state, record.cost_usd) == ("done", pytest.approx(0.5))
    engine.says = EngineState(state="running")
    assert updated(store, run, clock=clock).state == "done"  # what is over stays so


def test_where_it_went_instead_costs_what_that_costs(store, engine):
    run = launched(store, engine, price_usd_per_hour=7.2)
    assert store.get(run).cost_usd == pytest.approx(2.0)  # 1,000 s at 7.20 an hour


def test_one_that_was_lost_is_asked_for_again(store, engine):
    run = launched(store, engine)
    engine.says = EngineState(state="lost", reason="not there")
    assert updated(store, run, clock=clock).ended_s == 10_000.0
    engine.says = EngineState(state="running", held_since_s=9_000.0)
    record = updated(store, run, clock=clock)
    assert (record.state, record.ended_s, record.has_ended) == ("running", None, False)


def test_stop_is_over_when_the_engine_says_so(store, engine):
    run = launched(store, engine)
    assert stop(store, run, clock=clock).state == "stopped"
    assert stop(store, run, clock=clock, delete=True).deleted_s == 10_000.0
    assert engine.has == {}


def test_a_stop_that_does_not_stop_is_an_error(store, engine, monkeypatch):
    monkeypatch.setattr(launching, "STOPS_S", 0.1)
    run = launched(store, engine)
    engine.stops = False
    with pytest.raises(LaunchFailed, match="still running") as caught:
        stop(store, run, clock=clock)
    assert "cost money" in caught.value.why
    assert not store.get(run).has_ended


def test_one_that_was_lost_is_stopped_all_the_same(store, engine):
    run = launched(store, engine)
    lost = EngineState(state="lost", reason="its machine is not well, and may still cost money")
    engine.says = lost
    assert updated(store, run, clock=clock).state == "lost"
    stop(store, run, clock=clock)
    assert engine.says.state == "stopped"


def test_what_never_began_is_stopped_without_an_engine(store, engine):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    assert stop(store, "tiny-123456", clock=clock).state == "stopped"
    store.change("tiny-123456", state="failed")
    assert stop(store, "tiny-123456", clock=clock).state == "failed"
    with pytest.raises(LaunchFailed, match="no results"):
        fetch(store, "tiny-123456")


# The engine's own file


def test_an_edited_file_gets_the_id_of_its_run():
    text = 'RUN="$HOME/.outlay/runs/tiny-aaaaaa"\n#SBATCH --job-name=outlay-tiny-aaaaaa\n'
    assert with_id(text, a_job()).count("tiny-123456") == 2
    assert "tiny-aaaaaa" not in with_id(text, a_job())
    for other in ("echo no id at all\n", "other-aaaaaa", ""):
        with pytest.raises(InputError, match="--save"):
            with_id(other, a_job())


def test_drafts_of_a_week_ago_go(own_folder):
    first = write_draft(a_job("a-111111"), FILE, now_s=time.time())
    assert first.read_text() == FILE.text
    second = write_draft(a_job("a-222222"), FILE, now_s=time.time() + 8 * 86_400)
    assert not first.exists()
    assert [path.name for path in second.parent.parent.iterdir()] == ["a-222222"]


def test_secrets_that_are_not_set_are_named():
    job = a_job(pass_on=("HF_TOKEN", "EMPTY"))
    assert secrets_of(job, {"HF_TOKEN": "x", "EMPTY": "", "OTHER": "y"}) == {
        "HF_TOKEN": "x",
        "EMPTY": "",
    }
    with pytest.raises(InputError, match="HF_TOKEN"):
        secrets_of(job, {})


def test_the_folder_of_a_job_is_absolute(planned):
    assert Path(made(planned, LaunchRequest(engine="local")).folder).is_absolute()


@pytest.mark.parametrize(
    ("engine", "more", "expected"),
    [
        ("local", "", 0.0),
        ("ssh", "", 0.0),
        ("slurm", "", None),
        ("skypilot", "", None),
        ("local", 'setup = ["pip install x"]\n', None),
    ],
)
def test_a_machine_that_is_there_is_not_waited_for(engine, more, expected):
    text = '[step]\nprofile = "resnet50"\n[length]\nsamples = 1\n[run]\ncommand = "a"\n' + more
    assert as_run_there(parse_workload(text), engine).usage.setup_s == expected


def test_set_up_that_is_stated_stays():
    text = '[step]\nprofile = "resnet50"\n[length]\nsamples = 1\n[usage]\nsetup = "5m"\n'
    workload = parse_workload(text + '[run]\ncommand = "a"\n')
    assert as_run_there(workload, "local").usage.setup_s == 300.0


def test_addresses_for_warnings_are_in_no_file(tmp_path):
    address = "slack://T123/B456/secret-789"
    text = (
        '[step]\nprofile = "resnet50"\n[length]\nsamples = 1000\n[consider]\nbundled = false\n'
        '[[offer]]\nprovider = "a"\ngpu = "T4"\nprice_per_hour = 1.0\n'
        f'[run]\ncommand = "a"\n[run.watch]\nnotify = ["{address}", "ntfy://x"]\n'
    )
    path = tmp_path / "outlay.toml"
    path.write_text(text)
    workload = read_workload(path)
    job = job_for(workload, plan_workload(workload), LaunchRequest(engine="local"))
    assert address.encode() not in job_json(job)
    assert address not in HostEngine(HereShell(), name="local").render(job).text
    environment = with_addresses({"A": "b"}, workload.run)
    assert secrets_of(job, environment) == {NOTIFY_VARIABLE: f"{address} ntfy://x"}
    assert secrets_of(job, {}) == {NOTIFY_VARIABLE: ""}  # gone on with from elsewhere
