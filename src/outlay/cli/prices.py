"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

import click


@click.group("prices")
def command() -> None:
    """Refresh prices, compare sources, look back, and be told when one falls.

    \b
    Example:
      outlay prices refresh
      outlay prices compare H100
      outlay prices history "A100 80GB"
    """


# --- refresh ---


def refresh_first() -> None:
    """Refresh all prices before a plan; what could not be refreshed is said, and is no error."""


# --- compare ---


# --- history ---


# --- changes ---


# --- watch ---


# --- import ---
