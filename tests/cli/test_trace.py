"""`outlay trace`: what it prints, draws and refuses."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

from outlay.errors import FileNotWritten, InputError, pip_command

ROOT = Path(__file__).parents[2]

TRAIN = """
import torch

def training_step(batch_size):
    model = torch.nn.Linear(256, 128, bias=False)
    x = torch.randn(batch_size, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return f"{path}:training_step"


def refused(ended, code, *fragments):
    assert "Traceback" not in ended.err
    assert (ended.code, ended.out) == (code, "")
    for fragment in fragments:
        assert fragment in ended.err


@pytest.mark.torch
def test_real_program_prints_and_draws(program, target, tmp_path):
    ended = program("trace", target, "--batch-size", "16", "--plot", "memory.html")
    assert (ended.code, ended.err) == (0, "")
    assert "training_step (train.py) at batch size 16" in ended.out
    assert "32,768 parameters, all trainable" in ended.out
    # 2 * 16 * 256 * 128 = 1.05 MFLOP each way
    assert "1.05 MFLOP  50.0 %" in ended.out
    assert "2.10 MFLOP" in ended.out
    assert "train.py:10" in ended.out
    assert "Memory drawn in memory.html." in ended.out
    page = (tmp_path / "memory.html").read_text(encoding="utf-8")
    svg = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
    assert ET.fromstring(svg).tag.endswith("svg")
    assert "Memory of training_step (train.py) at batch size 16" in svg


@pytest.mark.torch
def test_document_follows_its_schema(outlay, target):
    document = outlay("trace", target, "--json").document
    jsonschema.validate(document, outlay("schema", "trace").document)
    assert (document["batch_size"], document["period"]) == (8, 1)
    assert document["flops_per_step"] == 2 * 2 * 8 * 256 * 128
    assert document["flops_per_step"] == sum(total["flops"] for total in document["phases"])
    peak = document["peak"]
    assert sum(peak["categories_bytes"].values()) == peak["bytes"]
    assert peak["call_site"]["file"] == "train.py"
    assert document["heaviest_by_flops"][0]["operator"] == "aten.mm"
    assert document["heaviest_by_bytes"][0]["moved_bytes"] > 0
    assert document["profile"] is None


@pytest.mark.torch
def test_saves_a_profile_for_any_batch_size(outlay, target, tmp_path):
    path = tmp_path / "mine.json.gz"
    document = outlay("trace", target, "--save", path, "--name", "mine", "--json").document
    assert document["profile"]["name"] == "mine"
    assert {2, 4, 8, 32} <= set(document["profile"]["traced_batch_sizes"])
    assert outlay("predict", path, "--gpu", "T4", "--batch-size", "64").code == 0


@pytest.mark.torch
def test_a_full_disk_costs_no_report_and_no_other_file(outlay, target, tmp_path, monkeypatch):
    whole = "outlay.trace.store.write_whole"
    error = FileNotWritten(tmp_path / "mine.json", OSError(28, "No space left on device"))
    monkeypatch.setattr(whole, lambda *_: (_ for _ in ()).throw(error))
    plot, saved = tmp_path / "memory.html", tmp_path / "mine.json"
    ended = outlay("trace", target, "--batch-size", "4", "--plot", plot, "--save", saved)
    assert ended.code == 2
    # 2 x 2 x batch x 256 x 128: forward and the gradient of the weights
    assert "524 kFLOP" in ended.out
    assert f"Memory drawn in {plot}." in ended.out
    assert "Profile saved" not in ended.out
    assert ended.err.startswith(f"outlay: {saved} cannot be written: No space left on device.")


@pytest.mark.parametrize("name", ["mine.txt", "mine", "mine.gz", "mine.json.txt"])
def test_a_name_that_could_not_be_read_again_is_refused_at_once(outlay, target, tmp_path, name):
    refused(outlay("trace", target, "--save", tmp_path / name), 2, name, ".json.gz (or .json)")


def test_a_folder_is_no_name_for_a_profile(outlay, target, tmp_path):
    (tmp_path / "mine.json").mkdir()
    refused(outlay("trace", target, "--save", tmp_path / "mine.json"), 2, "it is a folder")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TRAIN.encode("utf-16"), "It is UTF-16 text"),
        (bytes(range(256)), "It is not text, but binary data."),
    ],
)
@pytest.mark.torch
def test_what_is_no_python_is_named_for_what_it_is(tmp_path, data, why):
    from outlay.trace.child import error_naming_line
    from outlay.trace.target import load_function, parse_target

    path = tmp_path / "odd.py"
    path.write_bytes(data)
    target = parse_target(f"{path}:training_step")
    with pytest.raises(InputError) as caught, error_naming_line(target, "while it was imported"):
        load_function(target)
    assert caught.value.what == "odd.py is not valid Python."
    assert caught.value.why.startswith(why)
    assert "UTF-8" in caught.value.fix


