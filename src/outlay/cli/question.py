"""What `plan MODEL` and `init --model` are asked: the options, and the question they make."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from outlay.errors import InputError, NotKnown
from outlay.units import duration_s

if TYPE_CHECKING:
    from outlay.plan.question import TrainingQuestion
    from outlay.workload.survey import DataSurvey, TokenCounter

F = TypeVar("F", bound=Callable[..., Any])
ALL_METHODS = "all"
MOST: Final = "max"
_AMOUNT = re.compile(
    r"(?P<number>[0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?) *(?P<scale>[kKmMbB]?)"
)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_LENGTH = re.compile(rf"{_AMOUNT.pattern} *(?P<unit>samples?|tokens?|epochs?|steps?|iterations?)")
_AUDIO = re.compile(r"(?P<time>.+?) of (?:audio|speech|sound)")
_FILES = (".toml", ".json")
_MOST_SAMPLES = 1e13
_MOST_EPOCHS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions:
    """The options of a question as they were typed."""

    method: str | None
    tokens: str | None
    samples: str | None
    epochs: str | None
    data: Path | None
    data_at: str | None
    tokenizer: Path | None
    packing: bool
    mean_tokens: str | None
    batch_size: str | None
    settings: tuple[str, ...]
    trust_remote_code: bool
    budget: str | None
    deadline: str | None
    gpus: tuple[str, ...]
    providers: tuple[str, ...]

    @property
    def first_given(self) -> str | None:
        """The first option that was typed, as it is called."""
        names = {"settings": "set", "gpus": "gpu", "providers": "provider"}
        for name in self.__slots__:
            if getattr(self, name) not in (None, False, ()):
                return f"--{names.get(name, name).replace('_', '-')}"
        return None


def question_options(command: F) -> F:
    """The options of a question; the command gets them together, as `asked`."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        typed = {name: given.pop(name) for name in AskedOptions.__slots__}
        return command(asked=AskedOptions(**typed), **given)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--method",
        metavar="NAME",
        help="How MODEL is trained: full, lora, qlora ...; all compares them.",
    ),
    click.option("--samples", metavar="N", help="Samples of the data: 50k."),
    click.option("--tokens", metavar="N", help="Tokens of a sample, padded or cut to so many."),
    click.option(
        "--epochs",
        metavar="N",
        help="Passes over the data; max: as many as --budget pays.  [default: 1]",
    ),
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Measure the data: JSONL, CSV or Parquet, or a folder of texts, images or sounds.",
    ),
    click.option("--data-at", metavar="PLACE", help="Where it lies: home, internet, aws ..."),
    click.option(
        "--tokenizer",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="A tokenizer.json, or its folder, to measure texts by.",
    ),
    click.option(
        "--packing", is_flag=True, help="Samples share sequences, so that none is padded."
    ),
    click.option("--mean-tokens", metavar="N", help="Of a sample, for --packing without --data."),
    click.option(
        "--batch-size",
        metavar="N",
        help="Per GPU: a number, or max.  [default: what fits, up to the usual]",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the recipe: lora_rank=64. Any number.",
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Let a model of the hub run its repository's own code on this machine.",
    ),
    click.option("--budget", metavar="USD", help="Alone: how much can be trained for it."),
    click.option("--deadline", metavar="TIME", help="When it must be done: 2d, 36h."),
    click.option(
        "--gpu", "gpus", multiple=True, metavar="NAME[:COUNT]", help="Look at these GPUs alone."
    ),
    click.option(
        "--provider", "providers", multiple=True, metavar="NAME", help="Look at these alone."
    ),
)


def is_model(subject: str) -> bool:
    """Whether a plan's argument is a model's name, not a file's."""
    path = Path(subject)
    try:
        is_file = path.is_file()
    except OSError:  # a name longer than a file's can be: what reads it says so
        is_file = True
    if subject == "-" or is_file or path.suffix.lower() in _FILES:
        return False
    from outlay.models.model import names_model
    from outlay.plan.question import is_target
    from outlay.trace.store import bundled_profiles

    is_known = is_target(subject) or subject in bundled_profiles() or names_model(subject)
    return is_known or not (path.exists() or "/" in subject)


def question_of(model: str, asked: AskedOptions, length: str | None = None) -> TrainingQuestion:
    """The question that options ask about a model; its data is looked at."""
    from outlay.models.recipe import RecipeSettings
    from outlay.plan.question import TrainingQuestion

    _check_name(model)
    question = TrainingQuestion(
        model=model,
        method=asked.method,
        settings=RecipeSettings.from_words(asked.settings).values if asked.settings else {},
        trust_remote_code=asked.trust_remote_code,
        tokens=_whole("--tokens", asked.tokens, 1e8),
        samples=_whole("--samples", asked.samples, _MOST_SAMPLES),
        epochs=None if asked.epochs == MOST else _amount("--epochs", asked.epochs, _MOST_EPOCHS),
        as_many_epochs=asked.epochs == MOST,
        data_at=asked.data_at,
        packing=asked.packing,
        mean_tokens=_amount("--mean-tokens", asked.mean_tokens, 1e8),
        batch_size=MOST
        if asked.batch_size == MOST
        else _whole("--batch-size", asked.batch_size, 1e6),
        budget_usd=_budget_usd(asked.budget),
        deadline_s=_deadline_s(asked.deadline),
        gpus=_names(asked.gpus),
        providers=_names(asked.providers),
    )
    if length is not None:
        question = with_length(question, length)
    _check(question)
    if asked.data is None:
        return question
    return replace(question, data=survey_of(asked.data, question, asked.tokenizer))


