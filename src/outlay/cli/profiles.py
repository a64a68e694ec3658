"""`outlay profiles`: the bundled training steps."""

from __future__ import annotations

import click

from outlay.cli.options import json_option, print_document


@click.command("profiles")
@json_option
def command(as_json: bool) -> None:
    """List the bundled profiles of training steps.

    A profile is one training step, operation by operation, at any batch size; it needs no torch.

    \b
    Example:
      outlay profiles
      outlay predict resnet50 --gpu "RTX 4090"
    """
    from outlay.trace.store import bundled_profiles, find_profile

    profiles = [find_profile(name) for name in bundled_profiles()]
    if as_json:
        from outlay.report.documents import profiles_document

        print_document(profiles_document(profiles))
        return
    from outlay.report.console import Page
    from outlay.report.tables import profiles_table

    out = Page()
    out.print(profiles_table(profiles, out.width))
