"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from outlay.errors import InputError


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
