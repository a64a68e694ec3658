"""The shipped price tables hold together. The raw files they were made from are not needed."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from tests.tables import rows_in

import outlay

DATA = Path(outlay.__file__).parent / "data"
SNAPSHOT = date(2026, 8, 22)
ADVISED = date(2025, 6, 28)
AWS_REGION = re.compile(r"[a-z]{2}(-gov)?-[a-z]+-\d(-[a-z]{3}-\d)?")
GCP_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
AGGREGATORS = {"primeintellect", "shadeform"}
SIGNIFICANT = re.compile(r"0*\.?0*([1-9]\d*\.?\d*)")

Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    return rows_in(DATA / name)


@pytest.fixture(scope="module")
def offers() -> list[Row]:
    return rows_of(f"offers_{SNAPSHOT}.csv")


@pytest.fixture(scope="module")
def kinds() -> dict[str, str]:
    return {row["doubt"]: row["kind"] for row in rows_of("offer_doubts.csv")}


def doubts_of(row: Row) -> list[str]:
    return row["doubts"].split(";") if row["doubts"] else []


def keys_of(rows: list[Row], *columns: str) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def assert_unique(keys: list[tuple[str, ...]]) -> None:
    assert [key for key, count in Counter(keys).items() if count > 1] == []


def assert_dated(rows: list[Row], latest: date) -> None:
    late = [row for row in rows if date.fromisoformat(row["as_of"]) > latest]
    assert late == []


def test_offers_have_the_columns_in_order(offers: list[Row]) -> None:
    assert list(offers[0]) == [
        "provider",
        "instance",
        "gpu",
        "gpus",
        "gpu_share",
        "gpu_memory_gib",
        "vcpus",
        "ram_gib",
        "local_disk_gb",
        "region",
        "zones",
        "price_usd_hour",
        "spot_usd_hour",
        "spot_usd_hour_max",
        "as_of",
        "source",
        "doubts",
    ]


def test_offers_are_many_but_not_too_many(offers: list[Row]) -> None:
    assert 2000 <= len(offers) <= 2500
    assert (DATA / f"offers_{SNAPSHOT}.csv").stat().st_size < 400_000
    assert len({row["provider"] for row in offers}) == 24


def test_offers_are_sorted_and_unique(offers: list[Row]) -> None:
    keys = keys_of(offers, "provider", "instance", "region")
    assert keys == sorted(keys)
    assert_unique(keys)


def test_an_offer_has_a_price_above_zero(offers: list[Row]) -> None:
    for row in offers:
        prices = [row["price_usd_hour"], row["spot_usd_hour"]]
        assert any(prices), row
        assert all(float(price) > 0 for price in prices if price), row


def test_an_offer_without_on_demand_price_says_so(offers: list[Row]) -> None:
    for row in offers:
        assert (not row["price_usd_hour"]) == ("spot only" in doubts_of(row)), row


def test_spot_is_below_on_demand_in_its_dearest_zone_too(offers: list[Row]) -> None:
    for row in offers:
        assert bool(row["spot_usd_hour"]) == bool(row["spot_usd_hour_max"]), row
        if row["spot_usd_hour"]:
            assert float(row["spot_usd_hour"]) <= float(row["spot_usd_hour_max"]), row
        if row["spot_usd_hour"] and row["price_usd_hour"]:
            assert float(row["spot_usd_hour_max"]) < float(row["price_usd_hour"]), row


def test_prices_have_at_most_five_significant_digits(offers: list[Row]) -> None:
    for row in offers:
        for column in ("price_usd_hour", "spot_usd_hour", "spot_usd_hour_max"):
            digits = SIGNIFICANT.fullmatch(row[column]) if row[column] else None
            assert digits is None or len(digits[1].replace(".", "")) <= 5, row


def test_doubts_are_known_once_and_in_order(offers: list[Row], kinds: dict[str, str]) -> None:
    order = list(kinds)
    for row in offers:
        doubts = doubts_of(row)
        assert set(doubts) <= set(order), row
        assert doubts == sorted(set(doubts), key=order.index), row


def test_doubts_are_defined_once_each_with_a_kind(kinds: dict[str, str]) -> None:
    assert_unique(keys_of(rows_of("offer_doubts.csv"), "doubt"))
    assert set(kinds.values()) == {"note", "weighed", "caution", "no price"}
    about = {row["about"] for row in rows_of("offer_doubts.csv")}
    assert about == {"offer", "price", "spot", "machine"}


def test_aws_and_gcp_places_are_regions(offers: list[Row]) -> None:
    patterns = {"aws": AWS_REGION, "gcp": GCP_REGION}
    for row in offers:
        pattern = patterns.get(row["provider"])
        assert pattern is None or pattern.fullmatch(row["region"]), row


def test_every_aws_local_zone_is_doubted(offers: list[Row]) -> None:
    for row in offers:
        if row["provider"] == "aws":
            local = row["region"].count("-") > 2
            assert local == ("local zone" in doubts_of(row)), row


def test_an_instance_sold_anywhere_has_no_other_row(offers: list[Row]) -> None:
    anywhere = set(keys_of([r for r in offers if r["region"] == "any"], "provider", "instance"))
    others = keys_of([r for r in offers if r["region"] != "any"], "provider", "instance")
    assert anywhere
    assert anywhere.isdisjoint(others)


def test_a_row_for_any_region_counts_several(offers: list[Row]) -> None:
    assert all(int(row["zones"]) > 1 for row in offers if row["region"] == "any")
    assert all(int(row["zones"]) >= 1 for row in offers)


def test_offers_are_dated_by_their_price(offers: list[Row]) -> None:
    assert_dated(offers, SNAPSHOT)
    for row in offers:
        old = (SNAPSHOT - date.fromisoformat(row["as_of"])).days > 90
        assert old == ("stale" in doubts_of(row)), row


def test_gpus_are_whole_and_shares_are_of_one(offers: list[Row]) -> None:
    for row in offers:
        share = float(row["gpu_share"])
        assert int(row["gpus"]) >= 1, row
        assert 0 < share <= 1, row
        if share < 1:
            assert row["gpus"] == "1", row
            assert "fraction of a GPU" in doubts_of(row), row


def test_machines_are_plausible(offers: list[Row]) -> None:
    for row in offers:
        gpus, vcpus, ram_gib = int(row["gpus"]), float(row["vcpus"]), float(row["ram_gib"])
        assert gpus <= 16, row
        assert 2 <= vcpus <= 512, row
        assert 4 <= ram_gib <= 4096, row
        assert 0.5 <= ram_gib / vcpus <= 32, row
        assert 2 <= float(row["gpu_memory_gib"]) <= 288, row


def test_aggregators_are_marked_and_nobody_else(offers: list[Row]) -> None:
    for row in offers:
        assert (row["provider"] in AGGREGATORS) == ("aggregator" in doubts_of(row)), row


def test_an_auction_floor_is_never_an_on_demand_price(offers: list[Row]) -> None:
    floors = [row for row in offers if "bid floor" in doubts_of(row)]
    assert {row["provider"] for row in floors} == {"mithril"}
    assert [row for row in floors if row["price_usd_hour"]] == []


def test_a_gpu_without_a_form_is_doubted(offers: list[Row]) -> None:
    open_names = {"A100 40GB", "A100 80GB", "V100 16GB", "V100 32GB", "P100", "GH200", "H100"}
    for row in offers:
        assert (row["gpu"] in open_names) == ("form not stated" in doubts_of(row)), row


def test_a_plain_price_is_near_the_others(offers: list[Row], kinds: dict[str, str]) -> None:
    """No 8-GPU H100, H200 or B200 machine without a caution costs under $16 or over $210 an hour.

    $2 per GPU-hour is half the lowest large-cloud price; the dearest is AWS B300 in Seoul, $209.
    """
    for row in offers:
        plain = all(kinds[doubt] == "note" for doubt in doubts_of(row))
        big = row["gpus"] == "8" and row["gpu"] in {"H100 SXM", "H200", "B200", "B300"}
        if plain and big and row["price_usd_hour"]:
            assert 16 <= float(row["price_usd_hour"]) <= 210, row


def test_sources_name_a_file_of_one_commit(offers: list[Row]) -> None:
    file = r"skypilot-catalog@[0-9a-f]{9}:catalogs/v\d+/[a-z]+/vms\.csv"
    pattern = re.compile(rf"{file}(: [\d.]+ EUR at [\d.]+ USD of [\d-]+)?")
    for row in offers:
        assert pattern.fullmatch(row["source"]), row


def test_interruptions_are_fractions_of_aws_instances() -> None:
    rows = rows_of(f"spot_interruptions_{ADVISED}.csv")
    assert 600 <= len(rows) <= 800
    assert_unique(keys_of(rows, "provider", "instance", "region"))
    assert_dated(rows, ADVISED)
    for row in rows:
        low, high = row["low_fraction_per_month"], row["high_fraction_per_month"]
        assert row["provider"] == "aws", row
        assert AWS_REGION.fullmatch(row["region"]), row
        assert 0 <= float(low) < float(high or 1) <= 1, row


def test_spellings_are_unique_and_non_gpus_say_so() -> None:
    rows = rows_of("gpu_spellings.csv")
    assert len(rows) >= 290
    assert_unique(keys_of(rows, "provider", "spelling", "gpu", "note"))
    for row in rows:
        assert (row["gpu"] == "") == (row["note"] == "not a GPU"), row


def test_an_ambiguous_spelling_says_for_which_instances() -> None:
    rows = [row for row in rows_of("gpu_spellings.csv") if row["gpu"]]
    count = Counter(keys_of(rows, "provider", "spelling"))
    for row in rows:
        if count[row["provider"], row["spelling"]] > 1:
            assert row["note"].startswith("for instances "), row


@pytest.mark.parametrize(
    "name",
    [
        "instance_forms.csv",
        "instance_disks.csv",
        "instance_ends.csv",
        "gpu_hosts.csv",
        "catalogue_quirks.csv",
    ],
)
def test_tables_kept_by_hand_have_a_source_and_a_date(name: str) -> None:
    rows = rows_of(name)
    assert rows
    assert_dated(rows, date(2026, 12, 31))
    assert [row for row in rows if not row["source"]] == []


def test_forms_are_unique_and_used(offers: list[Row]) -> None:
    forms = rows_of("instance_forms.csv")
    assert_unique(keys_of(forms, "provider", "instance_pattern", "raw_gpu"))
    sold = {(row["provider"], row["gpu"]) for row in offers}
    assert [row for row in forms if (row["provider"], row["gpu"]) not in sold] == []


def test_disks_belong_to_instances_on_offer(offers: list[Row]) -> None:
    disks = rows_of("instance_disks.csv")
    assert_unique(keys_of(disks, "provider", "instance"))
    sold = set(keys_of(offers, "provider", "instance"))
    assert [row for row in disks if (row["provider"], row["instance"]) not in sold] == []
    for row in disks:
        assert row["local_disk_gb"] == "" or 0 <= int(row["local_disk_gb"]) <= 65536, row


def test_hosts_are_unique_and_on_offer(offers: list[Row]) -> None:
    hosts = rows_of("gpu_hosts.csv")
    assert_unique(keys_of(hosts, "provider", "gpu", "gpus", "host"))
    assert_unique(keys_of(hosts, "provider", "instance"))
    sold = {(row["provider"], row["instance"]): row for row in offers}
    for row in hosts:
        assert sold[row["provider"], row["instance"]]["gpus"] == row["gpus"], row


def test_quirks_are_of_a_known_kind_and_each_said_once(kinds: dict[str, str]) -> None:
    rows = rows_of("catalogue_quirks.csv")
    assert_unique(keys_of(rows, "catalogue", "provider", "instance_pattern", "quirk", "value"))
    values = {
        "zones": {"apart"},
        "price": {"bid floor"},
        "ram": {"times GPUs twice", "GiB times 1.074"},
        "memory": {"of all GPUs"},
        "whole memory": {"80"},
        "host": {"in the price of the GPU"},
        "region": {"no stock seen"},
        "end": {"no newline"},
        "currency": {"EUR"},
        "doubt": set(kinds),
    }
    for row in rows:
        if row["quirk"] == "gpus":
            assert 0 < float(row["value"]) <= 16, row
        else:
            assert row["value"] in values[row["quirk"]], row


def test_files_of_the_snapshot_have_the_day_of_their_offers(offers: list[Row]) -> None:
    files = rows_of("catalogue_files.csv")
    assert_unique(keys_of(files, "catalogue", "snapshot", "provider"))
    assert all(re.fullmatch(r"[0-9a-f]{64}", row["sha256"]) for row in files)
    newest = max(row["snapshot"] for row in files)
    files = [row for row in files if row["snapshot"] == newest]
    days = {(row["provider"], row["changed"], row["source"]) for row in files}
    assert days == {
        (provider, as_of, source.partition(": ")[0])
        for provider, as_of, source in keys_of(offers, "provider", "as_of", "source")
    }
