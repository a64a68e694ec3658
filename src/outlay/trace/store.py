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
              "launches", "layout", "shapes", "efficiency"}, ...],
     "compile": null or {"mode": null or "...", "calls": x, "fused": [...]}}

A polynomial in the batch size is a number if constant, else the list of its coefficients, constant
first. Of the history's events, n >= 0 makes a storage of `sizes[n]` bytes and -n ends the n-th last
made; profiles without `history` or `structure` are read, too. Of an operation, `launches` 1,
`layout` "plain", empty `shapes` and no stated `efficiency` are left out.

`compile` says how the step calls torch.compile, and of each of the `ops` what would be left of it:
null where it is not compiled, [] where it is but stays as it is, else [bytes, launches]. It is left
out where nobody knows, as in older files; `fused` is empty where no trace said what shares data.

A step at any length of a sample is kept alike, as `"kind": "outlay profile of any length"`, with
other keys for what the length changes:

    {"pieces": [
    {"lengths": [shortest, longest], "batch_sizes": [...], "sample": "... {length} tokens",
     "history": {"sizes", "categories", "events", "optional", "conditions", "step_start"},
     "structure": {"gradient_bytes": x, "ready": {"<length>": [...]}, "blocks": [...]},
     "shares": {"<length>": {"<batch size>": [allocated, reserved, needed]}}, ...}, ...]}

