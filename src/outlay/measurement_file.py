"""Measurements on disk: JSON, as `outlay probe` writes it (docs/schema/measurement.json).

    {"schema": 1, "kind": "outlay measurement", "outlay": "0.1.0", "command": [...],
     "step": {"mean_s", "low_s", "high_s", ...}, "batch_size": n, "samples_per_s": x,
     "machine": {...}, "memory": {...}, "shares": {...}, "finding": {...}, "checks": [...],
     "samples": [...], "profile": null or an outlay profile, ...}

Every field of `Measurement` is a key; `batch_size`, `samples_per_s`, `usd` and `step.precision` are
worked out from others and are not read back. Unknown is null.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from outlay.errors import InputError
from outlay.files import write_whole
from outlay.measurement import Measurement
from outlay.trace.store import profile_from_json, profile_to_json

SCHEMA = 1
MARK = "outlay measurement"
_WORKED_OUT = ("batch_size", "samples_per_s", "usd")


def write_measurement(measurement: Measurement, path: Path | str) -> None:
    """Write a measurement, whole or not at all."""
    write_whole(Path(path), text_of(measurement).encode())


def text_of(measurement: Measurement) -> str:
    """The measurement as JSON, a key a line."""
    return json.dumps(measurement_to_json(measurement), indent=1, ensure_ascii=False) + "\n"


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """The measurement as plain JSON values."""
    plain = asdict(replace(measurement, profile=None))
    if measurement.step is not None:
        plain["step"]["precision"] = measurement.step.precision
    worked_out = {name: getattr(measurement, name) for name in _WORKED_OUT}
    profile = measurement.profile
    return {
        "schema": SCHEMA,
        "kind": MARK,
        "outlay": importlib.metadata.version("outlay"),
        **plain,
        **worked_out,
        "profile": None if profile is None else profile_to_json(profile),
    }


def is_measurement(content: object) -> bool:
    """Whether parsed JSON is a measurement."""
    return isinstance(content, Mapping) and content.get("kind") == MARK


def read_measurement(path: Path | str) -> Measurement:
    """The measurement in a file."""
    try:
        content = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"There is no measurement {path}.", fix="Check the path, or probe again."
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), str(error)) from error
    return measurement_from_json(content, source=str(path))


def measurement_from_json(content: object, *, source: str = "the given text") -> Measurement:
    """The measurement in parsed JSON; `source` names it in errors."""
    if not isinstance(content, Mapping) or not is_measurement(content):
        raise _unreadable(source, "It is JSON, but no measurement written by outlay.")
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"{source} has schema {content.get('schema')!r}; this outlay reads {SCHEMA}.",
            fix="Use the outlay version that wrote it, or probe again.",
        )
    try:
        measurement = _reader().validate_python({**content, "profile": None})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _unreadable(source, f"{place}: {first['msg']}.") from error
    _check_figures(measurement, source)
    profile = content.get("profile")
    if profile is None:
        return measurement
    return replace(measurement, profile=profile_from_json(profile, source=f"{source}: profile"))


def _check_figures(measurement: Measurement, source: str) -> None:
    """Raise where a figure that others are divided by is no positive number."""
    step = measurement.step
    times_s = {} if step is None else {"step.mean_s": step.mean_s, "step.median_s": step.median_s}
    for name, value in {**times_s, "samples_per_step": measurement.samples_per_step}.items():
        if value is not None and not 0 < value < math.inf:
            raise _unreadable(source, f"{name}: {value:g} is no positive number.")


@cache
def _reader() -> TypeAdapter[Measurement]:
    return TypeAdapter(Measurement)


def _unreadable(source: str, why: str) -> InputError:
    return InputError(
        f"{source} cannot be read as a measurement.",
        why=why,
        fix="Check that the file is complete, or probe again.",
    )