def _check_name(name: str) -> None:
    """Raise where a name is no model's, no profile's and no step's: it may be a mistyped file."""
    from outlay.models.model import OTHER_NAMES, bundled_models, names_model
    from outlay.plan.question import is_target
    from outlay.trace.store import bundled_profiles

    if not (is_target(name) or name in bundled_profiles() or names_model(name)):
        raise NotKnown(
            "model, profile or workload file",
            name,
            (*(model.name for model in bundled_models()), *bundled_profiles()),
            fix=f"`outlay recipe models` lists the models; {OTHER_NAMES} "
            "A workload file's name ends in .toml, and `outlay init` writes one.",
        )


def _check(question: TrainingQuestion) -> None:
    if not question.as_many_epochs:
        return
    if question.budget_usd is None:
        raise InputError(
            "--epochs max asks how many epochs a budget pays, and there is none.",
            fix="Give --budget 50, or a number of epochs.",
        )


def survey_of(path: Path, question: TrainingQuestion, tokenizer: Path | None = None) -> DataSurvey:
    """What is in a file or folder, by the model's tokenizer where one is at hand."""
    from outlay.workload.survey import survey_data, tokenizer_at

    if tokenizer is None:
        return survey_data(path, _tokenizer_of(question))
    counter = tokenizer_at(tokenizer)
    if counter is None:
        raise InputError(
            f"There is no tokenizer to be read at {tokenizer}.",
            why="It is a tokenizer.json or a folder with one, read by the package tokenizers.",
            fix="Check the path, and pip install tokenizers; or leave --tokenizer out.",
        )
    return survey_data(path, counter)


def _tokenizer_of(question: TrainingQuestion) -> TokenCounter | None:
    """The tokenizer beside a model's config, or one of its repository that was fetched before."""
    from outlay.models.model import find_model
    from outlay.plan.question import is_target
    from outlay.trace.store import bundled_profiles
    from outlay.workload.survey import kept_tokenizer, tokenizer_at

    if question.model in bundled_profiles() or is_target(question.model):
        return None
    found = find_model(question.model, trust_remote_code=question.trust_remote_code)
    _, colon, place = question.model.partition(":")
    return (tokenizer_at(place) if colon else None) or kept_tokenizer(found.repository)


def with_length(question: TrainingQuestion, text: str) -> TrainingQuestion:
    """The question with the length that `--length` gives: samples, tokens, epochs, steps, a time,
    or hours of audio."""
    words = text.strip()
    if match := _LENGTH.fullmatch(words.lower()):
        amount = _number_of(match)
        whole = max(round(amount), 1)
        name, value = {
            "sample": ("samples", whole),
            "token": ("total_tokens", amount),
            "epoch": ("epochs", amount),
            "step": ("steps", whole),
            "iteration": ("steps", whole),
        }[match["unit"].removesuffix("s")]
        return _with(question, text, name, value)
    audio = _AUDIO.fullmatch(words)
    try:
        time_s = duration_s(audio["time"] if audio else words)
    except InputError:
        raise _no_length(text) from None
    return _with(question, text, "audio_s" if audio else "training_s", time_s)


def _with(question: TrainingQuestion, text: str, name: str, value: float) -> TrainingQuestion:
    if not 0 < value <= _MOST_SAMPLES:
        raise _no_length(text)
    if getattr(question, name) is not None:
        raise InputError(
            f"--length {text!r} and --{name.replace('_', '-')} say the same twice.",
            fix="Give one of them.",
        )
    return replace(question, **{name: value})  # type: ignore[arg-type]


def _no_length(text: str) -> InputError:
    return InputError(
        f"--length {text!r} is no length of a run.",
        fix='Write for example "50k samples", "200M tokens", "3 epochs", "10000 steps", "6h", or '
        '"100 hours of audio".',
    )


# Amounts as people write them


def amount_of(text: str) -> float:
    """`50k`, `1.2M`, `50_000` or `50,000` as a number; a ValueError where it is none."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return _number_of(match)


def _number_of(match: re.Match[str]) -> float:
    number = float(match["number"].replace("_", "").replace(",", ""))
    return number * _SCALE[match["scale"].lower()]


def _amount(option: str, text: str | None, most: float) -> float | None:
    if text is None:
        return None
    try:
        amount = amount_of(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= most:
        raise InputError(
            f"{option} {text!r} is no number above 0 and up to {most:,.0f}.",
            fix=f"Write for example {option} 50k, 1.5M or 50_000.",
        )
    return amount


def _whole(option: str, text: str | None, most: float) -> int | None:
    amount = _amount(option, text, most)
    if amount is None:
        return None
    if not float(amount).is_integer():
        raise InputError(f"{option} {text!r} is no whole number.", fix=f"Write {option} 1000.")
    return int(amount)


def _budget_usd(text: str | None) -> float | None:
    return None if text is None else _amount("--budget", text.strip().lstrip("$"), 1e9)


def _deadline_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        deadline_s = duration_s(text)
    except InputError as error:
        raise InputError(f"--deadline {text!r} is no duration.", fix=error.fix) from None
    if not 0 < deadline_s <= 100 * 365 * 86_400:
        raise InputError(f"--deadline {text!r} is no time to be done in.", fix="Write 2d or 36h.")
    return deadline_s


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Several with commas between, or the option given more than once."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
