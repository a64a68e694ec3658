"""`outlay gpus`: the facts table."""

from __future__ import annotations

import click

from outlay.cli.options import json_option, print_document


@click.command("gpus")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--facts", is_flag=True, help="Every value with its source, date and note.")
@json_option
def command(names: tuple[str, ...], facts: bool, as_json: bool) -> None:
    """List GPUs and what is known about them, with sources.

    NAME is any usual spelling; without one every GPU is listed. Peaks are dense TFLOP/s; fp16 and
    bf16 are with fp32 accumulation; "-" means the hardware has no such arithmetic.

    \b
    Example:
      outlay gpus
      outlay gpus rtx3090 "A100-80GB" --facts
    """
    from outlay.hardware.gpu_names import find_gpu
    from outlay.hardware.gpus import gpus

    chosen = [gpu for name in names for gpu in find_gpu(name).candidates] or list(gpus().values())
    if as_json:
        from outlay.report.documents import gpus_document

        print_document(gpus_document(chosen))
        return
    from rich.text import Text

    from outlay.report.console import Page
    from outlay.report.tables import facts_table, gpus_table

    out = Page()
    out.print(gpus_table(chosen, out.width))
    if facts:
        for gpu in chosen:
            out.print()
            out.print(Text(gpu.name, style="bold"))
            out.print(facts_table(gpu, out.width))
