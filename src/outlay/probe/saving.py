"""A probe's result on disk: in the file that is named, else beside it, else elsewhere.

A probe costs time and money: its result must not be lost because a disk is full, nor take the place
of a better one.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.errors import OutlayError
from outlay.files import free_path, json_bytes, write_whole
from outlay.ledger.kept_measurements import keep_measurement, measurements_folder
from outlay.measurement.file import read_measurement, text_of
from outlay.measurement.measurement import Measurement
from outlay.probe.guard import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Where a result is."""

    path: str | None
    """None where it could not be written anywhere."""
    error: OutlayError | None = None
    """What went wrong, and where it was saved instead."""
    note: str | None = None
    """Why it is in another file, where nothing went wrong."""


def save_measurement(measurement: Measurement, path: Path, *, keep: bool) -> Saved:
    """Write a measurement; `keep`: it may lie among the user's own data where need be.

    One without a step time does not replace one that has it.
    """
    free, note = path, None
    if measurement.step is None and _has_step_time(path):
        free = free_path(path.with_suffix(""), path.suffix)
        note = f"{path} has a step time and is kept; this measurement, without one, is {free}."
    folders = [measurements_folder] if keep else []
    saved = save_data(data_of(measurement), free, "measurement", folders)
    return replace(saved, note=note)


def data_of(measurement: Measurement) -> bytes:
    """A measurement as it is written; without its operations where these cannot be."""
    guard = Guard()
    whole = guard.value("the operations of a step", lambda: text_of(measurement), None)
    if whole is None:
        notes = (*measurement.notes, *guard.notes)
        whole = text_of(replace(measurement, profile=None, notes=notes))
    return json_bytes(whole)


Folder = Callable[[], Path]
"""Says where a folder is; that may fail, too: there may be no home."""


def save_data(data: bytes, path: Path, what: str, folders: Sequence[Folder] = ()) -> Saved:
    """Write data to a file; where that fails, to one of these folders, or to the usual ones.

    `what` names the data in the error.
    """
    try:
        write_whole(path, data)
    except OutlayError as error:
        return _save_elsewhere(data, what, folders, error)
    return Saved(path=str(path))


def keep_copy(measurement: Measurement) -> str | None:
    """Keep a copy among the user's own data, to learn from; gives what went wrong, if it did."""
    gpus = measurement.machine.gpus
    device = gpus[0].name if gpus else "cpu"
    words = f"{measurement.measured_on} {device}"
    name = "".join(letter if letter.isalnum() else "-" for letter in words)
    try:
        keep_measurement(measurement, name)
    except OutlayError as error:
        return error.what
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}."
    except Exception as error:
        return f"{type(error).__name__}: {error}."
    return None


def _save_elsewhere(data: bytes, what: str, folders: Sequence[Folder], error: OutlayError) -> Saved:
    for find in (*folders, lambda: Path(tempfile.gettempdir()), Path.home):
        with contextlib.suppress(OutlayError, OSError, RuntimeError):
            folder = find()
            folder.mkdir(parents=True, exist_ok=True)
            path = free_path(folder / "outlay-probe", ".json")
            write_whole(path, data)
            why = f"The {what} was saved as {path} instead."
            return Saved(path=str(path), error=OutlayError(error.what, why=why))
    why = "It could not be saved elsewhere either."
    return Saved(path=None, error=OutlayError(error.what, why=why, fix=error.fix))


def _has_step_time(path: Path) -> bool:
    """Whether a file is a measurement with a step time."""
    try:
        return path.is_file() and read_measurement(path).step is not None
    except Exception:  # whatever it is, it must not keep this one from being written
        return False
