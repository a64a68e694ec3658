"""`outlay schema`: schemas that are schemas, and that say no."""

from __future__ import annotations

import copy
import json
import tomllib

import jsonschema
import pytest
from tests.measured import a_measurement, a_search

from outlay.cli.main import COMMANDS
from outlay.cli.schema import NAMES
from outlay.facts import DATA
from outlay.measurement.file import text_of
from outlay.predict.host_time import HostTest
from outlay.report.batches import batches_document
from outlay.report.documents import dumps, host_document
from outlay.report.schemas import DOCUMENTS, schema

Validator = jsonschema.Draft202012Validator


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema(outlay, name):
    ended = outlay("schema", name)
    assert (ended.code, ended.err) == (0, "")
    document = ended.document
    Validator.check_schema(document)
    assert document["$schema"] == Validator.META_SCHEMA["$schema"]
    assert document["type"] == "object"


@pytest.mark.parametrize("name", NAMES)
def test_each_is_of_a_command_or_of_the_workload_file(name):
    # vary: plan --vary; methods: plan --method all; measurement: probe; batches: --find-batch
    command = name.partition("-")[0]  # prices-import: prices import
    assert name in ("workload", "methods", "vary", "measurement", "batches") or command in COMMANDS


@pytest.mark.parametrize("name", NAMES)
def test_each_refuses_an_empty_document_and_a_foreign_key(outlay, name):
    check = Validator(outlay("schema", name).document)
    assert not check.is_valid({})
    assert any("foreign" in error.message for error in check.iter_errors({"foreign": 1}))


def test_workload_schema_accepts_the_template(outlay):
    template = tomllib.loads((DATA / "template.toml").read_text(encoding="utf-8"))
    jsonschema.validate(template, outlay("schema", "workload").document)


@pytest.mark.parametrize(
    "limits", [{"bugdet": 5}, {"budget": -5}, {"budget": "much"}, {"deadline": 14}]
)
def test_workload_schema_refuses_what_the_reader_refuses(outlay, limits):
    check = Validator(outlay("schema", "workload").document)
    right = {"step": {"profile": "resnet50"}, "length": {"time": "6h"}}
    assert check.is_valid({**right, "limits": {"budget": 5, "deadline": "14d"}})
    assert not check.is_valid({**right, "limits": limits})


def test_json_option_is_accepted(outlay):
    assert outlay("schema", "plan", "--json") == outlay("schema", "plan")


def test_real_program(program):
    ended = program("schema", "plan")
    assert (ended.code, ended.err) == (0, "")
    assert "chosen" in ended.document["required"]


# --- what is printed is taken; with a key more or less it is not ---


def test_each_document_has_a_name():
    assert {"workload", *DOCUMENTS} == set(NAMES)


TWO_OFFERS = """
[consider]
bundled = false
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 2.00
[[offer]]
provider = "south"
gpu = "T4"
price_per_hour = 3.00
spot_per_hour = 1.00
"""
PRINTED = {
    "plan": ["plan", "FILE"],
    "vary": ["plan", "FILE", "--vary", "sessions=1,2"],
    "diff": ["diff", "FILE", "FILE"],
    "build": ["build", "--gpu", "RTX 3090:2"],
    "advise": ["advise", "--ask", "share"],
    "offers": ["offers", "--gpu", "T4", "--max-offers", "2"],
    "gpus": ["gpus", "T4"],
    "prices-history": ["prices", "history", "L4", "--provider", "gcp", "--since", "2026-06"],
    "prices-changes": ["prices", "changes", "--since", "2026-06-01"],
    "predict": ["predict", "resnet50", "--gpu", "T4", "--batch-size", "8"],
    "calibrate": ["calibrate"],
    "fit": ["fit", "resnet50", "--gpu", "T4"],
    "profiles": ["profiles"],
}
WRITTEN = {
    "host": lambda: dumps(host_document(HostTest(step_s=0.001, spread=0.1, speed=0.9, samples=9))),
    "measurement": lambda: text_of(a_measurement(profile=None)),
    "batches": lambda: dumps(batches_document(a_search())),
}
NAMED = {
    "break_even", "costs_usd", "device_time_by_kind_s", "doubt_reasons", "facts", "figures",
    "left_out", "only_one", "peak_flops_per_s", "time_parts_s", "unknown_ops", "versions",
}  # fmt: skip
"""Objects whose keys are names of other things."""
LATER = {"is_compiled", "stopped_for"}
"""Keys that older measurements do not have."""


def objects(part, path=()):
    """The path of every object in a document that has just the keys of its type."""
    if isinstance(part, dict):
        if next((key for key in reversed(path) if isinstance(key, str)), "") not in NAMED:
            yield path, part
        for key, inner in part.items():
            yield from objects(inner, (*path, key))
    elif isinstance(part, list):
        for place, inner in enumerate(part[:2]):
            yield from objects(inner, (*path, place))


def with_part(document, path, part):
    """A document with another part at a path."""
    if not path:
        return part
    document = copy.copy(document)
    document[path[0]] = with_part(document[path[0]], path[1:], part)
    return document


@pytest.mark.parametrize("name", [*PRINTED, *WRITTEN])
def test_a_key_more_or_less_is_refused_anywhere(outlay, workload, name, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path))
    if name in WRITTEN:
        document = json.loads(WRITTEN[name]())
    else:
        file = workload(TWO_OFFERS)
        arguments = [file if word == "FILE" else word for word in PRINTED[name]]
        document = outlay(*arguments, "--json").document
    check = Validator(schema(name))
    check.validate(document)
    for path, part in objects(document):
        assert not check.is_valid(with_part(document, path, {**part, "foreign": 1})), path
        for missing in part.keys() - LATER:
            less = {key: inner for key, inner in part.items() if key != missing}
            assert not check.is_valid(with_part(document, path, less)), (path, missing)
