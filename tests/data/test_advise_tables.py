"""Card prices, purposes, answers and what advice takes for granted: cited, dated, derived right."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from statistics import median

import pytest

from outlay.advise.cards import ASKED, advise_assumptions
from outlay.advise.questions import TOPICS
from outlay.advise.request import purposes
from outlay.facts import rows_of
from outlay.hardware.gpus import gpus
from outlay.trace.store import bundled_profiles

YEAR_DAYS = 365


def test_card_prices_are_of_known_gpus_dated_cited_and_plausible():
    rows = rows_of("card_prices.csv")
    keys = [(row["gpu"], row["condition"], row["as_of"], row["value"]) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        date.fromisoformat(row["as_of"])
        assert row["condition"] in {"new", "used", "launch"}, row
        assert row["unit"] in ("USD", "EUR"), row
        assert row["unit"] == "USD" or "VAT" in row["note"], row
        assert row["source"].startswith("https://"), row
        assert 20 < float(row["value"]) < 60_000, row


def test_most_card_prices_are_of_gpus_we_know():
    known = gpus()
    unknown = {row["gpu"] for row in rows_of("card_prices.csv")} - set(known)
    assert unknown <= {"RX 9070 XT", "RTX 5060 Ti 8GB"}


def test_purposes_have_a_bundled_profile_and_a_source():
    assert len({one.name for one in purposes()}) == len(purposes())
    for one in purposes():
        assert one.profile in bundled_profiles()
        assert one.memory_least_bytes <= one.memory_better_bytes
        assert one.source.startswith("https://")
        date.fromisoformat(one.as_of)


def test_no_name_means_two_purposes():
    names = [name for one in purposes() for name in (one.name, *one.also)]
    assert len(set(names)) == len(names)


def test_answers_are_to_topics_there_are_and_cited():
    for row in rows_of("answers.csv"):
        date.fromisoformat(row["as_of"])
        assert row["topic"] in TOPICS, row
        assert row["answer"]
        assert row["source"] not in ("", "not found"), row
        if row["source"] == "guess":
            assert row["note"].startswith("guess: "), row


def test_credits_are_dated_and_cited():
    for row in rows_of("credits.csv"):
        date.fromisoformat(row["as_of"])
        assert not row["amount"] or row["source"].startswith("https://"), row


def test_what_is_taken_is_cited_derived_or_called_a_guess():
    for row in advise_assumptions().values():
        date.fromisoformat(row["as_of"])
        if row["source"] == "guess":
            assert row["note"].startswith("guess: "), row
        else:
            assert row["source"].startswith("https://") or "derived" in row["note"], row
        if row["low"]:
            assert float(row["low"]) <= float(row["value"]) <= float(row["high"]), row


def yearly_ratios(condition=None, since="2000-01-01"):
    """How much a card's newest price is of an older one, a year apart or more, for one year."""
    prices = defaultdict(list)
    for row in rows_of("card_prices.csv"):
        if row["condition"] == "launch" or "leftover" in row["note"] or row["as_of"] < since:
            continue
        if any(words in row["note"] for words in ASKED) or row["unit"] != "USD":
            continue  # asked and not paid, or with tax: that it differs is no drift
        if condition in (None, row["condition"]):
            day = date.fromisoformat(row["as_of"])
            prices[row["gpu"], row["condition"]].append((day, float(row["value"])))
    found = []
    for listed in prices.values():
        new_day, new = max(listed)
        for day, old in listed:
            years = (new_day - day).days / YEAR_DAYS
            if years >= 1:
                found.append((new / old) ** (1 / years))
    return sorted(found)


def test_drift_of_card_prices_is_what_the_table_shows():
    ratios, row = yearly_ratios(), advise_assumptions()["card_price_drift_per_year"]
    assert len(ratios) == 41
    assert float(row["low"]) == pytest.approx(ratios[4], abs=0.005)
    assert float(row["high"]) == pytest.approx(ratios[-5], abs=0.005)


def test_what_used_cards_keep_is_what_the_table_shows():
    ratios, row = (
        yearly_ratios("used", since="2022-12-01"),
        advise_assumptions()["used_card_keep_per_year"],
    )
    assert len(ratios) == 15
    assert float(row["value"]) == pytest.approx(median(ratios), abs=0.005)
    assert float(row["low"]) == pytest.approx(ratios[1], abs=0.005)
    assert float(row["high"]) == pytest.approx(ratios[-2], abs=0.005)


def test_used_by_new_is_what_the_table_shows():
    day = "2026-10-01"
    of_day = {
        (row["gpu"], row["condition"]): float(row["value"])
        for row in rows_of("card_prices.csv")
        if row["as_of"] == day
    }
    ratios = sorted(
        of_day[gpu, "used"] / of_day[gpu, "new"]
        for gpu, condition in of_day
        if condition == "new" and (gpu, "used") in of_day
    )
    row = advise_assumptions()["used_by_new"]
    assert len(ratios) == 5
    assert float(row["value"]) == pytest.approx(median(ratios), abs=0.005)
    assert float(row["low"]) == pytest.approx(ratios[0], abs=0.005)
    assert float(row["high"]) == pytest.approx(ratios[-1], abs=0.005)


def test_the_desktop_is_the_sum_of_its_parts():
    parts = (170.49, 159.99, 374.97, 121.99, 99.99, 84.99, 25.99)
    assert float(advise_assumptions()["desktop_rest"]["value"]) == pytest.approx(sum(parts), abs=1)
    # A board with two wide slots and 1200 W instead of 850 W
    more = (517.99 - 159.99) + (229.99 - 121.99)
    assert float(advise_assumptions()["desktop_more_per_gpu"]["value"]) == pytest.approx(
        more, abs=1
    )
