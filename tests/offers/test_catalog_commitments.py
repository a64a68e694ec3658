from __future__ import annotations

import pytest
from tests.builders import an_offer

from outlay.offers import catalog
from outlay.offers.catalog import reserved_offers
from outlay.offers.offer import OwnedMachine

COLUMNS = ("provider", "instance_pattern", "term", "payment", "discount", "source", "as_of")
ROWS = (
    ("acme", "box.*", "1 year", "no upfront", "0.25", "acme.example", "2026-01-02"),
    ("acme", "box.*", "3 years", "all upfront", "0.5", "acme.example", "2026-01-02"),
    ("other", "*", "1 month", "all upfront", "0.2", "other.example", "2026-01-03"),
)
DAY_S = 86_400


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Two terms at acme for its boxes, one at another provider for everything."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    monkeypatch.setattr(catalog, "rows_of", lambda _: rows)
    catalog._commitment_rows.cache_clear()
    yield
    catalog._commitment_rows.cache_clear()


def test_an_offer_once_more_for_each_term():
    year, three = reserved_offers(an_offer(instance="box.large", usd=4.0, spot_usd=1.0))
    # 4 x (1 - 0.25) and 4 x (1 - 0.5)
    assert year.hourly_usd("reserved") == pytest.approx(3.0)
    assert three.hourly_usd("reserved") == pytest.approx(2.0)
    assert year.commitment.name == "1 year, no upfront"
    assert three.commitment.name == "3 years, all upfront"
    assert year.commitment.source == "acme.example, 2026-01-02"
    assert year.commitment.term_s == 365 * DAY_S
    assert three.commitment.term_s == 3 * 365 * DAY_S


def test_a_term_is_a_tenancy_of_its_own_at_its_own_price():
    year, _ = reserved_offers(an_offer(instance="box.large", usd=4.0, spot_usd=1.0))
    assert year.tenancies == ("reserved",)
    assert year.hourly_usd("reserved") == pytest.approx(3.0)
    assert year.price_usd_per_hour == 4.0


@pytest.mark.parametrize(
    "offer",
    [
        an_offer(instance="crate"),
        an_offer("nobody", "box.large"),
        an_offer(instance="box.large", usd=None),
        an_offer(instance="box.large", usd=None, spot_usd=1.0),
        an_offer(instance="box.large", owned=OwnedMachine(electricity_usd_per_kwh=0.1, host_w=1.0)),
    ],
    ids=["other instance", "other provider", "no price", "spot alone", "owned"],
)
def test_what_cannot_be_taken_for_a_term(offer):
    assert list(reserved_offers(offer)) == []


def test_a_term_is_not_taken_for_another_term():
    year, _ = reserved_offers(an_offer(instance="box.large"))
    assert list(reserved_offers(year)) == []


def test_a_commitment_has_a_range_like_every_price(monkeypatch):
    monkeypatch.setattr(catalog, "assumed", lambda _: 0.05)
    year, _ = reserved_offers(an_offer(instance="box.large", usd=4.0))
    price = year.commitment.price_usd_per_hour
    # 0.25 off, or 0.30, or 0.20
    assert (price.low, price.likely, price.high) == pytest.approx((2.8, 3.0, 3.2))


def test_a_commitment_is_never_dearer_than_on_demand(monkeypatch):
    monkeypatch.setattr(catalog, "assumed", lambda _: 0.3)
    year, _ = reserved_offers(an_offer(instance="box.large", usd=4.0))
    assert year.commitment.price_usd_per_hour.high == 4.0


def test_what_is_paid_upfront_follows_from_how_it_is_paid(monkeypatch):
    year, three = reserved_offers(an_offer(instance="box.large"))
    assert (year.commitment.upfront_fraction, three.commitment.upfront_fraction) == (0.0, 1.0)
    partial = dict(zip(COLUMNS, ROWS[0], strict=True)) | {"payment": "partial upfront"}
    monkeypatch.setattr(catalog, "rows_of", lambda _: [partial])
    catalog._commitment_rows.cache_clear()
    (year,) = reserved_offers(an_offer(instance="box.large"))
    # a savings plan asks for half of it at least
    assert year.commitment.upfront_fraction == 0.5


def test_a_pattern_may_be_of_everything():
    (month,) = reserved_offers(an_offer("other", "whatever", usd=1.0))
    # 1 x (1 - 0.2)
    assert month.hourly_usd("reserved") == pytest.approx(0.8)
    assert month.commitment.term_s == 30 * DAY_S
