"""What the choice of a plan rests on: one sentence for each reason to look twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import (
    a_cost,
    a_doubt,
    a_gpu,
    a_plan,
    a_profile,
    a_step,
    a_workload,
    an_offer,
    an_option,
)

from outlay.cost.lines import Breakdown, Cost, Line, UnpricedItem
from outlay.offers.offer import OwnedMachine
from outlay.predict.evidence import MeasuredStep
from outlay.report.rests_on import rests_on
from outlay.trace.profile import PublishedBatch
from outlay.workload.workload import Length, Step

PRICE, SPEED = "Price seen 2026-01-01.", "Speed predicted, not measured on Card."


def said(option, *, today="", step=None, length=None, published=None, measured=()):
    """All sentences about the only option of a plan."""
    workload = a_workload(
        step=step or Step(profile="made up", batch_size=10), length=length or Length(samples=1000)
    )
    profile = replace(a_profile(), published=published)
    return rests_on(
        a_plan(option, today=today, workload=workload, profile=profile, measured=measured)
    )


def at_batch(batch_size, *, gpus=1, fits=None):
    """An option that trains at a batch; `fits` is the largest that would."""
    step = replace(a_step(batch_size=batch_size, gpus=gpus), max_batch_size=fits or batch_size)
    return replace(an_option(10), step=step)


def batch_said(option, **more):
    """What is said of its batch, where anything is."""
    return [sentence for sentence in said(option, **more) if sentence.startswith("Batch")]


# --- price ---


def test_the_price_has_its_date_and_its_age():
    # January has 31 days, February 28
    assert said(an_option(10), today="2026-03-02") == ["Price seen 2026-01-01, 60 days ago.", SPEED]
    assert said(an_option(10), today="2026-01-02")[0] == "Price seen 2026-01-01, 1 day ago."
    assert said(an_option(10), today="2027-03-02")[0].endswith(", 425 days ago.")


@pytest.mark.parametrize("today", ["", "2026-01-01", "2025-06-01"])
def test_no_age_is_made_up_where_the_day_is_not_after_it(today):
    assert said(an_option(10), today=today)[0] == PRICE


def test_a_spot_price_is_called_one():
    spot = an_option(10, tenancy="spot", offer=an_offer(spot_usd=1.0))
    assert said(spot)[0] == "Spot price seen 2026-01-01."


def test_a_quote_is_the_user_s_and_without_a_date_taken_as_today_s():
    dated = an_option(10, offer=an_offer(quoted=True))
    assert said(dated, today="2026-01-11")[0] == ("Price quoted to you on 2026-01-01, 10 days ago.")
    undated = an_option(10, offer=an_offer(quoted=True, as_of="2026-05-05"))
    assert said(undated, today="2026-05-05")[0] == "Price quoted to you, taken as today's."


def test_what_is_marked_at_the_chosen_price_is_seen():
    notes = (
        a_doubt("second-hand", kind="note", about="price"),
        a_doubt("ram fixed", kind="note", about="machine"),
        a_doubt("spot in some zones", kind="note", about="spot"),
    )
    assert said(an_option(10, doubts=notes))[0] == ('Price seen 2026-01-01, marked "second-hand".')


def test_a_caution_at_the_choice_is_seen_should_it_be_chosen():
    plan = a_plan(an_option(10, doubts=(a_doubt("local zone", about="price"),)))
    taken = replace(plan, chosen=plan.options[0])
    assert rests_on(taken)[0] == 'Price seen 2026-01-01, marked "local zone".'


def test_one_s_own_machine_has_no_price_and_no_quota():
    owned = OwnedMachine(electricity_usd_per_kwh=0.3, host_w=100)
    own = an_option(1, tenancy="owned", offer=an_offer("aws", usd=None, owned=owned))
    assert said(own) == [SPEED]


# --- speed ---


def test_a_kind_of_gpu_that_was_never_measured_is_said():
    step = replace(a_step(gpu=a_gpu(architecture="Blackwell")), is_checked=False)
    (_, speed) = said(replace(an_option(10), step=step))
    assert speed == (
        "Speed from the datasheet alone: no Blackwell GPU was ever measured against its prediction."
    )


def test_a_measured_step_is_said_to_be_one():
    step = replace(a_step(), time_from="measured")
    assert said(replace(an_option(10), step=step))[1] == "Speed measured."


def test_of_equal_hours_neither_speed_nor_batch_is_asked():
    length = Length(training_s=3600.0, hours_are_equal=True)
    assert said(at_batch(64, gpus=8), length=length) == [PRICE]


# --- quota ---


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_quota_that_new_accounts_have_to_ask_for(provider):
    quota = f"Quota: a new account at {provider} has to ask for GPUs first."
    assert quota in said(an_option(10, offer=an_offer(provider)))


def test_no_word_of_quota_where_none_is_asked_for_or_nothing_is_known():
    for provider in ("runpod", "acme"):
        assert said(an_option(10, offer=an_offer(provider))) == [PRICE, SPEED]


# --- batch ---

OPEN = Step(profile="made up", batch_left_open=True)
FULL = Step(profile="made up")
EIGHT = PublishedBatch(per_gpu=8, where="a paper")
TOGETHER = PublishedBatch(per_gpu=32, global_batch_size=256, where="a paper")


def test_a_batch_held_to_the_published_one_and_what_would_fit():
    assert batch_said(at_batch(8, fits=31), step=OPEN, published=EIGHT) == [
        "Batch 8, as published (a paper); 31 would fit: step.max_batch_size."
    ]


def test_several_gpus_at_the_published_batch_say_what_they_make_together():
    # 8 x 8 = 64
    assert batch_said(at_batch(8, gpus=8, fits=59), step=OPEN, published=EIGHT) == [
        (
            "Batch 8 per GPU (64 in each update), as published (a paper); 59 would fit: "
            "step.max_batch_size."
        )
    ]


def test_fewer_gpus_take_the_batch_that_was_spread_over_more():
    # 256 in one update: 128 on each of two
    assert batch_said(at_batch(128, gpus=2), step=OPEN, published=TOGETHER) == [
        "Batch 128 per GPU (256 in each update), as published (a paper)."
    ]


def test_a_batch_far_above_the_published_one_is_another_training():
    # 59 / 8 = 7.4; 59 x 8 = 472
    assert batch_said(at_batch(59, gpus=8), step=FULL, published=EIGHT) == [
        (
            "Batch 59 per GPU (472 in each update) is 7.4x the published 8 per GPU (a paper): "
            "results and the right learning rate may differ; step.max_batch_size limits it."
        )
    ]
    given = Step(profile="made up", batch_size=472)
    (told,) = batch_said(at_batch(472), step=given, published=EIGHT)
    assert told.startswith("Batch 472 is 59x the published 8 per GPU")


def test_a_batch_below_the_published_one_is_all_that_fits():
    assert batch_said(at_batch(6), step=OPEN, published=EIGHT) == [
        "Batch 6 is the largest that fits, below the published 8 per GPU (a paper)."
    ]
    assert batch_said(at_batch(100), step=FULL, published=TOGETHER) == [
        "Batch 100 is the largest that fits, below the published 256 in each update (a paper)."
    ]


def test_a_batch_far_above_the_measured_one():
    measured = (MeasuredStep(gpu=a_gpu(), batch_size=8, step_s=1.0),)
    assert batch_said(at_batch(472), step=FULL, measured=measured) == [
        (
            "Batch 472 is 59x the measured 8: results and the right learning rate may differ; "
            "step.max_batch_size limits it."
        )
    ]
    (near,) = batch_said(at_batch(32), step=FULL, measured=measured)  # four times is not far
    assert near.startswith("Batch 32 is the largest that fits")


def test_a_user_s_own_step_at_the_largest_batch_says_that_results_hang_on_it():
    assert batch_said(at_batch(472), step=FULL) == [
        (
            "Batch 472 is the largest that fits; results and the right learning rate depend "
            "on it: step.max_batch_size limits it."
        )
    ]


def test_a_batch_that_was_given_needs_no_word_on_one_gpu():
    given = Step(profile="made up", batch_size=64)
    assert batch_said(at_batch(64), step=given) == []
    # 64 x 8 = 512
    assert batch_said(at_batch(64, gpus=8), step=given) == [
        "Batch 64 per GPU (512 in each update)."
    ]
    kept = Step(profile="made up", global_batch_size=512)
    assert batch_said(at_batch(64, gpus=8), step=kept, published=EIGHT) == []


# --- bill ---


def test_what_of_the_bill_is_unknown_is_named_with_what_it_usually_costs():
    cost = Cost(
        breakdown=Breakdown(lines=(Line(name="compute", usd=10.0),)),
        unpriced=(
            UnpricedItem(what="storage at acme: no price known", usual_usd=3.0),
            UnpricedItem(what="transfer out of depot: no price known", usual_usd=1.5),
        ),
    )
    assert said(an_option(cost=cost))[-1] == (
        "Not in the bill, as no price is known: storage, transfer out of depot (usually $4.50 "
        "more)."
    )
    assert said(an_option(cost=a_cost(10, unknown=("egress",))))[-1] == (
        "Not in the bill, as no price is known: egress."
    )


def test_without_a_choice_nothing_is_said():
    assert rests_on(a_plan(an_option(None))) == []
