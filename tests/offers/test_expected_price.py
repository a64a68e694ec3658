"""What an hour will cost later: each term of the formula by hand, doubts, and the best zone."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from tests.builders import a_doubt, an_offer, exactly, span

from outlay.facts import rows_of
from outlay.offers.catalog import at_best_zones, bundled_offers, doubt_kinds
from outlay.offers.expected_price import (
    Percentiles,
    PriceMoves,
    SpotMarket,
    UsualShare,
    at_best_zone,
    bundled_market,
    bundled_movements,
    expected_price,
    highest_price,
    movements_of,
    weeks_since,
)
from outlay.offers.offer import AgreedDiscount, OtherPrice, ZoneQuote
from outlay.uncertainty import at_deviations

LONG = 40
"""Weeks of a past that is known well."""
NOBODY = SpotMarket({})


def a_zone(
    name="a", usd=None, share=None, *, weeks=LONG, seen_first=None, mean_share=None, change=None
):
    return ZoneQuote(
        zone=name,
        usd_per_hour=usd,
        share=share,
        weeks=weeks,
        seen_first=seen_first,
        mean_share=mean_share,
        weekly_change=change,
    )


def elsewhere(*shares):
    """Zones of another region in which the type costs these shares of on-demand."""
    zones = [a_zone(f"z{number}", share, share) for number, share in enumerate(shares)]
    return {("acme", "box", "elsewhere"): zones}


def a_market(*shares):
    return SpotMarket(elsewhere(*shares))


def moving(constant=(0, 0, 0), half_weeks=None, **terms):
    """Price moves of everybody's spot prices."""

    def levels(values):
        return Percentiles(low=values[0], middle=values[1], high=values[2])

    moves = PriceMoves(
        constant=levels(constant),
        half_weeks=half_weeks,
        **{name: levels(values) for name, values in terms.items()},
    )
    return {("*", "spot"): moves, ("*", "on-demand"): moves}


def spot(offer, weeks, moves, market=NOBODY):
    return expected_price(offer, "spot", weeks, market, moves)


def logs(price, quote_usd=1.0):
    """How far each end lies from the quote, in logarithms."""
    return tuple(math.log(usd / quote_usd) for usd in (price.low, price.likely, price.high))


def sold(spot_usd=1.0, usd=None, **zone):
    """An acme box at $1 spot with a long past; no on-demand price, so that nothing is cut."""
    return an_offer(usd=usd, spot_usd=spot_usd, zone=a_zone(**zone))


# --- growth ---


@pytest.mark.parametrize(
    ("weeks", "growth"),
    # weeks / (weeks + 4)
    [(-1, 0), (0, 0), (1, 0.2), (4, 0.5), (12, 0.75), (36, 0.9)],
)
def test_growth_comes_to_a_half_after_half_weeks(weeks, growth):
    assert PriceMoves(constant=Percentiles(), half_weeks=4).growth(weeks) == pytest.approx(growth)


@pytest.mark.parametrize(
    ("weeks", "growth"),
    # the root of weeks / 13: a quarter is 1, a year is 2
    [(-1, 0), (0, 0), (3.25, 0.5), (13, 1), (52, 2)],
)
def test_growth_of_prices_that_wander_off_is_the_root_of_the_time(weeks, growth):
    assert PriceMoves(constant=Percentiles()).growth(weeks) == pytest.approx(growth)


# --- each term ---


def test_the_constant_moves_every_price():
    # growth(4) = 4 / (4 + 4) = 0.5, so half of -0.4, -0.1 and 0.6
    price = spot(sold(), 4, moving((-0.4, -0.1, 0.6), 4))
    assert logs(price) == pytest.approx((-0.2, -0.05, 0.3))


def test_the_constant_is_of_a_quarter_where_prices_wander_off():
    # growth(52) = 2
    price = spot(sold(), 52, moving((-0.4, 0, 0.4)))
    assert logs(price) == pytest.approx((-0.8, 0, 0.8))


