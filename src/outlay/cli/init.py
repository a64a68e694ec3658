"""`outlay init`: a commented workload file."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.errors import InputError
from outlay.facts import DATA
from outlay.files import write_whole

TEMPLATE = DATA / "template.toml"


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), default="outlay.toml")
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(file: Path, force: bool, as_json: bool) -> None:
    """Write a commented workload file to start from.

    \b
    Example:
      outlay init
      outlay init thesis.toml && outlay plan thesis.toml
    """
    if file.exists() and not force:
        raise InputError(
            f"{file} is already there.",
            fix="Choose another name, or --force to replace it.",
        )
    write_whole(file, TEMPLATE.read_bytes())
    if as_json:
        from outlay.cli.options import print_document

        print_document({"schema": 1, "written": str(file)})
        return
    click.echo(f"Wrote {file}. Edit it, then: outlay plan {file}")