def test_what_is_no_file_of_python_is_named_for_what_it_is(outlay, tmp_path):
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    refused(outlay("trace", f"{tmp_path}/folder.py:step"), 2, "folder.py is a directory")
    refused(outlay("trace", f"{tmp_path}/loop.py:step"), 2, "loop.py is a link that leads nowhere")


SELECTS = """
import torch

def training_step(batch_size):
    model = torch.nn.Linear(256, 128, bias=False)
    x = torch.randn(batch_size, 100, 256)

    def step():
        model(x[x.sum(-1) > 0]).sum().backward()
        torch.ops.outlay_cli_tests.odd(x)

    return step

library = torch.library.Library("outlay_cli_tests", "FRAGMENT")
library.define("odd(Tensor x) -> Tensor")
library.impl("odd", torch.empty_like, "Meta")
"""


@pytest.mark.torch
def test_share_of_selected_elements_and_of_unknown_operators(outlay, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SELECTS)
    target = f"{path}:training_step"
    document = outlay("trace", target, "--selected", "0.25", "--json").document
    jsonschema.validate(document, outlay("schema", "trace").document)
    # a quarter of 800 rows, forward and the weight's gradient
    assert document["flops_per_step"] == 2 * 2 * 200 * 256 * 128
    assert any("train.py:9" in note and "0.25 of its" in note for note in document["notes"])
    assert document["unknown_ops"] == {"outlay_cli_tests.odd": 1}
    # it reads and writes 8 x 100 x 256 floats
    expected = 2 * 8 * 100 * 256 * 4 / document["moved_bytes_per_step"]
    assert document["unknown_moved_fraction"] == pytest.approx(expected)
    text = outlay("trace", target).out
    assert "outlay_cli_tests.odd: no formula; it runs 1 times a step and moves" in " ".join(
        text.split()
    )


@pytest.mark.torch
def test_self_test_says_which_road_is_taken(outlay):
    ended = outlay("trace", "--self-test")
    assert ended.code == 0
    assert "torch 2." in ended.out
    assert "build of torch" in ended.out
    assert "ok: a small training step was traced" in ended.out


@pytest.mark.torch
def test_a_trace_that_takes_too_long_is_given_up(outlay, target):
    refused(outlay("trace", target, "--timeout", "0.01"), 2, "ended after 0.01 s", "--timeout")


@pytest.mark.parametrize("share", ["0", "1.5", "half"])
def test_what_is_no_share(outlay, target, share):
    refused(outlay("trace", target, "--selected", share), 2, "--selected")


def test_without_a_target(outlay):
    refused(outlay("trace", "--json"), 2, "Missing argument")


@pytest.mark.torch
def test_plot_that_cannot_be_written(outlay, target, tmp_path):
    (tmp_path / "folder.html").mkdir()
    ended = outlay("trace", target, "--plot", tmp_path / "folder.html")
    refused(ended, 2, "folder.html", "cannot be written")


@pytest.mark.torch
def test_unknown_function_and_a_crash(outlay, target, tmp_path):
    refused(outlay("trace", target.replace(":training", ":trainig")), 2, '"training_step"')
    path = tmp_path / "fails.py"
    path.write_text("def build(n):\n    raise ValueError('no data')\n")
    refused(outlay("trace", f"{path}:build"), 2, "fails.py:2", "no data")


@pytest.mark.parametrize("batch_size", ["0", "-3", "x", "1.5", "most", "9999999"])
def test_batch_size_that_is_none(outlay, target, batch_size):
    refused(outlay("trace", target, "--batch-size", batch_size), 2, repr(batch_size), "max")


