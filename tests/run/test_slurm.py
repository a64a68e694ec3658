"""The engine slurm on a real cluster: launch, logs, stop, fetch, and all that can go wrong."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.run.jobs import Wrapper, ended, job, printed, submitted, submitted_until_killed
from tests.run.services import PrivateSlurm, PrivateSshd, wait_for

from outlay.errors import ExtraMissing, InputError, LaunchFailed
from outlay.run import slurm as slurm_module
from outlay.run.engine import EngineState
from outlay.run.job import Job, JobMachine, command_line
from outlay.run.run_folder import FolderState
from outlay.run.shell import CONFIG_VARIABLE, HereShell, ShellFailed, SshShell
from outlay.run.slurm import SlurmEngine, sbatch_lines, shown_job, slurm_state, time_limit_s
from outlay.uncertainty import Estimate
from outlay.workload.workload import SlurmSettings, WatchSettings

TYPES = SlurmSettings(gpu_types=(("A100-80GB", "a100"), ("RTX 3090", "rtx3090")))
DOWN = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2"
real_slurm = pytest.mark.service("slurm")


def slurm_job(gpu: str = "A100 80GB PCIe", *, machines: int = 1, gpus: int = 1, **given) -> Job:
    machine = JobMachine(gpu=gpu, gpus=gpus, machines=machines)
    return job(**{"engine": "slurm", "machine": machine, "slurm": TYPES, **given})


@pytest.fixture
def engine(slurm: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmEngine]:
    """The engine on the private cluster, whose queue is empty."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm_module, "_POLL_S", 0.1)
    yield SlurmEngine(HereShell(), waits_s=(0.01, 0.02))
    subprocess.run(["scancel", "--user=root", "--full", "--signal=KILL"], check=False)
    subprocess.run(["scancel", "--user=root"], check=False)


