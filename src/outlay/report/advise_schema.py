"""The JSON schema of `outlay advise --json`."""

from __future__ import annotations

from typing import get_args

from outlay.advise.alternatives import Kind
from outlay.report.documents import SCHEMA
from outlay.report.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    list_of,
    or_null,
    record,
)


def advise_schema(option: Schema, estimate: Schema) -> Schema:
    """Advice, or the answer to one question; the other one is null.

    `option` and `estimate` are the schemas of `outlay plan`'s.
    """
    return record(
        schema={"const": SCHEMA},
        advice=or_null(_advice(_way(option, estimate))),
        answer=or_null(_answer()),
    )


def _advice(way: Schema) -> Schema:
    return record(
        purpose=or_null(TEXT),
        profile=TEXT,
        usage=record(
            said=TEXT,
            assumed=FLAG,
            hours_per_month=NUMBER,
            sessions_per_month=NUMBER,
            busy_fraction=NUMBER,
            counted_on=TEXT,
            samples_per_month=NUMBER,
        ),
        gpus=COUNT,
        months=NUMBER,
        budget_usd=or_null(NUMBER),
        chosen=or_null(way),
        ways=list_of(way),
        cards=list_of(way),
        break_even=list_of(_break_even()),
        rules=list_of(record(rule=TEXT, says=TEXT, holds=FLAG, because=TEXT)),
        caveats=TEXTS,
        avoid=list_of(record(card=_card(), by=_card(), times_as_fast=NUMBER)),
        upgrade=or_null(_upgrade()),
    )


def _way(option: Schema, estimate: Schema) -> Schema:
    return record(
        kind={"enum": list(get_args(Kind))},
        usd_per_month=estimate,
        upfront_usd=NUMBER,
        busy_hours_per_month=NUMBER,
        why_not=or_null(TEXT),
        card=or_null(_card()),
        option=option,
    )


def _card() -> Schema:
    return record(
        gpu=TEXT,
        condition={"enum": ["new", "used"]},
        price_usd=NUMBER,
        as_of=TEXT,
        source=TEXT,
    )


def _break_even() -> Schema:
    return record(
        buy=TEXT,
        against={"enum": list(get_args(Kind))},
        rent=TEXT,
        purchase_usd=NUMBER,
        resale_usd=NUMBER,
        owned_usd_per_hour=NUMBER,
        rented_usd_per_hour=NUMBER,
        hours=or_null(NUMBER),
        months=or_null(NUMBER),
        hours_per_day=or_null(NUMBER),
        buying_is_cheaper=FLAG,
        buying_wins_chance=NUMBER,
    )


def _upgrade() -> Schema:
    return record(
        small=_card(),
        big=_card(),
        after_months=NUMBER,
        at_once_usd=NUMBER,
        in_steps_usd=NUMBER,
        speed_ratio=NUMBER,
    )


def _answer() -> Schema:
    return record(
        topic=TEXT,
        question=TEXT,
        answer=TEXTS,
        figures=list_of({"type": "object", "additionalProperties": TEXT}),
        sources=TEXTS,
    )
