"""`outlay fit`: what to change so that a step fits."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest

from outlay.report.schemas import schema

STEP = Path(__file__).parents[1] / "trace" / "steps_changed.py"


def fitted(outlay, *arguments):
    run = outlay("fit", *arguments, "--json")
    document = json.loads(run.out)
    jsonschema.validate(document, schema("fit"))
    return document, run


def test_a_profile_is_fitted_without_torch(outlay):
    document, run = fitted(outlay, "llama-1b", "--gpu", "RTX 4090", "--batch-size", "8")
    assert run.code == 0
    assert not document["unchanged"]["fits"]
    fitting = [way for way in document["ways"] if way["fits"]]
    assert "smaller passes" in fitting[0]["kinds"] or fitting[0]["gpus"] > 1
    assert all(way["global_batch_size"] == 8 for way in fitting)
    assert "needs the code" in document["left_out"]["recompute blocks"]
    assert "does not fit" in document["answer"][0]


def test_ways_are_cheapest_first(outlay):
    document, _ = fitted(outlay, "llama-1b", "--gpu", "RTX 4090", "--batch-size", "8")
    costs = [way["usd_per_million_samples"] for way in document["ways"] if way["fits"]]
    assert all(one <= 1.04 * other for one, other in pairwise(costs))


def test_money_is_the_offer_s(outlay):
    document, _ = fitted(outlay, "llama-1b", "--gpu", "RTX 4090", "--batch-size", "8")
    way = next(way for way in document["ways"] if way["fits"])
    speed = way["global_batch_size"] / way["step_time_s"]["likely"]
    expected = way["offer"]["price_usd_per_hour"] / 3600 / speed * 1e6
    assert way["usd_per_million_samples"] == pytest.approx(expected)


def test_what_fits_anyway_says_so(outlay):
    run = outlay("fit", "resnet50", "--gpu", "H100 SXM", "--batch-size", "16")
    assert run.code == 0
    assert "fits on H100 SXM as it is" in run.out


def test_nothing_makes_it_fit(outlay):
    run = outlay("fit", "llama-1b", "--gpu", "RTX 4090", "--memory-cap-mib", "500")
    assert run.code == 3
    assert "Nothing that was tried makes it fit" in run.out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--gpu", "RTX 9999"), "RTX 9999"),
        (("--gpu", "L4,T4"), "a step is fitted to one"),
        (("--gpu", "L4:2"), "asks for several GPUs"),
        (("--gpu", "L4", "--batch-size", "many"), "neither a number"),
    ],
)
def test_what_cannot_be_meant(outlay, arguments, what):
    run = outlay("fit", "resnet50", *arguments)
    assert run.code == 2
    assert what in run.err


@pytest.mark.torch
def test_a_step_of_one_s_own(outlay):
    # 256 samples: about 350 MB of activations and 84 MB of workspace, in 300 MiB
    document, run = fitted(
        outlay,
        f"{STEP}:plain",
        "--gpu",
        "RTX 3080",
        "--batch-size",
        "256",
        "--memory-cap-mib",
        "300",
    )
    assert run.code == 0
    ways = {way["name"]: way for way in document["ways"]}
    assert not document["unchanged"]["fits"]
    assert ways["recompute blocks"]["fits"]
    assert ways["recompute blocks"]["saved_bytes"] > 0
    assert (
        ways["pure bf16"]["peak_allocated_bytes"]["likely"]
        < (document["unchanged"]["peak_allocated_bytes"]["likely"])
    )
    assert any("backward" in line for line in ways["bf16 autocast"]["lines"])
    assert any("steps_changed.py:" in line for line in ways["fused optimizer"]["lines"])
    assert any(" + " in name for name in ways)
