"""`outlay fit`: what to change so that a step fits."""

from __future__ import annotations

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
    from outlay.trace.profile import Profile
    from outlay.trace.target import Changes


@click.command("fit", no_args_is_help=True)
@click.argument("target")
@click.option("--gpu", "gpu_name", required=True, metavar="NAME", help="The GPU it should fit.")
@click.option(
    "--batch-size",
    default="max",
    show_default=True,
    help="Samples of one update, or max: each way at the largest batch it allows.",
)
@memory_cap_option
@expandable_option
@selected_option
@click.option("--alone", is_flag=True, help="Only single changes, in half the time.")
@click.option("--all", "show_all", is_flag=True, help="Show every way, also those that do not fit.")
@json_option
def command(
    target: str,
    gpu_name: str,
    batch_size: str,
    memory_cap_mib: int | None,
    expandable_segments: bool,
    selected: float,
    alone: bool,
    show_all: bool,
    as_json: bool,
) -> int:
    """Find what to change so that a step fits a GPU, or takes a larger batch.

    TARGET is path/to/file.py:function (needs torch): it is traced again with every change made,
    alone and together: bf16 or fp16, recomputing, smaller passes, other optimizers, LoRA, more
    GPUs. A profile (bundled or .json) tells of those changes that need no other trace.

    \b
    Example:
      outlay fit train.py:training_step --gpu "RTX 3080" --batch-size 64
      outlay fit train.py:training_step --gpu T4
      outlay fit llama-1b --gpu "RTX 4090" --batch-size 8

    Ways are listed cheapest first, with the memory each saves, the time it costs, and money on the
    cheapest offer. Exits with 3 when nothing makes it fit.
    """
    from pathlib import Path

    from outlay.fit.advice import places_in
    from outlay.fit.search import TRACED_SIZES, fit_step
    from outlay.fit.variants import FitRequest
    from outlay.plan.pipeline import profile_for
    from outlay.plan.placement import calibration
    from outlay.trace.process import end_running
    from outlay.trace.tracing import profile_of
    from outlay.units import MIB
    from outlay.workload.workload import Step

    batch = batch_size_of(batch_size)
    matches = gpu_matches([gpu_name])
    if len(matches) != 1:
        raise InputError(
            f"{gpu_name!r} names {len(matches)} GPUs; a step is fitted to one.",
            fix=f'Write --gpu "{matches[0].spelling}".',
        )
    path, colon, function = target.rpartition(":")
    is_code = bool(colon) and path.endswith(".py")
    step = Step(target=target) if is_code else Step(profile=target)
    if is_code:
        tell(f"Tracing {target} ...")
    profile = profile_for(step, selected)

    def trace(changes: Changes) -> Profile:
        return profile_of(target, TRACED_SIZES, changes=changes, selected=selected)

    wish = FitRequest(
        gpu=matches[0].gpu,
        batch_size=batch,
        memory_cap_bytes=None if memory_cap_mib is None else float(memory_cap_mib * MIB),
        expandable_segments=expandable_segments,
    )
    try:
        found = fit_step(
            profile, wish, calibration(), trace if is_code else None, tell, together=not alone
        )
    finally:
        end_running()
    places = places_in(Path(path), function) if is_code else {}
    status = 0 if found.unchanged.step.fits or any(way.step.fits for way in found.ways) else 3
    if as_json:
        from outlay.report.fit import fit_document

        print_document(fit_document(target, found, places))
        return status
    from outlay.report.console import Page
    from outlay.report.fit import print_fit

    notes = (matches[0].note,) if matches[0].note else ()
    print_fit(Page(), target, found, places, show_all=show_all, notes=notes)
    return status
