"""`outlay probe`: really train for a while, with the script unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.find_batch import find
from outlay.cli.options import length_of, length_option, live, memory_cap_option, tell, warn
from outlay.cli.probe_limits import limits_of
from outlay.cli.probe_options import check_options
from outlay.errors import InputError, OutlayError
from outlay.measurement_check import MOST_IN_A_PASS, MOST_STEPS, PASSES, SAMPLES

if TYPE_CHECKING:
    from outlay.measurement import Measurement
    from outlay.probe.run import Asking


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
    "--no-operations", is_flag=True, help="Do not profile and record a step after the timing."
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
@memory_cap_option
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
      outlay probe --show probe.json --plot probe.html
      outlay predict probe.json --gpu "RTX 4090,H100"

    Exits with the command's own status (0 where outlay stopped it). Its output goes where it
    would go without outlay; the report goes to stderr.
    """
    from outlay.probe.run import Asking

    check_options(context)
    if show is not None:
        return _show(show, plot_path, command)
    if not command:
        raise InputError(
            "There is no command to probe.",
            fix="Write it after two dashes, for example: outlay probe -- python train.py",
        )
    limits = limits_of(steps, duration, until, price, max_cost, to_end, no_operations)
    for path in (json_path, plot_path):
        if path is not None:
            _check_path(Path(path), is_plot=path is plot_path)
    asking = Asking(
        command=command,
        limits=limits,
        batch_size=batch_size,
        samples_per_step=samples_per_step,
        optimizer_steps=optimizer_steps,
        memory_cap_mib=memory_cap_mib,
        **length_of(length),
    )
    if find_batch is not None:
        return find(asking, find_batch, target, largest, json_path)
    return _probe(asking, json_path, plot_path, keep=not no_keep)


def _show(path: str, plot_path: str | None, command: tuple[str, ...]) -> int:
    """The page of a saved measurement, and its picture."""
    from outlay.measurement_file import read_measurement
    from outlay.report.console import Page
    from outlay.report.probe import print_probe
    from outlay.report.probe_plot import write_probe_plot

    if command:
        raise InputError(
            f"--show {path} runs no command, but {command[0]!r} is given.",
            fix="Leave one of the two out.",
        )
    found = read_measurement(path)
    if plot_path is not None:
        _check_path(Path(plot_path), is_plot=True)
        write_probe_plot(Path(plot_path), found)
    print_probe(Page(), found, saved_as=path)
    return 0


def _probe(asking: Asking, json_path: str | None, plot_path: str | None, *, keep: bool) -> int:
    from outlay.probe.run import probe
    from outlay.report.console import Page
    from outlay.report.probe import print_probe

    tell("Starting the command; the agent counts its optimizer steps ...")
    found = probe(asking, live)
    if asking.epochs is not None and found.steps_per_epoch is None:
        tell("How many steps an epoch has was not seen: give --length in steps.")
    if asking.memory_cap_mib is not None and found.device == "cpu":
        warn("--memory-cap-mib did nothing: it caps a GPU's memory, and this trained on the CPU.")
    saved_as, trouble = _written(found, json_path, plot_path, keep=keep)
    page = Page(to_stderr=True)
    if not page.is_terminal:
        page.print()  # the command's own last line there may have no end
    print_probe(page, found, saved_as=saved_as)
    if keep and found.step is not None:
        _keep(found)
    if trouble is not None:
        raise trouble
    return found.status


def _written(
    found: Measurement, json_path: str | None, plot_path: str | None, *, keep: bool
) -> tuple[str | None, OutlayError | None]:
    """Where the measurement is, elsewhere if need be, and what went wrong when writing."""
    from outlay.cli.saving import save_measurement
    from outlay.report.probe_plot import write_probe_plot

    saved_as, trouble = None, None
    if json_path is not None:
        saved_as, trouble = save_measurement(found, json_path, keep=keep)
    if plot_path is not None:
        try:
            write_probe_plot(Path(plot_path), found)
        except OutlayError as error:
            trouble = trouble or error
    return saved_as, trouble


def _keep(found: Measurement) -> None:
    """Keep a copy to learn from; that it cannot be kept is no reason to fail."""
    from outlay.own_data import keep_measurement

    gpu = found.machine.gpus[0].name if found.machine.gpus else "cpu"
    name = "".join(c if c.isalnum() else "-" for c in f"{found.measured_on} {gpu}")
    try:
        keep_measurement(found, name)
    except OutlayError as error:
        warn(f"No copy of the measurement was kept to learn from: {error.what}")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        warn(f"No copy of the measurement was kept to learn from: {error.strerror}{where}.")


def _check_path(path: Path, *, is_plot: bool) -> None:
    from outlay.files import check_folder
    from outlay.report.picture import check_plot_path

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
