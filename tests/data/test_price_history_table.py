"""The table of past prices holds together, and with the offers of its last month."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

import outlay
from outlay.facts import newest, rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import doubt_kinds

TABLE = "price_history.csv.gz"
Row = dict[str, str]


@pytest.fixture(scope="module")
def history() -> list[Row]:
    return rows_of(TABLE)


def test_it_has_the_columns_in_order(history):
    assert ",".join(history[0]) == (
        "provider,instance,gpu,gpus,month,price_usd_hour,price_usd_hour_median,spot_usd_hour,"
        "spot_usd_hour_median,regions,as_of,repeated,doubts,source"
    )


def test_it_is_sorted_unique_and_small(history):
    keys = [(row["provider"], row["instance"], row["gpu"], row["month"]) for row in history]
    assert keys == sorted(set(keys))
    assert (Path(outlay.__file__).parent / "data" / TABLE).stat().st_size < 300_000


def test_every_month_from_the_first_to_the_last_is_there(history):
    months = sorted({row["month"] for row in history})
    assert (months[0], months[-1]) == ("2022-07", "2026-08")
    assert len(months) == 6 + 12 + 12 + 12 + 8  # 2022-07 to -12, three years, 2026-01 to -08


def test_rows_have_a_price_a_gpu_that_is_known_and_words_that_are(history):
    for gpu in {row["gpu"] for row in history}:
        assert find_gpu(gpu).meaning == gpu
    for row in history:
        prices = [float(row[name]) for name in ("price_usd_hour", "spot_usd_hour") if row[name]]
        assert prices, row
        assert all(0.005 < usd / float(row["gpus"]) < 40 for usd in prices), row
        assert set(row["doubts"].split(";")) - {""} <= set(doubt_kinds()), row
        assert row["source"].startswith("skypilot-catalog:catalogs/v"), row
        assert int(row["regions"]) >= 0, row


def test_the_lowest_is_not_above_the_middle_and_spot_is_below_on_demand(history):
    for row in history:
        for name in ("price_usd_hour", "spot_usd_hour"):
            assert bool(row[name]) == bool(row[f"{name}_median"]), row
            if row[name]:
                assert float(row[name]) <= float(row[f"{name}_median"]), row
        if row["price_usd_hour"] and row["spot_usd_hour"]:
            assert float(row["spot_usd_hour"]) < float(row["price_usd_hour"]), row


def test_no_list_is_younger_than_its_month_and_old_ones_are_stale(history):
    for row in history:
        assert row["as_of"][:7] <= row["month"], row
        year, month = int(row["month"][:4]), int(row["month"][5:])
        after = date(year + month // 12, month % 12 + 1, 1)
        if (after - date.fromisoformat(row["as_of"])).days > 91:  # the last day is one before
            assert "stale" in row["doubts"].split(";"), row


def test_a_repeated_list_is_that_of_the_month_before(history):
    lists = sorted({(r["provider"], r["month"], r["as_of"], r["repeated"]) for r in history})
    for before, row in pairwise(lists):
        same = before[0] == row[0] and before[2] == row[2]
        assert row[3] == ("yes" if same else ""), row
    assert len(lists) == len({row[:2] for row in lists})  # one list a provider and month


def test_a_repeated_row_has_the_prices_of_the_month_before(history):
    repeats = 0
    for before, row in pairwise(history):
        same_type = all(before[key] == row[key] for key in ("provider", "instance", "gpu"))
        if row["repeated"] and same_type and "currency converted" not in row["doubts"]:
            assert before["price_usd_hour"] == row["price_usd_hour"], row
            assert before["spot_usd_hour"] == row["spot_usd_hour"], row
            repeats += 1
    assert repeats > 9000


@pytest.mark.parametrize(
    ("provider", "gpu", "month", "word"),
    [
        ("aws", "T4", "2026-05", "stale"),  # frozen from 2026-03-31
        ("gcp", "A100 40GB SXM", "2025-06", "suspiciously cheap"),
        ("gcp", "A100 80GB SXM", "2025-06", "suspiciously cheap"),
        ("gcp", "H100 SXM", "2026-07", "suspiciously cheap"),
        ("hyperbolic", "H100 SXM", "2025-05", "suspiciously cheap"),
        ("runpod", "A40", "2024-12", "stale"),  # the list of 2024-01-08
        ("mithril", "H100 SXM", "2026-08", "bid floor"),
        ("seeweb", "L40S", "2026-08", "currency converted"),
    ],
)
def test_known_holes_are_said(history, provider, gpu, month, word):
    rows = [r for r in history if (r["provider"], r["gpu"], r["month"]) == (provider, gpu, month)]
    assert rows
    assert all(word in row["doubts"].split(";") for row in rows)


def test_gcp_is_right_again_in_the_last_month(history):
    last = [r for r in history if r["provider"] == "gcp" and r["month"] in ("2025-01", "2026-08")]
    assert not [row for row in last if "suspiciously cheap" in row["doubts"]]


def test_the_last_month_is_the_snapshot(history):
    offers: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows_of(newest("offers")):
        offers[(row["provider"], row["instance"], row["gpu"])].append(row)
    last = [row for row in history if row["month"] == "2026-08"]
    assert {(row["provider"], row["instance"], row["gpu"]) for row in last} == set(offers)
    for row in last:
        same = offers[(row["provider"], row["instance"], row["gpu"])]
        for column in ("price_usd_hour", "spot_usd_hour"):
            listed = [float(offer[column]) for offer in same if offer[column]]
            assert (float(row[column]) if row[column] else None) == min(listed, default=None), row
        assert float(row["gpus"]) == float(same[0]["gpus"]) * float(same[0]["gpu_share"]), row


# Cut from the catalogue's own files at the end of a month (skypilot-catalog, commits of the days
# in `as_of`): what a person reads there.
KNOWN = [
    ("gcp", "a2-highgpu-1g", "2022-07", 3.6735, 1.1018),
    ("aws", "g5g.4xlarge", "2023-10", 0.828, 0.1159),
    ("azure", "Standard_NC24rs_v3", "2023-08", 13.46, 3.5886),
    ("lambda", "gpu_1x_a100_sxm4", "2023-01", 1.10, None),
    ("shadeform", "verda_B300x2", "2026-05", 14.80, None),
]


@pytest.mark.parametrize(("provider", "instance", "month", "usd", "spot_usd"), KNOWN)
def test_rows_say_what_the_catalogue_said(history, provider, instance, month, usd, spot_usd):
    (row,) = (
        row
        for row in history
        if (row["provider"], row["instance"], row["month"]) == (provider, instance, month)
    )
    assert float(row["price_usd_hour"]) == usd
    assert (float(row["spot_usd_hour"]) if row["spot_usd_hour"] else None) == spot_usd


def test_a_converted_price_says_what_is_listed_and_at_which_rate(history):
    converted = [row for row in history if "currency converted" in row["doubts"]]
    assert {row["provider"] for row in converted} == {"scaleway", "seeweb"}
    for row in converted:
        listed, _, rate = row["source"].rpartition(": ")[2].partition(" EUR at ")
        usd = float(listed) * float(rate.partition(" USD of ")[0])
        assert float(row["price_usd_hour"]) == pytest.approx(usd, rel=1e-4), row
