"""The prices of a plan: as old as they are on the day, expected rather than quoted, and doubted."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest

from outlay.offers.catalog import snapshot_date
from outlay.plan.pipeline import plan_workload
from outlay.report.documents import option_document, plan_document
from outlay.workload.workload import Length, Selection, Step, Workload

SOON, YEAR_LATER = "2026-11-16", "2027-11-16"
WORKLOAD = Workload(
    name="L4 and RTX PRO 6000",
    step=Step(profile="resnet50"),
    length=Length(samples=100_000_000),
    consider=Selection(gpus=("L4", "RTX PRO 6000"), providers=("aws", "gcp", "runpod")),
)


@pytest.fixture(scope="module")
def plans():
    """The same files on the day of the snapshot, some weeks later, and a year after that."""
    return {day: plan_workload(WORKLOAD, today=day) for day in (snapshot_date(), SOON, YEAR_LATER)}


def widths(plan):
    """How wide the range of each sound option's price is, by offer and tenancy."""
    return {
        (*option.offer.identity, option.tenancy): price.high / price.low
        for option in plan.options
        if (price := option.price_usd_per_hour) is not None and price.low > 0
    }


def test_age_widens_ranges_and_never_empties_the_answer(plans):
    by_day = [widths(plans[day]) for day in (snapshot_date(), SOON, YEAR_LATER)]
    for younger, older in pairwise(by_day):
        shared = younger.keys() & older.keys()
        assert len(shared) > 100
        wider = [key for key in shared if older[key] > younger[key] * (1 + 1e-9)]
        # What is bounded on both sides, by the floor and by on-demand, cannot widen any more.
        assert len(wider) > 0.8 * len(shared)
    assert all(plan.chosen is not None for plan in plans.values())


def test_a_year_ahead_the_plan_is_less_sure_and_says_so(plans):
    later = plan_document(plans[YEAR_LATER], "later")
    days = (date.fromisoformat(YEAR_LATER) - date.fromisoformat(snapshot_date())).days
    assert later.prices.as_of == snapshot_date()
    assert later.prices.age_days == days
    expected = "expected during the run"
    assert any("days ago" in sentence and expected in sentence for sentence in later.rests_on)
    sooner = plan_document(plans[SOON], "sooner")
    assert sooner.prices.age_days == days - 365
    spread = {}
    for name, document in (("sooner", sooner), ("later", later)):
        chosen = document.chosen
        assert chosen is not None
        assert chosen.cost_usd is not None
        spread[name] = chosen.cost_usd.high / chosen.cost_usd.low
    assert spread["later"] > spread["sooner"]


def test_a_launch_floor_is_doubted_and_not_chosen(plans):
    plan = plans[SOON]
    floor = next(
        option
        for option in plan.options
        if option.offer.identity == ("aws", "g7e.2xlarge", "ap-south-1")
        and option.tenancy == "spot"
    )
    document = option_document(floor)
    # 10.00 % of $5.49303 on demand, seen on one day, its type's other zones at 27 to 100 %.
    assert document.quoted_usd_per_hour == pytest.approx(0.5493)
    assert document.doubts[:3] == ("floor", "far below usual", "no history")
    assert document.price_seen_first == "2026-08-22"
    assert not floor.sound
    assert plan.chosen is not floor
    # What is expected of it is far above its quote: its bill at the quote is the likely one less
    # what the price is expected to rise by.
    assert document.expected_cost_usd is not None
    assert floor.price_usd_per_hour is not None
    at_quote = floor.usd * 0.5493 / floor.price_usd_per_hour.likely
    assert document.expected_cost_usd > 2 * at_quote


def test_the_bill_is_computed_with_the_expected_price(plans):
    for option in plans[SOON].options:
        if option.tenancy != "spot" or option.cost is None:
            continue
        assert option.run is not None
        assert option.price_usd_per_hour is not None
        hours = float(option.run.training_s) / 3600
        compute = next(line for line in option.cost.breakdown.lines if line.name == "compute")
        assert compute.usd == pytest.approx(hours * option.price_usd_per_hour.likely)
        document = option_document(option)
        assert document.price_usd_per_hour == option.price_usd_per_hour.likely
        assert document.quoted_usd_per_hour == option.offer.spot_usd_per_hour
        assert sum(line.usd for line in document.lines) == pytest.approx(option.usd)
