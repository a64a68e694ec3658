"""The script of a job and the folder of its run: what runs, what is sent, and what does not run."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from outlay.errors import InputError, LaunchFailed
from outlay.run import run_folder
from outlay.run.job import Job, JobMachine
from outlay.run.run_folder import (
    FolderState,
    RunFolder,
    by_this_clock,
    engine_state,
    job_script,
    packed,
    parse_state,
    unpacked,
)
from outlay.run.shell import Completed, HereShell, ShellFailed
from outlay.workload.workload import WatchSettings

SHELLS = [name for name in ("sh", "dash", "bash", "busybox") if shutil.which(name)]
ODD = [
    "$(touch PWNED)",
    "`touch PWNED`",
    "'; touch PWNED; '",
    '"; touch PWNED; "',
    "a\ntouch PWNED\n",
    "\\\n touch PWNED",
    "OUTLAY_END\ntouch PWNED",
    "-rf",
    "* ~ ! # %s",
    "é 日本",
]


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Where runs' folders are."""
    folder = tmp_path / "there"
    monkeypatch.setenv("OUTLAY_RUNS", str(folder))
    return folder


def a_job(**given) -> Job:
    usual = {"id": "tiny-123456", "name": "tiny", "engine": "local", "command": "true",
             "outlay": "none"}  # fmt: skip
    return Job(**{**usual, **given})


def ran(job: Job, there: Path, shell: str = "sh", **variables: str):
    """A job's script, run to its end."""
    command = ["busybox", "sh"] if shell == "busybox" else [shell]
    path = there.parent / "job.sh"
    path.write_text(job_script(job))
    return subprocess.run(
        [*command, str(path)],
        capture_output=True, text=True, timeout=30, check=False, start_new_session=True,
        env={**os.environ, **variables},
    )  # fmt: skip


