"""What is read of processes, logs and agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.services import wait_for

from outlay.probe.gpu_driver import Missing, NoDriver
from outlay.run import activity
from outlay.run.activity import (
    AgentReader,
    AgentReading,
    LogPatterns,
    LogReader,
    RunGpus,
    RunProcesses,
    age_s,
    handles,
    held_by,
    log_of,
    number_in,
    started_ticks,
)

# Processes


@pytest.fixture
def started():
    processes = []

    def start(*command, **options):
        processes.append(subprocess.Popen(command, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def python(code):
    return sys.executable, "-S", "-u", "-c", code


def test_cpu_and_traffic_of_children_count(started, tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = '''\nwhile True: open(\"data\", \"wb\").write(bytes(1_000_000))\n'''\n"
        "subprocess.run([sys.executable, '-S', '-c', child])\n"
    )
    process = started(*python(code), cwd=tmp_path)
    processes = RunProcesses(process.pid)
    wait_for(lambda: (tmp_path / "data").exists())
    first = processes.read()
    assert (first.cpu_s, first.disk_bytes, first.written_bytes) == (None, None, None)
    time.sleep(0.4)
    second = processes.read()
    assert len(second.pids) == 2
    assert second.cpu_s > 0.02
    assert second.disk_bytes >= second.written_bytes > 1_000_000
    assert second.network_bytes is not None
    for pid in second.pids:
        os.kill(pid, signal.SIGKILL)


def test_who_holds_a_process(started):
    process = started("sleep", "60")
    assert held_by(process.pid) is None
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: held_by(process.pid) == "stopped")
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: held_by(process.pid) is None)


@pytest.mark.parametrize("code", ["input()", "breakpoint()", "import sys; sys.stdin.readline()"])
def test_a_process_that_waits_for_typing_is_held(started, code):
    import pty

    master, slave = pty.openpty()
    process = started(sys.executable, "-c", code, stdin=slave, stdout=slave, stderr=slave)
    wait_for(lambda: held_by(process.pid) == "terminal")
    os.close(master)
    os.close(slave)


def test_a_process_at_a_terminal_that_sleeps_is_not_held(started):
    import pty

    master, slave = pty.openpty()
    code = "print(1); import time; time.sleep(60)"
    process = started(*python(code), stdin=slave, stdout=subprocess.PIPE)
    assert process.stdout.read(1) == b"1"
    time.sleep(0.1)
    assert held_by(process.pid) is None
    process.stdout.close()
    os.close(master)
    os.close(slave)


def test_handlers_ages_and_logs_of_processes(started, tmp_path):
    code = "import signal, time\nsignal.signal(signal.SIGUSR1, print)\nprint(1)\ntime.sleep(60)\n"
    with (tmp_path / "out").open("wb") as output:
        process = started(*python(code), stdout=output)
    wait_for(lambda: (tmp_path / "out").read_bytes() == b"1\n")
    assert handles(process.pid, signal.SIGUSR1)
    assert not handles(process.pid, signal.SIGUSR2)
    assert log_of(process.pid) == tmp_path / "out"
    assert 0 <= age_s(process.pid) < 60
    process.kill()
    wait_for(lambda: started_ticks(process.pid) is None)  # dead, though nobody has waited for it
    assert log_of(2**22 - 1) is None


# Logs


def test_what_is_added_to_a_log_is_read_once(tmp_path):
    path = tmp_path / "log"
    reader = LogReader(path, "step ([0-9,]+)/([0-9]+)", "loss[:=] *(\\S+)")
    assert reader.read().new_bytes == 0  # not there yet
    path.write_text("step 1,200/9000 loss: 2.5\nstep 1,2")
    reading = reader.read()
    assert (reading.steps, reading.total_steps, reading.losses) == (1200, 9000.0, (2.5,))
    assert reader.read().new_bytes == 0
    with path.open("a") as file:
        file.write("01/9000 loss=nan\rstep 1,202/9000 loss=-inf\n")
    reading = reader.read()
    assert (reading.steps, reading.losses) == (1202, (None, None))


def test_a_log_that_is_rotated_or_cut_goes_on(tmp_path):
    path = tmp_path / "log"
    path.write_text("step 5\n" * 100)
    reader = LogReader(path, "step ([0-9]+)")
    assert reader.read().steps == 5
    path.rename(tmp_path / "log.1")
    path.write_text("step 6\n")
    assert (reader.read().steps, reader.read().new_bytes) == (6, 0.0)
    path.write_text("step 7\n" * 3)
    reader.read()
    path.write_text("step 8\n")  # cut and written anew, in the same file
    reading = reader.read()
    assert reading.steps == 8
    path.unlink()
    assert reader.read().new_bytes == 0


def test_of_a_log_that_is_there_already_the_last_part_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_text("step 1\n" + "x" * 2_000_000 + "\nstep 3\n")
    reader = LogReader(path, "step ([0-9]+)")
    assert reader.read().steps == 3


def test_what_is_no_file_says_nothing(tmp_path):
    assert LogReader(tmp_path).read().new_bytes is None


@given(st.binary(max_size=300), st.integers(1, 40))
def test_a_log_in_pieces_reads_as_in_one(data, size):
    whole, pieces = (LogPatterns("s([0-9]+)", "l([0-9]+)") for _ in range(2))
    whole.take(data + b"\n")
    for start in range(0, len(data), size):
        pieces.take(data[start : start + size])
    pieces.take(b"\n")
    if data.isascii():  # a letter of several bytes may be cut
        assert whole.reading(0.0) == pieces.reading(0.0)


def test_numbers_as_logs_have_them():
    assert number_in("1,200") == 1200
    assert number_in("3e-4") == 3e-4
    assert number_in("nan") is None
    assert number_in("inf") is None
    assert number_in(None) is None


# Agents


def say(folder, pid, *records):
    with (folder / f"{pid}.lines").open("a") as file:
        for name, values in records:
            file.write(json.dumps([name, values]) + "\n")


def info(rank, world_size=2, **values):
    usual = {"pid": 1, "rank": rank, "world_size": world_size, "device": "cuda", "uuid": f"u{rank}"}
    return "ProcessInfo", {**usual, **values}


def progress(steps, **values):
    return "RunProgress", {"steps": steps, **values}


def test_ranks_count_once_and_restarts_add_up(tmp_path):
    reader = AgentReader(tmp_path)
    assert reader.read() == AgentReading()
    say(tmp_path, 10, info(0), progress(100, batches=120), ("Loss", {"step": 1, "value": 2.0}))
    say(tmp_path, 11, info(1), progress(99, batches=119))
    reading = reader.read(frozenset({10, 11}))
    assert (reading.steps, reading.batches, reading.losses) == (100, 239, (2.0,))
    assert reading.gpu_names == ("u0", "u1")
    assert reader.read(frozenset({10, 11})).losses == ()
    say(tmp_path, 20, info(0), progress(5))  # begun again by torchrun
    assert reader.read(frozenset({20})).steps == 105


def test_a_file_that_is_begun_anew_is_read_from_its_start(tmp_path):
    reader = AgentReader(tmp_path)
    say(tmp_path, 10, info(0), progress(100, where="x" * 500))
    assert reader.read().steps == 100
    (tmp_path / "10.lines").write_text("")
    say(tmp_path, 10, progress(140))
    assert reader.read().steps == 140


def test_half_a_line_is_read_when_it_is_whole(tmp_path):
    reader = AgentReader(tmp_path)
    (tmp_path / "10.lines").write_text('["RunProgress", {"steps": 7}]\n["RunPro')
    assert reader.read().steps == 7
    with (tmp_path / "10.lines").open("a") as file:
        file.write('gress", {"steps": 8}]\n')
    assert reader.read().steps == 8


BLOCKED = {"stack": "blocked", "stack_s": 40.0, "where": "barrier"}


@pytest.mark.parametrize(
    ("second", "world_size", "state", "is_complete"),
    [
        ({**BLOCKED, "stack_s": 30.0}, 2, "blocked", True),
        ({"stack": "other", "stack_s": 50.0}, 2, "other", True),
        ({"stack": "compiling", "stack_s": 50.0}, 2, "compiling", True),
        ({}, 2, "other", True),  # one that steps, or has just begun
        (BLOCKED, 4, "blocked", False),  # the others are on another machine
    ],
)
def test_a_hang_is_one_of_all_ranks(tmp_path, second, world_size, state, is_complete):
    say(tmp_path, 10, info(0, world_size), progress(9, **BLOCKED))
    say(tmp_path, 11, info(1, world_size), progress(9, **second))
    stack = AgentReader(tmp_path).read(frozenset({10, 11})).stack
    assert (stack.state, stack.is_complete) == (state, is_complete)
    assert stack.same_s == min(40.0, second.get("stack_s", 0.0))


def test_without_a_driver_only_a_run_on_the_cpu_has_idle_gpus():
    absent = Missing(vendor="NVIDIA", part="driver", why="", fix="")
    likely = Missing(vendor="NVIDIA", part="driver", why="", fix="", is_likely=True)
    on_cpu = AgentReading(is_on_cpu=True)

    def fraction(missing, agent):
        return RunGpus(NoDriver(missing=(missing,))).read(0.0, frozenset(), agent).fraction

    assert fraction(absent, on_cpu) == 0.0
    assert fraction(absent, AgentReading()) is None
    assert fraction(likely, on_cpu) is None


def table(*rows: str) -> str:
    return "  sl  local_address rem_address   st\n" + "".join(f"   0: {row}\n" for row in rows)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("0100007F:1F90", False),  # 127.0.0.1:8080, this machine
        ("00000000:0000", False),  # it listens
        ("2B01A8C0:01BB", True),  # 192.168.1.43:443
    ],
)
def test_traffic_counts_where_a_process_is_connected_to_another_machine(tmp_path, peer, expected):
    files = tmp_path / "7" / "fd"
    files.mkdir(parents=True)
    (files / "0").symlink_to("/dev/null")
    (tmp_path / "7" / "net").mkdir()
    own = f"0100007F:0016 {peer} 01 00000000:00000000 00:00000000 00000000 0 0 4242 1"
    other = "0100007F:0016 2B01A8C0:01BB 01 00000000:00000000 00:00000000 00000000 0 0 9999 1"
    (tmp_path / "7" / "net" / "tcp").write_text(table(own, other))
    assert activity.is_connected([7], str(tmp_path)) is False  # it has no socket at all
    (files / "3").symlink_to("socket:[4242]")
    assert activity.is_connected([7], str(tmp_path)) is expected


def test_where_connections_are_not_told_all_traffic_may_be_the_runs(tmp_path):
    """As of another machine, of which only some of /proc is read."""
    own = tmp_path / "7"
    own.mkdir()
    (own / "stat").write_text("7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 50 0 0 0 0 0 0 0 0\n")
    links = tmp_path / "self" / "net"
    links.mkdir(parents=True)

    def read_twice(**given):
        processes = RunProcesses(7, proc=tmp_path, **given)
        for received in (1_000, 5_001_000):
            (links / "dev").write_text(f"eth0: {received} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n")
            reading = processes.read()
        return reading.network_bytes

    assert read_twice() == 0  # it has no socket
    assert read_twice(has_sockets=False) == 5_000_000


def test_what_agents_write_is_counted_to_the_byte(tmp_path):
    path = tmp_path / f"7{activity.LINES_SUFFIX}"
    reader = activity.AgentReader(tmp_path)
    path.write_bytes(b'["a", {}]\n["b", {}]\n')
    assert reader.read().new_bytes == 20  # two lines of 9 characters, and their ends
    with path.open("ab") as file:
        file.write(b'["c", {}]\n["d"')
    assert reader.read().new_bytes == 10  # the last is not whole yet
