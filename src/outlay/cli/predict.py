"""`outlay predict`: a step on GPUs, without any GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    batch_size_of,
    expandable_option,
    gpu_matches,
    json_option,
    memory_cap_option,
    print_document,
    selected_option,
    tell,
)
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.hardware import Gpu


@click.command("predict", no_args_is_help=True)
@click.argument("target")
@click.option(
    "--gpu",
    "gpu_names",
    multiple=True,
    required=True,
    metavar="NAME[,NAME...]",
    help="GPUs to predict.",
)
@click.option("--batch-size", default="max", show_default=True, help="Per GPU, a number or max.")
@memory_cap_option
@expandable_option
@selected_option
@click.option(
    "--measured",
    metavar="GPU[@BATCH]=SECONDS",
    help="A step time you measured: it corrects every GPU and narrows the ranges.",
)
@click.option(
    "--host-speed",
    type=click.FloatRange(0, min_open=True),
    help="The host against the reference, as `outlay host` measures it there.",
)
@click.option(
    "--input-rate",
    type=click.FloatRange(0, min_open=True),
    help="Samples a second that the input pipeline delivers to a GPU.",
)
@json_option
def command(
    target: str,
    gpu_names: tuple[str, ...],
    batch_size: str,
    memory_cap_mib: int | None,
    expandable_segments: bool,
    selected: float,
    measured: str | None,
    host_speed: float | None,
    input_rate: float | None,
    as_json: bool,
) -> int:
    """Predict step time and memory of a training step on GPUs.

    TARGET is a bundled profile, a saved one (.json), or path/to/file.py:function (needs torch).

    \b
    Example:
      outlay predict resnet50 --gpu "RTX 3090,A100-80GB" --batch-size 64
      outlay predict train.py:training_step --gpu T4 --batch-size max
      outlay predict resnet50 --gpu "H100,L4" --batch-size 64 --measured "RTX 3090@64=0.101"

    A step is bound by the GPU's arithmetic or memory, by the host that issues its operations, or
    by its input. Exits with 3 when it fits on none of them.
    """
    from dataclasses import replace
    from functools import partial

    from outlay.batch import verified_batches
    from outlay.pipeline import calibration, profile_for
    from outlay.predict.host import Host
    from outlay.predict.memory import largest_batch
    from outlay.predict.step import (
        Conditions,
        Placement,
        correction_from,
        predict_step,
        spanning,
    )
    from outlay.trace.profile import histories_of
    from outlay.units import MIB
    from outlay.workload import Step

    batch = batch_size_of(batch_size)
    matches = gpu_matches(gpu_names)
    step = Step(target=target) if _is_code(target) else Step(profile=target)
    if step.target is not None:
        tell(f"Tracing {target} ...")
    profile = profile_for(step, selected)
    cap_bytes = None if memory_cap_mib is None else float(memory_cap_mib * MIB)
    placements = [
        [
            Placement(gpu=gpu, memory_cap_bytes=cap_bytes, expandable_segments=expandable_segments)
            for gpu in match.candidates
        ]
        for match in matches
    ]
    every = [one for forms in placements for one in forms]
    largest = {one: largest_batch(profile, one.room, calibration()) for one in every}
    if step.target is not None and (batch is None or profile.history is None):
        tell("Verifying the largest batch ...")
        largest = verified_batches(
            profile,
            every,
            calibration(),
            partial(histories_of, step.target, selected=selected),
        )
    for option, number in (("--host-speed", host_speed), ("--input-rate", input_rate)):
        if number is not None and not math.isfinite(number):
            raise InputError(f"{option} {number} is no number.", fix=f"Write {option} 1.4, say.")
    host = Host() if host_speed is None else Host(speed=host_speed, measured=True)
    conditions = Conditions(host=host, input_samples_per_s=input_rate)
    if measured is not None:
        gpu, at, measured_s = _measurement(measured, batch)
        correction = correction_from(profile, gpu, at, measured_s, calibration(), conditions)
        conditions = replace(conditions, correction=correction)
    predictions = []
    for match, forms in zip(matches, placements, strict=True):
        predicted = spanning(
            [
                predict_step(
                    profile,
                    one,
                    batch,
                    calibration(),
                    largest=largest[one],
                    conditions=conditions,
                )
                for one in forms
            ]
        )
        notes = ((match.note,) if match.note else ()) + profile.notes
        predictions.append((match.spelling, predicted, notes))
    status = 0 if any(predicted.fits for _, predicted, _ in predictions) else 3
    if as_json:
        from outlay.report.json import predictions_document

        print_document(predictions_document(target, predictions))
        return status
    from outlay.report.console import Page, muted
    from outlay.report.tables import breakdown_table, predictions_table

    out = Page()
    steps = [predicted for _, predicted, _ in predictions]
    out.print(predictions_table(steps, out.width))
    out.print()
    out.print(breakdown_table(steps, out.width))
    for note in dict.fromkeys(note for _, _, notes in predictions for note in notes):
        out.print(muted(note))
    return status


def _measurement(text: str, batch: int | None) -> tuple[Gpu, int, float]:
    """The GPU, batch size and seconds of `RTX 3090@64=0.101`."""
    from outlay.gpu_names import find_gpu

    where, _, seconds = text.rpartition("=")
    name, _, size = where.partition("@")
    at = int(size) if size.isdecimal() else 0 if size else batch
    try:
        measured_s = float(seconds)
    except ValueError:
        measured_s = 0.0
    if not name or not 0 < measured_s < math.inf or at == 0:
        raise InputError(
            f"--measured {text!r} is not a measured step.",
            why="It takes a GPU, perhaps a batch size per GPU, and the seconds of one step.",
            fix='Write for example --measured "RTX 3090@64=0.101".',
        )
    if not at:
        raise InputError(
            f"--measured {text!r} does not say at which batch size.",
            fix=f'Write for example --measured "{name}@64={seconds}".',
        )
    return find_gpu(name).gpu, at, measured_s


def _is_code(target: str) -> bool:
    path, colon, _ = target.rpartition(":")
    return bool(colon) and path.endswith(".py")