FULL = {
    "command": "python -c 'print(1)'",
    "resume": "python -c 'print(2)'",
    "checkpoints": "out",
    "setup": ("echo one", "export TWO=2"),
    "environment": (("A", "b c"),),
    "longest_s": 3600.0,
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("outlay", ["", "none", "outlay==1.0"])
@pytest.mark.parametrize("engine", ["local", "slurm"])
def test_every_shell_can_read_the_script(tmp_path, shell, outlay, engine):
    path = tmp_path / "job.sh"
    path.write_text(job_script(a_job(**FULL, outlay=outlay, engine=engine)))
    command = ["busybox", "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*command, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_set_up_reaches_the_command(there, shell):
    job = a_job(setup=("export TWO=2", "mkdir -p sub", "cd sub"), command="echo $TWO; pwd",
                environment=(("A", "x"),))  # fmt: skip
    done = ran(job, there, shell)
    assert done.stdout.splitlines() == ["2", str(there / job.id / "work")]
    assert (there / job.id / "exit").read_text() == "0\n"
    assert (there / job.id / "phase").read_text() == "training\n"


def test_set_up_may_use_source_and_names_that_are_not_set(there):
    (there / "tiny-123456" / "work").mkdir(parents=True)
    (there / "tiny-123456" / "work" / "activate").write_text('export ENV="on$PS9"\n')
    done = ran(a_job(setup=("source ./activate",), command="echo $ENV"), there, "sh")
    assert (done.stdout, done.stderr) == ("on\n", "")


def test_set_up_that_fails_ends_the_run_with_its_status(there):
    done = ran(a_job(setup=("echo one", "sh -c 'exit 7'", "echo two"), command="echo no"), there)
    assert done.stdout == "one\n"
    assert done.returncode == 7
    assert (there / "tiny-123456" / "exit").read_text() == "7\n"
    assert (there / "tiny-123456" / "phase").read_text() == "set-up\n"


def test_the_command_s_status_is_that_of_the_run(there):
    assert ran(a_job(command="exit 3"), there).returncode == 3
    assert (there / "tiny-123456" / "exit").read_text() == "3\n"


def test_a_second_start_does_nothing(there):
    job = a_job(command="echo trained >> lines")
    first = ran(job, there)
    second = ran(job, there, SLURM_RESTART_COUNT="1")  # of a job that outlay itself runs in
    assert (first.returncode, second.returncode) == (0, 0)
    assert "started before" in second.stderr
    assert (there / job.id / "work" / "lines").read_text() == "trained\n"


def test_a_job_that_slurm_put_back_goes_on(there):
    job = a_job(engine="slurm", command="echo trained >> lines")
    ran(job, there)
    ran(job, there, SLURM_RESTART_COUNT="1")
    assert (there / job.id / "work" / "lines").read_text() == "trained\ntrained\n"


def test_a_folder_that_cannot_be_written_is_said(there):
    (there / "tiny-123456").parent.mkdir(parents=True)
    (there / "tiny-123456").write_text("in the way")
    done = ran(a_job(command="echo no"), there)
    assert done.returncode == 1
    assert "no" not in done.stdout


@pytest.mark.parametrize(("before", "printed"), [((), "new\n"), (("step_1.pt",), "again 1\n")])
def test_it_resumes_where_there_are_checkpoints(there, before, printed):
    folder = there / "tiny-123456" / "work" / "out"
    folder.mkdir(parents=True)
    for name in before:
        (folder / name).write_text("")
    resume = "echo again $OUTLAY_RESUMED"
    done = ran(a_job(checkpoints="out", command="echo new $OUTLAY_RESUMED", resume=resume), there)
    assert done.stdout == printed


def test_checkpoints_within_and_outside_the_folder(there, tmp_path):
    inside = ran(a_job(checkpoints="out/c", command="echo $OUTLAY_CHECKPOINTS"), there)
    assert inside.stdout == f"{there}/tiny-123456/work/out/c\n"
    shutil.rmtree(there)
    outside = ran(a_job(checkpoints=f"{tmp_path}/c", command="echo $OUTLAY_CHECKPOINTS"), there)
    assert outside.stdout == f"{tmp_path}/c\n"
    assert (tmp_path / "c").is_dir()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("shell", SHELLS)
def test_no_value_of_a_job_runs(there, tmp_path, odd, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = JobMachine(provider=odd, instance=odd, gpu=odd, region=odd, zone=odd, host=odd)
    job = a_job(
        name=odd, environment=(("A", odd),), checkpoints=odd.replace("\n", " "), fetch=(odd,),
        exclude=(odd,), image=odd, machine=machine, alternatives=(machine,), resume="echo again",
        command="printf '%s' \"$A\" > got",
    )  # fmt: skip
    done = ran(job, there, shell)
    assert done.returncode == 0, done.stderr
    assert (there / job.id / "work" / "got").read_text() == odd
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("odd", ODD)
def test_comments_are_one_line(odd):
    first = job_script(a_job(name=odd)).splitlines()
    assert first[1].startswith("# ")
    assert first[1].endswith("it is")
    assert first[2].startswith("# ")
    assert all(not line or line.startswith(("#", "if ", "  exec", "fi")) for line in first[3:7])
    assert first[7] == "set -u"


def test_what_a_run_leaves_behind_is_nobody_else_s(there):
    folder = RunFolder(HereShell(), "tiny-123456")
    folder.write("job.json", b"{}")
    assert (there / "tiny-123456").stat().st_mode & 0o077 == 0


# The time limit of a run without a guard


def test_the_time_limit_ends_all_processes_of_a_run(there):
    job = a_job(command="sleep 60 & sleep 60", longest_s=1.0, watch=WatchSettings(grace_s=2.0))
    started_s = time.monotonic()
    done = ran(job, there)
    assert time.monotonic() - started_s < 10
    assert done.returncode != 0
    assert "its time limit is reached" in done.stdout + done.stderr
    state = engine_state(RunFolder(HereShell(), job.id).state())
    assert (state.state, state.reason) == ("stopped", "its time limit was reached")
    _await_gone(int((there / job.id / "pid").read_text()))


def test_the_time_limit_ends_what_ignores_signals(there):
    job = a_job(
        command="trap '' TERM; echo $$ > own; while :; do sleep 0.2; done",
        longest_s=1.0,
        watch=WatchSettings(grace_s=1.0),
    )
    done = ran(job, there)
    assert done.returncode == 128 + signal.SIGKILL
    state = engine_state(RunFolder(HereShell(), job.id).state())
    assert (state.state, state.reason) == ("stopped", "its time limit was reached")
    _await_gone(int((there / job.id / "pid").read_text()))


def test_the_timer_goes_when_the_command_ends(there):
    assert ran(a_job(command="echo ok", longest_s=1000.0), there).stdout == "ok\n"
    _await_gone(int((there / "tiny-123456" / "pid").read_text()))


def _await_gone(group: int) -> None:
    """Wait until no process of a group is left."""
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"processes of group {group} are left")


# What is sent and fetched


def names_in(archive: io.BytesIO) -> list[str]:
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        return tar.getnames()


def test_the_folder_is_sent_without_what_is_left_out(tmp_path):
    for name in ("train.py", "data/x.bin", "src/a.py", "src/a.pyc", ".git/config", "b.ckpt",
                 "src/data/keep", "venv/bin/python", "outlay-runs/a-1/big",
                 "odd 'name'\n.txt"):  # fmt: skip
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "vocab").write_text("v")
    archive = io.BytesIO()
    packed(tmp_path / "work", ("data/x.bin", "*.ckpt"), [tmp_path / "more"], archive)
    assert names_in(archive) == [
        "./data", "./src", "./odd 'name'\n.txt", "./train.py",
        "./src/data", "./src/a.py", "./src/data/keep", "./more", "./more/vocab",
    ]  # fmt: skip
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        assert {(member.uid, member.uname) for member in tar} == {(0, "")}


def test_what_is_too_large_or_cannot_be_read_is_said(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x" * 3000)
    monkeypatch.setattr(run_folder, "LARGEST_SENT_BYTES", 2000)
    with pytest.raises(InputError, match=r"run\.exclude"):
        packed(tmp_path, (), [], io.BytesIO())
    monkeypatch.undo()

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        packed(tmp_path, (), [], Full())


def test_sent_fetched_and_odd_names_run_nothing(there, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    odd = ["$(touch PWNED)", "`touch PWNED`", "a;touch PWNED", "-rf", "a b", "'", "\\x", "*"]
    for name in odd:
        (work / name).mkdir(parents=True)
        (work / name / name).write_text(name)
    folder = RunFolder(HereShell(), "tiny-123456")
    folder.write("job.json", b"{}")
    folder.send(a_job(folder=str(work)))
    folder.send(a_job(folder=str(work)))  # again: it is there already
    results = there / "tiny-123456" / "results"
    results.mkdir()
    (results / "probe.json").write_text("{}")
    came = folder.fetch(tuple(odd[:-1]), tmp_path / "back")
    wanted = {tmp_path / "back" / name / name for name in odd[:-1]}
    assert set(came) == wanted | {tmp_path / "back" / "results" / "probe.json"}
    assert {path.read_text() for path in wanted} == set(odd[:-1])
    assert not list(tmp_path.rglob("PWNED"))
    assert folder.fetch((), tmp_path / "other") == [tmp_path / "other" / "results" / "probe.json"]


def test_many_files_are_fetched(there, tmp_path):
    work = there / "tiny-123456" / "work" / "images"
    work.mkdir(parents=True)
    for number in range(3000):  # as arguments they would be 3000 * 70 bytes
        (work / f"{number:064d}.png").write_text("")
    came = RunFolder(HereShell(), "tiny-123456").fetch(("images",), tmp_path / "back")
    assert len(came) == 3000


def made_tar(*members: tarfile.TarInfo) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for member in members:
            member.size = 3 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"bad") if member.isfile() else None)
    archive.seek(0)
    return archive


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def device(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.CHRTYPE
    return member


@pytest.mark.parametrize(
    "members",
    [
        [tarfile.TarInfo("../outside")],
        [tarfile.TarInfo("work/../../outside")],
        [tarfile.TarInfo("work/work/../../../outside")],
        [link("x", ".."), tarfile.TarInfo("x/outside")],
        [link("x", "/tmp")],
        [device("outside")],
    ],
)
def test_nothing_that_is_fetched_leaves_its_folder(tmp_path, members):
    came = []
    with contextlib.suppress(LaunchFailed):
        came = unpacked(made_tar(*members), tmp_path / "back")
    assert not (tmp_path / "outside").exists()
    assert not (Path("/tmp") / "outside").exists()
    assert all(path.resolve().is_relative_to(tmp_path / "back") for path in came)
    assert not (tmp_path / "back" / "x").is_symlink()


def test_an_absolute_name_lands_within(tmp_path):
    came = unpacked(made_tar(tarfile.TarInfo(f"{tmp_path}/outside")), tmp_path / "back")
    assert not (tmp_path / "outside").exists()
    assert all((tmp_path / "back") in path.parents or not path.exists() for path in came)


@pytest.mark.parametrize("data", [b"no archive at all", b"x" * 2000, b"\x1f\x8b"])
def test_half_a_reply_is_said(tmp_path, data):
    with pytest.raises(LaunchFailed, match="fetched"):
        unpacked(io.BytesIO(data), tmp_path)


def test_half_an_archive_is_said(tmp_path):
    whole = tarfile.TarInfo("a")
    archive = made_tar(whole).getvalue()[:513]
    with pytest.raises(LaunchFailed):
        unpacked(io.BytesIO(archive), tmp_path)


# What a folder says


def test_a_log_is_read_from_an_offset_on(there, monkeypatch):
    folder = RunFolder(HereShell(), "tiny-123456")
    assert folder.read("log") == b""
    folder.write("log", b"0123456789")
    assert folder.read("log", 4) == b"456789"
    assert folder.read("log", 10) == b""
    assert folder.read("other") == b""


def test_a_folder_that_is_not_there_says_nothing(there):
    state = RunFolder(HereShell(), "tiny-123456").state()
    assert state == FolderState()
    assert engine_state(state) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"is_alive": True, "pid": 7}, ("running", "")),
        ({}, ("running", "")),  # it has just begun, and wrote no process number yet
        ({"now_s": 1100.0}, ("lost", "its processes are gone without a status")),
        ({"pid": 7}, ("lost", "its processes are gone without a status")),
        ({"pid": 7, "stop_was_asked": True}, ("stopped", "ended after the grace period")),
        ({"exit_status": 0}, ("done", "")),
        ({"exit_status": 2}, ("failed", "exit status 2")),
        ({"exit_status": 143, "stop_was_asked": True}, ("stopped", "")),
        ({"exit_status": 124, "limit_was_reached": True},
         ("stopped", "its time limit was reached")),
        ({"exit_status": 1, "status": {"stopped_for": "idle for 10 min"}},
         ("stopped", "idle for 10 min")),
    ],
)  # fmt: skip
def test_what_the_files_of_a_run_mean(given, expected):
    state = engine_state(
        FolderState(**{"exists": True, "now_s": 1010.0, "started_s": 1000.0, **given})
    )
    assert (state.state, state.reason) == expected


