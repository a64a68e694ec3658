"""Where what was measured is written: to the file that is named, or beside, or elsewhere.

A probe costs time and money: what it found must not be lost because a disk is full, nor take the
place of something better.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.cli.options import warn
from outlay.errors import OutlayError
from outlay.files import free_path, write_whole

if TYPE_CHECKING:
    from outlay.measurement import Measurement

Saved = tuple[str | None, OutlayError | None]
"""Where it is, and what went wrong."""


def save_measurement(found: Measurement, json_path: str, *, keep: bool) -> Saved:
    """Write a measurement; `keep`: it may lie among the user's own data where need be."""
    from outlay.measurement_file import text_of
    from outlay.own_data import measurements_folder

    path = Path(json_path)
    if found.step is None and _has_step(path):
        path = free_path(path.with_suffix(""), path.suffix)
        warn(f"{json_path} has a step time and is kept; this measurement, without one, is {path}.")
    folders = [measurements_folder()] if keep else []
    return saved(text_of(found).encode(), path, "measurement", folders)


def saved(data: bytes, path: Path, what: str, folders: Sequence[Path] = ()) -> Saved:
    """Write data to a file; where that fails, to one of these folders, or to the usual ones."""
    try:
        write_whole(path, data)
    except OutlayError as error:
        return _saved_elsewhere(data, what, folders, error)
    return str(path), None


def _saved_elsewhere(
    data: bytes, what: str, folders: Sequence[Path], error: OutlayError
) -> tuple[str | None, OutlayError]:
    """Where it went instead, and the error that says so."""
    import tempfile

    for folder in (*folders, Path(tempfile.gettempdir()), Path.home()):
        with contextlib.suppress(OutlayError, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path = free_path(folder / "outlay-probe", ".json")
            write_whole(path, data)
            return str(path), OutlayError(
                error.what, why=f"The {what} was saved as {path} instead."
            )
    why = "It could not be saved elsewhere either."
    return None, OutlayError(error.what, why=why, fix=error.fix)


def _has_step(path: Path) -> bool:
    """Whether a file is a measurement with a step time."""
    from outlay.measurement_file import read_measurement

    try:
        return path.is_file() and read_measurement(path).step is not None
    except OutlayError:
        return False
