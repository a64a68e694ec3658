"""Listings become offers: GPUs looked up, zones put together, doubts given."""

from __future__ import annotations

import csv
import gzip
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import rows_in

import outlay
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.offer import HostQuality, Offer
from outlay.prices.price_list import (
    PriceList,
    is_no_gpu,
    price_list,
    quirk_values,
    spelling_of,
)
from outlay.prices.skypilot import CLOUDS, SkyPilotCatalogue, host_of
from outlay.prices.sources import Listing, ZonePrice
from outlay.units import GB, GIB

DATA = Path(outlay.__file__).parent / "data"
FILES = Path(__file__).parent / "data" / "skypilot"
LISTING = Listing(
    provider="acme",
    instance="big",
    gpu="L4",
    gpus=1.0,
    region="north",
    price_usd_per_hour=1.0,
    vcpus=8.0,
    ram_bytes=32.0 * GIB,
)
AWS = replace(LISTING, provider="aws", instance="g6.2xlarge", region="us-east-1")


def made(*listings: Listing, today: str = "") -> PriceList:
    return price_list(listings, source="list@1", as_of="2026-08-22", today=today)


def only(*listings: Listing, today: str = "") -> Offer:
    (offer,) = made(*listings, today=today).offers
    return offer


def words(offer: Offer) -> set[str]:
    return {doubt.word for doubt in offer.doubts}


def of_excerpt(cloud: str) -> PriceList:
    catalogue = SkyPilotCatalogue(rate_day="2026-08-21")
    read = catalogue.read(cloud, (FILES / f"{cloud}.csv").read_bytes())
    return price_list(read.listings, source="list@1", as_of="2026-08-22", today="2026-08-22")


def named(cloud: str, instance: str) -> Offer:
    (offer,) = [one for one in of_excerpt(cloud).offers if one.instance == instance]
    return offer


# --- an offer ---


def test_a_listing_becomes_an_offer() -> None:
    assert only(LISTING) == Offer(
        provider="acme",
        instance="big",
        gpu="L4",
        gpus=1,
        region="north",
        price_usd_per_hour=1.0,
        as_of="2026-08-22",
        source="list@1",
        gpu_memory_bytes=24.0 * GIB,
        vcpus=8.0,
        ram_bytes=32.0 * GIB,
    )


def test_prices_have_five_significant_digits() -> None:
    assert only(replace(LISTING, price_usd_per_hour=21.957642)).price_usd_per_hour == 21.958


def test_offers_are_sorted_by_name_and_region() -> None:
    found = made(replace(LISTING, instance="b"), replace(LISTING, instance="a")).offers
    assert [offer.instance for offer in found] == ["a", "b"]


def test_what_a_marketplace_knows_of_a_host_stays_with_it() -> None:
    host = HostQuality(reliability_fraction=0.99)
    assert only(replace(LISTING, host=host)).host == host


def test_a_region_that_is_not_named_is_unknown() -> None:
    assert only(replace(LISTING, region=" ")).region == "unknown"
    assert only(replace(LISTING, region=", CA, NA")).region == "CA, NA"


# --- which GPU ---