def test_nothing_has_moved_on_the_day_of_the_quote():
    assert spot(sold(), 0, moving((-0.4, -0.1, 0.6), 4)) == exactly(1.0)


def test_a_quote_below_its_level_moves_up_by_the_gap():
    # Its past alone, half of on-demand at $4: the level is $2, the gap log(2 / 1).
    offer = sold(usd=4.0, mean_share=0.5)
    price = spot(offer, 4, moving((0, 0, 0), 4, below=(0.1, 0.4, 0.8), above=(-9, -9, -9)))
    # growth 0.5
    assert logs(price) == pytest.approx([0.5 * k * math.log(2) for k in (0.1, 0.4, 0.8)])


def test_a_quote_above_its_level_moves_down_by_the_gap():
    # The level is 0.125 of $4: $0.50, the gap log(1 / 0.5) the other way.
    offer = sold(usd=4.0, mean_share=0.125)
    price = spot(offer, 4, moving((0, 0, 0), 4, below=(9, 9, 9), above=(-0.8, -0.4, -0.1)))
    assert logs(price) == pytest.approx([-0.5 * k * math.log(2) for k in (0.8, 0.4, 0.1)])


def test_a_price_that_changed_much_of_late_has_a_wider_range():
    # growth 0.5, and 0.3 a week
    price = spot(sold(change=0.3), 4, moving((0, 0, 0), 4, change=(-2, 0.4, 4)))
    assert logs(price) == pytest.approx((-0.3, 0.06, 0.6))


def test_a_price_without_known_changes_changes_as_usual():
    # growth 0.5, and the usual 0.1 a week
    price = spot(sold(), 4, moving((0, 0, 0), 4, change=(-2, 0.4, 4)))
    assert logs(price) == pytest.approx((-0.1, 0.02, 0.2))


def test_a_quote_below_a_quarter_of_on_demand_moves_up_by_how_far():
    # A quarter of $8 is $2: log(2 / 1). Its past and nobody else's say the same as the quote.
    offer = sold(usd=8.0, mean_share=0.125)
    price = spot(offer, 4, moving((0, 0, 0), 4, low=(0.2, 0.4, 0.8)))
    assert logs(price) == pytest.approx([0.5 * k * math.log(2) for k in (0.2, 0.4, 0.8)])


def test_a_quote_above_a_quarter_of_on_demand_is_not_low():
    offer = sold(usd=2.0, mean_share=0.5)
    assert spot(offer, 4, moving((0, 0, 0), 4, low=(1, 1, 1))) == exactly(1.0)


def test_terms_add_up():
    # Level $2 of $8, a quarter of it is the same: both gaps are log 2. growth(12) = 0.75
    offer = sold(usd=8.0, mean_share=0.25, change=0.2)
    moves = moving((-0.2, 0.1, 0.2), 4, below=(0, 0.1, 0.2), change=(-1, 0, 1), low=(0.1, 0.2, 0.3))
    two = math.log(2)
    expected = (
        0.75 * (-0.2 - 0.2 + 0.1 * two),
        0.75 * (0.1 + 0.1 * two + 0.2 * two),
        0.75 * (0.2 + 0.2 * two + 0.2 + 0.3 * two),
    )
    assert logs(spot(offer, 12, moves)) == pytest.approx(expected)


def test_percentiles_that_cross_leave_an_ordered_range():
    price = spot(sold(), 4, moving((0.4, 0.2, 0.0), 4))
    # 10th and 90th percentile are drawn to the middle: 0.5 x 0.2
    assert logs(price) == pytest.approx((0.1, 0.1, 0.1))


# --- the level a price comes back to ---


