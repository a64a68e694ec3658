"""Traces are forks of a process that has imported torch; without one they are made all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from outlay.errors import InputError, TraceFailed
from outlay.trace import process
from outlay.trace.process import end_running
from outlay.trace.tracing import profile_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked"),
]

STEP = """
import os, sys, time
{extra}
import torch

def build(n):
    model = torch.nn.Linear(4, int(os.environ.get("ROWS", "3")))
    optimizer = torch.optim.SGD(model.parameters())
    def step():
        model(torch.ones(n, 4)).sum().backward()
        optimizer.step()
        {slow}
    return step
"""


@pytest.fixture(autouse=True, scope="module")
def one_at_first():
    process.close()
    yield
    process.close()


@pytest.fixture(autouse=True)
def torch_is_fine(monkeypatch):
    """What a trace that was killed asks."""
    monkeypatch.setattr("outlay.trace.process.torch_can_be_traced", lambda: True)


@pytest.fixture
def step(tmp_path):
    def written(extra="", slow=""):
        path = tmp_path / "step.py"
        path.write_text(STEP.format(extra=extra, slow=slow))
        return f"{path}:build"

    return written


def parameters(target):
    return profile_of(target, [1]).parameters


def forkers():
    return [client._process for client in process._clients.values()]


def is_there(pid):
    """Whether it runs; one that ended may wait for its parent to take note."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


SLEEPS = "open('{}', 'a').write(str(os.getpid()) + '.'); time.sleep(60)"
"""A step that says who runs it, and stays."""


def who(path):
    """The process that runs the step, once it does."""
    until(lambda: path.exists() and path.read_text().strip().endswith("."))
    return int(path.read_text().partition(".")[0])


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_process_is_forked_for_all(step):
    assert parameters(step()) == 15
    [first] = forkers()
    assert parameters(step()) == 15
    assert forkers() == [first]


def test_a_fork_has_the_environment_and_the_folder_of_now(step, tmp_path, monkeypatch):
    assert parameters(step()) == 15
    [first] = forkers()
    monkeypatch.setenv("ROWS", "5")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "beside.py").write_text("")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert parameters(step("import beside")) == 25
    monkeypatch.delenv("ROWS")
    assert parameters(step()) == 15
    assert forkers() == [first]


def test_what_python_reads_at_its_start_needs_another(step, monkeypatch):
    parameters(step())
    monkeypatch.setenv("PYTHONUTF8", "1")
    assert parameters(step("assert sys.flags.utf8_mode")) == 15
    assert len(forkers()) == 2
    process.close()


def test_one_that_was_killed_is_replaced_or_done_without(step, monkeypatch):
    parameters(step())
    [first] = forkers()
    first.kill()
    with monkeypatch.context() as unseen:
        unseen.setattr(process._ForkClient, "is_running", True)
        assert parameters(step()) == 15
    assert forkers() == [first]
    assert parameters(step()) == 15
    assert forkers() != [first]


def test_killed_while_it_traces(step, tmp_path):
    started = tmp_path / "started"
    target = step(slow=SLEEPS.format(started))

    def kill():
        who(started)
        forkers()[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TraceFailed, match="killed by SIGKILL"):
        profile_of(target, [1])
    killer.join()
    until(lambda: not is_there(who(started)))


def test_an_idle_one_goes(step, monkeypatch):
    process.close()
    monkeypatch.setattr(process, "IDLE_S", 0.2)
    parameters(step())
    [first] = forkers()
    until(lambda: first.poll() is not None)
    assert first.returncode == 0


@pytest.mark.parametrize("early", [True, False])
def test_a_trace_is_ended_from_another_thread(early, step, tmp_path):
    started = tmp_path / "started"
    target = step(slow=SLEEPS.format(started))
    process.close()

    def end():
        until(forkers) if early else who(started)
        time.sleep(0.1)
        end_running()

    ender = threading.Thread(target=end)
    ender.start()
    before = time.monotonic()
    with pytest.raises(TraceFailed, match="killed by SIGKILL"):
        profile_of(target, [1])
    ender.join()
    assert time.monotonic() - before < 40
    if not early:
        until(lambda: not is_there(who(started)))


def test_nothing_is_left_when_the_asking_process_is_killed(step, tmp_path):
    started, beside, folder = tmp_path / "started", tmp_path / "beside", tmp_path / "tmp"
    folder.mkdir()
    starts = f"echo $$. > {beside}; sleep 60"
    extra = f"import subprocess; subprocess.Popen({starts!r}, shell=True)"
    target = step(extra, slow=SLEEPS.format(started))
    asking = subprocess.Popen(
        [sys.executable, "-m", "outlay", "trace", target], env={**os.environ, "TMPDIR": str(folder)}
    )
    fork = who(started)
    forker = int(Path(f"/proc/{fork}/stat").read_text().rpartition(")")[2].split()[1])
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    until(lambda: not is_there(fork) and not is_there(forker) and not is_there(who(beside)))
    assert not list(folder.glob("outlay*"))


def test_the_file_sees_no_arguments(step):
    assert parameters(step("assert len(sys.argv) == 1 and sys.argv[0].endswith('step.py')")) == 15


def test_threads_of_the_file_that_never_end(step):
    runs = "import threading; threading.Thread(target=lambda: time.sleep(600)).start()"
    before = time.monotonic()
    assert parameters(step(runs)) == 15
    assert time.monotonic() - before < 60


def test_signals_that_the_program_blocks(step):
    process.close()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        assert profile_of(step(), [1], timeout_s=60).parameters == 15
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_a_fork_of_the_program_has_its_own(step):
    parameters(step())
    [first] = forkers()
    with process._clients_lock:  # as another thread may hold it
        pid = os.fork()
        if pid == 0:
            os._exit(parameters(step()) if not forkers() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 15
    assert parameters(step()) == 15
    assert forkers() == [first]


def test_a_folder_that_is_gone_is_named(step, tmp_path, monkeypatch):
    target, gone = step(), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="current folder"):
        profile_of(target, [1])


def test_without_a_process_to_fork(step, monkeypatch):
    process.close()
    monkeypatch.setattr(sys, "platform", "other")
    assert parameters(step()) == 15
    assert not forkers()
