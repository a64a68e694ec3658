"""Engine local on this very machine: started once, read, stopped, fetched, deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.run.jobs import ended, job, printed, submitted
from tests.run.services import wait_for

from outlay.errors import LaunchFailed
from outlay.run.host_engine import HostEngine
from outlay.run.job import Job, JobMachine
from outlay.run.shell import Completed, HereShell


@pytest.fixture
def engine(tmp_path, monkeypatch) -> HostEngine:
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "there"))
    return HostEngine(HereShell(), "local")


def local(tmp_path: Path, **given) -> Job:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return job(engine="local", folder=str(folder), **given)


def test_a_run_goes_through_its_states_in_the_folder_itself(engine, tmp_path):
    of = local(tmp_path, command="echo hello; echo there >&2; echo x > made")
    assert engine.find(of) is None
    handle = submitted(engine, of)
    assert engine.find(of) == handle == "this machine"
    state = ended(engine, of, handle)
    assert (state.state, state.exit_status, state.phase) == ("done", 0, "training")
    assert state.held_since_s <= state.ended_s <= time.time() + 1
    assert engine.logs(of, handle) == b"hello\nthere\n"
    assert engine.logs(of, handle, 6) == b"there\n"
    assert (tmp_path / "work" / "made").exists()
    engine.delete(of, handle)
    assert not list((tmp_path / "there").iterdir())
    assert (tmp_path / "work" / "made").exists()  # the folder is the user's own


def test_submitted_again_it_starts_nothing(engine, tmp_path):
    of = local(tmp_path, command="echo trained >> lines")
    for _ in range(3):
        handle = submitted(engine, of)
    ended(engine, of, handle)
    assert (tmp_path / "work" / "lines").read_text() == "trained\n"


def test_a_failing_command_fails(engine, tmp_path):
    of = local(tmp_path, command="echo no >&2; exit 3")
    state = ended(engine, of, submitted(engine, of))
    assert (state.state, state.exit_status, state.reason) == ("failed", 3, "exit status 3")


def test_it_goes_on_without_whoever_started_it(engine, tmp_path):
    of = local(tmp_path, command="ps -o sid= -p $$ > session")
    ended(engine, of, submitted(engine, of))
    assert int((tmp_path / "work" / "session").read_text()) != os.getsid(0)


def test_secrets_reach_the_command_and_no_file(engine, tmp_path):
    of = local(tmp_path, command='[ "$KEY" = "$WANTED" ] && echo same', pass_on=("KEY", "WANTED"))
    secret = 'it\'s "$(touch PWNED)" and \n more'
    handle = submitted(engine, of, KEY=secret, WANTED=secret)
    assert ended(engine, of, handle).state == "done"
    assert engine.logs(of, handle) == b"same\n"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"PWNED" not in path.read_bytes()
    assert not list(tmp_path.rglob("PWNED"))


def test_stop_gives_time_to_save(engine, tmp_path):
    of = local(tmp_path, command="trap 'echo saved > saved; exit 0' TERM\necho up\nsleep 60 & wait")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    engine.stop(of, handle, grace_s=10.0)
    assert engine.state(of, handle).state == "stopped"
    assert (tmp_path / "work" / "saved").exists()
    engine.stop(of, handle, grace_s=10.0)  # again: nothing to do


def test_stop_ends_what_does_not_listen_with_all_its_children(engine, tmp_path):
    deaf = "trap '' TERM; sleep 600 & echo $! > child; echo up; while :; do sleep 0.2; done"
    of = local(tmp_path, command=deaf)
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    child = int((tmp_path / "work" / "child").read_text())
    engine.stop(of, handle, grace_s=0.5)
    state = engine.state(of, handle)
    assert state.state == "stopped"
    assert _is_gone(child)


def _is_gone(pid: int, tries: int = 50) -> bool:
    for _ in range(tries):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.1)
    return False


def test_one_killed_from_outside_is_lost_once_nothing_of_it_is_left(engine, tmp_path):
    of = local(tmp_path, command="sleep 60 & echo $! > child; echo up; wait")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    child = int((tmp_path / "work" / "child").read_text())
    pid = int((tmp_path / "there" / of.id / "pid").read_text())
    os.killpg(pid, signal.SIGKILL)  # not the command, which has a group of its own
    wait_for(lambda: "was killed" in engine.state(of, handle).reason)
    assert engine.state(of, handle).state == "running"
    assert not _is_gone(child, tries=1)
    engine.stop(of, handle, grace_s=5.0)
    assert _is_gone(child)
    assert engine.state(of, handle).state == "stopped"
    (tmp_path / "there" / of.id / "stop").unlink()
    state = engine.state(of, handle)
    assert (state.state, state.exit_status) == ("lost", None)


def test_where_what_guards_the_command_is_killed_nothing_is_left(engine, tmp_path):
    of = local(tmp_path, command="echo $PPID > guard; sleep 60 & echo $! > child; echo up; wait")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    os.kill(int((tmp_path / "work" / "guard").read_text()), signal.SIGKILL)
    state = ended(engine, of, handle)
    assert (state.state, state.exit_status) == ("failed", 128 + signal.SIGKILL)
    assert _is_gone(int((tmp_path / "work" / "child").read_text()))


def test_another_process_of_the_same_number_is_left_alone(engine, tmp_path):
    of = local(tmp_path)
    handle = submitted(engine, of)
    ended(engine, of, handle)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        folder = tmp_path / "there" / of.id
        (folder / "pid").write_text(f"{other.pid}\n")
        (folder / "exit").unlink()
        assert engine.state(of, handle).state == "lost"
        engine.stop(of, handle, grace_s=0.5)
        assert other.poll() is None
        other.kill()


def test_results_are_fetched_and_what_is_here_stays(engine, tmp_path):
    of = local(
        tmp_path, command='echo 1 > "$OUTLAY_RESULTS/probe.json"; echo 2 > own', fetch=("own",)
    )
    handle = submitted(engine, of)
    ended(engine, of, handle)
    came = engine.fetch(of, handle, tmp_path / "back")
    assert came == [tmp_path / "back" / "results" / "probe.json"]


def test_it_starts_on_one_machine_alone(engine):
    with pytest.raises(LaunchFailed, match="one machine, not 2"):
        engine.render(job(engine="local", machine=JobMachine(machines=2)))


def test_one_that_does_not_start_is_said_with_its_log(engine, tmp_path, monkeypatch):
    from outlay.run import host_engine

    monkeypatch.setattr(host_engine, "_STARTS_S", 0.5)
    of = local(tmp_path)
    file = engine.render(of)
    with pytest.raises(LaunchFailed, match="did not start") as caught:
        engine.submit(of, type(file)(name=file.name, text="echo broken; exit 1\n"), {})
    assert "broken" in caught.value.why
    assert submitted(engine, of)  # the same again starts it


@pytest.mark.parametrize("number", range(6))
def test_any_command_there_that_fails_is_said_and_done_again(engine, tmp_path, number):
    class Failing:
        name = "there"
        calls = 0

        def run(self, arguments, **given):
            self.calls += 1
            if self.calls == number + 1:
                return Completed(status=1, output=b"", error="sh: No space left on device")
            return HereShell().run(arguments, **given)

    of = local(tmp_path, command="echo trained >> lines")
    failing = HostEngine(Failing(), "ssh")
    with pytest.raises(LaunchFailed, match="disk is full"):
        submitted(failing, of)
    ended(engine, of, submitted(failing, of))
    work = tmp_path / "there" / of.id / "work"
    assert (work / "lines").read_text() == "trained\n"
