"""The tables behind costs: qualities, terms, notebooks, taxes, disks and decoding, assumptions."""

from __future__ import annotations

import re
from datetime import date
from fnmatch import fnmatchcase

import pytest
from tests.rows import for_every

from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import bundled_offers
from outlay.offers.terms import all_terms, terms_of
from outlay.units import DAY_S, duration_s
from outlay.workload.tables import PreferTable

TABLES = {
    "provider_qualities.csv": ("provider", "parameter"),
    "commitments.csv": ("provider", "instance_pattern", "term", "payment"),
    "subscriptions.csv": ("provider", "plan", "parameter"),
    "taxes.csv": ("place",),
    "feed_rates.csv": ("name",),
    "disk_rates.csv": ("provider", "instance_pattern", "parameter"),
    "assumptions.csv": ("name",),
    "region_transfers.csv": ("provider", "origin", "destination"),
}
"""The tables by what makes a row of them one of a kind."""
WORDS = {
    "access": {"full machine", "container", "notebook"},
    "quota": {"apply", "none", "phone"},
    "stops_itself": {"yes", "no", "option"},
    "stop_keeps_disk": {"yes", "no"},
    "persistent_disk": {"yes", "no"},
    "driver_image": {"yes", "no"},
    "whole_gpu": {"whole", "both", "share"},
    "prepaid": {"yes", "no"},
    "browser": {"yes", "no"},
    "volume_uploads": {"direct"},
    "refund": {"none", "less the discount so far"},
}
NUMBERS = {
    "static_address": {"USD/hour", "USD/month"},
    "max_session": {"s"},
    "block": {"USD"},
    "first_payment": {"USD", "h"},
}
NOTEBOOKS = {"colab", "kaggle", "sagemaker-studio-lab"}


def is_cited(row):
    return row["source"].startswith(("http", "skypilot-catalog@"))


