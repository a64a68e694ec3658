"""TOML files as people write them: read into a pydantic model, or one message about what is wrong.

A message names the line and the key, says what is wrong with the value, and which key was meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from outlay.errors import InputError

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of file: what messages call it, and what they advise."""

    noun: str
    absent: str
    """What to do where there is no such file."""
    missing: str
    """Where to look for a key that is missing."""
    table: str = "it is a table: write [{table}] on a line of its own, and its keys below"
    """What to write where a table is expected."""


def read_text(path: Path, kind: FileKind) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no {kind.noun} {path}.", fix=kind.absent) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The {kind.noun} {path} cannot be read: {error}.") from error


def parse_table(text: str, where: str) -> dict[str, Any]:
    """The tables of a text as they stand there."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{where} is not valid TOML: {error}.",
            fix="Texts need quotes, tables look like [limits], lists like [1, 2].",
        ) from error


def model_of(table: dict[str, Any], text: str, where: str, model: type[M], kind: FileKind) -> M:
    """Tables as a model; `text` is where a wrong key is looked for, `where` what it is called."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise _input_error(error, text, where, model, kind) from error


def read_model(path: Path, model: type[M], kind: FileKind) -> M:
    """The content of a file as a model."""
    text = read_text(path, kind)
    return model_of(parse_table(text, str(path)), text, str(path), model, kind)


def _input_error(
    error: ValidationError, text: str, where: str, model: type[BaseModel], kind: FileKind
) -> InputError:
    """The first problem in words: which line and key, what is wrong, which key was meant.

    A key nobody knows goes before what is missing: it may be the missing one, misspelt.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    path = _path_in_file(first["loc"], model)
    line = _nearest_line(text, path)
    place = f"{where}, line {line}" if line else where
    more = f" ({len(problems) - 1} more after this one)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        why = _suggestion(path, model)
        return InputError(f"{place}: there is no key {_key(path)!r}{more}.", why=why)
    if first["type"] == "missing":
        return InputError(f"{place}: {_key(path)!r} is missing{more}.", fix=kind.missing)
    reason = _reason(first["type"], first["msg"], str(path[0]) if path else "", kind)
    if first["type"] == "tuple_type" and len(path) > 1:  # a key in a table, no table
        reason = f"it is a list: write {path[-1]} = [...]"
    value = "" if isinstance(first["input"], dict | list) else f" = {first['input']!r}"
    return InputError(f"{place}: {_key(path)}{value}: {reason}{more}.")


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a table by the keys they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _path_in_file(location: Sequence[str | int], model: type[BaseModel]) -> list[str | int]:
    """The keys of a location that stand in the file; pydantic adds names of type branches."""
    path: list[str | int] = []
    table: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int):
            path.append(part)
        elif table is not None:
            path.append(part)
            table = model_of_key(table, part)
    return path


def _reason(problem: str, message: str, table: str, kind: FileKind) -> str:
    """What is wrong, in the words of the file rather than of pydantic."""
    if problem == "tuple_type":
        return f"it may stand there more than once: write [[{table}]], or a list in brackets"
    if problem in ("model_type", "model_attributes_type"):
        return kind.table.format(table=table)
    return reason_of(message)


def reason_of(message: str) -> str:
    """What is wrong with a value, in plain words, of what pydantic says."""
    reason = message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    reason = reason.replace("should be a valid", "should be a").replace("should be", "it should be")
    return reason[0].lower() + reason[1:]


def _key(path: Sequence[str | int]) -> str:
    """`length.samples`, or `the 2nd [[offer]], price_per_hour`."""
    if len(path) > 1 and isinstance(path[1], int):
        rest = ".".join(str(part) for part in path[2:])
        nth = f"{path[1] + 1}{ {0: 'st', 1: 'nd', 2: 'rd'}.get(path[1], 'th') }"
        return f"the {nth} [[{path[0]}]], {rest}" if rest else f"the {nth} {path[0]}"
    return ".".join(str(part) for part in path if isinstance(part, str)) or "the file"


def _suggestion(path: Sequence[str | int], model: type[BaseModel]) -> str:
    """The key nearest to a wrong one, searched in the table it stands in."""
    table = model
    for part in path[:-1]:
        table = (isinstance(part, str) and model_of_key(table, part)) or table
    keys = list(keys_of(table))
    near = difflib.get_close_matches(str(path[-1]), keys, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(keys)}."


def model_of_key(table: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The model of the table that a key of a table holds; None where it holds none."""
    field = keys_of(table).get(key)
    return None if field is None else _model_in(field.annotation)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The first model in a type such as `tuple[DriveTable, ...]` or `CpuTable | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in models if model is not None), None)


def _nearest_line(text: str, path: Sequence[str | int]) -> int | None:
    """The line of a key, or of the key that holds it in a table between braces."""
    shorter = list(path)
    while shorter:
        line = line_of(text, shorter)
        if line is not None:
            return line
        shorter.pop()
    return None


_HEADER = re.compile(r"\s*\[+\s*([A-Za-z0-9_.\-\"]+)\s*\]+")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line of a key in TOML text, of its table where the key is missing."""
    repeated = len(path) > 1 and isinstance(path[1], int)  # a table of an array: [[offer]]
    index = int(path[1]) if repeated else 0
    names = [str(part) for part in path if isinstance(part, str)]
    if not names:
        return None
    header = names[0] if repeated else ".".join(names[:-1])
    key = names[-1] if len(names) > 1 or not repeated else None
    is_key = re.compile(rf"\s*\"?{re.escape(key or '')}\"?\s*=")
    tables_before, current, table_line = -1, "", None
    for number, line in enumerate(text.splitlines(), 1):
        match = _HEADER.match(line)
        if match:
            current = match[1].strip('"')
            if current == ".".join(names) and not repeated:
                return number
            if current == header:
                tables_before += 1
                table_line = number if tables_before == index else table_line
        elif (
            key
            and current == header
            and (tables_before == index or not header)
            and is_key.match(line)
        ):
            return number
    return table_line
