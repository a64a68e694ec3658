"""What was learned from a user's own measurements: `outlay calibrate` as table and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.predict.evidence import LearnedFactor
from outlay.predict.learn import CalibrationReport, MeasurementRatios, Subject
from outlay.report.console import Page, bullets, muted, table
from outlay.report.documents import Document
from outlay.report.text import counted

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
        page.print(f"{counted(gone, 'measurement')} removed from {folder}.")
    rows = [_row(factor) for factor in _factors(learned)]
    if rows:
        page.print(table(_HEADS, rows, page.width, right=_HEADS[1:]))
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
    for ratios in learned.entries:
        if ratios.left_out is not None:
            names.setdefault(ratios.left_out, []).append(_name(ratios))
    of_factors = learned.notes[sum(len(same) for same in names.values()) :]
    return [*(f"{', '.join(same)}: {why}" for why, same in names.items()), *of_factors]


def _print_kept(page: Page, folder: Path, learned: CalibrationReport) -> None:
    rows = [_kept_row(ratios) for ratios in learned.entries]
    right = ("step", "measured / predicted")
    drop = ("on", "GPU")
    page.print(table(_KEPT_HEADS, rows, page.width, right=right, drop=drop, wrap="command"))
    used = sum(bool(ratios.used_for) for ratios in learned.entries)
    count = counted(len(learned.entries), "measurement")
    removing = "`outlay calibrate --forget NAME` removes one."
    page.print(muted(f"{count} in {folder}, {used} used. {removing}"))


def _meaning(learned: CalibrationReport) -> str:
    host, hosts = learned.calibration.host, learned.calibration.hosts
    if host is None or len(hosts) < 2:
        return _MEANING
    return f"{_MEANING} {_SEVERAL_HOSTS.format(factor=host.factor)}"


def _factors(learned: CalibrationReport) -> list[tuple[str, LearnedFactor]]:
    calibration = learned.calibration
    return [
        *((factor.name, factor) for factor in calibration.gpus),
        *((f"host: {factor.name}", factor) for factor in calibration.hosts),
    ]


def _row(named: tuple[str, LearnedFactor]) -> tuple[str, ...]:
    name, factor = named
    return (
        name,
        str(factor.steps),
        str(factor.measurements),
        f"{factor.mean_ratio:.2f}",
        f"{factor.factor:.3f}",
        f"{factor.error_before:.1%}",
        f"{factor.error:.1%}",
    )


def _kept_row(ratios: MeasurementRatios) -> tuple[str, ...]:
    measurement = ratios.measurement
    step = measurement.step
    return (
        _name(ratios),
        measurement.measured_on,
        _gpu(ratios) or "-",
        shlex.join(measurement.command),
        "-" if step is None else f"{1e3 * step.mean_s:.3g} ms",
        _ratios(ratios),
        " and ".join("GPU" if what == "gpu" else what for what in ratios.used_for) or "left out",
    )


def _name(ratios: MeasurementRatios) -> str:
    return ratios.name.removesuffix(".json")


def _gpu(ratios: MeasurementRatios) -> str | None:
    if ratios.measured is not None:
        return ratios.measured.gpu.name
    gpus = ratios.measurement.machine.gpus
    return gpus[0].name if gpus else None


def _ratios(ratios: MeasurementRatios) -> str:
    """Of what it is used for; of one that is left out, what is known."""
    by_subject = {"gpu": ratios.gpu_ratio, "host": ratios.host_ratio}
    subjects: Sequence[Subject] = ratios.used_for or ("gpu", "host")
    shown = [by_subject[subject] for subject in subjects]
    return " and ".join(f"{ratio:.2f}" for ratio in shown if ratio is not None) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMeasurementDocument:
    """A measurement that was kept, and what it says of its GPU and host."""

    name: str
    """What `--forget` takes."""
    measured_on: str
    """The day, YYYY-MM-DD."""
    command: Sequence[str]
    gpu: str | None
    cpu: str | None
    batch_size: int | None
    """Samples of a step on one GPU."""
    step_s: float | None
    """Mean step time, in seconds."""
    gpu_ratio: float | None
    """Time of its kernels over predicted."""
    host_ratio: float | None
    """A step that waits for its host, likewise."""
    used_for: Sequence[Subject]
    step: int | None
    """Measurements of one step have the same number."""
    left_out: str | None
    """Why it says nothing, or not of its GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateDocument(Document):
    """What was learned from the user's own measurements."""

    folder: str
    measurements: int
    removed: int
    """Measurements that `--forget` removed."""
    gpus: Sequence[LearnedFactor]
    host: LearnedFactor | None
    """What predictions use: the mean over `hosts`."""
    hosts: Sequence[LearnedFactor]
    """By CPU."""
    kept: Sequence[KeptMeasurementDocument]
    notes: Sequence[str]


def calibrate_document(folder: Path, gone: int, learned: CalibrationReport) -> CalibrateDocument:
    """`outlay calibrate --json`."""
    return CalibrateDocument(
        folder=str(folder),
        measurements=len(learned.entries),
        removed=gone,
        gpus=learned.calibration.gpus,
        host=learned.calibration.host,
        hosts=learned.calibration.hosts,
        kept=[_kept_document(ratios) for ratios in learned.entries],
        notes=learned.notes,
    )


def _kept_document(ratios: MeasurementRatios) -> KeptMeasurementDocument:
    measurement = ratios.measurement
    return KeptMeasurementDocument(
        name=_name(ratios),
        measured_on=measurement.measured_on,
        command=measurement.command,
        gpu=_gpu(ratios),
        cpu=measurement.machine.cpu,
        batch_size=None if ratios.measured is None else ratios.measured.batch_size,
        step_s=None if measurement.step is None else measurement.step.mean_s,
        gpu_ratio=ratios.gpu_ratio,
        host_ratio=ratios.host_ratio,
        used_for=ratios.used_for,
        step=ratios.step,
        left_out=ratios.left_out,
    )
