"""`outlay profiles`: what comes with outlay."""

from __future__ import annotations

import jsonschema
import pytest

from outlay.trace.store import bundled_profiles


@pytest.fixture
def profiles(outlay):
    return outlay("profiles", "--json").document["profiles"]


def test_document_validates_against_its_schema(outlay):
    document = outlay("profiles", "--json").document
    assert document["schema"] == 1
    jsonschema.validate(document, outlay("schema", "profiles").document)


def test_every_bundled_profile_is_listed(profiles):
    assert [one["name"] for one in profiles] == list(bundled_profiles())


def test_resnet50_is_the_published_one(profiles):
    (resnet,) = [one for one in profiles if one["name"] == "resnet50"]
    # torchvision gives 25,557,032 parameters and 4.09 GMACs an image at 224x224. Forward is
    # 2 x 4.09 GFLOP, and backward twice that again: 3 x 8.18 = 24.5.
    assert resnet["parameters"] == 25_557_032
    assert resnet["flops_per_sample"] == pytest.approx(24.5e9, rel=0.02)


def test_every_profile_says_where_it_comes_from(profiles):
    for one in profiles:
        assert one["description"], one["name"]
        assert one["sample"], one["name"]
        assert len(one["traced_on"]) == 10, one["name"]
        assert one["versions"], one["name"]
        assert 0 < one["trainable_parameters"] <= one["parameters"]


def test_table_has_a_row_for_each(outlay, profiles):
    ended = outlay("profiles")
    assert (ended.code, ended.err) == (0, "")
    head, *rows = ended.out.splitlines()
    assert head.startswith("NAME")
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == [
        profile["name"] for profile in profiles
    ]


def test_real_program(program):
    ended = program("profiles", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert "resnet50" in [one["name"] for one in ended.document["profiles"]]
