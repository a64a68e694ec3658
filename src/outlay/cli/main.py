"""The `outlay` command: finds the subcommand, runs it, turns errors into one message and a code."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from outlay import __version__
from outlay.cli.options import complain
from outlay.errors import OutlayError

COMMANDS = {
    "plan": "Rank every offer for a workload: time, cost line by line, and why others lost.",
    "diff": "Compare two plans: which inputs differ, what is chosen, every line that changed.",
    "advise": "Advise on a card to buy or a place to rent, by purpose, purse and use.",
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
    "host": "Measure how fast this machine issues operations to a GPU.",
    "profiles": "List the bundled profiles of training steps.",
    "schema": "Print the JSON schema of the workload file or of a command's output.",
}
"""Subcommands, each a module of its name, and their help in one line: --help imports none."""

EXIT_CODES = """\b
Exit codes: 0 done; 2 bad input or usage; 3 no option satisfies the limits;
4 a needed extra or service is missing; 5 a provider or price source failed;
1 anything else."""


class _Commands(click.Group):
    """Imports a subcommand only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"outlay.cli.{cmd_name}")
        command: click.Command = module.command
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
    try:
        status = cli.main(prog_name="outlay", standalone_mode=False)
    except OutlayError as error:
        complain(error.what, error.why, error.fix)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        complain("Interrupted.")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        complain(f"{error.strerror or error}: {error.filename or 'output'}.")
        sys.exit(1)
    except Exception as error:
        if os.environ.get("OUTLAY_DEBUG"):
            raise
        complain(
            f"Something went wrong inside outlay: {type(error).__name__}: {error}",
            fix="Please report it; OUTLAY_DEBUG=1 shows where.",
        )
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


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
