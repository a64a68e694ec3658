"""`outlay fit`: what to change so that a step fits."""

from __future__ import annotations

import click

from outlay.cli.options import (
    batch_size_of,
    cache_option,
    expandable_option,
    json_option,
    memory_cap_option,
    model_options,
    print_document,
    progress_option,
    selected_option,
    step_target,
    tell,
)
from outlay.errors import InputError


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
@cache_option
@progress_option
@model_options
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
    method: str | None,
    settings: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Find what to change so that a step fits a GPU, or takes a larger batch.

    TARGET is path/to/file.py:function (needs torch): it is traced again with every change made,
    alone and together: bf16 or fp16, recomputing, smaller passes, other optimizers, LoRA, more
    GPUs. So is a model by its name (`outlay recipe models`, hf:OWNER/NAME). A profile (bundled or
    .json) tells of those changes that need no other trace.

    \b
    Example:
      outlay fit train.py:training_step --gpu "RTX 3080" --batch-size 64
      outlay fit train.py:training_step --gpu T4
      outlay fit qwen3-8b --method lora --gpu "RTX 4090" --batch-size 8
      outlay fit llama-1b --gpu "RTX 4090" --batch-size 8

    Ways are listed cheapest first, with the memory each saves, the time it costs, and money on the
    cheapest offer. Exits with 3 when nothing makes it fit.
    """
    from outlay.fit.search import fit_on_gpu
    from outlay.units import MIB

    if "," in gpu_name:
        names = gpu_name.split(",")
        raise InputError(
            f"{gpu_name!r} names {len(names)} GPUs; a step is fitted to one.",
            fix=f'Write --gpu "{names[0].strip()}".',
        )
    fitted = fit_on_gpu(
        step_target(target, method, settings, trust_remote_code),
        gpu_name,
        batch_size=batch_size_of(batch_size),
        memory_cap_bytes=None if memory_cap_mib is None else float(memory_cap_mib * MIB),
        expandable_segments=expandable_segments,
        selected=selected,
        together=not alone,
        progress=tell,
    )
    if as_json:
        from outlay.report.fit import fit_document

        print_document(fit_document(target, fitted.fit, fitted.places))
    else:
        from outlay.report.console import Page
        from outlay.report.fit import print_fit

        print_fit(Page(), target, fitted.fit, fitted.places, show_all=show_all, notes=fitted.notes)
    return 0 if fitted.fits else 3
