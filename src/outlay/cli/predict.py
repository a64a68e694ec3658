"""`outlay predict`: a step on GPUs, without any GPU."""

from __future__ import annotations

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
@json_option
def command(
    target: str,
    gpu_names: tuple[str, ...],
    batch_size: str,
    memory_cap_mib: int | None,
    expandable_segments: bool,
    selected: float,
    as_json: bool,
) -> int:
    """Predict step time and memory of a training step on GPUs.

    TARGET is a bundled profile, a saved one (.json), or path/to/file.py:function (needs torch).

    \b
    Example:
      outlay predict resnet50 --gpu "RTX 3090,A100-80GB" --batch-size 64
      outlay predict train.py:training_step --gpu T4 --batch-size max

    Exits with 3 when it fits on none of them.
    """
    from functools import partial

    from outlay.batch import verified_batches
    from outlay.pipeline import calibration, profile_for
    from outlay.predict.memory import largest_batch
    from outlay.predict.step import Placement, predict_step, spanning
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
    predictions = []
    for match, forms in zip(matches, placements, strict=True):
        predicted = spanning(
            [
                predict_step(profile, one, batch, calibration(), largest=largest[one])
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
    from outlay.report.tables import predictions_table

    out = Page()
    out.print(predictions_table([predicted for _, predicted, _ in predictions], out.width))
    for note in dict.fromkeys(note for _, _, notes in predictions for note in notes):
        out.print(muted(note))
    return status


def _is_code(target: str) -> bool:
    path, colon, _ = target.rpartition(":")
    return bool(colon) and path.endswith(".py")
