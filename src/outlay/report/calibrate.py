"""What was learned from a user's own measurements: `outlay calibrate` as table and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlay.predict.evidence import LearnedFactor
from outlay.predict.learn import CalibrationReport, MeasurementRatios
from outlay.report.console import Page, bullets, muted, table
from outlay.report.documents import SCHEMA, Document

_HEADS = ("", "steps", "measurements", "measured / predicted", "factor", "error before", "after")
_KEPT_HEADS = ("kept as", "on", "GPU", "command", "step", "measured / predicted", "used for")
_MEANING = (
    "Predicted times of a GPU (and of a host's own work) are multiplied by its factor. It is drawn "
    "from measured / predicted towards 1, because a step is also off by something of its own: the "
    "fewer distinct steps and the better the GPU was known before, the nearer to 1. The error "
    "after it makes ranges narrower; repeats of one step count once."
)
_SEVERAL_HOSTS = (
    "Predictions use {factor:.2f} for hosts, the mean over these CPUs, each counted once."
)


def print_learned(page: Page, folder: Path, gone: int, learned: CalibrationReport) -> None:
    """Print a row for each GPU and for each CPU, and what was kept to learn from."""
    if gone:
        page.print(f"{_counted(gone, 'measurement')} removed from {folder}.")
    rows = [_row(one) for one in _factors(learned)]
    if rows:
        page.print(table(_HEADS, rows, page.width, right=_HEADS[1:], drop=("measurements",)))
        page.print(muted(_meaning(learned)))
        page.print()
    elif not gone:
        page.print(f"Nothing was learned: {folder} has no measurement of a GPU that can be used.")
        page.print(muted("`outlay probe --json FILE -- COMMAND` takes one; give it here."))
    if learned.entries:
        _print_kept(page, folder, learned)
    page.print(bullets(_remarks(learned)))


def _remarks(learned: CalibrationReport) -> list[str]:
    """The notes, with measurements that have the same reason in one line."""
    names: dict[str, list[str]] = {}
    for one in learned.entries:
        if one.left_out is not None:
            names.setdefault(one.left_out, []).append(_name(one))
    of_factors = learned.notes[sum(len(same) for same in names.values()) :]
    return [*(f"{', '.join(same)}: {why}" for why, same in names.items()), *of_factors]


def _print_kept(page: Page, folder: Path, learned: CalibrationReport) -> None:
    rows = [_kept_row(one) for one in learned.entries]
    right = ("step", "measured / predicted")
    drop = ("on", "GPU", "measured / predicted")
    page.print(table(_KEPT_HEADS, rows, page.width, right=right, drop=drop, wrap="command"))
    used = sum(bool(one.used_for) for one in learned.entries)
    count = _counted(len(learned.entries), "measurement")
    removing = "`outlay calibrate --forget NAME` removes one."
    page.print(muted(f"{count} in {folder}, {used} used. {removing}"))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _meaning(learned: CalibrationReport) -> str:
    host, hosts = learned.calibration.host, learned.calibration.hosts
    if host is None or len(hosts) < 2:
        return _MEANING
    return f"{_MEANING} {_SEVERAL_HOSTS.format(factor=host.factor)}"


def _factors(learned: CalibrationReport) -> list[tuple[str, LearnedFactor]]:
    found = learned.calibration
    return [
        *((one.name, one) for one in found.gpus),
        *((f"host: {one.name}", one) for one in found.hosts),
    ]


def _row(named: tuple[str, LearnedFactor]) -> tuple[str, ...]:
    name, one = named
    return (
        name,
        str(one.steps),
        str(one.measurements),
        f"{one.mean_ratio:.2f}",
        f"{one.factor:.3f}",
        f"{one.error_before:.1%}",
        f"{one.error:.1%}",
    )


def _kept_row(one: MeasurementRatios) -> tuple[str, ...]:
    measurement = one.measurement
    step = measurement.step
    return (
        _name(one),
        measurement.measured_on,
        _gpu(one) or "-",
        shlex.join(measurement.command),
        "-" if step is None else f"{1e3 * step.mean_s:.3g} ms",
        _ratios(one),
        " and ".join("GPU" if what == "gpu" else what for what in one.used_for) or "left out",
    )


def _name(one: MeasurementRatios) -> str:
    return one.name.removesuffix(".json")


def _gpu(one: MeasurementRatios) -> str | None:
    if one.measured is not None:
        return one.measured.gpu.name
    gpus = one.measurement.machine.gpus
    return gpus[0].name if gpus else None


def _ratios(one: MeasurementRatios) -> str:
    """Of what it is used for; of one that is left out, what is known."""
    known = {"gpu": one.gpu_ratio, "host": one.host_ratio}
    shown: Sequence[float | None] = [known[what] for what in one.used_for] or list(known.values())
    return " and ".join(f"{ratio:.2f}" for ratio in shown if ratio is not None) or "-"


def calibrate_document(folder: Path, gone: int, learned: CalibrationReport) -> Document:
    """`outlay calibrate --json`."""
    found = learned.calibration
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "measurements": len(learned.entries),
        "removed": gone,
        "gpus": [asdict(one) for one in found.gpus],
        "host": None if found.host is None else asdict(found.host),
        "hosts": [asdict(one) for one in found.hosts],
        "kept": [_kept(one) for one in learned.entries],
        "notes": list(learned.notes),
    }


def _kept(one: MeasurementRatios) -> Document:
    measurement = one.measurement
    return {
        "name": _name(one),
        "measured_on": measurement.measured_on,
        "command": list(measurement.command),
        "gpu": _gpu(one),
        "cpu": measurement.machine.cpu,
        "batch_size": None if one.measured is None else one.measured.batch_size,
        "step_s": None if measurement.step is None else measurement.step.mean_s,
        "gpu_ratio": one.gpu_ratio,
        "host_ratio": one.host_ratio,
        "used_for": list(one.used_for),
        "step": one.step,
        "left_out": one.left_out,
    }
