"""`outlay probe`: really train for a while, with the script unchanged."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import length_of, length_option, memory_cap_option, tell
from outlay.errors import InputError, NotKnown, OutlayError

if TYPE_CHECKING:
    from outlay.measurement import Measurement
    from outlay.probe.batches import BatchSearch
    from outlay.probe.course import Limits
    from outlay.probe.hunt import Known
    from outlay.probe.live import LiveState
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
    type=click.IntRange(1),
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
    type=click.IntRange(1),
    help="Samples of one pass on a GPU, where outlay does not see them.",
)
@length_option
@click.option(
    "--optimizer-steps",
    type=click.IntRange(1),
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
def command(
    command: tuple[str, ...],
    steps: int | None,
    duration: str | None,
    until: str | None,
    to_end: bool,
    price: str | None,
    max_cost: str | None,
    batch_size: int | None,
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
      outlay predict probe.json --gpu "RTX 4090,H100"

    Exits with the command's own status (0 where outlay stopped it). Its output goes where it
    would go without outlay; the report goes to stderr.
    """
    from outlay.probe.run import Asking

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
        optimizer_steps=optimizer_steps,
        memory_cap_mib=memory_cap_mib,
        **length_of(length),
    )
    if find_batch is not None:
        return _find(asking, find_batch, target, largest, json_path)
    for option, given in (("--target", target), ("--largest", largest)):
        if given is not None:
            raise InputError(f"{option} is for --find-batch.", fix="Give --find-batch ARG, too.")
    return _probe(asking, json_path, plot_path, keep=not no_keep)


def _probe(asking: Asking, json_path: str | None, plot_path: str | None, *, keep: bool) -> int:
    from outlay.probe.run import probe
    from outlay.report.console import Page
    from outlay.report.probe import print_probe

    tell("Starting the command; the agent counts its optimizer steps ...")
    found = probe(asking, _live)
    if asking.epochs is not None and found.steps_per_epoch is None:
        tell("How many steps an epoch has was not seen: give --length in steps.")
    trouble = _written(found, json_path, plot_path)
    if keep and found.step is not None:
        _keep(found)
    print_probe(Page(to_stderr=True), found, saved_as=json_path)
    if trouble is not None:
        raise trouble
    return found.status


def _live(state: LiveState) -> str:
    from outlay.probe.relay import width_of_terminal
    from outlay.report.live import live_line

    return live_line(state, width_of_terminal() - 1)


def _written(
    found: Measurement, json_path: str | None, plot_path: str | None
) -> OutlayError | None:
    """What went wrong when writing; the measurement itself is saved elsewhere then."""
    from outlay.measurement_file import write_measurement
    from outlay.report.probe_plot import write_probe_plot

    trouble: OutlayError | None = None
    if json_path is not None:
        try:
            write_measurement(found, json_path)
        except OutlayError as error:
            trouble = _saved_elsewhere(found, error)
    if plot_path is not None:
        try:
            write_probe_plot(Path(plot_path), found)
        except OutlayError as error:
            trouble = trouble or error
    return trouble


