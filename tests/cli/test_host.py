"""`outlay host`: the speed of this machine, or what it needs to find it."""

from __future__ import annotations

import os
from pathlib import Path

import jsonschema
import pytest

from outlay.errors import pip_command
from outlay.plan.placement import calibration

ROOT = Path(__file__).parents[2]


@pytest.mark.torch
def test_document_is_of_the_schema_and_its_figures_agree(outlay):
    ended = outlay("host", "--seconds", 0.2, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.document
    jsonschema.validate(found, outlay("schema", "host").document)
    assert found["samples"] >= 5
    assert found["spread"] >= 0
    # a speed of 1 is that of the reference, which takes so long
    reference_s = calibration().number("host_test_step_s")
    assert found["speed"] * found["step_s"] == pytest.approx(reference_s)
    # any machine of these years: between a twentieth and twenty times
    assert 0.05 < found["speed"] < 20


@pytest.mark.torch
def test_page_says_the_speed_to_give_to_predict(outlay):
    ended = outlay("host", "--seconds", 0.1)
    assert (ended.code, ended.err) == (0, "")
    first, *rest = ended.out.splitlines()
    assert first.startswith("host speed ")
    assert float(first.removeprefix("host speed ")) > 0
    assert "1.00 is the host of the H200" in " ".join(rest)


@pytest.mark.torch
def test_threads_are_as_they_were():
    import torch

    from outlay.trace.capture.self_test import step_times_s

    threads = torch.get_num_threads()
    assert len(step_times_s(0.01)) >= 5
    assert torch.get_num_threads() == threads


def test_without_torch_it_says_what_to_install(program, tmp_path):
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "torch.py").write_text("raise ImportError('no torch here')\n")
    path = os.pathsep.join([str(shadow), str(ROOT / "src")])
    ended = program("host", "--seconds", 0.2, "--json", PYTHONPATH=path)
    assert (ended.code, ended.out) == (4, "")
    assert pip_command("torch") in ended.err
    assert ended.err.count("outlay: ") == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "601"])
def test_seconds_out_of_range(outlay, seconds):
    ended = outlay("host", "--seconds", seconds)
    assert (ended.code, ended.out) == (2, "")
    assert "--seconds" in ended.err