@pytest.mark.parametrize(
    ("weeks", "level"),
    [
        # Own mean 0.1, type's middle 0.4; 8 weeks weigh as much as the type: sqrt(0.1 x 0.4)
        (8, 0.2),
        # 24 / (24 + 8) = 3/4 own: 0.1^(3/4) x 0.4^(1/4) = 0.1 x 4^(1/4)
        (24, 0.1 * math.sqrt(2)),
    ],
)
def test_level_is_the_mean_of_its_own_past_and_its_type_by_weeks(weeks, level):
    offer = sold(0.1, usd=1.0, weeks=weeks, mean_share=0.1)
    price = spot(offer, 4, moving((0, 0, 0), 4, below=(1, 1, 1)), a_market(0.3, 0.4, 0.5))
    # half of the way in logarithms
    assert price.likely == pytest.approx(math.sqrt(0.1 * level))


def test_level_without_a_past_is_the_types():
    offer = an_offer(usd=1.0, spot_usd=0.1)
    price = spot(offer, 4, moving((0, 0, 0), 4, below=(1, 1, 1)), a_market(0.3, 0.4, 0.5))
    assert price.likely == pytest.approx(math.sqrt(0.1 * 0.4))


def test_level_of_a_lone_zone_is_its_providers():
    zones = {
        ("acme", "box", "any"): [a_zone("a", 0.1, 0.1)],
        ("acme", "crate", "any"): [a_zone("b", 0.4, 0.4), a_zone("c", 0.9, 0.9)],
        ("other", "box", "any"): [a_zone("d", 1.0, 1.0)],
    }
    usual = SpotMarket(zones).usual_share(an_offer())
    assert usual == UsualShare(low=0.1, middle=0.4, high=0.9, zones=3)


def test_usual_share_has_the_ends_of_four_fifths_of_the_zones():
    # Of eleven, the second and the last but one
    shares = [0.2, 0.3, 0.31, 0.32, 0.33, 0.34, 0.35, 0.36, 0.37, 0.5, 0.9]
    usual = a_market(*shares).usual_share(an_offer())
    assert usual == UsualShare(low=0.3, middle=0.34, high=0.5, zones=11)


def test_zones_without_a_share_do_not_count():
    zones = {("acme", "box", ""): [a_zone("", None, None, mean_share=0.3)]}
    market = SpotMarket(zones)
    assert market.usual_share(an_offer()) is None
    assert [zone.mean_share for zone in market.zones(an_offer(region="moon"))] == [0.3]


# --- ends of what a price can be ---


def test_a_spot_price_is_never_above_on_demand():
    offer = sold(usd=1.5, mean_share=1 / 1.5)
    price = spot(offer, 13, moving((0, 0.5, 1)))
    # exp(0.5) = 1.65 and exp(1) = 2.72 are more than $1.50
    assert price == span(1.0, 1.5, 1.5)


def test_a_spot_price_is_never_below_nine_percent_of_on_demand():
    offer = sold(usd=4.0, mean_share=0.25)
    price = spot(offer, 13, moving((-2, -1, 0)))
    # exp(-2) = 0.135 and exp(-1) = 0.368 against 0.09 x 4 = 0.36
    assert (price.low, price.likely, price.high) == pytest.approx((0.36, math.exp(-1), 1.0))


def test_a_quote_beyond_the_ends_stays_within_its_range():
    still = moving((0, 0, 0))
    assert spot(sold(2.0, usd=1.0, mean_share=1.0), 13, still) == exactly(2.0)
    assert spot(sold(0.05, usd=1.0, mean_share=0.05), 13, still) == exactly(0.05)


def test_highest_price_is_the_price_on_demand():
    assert highest_price(an_offer(usd=4.0, spot_usd=1.0), "spot") == 4.0
    assert highest_price(an_offer(usd=1.0, spot_usd=1.5), "spot") == 1.5
    assert highest_price(an_offer(usd=None, spot_usd=1.0), "spot") is None
    assert highest_price(an_offer(usd=4.0, spot_usd=1.0), "on-demand") is None


