"""Discounts that a price list agrees on, and prices one was promised: once, and off list prices."""

from __future__ import annotations

import pytest
from tests.builders import a_workload, an_offer

from outlay.offers.candidates import candidates
from outlay.offers.catalog import offers_on, reserved_offers
from outlay.offers.expected_price import SpotMarket, at_best_zone, expected_price
from outlay.offers.offer import AgreedDiscount, ZoneQuote
from outlay.offers.price_book import PriceBook
from outlay.workload.workload import TermsOverride

TODAY = "2026-11-17"
FIFTH = AgreedDiscount(
    on_demand_fraction=0.2, spot_fraction=0.2, reserved_fraction=0.2, words="20 % off as agreed"
)


def aws(**changes):
    more = {"region": "us-east-1", "as_of": TODAY, "gpu": "A100 40GB SXM", "gpus": 8}
    return an_offer("aws", "p4d.24xlarge", **({"usd": 20.0} | more | changes))


def book(*offers):
    return PriceBook(name="made up", kind="refreshed", as_of=TODAY, listed=offers)


def test_list_prices_are_compared_before_the_discount_comes_off():
    # Were 16 compared with the list price of 20, it would be doubted as superseded.
    plain, agreed = (
        next(offer for offer in offers_on(offers, TODAY, TODAY) if offer.provider == "aws")
        for offers in ([aws()], [aws().less(FIFTH)])
    )
    assert agreed.doubts == plain.doubts
    assert agreed.price_usd_per_hour == pytest.approx(0.8 * plain.price_usd_per_hour)
    assert agreed.source.count("20 % off as agreed") == 1


def test_what_one_was_promised_is_never_doubted():
    mine = aws(usd=1.0, as_of="2020-01-01", in_own_list=True)
    assert mine in offers_on([mine, aws(region="us-west-2")], TODAY, TODAY)


def test_spot_is_expected_by_list_prices_and_less_by_the_discount():
    offer = aws(spot_usd=4.0)
    listed = expected_price(offer, "spot", 12.0, SpotMarket({}))
    agreed = expected_price(offer.less(FIFTH), "spot", 12.0, SpotMarket({}))
    assert agreed.likely == pytest.approx(0.8 * listed.likely)
    assert agreed.high <= 16.0  # on demand: 20 x 0.8


def test_the_zone_that_is_taken_has_the_discount_too():
    zone = ZoneQuote(
        zone="a",
        usd_per_hour=5.0,
        share=0.25,
        weeks=20,
        seen_first="2026-01-01",
        mean_share=0.25,
        weekly_change=0.1,
    )
    market = SpotMarket({("aws", "p4d.24xlarge", "us-east-1"): [zone]})
    there = at_best_zone(aws(spot_usd=4.0).less(FIFTH), {}, TODAY, market)
    assert there.spot_usd_per_hour == pytest.approx(4.0)  # 5 x 0.8
    mine = aws(spot_usd=4.0, in_own_list=True)
    assert at_best_zone(mine, {}, TODAY, market) == mine


@pytest.mark.parametrize(("reserved", "share"), [(0.2, 0.8), (0.0, 1.0)])
def test_terms_are_off_the_list_price(reserved, share):
    only = AgreedDiscount(on_demand_fraction=0.2, reserved_fraction=reserved, words="x")
    plain, agreed = list(reserved_offers(aws())), list(reserved_offers(aws().less(only)))
    assert plain
    for one, other in zip(plain, agreed, strict=True):
        price, less = one.commitment.price_usd_per_hour, other.commitment.price_usd_per_hour
        assert less.likely == pytest.approx(share * price.likely)


def test_the_workload_files_own_discount_takes_the_place_of_a_lists():
    prices = book(aws().less(FIFTH))

    def price(*terms):
        offers = candidates(a_workload(terms=terms), TODAY, prices)
        return next(offer.price_usd_per_hour for offer in offers if offer.provider == "aws")

    assert price() == pytest.approx(16.0)
    # The bill takes the file's tenth off 20 then: 18, and not 20 x 0.8 x 0.9 = 14.4.
    assert price(TermsOverride(provider="AWS", discount_fraction=0.1)) == pytest.approx(20.0)
    assert price(TermsOverride(provider="aws", egress_usd_per_gb=0.01)) == pytest.approx(16.0)


def test_own_lists_count_where_bundled_offers_do_not():
    from dataclasses import replace

    from outlay.workload.workload import Selection

    prices = book(aws(), an_offer("acme", "mine", in_own_list=True, as_of=TODAY))
    workload = replace(a_workload(), consider=Selection(bundled=False))
    assert [offer.provider for offer in candidates(workload, TODAY, prices)] == ["acme"]
