"""The rules of `tools/build_offers.py`, on small made-up raw files."""

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

TOOL = Path(__file__).parents[2] / "tools" / "build_offers.py"
Row = dict[str, str]

FORMS_HEAD = "provider,instance_pattern,raw_gpu,gpu,source,as_of,note\n"
DISKS_HEAD = "provider,instance,local_disk_gb,kind,source,as_of,note\n"
ENDS_HEAD = "provider,instance_pattern,withdrawn,source,as_of,note\n"


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


def raw(**changes: str) -> Row:
    row = {
        "provider": "acme",
        "instance_type": "big",
        "gpu": "L4",
        "gpu_count": "1.0",
        "gpu_memory_gib": "24.0",
        "vcpus": "8.0",
        "ram_gib": "32.0",
        "region": "north",
        "price_usd_hour": "1.0",
        "spot_usd_hour": "",
        "snapshot_date": "2026-08-22",
        "source": "list@1",
        "last_changed": "2026-08-22",
        "flags": "",
    }
    return row | changes


def aws(zone: str, price: str, spot: str = "") -> Row:
    return raw(provider="aws", region=zone, price_usd_hour=price, spot_usd_hour=spot)


def built(tool: ModuleType, rows: list[Row], **tables: list[Row]) -> list[Row]:
    hand = [tables.get(name, []) for name in ("forms", "disks", "ends")]
    return [tool.offer_row(offer) for offer in tool.build_offers(rows, *hand)]


def only(rows: list[Row]) -> Row:
    assert len(rows) == 1
    return rows[0]


def words(row: Row) -> set[str]:
    return set(filter(None, row["doubts"].split(";")))


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


def test_zones_become_one_region_with_the_range_of_spot(tool: ModuleType) -> None:
    row = only(
        built(
            tool, [aws("use1-az1", "1", "0.3"), aws("use1-az2", "1", "0.2"), aws("use1-az4", "1")]
        )
    )
    assert (row["region"], row["zones"]) == ("us-east-1", "3")
    assert (row["spot_usd_hour"], row["spot_usd_hour_max"]) == ("0.2", "0.3")
    assert words(row) == {"spot in some zones"}


def test_zones_that_differ_give_the_lowest_price_and_a_doubt(tool: ModuleType) -> None:
    row = only(built(tool, [aws("use1-az1", "1.2"), aws("use1-az2", "1.1")]))
    assert row["price_usd_hour"] == "1.1"
    assert words(row) == {"zones differ"}


def test_spot_that_saves_nothing_is_removed(tool: ModuleType) -> None:
    # 0.2626 is 0.26264 rounded to four digits: 0.99985 of on-demand
    row = only(built(tool, [aws("use1-az1", "0.26264", "0.2626")]))
    assert row["spot_usd_hour"] == row["spot_usd_hour_max"] == ""
    assert words(row) == {"spot not below on-demand"}


def test_only_the_zone_that_saves_nothing_loses_its_spot(tool: ModuleType) -> None:
    row = only(built(tool, [aws("use1-az1", "1", "1"), aws("use1-az2", "1", "0.4")]))
    assert (row["spot_usd_hour"], row["spot_usd_hour_max"]) == ("0.4", "0.4")
    assert words(row) == {"spot in some zones"}


def test_a_zero_price_is_no_price(tool: ModuleType) -> None:
    row = only(built(tool, [raw(price_usd_hour="0.0", spot_usd_hour="0.5")]))
    assert row["price_usd_hour"] == ""
    assert words(row) == {"spot only"}


def test_an_auction_floor_is_moved_to_spot(tool: ModuleType) -> None:
    row = only(built(tool, [raw(price_usd_hour="0.01", spot_usd_hour="0.01", flags="bid_floor")]))
    assert (row["price_usd_hour"], row["spot_usd_hour"]) == ("", "0.01")
    assert words(row) == {"bid floor", "spot only"}


def test_a_local_zone_keeps_its_place_and_is_doubted(tool: ModuleType) -> None:
    rows = built(tool, [aws("usw2-az1", "1"), aws("usw2-lax1-az1", "1")])
    assert [row["region"] for row in rows] == ["us-west-2", "us-west-2-lax-1"]
    assert [words(row) for row in rows] == [set(), {"local zone"}]