@pytest.mark.parametrize(
    ("provider", "instance", "spelling", "gib", "gpu", "doubts"),
    [
        ("aws", "p4d.24xlarge", "A100", 40, "A100 40GB SXM", set()),
        # gpuhunt calls both sizes A100 and says the memory
        ("aws", "p4de.24xlarge", "A100", 80, "A100 80GB SXM", set()),
        ("aws", "p6-b200.48xlarge", "NVIDIA", None, "B200", set()),
        ("azure", "Standard_NC40ads_H100_v5", "H100", None, "H100 NVL", set()),
        ("azure", "Standard_ND96isr_H100_v5", "H100", 80, "H100 SXM", set()),
        ("lambda", "gpu_1x_h100_pcie", "H100", 80, "H100 PCIe", set()),
        ("lambda", "gpu_1x_gh200", "GH200", 96, "GH200 96GB", set()),
        ("mithril", "a100-40gb.2x", "A100", 40, "A100 40GB", {"form not stated"}),
        ("shadeform", "hyperstack_H100-sxm5x8", "H100", 80, "H100 SXM", set()),
        ("shadeform", "paperspace_H100", "H100", 80, "H100", {"form not stated"}),
        ("vast", "1x-RTX_3060_Ti-32-65536", "RTX3060", 8, "RTX 3060 Ti", set()),
        ("vast", "1x-RTX_3060-32-65536", "RTX3060", 12, "RTX 3060", set()),
        ("vast", "1x-RTX_4060_Ti-32-65536", "RTX4060", 16, "RTX 4060 Ti 16GB", set()),
        # a provider nobody knew: what anybody means by the name
        ("new", "x", "H100", 80, "H100", {"form not stated"}),
        ("new", "h100-sxm-x8", "H100", 80, "H100 SXM", set()),
        ("new", "x-nvlink", "H100", 80, "H100", {"form not stated"}),
        ("new", "x", "A100-80GB", None, "A100 80GB", {"form not stated"}),
        ("new", "x", "A100_80G_SXM4", None, "A100 80GB SXM", set()),
        ("new", "x", "NVIDIA GeForce RTX 4090", 24, "RTX 4090", set()),
    ],
)
def test_a_gpu_is_looked_up_by_provider_instance_and_memory(
    provider: str, instance: str, spelling: str, gib: float | None, gpu: str, doubts: set[str]
) -> None:
    listing = replace(LISTING, provider=provider, instance=instance, gpu=spelling, gpus=8.0)
    listing = replace(listing, gpu_memory_bytes=None if gib is None else gib * GIB)
    found = made(listing).offers[0]
    seen = {"memory differs", "form not stated"} & words(found)
    assert (found.gpu, seen) == (gpu, doubts)


def test_a_gpu_nobody_knows_is_kept_and_named() -> None:
    found = made(LISTING, replace(LISTING, instance="odd", gpu="Zeta 9", price_usd_per_hour=None))
    assert [offer.instance for offer in found.offers] == ["big"]
    (unknown,) = found.unknown
    assert (unknown.gpu, unknown.price_usd_per_hour) == ("Zeta 9", None)
    assert found.notes == ("GPUs that outlay does not know: Zeta 9 (1).",)


def test_a_name_that_may_be_two_different_gpus_is_not_guessed() -> None:
    # AWS called both the H200 and the B200 so
    found = made(replace(LISTING, provider="aws", instance="p9.48xlarge", gpu="NVIDIA"))
    assert found.offers == ()
    assert [offer.gpu for offer in found.unknown] == ["NVIDIA"]


@pytest.mark.parametrize("spelling", ["tpu-v5p-8", "Trainium2", "GAUDI2", "Inferentia"])
def test_accelerators_that_are_no_gpus_are_left_out(spelling: str) -> None:
    assert is_no_gpu(spelling)
    found = made(LISTING, replace(LISTING, gpu=spelling))
    assert len(found.offers) == 1
    assert found.notes == (f"Not GPUs, so left out (1 in all): {spelling} (1).",)


def test_every_name_an_offer_may_have_is_found_again() -> None:
    for cloud in CLOUDS:
        for offer in of_excerpt(cloud).offers:
            assert find_gpu(offer.gpu).candidates


# --- memory and count ---


@pytest.mark.parametrize(
    ("gpus", "stated_gib", "doubted"),
    [
        (8.0, 24.0, False),
        (8.0, 22.35, False),  # what the driver reports of an L4
        (8.0, 24.0 / 1024, False),  # 24 "MiB": GiB were meant
        (8.0, 192.0, False),  # of all eight
        (8.0, 192.0 / 1024, False),
        (0.125, 3.0, False),  # of the share
        (8.0, 48.0, True),
        (8.0, 16.0, True),
        (1.0, 12.0, True),
    ],
)
def test_memory_is_compared_in_every_unit_it_may_be_in(
    gpus: float, stated_gib: float, doubted: bool
) -> None:
    offer = only(replace(LISTING, gpus=gpus, gpu_memory_bytes=stated_gib * GIB))
    assert ("memory differs" in words(offer)) == doubted
    assert offer.gpu_memory_bytes == 24 * GIB * min(gpus, 1.0)


