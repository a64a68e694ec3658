"""`outlay probe`: really train for a while, with the script unchanged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from outlay.cli.options import (
    cache_option,
    complain,
    leave_output,
    length_option,
    live,
    memory_cap_option,
    parse_length,
    progress_option,
    tell,
    warn,
)
from outlay.errors import InputError, OutlayError
from outlay.measurement.file import MOST_IN_A_PASS, MOST_STEPS, PASSES, SAMPLES
from outlay.units import HOUR_S

if TYPE_CHECKING:
    from outlay.measurement.measurement import Measurement
    from outlay.probe.find_batch import BatchSearch, SearchBounds
    from outlay.probe.guard import Guard
    from outlay.probe.runner import ProbeRequest
    from outlay.probe.saving import Saved
    from outlay.probe.stages import ProbeLimits

# Options that would do nothing beside others: refused, with what to do.

_WITH_SHOW = {"show", "plot_path", "command"}
_FOR_A_SEARCH = {"target", "largest", "trials", "then_probe"}
_NOT_FOR_A_SEARCH = {"until", "to_end", "batch_size", "samples_per_step", "length", "plot_path"}
"""Its trials are short, at batch sizes of their own, and no measurements."""


def check_options(context: click.Context) -> None:
    """Raise where an option is given that would be ignored."""
    given = _given(context)
    if "show" in given:
        others = [option for name, option in given.items() if name not in _WITH_SHOW]
        what, why = "does nothing with --show", "It runs no command."
        fix = "Leave one of the two out; --show takes --plot alone."
    elif "find_batch" in given:
        others = [option for name, option in given.items() if name in _NOT_FOR_A_SEARCH]
        what = "does nothing with --find-batch"
        why = "Its trials are a few steps each, at batch sizes of their own."
        fix = "Leave it out, or probe the batch that was found, without --find-batch."
    else:
        others = [option for name, option in given.items() if name in _FOR_A_SEARCH]
        what, why, fix = "is for --find-batch", "", "Give --find-batch ARG, too."
    if others:
        raise InputError(f"{others[0]} {what}.", why=why, fix=fix)


def _given(context: click.Context) -> dict[str, str]:
    """What was typed: the name of a parameter, and how it is written."""
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    }


@click.command(
    "probe",
    no_args_is_help=True,
    # What follows the command is its own, also where the two dashes were forgotten.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--steps",
    type=click.IntRange(1, MOST_STEPS),
    help="Training steps to time, warm-up included; a few more are profiled and recorded.",
)
@click.option("--for", "duration", metavar="TIME", help="How long to train: 5m, 90s, 1h.")
@click.option(
    "--until",
    metavar="PERCENT",
    help="Until the mean step time is known so well (2% without any other limit).",
)
@click.option(
    "--to-end", is_flag=True, help="Never stop the command, only measure it while it runs."
)
@click.option("--price", metavar="USD/H", help="What the machine costs an hour.")
@click.option("--max-cost", metavar="USD", help="What the probe may cost at that price.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, MOST_IN_A_PASS),
    help="Samples of one pass on a GPU, where outlay does not see them.",
)
@click.option(
    "--samples-per-step",
    type=click.IntRange(1, round(SAMPLES.high)),
    help="Samples of a whole training step on a GPU, where what outlay sees is wrong.",
)
@length_option
@click.option(
    "--optimizer-steps",
    type=click.IntRange(1, round(PASSES.high)),
    help="Optimizer steps that make one training step, where outlay's guess is wrong.",
)
@click.option(
    "--no-operations", is_flag=True, help="Do not profile and record steps for other GPUs."
)
@click.option(
    "--find-batch",
    metavar="ARG",
    help="Find the largest batch: ARG is the name in {braces} in COMMAND, or its option.",
)
@click.option(
    "--target",
    metavar="FILE.py:FUNCTION",
    help="With --find-batch: the same step to trace, so that fewer trials are needed.",
)
@click.option("--largest", type=click.IntRange(1), help="With --find-batch: no larger batch.")
@click.option(
    "--trials",
    type=click.IntRange(1, 100),
    help="With --find-batch: give up after so many trials (12; 16 where memory is not seen).",
)
@click.option(
    "--then-probe",
    metavar="LIMIT",
    help="With --find-batch: then probe the batch it recommends, for so long (5m) or so many steps "
    "(1000); --json is that measurement, and the search lies beside it (OUT.batches.json).",
)
@memory_cap_option
@cache_option
@progress_option
@click.option("--json", "json_path", metavar="OUT", help="Write the measurement to this file.")
@click.option("--plot", "plot_path", metavar="FILE", help="A picture of it: .html or .png.")
@click.option(
    "--no-keep",
    is_flag=True,
    help="Do not keep the measurement in your own data folder (for `outlay calibrate`).",
)
@click.option("--show", metavar="FILE", help="The page of a measurement that was saved, no probe.")
@click.pass_context
def command(
    context: click.Context,
    command: tuple[str, ...],
    steps: int | None,
    duration: str | None,
    until: str | None,
    to_end: bool,
    price: str | None,
    max_cost: str | None,
    batch_size: int | None,
    samples_per_step: int | None,
    length: str | None,
    optimizer_steps: int | None,
    no_operations: bool,
    find_batch: str | None,
    target: str | None,
    largest: int | None,
    trials: int | None,
    then_probe: str | None,
    memory_cap_mib: int | None,
    json_path: str | None,
    plot_path: str | None,
    no_keep: bool,
    show: str | None,
) -> int:
    """Really train for a while: step time, memory, power, what holds it back.

    COMMAND is what you would type to train: python train.py, torchrun, accelerate launch, a shell
    script. It runs unchanged; outlay counts its optimizer steps, leaves warm-up, evaluations and
    checkpoints out, and stops it once the step time is known well enough.

    \b
    Example:
      outlay probe --json probe.json -- python train.py --epochs 90
      outlay probe --for 5m --price 1.10 --max-cost 0.50 -- torchrun --nproc-per-node 4 train.py
      outlay probe --find-batch batch -- python train.py --batch-size {batch}
      outlay probe --find-batch batch --then-probe 5m --json probe.json -- ./train.sh {batch}
      outlay probe --show probe.json --plot probe.html
      outlay predict probe.json --gpu "RTX 4090,H100"

    Exits with the command's own status (0 where outlay stopped it). Its output goes where it
    would go without outlay; the report goes to stderr.
    """
    from outlay.probe.runner import ProbeRequest

    check_options(context)
    if show is not None:
        return _show(show, plot_path, command)
    if not command:
        raise InputError(
            "There is no command to probe.",
            fix="Write it after two dashes, for example: outlay probe -- python train.py",
        )
    from outlay.probe.stages import parse_limits

    whole = parse_length(length)
    limits = parse_limits(steps, duration, until, price, max_cost, to_end, no_operations)
    for path in (json_path, plot_path):
        if path is not None:
            _check_path(Path(path), is_plot=path is plot_path)
    request = ProbeRequest(
        command=command,
        limits=limits,
        batch_size=batch_size,
        samples_per_step=samples_per_step,
        optimizer_steps=optimizer_steps,
        memory_cap_mib=memory_cap_mib,
        total_steps=whole.iterations if whole else None,
        epochs=whole.epochs if whole else None,
    )
    if find_batch is not None:
        from outlay.probe.find_batch import traced_bounds

        bounds = traced_bounds(
            target,
            largest=largest,
            trials=trials,
            memory_cap_mib=memory_cap_mib,
            progress=tell,
        )
        if then_probe is None:
            return _find_batch(request, find_batch, bounds, json_path)
        return _find_and_probe(
            request, find_batch, bounds, _limits_then(then_probe, limits), json_path,
            keep=not no_keep,
        )  # fmt: skip
    return _probe(request, json_path, plot_path, keep=not no_keep)


def _show(path: str, plot_path: str | None, command: tuple[str, ...]) -> int:
    """The page of a saved measurement, and its picture."""
    from outlay.measurement.file import read_measurement
    from outlay.report.console import Page
    from outlay.report.probe import print_probe
    from outlay.report.probe_plot import write_probe_plot

    if command:
        raise InputError(
            f"--show {path} runs no command, but {command[0]!r} is given.",
            fix="Leave one of the two out.",
        )
    measurement = read_measurement(path)
    if plot_path is not None:
        _check_path(Path(plot_path), is_plot=True)
        write_probe_plot(Path(plot_path), measurement)
    print_probe(Page(), measurement, saved_as=path)
    return 0


def _find_batch(
    request: ProbeRequest,
    argument: str,
    bounds: SearchBounds,
    json_path: str | None,
) -> int:
    """Search for the largest batch, show and write what came out; the status to exit with."""
    from outlay.files import json_bytes
    from outlay.probe.find_batch import find_batch
    from outlay.probe.saving import save_data
    from outlay.report.batches import batches_document, print_batches
    from outlay.report.console import Page
    from outlay.report.documents import dumps

    search = find_batch(request, argument, bounds=bounds, show=live, progress=tell)
    error = None
    if json_path is not None:
        data = json_bytes(dumps(batches_document(search)) + "\n")
        error = save_data(data, Path(json_path), "search").error
    print_batches(Page(to_stderr=True), search)
    if error is not None:
        raise error
    return _status_of(search)


def _limits_then(text: str, limits: ProbeLimits) -> ProbeLimits:
    """The limits of the probe after a search: a time or a number of steps, and the same money."""
    from dataclasses import replace

    from outlay.units import duration_s

    if text.strip().isdecimal() and 0 < int(text) <= MOST_STEPS:
        return replace(limits, steps=int(text), duration_s=None)
    return replace(limits, steps=None, duration_s=duration_s(text))


def _find_and_probe(
    request: ProbeRequest,
    argument: str,
    bounds: SearchBounds,
    limits: ProbeLimits,
    json_path: str | None,
    *,
    keep: bool,
) -> int:
    """Search for the largest batch, then probe the one that is recommended."""
    from dataclasses import replace

    from outlay.files import json_bytes
    from outlay.probe.find_batch import find_batch
    from outlay.probe.saving import save_data
    from outlay.probe.trial import BatchSlot
    from outlay.report.batches import batches_document, print_batches
    from outlay.report.console import Page
    from outlay.report.documents import dumps

    search = find_batch(request, argument, bounds=bounds, show=live, progress=tell)
    if json_path is not None:
        data = json_bytes(dumps(batches_document(search)) + "\n")
        error = save_data(data, Path(json_path).with_suffix(".batches.json"), "search").error
        if error is not None:
            complain(error.what, error.why, error.fix)
    print_batches(Page(to_stderr=True), search)
    batch_size = search.recommended or search.largest
    if batch_size is None or search.is_interrupted:
        return _status_of(search)
    slot = BatchSlot(command=request.command, argument=argument)
    spent_usd = search.elapsed_s / HOUR_S * (limits.price_usd_per_hour or 0.0)
    if limits.max_usd is not None:
        limits = replace(limits, max_usd=max(limits.max_usd - spent_usd, 0.0))
    request = replace(request, command=slot.command_at(batch_size), limits=limits)
    return _probe(request, json_path, None, keep=keep)


def _status_of(search: BatchSearch) -> int:
    """0 with an answer, 3 where not one sample fits, 1 where the command fails by itself."""
    if search.is_interrupted:
        return 130
    if search.largest is not None:
        return 0
    return 3 if all(trial.outcome == "out of memory" for trial in search.trials) else 1


def _probe(
    request: ProbeRequest, json_path: str | None, plot_path: str | None, *, keep: bool
) -> int:
    """Probe, write the measurement before anything else, then show it; the status to exit with."""
    from outlay.probe.guard import Guard
    from outlay.probe.runner import noted_signals, probe_command
    from outlay.probe.saving import Saved, save_measurement

    tell("Starting the command; the agent counts its optimizer steps ...")
    measurement = probe_command(request, live)
    saved = Saved(path=None)
    if json_path is not None:
        with noted_signals([]):
            saved = save_measurement(measurement, Path(json_path), keep=keep)
    guard = Guard()
    guard.do("what to know of it", lambda: _say_before(request, measurement, saved))
    if keep and measurement.step is not None:
        guard.do("the copy to learn from", lambda: _keep(measurement))
    guard.do("the report", lambda: _print(measurement, saved.path))
    error = saved.error
    if json_path is not None and saved.path is None:
        guard.do("the measurement", lambda: _print_data(measurement))
    if plot_path is not None:
        error = guard.value("the picture", lambda: _plot(measurement, plot_path), None) or error
    return _end(measurement, guard, error)


def _say_before(request: ProbeRequest, measurement: Measurement, saved: Saved) -> None:
    if request.epochs is not None and measurement.steps_per_epoch is None:
        tell("How many steps an epoch has was not seen: give --length in steps.")
    if request.memory_cap_mib is not None and measurement.device == "cpu":
        warn("--memory-cap-mib did nothing: it caps a GPU's memory, and this trained on the CPU.")
    if saved.note is not None:
        warn(saved.note)


def _keep(measurement: Measurement) -> None:
    from outlay.probe.saving import keep_copy

    problem = keep_copy(measurement)
    if problem is not None:
        warn(f"No copy of the measurement was kept to learn from: {problem}")


def _print(measurement: Measurement, saved_as: str | None) -> None:
    from outlay.report.console import Page
    from outlay.report.probe import print_probe

    page = Page(to_stderr=True)
    if not page.is_terminal:
        page.print()  # the command's own last line there may have no end
    print_probe(page, measurement, saved_as=saved_as)


def _print_data(measurement: Measurement) -> None:
    """The measurement itself, where it could not be written anywhere."""
    from outlay.probe.saving import data_of
    from outlay.report.encoding import json_shown

    click.echo(json_shown(data_of(measurement).decode(), sys.stderr), err=True)


def _plot(measurement: Measurement, path: str) -> OutlayError | None:
    """Draw it; gives what went wrong when writing."""
    from outlay.report.probe_plot import write_probe_plot

    try:
        write_probe_plot(Path(path), measurement)
    except OutlayError as error:
        return error
    return None


def _end(measurement: Measurement, guard: Guard, error: OutlayError | None) -> int:
    """The command's own status; 1 where it has none to tell and a file is not where it should be.

    What cannot be said (nobody reads our output any more) changes nothing.
    """
    try:
        for note in guard.notes:
            warn(note)
        if error is not None:
            complain(error.what, error.why, error.fix)
    except OSError:
        leave_output()
    return measurement.status or int(error is not None)


def _check_path(path: Path, *, is_plot: bool) -> None:
    from outlay.files import check_folder
    from outlay.report.svg import check_plot_path

    if is_plot:
        check_plot_path(path)
    else:
        if str(path) == "-":
            raise InputError(
                "--json - would mix the measurement with the command's own output.",
                why="What the command prints goes to standard output, as without outlay.",
                fix="Name a file, for example --json probe.json.",
            )
        check_folder(path)
        if path.is_dir():
            raise InputError(f"{path} is a folder.", fix="Name a file, for example probe.json.")
