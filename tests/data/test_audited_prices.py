"""What an audit of the tables found wrong or outdated stands in them as it should be.

Each figure, unit, date and source is written out here as the audit gives it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from tests.builders import a_bill, a_run, a_workload, an_offer

from outlay.cost.bill import cost_of
from outlay.facts import rows_of
from outlay.offers.catalog import bundled_offers, reserved_offers
from outlay.offers.terms import all_terms, terms_of
from outlay.units import DAY_S, GB, GIB
from outlay.workload.workload import Dataset

COLAB = "chrisjmccormick.github.io/blob/aa7fd92/_posts/2024-04-23-colab-gpus-features-and-pricing"
AZURE = "datareceipts/data-receipts/main/109-gpu-pricing/hyperscalers.json"
SCREENER = "renshuBTC/compute-screener/main/data/gpu_providers_latest.csv"


def offers_of(provider, pattern="*", region=None):
    return [
        offer
        for offer in bundled_offers()
        if offer.provider == provider
        and fnmatchcase(offer.instance, pattern)
        and region in (None, offer.region)
    ]


def the_offer(provider, instance, region=None):
    (offer,) = offers_of(provider, instance, region)
    return offer


def words(offer):
    return {doubt.word for doubt in offer.doubts}


# --- Colab ---


@pytest.mark.parametrize(
    ("runtime", "gpu", "units", "usd"),
    [
        # units an hour at 0.10 USD, to the cent
        ("T4 runtime", "T4", 1.19, 0.12),
        ("L4 runtime", "L4", 1.71, 0.17),
        ("A100 40GB runtime", "A100 40GB", 5.40, 0.54),
        ("A100 80GB runtime", "A100 80GB", 7.52, 0.75),
        ("RTX PRO 6000 runtime", "RTX PRO 6000", 8.71, 0.87),
    ],
)
def test_colab_takes_the_units_of_2026_03(runtime, gpu, units, usd):
    offer = the_offer("colab", runtime)
    assert (offer.price_usd_per_hour, offer.as_of) == (usd, "2026-03-10")
    assert offer.gpu.startswith(gpu)
    assert COLAB in offer.source
    assert {"second-hand", "stale"} <= words(offer)
    (row,) = (
        row for row in rows_of("subscriptions.csv") if row["parameter"] == f"units_per_hour {gpu}"
    )
    assert (float(row["value"]), row["unit"], row["as_of"]) == (units, "units/h", "2026-03-10")
    assert COLAB in row["source"]


def test_colab_has_no_v100_any_more_and_nothing_of_2024():
    assert not [offer for offer in offers_of("colab") if "V100" in offer.gpu]
    assert not [row for row in rows_of("subscriptions.csv") if "V100" in row["parameter"]]
    assert {offer.as_of for offer in offers_of("colab")} == {"2026-03-10"}


# --- Azure ---


@pytest.mark.parametrize(
    ("instance", "gpus", "usd", "was_usd"),
    [
        ("Standard_NC48ads_A100_v4", 2, 9.554, 7.346),
        ("Standard_NC80adis_H100_v5", 2, 17.64, 13.96),
        ("Standard_NC96ads_A100_v4", 4, 19.108, 14.692),
    ],
)
def test_azure_machines_with_several_gpus_cost_what_they_cost_in_2026_11(
    instance, gpus, usd, was_usd
):
    new = the_offer("azure", f"{instance} (list price)", "eastus")
    assert (new.price_usd_per_hour, new.gpus, new.as_of) == (usd, gpus, "2026-11-09")
    assert AZURE in new.source
    assert words(new) == {"second-hand"}
    old = the_offer("azure", instance, "eastus")
    assert old.price_usd_per_hour == was_usd
    everywhere = offers_of("azure", instance)
    assert len(everywhere) >= 4
    for offer in everywhere:
        assert "superseded" in offer.cautions("on-demand")
        assert offer.spot_usd_per_hour is None or "superseded spot" in offer.cautions("spot")


@pytest.mark.parametrize(
    ("instance", "usd"),
    [
        ("Standard_NC24ads_A100_v4", 3.673),
        ("Standard_NC40ads_H100_v5", 6.98),
        ("Standard_ND96asr_v4", 27.197),
        ("Standard_ND96amsr_A100_v4", 32.77),
        ("Standard_ND96isr_H100_v5", 98.32),
    ],
)
def test_azure_machines_with_one_and_eight_gpus_are_confirmed(instance, usd):
    offer = the_offer("azure", instance, "eastus")
    assert (offer.price_usd_per_hour, offer.as_of) == (usd, "2026-11-09")
    assert offer.cautions("on-demand") == ()
    assert AZURE in offer.source
    # Its spot price is of 2024 still.
    if offer.spot_usd_per_hour is not None:
        assert offer.seen_on("spot") == "2024-08-19"
        assert "stale spot" in offer.cautions("spot")
    assert not offers_of("azure", f"{instance} (list price)")
    # Where it cost another price, nothing is known of it anew.
    for other in offers_of("azure", instance):
        same = other.price_usd_per_hour == usd
        assert ("stale" in words(other)) == (not same)


def test_no_commitment_rests_on_a_price_of_azure():
    # None is in the table; one at a superseded price would say so.
    assert not [row for row in rows_of("commitments.csv") if row["provider"] == "azure"]
    for offer in offers_of("azure"):
        assert not list(reserved_offers(offer))


# --- CoreWeave, DigitalOcean, Verda, Shadeform, Nebius ---


def test_coreweave_sells_the_rtx_pro_6000_and_b300_as_spot():
    offer = the_offer("coreweave", "RTX PRO 6000")
    assert (offer.gpu, offer.gpus) == ("RTX PRO 6000 Server", 8)
    assert (offer.price_usd_per_hour, offer.as_of) == (20.00, "2026-09-20")
    assert offer.source.startswith("https://www.coreweave.com/pricing (transcribed: ")
    assert words(offer) == {"second-hand"}
    b300 = the_offer("coreweave", "HGX B300")
    assert (b300.price_usd_per_hour, b300.spot_usd_per_hour) == (None, 35.84)


def test_the_prices_of_digitalocean_of_2026_05_are_superseded():
    new = the_offer("do", "8x H100 (average)")
    # 5.373 a GPU on average, times 8
    assert new.price_usd_per_hour == pytest.approx(8 * 5.373, abs=0.005)
    assert (round(new.price_usd_per_hour), new.as_of) == (43, "2026-10-24")
    assert SCREENER in new.source
    assert new.cautions("on-demand") == ("average price",)
    old = the_offer("do", "gpu-h100x8-640gb (list price)")
    assert old.price_usd_per_hour == 23.92
    others = [offer for offer in offers_of("do") if offer != new]
    assert len(others) >= 4
    assert all("superseded" in offer.cautions("on-demand") for offer in others)
    # Shadeform resells one at 4.41
    resold = offers_of("shadeform", "digitalocean_H100-sxm5")
    assert {offer.price_usd_per_hour for offer in resold} == {4.41}


@pytest.mark.parametrize(
    ("instance", "gpu", "usd"), [("H100 SXM", "H100 SXM", 4.49), ("H200", "H200", 5.86)]
)
def test_verda_has_moved(instance, gpu, usd):
    offer = the_offer("verda", f"{instance} (average)")
    assert (offer.gpu, offer.gpus) == (gpu, 1)
    assert (offer.price_usd_per_hour, offer.as_of) == (usd, "2026-10-24")
    assert SCREENER in offer.source
    assert {"second-hand", "average price"} <= words(offer)


def test_all_older_prices_of_verda_are_superseded():
    old = [offer for offer in offers_of("verda") if offer.as_of < "2026-10-24"]
    assert len(old) == 13
    for offer in old:
        assert offer.price_usd_per_hour is None or "superseded" in words(offer)
        assert offer.spot_usd_per_hour is None or "superseded spot" in words(offer)


def test_excess_supply_at_shadeform_has_moved():
    offer = the_offer("shadeform", "excesssupply H200 (average)")
    assert (offer.price_usd_per_hour, offer.gpus, offer.as_of) == (4.42, 1, "2026-10-24")
    assert {"aggregator", "second-hand", "average price"} == words(offer)
    old = offers_of("shadeform", "excesssupply_*")
    # 25.6 for eight were 3.20 a GPU
    assert 25.6 in {one.price_usd_per_hour for one in old if one.gpu == "H200"}
    assert all("superseded" in one.cautions("on-demand") for one in old)


def test_spot_of_nebius_is_superseded_by_the_rise_of_on_demand():
    old = [offer for offer in offers_of("nebius") if offer.spot_usd_per_hour is not None]
    assert len(old) == 28
    for offer in old:
        assert offer.seen_on("spot") == "2026-07-22"
        assert offer.cautions("spot") == ("superseded spot",)
    # 4.50 / 3.85 = 1.17, 5.40 / 4.50 = 1.20, 8.50 / 7.15 = 1.19, 9.50 / 7.85 = 1.21
    rises = {
        gpu: the_offer("nebius", f"gpu-{gpu}-sxm 1 GPU").price_usd_per_hour
        / offers_of("nebius", f"gpu-{gpu}-sxm_1gpu-*")[0].price_usd_per_hour
        for gpu in ("h100", "h200", "b200", "b300")
    }
    assert all(1.165 <= rise <= 1.215 for rise in rises.values())


# --- GCP ---


def test_nothing_that_leaves_a_machine_at_gcp_is_free():
    assert terms_of("gcp").egress_free_bytes_per_month == 0
    (row,) = (
        row
        for row in rows_of("providers.csv")
        if (row["provider"], row["parameter"]) == ("gcp", "egress_free")
    )
    assert (row["value"], row["unit"], row["as_of"]) == ("0", "GB/month", "2026-09-20")
    # 50 GB of results at 0.12 USD a GB are 6 dollars, from the first GB
    bill = a_bill(a_run(), offer=an_offer("gcp"), terms=(terms_of("gcp"),))
    cost = cost_of(a_workload(data=Dataset(results_bytes=50 * GB)), bill)
    (line,) = (line for line in cost.breakdown.lines if line.name == "transfer")
    per_gb = terms_of("gcp").egress_usd_per_byte * GB
    assert line.usd == pytest.approx(50 * per_gb)
    assert "free" not in line.basis


@pytest.mark.parametrize(
    ("instance", "gib"),
    [
        ("a3-highgpu-1g", 750),
        ("a3-highgpu-2g", 1500),
        ("a3-highgpu-4g", 3000),
        ("a3-highgpu-8g", 6000),
        ("a4-highgpu-8g", 12000),
    ],
)
def test_the_ssd_that_comes_with_a_machine_at_gcp_is_on_the_bill(instance, gib):
    offer = offers_of("gcp", instance)[0]
    assert "local disk billed apart" in words(offer)
    assert offer.local_disk_bytes == pytest.approx(gib * GIB, rel=0.001)
    bill = a_bill(a_run(3 * DAY_S), offer=offer, terms=(terms_of("gcp"),))
    (line,) = (
        line for line in cost_of(a_workload(), bill).breakdown.lines if line.name == "local disk"
    )
    # 0.08 USD a GiB-month, for 3 of 30 days
    assert line.usd == pytest.approx(gib * 0.08 * 3 / 30, rel=0.001)
    assert "cloud.google.com/compute/disks-image-pricing" in line.source
    # "60 to 91 % below on-demand", the smallest of it
    assert terms_of("gcp").local_disk_spot_fraction == pytest.approx(1 - 0.60)


def test_every_machine_at_gcp_with_an_ssd_of_its_own_has_a_price_for_it():
    apart = [offer for offer in bundled_offers() if "local disk billed apart" in words(offer)]
    assert len(apart) == 121
    for offer in apart:
        assert offer.local_disk_bytes
        assert terms_of(offer.provider).local_disk_usd_per_byte_month


# --- RunPod ---


def test_no_network_volume_can_be_joined_to_runpods_community_machines():
    fact = terms_of("runpod").facts["no_network_volume"]
    assert fact.text == "community *"
    assert fact.source == "https://docs.runpod.io/storage/network-volumes"
    assert fact.as_of == "2026-11-15"
    assert len(offers_of("runpod", "community *")) >= 20
    assert len(offers_of("runpod", fact.text)) < len(offers_of("runpod"))


@pytest.mark.parametrize(
    ("gpu", "usd"),
    [
        ("RTX A5000", 0.16),
        ("RTX 3090", 0.22),
        ("RTX A6000", 0.33),
        ("RTX 4090", 0.34),
        ("RTX 6000 Ada", 0.74),
        ("RTX 5090", 0.69),
        ("RTX PRO 6000 Server", 1.69),
    ],
)
def test_runpods_community_rtx_cards_have_prices(gpu, usd):
    offer = the_offer("runpod", f"community {gpu}")
    assert (offer.gpu, offer.gpus, offer.price_usd_per_hour) == (gpu, 1, usd)
    assert offer.source.startswith("https://www.runpod.io/pricing (transcribed: ")
    assert "second-hand" in words(offer)
    # Listed is not to be had: few hosts have one free.
    assert offer.cautions("on-demand") == ("low stock",)


@pytest.mark.parametrize(
    ("pattern", "usd", "moved"),
    [
        ("1x_RTXA5000_SECURE", 0.27, False),
        ("1x_RTX4090_SECURE", 0.74, False),
        # 0.44 and 0.99 in the catalogue of 2026-08
        ("1x_A40_SECURE", 0.49, True),
        ("1x_L40S_SECURE", 1.09, True),
    ],
)
def test_the_rest_of_runpod_is_read_again(pattern, usd, moved):
    offer = the_offer("runpod", pattern)
    assert ("superseded" in words(offer)) == moved
    new = [one for one in offers_of("runpod", "secure *") if one.gpu == offer.gpu]
    if moved:
        assert [one.price_usd_per_hour for one in new] == [usd]
    else:
        assert new == []
        assert (offer.price_usd_per_hour, offer.as_of) == (usd, "2026-10-02")


# --- AWS ---


def test_commitments_of_aws_have_the_date_of_the_commit_they_cite():
    rows = [row for row in rows_of("commitments.csv") if "blob/2d0108c7" in row["source"]]
    assert len(rows) == 13
    assert {row["as_of"] for row in rows} == {"2025-11-30"}
    assert {row["instance_pattern"].partition(".")[0] for row in rows} == {"g5", "g6", "p4d", "p5"}
    # The others cite files that give their own day.
    others = [row for row in rows_of("commitments.csv") if row["provider"] == "aws"]
    assert {row["as_of"] for row in others if row not in rows} == {"2026-08-26"}


def test_aws_states_no_interruption_rate_for_all_of_its_types():
    assert terms_of("aws").spot_interruptions_per_month is None
    stated = [one for one in all_terms().values() if one.spot_interruptions_per_month is not None]
    assert stated == []


def test_a_local_zone_of_aws_is_a_caution_on_spot_too():
    local = [offer for offer in offers_of("aws") if offer.region.count("-") > 2]
    assert "us-west-2-lax-1" in {offer.region for offer in local}
    assert any(offer.spot_usd_per_hour for offer in local)
    for offer in local:
        assert "local zone" in offer.cautions("on-demand")
        assert "local zone" in offer.cautions("spot")
