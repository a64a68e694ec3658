"""Profiles on disk, a user's own and those that come with outlay. Needs no torch.

A file is JSON, gzipped where its name ends in `.gz`:

    {"schema": 1, "kind": "outlay profile", "name": ..., "description": ..., "sample": ...,
     "parameters": n, "trainable_parameters": n, "issued_ops": x, "period": n,
     "traced_on": "YYYY-MM-DD", "versions": {...}, "unknown_ops": {...}, "notes": [...],
     "memory": {"<batch size>": {"parameters": bytes, "gradients": bytes, ...}},
     "held": {"<batch size>": {"allocated_bytes": bytes, "reserved_bytes": bytes,
                               "needed_bytes": bytes}},
     "history": null or {"sizes": [...], "events": [...], "optional": [...],
                         "conditions": {"<place in sizes>": "..."}},
     "structure": null or {"gradient_bytes": x, "ready": [...], "blocks": [{"name", "count",
                           "parameters", "output_bytes", "width"}, ...]},
     "ops": [{"name", "kind", "phase", "precision", "count", "flops", "moved_bytes",
              "launches", "layout", "shapes", "efficiency"}, ...]}

A polynomial in the batch size is a number if constant, else the list of its coefficients, constant
first. Of the history's events, n >= 0 makes a storage of `sizes[n]` bytes and -n ends the n-th last
made; profiles without `history` or `structure` are read, too. Of an operation, `launches` 1,
`layout` "plain", empty `shapes` and no stated `efficiency` are left out.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from outlay.errors import InputError, NotKnown
from outlay.facts import DATA, rows_of
from outlay.files import parsed_json, read_data, write_whole
from outlay.trace.profile import (
    AllocatorUse,
    BlockGroup,
    History,
    Kind,
    Memory,
    Polynomial,
    Precision,
    Profile,
    ProfileOp,
    PublishedBatch,
    Structure,
    value_at,
)

SCHEMA = 1
MARK = "outlay profile"
"""The `kind` of the JSON documents."""
_PLAIN_FIELDS = (
    "name",
    "description",
    "sample",
    "parameters",
    "trainable_parameters",
    "issued_ops",
    "period",
    "traced_on",
    "versions",
    "unknown_ops",
)
_OP_DEFAULTS = {"launches": 1, "layout": "plain", "shapes": [], "efficiency": None}


def write_profile(profile: Profile, path: Path | str) -> None:
    """Write a profile; the same profile always gives the same bytes."""
    text = json.dumps(profile_to_json(profile), separators=(",", ":"), ensure_ascii=False)
    data = text.encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_whole(Path(path), data)


def read_profile(path: Path | str) -> Profile:
    """The profile in a file."""
    try:
        return profile_from_json(content_of(Path(path)), source=str(path))
    except FileNotFoundError:
        raise InputError(
            f"There is no profile {path}.", fix="Check the path, or trace the step again."
        ) from None
    except ValueError as error:
        raise _unreadable(str(path), str(error)) from error


def content_of(path: Path) -> object:
    """The JSON in a file, gzipped or not; a ValueError says in plain words why there is none."""
    data = read_data(path)
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError("It is gzip, but cut off or damaged.") from error
    return parsed_json(data)


def _unreadable(source: str, why: str) -> InputError:
    return InputError(
        f"{source} cannot be read as a profile.",
        why=why,
        fix="Check that the file is complete, or trace the step again.",
    )


# As JSON


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """The profile as plain JSON values."""
    head = {"schema": SCHEMA, "kind": MARK}
    plain = {name: _value(getattr(profile, name)) for name in _PLAIN_FIELDS}
    return {
        **head,
        **plain,
        "notes": list(profile.notes),
        "memory": _points_to_json(profile.memory),
        "held": _points_to_json(profile.allocator_use),
        "history": None if profile.history is None else history_to_json(profile.history),
        "structure": None if profile.structure is None else _structure_to_json(profile.structure),
        "ops": [_op_to_json(op) for op in profile.ops],
    }


def profile_from_json(content: object, *, source: str = "the given text") -> Profile:
    """The profile in parsed JSON; `source` names it in errors."""
    if not isinstance(content, Mapping) or content.get("kind") != MARK:
        raise _unreadable(source, "It is JSON, but no profile written by outlay.")
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"{source} has schema {content.get('schema')!r}; this outlay reads {SCHEMA}.",
            fix="Use the outlay version that wrote it, or trace the step again.",
        )
    try:
        plain = {name: content[name] for name in _PLAIN_FIELDS}
        history, structure = content.get("history"), content.get("structure")
        profile = Profile(
            **plain,
            notes=tuple(content["notes"]),
            memory={int(n): Memory(**memory) for n, memory in content["memory"].items()},
            allocator_use={
                int(n): AllocatorUse(**use) for n, use in content.get("held", {}).items()
            },
            history=None if history is None else history_from_json(history),
            structure=None if structure is None else _structure_from_json(structure),
            ops=tuple(map(_op_from_json, content["ops"])),
        )
        _check(profile)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unreadable(source, _malformed(error)) from error
    return profile


def _points_to_json(points: Mapping[int, Memory] | Mapping[int, AllocatorUse]) -> dict[str, object]:
    return {
        str(batch_size): {
            name: _value(amount) for name, amount in asdict(points[batch_size]).items()
        }
        for batch_size in sorted(points)
    }


def history_to_json(history: History) -> dict[str, object]:
    """A history as JSON."""
    return {
        "sizes": [_polynomial_to_json(size) for size in history.sizes],
        "events": list(history.events),
        "optional": sorted(history.optional),
        "conditions": {str(place): text for place, text in sorted(history.conditions.items())},
    }


def history_from_json(content: Mapping[str, Any]) -> History:
    """The history in a JSON document."""
    return History(
        sizes=tuple(map(_polynomial_from_json, content["sizes"])),
        events=tuple(content["events"]),
        optional=frozenset(content["optional"]),
        conditions={int(place): text for place, text in content.get("conditions", {}).items()},
    )


def _structure_to_json(structure: Structure) -> dict[str, object]:
    blocks = [
        {**asdict(group), "output_bytes": _polynomial_to_json(group.output_bytes)}
        for group in structure.blocks
    ]
    return {
        "gradient_bytes": _value(structure.gradient_bytes),
        "ready": list(structure.ready),
        "blocks": blocks,
    }


def _structure_from_json(content: Mapping[str, Any]) -> Structure:
    blocks = [
        BlockGroup(**{**group, "output_bytes": _polynomial_from_json(group["output_bytes"])})
        for group in content["blocks"]
    ]
    return Structure(
        blocks=tuple(blocks),
        gradient_bytes=float(content["gradient_bytes"]),
        ready=tuple(map(float, content["ready"])),
    )


def _op_to_json(op: ProfileOp) -> dict[str, Any]:
    row = {
        "name": op.name,
        "kind": op.kind,
        "phase": op.phase,
        "precision": op.precision,
        "count": _value(op.count),
        "flops": _polynomial_to_json(op.flops),
        "moved_bytes": _polynomial_to_json(op.moved_bytes),
        "launches": _value(op.launches),
        "layout": op.layout,
        "shapes": [[_polynomial_to_json(size) for size in shape] for shape in op.shapes],
        "efficiency": op.efficiency,
    }
    return {
        name: value
        for name, value in row.items()
        if name not in _OP_DEFAULTS or _OP_DEFAULTS[name] != value
    }


def _op_from_json(row: dict[str, Any]) -> ProfileOp:
    shapes = row.pop("shapes", ())
    return ProfileOp(
        flops=_polynomial_from_json(row.pop("flops")),
        moved_bytes=_polynomial_from_json(row.pop("moved_bytes")),
        shapes=tuple(tuple(map(_polynomial_from_json, shape)) for shape in shapes),
        **row,
    )


def _polynomial_to_json(polynomial: Polynomial) -> object:
    return _value(polynomial[0]) if len(polynomial) == 1 else [_value(c) for c in polynomial]


def _polynomial_from_json(value: float | list[float]) -> Polynomial:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)


def _value(value: object) -> object:
    """Whole numbers without a decimal point; mappings as plain dictionaries in key order."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _value(value[key]) for key in sorted(value)}
    return value


