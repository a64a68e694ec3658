"""The user's own folder: measurements that were kept, and what was learned from them.

    OUTLAY_DATA, else XDG_DATA_HOME/outlay, else ~/.local/share/outlay
    (macOS: ~/Library/Application Support/outlay; Windows: %LOCALAPPDATA%/outlay)

    measurements/*.json    as `outlay probe` writes them
    calibration.json       as `outlay calibrate` writes it

A file there that cannot be read is named in a warning and left out: it must not stop a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from outlay.errors import InputError, OutlayError
from outlay.files import (
    data_folder,
    free_path,
    json_bytes,
    make_folder,
    parsed_json,
    read_data,
    write_whole,
)
from outlay.measurement.file import measurement_from_json, read_measurement, write_measurement
from outlay.measurement.measurement import Measurement
from outlay.plan.placement import calibration
from outlay.predict.evidence import NOTHING_LEARNED, LearnedCalibration
from outlay.predict.learn import CalibrationReport, calibration_report

SCHEMA = 2
"""2: distinct steps have a vote each; what 1 said of a GPU could be far off."""
_MARK = "outlay calibration"
ALL = "all"
"""Every measurement, where names are given."""
Warn = Callable[[str], None]


def measurements_folder() -> Path:
    """Where the user's own measurements lie."""
    return data_folder() / "measurements"


def calibration_file() -> Path:
    """Where what was learned from them lies."""
    return data_folder() / "calibration.json"


def own_measurements(warn: Warn) -> list[tuple[str, Measurement]]:
    """Every measurement that was kept, by its file's name."""
    measurements = []
    for path in _kept_files():
        try:
            measurements.append((path.name, read_measurement(path)))
        except OutlayError as error:
            warn(" ".join(part for part in (error.what, error.why, "It is left out.") if part))
    return measurements


def keep_measurement(measurement: Measurement, name: str) -> Path:
    """Keep a measurement under a name that no other has; the same one again stays one file."""
    folder = measurements_folder()
    make_folder(folder)
    same = next((path for path in _kept_files() if _holds(path, measurement)), None)
    if same is not None:
        return same
    path = free_path(folder / name, ".json")
    write_measurement(measurement, path)
    return path


def _kept_files() -> list[Path]:
    """What lies there as a file, or as a link that leads nowhere: that one is to be told of."""
    paths = measurements_folder().glob("*.json")
    return sorted(path for path in paths if path.is_file() or _leads_nowhere(path))


def _leads_nowhere(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _holds(path: Path, measurement: Measurement) -> bool:
    """Whether a file has just this measurement; most are told apart by when and how long it ran."""
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, Mapping) or content.get("elapsed_s") != measurement.elapsed_s:
            return False
        return measurement_from_json(content) == measurement
    except (OSError, ValueError, OutlayError):
        return False


# What was learned


def learned_calibration(warn: Warn) -> LearnedCalibration:
    """What was learned from the user's own measurements; nothing where there is no such file."""
    path = calibration_file()
    try:
        content = parsed_json(read_data(path))
        if not isinstance(content, Mapping) or content.get("kind") != _MARK:
            raise ValueError("it is JSON, but not what `outlay calibrate` writes")
        if content.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {content.get('schema')!r}, not {SCHEMA}")
        parts = {name: content.get(name) for name in ("gpus", "host", "hosts")}
        return TypeAdapter(LearnedCalibration).validate_python(parts)
    except FileNotFoundError:
        return NOTHING_LEARNED
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        warn(
            f"{path} cannot be used ({reason}). It is left out; `outlay calibrate` writes it anew."
        )
        return NOTHING_LEARNED


def write_calibration(calibration: LearnedCalibration) -> Path:
    """Write what was learned, whole or not at all."""
    path = calibration_file()
    make_folder(path.parent)
    text = json.dumps(calibration_to_json(calibration), indent=1, ensure_ascii=False) + "\n"
    write_whole(path, json_bytes(text))
    return path


def calibration_to_json(calibration: LearnedCalibration) -> dict[str, Any]:
    """What was learned as plain JSON values."""
    return {"schema": SCHEMA, "kind": _MARK, **asdict(calibration)}


def forget_calibration() -> None:
    """Remove what was learned; the measurements stay."""
    calibration_file().unlink(missing_ok=True)


def forget_measurements(names: Sequence[str]) -> list[Path]:
    """Remove the measurements that were kept under some names, or `all`; what is gone.

    Raises `InputError` for a name that no measurement has, before anything is removed.
    """
    kept = {path.stem: path for path in _kept_files()}
    wanted = set(kept) if ALL in names else {name.removesuffix(".json") for name in names}
    unknown = sorted(wanted - set(kept))
    if unknown:
        raise InputError(
            f"No measurement is kept as {unknown[0]!r}.",
            why=f"There {_are(sorted(kept))} in {measurements_folder()}.",
            fix=f"Give one of these, or `{ALL}`." if kept else "There is nothing to forget.",
        )
    gone = [kept[name] for name in sorted(wanted)]
    for path in gone:
        _remove(path)
    return gone


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutlayError(
            f"{path} cannot be removed: {error.strerror}.",
            why="What was learned is as before.",
            fix="Remove it yourself; `outlay calibrate` then learns anew from what is left.",
        ) from error


def _are(names: Sequence[str]) -> str:
    if not names:
        return "is none"
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"


# Learning


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What was learned from all measurements that are kept, and where they are."""

    folder: Path
    forgotten: int
    report: CalibrationReport


def learn_from_measurements(
    files: Sequence[Path] = (), *, forget: Sequence[str] = (), warn: Warn = lambda _: None
) -> Learning:
    """Keep measurements of `outlay probe`, and learn from all that are kept.

    files: measurements to keep, each once. forget: names of kept ones to remove first, or `all`.
    What is learned is written beside them; `learned_calibration` reads it.
    """
    given = [(path, read_measurement(path)) for path in files]  # before anything is changed
    removed = forget_measurements(forget)
    for path, measurement in given:
        keep_measurement(measurement, path.stem)
    kept = own_measurements(warn)
    report = calibration_report(kept, calibration())
    if kept:
        write_calibration(report.calibration)
    else:
        forget_calibration()
    return Learning(folder=data_folder(), forgotten=len(removed), report=report)
