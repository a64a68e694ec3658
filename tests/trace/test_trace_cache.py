"""A second trace of a step is taken from the first, unless anything it depends on has changed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from outlay.errors import TraceFailed
from outlay.files import cache_folder
from outlay.trace import process
from outlay.trace.dependencies import dependencies_from_json
from outlay.trace.process import run_request
from outlay.trace.target import Changes
from outlay.trace.trace_cache import Question, TraceCache, trace_cache
from outlay.trace.tracing import profile_of, profile_request, trace_step

STEP = """
import json, os, sys
from pathlib import Path
import torch
import layers
try:
    import tricks
except ImportError:
    tricks = None

HERE = Path(__file__).parent
WIDTH = json.loads((HERE / "settings.json").read_text())["width"]
ROWS = int(os.environ.get("STEP_ROWS", "3"))
DEEP = os.path.exists(HERE / "deep.yaml")
FILES = len(os.listdir(HERE / "data"))

def build(n):
    model = layers.made(WIDTH, ROWS)
    optimizer = torch.optim.SGD(model.parameters())
    def step():
        model(torch.ones(n, WIDTH)).sum().backward()
        optimizer.step()
    return step
"""
LAYERS = """
import torch
import norms

def made(width, rows):
    return torch.nn.Linear(width, rows)
"""


NOT_JUST_NOW_S = 0.03
"""A file that was written a moment before it is read may be written again: nothing is kept."""


def is_settled(reply):
    """Whether nothing that a reply depends on has changed since it was asked for."""
    if reply.get("why_not_kept") or "dependencies" not in reply:
        return False
    return not dependencies_from_json(reply["dependencies"]).changed()


def settled(folder, traces, count):
    """Trace until a kept trace is taken: something else may have changed meanwhile."""
    for _ in range(4):
        before = len(traces)
        assert parameters(folder) == count
        if len(traces) == before:
            return
    pytest.fail("no trace was kept")


@pytest.fixture
def traces(kept_traces, monkeypatch):
    """Requests that were answered by a tracing process."""
    made = []
    reply_to = process._reply_to

    def counting(request, *arguments):
        made.append(request)
        for _ in range(4):  # tests beside this one write and compile files, too
            time.sleep(NOT_JUST_NOW_S)
            reply = reply_to(request, *arguments)
            if is_settled(reply):
                break
        return reply

    monkeypatch.setattr(process, "_reply_to", counting)
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of packages: the same for all tests, as torch is imported anew for another."""
    return tmp_path_factory.mktemp("packages") / "site-packages"


