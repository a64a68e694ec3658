"""`outlay init`: a commented workload file, of a few answers or of a question's options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from outlay.cli.options import (
    complain,
    learned_calibration,
    prices_of,
    prices_option,
    print_document,
    today,
)
from outlay.cli.question import (
    ALL_METHODS,
    AskedOptions,
    amount_of,
    question_of,
    question_options,
    survey_of,
)
from outlay.errors import InputError, OutlayError
from outlay.files import write_whole
from outlay.units import duration_s
from outlay.workload.template import TEMPLATE

if TYPE_CHECKING:
    from outlay.plan.question import TrainingQuestion

T = TypeVar("T")
_NONE = ("", "none", "no", "-")


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), default="outlay.toml")
@click.option("--model", metavar="MODEL", help="Write the file of a question, without asking.")
@question_options
@click.option(
    "--length",
    metavar="N",
    help='Instead of samples and epochs: "200M tokens", "6h", "100 hours of audio".',
)
@click.option("--template", is_flag=True, help="Write the template as it is, without asking.")
@prices_option
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    file: Path,
    model: str | None,
    asked: AskedOptions,
    length: str | None,
    template: bool,
    prices: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented workload file to start from.

    On a terminal it asks a few questions: what to train, how much of it, for how much money and by
    when. With --model it asks nothing and writes what `outlay plan MODEL` with the same options
    plans. Otherwise it writes a template.

    \b
    Example:
      outlay init
      outlay init thesis.toml --template && outlay plan thesis.toml
      outlay init --model llama-3.1-8b --method qlora --samples 50k --tokens 1024 --budget 100
    """
    typed = "--length" if length is not None else asked.first_given
    if model is None and typed is not None:
        raise click.UsageError(f"{typed} goes with --model.")
    if model is not None and template:
        raise click.UsageError("--model and --template exclude each other: give one.")
    if file.exists() and not force:
        raise InputError(
            f"{file} is already there.",
            fix="Choose another name, or --force to replace it.",
        )
    if model is not None:
        text = _text(_amount_found(question_of(model, asked, length), prices), file)
    elif template or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        text = TEMPLATE.read_text(encoding="utf-8")
    else:
        text = _text(_amount_found(_asked_on_terminal(), prices), file)
    write_whole(file, text.encode())
    if as_json:
        print_document({"schema": 1, "written": str(file)})
        return
    click.echo(f"Wrote {file}. Edit it, then: outlay plan {file}")


def _text(question: TrainingQuestion, file: Path) -> str:
    """The file's text; a path in it starts from the file's own folder."""
    from outlay.plan.question import is_target, workload_text

    folder = file.parent
    library, colon, place = question.model.partition(":")
    if is_target(question.model):
        question = replace(question, model=_moved(question.model, folder))
    elif colon and Path(place).is_dir():
        moved = _moved(place, folder)
        moved = moved if moved.startswith((".", "/")) else f"./{moved}"
        question = replace(question, model=f"{library}:{moved}")
    return workload_text(question)


def _moved(path: str, folder: Path) -> str:
    """A path as it is written in a file of another folder."""
    if Path(path).is_absolute() or folder.resolve() == Path.cwd():
        return path
    return os.path.relpath(path, folder)


def _amount_found(question: TrainingQuestion, prices: str) -> TrainingQuestion:
    """The question; of a budget alone, with the amount that it pays for."""
    if question.method == ALL_METHODS:
        raise InputError(
            "A file has one method.", fix="Name it, or compare them: outlay plan MODEL --method all"
        )
    if not question.is_about_money:
        return question
    from outlay.plan.affordable import affordable_run
    from outlay.plan.pipeline import plan_workload

    book, learned = prices_of(prices), learned_calibration()
    run = affordable_run(
        question,
        lambda workload: plan_workload(workload, learned=learned, today=today(), prices=book),
        today(),
    )
    if run.plan.chosen is None:
        raise InputError(
            f"${question.budget_usd:,.2f} pays for no training of {question.model}.",
            fix="Give a larger --budget, or --samples to hear what so much costs.",
        )
    return run.question


# Questions on a terminal


