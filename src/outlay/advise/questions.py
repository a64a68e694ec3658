"""A question people ask and its answer: words, figures in a table, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from outlay.facts import rows_of

USUAL_PROFILE = "resnet50"
"""What questions about speed are answered on."""
UNKNOWN = "unknown: no source was found for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionContext:
    """What a question is asked about."""

    today: str
    profile: str = USUAL_PROFILE
    size_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A table: heads and rows, as they are read."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    drop: tuple[str, ...] = ()
    """Columns to leave out first where the width does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One row of `data/answers.csv`."""

    answer: str
    value: float | None
    unit: str
    source: str
    as_of: str
    note: str

    @property
    def cited(self) -> str:
        """Its source and day."""
        return f"{self.source}, {self.as_of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What can be said to a question; `words` begin with the answer itself."""

    topic: str
    question: str
    words: tuple[str, ...]
    figures: Figures | None = None
    sources: tuple[str, ...] = ()


@cache
def answer_row(topic: str) -> tuple[AnswerRow, ...]:
    """What sources say to a topic."""
    return tuple(
        AnswerRow(
            answer=row["answer"],
            value=float(row["value"]) if row["value"] else None,
            unit=row["unit"],
            source=row["source"],
            as_of=row["as_of"],
            note=row["note"],
        )
        for row in rows_of("answers.csv")
        if row["topic"] == topic
    )


def quoted(topic: str) -> tuple[str, ...]:
    """The answers of a topic as sentences; that nothing is known where there are none."""
    return tuple(_sentences(topic)) or (f"{UNKNOWN[0].upper()}{UNKNOWN[1:]}.",)


def _sentences(topic: str) -> Iterator[str]:
    for one in answer_row(topic):
        figure = f": {one.value:g} {one.unit}" if one.value is not None and not _in(one) else ""
        yield f"{one.answer}{figure}{_remark(one)}."


def _in(one: AnswerRow) -> bool:
    """Whether the sentence has its figure already, or the figure is a derived one."""
    return "derived" in one.note or f"{one.value:g}" in one.answer or one.unit == "count"


def _remark(one: AnswerRow) -> str:
    return f" ({one.note})" if one.note else ""


def sources_of(topic: str) -> tuple[str, ...]:
    """Where the answers of a topic come from, each once."""
    return tuple(dict.fromkeys(one.cited for one in answer_row(topic)))
