"""`outlay calibrate`: learn from one's own measurements."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.cli.options import json_option, print_document, warn


@click.command("calibrate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES]...")
@click.option(
    "--forget",
    "names",
    multiple=True,
    metavar="NAME",
    help="First remove the measurement that is kept under this name, or `all`.",
)
@json_option
def command(files: tuple[Path, ...], names: tuple[str, ...], as_json: bool) -> None:
    """Learn from your own measurements how your GPUs and hosts differ from predictions.

    FILES are measurements of `outlay probe`, of any training; they are kept in your own folder
    (OUTLAY_DATA, or outlay's folder among your data) beside earlier ones, each once. `outlay probe`
    keeps its own there. What is learned from all of them is used by `outlay predict` and `outlay
    plan` from then on. Without FILES, it learns anew from what is kept, and lists it.

    \b
    Example:
      outlay calibrate probe.json
      outlay calibrate --forget probe
      outlay calibrate --forget all
    """
    from outlay.ledger.kept_measurements import learn_from_measurements

    learning = learn_from_measurements(files, forget=names, warn=warn)
    if as_json:
        from outlay.report.calibrate import calibrate_document

        print_document(calibrate_document(learning.folder, learning.forgotten, learning.report))
        return
    from outlay.report.calibrate import print_learned
    from outlay.report.console import Page

    print_learned(Page(), learning.folder, learning.forgotten, learning.report)