@pytest.mark.parametrize(
    ("instance", "gpus", "doubted"),
    [
        ("8x_L4", 8.0, False),
        ("8x_L4", 4.0, True),
        ("gpu_8x_l4", 2.0, True),
        ("acme_L4x8", 8.0, False),
        ("acme_L4x8", 1.0, True),
        ("l4.8x", 8.0, False),
        ("gpu-l4_2gpu-8vcpu", 4.0, True),
        ("gx2-8x64x1v100", 1.0, False),  # vCPUs and RAM
        ("epyc_1x2v4gb", 1.0, False),
        ("g6f.large", 0.125, False),
    ],
)
def test_gpus_are_counted_as_the_name_counts_them(
    instance: str, gpus: float, doubted: bool
) -> None:
    offer = only(replace(LISTING, instance=instance, gpus=gpus))
    assert ("count differs" in words(offer)) == doubted


def test_a_share_of_a_gpu_has_a_share_of_its_memory() -> None:
    offer = only(replace(LISTING, gpus=0.125))
    assert (offer.gpus, offer.gpu_share, offer.gpu_memory_bytes) == (1, 0.125, 3 * GIB)
    assert words(offer) == {"fraction of a GPU"}


# --- zones ---


def zone(name: str, price: float | None, spot: float | None = None) -> Listing:
    return replace(AWS, zone=name, price_usd_per_hour=price, spot_usd_per_hour=spot)


def test_zones_become_one_region_with_the_range_of_spot() -> None:
    offer = only(zone("use1-az1", 1, 0.3), zone("use1-az2", 1, 0.2), zone("use1-az4", 1))
    assert (offer.region, offer.zones) == ("us-east-1", 3)
    assert (offer.spot_usd_per_hour, offer.spot_high_usd_per_hour) == (0.2, 0.3)
    assert words(offer) == {"spot in some zones"}


def test_zones_that_differ_give_the_lowest_price_and_a_doubt() -> None:
    offer = only(zone("use1-az1", 1.2), zone("use1-az2", 1.1))
    assert offer.price_usd_per_hour == 1.1
    assert words(offer) == {"zones differ"}


def test_spot_that_saves_nothing_is_removed() -> None:
    # 0.2626 is 0.26264 rounded to four digits: 0.99985 of on-demand
    offer = only(zone("use1-az1", 0.26264, 0.2626))
    assert offer.spot_usd_per_hour is None
    assert words(offer) == {"spot not below on-demand"}


def test_only_the_zone_that_saves_nothing_loses_its_spot() -> None:
    offer = only(zone("use1-az1", 1, 1), zone("use1-az2", 1, 0.4))
    assert (offer.spot_usd_per_hour, offer.spot_high_usd_per_hour) == (0.4, 0.4)
    assert words(offer) == {"spot in some zones"}


def test_a_zone_that_is_listed_twice_counts_once_with_all_it_says() -> None:
    # AWS's p4de.24xlarge stands twice in one zone, once with a spot price and once without
    offer = only(zone("use1-az4", 27.4), zone("use1-az4", 27.4, 24.3))
    assert (offer.zones, offer.spot_usd_per_hour) == (1, 24.3)


def test_each_zone_keeps_its_own_price() -> None:
    found = made(zone("use1-az1", 1, 0.3), zone("use1-az2", 1.1, 1.1), zone("use1-az4", None))
    assert found.zones == tuple(
        ZonePrice(
            provider="aws",
            instance="g6.2xlarge",
            region="us-east-1",
            zone=name,
            price_usd_per_hour=price,
            spot_usd_per_hour=spot,
        )
        for name, price, spot in (("use1-az1", 1, 0.3), ("use1-az2", 1.1, 1.1))
    )


def test_zones_count_only_where_prices_differ_between_them() -> None:
    one, two = (replace(LISTING, provider="oci", zone=f"AD-{n}") for n in (1, 2))
    found = made(one, two)
    assert (found.offers[0].zones, found.zones) == (1, ())


@pytest.mark.parametrize(
    ("name", "region"),
    [
        ("use1-az6", "us-east-1"),
        ("use1-atl2-az1", "us-east-1-atl-2"),
        ("use1-wl1-bos-wlz1", "us-east-1-wl1"),
    ],
)
def test_a_local_zone_is_a_region_of_its_own_and_doubted(name: str, region: str) -> None:
    offer = only(zone(name, 1))
    assert offer.region == region
    assert words(offer) == (set() if region == "us-east-1" else {"local zone"})


