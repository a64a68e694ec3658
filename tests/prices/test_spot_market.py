"""The spot market of refreshed lists: the bundled past continued week by week, by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import date, timedelta

import pytest
from tests.builders import an_offer
from tests.docs.pages import tool as tool_named

from outlay.offers.catalog import at_best_zones
from outlay.offers.expected_price import SpotMarket, bundled_market
from outlay.offers.offer import ZoneQuote
from outlay.offers.price_book import PriceBook
from outlay.plan.pipeline import plan_workload
from outlay.prices import spot_market as spot_markets
from outlay.prices.price_store import PastPrice, PriceStore
from outlay.prices.sources import ProviderPrices, Validators, ZonePrice
from outlay.prices.spot_market import spot_market
from outlay.workload.file import parse_workload

SNAPSHOT = date(2026, 8, 22)
"""A Saturday: so many weeks later is a week of its own."""


def weeks_later(number):
    return (SNAPSHOT + timedelta(weeks=number)).isoformat()


def a_zone_price(spot, *, zone="use1-az1", price=1.0, instance="g1.big"):
    return ZonePrice(
        provider="aws",
        instance=instance,
        region="us-east-1",
        zone=zone,
        price_usd_per_hour=price,
        spot_usd_per_hour=spot,
    )


def a_list(*zones, day, offers=(), provider="aws", source="skypilot"):
    return ProviderPrices(
        source=source,
        provider=provider,
        as_of=day,
        fetched_at=f"{day}T09:00:00Z",
        offers=tuple(offers),
        zones=zones,
    )


def a_change(zone_price, day):
    return PastPrice(
        at=f"{day}T09:00:00Z",
        source="skypilot",
        provider=zone_price.provider,
        instance=zone_price.instance,
        region=zone_price.region,
        zone=zone_price.zone,
        gpu="T4",
        gpus=1,
        price_usd_per_hour=zone_price.price_usd_per_hour,
        spot_usd_per_hour=zone_price.spot_usd_per_hour,
    )


def a_quote(zone="use1-az1", *, usd=0.5, share=0.5, weeks=10, mean=0.4, change: float | None = 0.2):
    return ZoneQuote(
        zone=zone,
        usd_per_hour=usd,
        share=share,
        weeks=weeks,
        seen_first="2026-01-04",
        mean_share=mean,
        weekly_change=change,
    )


KEY = ("aws", "g1.big", "us-east-1")


@pytest.fixture
def bundled(monkeypatch):
    """Puts quotes in the place of the bundled ones."""

    def put(*quotes, key=KEY):
        market = SpotMarket({key: quotes, ("gcp", "n1", "us-west1"): [a_quote("us-west1-a")]})
        monkeypatch.setattr(spot_markets, "bundled_market", lambda: market)

    return put


def weekly(*spots, first=1):
    """A zone refreshed once a week: its list of the last week, and every change."""
    prices = [a_zone_price(spot) for spot in spots]
    days = [weeks_later(first + number) for number in range(len(spots))]
    return [a_list(prices[-1], day=days[-1])], list(map(a_change, prices, days))


# --- nothing new ---


def test_without_a_refresh_it_is_the_bundled_market():
    assert spot_market([]).quotes == bundled_market().quotes
    assert len(spot_market([]).quotes) > 1000


def test_a_list_of_the_snapshots_own_week_changes_nothing_but_its_figures_roundings():
    zones = [
        replace(
            a_zone_price(zone.usd_per_hour, zone=zone.zone, price=zone.usd_per_hour / zone.share),
            instance=instance,
            region=region,
        )
        for (provider, instance, region), quotes in bundled_market().quotes.items()
        for zone in quotes
        if provider == "aws" and zone.share and zone.usd_per_hour
    ]
    refreshed = spot_market([a_list(*zones, day="2026-08-22")]).quotes
    assert len(zones) > 1000
    for key, quotes in refreshed.items():
        for zone, known in zip(quotes, bundled_market().quotes[key], strict=True):
            assert zone.share == pytest.approx(known.share) if known.share else zone == known
            assert replace(zone, share=None) == replace(known, share=None)


# --- weeks that come after it ---


def test_two_weekly_refreshes_are_two_weeks_more(bundled):
    bundled(a_quote())
    (quote,) = spot_market(*weekly(0.5, 0.4)).quotes[KEY]
    assert (quote.weeks, quote.seen_first) == (12, "2026-01-04")
    assert (quote.usd_per_hour, quote.share) == (0.4, pytest.approx(0.4))
    # nine weeks of 0.4 in the file, 0.5 in the snapshot, then 0.5 and 0.4:
    # 0.4^(10/12) x 0.5^(2/12) = 0.4152
    assert quote.mean_share == pytest.approx(0.4 ** (10 / 12) * 0.5 ** (2 / 12))
    assert quote.mean_share == pytest.approx(0.4152, abs=1e-4)


def test_the_change_of_two_more_weeks_takes_the_place_of_two_of_eight(bundled):
    bundled(a_quote())
    (quote,) = spot_market(*weekly(0.5, 0.4)).quotes[KEY]
    # before: 0.2 is the root of (8 squares + 0.1^2) / 9: each is (0.36 - 0.01) / 8 = 0.04375
    # now six of them, 0 and ln(0.4 / 0.5)^2 = 0.0498: (0.2625 + 0.0498 + 0.01) / 9 = 0.0358
    assert quote.weekly_change == pytest.approx(math.sqrt(0.0358), abs=1e-4)


def test_after_eight_weeks_nothing_of_the_old_changes_is_left(bundled):
    steady = weekly(*[0.5] * 8)
    for change in (0.05, 0.9):
        bundled(a_quote(change=change))
        (quote,) = spot_market(*steady).quotes[KEY]
        # no change in eight weeks, and one usual one: the root of 0.1^2 / 9
        assert quote.weekly_change == pytest.approx(0.1 / 3)


def test_a_change_over_several_weeks_is_not_one_of_a_week(bundled):
    bundled(a_quote())
    (quote,) = spot_market(*weekly(0.05, first=12)).quotes[KEY]
    assert quote.weeks == 11
    assert quote.weekly_change == pytest.approx(0.2)


def test_a_past_of_the_region_has_all_its_weeks_in_the_mean(bundled):
    bundled(a_quote(change=None))
    (quote,) = spot_market(*weekly(0.5)).quotes[KEY]
    # ten weeks of 0.4, the snapshot's among them, and one of 0.5
    assert quote.mean_share == pytest.approx(0.4 ** (10 / 11) * 0.5 ** (1 / 11))


def test_several_refreshes_of_a_week_are_one_week_at_its_last_price(bundled):
    bundled(a_quote(weeks=1, mean=None, change=None))
    prices = [a_zone_price(spot) for spot in (0.9, 0.7, 0.2)]
    days = ["2026-08-24", "2026-08-26", "2026-08-30"]  # Monday, Wednesday, Sunday
    changes = list(map(a_change, prices, days))
    (quote,) = spot_market([a_list(prices[-1], day=days[-1])], changes).quotes[KEY]
    assert quote.weeks == 2
    assert quote.mean_share == pytest.approx(math.sqrt(0.5 * 0.2))


def test_a_week_counts_though_its_price_did_not_change(bundled):
    bundled(a_quote())
    still, moving = a_zone_price(0.5), a_zone_price(0.3, zone="use1-az2")
    changes = [
        a_change(still, weeks_later(1)),
        a_change(moving, weeks_later(1)),
        a_change(replace(moving, spot_usd_per_hour=0.35), weeks_later(2)),
        a_change(moving, weeks_later(3)),
    ]
    market = spot_market([a_list(still, moving, day=weeks_later(3))], changes)
    assert [(zone.zone, zone.weeks) for zone in market.quotes[KEY]] == [
        ("use1-az1", 13),
        ("use1-az2", 3),
    ]


# --- zones that are new or gone ---


def test_a_zone_that_was_never_seen_has_one_week(bundled):
    bundled(a_quote("use1-az9"))
    (quote,) = spot_market(*weekly(0.3)).quotes[KEY]
    assert (quote.weeks, quote.seen_first) == (1, weeks_later(1))
    assert (quote.mean_share, quote.weekly_change) == (None, None)


def test_a_new_zone_has_the_weeks_since(bundled):
    bundled(a_quote("use1-az9"))
    (quote,) = spot_market(*weekly(0.2, 0.4, 0.4)).quotes[KEY]
    assert (quote.weeks, quote.seen_first) == (3, weeks_later(1))
    assert quote.mean_share == pytest.approx((0.2 * 0.4 * 0.4) ** (1 / 3))
    # ln 2 and 0, and a usual one: the root of (0.4805 + 0.01) / 3
    assert quote.weekly_change == pytest.approx(math.sqrt((math.log(2) ** 2 + 0.01) / 3))


def test_what_is_no_longer_listed_is_gone_and_other_providers_stay(bundled):
    bundled(a_quote(), a_quote("use1-az2"))
    quotes = spot_market([a_list(a_zone_price(0.5), day=weeks_later(1))]).quotes
    assert [zone.zone for zone in quotes[KEY]] == ["use1-az1"]
    assert quotes["gcp", "n1", "us-west1"] == [a_quote("us-west1-a")]


def test_a_list_of_regions_alone_stands_over_the_bundled_zones(bundled):
    bundled(a_quote(usd=0.05, share=0.05), a_quote("use1-az2"))
    offer = an_offer(
        provider="aws",
        instance="g1.big",
        region="us-east-1",
        spot_usd=0.6,
        as_of=weeks_later(1),
    )
    market = spot_market([a_list(day=weeks_later(1), offers=[offer], source="gpuhunt")])
    (quote,) = market.quotes[KEY]
    assert (quote.zone, quote.usd_per_hour, quote.weeks) == ("", None, 11)
    (best,) = at_best_zones((offer,), weeks_later(1), market)
    assert best.spot_usd_per_hour == 0.6


def test_of_two_lists_of_a_provider_the_first_counts(bundled):
    bundled(a_quote())
    first = a_list(a_zone_price(0.5), day=weeks_later(1))
    second = a_list(a_zone_price(0.7), day=weeks_later(1), source="gpuhunt")
    (quote,) = spot_market([first, second]).quotes[KEY]
    assert quote.usd_per_hour == 0.5


# --- agreement with the tool that makes the bundled table ---


def test_it_reckons_as_the_tool_that_makes_the_bundled_table(bundled):
    bundled()
    spots = [0.31, 0.35, 0.2, 0.22, 0.5, 0.5, 0.44, 0.3, 0.12, 0.4, 0.41, 0.39]
    tool = tool_named("fit_prices")
    rows = [
        {
            "provider": "aws",
            "instance": "g1.big",
            "region": "us-east-1",
            "zone": "use1-az1",
            "week_of": weeks_later(1 + number),
            "usd_per_hour": "1.0",
            "spot_usd_per_hour": str(spot),
        }
        for number, spot in enumerate(spots)
    ]
    past = tool.past_of(tool.read_weekly(rows, "aws"))
    (quote,) = spot_market(*weekly(*spots)).quotes[KEY]
    assert quote.weeks == past.seen[0, -1] == 12
    assert math.log(quote.mean_share) == pytest.approx(past.mean[0, -1])
    assert quote.weekly_change == pytest.approx(past.change[0, -1])


# --- from the store to a plan ---


def test_a_store_with_two_weekly_refreshes(bundled):
    bundled(a_quote())
    offer = an_offer(
        provider="aws", instance="g1.big", region="us-east-1", gpu="T4", as_of=weeks_later(2)
    )
    with PriceStore() as store:
        for number, spot in ((1, 0.5), (2, 0.4)):
            prices = a_list(a_zone_price(spot), day=weeks_later(number), offers=[offer])
            store.replace(prices, Validators())
        (quote,) = spot_market(store.current(), store.past()).quotes[KEY]
    assert quote.weeks == 12
    assert quote.mean_share == pytest.approx(0.4 ** (10 / 12) * 0.5 ** (2 / 12))


WORK = parse_workload(
    '[step]\nprofile = "resnet50"\nbatch_size = 32\n[length]\ntime = "672h"\n'
    '[consider]\ntenancies = ["spot"]\n'
)


def spot_price_in_a_plan(*spots):
    """The range of the price in a plan with a machine whose spot price was so, week by week."""
    lists, changes = weekly(*spots)
    day = lists[0].as_of
    offer = an_offer(
        provider="aws",
        instance="g1.big",
        region="us-east-1",
        gpu="T4",
        spot_usd=spots[-1],
        as_of=day,
    )
    book = PriceBook(
        name="refreshed",
        kind="refreshed",
        as_of=day,
        listed=(offer,),
        market=spot_market(lists, changes),
    )
    options = plan_workload(WORK, prices=book, today=day).options
    (option,) = [one for one in options if one.offer.instance == "g1.big"]
    return option.price_usd_per_hour


def test_a_restless_price_of_late_widens_the_range_in_a_plan(bundled):
    bundled(a_quote(share=0.4, usd=0.4))
    calm = spot_price_in_a_plan(0.4, 0.4, 0.4, 0.4)
    restless = spot_price_in_a_plan(0.5, 0.3, 0.5, 0.4)  # the same quote, about the same mean
    # Four of eight squares stay 0.04375; the others are 0, or 0.0498, 0.2609, 0.2609 and 0.0498:
    # the root of (0.175 + 0.01) / 9 is 0.143, of (0.175 + 0.6214 + 0.01) / 9 it is 0.299.
    # The middle of four weeks is two after the quote, 2 / (2 + 4) of what moves; of the change,
    # low counts -2.08 times and high 3.89 times (price_moves.csv): 5.97 x 0.156 / 3 = 0.31.
    wider = math.log(restless.high / restless.low) - math.log(calm.high / calm.low)
    assert wider == pytest.approx(0.31, rel=0.1)
    assert restless.low < calm.low < calm.high < restless.high


def test_the_last_change_of_each_week_says_as_much_as_every_change(tmp_path):
    luck = random.Random(7)
    days = sorted(luck.sample(range(1, 80), 40))
    zones = ["use1-az1", "use1-az2", "use1-az4"]
    past = [
        a_change(a_zone_price(luck.uniform(0.2, 0.9), zone=zone), day.isoformat())
        for number in days
        for zone in zones
        if luck.random() < 0.7 and (day := SNAPSHOT + timedelta(days=number))
    ]
    now = a_list(*(a_zone_price(0.4, zone=zone) for zone in zones), day=weeks_later(12))
    with PriceStore(tmp_path / "prices.sqlite") as store:
        store.add_past(past)
        weeks = list(store.past_weeks("skypilot", "aws"))
        assert list(store.past_weeks("gpuhunt", "aws")) == []
    assert len(weeks) < len(past)
    assert spot_market([now], weeks).quotes == spot_market([now], past).quotes