# Checks of what was read


def _malformed(error: Exception) -> str:
    """What is wrong with a profile's parts, in words that are not Python's."""
    if isinstance(error, KeyError):
        return f"A part is missing or odd: there is no {error}."
    if isinstance(error, ValueError):
        return f"A part is missing or odd: {error}."
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown:
        return f"A part is missing or odd: {unknown[1]!r} is not known to this outlay."
    return "A part is missing or odd: it is text or a number where something else should be."


def _check(profile: Profile) -> None:
    """Raise a ValueError where a profile says what no step can."""
    if not profile.ops or not profile.memory:
        raise ValueError("no operations, or no memory")
    if profile.history is not None:
        _check_history(profile.history)
    largest = max(profile.memory)
    amounts = [profile.parameters, profile.trainable_parameters, profile.issued_ops]
    amounts += [memory.peak_bytes for memory in profile.memory.values()]
    for op in profile.ops:
        if op.kind not in get_args(Kind) or op.precision not in get_args(Precision):
            raise ValueError(f"{op.name} is a {op.kind} in {op.precision}")
        amounts += [op.count, op.launches]
        amounts += [value_at(op.flops, largest), value_at(op.moved_bytes, largest)]
    if not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise ValueError("an amount below zero, or no number")


def _check_history(history: History) -> None:
    """Raise a ValueError where a storage has no size, or ends before it is made or twice."""
    live: set[int] = set()
    made = 0
    if any(place >= len(history.sizes) for place in (*history.optional, *history.conditions)):
        raise ValueError("a workspace without a size in the history")
    for event in history.events:
        if event >= len(history.sizes):
            raise ValueError(f"no size {event} in the history")
        if event >= 0:
            live.add(made)
            made += 1
            continue
        if made + event not in live:
            raise ValueError("a storage in the history ends twice, or was never made")
        live.remove(made + event)