def test_one_price_in_every_region_becomes_any(tool: ModuleType) -> None:
    row = only(built(tool, [raw(region="north"), raw(region="south")]))
    assert (row["region"], row["zones"]) == ("any", "2")


def test_a_price_in_only_some_regions_keeps_them(tool: ModuleType) -> None:
    rows = built(
        tool, [raw(region="north"), raw(region="south"), raw(region="west", instance_type="small")]
    )
    assert [row["region"] for row in rows] == ["north", "south", "west"]


def test_different_machines_of_one_name_stay_apart(tool: ModuleType) -> None:
    rows = built(tool, [raw(region="north"), raw(region="south", ram_gib="64.0")])
    assert [(row["region"], row["ram_gib"]) for row in rows] == [("north", "32"), ("south", "64")]


def test_a_share_of_a_gpu_is_one_gpu_with_a_share(tool: ModuleType) -> None:
    row = only(built(tool, [raw(gpu_count="0.125", gpu_memory_gib="3.0", flags="fractional")]))
    assert (row["gpus"], row["gpu_share"], row["gpu_memory_gib"]) == ("1", "0.125", "3")
    assert words(row) == {"fraction of a GPU"}


def test_more_than_ninety_days_is_stale(tool: ModuleType) -> None:
    # 2026-05-24 is 90 days before 2026-08-22
    rows = built(tool, [raw(last_changed="2026-05-24"), raw(region="s", last_changed="2026-05-23")])
    assert [(row["as_of"], words(row)) for row in rows] == [
        ("2026-05-24", set()),
        ("2026-05-23", {"stale"}),
    ]


def test_no_region_means_no_stock_was_seen(tool: ModuleType) -> None:
    row = only(built(tool, [raw(region="")]))
    assert row["region"] == "unknown"
    assert words(row) == {"no stock seen"}


def test_a_region_loses_its_leading_comma(tool: ModuleType) -> None:
    assert only(built(tool, [raw(region=", US, NA")]))["region"] == "US, NA"


def test_one_place_listed_twice_stops_the_build(tool: ModuleType) -> None:
    with pytest.raises(tool.RawError, match="twice"):
        built(tool, [raw(), raw(price_usd_hour="2")])


def test_two_machines_of_one_name_in_a_region_stop_the_build(tool: ModuleType) -> None:
    rows = [aws("use1-az1", "1"), aws("use1-az2", "1") | {"gpu": "T4"}]
    with pytest.raises(tool.RawError, match="two machines"):
        built(tool, rows)


def test_an_unknown_flag_stops_the_build(tool: ModuleType) -> None:
    with pytest.raises(tool.RawError, match="sponsored"):
        built(tool, [raw(flags="sponsored")])


def test_a_form_is_looked_up_by_the_first_pattern_that_fits(tool: ModuleType) -> None:
    forms = [
        {"provider": "acme", "instance_pattern": p, "raw_gpu": "A100 80GB", "gpu": g}
        for p, g in (("big_sxm*", "A100 80GB SXM"), ("big*", "A100 80GB PCIe"))
    ]
    names = ("big_sxm8", "big2", "small")
    rows = built(tool, [raw(instance_type=n, gpu="A100 80GB") for n in names], forms=forms)
    found = {row["instance"]: (row["gpu"], words(row)) for row in rows}
    assert found["big_sxm8"] == ("A100 80GB SXM", set())
    assert found["big2"] == ("A100 80GB PCIe", set())
    assert found["small"] == ("A100 80GB", {"form not stated"})


def test_a_disk_is_looked_up_by_name(tool: ModuleType) -> None:
    disks = [{"provider": "acme", "instance": "big", "local_disk_gb": "900"}]
    assert only(built(tool, [raw()], disks=disks))["local_disk_gb"] == "900"


@pytest.mark.parametrize(
    ("day", "doubt"), [("2026-08-22", "withdrawn"), ("2026-08-23", "withdrawal announced")]
)
def test_a_withdrawn_instance_is_doubted(tool: ModuleType, day: str, doubt: str) -> None:
    ends = [{"provider": "acme", "instance_pattern": "b*", "withdrawn": day}]
    assert words(only(built(tool, [raw()], ends=ends))) == {doubt}


