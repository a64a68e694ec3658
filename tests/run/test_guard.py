"""The supervisor on the machine: real commands on a clock on which a window is a second or two."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.run.guarded import FAST, FileDriver
from tests.run.services import SOURCE, processes_with, wait_for

from outlay.errors import InputError, OutlayError
from outlay.probe.gpu_driver import NoDriver
from outlay.run.activity import MachineReader, RunProcesses, RunReader, RunReading
from outlay.run.guard import (
    guard_process,
    guard_run,
    held_before_s,
    loop_script,
    shut_down,
    systemd_unit,
)
from outlay.run.job import Job, JobMachine
from outlay.run.rules import Activity, HourlyBilling, RuleVerdict
from outlay.run.run_folder import job_json
from outlay.run.supervisor import (
    LocalProcess,
    Notifications,
    Supervisor,
    WatchPlan,
    WholeMachine,
    signal_number,
)
from outlay.workload.workload import WatchSettings

PYTHON = sys.executable
HERE = Path(__file__).parent


class Guarded:
    """A guard as a program of its own, in a folder."""

    def __init__(self, folder, rules, code=None, **variables):
        self.folder = folder
        arguments = [PYTHON, str(HERE / "guarded.py"), str(folder), json.dumps(rules)]
        if code is not None:
            (folder / "script.py").write_text(code)
            arguments += ["--", PYTHON, str(folder / "script.py")]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
        environment["GUARDED"] = str(folder)
        with (folder / "guard").open("wb") as output:
            self.process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def ends(self, within_s=40.0):
        """Its exit status."""
        try:
            return self.process.wait(within_s)
        finally:
            self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in list(processes_with(f"GUARDED={self.folder}")):
            os.kill(pid, signal.SIGKILL)

    @property
    def said(self):
        return (self.folder / "guard").read_text()

    @property
    def status(self):
        return json.loads((self.folder / "status.json").read_bytes())

    def events(self, kind):
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [one for one in map(json.loads, lines) if one["event"] == kind]


@pytest.fixture
def guarded(tmp_path):
    made = []

    def start(rules, code=None, **variables):
        folder = tmp_path / f"run{len(made)}"
        folder.mkdir()
        made.append(Guarded(folder, rules, code, **variables))
        return made[-1]

    yield start
    for one in made:
        one.end()


OFF = {"idle_s": None, "stall_s": None}
READY = "open('ready', 'w').close()\n"
SLEEP = "import time\n" + READY + "time.sleep(60)\n"
HANG = """
import threading, time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    (weight ** 2).sum().backward()
    optimizer.step()
    time.sleep(0.03)
def spin():
    matrix = torch.rand(300, 300)
    while True: matrix @ matrix
threading.Thread(target=spin, daemon=True).start()
torch.futures.Future().wait()  # as a collective does: another process is to set it
"""


@pytest.mark.torch
def test_a_hang_within_torch_is_found_though_a_cpu_spins(guarded):
    run = guarded({"idle_s": None, "stall_s": 1.2}, HANG)
    assert run.ends() == 143, run.said
    assert "wait" in run.status["stopped_for"]
    assert run.status["steps_done"] == 30


@pytest.mark.torch
def test_a_long_calculation_that_is_no_hang_is_left_alone(guarded):
    works = "matrix = torch.rand(300, 300)\nwhile True: matrix @ matrix"
    code = HANG.replace("torch.futures.Future().wait()", works)
    run = guarded({"idle_s": None, "stall_s": 1.0}, code)
    wait_for(lambda: run.events("warning"))
    assert "may hang" in run.events("warning")[0]["text"]
    time.sleep(1.5)
    assert run.process.poll() is None
    assert run.events("stopped") == []


# Budgets

RATE = 3600.0
"""Dollars an hour, so that a second costs one."""


def test_a_budget_is_used_up_to_the_last_second_and_not_passed(guarded):
    rules = {**OFF, "bill": {"usd_per_hour": RATE}, "budget_usd": 3.0}
    run = guarded(rules, SLEEP)
    assert run.ends() == 143, run.said
    status = run.status
    assert status["stopped_for"] == "The budget is spent."
    # Asked to end 0.6 s before the money is spent; billed by the second
    assert 2.0 <= status["elapsed_s"] <= 3.0
    assert status["cost_usd"] <= 3.0


def test_what_a_command_leaves_behind_is_held_to_the_budget(guarded):
    """As `nohup python train.py &` does: the command is over at once, what trains is not."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    open('left', 'w').write(str(os.getpid()))\n"
        "    while True: sum(range(10000))\n"
    )
    run = guarded({**OFF, "bill": {"usd_per_hour": RATE}, "budget_usd": 4.0}, code)
    assert run.ends() == 0, run.said
    assert run.status["stopped_for"] == "The budget is spent."
    assert run.status["cost_usd"] <= 4.0
    assert not Path(f"/proc/{(run.folder / 'left').read_text()}").exists()