# Profiles that come with outlay


_FOLDER = DATA / "profiles"
_ENDING = ".json.gz"


def bundled_profiles() -> tuple[str, ...]:
    """The names of the bundled profiles."""
    return tuple(sorted(path.name.removesuffix(_ENDING) for path in _FOLDER.glob(f"*{_ENDING}")))


@lru_cache(maxsize=16)
def _bundled(name: str) -> Profile:
    """Read once, so that what is predicted from it is predicted once."""
    return replace(read_profile(_FOLDER / f"{name}{_ENDING}"), published=_published_batch(name))


def _published_batch(name: str) -> PublishedBatch | None:
    """The batch that a bundled step was published with, None where that is not known."""
    rows = [row for row in rows_of("recipe_batches.csv") if row["profile"] == name]
    sizes = {row["parameter"]: int(row["value"]) for row in rows if row["value"]}
    if not sizes:
        return None
    return PublishedBatch(
        per_gpu=sizes.get("per_gpu"),
        global_batch_size=sizes.get("global"),
        where=rows[0]["published_by"],
    )


def find_profile(name: str) -> Profile:
    """A bundled profile by its name, or a saved one by its path."""
    if name in bundled_profiles():
        return _bundled(name)
    if Path(name).suffix in (".json", ".gz"):
        return read_profile(Path(name))
    raise NotKnown(
        "profile",
        name,
        bundled_profiles(),
        fix="`outlay profiles` lists the bundled ones; `outlay trace ... --save FILE` makes one.",
    )
