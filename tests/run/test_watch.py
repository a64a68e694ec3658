"""Looking on from elsewhere: processes over ssh, Slurm jobs, clusters, runs of outlay."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.jobs import job
from tests.run.services import PrivateSlurm, PrivateSshd, wait_for

from outlay.errors import ExtraMissing, InputError, LaunchFailed
from outlay.run.engine import EngineState
from outlay.run.guard import supervised
from outlay.run.job import JobMachine
from outlay.run.shell import CONFIG_VARIABLE, HereShell, ShellFailed, SshShell
from outlay.run.supervisor import Supervisor, Timing, WatchPlan
from outlay.run.watch import (
    RemoteProcesses,
    RunFollower,
    SkyCluster,
    SlurmJob,
    parse_answer,
    status_in,
)
from outlay.workload.workload import WatchSettings

FAST = Timing(period_s=0.3, status_s=0.3, terminate_s=1.0, end_s=0.3)
IDLE = WatchSettings(idle_s=1.5, stall_s=None, grace_s=0.6)
SMI = """#!/bin/sh
case "$1" in
*query-gpu*) echo "GPU-1, ${GPU_USE:-0}, 88.5, 1024" ;;
*) echo "GPU-1, 1" ;;
esac
"""


def _script(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def here(tmp_path):
    """This machine, with an nvidia-smi that says what GPU_USE does."""
    _script(tmp_path / "bin", "nvidia-smi", SMI)
    return HereShell({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})


@pytest.fixture
def started(tmp_path):
    """Starts Python processes whose output goes to a file; ends them."""
    processes = []

    def start(code):
        log = tmp_path / f"log{len(processes)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-S", "-u", "-c", code], stdout=output, stderr=output
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


class Told:
    def __init__(self):
        self.statuses, self.events = [], []

    def status(self, status):
        self.statuses.append(status)

    def event(self, event):
        self.events.append((event["event"], event["text"]))


def own_ticks(pid):
    """CPU time of a process, in hundredths of a second: utime of proc(5)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


SPIN = "while True: sum(range(1000))"
SLEEP = "import time; time.sleep(60)"


def test_a_process_is_read_as_on_its_own_machine(here, started):
    process = started("print('step 7/90', flush=True)\n" + SPIN)
    settings = replace(IDLE, step_pattern="step ([0-9]+)/([0-9]+)")
    target = RemoteProcesses(here, str(process.pid), settings)
    wait_for(lambda: target.read(0.0).activity.steps == 7)
    before_s = time.monotonic()
    target.read(before_s)
    before_ticks = own_ticks(process.pid)
    # Other tests take their share of the CPU: a fifth of a second of its own is waited for.
    wait_for(lambda: own_ticks(process.pid) - before_ticks >= 20)
    reading = target.read(time.monotonic())
    took_s = time.monotonic() - before_s

    activity = reading.activity
    # One thread uses no more CPU time than has passed; clocks tick every 10 ms.
    assert 0.19 <= activity.cpu_s <= took_s + 0.05
    assert reading.total_steps == 90
    assert (activity.gpu_fraction, activity.gpu_power_w) == (0.0, 88.5)
    assert activity.gpu_memory_bytes == 1024 * 2**20
    assert activity.log_bytes == 0
    assert activity.network_bytes is not None
    assert process.pid in reading.pids


def test_an_idle_process_elsewhere_is_stopped(here, started):
    process = started(SLEEP)
    told = Told()
    target = RemoteProcesses(here, str(process.pid), IDLE)
    supervisor = supervised(target, WatchPlan(settings=IDLE), [told], timing=FAST, is_here=False)
    assert process.wait(5) == -signal.SIGTERM
    assert "GPUs below 5%" in supervisor.stopped_for
    assert [event for event, _ in told.events] == ["started", "warning", "stopped", "ended"]


def test_where_the_gpu_is_not_told_nothing_is_idle(started):
    process = started(SLEEP)
    target = RemoteProcesses(HereShell({"PATH": "/usr/bin:/bin"}), str(process.pid), IDLE)
    readings = [target.read(float(number)) for number in range(3)]
    assert [reading.activity.gpu_fraction for reading in readings] == [None] * 3
    process.kill()
    process.wait()
    target.read(4.0)
    assert not target.is_alive()


def test_what_is_not_there_is_said_before_it_is_looked_at_forever(here, started):
    process = started(SLEEP)
    RemoteProcesses(here, str(process.pid), IDLE).check()
    process.kill()
    process.wait()
    with pytest.raises(InputError, match=f"no process {process.pid} on this machine"):
        RemoteProcesses(here, str(process.pid), IDLE).check()
    with pytest.raises(ExtraMissing, match="no squeue"):
        SlurmJob(HereShell({"PATH": "/nowhere"}), "12", IDLE).check()


