"""`outlay schema`: schemas that are schemas, and that say no."""

from __future__ import annotations

import tomllib

import jsonschema
import pytest

from outlay.cli.main import COMMANDS
from outlay.cli.schema import NAMES
from outlay.facts import DATA

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
    # vary: plan --vary; measurement: probe --json; batches: probe --find-batch
    assert name in ("workload", "vary", "measurement", "batches") or name in COMMANDS


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
