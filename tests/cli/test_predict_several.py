"""`outlay predict` on several GPUs and machines, under a power limit, and on unlike GPUs."""

from __future__ import annotations

import json

import jsonschema
import pytest

from outlay.report.schemas import schema


def predictions(outlay, *arguments):
    run = outlay("predict", *arguments, "--json")
    document = json.loads(run.out)
    jsonschema.validate(document, schema("predict"))
    return document["predictions"], run


def test_eight_gpus_by_name_or_by_option(outlay):
    (named,), _ = predictions(outlay, "resnet50", "--gpu", "A100-80GB SXM:8", "--batch-size", "64")
    (asked,), _ = predictions(
        outlay, "resnet50", "--gpu", "A100-80GB SXM", "--gpus", "8", "--batch-size", "64"
    )
    assert {**named, "asked": ""} == {**asked, "asked": ""}
    assert (named["gpus"], named["nodes"]) == (8, 1)
    assert named["strategy"]["data"] == 8
    assert (named["batch_size"], named["global_batch_size"]) == (64, 512)
    assert named["exchange_time_s"]["likely"] > 0


def test_one_gpu_exchanges_nothing(outlay):
    (one,), _ = predictions(outlay, "resnet50", "--gpu", "L4", "--batch-size", "8")
    assert one["exchange_time_s"]["likely"] == 0
    assert one["strategy"]["name"] == "one GPU"
    assert one["global_batch_size"] == 8


def test_slow_links_cost_more_than_fast_ones(outlay):
    asked = ("bert-large", "--gpu", "RTX A6000:8", "--batch-size", "8", "--strategy", "ddp")
    times = {}
    for link in ("nvlink", "bridge", "pcie", "host"):
        (one,), _ = predictions(outlay, *asked, "--link", link)
        times[link] = one["step_time_s"]["likely"]
    assert times["nvlink"] <= times["bridge"] <= times["pcie"] < times["host"]


def test_machines_want_a_network(outlay):
    asked = ("gpt2-medium", "--gpu", "H100 SXM:8", "--nodes", "4", "--batch-size", "8")
    (unknown,), _ = predictions(outlay, *asked)
    assert any("network between machines is not known" in note for note in unknown["notes"])
    (known,), _ = predictions(outlay, *asked, "--network", "3200")
    assert not any("not known" in note for note in known["notes"])
    (plain,), _ = predictions(outlay, *asked, "--network", "25", "--tcp", "--strategy", "ddp")
    (fast,), _ = predictions(outlay, *asked, "--network", "25", "--strategy", "ddp")
    assert known["global_batch_size"] == 8 * 32
    assert fast["exchange_time_s"]["likely"] < plain["exchange_time_s"]["likely"]


def test_a_global_batch_is_kept(outlay):
    for gpus in ("1", "2", "8"):
        (one,), _ = predictions(
            outlay, "resnet50", "--gpu", "RTX 4090", "--gpus", gpus, "--global-batch", "256"
        )
        assert one["global_batch_size"] == 256


def test_a_strategy_is_kept_to(outlay):
    (one,), _ = predictions(
        outlay, "llama-1b", "--gpu", "RTX 4090:4", "--strategy", "fsdp", "--batch-size", "2"
    )
    assert one["strategy"]["sharding"] == "zero3"
    assert one["strategy"]["name"] == "FSDP"


def test_sharding_makes_room(outlay):
    asked = ("llama-1b", "--gpu", "RTX 4090:8")
    (ddp,), _ = predictions(outlay, *asked, "--strategy", "ddp")
    (fsdp,), _ = predictions(outlay, *asked, "--strategy", "fsdp")
    assert fsdp["max_batch_size"] > ddp["max_batch_size"]


def test_four_cards_at_280_watts(outlay):
    asked = ("resnet50", "--gpu", "RTX 3090:4", "--batch-size", "128")
    (full,), _ = predictions(outlay, *asked)
    (held,), _ = predictions(outlay, *asked, "--power-limit", "280")
    assert held["power_limit_w"] == 280
    # 80 % of the power keeps 95 % of the speed of the device (Puget Systems, quad RTX 3090)
    assert held["device_time_s"] == pytest.approx(full["device_time_s"] / 0.95, rel=0.01)


def test_a_limit_above_what_it_was_shipped_with_is_none(outlay):
    (one,), _ = predictions(outlay, "resnet50", "--gpu", "L4", "--power-limit", "200")
    assert one["power_limit_w"] is None


def test_unlike_gpus_in_one_machine(outlay):
    (both,), _ = predictions(outlay, "resnet50", "--gpu", "RTX 3090 + RTX 2080 Ti")
    (small,), _ = predictions(outlay, "resnet50", "--gpu", "RTX 2080 Ti:2")
    assert both["gpus"] == 2
    assert both["max_batch_size"] <= small["max_batch_size"]
    assert any("every step waits for the RTX 2080 Ti" in note for note in both["notes"])


def test_the_input_of_a_machine(outlay):
    (one,), _ = predictions(
        outlay,
        "resnet50",
        "--gpu",
        "H100 SXM:8",
        "--batch-size",
        "64",
        "--node-input-rate",
        "1000",
    )
    assert one["bound"] == "input"
    assert one["samples_per_s"] == pytest.approx(1000, rel=0.01)


def test_the_table_names_machines_and_strategies(outlay):
    out = outlay("predict", "bert-large", "--gpu", "RTX 3090:8", "--batch-size", "8").out
    assert "8x RTX 3090" in out
    assert "STRATEGY" in out
    assert "EXCHANGE" in out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--gpu", "A100:0"), "number of GPUs"),
        (("--gpu", "A100:eight"), "number of GPUs"),
        (("--gpu", "L4", "--strategy", "dpp"), "is no strategy"),
        (("--gpu", "L4", "--power-limit", "5"), "too low"),
        (("--gpu", "L4", "--network", "nan"), "is no number"),
        (("--gpu", "RTX 3090 + RTX 9999"), "RTX 9999"),
    ],
)
def test_what_cannot_be_meant(outlay, arguments, what):
    run = outlay("predict", "resnet50", *arguments)
    assert run.code == 2
    assert what in run.err


def test_what_fits_nowhere(outlay):
    run = outlay("predict", "llama-1b", "--gpu", "T4:2", "--batch-size", "512", "--strategy", "ddp")
    assert run.code == 3