@pytest.fixture
def wrapped(tmp_path, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> dict[str, Wrapper]:
    """Slurm's commands, which do as they are told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    wrappers = {name: Wrapper(name, folder) for name in ("sbatch", "squeue", "scontrol", "scancel")}
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return wrappers


# On a real cluster


@real_slurm
def test_a_run_is_started_watched_and_brought_back(engine, slurm, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "$(touch ran) 'x'").write_text("sent")
    secret = "s3cr3t'$(id)\nsecond line"
    of = slurm_job(
        "RTX 3090",
        name='$(touch ran)\n#SBATCH --uid=0 "',
        command='cat *ran*; echo; echo $CUDA_VISIBLE_DEVICES $ODD; printf %s "$KEY" | sha256sum\n'
        "mkdir out && echo 1 > out/loss",
        folder=str(project),
        environment=(("ODD", "`touch ran`"),),
        pass_on=("KEY",),
        fetch=("out",),
    )

    engine.check(of)
    handle = submitted(engine, of, KEY=secret)
    state = ended(engine, of, handle)
    came = engine.fetch(of, handle, tmp_path / "here")

    assert (state.state, state.exit_status) == ("done", 0)
    assert abs(time.time() - state.held_since_s) < 60
    assert state.held_since_s <= state.ended_s
    digest = hashlib.sha256(secret.encode()).hexdigest()
    # The RTX 3090 is the second device of its node, hence index 1.
    assert engine.logs(of, handle).decode().split("\n")[:2] == ["sent", "1 `touch ran`"]
    assert digest in engine.logs(of, handle, offset=10).decode()
    assert came == [tmp_path / "here/out/loss"]
    assert not list(slurm.runs.rglob("ran"))
    found = subprocess.run(["grep", "-rl", "s3cr3t", str(slurm.runs)], capture_output=True)
    assert found.stdout == b""
    assert "s3cr3t" not in slurm.command("scontrol", "show", "job", handle)


@real_slurm
def test_two_machines_get_their_ranks_and_are_stopped_with_time_to_save(engine, slurm):
    saving = "trap 'echo saved $OUTLAY_NODE_RANK; exit 0' TERM; while :; do sleep 0.1; done"
    shown = "echo $OUTLAY_NODE_RANK $OUTLAY_HEAD_ADDRESS $CUDA_VISIBLE_DEVICES"
    setup = 'sleep 0.$((5 - OUTLAY_NODE_RANK * 5)); echo "set up $OUTLAY_NODE_RANK"'
    of = slurm_job(machines=2, setup=(setup,), command=f"{shown}; {saving}")

    engine.check(of)
    handle = submitted(engine, of)
    for rank in (b"0", b"1"):
        printed(engine, of, handle, rank + b" 127.0.0.1 0\n")  # the A100 is device 0 on both
    running = engine.state(of, handle)
    engine.stop(of, handle, grace_s=20)

    assert (running.state, running.reason) == ("running", "on one,two")
    assert engine.state(of, handle).state == "stopped"
    log = engine.logs(of, handle)
    assert log.index(b"set up 0") < log.index(b"set up 1")  # they share the folder
    assert b"saved 0" in log
    assert b"saved 1" in log
    assert slurm.command("squeue", "--noheader") == ""


TRAIN = """\
import torch, torch.distributed as group
group.init_process_group("gloo")
total = torch.tensor([group.get_rank() + 1.0])
group.all_reduce(total)
print("rank", group.get_rank(), "of", group.get_world_size(), "sum", int(total), flush=True)
group.destroy_process_group()
"""


@real_slurm
@pytest.mark.torch
def test_torchrun_brings_the_processes_of_two_machines_together(engine, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    machine = JobMachine(gpu="A100 80GB PCIe", gpus=1, machines=2)
    of = slurm_job(
        machines=2,
        command=command_line(f"{sys.executable} train.py", machine, batch_size=1),
        folder=str(tmp_path),
        environment=(("OMP_NUM_THREADS", "1"), ("GLOO_SOCKET_IFNAME", "lo")),
    )

    handle = submitted(engine, of)
    state = ended(engine, of, handle, within_s=90)

    log = engine.logs(of, handle).decode()
    assert (state.state, log.count("of 2 sum 3")) == ("done", 2), log  # 1 + 2 = 3, on both


@real_slurm
def test_a_guarded_run_saves_when_it_is_stopped(engine, slurm):
    # The guard sends the signal to save to a script that has a handler for it, and then ends it.
    script = (
        "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('saved', flush=1))"
    )
    loop = "print('up', flush=True)\nwhile True: time.sleep(0.1)"
    code = shlex.quote(f"{script}\n{loop}")
    of = slurm_job(
        command=f"{sys.executable} -c {code}",
        outlay="",
        watch=WatchSettings(grace_s=1.0, agent=False),
    )

    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    engine.stop(of, handle, grace_s=30)
    state = engine.state(of, handle)

    log = engine.logs(of, handle).decode()
    assert state.state == "stopped", state
    assert log.count("saved") == 1, log
    assert state.status["run"] == of.id


@real_slurm
def test_a_run_that_does_not_listen_is_cancelled(engine):
    of = slurm_job(command="trap '' TERM USR1; echo up; while :; do sleep 0.1; done")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")

    engine.stop(of, handle, grace_s=0.3)

    assert engine.state(of, handle).state == "stopped"


@real_slurm
def test_a_failure_has_its_status_and_set_up_may_fail(engine):
    failing = slurm_job(command="echo before; exit 7")
    bad = slurm_job("RTX 3090", setup=("echo one", "false", "echo two"))

    handles = [submitted(engine, of) for of in (failing, bad)]
    states = [ended(engine, of, at) for of, at in zip((failing, bad), handles, strict=True)]

    assert [state.state for state in states] == ["failed", "failed"]
    assert [state.exit_status for state in states] == [7, 1]
    assert states[0].reason == "exit status 7"
    assert engine.logs(bad, handles[1]) == b"one\n"


@real_slurm
def test_a_run_waits_for_machines_and_is_stopped_before_it_has_any(engine, slurm):
    slurm.command("sbatch", "--output=/dev/null", "--gres=gpu:a100:1", "-N2", "--wrap=sleep 600")
    wait_for(lambda: "RUNNING" in slurm.command("squeue", "--noheader", "--format=%T"))
    of = slurm_job()

    handle = submitted(engine, of)
    wait_for(lambda: engine.state(of, handle).reason != "")
    waiting = engine.state(of, handle)
    engine.stop(of, handle, grace_s=20)
    state = engine.state(of, handle)

    assert (waiting.state, waiting.reason) == ("queued", "waits for free machines")
    assert waiting.held_since_s is None
    assert (state.state, state.held_since_s) == ("stopped", None)


@real_slurm
def test_a_job_put_back_into_the_queue_resumes_from_its_checkpoints(engine, slurm):
    of = slurm_job(
        command="echo first; touch points/1; sleep 600",
        resume="echo resumed",
        checkpoints="points",
    )
    handle = submitted(engine, of)
    printed(engine, of, handle, b"first")

    slurm.command("scontrol", "requeue", handle)
    requeued_s = time.monotonic()
    seen: list[EngineState] = []

    def is_over() -> bool:
        seen.append(engine.state(of, handle))
        # Slurm lets it wait for two minutes; what it revoked within a second it does not start.
        if "its time to begin" in seen[-1].reason and time.monotonic() > requeued_s + 2:
            slurm.command("scontrol", "update", f"JobId={handle}", "StartTime=now")
        return seen[-1].state == "done"

    wait_for(is_over, what="the second start")

    assert "queued" in {state.state for state in seen}
    assert any("put back into the queue" in state.reason for state in seen)
    assert b"resumed" in engine.logs(of, handle)
    assert engine.logs(of, handle).count(b"first") == 1
    assert slurm.jobs(name=of.engine_name) == [handle]


@real_slurm
def test_slurm_accepts_what_is_rendered(engine):
    limited = replace(TYPES, partition="main", options=("--mem=1000", "--cpus-per-gpu=2"))
    for of in (
        slurm_job(),
        slurm_job(machines=2, longest_s=7200.0),
        slurm_job(slurm=limited, longest_s=200_000.0),
        slurm_job(slurm=replace(TYPES, time_s=30.0)),
        slurm_job("", slurm=SlurmSettings()),
        slurm_job("", gpus=2, machines=2, slurm=SlurmSettings()),
    ):
        engine.check(of)


@real_slurm
def test_what_slurm_cannot_give_is_said_before_anything_is_sent(engine, slurm):
    with pytest.raises(LaunchFailed, match="Requested node configuration is not available"):
        engine.check(slurm_job(gpus=8))
    with pytest.raises(LaunchFailed, match="[Ii]nvalid partition"):
        engine.check(slurm_job(slurm=replace(TYPES, partition="nowhere")))
    with pytest.raises(InputError, match="GPUs of several types") as raised:
        engine.check(slurm_job("H100 SXM"))

    assert "Slurm calls them a100, rtx3090" in raised.value.why
    assert '{"H100 SXM" = "a100"}' in raised.value.fix


@real_slurm
def test_a_job_that_slurm_has_forgotten_is_known_by_its_folder(engine):
    of, never = slurm_job(command="exit 3"), slurm_job()
    other = slurm_job("RTX 3090", command="sleep 600")
    ended(engine, of, submitted(engine, of))

    state = engine.state(of, "999999")

    assert (state.state, state.exit_status) == ("failed", 3)
    assert engine.state(never, "999999").state == "lost"
    assert engine.state(of, submitted(engine, other)) == state  # another's job of that number


# Submitting once


@real_slurm
@pytest.mark.parametrize(
    "fault",
    [
        'real "$@" > /dev/null; exit 1',
        'real "$@" > /dev/null; echo "sbatch: error: Socket timed out on send/recv" >&2; exit 1',
        'real "$@" > /dev/null; echo half of it; exit 0',
        'real "$@" > /dev/null; kill -9 $PPID; exit 1',
    ],
    ids=["fails after it", "times out after it", "half a reply", "killed after it"],
)
def test_a_job_whose_number_was_lost_is_found_again(engine, slurm, wrapped, fault):
    of = slurm_job(command="echo once; sleep 600")
    wrapped["sbatch"].does(fault, when="[ $calls -eq 0 ]")

    try:
        handle = submitted(engine, of)
    except LaunchFailed:
        handle = submitted(engine, of)

    assert slurm.jobs(name=of.engine_name) == [handle]
    assert engine.find(of) == handle
    assert submitted(engine, of) == handle


@real_slurm
def test_a_job_is_found_by_its_name_where_its_folder_does_not_say(engine, slurm):
    of = slurm_job(command="sleep 600")
    assert engine.find(of) is None
    handle = submitted(engine, of)

    (slurm.runs / of.id / "slurm-id").unlink()

    assert engine.find(of) == handle


@real_slurm
def test_two_submissions_at_once_make_one_job(engine, slurm, wrapped):
    of = slurm_job(command="echo once; sleep 600")
    wrapped["sbatch"].does("sleep 0.5")
    handles: list[str] = []

    threads = [
        threading.Thread(target=lambda: handles.append(submitted(engine, of))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(handles) == 3
    assert len(set(handles)) == 1
    assert slurm.jobs(name=of.engine_name) == [handles[0]]


@real_slurm
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_step_nothing_is_lost_or_submitted_twice(
    engine, slurm, tmp_path, monkeypatch, moment
):
    wrapper = Wrapper("sh", tmp_path)  # every step of ours is a command of sh
    path = os.environ["PATH"]
    jobs = []
    for step in range(9):
        of = slurm_job("", command="echo once; sleep 600", slurm=SlurmSettings())
        does = "kill -9 $PPID; exit 1" if moment == "before" else 'real "$@"; kill -9 $PPID; exit 1'
        wrapper.does(does, when=f"[ $calls -eq {step} ]")
        monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
        if submitted_until_killed(engine, of):
            break
        jobs.append(of)
        monkeypatch.setenv("PATH", path)
        found = engine.find(of)
        handle = submitted(engine, of)
        assert found in (None, handle)
        assert slurm.jobs(name=of.engine_name) == [handle]

    wrapper.does("")
    assert len(jobs) >= 5  # to look for it, two files, what is sent, to submit it


@real_slurm
def test_a_submission_that_was_killed_does_not_stand_in_the_way(engine, slurm):
    of = slurm_job()
    lock = slurm.runs / of.id / "submitting"
    lock.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    uname = subprocess.run(["uname", "-n"], capture_output=True, text=True).stdout.strip()
    (lock / "holder").write_text(f"{uname} {gone.pid}\n")

    assert submitted(engine, of)
    assert not lock.exists()


# What can go wrong


@real_slurm
def test_every_command_of_slurm_may_fail_every_other_time(engine, slurm, wrapped):
    of = slurm_job(command="echo up; sleep 600")
    for wrapper in wrapped.values():
        wrapper.does(f"{DOWN}; exit 1", when="[ $((calls % 2)) -eq 0 ]")
    patient = replace(engine, waits_s=(0.01,) * 6)

    handle = submitted(patient, of)
    printed(patient, of, handle, b"up")
    patient.stop(of, handle, grace_s=20)

    assert patient.state(of, handle).state == "stopped"
    assert slurm.jobs(name=of.engine_name) == [handle]
    assert all(wrapper.count >= 2 for wrapper in wrapped.values())


FULL = "No space left on device' >&2; exit 1"


@real_slurm
@pytest.mark.parametrize("program", ["cat", "tar", "mkdir"])
def test_a_full_disk_there_is_told_and_nothing_is_submitted(
    engine, slurm, tmp_path, monkeypatch, program
):
    # A file, what is sent, and what keeps others away while it is submitted: each finds no room.
    wrapper = Wrapper(program, tmp_path)
    when = "true" if program != "mkdir" else '[ "$1" = submitting ]'
    wrapper.does(f"echo '{program}: {FULL}", when=when)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    of = slurm_job()

    with pytest.raises(LaunchFailed, match="Its disk is full") as raised:
        submitted(engine, of)
    nothing = slurm.jobs(name=of.engine_name)
    wrapper.does("")
    handle = submitted(engine, of)

    assert raised.value.fix.startswith("Make room there, then the same again: nothing is")
    assert nothing == []
    assert slurm.jobs(name=of.engine_name) == [handle]


@real_slurm
def test_a_job_whose_number_finds_no_room_is_submitted_all_the_same(
    engine, slurm, tmp_path, monkeypatch
):
    Wrapper("mv", tmp_path).does(f"echo 'mv: {FULL}", when='[ "$2" = slurm-id ]')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    of = slurm_job(command="sleep 600")

    assert submitted(engine, of) == submitted(engine, of)
    assert len(slurm.jobs(name=of.engine_name)) == 1


@pytest.fixture
def no_slurm(tmp_path, monkeypatch) -> SlurmEngine:
    """Commands of Slurm that find no cluster."""
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "runs"))
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sinfo"):
        Wrapper(name, tmp_path).does(f"{DOWN}; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return SlurmEngine(HereShell(), waits_s=(0.01,), timeout_s=1.0)


def test_a_cluster_that_does_not_answer_is_not_taken_for_an_empty_one(no_slurm):
    of = slurm_job()
    for ask in (
        lambda: no_slurm.find(of),
        lambda: no_slurm.check(of),
        lambda: submitted(no_slurm, of),
        lambda: no_slurm.state(of, "1"),
        lambda: no_slurm.stop(of, "1", grace_s=1),
    ):
        with pytest.raises(ShellFailed, match="does not answer") as raised:
            ask()
        assert "Unable to contact slurm controller" in raised.value.why
        assert "nothing is submitted twice" in raised.value.fix


def test_a_command_of_slurm_that_hangs_is_given_up(no_slurm, tmp_path):
    Wrapper("squeue", tmp_path).does("sleep 60")

    with pytest.raises(ShellFailed, match="has not answered sh in 1 s"):
        no_slurm.find(slurm_job())


def test_a_machine_without_slurm_says_so(tmp_path, monkeypatch):
    for name in ("sh", "id"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(slurm_module, "_FIRST", slurm_module._FIRST.replace("/etc/profile", "/no"))

    with pytest.raises(ExtraMissing, match="There is no sbatch on this machine") as raised:
        SlurmEngine(HereShell()).find(slurm_job())

    assert "run.slurm.login" in raised.value.fix


# Over a login host


@pytest.fixture
def login(slurm: PrivateSlurm, tmp_path, monkeypatch) -> Iterator[SlurmEngine]:
    """The engine with sbatch on another machine."""
    server = PrivateSshd(tmp_path / "login", slurm.environment)
    monkeypatch.setenv(CONFIG_VARIABLE, str(server.config))
    monkeypatch.setattr(slurm_module, "_POLL_S", 0.1)
    yield SlurmEngine(SshShell(server.host, waits_s=(0.01, 0.02)), waits_s=(0.01, 0.02))
    server.stop()


@real_slurm
@pytest.mark.service("sshd")
def test_a_run_is_submitted_on_a_login_host(login, slurm, tmp_path):
    of = slurm_job(
        command="echo $KEY | rev; mkdir out; echo 1 > out/x; sleep 600",
        folder=str(tmp_path / "project"),
        pass_on=("KEY",),
        fetch=("out",),
    )
    (tmp_path / "project").mkdir()

    login.check(of)
    handle = submitted(login, of, KEY="abc")
    printed(login, of, handle, b"cba")
    again = submitted(login, of, KEY="abc")
    came = login.fetch(of, handle, tmp_path / "here")
    login.stop(of, handle, grace_s=20)

    assert again == handle
    assert came == [tmp_path / "here/out/x"]
    assert login.state(of, handle).state == "stopped"
    assert slurm.jobs(name=of.engine_name) == [handle]
    login.delete(of, handle)
    assert not (slurm.runs / of.id).exists()


@real_slurm
@pytest.mark.service("sshd")
def test_a_reply_lost_on_the_way_from_the_login_host_submits_nothing_twice(
    login, slurm, tmp_path, monkeypatch
):
    of = slurm_job(command="sleep 600")
    login.find(of)
    wrapper = Wrapper("ssh", tmp_path)
    wrapper.does('real "$@" > /dev/null 2>&1; exit 255', when="[ $((calls % 2)) -eq 0 ]")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    handle = submitted(login, of)

    assert slurm.jobs(name=of.engine_name) == [handle]


# Without a cluster


def test_the_head_of_a_script_says_what_is_asked_for():
    of = slurm_job(
        machines=2,
        gpus=4,
        longest_s=3600.0,
        pass_on=("HF_TOKEN",),
        watch=WatchSettings(grace_s=90.0),
        slurm=replace(TYPES, partition="gpu", account="lab", qos="long", options=("--mem=0",)),
    )

    # 3,600 s of its own, 90 s to save and 60 s of Slurm's spread are 62.5 minutes: 63.
    assert sbatch_lines(of) == [
        f"#SBATCH --job-name=outlay-{of.id}",
        "#SBATCH --output=log",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gres=gpu:a100:4",
        "#SBATCH --time=01:03:00",
        "#SBATCH --signal=B:USR1@90",
        "#SBATCH --requeue",
        "#SBATCH --export=OUTLAY_RUNS,OUTLAY_BIN,HF_TOKEN",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab",
        "#SBATCH --qos=long",
        "#SBATCH --mem=0",
        "# CPUs and memory are what the cluster gives; options of [run.slurm] ask for others.",
    ]


def test_a_limit_is_the_users_own_else_twice_what_is_expected_else_the_clusters():
    expected = Estimate(low=900.0, likely=1000.0, high=1500.0)

    assert time_limit_s(slurm_job(slurm=replace(TYPES, time_s=50.0), longest_s=9.0)) == 50.0
    assert time_limit_s(slurm_job(run_time_s=expected)) == 2000.0
    assert time_limit_s(slurm_job()) is None
    assert "--time" not in "".join(sbatch_lines(slurm_job()))


def test_the_signal_comes_no_earlier_than_half_of_a_short_limit():
    lines = sbatch_lines(slurm_job(slurm=replace(TYPES, time_s=60.0)))

    assert "#SBATCH --signal=B:USR1@30" in lines


@pytest.mark.parametrize("option", ["--x\n#SBATCH --uid=0", "x; touch ran", "--a\rb", ""])
def test_an_option_cannot_bring_lines_of_its_own(option: str):
    with pytest.raises(InputError, match="no option of sbatch"):
        sbatch_lines(slurm_job(slurm=replace(TYPES, options=(option,))))


def test_a_command_with_the_end_of_a_script_in_it_stays_a_command():
    text = SlurmEngine(HereShell()).render(slurm_job(machines=2, command="OUTLAY_NODE\nOUTLAY_END"))

    assert "<<'OUTLAY_NODE_'" in text.text
    assert subprocess.run(["sh", "-n"], input=text.text.encode()).returncode == 0


# Source: scontrol(1) and squeue(1) of Slurm 22.05, "JOB STATE CODES"; sacct(1) for its columns.
@pytest.mark.parametrize(
    ("shown", "state", "reason"),
    [
        ("JobState=PENDING Reason=Priority Restarts=0", "queued", "others are before it"),
        ("JobState=PENDING Reason=QOSMaxGRESPerUser", "queued", "QOSMaxGRESPerUser"),
        (
            "JobState=PENDING Reason=BeginTime Restarts=1",
            "queued",
            "put back into the queue; waits for its time to begin",
        ),
        ("JobState=CONFIGURING Reason=None", "running", "configuring"),
        ("JobState=RUNNING Reason=None NodeList=n[1-2]", "running", "on n[1-2]"),
        ("JobState=SUSPENDED Reason=None", "running", "suspended"),
        ("JobState=COMPLETING Reason=None", "running", "completing"),
        ("JobState=COMPLETED ExitCode=0:0", "done", ""),
        ("JobState=FAILED ExitCode=2:0", "failed", "exit status 2"),
        ("JobState=FAILED ExitCode=0:9", "failed", "signal 9"),
        ("JobState=CANCELLED ExitCode=0:15", "stopped", "cancelled"),
        ("JobState=TIMEOUT ExitCode=0:0", "stopped", "Slurm's time limit was reached"),
        ("JobState=PREEMPTED ExitCode=0:0", "failed", "another job took its place"),
        ("JobState=NODE_FAIL ExitCode=1:0", "failed", "its machine failed"),
        (
            "JobState=OUT_OF_MEMORY ExitCode=0:125",
            "failed",
            "it took more main memory than it was given",
        ),
    ],
)
def test_what_slurm_shows_is_told_in_words(shown: str, state: str, reason: str):
    line = f"job JobId=7 JobName=outlay-x UserId=me(1) {shown} StartTime=2026-11-17T05:15:09"
    found = shown_job(line, "outlay-x")

    told = slurm_state(found, FolderState(exists=True, started_s=1.0))

    assert (told.state, told.reason) == (state, reason)


def test_times_are_those_of_utc():
    line = (
        "job JobId=7 JobName=outlay-x JobState=COMPLETED ExitCode=0:0 NodeList=one "
        "StartTime=2026-11-17T05:15:09 EndTime=2026-11-17T06:15:09"
    )

    told = slurm_state(shown_job(line, "outlay-x"), FolderState(exists=True, started_s=5.0))

    # 2026-11-17 is day 20,774 of 1970: 20,774 * 86,400 + 5 * 3,600 + 15 * 60 + 9 s.
    assert told.held_since_s == 20_774 * 86_400 + 18_909
    assert told.ended_s == 20_774 * 86_400 + 18_909 + 3_600


def test_accounting_tells_of_a_job_that_left_the_queue():
    line = "account outlay-x|CANCELLED by 0|0:15|2026-11-17T05:15:09|2026-11-17T05:15:19|one"

    told = slurm_state(shown_job(line, "outlay-x"), FolderState())

    assert (told.state, told.reason) == ("stopped", "cancelled")
    assert told.ended_s - told.held_since_s == 10
    assert shown_job(line, "outlay-y") is None
    assert shown_job("", "outlay-x") is None


def test_a_run_that_its_guard_stopped_has_its_reason():
    line = "job JobName=outlay-x JobState=FAILED ExitCode=143:0"
    folder = FolderState(exists=True, started_s=1.0, status={"stopped_for": "idle for 10 minutes"})

    told = slurm_state(shown_job(line, "outlay-x"), folder)

    assert (told.state, told.reason) == ("stopped", "idle for 10 minutes")
