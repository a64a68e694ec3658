"""`outlay trace`: a training step, operation by operation, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    batch_size_of,
    cache_option,
    expandable_option,
    gpu_matches,
    json_option,
    memory_cap_option,
    model_options,
    print_document,
    progress_option,
    selected_option,
    step_target,
    tell,
    writing,
)

if TYPE_CHECKING:
    from outlay.fit.gpu_memory import TracedStep


MOST_LIMITS = 4
"""GPUs whose memory is a line of the picture: more could not be read."""


@click.command("trace", no_args_is_help=True)
@click.argument("words", metavar="FILE.py:FUNCTION", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    help="Trace a whole script, unchanged; its arguments follow after --.",
)
@click.option(
    "--batch-size",
    help="Samples in the step: a number, or max for the largest that fits.  "
    "[default: 8; a script's own]",
)
@click.option(
    "--gpu",
    "gpu_names",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Say what it needs on these GPUs.  [with max: every GPU on offer]",
)
@memory_cap_option
@expandable_option
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
@selected_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Give up a trace that takes longer.  [default: never]",
)
@click.option("--self-test", is_flag=True, help="Only try whether this torch can be traced.")
@cache_option
@progress_option
@model_options
@json_option
def command(
    words: tuple[str, ...],
    script: Path | None,
    batch_size: str | None,
    gpu_names: tuple[str, ...],
    memory_cap_mib: int | None,
    expandable_segments: bool,
    plot: Path | None,
    save: Path | None,
    name: str | None,
    sample: str,
    selected: float,
    timeout_s: float | None,
    self_test: bool,
    method: str | None,
    settings: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Trace a training step without a GPU: FLOPs, lines, memory and its peak.

    Instead of a file, a model by its name: `outlay recipe models`, hf:OWNER/NAME, timm:NAME.
    FUNCTION is called with the batch size and returns a callable that runs one training step. It
    is traced on fake tensors, in a process of its own; --save, --gpu and max trace it at a few
    batch sizes. The largest batch is verified by a trace at that size.

    With --script nothing need be written: the script runs as it is, with its own data, until its
    first whole steps are seen. What it would write is not written.

    \b
    Example:
      outlay trace --script train.py -- --data ./images --batch-size 32
      outlay trace --script train.py --save mine.json.gz -- --data ./images
      outlay trace train.py:training_step --batch-size 32 --plot memory.html
      outlay trace train.py:training_step --batch-size max --gpu "RTX 4090,T4"
      outlay trace train.py:training_step --save mine.json.gz
      outlay trace timm:vit_base_patch16_224 --batch-size 64
      outlay predict mine.json.gz --gpu "RTX 4090"

    Exits with 3 when it fits on none of the GPUs asked for.
    """
    from outlay.fit.gpu_memory import TraceRequest, trace_on_gpus
    from outlay.report.svg import check_plot_path
    from outlay.trace.store import check_profile_path

    if self_test:
        _test_torch()
        return 0
    target = _target(script, words)
    if script is not None and (method is not None or settings):
        raise click.UsageError("--method and --set are for a model by its name, not for --script.")
    if script is None:
        target = step_target(target, method, settings, trust_remote_code)
    request = TraceRequest(
        target=target,
        batch_size=None if batch_size is None else batch_size_of(batch_size),
        at_largest=batch_size is not None and batch_size_of(batch_size) is None,
        gpus=tuple(gpu_matches(gpu_names)),
        memory_cap_mib=memory_cap_mib,
        expandable_segments=expandable_segments,
        with_profile=save is not None,
        name=name or (words[0] if words and target != words[0] else None),
        sample=sample,
        selected=selected,
        timeout_s=timeout_s,
    )
    if plot is not None:
        check_plot_path(plot)
    if save is not None:
        check_profile_path(save)
    traced = trace_on_gpus(request, progress=tell)
    if as_json:
        from outlay.report.documents import trace_document

        saved = traced.profile if save is not None else None
        print_document(trace_document(traced.report, saved, traced.gpus))
    else:
        _print(traced)
    _write(traced, plot, save, as_json=as_json)  # last: a full disk must not cost the report
    return 0 if traced.fits else 3


def _target(script: Path | None, words: tuple[str, ...]) -> str:
    """What is to be traced."""
    from outlay.trace.target import script_target

    if script is not None:
        return script_target(str(script), words)
    if not words:
        raise click.UsageError("Missing argument 'FILE.py:FUNCTION'.")
    if len(words) > 1:
        raise click.UsageError(
            f"Got unexpected extra arguments ({' '.join(words[1:])}). "
            "A script's own arguments follow after --script FILE.py --."
        )
    return words[0]


def _write(traced: TracedStep, plot: Path | None, save: Path | None, *, as_json: bool) -> None:
    """The files that were asked for, each whatever becomes of the others."""
    from outlay.report.memory_plot import write_plot
    from outlay.report.step import title
    from outlay.trace.store import write_profile

    with writing() as write:
        if plot is not None:
            heading = f"Memory of {title(traced.report)}"
            limits = [(on_gpu.gpu.name, on_gpu.memory.available_bytes) for on_gpu in traced.gpus]
            shown = limits if len(limits) <= MOST_LIMITS else []
            drawn = write(lambda: write_plot(plot, traced.report.timeline, heading, shown))
            if drawn and not as_json:
                click.echo(f"Memory drawn in {plot}.")
        profile = traced.profile
        if save is not None and profile is not None:
            saved = write(lambda: write_profile(profile, save))
            if saved and not as_json:
                click.echo(f"Profile saved as {save}.")


def _print(traced: TracedStep) -> None:
    from outlay.report.console import Page
    from outlay.report.step import print_gpus, print_step

    page = Page()
    print_step(page, traced.report)
    if traced.gpus:
        print_gpus(page, traced.gpus)


def _test_torch() -> None:
    from outlay.errors import TraceFailed
    from outlay.trace.process import self_test

    fine, message = self_test()
    click.echo(message)
    if not fine:
        raise TraceFailed(
            "The torch in this Python cannot be traced.",
            fix="Install torch 2.13 (the CPU wheel will do): pip install torch==2.13.0.",
        )
