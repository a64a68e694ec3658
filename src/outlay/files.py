"""Files written whole or not at all, and where; JSON read that may be anything; JSON and YAML made
of values."""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from functools import cache
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Any, TextIO

from outlay.errors import FileNotWritten, InputError

LARGEST_BYTES = 256 * 2**20
"""What is read of a file: a device has no end."""
NO_CACHE = "OUTLAY_NO_CACHE"
"""The variable that, where it is set, turns keeping traces off."""
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


def cache_folder(environment: Mapping[str, str] | None = None, system: str = "") -> Path:
    """Where outlay keeps what it can make again; the folder need not exist.

    OUTLAY_DATA/cache, else XDG_CACHE_HOME/outlay, else ~/.cache/outlay (macOS:
    ~/Library/Caches/outlay; Windows: %LOCALAPPDATA%/outlay/cache).
    """
    environment = os.environ if environment is None else environment
    system = system or sys.platform
    if environment.get("OUTLAY_DATA"):
        return Path(environment["OUTLAY_DATA"]) / "cache"
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "outlay"
    home = Path(environment.get("HOME") or Path.home())
    if system == "darwin":
        return home / "Library" / "Caches" / "outlay"
    if system == "win32":
        return data_folder(environment, system) / "cache"
    return home / ".cache" / "outlay"


def check_folder(path: Path) -> None:
    """Refuse at once what could not be written after long work."""
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder.", fix="Name a file in it.")
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


def make_folder(path: Path) -> None:
    """Make a folder for what outlay keeps for the user, where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(path, error, fix=_ELSEWHERE) from error


_ELSEWHERE = "OUTLAY_DATA=FOLDER keeps outlay's own data in another folder."


def free_path(stem: Path, suffix: str) -> Path:
    """A path that nothing has: `stem.json`, or `stem-2.json`, `stem-3.json` ..."""
    path, number = stem.with_name(stem.name + suffix), 2
    while os.path.lexists(path):
        path = stem.with_name(f"{stem.name}-{number}{suffix}")
        number += 1
    return path


def read_data(path: Path) -> bytes:
    """What is in a file; a ValueError says in plain words why it cannot be read.

    A file that is not there is a FileNotFoundError; `-` is standard input.
    """
    if path == STDIN:
        return _all_of(sys.stdin)
    try:
        if path.is_dir():
            raise ValueError("It is a directory.")
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(unreadable_reason(error)) from error
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"It has more than {LARGEST_BYTES // 2**20} MiB: outlay writes no such.")
    return data


STDIN = Path("-")
"""The path that stands for standard input."""


def name_of(path: Path) -> str:
    """What a message calls a file."""
    return "standard input" if path == STDIN else str(path)


@cache
def _all_of(stream: TextIO | None) -> bytes:
    """All of standard input, which can be read once."""
    if stream is None or stream.closed:
        raise ValueError("It is closed.")
    return stream.buffer.read(LARGEST_BYTES + 1)


_REASONS = {
    errno.EACCES: "You may not read it.",
    errno.ELOOP: "It is a link that leads back to itself.",
    errno.ENAMETOOLONG: "Its name is longer than a file's can be.",
    errno.ENOTDIR: "A part of its path is a file, not a folder.",
    errno.EIO: "The disk it is on gives an error.",
}


def unreadable_reason(error: OSError) -> str:
    """Why a file cannot be read, in plain words."""
    return _REASONS.get(error.errno or 0, f"{error.strerror or error}.")


def decoded_text(data: bytes) -> str:
    """The text in a file's bytes, which is UTF-8, with or without a mark of that at its start; a
    ValueError says in plain words what else it is."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _is_wide(data):
        raise ValueError("It is UTF-16 text: save it as UTF-8.")
    if b"\0" in data:
        raise ValueError("It is not text, but binary data.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if any(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in data):
            raise ValueError("It is not text, but binary data.") from error
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"Its line {line} is not UTF-8 (byte 0x{data[error.start]:02x}), perhaps Latin-1 or "
            "another encoding: save it as UTF-8."
        ) from error


def _is_wide(data: bytes) -> bool:
    """Whether bytes are UTF-16 without a mark: plain letters with a zero beside each."""
    start = data[:64]
    halves = (start[::2], start[1::2])
    return len(start) >= 4 and any(
        set(zeros) == {0} and 0 not in letters for zeros, letters in (halves, halves[::-1])
    )


