"""`tools/build_history.py` on a few rows, and its table against the raw file where there is one."""

from __future__ import annotations

import csv
import gzip
import os
import random
from pathlib import Path

import pytest
from tests.docs.pages import tool as tool_named

from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu

HEAD = (
    "month,provider,instance_type,gpu,gpu_count,ondemand_min,ondemand_median,"
    "spot_min,spot_median,regions,catalog,last_changed"
)
FORM = {
    "provider": "gcp",
    "instance_pattern": "a2-*",
    "raw_gpu": "A100 40GB",
    "gpu": "A100 40GB SXM",
}


@pytest.fixture(scope="module")
def tool():
    return tool_named("build_history")


def raw_rows(*lines: str) -> list[dict[str, str]]:
    return list(csv.DictReader([HEAD, *lines]))


def built(tool, *lines: str) -> list[dict[str, str]]:
    return tool.build_rows(raw_rows(*lines), [FORM])


def test_a_row_in_our_own_form(tool):
    (row,) = built(
        tool, "2022-07,gcp,a2-highgpu-2g,A100 40GB,2.0,7.34695,8,2.20369,2.5,4,v1,2022-07-25"
    )
    assert row == {
        "provider": "gcp",
        "instance": "a2-highgpu-2g",
        "gpu": "A100 40GB SXM",
        "gpus": "2",
        "month": "2022-07",
        "price_usd_hour": "7.3469",  # five digits
        "price_usd_hour_median": "8",
        "spot_usd_hour": "2.2037",
        "spot_usd_hour_median": "2.5",
        "regions": "4",
        "as_of": "2022-07-25",
        "repeated": "",
        "doubts": "host added",
        "source": "skypilot-catalog:catalogs/v1/gcp/vms.csv",
    }


def test_rows_without_any_price_are_left_out(tool):
    rows = built(
        tool,
        "2024-10,aws,p5e.48xlarge,H200,8.0,,,,,1,v5,2024-10-31",
        "2024-10,aws,p5.48xlarge,H100 SXM,8.0,,,30,40,1,v5,2024-10-31",
    )
    assert [(row["instance"], row["doubts"]) for row in rows] == [("p5.48xlarge", "spot only")]


def test_a_list_of_the_month_before_is_repeated_and_stale_after_90_days(tool):
    rows = built(
        tool,
        *(
            f"2024-{month:02},cudo,a40,A40,1,1,1,,,1,v5,{day}"
            for month, day in [(1, "2024-01-16"), (3, "2024-01-16"), (4, "2024-01-16")]
        ),
        "2024-05,cudo,a40,A40,1,1,1,,,1,v5,2024-05-02",
    )
    assert [row["repeated"] for row in rows] == ["", "yes", "yes", ""]
    # 2024-01-16 to 2024-03-31: 75 days; to 2024-04-30: 105
    assert [row["doubts"] for row in rows] == ["", "", "stale", ""]


def test_spot_that_saves_nothing_is_removed(tool):
    (row,) = built(tool, "2026-08,runpod,1x_A40,A40,1.0,0.4,0.4,0.4,0.4,8,v8,2026-08-22")
    assert (row["spot_usd_hour"], row["spot_usd_hour_median"]) == ("", "")
    assert row["doubts"] == "spot not below on-demand;region not verified"


def test_an_auctions_floor_and_a_spot_type_are_no_on_demand_price(tool):
    rows = built(
        tool,
        "2026-08,mithril,h100,H100 SXM,8,16,16,16,16,1,v8,2026-08-04",
        "2025-07,primeintellect,x__1xA40__SPOT,A40,1,0.2,0.2,,,1,v7,2025-07-23",
    )
    assert [(r["price_usd_hour"], r["spot_usd_hour"]) for r in rows] == [("", "16"), ("", "0.2")]
    assert [r["doubts"] for r in rows] == ["bid floor;spot only", "spot only;aggregator"]


def test_shares_that_were_counted_as_whole_gpus_are_mended(tool):
    (row,) = built(tool, "2023-01,azure,Standard_NV12ads_A10_v5,A10,1.0,0.9,0.9,,,7,v5,2022-12-02")
    assert float(row["gpus"]) == pytest.approx(1 / 3, rel=1e-5)
    assert row["doubts"] == "fraction of a GPU;count or name fixed"


def test_gcp_prices_far_below_the_mended_list_are_doubted(tool):
    lines = [("2025-01", 3.67), ("2025-02", 2.43), ("2025-03", 3.3), ("2026-08", 3.67)]
    rows = built(
        tool,
        *(f"{month},gcp,a2-1,A100 40GB,1,{usd},4,1,2,10,v8,{month}-20" for month, usd in lines),
    )
    # 2.43 / 3.67 = 0.66, below 0.8; 3.3 / 3.67 = 0.90
    assert ["suspiciously cheap" in row["doubts"] for row in rows] == [False, True, False, False]


def test_the_same_rows_give_the_same_bytes(tool):
    line = "2022-07,gcp,a2-highgpu-2g,A100 40GB,2.0,7.3,8,2.2,2.5,4,v1,2022-07-25"
    first, second = (tool.written(built(tool, line)) for _ in range(2))
    assert first == second
    assert gzip.decompress(first).decode().startswith("provider,instance,gpu,gpus,month,")


# --- the raw file ---


def five_digits(text: str) -> float | None:
    return float(f"{float(text):.5g}") if text else None


@pytest.mark.sources
def test_thirty_random_rows_say_what_the_raw_file_says():
    folder = Path(os.environ["OUTLAY_TEST_PRICE_SOURCES"]).parent / "prices"
    with gzip.open(folder / "history_monthly_instances.csv.gz", "rt", encoding="utf-8") as file:
        raw = list(csv.DictReader(file))
    by_key = {
        (r["provider"], r["instance_type"], r["month"], five_digits(r["ondemand_min"])): r
        for r in raw
    }
    mended = {"spot not below on-demand", "spot only", "count or name fixed", "currency converted"}
    table = rows_of("price_history.csv.gz")
    plain = [row for row in table if not mended & set(row["doubts"].split(";"))]
    for row in random.Random(20261117).sample(plain, 30):
        usd = float(row["price_usd_hour"])
        there = by_key[(row["provider"], row["instance"], row["month"], usd)]
        assert five_digits(there["ondemand_median"]) == float(row["price_usd_hour_median"])
        assert five_digits(there["spot_min"]) == five_digits(row["spot_usd_hour"])
        assert five_digits(there["spot_median"]) == five_digits(row["spot_usd_hour_median"])
        assert find_gpu(row["gpu"]).gpu in find_gpu(there["gpu"]).candidates
        assert float(row["gpus"]) == float(there["gpu_count"])
        assert (row["regions"], row["as_of"]) == (there["regions"], there["last_changed"])
        assert f"/{there['catalog']}/" in row["source"]
    assert len(raw) == 21_385
    assert len(table) == 21_385 - 33  # without any price
