"""Reading `outlay.toml`: text in, a `Workload` out, or one message naming the line and the key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlay.currency import usd_per_unit
from outlay.files import name_of
from outlay.workload.tables import PATTERNS, WorkloadFile
from outlay.workload.toml import FileKind, model_of, naming_line, parse_table, read_text
from outlay.workload.workload import Step, Workload

KIND = FileKind(
    noun="workload file",
    absent="`outlay init` writes a commented one; or give the path of yours.",
    missing="`outlay init` shows every key.",
    patterns=PATTERNS,
)


def read_workload(path: Path) -> Workload:
    """The workload in a TOML file."""
    return parse_workload(read_text(path, KIND), name_of(path), folder=path.parent)


def parse_workload(text: str, where: str = "workload", folder: Path | None = None) -> Workload:
    """The workload in a text; `where` names it in messages, `folder` is what paths start from."""
    return workload_of(parse_table(text, where), text, where, folder)


def workload_of(
    table: dict[str, Any], text: str, where: str = "workload", folder: Path | None = None
) -> Workload:
    """The workload that tables describe; `text` is where a wrong key is looked for."""
    file = model_of(table, text, where, WorkloadFile, KIND)
    with naming_line(text, where):
        usd, rate_day = (
            (file.usd_per_unit, "")
            if file.usd_per_unit
            else usd_per_unit(file.currency, file.currency_day)
        )
        workload: Workload = file.value(usd)
    step = workload.step if folder is None else _located(workload.step, folder)
    run = workload.run
    if run is not None and folder is not None:
        run = replace(run, folder=str(folder / Path(run.folder).expanduser()))
    return replace(workload, step=step, rate_as_of=rate_day, run=run)


@contextmanager
def naming_line_of(path: Path) -> Iterator[None]:
    """Errors about a name that stands in a workload file say at which line of it."""
    text = "" if path.suffix == ".json" else read_text(path, KIND)
    with naming_line(text, name_of(path)):
        yield


def _located(step: Step, folder: Path) -> Step:
    """The step with its files looked for from a folder; a bundled profile is no file."""
    profile, target, model = step.profile, step.target, step.model
    if profile is not None and profile.endswith((".json", ".json.gz")):
        profile = str(folder / profile)
    if target is not None:
        target = str(folder / target)
    if model is not None and re.match(r"\w+:\.{0,2}/", model):  # a folder with a config.json
        library, _, place = model.partition(":")
        model = f"{library}:{folder / place}"
    measured = tuple(str(folder / path) for path in step.measured)
    return replace(step, profile=profile, target=target, model=model, measured=measured)