def test_a_handler_elsewhere_is_known_and_gets_its_signal(here, started):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n" + SLEEP
    )
    process = started(code)
    target = RemoteProcesses(here, str(process.pid), IDLE)
    wait_for(lambda: target.read(0.0) and target.handles(signal.SIGUSR1))
    assert not target.handles(signal.SIGUSR2)
    target.send(signal.SIGUSR1, only_handlers=True)
    assert process.wait(5) == 3


def test_a_machine_that_does_not_answer_is_no_end_and_no_idleness():
    class Broken:
        name = "there"

        def run(self, *_, **__):
            raise ShellFailed("there does not answer.")

    told, target = Told(), RemoteProcesses(Broken(), "4242", IDLE)
    supervisor = Supervisor(target, WatchPlan(settings=IDLE), [told], timing=FAST)
    ends_s = time.monotonic() + 2.5
    while time.monotonic() < ends_s:
        supervisor.tick()
        supervisor.pause([])
    assert target.is_alive()
    assert told.events == []
    assert "does not answer" in told.statuses[-1].notes[0]


@pytest.mark.service("sshd")
def test_over_ssh_an_idle_process_is_stopped(sshd: PrivateSshd, monkeypatch, started):
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.config))
    _script(sshd.bin, "nvidia-smi", SMI)
    process = started(SLEEP)
    target = RemoteProcesses(SshShell(sshd.host), str(process.pid), IDLE)
    supervised(target, WatchPlan(settings=IDLE), [Told()], timing=FAST, is_here=False)
    assert process.wait(5) == -signal.SIGTERM


@pytest.mark.service("slurm")
def test_a_slurm_job_that_idles_is_cancelled(slurm: PrivateSlurm, tmp_path):
    _script(slurm.bin, "nvidia-smi", SMI)
    path = f"{slurm.bin}:/usr/bin:/bin"
    shell = HereShell({**slurm.environment, "PATH": path})
    saved = tmp_path / "saved"
    script = (
        f"#!/bin/sh\nexport PATH={path}\n"
        f'exec {sys.executable} -S -c "import signal, time\n'
        f"signal.signal(signal.SIGUSR1, lambda *_: open('{saved}', 'w').close())\n"
        f'time.sleep(60)"\n'
    )
    line = slurm.command(
        "sbatch", "--parsable", f"--output={tmp_path}/out", f"--wrap={script.split(chr(10), 1)[1]}"
    )
    told = Told()
    target = SlurmJob(shell, line.strip(), replace(IDLE, idle_s=4.0, grace_s=6.0))
    plan = WatchPlan(settings=replace(IDLE, idle_s=4.0, grace_s=6.0))
    supervisor = supervised(target, plan, [told], timing=FAST, is_here=False)
    assert supervisor.stopped_for, told.events
    assert saved.exists(), told.events
    assert slurm.command("squeue", "--noheader", "--states=R", "--format=%i").split() == []


def test_a_number_that_is_no_slurm_job_is_refused(here):
    with pytest.raises(InputError, match="no number of a Slurm job"):
        SlurmJob(here, "12;id", IDLE)


