"""`outlay trace`: a training step, operation by operation, without a GPU."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.cli.options import json_option, print_document, tell


@click.command("trace", no_args_is_help=True)
@click.argument("target", metavar="FILE.py:FUNCTION")
@click.option("--name", help="Name of the profile.  [default: the function's]")
@click.option("--sample", default="sample", help="What one sample is, such as 'image 224x224'.")
@click.option(
    "--save", type=click.Path(path_type=Path), help="Write the profile (.json or .json.gz)."
)
@json_option
def command(target: str, name: str | None, sample: str, save: Path | None, as_json: bool) -> None:
    """Trace a training step without a GPU and save it as a profile.

    FUNCTION is called with a batch size and returns a callable that runs one training step. It is
    traced on fake tensors at a few batch sizes, in a process of its own.

    \b
    Example:
      outlay trace train.py:training_step --save mine.json.gz
      outlay predict mine.json.gz --gpu "RTX 4090"
    """
    from outlay.report.json import SCHEMA, profile_document
    from outlay.trace.profile import profile_of
    from outlay.trace.store import write_profile

    tell(f"Tracing {target} at a few batch sizes ...")
    profile = profile_of(target, name=name, sample=sample)
    if save is not None:
        write_profile(profile, save)
    if as_json:
        print_document({"schema": SCHEMA, "profile": profile_document(profile)})
        return
    from outlay.report.console import Page, muted
    from outlay.report.tables import profiles_table

    out = Page()
    out.print(profiles_table([profile], out.width))
    for operator, runs in profile.unknown_ops.items():
        out.print(muted(f"{operator}: no formula, {runs:g} times a step"))
    for note in profile.notes:
        out.print(muted(note))
    if save is not None:
        out.print(f"Saved as {save}.")
