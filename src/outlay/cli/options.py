"""What several commands share: the JSON switch and how results leave the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from outlay.report.json import Document

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """`--json`: the documented document instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(
        command
    )


def print_document(document: Document) -> None:
    """Print a JSON document."""
    from outlay.report.json import dumps

    click.echo(dumps(document))


def tell(message: str) -> None:
    """Say what is going on, on standard error, where a person is watching."""
    if sys.stderr.isatty():
        click.echo(message, err=True)


def today() -> str:
    """The day the command runs, YYYY-MM-DD; SOURCE_DATE_EPOCH makes it repeatable."""
    import os
    from datetime import UTC, datetime

    from outlay.errors import InputError

    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    if fixed and not fixed.isdecimal():
        raise InputError(
            f"SOURCE_DATE_EPOCH is {fixed!r}.",
            why="It must be a whole number of seconds since 1970.",
            fix="Unset it, or give such a number.",
        )
    now = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return now.date().isoformat()
