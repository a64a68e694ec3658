"""Which doubts keep an offer from being chosen: trust in a price book."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import an_offer

from outlay.errors import InputError, NotKnown
from outlay.offers.catalog import OfferFilter, doubt_kinds, snapshot_date
from outlay.offers.expected_price import SpotMarket
from outlay.offers.offer import ZoneQuote
from outlay.offers.price_book import (
    PriceBook,
    bundled_book,
    list_offers,
    trusted_book,
    trusted_kinds,
)

TODAY = "2026-11-15"


def doubted(name, *words, **more):
    doubts = tuple(doubt_kinds()[word] for word in words)
    return an_offer(instance=name, doubts=doubts, as_of=TODAY, **more)


OFFERS = (
    doubted("plain"),
    doubted("noted", "host added"),
    doubted("weighed", "sources disagree"),
    doubted("old", "stale"),
    doubted("old and cheap", "stale", "suspiciously cheap"),
    doubted("not sold", "not sold on demand"),
)
NOBODY = SpotMarket({})


def a_book(*offers, market=NOBODY):
    return PriceBook(name="made up", kind="past", as_of=TODAY, listed=offers, market=market)


def trusted(trust, *offers):
    """The machines that may be chosen on demand at a trust."""
    book = trusted_book(a_book(*(offers or OFFERS)), trust)
    return [o.instance for o in book.offers_on(TODAY) if o.is_trusted("on-demand")]


@pytest.mark.parametrize(
    ("trust", "may_be_chosen"),
    [
        ("usual", ["plain", "noted", "weighed"]),
        ("", ["plain", "noted", "weighed"]),
        ("strict", ["plain", "noted"]),
        ("all", ["plain", "noted", "weighed", "old", "old and cheap"]),
        ("stale", ["plain", "noted", "weighed", "old"]),
        ("stale,suspiciously cheap", ["plain", "noted", "weighed", "old", "old and cheap"]),
        (" Stale , Suspiciously Cheap ", ["plain", "noted", "weighed", "old", "old and cheap"]),
        ("strict,stale", ["plain", "noted", "old"]),
        ("strict,sources disagree", ["plain", "noted", "weighed"]),
        ("usual,host added", ["plain", "noted", "weighed"]),
    ],
)
def test_trust_says_what_may_be_chosen(trust, may_be_chosen):
    assert trusted(trust) == may_be_chosen


def test_no_trust_makes_a_price_that_nobody_sells_at():
    for trust in ("all", "stale"):
        assert "not sold" not in trusted(trust)
    with pytest.raises(InputError, match="'not sold on demand' is no matter of trust"):
        trusted_book(bundled_book(), "not sold on demand")


def test_an_unknown_word_names_the_nearest():
    with pytest.raises(NotKnown, match="No doubt is known as 'stal'") as error:
        trusted_book(bundled_book(), "stal")
    assert "stale" in error.value.suggestions


def test_two_levels_are_refused():
    with pytest.raises(InputError, match="two ways: strict and all"):
        trusted_book(bundled_book(), "strict,all")


def test_no_word_is_lost_and_no_offer():
    usual = a_book(*OFFERS).offers_on(TODAY)
    for trust in ("strict", "all", "stale"):
        other = trusted_book(a_book(*OFFERS), trust).offers_on(TODAY)
        for offer, same in zip(usual, other, strict=True):
            assert [d.word for d in offer.doubts] == [d.word for d in same.doubts]
            assert replace(offer, doubts=()) == replace(same, doubts=())


def test_every_word_has_a_kind_at_every_trust():
    for trust in ("", "usual", "strict", "all", "stale"):
        kinds = trusted_kinds(trust)
        assert kinds.keys() == doubt_kinds().keys()
        assert {w for w, d in kinds.items() if d.kind == "no price"} == {
            w for w, d in doubt_kinds().items() if d.kind == "no price"
        }
    assert not any(doubt.kind == "caution" for doubt in trusted_kinds("all").values())
    assert not any(doubt.kind == "weighed" for doubt in trusted_kinds("strict").values())


def a_quote(zone, usd, weeks):
    return ZoneQuote(
        zone=zone,
        usd_per_hour=usd,
        share=usd,
        weeks=weeks,
        seen_first=TODAY if weeks == 1 else "2026-01-01",
        mean_share=usd,
        weekly_change=0.0,
    )


def test_trust_reaches_the_choice_of_a_zone():
    # Zone a is at its floor, a tenth of on-demand, since today: `unproven low`. Zone b is at half
    # of it for long.
    market = SpotMarket({("acme", "box", "any"): [a_quote("a", 0.1, 1), a_quote("b", 0.5, 40)]})
    book = a_book(an_offer(usd=1.0, spot_usd=0.1, as_of=TODAY), market=market)
    zones = {}
    for trust in ("usual", "all", "floor,unproven low"):
        (offer,) = trusted_book(book, trust).offers_on(TODAY)
        assert offer.zone is not None
        zones[trust] = offer.zone.zone
    assert zones == {"usual": "b", "all": "a", "floor,unproven low": "a"}


def test_the_bundled_book_can_be_trusted_otherwise():
    day = snapshot_date()
    usual, everything = bundled_book(), trusted_book(bundled_book(), "all")
    assert [o.identity for o in usual.offers_on(day)] == [
        o.identity for o in everything.offers_on(day)
    ]
    chosen = [
        sum(o.is_trusted("on-demand") for o in book.offers_on(day)) for book in (usual, everything)
    ]
    assert chosen[0] < chosen[1]
    # Asked again, it is the same book.
    assert everything.offers_on(day) is everything.offers_on(day)


def test_a_list_of_what_is_trusted():
    spot = doubted("cheap spot", "spot outlier", spot_usd=0.3)
    book = a_book(*OFFERS, spot)

    def names(trust, **query):
        offers = list_offers(
            OfferFilter(trusted=True, **query), today=TODAY, prices=trusted_book(book, trust)
        )
        return sorted(offer.instance for offer in offers)

    assert names("usual") == ["cheap spot", "noted", "plain", "weighed"]
    assert names("usual", spot=True) == []
    # It has no history besides, which is weighed.
    assert names("spot outlier", spot=True) == ["cheap spot"]
    assert names("strict") == ["cheap spot", "noted", "plain"]
    assert "not sold" not in names("all")
    assert len(list_offers(OfferFilter(), today=TODAY, prices=book)) == 7


def stale_in(offers, confirmed, today):
    as_of = max(offer.as_of for offer in offers)
    book = PriceBook(
        name="made up", kind="refreshed", as_of=as_of, listed=offers, confirmed=confirmed
    )
    return {
        offer.provider
        for offer in book.offers_on(today)
        if offer.source == "made up" and any(doubt.word == "stale" for doubt in offer.doubts)
    }


def test_one_providers_new_prices_make_no_other_stale():
    old = [an_offer(provider=name, as_of="2026-08-22") for name in ("a", "b", "c")]
    new = an_offer(provider="d", as_of="2026-12-01")
    asked = dict.fromkeys("abc", "2026-08-22") | {"d": "2026-12-01"}
    # 101 days old, and as new as when most were last asked
    assert stale_in((*old, new), asked, "2026-12-01") == set()


def test_a_list_that_stood_still_while_most_were_asked_is_stale():
    offers = [an_offer(provider=name, as_of="2026-12-01") for name in ("a", "b", "c")]
    still = an_offer(provider="d", as_of="2026-08-22")
    asked = dict.fromkeys("abcd", "2026-12-01")
    assert stale_in((*offers, still), asked, "2026-12-01") == {"d"}


def test_a_catalogue_that_is_old_as_a_whole_is_not_stale_though_it_was_asked_for_today():
    offers = [an_offer(provider=name, as_of="2026-08-22") for name in ("a", "b", "c")]
    asked = dict.fromkeys("abc", "2026-12-01")
    assert stale_in(tuple(offers), asked, "2026-12-01") == set()
