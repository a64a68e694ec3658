"""Commands here and over ssh: a whole answer, or a failure that says what to do."""

from __future__ import annotations

import io
import subprocess
import tempfile
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.run.jobs import FAULTS, Wrapper
from tests.run.services import PrivateSshd

from outlay.errors import ExtraMissing, InputError
from outlay.run import shell as shell_module
from outlay.run.shell import CONFIG_VARIABLE, HereShell, ShellFailed, SshShell

ODD = (
    "a b",
    "$(touch ran)",
    "`touch ran`",
    "'; touch ran; '",
    '"',
    "-rf",
    "line\nbreak",
    "~",
    "*",
    "",
    "\\",
    "ünïcode",
)
"""Arguments that a careless shell would do something with."""


@pytest.fixture
def ssh(sshd: PrivateSshd, monkeypatch: pytest.MonkeyPatch) -> SshShell:
    """A shell on the private server."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(sshd.config))
    return SshShell(sshd.host, waits_s=(0.01, 0.02))


@pytest.fixture
def wrapped_ssh(tmp_path, ssh: SshShell, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
    """The ssh program, which does as it is told."""
    wrapper = Wrapper("ssh", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(shell_module, "_kept_connection", lambda *_: ())
    return wrapper


def test_a_command_here_gives_status_output_and_errors():
    done = HereShell().run(["sh", "-c", "cat; echo no >&2; exit 3"], input=b"given")

    assert (done.status, done.output, done.error) == (3, b"given", "no")


def test_a_command_here_that_hangs_is_ended_with_its_children(tmp_path):
    before = time.monotonic()

    with pytest.raises(ShellFailed, match="has not answered sh in 0 s") as raised:
        HereShell().run(["sh", "-c", f"sleep 30; touch {tmp_path}/late"], timeout_s=0.2)

    assert raised.value.is_slow
    assert time.monotonic() - before < 5


def test_a_program_that_is_not_here_is_named():
    with pytest.raises(ExtraMissing, match="There is no no-such-program on this machine"):
        HereShell().run(["no-such-program"])


@pytest.mark.service("sshd")
def test_arguments_arrive_as_they_are_and_run_nothing(ssh: SshShell, sshd: PrivateSshd):
    done = ssh.run(["printf", "%s\\0", *ODD])

    assert done.output.decode().split("\0")[:-1] == list(ODD)
    assert not (sshd.home / "ran").exists()


@pytest.mark.service("sshd")
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=4))
def test_any_arguments_arrive_as_they_are(ssh: SshShell, arguments: list[str]):
    done = ssh.run(["printf", "%s\\0", "first", *arguments])

    assert done.output.decode().split("\0")[:-1] == ["first", *arguments]


@pytest.mark.service("sshd")
def test_input_output_and_status_pass_through_whole(ssh: SshShell):
    data = bytes(range(256)) * 4000  # about 1 MB of every byte
    with tempfile.TemporaryFile() as given_file, tempfile.TemporaryFile() as taken:
        given_file.write(data)
        given_file.seek(0)
        done = ssh.run(["sh", "-c", "cat; echo odd >&2; exit 255"], input=given_file, output=taken)
        taken.seek(0)

        assert taken.read() == data
    assert (done.status, done.error) == (255, "odd")


@pytest.mark.service("sshd")
def test_what_a_login_shell_prints_is_no_part_of_the_answer(ssh: SshShell, wrapped_ssh: Wrapper):
    wrapped_ssh.does("echo 'Welcome!'; echo 'No mail.' >&2")

    done = ssh.run(["echo", "right"])

    assert (done.output, done.error) == (b"right\n", "")


@pytest.mark.service("sshd")
def test_a_command_that_is_not_there_is_named(ssh: SshShell):
    with pytest.raises(ExtraMissing, match="There is no no-such-program on machine"):
        ssh.run(["no-such-program"])


@pytest.mark.service("sshd")
def test_a_wrong_host_key_is_not_tried_again(sshd: PrivateSshd, wrapped_ssh: Wrapper):
    with pytest.raises(ShellFailed, match="host key is not the one that is known") as raised:
        SshShell(sshd.imposter).run(["true"])

    assert raised.value.is_lasting
    assert "ssh-keygen -R imposter" in raised.value.fix
    assert wrapped_ssh.count == 1


@pytest.mark.service("sshd")
def test_an_unknown_host_key_asks_for_a_login_by_hand(sshd: PrivateSshd, wrapped_ssh: Wrapper):
    with pytest.raises(ShellFailed, match="host key is not known here") as raised:
        SshShell(f"127.0.0.1:{sshd.port}").run(["true"])

    assert raised.value.is_lasting


@pytest.mark.service("sshd")
def test_a_refused_login_is_not_tried_again(sshd: PrivateSshd, wrapped_ssh: Wrapper):
    with pytest.raises(ShellFailed, match="does not accept the login") as raised:
        SshShell(f"nobody@{sshd.host}").run(["true"])

    assert raised.value.is_lasting
    assert wrapped_ssh.count == 1


@pytest.mark.service("sshd")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_connection_that_fails_once_is_tried_again(
    ssh: SshShell, wrapped_ssh: Wrapper, fault: str
):
    wrapped_ssh.does(fault, when="[ $calls -eq 0 ]")

    with tempfile.TemporaryFile() as given_file:
        given_file.write(b"input")
        given_file.seek(0)
        done = ssh.run(["cat"], input=given_file)

    assert (done.status, done.output, wrapped_ssh.count) == (0, b"input", 2)


@pytest.mark.service("sshd")
def test_output_of_a_failed_attempt_is_not_kept(ssh: SshShell, wrapped_ssh: Wrapper):
    wrapped_ssh.does("echo half of it; exit 255", when="[ $calls -eq 0 ]")

    with tempfile.TemporaryFile() as taken:
        ssh.run(["echo", "whole"], output=taken)
        taken.seek(0)

        assert taken.read() == b"whole\n"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("ssh: connect to host x port 22: Connection refused", "The connection failed"),
        ("ssh: connect to host x port 22: Connection timed out", "The connection failed"),
        ("ssh: connect to host x port 22: No route to host", "The connection failed"),
        ("ssh: Could not resolve hostname x: Name or service not known", "name is not known"),
        ("", "Only a part of its answer"),
    ],
)
def test_a_connection_that_keeps_failing_is_explained(tmp_path, monkeypatch, message, words):
    wrapper = Wrapper("ssh", tmp_path)
    wrapper.does(f"echo '{message}' >&2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(shell_module, "_kept_connection", lambda *_: ())

    with pytest.raises(ShellFailed, match=words) as raised:
        SshShell("x", waits_s=(0.01, 0.01)).run(["true"])

    assert wrapper.count == 3  # once, and again after each wait
    assert not raised.value.is_lasting
    assert raised.value.fix


def test_a_machine_that_does_not_answer_in_time_is_not_asked_twice(tmp_path, monkeypatch):
    wrapper = Wrapper("ssh", tmp_path)
    wrapper.does("sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(shell_module, "_kept_connection", lambda *_: ())

    with pytest.raises(ShellFailed, match="x has not answered ssh in 1 s"):
        SshShell("x").run(["true"], timeout_s=0.6)

    assert wrapper.count == 1


def test_a_machine_without_ssh_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ExtraMissing, match="There is no ssh on this machine"):
        SshShell("x").run(["true"])


@pytest.mark.parametrize("address", ["-oProxyCommand=touch x", "", "a b", "a\nb", "$(x)"])
def test_an_address_cannot_be_an_option_or_a_command(address: str):
    with pytest.raises(InputError, match="no address to log in to"):
        SshShell(address).run(["true"])


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("host", "host"),
        ("me@host", "me@host"),
        ("me@host:2222", "ssh://me@host:2222"),
        ("fd00::2", "fd00::2"),
        ("[fd00::2]:22", "ssh://[fd00::2]:22"),
    ],
)
def test_an_address_may_have_a_port(address: str, target: str):
    assert SshShell(address).command()[-1] == target


@pytest.mark.service("sshd")
def test_a_connection_is_kept_and_a_server_that_comes_back_is_found(tmp_path, ssh: SshShell, sshd):
    ssh.run(["true"])
    socket = next(one for one in ssh.command() if one.startswith("ControlPath="))
    path = socket.removeprefix("ControlPath=")
    check = subprocess.run(["ssh", "-O", "check", "-S", path, "x"], capture_output=True)
    sshd.stop()
    with pytest.raises(ShellFailed, match="The connection failed"):
        ssh.run(["true"])
    sshd.restart()

    assert check.returncode == 0
    assert ssh.run(["echo", "back"]).output == b"back\n"


@pytest.mark.service("sshd")
def test_a_users_own_way_to_keep_connections_is_left_alone(tmp_path, sshd, monkeypatch):
    config = tmp_path / "config"
    config.write_text(f"ControlPath {tmp_path}/own\nInclude {sshd.config}\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(config))

    options = SshShell(sshd.host).command()

    assert not any(option.startswith("Control") for option in options)
    assert SshShell(sshd.host).run(["echo", "x"]).output == b"x\n"


def test_what_looks_like_a_credential_is_not_shown(tmp_path, monkeypatch):
    wrapper = Wrapper("ssh", tmp_path)
    wrapper.does("echo 'token=abcdef123456 Connection refused' >&2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(shell_module, "_kept_connection", lambda *_: ())

    with pytest.raises(ShellFailed) as raised:
        SshShell("x", waits_s=()).run(["true"], input=io.BytesIO(b"").read())

    assert "abcdef123456" not in str(raised.value)
