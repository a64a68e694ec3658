"""Figures that no probe can have seen are refused, by their key and with their value."""

from __future__ import annotations

import json
import math
from functools import reduce

import jsonschema
import pytest
from tests.measured import a_measurement

from outlay.errors import InputError
from outlay.measurement.file import measurement_from_json, read_measurement, text_of
from outlay.report.schemas import schema


def changed(key, value):
    """A measurement as it is written, with another value at `machine.gpus.0.name`."""
    written = json.loads(text_of(a_measurement()))
    *path, last = [int(part) if part.isdecimal() else part for part in key.split(".")]
    reduce(lambda part, name: part[name], path, written)[last] = value
    return written


def refused(written):
    with pytest.raises(InputError) as raised:
        measurement_from_json(written, source="probe.json")
    assert raised.value.what == "probe.json cannot be read as a measurement."
    assert raised.value.fix
    return raised.value.why


NO_STEP = ["step.mean_s", "step.median_s"]
CANNOT_BE = [
    *((key, value) for key in NO_STEP for value in (1e-300, 1e300, 0, -0.1, 0.5e-6, 864_001)),
    *(("busy_s", value) for value in (0, -0.1, 1e300)),
    *(("machine.gpus.0.power_limit_w", value) for value in (0, -450, 1e9)),
    *(("samples_per_step", value) for value in (0, -5, 1e18)),
    *(("passes_per_step", value) for value in (0, -1)),
    *(("step.steps", value) for value in (0, -3)),
    ("step.warm_up_steps", -1),
    ("step.high_s", 1e300),
    ("memory.allocated_bytes", -1),
    ("memory.host_bytes", -1.0),
    ("machine.ram_bytes", -1),
    ("machine.cpu_threads", -4),
    ("world_size", -1),
    ("total_steps", -10),
    ("steps_per_epoch", -1.0),
    ("pauses.0.times", -2),
    ("pauses.0.total_s", -2.0),
    ("samples.0.power_w", -1.0),
    ("price_usd_per_hour", -1.0),
]


@pytest.mark.parametrize(("key", "value"), CANNOT_BE)
def test_what_cannot_be_is_named_with_its_value(key, value):
    assert refused(changed(key, value)).startswith(f"{key} is {value:g}, and should be ")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("key", ["elapsed_s", "losses.0.1", "step.p90_s", "step_times.0.1"])
def test_every_figure_is_a_number(key, value):
    assert refused(changed(key, value)).startswith(f"{key} is {value:g}")


@pytest.mark.parametrize(("low_s", "high_s"), [(0.51, 0.49), (0.1, 0.4), (0.6, 0.9)])
def test_a_mean_lies_within_its_interval(low_s, high_s):
    written = changed("step.low_s", low_s)  # the mean is 0.5
    written["step"]["high_s"] = high_s
    why = refused(written)
    assert f"step.low_s, {low_s:g}" in why
    assert f"step.high_s, {high_s:g}" in why


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("step.mean_s", "0.05", 'step.mean_s is "0.05", and should be a valid number'),
        ("samples_per_step", "128", 'samples_per_step is "128", and should be a valid number'),
        ("steps_seen", "200", 'steps_seen is "200", and should be a valid integer'),
        ("steps_seen", 2.5, "steps_seen is 2.5, and should be a valid integer"),
        ("step.is_steady", "yes", 'step.is_steady is "yes", and should be a valid boolean'),
        ("busy_s", True, "busy_s is true, and should be a valid number"),
        ("notes", "x" * 100, "notes is"),
        ("ending", "gone", 'ending is "gone", and should be'),
    ],
)
def test_a_value_of_another_type_is_named(key, value, words):
    why = refused(changed(key, value))
    assert why.startswith(words)
    assert len(why) < 160


def test_what_is_missing_is_named():
    written = json.loads(text_of(a_measurement()))
    del written["step"]["mean_s"]
    assert refused(written) == "step.mean_s is missing."


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples_per_step", 100.5),  # a mean over batches that differ
        ("busy_s", 0.7),  # more than the step's mean of 0.5: an evaluation was in the profile
        ("step.low_s", 0.0),
        ("status", -9),
        ("losses.0.1", -3.5),
        ("steps_seen", 200.0),
        ("samples.0.temperature_c", -5.0),
        ("memory.optimizer_bytes", 0),
        ("memory", {}),  # as older versions wrote fewer of its keys
        ("batch_size", "worked out, and not read"),
        ("foreign", 1),
    ],
)
def test_what_can_be_is_read(key, value):
    measurement_from_json(changed(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step.mean_s", 0.5e-6),
        ("step.steps", 0),
        ("busy_s", 0),
        ("samples_per_step", 1e18),
        ("passes_per_step", 0),
        ("machine.gpus.0.power_limit_w", 0),
        ("memory.host_bytes", -1),
    ],
)
def test_the_schema_refuses_it_too(key, value):
    validator = jsonschema.Draft202012Validator(schema("measurement"))
    assert not validator.is_valid(changed(key, value))


# --- Files that are something else ---


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "It is empty"),
        (b'{"schema": 1,', "no complete JSON"),
        (b'{"a\xff": 1}', "no text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "thousands of digits"),
        (b"[]", "no measurement written by outlay"),
        (b'{"kind": "outlay profile"}', "It is a profile"),
    ],
)
def test_what_is_no_measurement_says_what_it_is(tmp_path, data, words):
    (tmp_path / "m.json").write_bytes(data)
    with pytest.raises(InputError, match=words) as raised:
        read_measurement(tmp_path / "m.json")
    assert "sys." not in str(raised.value)


@pytest.mark.parametrize("depth", [150, 300, 1_500])
def test_a_part_that_is_nested_too_deeply(depth):
    nested = reduce(lambda inner, _: [inner], range(depth), "inmost")
    assert len(refused(changed("notes", nested))) < 160


def test_text_that_is_none():
    refused(changed("measured_on", "\ud800"))


def test_a_folder(tmp_path):
    with pytest.raises(InputError, match="It is a directory") as raised:
        read_measurement(tmp_path)
    assert "Errno" not in str(raised.value)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({}, "no profile written by outlay"),
        ({"kind": "outlay profile", "schema": 9}, "has schema 9"),
        ("ops", "text or a number where something else should be"),
    ],
)
def test_a_profile_that_is_off_is_the_measurement_s(part, words):
    written = json.loads(text_of(a_measurement()))
    if part == "ops":
        written["profile"]["ops"] = ["aten.mm"]
    else:
        written["profile"] = part
    why = refused(written)
    assert words in why
    assert "Error" not in why
