"""Provider terms, assumptions, calibration and list prices: cited, dated, and readable."""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase

from tests.rows import for_every

from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import bundled_offers, doubt_kinds
from outlay.offers.terms import all_terms

PROVIDER_UNITS = {
    "billing_step": {"s"},
    "billing_minimum": {"s"},
    "volume_storage": {"USD/GB-month", "USD/GiB-month", "EUR/GB-month"},
    "object_storage": {"USD/GB-month", "USD/GiB-month", "EUR/GB-month"},
    "registry_storage": {"USD/GB-month", "USD/GiB-month"},
    "stopped_disk_storage": {"USD/GB-month", "USD/GiB-month"},
    "running_disk_storage": {"USD/GB-month"},
    "local_disk_storage": {"USD/GiB-month"},
    "local_disk_spot_share": {"fraction"},
    "egress": {"USD/GB", "USD/GiB"},
    "egress_free": {"GB/month"},
    "ingress": {"USD/GB", "USD/GiB"},
    "copying_machine": {"USD/h"},
    "spot_notice": {"s"},
    "provisioning_time": {"s"},
    "free_credit": {"USD"},
}


def test_provider_rows_are_unique_dated_and_cited():
    rows = rows_of("providers.csv")
    keys = [(row["provider"], row["parameter"]) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        date.fromisoformat(row["as_of"])
        assert (row["source"] == "not found") == (row["value"] == ""), row


def test_provider_numbers_have_the_unit_the_reader_expects():
    for row in rows_of("providers.csv"):
        units = PROVIDER_UNITS.get(row["parameter"])
        if units is not None and row["value"]:
            assert row["unit"] in units, row
            assert float(row["value"]) >= 0, row


def test_every_provider_with_offers_has_a_name():
    providers = {offer.provider for offer in bundled_offers()}
    assert providers <= set(all_terms())


def test_assumptions_are_unique_dated_and_cited_or_called_a_guess():
    rows = rows_of("assumptions.csv")
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    for row in rows:
        date.fromisoformat(row["as_of"])
        assert row["source"].startswith("http") or "guess" in row["note"] or row["source"], row
        if row["source"] == "guess":
            assert row["note"].startswith("guess: "), row


@for_every("row", rows_of("calibration.csv"))
def test_calibration_rows_are_ordered_and_say_where_they_come_from(row):
    assert float(row["low"]) <= float(row["likely"]) <= float(row["high"])
    assert row["source"]
    assert "placeholder" not in row["source"]
    date.fromisoformat(row["as_of"])


def test_list_prices_are_unique_known_and_positive():
    rows = rows_of("list_prices_2026-11-15.csv")
    keys = [(row["provider"], row["instance"], row["region"]) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        prices = [row[name] for name in ("price_usd_hour", "spot_usd_hour") if row[name]]
        assert prices, row
        assert all(float(price) > 0 for price in prices), row
        assert (row["price_usd_hour"] == "") == ("spot only" in row["doubts"].split(";")), row
        assert find_gpu(row["gpu"]).gpu
        assert row["source"].startswith("http")
        assert set(filter(None, row["doubts"].split(";"))) <= set(doubt_kinds())


def test_outdated_prices_are_of_offers_there_are_and_say_known_doubts():
    offers = bundled_offers()
    for row in rows_of("outdated_prices.csv"):
        date.fromisoformat(row["as_of"])
        assert row["source"].startswith("http"), row
        assert set(row["doubts"].split(";")) <= set(doubt_kinds()), row
        assert any(
            offer.provider == row["provider"]
            and fnmatchcase(offer.instance, row["instance_pattern"])
            for offer in offers
        ), row


def test_no_two_bundled_offers_are_the_same():
    identities = [offer.identity for offer in bundled_offers()]
    assert len(set(identities)) == len(identities)


def test_every_bundled_offer_names_a_gpu_we_know():
    assert all(find_gpu(name).candidates for name in {offer.gpu for offer in bundled_offers()})
