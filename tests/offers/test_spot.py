from __future__ import annotations

import math

import pytest
from tests.builders import a_fact, an_offer, span

from outlay.facts import assumptions
from outlay.offers import spot
from outlay.offers.spot import hazard_per_month, spot_risk
from outlay.offers.terms import Terms

SEEN = {"as_of": "2026-01-01", "source": "advisor"}


@pytest.fixture
def advised(monkeypatch):
    """An advisor that knows two instances, and a provider that states a rate."""
    buckets = {
        ("acme", "calm", "moon"): SEEN
        | {"low_fraction_per_month": "0.05", "high_fraction_per_month": "0.10"},
        ("acme", "wild", "moon"): SEEN
        | {"low_fraction_per_month": "0.20", "high_fraction_per_month": ""},
    }
    terms = Terms(
        provider="stated",
        name="stated",
        spot_interruptions_per_month=2,
        facts={"spot_interruption_rate": a_fact(2, source="its page")},
    )
    monkeypatch.setattr(spot, "_interruption_rows", lambda: buckets)
    monkeypatch.setattr(
        spot, "terms_of", lambda name: terms if name == "stated" else Terms(provider=name, name="")
    )


@pytest.mark.parametrize(
    ("share", "rate"),
    [
        (0.0, 0.0),
        # exp(-0.05129) = 0.95 are left after a month
        (0.05, 0.05129),
        # ln(5 / 4) = 0.22314
        (0.20, 0.22314),
        # ln 2: half of them are left
        (0.5, 0.69315),
    ],
)
def test_a_share_of_instances_interrupted_in_a_month_is_a_hazard_of_running(share, rate):
    assert hazard_per_month(share) == pytest.approx(rate, abs=5e-6)
    assert math.exp(-hazard_per_month(share)) == pytest.approx(1 - share)


@pytest.mark.usefixtures("advised")
def test_risk_of_an_advised_instance_is_the_hazard_of_its_bucket():
    risk = spot_risk(an_offer("acme", "calm", region="moon"))
    # 5 to 10 %, 7.5 % in the middle: ln(1 / 0.95), ln(1 / 0.925), ln(1 / 0.9)
    rate = risk.interruptions_per_month
    assert (rate.low, rate.likely, rate.high) == pytest.approx(
        (0.05129, 0.07796, 0.10536), abs=5e-6
    )
    assert risk.source == "advisor, 2026-01-01"
    assert not risk.is_assumption


@pytest.mark.usefixtures("advised")
def test_risk_of_the_open_bucket_ends_at_twice_its_beginning():
    rate = spot_risk(an_offer("acme", "wild", region="moon")).interruptions_per_month
    # "more than 20 %" is taken as 20 to 40 %, 30 % in the middle: ln(1/0.8), ln(1/0.7), ln(1/0.6)
    assert (rate.low, rate.likely, rate.high) == pytest.approx(
        (0.22314, 0.35667, 0.51083), abs=5e-6
    )


@pytest.mark.usefixtures("advised")
def test_risk_is_of_one_region():
    assert spot_risk(an_offer("acme", "calm", region="mars")).is_assumption


@pytest.mark.usefixtures("advised")
def test_risk_a_provider_states_is_known_within_a_factor_of_two():
    risk = spot_risk(an_offer("stated", "box"))
    assert risk.interruptions_per_month == span(1, 2, 4)
    assert risk.source == "its page, 2026-01-01"
    assert not risk.is_assumption


@pytest.mark.usefixtures("advised")
def test_risk_of_anybody_else_is_assumed_and_says_so():
    rate = assumptions()["spot_interruptions_per_month_default"].number
    risk = spot_risk(an_offer("nobody", "box"))
    assert risk.is_assumption
    assert risk.source.startswith("assumed: ")
    assert risk.interruptions_per_month == span(0, rate, 3 * rate)


def test_an_aws_type_launched_after_the_file_has_no_published_rate():
    risk = spot_risk(an_offer("aws", "g7e.2xlarge", region="ap-south-1"))
    assert risk.is_assumption
    assert risk.source.startswith("assumed: guess: AWS types without a published rate")
    # As AWS's other types: from the beginning of the lowest bucket over the middle of the median
    # one, ln(1 / (1 - 0.175)), to where the open one is taken to end, ln(1 / 0.6)
    rate = risk.interruptions_per_month
    assert rate.low == 0
    assert rate.likely == pytest.approx(math.log(1 / 0.825), abs=0.0005)
    assert rate.high == pytest.approx(math.log(1 / 0.6), abs=0.0005)


def test_an_aws_type_with_a_bucket_keeps_it():
    # g4ad.16xlarge in Tokyo: up to 5 %, so 2.5 % in the middle: ln(1 / 0.975) and ln(1 / 0.95)
    risk = spot_risk(an_offer("aws", "g4ad.16xlarge", region="ap-northeast-1"))
    rate = risk.interruptions_per_month
    assert (rate.low, rate.likely, rate.high) == pytest.approx((0, 0.02532, 0.05129), abs=5e-6)
    assert not risk.is_assumption


@pytest.mark.usefixtures("advised")
@pytest.mark.parametrize(("said", "taken"), [(7.0, span(7, 7, 7)), (span(1, 2, 9), span(1, 2, 9))])
def test_risk_that_the_user_states_goes_before_all(said, taken):
    risk = spot_risk(an_offer("acme", "calm", region="moon", interruptions_per_month=said))
    assert risk.interruptions_per_month == taken
    assert risk.source == "made up"
    assert not risk.is_assumption
