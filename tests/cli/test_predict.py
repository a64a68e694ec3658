"""`outlay predict`: the documented keys, batches, caps, and names of GPUs."""

from __future__ import annotations

import json
from numbers import Real

import jsonschema
import pytest

from outlay.units import MIB

KEYS = {
    "gpu": str,
    "batch_size": int,
    "step_time_s": dict,
    "host_time_s": Real,
    "device_time_s": Real,
    "device_time_by_kind_s": dict,
    "input_time_s": Real,
    "mfu": Real,
    "flops_per_step": Real,
    "parameters": int,
    "peak_allocated_bytes": dict,
    "peak_reserved_bytes": dict,
    "fits": bool,
    "max_batch_size": int,
}
MEMORY = {
    "parameters": 4_000_000,
    "gradients": 4_000_000,
    "optimizer_state": 8_000_000,
    "inputs": 0,
    "activations": 0,
    "temporaries": 0,
}
TINY = {
    "schema": 1,
    "kind": "outlay profile",
    "name": "tiny",
    "description": "two operations with round numbers",
    "sample": "number",
    "parameters": 1_000_000,
    "trainable_parameters": 1_000_000,
    "issued_ops": 2,
    "period": 1,
    "traced_on": "2026-11-01",
    "versions": {},
    "unknown_ops": {},
    "notes": [],
    "memory": {
        "1": {**MEMORY, "activations": 10_000_000},
        "2": {**MEMORY, "activations": 20_000_000},
    },
    "ops": [
        {
            "name": "aten::mm",
            "kind": "gemm",
            "phase": "forward",
            "precision": "fp32",
            "count": 2,
            "flops": [1_000, 500],
            "moved_bytes": [0, 100],
        },
        {
            "name": "aten::add",
            "kind": "elementwise",
            "phase": "forward",
            "precision": "fp32",
            "count": 1,
            "flops": [0, 7],
            "moved_bytes": [0, 100],
        },
    ],
}


@pytest.fixture
def predicted(outlay):
    """The predictions for resnet50, or another target."""

    def predict(*arguments, target="resnet50"):
        ended = outlay("predict", target, *arguments, "--json")
        found = ended.document["predictions"]
        # 3 where it fits on none of them
        assert (ended.code, ended.err) == (0 if any(one["fits"] for one in found) else 3, "")
        return found

    return predict


def test_document_validates_against_its_schema(outlay):
    document = outlay("predict", "resnet50", "--gpu", "T4,H100", "--json").document
    jsonschema.validate(document, outlay("schema", "predict").document)
    assert document["schema"] == 1
    assert document["target"] == "resnet50"


def test_document_has_the_contract_s_keys(predicted):
    for one in predicted("--gpu", "T4,A100-80GB", "--batch-size", 64):
        for key, kind in KEYS.items():
            assert isinstance(one[key], kind), key
            assert kind is bool or not isinstance(one[key], bool), key
        for key in ("step_time_s", "peak_allocated_bytes", "peak_reserved_bytes"):
            estimate = one[key]
            assert 0 < estimate["low"] <= estimate["likely"] <= estimate["high"]


def test_device_time_is_the_sum_of_its_kinds_largest_first(predicted):
    for one in predicted("--gpu", "T4,H100", "--batch-size", 64):
        times_s = list(one["device_time_by_kind_s"].values())
        assert sum(times_s) == pytest.approx(one["device_time_s"])
        assert times_s == sorted(times_s, reverse=True)
        assert {"conv", "norm", "optimizer"} <= set(one["device_time_by_kind_s"])


def test_mfu_is_a_share_of_the_peak(predicted):
    (one,) = predicted("--gpu", "A100 80GB SXM", "--batch-size", 64)
    # all of it in bf16, at 312 TFLOP/s
    ideal_s = one["flops_per_step"] / 312e12
    assert one["mfu"] == pytest.approx(ideal_s / one["step_time_s"]["likely"], rel=0.01)


def test_slow_input_bounds_the_step(predicted):
    (free,) = predicted("--gpu", "H100 SXM", "--batch-size", 64)
    (held,) = predicted("--gpu", "H100 SXM", "--batch-size", 64, "--input-rate", 100)
    assert free["input_time_s"] == 0
    # 64 samples at 100 a second
    assert held["input_time_s"] == pytest.approx(0.64)
    assert held["step_time_s"]["likely"] == pytest.approx(0.64)
    assert held["samples_per_s"] == pytest.approx(100)
    assert held["bound"] == "input"
    assert held["device_time_s"] == free["device_time_s"]