@pytest.mark.parametrize("name", ["memory.svg", "memory"])
def test_plot_of_another_kind(outlay, target, name):
    refused(outlay("trace", target, "--plot", name), 2, name, ".html", ".png")


def test_plot_into_a_folder_that_is_not_there(outlay, target, tmp_path):
    ended = outlay("trace", target, "--plot", tmp_path / "gone" / "memory.html")
    refused(ended, 2, "gone", "no folder")


def test_without_torch(program, target, tmp_path):
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "torch.py").write_text("raise ImportError('no torch here')\n")
    path = os.pathsep.join([str(shadow), str(ROOT / "src")])
    refused(program("trace", target, PYTHONPATH=path), 4, pip_command("torch"))


@pytest.mark.torch
def test_the_largest_batch_on_gpus_and_under_a_cap(outlay, target):
    # 128 KiB of weights; a sample takes 256 + 128 values of 4 bytes: 1.5 KiB
    ended = outlay(
        "trace", target, "--batch-size", "max", "--gpu", "T4,H100 SXM", "--memory-cap-mib", "700",
        "--json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    jsonschema.validate(ended.document, outlay("schema", "trace").document)
    first, second = ended.document["gpus"]
    assert [first["gpu"], second["gpu"]] == ["T4", "H100 SXM"]
    for one in (first, second):
        assert one["verified"]
        assert one["fits"]
        assert one["batch_size"] == one["max_batch_size"]
        assert one["available_bytes"] == 700 * 2**20
        # inputs and outputs fill most of it; workspaces, a margin and fragments the rest
        assert 0.6 * 700 * 2**20 <= 1536 * one["batch_size"] <= 700 * 2**20
    # cuBLAS takes 8 MiB a handle on a T4 and 32 on an H100
    assert first["max_batch_size"] > second["max_batch_size"]
    assert first["context_bytes"] == 540 * 2**20
    assert ended.document["batch_size"] == first["batch_size"]


@pytest.mark.torch
def test_a_step_that_fits_nowhere(outlay, target):
    ended = outlay("trace", target, "--batch-size", "64", "--memory-cap-mib", "40")
    assert ended.code == 3
    # 64 MiB of cuBLAS workspaces alone are too much for 40
    assert "no" in ended.out.split("On GPUs")[1]


@pytest.mark.torch
def test_expandable_segments_need_no_more(outlay, target):
    command = ("trace", target, "--batch-size", "max", "--gpu", "T4", "--json")
    usual = outlay(*command).document["gpus"][0]
    expandable = outlay(*command, "--expandable-segments").document["gpus"][0]
    assert expandable["max_batch_size"] >= usual["max_batch_size"]


@pytest.mark.torch
def test_a_trace_is_kept_unless_told_otherwise(outlay, target, kept_traces):
    command = ("trace", target, "--json", "--progress")
    first, second = outlay(*command), outlay(*command)
    anew = outlay(*command, "--no-cache")
    made = [ended.document["from_cache"] for ended in (first, second, anew)]
    assert made == [False, True, False]
    assert first.document == {**second.document, "from_cache": False} == anew.document
    day = first.document["traced_on"]
    kept = f"Traced on {day} and unchanged since; --no-cache traces anew."
    assert kept not in first.err
    assert second.err.splitlines() == [f"Tracing {target} ...", kept]
    assert kept not in anew.err
    assert "OUTLAY_NO_CACHE" not in os.environ
    assert len(list(kept_traces.iterdir())) == 1


@pytest.mark.torch
def test_every_command_that_traces_takes_a_kept_one(outlay, target, kept_traces, monkeypatch):
    """Each is asked twice; for the second time no process can be started."""
    commands = [
        ("trace", target, "--gpu", "T4", "--batch-size", "max"),
        ("predict", target, "--gpu", "T4"),
        ("fit", target, "--gpu", "T4", "--alone"),
    ]
    before = [outlay(*command).out for command in commands]

    def no_process(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr("outlay.trace.process._reply_to", no_process)
    assert [outlay(*command).out for command in commands] == before