def test_ram_counted_twice_is_divided_again(tool: ModuleType) -> None:
    pods = [("1x_X", "1", "31"), ("2x_X", "2", "248"), ("2x_Y", "2", "60"), ("1x_Y", "1", "30")]
    rows = built(
        tool,
        [
            raw(provider="runpod", instance_type=name, gpu_count=gpus, ram_gib=ram)
            for name, gpus, ram in pods
        ],
    )
    found = {row["instance"]: (row["ram_gib"], words(row)) for row in rows}
    assert found["2x_X"] == ("124", {"ram fixed"})  # 248 / 2
    assert found["2x_Y"] == ("60", set())


def market(*, price: str, spot: str = "", **changes: str) -> list[Row]:
    """Two sound providers at $1 and $2 per GPU-hour, spot half of it, and one offer to judge."""
    judged = raw(provider="judged", price_usd_hour=price, spot_usd_hour=spot, **changes)
    return [
        raw(provider="one", price_usd_hour="1", spot_usd_hour="0.5"),
        raw(provider="two", price_usd_hour="2", spot_usd_hour="1"),
        judged,
    ]


def judged_words(tool: ModuleType, rows: list[Row]) -> set[str]:
    return words(next(row for row in built(tool, rows) if row["provider"] == "judged"))


@pytest.mark.parametrize(
    ("price", "doubts"),
    [
        # stale, so it does not judge itself: usual is (1 + 2) / 2 = 1.5, 40 % of it 0.6
        ("0.59", {"suspiciously cheap"}),
        ("0.61", set()),
        # four times usual is 6, and the host of 8 vCPUs may add 8 * 0.10 = 0.8
        ("6.79", set()),
        ("6.81", {"suspiciously dear"}),
    ],
)
def test_a_price_is_judged_by_what_others_ask(
    tool: ModuleType, price: str, doubts: set[str]
) -> None:
    rows = market(price=price, last_changed="2025-01-01")
    assert judged_words(tool, rows) - {"stale"} == doubts


def test_a_share_is_judged_as_a_share(tool: ModuleType) -> None:
    # 0.2 for an eighth is 1.6 for a whole one
    rows = market(price="0.2", gpu_count="0.125", flags="fractional", vcpus="1")
    assert judged_words(tool, rows) == {"fraction of a GPU"}


@pytest.mark.parametrize(
    ("price", "spot", "doubts"),
    [
        # usual spot is (0.5 + 1) / 2 = 0.75, 40 % of it 0.3; 15 % of on-demand 2.5 is 0.375
        ("2.5", "0.29", {"spot suspiciously cheap"}),
        ("2.5", "0.31", set()),
        ("1.5", "0.29", set()),  # 15 % of 1.5 is 0.225: an ordinary discount
        ("", "3.1", {"spot suspiciously dear", "spot only"}),  # four times 0.75 is 3
        ("", "2.9", {"spot only"}),
    ],
)
def test_spot_is_judged_too(tool: ModuleType, price: str, spot: str, doubts: set[str]) -> None:
    rows = market(price=price, spot=spot, last_changed="2025-01-01")
    assert judged_words(tool, rows) - {"stale"} == doubts


def test_spot_alone_is_held_against_the_providers_own_price(tool: ModuleType) -> None:
    rows = [
        *market(price="1.2", last_changed="2025-01-01"),
        raw(
            provider="judged",
            instance_type="alone",
            price_usd_hour="",
            spot_usd_hour="1.3",
            last_changed="2025-01-01",
        ),
    ]
    row = next(row for row in built(tool, rows) if row["instance"] == "alone")
    assert words(row) == {"stale", "spot only", "spot suspiciously dear"}


def test_one_seller_alone_is_not_judged(tool: ModuleType) -> None:
    rows = [raw(price_usd_hour="1"), raw(instance_type="odd", price_usd_hour="0.01")]
    assert [words(row) for row in built(tool, rows)] == [set(), set()]


