from __future__ import annotations

import pytest

from outlay.errors import InputError, NotKnown
from outlay.offers.candidates import quoted_offers
from outlay.units import DAY_S
from outlay.workload.workload import Quote


def a_quote(**changes):
    said = {
        "provider": "acme",
        "instance": "box",
        "gpu": "T4",
        "gpus": 1,
        "price_usd_per_hour": 1.0,
    }
    return Quote(**(said | changes))


def test_a_quote_becomes_an_offer():
    (offer,) = quoted_offers(
        [
            a_quote(
                gpu="tesla t4",
                gpus=2,
                spot_usd_per_hour=0.4,
                region="moon",
                vcpus=8,
                ram_bytes=32e9,
                local_disk_bytes=1e12,
                as_of="2026-01-01",
                note="by phone",
            )
        ]
    )
    assert offer.identity == ("acme", "box", "moon")
    assert (offer.gpu, offer.gpus) == ("T4", 2)
    assert (offer.price_usd_per_hour, offer.spot_usd_per_hour) == (1.0, 0.4)
    assert (offer.vcpus, offer.ram_bytes, offer.local_disk_bytes) == (8, 32e9, 1e12)
    assert offer.source == "the workload file: by phone"
    assert offer.as_of == "2026-01-01"
    assert offer.quoted
    assert offer.doubts == ()


def test_a_quote_of_an_open_name_keeps_it_open():
    (offer,) = quoted_offers([a_quote(gpu="A100-80GB")])
    assert offer.gpu == "A100-80GB"


def test_a_quote_is_read_as_its_provider_means_it():
    (offer,) = quoted_offers([a_quote(provider="nebius", gpu="RTX6000")])
    assert offer.gpu == "RTX PRO 6000 Server"


def test_two_quotes_of_one_identity_are_refused():
    with pytest.raises(InputError, match="acme / box / any") as caught:
        quoted_offers([a_quote(), a_quote(price_usd_per_hour=2.0)])
    assert caught.value.exit_code == 2
    assert "`instance`" in caught.value.fix


def test_quotes_that_differ_in_region_are_two_offers():
    offers = quoted_offers([a_quote(region="moon"), a_quote(region="mars")])
    assert [offer.region for offer in offers] == ["moon", "mars"]


def test_a_quote_of_an_unknown_gpu_is_refused():
    with pytest.raises(NotKnown, match="No GPU is known as 'Z9000'"):
        quoted_offers([a_quote(gpu="Z9000")])


def test_a_quote_with_a_term_is_a_commitment():
    (offer,) = quoted_offers([a_quote(term_s=365 * DAY_S, price_usd_per_hour=0.8)])
    assert offer.tenancies == ("reserved",)
    assert offer.hourly_usd("reserved") == 0.8
    assert (offer.commitment.name, offer.commitment.term_s) == ("365 days", 365 * DAY_S)


def test_a_quote_may_have_a_set_up_cost():
    (offer,) = quoted_offers([a_quote(setup_cost_usd=75.0)])
    assert offer.setup_cost_usd == 75


@pytest.mark.parametrize(
    ("upfront_usd", "share", "name"),
    [
        (0.0, 0.0, "365 days"),
        (876.0, 0.25, "365 days, partial upfront"),
        (3504.0, 1.0, "365 days, all upfront"),
    ],
)
def test_a_quote_may_be_paid_upfront(upfront_usd, share, name):
    quote = a_quote(term_s=365 * DAY_S, price_usd_per_hour=0.4, upfront_usd=upfront_usd)
    (offer,) = quoted_offers([quote])
    # 8,760 h x $0.40 = $3,504
    assert offer.commitment.upfront_fraction == pytest.approx(share)
    assert offer.commitment.name == name


def test_a_price_that_was_rounded_is_still_all_upfront():
    # $3,504 / 8,760 h, said as 0.3999
    quote = a_quote(term_s=365 * DAY_S, price_usd_per_hour=0.3999, upfront_usd=3504.0)
    assert quoted_offers([quote])[0].commitment.upfront_fraction == 1.0


def test_more_upfront_than_the_term_costs_is_refused():
    quote = a_quote(term_s=365 * DAY_S, price_usd_per_hour=0.4, upfront_usd=4000.0)
    with pytest.raises(InputError, match="more to pay upfront than its term costs"):
        quoted_offers([quote])


def test_a_term_without_a_price_is_refused():
    with pytest.raises(InputError, match="has a term but no price"):
        quoted_offers([a_quote(term_s=365 * DAY_S, price_usd_per_hour=None)])