def test_time_to_save_is_kept_back_from_a_budget(guarded):
    code = (
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(0.5)\n    open('saved', 'w').close()\n    sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, save)\n" + SLEEP
    )
    rules = {**OFF, "grace_s": 2.0, "bill": {"usd_per_hour": RATE}, "budget_usd": 4.0}
    run = guarded(rules, code)
    assert run.ends() == 0, run.said
    assert (run.folder / "saved").exists()
    assert run.status["elapsed_s"] <= 4.0


# Signals, failures of our own


def test_a_request_to_end_is_passed_on_and_the_status_is_the_commands_own(guarded):
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + SLEEP
    run = guarded(OFF, code)
    wait_for((run.folder / "ready").exists)
    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 7
    assert run.status["stopped_for"] is None
    assert run.status["exit_status"] == 7


def test_a_request_that_comes_twice_at_once_leaves_time_to_save(guarded):
    # As when a machine is shut down: everybody is told, and some pass it on.
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(7)))\n" + SLEEP
    )
    run = guarded(OFF, code)
    wait_for((run.folder / "ready").exists)
    for _ in range(3):
        run.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert run.ends() == 7


def test_asked_to_end_a_run_that_saves_by_another_signal_saves_first(guarded):
    code = (
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: open('saved', 'w').close())\n"
        + SLEEP
    )
    run = guarded({**OFF, "grace_s": 2.0}, code)
    wait_for((run.folder / "ready").exists)
    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 143
    assert (run.folder / "saved").exists()


def test_a_run_that_does_not_end_is_killed_with_workers_in_sessions_of_their_own(guarded):
    code = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n" + SLEEP
    )
    run = guarded(OFF, code)
    wait_for((run.folder / "ready").exists)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(20) == 137
    assert list(processes_with(f"GUARDED={run.folder}")) == []


def test_a_signal_to_save_goes_to_those_alone_that_handle_it(guarded):
    code = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('child', 'w').write(str(child.pid))\n" + SLEEP
    )
    run = guarded(OFF, code)
    wait_for((run.folder / "ready").exists)
    run.process.send_signal(signal.SIGUSR1)
    child = int((run.folder / "child").read_text())
    wait_for(lambda: run.status["exit_status"] == 5)
    assert run.ends() == 5
    assert child not in list(processes_with(f"GUARDED={run.folder}"))


def test_a_status_that_cannot_be_written_does_not_keep_the_rules_from_working(guarded, tmp_path):
    folder = tmp_path / "run0"
    rules = {"idle_s": 1.5, "stall_s": None}
    run = guarded(rules, SLEEP)
    (folder / "status.json").unlink(missing_ok=True)
    wait_for(lambda: _replaced_by_folder(folder / "status.json"))
    assert run.ends() == 143, run.said
    assert "It is ended" in run.said


def _replaced_by_folder(path):
    try:
        path.unlink(missing_ok=True)
        (path / "in the way").mkdir(parents=True)
    except OSError:
        return False
    return True


class Once:
    """A target that ends after so many readings, and fails as it is told."""

    pid = 4242

    def __init__(self, readings, error=None):
        self.left, self.error, self.sent = readings, error, []

    def is_alive(self):
        return self.left > 0

    def read(self, now_s):
        self.left -= 1
        if self.error is not None:
            raise self.error
        return RunReading(activity=Activity(time_s=now_s, gpu_fraction=0.0))

    def handles(self, number):
        return False

    def send(self, number, *, only_handlers=False):
        self.sent.append(number)
        self.left = 0

    def exit_status(self):
        return None