@pytest.fixture
def folder(tmp_path, installed, monkeypatch):
    """A step that imports, reads, looks for and lists, with one installed package."""
    folder = tmp_path / "own"
    shutil.rmtree(installed, ignore_errors=True)
    for each in (
        folder / "data",
        folder / ".git",
        installed / "norms",
        installed / "norms-1.0.dist-info",
    ):
        each.mkdir(parents=True)
    (folder / "step.py").write_text(STEP)
    (folder / "layers.py").write_text(LAYERS)
    (folder / "settings.json").write_text('{"width": 4}')
    (folder / "data" / "one.jpg").write_text("")
    (installed / "norms" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    time.sleep(NOT_JUST_NOW_S)
    return folder


def parameters(folder, **options):
    return trace_step(f"{folder / 'step.py'}:build", **options).parameters


def packages():
    return Path(os.environ["PYTHONPATH"].partition(os.pathsep)[0])


def changed_settings(folder):
    (folder / "settings.json").write_text('{"width": 5}')


def changed_step(folder):
    (folder / "step.py").write_text(STEP.replace("WIDTH, ROWS)", "WIDTH, ROWS + 1)"))


def changed_import(folder):
    (folder / "layers.py").write_text(LAYERS.replace("width, rows)\n", "width, rows, False)\n"))


def file_looked_for(folder):
    (folder / "deep.yaml").write_text("")


def module_looked_for(folder):
    (folder / "tricks.py").write_text("")


def module_in_front(folder):
    (folder / "json.py").write_text("def loads(text): return {'width': 7}")


def file_in_a_listed_folder(folder):
    (folder / "data" / "two.jpg").write_text("")


def changed_package(folder):
    (packages() / "norms" / "__init__.py").write_text("EPSILON = 1")


def other_version_of_a_package(folder):
    installed = packages()
    (installed / "norms-1.0.dist-info").rename(installed / "norms-1.1.dist-info")


def package_installed(folder):
    (packages() / "norms_fused").mkdir()


def tricks_declared(folder):
    """A setup file that builds the module which the step looks for: it is stood in for."""
    (folder / "csrc").mkdir()
    (folder / "csrc" / "setup.py").write_text("CUDAExtension('tricks', ['tricks.cu'])")


@pytest.mark.torch
class TestWhatChanges:
    @pytest.mark.parametrize(
        ("change", "count"),
        [
            (changed_settings, 5 * 3 + 3),
            (changed_step, 4 * 4 + 4),
            (changed_import, 4 * 3),
            (file_looked_for, 4 * 3 + 3),
            (module_looked_for, 4 * 3 + 3),
            (module_in_front, 4 * 3 + 3),  # the standard library's was imported before
            (file_in_a_listed_folder, 4 * 3 + 3),
            (changed_package, 4 * 3 + 3),
            (other_version_of_a_package, 4 * 3 + 3),
            (package_installed, 4 * 3 + 3),
            (tricks_declared, 4 * 3 + 3),
        ],
    )
    def test_is_seen(self, change, count, folder, traces):
        settled(folder, traces, 4 * 3 + 3)  # a weight and a bias of each of 3 rows of 4
        before = len(traces)
        change(folder)
        assert parameters(folder) == count
        assert len(traces) == before + 1
        settled(folder, traces, count)

    def test_variables_that_are_read_are(self, folder, traces, monkeypatch):
        looks_for = "try:\n    import natten\nexcept ImportError:\n    natten = None\n"
        (folder / "step.py").write_text(looks_for + STEP)
        assert parameters(folder) == 4 * 3 + 3
        monkeypatch.setenv("STEP_ROWS", "2")
        assert parameters(folder) == 4 * 2 + 2
        monkeypatch.setenv("SHELL_TITLE", "another")  # nobody reads it
        assert parameters(folder) == 4 * 2 + 2
        assert len(traces) == 2
        monkeypatch.setenv("OUTLAY_ASSUME_INSTALLED", "natten")
        parameters(folder)
        assert len(traces) == 3

    def test_what_says_nothing_of_a_step_is_not(self, folder, traces):
        parameters(folder)
        (folder / "notes.txt").write_text("")
        (folder / "runs").mkdir()
        (folder / "step.py").write_text(STEP)  # as it was, at another time
        parameters(folder)
        assert len(traces) == 1

    def test_nor_are_folders_in_which_setup_files_were_searched(self, folder, traces):
        (folder / "runs").mkdir()
        time.sleep(NOT_JUST_NOW_S)
        parameters(folder)  # looks for `tricks`, which a setup file might build
        (folder / "runs" / "checkpoint.pt").write_text("")
        (folder / "results").mkdir()
        parameters(folder)
        assert len(traces) == 1

    def test_outlay_itself_is_part_of_it(self, folder, kept_traces):
        parameters(folder)
        (entry,) = kept_traces.iterdir()
        head = json.loads(zlib.decompress(entry.read_bytes()).partition(b"\n")[0])
        own = {path for path in head["dependencies"]["files"] if "/outlay/trace/" in path}
        names = {Path(path).name for path in own}
        assert {"formulas.py", "recorder.py", "child.py"} <= names

    def test_what_outlay_keeps_itself_is_not(self, folder, traces):
        """A trace that is kept makes a folder where others are; a step may have looked there."""
        with (folder / "layers.py").open("a") as file:
            file.write("import os; os.listdir(os.environ['OUTLAY_DATA'])\n")
        time.sleep(NOT_JUST_NOW_S)
        parameters(folder)
        parameters(folder)
        assert len(traces) == 1

    def test_a_change_while_it_is_traced_keeps_nothing(self, folder, traces):
        with (folder / "layers.py").open("a") as file:
            file.write("import os; os.utime(__file__)\n")
        parameters(folder)
        parameters(folder)
        assert len(traces) == 2


@pytest.mark.torch
class TestWhatCannotBeSeen:
    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("import subprocess; subprocess.run(['true'])", "it runs other commands"),
            (
                "import socket; socket.getaddrinfo('127.0.0.1', 9)",
                "it asks the network",
            ),
        ],
    )
    def test_is_traced_anew(self, line, why, folder, traces, monkeypatch):
        monkeypatch.setattr(process, "_said", set())
        said = []
        (folder / "step.py").write_text(f"{line}\n{STEP}")
        for _ in range(2):
            parameters(folder, progress=lambda what, *_: said.append(what))
        assert len(traces) == 2
        assert said.count(f"The trace is not kept: {why}.") == 1

    def test_failures_are_not_kept(self, folder, traces):
        (folder / "settings.json").write_text('{"height": 5}')
        for _ in range(2):
            with pytest.raises(TraceFailed, match="width"):
                parameters(folder)
        assert len(traces) == 2

    def test_but_changes_that_cannot_be_made_are(self, folder, traces):
        (folder / "settings.json").write_text('{"height": 5}')
        for _ in range(2):
            with pytest.raises(TraceFailed, match="width"):
                profile_of(f"{folder / 'step.py'}:build", changes=Changes(arithmetic="bf16"))
        assert len(traces) == 1