@for_every("table, key", TABLES.items())
def test_rows_are_unique_dated_and_cited_or_called_a_guess(table, key):
    rows = rows_of(table)
    keys = [tuple(row[column] for column in key) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        assert date.fromisoformat(row["as_of"]) <= date(2026, 11, 18), row
        value = row.get("value", row.get("discount", row.get("rate")))
        if row["source"] == "guess":
            assert row["note"].startswith("guess: "), row
        elif row["source"] == "not found":
            assert value == "", row
        else:
            assert is_cited(row), row
            assert value, row
        assert row["unit"], row


# --- provider_qualities.csv ---


@for_every("row", rows_of("provider_qualities.csv"))
def test_a_quality_is_one_that_is_known_and_says_what_it_may(row):
    parameter, value, unit = row["parameter"], row["value"], row["unit"]
    if parameter in WORDS:
        assert value in WORDS[parameter]
        assert unit == "text"
    elif parameter in NUMBERS:
        assert unit in NUMBERS[parameter]
        assert float(value) >= 0
    elif parameter == "free_hours" and unit != "text":
        assert unit in ("h/week", "h/day")
        assert 0 < float(value) <= (168 if unit == "h/week" else 24)
    elif parameter in ("spot_check", "host_rent"):
        assert unit == "text"
        # a page of the provider, or a command of its own, in the place of the machine
        assert value.startswith(("https://", "aws ", "prime ", "vastai "))
        assert set(re.findall(r"{(.*?)}", value)) <= {"instance", "region"}
    else:
        assert parameter in ("name", "free_hours", "no_network_volume")
        assert unit == "text"
        assert value


def test_qualities_are_of_providers_that_are_known():
    providers = {row["provider"] for row in rows_of("providers.csv")}
    for row in rows_of("provider_qualities.csv"):
        assert row["provider"] in providers | NOTEBOOKS, row
        assert all_terms()[row["provider"]].name


def test_what_can_be_asked_for_is_what_providers_may_have():
    for name, words in WORDS.items():
        field = PreferTable.model_fields.get(name)
        if field is not None:
            literal = next(one for one in field.annotation.__args__ if one is not type(None))
            assert set(literal.__args__) <= words, name


def test_no_quality_stands_in_two_tables():
    keys = {(row["provider"], row["parameter"]) for row in rows_of("providers.csv")}
    for row in rows_of("provider_qualities.csv"):
        assert (row["provider"], row["parameter"]) not in keys, row


# --- commitments.csv ---


@for_every("row", rows_of("commitments.csv"))
def test_a_commitment_has_a_term_a_discount_and_an_offer(row):
    assert 28 * DAY_S <= duration_s(row["term"]) <= 5 * 366 * DAY_S
    assert row["payment"] in ("no upfront", "partial upfront", "all upfront")
    assert row["unit"] == "fraction"
    assert 0 < float(row["discount"]) <= 0.9
    assert any(
        offer.provider == row["provider"] and fnmatchcase(offer.instance, row["instance_pattern"])
        for offer in bundled_offers()
    )
    derived = re.search(r"derived: 1 - ([\d.]+)/([\d.]+)", row["note"])
    if derived:
        # 1 less the price with the term by the price without, to three digits
        discount = 1 - float(derived[1]) / float(derived[2])
        assert float(row["discount"]) == pytest.approx(discount, abs=0.0005)


def test_who_has_a_first_payment_is_paid_beforehand():
    for row in rows_of("provider_qualities.csv"):
        if row["parameter"] == "first_payment":
            assert terms_of(row["provider"]).quality("prepaid") == "yes", row


def test_a_longer_term_is_not_dearer():
    discounts = {}
    for row in rows_of("commitments.csv"):
        key = (row["provider"], row["instance_pattern"])
        discounts.setdefault(key, []).append((duration_s(row["term"]), float(row["discount"])))
    for found in discounts.values():
        ordered = [discount for _, discount in sorted(found)]
        assert ordered == sorted(ordered)


# --- subscriptions.csv ---

PLAN_UNITS = {
    "price": {"USD/purchase", "USD/month"},
    "compute_units": {"units/purchase"},
    "units_per_hour": {"units/h"},
    "price_per_unit": {"USD/unit"},
    "units_expire": {"days"},
    "gpu_hours": {"h/week", "h/day"},
    "vcpus": {"count"},
    "gpus": {"count"},
    "ram_gb": {"GiB"},
    "disk_gb": {"GB"},
}


def test_values_of_plans_have_their_units():
    for row in rows_of("subscriptions.csv"):
        parameter, _, gpu = row["parameter"].partition(" ")
        assert row["provider"] in NOTEBOOKS, row
        assert row["unit"] in PLAN_UNITS[parameter], row
        assert float(row["value"]) >= 0, row
        assert (parameter == "units_per_hour") == bool(gpu), row
        assert not gpu or find_gpu(gpu).candidates, row


def test_free_hours_are_the_same_in_both_tables():
    hours = {
        row["provider"]: (float(row["value"]), row["unit"])
        for row in rows_of("subscriptions.csv")
        if row["parameter"] == "gpu_hours"
    }
    for provider, (value, unit) in hours.items():
        # hours a day are seven times that a week
        a_week = value * (7 if unit == "h/day" else 1)
        assert terms_of(provider).weekly_s == pytest.approx(a_week * 3600)


def test_a_block_is_what_is_paid_for_units():
    prices = {
        (row["provider"], row["parameter"]): float(row["value"])
        for row in rows_of("subscriptions.csv")
    }
    assert terms_of("colab").block_usd == prices["colab", "price"]
    # 9.99 for 100 units, given as 10 cents each
    each = prices["colab", "price"] / prices["colab", "compute_units"]
    assert prices["colab", "price_per_unit"] == pytest.approx(each, abs=0.0005)


def test_an_hour_of_colab_is_its_units():
    rows = rows_of("subscriptions.csv")
    units = {
        row["parameter"].removeprefix("units_per_hour "): float(row["value"])
        for row in rows
        if row["parameter"].startswith("units_per_hour ")
    }
    hourly = {
        offer.gpu: offer.price_usd_per_hour
        for offer in bundled_offers()
        if offer.provider == "colab"
    }
    assert hourly
    for gpu, usd in hourly.items():
        # units an hour at ten cents each, to the cent: 1.19 x 0.1 = 0.12 on a T4
        (each,) = (value for name, value in units.items() if gpu.startswith(name))
        assert usd == pytest.approx(each * 0.1, abs=0.005)


# --- taxes.csv ---


@for_every("row", rows_of("taxes.csv"))
def test_a_tax_is_a_small_share_of_a_country(row):
    assert re.fullmatch("[A-Z]{2}", row["place"])
    assert row["unit"] == "fraction"
    if row["rate"]:
        assert 0 < float(row["rate"]) <= 0.3


# --- feed_rates.csv and disk_rates.csv ---

FEED_UNITS = {
    "jpeg_decode": "pixel/s",
    "png_decode": "pixel/s",
    "augment": "pixel/s",
    "vcpu_share": "fraction",
    "page_cache_35": "fraction",
    "page_cache_65": "fraction",
    "ram_for_cache": "fraction",
    **dict.fromkeys(
        (f"disk_{kind}" for kind in ("nvme", "sata", "hdd", "volume", "object", "network")), "B/s"
    ),
}
FEED = {row["name"]: row for row in rows_of("feed_rates.csv")}


def feed(name, end="value"):
    return float(FEED[name][end])


def test_rates_are_those_the_model_asks_for():
    assert {name: row["unit"] for name, row in FEED.items()} == FEED_UNITS


@for_every("row", FEED.values())
def test_rates_are_ordered(row):
    low, value, high = (float(row[end]) for end in ("low", "value", "high"))
    assert 0 < low <= value <= high
    if row["unit"] == "fraction":
        assert high <= 1


@pytest.mark.parametrize(
    ("name", "end", "pixels", "time_ms", "half_digit"),
    [
        # As the notes give them: pixels by a time, which is known to its last digit.
        ("jpeg_decode", "value", 512 * 512, 3.19, 0.005),
        ("jpeg_decode", "low", 224 * 224, 0.77, 0.005),
        ("jpeg_decode", "high", 1024 * 1024, 11.6, 0.05),
        ("png_decode", "value", 1024 * 1024, 19.15, 0.005),
        ("png_decode", "low", 512 * 512, 4.93, 0.005),
        ("png_decode", "high", 224 * 224, 0.73, 0.005),
        # 255 + 110 + 1230 + 47 + 121 + 186 us, each known to a microsecond
        ("augment", "value", 224 * 224, 1.949, 0.003),
        # 402 us instead of 1230
        ("augment", "high", 224 * 224, 1.121, 0.003),
    ],
)
def test_pixels_a_second_follow_from_the_times_measured(name, end, pixels, time_ms, half_digit):
    slowest, fastest = (pixels / ((time_ms + side * half_digit) * 1e-3) for side in (1, -1))
    # and the table's own three digits
    assert slowest * 0.999 <= feed(name, end) <= fastest * 1.001


def test_other_rates_follow_from_their_notes():
    # 2961 samples a second by 8 workers at 224 x 224
    assert feed("augment", "low") == pytest.approx(2961 / 8 * 224 * 224, rel=0.005)
    # the middle of 53 and 66 % is 59.5 %, to the whole per cent
    assert abs(100 * feed("page_cache_65") - (53 + 66) / 2) <= 0.5
    # one of 24 partitions that read 9360 MB/s together
    assert feed("disk_nvme", "low") == pytest.approx(9360e6 / 24)
    # 125 MiB/s
    assert feed("disk_volume") == 125 * 2**20
    # 2 GB in 4.756 s are 420.5 MB/s
    assert feed("disk_object") == pytest.approx(2e9 / 4.756, rel=0.005)


def test_disk_rates_are_of_known_providers_and_units():
    providers = {offer.provider for offer in bundled_offers()}
    for row in rows_of("disk_rates.csv"):
        assert row["provider"] in providers, row
        assert row["parameter"] in ("instance_limit", "volume_bandwidth"), row
        assert row["unit"] == "MB/s", row
        assert 10 <= float(row["value"]) <= 20_000, row


DERIVED = {
    r"derived: (\d+) Mbit/s / 8": lambda mbit: mbit / 8,
    r"gp3 least and default throughput (\d+) MiB/s": lambda mib: mib * 2**20 / 1e6,
    r"500 GiB pd-balanced at ([\d.]+) MiB/s per GiB": lambda mib: 500 * mib * 2**20 / 1e6,
}
"""How notes give a sum, and the sum: MB/s."""


def test_derived_disk_rates_are_the_sums_of_their_notes():
    derived = [row for row in rows_of("disk_rates.csv") if "derived" in row["note"]]
    assert derived
    for row in derived:
        sums = [
            work_out(float(match[1]))
            for pattern, work_out in DERIVED.items()
            if (match := re.search(pattern, row["note"]))
        ]
        assert sums == [pytest.approx(float(row["value"]), rel=0.0005)], row


# --- assumptions.csv ---


@for_every("row", [row for row in rows_of("assumptions.csv") if row["low"] or row["high"]])
def test_the_ends_of_an_assumption_are_on_either_side_of_it(row):
    assert float(row["low"]) < float(row["value"]) < float(row["high"])


def test_assumptions_are_numbers_in_the_unit_of_their_names():
    for row in rows_of("assumptions.csv"):
        assert float(row["value"]) >= 0, row
        for ending, unit in {"_bytes_per_s": "B/s", "_usd_per_kwh": "USD/kWh"}.items():
            assert not row["name"].endswith(ending) or row["unit"] == unit, row
        if row["unit"] == "fraction":
            assert float(row["value"]) <= 1, row


def test_an_upload_from_home_is_its_megabits():
    (row,) = (row for row in rows_of("assumptions.csv") if row["name"] == "home_upload_bytes_per_s")
    # 5, 20 and 100 Mbit/s
    ends = [float(row[end]) for end in ("low", "value", "high")]
    assert ends == [5e6 / 8, 20e6 / 8, 100e6 / 8]
