"""What was learned from a user's own measurements: `outlay calibrate` as table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from outlay.predict.experience import OwnFactor
from outlay.predict.learn import Learned
from outlay.report.console import Page, muted, table
from outlay.report.json import SCHEMA, Document

_HEADS = ("GPU", "measurements", "measured / predicted", "factor", "error before", "error after")


def print_learned(page: Page, folder: Path, kept: int, gone: int, learned: Learned) -> None:
    """Print a row for each GPU, and one for the host."""
    if gone:
        page.print(f"{gone} {'file' if gone == 1 else 'files'} removed from {folder}.")
    rows = [_row(one) for one in _factors(learned)]
    if rows:
        page.print(table(_HEADS, rows, page.width, right=_HEADS[1:]))
        page.print(muted(f"From {kept} measurements in {folder}; predict and plan use it."))
    elif not gone:
        page.print(f"Nothing was learned: {folder} has no measurement of a GPU that can be used.")
        page.print(muted("`outlay probe --json FILE -- COMMAND` takes one; give it here."))
    for note in learned.notes:
        page.print(muted(note))


def _factors(learned: Learned) -> list[OwnFactor]:
    found = learned.calibration
    return [*found.gpus, *([] if found.host is None else [found.host])]


def _row(one: OwnFactor) -> tuple[str, ...]:
    return (
        one.name,
        str(one.measurements),
        f"{one.mean_ratio:.2f}",
        f"{one.factor:.2f}",
        f"{one.error_before:.0%}",
        f"{one.error:.0%}",
    )


def calibrate_document(folder: Path, kept: int, gone: int, learned: Learned) -> Document:
    """`outlay calibrate --json`."""
    host = learned.calibration.host
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "measurements": kept,
        "removed": gone,
        "gpus": [asdict(one) for one in learned.calibration.gpus],
        "host": None if host is None else asdict(host),
        "notes": list(learned.notes),
    }