class Clock:
    """Every wait takes as long as it says, at once."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds


def _supervisor(target, plan=None, told=()):
    clock = Clock()
    supervisor = Supervisor(target, plan or WatchPlan(), told, clock=clock, wait=clock.wait)
    return supervisor, clock


def test_a_reading_that_fails_counts_as_activity_and_the_budget_still_holds():
    target = Once(10**6, error=RuntimeError("no /proc"))
    plan = WatchPlan(bill=HourlyBilling(usd_per_hour=3.6), budget_usd=5.0)
    supervisor, clock = _supervisor(target, plan)
    supervisor.run()
    # $5.00 at $0.001 a second: 5000 s. Nothing handles signals: it is asked 1 s before.
    assert 1000 + 4999 <= clock.now_s <= 1000 + 5000
    assert target.sent == [signal.SIGTERM]
    assert supervisor.stopped_for == "The budget is spent."
    assert "no /proc" in supervisor.guard.notes[0]


def test_told_that_fails_does_not_end_anything():
    class Broken:
        def status(self, status):
            raise OSError("disk full")

        def event(self, event):
            raise OSError("disk full")

    supervisor, _ = _supervisor(Once(20), told=[Broken()])
    assert supervisor.run() is None
    assert "disk full" in supervisor.guard.notes[0]


def test_a_run_that_is_only_to_be_warned_of_is_never_ended():
    target = Once(2000)
    quiet = {"cpu_s": 0.0, "disk_bytes": 0.0, "network_bytes": 0.0, "log_bytes": 0.0}
    read = target.read
    target.read = lambda now_s: RunReading(activity=replace(read(now_s).activity, **quiet))
    supervisor, _ = _supervisor(target, WatchPlan(settings=WatchSettings(then="warn")))
    supervisor.run()
    assert target.sent == []
    assert supervisor.stopped_for is None


def test_forecasts_that_pass_the_budget_or_the_deadline_are_warned_of():
    class Steps(Once):
        def read(self, now_s):
            self.left -= 1
            steps = int((now_s - 1000) / 2)
            return RunReading(activity=Activity(time_s=now_s, steps=steps))

    events = []

    class Told:
        def status(self, status):
            pass

        def event(self, event):
            events.append(event["text"])

    plan = WatchPlan(
        bill=HourlyBilling(usd_per_hour=36.0),
        budget_usd=15.0,
        deadline_in_s=1500.0,
        total_steps=1000,
    )
    _supervisor(Steps(100), plan, [Told()])[0].run()
    # 1000 steps of 2 s at $0.01 a second are $20.00; 2000 s are 500 s more than 1500.
    assert any("will cost $20.00; the budget is $15.00" in text for text in events), events
    assert any("8 min after the deadline" in text for text in events), events


def test_a_warning_that_comes_and_goes_is_told_of_now_and_then():
    events = []

    class Told:
        def status(self, status):
            pass

        def event(self, event):
            events.append(event["event"])

    supervisor, clock = _supervisor(Once(1), told=[Told()])
    warning = RuleVerdict(rule="budget", why="too dear", is_stop=False)
    for number in range(1000):
        supervisor._warn_of([warning] if number % 2 else [])
        clock.wait(2.0)
    # 2000 s: at once, and again after half an hour
    assert events == ["warning", "warning"]


def test_a_run_that_steps_after_it_saved_was_not_stopped():
    """The signal to save was sent, and it goes on: later it ends by itself."""

    class Resuming(Once):
        steps = 0

        def read(self, now_s):
            self.left -= 1
            quiet = {"cpu_s": 0.0, "disk_bytes": 0.0, "network_bytes": 0.0, "log_bytes": 0.0}
            self.steps += 1 if signal.SIGUSR1 in self.sent else 0
            activity = Activity(time_s=now_s, gpu_fraction=0.0, steps=self.steps, **quiet)
            return RunReading(activity=activity)

        def handles(self, number):
            return number == signal.SIGUSR1

        def send(self, number, *, only_handlers=False):
            self.sent.append(number)

    target = Resuming(1000)
    supervisor, _ = _supervisor(target)
    supervisor.run()
    assert target.sent == [signal.SIGUSR1]
    assert supervisor.stopped_for is None


# A run's folder


def _run_folder(tmp_path, command, **job):
    folder = tmp_path / "runs" / "x-1"
    (folder / "work").mkdir(parents=True)
    (folder / "started").mkdir()
    (folder / "log").touch()
    (folder / "train.sh").write_text(command)
    made = Job(**{"id": "x-1", "name": "x", "engine": "local", "command": command, **job})
    (folder / "job.json").write_bytes(job_json(made))
    return folder


def _guard_run(folder):
    process = subprocess.run(
        [PYTHON, str(HERE / "guarded.py"), str(folder), "{}"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, process.stderr


def test_a_run_of_outlay_runs_in_its_folder_and_ends_with_its_own_status(tmp_path):
    machine = JobMachine(price_usd_per_hour=RATE)
    folder = _run_folder(
        tmp_path, "pwd > where; exit 9", machine=machine, budget_usd=500.0, steps=100
    )
    os.utime(folder / "started", (time.time() - 50, time.time() - 50))
    code, _ = _guard_run(folder)
    assert code == 9
    assert (folder / "work" / "where").read_text().strip() == str(folder / "work")
    status = json.loads((folder / "status.json").read_bytes())
    assert (status["run"], status["exit_status"], status["total_steps"]) == ("x-1", 9, 100.0)
    # Held for 50 s before the guard began, at a dollar a second
    assert 50.0 <= status["cost_usd"] <= 80.0


def test_steps_of_a_run_that_goes_on_from_a_checkpoint_are_not_known(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_RESUMED", "1")
    folder = _run_folder(tmp_path, "exit 0", steps=100)
    code, said = _guard_run(folder)
    assert code == 0
    assert "goes on from a checkpoint" in said
    assert json.loads((folder / "status.json").read_bytes())["total_steps"] is None


def test_its_own_lines_in_the_log_are_no_activity(tmp_path):
    """As under job.sh: what the guard says goes where the run's own output goes."""
    folder = _run_folder(
        tmp_path, "sleep 60", watch=WatchSettings(idle_s=1.5, stall_s=None, grace_s=0.6)
    )
    with (folder / "log").open("ab") as log:
        process = subprocess.run(
            [PYTHON, str(HERE / "guarded.py"), str(folder), "{}"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=30,
            check=False,
        )
    assert process.returncode == 143
    said = (folder / "log").read_text()
    assert said.count("GPUs below 5%") >= 2
    assert "taken back" not in said


def test_a_guard_that_fails_lets_the_run_go_on(tmp_path, monkeypatch, capfd):
    def fail(*_):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Supervisor, "tick", fail)
    folder = _run_folder(tmp_path, "sleep 0.3; exit 3")
    assert guard_run(folder, timing=FAST, driver=NoDriver(missing=())) == 3
    assert "goes on without it" in capfd.readouterr().err