def _asked_on_terminal() -> TrainingQuestion:
    """A question, asked piece by piece; nothing is written before the last answer."""
    from outlay.plan.question import answer

    click.echo("A few questions; Enter takes what stands in brackets, Ctrl-C writes nothing.\n")
    question = _ask(
        "What do you want to train? A model's name, or your own step, train.py:function",
        _usual_model(),
        _checked_model,
    )
    question = _ask_method(question)
    data = _ask(
        "\nWhere is the training data? A file or folder here is measured, so that you need not\n"
        "say how much it is; none: it is not here",
        "none",
        lambda text: None if text.lower() in _NONE else survey_of(Path(text), question),
    )
    question = replace(question, data=data)
    if data is None:
        question = _ask_amount(question)
    question = replace(
        question,
        epochs=_ask("\nHow many passes over it (epochs)?", "1", _above_zero),
        budget_usd=_ask(
            "\nHow much may it cost at most, in dollars? What is likely to cost more is ruled out",
            "none",
            lambda text: _or_none(text.lstrip("$"), _above_zero),
        ),
        deadline_s=_ask(
            "\nWhen must it be done? 36h, 2d, 3 weeks: what is likely to be late is ruled out",
            "none",
            lambda text: _or_none(text, duration_s),
        ),
        data_at=_ask(
            "\nWhere does the data lie? home (uploading it takes time), internet, or a cloud such "
            "as\naws:us-east-1 (which charges for what leaves it)",
            "internet",
            lambda text: text,
        ),
    )
    click.echo()
    for line in answer(question).defaults:
        click.echo(f"- {line}")
    return question


def _ask(words: str, default: str, read: Callable[[str], T]) -> T:
    """What an answer says; asked again until it can be read."""
    while True:
        typed = click.prompt(words, default=default, prompt_suffix=" ").strip()
        try:
            return read(typed)
        except OutlayError as error:
            complain(error.what, error.why, error.fix)
        except ValueError as error:
            complain(f"{typed!r} will not do: {error}.")


def _usual_model() -> str:
    from outlay.models.model import bundled_models
    from outlay.trace.store import bundled_profiles

    names = [model.name for model in bundled_models()]
    wanted = "llama-3.1-8b"
    return wanted if wanted in names else bundled_profiles()[0]


def _checked_model(name: str) -> TrainingQuestion:
    """A question about a model that there is."""
    from outlay.models.model import find_model
    from outlay.plan.question import TrainingQuestion, is_profile, is_target

    question = TrainingQuestion(model=name)
    if is_target(name):
        file = name.partition(".py")[0] + ".py"
        if not Path(file).is_file():
            raise InputError(f"There is no file {file}.", fix="Check the path.")
    elif not is_profile(question):
        find_model(name)
    return question


def _ask_method(question: TrainingQuestion) -> TrainingQuestion:
    from outlay.models.model import find_model
    from outlay.models.recipe import methods_for
    from outlay.plan.question import is_profile, is_target

    if is_target(question.model) or is_profile(question):
        return question
    methods = methods_for(find_model(question.model))

    def read(text: str) -> str:
        if text not in methods:
            raise ValueError(f"it is one of {', '.join(methods)}")
        return text

    words = f"\nHow is it trained? {', '.join(methods)} (`outlay recipe show` prints each)"
    return replace(question, method=_ask(words, methods[0], read))


def _ask_amount(question: TrainingQuestion) -> TrainingQuestion:
    """How many samples, and of texts how long."""
    from outlay.plan.question import answer

    samples = _ask("\nHow many samples has it?", "10k", _above_zero)
    question = replace(question, samples=float(max(round(samples), 1)))
    usual = answer(question).tokens
    if usual is None or question.method is None:
        return question
    tokens = _ask("\nHow many tokens has a sample? Longer ones are cut", f"{usual}", _above_zero)
    return replace(question, tokens=max(round(tokens), 1))


def _above_zero(text: str) -> float:
    try:
        amount = amount_of(text)
    except ValueError:
        amount = 0.0
    if amount <= 0:
        raise ValueError("it is a number above zero, such as 50k, 1.5M or 3")
    return amount


def _or_none(text: str, read: Callable[[str], float]) -> float | None:
    return None if text.lower() in _NONE else read(text)
