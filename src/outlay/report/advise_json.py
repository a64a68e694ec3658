"""`outlay advise --json`: advice and answers as documents."""

from __future__ import annotations

from outlay.advise.avoid import Beaten
from outlay.advise.cards import Card
from outlay.advise.questions import Answer
from outlay.advise.upgrade import Upgrade
from outlay.advise.verdict import Advice, TurningPoint
from outlay.advise.ways import Way
from outlay.report.json import SCHEMA, Document, estimate_document, option_document


def advice_document(advice: Advice) -> Document:
    """`outlay advise --json`."""
    return {"schema": SCHEMA, "advice": _advice(advice), "answer": None}


def answer_document(answer: Answer) -> Document:
    """`outlay advise --ask TOPIC --json`."""
    return {"schema": SCHEMA, "advice": None, "answer": _answer(answer)}


def _advice(advice: Advice) -> Document:
    """Everything `print_advice` says, in plain figures."""
    asked, use, chosen = advice.asked, advice.asked.use, advice.chosen
    return {
        "purpose": asked.purpose.name if asked.purpose else None,
        "profile": asked.profile.name,
        "usage": {
            "said": use.said,
            "assumed": use.assumed,
            "hours_per_month": use.hours_per_month,
            "sessions_per_month": use.sessions_per_month,
            "busy_fraction": use.busy_fraction,
            "counted_on": advice.reference.gpu,
            "samples_per_month": advice.reference.samples_per_month,
        },
        "gpus": asked.gpus,
        "months": asked.months,
        "budget_usd": asked.budget_usd,
        "chosen": None if chosen is None else _way(chosen),
        "ways": [_way(way) for way in advice.ways],
        "cards": [_way(way) for way in advice.cards],
        "break_even": [_turning_point(one) for one in advice.turning_points],
        "rules": [
            {"rule": one.rule, "says": one.says, "holds": one.holds, "because": one.because}
            for one in advice.rules
        ],
        "caveats": list(advice.caveats),
        "avoid": [_beaten(one) for one in advice.beaten],
        "upgrade": None if advice.upgrade is None else _upgrade(advice.upgrade),
    }


def _way(way: Way) -> Document:
    return {
        "kind": way.kind,
        "usd_per_month": estimate_document(way.usd_per_month),
        "upfront_usd": way.upfront_usd,
        "busy_hours_per_month": way.busy_hours,
        "why_not": way.why_not,
        "card": None if way.card is None else _card(way.card),
        "option": option_document(way.option),
    }


def _card(card: Card) -> Document:
    return {
        "gpu": card.gpu.name,
        "condition": card.condition,
        "price_usd": card.seen_usd,
        "as_of": card.as_of,
        "source": card.source,
    }


def _turning_point(point: TurningPoint) -> Document:
    return {
        "buy": point.buy.option.offer.instance,
        "against": point.rent.kind,
        "rent": f"{point.rent.option.offer.provider} {point.rent.option.offer.instance}",
        "purchase_usd": point.even.purchase_usd,
        "resale_usd": point.even.resale_usd,
        "owned_usd_per_hour": point.even.owned_usd_per_hour,
        "rented_usd_per_hour": point.even.rented_usd_per_hour,
        "hours": point.hours,
        "months": point.months,
        "hours_per_day": point.hours_per_day,
        "buying_is_cheaper": point.buying_is_cheaper,
        "buying_wins_chance": point.buying_wins,
    }


def _beaten(one: Beaten) -> Document:
    return {"card": _card(one.card), "by": _card(one.by), "times_as_fast": one.times_as_fast}


def _upgrade(path: Upgrade) -> Document:
    return {
        "small": _card(path.small),
        "big": _card(path.big),
        "after_months": path.after_months,
        "at_once_usd": path.at_once_usd,
        "in_steps_usd": path.in_steps_usd,
        "speed_ratio": path.speed_ratio,
    }


def _answer(answer: Answer) -> Document:
    figures = answer.figures
    return {
        "topic": answer.topic,
        "question": answer.question,
        "answer": list(answer.words),
        "figures": []
        if figures is None
        else [dict(zip(figures.heads, row, strict=True)) for row in figures.rows],
        "sources": list(answer.sources),
    }
