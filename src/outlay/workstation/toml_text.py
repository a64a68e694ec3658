"""Reading a TOML file into a pydantic model, or one message naming the line and the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from outlay.errors import InputError
from outlay.workload_file import line_of

M = TypeVar("M", bound=BaseModel)


def read_toml(path: Path, model: type[M], noun: str) -> M:
    """The content of a file; `noun` is what messages call it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"There is no {noun} {path}.",
            fix="Give the path of yours; `outlay build --help` says what it holds.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The {noun} {path} cannot be read: {error}.") from error
    try:
        return model.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{path} is not valid TOML: {error}.",
            fix="Texts need quotes, tables look like [machine], lists like [1, 2].",
        ) from error
    except ValidationError as error:
        raise _input_error(error, text, str(path), model) from error


def _input_error(
    error: ValidationError, text: str, where: str, model: type[BaseModel]
) -> InputError:
    """The first problem in words; a key nobody knows goes first: it may be the missing one."""
    problems = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    first = problems[0]
    path = first["loc"]
    line = _line(text, path)
    place = f"{where}, line {line}" if line else where
    more = f" ({len(problems) - 1} more after this one)" if len(problems) > 1 else ""
    key = ".".join(str(part) for part in path if isinstance(part, str)) or "the file"
    if first["type"] == "extra_forbidden":
        return InputError(f"{place}: there is no key {key!r}{more}.", why=_meant(path, model))
    if first["type"] == "missing":
        return InputError(
            f"{place}: {key!r} is missing{more}.", why=f"Known: {_known(path, model)}."
        )
    value = "" if isinstance(first["input"], dict | list) else f" = {first['input']!r}"
    return InputError(f"{place}: {key}{value}: {_said(first['type'], first['msg'])}{more}.")


def _line(text: str, path: Sequence[str | int]) -> int | None:
    """The line of a key; of the key that holds it where it stands in a table between braces."""
    names = [part for part in path if isinstance(part, str)]
    while names:
        line = line_of(text, names)
        if line is not None:
            return line
        names.pop()
    return None


def _said(kind: str, message: str) -> str:
    """What is wrong, in the words of the file rather than of the reader."""
    if kind in ("model_type", "model_attributes_type"):
        return "it should be a name in quotes, or figures in braces: {watts = 1600}"
    said = message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    said = said.replace("should be a valid", "should be a").replace("should be", "it should be")
    return said[0].lower() + said[1:]


def _meant(path: Sequence[str | int], model: type[BaseModel]) -> str:
    table = _table_at(path[:-1], model)
    near = difflib.get_close_matches(str(path[-1]), list(table.model_fields), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known here: {_known(path, model)}."


def _known(path: Sequence[str | int], model: type[BaseModel]) -> str:
    return ", ".join(_table_at(path[:-1], model).model_fields)


def _table_at(path: Sequence[str | int], model: type[BaseModel]) -> type[BaseModel]:
    """The model of the table a path leads to."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The first model in a type such as `tuple[DriveTable, ...]` or `CpuTable | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)
