"""Measurements on disk: JSON, as `outlay probe` writes it (docs/schema/measurement.json).

    {"schema": 1, "kind": "outlay measurement", "outlay": "0.1.0", "command": [...],
     "step": {"mean_s", "low_s", "high_s", ...}, "batch_size": n, "samples_per_s": x,
     "machine": {...}, "memory": {...}, "shares": {...}, "finding": {...}, "checks": [...],
     "samples": [...], "profile": null or an outlay profile, ...}

Every field of `Measurement` is a key (`MeasurementDocument`); `batch_size`, `samples_per_s`, `usd`
and `step.precision` are worked out from others and are not read back. Unknown is null.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from pydantic import TypeAdapter, ValidationError

from outlay.errors import InputError
from outlay.files import FLATTEN, json_bytes, parsed_json, read_data, to_json, write_whole
from outlay.measurement.measurement import Measurement, StepTime
from outlay.trace.profile import Profile
from outlay.trace.store import MARK as PROFILE
from outlay.trace.store import profile_from_json, profile_to_json

# Figures of a measurement that no probe can have seen.
#
# Files are edited, cut off and made by others; a figure that is plainly wrong would go into every
# prediction made of it. The ranges are wide: they keep out what cannot be, not what is unusual.


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a figure may be, both ends included; `above` is an end that is not."""

    low: float | None = None
    above: float | None = None
    high: float
    words: str

    def holds(self, value: float) -> bool:
        """Whether a value is within it; what is no number is not."""
        low = -math.inf if self.low is None else self.low
        above = -math.inf if self.above is None else self.above
        return low <= value <= self.high and value > above and math.isfinite(value)


STEP_S = Range(low=1e-6, high=10 * 86_400.0, words="between 1 microsecond and 10 days")
"""An optimizer's step takes microseconds to issue; one of days would never be probed."""
SAMPLES = Range(above=0, high=1e9, words="above 0 and at most 1,000,000,000")
"""A mean over batches that differ, so that it need not be whole; as many as a workload may have."""
PASSES = Range(above=0, high=1e6, words="above 0 and at most 1,000,000")
POWER_LIMIT_W = Range(above=0, high=1e5, words="above 0 and at most 100,000 W")
COUNTED = Range(low=1, high=1e15, words="1 or more")
MOST_IN_A_PASS = 1_000_000
"""What an option may give: a thousand such passes are within `SAMPLES`."""
MOST_STEPS = 10**12
HIGHEST_PRICE_USD = 1e6
"""An hour, of all machines a run has; what such a run costs in years is still within range."""
_BUSY_S = Range(above=0, high=STEP_S.high, words="above 0 and at most 10 days")
_WITHIN_STEP_S = Range(low=0, high=STEP_S.high, words="between 0 and 10 days")
_AMOUNT = Range(low=0, high=1e18, words="0 or more, and no more than 1e18")
_ANY = Range(high=math.inf, words="a finite number")
_RANGES = {
    "step.mean_s": STEP_S,
    "step.median_s": STEP_S,
    "step.low_s": _WITHIN_STEP_S,
    "step.high_s": _WITHIN_STEP_S,
    "step.p10_s": _WITHIN_STEP_S,
    "step.p90_s": _WITHIN_STEP_S,
    "step.steps": COUNTED,
    "samples_per_step": SAMPLES,
    "mean_samples_per_step": SAMPLES,
    "passes_per_step": PASSES,
    "busy_s": _BUSY_S,
    "machine.gpus.power_limit_w": POWER_LIMIT_W,
    # below zero where that is nothing odd: a signal, a loss, frost, a clock just before the start
    "status": _ANY,
    "losses": _ANY,
    "step_times": _ANY,
    "pauses.spans": _ANY,
    "samples.time_s": _ANY,
    "samples.temperature_c": _ANY,
}


def range_of(key: str) -> Range:
    """What a figure may be, by its key without places: `machine.gpus.memory_bytes`."""
    return _RANGES.get(key, _AMOUNT)


def what_is_odd(measurement: Measurement) -> str | None:
    """The first figure that cannot be, by its key and with its value; None where all can be."""
    plain = asdict(replace(measurement, profile=None))
    for key, value in _numbers(plain):
        allowed = range_of(_without_places(key))
        if not allowed.holds(value):
            return f"{key} is {value:g}, and should be {allowed.words}."
    return None if measurement.step is None else _disorder(measurement.step)


def _disorder(step: StepTime) -> str | None:
    """What is wrong with a mean outside of its own interval."""
    if step.low_s <= step.mean_s <= step.high_s:
        return None
    return (
        f"step.mean_s is {step.mean_s:g}, and should be between step.low_s, {step.low_s:g}, and "
        f"step.high_s, {step.high_s:g}."
    )


