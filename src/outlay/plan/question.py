"""One question about a model by its name, and the workload it stands for.

    question = TrainingQuestion(model="llama-3.1-8b", method="qlora", samples=50_000, tokens=1024)
    workload_text(question)        the commented file of it, as `outlay init --model` writes it
    workload_of_question(question) the workload in that very text, as `outlay plan MODEL` plans it

What is not said is decided here, and told in `AnsweredQuestion.defaults`, one line each.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outlay.errors import InputError
from outlay.facts import assumed
from outlay.models.model import Model, find_model
from outlay.models.recipe import (
    Recipe,
    RecipeSettings,
    SettingValue,
    find_recipe,
    methods_for,
    recipe_for,
    rendered_step,
)
from outlay.trace.store import bundled_profiles, find_profile
from outlay.units import DAY_S, HOUR_S, MINUTE_S
from outlay.workload.file import parse_workload
from outlay.workload.survey import DataSurvey
from outlay.workload.template import Entry, filled_template
from outlay.workload.workload import Workload

WHERE = "the question"
"""What messages call the text of a question."""
ONE_PASS = "One pass over the data (--epochs)."
ROUNDED_TO_TOKENS = 128
"""Lengths taken from data are whole multiples of this."""
_SEQUENCE = re.compile(r"sequences? of ([0-9]+) tokens")
_TARGET = re.compile(r".*\.py(:[A-Za-z_]\w*| -- .*| --)?")
_MODEL_SAYS = {
    "text generation": "text",
    "masked language": "text",
    "text to text": "text",
    "speech to text": "audio",
    "speech recognition": "audio",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion:
    """What to train, how much of it, and within which limits, in a user's own words."""

    model: str
    """A model's name, that of a bundled profile, or one's own step: `train.py:training_step`."""
    method: str | None = None
    """A recipe's name; None is the model's usual one."""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Of the recipe, beside `tokens`."""
    trust_remote_code: bool = False
    """Whether a model of the hub may run its repository's own code here."""
    tokens: int | None = None
    """What the model sees of a sample: it is padded or cut to so many."""
    samples: float | None = None
    """In one pass over the data."""
    total_tokens: float | None = None
    """Of the data, instead of samples."""
    audio_s: float | None = None
    """Of the data, instead of samples."""
    epochs: float | None = None
    """Passes over the data; None is one."""
    steps: int | None = None
    """Updates, instead of passes, at each machine's own batch."""
    training_s: float | None = None
    """A time to train for, instead of passes."""
    as_many_epochs: bool = False
    """Whether to train for as many passes as the budget pays."""
    data: DataSurvey | None = None
    data_at: str | None = None
    """Where the data lies, as in the file: `home`, `internet`, `aws:us-east-1`."""
    packing: bool = False
    """Whether several samples share a sequence, so that none is padded."""
    mean_tokens: float | None = None
    """Of a sample, where it is packed and the data is not at hand."""
    batch_size: int | Literal["max"] | None = None
    """Per GPU; `max` is the largest that fits, None the largest up to what is usual."""
    budget_usd: float | None = None
    deadline_s: float | None = None
    gpus: tuple[str, ...] = ()
    """The only ones to look at."""
    providers: tuple[str, ...] = ()

    @property
    def is_about_money(self) -> bool:
        """Whether it asks how much can be trained for a sum, instead of what so much costs."""
        stated = (self.samples, self.total_tokens, self.audio_s, self.steps, self.training_s)
        has_amount = any(amount is not None for amount in stated) or self.data is not None
        return self.budget_usd is not None and (not has_amount or self.as_many_epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredQuestion:
    """A question with all that it leaves open decided."""

    question: TrainingQuestion
    name: str
    """Of the model or profile, as outlay writes it."""
    method: str | None
    """None of a bundled profile."""
    tokens: int | None
    """Of a sample; None where it is no text."""
    samples: float | None
    """That the model sees in one pass; None where steps or a time are asked for alone."""
    epochs: float
    defaults: tuple[str, ...]
    """What was decided, one sentence each."""

    @property
    def seen_samples(self) -> float | None:
        """In all passes together."""
        return None if self.samples is None else self.samples * self.epochs

    @property
    def seen_tokens(self) -> float | None:
        """In all passes together, padding included."""
        if self.seen_samples is None or self.tokens is None:
            return None
        return self.seen_samples * self.tokens


def workload_of_question(question: TrainingQuestion) -> Workload:
    """The workload that a question stands for."""
    return parse_workload(workload_text(question), WHERE)


def workload_text(question: TrainingQuestion) -> str:
    """A question as a workload file, every key of it explained."""
    answered = answer(question)
    return filled_template(_file(answered), f"{_title(answered)}.")


def answer(question: TrainingQuestion) -> AnsweredQuestion:
    """A question with all that it leaves open decided."""
    if question.samples is not None and question.data is not None:
        raise InputError(
            "Both a number of samples and the data are given.",
            why=f"In {question.data.path} there are {question.data.samples:,} samples.",
            fix="Give --data, or --samples.",
        )
    if question.is_about_money and question.epochs is not None:
        raise InputError(
            "How many epochs are asked for, but not of how many samples.",
            fix="Give --samples or --data; or leave --epochs out, and outlay says how much can be "
            "trained for the budget.",
        )
    if is_target(question.model):
        return _of_target(question)
    if is_profile(question):
        return _of_profile(question)
    return _of_model(question)


def is_target(name: str) -> bool:
    """Whether a name is a step in a file of the user's own."""
    return _TARGET.fullmatch(name) is not None


def is_profile(question: TrainingQuestion) -> bool:
    """Whether the name is a bundled profile's and nothing is asked that only a recipe can do."""
    asked = question.method or question.settings
    return question.model in bundled_profiles() and not asked


# One's own step, or a bundled profile: one step as it is


def _of_target(question: TrainingQuestion) -> AnsweredQuestion:
    if question.method or question.settings:
        raise InputError(
            f"{question.model} is a step of your own, which no recipe changes.",
            fix="Leave --method and --set out, or name a model.",
        )
    kind = question.data.kind if question.data else "text" if question.tokens else "images"
    samples = _samples(question, question.tokens, kind)
    return AnsweredQuestion(
        question=question,
        name=question.model,
        method=None,
        tokens=question.tokens,
        samples=samples,
        epochs=_epochs(question),
        defaults=tuple(_said(question, question.tokens, samples, None, None)),
    )


def _of_profile(question: TrainingQuestion) -> AnsweredQuestion:
    profile = find_profile(question.model)
    match = _SEQUENCE.search(profile.sample)
    tokens = int(match[1]) if match else None
    if question.tokens not in (None, tokens):
        length = f"{tokens:,} tokens" if tokens else "no text"
        raise InputError(
            f"{question.model} is a profile of {length} a sample, not of {question.tokens:,}.",
            why="A profile is one training step as it was traced.",
            fix="Leave --tokens out, or name the method: --method full.",
        )
    samples = _samples(question, tokens, "text" if tokens else "images")
    return AnsweredQuestion(
        question=question,
        name=question.model,
        method=None,
        tokens=tokens,
        samples=samples,
        epochs=_epochs(question),
        defaults=tuple(_said(question, tokens, samples, None, None)),
    )


# A model by its name, trained by a recipe


def _of_model(question: TrainingQuestion) -> AnsweredQuestion:
    model = find_model(question.model, trust_remote_code=question.trust_remote_code)
    recipe = recipe_for(model, question.method)
    if question.settings:
        question = replace(question, settings=_settings(question, recipe))
    if not question.packing and _joins_samples(question, recipe):
        question = replace(question, packing=_mean_tokens(question) is not None)
    tokens = _sample_tokens(question, model, recipe)
    set_tokens = {} if tokens is None else {"tokens": tokens}
    values = {**set_tokens, **question.settings}
    rendered_step(model, recipe.method, RecipeSettings(values=values))  # refuses what cannot be
    kind = _MODEL_SAYS.get(model.task, "images")
    sample_s = question.settings.get("seconds", _constant(recipe, "seconds"))
    samples = _samples(question, tokens, kind, float(str(sample_s)) if sample_s else None)
    return AnsweredQuestion(
        question=question,
        name=model.name,
        method=recipe.method,
        tokens=tokens,
        samples=samples,
        epochs=_epochs(question),
        defaults=tuple(_said(question, tokens, samples, model, recipe)),
    )


def _joins_samples(question: TrainingQuestion, recipe: Recipe) -> bool:
    """Whether samples share a row where nothing is said of it, as in pretraining."""
    return question.settings.get("packing", _constant(recipe, "packing")) is True


def _sample_tokens(question: TrainingQuestion, model: Model, recipe: Recipe) -> int | None:
    """The length of a sample: as asked, as most of the data are, or as the recipe has it."""
    default, most = _constant(recipe, "tokens"), model.context_tokens
    if not isinstance(default, int):
        if question.tokens is not None:
            raise InputError(
                f"--tokens {question.tokens} says nothing of {model.title}.",
                why=f"The recipe {recipe.method!r} takes no text.",
                fix=f"What it takes: {_settings_named(recipe)} (--set NAME=VALUE).",
            )
        return None
    if question.tokens is not None:
        if most is not None and question.tokens > most:
            raise InputError(
                f"{model.title} takes sequences of at most {most:,} tokens; --tokens asks for "
                f"{question.tokens:,}.",
                fix=f"Give --tokens {most} or less.",
            )
        return question.tokens
    lengths = None if question.data is None else question.data.lengths
    if lengths is None or question.packing:
        return min(default, most or default)
    usual = lengths.percentiles[-2]
    rounded = max(math.ceil(usual / ROUNDED_TO_TOKENS), 1) * ROUNDED_TO_TOKENS
    return min(rounded, most or rounded)


def _settings(question: TrainingQuestion, recipe: Recipe) -> dict[str, SettingValue]:
    """The settings as the recipe's own are: a number for a number, also where text was given."""
    return {name: _as_set(recipe, name, value) for name, value in question.settings.items()}


def _as_set(recipe: Recipe, name: str, value: SettingValue) -> SettingValue:
    if name == "tokens":
        raise InputError("--set tokens is an option of its own.", fix="Write --tokens.")
    constant = recipe.constant(name)
    default = constant.default
    if not isinstance(value, str) or isinstance(default, str):
        return value
    if isinstance(default, bool):
        return {"yes": True, "true": True, "on": True, "1": True}.get(
            value.lower(), False if value.lower() in ("no", "false", "off", "0") else value
        )
    if isinstance(default, tuple):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        number = float(value.replace("_", "").replace(",", ""))
    except ValueError:
        return value
    return int(number) if constant.kind.startswith("int") and number.is_integer() else number


def _constant(recipe: Recipe, name: str) -> SettingValue:
    """The value a recipe gives a setting; None where it has none of that name."""
    found = (one.default for one in recipe.constants if one.name.lower() == name)
    return next(found, None)


def _settings_named(recipe: Recipe) -> str:
    return ", ".join(constant.name.lower() for constant in recipe.constants)


# How much


def _epochs(question: TrainingQuestion) -> float:
    return 1.0 if question.epochs is None else question.epochs


def _samples(
    question: TrainingQuestion, tokens: int | None, kind: str, sample_s: float | None = None
) -> float | None:
    """What the model sees in one pass, in samples; None where nothing says.

    sample_s: of a sample of sound.
    """
    if question.total_tokens is not None:
        if tokens is None:
            raise InputError(
                f"A length in tokens says nothing of {question.model}, which takes no text.",
                fix="Give it in samples, epochs or steps.",
            )
        return float(math.ceil(question.total_tokens / tokens))
    if question.audio_s is not None:
        if kind != "audio" or sample_s is None:
            raise InputError(
                f"Hours of audio say nothing of {question.model}, which does not take sounds.",
                fix="Give the length in samples, tokens, epochs or steps.",
            )
        return float(math.ceil(question.audio_s / sample_s))
    data = question.data
    if data is not None and data.kind != kind:
        raise InputError(
            f"{data.path} holds {data.kind}; {question.model} is trained on {kind}.",
            fix="Check the path, or give --samples.",
        )
    samples = question.samples if data is None else float(data.samples)
    if data is not None and sample_s is not None and _is_long(data):
        return float(math.ceil((data.audio_s or 0.0) / sample_s))
    if samples is None or not question.packing:
        return samples
    return float(math.ceil(samples * _packed_tokens(question, tokens) / (tokens or 1)))


def _packed_tokens(question: TrainingQuestion, tokens: int | None) -> float:
    """The tokens of a sample on average, which packing makes all of."""
    if tokens is None:
        raise InputError("--packing is for texts.", fix="Leave it out.")
    mean = _mean_tokens(question)
    if mean is None:
        raise InputError(
            "--packing needs to know how long a sample is on average.",
            why="So many samples share a sequence.",
            fix="Give --data to have it measured, or --mean-tokens 300.",
        )
    return min(mean, tokens)


def _mean_tokens(question: TrainingQuestion) -> float | None:
    lengths = None if question.data is None else question.data.lengths
    return question.mean_tokens or (None if lengths is None else lengths.mean)


def _is_long(data: DataSurvey) -> bool:
    """Whether sounds are longer than speech models take, so that they are cut into samples."""
    mean_s = (data.audio_s or 0.0) / data.samples
    return mean_s > assumed("speech_window_s")


# What was decided, in words


def _said(
    question: TrainingQuestion,
    tokens: int | None,
    samples: float | None,
    model: Model | None,
    recipe: Recipe | None,
) -> Iterator[str]:
    if recipe is not None and model is not None:
        yield _method_words(question, model, recipe)
    if question.data is not None:
        yield from _survey_words(question.data)
    seconds = None if recipe is None else _constant(recipe, "seconds")
    if seconds is not None:
        each = question.settings.get("seconds", seconds)
        yield f"A sample is {each:g} s of sound (--set seconds=N); longer recordings are cut."
    if tokens is not None:
        packing = None if recipe is None else _constant(recipe, "packing")
        yield _length_words(question, tokens, packing)
    if samples is not None and question.epochs is None and not question.is_about_money:
        yield ONE_PASS
    if question.data is None and tokens is not None and samples is not None:
        yield (
            f"The data is taken to have {assumed('text_bytes_per_token'):g} bytes a token (--data "
            "FILE measures yours)."
        )


def _method_words(question: TrainingQuestion, model: Model, recipe: Recipe) -> str:
    """`LoRA: bf16, adamw, lora_rank 16; --set changes them, `outlay recipe show lora` ...`."""
    shown = ("precision", "optimizer", "checkpointing", "lora_rank")
    values = {name: question.settings.get(name, _constant(recipe, name)) for name in shown}
    told = [
        f"{name.replace('_', ' ')} {_setting_text(value)}"
        for name, value in values.items()
        if value is not None
    ]
    others = [name for name in methods_for(model) if name != recipe.method]
    asked = "" if question.method or not others else f" (or --method {', '.join(others)})"
    listed = f": {', '.join(told)}" if told else ""
    return f"Recipe {recipe.method}{asked}{listed}; --set changes them."


def _setting_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _length_words(question: TrainingQuestion, tokens: int, packing: SettingValue) -> str:
    """How samples get their length; `packing` is what the recipe says of it, None if nothing."""
    if question.packing:
        return f"Samples are packed into sequences of {tokens:,} tokens."
    if packing is True:
        return f"A sample is a row of {tokens:,} tokens without padding."
    lengths = None if question.data is None else question.data.lengths
    if lengths is None:
        other = "; --packing packs them instead" if packing is not None else ""
        return f"Each sample is padded or cut to {tokens:,} tokens{other}."
    cut = lengths.share_above(tokens)
    shorter = f"; {cut:.0%} are longer and cut" if cut >= 0.005 else ""
    if packing is None:
        return f"Each sample is padded to {tokens:,} tokens{shorter}."
    saved = 1 - min(lengths.mean, tokens) / tokens
    return (
        f"Each sample is padded to {tokens:,} tokens{shorter}; --packing would save {saved:.0%} "
        "of that."
    )


def _survey_words(data: DataSurvey) -> Iterator[str]:
    count = f"about {data.samples:,}" if data.is_estimated else f"{data.samples:,}"
    how = f", estimated from {data.looked_at:,} of them" if data.is_estimated else ""
    noun = {"text": "sample", "images": "image", "audio": "sound"}[data.kind]
    nouns = noun if data.samples == 1 else f"{noun}s"
    sentence = f"{data.path}: {count} {nouns}{how}, {_in_largest_unit(data.size_bytes, ' ')}"
    if data.audio_s is not None:
        sentence += f", {data.audio_s / HOUR_S:,.3g} h"
    lengths = data.lengths
    if lengths is not None:
        by = (
            "counted by the model's tokenizer"
            if lengths.counted_by == "tokenizer"
            else f"by bytes, {assumed('text_bytes_per_token'):g} a token: no tokenizer is at hand"
        )
        sentence += (
            f", read from {data.read_from}; {lengths.mean:,.0f} tokens on average, "
            f"{lengths.percentiles[-2]:,} at the 95th percentile ({by})"
        )
    yield f"{sentence}."
    if data.damaged:
        first = "; ".join(data.damaged_lines)
        seen = " seen" if data.is_estimated else ""
        yield f"{data.damaged:,} damaged{seen}, not counted: {first}."


# As a file


def _title(answered: AnsweredQuestion) -> str:
    return " ".join(part for part in (answered.name, answered.method) if part)


def _file(answered: AnsweredQuestion) -> dict[str, dict[str, Entry]]:
    """The keys of the file by table."""
    question = answered.question
    tables: dict[str, dict[str, Entry]] = {
        "": {"name": Entry(_text(_title(answered)))},
        "step": _step(answered),
        "length": _length(answered),
        "data": dict(_data(answered)),
        "checkpoint": {},
        "limits": {},
        "consider": {},
    }
    if question.budget_usd is not None:
        tables["limits"]["budget"] = Entry(_number(question.budget_usd))
    if question.deadline_s is not None:
        tables["limits"]["deadline"] = Entry(_duration(question.deadline_s))
    for key, names in (("gpus", question.gpus), ("providers", question.providers)):
        if names:
            tables["consider"][key] = Entry(_list(names))
    return tables


def _step(answered: AnsweredQuestion) -> dict[str, Entry]:
    question = answered.question
    if answered.method is None:
        key = "target" if is_target(answered.name) else "profile"
        entries = {key: Entry(_text(answered.name))}
    else:
        entries = {
            "model": Entry(_text(answered.name)),
            "method": Entry(_text(answered.method)),
        }
        if answered.tokens is not None:
            comment = "of a sample: it is padded or cut to so many"
            entries["tokens"] = Entry(_number(answered.tokens), comment)
        settings = dict(question.settings)
        if question.packing and _constant(find_recipe(answered.method), "packing") is False:
            settings["packing"] = True
        if question.trust_remote_code:
            entries["trust_remote_code"] = Entry("true")
        if settings:
            pairs = (f"{name} = {_value(value)}" for name, value in sorted(settings.items()))
            entries["settings"] = Entry(f"{{{', '.join(pairs)}}}")
    if question.batch_size is not None:
        is_most = question.batch_size == "max"
        entries["batch_size"] = Entry(
            _text("max") if is_most else _number(float(question.batch_size))
        )
    return entries


def _length(answered: AnsweredQuestion) -> dict[str, Entry]:
    question = answered.question
    if question.steps is not None:
        return {"iterations": Entry(_number(question.steps))}
    if question.training_s is not None:
        return {"time": Entry(_duration(question.training_s))}
    if answered.samples is None:
        raise InputError(
            f"How long is {answered.name} to be trained?",
            fix='Give --samples 50k (and --epochs 3), --data FILE, --length "200M tokens", or '
            "--budget 50 alone to hear how much that pays.",
        )
    if question.total_tokens is not None and question.epochs is None:
        comment = f"{question.total_tokens:_.0f} tokens"
        return {"samples": Entry(_number(answered.samples), comment)}
    return {"epochs": Entry(_number(answered.epochs))}


def _data(answered: AnsweredQuestion) -> Iterator[tuple[str, Entry]]:
    question, survey = answered.question, answered.question.data
    if question.data_at is not None:
        yield "at", Entry(_text(question.data_at))
    if answered.samples is None:
        return
    comment = "sequences that samples were packed into" if question.packing else None
    yield "samples", Entry(_number(math.ceil(answered.samples)), comment)
    if survey is not None:
        yield "size", Entry(_size(survey.size_bytes), f"measured: {_commented(survey.path)}")
    elif answered.tokens is not None:
        each = assumed("text_bytes_per_token")
        total = answered.samples * answered.tokens * each
        yield "size", Entry(_size(total), f"{each:g} bytes a token, assumed")


def _commented(text: str) -> str:
    """A text as it may stand in a comment of one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _value(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return _list(value)
    return _text(value) if isinstance(value, str) else _number(value or 0)


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(amount: float) -> str:
    """Whole numbers with underscores between thousands; others with every digit."""
    return f"{int(amount):_}" if float(amount).is_integer() else repr(float(amount))


def _duration(time_s: float) -> str:
    """In the largest unit that it is a whole number of."""
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if time_s % unit_s == 0:
            return f'"{time_s / unit_s:.0f}{unit}"'
    return f'"{time_s!r}s"'


def _size(amount_bytes: float) -> str:
    """A size as the file has it."""
    return f'"{_in_largest_unit(max(math.ceil(amount_bytes), 1))}"'


def _in_largest_unit(amount_bytes: float, gap: str = "") -> str:
    """To four figures, in the largest unit of which there is one at least."""
    for unit_bytes, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if amount_bytes >= unit_bytes:
            return f"{amount_bytes / unit_bytes:.4g}{gap}{unit}"
    return f"{amount_bytes:.0f}{gap}B"