# --- where little is known ---

SHARES = (0.2, 0.3, 0.31, 0.32, 0.33, 0.34, 0.35, 0.36, 0.37, 0.5, 0.9)


@pytest.mark.parametrize("zone", [None, a_zone(weeks=1), a_zone(weeks=3)])
def test_without_history_the_range_is_the_types_not_zero(zone):
    offer = an_offer(usd=10.0, spot_usd=4.0, zone=zone)
    # $3 to $5: what four fifths of the type's zones cost, even on the day of the quote
    assert spot(offer, 0, moving((-1, 0, 1), 4), a_market(*SHARES)) == span(3, 4, 5)


def test_without_history_the_range_takes_in_what_prices_became_too():
    offer = an_offer(usd=10.0, spot_usd=4.0)
    price = spot(offer, 4, moving((-1, 0, 1), 4), a_market(*SHARES))
    # growth 0.5: 4 / 1.65 = 2.43 is less than $3, 4 x 1.65 = 6.59 more than $5
    assert (price.low, price.high) == pytest.approx((4 * math.exp(-0.5), 4 * math.exp(0.5)))


def test_four_weeks_of_history_are_enough_for_a_range_of_its_own():
    offer = an_offer(usd=10.0, spot_usd=4.0, zone=a_zone(weeks=4, mean_share=0.4))
    assert spot(offer, 0, moving((-1, 0, 1), 4), a_market(*SHARES)) == exactly(4.0)


@pytest.mark.parametrize("usd", [None, 10.0])
def test_without_history_and_type_the_range_is_that_of_a_quarter(usd):
    offer, moves = an_offer(usd=usd, spot_usd=4.0), moving((-0.4, 0, 0.4))
    assert logs(spot(offer, 0, moves), 4.0) == pytest.approx((-0.4, 0, 0.4))
    assert spot(offer, 13, moves) == spot(offer, 0, moves)
    assert logs(spot(offer, 52, moves), 4.0) == pytest.approx((-0.8, 0, 0.8))


def test_a_price_that_is_not_known_stays_so():
    assert expected_price(an_offer(usd=None), "on-demand", 4) is None
    assert expected_price(an_offer(), "spot", 4) is None


def test_what_costs_nothing_goes_on_costing_nothing():
    assert expected_price(an_offer(usd=0.0), "on-demand", 52) == exactly(0.0)


# --- prices that are likely to stay ---


def by_another(usd, source="gpuhunt"):
    return OtherPrice(source=source, as_of="2026-11-15", price_usd_per_hour=usd)


DISAGREE = (doubt_kinds()["sources disagree"],)


def test_the_range_takes_in_what_other_sources_say():
    others = (by_another(1.3), by_another(0.8), by_another(None))
    offer = an_offer(usd=1.0, other_prices=others, doubts=DISAGREE)
    assert expected_price(offer, "on-demand", 0) == span(0.8, 1.0, 1.3)
    unknown = an_offer(usd=1.0, other_prices=(by_another(None),), doubts=DISAGREE)
    assert expected_price(unknown, "on-demand", 0) == exactly(1.0)


def test_a_source_that_agrees_widens_nothing():
    offer = an_offer(usd=1.0, other_prices=(by_another(1.02),))
    assert expected_price(offer, "on-demand", 0) == exactly(1.0)


def test_what_was_agreed_comes_off_other_sources_too():
    listed = an_offer(usd=1.0, other_prices=(by_another(1.2),), doubts=DISAGREE)
    offer = listed.less(AgreedDiscount(on_demand_fraction=0.5, words="half off"))
    # 0.5 * 1.0 and 0.5 * 1.2
    assert expected_price(offer, "on-demand", 0) == span(0.5, 0.5, 0.6)


