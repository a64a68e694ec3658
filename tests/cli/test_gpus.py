"""`outlay gpus`: the facts table under any spelling, with sources."""

from __future__ import annotations

import jsonschema
import pytest

from outlay.units import GIB


def test_document_validates_against_its_schema(outlay):
    document = outlay("gpus", "--json").document
    jsonschema.validate(document, outlay("schema", "gpus").document)
    names = [gpu["gpu"] for gpu in document["gpus"]]
    assert len(names) == len(set(names)) > 50


def test_every_known_value_has_a_source_and_a_date(outlay):
    for gpu in outlay("gpus", "--json").document["gpus"]:
        for name, fact in gpu["facts"].items():
            if fact["value"] is not None:
                assert fact["source"], (gpu["gpu"], name)
                assert len(fact["as_of"]) == 10, (gpu["gpu"], name)


@pytest.mark.parametrize(
    ("spelling", "name", "memory_gib", "tdp_w"),
    [
        # Memory and board power as NVIDIA's product pages give them.
        ("Tesla T4", "T4", 16, 70),
        ("NVIDIA L4", "L4", 24, 72),
        ("rtx3090", "RTX 3090", 24, 350),
        ("GeForce RTX 4090", "RTX 4090", 24, 450),
        ("A100 SXM 80GB", "A100 80GB SXM", 80, 400),
        ("h100 sxm", "H100 SXM", 80, 700),
    ],
)
def test_a_gpu_by_any_name(outlay, spelling, name, memory_gib, tdp_w):
    (gpu,) = outlay("gpus", spelling, "--json").document["gpus"]
    assert gpu["gpu"] == name
    assert gpu["memory_bytes"] == memory_gib * GIB
    assert gpu["tdp_w"] == tdp_w
    assert gpu["usable_bytes"] < gpu["memory_bytes"]


def test_an_open_name_lists_all_it_may_mean(outlay):
    found = outlay("gpus", "A100-80GB", "--json").document["gpus"]
    assert [gpu["gpu"] for gpu in found] == ["A100 80GB PCIe", "A100 80GB SXM"]


def test_several_names_in_the_order_asked(outlay):
    found = outlay("gpus", "T4", "L4", "--json").document["gpus"]
    assert [gpu["gpu"] for gpu in found] == ["T4", "L4"]


def test_table_has_a_row_for_each(outlay):
    ended = outlay("gpus", "T4", "L4")
    assert ended.code == 0
    assert ended.err == ""
    head, *rows = ended.out.splitlines()
    assert head.startswith("GPU")
    assert [row.split()[0] for row in rows] == ["T4", "L4"]


def test_real_program(program):
    ended = program("gpus", "T4", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["gpus"][0]["gpu"] == "T4"