def test_machines_of_one_name_give_the_least_of_each() -> None:
    offer = only(LISTING, replace(LISTING, vcpus=4.0, ram_bytes=64 * GIB))
    assert (offer.vcpus, offer.ram_bytes) == (4.0, 32 * GIB)
    assert words(offer) == {"machines differ"}


def test_one_name_for_two_gpus_is_told_apart() -> None:
    found = made(LISTING, replace(LISTING, gpu="T4"), replace(LISTING, gpus=2.0)).offers
    assert [offer.instance for offer in found] == ["big", "big (1x T4)", "big (2x L4)"]


# --- regions ---


def test_a_price_that_is_the_same_everywhere_is_of_any_region() -> None:
    offer = only(LISTING, replace(LISTING, region="south"))
    assert (offer.region, offer.zones) == ("any", 2)


@pytest.mark.parametrize(
    "south",
    [
        replace(LISTING, region="south", price_usd_per_hour=1.1),
        replace(LISTING, region="south", vcpus=4.0),
        replace(LISTING, region="south", doubts=("low stock",)),
        replace(LISTING, region="south", instance="other"),
    ],
)
def test_what_differs_between_regions_stays_apart(south: Listing) -> None:
    assert {offer.region for offer in made(LISTING, south).offers} == {"north", "south"}


# --- prices that are none ---


@pytest.mark.parametrize("price", [None, 0.0, -1.0, math.nan, math.inf, 10_001.0])
def test_a_machine_without_any_price_is_no_offer_and_named(price: float | None) -> None:
    found = made(LISTING, replace(LISTING, instance="free", price_usd_per_hour=price))
    assert [offer.instance for offer in found.offers] == ["big"]
    assert found.notes == ("Listed without any price, so left out: free in north.",)


def test_thousands_of_names_that_nobody_knows_take_no_time() -> None:
    strange = [replace(LISTING, instance=f"i-{n}", gpu=f"H{n} Quantum") for n in range(3000)]
    started_s = time.process_time()
    found = made(*strange)
    # 0.2 s on one core; looking for the nearest names of each took 80 s.
    assert time.process_time() - started_s < 4.0
    assert len(found.unknown) == 3000
    assert "and 2,991 more" in found.notes[-1]


def test_a_machine_that_is_sold_as_spot_alone_says_so() -> None:
    offer = only(replace(LISTING, price_usd_per_hour=None, spot_usd_per_hour=0.4))
    assert (offer.price_usd_per_hour, offer.spot_usd_per_hour) == (None, 0.4)
    assert words(offer) == {"spot only"}


# --- what is known of machines and providers ---


def test_a_local_disk_is_looked_up_by_name() -> None:
    assert named("aws", "p4d.24xlarge").local_disk_bytes == 8000 * GB
    other = replace(LISTING, local_disk_bytes=5.0 * GB)
    assert only(other).local_disk_bytes == 5 * GB


@pytest.mark.parametrize(
    ("today", "word"), [("2026-09-29", "withdrawal announced"), ("2026-09-30", "withdrawn")]
)
def test_an_instance_with_an_end_is_doubted(today: str, word: str) -> None:
    listing = replace(LISTING, provider="azure", instance="Standard_NV12s_v3", gpu="M60")
    assert word in words(only(listing, today=today))


