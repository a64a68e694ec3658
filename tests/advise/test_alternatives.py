"""Which way an option is, what it costs a month, and what speaks against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.builders import an_offer

from outlay.advise import alternatives
from outlay.advise.alternatives import (
    DRAWS,
    alternatives_of,
    kind_of,
    monthly_plan,
    monthly_usd,
    objections,
    upfront_usd,
)
from outlay.advise.caveats import caveats_of
from outlay.advise.machines import cards_for_sale, gpus_worth_renting, reference_of
from outlay.advise.request import AdviceRequest, find_purpose, monthly_use
from outlay.offers import candidates, price_book
from outlay.plan.option import draws_of
from outlay.plan.pipeline import plan_workload
from outlay.trace.store import find_profile
from outlay.uncertainty import PERCENTILE_90, OneAtLevel
from outlay.workload.workload import Length, Step, Workload

TODAY = "2026-11-15"


@pytest.fixture(scope="module")
def first_steps():
    """First steps of two hours a day, counted on a T4, with everything there is."""
    purpose = find_purpose("first steps")
    asked = AdviceRequest(
        profile=find_profile(purpose.profile),
        use=monthly_use("2h/day"),
        months=24,
        today=TODAY,
        purpose=purpose,
        hours_on="T4",
        budget_usd=2000,
    )
    cards = cards_for_sale(asked)
    plan = monthly_plan(asked, cards, reference_of(asked, cards).samples_per_month)
    return asked, plan, alternatives_of(plan, asked, cards)


def test_each_kind_is_there_once_and_the_cheapest_first(first_steps):
    _, _, ways = first_steps
    kinds = [way.kind for way in ways]
    assert len(set(kinds)) == len(kinds)
    assert {"buy used", "buy new", "on demand", "spot", "free notebook"} <= set(kinds)
    able = [way.expected_usd_per_month for way in ways if way.why_not is None]
    assert able == sorted(able)


def test_all_ways_do_the_same_work(first_steps):
    _, _, ways = first_steps
    amounts = {round(way.option.samples) for way in ways}
    assert len(amounts) == 1


def test_free_hours_are_chosen_where_a_notebook_will_do(first_steps):
    _, _, ways = first_steps
    assert ways[0].kind == "free notebook"
    assert ways[0].usd_per_month.likely == 0
    assert ways[0].busy_hours < 30 * 30 / 7  # 30 h a week


def test_a_month_of_a_purchase_is_a_share_of_the_months(first_steps):
    _, _, ways = first_steps
    way = next(way for way in ways if way.kind == "buy used")
    owned, cost = way.option.offer.owned, way.option.cost
    lost = owned.purchase_usd.likely * (1 - owned.resale_fraction.likely)
    electricity = float(cost.breakdown.line_usd("electricity"))
    # (purchase - resale) / 24 months + electricity
    assert way.usd_per_month.likely == pytest.approx(lost / 24 + electricity)


def test_a_slow_machine_is_bought_once_all_the_same(first_steps):
    """The speed moves a month's electricity, not its share of the purchase."""
    asked, _, ways = first_steps
    option = next(way for way in ways if way.kind == "buy used").option
    slow = OneAtLevel(f"speed: {option.offer.gpu}", PERCENTILE_90)
    run, _ = option.drawn(slow)
    assert run.busy_s > 1.1 * option.busy_s
    electricity = float(option.cost.breakdown.line_usd("electricity"))
    bought = option.usd - electricity
    expected = bought + electricity * run.busy_s / option.busy_s
    assert float(monthly_usd(option, asked.months, slow)) == pytest.approx(expected)


def test_a_purse_too_small_for_a_purchase_says_so(first_steps):
    asked, plan, _ = first_steps
    poor = replace(asked, budget_usd=500)
    bought = next(
        way for way in alternatives_of(plan, poor, cards_for_sale(poor)) if way.kind == "buy used"
    )
    assert "over the budget of $500" in bought.why_not


def test_a_term_paid_upfront_is_paid_at_once(first_steps):
    asked, plan, _ = first_steps
    terms = [one for one in plan.options if one.tenancy == "reserved" and one.cost is not None]
    whole = next(one for one in terms if one.offer.commitment.upfront_fraction == 1)
    term_h = whole.offer.commitment.term_s / 3600
    paid = whole.offer.hourly_usd("reserved") * term_h
    assert upfront_usd(whole) == pytest.approx(paid)
    small = replace(asked, budget_usd=0.5 * paid)
    assert f"${paid:,.0f} at once is over the budget" in " ".join(objections(whole, small))
    as_one_goes = next(one for one in terms if one.offer.commitment.upfront_fraction == 0)
    assert upfront_usd(as_one_goes) == 0


