"""The promise: what idles or stalls is stopped within its window, and no busy run ever is.

First with simulated readings over hours, then with real processes on clocks that run faster.
"""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.rhythms import (
    HOUR_S,
    PERIOD_S,
    after,
    blocked,
    follow,
    noise,
    pausing,
    quiet,
    steps_every,
)
from tests.run.services import SOURCE, processes_with, wait_for

from outlay.run.rules import RuleLimits, RunRules, StopTimes

GRACE_S = StopTimes().grace_s
IDLE_S, STALL_S = 600.0, 1800.0

# What must be stopped


def test_a_run_that_does_nothing_is_stopped_when_the_window_and_the_grace_are_over():
    outcome = follow(quiet, 1.0)
    # 600 s of window + 120 s of grace, and at most a reading more for each
    assert outcome.stopped_s == pytest.approx(IDLE_S + GRACE_S, abs=2 * PERIOD_S)
    assert outcome.stopped_by.rule == "idle"


def test_watchdogs_and_monitors_are_no_work():
    outcome = follow(noise(), 1.0)
    assert outcome.stopped_s <= IDLE_S + GRACE_S + 2 * PERIOD_S


def test_a_run_whose_steps_end_in_nothing_is_stopped():
    outcome = follow(after(steps_every(0.5), HOUR_S, noise()), 2.0, RuleLimits(idle_s=None))
    assert outcome.stopped_by.rule == "stall"
    # 3600 s of steps, 1800 s of window, 120 s of grace
    assert outcome.stopped_s == pytest.approx(3600 + STALL_S + GRACE_S, abs=3 * PERIOD_S)


def test_a_hung_collective_is_found_though_cpu_and_gpu_spin():
    def hung(now_s):
        return quiet(now_s, gpu_fraction=1.0, cpu_s=PERIOD_S, stack=blocked(now_s, HOUR_S))

    outcome = follow(after(steps_every(0.5), HOUR_S, hung), 2.0)
    assert outcome.stopped_by.rule == "stall"
    assert outcome.stopped_s <= 3600 + STALL_S + GRACE_S + 3 * PERIOD_S
    assert "all_reduce" in outcome.stopped_by.why


