"""What is doubtful about prices: a whole reply, one offer by its past, by others, by sources."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_doubt, an_offer

from outlay.offers.catalog import doubt_kinds, snapshot_offers
from outlay.offers.offer import BEFORE, HostQuality, OtherPrice
from outlay.prices.checks import (
    doubted_by_others,
    doubted_by_past,
    gpu_kind,
    refusal,
    same_machines,
)
from outlay.prices.price_list import PriceList
from outlay.prices.price_store import PriceStore
from outlay.prices.sources import ProviderPrices, ReadListings, Validators

JUDGED = {
    "suspiciously cheap",
    "suspiciously dear",
    "spot suspiciously cheap",
    "spot suspiciously dear",
}
LIST = "https://example.org/v8/acme/vms.csv"


def words(offer):
    return [doubt.word for doubt in offer.doubts]


def listed(instance="box", region="north", **more):
    return an_offer(instance=instance, region=region, **({"source": LIST} | more))


def many(count, **more):
    return [listed(f"box-{number}", **more) for number in range(count)]


def a_read(rows, failed=0):
    reasons = [f"line {line}: the price 'x' is no number" for line in range(2, 2 + failed)]
    return ReadListings(listings=(), rows=rows, failed=reasons)


def refused(offers, before, *, failed=0, rows=None, unknown=(), is_market=False):
    rows = len(offers) + failed if rows is None else rows
    prices = PriceList(offers=tuple(offers), unknown=tuple(unknown))
    return refusal(a_read(rows, failed), prices, before, is_market=is_market)


# --- a whole reply ---


def test_the_same_again_is_taken():
    assert refused(many(30), many(30)) is None


def test_the_first_reply_of_a_provider_is_taken():
    assert refused(many(3), []) is None


@pytest.mark.parametrize(
    ("failed", "is_refused"),
    [(10, False), (11, True)],  # of 100 rows a tenth is 10
)
def test_more_than_a_tenth_that_cannot_be_read_refuses_all(failed, is_refused):
    reason = refused(many(100 - failed), many(100 - failed), failed=failed, rows=100)
    assert (reason is not None) == is_refused
    if reason:
        assert "11 of 100 rows cannot be read (line 2: the price 'x' is no number)" in reason
        assert "--accept" not in reason


def test_a_whole_file_times_hundred_is_refused_with_what_to_do():
    reason = refused(many(20, usd=100.0), many(20, usd=1.0))
    assert reason is not None
    assert reason.startswith(
        "More than a tenth of what acme lists fails: 20 of 20 prices are more than 4 times or less "
        "than a quarter of the last good ones; if these are its prices, "
    )
    assert "`outlay prices refresh --provider acme --accept`" in reason


@pytest.mark.parametrize(("moved", "is_refused"), [(2, False), (3, True)])  # of 20 a tenth is 2
def test_more_than_a_tenth_of_spot_prices_far_from_what_they_were_refuses_all(moved, is_refused):
    before = many(20, usd=1.0, spot_usd=0.5)
    now = [*many(moved, usd=1.0, spot_usd=0.005), *before[moved:]]
    reason = refused(now, before)
    assert (reason is not None) == is_refused
    if reason:
        assert "3 of 20 spot prices are, beside on-demand, more than 4 times or less" in reason
        assert "`outlay prices refresh --provider acme --accept`" in reason


def test_spot_prices_that_are_gone_refuse_nothing():
    # RunPod's of 2026-06-01 were all gone on 2026-08-22.
    assert refused(many(20, usd=1.0), many(20, usd=1.0, spot_usd=0.5)) is None


def test_one_machine_in_thousands_of_places_takes_no_time():
    before = [replace(listed(), region=f"place-{number}") for number in range(4000)]
    moved = [replace(offer, region=f"other-{n}") for n, offer in enumerate(before)]
    other = ProviderPrices(
        source="gpuhunt",
        provider="acme",
        as_of="2026-11-17",
        fetched_at="2026-11-17T08:00:00Z",
        offers=tuple(before),
    )
    started_s = time.process_time()
    assert refused(moved, before) is None
    assert len(doubted_by_past(moved, before)) == 4000
    assert len(doubted_by_others(before, {"acme": [other]})) == 4000
    # 1 s on one core; every one beside every other took minutes.
    assert time.process_time() - started_s < 15.0


def test_one_price_times_hundred_is_no_reason_to_refuse():
    dear, *rest = many(20)
    assert refused([replace(dear, price_usd_per_hour=100.0), *rest], many(20)) is None


def test_prices_that_are_gone_fail_too():
    gone = [replace(offer, price_usd_per_hour=None, spot_usd_per_hour=0.1) for offer in many(20)]
    assert "20 of 20 prices are gone" in (refused(gone, many(20)) or "")


def test_rows_that_fail_in_either_way_are_put_together():
    # 6 of 100 rows cannot be read; of the 94 others a tenth moved: 0.06 + 0.94 * 0.1 = 15.4 %.
    offers = [*many(9), *[listed("dear", usd=9.0)]]
    before = [*many(9), listed("dear")]
    reason = refused(offers, before, failed=6, rows=100)
    assert reason is not None
    assert "6 of 100 rows cannot be read" in reason
    assert "1 of 10 prices" in reason
    assert "--accept" in reason  # either alone would have been taken


def test_new_machines_say_nothing_about_old_prices():
    # 2 of the 10 that are known moved, a fifth, whatever else is listed for the first time.
    moved = [replace(offer, price_usd_per_hour=5.0) for offer in many(2)]
    new = [listed(f"new-{number}") for number in range(100)]
    assert refused([*moved, *many(10)[2:], *new], many(10)) is not None


def test_one_row_of_three_does_not_condemn_the_list():
    assert refused(many(2), many(2), failed=1, rows=3) is None
    dear = listed("box-0", usd=50.0)
    assert refused([dear, *many(3)[1:]], many(3)) is None


def test_two_rows_of_three_do():
    assert refused(many(1), many(1), failed=2, rows=3) is not None


def test_a_list_of_one_that_fails_is_the_whole_list():
    assert refused([listed(usd=50.0)], [listed(usd=1.0)]) is not None


@pytest.mark.parametrize("before", [[], many(640)])
def test_an_empty_list_is_always_refused(before):
    reason = refused([], before)
    assert reason is not None
    assert reason.startswith("The reply lists no machine with a GPU")
    assert ("where 640 offers were" in reason) == bool(before)


def test_a_list_of_unknown_gpus_alone_is_not_empty():
    assert refused([], [], unknown=many(2)) is None


@pytest.mark.parametrize(
    ("left", "is_refused"),
    [(43, False), (42, True)],  # of 63 a third is 21
)
def test_a_third_of_the_machine_types_gone_refuses_all(left, is_refused):
    reason = refused(many(left), many(63))
    assert (reason is not None) == is_refused
    if reason:
        assert reason.startswith("21 of 63 machine types of acme are gone, a third or more; if it")
        assert "`outlay prices refresh --provider acme --accept`" in reason


def test_one_type_of_three_may_go_but_not_all():
    assert refused(many(2), many(3)) is None
    assert refused([listed("other")], [listed("box")]) is not None


def test_types_whose_gpu_nobody_knows_any_more_are_gone():
    assert refused(many(30), many(40), unknown=many(40)[30:]) is None  # a quarter
    strange = [replace(offer, gpu="Hopper One") for offer in many(40)[20:]]
    reason = refused(many(20), many(40), unknown=strange)
    assert reason is not None
    assert reason.startswith(
        "20 of 40 machine types of acme are gone, 20 with a GPU that nobody knows (Hopper One), a "
        "third or more; if it"
    )


def test_half_of_the_zones_gone_refuses_all_though_no_type_is():
    before = many(20, zones=4)
    assert refused(many(20, zones=3), before) is None
    # 20 types in 2 of 4 zones: 40 rows of 80.
    reason = refused(many(20, zones=2), before)
    assert reason is not None
    assert reason.startswith("acme lists 40 rows where 80 were: a third or more is gone;")


def test_a_first_reply_is_not_measured_by_what_the_snapshot_had():
    prices = PriceList(offers=(listed("other"),))
    assert refusal(a_read(1), prices, many(40), is_first=True) is None
    moved = PriceList(offers=tuple(many(40, usd=100.0)))
    assert refusal(a_read(40), moved, many(40), is_first=True) is not None


def test_hosts_of_a_market_come_and_go_but_its_gpus_do_not():
    names = ("T4", "L4", "A10", "A40", "L40S", "RTX 4090")
    before = [listed(f"host-{n}", gpu=names[n % 6]) for n in range(60)]
    now = [listed(f"other-{n}", gpu=names[n % 6]) for n in range(12)]
    assert refused(now, before) is not None
    assert refused(now, before, is_market=True) is None
    fewer = [offer for offer in now if offer.gpu not in ("T4", "L4")]
    reason = refused(fewer, before, is_market=True)
    assert reason is not None
    assert reason.startswith("2 of 6 kinds of GPU of acme are gone")


def test_nothing_before_takes_what_shrank_or_moved():
    # What `--accept` does.
    assert refused(many(3, usd=100.0), []) is None
    assert refused(many(3), [], failed=3, rows=6) is not None


def test_what_is_wrong_with_a_row_is_cut():
    read = ReadListings(listings=(), rows=2, failed=["x" * 10_000, "y"])
    reason = refusal(read, PriceList(offers=tuple(many(1))), [])
    assert reason is not None
    assert len(reason) < 400


COUNTS = st.integers(min_value=0, max_value=60)


@given(rows=st.integers(1, 60), some=COUNTS, more=COUNTS, moved=COUNTS)
def test_more_rows_that_fail_never_make_a_reply_better(rows, some, more, moved):
    few, lot = sorted((min(some, rows - 1), min(more, rows - 1)))
    before = many(rows)
    offers = [
        replace(offer, price_usd_per_hour=100.0 if n < moved else 1.0)
        for n, offer in enumerate(before)
    ]
    first = refused(offers, before, failed=few, rows=rows)
    second = refused(offers, before, failed=lot, rows=rows)
    assert first is None or second is not None


@given(gone=COUNTS, more=COUNTS)
def test_more_that_is_gone_never_makes_a_reply_better(gone, more):
    before = many(60)
    few, lot = sorted((min(gone, 59), min(more, 59)))
    first, second = refused(before[few:], before), refused(before[lot:], before)
    assert first is None or second is not None


# --- against the past ---


def after(now, last):
    (offer,) = doubted_by_past([now], [last])
    return offer


@pytest.mark.parametrize(
    ("usd", "is_outlier"),
    [(4.0, False), (4.01, True), (0.25, False), (0.24, True), (0.0, True), (100.0, True)],
)
def test_many_times_or_a_small_part_of_the_last_price_is_an_outlier(usd, is_outlier):
    offer = after(listed(usd=usd, as_of="2026-11-16"), listed(usd=1.0, as_of="2026-08-22"))
    assert ("outlier" in words(offer)) == is_outlier
    kept = OtherPrice(source=BEFORE, as_of="2026-08-22", price_usd_per_hour=1.0)
    assert offer.other_prices == ((kept,) if is_outlier else ())


def test_an_outlier_is_a_caution_on_demand_and_none_as_spot():
    offer = after(listed(usd=100.0, spot_usd=0.5), listed(usd=1.0, spot_usd=0.5))
    assert offer.cautions("on-demand") == ("outlier",)
    assert offer.cautions("spot") == ()


def test_a_price_that_stays_an_outlier_is_not_believed_the_second_time():
    first = after(listed(usd=100.0), listed(usd=1.0, as_of="2026-08-22"))
    second = after(listed(usd=100.0), first)
    assert words(second) == ["outlier"]
    assert second.other_prices[0].price_usd_per_hour == 1.0
    assert second.other_prices[0].as_of == "2026-08-22"


def test_a_price_that_comes_back_from_an_outlier_is_believed():
    first = after(listed(usd=100.0), listed(usd=1.0))
    assert after(listed(usd=1.1), first) == listed(usd=1.1)


def test_spot_is_held_against_its_share_of_on_demand():
    last = listed(usd=10.0, spot_usd=5.0)
    # Half of on-demand before: a tenth of it is a fifth of that share.
    assert words(after(listed(usd=10.0, spot_usd=1.0), last)) == ["spot outlier"]
    # On-demand and spot a third of what they were: the share is the same.
    assert words(after(listed(usd=10 / 3, spot_usd=5 / 3), last)) == []
    assert after(listed(usd=10.0, spot_usd=1.0), last).cautions("spot") == ("spot outlier",)


def test_spot_without_on_demand_is_held_against_its_dollars():
    last = listed(usd=None, spot_usd=5.0)
    assert words(after(listed(usd=None, spot_usd=1.0), last)) == ["spot outlier"]
    assert words(after(listed(usd=None, spot_usd=2.0), last)) == []


def test_spot_stands_where_only_on_demand_moved():
    now, last = listed(usd=100.0, spot_usd=0.5), listed(usd=1.0, spot_usd=0.5)
    assert words(after(now, last)) == ["outlier"]


def test_a_price_that_is_gone_is_noted_until_it_is_back():
    first = after(listed(usd=None, spot_usd=0.5), listed(usd=1.0, spot_usd=0.5))
    assert words(first) == ["price gone"]
    assert first.cautions("on-demand") == ()
    assert words(after(listed(usd=None, spot_usd=0.5), first)) == ["price gone"]
    assert words(after(listed(usd=1.2, spot_usd=0.5), first)) == []
    assert words(after(listed(usd=9.0, spot_usd=0.5), first)) == ["outlier"]


def test_what_was_not_there_before_has_no_past():
    new = listed("new", usd=1000.0)
    assert doubted_by_past([new], many(3)) == (new,)


def regions(names, **rest):
    return [listed(region=name, **rest) for name in names.split()]


def test_a_price_for_all_regions_that_splits_up_is_held_against_that_of_all():
    # One region times 1.001 is enough for one offer a region in the place of one for all.
    now = [*regions("north", usd=0.01), *regions("south east", usd=1.001)]
    doubted = doubted_by_past(now, regions("any", usd=1.0))
    assert [words(offer) for offer in doubted] == [["outlier"], [], []]


def test_regions_that_cost_the_same_again_are_held_against_the_nearest():
    before = [*regions("north", usd=1.0), *regions("south", usd=1.5)]
    assert words(after_all(regions("any", usd=5.0), before)) == []  # 5 / 1.5 = 3.3 times
    assert words(after_all(regions("any", usd=6.1), before)) == ["outlier"]  # 4.07 times


def test_a_machine_in_a_new_region_is_held_against_its_other_regions():
    before = regions("north south", usd=1.0, spot_usd=0.5)
    assert words(after_all(regions("east", usd=0.01, spot_usd=0.5), before)) == ["outlier"]
    # Its spot price is its own: 0.02 / 0.5 says nothing of another place.
    assert words(after_all(regions("east", usd=1.0, spot_usd=0.02), before)) == []
    assert words(after_all(regions("east", usd=None, spot_usd=0.02), before)) == []


def after_all(now, before):
    (offer,) = doubted_by_past(now, before)
    return offer


def test_a_whole_file_times_hundred_is_refused_however_its_regions_are_listed():
    before = [listed(f"box-{n}", region="any") for n in range(20)]
    now = [
        listed(f"box-{n}", region=region, usd=usd)
        for n in range(20)
        for region, usd in (("north", 100.0), ("south", 100.1))
    ]
    assert "40 of 40 prices are more than 4 times" in (refused(now, before) or "")
    assert "20 of 20 prices are more than 4 times" in (
        refused([replace(offer, price_usd_per_hour=500.0) for offer in before], now) or ""
    )


def test_another_number_of_gpus_than_before_is_doubted_as_long_as_it_stands_there():
    first = after(listed(gpu="T4", gpus=12, usd=8.0), listed(gpu="T4", gpus=8, usd=8.0))
    assert words(first) == ["count differs"]
    assert first.cautions("on-demand") == ("count differs",)
    assert words(after(listed(gpu="T4", gpus=12, usd=8.0), first)) == ["count differs"]
    assert words(after(listed(gpu="T4", gpus=8, usd=8.0), first)) == []


def test_another_gpu_than_before_is_doubted_and_another_form_that_costs_alike_is_not():
    last = listed(gpu="A100 80GB PCIe", usd=8.0)
    assert words(after(listed(gpu="H100 SXM", usd=8.0), last)) == ["GPU differs"]
    assert words(after(listed(gpu="A100 80GB SXM", usd=8.0), last)) == []


def test_the_same_machine_twice_at_two_prices():
    twice = doubted_by_past([listed(usd=1.0), listed(usd=1.5), listed("other")], [])
    assert [words(offer) for offer in twice] == [["listed twice"], ["listed twice"], []]


def test_the_same_machine_twice_at_one_price_rounded():
    assert not any(words(o) for o in doubted_by_past([listed(usd=1.0), listed(usd=1.01)], []))


def sizes(**usd_by_size):
    return [
        listed(name, gpu="H100 SXM", gpus=int(name[1:]), usd=usd)
        for name, usd in usd_by_size.items()
    ]


def odd(offers):
    return [o.instance for o in doubted_by_past(offers, []) if "per GPU or per machine" in words(o)]


def test_eight_gpus_at_the_price_of_one_are_listed_by_the_gpu():
    assert odd(sizes(x1=3.0, x8=3.0)) == ["x8"]
    assert odd(sizes(x1=3.0, x2=3.0, x4=3.0, x8=3.05)) == ["x2", "x4", "x8"]


def test_eight_gpus_at_eight_times_the_price_of_each_were_multiplied_twice():
    # 3 * 8 * 8 = 192
    assert odd(sizes(x1=3.0, x2=6.0, x8=192.0)) == ["x8"]


def test_sizes_that_grow_with_their_gpus_are_as_they_should_be():
    assert odd(sizes(x1=3.0, x2=6.0, x4=11.0, x8=23.0)) == []


def test_one_gpu_on_a_large_host_is_no_measure_of_several():
    # g4dn.16xlarge has one T4 and costs more than g4dn.12xlarge with four (AWS, us-east-1).
    hosts = [
        listed("g4dn.xlarge", gpus=1, usd=0.526),
        listed("g4dn.16xlarge", gpus=1, usd=4.352),
        listed("g4dn.12xlarge", gpus=4, usd=3.912),
    ]
    assert odd(hosts) == []


def test_of_two_sizes_without_a_single_gpu_either_may_be_wrong():
    assert odd(sizes(x2=6.0, x8=6.0)) == ["x2", "x8"]


def test_other_regions_other_gpus_and_shares_are_no_measure():
    offers = [
        listed("a", gpu="H100 SXM", gpus=1, usd=3.0, region="north"),
        listed("b", gpu="H100 SXM", gpus=8, usd=3.0, region="south"),
        listed("c", gpu="T4", gpus=8, usd=3.0, region="north"),
        listed("d", gpu="T4", gpus=1, gpu_share=0.5, usd=3.0, region="north"),
    ]
    assert odd(offers) == []


def test_no_bundled_offer_is_doubted_by_itself():
    offers = snapshot_offers()
    assert doubted_by_past(offers, offers) == offers


# --- beside what others ask ---


def without_judgement(offer):
    doubts = tuple(doubt for doubt in offer.doubts if doubt.word not in JUDGED)
    return replace(offer, doubts=doubts)


def test_the_bundled_offers_are_doubted_anew_just_as_they_are():
    offers = snapshot_offers()
    again = doubted_by_others([without_judgement(offer) for offer in offers])
    # The words of all 2,419 rows, in the order of the file.
    assert [words(offer) for offer in again] == [words(offer) for offer in offers]
    assert again == offers
    assert sum(bool(JUDGED & set(words(offer))) for offer in offers) > 50


def test_doubts_given_before_are_given_anew():
    offers = snapshot_offers()
    assert doubted_by_others(offers) == offers


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A100 80GB SXM", "A100 80GB PCIe"),  # 2.04 TB/s and 1.94 TB/s: sold as one
        ("A100 80GB", "A100 80GB PCIe"),
        ("H100 SXM", "H100 SXM"),  # 3.35 TB/s and 2.04 TB/s
        ("H100", "H100 PCIe"),
        ("RTX 4090", "RTX 4090"),
        ("NVIDIA Nonesuch", "NVIDIA Nonesuch"),
    ],
)
def test_forms_that_cost_alike_are_one_kind(name, kind):
    assert gpu_kind(name) == kind


def sellers(usd=1.0, spot_usd=None):
    return [an_offer(name, usd=usd, spot_usd=spot_usd, vcpus=4) for name in ("ada", "bob", "cyd")]


@pytest.mark.parametrize(
    ("usd", "vcpus", "found"),
    [
        (0.39, 4, ["suspiciously cheap"]),
        (0.41, 4, []),
        (4.3, 4, []),  # less 4 vCPUs at $0.10: $3.90, below 4 * $1
        (4.5, 4, ["suspiciously dear"]),
        (10.0, 64, []),
        (4.1, None, ["suspiciously dear"]),
    ],
)
def test_far_from_what_others_ask(usd, vcpus, found):
    *_, offer = doubted_by_others([*sellers(), an_offer("dan", usd=usd, vcpus=vcpus)])
    assert words(offer) == found


def test_two_sellers_without_serious_doubts_are_needed_to_judge():
    ada, bob, cyd = sellers()
    stale = [replace(one, doubts=(doubt_kinds()["stale"],)) for one in (bob, cyd)]
    *_, offer = doubted_by_others([ada, *stale, an_offer("dan", usd=0.01)])
    # dan himself is the second.
    assert words(offer) == ["suspiciously cheap"]
    *_, alone = doubted_by_others([*stale, an_offer("dan", usd=0.01)])
    assert words(alone) == []


def test_doubts_are_in_the_order_of_the_table():
    odd_one = an_offer("dan", usd=0.1, doubts=(doubt_kinds()["form not stated"], a_doubt("odd")))
    *_, offer = doubted_by_others([*sellers(), odd_one])
    assert words(offer) == ["form not stated", "suspiciously cheap", "odd"]


# --- beside other sources ---


def says(source, *offers, provider="acme", as_of="2026-11-15"):
    return ProviderPrices(
        source=source,
        provider=provider,
        as_of=as_of,
        fetched_at="2026-11-16T20:15:00Z",
        offers=tuple(offers),
    )


def beside(offer, *others, own=(), source="gpuhunt"):
    """The offer beside what another source says."""
    return doubted_by_others([offer, *own], {"acme": [says(source, *others)]})[0]


TODAY = "2026-11-15"


@pytest.mark.parametrize(
    ("other_usd", "found"),
    [
        (1.049, []),
        (1.06, ["sources disagree"]),
        (0.94, ["sources disagree"]),  # 1 / 0.94 = 1.064
        (1.25, ["sources disagree"]),
        (1.26, ["sources disagree", "sources far apart"]),
        (0.5, ["sources disagree", "sources far apart"]),
    ],
)
def test_two_sources_of_one_machine(other_usd, found):
    offer = beside(listed(usd=1.0, as_of=TODAY), listed(usd=other_usd, as_of=TODAY))
    assert words(offer) == found
    assert offer.price_usd_per_hour == 1.0
    assert offer.other_prices == (
        OtherPrice(source="gpuhunt", as_of=TODAY, price_usd_per_hour=other_usd),
    )
    assert bool(offer.cautions("on-demand")) == ("sources far apart" in found)


def test_a_price_that_is_long_outdated_is_no_caution_against_a_new_one():
    now = listed(usd=1.99, as_of="2026-11-15")
    assert words(beside(now, listed(usd=1.29, as_of="2026-10-15"))) == [
        "sources disagree"
    ]  # 31 days older
    assert "sources far apart" in words(beside(now, listed(usd=1.29, as_of="2026-10-16")))
    old = listed(usd=1.29, as_of="2026-10-15")
    assert "sources far apart" in words(beside(old, now))


def test_a_source_of_any_age_speaks_against_a_price_that_no_time_explains():
    now = listed(usd=0.0229, as_of="2026-11-16")
    assert "sources far apart" in words(beside(now, listed(usd=2.29, as_of="2025-01-01")))
    assert "sources far apart" not in words(beside(now, listed(usd=0.09, as_of="2025-01-01")))


def test_the_same_machines_by_another_source_are_found_by_what_they_are():
    ours = [listed("gpu_1x", gpu="T4", usd=2.0), listed("gpu_8x", gpu="L4", gpus=8, usd=9.0)]
    theirs = [
        listed("t4-small", gpu="T4", usd=1.0, region="any"),
        listed("l4-large", gpu="L4", gpus=4, usd=5.0),
    ]
    (found,) = same_machines(ours, theirs)
    assert (found.instance, found.region, found.price_usd_per_hour) == ("gpu_1x", "north", 1.0)


def test_a_source_that_agrees_makes_a_price_as_young_as_it_is_itself():
    stale = listed(as_of="2026-06-01", doubts=(doubt_kinds()["stale"],))
    offer = beside(stale, listed(usd=1.02, as_of="2026-11-14"))
    assert (offer.as_of, offer.spot_as_of, words(offer)) == ("2026-11-14", None, [])
    assert beside(listed(as_of=TODAY), listed(as_of="2026-06-01")).as_of == TODAY


def test_spot_stays_as_old_as_it_was():
    stale = listed(spot_usd=0.4, as_of="2026-06-01", doubts=(doubt_kinds()["stale"],))
    offer = beside(stale, listed(spot_usd=0.3, as_of="2026-11-14"))
    assert offer.seen_on("on-demand") == "2026-11-14"
    assert offer.seen_on("spot") == "2026-06-01"
    assert words(offer) == ["stale spot"]


def test_a_source_without_a_price_neither_confirms_nor_disagrees():
    offer = beside(listed(as_of="2026-06-01"), listed(usd=None, spot_usd=0.2, as_of=TODAY))
    assert words(offer) == []
    assert offer.as_of == "2026-06-01"
    assert offer.other_prices[0].spot_usd_per_hour == 0.2


def test_an_instance_in_another_region_is_another_machine():
    assert beside(listed(), listed(usd=9.0, region="south")).other_prices == ()


def test_a_price_for_any_region_is_held_against_every_one():
    others = (listed(usd=1.0, region="north"), listed(usd=1.2, region="south"))
    offer = beside(listed(region="any"), *others)
    assert offer.other_prices[0].price_usd_per_hour == 1.2
    assert words(beside(listed(region="south"), listed(usd=1.2, region="any"))) == [
        "sources disagree"
    ]


def h100(instance, usd, **more):
    return listed(instance, gpu="H100 SXM", gpus=8, usd=usd, **more)


def test_machines_of_other_names_are_matched_by_their_gpus():
    assert words(beside(h100("gpu_8x_h100", 20.0), h100("8x H100", 22.0))) == ["sources disagree"]


def test_but_not_where_one_lists_two_of_them():
    other = (h100("8x H100 secure", 22.0), h100("8x H100 community", 18.0))
    assert beside(h100("gpu_8x_h100", 20.0), *other).other_prices == ()
    own = [h100("gpu_8x_h100_small", 19.0)]
    assert beside(h100("gpu_8x_h100", 20.0), h100("8x H100", 22.0), own=own).other_prices == ()


def test_nor_where_hosts_differ_or_names_are_known_to_both():
    small, large = h100("a", 20.0, vcpus=96), h100("b", 30.0, vcpus=192)
    assert beside(small, large).other_prices == ()
    elsewhere = h100("b", 31.0, region="south")
    assert beside(h100("a", 20.0), h100("b", 30.0), own=[elsewhere]).other_prices == ()


def test_hosts_of_a_market_are_no_two_alike():
    host = listed(host=HostQuality(verified=True))
    assert beside(host, listed(usd=9.0)).other_prices == ()
    middle = listed(doubts=(doubt_kinds()["marketplace"],))
    assert beside(listed(), replace(middle, price_usd_per_hour=9.0)).other_prices == ()


def test_another_provider_s_source_says_nothing():
    offers = [listed(), an_offer("other", "box", region="north", source=LIST)]
    second = {"acme": [says("gpuhunt", listed(usd=9.0))]}
    assert [words(offer) for offer in doubted_by_others(offers, second)] == [
        ["sources disagree", "sources far apart"],
        [],
    ]


def test_three_sources_are_all_kept():
    second = {"acme": [says("gpuhunt", listed(usd=1.1)), says("shop", listed(usd=1.0))]}
    (offer,) = doubted_by_others([listed()], second)
    assert [price.source for price in offer.other_prices] == ["gpuhunt", "shop"]
    assert words(offer) == ["sources disagree"]


# --- kept in between ---


def kept(prices):
    """What a store gives back of prices."""
    with PriceStore() as store:
        store.replace(prices, Validators())
        (back,) = store.current()
    return back.offers


def test_what_is_doubted_is_kept_with_the_price_before():
    first = doubted_by_past(many(3, usd=100.0, spot_usd=0.1), many(3, usd=1.0, spot_usd=0.1))
    back = kept(says("gpuhunt", *first))
    assert back == first
    again = doubted_by_past(many(3, usd=99.0, spot_usd=0.1), back)
    assert [words(offer) for offer in again] == [["outlier"]] * 3
    assert doubted_by_past(many(3, usd=1.2, spot_usd=0.1), back) == tuple(
        many(3, usd=1.2, spot_usd=0.1)
    )


# --- whatever the offers ---

USD = st.one_of(st.none(), st.floats(min_value=0.01, max_value=500))
OFFERS = st.lists(
    st.builds(
        an_offer,
        st.sampled_from(["ada", "bob", "cyd"]),
        st.sampled_from(["x", "y", "z"]),
        gpu=st.sampled_from(["T4", "L4", "H100", "H100 SXM", "Nonesuch 9000"]),
        gpus=st.sampled_from([1, 2, 8]),
        region=st.sampled_from(["any", "north", "south"]),
        usd=USD,
        spot_usd=USD,
        vcpus=st.sampled_from([None, 4.0, 64.0]),
        as_of=st.sampled_from(["2026-06-01", "2026-11-01", "2026-11-15"]),
        doubts=st.lists(st.sampled_from(list(doubt_kinds().values())), max_size=2).map(
            lambda some: tuple(dict.fromkeys(some))
        ),
    ),
    max_size=12,
)


def assert_same_but(given_offers, doubted, removed):
    """No offer is dropped, moved or changed, and no doubt removed but some words."""
    assert len(doubted) == len(given_offers)
    for offer, result in zip(given_offers, doubted, strict=True):
        plain = {
            "doubts": (),
            "other_prices": (),
            "as_of": offer.as_of,
            "spot_as_of": offer.spot_as_of,
        }
        assert replace(result, **plain) == replace(offer, doubts=(), other_prices=())
        assert set(words(offer)) - removed <= set(words(result))
        assert len(set(words(result))) == len(result.doubts)


@settings(deadline=None)
@given(now=OFFERS, before=OFFERS)
def test_the_past_only_adds_doubts(now, before):
    doubted = doubted_by_past(now, before)
    assert_same_but(now, doubted, set())
    assert [offer.as_of for offer in doubted] == [offer.as_of for offer in now]


@settings(deadline=None)
@given(offers=OFFERS, others=OFFERS)
def test_others_only_add_doubts_and_confirm(offers, others):
    second = {name: [says("second", *others, provider=name)] for name in ("ada", "bob")}
    doubted = doubted_by_others(offers, second)
    assert_same_but(offers, doubted, {*JUDGED, "stale"})
    for offer, result in zip(offers, doubted, strict=True):
        assert result.as_of >= offer.as_of
        assert result.seen_on("spot") == offer.seen_on("spot") or result.spot_usd_per_hour is None


@settings(deadline=None)
@given(offers=OFFERS)
def test_judging_twice_is_judging_once(offers):
    once = doubted_by_others(offers)
    assert doubted_by_others(once) == once


@settings(deadline=None)
@given(offers=OFFERS, before=OFFERS, failed=st.integers(0, 20))
def test_a_reply_is_taken_or_refused_in_one_sentence(offers, before, failed):
    reason = refused(offers, before, failed=failed)
    assert reason is None or (reason.endswith(".") and "\n" not in reason)
    assert offers or reason is not None