def test_what_other_sources_say_on_demand_is_nothing_about_spot():
    offer = an_offer(usd=1.0, spot_usd=0.5)
    doubted = an_offer(usd=1.0, spot_usd=0.5, other_prices=(by_another(3.0),), doubts=DISAGREE)
    prices = [expected_price(one, "spot", 4, NOBODY) for one in (offer, doubted)]
    assert prices[0] == prices[1]


def test_an_on_demand_price_is_likely_to_stay_and_its_range_widens():
    offer, moves = an_offer(usd=2.0), moving((-0.1, 0, 0.2))
    quarter, year = (expected_price(offer, "on-demand", weeks, NOBODY, moves) for weeks in (13, 52))
    assert quarter.likely == year.likely == 2.0
    assert logs(quarter, 2.0) == pytest.approx((-0.1, 0, 0.2))
    assert logs(year, 2.0) == pytest.approx((-0.2, 0, 0.4))


def test_a_users_own_spot_quote_is_likely_to_stay():
    offer = an_offer(usd=10.0, spot_usd=1.0, quoted=True)
    moves = moving((-0.5, -0.1, 0.1), 4, below=(1, 1, 1), change=(-2, 0, 4), low=(1, 1, 1))
    price = spot(offer, 4, moves, a_market(*SHARES))
    # Around the middle: -0.5 + 0.1 and 0.1 + 0.1, with the usual change of 0.1 a week; growth 0.5
    assert logs(price) == pytest.approx((0.5 * (-0.4 - 0.2), 0, 0.5 * (0.2 + 0.4)))


def test_a_providers_own_moves_go_before_everybodys():
    moves = moving((-0.4, 0, 0.4)) | {
        ("acme", "spot"): PriceMoves(constant=Percentiles(low=-0.1, high=0.1))
    }
    assert logs(spot(sold(), 13, moves)) == pytest.approx((-0.1, 0, 0.1))
    on_demand = expected_price(an_offer(usd=1.0), "on-demand", 13, NOBODY, moves)
    assert logs(on_demand) == pytest.approx((-0.4, 0, 0.4))


def test_rows_of_a_provider_are_put_together():
    row = {"provider": "acme", "tenancy": "spot", "half_weeks": "4"}
    numbers = {"low": "-1", "middle": "0.5", "high": "2"}
    (moves,) = movements_of(
        [row | {"term": term} | numbers for term in ("constant", "low")]
    ).values()
    levels = Percentiles(low=-1, middle=0.5, high=2)
    assert moves == PriceMoves(constant=levels, low=levels, half_weeks=4)


# --- age ---


@pytest.mark.parametrize(
    ("as_of", "today", "weeks"),
    [
        ("2026-08-22", "2026-11-14", 12),
        ("2026-08-22", "2026-08-22", 0),
        ("2026-08-22", "2026-08-01", 0),
        ("", "2026-08-22", 0),
        ("2026-08-22", "", 0),
    ],
)
def test_weeks_since_a_price_was_seen(as_of, today, weeks):
    assert weeks_since(as_of, today) == weeks


PROVIDERS = sorted({row["provider"] for row in rows_of("price_moves.csv")} | {"nobody"})


