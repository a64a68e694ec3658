"""`tools/build_offers.py` writes tables of what `outlay.prices` makes of raw files."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from outlay.offers.offer import Offer

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "build_offers.py"
EXCERPTS = ROOT / "tests" / "prices" / "data" / "skypilot"
Row = dict[str, str]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_offers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_offers"] = module
    sys.path.insert(0, str(TOOL.parent))
    spec.loader.exec_module(module)
    sys.path.remove(str(TOOL.parent))
    return module


@pytest.fixture(autouse=True)
def _unjudged(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others ask for the same GPU is the business of `tests/prices/test_checks.py`."""

    def as_they_are(offers: list[Offer]) -> tuple[Offer, ...]:
        return tuple(offers)

    monkeypatch.setattr(tool, "doubted_by_others", as_they_are)


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("apne1-az1", "ap-northeast-1"),
        ("use1-az6", "us-east-1"),
        ("usw2-lax1-az2", "us-west-2-lax-1"),
        ("use1-wl1-bos-wlz1", "us-east-1-wl1"),
    ],
)
def test_aws_region_of_a_zone_id(tool: ModuleType, zone: str, region: str) -> None:
    assert tool.aws_region(zone) == region


@pytest.mark.parametrize("zone", ["xx9-az1", "use1", "us-east-1"])
def test_aws_region_refuses_what_it_does_not_know(tool: ModuleType, zone: str) -> None:
    with pytest.raises(tool.RawError, match=zone):
        tool.aws_region(zone)


def test_gcp_region_of_a_zone(tool: ModuleType) -> None:
    assert tool.gcp_region("northamerica-northeast1-a") == "northamerica-northeast1"
    with pytest.raises(tool.RawError, match="us-central1"):
        tool.gcp_region("us-central1")


def test_interruption_buckets_become_fractions(tool: ModuleType) -> None:
    buckets = {"<5%": ("0", "0.05"), "15-20%": ("0.15", "0.2"), ">20%": ("0.2", "")}
    for bucket, (low, high) in buckets.items():
        (row,) = tool.interruption_rows([advised(bucket)])
        assert (row["low_fraction_per_month"], row["high_fraction_per_month"]) == (low, high)


def advised(bucket: str) -> Row:
    return {
        "instance_type": "p4d.24xlarge",
        "region": "us-east-1",
        "interruption_per_month": bucket,
        "as_of": "2025-06-28",
        "source": "advisor",
    }


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A raw folder with two clouds, the days they changed on, and a folder for tables."""
    raw, files, out = tmp_path / "2026-08-22", tmp_path / "files.csv", tmp_path / "out"
    raw.mkdir()
    out.mkdir()
    for cloud in ("fluidstack", "runpod"):
        data = (EXCERPTS / f"{cloud}.csv").read_bytes()
        (raw / f"{cloud}.csv.gz").write_bytes(gzip.compress(data))
    changed = {"runpod": "2026-08-22", "fluidstack": "2025-04-23"}
    days = [("2026-08-22", cloud, day, "list@1") for cloud, day in changed.items()]
    names = ("snapshot", "provider", "changed", "source")
    write(files, [dict(zip(names, day, strict=True)) for day in days])
    return raw, files, out


def test_build_writes_the_same_tables_twice(
    tool: ModuleType, folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    raw, files, out = folders
    advisor = raw / "advisor.csv"
    write(advisor, [advised("5-10%")])
    tool.build(raw, out, advisor, files)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    tool.build(raw, out, advisor, files)
    assert first == {path.name: path.read_bytes() for path in out.iterdir()}
    assert sorted(first) == ["offers_2026-08-22.csv", "spot_interruptions_2025-06-28.csv"]
    lines = first["offers_2026-08-22.csv"].decode().splitlines()
    # the file's row: 8 H100-NVLINK, 252 vCPUs, 1440 GiB at 23.92; older than 90 days
    assert lines[1] == (
        "fluidstack,H100_NVLINK_80GB::8,H100,8,1,80,252,1440,,FINLAND,1,23.92,,,"
        "2025-04-23,list@1,stale;form not stated"
    )
    assert "offers_2026-08-22.csv: 6 rows" in capsys.readouterr().out


def test_a_day_without_dates_is_refused(tool: ModuleType, folders: tuple[Path, Path, Path]) -> None:
    raw, files, out = folders
    other = raw.rename(raw.parent / "2026-08-29")
    with pytest.raises(tool.RawError, match="2026-08-29"):
        tool.build(other, out, None, files)


def test_a_row_that_cannot_be_read_stops_the_build(
    tool: ModuleType, folders: tuple[Path, Path, Path]
) -> None:
    raw, files, out = folders
    data = (EXCERPTS / "fluidstack.csv").read_bytes().replace(b"23.92", b"0")
    (raw / "fluidstack.csv.gz").write_bytes(gzip.compress(data))
    with pytest.raises(tool.RawError, match="'0' is no price"):
        tool.build(raw, out, None, files)


def test_two_files_of_one_cloud_are_refused(
    tool: ModuleType, folders: tuple[Path, Path, Path]
) -> None:
    raw, files, out = folders
    (raw / "runpod.csv").write_bytes(b"")
    with pytest.raises(tool.RawError, match="2 files"):
        tool.build(raw, out, None, files)
