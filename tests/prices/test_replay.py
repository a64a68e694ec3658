"""Plans with the prices of then: StyleNAT in every month of the history, others in every sixth.

What must hold of each is worked out from the table of past prices itself, read here once more: the
price of the choice stands in that month's list, nothing is of a later day, the bill adds up.

Examples that look at all offers take long: they are replayed in every eighteenth month, and in
every sixth with OUTLAY_TEST_STORIES=all.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import outlay
from outlay.errors import InputError
from outlay.facts import rows_of
from outlay.offers.offer import CHEAPEST_REGION
from outlay.plan.from_measurement import profile_for
from outlay.report.documents import plan_document

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    *sorted((ROOT / "examples" / "stories").glob("*.toml")),
    ROOT / "examples" / "stylenat_quotes.toml",
]
SLOW = {"2_thesis_today", "4_two_hours_today", "5_desks_today", "6_lab_today"}
"""Those that look at all offers."""
ALL = os.environ.get("OUTLAY_TEST_STORIES") == "all"
HOPPER = "2023-03"
"""The month in which the first cloud sold an H100."""


@cache
def listed():
    """The rows of the history by month, provider and instance."""
    rows = {}
    for row in rows_of("price_history.csv.gz"):
        rows.setdefault((row["month"], row["provider"], row["instance"]), []).append(row)
    return rows


MONTHS = sorted({month for month, _, _ in listed()})
profile = cache(profile_for)
"""One object for one step, so that its predictions are made once for all months."""


def replayed(file, month):
    """The plan of a workload with the prices of a month, after what holds of every such plan."""
    workload = outlay.read_workload(file)
    prices = outlay.past_prices(month)
    plan = outlay.plan_workload(workload, profile(workload.step), prices=prices, today="2026-11-17")
    assert plan.today == prices.day
    assert prices.day[:7] == month
    for option in plan.options:
        if not option.offer.quoted:
            assert option.offer.seen_on(option.tenancy) <= prices.day
            assert (month, option.offer.provider, option.offer.instance) in listed()
            assert option.offer.gpu[:4] != "H100" or month >= HOPPER
    if plan.chosen is None:
        assert all(option.why_not for option in plan.options)
    else:
        holds_of_the_choice(plan, month)
    return plan


def holds_of_the_choice(plan, month):
    chosen, offer = plan.chosen, plan.chosen.offer
    lines = chosen.cost.breakdown.lines
    assert chosen.usd == pytest.approx(sum(float(line.usd) for line in lines))
    assert chosen.feasible
    assert not chosen.doubts
    if offer.quoted or offer.owned is not None:
        return
    column = "spot_usd_hour" if chosen.tenancy == "spot" else "price_usd_hour"
    rows = listed()[month, offer.provider, offer.instance]
    prices = [float(row[column]) for row in rows if row[column]]
    assert offer.hourly_usd(chosen.tenancy) in prices
    assert offer.region == CHEAPEST_REGION
    assert offer.as_of in [row["as_of"] for row in rows]
    rate, quote = chosen.price_usd_per_hour, offer.hourly_usd(chosen.tenancy)
    assert rate.low <= quote * 1.0001
    assert quote <= rate.high * 1.0001
    # What machines are held for is paid at that rate; steps of billing, discounts and storage are
    # lines of their own.
    parts = [name for name, _ in chosen.run.time_parts_s]
    held_h = chosen.busy_s / 3600 * chosen.step.placement.nodes
    paid = float(chosen.cost.breakdown.line_usd(*parts))
    assert paid == pytest.approx(held_h * rate.likely, rel=1e-3)


@pytest.mark.parametrize("year", sorted({month[:4] for month in MONTHS}))
def test_stylenat_in_every_month(year):
    months = [month for month in MONTHS if month.startswith(year)]
    assert months
    for month in months:
        plan = replayed(ROOT / "examples" / "stylenat.toml", month)
        # A student with $2,000 and two weeks would always have found a machine.
        assert plan.chosen is not None, month
        assert plan.chosen.usd < 2000
        assert plan.chosen.busy_s < 14 * 86400
        assert plan.chosen.offer.owned is None


def test_the_history_has_fifty_months():
    assert (len(MONTHS), MONTHS[0], MONTHS[-1]) == (50, "2022-07", "2026-08")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_other_examples_in_every_sixth_month(file):
    for month in MONTHS[:: 18 if file.stem in SLOW and not ALL else 6]:
        if not sold_then(file, month):
            with pytest.raises(InputError, match="matches no offer among the prices of"):
                replayed(file, month)
            continue
        replayed(file, month)


def sold_then(file, month):
    """Whether the history has any provider that a workload asks for."""
    wanted = outlay.read_workload(file).consider.providers
    sellers = {provider for then, provider, _ in listed() if then == month}
    return not wanted or bool(sellers & set(wanted))


def test_the_document_says_whose_prices_and_how_old():
    plan = replayed(ROOT / "examples" / "stylenat.toml", "2022-09")
    document = plan_document(plan, "StyleNAT")
    # Of September 2022 only GCP's list is known, which had not changed since 2022-08-22: 39 days
    assert (document.prices.as_of, document.prices.age_days) == ("2022-08-22", 39)
    assert (document.prices.kind, document.prices.name) == ("past", "the prices of 2022-09-30")
    assert document.chosen.price_as_of == "2022-08-22"


def test_a_dearer_month_makes_the_same_machine_dearer():
    # Lambda's 1x A10 in 2024-02 ($0.75) and 2026-08 ($1.29): the same work at another price
    costs = {}
    for month in ("2024-02", "2026-08"):
        plan = replayed(ROOT / "examples" / "stylenat.toml", month)
        (option,) = [one for one in plan.options if one.offer.instance == "gpu_1x_a10"]
        (row,) = listed()[month, "lambda", "gpu_1x_a10"]
        costs[month] = option.usd / float(row["price_usd_hour"])
    assert costs["2024-02"] == pytest.approx(costs["2026-08"], rel=0.02)
