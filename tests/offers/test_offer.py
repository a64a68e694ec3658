from __future__ import annotations

import pytest
from tests.builders import a_doubt, an_offer

from outlay.offers.offer import OwnedMachine


@pytest.mark.parametrize(
    ("about", "on_demand", "spot"),
    [
        ("offer", True, True),
        ("price", True, False),
        ("spot", False, True),
        ("machine", False, False),
    ],
)
def test_what_a_doubt_concerns(about, on_demand, spot):
    doubt = a_doubt(about=about)
    assert doubt.concerns("on-demand") is on_demand
    assert doubt.concerns("spot") is spot


def test_cautions_are_of_one_tenancy():
    offer = an_offer(
        doubts=(
            a_doubt("dear", about="price"),
            a_doubt("bid", about="spot"),
            a_doubt("resold", kind="note"),
            a_doubt("old"),
        )
    )
    assert offer.cautions("on-demand") == ("dear", "old")
    assert offer.cautions("spot") == ("bid", "old")


def test_price_doubts_are_those_that_are_weighed_too():
    offer = an_offer(
        doubts=(
            a_doubt("floor", kind="weighed", about="spot"),
            a_doubt("dear", about="price"),
            a_doubt("resold", kind="note"),
            a_doubt("bid floor", kind="no price", about="spot"),
            a_doubt("old"),
        )
    )
    assert offer.price_doubts("spot") == ("floor", "old")
    assert offer.price_doubts("on-demand") == ("dear", "old")
    assert offer.cautions("spot") == ("old",)


def test_not_for_sale_is_of_one_tenancy():
    offer = an_offer(doubts=(a_doubt("bid floor", kind="no price", about="spot"), a_doubt("old")))
    assert offer.not_for_sale("on-demand") == ()
    assert offer.not_for_sale("spot") == ("bid floor",)


@pytest.mark.parametrize(
    ("usd", "spot_usd", "tenancies"),
    [
        (1.0, None, ("on-demand",)),
        (1.0, 0.5, ("on-demand", "spot")),
        (None, 0.5, ("spot",)),
        (None, None, ("on-demand",)),
    ],
)
def test_tenancies(usd, spot_usd, tenancies):
    assert an_offer(usd=usd, spot_usd=spot_usd).tenancies == tenancies


def test_ones_own_machine_is_only_owned():
    offer = an_offer(usd=None, owned=OwnedMachine(electricity_usd_per_kwh=0.1, host_w=100))
    assert offer.tenancies == ("owned",)


def test_hourly_usd_of_each_tenancy():
    offer = an_offer(usd=3.0, spot_usd=1.0)
    assert offer.hourly_usd("on-demand") == 3.0
    assert offer.hourly_usd("spot") == 1.0
    assert an_offer(usd=None).hourly_usd("on-demand") is None


def test_identity_is_provider_instance_and_region():
    assert an_offer("acme", "box", region="moon").identity == ("acme", "box", "moon")
