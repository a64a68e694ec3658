"""The schema of measurements: it takes all that outlay writes, and says what every key is."""

from __future__ import annotations

import json
from dataclasses import fields

import jsonschema
import pytest
from tests.measured import a_measurement, on_the_cpu, without_steps

from outlay.errors import InputError
from outlay.measurement.file import measurement_from_json, text_of
from outlay.measurement.measurement import Measurement, Sample
from outlay.probe.find_batch import BatchSearch
from outlay.probe.trial import Trial
from outlay.report.schemas import schema

Validator = jsonschema.Draft202012Validator


@pytest.mark.parametrize("made", [a_measurement, on_the_cpu, without_steps])
def test_what_is_written_is_valid_and_reads_back(made):
    written = json.loads(text_of(made()))
    Validator(schema("measurement")).validate(written)
    assert measurement_from_json(written) == made()


def test_measurements_from_before_a_key_are_valid_and_read():
    written = json.loads(text_of(a_measurement()))
    del written["is_compiled"]
    Validator(schema("measurement")).validate(written)
    assert measurement_from_json(written).is_compiled is None


def inlined(name):
    """A schema with each reference replaced by what it stands for."""
    whole = schema(name)

    def resolved(part):
        if isinstance(part, list):
            return [resolved(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            definition = whole["$defs"][part["$ref"].removeprefix("#/$defs/")]
            part = {**definition, **part}
        return {key: resolved(inner) for key, inner in part.items() if key not in ("$ref", "$defs")}

    return resolved(whole)


def described(part, path="measurement"):
    """Every named key below a part of a schema, and whether it is described."""
    for name, inner in part.get("properties", {}).items():
        if "additionalProperties" in part:  # an outlay profile is described elsewhere
            yield f"{path}.{name}", "description" in inner
        yield from described(inner, f"{path}.{name}")
    for inner in (part.get("items"), *part.get("anyOf", ())):
        if isinstance(inner, dict):
            yield from described(inner, path)


@pytest.mark.parametrize("name", ["measurement", "batches"])
def test_every_key_is_described(name):
    keys = dict(described(inlined(name)))
    assert [key for key, has in keys.items() if not has] == []
    assert len(keys) > 15


def test_keys_with_a_unit_say_it():
    units = {"_s": "second", "_bytes": "byte", "_w": "watt", "_j": "joule", "_usd": "dollar"}
    for part in parts(inlined("measurement")):
        for name, inner in part.get("properties", {}).items():
            for ending, word in units.items():
                if name.endswith(ending) and name != "samples_per_s":
                    assert word in inner["description"].lower(), name


def parts(part):
    yield part
    below = [*part.get("properties", {}).values(), part.get("items"), *part.get("anyOf", ())]
    for inner in below:
        if isinstance(inner, dict):
            yield from parts(inner)


def test_every_field_has_a_key():
    keys = inlined("measurement")["properties"]
    assert {one.name for one in fields(Measurement)} <= set(keys)
    assert {one.name for one in fields(Sample)} == set(keys["samples"]["items"]["properties"])
    keys = inlined("batches")["properties"]
    assert {one.name for one in fields(BatchSearch)} <= set(keys)
    assert {one.name for one in fields(Trial)} == set(keys["trials"]["items"]["properties"])


@pytest.mark.parametrize(
    "change",
    [
        {"device": "tpu"},
        {"ending": "gone"},
        {"step": {"mean_s": 1.0}},
        {"losses": [[1, 2.0, 3.0]]},
        {"kind": "outlay profile"},
        {"foreign": 1},
    ],
)
def test_what_outlay_does_not_write_is_refused(change):
    written = json.loads(text_of(a_measurement()))
    assert not Validator(schema("measurement")).is_valid({**written, **change})


@pytest.mark.parametrize("mean_s", [0.0, -0.1, float("nan"), float("inf")])
def test_a_step_without_a_time_is_refused(mean_s):
    written = json.loads(text_of(a_measurement()))
    written["step"]["mean_s"] = mean_s
    with pytest.raises(InputError, match="cannot be read as a measurement"):
        measurement_from_json(written)


def test_a_step_of_no_samples_is_refused():
    written = {**json.loads(text_of(a_measurement())), "samples_per_step": 0.0}
    with pytest.raises(InputError, match="cannot be read as a measurement"):
        measurement_from_json(written)