def test_losses_that_are_not_finite_stop_a_run_and_single_ones_do_not():
    def training(bad):
        def rhythm(now_s):
            loss = None if bad(now_s) else 2.5
            losses = (loss,) if now_s % 10 < PERIOD_S else ()
            return quiet(now_s, gpu_fraction=0.9, steps=int(now_s), losses=losses)

        return rhythm

    assert follow(training(lambda now_s: now_s > 1000), 1.0).stopped_by.rule == "loss"
    every_third = follow(training(lambda now_s: now_s // 10 % 3 == 0), 2.0)
    assert every_third.stopped_s is None
    assert every_third.taken_back == 0  # not even warned of


def test_the_budget_ends_a_run_in_time_and_not_before():
    limits = RuleLimits(budget_ends_s=5000.0)
    outcome = follow(steps_every(1.0), 2.0, limits, StopTimes(terminate_s=1.0, end_s=1.0))
    # It is asked to end 2 s before the money is spent, seen at most one reading later.
    assert 5000 - 2 <= outcome.stopped_s <= 5000 - 2 + PERIOD_S
    assert outcome.stopped_by.rule == "budget"


# What must never be stopped


def _compiling(first_s, last_s):
    """Minutes of compiling, in which workers keep CPUs busy and the GPU does nothing."""

    def rhythm(now_s):
        if first_s <= now_s < last_s:
            stack = blocked(now_s, first_s, state="compiling")
            return quiet(now_s, cpu_s=4 * PERIOD_S, steps=int(first_s), stack=stack)
        steps = int(now_s if now_s < first_s else now_s - (last_s - first_s))
        return quiet(now_s, gpu_fraction=0.95, cpu_s=2.0, steps=steps)

    return rhythm


def _slower(now_s):
    """Steps that take longer and longer: the n-th ends at n^2 seconds."""
    return quiet(now_s, steps=int(math.sqrt(now_s)), gpu_fraction=0.9, cpu_s=1.0)


def _one_busy_rank(now_s):
    """Others wait in a barrier, one evaluates: not all stacks are the same."""
    stack = blocked(now_s, 600.0, state="other") if now_s > 600 else None
    return quiet(now_s, steps=min(int(now_s), 600), gpu_fraction=0.4, cpu_s=8.0, stack=stack)


def _other_machine(now_s):
    """All here wait for a rank on another machine, which is not seen from here."""
    stack = blocked(now_s, 600.0, is_complete=False) if now_s > 600 else None
    return quiet(now_s, steps=min(int(now_s), 600), gpu_fraction=1.0, cpu_s=8.0, stack=stack)


def _trickle(now_s):
    """A line in the log every nine minutes, and nothing else."""
    return quiet(now_s, log_bytes=80.0 if now_s % 540 < PERIOD_S else 0.0)


def _bursts(now_s):
    """Seconds of work every four minutes, as of an agent that asks a service between steps."""
    is_on = now_s % 240 < 6
    return quiet(now_s, gpu_fraction=0.7 if is_on else 0.0, cpu_s=PERIOD_S if is_on else 0.0)


BUSY = {
    "steps as they come": steps_every(0.4),
    "a long evaluation every hour": pausing(
        3600, 2400, batches=lambda now_s: int(now_s), gpu_fraction=0.3
    ),
    "an evaluation of which only batches are seen": pausing(
        1800, 3000, batches=lambda now_s: 1_000_000 + int(now_s // 60)
    ),
    "an evaluation on the CPU, without batches": pausing(1800, 3000, cpu_s=PERIOD_S),
    "checkpoints that take twenty minutes": pausing(900, 1200, disk_bytes=200e6),
    "a checkpoint over the network": pausing(900, 2400, network_bytes=5e6),
    "bursts every four minutes": _bursts,
    "bound by data, CPU in workers": lambda now_s: quiet(
        now_s, cpu_s=7.5 * PERIOD_S, gpu_fraction=0.02, steps=int(now_s // 300)
    ),
    "bound by a slow disk": lambda now_s: quiet(now_s, disk_bytes=60_000 * PERIOD_S, cpu_s=0.01),
    "downloads before the first step": lambda now_s: quiet(now_s, network_bytes=100_000.0),
    "compiles for ten minutes, then trains": _compiling(4.0, 604.0),
    "compiles again in the middle": _compiling(3600.0, 3600.0 + 2700.0),
    "a debugger attached": after(
        steps_every(1.0), 600, lambda now_s: quiet(now_s, held_by="debugger")
    ),
    "pdb at a terminal": after(
        steps_every(1.0), 600, lambda now_s: quiet(now_s, held_by="terminal")
    ),
    "stopped by hand": after(steps_every(1.0), 600, lambda now_s: quiet(now_s, held_by="stopped")),
    "GPU busy, steps unknown": lambda now_s: quiet(now_s, gpu_fraction=1.0, steps=None),
    "steps of twenty minutes": lambda now_s: quiet(
        now_s, steps=int(now_s // 1200), gpu_fraction=0.97
    ),
    "slower and slower": _slower,
    "a million short steps": lambda now_s: quiet(
        now_s, steps=int(now_s * 1000), gpu_fraction=0.5, cpu_s=2.0
    ),
    "an hour of data preparation": after(
        lambda now_s: quiet(now_s, cpu_s=1.0), 3600, steps_every(1.0, first_s=3600)
    ),
    "one rank busy, the others wait": _one_busy_rank,
    "all wait for another machine": _other_machine,
    "a GPU that cannot be read": lambda now_s: quiet(now_s, gpu_fraction=None),
    "CPU time that cannot be read": lambda now_s: quiet(now_s, cpu_s=None),
    "disks that cannot be read": lambda now_s: quiet(now_s, disk_bytes=None),
    "a log that cannot be read": lambda now_s: quiet(now_s, log_bytes=None),
    "nothing but lines in the log": _trickle,
    "a square root of a matrix, for an hour": after(
        steps_every(1.0), 1800, lambda now_s: quiet(now_s, cpu_s=PERIOD_S)
    ),
    "the same call of torch's, but no wait": after(
        steps_every(1.0),
        1800,
        lambda now_s: quiet(
            now_s, cpu_s=PERIOD_S, gpu_fraction=0.9, stack=blocked(now_s, 1800, state="other")
        ),
    ),
    "an upload at the end": after(
        steps_every(1.0), 1800, lambda now_s: quiet(now_s, network_bytes=300_000.0)
    ),
    # It holds a lock for a GPU on which another job computes: the GPU is paid for and worked on.
    "waits for another job on the same GPU": lambda now_s: quiet(now_s, gpu_fraction=0.8),
    "allocates and frees, nothing else": lambda now_s: quiet(
        now_s, gpu_memory_bytes=20e9 + 50e6 * (now_s // 300 % 2)
    ),
}


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_run_is_left_alone(name):
    outcome = follow(BUSY[name], 3.0)
    assert outcome.stopped_s is None, outcome.stopped_by
    assert len(BUSY) >= 20


def test_a_run_is_stalled_only_after_much_more_than_its_longest_gap():
    """Steps every 280 s, and then one that takes 1000 s, which is less than four times as long."""

    def rhythm(now_s):
        late_s = 9 * 280 + 1000  # the tenth step
        steps = min(now_s // 280, 9) if now_s < late_s else 10 + (now_s - late_s) // 280
        return quiet(now_s, steps=int(steps))

    limits = RuleLimits(idle_s=None, stall_s=300.0)
    assert follow(rhythm, 2.0, limits).stopped_s is None


def test_a_run_that_goes_on_in_the_grace_period_is_left_alone():
    first_s = IDLE_S + GRACE_S / 2
    outcome = follow(after(quiet, first_s, steps_every(1.0, first_s=first_s)), 2.0)
    assert outcome.stopped_s is None
    assert outcome.taken_back == 1


def test_without_the_agent_a_hang_that_spins_is_only_warned_of():
    def hung(now_s):
        return quiet(now_s, gpu_fraction=1.0, cpu_s=PERIOD_S)

    outcome = follow(after(steps_every(0.5), HOUR_S, hung), 4.0)
    assert outcome.stopped_s is None
    assert "may hang" in outcome.warned[0].why


def test_a_forgotten_debugger_is_warned_of():
    outcome = follow(BUSY["a debugger attached"], 1.0)
    assert outcome.stopped_s is None
    assert "debugger" in outcome.warned[0].why


def test_a_guard_that_was_not_run_for_a_while_knows_nothing_of_it():
    """Stopped for half an hour (a laptop, a busy host), it does not take that for idleness."""
    readings_s = [*range(2, 400, 2), *range(2200, 2500, 2)]
    rules = RunRules(RuleLimits(), started_s=0.0)
    verdicts = [rules.take(quiet(float(now_s))) for now_s in readings_s]
    assert not any(verdicts)


SIGNALS = {
    "gpu_fraction": st.floats(0.06, 1.0),
    "cpu_s": st.floats(0.15 * PERIOD_S, 64.0),
    "disk_bytes": st.floats(45_000 * PERIOD_S, 1e9),
    "network_bytes": st.floats(45_000 * PERIOD_S, 1e9),
    "log_bytes": st.floats(1.0, 1e6),
}


@st.composite
def busy_rhythms(draw):
    """Phases of any length, in each of which one signal is there, with gaps below the window."""
    phases = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(SIGNALS)), st.floats(60, 3000), st.floats(4, 500)),
            min_size=1,
            max_size=5,
        )
    )
    amounts = {name: draw(amount) for name, amount in SIGNALS.items()}
    seconds = sum(lasts_s for _, lasts_s, _ in phases)
    steps_s = draw(st.one_of(st.none(), st.floats(0.01, 500)))

    def rhythm(now_s):
        begun_s = 0.0
        for phase in phases:
            name, lasts_s, gap_s = phase
            left_s = now_s % seconds - begun_s
            if left_s < lasts_s:
                break
            begun_s += lasts_s
        # A block of a minute of work after each gap, so that a mean over it shows
        is_on = left_s % (gap_s + 130) >= gap_s or left_s > lasts_s - 130
        given_now = {name: amounts[name]} if is_on else {}
        steps = None if steps_s is None else int(now_s / steps_s)
        return quiet(now_s, steps=steps, **given_now)

    return rhythm


@settings(max_examples=80, deadline=None)
@given(busy_rhythms())
def test_no_rhythm_that_works_within_the_window_is_stopped(rhythm):
    assert follow(rhythm, 2.0, period_s=PERIOD_S).stopped_s is None


@settings(max_examples=30, deadline=None)
@given(
    st.floats(100, 4000),
    st.integers(0, 2**16),
    st.floats(0.01, 60),
    st.sampled_from([1.0, 2.0, 7.0]),
)
def test_whatever_it_did_before_a_run_that_ends_in_nothing_is_stopped(
    lasts_s, seed, step_s, period_s
):
    rhythm = after(steps_every(step_s), lasts_s, noise(seed))
    outcome = follow(rhythm, 3.0, period_s=period_s)
    # A block of a minute before the window, in which the last of its work counts
    assert outcome.stopped_s is not None
    assert outcome.stopped_s <= lasts_s + 60 + IDLE_S + GRACE_S + 4 * period_s


# Real processes, on a clock on which a window is 1.5 seconds

PYTHON = sys.executable
HERE = Path(__file__).parent
BUSY_S = 3.5
"""How long a busy run is looked at: more than two windows with their grace."""
STOPPED = 143
"""What a shell says of a process that SIGTERM has ended."""
SPIN = "import time\nwhile True: sum(range(60000)); time.sleep(0.004)\n"
SLEEP = "import time; time.sleep(60)\n"
STEPS = "import time\nfor n in range(8): print('step', n, flush=True); time.sleep(0.1)\n"


@dataclass(frozen=True, kw_only=True)
class Real:
    """A real run: what it does, what its GPU does, and what is done to it from outside."""

    code: str = SLEEP
    gpu: str = "0"
    rules: dict = field(default_factory=dict)
    meddle: Callable | None = None
    at_terminal: bool = False


def _pid(folder):
    """Of the command; the guard says it."""
    wait_for(lambda: (folder / "status.json").exists())
    status = json.loads((folder / "status.json").read_bytes())
    return status["pid"]


TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0  # PTRACE_SEIZE in linux/ptrace.h
time.sleep(60)
"""


def _attach(folder):
    """Trace the command, as a debugger does."""
    return subprocess.Popen([PYTHON, "-S", "-c", TRACER, str(_pid(folder))])


WORKER = f"""
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {SPIN!r}])
time.sleep(60)
"""
DISK = """
import os, time
while True:
    with open("data", "wb") as file: file.write(os.urandom(100_000))
    time.sleep(0.05)
"""
DAEMON = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        exec({SPIN!r})
    os._exit(0)
"""
RANKS = """
import multiprocessing, time
def wait(): time.sleep(60)
def work():
    while True: sum(range(60000)); time.sleep(0.004)
if __name__ == "__main__":
    all_of_them = [multiprocessing.Process(target=wait) for _ in range(3)]
    all_of_them.append(multiprocessing.Process(target=work))
    for one in all_of_them: one.start()
    for one in all_of_them: one.join()
"""
REAL_BUSY = {
    "CPU in a worker": Real(code=WORKER),
    "one rank of four": Real(code=RANKS),
    "writes to its disk": Real(code=DISK),
    "lines in the log": Real(
        code="import time\nwhile True: print('waiting', flush=True); time.sleep(0.3)\n"
    ),
    "a busy GPU": Real(gpu="0.9"),
    "a GPU that cannot be read": Real(gpu="unknown"),
    "a debugger attached": Real(meddle=_attach),
    "stopped by hand": Real(meddle=lambda folder: os.kill(_pid(folder), signal.SIGSTOP)),
    "pdb at a terminal": Real(code="breakpoint()", at_terminal=True),
    "input at a terminal": Real(code="input('go on? ')", at_terminal=True),
    "a daemon that goes on": Real(code=DAEMON),
    "steps, and then a long calculation": Real(
        code=STEPS + SPIN, rules={"step_pattern": "step ([0-9]+)"}
    ),
}


def _start(folder, real):
    folder.mkdir()
    (folder / "gpu").write_text(real.gpu)
    (folder / "script.py").write_text(real.code)
    stdin, master = subprocess.DEVNULL, None
    if real.at_terminal:
        master, stdin = pty.openpty()
    command = [PYTHON, HERE / "guarded.py", folder, json.dumps(real.rules)]
    with (folder / "guard").open("wb") as output:
        process = subprocess.Popen(
            [*map(str, command), "--", PYTHON, str(folder / "script.py")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"},
            stdin=stdin,
            stdout=output,
            stderr=output,
        )
    return process, master


def _finish(process, master):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if master is not None:
        os.close(master)


def _events(folder):
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_real_runs_that_are_busy_are_left_alone(tmp_path):
    folders = {name: tmp_path / str(number) for number, name in enumerate(REAL_BUSY)}
    running = {name: _start(folders[name], real) for name, real in REAL_BUSY.items()}
    tracers = []
    try:
        for name, folder in folders.items():
            wait_for((folder / "status.json").exists, what=name)
            if REAL_BUSY[name].meddle is not None:
                tracer = REAL_BUSY[name].meddle(folder)
                tracers += [tracer] if tracer is not None else []
        time.sleep(BUSY_S)
        for name, (process, _) in running.items():
            said = (folders[name] / "guard").read_text()
            assert process.poll() is None, f"{name}: {said}"
            stops = [one for one in _events(folders[name]) if one["event"] in ("signal", "stopped")]
            assert not stops, f"{name}: {stops}"
    finally:
        for tracer in tracers:
            tracer.kill()
            tracer.wait()
        for process, master in running.values():
            _finish(process, master)
    for name, folder in folders.items():
        wait_for(lambda at=folder: not list(processes_with(str(at))), what=f"the end of {name}")


SAVES = """
import signal, time
def save(*_): open("saved", "w").write("weights")
signal.signal(signal.SIGUSR1, save)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
while True: time.sleep(60)
"""
REAL_IDLE = {
    "does nothing": (Real(), STOPPED),
    "does nothing, in a child as well": (
        Real(code=f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SLEEP!r}])\n"),
        STOPPED,
    ),
    "stalls": (
        Real(code=STEPS + SLEEP, rules={"step_pattern": "step ([0-9]+)", "idle_s": None}),
        STOPPED,
    ),
    "saves when it is asked to": (Real(code=SAVES), STOPPED),
    "does not end by itself": (Real(code=STUBBORN), 137),
    "losses are not finite": (
        Real(
            code="import time\nwhile True: print('loss: nan', flush=True); time.sleep(0.1)\n",
            rules={"loss_pattern": "loss: (\\S+)"},
        ),
        STOPPED,
    ),
}


def test_real_runs_that_idle_or_stall_are_stopped_within_the_window(tmp_path):
    folders = {name: tmp_path / str(number) for number, name in enumerate(REAL_IDLE)}
    running = {name: _start(folders[name], real) for name, (real, _) in REAL_IDLE.items()}
    try:
        for name, (_, status) in REAL_IDLE.items():
            assert running[name][0].wait(30) == status, (folders[name] / "guard").read_text()
            ended = json.loads((folders[name] / "status.json").read_bytes())
            assert ended["phase"] == "ended"
            assert ended["stopped_for"]
            assert ended["exit_status"] == status
            happened = [one["event"] for one in _events(folders[name])]
            assert happened.index("warning") < happened.index("stopped") < happened.index("ended")
    finally:
        for process, master in running.values():
            _finish(process, master)
    saved = folders["saves when it is asked to"]
    assert (saved / "saved").read_text() == "weights"
    assert [one["event"] for one in _events(saved)].count("signal") == 1
    for folder in folders.values():
        assert not list(processes_with(str(folder)))