@pytest.mark.torch
def test_a_kept_trace_is_the_same_and_starts_no_process(folder, traces, monkeypatch):
    target = f"{folder / 'step.py'}:build"
    first, report = profile_of(target), trace_step(target, 4)

    def no_process(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(process.subprocess, "Popen", no_process)
    monkeypatch.setattr(process, "_forked", no_process)
    said = []
    kept = profile_of(target, progress=lambda what, *_: said.append(what))
    assert kept == first
    assert trace_step(target, 4) == report
    assert (first.from_cache, kept.from_cache) == (False, True)
    assert said == [f"Traced on {first.traced_on} and unchanged since; --no-cache traces anew."]


@pytest.mark.torch
def test_without_a_cache_nothing_is_kept(folder, traces, kept_traces, tmp_path):
    parameters(folder, cache=False)
    assert not kept_traces.exists()
    own = TraceCache(folder=tmp_path / "elsewhere")
    parameters(folder, cache=own)
    parameters(folder, cache=own)
    assert len(traces) == 2
    assert own.size().traces == 1


@pytest.mark.torch
def test_a_script_and_what_it_reads(folder, traces):
    script = folder / "train.py"
    script.write_text(
        "import json, sys, torch\n"
        "width = json.load(open(__file__.replace('train.py', 'settings.json')))['width']\n"
        "model = torch.nn.Linear(width, int(sys.argv[1])).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "for _ in range(200):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(8, width, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert trace_step(f"{script} -- 3").parameters == 4 * 3 + 3
    assert trace_step(f"{script} -- 3").from_cache
    assert trace_step(f"{script} -- 2").parameters == 4 * 2 + 2
    changed_settings(folder)
    assert trace_step(f"{script} -- 3").parameters == 5 * 3 + 3
    assert len(traces) == 3


# Entries, without tracing


@pytest.fixture
def answers(kept_traces, monkeypatch):
    """What a tracing process would say, and how often it was asked."""
    asked = []

    def reply_to(request, *_):
        asked.append(request)
        return {**NOTHING_READ, "number": len(asked)}

    monkeypatch.setattr(process, "_reply_to", reply_to)
    return asked


def test_every_part_of_a_request_is_part_of_the_question(answers, folder, monkeypatch):
    target = f"{folder / 'step.py'}:build"
    options = [
        {"batch_sizes": (2, 4)},
        {"batch_sizes": (2, 8)},
        {"batch_sizes": (2, 8), "period": 2},
        {"batch_sizes": (2, 8), "selected": 0.25},
        {"batch_sizes": (2, 8), "changes": Changes(arithmetic="bf16")},
        {"batch_sizes": (2, 8), "name": "mine"},
    ]
    requests = [profile_request(target, **each) for each in options]
    requests.append(profile_request(f"{folder / 'step.py'}:other", (2, 8)))
    requests += [{**requests[0], "result": "histories"}]
    for _ in range(2):
        assert [run_request(each)["number"] for each in requests] == list(range(1, 9))
    monkeypatch.setenv("TORCH_SHOW_CPP_STACKTRACES", "1")  # torch's own code reads it
    assert run_request(requests[0])["number"] == 9
    monkeypatch.chdir(folder)  # paths that are not absolute lead elsewhere
    assert run_request(requests[0])["number"] == 10
    monkeypatch.setattr(sys, "version", "3.99")
    assert run_request(requests[0])["number"] == 11


NOTHING_READ = {
    "dependencies": {
        "files": {},
        "listings": {},
        "import_folders": {},
        "extensions": {},
        "variables": [],
    },
    "why_not_kept": "",
}
REQUEST = {"result": "profile", "target": "step.py:build"}


def reply(number=1, **options):
    return run_request({**REQUEST, "number": number}, **options)["number"]


def damaged(data):
    return {
        "cut off": data[: len(data) // 2],
        "empty": b"",
        "no zlib": b"\0" * 100,
        "no entry": zlib.compress(b"[]\n{}"),
        "another's": zlib.compress(b'{"schema": 2, "kind": "mail"}\n{}'),
        "of tomorrow": zlib.compress(zlib.decompress(data).replace(b'"schema": 2', b'"schema": 3')),
        "without a reply": zlib.compress(zlib.decompress(data).partition(b"\n")[0]),
        "no text": zlib.compress(b"\xff\xfe\n\xff"),
        "deep": zlib.compress(b"[" * 100_000),
    }


@pytest.mark.parametrize("how", damaged(zlib.compress(b"{}\n{}")))
def test_damaged_entries_are_replaced(how, answers, kept_traces):
    assert [reply(), reply()] == [1, 1]
    (entry,) = kept_traces.iterdir()
    entry.write_bytes(damaged(entry.read_bytes())[how])
    assert [reply(), reply()] == [2, 2]


@pytest.mark.torch
def test_an_odd_reply_is_traced_anew(folder, kept_traces):
    target = f"{folder / 'step.py'}:build"
    first = profile_of(target)
    (entry,) = kept_traces.iterdir()
    head, _, kept = zlib.decompress(entry.read_bytes()).partition(b"\n")
    entry.write_bytes(zlib.compress(head + b"\n" + kept.replace(b'"ops"', b'"operators"')))
    assert profile_of(target) == replace(first, from_cache=False)


def test_where_nothing_can_be_written_it_is_said_once(answers, kept_traces, monkeypatch):
    monkeypatch.setattr(process, "_said", set())
    kept_traces.parent.mkdir(parents=True)
    kept_traces.write_text("a file in place of the folder")
    said = []
    for number in (1, 2):
        reply(number, progress=lambda what, *_: said.append(what))
    why = f"{kept_traces} cannot be written: File exists"
    assert said == [f"The trace is not kept: {why}."]


def test_a_full_disk_leaves_nothing_behind(answers, kept_traces, monkeypatch):
    monkeypatch.setattr(process, "_said", set())

    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("outlay.trace.trace_cache._write_all", full)
        assert reply() == 1
    assert list(kept_traces.iterdir()) == []
    assert reply() == 2


def test_the_oldest_go(answers, kept_traces):
    for number in range(4):
        reply(number)
        (newest,) = set(kept_traces.iterdir()) - {path for path, _ in trace_cache()._entries()[:-1]}
        os.utime(newest, ns=(0, 10**9 * number))
    one_bytes = newest.stat().st_size
    assert reply(0) == 1  # used now: it goes last
    small = TraceCache(folder=kept_traces, largest_bytes=round(3.5 * one_bytes))
    reply(4, cache=small)
    assert small.size().traces == 3
    assert reply(0, cache=small) == 1
    assert reply(3, cache=small) == 4
    assert reply(1, cache=small) == 6  # traced anew: five answers were given before


def test_what_is_larger_than_all_is_not_kept(answers, kept_traces):
    tiny = TraceCache(folder=kept_traces, largest_bytes=10)
    assert [reply(cache=tiny), reply(cache=tiny)] == [1, 2]


def test_two_at_once_leave_one_whole_entry(kept_traces):
    cache = trace_cache()
    question = Question(request=REQUEST, environment={}, startup=frozenset())
    answer = {"numbers": list(range(10_000))}

    def keep():
        for _ in range(20):
            assert cache.keep(question, answer, NOTHING_READ["dependencies"]) == ""
            assert cache.find(question).reply == answer

    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.suffix for path in kept_traces.iterdir()] == [".trace"]


def test_drafts_that_nobody_finishes_are_removed(answers, kept_traces):
    kept_traces.mkdir(parents=True)
    for name, age_s in (("old.part", 7200), ("new.part", 60)):
        (kept_traces / name).write_bytes(b"")
        changed_s = (kept_traces / name).stat().st_mtime - age_s
        os.utime(kept_traces / name, (changed_s, changed_s))
    reply()
    assert {path.suffix for path in kept_traces.iterdir()} == {".part", ".trace"}
    assert not (kept_traces / "old.part").exists()


def test_the_folder_is_the_users_cache(monkeypatch):
    home = {"HOME": "/home/ada"}
    assert str(cache_folder(home, "linux")) == "/home/ada/.cache/outlay"
    assert str(cache_folder(home, "darwin")) == "/home/ada/Library/Caches/outlay"
    assert str(cache_folder({**home, "XDG_CACHE_HOME": "/c"}, "linux")) == "/c/outlay"
    assert str(cache_folder({**home, "OUTLAY_DATA": "/d"}, "linux")) == "/d/cache"
    local = {"LOCALAPPDATA": "/l"}
    assert str(cache_folder(local, "win32")) == "/l/outlay/cache"
    monkeypatch.setenv("OUTLAY_NO_CACHE", "1")
    assert trace_cache() is None


def test_a_question_holds_no_secret():
    secret = Question(request=REQUEST, environment={"TOKEN": "s3cret"}, startup=frozenset())
    other = replace(secret, environment={"TOKEN": "another"})
    assert secret.key() == other.key()
    assert secret.variables_hash(("TOKEN",)) != other.variables_hash(("TOKEN",))
    assert "s3cret" not in secret.variables_hash(("TOKEN",))
