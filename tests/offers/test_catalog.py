from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from tests.builders import an_offer

from outlay import facts
from outlay.errors import InputError, NotKnown
from outlay.offers.catalog import (
    OfferFilter,
    bundled_offers,
    doubt_kinds,
    doubted_by_age,
    gpu_filter,
    known_regions,
    offer_gpus,
    search,
    snapshot_date,
    snapshot_offers,
)
from outlay.units import GIB

OFFERS = (
    "provider,instance,gpu,gpus,gpu_share,gpu_memory_gib,vcpus,ram_gib,local_disk_gb,region,zones,"
    "price_usd_hour,spot_usd_hour,spot_usd_hour_max,as_of,source,doubts\n"
)
LISTED = (
    "provider,instance,gpu,gpus,region,price_usd_hour,spot_usd_hour,supersedes,as_of,source,"
    "doubts,note\n"
)
ENDS = "provider,instance_pattern,withdrawn,source,as_of,note\n"
MOVES = "provider,instance_pattern,doubts,source,as_of,note\n"


NOBODY = "nobody,x,T4,1,any,1,,,2026-01-01,page,,\n"
"""A table must have a row."""


def sold(today=""):
    offers = bundled_offers.__wrapped__(today)
    return [offer for offer in offers if offer.provider != "nobody"]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Writes made-up tables, and reads the offers in them."""
    doubt_kinds()
    shutil.copy(facts.DATA / "offer_doubts.csv", tmp_path)
    monkeypatch.setattr(facts, "DATA", tmp_path)

    def read(offers="", listed="", ends="", moves="", today=""):
        for name, text in (
            ("offers_2026-01-31.csv", OFFERS + offers),
            ("list_prices_2026-02-28.csv", LISTED + (listed or NOBODY)),
            ("instance_ends.csv", ENDS + (ends or "nobody,x,2026-01-01,page,2026-01-01,\n")),
            ("outdated_prices.csv", MOVES + (moves or "nobody,x,superseded,page,2026-01-01,\n")),
        ):
            (tmp_path / name).write_text(text, encoding="utf-8")
        snapshot_offers.cache_clear()
        return sold(today)

    yield read
    snapshot_offers.cache_clear()


def words(offer):
    return [doubt.word for doubt in offer.doubts]


# --- reading ---


def test_a_row_becomes_an_offer_in_our_units(tables):
    (offer,) = tables(
        "acme,box,T4,2,0.5,8,4,16,100,moon,3,1.5,0.5,0.6,2026-01-01,list,stale;marketplace\n"
    )
    assert offer.identity == ("acme", "box", "moon")
    assert (offer.gpu, offer.gpus, offer.gpu_share) == ("T4", 2, 0.5)
    assert offer.gpu_memory_bytes == 8 * 1024**3
    assert offer.ram_bytes == 16 * 1024**3
    assert offer.local_disk_bytes == 100e9
    assert (offer.vcpus, offer.zones) == (4, 3)
    assert offer.price_usd_per_hour == 1.5
    assert (offer.spot_usd_per_hour, offer.spot_high_usd_per_hour) == (0.5, 0.6)
    assert (offer.as_of, offer.source) == ("2026-01-01", "list")
    assert words(offer) == ["stale", "marketplace"]


def test_empty_cells_are_unknown(tables):
    (offer,) = tables("acme,box,T4,1,1,,,,,any,1,,,,2026-01-01,list,\n")
    assert offer.price_usd_per_hour is None
    assert offer.spot_usd_per_hour is None
    assert offer.vcpus is None
    assert offer.doubts == ()


def test_the_newest_snapshot_is_read(tables, tmp_path):
    tables("acme,new,T4,1,1,,,,,any,1,1,,,2026-01-01,list,\n")
    (tmp_path / "offers_2025-12-31.csv").write_text(
        OFFERS + "acme,old,T4,1,1,,,,,any,1,1,,,2025-12-01,list,\n", encoding="utf-8"
    )
    assert snapshot_date() == "2026-01-31"
    assert [offer.instance for offer in sold()] == ["new"]


def test_list_prices_are_offers_besides(tables):
    offers = tables(
        "acme,box,T4,1,1,,,,,any,1,1,,,2026-01-01,list,\n",
        "acme,shop,T4,1,any,2,,,2026-02-01,page,,\n",
    )
    assert [(one.instance, one.price_usd_per_hour) for one in offers] == [("box", 1), ("shop", 2)]


def test_a_newer_list_price_that_differs_supersedes(tables):
    box, shop = tables(
        "acme,box-8,T4,8,1,,,,,any,1,16,,,2026-01-01,list,\n",
        "acme,shop,T4,1,any,3,,box-*,2026-02-01,page,,\n",
    )
    # 16 / 8 = 2 a GPU against 3
    assert words(box) == ["superseded"]
    assert box.cautions("on-demand") == ("superseded",)
    assert words(shop) == []


def test_list_prices_are_compared_by_the_gpu(tables):
    box, _ = tables(
        "acme,box-1,T4,1,1,,,,,any,1,2,,,2026-01-01,list,\n",
        "acme,shop,T4,8,any,16,,box-*,2026-02-01,page,,\n",
    )
    # 16 / 8 = 2 a GPU
    assert words(box) == []
    assert box.as_of == "2026-02-01"


def test_a_newer_list_price_that_agrees_confirms(tables):
    box, _ = tables(
        "acme,box-8,T4,8,1,,,,,any,1,16.1,,,2026-01-01,list,stale;aggregator\n",
        "acme,shop,T4,1,any,2,,box-*,2026-02-01,page,,\n",
    )
    # 16.1 / 8 = 2.0125 a GPU: 0.6 % off 2, which is the same price rounded
    assert words(box) == ["aggregator"]
    assert (box.as_of, box.source) == ("2026-02-01", "page")
    assert box.price_usd_per_hour == 16.1


@pytest.mark.parametrize(
    "listed",
    [
        "acme,shop,T4,1,any,3,,box,2025-06-01,page,,\n",  # older
        "acme,shop,T4,1,any,3,,box,2026-01-01,page,,\n",  # of the same day
        "other,shop,T4,1,any,3,,box,2026-02-01,page,,\n",  # another provider
        "acme,shop,T4,1,any,3,,crate-*,2026-02-01,page,,\n",  # another instance
        "acme,shop,T4,1,any,3,,,2026-02-01,page,,\n",  # supersedes nothing
    ],
)
def test_list_prices_that_do_not_touch_an_offer(tables, listed):
    box, *_ = tables("acme,box,T4,1,1,,,,,any,1,2,,,2026-01-01,list,stale\n", listed)
    assert words(box) == ["stale"]
    assert box.as_of == "2026-01-01"


@pytest.mark.parametrize(
    ("listed", "is_left_out"),
    [
        ("acme,shop,T4,1,any,1,,box*,2026-01-31,page,,\n", True),  # older than what it corrected
        ("acme,shop,T4,1,any,1,,box*,2026-02-01,page,,\n", True),  # of the same day
        ("acme,shop,T4,1,any,1,,box*,2026-02-02,page,,\n", False),  # newer
        ("acme,shop,T4,1,moon,1,,box*,2026-01-31,page,,\n", False),  # of another region
        ("acme,shop,T4,2,mars,1,,crate*,2026-01-31,page,,\n", False),  # other machines
        ("acme,shop,T4,1,mars,1,,crate*,2026-01-31,page,,\n", True),  # the same GPU, another name
        ("acme,shop,T4,1,any,1,,,2026-01-31,page,,\n", False),  # it corrects nothing
    ],
)
def test_a_list_price_is_left_out_once_what_it_corrects_was_read_anew(tables, listed, is_left_out):
    offers = tables("acme,box-1,T4,1,1,,,,,mars,1,2,,,2026-02-01,list,\n", listed)
    assert ({one.instance for one in offers} == {"box-1"}) == is_left_out
    assert next(one for one in offers if one.instance == "box-1").price_usd_per_hour == 2


def test_a_spot_price_is_superseded_where_on_demand_moved(tables):
    box, _ = tables(
        "acme,box,T4,1,1,,,,,any,1,2,1,1.1,2026-01-01,list,\n",
        "acme,shop,T4,1,any,3,,box,2026-02-01,page,,\n",
    )
    assert words(box) == ["superseded", "superseded spot"]
    assert box.cautions("spot") == ("superseded spot",)


@pytest.mark.parametrize(
    ("spot", "doubts"),
    [
        # 8 for eight is 1 a GPU, as it was; 9 is an eighth more
        ("8", []),
        ("9", ["superseded spot"]),
    ],
)
def test_a_newer_spot_price_is_compared_by_the_gpu(tables, spot, doubts):
    box, _ = tables(
        "acme,box,T4,1,1,,,,,any,1,2,1,1.1,2026-01-01,list,stale\n",
        f"acme,shop,T4,8,any,16,{spot},box,2026-02-01,page,,\n",
    )
    assert words(box) == doubts
    assert box.seen_on("spot") == "2026-02-01"


def test_a_spot_price_that_was_not_read_again_is_as_old_as_it_was(tables):
    (box,) = tables(
        "acme,box,T4,1,1,,,,,any,1,2,1,1.1,2024-01-01,list,stale\n",
        "acme,shop,T4,1,any,2,,box,2026-02-01,page,,\n",
    )
    assert words(box) == ["stale spot"]
    assert box.cautions("on-demand") == ()
    assert box.cautions("spot") == ("stale spot",)
    assert (box.seen_on("on-demand"), box.seen_on("spot")) == ("2026-02-01", "2024-01-01")
    assert box.source == "page; spot: list, 2024-01-01"


@pytest.mark.parametrize(
    ("spot_as_of", "doubts"),
    [("2024-01-01", ["stale spot"]), ("2026-08-01", []), ("2026-10-01", [])],
)
def test_a_spot_price_that_fell_behind_is_doubted_by_its_own_day(spot_as_of, doubts):
    # On 2026-11-15 with prices of 2026-08-22: old is before 2026-08-17, behind before 2026-07-23.
    offer = an_offer(spot_usd=0.5, as_of="2026-11-09", spot_as_of=spot_as_of)
    assert words(doubted_by_age(offer, "2026-11-15", "2026-08-22")) == doubts
    known = replace(offer, doubts=(doubt_kinds()["superseded spot"],))
    assert doubted_by_age(known, "2026-11-15", "2026-08-22") == known


def test_a_list_price_that_repeats_the_snapshot_is_not_listed_twice(tables):
    offers = tables(
        "acme,box,T4,1,1,,,,,any,1,2,,,2026-01-01,list,stale\n",
        "acme,shop,T4,1,moon,2,,box,2026-02-01,page,,\n",
    )
    assert [(one.instance, one.as_of) for one in offers] == [("box", "2026-02-01")]


def test_a_list_price_of_one_region_speaks_of_the_others_by_its_own_move(tables):
    earth, mars, moon, _ = tables(
        "acme,box,T4,1,1,,,,,earth,1,2,,,2026-01-01,list,stale\n"
        "acme,box,T4,1,1,,,,,mars,1,3,,,2026-01-01,list,stale\n"
        "acme,box,T4,1,1,,,,,moon,1,2.5,,,2026-01-01,list,stale\n",
        "acme,shop,T4,1,earth,3,,box,2026-02-01,page,,\n",
    )
    # 2 has become 3 on earth. Mars asked 3 before that, which is no confirmation.
    for box in (earth, mars, moon):
        assert words(box) == ["stale", "superseded"]


def test_a_list_price_of_one_region_confirms_what_cost_the_same(tables):
    earth, mars, moon = tables(
        "acme,box,T4,1,1,,,,,earth,1,2,,,2026-01-01,list,stale\n"
        "acme,box,T4,1,1,,,,,mars,1,3,,,2026-01-01,list,stale\n"
        "acme,box,T4,1,1,,,,,moon,1,2,,,2026-01-01,list,stale\n",
        "acme,shop,T4,1,earth,2,,box,2026-02-01,page,,\n",
    )
    assert (words(earth), words(mars), words(moon)) == ([], ["stale"], [])


def test_a_list_price_of_a_region_without_the_type_says_nothing(tables):
    box, _ = tables(
        "acme,box,T4,1,1,,,,,mars,1,2,,,2026-01-01,list,stale\n",
        "acme,shop,T4,1,earth,3,,box,2026-02-01,page,,\n",
    )
    assert words(box) == ["stale"]


@pytest.mark.parametrize(
    "listed",
    [
        "acme,old,T4,1,any,3,,box*,2026-02-01,page,,\nacme,new,T4,1,any,2,,box*,2026-03-01,page,,\n",
        "acme,wide,T4,1,any,3,,b*,2026-02-01,page,,\nacme,tight,T4,1,any,2,,box,2026-02-01,page,,\n",
    ],
)
def test_the_newest_list_price_counts_and_of_a_day_the_longest_pattern(tables, listed):
    box, *_ = tables("acme,box,T4,1,1,,,,,any,1,2,,,2026-01-01,list,stale\n", listed)
    assert words(box) == []


def test_a_move_without_a_figure_doubts_what_is_older(tables):
    box, bare, shop, late = tables(
        "acme,box,T4,1,1,,,,,any,1,2,1,1.1,2026-01-01,list,\n"
        "acme,spot,T4,1,1,,,,,any,1,,1,1.1,2026-01-01,list,\n",
        "acme,shop,T4,1,any,2,,,2026-02-01,page,,\nacme,late,T4,1,any,2,,,2026-03-02,page,,\n",
        moves="acme,*,superseded;superseded spot,page,2026-03-01,\n",
    )
    assert words(box) == ["superseded", "superseded spot"]
    assert words(bare) == ["superseded spot"]
    assert sorted((one.instance, tuple(words(one))) for one in (shop, late)) == [
        ("late", ()),
        ("shop", ("superseded",)),
    ]


def test_a_move_of_spot_is_compared_with_the_day_of_the_spot_price(tables):
    (box,) = tables(
        "acme,box,T4,1,1,,,,,any,1,2,1,1.1,2026-01-01,list,\n",
        "acme,shop,T4,1,any,2,,box,2026-03-01,page,,\n",
        moves="acme,*,superseded;superseded spot,page,2026-03-01,\n",
    )
    # On-demand was confirmed on the day of the move, spot was not.
    assert words(box) == ["superseded spot"]


@pytest.mark.parametrize("moves", ["other,*", "acme,crate-*"])
def test_moves_of_others_do_not_touch_an_offer(tables, moves):
    (box,) = tables(
        "acme,box,T4,1,1,,,,,any,1,2,,,2026-01-01,list,\n",
        moves=f"{moves},superseded,page,2026-03-01,\n",
    )
    assert words(box) == []


def test_an_offer_without_a_price_is_not_superseded(tables):
    box, _ = tables(
        "acme,box,T4,1,1,,,,,any,1,,0.5,,2026-01-01,list,\n",
        "acme,shop,T4,1,any,3,,box,2026-02-01,page,,\n",
    )
    assert words(box) == []


@pytest.mark.parametrize(
    ("today", "word"),
    [
        ("", "withdrawal announced"),
        ("2026-05-31", "withdrawal announced"),
        ("2026-06-01", "withdrawn"),
        ("2027-01-01", "withdrawn"),
    ],
)
def test_an_announced_withdrawal_takes_effect_on_its_day(tables, today, word):
    (box,) = tables(
        "acme,box-1,T4,1,1,,,,,any,1,2,1,,2026-01-01,list,aggregator;withdrawal announced\n",
        ends="acme,box-*,2026-06-01,page,2026-01-01,\n",
        today=today,
    )
    assert words(box) == ["aggregator", word]
    gone = word == "withdrawn"
    assert box.not_for_sale("on-demand") == (("withdrawn",) if gone else ())
    assert box.not_for_sale("spot") == (("withdrawn",) if gone else ())


@pytest.mark.parametrize(
    ("doubt", "ends"),
    [
        ("aggregator", "acme,box-*,2026-06-01,page,2026-01-01,\n"),  # never announced
        ("withdrawal announced", "acme,crate-*,2026-06-01,page,2026-01-01,\n"),
        ("withdrawal announced", "other,box-*,2026-06-01,page,2026-01-01,\n"),
    ],
)
def test_withdrawals_of_others_do_not_touch_an_offer(tables, doubt, ends):
    (box,) = tables(
        f"acme,box-1,T4,1,1,,,,,any,1,2,,,2026-01-01,list,{doubt}\n",
        ends=ends,
        today="2027-01-01",
    )
    assert words(box) == [doubt]


# --- age ---

BEHIND = "acme,box,T4,1,1,,,,,any,1,2,1,,2025-12-22,list,\n"
"""40 days behind the snapshot of 2026-01-31."""


@pytest.mark.parametrize(
    ("today", "doubts"),
    # 22 December and 90 days are 22 March
    [("2026-01-31", []), ("2026-03-22", []), ("2026-03-23", ["stale"]), ("2027-06-01", ["stale"])],
)
def test_freshness_is_judged_by_today_not_by_the_snapshot(tables, today, doubts):
    (box,) = tables(BEHIND, today=today)
    assert words(box) == doubts
    assert box.cautions("on-demand") == box.cautions("spot") == tuple(doubts)


@pytest.mark.parametrize("as_of", ["2026-01-31", "2026-01-01"])
def test_a_price_as_old_as_the_snapshot_is_never_stale(tables, as_of):
    """At most a month behind it: where all are old, age is said and widens ranges."""
    (box,) = tables(BEHIND.replace("2025-12-22", as_of), today="2030-01-01")
    assert words(box) == []


def test_a_price_that_was_stale_in_the_snapshot_is_so_once(tables):
    (box,) = tables(BEHIND.replace("list,", "list,stale"), today="2027-01-01")
    assert words(box) == ["stale"]


def test_without_a_day_nothing_becomes_stale(tables):
    (box,) = tables(BEHIND)
    assert words(box) == []


def test_a_list_price_makes_on_demand_new_again_and_spot_stays_as_old_as_it_was(tables):
    (box,) = tables(BEHIND, "acme,box,T4,1,any,2,,box,2026-02-28,page,,\n", today="2026-04-01")
    assert words(box) == ["stale spot"]
    assert (box.as_of, box.spot_as_of) == ("2026-02-28", "2025-12-22")


@pytest.mark.parametrize("today", ["2026-11-16", "2027-11-16", "2036-11-16"])
def test_age_never_empties_the_catalogue(today):
    now, then = bundled_offers("2026-08-22"), bundled_offers(today)
    assert len(now) == len(then)

    def share(offers, tenancy):
        sound = [offer for offer in offers if tenancy in offer.tenancies]
        return sum(not offer.cautions(tenancy) for offer in sound) / len(sound)

    for tenancy in ("on-demand", "spot"):
        assert share(then, tenancy) > 0.9 * share(now, tenancy)


def test_the_bundled_snapshot_loads_and_every_gpu_is_known():
    offers = bundled_offers()
    assert len(offers) > 1000
    assert {offer.gpu for offer in offers if not offer_gpus(offer)} == set()


# --- the filters people know ---


def accepted(text, offers):
    one = gpu_filter(text)
    return [offer.instance for offer in offers if one.accepts(offer)]


MACHINES = [
    an_offer(instance="8 A100 80GB", gpu="A100 80GB SXM", gpus=8),
    an_offer(instance="8 A100 open", gpu="A100 80GB", gpus=8),
    an_offer(instance="1 A100 80GB", gpu="A100 80GB PCIe", gpus=1),
    an_offer(instance="8 A100 40GB", gpu="A100 40GB SXM", gpus=8),
    an_offer(instance="1 H100", gpu="H100 SXM", gpus=1),
    an_offer(instance="4 H100", gpu="H100", gpus=4),
    an_offer(instance="16 H100", gpu="H100 SXM", gpus=16),
    an_offer(instance="T4", gpu="T4", gpus=1),
    an_offer(instance="L4", gpu="L4", gpus=1),
]


@pytest.mark.parametrize(
    ("text", "instances"),
    [
        ("A100-80GB:8", ["8 A100 80GB", "8 A100 open"]),
        ("A100-80GB", ["8 A100 80GB", "8 A100 open", "1 A100 80GB"]),
        ("A100:8", ["8 A100 80GB", "8 A100 open", "8 A100 40GB"]),
        ("A100 80GB PCIe", ["8 A100 open", "1 A100 80GB"]),
        ("H100:1..8", ["1 H100", "4 H100"]),
        ("H100:2..", ["4 H100", "16 H100"]),
        ("h100 : 1", ["1 H100"]),
        ("..16GB", ["T4"]),
        ("24GB..40GB", ["8 A100 40GB", "L4"]),
        ("24GB", ["L4"]),
        ("80GB+:1", ["1 A100 80GB", "1 H100"]),
        (
            "24GB..80GB:1",
            ["1 A100 80GB", "1 H100", "L4"],
        ),
        ("80GB..", ["8 A100 80GB", "8 A100 open", "1 A100 80GB", "1 H100", "4 H100", "16 H100"]),
        ("B200", []),
    ],
)
def test_gpu_filter(text, instances):
    assert accepted(text, MACHINES) == instances


def test_gpu_filter_reads_gb_as_cards_are_sold():
    # A 24 GB card holds 24 GiB: both spellings of the border take it.
    assert gpu_filter("24GB..").low_bytes == gpu_filter("24GiB..").low_bytes == 24 * GIB
    assert gpu_filter("..0.5TB").high_bytes == 512 * GIB


def test_gpu_filter_goes_by_what_the_offer_has():
    # Half of a 24 GB card is 12 GB.
    half = an_offer(instance="half", gpu="L4", gpu_share=0.5, gpu_memory_bytes=12 * GIB)
    assert accepted("..16GB", [half]) == ["half"]
    assert accepted("24GB..", [half]) == []


@pytest.mark.parametrize(
    "text",
    ["A100:0", "A100:00", "H100:8..1", "A100:0..4", "A100:x", "A100:-1", "A100:1.5", "A100:2..x"],
)
def test_gpu_filter_without_a_usable_count_is_refused(text):
    with pytest.raises(InputError, match="no usable number of GPUs") as caught:
        gpu_filter(text)
    assert repr(text) in str(caught.value)
    assert caught.value.exit_code == 2


def test_gpu_filter_of_a_reversed_memory_range_is_refused():
    with pytest.raises(InputError, match="'80GB..24GB'"):
        gpu_filter("80GB..24GB")


def test_gpu_filter_of_an_unknown_gpu_is_refused():
    with pytest.raises(NotKnown, match="No GPU is known as 'Z9000'"):
        gpu_filter("Z9000:8")


# --- search ---

PLACES = [
    an_offer("aws", "a", region="us-east-1", usd=4.0, spot_usd=1.0),
    an_offer("aws", "b", region="us-east-2", usd=2.0),
    an_offer("aws", "c", region="eu-west-1", usd=3.0, spot_usd=2.5),
    an_offer("gcp", "d", region="us-central1", usd=None, spot_usd=0.5),
    an_offer("lambda", "e", region="any", usd=1.5),
    an_offer("lambda", "f", region="any", usd=None),
]


def found(**wanted):
    return [offer.instance for offer in search(PLACES, OfferFilter(**wanted))]


def test_search_for_nothing_in_particular_finds_all_in_their_order():
    assert found() == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("regions", "instances"),
    [
        (("us-east-1",), ["a", "e", "f"]),
        (("us-east",), ["a", "b", "e", "f"]),
        (("us",), ["a", "b", "d", "e", "f"]),
        (("US-EAST",), ["a", "b", "e", "f"]),
        (("eu", "us-central"), ["c", "d", "e", "f"]),
    ],
)
def test_search_by_the_beginning_of_a_region(regions, instances):
    # One that costs the same everywhere is in every region.
    assert found(regions=regions) == instances


def test_search_in_an_unknown_region_is_refused():
    with pytest.raises(NotKnown, match="No region is known as 'us-eest-1'") as caught:
        found(regions=("us-eest-1",))
    assert "us-east-1" in caught.value.suggestions


def test_known_regions_are_all_with_that_beginning():
    assert known_regions(["us-e", "eu"], PLACES) == {"us-east-1", "us-east-2", "eu-west-1"}
    assert known_regions([], PLACES) == set()


def test_search_by_provider_in_any_case():
    assert found(providers=("AWS",)) == ["a", "b", "c"]
    assert found(providers=("aws", "gcp")) == ["a", "b", "c", "d"]


def test_search_at_an_unknown_provider_is_refused():
    with pytest.raises(NotKnown, match="No provider is known as 'awss'"):
        found(providers=("awss",))


@pytest.mark.parametrize(
    ("max_usd", "spot", "instances"),
    [
        (2.0, None, ["a", "b", "d", "e"]),  # either price will do
        (2.0, True, ["a", "d"]),
        (2.0, False, ["b", "e"]),
        (0.4, None, []),
        (None, True, ["a", "c", "d"]),
        (None, False, ["a", "b", "c", "e"]),
    ],
)
def test_search_by_price_and_tenancy(max_usd, spot, instances):
    assert found(max_usd_per_hour=max_usd, spot=spot) == instances


def test_search_takes_any_of_several_gpu_filters():
    wanted = OfferFilter(gpus=(gpu_filter("T4"), gpu_filter("H100:16")))
    assert [offer.instance for offer in search(MACHINES, wanted)] == ["16 H100", "T4"]
