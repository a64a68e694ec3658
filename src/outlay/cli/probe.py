"""`outlay probe`: really train for a while."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.errors import InputError


@click.command("probe", no_args_is_help=True, context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "json_path", metavar="OUT", help="Write the measurement to this file.")
def command(command: tuple[str, ...], json_path: str | None) -> int:
    """Probe."""
    from outlay.measurement_file import write_measurement
    from outlay.probe.relay import width_of_terminal
    from outlay.probe.run import Asking, probe
    from outlay.report.console import Page
    from outlay.report.live import live_line
    from outlay.report.probe import print_probe

    if not command:
        raise InputError("No command")
    found = probe(Asking(command=command), lambda state: live_line(state, width_of_terminal() - 1))
    if json_path:
        write_measurement(found, Path(json_path))
    print_probe(Page(), found, saved_as=json_path)
    return found.status