def test_notebooks_are_not_for_every_purpose(first_steps):
    asked, plan, _ = first_steps
    vision = replace(asked, purpose=find_purpose("computer vision"))
    free = next(way for way in alternatives_of(plan, vision, ()) if way.kind == "free notebook")
    assert free.why_not == "a notebook in the browser only"


# AMD, as a plan has it and as advice has it


@pytest.fixture
def few_offers(monkeypatch):
    """An AMD GPU, an NVIDIA one that costs a little more, and one that PyTorch left behind."""
    offers = (
        an_offer("runpod", "amd", gpu="MI300X", usd=1.0, as_of=TODAY),
        an_offer("runpod", "nvidia", gpu="H100 SXM", usd=1.2, as_of=TODAY),
        an_offer("runpod", "ended", gpu="MI50 32GB", usd=0.1, as_of=TODAY),
    )
    for module in (price_book, candidates):
        monkeypatch.setattr(module, "bundled_offers", lambda *_: offers)


def rented(**changes):
    return AdviceRequest(
        profile=find_profile("resnet50"),
        use=monthly_use("2h/day"),
        months=24,
        today=TODAY,
        hours_on="T4",
        **changes,
    )


def test_plan_and_advice_look_at_the_same_gpus(few_offers):
    workload = Workload(name="one", step=Step(), length=Length(samples=1e7))
    plan = plan_workload(workload, find_profile("resnet50"), today=TODAY)
    sound = {option.offer.gpu for option in plan.options if option.sound}
    assert sound == set(gpus_worth_renting(rented())) == {"MI300X", "H100 SXM"}
    assert gpus_worth_renting(rented(amd=False)) == ("H100 SXM",)


def test_advice_on_amd_says_that_it_was_never_measured(few_offers):
    plan = monthly_plan(rented(), (), 1e7)
    way, *_ = alternatives_of(plan, rented(), ())
    by_gpu = {option.offer.gpu: option for option in plan.options}
    assert any("never measured" in note for note in by_gpu["MI300X"].notes)
    assert not any("never measured" in note for note in by_gpu["H100 SXM"].notes)
    unknown = replace(way, option=by_gpu["MI300X"])
    said = list(caveats_of(unknown, None, rented()))
    assert any(text.startswith("MI300X: never measured") for text in said)
    assert any("ROCm" in text for text in said)


def test_ways_are_compared_by_their_mean(first_steps):
    asked, plan, ways = first_steps
    for way in ways:
        if way.kind not in ("on demand", "spot") or way.why_not is not None:
            continue
        rivals = [
            option
            for option in plan.options
            if kind_of(option) == way.kind and option.sound and option.cost is not None
        ]
        means = [np.mean(monthly_usd(option, asked.months, draws_of(DRAWS))) for option in rivals]
        assert way.expected_usd_per_month == pytest.approx(min(means))


# --- what was never measured ---


def month_of(way, usd, *, checked, strays=0.0):
    """An alternative at so many dollars a month, whose simulated months stray evenly around it."""
    step = replace(way.option.step, is_checked=checked)
    months = usd + strays * np.linspace(-1, 1, 1001)
    return replace(
        way,
        option=replace(way.option, step=step),
        expected_usd_per_month=usd,
        drawn_usd_per_month=months,
        why_not=None,
    )


@pytest.mark.parametrize(
    ("usd", "strays", "leads"),
    [
        # $40 of $100 saved, in all months: clearly cheaper.
        (60, 10, "unmeasured"),
        # $4 of $100 saved: less than 5 % and less than $5.
        (96, 0, "measured"),
        # $10 saved on average, but dearer wherever it strays by more than a tenth of 100: it is
        # cheaper in 55 % of the months, (100 + 10) / 200.
        (90, 100, "measured"),
    ],
)
def test_what_was_never_measured_leads_only_where_it_is_clearly_cheaper(
    first_steps, usd, strays, leads
):
    way = first_steps[2][0]
    measured = month_of(way, 100, checked=True)
    unmeasured = month_of(way, usd, checked=False, strays=strays)
    first, *_ = alternatives._measured_first([unmeasured, measured])
    assert first is {"measured": measured, "unmeasured": unmeasured}[leads]
    assert alternatives._goes_before(unmeasured, measured) is (leads == "unmeasured")
    assert alternatives._goes_before(measured, unmeasured) is (leads == "measured")
