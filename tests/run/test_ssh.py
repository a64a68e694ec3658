"""The engine ssh on a real server: launch, logs, stop, fetch, and all that can go wrong."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.run.jobs import FAULTS, Wrapper, ended, job, printed, submitted, submitted_until_killed
from tests.run.services import PrivateSshd, processes_with

from outlay.errors import InputError, LaunchFailed
from outlay.run import host_engine
from outlay.run.host_engine import HostEngine
from outlay.run.job import JobMachine
from outlay.run.run_folder import RunFolder, packed, unpacked
from outlay.run.shell import CONFIG_VARIABLE, ShellFailed, SshShell
from outlay.workload.workload import WatchSettings

pytestmark = pytest.mark.service("sshd")

ODD_NAMES = ("a b", "$(touch ran)", "`id`", "-rf", "line\nbreak", "quo'te", 'quo"te', "semi;colon")


@pytest.fixture
def engine(sshd: PrivateSshd, monkeypatch: pytest.MonkeyPatch) -> HostEngine:
    """The engine on the private server."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.config))
    monkeypatch.setattr(host_engine, "_POLL_S", 0.05)
    return HostEngine(SshShell(sshd.host, waits_s=(0.01, 0.02)), name="ssh")


@pytest.fixture
def wrapped_ssh(tmp_path, engine: HostEngine, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
    """The ssh program, which does as it is told."""
    (tmp_path / "bin").mkdir()
    assert isinstance(engine.shell, SshShell)
    assert engine.shell.command()  # what the configuration says is known, once it was asked
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Wrapper("ssh", tmp_path / "bin")


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder to send: odd names, a link, what is left out."""
    folder = tmp_path / "project"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("no")
    (folder / "big.bin").write_text("no")
    (folder / "deep" / "er" / "file").write_text("yes")
    (folder / "run.sh").write_text("echo ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("deep/er/file")
    for name in ODD_NAMES:
        (folder / name).write_text(name)
    return folder


def test_a_run_is_started_watched_and_brought_back(engine, sshd, project, tmp_path):
    of = job(
        command="./run.sh && cat link && mkdir out && echo 1.5 > out/loss && ls > out/list",
        folder=str(project),
        exclude=("*.bin",),
        fetch=("out",),
    )

    handle = submitted(engine, of)
    state = ended(engine, of, handle)
    came = engine.fetch(of, handle, tmp_path / "here")

    assert handle == sshd.host
    assert (state.state, state.exit_status) == ("done", 0)
    assert engine.logs(of, handle) == b"ran\nyes"
    assert engine.logs(of, handle, offset=4) == b"yes"
    assert came == [tmp_path / "here/out/list", tmp_path / "here/out/loss"]
    assert (tmp_path / "here/out/loss").read_text() == "1.5\n"
    sent = (sshd.runs / of.id / "work").iterdir()
    wanted = {*ODD_NAMES, "deep", "run.sh", "link", "out"}
    assert {path.name for path in sent} == wanted
    assert abs(time.time() - state.held_since_s) < 60
    assert state.held_since_s <= state.ended_s


def test_odd_names_and_values_run_nothing(engine, sshd, project, tmp_path):
    of = job(
        name='$(touch ran) `touch ran`\n touch ran "',
        command="printenv ODD > odd",
        folder=str(project),
        environment=(("ODD", "'$(touch ran)'\n`touch ran`; touch ran"),),
        checkpoints="$(touch ran) point",
        fetch=("*",),
    )

    handle = submitted(engine, of)
    ended(engine, of, handle)
    came = engine.fetch(of, handle, tmp_path / "here")

    assert (tmp_path / "here/odd").read_text() == "'$(touch ran)'\n`touch ran`; touch ran\n"
    assert {path.name for path in came} >= {*ODD_NAMES, "odd"}
    assert (tmp_path / "here/link").readlink() == Path("deep/er/file")
    assert (sshd.runs / of.id / "work" / "$(touch ran) point").is_dir()
    assert not list(sshd.folder.rglob("ran"))


def test_what_set_up_exports_is_there_and_what_fails_ends_the_run(engine):
    good = job(setup=("export GREETING=hi", "set -- a b", "cd /"), command='echo "$GREETING $PWD"')
    bad = job(setup=("echo one", "false", "echo two"), command="echo three")

    handles = [submitted(engine, of) for of in (good, bad)]
    states = [ended(engine, of, handle) for of, handle in zip((good, bad), handles, strict=True)]

    assert [state.state for state in states] == ["done", "failed"]
    assert engine.logs(good, handles[0]).startswith(b"hi /")
    assert engine.logs(good, handles[0]).strip().endswith(f"{good.id}/work".encode())
    assert engine.logs(bad, handles[1]) == b"one\n"
    assert states[1].exit_status == 1


def test_secrets_reach_the_command_and_no_file(engine, sshd):
    secret = "s3cr3t'$(id)\nsecond line"
    of = job(command='printf %s "$SECRET" | sha256sum', pass_on=("SECRET",))

    handle = submitted(engine, of, SECRET=secret)
    ended(engine, of, handle)

    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert engine.logs(of, handle).startswith(digest.encode())
    found = subprocess.run(["grep", "-r", "s3cr3t", str(sshd.folder)], capture_output=True)
    assert found.stdout == b""


def test_a_run_goes_on_without_us_and_is_stopped_with_time_to_save(engine, sshd):
    of = job(command="trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")

    engine.stop(of, handle, grace_s=10)

    assert engine.state(of, handle).state == "stopped"
    assert engine.logs(of, handle).endswith(b"saved\n")


@pytest.mark.parametrize("outlay", ["none", ""], ids=["without guard", "with guard"])
@pytest.mark.parametrize(
    "command",
    ["python3 train.py", "A=1 python3 train.py; echo next"],
    ids=["a program", "a program in a shell"],
)
def test_a_program_has_time_to_save_when_its_run_is_stopped(engine, tmp_path, outlay, command):
    (tmp_path / "train.py").write_text(
        "import signal, sys, time\n"
        "def save(*_):\n    print('asked', flush=True)\n    time.sleep(0.5)\n"
        "    print('saved', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    watch = WatchSettings(agent=False)
    of = job(command=command, outlay=outlay, folder=str(tmp_path), watch=watch)
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")

    engine.stop(of, handle, grace_s=20)

    log = engine.logs(of, handle)
    assert engine.state(of, handle).state == "stopped"
    assert (log.count(b"asked"), log.count(b"saved")) == (1, 1), log
    assert b"next" not in log


def test_a_run_that_does_not_listen_is_ended_with_all_its_processes(engine, sshd):
    # As torchrun does: a worker in a session of its own, that nothing reaches.
    worker = "trap '' TERM; echo worker; while :; do sleep 0.1; done"
    of = job(command=f"trap '' TERM; setsid sh -c \"{worker}\" & wait; wait", longest_s=600.0)
    handle = submitted(engine, of)
    printed(engine, of, handle, b"worker")
    assert list(processes_with(f"OUTLAY_RUN={sshd.runs}/{of.id}"))

    engine.stop(of, handle, grace_s=0.2)

    assert engine.state(of, handle).state == "stopped"
    assert not list(processes_with(f"OUTLAY_RUN={sshd.runs}/{of.id}"))


def test_processes_are_ended_even_where_their_script_is_gone(engine, sshd):
    of = job(command="echo up; sleep 600", longest_s=600.0)
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    os.kill(int((sshd.runs / of.id / "pid").read_text()), 9)

    assert "its script was killed" in engine.state(of, handle).reason
    engine.stop(of, handle, grace_s=0.2)

    assert not list(processes_with(f"OUTLAY_RUN={sshd.runs}/{of.id}"))


def test_a_number_that_another_process_has_is_not_the_run(engine, sshd):
    of = job(command="echo up; sleep 600")
    handle = submitted(engine, of)
    printed(engine, of, handle, b"up")
    pid = sshd.runs / of.id / "pid"
    real = pid.read_text()

    pid.write_text(str(os.getpid()))  # as after a restart of the machine
    state = engine.state(of, handle)
    pid.write_text(real)
    engine.stop(of, handle, grace_s=5)

    assert (state.state, state.reason.partition(",")[0]) == ("running", "its script was killed")


def test_a_time_limit_ends_a_run_without_guard(engine):
    of = job(command="echo up; sleep 600", longest_s=0.7)

    handle = submitted(engine, of)

    assert ended(engine, of, handle).exit_status == 124  # as timeout(1) has it


def test_submitting_again_starts_nothing_twice(engine, sshd):
    of = job(command="echo once; sleep 1")

    handles = {submitted(engine, of) for _ in range(3)}
    state = ended(engine, of, next(iter(handles)))

    assert handles == {sshd.host}
    assert engine.find(of) == sshd.host
    assert engine.logs(of, sshd.host) == b"once\n"
    assert state.state == "done"


def test_a_run_is_not_found_before_it_is_started_and_gone_when_deleted(engine, sshd):
    of = job(command="sleep 600")

    assert engine.find(of) is None
    handle = submitted(engine, of)
    engine.delete(of, handle)

    assert not (sshd.runs / of.id).exists()
    assert engine.find(of) is None
    engine.delete(of, handle)


def test_a_run_stopped_before_it_begins_does_not_begin(engine, sshd):
    of = job(command="echo began")
    RunFolder(engine.shell, of.id).write("stop", b"")

    handle = submitted(engine, of)
    state = ended(engine, of, handle)

    assert state.state == "stopped"
    assert engine.logs(of, handle) == b""


def test_several_machines_are_not_for_this_engine(engine):
    with pytest.raises(LaunchFailed, match="one machine, not 2"):
        engine.render(job(machine=JobMachine(machines=2)))


@pytest.mark.parametrize("fault", ["refused", "reply lost", "half a reply"])
def test_every_call_may_fail_once(engine, sshd, wrapped_ssh, project, tmp_path, fault):
    of = job(
        command="echo once; mkdir out; echo 1 > out/x; sleep 60",
        folder=str(project),
        fetch=("out",),
    )
    # Every call of the ssh program fails the first time, and does what it should the second.
    wrapped_ssh.does(FAULTS[fault], when="[ $((calls % 2)) -eq 0 ]")

    handle = submitted(engine, of)
    printed(engine, of, handle, b"once")
    came = engine.fetch(of, handle, tmp_path / "here")
    engine.stop(of, handle, grace_s=5)

    assert engine.state(of, handle).state == "stopped"
    assert engine.find(of) == sshd.host
    assert came == [tmp_path / "here/out/x"]
    assert engine.logs(of, handle).splitlines()[0] == b"once"
    assert engine.logs(of, handle).count(b"once\n") == 1
    engine.delete(of, handle)
    assert wrapped_ssh.count >= 20  # ten calls and more, each twice


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_step_nothing_is_lost_or_started_twice(
    engine, sshd, wrapped_ssh, project, moment
):
    runs = []
    for step in range(12):
        of = job(command="echo once", folder=str(project))
        does = "kill -9 $PPID; exit 1" if moment == "before" else 'real "$@"; kill -9 $PPID; exit 1'
        wrapped_ssh.does(does, when=f"[ $calls -eq {step} ]")
        if submitted_until_killed(engine, of):
            break
        wrapped_ssh.does("")
        runs.append((of, submitted(engine, of)))

    wrapped_ssh.does("")
    assert len(runs) >= 6  # to look for it, two files, what is sent, to start it, to look again
    for of, handle in runs:
        assert ended(engine, of, handle).state == "done"
        assert engine.logs(of, handle) == b"once\n"


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_call_that_keeps_failing_is_told_and_the_launch_goes_on_later(
    engine, sshd, wrapped_ssh, project, number
):
    of = job(command="echo once", folder=str(project))
    # From this call on all fail: each is tried three times before it is given up.
    wrapped_ssh.does(FAULTS["refused"], when=f"[ $calls -ge {number} ]")

    failed = None
    try:
        submitted(engine, of)
    except ShellFailed as error:
        failed = error
    wrapped_ssh.does("")
    handle = submitted(engine, of)
    ended(engine, of, handle)

    if failed is not None:
        assert "The connection failed" in str(failed)
        assert "nothing is started twice" in failed.fix
    assert engine.logs(of, handle) == b"once\n"


@pytest.fixture
def full_disk(sshd: PrivateSshd) -> Iterator[Path]:
    """The server's folder of runs on a disk of 256 KiB; where none can be mounted, tar says so."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(sshd.runs)]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    tar = sshd.bin / "tar"
    if not is_mounted:
        tar.write_text(
            "#!/bin/sh\nif [ $(cat | wc -c) -gt 262144 ]; then\n"
            "echo 'tar: Cannot write: No space left on device' >&2; exit 2\nfi\n"
        )
        tar.chmod(0o755)
    yield sshd.runs
    tar.unlink(missing_ok=True)
    if is_mounted:
        subprocess.run(["umount", "--lazy", str(sshd.runs)], check=True)


def test_a_full_disk_there_is_told_and_leaves_nothing_half_written(engine, project, full_disk):
    (project / "data").write_bytes(os.urandom(600_000))
    of = job(folder=str(project))

    with pytest.raises(LaunchFailed, match="Its disk is full") as raised:
        submitted(engine, of)

    assert "Make room there" in raised.value.fix
    assert engine.find(of) is None
    assert not (full_disk / of.id / "work").exists()
    assert not list((full_disk / of.id).glob("*.part*"))
    (project / "data").unlink()  # with less to send it goes on
    assert ended(engine, of, submitted(engine, of)).state == "done"


def test_a_machine_that_is_not_the_one_it_was_gets_nothing(engine, sshd):
    other = HostEngine(SshShell(sshd.imposter), name="ssh")
    of = job()

    for ask in (
        lambda: other.check(of),
        lambda: submitted(other, of),
        lambda: other.find(of),
        lambda: other.state(of, ""),
        lambda: other.logs(of, ""),
        lambda: other.stop(of, "", grace_s=1),
        lambda: other.fetch(of, "", Path()),
        lambda: other.delete(of, ""),
    ):
        with pytest.raises(ShellFailed, match="host key is not the one that is known"):
            ask()
    assert not (sshd.runs / of.id).exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "gone").write_text("x")

    def gone(self, path, **_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("tarfile.TarFile.add", gone)
    with (tmp_path / "archive").open("wb") as archive, pytest.raises(InputError, match="gone"):
        packed(folder, (), [], archive)


def test_what_is_fetched_stays_in_its_folder(tmp_path):
    import tarfile

    archive = tmp_path / "archive.tar"
    (tmp_path / "evil").write_text("evil")
    (tmp_path / "out").symlink_to("/etc/hosts")
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "out", arcname="work/out")
        tar.add(tmp_path / "evil", arcname="work/good")

    with archive.open("rb") as data:
        came = unpacked(data, tmp_path / "here")
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "evil", arcname="work/../../escaped")
    with archive.open("rb") as data, pytest.raises(LaunchFailed, match="cannot be written"):
        unpacked(data, tmp_path / "here")

    assert came == [tmp_path / "here/good"]
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["good"]
    assert not (tmp_path / "escaped").exists()
