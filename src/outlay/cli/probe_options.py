"""Options of `outlay probe` that would do nothing beside others: refused, with what to do."""

from __future__ import annotations

import click
from click.core import ParameterSource

from outlay.errors import InputError

_WITH_SHOW = {"show", "plot_path", "command"}
_FOR_A_SEARCH = {"target", "largest"}
_NOT_FOR_A_SEARCH = {"until", "to_end", "batch_size", "samples_per_step", "length", "plot_path"}
"""Its trials are short, at batch sizes of their own, and no measurements."""


def check_options(context: click.Context) -> None:
    """Raise where an option is given that would be ignored."""
    given = _given(context)
    if "show" in given:
        others = [option for name, option in given.items() if name not in _WITH_SHOW]
        what, why = "does nothing with --show", "It runs no command."
        fix = "Leave one of the two out; --show takes --plot alone."
    elif "find_batch" in given:
        others = [option for name, option in given.items() if name in _NOT_FOR_A_SEARCH]
        what = "does nothing with --find-batch"
        why = "Its trials are a few steps each, at batch sizes of their own."
        fix = "Leave it out, or probe the batch that was found, without --find-batch."
    else:
        others = [option for name, option in given.items() if name in _FOR_A_SEARCH]
        what, why, fix = "is for --find-batch", "", "Give --find-batch ARG, too."
    if others:
        raise InputError(f"{others[0]} {what}.", why=why, fix=fix)


def _given(context: click.Context) -> dict[str, str]:
    """What was typed: the name of a parameter, and how it is written."""
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    }
