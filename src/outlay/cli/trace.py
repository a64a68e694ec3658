"""`outlay trace`: a training step, operation by operation, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import json_option, print_document, tell
from outlay.cli.predict import LARGEST_BATCH

if TYPE_CHECKING:
    from outlay.trace.trace import Profile


@click.command("trace", no_args_is_help=True)
@click.argument("target", metavar="FILE.py:FUNCTION", required=False)
@click.option(
    "--batch-size",
    type=click.IntRange(1, LARGEST_BATCH),
    default=8,
    show_default=True,
    help="Samples in the step.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Draw memory over the step (.html, or .png with matplotlib).",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Write a profile, for any batch size (.json or .json.gz).",
)
@click.option("--name", help="Name of the profile.  [default: the function's]")
@click.option("--sample", default="sample", help="What one sample is, such as 'image 224x224'.")
@click.option(
    "--selected",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Share of elements kept by a selection that depends on the data.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Give up a trace that takes longer.  [default: never]",
)
@click.option("--self-test", is_flag=True, help="Only try whether this torch can be traced.")
@json_option
def command(
    target: str | None,
    batch_size: int,
    plot: Path | None,
    save: Path | None,
    name: str | None,
    sample: str,
    selected: float,
    timeout_s: float | None,
    self_test: bool,
    as_json: bool,
) -> None:
    """Trace a training step without a GPU: FLOPs, lines, memory and its peak.

    FUNCTION is called with the batch size and returns a callable that runs one training step. It
    is traced on fake tensors, in a process of its own; --save traces it at a few batch sizes.

    \b
    Example:
      outlay trace train.py:training_step --batch-size 32 --plot memory.html
      outlay trace train.py:training_step --save mine.json.gz
      outlay predict mine.json.gz --gpu "RTX 4090"
    """
    from outlay.report.memory_plot import check_plot_path, write_plot
    from outlay.report.step_table import print_step, title
    from outlay.trace.one_step import trace_step

    if self_test:
        _test_torch()
        return
    if target is None:
        raise click.UsageError("Missing argument 'FILE.py:FUNCTION'.")
    if plot is not None:
        check_plot_path(plot)
    tell(f"Tracing {target} at batch size {batch_size} ...")
    report = trace_step(target, batch_size, selected=selected, timeout_s=timeout_s)
    if plot is not None:
        write_plot(plot, report.timeline, f"Memory of {title(report)}")
    profile = None if save is None else _saved(target, save, name, sample, selected)
    if as_json:
        from outlay.report.json import trace_document

        print_document(trace_document(report, profile))
        return
    from outlay.report.console import Page

    out = Page()
    print_step(out, report)
    for path, what in ((plot, "Memory drawn in"), (save, "Profile saved as")):
        if path is not None:
            out.print(f"{what} {path}.")


def _test_torch() -> None:
    from outlay.errors import TraceFailed
    from outlay.trace.process import self_test

    fine, said = self_test()
    click.echo(said)
    if not fine:
        raise TraceFailed(
            "The torch in this Python cannot be traced.",
            fix="Install torch 2.13 (the CPU wheel will do): pip install torch==2.13.0.",
        )


def _saved(target: str, path: Path, name: str | None, sample: str, selected: float) -> Profile:
    from outlay.trace.profile import profile_of
    from outlay.trace.store import write_profile

    tell(f"Tracing {target} at a few batch sizes ...")
    profile = profile_of(target, name=name, sample=sample, selected=selected)
    write_profile(profile, path)
    return profile