def _numbers(part: object, key: str = "") -> Iterator[tuple[str, float]]:
    """Every number in plain values, by its key: `machine.gpus.0.memory_bytes`."""
    if isinstance(part, Mapping):
        for name, inner in part.items():
            yield from _numbers(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(part, Sequence) and not isinstance(part, str):
        for place, inner in enumerate(part):
            yield from _numbers(inner, f"{key}.{place}")
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield key, part


def _without_places(key: str) -> str:
    return ".".join(name for name in key.split(".") if not name.isdecimal())


SCHEMA: Final = 1
MARK: Final = "outlay measurement"
_OF_A_SEARCH = {"trials", "largest", "recommended", "fails_at"}
"""Keys by which a file of `--find-batch` is known."""
_EXACT = 2.0**53
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementDocument:
    """A measurement as it is written: what the file is, and every field of the measurement."""

    schema: Literal[1] = SCHEMA
    """Which set of keys this is."""
    kind: Literal["outlay measurement"] = MARK
    """What the file is."""
    outlay: str
    """The version of outlay that wrote it."""
    measurement: Measurement = field(metadata=FLATTEN)


def write_measurement(measurement: Measurement, path: Path | str) -> None:
    """Write a measurement, whole or not at all."""
    write_whole(Path(path), json_bytes(text_of(measurement)))


def text_of(measurement: Measurement) -> str:
    """The measurement as JSON, a key a line."""
    return json.dumps(measurement_to_json(measurement), indent=1, ensure_ascii=False) + "\n"


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """The measurement as plain JSON values."""
    profile = measurement.profile
    document = MeasurementDocument(
        outlay=_version(),
        measurement=replace(measurement, profile=None),
    )
    return {
        **to_json(document),
        "profile": None if profile is None else profile_to_json(profile),
    }


def _version() -> str:
    # By name: to import the package's root here would be to import all that it names.
    version: str = sys.modules["outlay"].__version__
    return version


def is_measurement(content: object) -> bool:
    """Whether parsed JSON is a measurement."""
    return isinstance(content, Mapping) and content.get("kind") == MARK


def is_search(content: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether parsed JSON is what `outlay probe --find-batch` writes."""
    return isinstance(content, Mapping) and content.keys() >= _OF_A_SEARCH


def read_measurement(path: Path | str) -> Measurement:
    """The measurement in a file."""
    try:
        content = parsed_json(read_data(Path(path)))
    except FileNotFoundError:
        raise InputError(
            f"There is no measurement {path}.", fix="Check the path, or probe again."
        ) from None
    except ValueError as error:
        raise _unreadable(str(path), str(error)) from error
    return measurement_from_json(content, source=str(path))


def measurement_from_json(content: object, *, source: str = "the given text") -> Measurement:
    """The measurement in parsed JSON; `source` names it in errors."""
    if not isinstance(content, Mapping) or not is_measurement(content):
        raise _of_another_kind(content, source)
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"{source} has schema {content.get('schema')!r}; this outlay reads {SCHEMA}.",
            fix="Use the outlay version that wrote it, or probe again.",
        )
    try:
        plain = json.dumps(_whole_numbers({**content, "profile": None}))
        measurement = _reader().validate_json(plain, strict=True)  # "0.05" is no number
    except ValidationError as error:
        raise _unreadable(source, _first_of(error)) from error
    except RecursionError as error:
        raise _unreadable(source, "A part of it is nested too deeply.") from error
    odd = what_is_odd(measurement)
    if odd is not None:
        raise _unreadable(source, odd)
    profile = content.get("profile")
    return (
        measurement if profile is None else replace(measurement, profile=_profile(profile, source))
    )


def _profile(content: object, source: str) -> Profile:
    try:
        return profile_from_json(content, source="Its key 'profile'")
    except InputError as error:
        raise _unreadable(source, f"{error.what} {error.why}".strip()) from error


def _whole_numbers(part: Any) -> Any:
    """Plain values with 100 for 100.0: JSON has one kind of number, and counts are whole."""
    if isinstance(part, Mapping):
        return {name: _whole_numbers(inner) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_whole_numbers(inner) for inner in part]
    is_whole = isinstance(part, float) and part.is_integer() and abs(part) < _EXACT
    return int(part) if is_whole else part


def _first_of(error: ValidationError) -> str:
    """The first thing that is wrong with a file, by its key and with its value."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if not key:  # the text as such: a part nested too deeply, half a character
        return f"{first['msg']}."
    if first["type"] == "missing":
        return f"{key} is missing."
    should = first["msg"].removeprefix("Input should be ")
    return f"{key} is {_short(first['input'])}, and should be {should}."


def _short(value: object) -> str:
    """A value as JSON has it, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def search_given(content: Mapping[str, Any], source: str) -> InputError:
    """The error for a file of `--find-batch` in the place of a measurement."""
    size = content["recommended"] or content["largest"]
    batch = f"batch {size}" if size else "a batch that fits"
    return InputError(
        f"{source} is what a search for the largest batch found, no measurement.",
        why="`outlay probe --find-batch` runs each batch for a few steps only.",
        fix=f"Probe the command at {batch}, without --find-batch, and give the JSON of that.",
    )


def _of_another_kind(content: object, source: str) -> InputError:
    """What a file is that is no measurement, as far as outlay wrote it."""
    if is_search(content):
        return search_given(content, source)
    if isinstance(content, Mapping) and content.get("kind") == PROFILE:
        return _unreadable(source, "It is a profile (`outlay trace --save`): no time was measured.")
    return _unreadable(source, "It is JSON, but no measurement written by outlay.")


@cache
def _reader() -> TypeAdapter[Measurement]:
    return TypeAdapter(Measurement)


def _unreadable(source: str, why: str) -> InputError:
    return InputError(
        f"{source} cannot be read as a measurement.",
        why=why,
        fix="Check that the file is complete, or probe again.",
    )
