"""The `outlay` command: finds the subcommand, runs it, turns errors into one message and a code."""

from __future__ import annotations

import errno
import importlib
import io
import math
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from outlay import __version__
from outlay.cli.options import complain, finish_progress
from outlay.errors import FileNotWritten, OutlayError
from outlay.report.encoding import show_whatever_comes

COMMANDS = {
    "plan": "Rank every offer for a workload: time, cost line by line, and why others lost.",
    "diff": "Compare two plans: which inputs differ, what is chosen, every line that changed.",
    "advise": "Advise on a card to buy or a place to rent, by purpose, budget and use.",
    "init": "Write a commented workload file to start from.",
    "offers": "List offers: filter by GPU, provider, region, price.",
    "prices": "Refresh prices, compare sources, look back, and be told when one falls.",
    "check": "Show what is installed, which price sources answer, and how old prices are.",
    "gpus": "List GPUs and what is known about them, with sources.",
    "predict": "Predict step time and memory of a training step on GPUs.",
    "calibrate": (
        "Learn from your own measurements how your GPUs and hosts differ from predictions."
    ),
    "fit": "Find what to change so that a step fits a GPU, or takes a larger batch.",
    "build": "Put a workstation together, judge one, or upgrade one.",
    "trace": "Trace a training step without a GPU: FLOPs, lines, memory and its peak.",
    "probe": "Really train for a while: step time, memory, power, what holds it back.",
    "launch": "Start the run of a workload file: here, over SSH, on Slurm or a cloud.",
    "bench": "Really train for a while on several machines: speed and cost of each.",
    "runs": "List what outlay started: state, time held, money spent.",
    "logs": "Show what a run has printed.",
    "stop": "Stop a run, and give its machine back.",
    "watch": "Look at a run: progress, cost, when it ends; stop it when it only costs money.",
    "guard": "Guard a run, a process or a whole machine, on that very machine.",
    "host": "Measure how fast this machine issues operations to a GPU.",
    "recipe": "Show the models and recipes that come with outlay, and write a training step.",
    "profiles": "List the bundled profiles of training steps.",
    "schema": "Print the JSON schema of the workload file or of a command's output.",
}
"""Subcommands and their help in one line: --help imports none. Each is the `command` of a module of
its name, but for those of `_HOMES`."""
_HOMES = {"logs": ("runs", "logs"), "stop": ("runs", "stop")}

EXIT_CODES = """\b
Exit codes: 0 done; 2 bad input or usage; 3 no option satisfies the limits;
4 a needed extra or service is missing; 5 a provider or price source failed;
130 interrupted (Ctrl-C); 1 anything else."""


_PLAIN_WORDS = {
    "a valid integer range": "a whole number",
    "a valid integer": "a whole number",
    "a valid float range": "a number",
    "a valid float": "a number",
}
"""What click says of options, in plain words."""


class _Commands(click.Group):
    """Imports a subcommand only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = _HOMES.get(cmd_name, (cmd_name, "command"))
        command: click.Command = getattr(importlib.import_module(f"outlay.cli.{module}"), name)
        _take_finite_numbers(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else " See 'outlay --help'."
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _take_finite_numbers(command: click.Command) -> None:
    """Refuse nan and inf in every option of a command and of those below it: click takes them."""
    for parameter in command.params:
        if isinstance(parameter.type, click.types.FloatParamType):
            parameter.callback = _finite
    for below in getattr(command, "commands", {}).values():
        _take_finite_numbers(below)


def _finite(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number.", context, parameter)
    return value


@click.group(
    cls=_Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="outlay %(version)s")
def cli() -> None:
    """What will this training run cost, and where should it run?

    \b
    Start here:
      outlay init                    write outlay.toml, commented
      outlay plan outlay.toml        the answer: offers ranked, cost line by line
      outlay offers --gpu A100:8     prices of a GPU everywhere
    """


def main() -> NoReturn:
    """Run the command line and exit with the documented code."""
    _open_what_is_closed()
    show_whatever_comes()
    try:
        try:
            status = cli.main(prog_name="outlay", standalone_mode=False)
        finally:
            finish_progress()
    except FileNotWritten as error:
        if not _complain_of_folder():
            complain(error.what, error.why, error.fix)
        sys.exit(error.exit_code)
    except OutlayError as error:
        complain(error.what, error.why, error.fix)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _show(error)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        complain("Interrupted.")
        sys.exit(130)
    except BrokenPipeError:
        _forget_output()
        sys.exit(0)
    except OSError as error:
        sys.exit(_complain_of_system(error))
    except Exception as error:
        if os.environ.get("OUTLAY_DEBUG"):
            raise
        complain(
            f"Something went wrong inside outlay: {type(error).__name__}: {error}",
            fix="Please report it; OUTLAY_DEBUG=1 shows where.",
        )
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _show(error: click.ClickException) -> None:
    """Say what click found wrong with a command line."""
    said = io.StringIO()
    error.show(said)
    text = said.getvalue()
    for theirs, plain in _PLAIN_WORDS.items():
        text = text.replace(theirs, plain)
    click.echo(text, err=True, nl=False)


def _complain_of_system(error: OSError) -> int:
    """Say which file or folder the system refused, and why; gives the exit code."""
    if _complain_of_folder():
        return 2
    reason = (error.strerror or str(error)).rstrip(".")
    if error.filename is None:
        complain(
            f"What was to be printed could not be written: {reason}.",
            fix="Make room where the output goes, or send it elsewhere.",
        )
        _forget_output()
        return 1
    what = f"{error.filename} cannot be read or written: {reason}."
    if error.errno in _WRONG_PATHS:
        complain(what, fix="Check the path.")
        return 2
    complain(
        what,
        fix="Change its rights or make room; OUTLAY_DATA=FOLDER keeps outlay's own data elsewhere.",
    )
    return 2 if str(error.filename) in sys.argv else 1


_WRONG_PATHS = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}


def _complain_of_folder() -> bool:
    """Say so where the current folder is gone, which is why nothing else works."""
    try:
        Path.cwd()
    except OSError:
        complain(
            "The current folder is gone.",
            "It was removed or renamed after you had entered it.",
            "cd into a folder that is there, and give the command again.",
        )
        return True
    return False


def _forget_output() -> None:
    """Let what is still to be printed go nowhere: else Python complains of it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_what_is_closed() -> None:
    """Give what the caller closed (`outlay ... 2>&-`) an end that takes everything.

    Its number as well: the next file that is opened would get it, and others' output with it.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
