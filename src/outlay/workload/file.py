"""Reading `outlay.toml`: text in, a `Workload` out, or one message naming the line and the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from outlay.currency import usd_per_unit
from outlay.workload.tables import WorkloadFile
from outlay.workload.toml import FileKind, model_of, parse_table, read_text
from outlay.workload.workload import Step, Workload

KIND = FileKind(
    noun="workload file",
    absent="`outlay init` writes a commented one; or give the path of yours.",
    missing="`outlay init` shows every key.",
)


def read_workload(path: Path) -> Workload:
    """The workload in a TOML file."""
    return parse_workload(read_text(path, KIND), str(path), folder=path.parent)


def parse_workload(text: str, where: str = "workload", folder: Path | None = None) -> Workload:
    """The workload in a text; `where` names it in messages, `folder` is what paths start from."""
    return workload_of(parse_table(text, where), text, where, folder)


def workload_of(
    table: dict[str, Any], text: str, where: str = "workload", folder: Path | None = None
) -> Workload:
    """The workload that tables describe; `text` is where a wrong key is looked for."""
    file = model_of(table, text, where, WorkloadFile, KIND)
    usd, rate_day = (
        (file.usd_per_unit, "")
        if file.usd_per_unit
        else usd_per_unit(file.currency, file.currency_day)
    )
    workload: Workload = file.value(usd)
    step = workload.step if folder is None else _located(workload.step, folder)
    chosen = file.currency_day is not None
    return replace(workload, step=step, rate_as_of=rate_day, rate_day_chosen=chosen)


def _located(step: Step, folder: Path) -> Step:
    """The step with its files looked for from a folder; a bundled profile is no file."""
    profile, target = step.profile, step.target
    if profile is not None and profile.endswith((".json", ".json.gz")):
        profile = str(folder / profile)
    if target is not None:
        target = str(folder / target)
    measured = tuple(str(folder / path) for path in step.measured)
    return replace(step, profile=profile, target=target, measured=measured)
