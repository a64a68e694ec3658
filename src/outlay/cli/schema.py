"""`outlay schema`: the JSON schemas, for editors and for programs that read our output."""

from __future__ import annotations

import click

from outlay.cli.options import print_document

NAMES = (
    "workload", "plan", "methods", "vary", "diff", "build", "advise", "offers",
    "prices-refresh", "prices-compare", "prices-history", "prices-changes", "prices-watch",
    "prices-import", "check",
    "gpus", "predict", "calibrate", "fit", "host", "trace", "profiles", "measurement", "batches",
    "recipe-models", "recipe-list", "recipe-show", "launch", "bench", "runs", "logs", "watch",
)  # fmt: skip


@click.command("schema", no_args_is_help=True)
@click.argument("name", type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, hidden=True, help="Accepted; it always is JSON.")
def command(name: str, as_json: bool) -> None:  # noqa: ARG001
    """Print the JSON schema of the workload file or of a command's output.

    \b
    Example:
      outlay schema workload > outlay.schema.json
      outlay schema plan
    """
    from outlay.report.schemas import schema

    print_document(schema(name))