def test_interruption_buckets_become_fractions(tool: ModuleType) -> None:
    buckets = {"<5%": ("0", "0.05"), "15-20%": ("0.15", "0.2"), ">20%": ("0.2", "")}
    for bucket, (low, high) in buckets.items():
        row = only(
            tool.interruption_rows(
                [
                    {
                        "instance_type": "p4d.24xlarge",
                        "region": "us-east-1",
                        "interruption_per_month": bucket,
                        "as_of": "2025-06-28",
                        "source": "advisor",
                    }
                ]
            )
        )
        assert (row["low_fraction_per_month"], row["high_fraction_per_month"]) == (low, high)


@pytest.mark.parametrize(
    ("provider", "spelling", "canonical", "instances", "gpu"),
    [
        ("acme", "A100-80G-PCIe-NVLink", "A100 80GB", "", "A100 80GB PCIe"),
        ("acme", "A100-80GB-SXM", "A100 80GB", "", "A100 80GB SXM"),
        ("acme", "A100", "A100 40GB", "", "A100 40GB"),
        ("seeweb", "H100", "H100 PCIe", "", "H100"),
        ("cudo", "H100-SXM", "H100 SXM", "", "H100 SXM"),
        ("acme", "H100", "H100 NVL", "x_H100x8-NVLINK", "H100"),
        ("acme", "Trainium", "", "", ""),
    ],
)
def test_a_spelling_is_as_exact_as_its_source(
    tool: ModuleType, provider: str, spelling: str, canonical: str, instances: str, gpu: str
) -> None:
    row = {
        "source_provider": provider,
        "source_name": spelling,
        "canonical": canonical,
        "instance_types_if_ambiguous": instances,
    }
    assert only(tool.spelling_rows([row]))["gpu"] == gpu


def write(path: Path, rows: list[Row]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:  # type: ignore[operator]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A raw folder, one kept by hand and an output folder with everything the tool reads."""
    source, kept, out = tmp_path / "raw", tmp_path / "kept", tmp_path / "out"
    for folder in (source, kept, out):
        folder.mkdir()
    write(source / "offers_2026-08-22.csv.gz", [raw(region="north"), raw(region="south")])
    name = ["source_provider", "source_name", "canonical", "instance_types_if_ambiguous"]
    write(source / "gpu_names.csv", [dict(zip(name, ("acme", "L4", "L4", ""), strict=True))])
    seen = ["instance_type", "region", "interruption_per_month", "as_of", "source"]
    values = ("g6.xlarge", "us-east-1", "5-10%", "2025-06-28", "advisor")
    write(source / "aws_spot_interruptions_2025-06.csv", [dict(zip(seen, values, strict=True))])
    (kept / "instance_forms.csv").write_text(FORMS_HEAD)
    (kept / "instance_disks.csv").write_text(DISKS_HEAD)
    (out / "instance_ends.csv").write_text(ENDS_HEAD)
    return source, kept, out


def test_build_writes_every_table_the_same_way_twice(
    tool: ModuleType, folders: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, kept, out = folders
    tool.build(source, out, kept)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    tool.build(source, out, kept)
    assert first == {path.name: path.read_bytes() for path in out.iterdir()}
    assert sorted(first) == [
        "gpu_spellings.csv",
        "instance_ends.csv",
        "offer_doubts.csv",
        "offers_2026-08-22.csv",
        "spot_interruptions_2025-06-28.csv",
    ]
    assert first["offers_2026-08-22.csv"].splitlines()[1] == (
        b"acme,big,L4,1,1,24,8,32,,any,2,1,,,2026-08-22,list@1,"
    )
    assert "offers_2026-08-22.csv: 1 rows" in capsys.readouterr().out


def test_two_snapshots_in_the_raw_folder_are_refused(
    tool: ModuleType, folders: tuple[Path, Path, Path]
) -> None:
    source, kept, out = folders
    write(source / "offers_2026-08-29.csv.gz", [raw()])
    with pytest.raises(tool.RawError, match="2 files"):
        tool.build(source, out, kept)


def test_every_doubt_the_tool_may_add_is_defined(tool: ModuleType) -> None:
    added = {word for word in tool.FLAG_DOUBTS.values() if word}
    added |= {word for _, _, word in tool.PATTERN_DOUBTS}
    assert added <= set(tool.DOUBTS)
