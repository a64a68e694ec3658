"""The prices of a past day: which day, whose prices, what was known then, and nothing later."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import pytest
from tests.rows import for_every

from outlay.errors import InputError
from outlay.facts import rows_of
from outlay.offers import catalog, expected_price
from outlay.offers.catalog import OfferFilter, snapshot_offers
from outlay.offers.offer import CHEAPEST_REGION
from outlay.offers.price_book import list_offers
from outlay.offers.spot import spot_risk
from outlay.plan.pipeline import plan_workload
from outlay.prices import past_books
from outlay.prices.history import bundled_history
from outlay.prices.past_books import past_prices
from outlay.prices.price_store import Attempt, PastPrice, PriceStore
from outlay.workload.file import parse_workload

WORK = '[step]\nprofile = "resnet50"\nbatch_size = 32\n[length]\ntime = "6h"\n'


def offers_of(book, **wanted):
    found = [
        offer
        for offer in book.offers_on("")
        if all(getattr(offer, name) == value for name, value in wanted.items())
    ]
    assert found, wanted
    return found


def words(offer):
    return [doubt.word for doubt in offer.doubts]


# --- which day ---


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2025-06", "2025-06-30"),
        ("2024-02", "2024-02-29"),
        ("2022-12", "2022-12-31"),
        ("2025-06-15", "2025-06-15"),
        ("2022-07", "2022-07-31"),
        ("2026-08", "2026-08-22"),  # the last day known of it
    ],
)
def test_a_day_or_the_end_of_a_month(text, day):
    book = past_prices(text)
    assert (book.kind, book.day, book.name) == ("past", day, f"the prices of {day}")
    assert book.as_of <= day


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2022-06", "before the first"),
        ("2022-07-30", "before the first"),
        ("2026-09", "after the last"),
        ("2026-08-23", "after the last"),
        ("2999-12-31", "after the last"),
    ],
)
def test_a_day_without_prices_is_an_error_with_the_range_there_is(text, said):
    with pytest.raises(InputError) as error:
        past_prices(text)
    assert text in error.value.what
    assert said in error.value.what
    assert error.value.why == "The history goes from 2022-07-31 to 2026-08-22."


@for_every("text", ["", "2025", "2025-13", "2025-6", "2025-02-30", "June", "2025-06-1", "202506"])
def test_what_is_no_day_is_an_error_that_says_how_to_write_one(text):
    with pytest.raises(InputError, match="is no day or month") as error:
        past_prices(text)
    assert "2025-06" in error.value.fix


def test_between_two_ends_of_months_the_earlier_one_is_known():
    # Lists of the end of June are not known on its 29th.
    assert {offer.source[-7:] for offer in past_prices("2025-06-29").listed} == {"2025-05"}
    assert {offer.source[-7:] for offer in past_prices("2025-06-30").listed} == {"2025-06"}


# --- offers ---


def test_list_prices_that_were_published():
    # https://cloud.google.com/compute/gpus-pricing: an A100 40GB machine at $3.67 an hour
    (gcp,) = offers_of(past_prices("2022-07"), instance="a2-highgpu-1g")
    assert gcp.price_usd_per_hour == pytest.approx(3.67, abs=0.01)
    # https://aws.amazon.com/ec2/instance-types/p5: 8 H100 at $98.32 from July 2023
    (aws,) = offers_of(past_prices("2023-07"), instance="p5.48xlarge")
    assert (aws.gpus, aws.gpu, aws.price_usd_per_hour) == (8, "H100 SXM", 98.32)
    # Lambda's A100 40GB at $1.10 in early 2023, $1.29 from mid 2024
    for month, usd in (("2023-02", 1.10), ("2024-10", 1.29)):
        (offer,) = offers_of(past_prices(month), provider="lambda", instance="gpu_1x_a100_sxm4")
        assert offer.price_usd_per_hour == usd


def test_no_gpu_is_offered_before_it_was_sold():
    # Announcements of the first clouds that sell them: L4 and H100 in spring 2023, H200 in autumn
    # 2024, B200 in winter 2025
    sold_from = {"L4": "2023-03", "H100": "2023-03", "H200": "2024-08", "B200": "2024-12"}
    for month in sorted({row.month for row in bundled_history()}):
        names = {offer.gpu.split()[0] for offer in past_prices(month).listed}
        assert {gpu for gpu, first in sold_from.items() if month < first}.isdisjoint(names), month
    assert set(sold_from) <= names


def test_an_offer_is_at_the_cheapest_region_and_says_so():
    book = past_prices("2025-06")
    assert {offer.region for offer in book.listed} == {CHEAPEST_REGION}
    assert any("cheapest region" in note for note in book.notes)
    assert any("as known today" in note for note in book.notes)


def test_machines_are_those_of_the_snapshot_and_unknown_where_the_type_is_gone():
    book = past_prices("2023-01")
    (kept,) = offers_of(book, instance="g5.xlarge")
    assert (kept.vcpus, kept.ram_bytes) == (4, 16 * 2**30)
    (gone,) = offers_of(book, instance="p2.xlarge")
    assert "p2.xlarge" not in {offer.instance for offer in snapshot_offers()}
    assert (gone.vcpus, gone.ram_bytes, gone.local_disk_bytes) == (None, None, None)
    work = WORK + '[consider]\ninstances = ["p2.*", "g5.*"]\n'
    plan = plan_workload(parse_workload(work), prices=book)
    assert {option.offer.instance for option in plan.options} >= {"p2.xlarge", "g5.xlarge"}


def test_what_is_sold_as_a_share_of_a_gpu():
    (offer,) = offers_of(past_prices("2023-06"), instance="Standard_NV6ads_A10_v5")
    assert (offer.gpus, offer.gpu_share) == (1, pytest.approx(1 / 6, abs=1e-4))
    assert "fraction of a GPU" in words(offer)


# --- doubts ---


def test_a_list_that_was_old_then_is_stale():
    # Azure's list of 2022-12-02 was 88 days old on 2023-02-28, and 119 on 2023-03-31.
    for day, is_stale in (("2023-02-28", False), ("2023-03-31", True)):
        azure = offers_of(past_prices(day), provider="azure")
        assert {"stale" in words(offer) for offer in azure} == {is_stale}
    # Between ends of months its age is that of the day: 90 days on 2023-03-02, 91 the day after.
    for day, is_stale in (("2023-03-02", False), ("2023-03-03", True)):
        azure = offers_of(past_prices(day), provider="azure")
        assert {"stale" in words(offer) for offer in azure} == {is_stale}


def test_known_holes_carry_their_doubts():
    # GCP's A100 at $2.43 while it cost $3.67; AWS's list stood still from 2026-03-31 on
    (gcp,) = offers_of(past_prices("2025-06"), instance="a2-highgpu-1g")
    assert "suspiciously cheap" in gcp.cautions("on-demand")
    assert not gcp.cautions("spot")
    aws = offers_of(past_prices("2026-05"), provider="aws")
    assert all("stale" in words(offer) for offer in aws)


def test_a_price_far_below_others_is_doubted_until_its_own_lists_have_had_it_for_a_quarter():
    # Lambda's A100 at $1.10 beside $3.67 and more at three clouds; its lists of 2023-01-17, 02-25
    # and 06-15 stand for three months
    for month, is_doubted in (("2023-02", True), ("2023-06", False)):
        (offer,) = offers_of(past_prices(month), provider="lambda", instance="gpu_1x_a100_sxm4")
        assert ("suspiciously cheap" in words(offer)) is is_doubted


def test_an_end_is_known_once_it_was_announced():
    # instance_ends.csv: Azure's NC (K80) announced 2023-02-27, gone 2023-08-31
    for day, word in (
        ("2023-01", None),
        ("2023-06", "withdrawal announced"),
        ("2023-09", "withdrawn"),
    ):
        (offer,) = offers_of(past_prices(day), instance="Standard_NC6")
        ends = [one for one in words(offer) if one.startswith("withdraw")]
        assert ends == ([word] if word else [])


# --- the spot market ---


def share_then(rows, provider, instance):
    (row,) = [row for row in rows if (row.provider, row.instance) == (provider, instance)]
    return row


def test_what_spot_usually_costs_is_the_months_own():
    rows = [row for row in bundled_history() if row.month == "2025-06"]
    row = share_then(rows, "aws", "g5.xlarge")
    (offer,) = offers_of(past_prices("2025-06"), instance="g5.xlarge")
    assert offer.spot_usd_per_hour == row.spot_usd_per_hour
    usual = offer.usual_share
    assert usual.zones == row.regions > 1
    assert usual.middle == pytest.approx(row.spot_median_usd_per_hour / row.price_usd_per_hour)
    assert usual.low == pytest.approx(row.spot_usd_per_hour / row.price_usd_per_hour)
    # as far above the middle as the lowest is below
    assert usual.high == pytest.approx(min(usual.middle**2 / usual.low, 1.0))


def test_a_price_that_has_just_fallen_has_no_past():
    # a3-highgpu-1g at $1.09 in 2026-08 after 1.29, 1.35, 1.17, 1.23, 1.35 and 1.54: about as low,
    # within a quarter, since the list of 2026-03-31. That is 143 days or 21 weeks to 2026-08-21.
    (offer,) = offers_of(past_prices("2026-08"), instance="a3-highgpu-1g")
    assert (offer.zone.weeks, offer.zone.seen_first) == (21, "2026-03-31")
    # g7e.2xlarge at $0.55 after $1.23: a zone nobody knows, far below the middle of $1.40
    (offer,) = offers_of(past_prices("2026-08"), instance="g7e.2xlarge")
    assert offer.zone.weeks == 1
    assert {"no history", "far below usual"} < set(words(offer))
    assert offer.cautions("spot") == ("unproven low",)


def test_the_mean_share_is_of_lists_up_to_then():
    rows = [
        row
        for row in bundled_history()
        if (row.provider, row.instance) == ("gcp", "a2-highgpu-1g") and row.month <= "2023-03"
    ]
    shares = {row.as_of: row.spot_median_usd_per_hour / row.price_usd_per_hour for row in rows}
    (offer,) = offers_of(past_prices("2023-03"), instance="a2-highgpu-1g")
    mean = math.exp(sum(map(math.log, shares.values())) / len(shares))
    assert offer.zone.mean_share == pytest.approx(mean)
    assert len(shares) < len(rows)  # a list that is repeated counts once


# --- nothing that became known later ---


@for_every("month", ["2022-10", "2023-07", "2024-06", "2025-06", "2026-03"])
def test_months_to_come_change_nothing(month, monkeypatch):
    whole = past_prices(month)
    with monkeypatch.context() as patch:
        known = tuple(row for row in bundled_history() if row.month <= month)
        patch.setattr(past_books, "bundled_history", lambda: known)
        for cached in (past_books._months, past_books._series):
            cached.cache_clear()
        alone = past_prices(month)
    for cached in (past_books._months, past_books._series):
        cached.cache_clear()
    assert alone.offers_on("") == whole.offers_on("")
    assert alone.market.quotes == whole.market.quotes


@for_every("month", ["2022-07", "2024-03", "2025-06", "2026-08"])
def test_no_price_is_of_a_later_day(month):
    book = past_prices(month)
    assert all(offer.as_of <= book.day for offer in book.offers_on(""))
    zones = [offer.zone for offer in book.offers_on("") if offer.zone]
    assert zones
    assert all(zone.seen_first <= book.day for zone in zones)
    assert max(book.freshness.values()) == book.as_of


def test_a_plan_asks_for_nothing_but_the_prices_of_then(monkeypatch):
    def later(*_, **__):
        raise AssertionError("this became known later")

    book = past_prices("2024-06")
    monkeypatch.setattr(expected_price, "bundled_market", later)
    monkeypatch.setattr(catalog, "bundled_market", later, raising=False)
    monkeypatch.setattr(catalog, "offers_on", later)
    work = parse_workload(WORK + '[consider]\nproviders = ["aws", "runpod"]\n')
    plan = plan_workload(work, prices=book, today="2026-11-17")
    assert plan.today == "2024-06-30"
    assert plan.chosen is not None


def test_interruptions_published_later_are_not_known():
    # AWS's buckets are of 2025-06-28
    for month, is_known in (("2025-05", False), ("2025-06", True)):
        (offer,) = offers_of(past_prices(month), instance="g5.xlarge")
        assert spot_risk(offer).is_assumption is not is_known
    published = [row for row in rows_of(_interruptions()) if row["instance"] == "g5.xlarge"]
    lowest = min(float(row["low_fraction_per_month"]) for row in published)
    risk = spot_risk(offer).interruptions_per_month
    assert risk.low == pytest.approx(-math.log1p(-lowest))
    assert risk.low < risk.likely < risk.high


def _interruptions():
    return "spot_interruptions_2025-06-28.csv"


def test_discounts_of_terms_seen_later_are_not_taken():
    work = parse_workload(WORK + '[usage]\nhorizon = "2y"\n[consider]\ninstances = ["g5.*"]\n')
    first = min(row["as_of"] for row in rows_of("commitments.csv") if row["provider"] == "aws")
    assert first > "2024-06-30"
    terms = defaultdict(set)
    for month in ("2024-06", "2026-08"):
        book = past_prices(month)
        for option in plan_workload(work, prices=book).options:
            terms[month].add(option.tenancy)
            if option.offer.commitment is not None:
                assert option.offer.commitment.source[-10:] <= book.day
    assert "reserved" not in terms["2024-06"]
    assert "reserved" in terms["2026-08"]


def test_a_free_notebook_seen_later_is_not_offered():
    work = parse_workload(WORK + '[prefer]\naccess = "notebook"\n[consider]\ngpus = ["T4"]\n')
    for month, is_there in (("2025-06", False), ("2026-08", True)):  # its quota is of 2026-03-18
        options = plan_workload(work, prices=past_prices(month)).options
        assert any(option.offer.provider == "kaggle" for option in options) is is_there


def test_an_own_quote_of_a_later_day_stands_and_is_said():
    quote = '[[offer]]\nprovider = "here"\ngpu = "T4"\nprice_per_hour = 0.1\nas_of = 2026-01-01\n'
    work = parse_workload(WORK + "[consider]\nbundled = false\n" + quote)
    plan = plan_workload(work, prices=past_prices("2025-06"))
    assert plan.chosen.offer.provider == "here"
    said = [note for note in plan.assumptions if "from after 2025-06-30" in note]
    assert said == ["Quotes of your own from after 2025-06-30 are taken as you wrote them (1)."]


# --- regions ---


def test_a_region_asked_for_is_looked_up_and_cautioned_of():
    work = parse_workload(WORK + '[consider]\nregions = ["us-east"]\ngpus = ["L4"]\n')
    plan = plan_workload(work, prices=past_prices("2025-06"))
    assert plan.chosen is not None
    assert any("cheapest region anywhere" in caution for caution in plan.cautions)
    nowhere = parse_workload(WORK + '[consider]\nregions = ["atlantis"]\n')
    with pytest.raises(InputError, match="atlantis"):
        plan_workload(nowhere, prices=past_prices("2025-06"))


def test_without_regions_nothing_is_cautioned_of():
    work = parse_workload(WORK + '[consider]\ngpus = ["L4"]\n')
    assert plan_workload(work, prices=past_prices("2025-06")).cautions == ()


def test_offers_of_then_are_listed_by_price():
    found = list_offers(OfferFilter(), today="2026-11-17", prices=past_prices("2023-01"))
    prices = [offer.price_usd_per_hour for offer in found]
    assert prices == sorted(prices, key=lambda usd: math.inf if usd is None else usd)


# --- refreshes that were kept ---


def a_past_price(at, usd, *, spot=None, provider="lambda", source="skypilot", **more):
    fields = {"instance": "gpu_1x_a10", "region": "us-east-1", "zone": "", "gpu": "A10", "gpus": 1}
    return PastPrice(
        at=at,
        source=source,
        provider=provider,
        price_usd_per_hour=usd,
        spot_usd_per_hour=spot,
        **{**fields, **more},
    )


def an_attempt(day, provider="lambda", source="skypilot"):
    return Attempt(
        source=source,
        provider=provider,
        at=f"{day}T09:00:00Z",
        state="unchanged",
        offers=1,
        as_of=day,
    )


@pytest.fixture
def kept():
    """The store of a user who refreshed Lambda in October and November."""
    with PriceStore() as store:
        store.add_past(
            [
                a_past_price("2026-10-05T09:00:00Z", 1.00),
                a_past_price("2026-11-02T09:00:00Z", 1.20),
                a_past_price("2026-10-05T09:00:00Z", 0.5, instance="odd", gpu="Quux 9"),
            ]
        )
        store.note(an_attempt("2026-11-09"))
        yield store


@pytest.mark.parametrize(
    ("day", "usd", "as_of"),
    [
        ("2026-10-05", 1.00, "2026-10-05"),
        ("2026-11-01", 1.00, "2026-10-05"),
        ("2026-11-02", 1.20, "2026-11-02"),
        ("2026-11", 1.20, "2026-11-02"),  # confirmed on the 9th, as it was
    ],
)
def test_refreshes_that_were_kept_stand_as_they_did(kept, day, usd, as_of):
    book = past_prices(day, store=kept)
    (offer,) = offers_of(book, provider="lambda")
    assert (offer.price_usd_per_hour, offer.as_of) == (usd, as_of)
    assert (offer.region, offer.vcpus) == ("us-east-1", 30)  # an A10 machine of Lambda's has 30
    assert book.freshness["lambda"] == as_of == book.as_of


def test_a_list_that_was_old_when_it_was_read_is_as_old_as_it_was(kept):
    row = a_past_price("2026-11-03T09:00:00Z", 0.9, as_of="2026-08-30", doubts=("low stock",))
    kept.add_past([replace(row, provider="runpod", instance="1x_L4_SECURE", gpu="L4")])
    (offer,) = offers_of(past_prices("2026-11-04", store=kept), provider="runpod")
    assert offer.as_of == "2026-08-30"
    assert {"low stock", "region not verified"} <= set(words(offer))


def test_others_are_of_the_last_month_there_is(kept):
    book = past_prices("2026-11-02", store=kept)
    assert {offer.source[-7:] for offer in offers_of(book, provider="runpod")} == {"2026-08"}
    assert any("2026-08" in note for note in book.notes)


def test_before_the_first_refresh_the_month_counts(kept):
    (offer,) = offers_of(past_prices("2026-10-04", store=kept), instance="gpu_1x_a10")
    assert offer.region == CHEAPEST_REGION


def test_a_gpu_nobody_knows_is_named_and_in_no_plan(kept):
    book = past_prices("2026-10-05", store=kept)
    assert [offer.gpu for offer in book.unknown] == ["Quux 9"]
    assert "Quux 9" not in {offer.gpu for offer in book.offers_on("")}


def test_a_day_after_the_last_refresh_is_an_error_with_that_day(kept):
    with pytest.raises(InputError) as error:
        past_prices("2026-11-10", store=kept)
    assert error.value.why == "The history goes from 2022-07-31 to 2026-11-09."


def test_what_was_no_longer_listed_is_not_offered(kept):
    kept.add_past([a_past_price("2026-11-08T09:00:00Z", None)])
    with pytest.raises(AssertionError):
        offers_of(past_prices("2026-11-09", store=kept), instance="gpu_1x_a10", region="us-east-1")


def test_of_two_sources_as_new_the_preferred_one_counts(kept):
    kept.add_past([a_past_price("2026-11-03T09:00:00Z", 1.15, source="gpuhunt")])
    (offer,) = offers_of(past_prices("2026-11-04", store=kept), provider="lambda")
    assert offer.source.startswith("skypilot")


def test_zones_that_were_kept_have_their_past_up_to_then():
    # aws's g5.xlarge was seen in 37 weeks by the snapshot of 2026-08-22, in use1-az1 too
    known = expected_price.bundled_market().quotes["aws", "g5.xlarge", "us-east-1"]
    (before,) = [zone for zone in known if zone.zone == "use1-az1"]
    rows = [
        a_past_price(f"{day}T09:00:00Z", 1.006, spot=spot, provider="aws", **place)
        for day, spot in (("2026-11-02", 0.5), ("2026-11-09", 0.4), ("2026-11-16", 0.2))
        for place in (
            {"instance": "g5.xlarge", "gpu": "A10G"},
            {"instance": "g5.xlarge", "gpu": "A10G", "zone": "use1-az1"},
        )
    ]
    with PriceStore() as store:
        store.add_past(rows)
        book = past_prices("2026-11-09", store=store)
    (offer,) = offers_of(book, instance="g5.xlarge", region="us-east-1")
    assert (offer.zone.zone, offer.spot_usd_per_hour) == ("use1-az1", 0.4)
    assert offer.zone.weeks == before.weeks + 2


def test_a_store_that_cannot_be_read_is_warned_of(own_folder):
    own_folder.mkdir(exist_ok=True)
    (own_folder / "prices.sqlite").write_bytes(b"no database" * 1000)
    said = []
    book = past_prices("2025-06", said.append)
    assert book.listed
    assert len(said) == 1
    assert "bundled history" in said[0]
