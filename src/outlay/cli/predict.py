"""`outlay predict`: a step on GPUs, without any GPU."""

from __future__ import annotations

import click

from outlay.cli.options import json_option, print_document, tell
from outlay.errors import InputError

LARGEST_BATCH = 1_000_000


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
@click.option(
    "--memory-cap-mib", type=click.IntRange(1), help="What the allocator may reserve, in MiB."
)
@json_option
def command(
    target: str,
    gpu_names: tuple[str, ...],
    batch_size: str,
    memory_cap_mib: int | None,
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
    from outlay.gpu_names import find_gpu
    from outlay.pipeline import calibration, profile_for
    from outlay.predict.step import Placement, predict_step, spanning
    from outlay.units import MIB
    from outlay.workload import Step

    batch = _batch_size(batch_size)
    matches = [find_gpu(_one(name)) for names in gpu_names for name in names.split(",")]
    step = Step(target=target) if _is_code(target) else Step(profile=target)
    if step.target is not None:
        tell(f"Tracing {target} ...")
    profile = profile_for(step)
    cap_bytes = None if memory_cap_mib is None else float(memory_cap_mib * MIB)
    predictions = []
    for match in matches:
        forms = [
            predict_step(
                profile, Placement(gpu=gpu, memory_cap_bytes=cap_bytes), batch, calibration()
            )
            for gpu in match.candidates
        ]
        predicted = spanning(forms)
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


def _one(name: str) -> str:
    spelling, colon, _ = name.strip().partition(":")
    if colon:
        raise InputError(
            f"{name.strip()!r} asks for several GPUs; a step is predicted on one.",
            fix=f'Write --gpu "{spelling}"; `outlay plan` counts several GPUs.',
        )
    return spelling


def _batch_size(text: str) -> int | None:
    if text == "max":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_BATCH:
        raise InputError(
            f"The batch size {text!r} is neither a number from 1 to {LARGEST_BATCH} nor max.",
            fix="Write for example --batch-size 64 or --batch-size max.",
        )
    return int(text)


def _is_code(target: str) -> bool:
    path, colon, _ = target.rpartition(":")
    return bool(colon) and path.endswith(".py")