def text_of_file(path: Path, noun: str, *, absent: str = "", fix: str = "") -> str:
    """The text of a file that a user names; `noun` is what messages call it."""
    name = name_of(path)
    try:
        return decoded_text(read_data(path))
    except FileNotFoundError:
        raise InputError(f"There is no {noun} {name}.", fix=absent) from None
    except ValueError as error:
        raise InputError(f"The {noun} {name} cannot be read.", why=str(error), fix=fix) from error


_NO_TEXT = tuple(bytes((byte,)) for byte in range(32) if byte not in b"\t\n\r")


def parsed_json(data: bytes) -> object:
    """The JSON in a file's bytes; a ValueError says in plain words what is wrong with it."""
    if not data.strip():
        raise ValueError("It is empty.")
    try:
        content: object = json.loads(data)
    except json.JSONDecodeError as error:
        if b"\0" in data or data[:1] in _NO_TEXT:
            raise ValueError("It is not text, but binary data.") from error
        why = f"It is no complete JSON: {error.msg}, line {error.lineno}, column {error.colno}."
        raise ValueError(why) from error
    except UnicodeDecodeError as error:
        raise ValueError("It is no text, so that it is no JSON.") from error
    except RecursionError as error:
        raise ValueError("It is JSON, but nested too deeply for anything outlay wrote.") from error
    except ValueError as error:  # the only other one: Python reads no thousands of digits
        raise ValueError("A number in it has thousands of digits.") from error
    return content


def json_bytes(text: str) -> bytes:
    """JSON as files have it: UTF-8 in every locale.

    Bytes of a name that the locale could not read are no characters: each is a question mark.
    """
    return text.encode("utf-8", "replace")


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
        raise FileNotWritten(path, error) from error


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


# YAML

Yaml = str | int | float | bool | None | Sequence["Yaml"] | Mapping[str, "Yaml"]
_PLAIN = re.compile(r"(?:[A-Za-z_/]|[.~]/)[A-Za-z0-9_./~+@%=-]*(?: [A-Za-z0-9_./~+@%=-]+)*")
"""Text that is written without quotes, unless YAML reads it as something else."""
_READ_OTHERWISE = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null")
_BLOCK = re.compile(
    r"[\x21-\x7e\xa1-\u2027][\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*"
)
"""Text without characters that YAML forbids or takes for the end of a line."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(values: Mapping[str, Yaml]) -> str:
    """Values as YAML that any reader of it gives back as they are; text of several lines stands
    as a block."""
    return "".join(f"{line}\n" for line in _mapping(values, ""))


def _mapping(values: Mapping[str, Yaml], indent: str) -> Iterator[str]:
    for key, value in values.items():
        yield from _entry(f"{indent}{_text(key)}:", value, indent)


def _entry(start: str, value: Yaml, indent: str) -> Iterator[str]:
    """A value behind its key, or behind the dash of a list."""
    if isinstance(value, Mapping) and value:
        yield start
        yield from _mapping(value, f"{indent}  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield start
        for one in value:
            yield from _item(one, f"{indent}  ")
    elif isinstance(value, str) and _is_block(value):
        yield from _block(start, value, f"{indent}  ")
    else:
        yield f"{start} {_scalar(value)}"


def _item(value: Yaml, indent: str) -> Iterator[str]:
    """A value of a list; the first key of a mapping stands beside its dash."""
    if isinstance(value, Mapping) and value:
        lines = list(_mapping(value, f"{indent}  "))
        yield f"{indent}- {lines[0].removeprefix(f'{indent}  ')}"
        yield from lines[1:]
    else:
        yield from _entry(f"{indent}-", value, indent)


def _scalar(value: Yaml) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.10f}".rstrip("0") + ("0" if value == int(value) else "")
    if isinstance(value, str):
        return _text(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _READ_OTHERWISE.fullmatch(text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if " " <= character <= "~" or "\xa1" <= character <= "\u2027":
        return character
    return f"\\U{ord(character):08x}"


def _is_block(text: str) -> bool:
    """Whether a text of several lines can stand as it is, indented."""
    lines = text.split("\n")
    return (
        len(lines) > 1
        and _BLOCK.fullmatch(text) is not None
        and not any(line and not line.strip() for line in lines)
    )


def _block(start: str, text: str, indent: str) -> Iterator[str]:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    yield f"{start} |{'-' if ends == 0 else '' if ends == 1 else '+'}"
    for line in body.split("\n"):
        yield f"{indent}{line}" if line else ""
    yield from [""] * (ends - 1)