@pytest.mark.parametrize(
    ("cloud", "instance", "doubts"),
    [
        ("gcp", "n1-standard-4+1xT4", {"host added", "host chosen"}),
        ("gcp", "a2-ultragpu-1g", {"host added", "local disk billed apart"}),
        (
            "gcp",
            "a4-highgpu-8g",
            {"host added", "local disk billed apart", "not sold on demand"},
        ),
        (
            "gcp",
            "a3-highgpu-1g",
            {"host added", "local disk billed apart", "not sold on demand"},
        ),
        ("mithril", "a100-80gb.sxm.4x", {"bid floor", "spot only"}),
        ("runpod", "1x_PRO-6000-MIG-24GB_SECURE", {"region not verified", "fraction of a GPU"}),
        ("shadeform", "denvr_A100-sxm4", {"aggregator"}),
        ("vast", "1x-H100_NVL-32-65536", {"marketplace"}),
        ("azure", "Standard_NC12s_v3", {"withdrawn", "form not stated"}),
        ("azure", "Standard_NC40ads_H100_v5", {"count or name fixed"}),
        ("scaleway", "H100-1-80G", {"currency converted"}),
        ("seeweb", "ECS1GPU3", {"no stock seen", "currency converted", "form not stated"}),
    ],
)
def test_what_is_known_of_a_catalogue_is_said(cloud: str, instance: str, doubts: set[str]) -> None:
    assert words(named(cloud, instance)) - {"spot not below on-demand"} == doubts


def test_what_one_catalogue_does_is_not_said_of_another() -> None:
    host = replace(LISTING, provider="vast", instance="12345", gpu="RTX 4090")
    assert words(only(host)) == set()
    resold = replace(LISTING, provider="shadeform", instance="x")
    assert words(only(resold)) == {"aggregator"}
    assert quirk_values("gpuhunt", "scaleway", "currency") == ()


def test_doubts_of_a_listing_stay_with_the_offer() -> None:
    assert words(only(replace(LISTING, doubts=("low stock",)))) == {"low stock"}


@pytest.mark.parametrize("gpus", [0.0, -1.0, math.inf, math.nan, 1.79765e304, 1025.0])
def test_a_number_of_gpus_that_no_machine_has_is_a_damaged_row(gpus) -> None:
    listing = replace(LISTING, gpus=gpus, price_usd_per_hour=1.79765e308)
    assert made(listing).offers == ()


# --- properties ---


LISTINGS = st.builds(
    Listing,
    provider=st.just("aws"),
    instance=st.sampled_from(["p4d.24xlarge", "8x_x", "odd"]),
    gpu=st.sampled_from(["A100", "NVIDIA", "Zeta", "tpu-v4", "", "H100"]),
    gpus=st.floats(),
    region=st.sampled_from(["", "us-east-1", "eu-west-1"]),
    zone=st.sampled_from(["", "use1-az1", "use1-atl2-az1", "?"]),
    price_usd_per_hour=st.one_of(st.none(), st.floats()),
    spot_usd_per_hour=st.one_of(st.none(), st.floats()),
    gpu_memory_bytes=st.one_of(st.none(), st.floats()),
    vcpus=st.one_of(st.none(), st.floats(1, 9)),
    ram_bytes=st.one_of(st.none(), st.floats(1, 9)),
)


@given(st.lists(LISTINGS, max_size=8))
@settings(max_examples=200, deadline=None)
def test_offers_of_any_listings_are_sound(listings: list[Listing]) -> None:
    found = made(*listings)
    offers = (*found.offers, *found.unknown)
    assert len({offer.identity for offer in offers}) == len(offers)
    for offer in offers:
        assert offer.gpus >= 1
        assert 0 < offer.gpu_share <= 1
        price, spot = offer.price_usd_per_hour, offer.spot_usd_per_hour
        assert price is None or 0 < price < math.inf
        assert spot is None or price is None or 0 < spot < price
    assert all(offer.price_usd_per_hour or offer.spot_usd_per_hour for offer in found.offers)


# --- the bundled snapshot ---

COLUMNS = ("gpu", "gpus", "gpu_share", "gpu_memory_gib", "vcpus", "ram_gib", "local_disk_gb",
           "zones", "price_usd_hour", "spot_usd_hour", "spot_usd_hour_max", "as_of", "source",
           "doubts")  # fmt: skip
JUDGED = {
    "stale",
    "suspiciously cheap",
    "suspiciously dear",
    "spot suspiciously cheap",
    "spot suspiciously dear",
}
"""What only all offers together say, or the day of the snapshot."""
Key = tuple[str, str, str]


def text(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:.5g}"


