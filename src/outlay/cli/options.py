"""What several commands share: the JSON switch and how results leave the program."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outlay.errors import FileNotWritten, InputError

if TYPE_CHECKING:
    from outlay.facts import ImportedPrices
    from outlay.hardware.gpu_names import GpuMatch
    from outlay.models.recipe import RecipeSettings
    from outlay.offers.price_book import PriceBook
    from outlay.predict.evidence import LearnedCalibration
    from outlay.probe.stages import LiveState
    from outlay.report.progress_line import ProgressLine, ProgressLines
    from outlay.workload.workload import Length

F = TypeVar("F", bound=Callable[..., Any])
LARGEST_BATCH = 1_000_000
_LENGTH = re.compile(
    r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)(?:([km])(?= |$))? *([a-z]*)", re.IGNORECASE
)
"""A number, thousands or millions, and a unit."""
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
_LONGEST = {"step": 10**12, "epoch": 10**6}
_IN_A_FILE = ("sample", "token", "image", "second", "sec", "minute", "min", "hour", "h", "day", "d")
"""Units of a length that need a workload file."""


def json_option(command: F) -> F:
    """`--json`: the documented document instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(
        command
    )


def memory_cap_option(command: F) -> F:
    """`--memory-cap-mib`: what the allocator may reserve."""
    return click.option(
        "--memory-cap-mib", type=click.IntRange(1), help="What the allocator may reserve, in MiB."
    )(command)


