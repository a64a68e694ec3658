"""TOML files as people write them: read into a pydantic model, or one message about what is wrong.

A message names the line and the key, says what is wrong with the value, and which key was meant.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from outlay import files
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
    patterns: Mapping[str, str] = field(default_factory=dict)
    """What a text should be, by the pattern that it must match."""


def read_text(path: Path, kind: FileKind) -> str:
    """The text of a file."""
    return files.text_of_file(path, kind.noun, absent=kind.absent)


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
    text, where = read_text(path, kind), files.name_of(path)
    return model_of(parse_table(text, where), text, where, model, kind)


def _input_error(
    error: ValidationError, text: str, where: str, model: type[BaseModel], kind: FileKind
) -> InputError:
    """The first problem in words: which line and key, what is wrong, which key was meant.

    A key nobody knows goes before what is missing: it may be the missing one, misspelt.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    path = _path_in_file(first["loc"], model)
    same = [problem for problem in problems if _path_in_file(problem["loc"], model) == path]
    line = _nearest_line(text, path)
    place = f"{where}, line {line}" if line else where
    more = f" ({len(problems) - len(same)} more after this one)" if problems[len(same) :] else ""
    if first["type"] == "extra_forbidden":
        why = _suggestion(path, model)
        return InputError(f"{place}: there is no key {_quoted_key(path)}{more}.", why=why)
    if first["type"] == "missing":
        return InputError(f"{place}: {_quoted_key(path)} is missing{more}.", fix=kind.missing)
    reason = _any_of([_reason(problem, path, kind) for problem in same])
    is_whole = isinstance(first["input"], dict) and first["type"] == "value_error"  # of a table
    value = "" if is_whole else f" = {_as_written(first['input'])}"
    key = f"{_key(path)}{value}: " if path else ""
    return InputError(f"{place}: {key}{reason}{more}.")


def _any_of(reasons: Sequence[str]) -> str:
    """What a value should be where it may be of several kinds, each with its own reason."""
    first, *others = dict.fromkeys(reasons)
    return ", or ".join((first, *(other.removeprefix("it should be ") for other in others)))


def _as_written(value: object) -> str:
    """A value as it may stand in the file, cut short where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, dict):
        text = ", ".join(f"{key} = {_as_written(inner)}" for key, inner in value.items())
        text = f"{{{text}}}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(_as_written, value))}]"
    else:
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]} ..."


@contextmanager
def naming_line(text: str, where: str) -> Iterator[None]:
    """Errors about a name that stands in a file (a GPU, a provider, a currency) say at which line,
    whoever finds out that nobody knows it."""
    try:
        yield
    except InputError as error:
        line = None if error.what.startswith(where) else _line_of_value(text, error.what)
        if line is None:
            raise
        raise error.at(f"{where}, line {line}") from error


_NAMED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


def _line_of_value(text: str, message: str) -> int | None:
    """The first line with a value, or a key of an inline table, that a message names in quotes."""
    for match in _NAMED.finditer(message):
        name = re.escape(match[1] or match[2])
        value = re.compile(
            rf"=.*([\"']){name}\1|^\s*([\"']){name}\2\s*(?:,|$|\])|=.*[{{,]\s*{name}\s*="
        )
        for number, line in enumerate(text.splitlines(), 1):
            if value.search(line) and not line.lstrip().startswith("#"):
                return number
    return None


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


def _reason(problem: ErrorDetails, path: Sequence[str | int], kind: FileKind) -> str:
    """What is wrong, in the words of the file rather than of pydantic."""
    name, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    table = ".".join(part for part in path if isinstance(part, str))
    if name == "tuple_type":
        if len(path) > 1:  # a key in a table, no table
            return f"it should be a list: {path[-1]} = [...]"
        return f"it may stand there more than once: write [[{table}]], or a list in brackets"
    if name in ("model_type", "model_attributes_type"):
        repeated = path and isinstance(path[-1], int)
        return kind.table.format(table=f"[{table}]" if repeated else table)
    if isinstance(value, float) and not math.isfinite(value) and name in _BOUNDS:
        return f"it should be a number, which {value} is not"
    if name in _BOUNDS:
        bound = next(iter(context.values()))
        return f"it should be {_BOUNDS[name]} {bound:,.15g}"
    if name == "string_pattern_mismatch" and context.get("pattern") in kind.patterns:
        return f"it should be {kind.patterns[context['pattern']]}"
    return f"it should be {_KINDS[name]}" if name in _KINDS else reason_of(problem["msg"])


_BOUNDS = {
    "greater_than": "greater than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
_KINDS = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "a whole number"),
    "int_parsing_size": "a whole number of fewer digits",
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "dict_type": "names with values: {name = value}",
}
"""What a value should be, by pydantic's name of what is wrong with it."""
_LONGEST_VALUE = 60


def reason_of(message: str) -> str:
    """What is wrong with a value, in plain words, of what pydantic says."""
    reason = message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    reason = reason.replace("should be a valid", "should be a").replace("should be", "it should be")
    return reason[0].lower() + reason[1:]


def _key(path: Sequence[str | int]) -> str:
    """`length.samples`, or `the 2nd [[offer]], price_per_hour`."""
    if len(path) > 1 and isinstance(path[1], int):
        rest = ".".join(str(part) for part in path[2:])
        return f"{_nth(path)}, {rest}" if rest else _nth(path)
    return ".".join(str(part) for part in path if isinstance(part, str)) or "the file"


def _quoted_key(path: Sequence[str | int]) -> str:
    """`'length.samples'`, or `'price_per_hour' in the 2nd [[offer]]`."""
    if len(path) > 2 and isinstance(path[1], int):
        return f"{'.'.join(str(part) for part in path[2:])!r} in {_nth(path)}"
    return repr(_key(path))


def _nth(path: Sequence[str | int]) -> str:
    """`the 2nd [[offer]]`."""
    number = int(path[1]) + 1
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"the {number}{ending} [[{path[0]}]]"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


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
    is_dotted = re.compile(rf"\s*{re.escape('.'.join(names))}\s*=")
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
        elif (not current and not repeated and is_dotted.match(line)) or (
            key
            and current == header
            and (tables_before == index or not header)
            and is_key.match(line)
        ):
            return number
    return table_line
