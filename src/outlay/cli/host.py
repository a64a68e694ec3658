"""`outlay host`: how fast this machine issues operations."""

from __future__ import annotations

import click

from outlay.cli.options import json_option, print_document, tell


@click.command("host")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=10.0,
    show_default=True,
    help="How long to measure.",
)
@json_option
def command(seconds: float, as_json: bool) -> None:
    """Measure how fast this machine issues operations to a GPU.

    Eager steps at small batches wait for the host, not for the GPU. Run this where the training
    will run, and give the speed to `outlay predict --host-speed`. Needs torch, but no GPU.

    \b
    Example:
      outlay host
      outlay predict resnet50 --gpu H100 --batch-size 8 --host-speed 1.4
    """
    from outlay.plan.prediction import measure_host

    tell(f"Issuing a tiny step over and over, for {seconds:g} seconds ...")
    test = measure_host(seconds)
    if as_json:
        from outlay.report.documents import host_document

        print_document(host_document(test))
        return
    from outlay.report.console import Page, muted

    out = Page()
    out.print(f"host speed {test.speed:.2f}")
    out.print(
        muted(
            f"A tiny step takes {test.step_s * 1e6:,.0f} us here (varying by "
            f"{test.spread:.0%}); 1.00 is the host of the H200 that outlay was measured on."
        )
    )