def test_host_speed_changes_the_host_alone(predicted):
    (usual,) = predicted("--gpu", "H100 SXM", "--batch-size", 8)
    (fast,) = predicted("--gpu", "H100 SXM", "--batch-size", 8, "--host-speed", 2)
    assert fast["host_time_s"] == pytest.approx(usual["host_time_s"] / 2)
    assert fast["device_time_s"] == usual["device_time_s"]
    # eight images keep an H100 waiting for its host
    assert usual["bound"] == "host"
    assert width(fast) < width(usual)


def test_compiled_code_is_faster_and_says_so(predicted):
    arguments = ["--gpu", "H100 SXM", "--batch-size", 64]
    (eager,) = predicted(*arguments)
    (compiled,) = predicted(*arguments, "--compiled")
    (graphs,) = predicted(*arguments, "--compiled=reduce-overhead")
    modes = [one["compiled"] for one in (eager, compiled, graphs)]
    assert modes == [None, "default", "reduce-overhead"]
    assert compiled["device_time_s"] < eager["device_time_s"]
    assert graphs["host_time_s"] < compiled["host_time_s"] < eager["host_time_s"]
    for key in ("flops_per_step", "peak_reserved_bytes", "max_batch_size"):
        assert compiled[key] == eager[key]
    assert "held against four measured steps alone" in " ".join(compiled["notes"])
    assert predicted(*arguments, "--compiled=eager")[0] == eager


def width(one):
    return one["step_time_s"]["high"] / one["step_time_s"]["low"]


@pytest.mark.parametrize("measured", ["T4@64=0.8", "Tesla T4=0.8", "t4 @64=0.8"])
def test_a_measured_step_corrects_every_gpu_and_narrows_its_range(predicted, measured):
    arguments = ["--gpu", "T4,V100 SXM2 16GB", "--batch-size", 64]
    here, there = predicted(*arguments, "--measured", measured)
    here_before, there_before = predicted(*arguments)
    assert here["step_time_s"]["likely"] == pytest.approx(0.8)
    factor = 0.8 / here_before["step_time_s"]["likely"]
    # what both GPUs share of it: of the best estimate 0.75 is used (`transfer_gain`)
    corrected = there["device_time_s"] / there_before["device_time_s"]
    assert 1 < corrected < factor**0.75
    assert width(here) < width(there)
    assert width(here) < width(here_before)


def test_a_step_measured_at_another_batch(predicted):
    (one,) = predicted("--gpu", "T4", "--batch-size", 32, "--measured", "T4@64=1.5")
    # about half the work, and not more than that of 64
    assert 0.65 < one["step_time_s"]["likely"] < 0.85


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("RTX 3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("A100-80GB", "A100 80GB PCIe"),
        ("H100 SXM", "H100 SXM"),
        ("H100", "H100 PCIe"),
        ("NVIDIA L4", "L4"),
        ("Tesla T4", "T4"),
    ],
)
def test_gpu_under_any_usual_spelling(predicted, spelling, name):
    (one,) = predicted("--gpu", spelling, "--batch-size", 8)
    assert one["gpu"] == name


def test_open_form_says_so_and_spans_both(predicted):
    asked, slow, fast = predicted(
        "--gpu", "A100-80GB,A100 80GB PCIe,A100 80GB SXM", "--batch-size", 64
    )
    assert any("leaves the form open" in note for note in asked["notes"])
    assert asked["step_time_s"]["likely"] == slow["step_time_s"]["likely"]
    assert asked["step_time_s"]["high"] == slow["step_time_s"]["high"]
    assert asked["step_time_s"]["low"] == min(
        slow["step_time_s"]["low"], fast["step_time_s"]["low"]
    )


@pytest.mark.parametrize("arguments", [["--gpu", "T4, L4"], ["--gpu", "T4", "--gpu", "L4"]])
def test_several_gpus_in_the_order_asked(predicted, arguments):
    assert [one["gpu"] for one in predicted(*arguments)] == ["T4", "L4"]


