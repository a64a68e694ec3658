"""Real servers that tests start for themselves, on free ports, and stop completely.

PrivateSshd   an OpenSSH server on loopback with keys of its own, and the client's config for it
PrivateSlurm  a cluster of two nodes on this machine, with two types of pretended GPUs on each

Nothing of the machine's own SSH or Slurm set-up is read or changed. A server dies with the process
that started it; `stop` ends whatever it had started, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import outlay

SOURCE = Path(outlay.__file__).parents[1]
START_S = 30.0
"""How long a server may take to answer."""
ATTEMPTS = 3
"""A port that was free may be taken by another test a moment later."""
_PR_SET_PDEATHSIG = 1


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def wait_for(is_true: Callable[[], bool], *, within_s: float = START_S, what: str = "it") -> None:
    """Return once it is true; fail where that takes longer."""
    end = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} took more than {within_s:g} s")
        time.sleep(0.02)


class Server:
    """Processes of one service with one folder: every one of them is found by that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.runs = folder / "runs"
        self.bin = folder / "bin"
        for made in (self.home, self.runs, self.bin):
            made.mkdir(parents=True, exist_ok=True)
        _write_outlay(self.bin)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def session_environment(self) -> dict[str, str]:
        """What a command of a user finds in its environment on that machine."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "OUTLAY_RUNS": str(self.runs)}

    def start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """A process of the service, with its output in `<name>.out`; it dies with this one."""
        with (self.folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**_clean_environment(), "OUTLAY_TEST_SERVER": str(self.folder), **environment},
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def is_up(self) -> bool:
        """Whether it starts; nothing of one that does not is left."""
        for _ in range(ATTEMPTS):
            try:
                if self._is_started():
                    return True
            except BaseException:
                self.stop()
                raise
            self.stop()
        return False

    def _is_started(self) -> bool:
        raise NotImplementedError

    def stop(self) -> None:
        """End every process of the service, and all that they have started."""
        started = set(descendants({process.pid for process in self._processes}))
        for process in reversed(self._processes):  # whatever needs another goes before it
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        self._processes.clear()
        while left := {*processes_with(str(self.folder)), *(started & set(_parents()))}:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


class PrivateSshd(Server):
    """An OpenSSH server of its own; `config` is the client's, with two hosts in it.

    `host` is it; `imposter` is the same with another host key than the client knows. `more` is
    what users find in their environment there.
    """

    host = "machine"
    imposter = "imposter"

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.more = more or {}
        for key in ("host_key", "other_key", "user_key"):
            _make_key(folder / key)
        (folder / "authorized_keys").write_bytes((folder / "user_key.pub").read_bytes())
        self.config = folder / "client_config"
        self.log = folder / "sshd.out"
        self.port = 0
        if not self.is_up():
            raise RuntimeError("sshd does not start: " + self.log.read_text(errors="replace"))

    def restart(self) -> None:
        """The same server on the same port, after `stop`."""
        self.start("sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")])
        wait_for(lambda: _answers(self.port), what="sshd")

    def _is_started(self) -> bool:
        (self.port,) = free_ports(1)
        self._write_configs()
        with contextlib.suppress(PermissionError):  # which only root needs, on Debian
            Path("/run/sshd").mkdir(exist_ok=True)
        process = self.start(
            "sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        )
        wait_for(lambda: process.poll() is not None or _answers(self.port), what="sshd")
        return process.poll() is None

    def _write_configs(self) -> None:
        folder = self.folder
        session = folder / "session"
        variables = {**self.session_environment, **self.more}
        settings = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        # As the user's shell would: with that home, the command as it came.
        session.write_text(
            f"#!/bin/sh\n{settings}export OUTLAY_TEST_SERVER='{folder}'\ncd \"$HOME\"\n"
            'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        session.chmod(0o755)
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            # With this home from the first: the start-up files of the real one take a while.
            f"KbdInteractiveAuthentication no\nForceCommand {session}\nSetEnv HOME={self.home}\n"
            "MaxStartups 100\nMaxSessions 100\nLogLevel ERROR\n"
        )
        self._write_known_hosts()
        self.config.write_text(
            f"Host {self.host} {self.imposter}\n  HostName 127.0.0.1\n  Port {self.port}\n"
            f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {folder}/known_hosts\n"
            "  GlobalKnownHostsFile /dev/null\n"
            f"Host {self.host}\n  HostKeyAlias {self.host}\n"
            f"Host {self.imposter}\n  HostKeyAlias {self.imposter}\n"
        )

    def _write_known_hosts(self) -> None:
        right = (self.folder / "host_key.pub").read_text().split()[:2]
        wrong = (self.folder / "other_key.pub").read_text().split()[:2]
        lines = (" ".join([self.host, *right]), " ".join([self.imposter, *wrong]))
        (self.folder / "known_hosts").write_text("\n".join(lines) + "\n")


class PrivateSlurm(Server):
    """A cluster of the nodes `one` and `two`, each with an A100 and an RTX 3090 to pretend.

    `environment` is what makes the commands of Slurm talk to it, and keeps runs in its folder.
    """

    nodes = ("one", "two")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.environment: Mapping[str, str] = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "OUTLAY_RUNS": str(self.runs),
        }
        self._write_key()
        self._write_prolog()
        if not self.is_up():
            raise RuntimeError("Slurm does not start: " + self._output())

    def command(self, *arguments: str) -> str:
        """The output of one of Slurm's own commands; nothing where it fails or does not answer."""
        environment = {
            **_clean_environment(),
            **self.environment,
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        }
        try:
            answer = subprocess.run(
                arguments, env=environment, capture_output=True, text=True, timeout=10, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        return answer.stdout if answer.returncode == 0 else ""

    def jobs(self, *, name: str = "") -> list[str]:
        """The ids of jobs that it still knows, whatever their state."""
        named = [f"--name={name}"] if name else []
        return self.command("squeue", "--noheader", "--states=all", "--format=%i", *named).split()

    def stop(self) -> None:
        """End the jobs that are left, then the daemons."""
        if self._processes and not self._has_died():
            self.command("scancel", "--full", "--signal=KILL", "--user=" + _user())
            self.command("scancel", "--user=" + _user())
        super().stop()

    def _is_started(self) -> bool:
        self._write_config()
        for stale in ("munge.sock", "munge.sock.lock", "state", "spool-one", "spool-two"):
            shutil.rmtree(self.folder / stale, ignore_errors=True)
            (self.folder / stale).unlink(missing_ok=True)
        for made in ("state", "spool-one", "spool-two"):
            (self.folder / made).mkdir()
        self._start_munge()
        self.start("slurmctld", ["slurmctld", "-D"], **self.environment)
        for node in self.nodes:
            self.start(f"slurmd-{node}", ["slurmd", "-D", "-N", node], **self.environment)
        wait_for(lambda: self._has_died() or self._is_idle(), what="Slurm")
        return not self._has_died()

    def _start_munge(self) -> None:
        options = ("key-file=munge.key", "socket=munge.sock", "pid-file=munged.pid")
        paths = [f"--{name}={self.folder}/{file}" for name, file in (o.split("=") for o in options)]
        seed = f"--seed-file={self.folder}/munged.seed"
        self.start("munged", ["munged", "--foreground", "--force", "--num-threads=2", *paths, seed])
        sock = self.folder / "munge.sock"
        wait_for(lambda: self._has_died() or sock.exists(), what="munged")

    def _has_died(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def _is_idle(self) -> bool:
        states = self.command("sinfo", "--noheader", "--Node", "--format=%T").split()
        return states == ["idle"] * len(self.nodes)

    def _output(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))

    def _write_key(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)

    def _write_prolog(self) -> None:
        """What a site would do: every task gets its settings from the machine it runs on."""
        prolog = self.folder / "prolog"
        settings = {**self.session_environment}
        del settings["OUTLAY_RUNS"]  # comes with the job, as it is where that was submitted
        lines = [f"echo 'export {name}={value}'" for name, value in settings.items()]
        prolog.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
        prolog.chmod(0o755)

    def _write_config(self) -> None:
        folder, host = self.folder, socket.gethostname().split(".")[0]
        control_port, *ports = free_ports(1 + len(self.nodes))
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 "
            "RealMemory=64000 Gres=gpu:a100:1,gpu:rtx3090:1\n"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        (folder / "cgroup.conf").write_text("")
        (folder / "gres.conf").write_text(
            "Name=gpu Type=a100 File=/dev/tty0\nName=gpu Type=rtx3090 File=/dev/tty1\n"
        )
        (folder / "slurm.conf").write_text(
            f"ClusterName=private\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control_port}\n"
            "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
            f"AuthInfo=socket={folder}/munge.sock\nStateSaveLocation={folder}/state\n"
            f"SlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/slurmctld.pid\n"
            f"SlurmdPidFile={folder}/slurmd-%n.pid\nSlurmctldLogFile={folder}/slurmctld.log\n"
            f"SlurmdLogFile={folder}/slurmd-%n.log\nTaskProlog={folder}/prolog\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n"
            "MpiDefault=none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n"
            "SchedulerType=sched/backfill\nSchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=1000\n"
            "SlurmdParameters=config_overrides\nGresTypes=gpu\nReturnToService=2\nJobRequeue=1\n"
            f"AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/filetxt\n"
            f"JobCompLoc={folder}/jobs.txt\nKillWait=1\nMinJobAge=300\n"
            f"{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )


def _parents() -> dict[int, int]:
    """The parent of every process that is alive."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    return parents


def descendants(of: set[int]) -> Iterator[int]:
    """Children of processes, and theirs."""
    children = {pid for pid, parent in _parents().items() if parent in of}
    if children:
        yield from children
        yield from descendants(children)


def processes_with(text: str) -> Iterator[int]:
    """The ids of processes, but for this one, that have a text in their environment."""
    needle = text.encode()
    for pid in _parents():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and needle in Path(f"/proc/{pid}/environ").read_bytes():
                yield pid


def _write_outlay(folder: Path) -> None:
    """`outlay` and `python3` there are those of this test."""
    commands = {"outlay": f"'{sys.executable}' -m outlay", "python3": f"'{sys.executable}'"}
    for name, command in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\nPYTHONPATH='{SOURCE}' exec {command} \"$@\"\n")
        path.chmod(0o755)


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as talk:
        talk.settimeout(2)
        return talk.recv(4) == b"SSH-"
    return False


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