def expandable_option(command: F) -> F:
    """`--expandable-segments`: the allocator's setting of that name."""
    return click.option(
        "--expandable-segments",
        is_flag=True,
        help="As with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )(command)


def selected_option(command: F) -> F:
    """`--selected`: what a selection by unknown values keeps."""
    return click.option(
        "--selected",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.5,
        show_default=True,
        help="Share of elements kept by a selection that depends on the data.",
    )(command)


def compiled_option(command: F) -> F:
    """`--compiled`, or `--compiled=MODE`: under torch.compile."""
    return click.option(
        "--compiled",
        type=click.Choice(["default", "reduce-overhead", "max-autotune", "eager"]),
        is_flag=False,
        flag_value="default",
        help="The step runs under torch.compile, in this mode.  [default: as its own code says]",
    )(command)


def model_options(command: F) -> F:
    """`--method`, `--set`, `--trust-remote-code`: how a model named as TARGET is trained."""
    for option in (
        click.option(
            "--trust-remote-code",
            is_flag=True,
            help="Let a model of the hub run its repository's own code on this machine.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the recipe: tokens=2048, optimizer=adamw-8bit. Any number.",
        ),
        click.option(
            "--method",
            metavar="NAME",
            help="How a model is trained: full, lora, qlora, ...  [default: the model's usual one]",
        ),
    ):
        command = option(command)
    return command


def settings_of(words: Iterable[str]) -> RecipeSettings:
    """The settings that `--set` gives."""
    from outlay.models.recipe import RecipeSettings

    return RecipeSettings.from_words(words)


def step_target(
    text: str, method: str | None, settings: Iterable[str], trust_remote_code: bool
) -> str:
    """TARGET as it was given; of a model's name, the step that was written for it."""
    from outlay.models.recipe import named_target

    return named_target(text, method, settings_of(settings), trust_remote_code=trust_remote_code)


def batch_size_of(text: str) -> int | None:
    """The batch size an option gives; None for `max`."""
    if text == "max":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_BATCH:
        raise InputError(
            f"The batch size {text!r} is neither a number from 1 to {LARGEST_BATCH} nor max.",
            fix="Write for example --batch-size 64 or --batch-size max.",
        )
    return int(text)


def length_option(command: F) -> F:
    """`--length`: of the whole run."""
    return click.option(
        "--length",
        metavar="N",
        help='How long the whole run is: "90 epochs" or "100000 steps".',
    )(command)


def parse_length(text: str | None) -> Length | None:
    """The length that an option gives, in steps or epochs; None where it gives none."""
    if text is None:
        return None
    from outlay.workload.workload import Length

    match = _LENGTH.fullmatch(text.strip().replace(",", ""))
    number, thousands, unit = match.groups("") if match else ("0", "", "")
    value, name = float(number) * _THOUSANDS[thousands.lower()], unit.lower().removesuffix("s")
    if not value or (name and name not in _LONGEST):
        raise InputError(f"--length {text!r} is no length of a run.", fix=_length_fix(name))
    if not name:
        raise InputError(
            f"--length {text!r} has no unit: are these epochs or steps?",
            fix=f'Write --length "{text.strip()} epochs" or --length "{text.strip()} steps".',
        )
    if value > _LONGEST[name]:
        raise InputError(
            f"--length {text!r} is longer than any run: at most {_LONGEST[name]:,} {name}s.",
            fix=_length_fix(name),
        )
    if name == "step":
        return Length(iterations=max(round(value), 1))
    return Length(epochs=value)


def _length_fix(unit: str) -> str:
    if unit in _IN_A_FILE:
        return (
            "Give epochs or steps; samples or a time go into a workload file: [length] with "
            'samples = 1000000 or time = "90h", and [step] with profile = "probe.json".'
        )
    return 'Write for example --length "90 epochs" or --length "100000 steps".'


def gpu_matches(names: Iterable[str]) -> list[GpuMatch]:
    """The GPUs that options name, each under any usual spelling, several with commas between."""
    from outlay.hardware.gpu_names import single_gpu

    return [single_gpu(name) for texts in names for name in texts.split(",")]


def print_document(document: object) -> None:
    """Print a JSON document."""
    from outlay.report.documents import dumps
    from outlay.report.encoding import json_shown

    click.echo(json_shown(dumps(document)))


# What a long computation tells of itself: a line that moves on a terminal, a line a stage with
# `--progress`, and nothing elsewhere. Beside the output of a user's own command nothing moves.

_display: ProgressLine | ProgressLines | None = None
_WITH_OUTPUT = ("probe", "bench", "launch")
"""Commands that show what others print."""


def progress_option(command: F) -> F:
    """`--progress`: a line a stage where no terminal shows one that moves."""
    return click.option(
        "--progress",
        is_flag=True,
        expose_value=False,
        callback=_choose_display,
        help="Say each stage on standard error, also where that is no terminal.",
    )(command)


def _choose_display(context: click.Context, _option: click.Parameter, with_lines: bool) -> None:
    global _display
    finish_progress()
    if sys.stderr.isatty() and context.command.name not in _WITH_OUTPUT:
        from outlay.report.progress_line import ProgressLine

        _display = ProgressLine(sys.stderr)
    elif with_lines:
        from outlay.report.progress_line import ProgressLines

        _display = ProgressLines(sys.stderr)


def tell(what: str, done: float = 0.0, total: float = 0.0, /) -> None:
    """Say on standard error what is going on (`outlay.progress`), where a person is watching.

    Of a command with `--progress`, what is being done, how far and how long still.
    """
    if _display is not None:
        _display(what, done, total)
    elif sys.stderr.isatty():
        click.echo(what, err=True)


def finish_progress() -> None:
    """Take away the line that shows it."""
    global _display
    if _display is not None:
        _display.finish()
    _display = None


def cache_option(command: F) -> F:
    """`--no-cache`: trace anew, and keep nothing."""
    return click.option(
        "--no-cache",
        is_flag=True,
        expose_value=False,
        callback=_turn_off_cache,
        help="Trace anew, whatever traces were kept.",
    )(command)


def _turn_off_cache(context: click.Context, _option: click.Parameter, turn_off: bool) -> None:
    """Set the variable that turns it off, until the command has ended."""
    import os

    from outlay.files import NO_CACHE

    if turn_off and not os.environ.get(NO_CACHE):
        os.environ[NO_CACHE] = "1"
        context.call_on_close(lambda: os.environ.pop(NO_CACHE, None))


def learned_calibration() -> LearnedCalibration:
    """What was learned from the user's own measurements; a file that is off is warned of."""
    from outlay.ledger.kept_measurements import learned_calibration as read

    return read(warn)


def prices_option(command: F) -> F:
    """`--prices`: the newest good ones, or the snapshot that comes with outlay."""
    return click.option(
        "--prices",
        type=click.Choice(["newest", "bundled"]),
        default="newest",
        show_default=True,
        envvar="OUTLAY_PRICES",
        help="Whose prices: the newest good ones, or the dated snapshot that comes with outlay.",
    )(command)


def trust_option(command: F) -> F:
    """`--trust`: which doubts about prices may be ranked."""
    return click.option(
        "--trust",
        metavar="usual|strict|all|DOUBT,...",
        help="Which doubtful prices may be chosen: none with a caution (usual), none with any "
        "doubt (strict), all, or those with these doubts: stale,marketplace.",
    )(command)


def as_of_option(command: F) -> F:
    """`--as-of`: the prices of a day in the past."""
    return click.option(
        "--as-of",
        metavar="YYYY-MM[-DD]",
        help="With the prices of then, as if it were that day; of a month, its last day.",
    )(command)


def prices_of(choice: str, as_of: str | None = None, trust: str | None = None) -> PriceBook:
    """The prices that `--prices`, `--as-of` and `--trust` ask for."""
    book = _book_of(choice, as_of)
    if trust is None:
        return book
    from outlay.offers.price_book import trusted_book

    return trusted_book(book, trust)


def _book_of(choice: str, as_of: str | None) -> PriceBook:
    if as_of is not None:
        if choice == "bundled" and is_typed("prices"):
            raise click.UsageError("--as-of and --prices bundled exclude each other: give one.")
        from outlay.prices.past_books import past_prices

        return past_prices(as_of, warn)
    if choice == "bundled":
        from outlay.offers.price_book import bundled_book

        return bundled_book()
    from outlay.prices.books import current_prices

    return current_prices(today(), warn)


def is_typed(option: str) -> bool:
    """Whether an option stands on the command line, not in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def imported_of(choice: str) -> ImportedPrices:
    """The prices of cards and parts that were imported; none where only bundled ones count."""
    from outlay.facts import NOTHING_IMPORTED

    if choice == "bundled":
        return NOTHING_IMPORTED
    from outlay.prices.own_lists import imported_prices

    return imported_prices(today())


def warn(message: str) -> None:
    """Say on standard error what was left out."""
    click.echo(f"outlay: {message}", err=True)


def complain(what: str, why: str = "", fix: str = "") -> None:
    """Say on standard error what went wrong, why, and what to do."""
    text = "\n  ".join(part for part in (what, why, fix) if part)
    click.echo(f"outlay: {text}", err=True)


@contextmanager
def writing() -> Iterator[Callable[[Callable[[], None]], bool]]:
    """Write several files at the end of long work, each whatever becomes of the others; the first
    that could not be written is the error at the end. Says of each whether it was written."""
    failed: list[FileNotWritten] = []

    def write(action: Callable[[], None]) -> bool:
        try:
            action()
        except FileNotWritten as error:
            failed.append(error)
            return False
        return True

    yield write
    for error in failed[1:]:
        complain(error.what, error.why, error.fix)
    if failed:
        raise failed[0]


def leave_output() -> None:
    """Let what is still to be said to a standard error that nobody reads any more go nowhere."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def today() -> str:
    """The day the command runs, YYYY-MM-DD; SOURCE_DATE_EPOCH makes it repeatable."""
    return now()[:10]


def now() -> str:
    """When the command runs, UTC, `2026-11-16T20:15:00Z`; SOURCE_DATE_EPOCH makes it repeatable."""
    import os
    from datetime import UTC, datetime

    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    if fixed and not fixed.isdecimal():
        raise InputError(
            f"SOURCE_DATE_EPOCH is {fixed!r}.",
            why="It must be a whole number of seconds since 1970.",
            fix="Unset it, or give such a number.",
        )
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def live(state: LiveState) -> str:
    """The line that stands below a command's output while it is probed."""
    from outlay.probe.command import width_of_terminal
    from outlay.report.probe import live_line

    return live_line(state, width_of_terminal() - 1)