@pytest.mark.parametrize("tenancy", ["on-demand", "spot"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_year_later_the_same_price_is_less_sure(provider, tenancy):
    offer = an_offer(
        provider, "no such type", usd=10.0, spot_usd=4.0, zone=a_zone(mean_share=0.4, change=0.1)
    )
    ranges = [expected_price(offer, tenancy, weeks) for weeks in (0, 4, 12, 12 + 52)]
    widths = [math.log(price.high / price.low) for price in ranges]
    assert widths == sorted(set(widths))


def test_a_year_later_no_bundled_price_is_surer():
    for offer in at_best_zones(bundled_offers("2026-11-16"), "2026-11-16"):
        for tenancy in offer.tenancies:
            weeks = weeks_since(offer.seen_on(tenancy), "2026-11-16")
            now = expected_price(offer, tenancy, weeks)
            later = expected_price(offer, tenancy, weeks + 52)
            if now is None:
                continue
            if tenancy == "on-demand":
                assert now.high / now.low < later.high / later.low, offer
                assert now.likely == later.likely
            elif now.low > 0.0901 * (offer.price_usd_per_hour or 0.0):  # where it can go lower
                assert now.high / now.low <= later.high / later.low, offer


# --- doubts ---


def doubts(spot_usd, usd=10.0, others=(), **zone):
    """What is said against an acme box's spot price, seen on 2026-08-22, in a zone or none."""
    here = [a_zone("a", spot_usd, spot_usd / usd, **zone)] if zone else []
    market = SpotMarket({("acme", "box", "any"): here} | elsewhere(*others))
    offer = an_offer(usd=usd, spot_usd=spot_usd, as_of="2026-08-22")
    return [doubt.word for doubt in at_best_zone(offer, doubt_kinds(), "", market).doubts]


@pytest.mark.parametrize("spot_usd", [0.9, 1.0])
def test_nine_and_ten_percent_of_on_demand_are_a_floor(spot_usd):
    assert doubts(spot_usd, weeks=LONG) == ["floor"]


@pytest.mark.parametrize("spot_usd", [0.89, 0.91, 0.99, 1.01, 1.1])
def test_other_shares_are_no_floor(spot_usd):
    assert doubts(spot_usd, weeks=LONG) == []


@pytest.mark.parametrize(
    ("usd", "spot_usd"),
    [
        (5.493, 0.5493),
        # four digits behind the point: 0.10 x 3.8395 = 0.38395
        (3.8395, 0.384),
        # five digits of both, and GPU and host added up: 0.0900044
        (96.712, 8.7045),
    ],
)
def test_a_floor_is_seen_through_rounding(usd, spot_usd):
    assert doubts(spot_usd, usd, weeks=LONG) == ["floor"]


def test_a_near_miss_is_no_floor():
    # 10.06 %: more than rounding
    assert doubts(1.006, weeks=LONG) == []


@pytest.mark.parametrize(
    ("seen_first", "words"),
    # 29 and 30 days before the quote of 2026-08-22
    [("2026-07-24", ["new"]), ("2026-07-23", [])],
)
def test_a_price_first_seen_less_than_a_month_before_is_new(seen_first, words):
    assert doubts(4.0, weeks=4, seen_first=seen_first) == words


def test_one_quote_without_history_is_doubted():
    assert doubts(4.0) == ["no history"]
    assert doubts(4.0, weeks=1, seen_first="2026-08-22") == ["no history"]
    assert doubts(4.0, weeks=2) == []


@pytest.mark.parametrize(("spot_usd", "words"), [(1.9, ["far below usual"]), (2.1, [])])
def test_less_than_half_of_what_its_type_costs_is_far_below_usual(spot_usd, words):
    # Half of $4, the middle of its zones
    assert doubts(spot_usd, others=(0.4, 0.4, 0.4), weeks=LONG) == words


@pytest.mark.parametrize(
    ("weeks", "is_proven"),
    [(2, False), (12, False), (13, True), (LONG, True)],
)
def test_a_low_price_is_unproven_for_a_quarter(weeks, is_proven):
    words = doubts(1.0, weeks=weeks, seen_first="2026-05-01")
    assert words == (["floor"] if is_proven else ["floor", "unproven low"])


def test_a_low_price_without_a_past_is_unproven():
    assert doubts(1.0) == ["floor", "no history", "unproven low"]
    low = doubts(1.5, others=(0.4, 0.5, 0.6))
    assert low == ["far below usual", "no history", "unproven low"]


def test_a_price_that_stands_since_records_began_is_proven():
    assert doubts(1.0, weeks=5, seen_first=None) == ["floor"]


def test_a_price_that_is_not_low_needs_no_proof():
    assert "unproven low" not in doubts(4.0)
    assert "unproven low" not in doubts(4.0, weeks=2, seen_first="2026-08-15")


def at_zone(spot_usd, **zone):
    market = SpotMarket({("acme", "box", "any"): [a_zone("a", spot_usd, spot_usd / 10, **zone)]})
    offer = an_offer(usd=10.0, spot_usd=spot_usd, as_of="2026-08-22")
    return at_best_zone(offer, doubt_kinds(), "", market)


def test_a_floor_with_a_long_past_is_weighed_and_may_be_chosen():
    offer = at_zone(1.0, weeks=LONG)
    assert offer.price_doubts("spot") == ("floor",)
    assert offer.cautions("spot") == ()


def test_an_unproven_low_is_never_sound():
    offer = at_zone(1.0, weeks=2, seen_first="2026-08-15")
    assert offer.price_doubts("spot") == ("floor", "new", "unproven low")
    assert offer.cautions("spot") == ("unproven low",)


def test_doubts_of_a_spot_price_are_none_of_the_price_on_demand():
    offer = at_zone(1.0, weeks=1)
    assert offer.price_doubts("on-demand") == ()
    assert offer.cautions("on-demand") == ()


# --- the zone ---


def best(*zones, usd=10.0, movements=None, today="", **offer):
    market = SpotMarket({("acme", "box", "any"): zones})
    said = an_offer(usd=usd, spot_usd=1.0, as_of="2026-08-22", **offer)
    return at_best_zone(said, doubt_kinds(), today, market, movements or moving((-0.1, 0, 0.1), 4))


def test_the_zone_with_the_lowest_price_is_taken():
    offer = best(a_zone("dear", 4.0, 0.4), a_zone("cheap", 3.0, 0.3))
    assert (offer.zone.zone, offer.spot_usd_per_hour) == ("cheap", 3.0)
    assert offer.doubts == ()


def test_an_undoubted_dearer_zone_goes_before_a_doubted_cheaper_one():
    mirage = a_zone("mirage", 1.0, 0.1, weeks=1, seen_first="2026-08-22")
    offer = best(mirage, a_zone("plain", 3.0, 0.3))
    assert (offer.zone.zone, offer.spot_usd_per_hour) == ("plain", 3.0)
    assert offer.doubts == ()


def test_a_weighed_doubt_does_not_put_a_zone_behind():
    offer = best(a_zone("floor", 1.0, 0.1), a_zone("plain", 3.0, 0.3))
    assert offer.zone.zone == "floor"
    assert [doubt.word for doubt in offer.doubts] == ["floor"]


def test_the_zone_is_chosen_by_what_it_will_cost_when_asked():
    # $2 now but usually $8; $3 now and always. Prices come back to their level.
    zones = (
        a_zone("moved", 2.0, 0.2, weeks=792, mean_share=0.8),
        a_zone("still", 3.0, 0.3, weeks=792, mean_share=0.3),
    )
    moves = moving((0, 0, 0), 4, below=(1, 1, 1))
    assert best(*zones, movements=moves).zone.zone == "moved"
    later = best(*zones, movements=moves, today="2027-08-22")
    assert later.zone.zone == "still"
    assert later.spot_usd_per_hour == 3.0  # the quote stays what it is


def test_a_zone_where_spot_saves_nothing_is_no_zone():
    mirage = a_zone("mirage", 1.0, 0.1, weeks=1, seen_first="2026-08-22")
    offer = best(mirage, a_zone("full price", 10.0, 1.0))
    assert offer.zone.zone == "mirage"
    assert "unproven low" in offer.cautions("spot")


def test_a_zone_without_a_price_of_its_own_has_the_regions():
    offer = best(a_zone("", None, None, mean_share=0.2))
    assert offer.zone.mean_share == 0.2
    assert offer.spot_usd_per_hour == 1.0


def test_an_offer_without_zones_keeps_its_price_and_has_no_history():
    offer = best(provider="other", usd=None)
    assert (offer.zone, offer.spot_usd_per_hour) == (None, 1.0)
    assert [doubt.word for doubt in offer.doubts] == ["no history"]


def test_other_doubts_of_an_offer_stay():
    said = a_doubt("looks odd")
    offer = best(a_zone("floor", 1.0, 0.1), doubts=(said,))
    assert [doubt.word for doubt in offer.doubts] == ["looks odd", "floor"]


def test_offers_without_a_spot_price_and_quotes_of_the_user_stay_as_they_are():
    for offer in (an_offer(usd=1.0), an_offer(usd=10.0, spot_usd=1.0, quoted=True)):
        assert at_best_zone(offer, doubt_kinds(), "", a_market(*SHARES)) is offer


# --- the bundled tables ---


def bundled(provider, instance, region):
    (offer,) = (
        offer
        for offer in bundled_offers("2026-11-16")
        if offer.identity == (provider, instance, region)
    )
    return offer


def test_a_launch_floor_of_four_days_is_no_bargain():
    offer = at_best_zone(
        bundled("aws", "g7e.2xlarge", "ap-south-1"), doubt_kinds(), today="2026-11-16"
    )
    # $0.5493 of $5.493, exactly a tenth, first seen on the day of the snapshot
    assert (offer.zone.zone, offer.spot_usd_per_hour) == ("aps1-az3", 0.5493)
    assert {"floor", "no history", "unproven low"} <= set(offer.price_doubts("spot"))
    assert offer.cautions("spot")


def test_a_launch_floor_is_expected_to_cost_far_more_than_its_quote():
    offer = at_best_zone(bundled("aws", "g7e.2xlarge", "ap-south-1"), doubt_kinds())
    price = expected_price(offer, "spot", 12)
    usual = bundled_market().usual_share(offer)
    # The type's other zones cost 27 to 100 % of $5.493: the range reaches up to nine in ten of them
    assert usual.zones >= 21
    assert price.high >= usual.high * 5.493 > 5 * 0.5493
    assert price.likely > 1.25 * 0.5493
    middles = [NormalDist().inv_cdf((number + 0.5) / 100) for number in range(100)]
    draws = at_deviations(price, np.array(middles))
    assert np.minimum(draws, highest_price(offer, "spot")).mean() > 2 * 0.5493


def test_the_worked_example_of_the_docs():
    offer = at_best_zone(bundled("aws", "g7e.2xlarge", "ap-south-1"), doubt_kinds())
    price = expected_price(offer, "spot", 12)
    page = (Path(__file__).parents[2] / "docs/models/prices.md").read_text(encoding="utf-8")
    (example,) = (part for part in page.split("\n\n") if part.startswith("**By hand.** A g7e"))
    for usd in (price.likely, price.high):
        assert f"= {usd:.2f} dollars" in " ".join(example.split())


def test_no_bundled_offer_is_put_into_a_zone_where_spot_saves_nothing():
    dear = [
        offer.identity
        for offer in at_best_zones(bundled_offers("2026-11-16"), "2026-11-16")
        if offer.zone is not None
        and offer.price_usd_per_hour is not None
        and offer.spot_usd_per_hour >= offer.price_usd_per_hour
    ]
    assert dear == []


def test_every_bundled_spot_price_has_an_expected_one():
    for offer in at_best_zones(bundled_offers("2026-11-16"), "2026-11-16"):
        if offer.spot_usd_per_hour is not None:
            price = expected_price(offer, "spot", 12)
            assert 0 < price.low <= price.likely <= price.high
            assert price.low < price.high, offer.identity


def test_every_provider_has_moves():
    movements = bundled_movements()
    assert ("*", "spot") in movements
    assert ("*", "on-demand") in movements
    # AWS's spot prices come back to a level, others wander off
    assert [key for key in movements if movements[key].half_weeks is not None] == [("aws", "spot")]