def row(offer: Offer) -> dict[str, str]:
    figures = (
        offer.gpu,
        str(offer.gpus),
        text(offer.gpu_share),
        text(offer.gpu_memory_bytes, GIB),
        text(offer.vcpus),
        text(offer.ram_bytes, GIB),
        text(offer.local_disk_bytes, GB),
        str(offer.zones),
        text(offer.price_usd_per_hour),
        text(offer.spot_usd_per_hour),
        text(offer.spot_high_usd_per_hour),
        offer.as_of,
        offer.source,
        ";".join(doubt.word for doubt in offer.doubts),
    )
    return dict(zip(COLUMNS, figures, strict=True))


def offers_of_files(folder: Path, day: str) -> dict[Key, dict[str, str]]:
    catalogue = SkyPilotCatalogue(rate_day="2026-08-21")
    found: dict[Key, dict[str, str]] = {}
    for dated in rows_in(DATA / "catalogue_files.csv"):
        if dated["snapshot"] != day:
            continue
        data = (folder / day / f"{dated['provider']}.csv.gz").read_bytes()
        read = catalogue.read(dated["provider"], gzip.decompress(data))
        prices = price_list(
            read.listings,
            source=dated["source"],
            as_of=dated["changed"],
            today=dated["snapshot"],
        )
        found |= {offer.identity: row(offer) for offer in prices.offers}
    return found


def bundled() -> dict[Key, dict[str, str]]:
    found: dict[Key, dict[str, str]] = {}
    for one in rows_in(DATA / "offers_2026-08-22.csv"):
        doubts = [word for word in one["doubts"].split(";") if word not in JUDGED]
        key = (one["provider"], one["instance"], one["region"])
        found[key] = {column: one[column] for column in COLUMNS} | {"doubts": ";".join(doubts)}
    return found


@pytest.mark.sources
def test_the_real_files_give_the_bundled_offers(price_sources: Path) -> None:
    found, known = offers_of_files(price_sources / "skypilot", "2026-08-22"), bundled()
    assert found.keys() == known.keys()
    wrong = {key: (old, found[key]) for key, old in known.items() if found[key] != old}
    assert wrong == {}


@pytest.mark.sources
def test_each_zone_of_the_bundled_spot_prices_is_found(price_sources: Path) -> None:
    zones = {}
    catalogue = SkyPilotCatalogue()
    for cloud in ("aws", "gcp"):
        data = (price_sources / "skypilot" / "2026-08-22" / f"{cloud}.csv.gz").read_bytes()
        prices = made(*catalogue.read(cloud, gzip.decompress(data)).listings)
        zones |= {(one.provider, one.instance, one.region, one.zone): one for one in prices.zones}
    with (DATA / "spot_history_2026-08-22.csv").open() as file:
        history = [one for one in csv.DictReader(file) if one["zone"]]
    assert len(history) > 2000
    for one in history:
        key = (one["provider"], one["instance"], one["region"], one["zone"])
        spot = zones[key].spot_usd_per_hour
        # spot at on-demand is rounded to four decimals in the file: 0.2273 for 0.22725
        assert spot == pytest.approx(float(one["spot_usd_hour"]), rel=1e-3), key


def test_a_spelling_leads_to_a_gpu_and_back():
    rows = [row for row in rows_in(DATA / "gpu_spellings.csv") if row["gpu"]]
    meanings = {(row["provider"], row["spelling"], row["gpu"]) for row in rows}
    for row in rows:
        spelling = spelling_of(row["provider"], row["gpu"])
        assert (row["provider"], spelling, row["gpu"]) in meanings


def test_spellings_of_families_forms_and_instances():
    assert spelling_of("aws", "V100 SXM2 32GB") == "V100-32GB"
    assert spelling_of("runpod", "A100 80GB PCIe") == "A100-80GB"
    assert spelling_of("runpod", "A100 80GB SXM") == "A100-80GB-SXM"
    assert spelling_of("lambda", "H100 SXM", "gpu_8x_h100_sxm5") == "H100"
    assert spelling_of("cudo", "RTX 3080 Ti") is None  # it has the RTX 3080 alone
    assert spelling_of("lambda", "no such GPU") is None
    assert host_of("gcp", "n1-standard-8+1xV100") == ("n1-standard-8", "V100")
    assert host_of("gcp", "a3-megagpu-8g") == ("a3-megagpu-8g", "H100-MEGA")
    assert host_of("aws", "p5.48xlarge") is None
