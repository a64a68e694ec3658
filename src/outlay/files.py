"""Writing files whole or not at all, and reading JSON that may be anything."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from outlay.errors import InputError

LARGEST_BYTES = 256 * 2**20
"""What is read of a file: a device has no end."""


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