def test_times_are_those_of_the_clock_here():
    # There it is 5,000, 1,000 s behind; it began 200 s ago.
    there = FolderState(exists=True, now_s=5_000.0, started_s=4_800.0, ended_s=4_900.0)
    here = by_this_clock(there, 6_000.0)
    assert (here.now_s, here.started_s, here.ended_s) == (6_000.0, 5_800.0, 5_900.0)
    assert by_this_clock(there, 5_010.0) == there  # a slow reply is no wrong clock
    assert by_this_clock(FolderState(), 5_010.0) == FolderState()


def test_half_a_status_is_none():
    whole = "now 20\nstarted 10\nphase training\npid 7\nalive 1\nstatus\n"
    assert parse_state(whole + '{"steps_done": 5}').status == {"steps_done": 5}
    assert parse_state(whole + '{"steps_do').status == {}
    assert parse_state(whole + "[1]").status == {}
    assert parse_state("now x\nstarted\npid y\n").pid is None


def test_half_a_reply_about_a_run_is_no_answer(there):
    class Cut:
        name = "there"

        def run(self, arguments, **given):
            done = HereShell().run(arguments, **given)
            return replace(done, output=done.output[: len(done.output) // 2])

    RunFolder(HereShell(), "tiny-123456").write("exit", b"143\n")
    with pytest.raises(ShellFailed, match="half a reply"):
        RunFolder(Cut(), "tiny-123456").state()


def test_a_process_number_that_another_process_has_now_is_not_alive(there):
    folder = RunFolder(HereShell(), "tiny-123456")
    folder.write("pid", f"{os.getpid()}\n".encode())
    assert folder.state().pid == os.getpid()
    assert not folder.state().is_alive


def test_a_zombie_is_not_alive(there):
    folder = RunFolder(HereShell(), "tiny-123456")
    with subprocess.Popen(["true"]) as child:
        time.sleep(0.2)  # ended, and not waited for yet
        folder.write("pid", f"{child.pid}\n".encode())
        assert not folder.state().is_alive


def test_disk_full_there_is_said():
    class Full:
        name = "there"

        def run(self, arguments, **given):
            return Completed(
                status=1, output=b"", error="cat: write error: No space left on device"
            )

    with pytest.raises(LaunchFailed) as caught:
        RunFolder(Full(), "tiny-123456").write("job.json", b"{}")
    assert "disk is full" in caught.value.why
    assert "job.json" in caught.value.what
    assert "nothing is started twice" in caught.value.fix


def test_the_own_wheel_can_be_installed(tmp_path):
    import zipfile

    name, data = run_folder.own_wheel()
    (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        names = set(wheel.namelist())
    assert "outlay/cli/main.py" in names
    assert "outlay/data/gpus.csv" in names
    assert not [each for each in names if "__pycache__" in each]