def _saved_elsewhere(found: Measurement, error: OutlayError) -> OutlayError:
    """The error, with where the measurement went instead."""
    import tempfile

    from outlay.measurement_file import write_measurement
    from outlay.own_data import measurements_folder

    for folder in (measurements_folder(), Path(tempfile.gettempdir()), Path.home()):
        path = folder / "outlay-probe.json"
        with contextlib.suppress(OutlayError, OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_measurement(found, path)
            return OutlayError(error.what, why=f"The measurement was saved as {path} instead.")
    return OutlayError(error.what, why="It could not be saved elsewhere either.", fix=error.fix)


def _keep(found: Measurement) -> None:
    """Keep a copy to learn from; that it cannot be kept is no reason to fail."""
    from outlay.own_data import keep_measurement

    gpu = found.machine.gpus[0].name if found.machine.gpus else "cpu"
    name = "".join(c if c.isalnum() else "-" for c in f"{found.measured_on} {gpu}")
    with contextlib.suppress(OutlayError, OSError):
        keep_measurement(found, name)


# The largest batch


def _find(
    asking: Asking, argument: str, target: str | None, largest: int | None, json_path: str | None
) -> int:
    from outlay.probe.find_batch import find_batch
    from outlay.report.batches import batches_document, print_batches
    from outlay.report.console import Page

    known = _known(target, largest, asking.memory_cap_mib)
    search = find_batch(asking, argument, known=known, show=_live, tell=tell)
    if json_path is not None:
        from outlay.files import write_whole
        from outlay.report.json import dumps

        write_whole(Path(json_path), (dumps(batches_document(search)) + "\n").encode())
    print_batches(Page(to_stderr=True), search)
    return _status_of(search)


def _status_of(search: BatchSearch) -> int:
    """0 with an answer, 3 where not one sample fits, 1 where the command fails by itself."""
    if search.is_interrupted:
        return 130
    if search.largest is not None:
        return 0
    return 1 if any(trial.outcome == "failed" for trial in search.trials) else 3


def _known(target: str | None, largest: int | None, cap_mib: int | None) -> Known:
    """What a trace says of the largest batch on the GPU at hand."""
    from outlay.probe.drivers import open_driver
    from outlay.probe.gpu_driver import NoDriver
    from outlay.probe.hunt import LARGEST, Known

    known = Known(largest=largest or LARGEST)
    if target is None:
        return known
    from outlay.trace.target import parse_target

    parse_target(target)  # a typo is told before anything runs
    driver = open_driver()
    if isinstance(driver, NoDriver):
        tell(f"The trace is not used: {driver}")
        return known
    from dataclasses import replace

    from outlay.gpu_names import find_gpu
    from outlay.placing import calibration
    from outlay.predict.memory import largest_batch
    from outlay.predict.step import Placement
    from outlay.trace.profile import profile_of
    from outlay.units import MIB

    tell(f"Tracing {target} ...")
    try:
        gpu = find_gpu(driver.devices[0].name).gpu
    except NotKnown as error:
        tell(f"The trace is not used: {error.what}")
        return known
    cap_bytes = None if cap_mib is None else float(cap_mib * MIB)
    room = Placement(gpu=gpu, memory_cap_bytes=cap_bytes).room
    predicted = largest_batch(profile_of(target), room, calibration())
    tell(f"By its trace the largest batch is {predicted}.")
    return replace(known, predicted=predicted or None)


# What the options say


def limits_of(
    steps: int | None,
    duration: str | None,
    until: str | None,
    price: str | None,
    max_cost: str | None = None,
    to_end: bool = False,
    no_operations: bool = False,
) -> Limits:
    """The limits that options give; notebooks have the same."""
    from outlay.probe.course import Limits

    price_usd = None if price is None else _dollars("--price", price)
    max_usd = None if max_cost is None else _dollars("--max-cost", max_cost)
    if max_usd is not None and price_usd is None:
        raise InputError(
            f"--max-cost {max_cost} needs the price of this machine.",
            fix="Give it, for example --price 1.10 (dollars an hour).",
        )
    return Limits(
        steps=steps,
        duration_s=None if duration is None else _time_s(duration),
        precision=None if until is None else _fraction(until),
        max_usd=max_usd,
        price_usd_per_hour=price_usd,
        to_end=to_end,
        operations=not no_operations,
    )


def _time_s(text: str) -> float:
    from outlay.units import duration_s

    time_s = duration_s(text)
    if not 0 < time_s < math.inf:
        raise InputError(f"--for {text!r} is no time.", fix="Write for example --for 5m.")
    return time_s


def _dollars(option: str, text: str) -> float:
    plain = text.strip().removeprefix("$").removesuffix("USD").removesuffix("$").strip()
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(
            f"{option} {text!r} is no amount of dollars.", fix=f"Write for example {option} 1.50."
        )
    return value


def _fraction(text: str) -> float:
    """`2%` and `0.02` are the same."""
    is_percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%")) / (100 if is_percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise InputError(f"--until {text!r} is no precision.", fix="Write for example --until 2%.")
    return value


def _check_path(path: Path, *, is_plot: bool) -> None:
    from outlay.files import check_folder
    from outlay.report.picture import check_plot_path

    if is_plot:
        check_plot_path(path)
    else:
        check_folder(path)
        if path.is_dir():
            raise InputError(f"{path} is a folder.", fix="Name a file, for example probe.json.")