Each piece is for a range of lengths in which the step does the same operations. There is no
`memory` and no `held`: they are computed at the length. In place of a polynomial is a number if
constant, else the list of its coefficients in the batch size, constant first, of which each is a
number, or the list of its coefficients in the length. Of each storage size, `categories` has the
field of `Memory` it counts in; `step_start` events come before the steady step. `shares` are what
the allocator takes of each byte that lives at the peak.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from outlay.errors import InputError, NotKnown
from outlay.facts import DATA, rows_of
from outlay.files import check_folder, json_bytes, parsed_json, read_data, write_whole
from outlay.trace.length_profile import (
    LengthHistory,
    LengthOp,
    LengthProfile,
    LengthStructure,
    Surface,
    UseShares,
    nearest_range,
    polynomial_at,
)
from outlay.trace.profile import (
    AllocatorUse,
    BlockGroup,
    Compilable,
    CompileMode,
    Fused,
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
LENGTHS_MARK = "outlay profile of any length"
ENDINGS = (".json", ".json.gz")
"""Of a profile's file: what it is known by where a bundled one could be meant, too."""
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
_LENGTH_FIELDS = tuple(name for name in _PLAIN_FIELDS if name != "period")
_OP_DEFAULTS = {"launches": 1, "layout": "plain", "shapes": [], "efficiency": None}


def write_profile(profile: Profile, path: Path | str) -> None:
    """Write a profile; the same profile always gives the same bytes."""
    _write(profile_to_json(profile), path)


def write_length_profiles(pieces: Sequence[LengthProfile], path: Path | str) -> None:
    """Write a step at any length, in pieces."""
    head = {"schema": SCHEMA, "kind": LENGTHS_MARK}
    _write({**head, "pieces": [length_profile_to_json(piece) for piece in pieces]}, path)


def _write(content: Mapping[str, object], path: Path | str) -> None:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    data = json_bytes(text)
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_whole(Path(path), data)


def check_profile_path(path: Path) -> None:
    """Refuse at once a name under which a profile could not be written, or not be found again."""
    is_device = path.exists() and not path.is_file()
    if not is_device and not path.name.endswith(ENDINGS):
        raise InputError(
            f"{path} has no ending of a profile: it could not be read again.",
            fix=f"Write for example --save {path.stem or 'mine'}.json.gz (or .json).",
        )
    check_folder(path)


def read_profile(path: Path | str, length: int | None = None) -> Profile:
    """The profile in a file; of a step at any length, that at `length`."""
    content = _read(path)
    if isinstance(content, Mapping) and content.get("kind") == LENGTHS_MARK:
        pieces = _pieces_of(content, str(path))
        ranges = [_range_of(piece, str(path)) for piece in pieces]
        length = _usual_length(ranges) if length is None else length
        place = nearest_range(ranges, length)
        return length_profile_from_json(pieces[place], source=str(path)).at(length)
    profile = profile_from_json(content, source=str(path))
    if length is not None:
        raise _no_other_length(profile)
    return profile


def read_length_profiles(path: Path | str) -> tuple[LengthProfile, ...]:
    """The step at any length that is in a file, in pieces."""
    content = _read(path)
    if not isinstance(content, Mapping) or content.get("kind") != LENGTHS_MARK:
        raise _unreadable(str(path), "It is JSON, but no step at any length written by outlay.")
    pieces = _pieces_of(content, str(path))
    return tuple(length_profile_from_json(piece, source=str(path)) for piece in pieces)


def _pieces_of(content: Mapping[str, Any], source: str) -> list[Any]:
    _check_schema(content, source)
    pieces = content.get("pieces")
    if not isinstance(pieces, list) or not pieces:
        raise _unreadable(source, "It has no pieces.")
    return pieces


def _range_of(piece: object, source: str) -> tuple[int, int]:
    """The lengths a piece is for."""
    try:
        shortest, longest = map(int, piece["lengths"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(source, "A piece has no range of lengths.") from error
    return shortest, longest


USUAL_LENGTH = 1024
"""Of a sample, where nobody says how long it is."""


def _usual_length(ranges: Sequence[tuple[int, int]]) -> int:
    """The length to take where none is given: the usual one, or the nearest that was traced."""
    shortest, longest = min(low for low, _ in ranges), max(high for _, high in ranges)
    return min(max(USUAL_LENGTH, shortest), longest)


def _no_other_length(profile: Profile) -> InputError:
    return InputError(
        f"{profile.name} has no other length than its own.",
        why=f"A sample of it is {profile.sample or 'what its trace had'}.",
        fix="Leave the length out, or trace the step at the length you want.",
    )


def _read(path: Path | str) -> object:
    """The JSON in a file."""
    try:
        return content_of(Path(path))
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
    compiling = {} if profile.compilable is None else {"compile": _compile_to_json(profile)}
    return {
        **head,
        **plain,
        "notes": list(profile.notes),
        "memory": _points_to_json(profile.memory),
        "held": _points_to_json(profile.allocator_use),
        "history": None if profile.history is None else history_to_json(profile.history),
        "structure": None if profile.structure is None else _structure_to_json(profile.structure),
        "ops": [_op_to_json(op) for op in profile.ops],
        **compiling,
    }


def profile_from_json(content: object, *, source: str = "the given text") -> Profile:
    """The profile in parsed JSON; `source` names it in errors."""
    if not isinstance(content, Mapping) or content.get("kind") != MARK:
        raise _unreadable(source, "It is JSON, but no profile written by outlay.")
    _check_schema(content, source)
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
        profile = _with_compile(profile, content.get("compile"))
        _check(profile)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unreadable(source, _malformed(error)) from error
    return profile


def _check_schema(content: Mapping[str, Any], source: str) -> None:
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"{source} has schema {content.get('schema')!r}; this outlay reads {SCHEMA}.",
            fix="Use the outlay version that wrote it, or trace the step again.",
        )


def length_profile_to_json(profile: LengthProfile) -> dict[str, Any]:
    """One piece of a step at any length as plain JSON values."""
    plain = {name: _value(getattr(profile, name)) for name in _LENGTH_FIELDS}
    history, structure = profile.history, profile.structure
    return {
        **plain,
        "lengths": list(profile.lengths),
        "batch_sizes": list(profile.batch_sizes),
        "notes": list(profile.notes),
        "history": {
            "sizes": [_surface_to_json(size) for size in history.sizes],
            "categories": list(history.categories),
            "events": list(history.events),
            "optional": sorted(history.optional),
            "conditions": {str(place): text for place, text in sorted(history.conditions.items())},
            "step_start": history.step_start,
        },
        "structure": {
            "gradient_bytes": _value(structure.gradient_bytes),
            "ready": {str(n): list(structure.ready[n]) for n in sorted(structure.ready)},
            "blocks": [
                {**asdict(group), "output_bytes": _surface_to_json(output)}
                for group, output in zip(structure.blocks, structure.outputs, strict=True)
            ],
        },
        "shares": {
            str(length): {str(n): list(shares) for n, shares in sorted(by_size.items())}
            for length, by_size in sorted(profile.shares.items())
        },
        "ops": [
            {
                **_op_to_json(op.example),
                "flops": _surface_to_json(op.flops),
                "moved_bytes": _surface_to_json(op.moved_bytes),
                "shapes": [[_surface_to_json(size) for size in shape] for shape in op.shapes],
            }
            for op in profile.ops
        ],
    }


def length_profile_from_json(content: object, *, source: str = "the given text") -> LengthProfile:
    """One piece of a step at any length in parsed JSON; `source` names it in errors."""
    if not isinstance(content, Mapping):
        raise _unreadable(source, "A piece is no mapping.")
    try:
        history, structure = content["history"], content["structure"]
        shortest, longest = map(int, content["lengths"])
        profile = LengthProfile(
            **{name: content[name] for name in _LENGTH_FIELDS},
            lengths=(shortest, longest),
            batch_sizes=tuple(map(int, content["batch_sizes"])),
            notes=tuple(content["notes"]),
            history=LengthHistory(
                sizes=tuple(map(_surface_from_json, history["sizes"])),
                categories=tuple(history["categories"]),
                events=tuple(history["events"]),
                step_start=int(history["step_start"]),
                optional=frozenset(history["optional"]),
                conditions={int(n): text for n, text in history["conditions"].items()},
            ),
            structure=LengthStructure(
                blocks=tuple(
                    BlockGroup(**{**group, "output_bytes": (0.0,)}) for group in structure["blocks"]
                ),
                outputs=tuple(
                    _surface_from_json(group["output_bytes"]) for group in structure["blocks"]
                ),
                gradient_bytes=float(structure["gradient_bytes"]),
                ready={
                    int(n): tuple(map(float, shares)) for n, shares in structure["ready"].items()
                },
            ),
            shares={
                int(length): {int(n): _use_shares(shares) for n, shares in by_size.items()}
                for length, by_size in content["shares"].items()
            },
            ops=tuple(map(_length_op_from_json, content["ops"])),
        )
        _check_lengths(profile)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unreadable(source, _malformed(error)) from error
    return profile


def _use_shares(values: Sequence[float]) -> UseShares:
    allocated, reserved, needed = map(float, values)
    return allocated, reserved, needed


def _length_op_from_json(row: Mapping[str, Any]) -> LengthOp:
    shapes = row.get("shapes", ())
    return LengthOp(
        example=_op_from_json({**row, "flops": 0, "moved_bytes": 0, "shapes": []}),
        flops=_surface_from_json(row["flops"]),
        moved_bytes=_surface_from_json(row["moved_bytes"]),
        shapes=tuple(tuple(map(_surface_from_json, shape)) for shape in shapes),
    )


def _surface_to_json(surface: Surface) -> object:
    rows = [_polynomial_to_json(coefficients) for coefficients in surface]
    return rows[0] if len(rows) == 1 and not isinstance(rows[0], list) else rows


def _surface_from_json(value: object) -> Surface:
    if isinstance(value, list):
        return tuple(map(_polynomial_from_json, value))
    if isinstance(value, int | float):
        return ((float(value),),)
    raise ValueError(f"{value!r} is no number and no list of coefficients")


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


def _compile_to_json(profile: Profile) -> dict[str, object]:
    """How the step calls torch.compile, and what that would leave of each operation."""
    assert profile.compilable is not None
    fused = [_fused_to_json(op.fused) for op in profile.ops] if profile.knows_fusions else []
    return {
        "mode": profile.compilable.mode,
        "calls": _value(profile.compilable.calls),
        "fused": fused,
    }


def _fused_to_json(fused: Fused | None) -> object:
    if fused is None:
        return None
    if fused.moved_bytes is None:
        return []
    return [_polynomial_to_json(fused.moved_bytes), _value(fused.launches)]


def _with_compile(profile: Profile, content: Mapping[str, Any] | None) -> Profile:
    """The profile with what a file says of torch.compile."""
    if content is None:
        return profile
    mode = content["mode"]
    if mode is not None and mode not in get_args(CompileMode):
        raise ValueError(f"torch.compile has no mode {mode!r}")
    compilable = Compilable(mode=mode, calls=float(content["calls"]))
    rows = content["fused"] or [None] * len(profile.ops)
    ops = tuple(
        replace(op, fused=_fused_from_json(row, op))
        for op, row in zip(profile.ops, rows, strict=True)
    )
    return replace(profile, compilable=compilable, ops=ops)


def _fused_from_json(row: Sequence[Any] | None, op: ProfileOp) -> Fused | None:
    if row is None:
        return None
    if not row:
        return Fused(launches=op.launches)
    moved_bytes, launches = row
    if not math.isfinite(launches) or launches < 0:
        raise ValueError(f"{op.name} launches {launches} kernels")
    return Fused(moved_bytes=_polynomial_from_json(moved_bytes), launches=float(launches))


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
    _check_ops(profile.ops)
    for op in profile.ops:
        amounts += [value_at(op.flops, largest), value_at(op.moved_bytes, largest)]
    if not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise ValueError("an amount below zero, or no number")


def _check_lengths(profile: LengthProfile) -> None:
    """Raise a ValueError where a step at any length says what no step can."""
    shortest, longest = profile.lengths
    if not 0 < shortest <= longest or len(profile.batch_sizes) < 2:
        raise ValueError("no range of lengths, or no batch sizes")
    history = profile.history
    if len(history.categories) != len(history.sizes):
        raise ValueError("a storage size without its category")
    if not set(history.categories) <= {category.name for category in fields(Memory)}:
        raise ValueError("a category of memory that there is not")
    if not 0 < history.step_start < len(history.events):
        raise ValueError("a step without events")
    if not profile.ops or not profile.structure.ready:
        raise ValueError("no operations, or no backward pass")
    if not profile.shares or not all(profile.shares.values()):
        raise ValueError("no shares of live bytes")
    _check_ops(op.example for op in profile.ops)
    surfaces = [*history.sizes, *(op.flops for op in profile.ops)]
    surfaces += [op.moved_bytes for op in profile.ops]
    largest = profile.batch_sizes[-1]
    amounts = [value_at(polynomial_at(each, longest), largest) for each in surfaces]
    if not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise ValueError("an amount below zero, or no number")
    _check_history(History(sizes=((0.0,),) * len(history.sizes), events=history.events))


def _check_ops(ops: Iterable[ProfileOp]) -> None:
    for op in ops:
        if op.kind not in get_args(Kind) or op.precision not in get_args(Precision):
            raise ValueError(f"{op.name} is a {op.kind} in {op.precision}")
        if not all(math.isfinite(n) and n >= 0 for n in (op.count, op.launches)):
            raise ValueError(f"{op.name} runs {op.count} times")


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
    return replace(read_profile(_FOLDER / f"{name}{_ENDING}"), published=published_batch(name))


def published_batch(name: str) -> PublishedBatch | None:
    """The batch that a bundled step or a method was published with; None where not known."""
    rows = [row for row in rows_of("recipe_batches.csv") if row["profile"] == name]
    sizes = {row["parameter"]: int(row["value"]) for row in rows if row["value"]}
    if not sizes:
        return None
    return PublishedBatch(
        per_gpu=sizes.get("per_gpu"),
        global_batch_size=sizes.get("global"),
        where=rows[0]["published_by"],
    )


_MODEL_FOLDER = DATA / "model_profiles"


def bundled_model_profiles() -> tuple[str, ...]:
    """The names of the bundled profiles of models: `model.method`, as `step_name` writes them."""
    return tuple(
        sorted(path.name.removesuffix(_ENDING) for path in _MODEL_FOLDER.glob(f"*{_ENDING}"))
    )


def step_name(model: str, method: str, settings: Mapping[str, object] | None = None) -> str:
    """What a model's step is called: `llama-3.2-1b.full`, `llama-3.2-1b.full.checkpointing-no`.

    `settings` are those that are not as the method has them, the length left out.
    """
    changed = [f"{key}-{_word(value)}" for key, value in sorted((settings or {}).items())]
    return ".".join([model, method, *changed])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


@lru_cache(maxsize=64)
def _bundled_at(name: str, length: int | None) -> Profile:
    """Read once, so that what is predicted from it is predicted once."""
    return read_profile(_MODEL_FOLDER / f"{name}{_ENDING}", length)


def find_profile(name: str, length: int | None = None) -> Profile:
    """A bundled profile by its name, or a saved one by its path.

    `length` is that of a sample, for a step at any length; without it, the usual one.
    """
    if name in bundled_profiles():
        if length is not None:
            raise _no_other_length(_bundled(name))
        return _bundled(name)
    if name in bundled_model_profiles():
        return _bundled_at(name, length)
    if Path(name).suffix in (".json", ".gz"):
        return read_profile(Path(name), length)
    raise NotKnown(
        "profile",
        name,
        (*bundled_profiles(), *bundled_model_profiles()),
        fix="`outlay profiles` lists the bundled ones; `outlay trace ... --save FILE` makes one.",
    )