def test_batch_size_max_is_the_largest_that_fits(predicted):
    (largest,) = predicted("--gpu", "T4", "--batch-size", "max")
    batch_size = largest["max_batch_size"]
    assert largest["batch_size"] == batch_size
    assert largest["fits"]
    (same,) = predicted("--gpu", "T4", "--batch-size", batch_size)
    (beyond,) = predicted("--gpu", "T4", "--batch-size", batch_size + 1)
    assert same["fits"]
    assert not beyond["fits"]
    assert beyond["max_batch_size"] == batch_size


def test_batch_size_is_max_unless_given(predicted):
    assert predicted("--gpu", "T4") == predicted("--gpu", "T4", "--batch-size", "max")


@pytest.mark.parametrize("cap_mib", [4_000, 8_000])
def test_memory_cap_bounds_what_is_reserved(predicted, cap_mib):
    (one,) = predicted("--gpu", "H100 SXM", "--memory-cap-mib", cap_mib)
    assert one["fits"]
    assert one["peak_reserved_bytes"]["high"] <= cap_mib * MIB


def test_memory_cap_makes_gpus_hold_the_same(predicted):
    first, second = predicted("--gpu", "T4,H100 SXM", "--memory-cap-mib", 8_000)
    # the same but for workspaces
    assert first["max_batch_size"] == pytest.approx(second["max_batch_size"], rel=0.02)


def test_memory_cap_nothing_fits_into(outlay, predicted):
    (one,) = predicted("--gpu", "T4", "--memory-cap-mib", 1)
    assert not one["fits"]
    assert one["max_batch_size"] == 0
    assert one["batch_size"] == 0
    row = outlay("predict", "resnet50", "--gpu", "T4", "--memory-cap-mib", 1).out.splitlines()[1]
    assert row.split()[-1] == "no"


def test_a_bundled_model_needs_no_trace(predicted, monkeypatch):
    monkeypatch.setattr("outlay.trace.tracing.profile_of", None)
    arguments = ("--set", "tokens=512", "--gpu", "RTX 4090", "--batch-size", "1")
    (one,) = predicted("--method", "lora", *arguments, target="meta-llama/Llama-3.2-1B")
    # 1,235,814,400 and adapters of rank 16 in 16 layers: beside q and o of 2,048 to 2,048, k and v
    # to 512, and three of 2,048 and 8,192
    adapters = 16 * 16 * (2 * (2048 + 2048) + 2 * (2048 + 512) + 3 * (2048 + 8192))
    assert one["parameters"] == 1_235_814_400 + adapters
    assert predicted("--method", "full", *arguments, target="llama-3.2-1b") != [one]


def test_saved_profile_counts_what_it_says(predicted, tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    (one,) = predicted("--gpu", "T4", "--batch-size", 10, target=path)
    # 2 x (1,000 + 500 x 10) + 7 x 10 = 12,000 + 70
    assert one["flops_per_step"] == 12_070
    assert one["parameters"] == 1_000_000
    # At the least what is traced: 4 + 4 + 8 MB, and 10 MB of activations a sample.
    assert one["peak_reserved_bytes"]["high"] >= 116_000_000
    assert one["step_time_s"]["likely"] >= max(one["device_time_s"], one["host_time_s"])


def test_the_end_of_the_search_is_not_taken_for_the_memory_s(predicted, tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({**TINY, "memory": {"1": MEMORY, "2": MEMORY}}))
    found = predicted("--gpu", "T4,T4:2", "--batch-size", 10, target=path)
    # samples take no memory: the search ends at 2^20 on one GPU as on two
    assert [one["max_batch_size"] for one in found] == [1_048_576] * 2
    assert all(any("No batch beyond 1,048,576" in note for note in one["notes"]) for one in found)
    (bounded,) = predicted("--gpu", "T4", "--batch-size", 10)
    assert not any("No batch beyond" in note for note in bounded["notes"])


def test_table_has_a_row_for_each_gpu_and_the_notes(outlay):
    ended = outlay("predict", "resnet50", "--gpu", "T4,A100-80GB", "--batch-size", 64)
    assert ended.code == 0
    assert ended.err == ""
    head, first, second, *notes = ended.out.splitlines()
    assert head.startswith("GPU")
    assert first.split()[:2] == ["T4", "64"]
    assert second.startswith("A100 80GB PCIe")
    assert "leaves the form open" in " ".join(notes)


def test_real_program_prints_json_alone(program):
    ended = program("predict", "resnet50", "--gpu", "T4", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["predictions"][0]["gpu"] == "T4"
