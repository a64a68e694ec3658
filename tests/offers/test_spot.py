from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_fact, an_offer, span

from outlay.facts import assumptions
from outlay.offers import spot
from outlay.offers.spot import spot_price_usd, spot_risk
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


@pytest.mark.usefixtures("advised")
def test_risk_of_an_advised_instance_is_the_middle_of_its_bucket():
    risk = spot_risk(an_offer("acme", "calm", region="moon"))
    # (0.05 + 0.10) / 2 = 0.075
    assert risk.interruptions_per_month.likely == pytest.approx(0.075)
    assert (risk.interruptions_per_month.low, risk.interruptions_per_month.high) == (0.05, 0.10)
    assert risk.source == "advisor, 2026-01-01"
    assert not risk.is_assumption


@pytest.mark.usefixtures("advised")
def test_risk_of_the_open_bucket_ends_at_twice_its_beginning():
    risk = spot_risk(an_offer("acme", "wild", region="moon"))
    # "more than 20 %" is taken as 20 to 40 %: 30 % in the middle
    assert risk.interruptions_per_month.likely == pytest.approx(0.30)
    assert risk.interruptions_per_month.high == pytest.approx(0.40)


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


@pytest.mark.usefixtures("advised")
@pytest.mark.parametrize(("said", "taken"), [(7.0, span(7, 7, 7)), (span(1, 2, 9), span(1, 2, 9))])
def test_risk_that_the_user_states_goes_before_all(said, taken):
    risk = spot_risk(an_offer("acme", "calm", region="moon", interruptions_per_month=said))
    assert risk.interruptions_per_month == taken
    assert risk.source == "made up"
    assert not risk.is_assumption


@pytest.fixture
def moving(monkeypatch):
    """Year's means and variations: around its price, far above it, and wildly."""
    seen = {
        ("acme", "calm", "any"): (1.0, 0.25),
        ("acme", "risen", "any"): (2.0, 0.25),
        ("acme", "wild", "any"): (1.0, 2.0),
    }
    monkeypatch.setattr(spot, "_volatility", lambda: seen)


@pytest.mark.usefixtures("moving")
def test_spot_price_ranges_over_what_it_moved_in():
    price = spot_price_usd(an_offer("acme", "calm", usd=10.0, spot_usd=1.0))
    # 1.28 x 0.25 = 0.32 either way
    assert price.low == pytest.approx(0.68)
    assert price.likely == 1.0
    assert price.high == pytest.approx(1.32)


@pytest.mark.usefixtures("moving")
def test_spot_price_may_go_back_to_the_years_mean():
    price = spot_price_usd(an_offer("acme", "risen", usd=10.0, spot_usd=1.0))
    # down to 1 x (1 - 0.32), up to 2 x (1 + 0.32)
    assert price.low == pytest.approx(0.68)
    assert price.likely == 1.0
    assert price.high == pytest.approx(2.64)


@pytest.mark.usefixtures("moving")
def test_spot_price_is_never_above_on_demand_nor_below_a_tenth():
    price = spot_price_usd(an_offer("acme", "wild", usd=2.0, spot_usd=1.0))
    # 1.28 x 2 = 2.56: between 1 - 2.56 and 1 + 2.56, cut at 0.1 and at 2
    assert price == span(0.1, 1.0, 2.0)


@pytest.mark.usefixtures("moving")
def test_spot_price_reaches_up_to_the_dearest_zone():
    offer = an_offer("acme", "still", usd=5.0, spot_usd=1.0, spot_high_usd_per_hour=1.7)
    assert spot_price_usd(offer) == span(1.0, 1.0, 1.7)


prices = st.floats(0.01, 100)


@given(prices, st.none() | prices, st.none() | prices)
@settings(deadline=None)
def test_spot_price_is_in_order_whatever_the_list_says(spot_usd, usd, high_usd):
    offer = an_offer("x", "y", usd=usd, spot_usd=spot_usd, spot_high_usd_per_hour=high_usd)
    price = spot_price_usd(offer)
    assert 0 < price.low <= price.likely == spot_usd <= price.high