def test_a_job_that_cannot_be_read_runs_all_the_same(tmp_path):
    folder = _run_folder(tmp_path, "exit 4")
    (folder / "job.json").write_text("{half")
    code, said = _guard_run(folder)
    assert code == 4
    assert "usual rules apply" in said


def test_further_machines_of_a_run_have_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_NODE_RANK", "2")
    folder = _run_folder(tmp_path, "exit 0")
    assert _guard_run(folder)[0] == 0
    assert json.loads((folder / "status-2.json").read_bytes())["phase"] == "ended"
    assert (folder / "events-2.jsonl").exists()
    assert (folder / "agent-2").is_dir()
    assert not (folder / "status.json").exists()


def test_what_is_no_runs_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run's folder"):
        guard_run(tmp_path)


# Processes that run already, machines


def test_another_process_of_the_same_number_is_another(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    reader = RunReader(RunProcesses(process.pid), NoDriver(missing=()))
    target = LocalProcess(process.pid, reader)
    assert target.is_alive()
    target._started -= 1  # as if the number had been given to a later one
    assert not target.is_alive()
    process.kill()
    process.wait()


def test_a_process_that_idles_is_stopped_and_the_machine_shut_down(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_SHUTDOWN", f"touch {tmp_path}/off")
    (tmp_path / "gpu").write_text("0")
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(["sleep", "60"], stdout=output, stderr=output)
    settings = WatchSettings(idle_s=1.0, grace_s=0.3, then="shut down")
    supervisor = guard_process(
        process.pid,
        WatchPlan(settings=settings),
        timing=FAST,
        driver=FileDriver(tmp_path / "gpu"),
    )
    assert process.wait(5) == -signal.SIGTERM
    assert supervisor.stopped_for is not None
    assert (tmp_path / "off").exists()


def test_a_process_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no process"):
        guard_process(2**22 - 1, WatchPlan())


def test_a_machine_that_cannot_be_shut_down_is_an_error(monkeypatch):
    monkeypatch.setenv("OUTLAY_SHUTDOWN", "false")
    with pytest.raises(OutlayError, match="could not be shut down"):
        shut_down()


@pytest.fixture
def machine(tmp_path):
    """A machine of files: nothing goes on there but what a test writes."""
    proc, terminals = tmp_path / "proc", tmp_path / "pts"
    (proc / "self" / "net").mkdir(parents=True)
    terminals.mkdir()
    (terminals / "3").touch()
    (proc / "stat").write_text("cpu  100 0 100 9000 10 0 0 0 0 0\n")
    (proc / "diskstats").write_text("")
    (proc / "self" / "net" / "dev").write_text("eth0: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n")
    driver = FileDriver(tmp_path / "gpu")
    return tmp_path, WholeMachine(MachineReader(driver, proc=str(proc), terminals=terminals))


def _until_stopped(target, hours=2.0):
    settings = WatchSettings(idle_s=1800.0, stall_s=None, grace_s=120.0)
    supervisor, clock = _supervisor(target, WatchPlan(settings=settings, is_machine=True))
    supervisor._timing = replace(FAST, period_s=10.0)
    while target.is_alive() and clock.now_s < 1000 + hours * 3600:
        supervisor.tick()
        clock.wait(10.0)
        yield clock, supervisor


def test_a_machine_that_nobody_uses_is_shut_down_after_its_window(machine):
    _, target = machine
    *_, (clock, supervisor) = _until_stopped(target)
    # The first reading has no rates yet; then 1800 s of window and 120 s of grace
    assert 1000 + 1920 <= clock.now_s <= 1000 + 1920 + 40
    assert "GPUs below" in supervisor.stopped_for


@pytest.mark.parametrize("what", ["typing", "gpu", "gpu unknown", "cpu", "network"])
def test_a_machine_that_somebody_uses_is_left_alone(machine, what):
    folder, target = machine
    for number, _ in enumerate(_until_stopped(target)):
        if what == "typing" and number % 100 == 0:
            os.utime(folder / "pts" / "3", (number + 1, 0))
        if what.startswith("gpu"):
            (folder / "gpu").write_text("unknown" if "unknown" in what else "0.4")
        if what == "cpu":  # half a CPU: 5 s in 10, a hundred ticks each
            (folder / "proc" / "stat").write_text(f"cpu {500 * number} 0 0 9 1 0 0 0 0 0\n")
        if what == "network":  # 300 kB a second
            line = f"eth0: {3_000_000 * number} 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"
            (folder / "proc" / "self" / "net" / "dev").write_text(line)
    assert target.is_alive()


# What is printed for machines


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    program = shutil.which("true")
    text = systemd_unit([program, "guard", "--notify", "json://a%20b$c", "--then", "shut down"])
    assert f'ExecStart={program} guard --notify "json://a%%20b$$c" --then "shut down"' in text
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        unit = tmp_path / "outlay-guard.service"
        unit.write_text(text)
        done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, check=False)
        assert b"outlay-guard" not in done.stderr, done.stderr.decode()


def test_the_loop_begins_again_where_the_guard_fails(tmp_path):
    fails_twice = f"echo again >> {tmp_path}/calls; [ $(wc -l < {tmp_path}/calls) -ge 3 ]"
    text = loop_script(["sh", "-c", fails_twice]).replace("sleep 10", "sleep 0.01")
    assert subprocess.run(["sh", "-c", text], check=True, timeout=20).returncode == 0
    assert (tmp_path / "calls").read_text().split() == ["again"] * 3


def test_signals_go_by_any_usual_name():
    assert signal_number("USR1") == signal_number("sigusr1") == signal_number("10")
    assert signal_number("NOPE") is None
    assert signal_number("0") is None


def test_messages_are_sent_and_a_failure_shows_no_address(monkeypatch, capsys):
    sent = []

    def send(addresses, title, text):
        sent.append((addresses, title, text))
        raise OSError("no route to json://me:secret@host")

    monkeypatch.setattr("outlay.prices.alerts.send", send)
    told = Notifications(["json://me:secret@host"], "outlay: run x")
    told.event({"event": "started", "text": "begun"})
    told.event({"event": "warning", "text": "it idles"})
    told.finish()
    assert sent == [(("json://me:secret@host",), "outlay: run x", "it idles")]
    assert "secret" not in capsys.readouterr().err


def test_warnings_reach_a_web_address(tmp_path):
    """Really sent by apprise, to a server of our own."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        told = Notifications([f"json://127.0.0.1:{server.server_port}"], "outlay: run x")
        told.event({"event": "warning", "text": "GPUs below 5% for 10 min."})
        told.finish(30.0)
        server.shutdown()
        thread.join()
    assert [one["message"] for one in received] == ["GPUs below 5% for 10 min."]
    assert received[0]["title"] == "outlay: run x"


def test_a_machine_rented_for_a_run_is_paid_for_since_it_came_up(tmp_path, monkeypatch):
    started = tmp_path / "started"
    started.mkdir()
    os.utime(started, (time.time() - 60, time.time() - 60))
    # Ten minutes passed between the start of the machine's first process and that of the run.
    monkeypatch.setattr("outlay.run.guard.age_s", {1: 660.0}.get)

    def held_s(engine):
        return held_before_s(Job(id="a", name="a", engine=engine, command="true"), tmp_path)

    assert held_s("skypilot") == 660.0
    assert held_s("ssh") == pytest.approx(60, abs=5)
    monkeypatch.setattr("outlay.run.guard.age_s", {}.get)  # it cannot be read
    assert held_s("skypilot") == pytest.approx(60, abs=5)
