"""Files written whole or not at all, and where; JSON read that may be anything, made of values."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from functools import cache
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Any

from outlay.errors import InputError

LARGEST_BYTES = 256 * 2**20
"""What is read of a file: a device has no end."""
PRICE_LISTS = "price_lists"
"""The folder of one's own price lists, in the data folder."""
FLATTEN = {"flatten": True}
"""Metadata of a dataclass field whose own keys stand in its place: `field(metadata=FLATTEN)`."""


def data_folder(environment: Mapping[str, str] | None = None, system: str = "") -> Path:
    """Where everything lies that outlay keeps for the user; the folder need not exist.

    OUTLAY_DATA, else XDG_DATA_HOME/outlay, else ~/.local/share/outlay (macOS:
    ~/Library/Application Support/outlay; Windows: %LOCALAPPDATA%/outlay).
    """
    environment = os.environ if environment is None else environment
    system = system or sys.platform
    if environment.get("OUTLAY_DATA"):
        return Path(environment["OUTLAY_DATA"])
    if environment.get("XDG_DATA_HOME"):
        return Path(environment["XDG_DATA_HOME"]) / "outlay"
    home = Path(environment.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Application Support" / "outlay"
    if system == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "outlay"
    return home / ".local" / "share" / "outlay"


def check_folder(path: Path) -> None:
    """Refuse at once what could not be written after long work."""
    if not path.parent.is_dir():
        raise InputError(
            f"{path} cannot be written: there is no folder {path.parent}.",
            fix="Make it first, or choose another place.",
        )
    is_device = path.exists() and not path.is_file()
    if not is_device and not os.access(path.parent, os.W_OK):
        raise InputError(
            f"{path} cannot be written: you may not write in {path.parent}.",
            fix="Choose another place.",
        )


def free_path(stem: Path, suffix: str) -> Path:
    """A path that nothing has: `stem.json`, or `stem-2.json`, `stem-3.json` ..."""
    path, number = stem.with_name(stem.name + suffix), 2
    while os.path.lexists(path):
        path = stem.with_name(f"{stem.name}-{number}{suffix}")
        number += 1
    return path


def read_data(path: Path) -> bytes:
    """What is in a file; a ValueError says in plain words why it cannot be read.

    A file that is not there is a FileNotFoundError.
    """
    if path.is_dir():
        raise ValueError("It is a directory.")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{error.strerror or error}.") from error
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"It has more than {LARGEST_BYTES // 2**20} MiB: outlay writes no such.")
    return data


def parsed_json(data: bytes) -> object:
    """The JSON in a file's bytes; a ValueError says in plain words what is wrong with it."""
    if not data.strip():
        raise ValueError("It is empty.")
    try:
        content: object = json.loads(data)
    except json.JSONDecodeError as error:
        why = f"It is no complete JSON: {error.msg}, line {error.lineno}, column {error.colno}."
        raise ValueError(why) from error
    except UnicodeDecodeError as error:
        raise ValueError("It is no text, so that it is no JSON.") from error
    except RecursionError as error:
        raise ValueError("It is JSON, but nested too deeply for anything outlay wrote.") from error
    except ValueError as error:  # the only other one: Python reads no thousands of digits
        raise ValueError("A number in it has thousands of digits.") from error
    return content


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is complete or untouched, whatever happens meanwhile.

    The data goes into a draft beside it that takes its name at the end; a device or pipe, which
    cannot be replaced, is written directly.
    """
    draft = path.with_name(f"{path.name}.part")
    direct = path.exists() and not path.is_file()
    try:
        (path if direct else draft).write_bytes(data)
        if not direct:
            draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise InputError(
            f"{path} cannot be written: {error.strerror}.",
            fix="Choose another place, or make room there.",
        ) from error


# Values as JSON. A dataclass is an object whose keys are its fields; a field with the metadata
# `FLATTEN` has the keys of its value in its place. Properties that a class names in
# `JSON_PROPERTIES` are keys, too, after its fields. A date is its text.


def to_json(value: Any) -> Any:
    """A value as plain JSON values."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is tuple or kind is list:
        return [to_json(inner) for inner in value]
    pairs = _pairs(value)
    if pairs is not None:
        return {key: to_json(inner) for key, inner in pairs}
    return value.isoformat() if isinstance(value, date | time) else value


def json_text(value: Any, margin: str = "\n") -> str:
    """A value as JSON, a key a line: the text that `json.dumps` has for `to_json(value)`.

    It takes half the time of `json.dumps`, which matters for a plan of 17 MB. Characters beyond
    ASCII stay as they are; NaN is a ValueError.
    """
    atom = _ATOMS.get(type(value))
    if atom is not None:
        return atom(value)
    ends, inner_margin = "[]", margin + " "
    if isinstance(value, tuple | list):
        parts = [json_text(inner, inner_margin) for inner in value]
    elif (pairs := _pairs(value)) is not None:
        ends = "{}"
        parts = [f"{_quoted(key)}: {json_text(inner, inner_margin)}" for key, inner in pairs]
    else:
        return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False)
    if not parts:
        return ends
    return ends[0] + inner_margin + f",{inner_margin}".join(parts) + margin + ends[1]


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number that JSON has")
    return repr(value)


_ATOMS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: repr,
    float: _float_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}


def _pairs(value: Any) -> Iterable[tuple[str, Any]] | None:
    """The keys and values of what is an object in JSON; None for what is not."""
    keys = _json_keys(value.__class__)
    if keys is None:
        return value.items() if isinstance(value, Mapping) else None
    pairs: list[tuple[str, Any]] = []
    for name, is_flat in keys:
        inner = getattr(value, name)
        if is_flat:
            pairs += _pairs(inner) or ()
        else:
            pairs.append((name, inner))
    return pairs


@cache
def _json_keys(kind: type[Any]) -> tuple[tuple[str, bool], ...] | None:
    """The fields and written properties of a dataclass, and whether each is flattened."""
    if not is_dataclass(kind):
        return None
    own = [(key.name, "flatten" in key.metadata) for key in fields(kind)]
    return (*own, *((name, False) for name in json_properties(kind)))


def json_properties(kind: type[Any]) -> tuple[str, ...]:
    """Properties of a dataclass that are keys of its JSON, besides its fields."""
    return getattr(kind, "JSON_PROPERTIES", ())