def test_a_cluster_that_idles_is_stopped_and_deleted_by_sky(here, tmp_path):
    _script(tmp_path / "bin", "sky", f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    settings = replace(IDLE, then="shut down", idle_s=0.8)
    plan = WatchPlan(settings=settings, is_machine=True)

    class NoNoise(SkyCluster):
        def read(self, now_s):
            reading = super().read(now_s)
            calm = {"cpu_s": 0.0, "disk_bytes": 0.0, "network_bytes": 0.0, "held_by": None}
            assert reading.activity.gpu_fraction == 0.0
            return replace(reading, activity=replace(reading.activity, **calm))

    cluster = NoNoise(here, here, "mine", settings)
    supervised(cluster, plan, [Told()], timing=FAST, is_here=False)
    cluster.delete()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["stop --yes mine", "down --yes mine"]


def test_a_cluster_that_cannot_be_stopped_is_said_to_cost_money(here, tmp_path):
    _script(tmp_path / "bin", "sky", "#!/bin/sh\necho no such cluster >&2; exit 1\n")
    cluster = SkyCluster(here, here, "mine", IDLE)
    with pytest.raises(LaunchFailed, match="still costs money"):
        cluster.send(signal.SIGTERM)
    assert cluster.is_alive()


@given(st.binary(max_size=400))
def test_half_an_answer_is_read_as_far_as_it_goes(data):
    answer = parse_answer(b"@outlay file 12/stat\n12 (x) S 1\n" + data)
    assert answer.files["12/stat"].startswith(b"12 (x) S 1")


# A run of outlay


class FakeEngine:
    """Says one state after the other; an error is raised."""

    name = "ssh"

    def __init__(self, *states):
        self.states = list(states)
        self.calls = []

    def state(self, of, handle):
        found = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(found, Exception):
            raise found
        return found

    def stop(self, of, handle, *, grace_s):
        self.calls.append(("stop", grace_s))
        self.states = [EngineState(state="stopped", held_since_s=0.0, ended_s=100.0)]

    def delete(self, of, handle):
        self.calls.append(("delete", None))


class Clock:
    def __init__(self, now_s=0.0):
        self.now_s = now_s

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds


RUNNING = EngineState(
    state="running",
    phase="training",
    held_since_s=0.0,
    status={"time_s": 5.0, "steps_done": 12, "phase": "training", "no such": 1},
)
DONE = EngineState(state="done", exit_status=0, held_since_s=0.0, ended_s=7200.0)


def _followed(engine, of, clock=None):
    told, clock = Told(), clock or Clock()
    follower = RunFollower(engine, of, "handle", [told], clock=clock, wait=clock.wait)
    return follower.follow(), told


def test_a_run_is_followed_to_its_end():
    of = job(machine=JobMachine(price_usd_per_hour=3.0))
    followed, told = _followed(FakeEngine(RUNNING, ShellFailed("no route."), RUNNING, DONE), of)
    assert followed.state.state == "done"
    assert [status.phase for status in told.statuses] == ["training", "training", "ended"]
    assert told.statuses[0].steps_done == 12
    # 2 h at $3.00
    assert told.statuses[-1].cost_usd == pytest.approx(6.0)
    assert [event for event, _ in told.events] == ["note", "ended"]


def test_a_run_whose_guard_is_gone_is_stopped_from_here_within_its_budget():
    # $1.00 at $3.60/h is 1000 s; the grace period is 120 s.
    of = job(machine=JobMachine(price_usd_per_hour=3.6), budget_usd=1.0)
    silent = replace(RUNNING, status={})
    engine, clock = FakeEngine(silent), Clock()
    _, told = _followed(engine, of, clock)
    assert engine.calls == [("stop", 120.0)]
    assert clock.now_s + 120 <= 1000
    assert clock.now_s >= 1000 - 120 - 30  # asked every 10 s, and one time more
    assert "guard does not answer" in told.events[0][1]


def test_a_budget_and_a_window_given_here_are_kept_from_here():
    # $0.50 at $3.60/h is 500 s, less than the run's own $1.00.
    of = job(machine=JobMachine(price_usd_per_hour=3.6), budget_usd=1.0)
    guards = ({"time_s": float(number), "phase": "training"} for number in range(1, 200))
    engine, clock = FakeEngine(*(replace(RUNNING, status=status) for status in guards)), Clock()
    follower = RunFollower(
        engine, of, "handle", [Told()], clock=clock, wait=clock.wait, budget_usd=0.5
    )
    follower.follow()
    assert engine.calls == [("stop", 120.0)]
    assert 500 - 120 - 30 <= clock.now_s <= 500 - 120

    quiet = [replace(RUNNING, status={"time_s": n + 1.0, "quiet_s": 10.0 * n}) for n in range(200)]
    engine, clock, told = FakeEngine(*quiet), Clock(), Told()
    follower = RunFollower(engine, of, "handle", [told], clock=clock, wait=clock.wait, idle_s=300.0)
    follower.follow()
    # Quiet for 300 s and the grace period of 120 s: the 42nd answer of ten seconds each
    assert clock.now_s == pytest.approx(420, abs=20)
    assert "Nothing has gone on for 7 min" in told.events[0][1]


def test_a_run_with_a_guard_is_left_to_it():
    of = job(machine=JobMachine(price_usd_per_hour=3.6), budget_usd=1.0)
    guards = ({"time_s": float(number), "phase": "training"} for number in range(1, 200))
    fresh = [replace(RUNNING, status=status) for status in guards]
    engine = FakeEngine(*fresh, DONE)
    _followed(engine, of)
    assert engine.calls == []


def test_what_is_left_of_a_run_is_deleted_later():
    of = job(watch=WatchSettings(delete_after_s=3600.0))
    clock = Clock(7300.0)
    engine = FakeEngine(DONE)
    followed, _ = _followed(engine, of, clock)
    assert followed.is_deleted
    assert engine.calls == [("delete", None)]
    assert clock.now_s == pytest.approx(7200 + 3600)


def test_a_status_of_another_version_is_none():
    assert status_in({"steps_done": "many"}) is None
    assert status_in({}) is None
