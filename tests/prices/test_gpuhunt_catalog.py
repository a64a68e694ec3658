"""gpuhunt as a price source: its own code writes what is read here, and asks who is asked."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import threading
import time
import zipfile
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import requests
from gpuhunt import KNOWN_ACCELERATORS, AcceleratorVendor, Catalog, CatalogItem
from gpuhunt._internal import catalog as library
from gpuhunt._internal import storage
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.prices.server import (
    PriceServer,
    corrupt_zip,
    drips,
    encrypted_zip,
    endless,
    gpuhunt_csv,
    html,
    redirects,
    resets,
    status,
    truncated,
    zip_bomb,
    zip_of,
)

from outlay.errors import MissingCredentials, ProviderError
from outlay.offers.catalog import doubt_kinds
from outlay.prices import gpuhunt_catalog
from outlay.prices.download import HttpDownloader, Patience
from outlay.prices.gpuhunt_catalog import GpuhuntCatalogue, missing_variable
from outlay.prices.price_list import price_list
from outlay.prices.sources import Unreadable
from outlay.units import GB, GIB

REPLIES = json.loads((Path(__file__).parent / "data" / "gpuhunt_replies.json").read_text())
"""What live providers answered, each with where it was recorded."""
KEYS = {
    "CRUSOE_ACCESS_KEY": "access-1234",
    "CRUSOE_SECRET_KEY": "c2VjcmV0LTU2Nzg",
    "CRUSOE_PROJECT_ID": "p-1",
    "DIGITAL_OCEAN_API_KEY": "do-key-1234",
    "HOTAISLE_API_KEY": "hot-key-1234",
    "HOTAISLE_TEAM_HANDLE": "t-1",
    "JL_API_KEY": "jl-key-1234",
    "SEEWEB_API_TOKEN": "seeweb-1234",
}
ADDRESSES = {
    "crusoe": ("API_URL", ""),
    "daytona": ("PRICING_URL", "/gpu-pricing"),
    "hotaisle": ("API_URL", ""),
    "lium": ("NODES_URL", "/nodes"),
    "seeweb": ("API_URL", ""),
    "vultr": ("API_URL", ""),
}
"""The constant of gpuhunt's module that says where a provider is asked."""
SOURCE = GpuhuntCatalogue()
GPUHUNT = version("gpuhunt")


@pytest.fixture(scope="module")
def one_server():
    with PriceServer() as server:
        yield server


@pytest.fixture
def server(one_server, monkeypatch):
    one_server.clear()
    monkeypatch.setenv("OUTLAY_GPUHUNT_CATALOG", one_server.url("v3"))
    for name in (*KEYS, "DAYTONA_API_KEY", "VULTR_API_KEY", "VASTAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return one_server


PATIENCE = Patience(connect_s=2, read_s=2, total_s=10, wait_s=0.01, attempts=2)
HASTY = HttpDownloader(patience=replace(PATIENCE, total_s=0.6))


@pytest.fixture
def download():
    return HttpDownloader(patience=PATIENCE)


def item(**changes):
    values = {
        "provider": "aws",
        "instance_name": "p4d.24xlarge",
        "location": "us-east-1",
        "price": 21.957642,
        "cpu": 96,
        "memory": 1152.0,
        "gpu_count": 8,
        "gpu_name": "A100",
        "gpu_memory": 40.0,
        "gpu_vendor": AcceleratorVendor.NVIDIA,
        "spot": False,
        "disk_size": None,
    }
    return CatalogItem(**(values | changes))


def cpu_item(**changes):
    none = {"gpu_count": 0, "gpu_name": None, "gpu_memory": None, "gpu_vendor": None}
    return item(instance_name="m7i.large", price=0.1, **none, **changes)


def read(provider, *items):
    """What is read of items that gpuhunt stored."""
    name = gpuhunt_catalog._their_name(provider)
    return SOURCE.read(provider, zip_of({f"{name}.csv": gpuhunt_csv(items)}))


def only(provider, *items):
    (listing,) = read(provider, *items).listings
    return listing


# --- published catalogues ---


def test_every_provider_of_the_library_can_be_asked_but_vast():
    names = {"lambdalabs": "lambda", "digitalocean": "do"}
    theirs = {*library.OFFLINE_PROVIDERS, *library.ONLINE_PROVIDERS} - {"vastai"}
    assert set(SOURCE.providers()) == {names.get(name, name) for name in theirs}


def test_a_provider_of_a_later_version_is_taken_as_it_is(server, download, monkeypatch):
    monkeypatch.setattr(library, "OFFLINE_PROVIDERS", [*library.OFFLINE_PROVIDERS, "newcloud"])
    assert "newcloud" in SOURCE.providers()
    server.put_gpuhunt("newcloud", [item(provider="newcloud")], "20261117-1")
    reply = SOURCE.ask("newcloud", download, None)
    assert SOURCE.read("newcloud", reply.data).listings[0].provider == "newcloud"


def test_the_newest_version_is_read_and_the_known_one_is_not(server, download):
    server.put_gpuhunt("lambdalabs", [item(provider="lambdalabs")], "20261117-4711")
    reply = SOURCE.ask("lambda", download, None)
    assert reply.validators.version == "20261117-4711"
    assert reply.modified == "2026-11-17"
    assert reply.address == server.url("v3/lambdalabs/20261117-4711/catalog.zip")
    assert SOURCE.ask("lambda", download, reply.validators) is None
    assert server.count("v3/lambdalabs/20261117-4711/catalog.zip") == 1
    server.put_gpuhunt("lambdalabs", [item(provider="lambdalabs")], "20261117-4712")
    assert SOURCE.ask("lambda", download, reply.validators).validators.version.endswith("4712")


@pytest.mark.parametrize(
    ("version", "day"),
    [
        ("20261117-4711", "2026-11-17"),
        ("20240508", "2024-05-08"),
        ("20261399-1", "2026-11-16"),  # no such day: the server's own
        ("latest", "2026-11-16"),
        ("202611170", "2026-11-16"),
    ],
)
def test_the_day_of_the_prices(server, download, version, day):
    server.put_gpuhunt("oci", [item(provider="oci")], version)
    assert SOURCE.ask("oci", download, None).modified == day


@pytest.mark.parametrize("version", ["../../etc/passwd", "a/b", "", "a b", "x" * 65, "<html>", "?"])
def test_a_version_that_is_none_leads_nowhere(server, download, version):
    server.put("v3/oci/version", version.encode() or b"\n")
    with pytest.raises(ProviderError):
        SOURCE.ask("oci", download, None)
    assert {request.path for request in server.requests} == {"v3/oci/version"}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (status(403), "refuses to answer"),
        (status(404), "nothing at this address"),
        (status(500), "trouble of its own"),
        (html(), "A web page came"),
        (resets(), "broke"),
        (truncated(), "ended before"),
        (drips(0.02), "cut off"),
        (endless("application/zip"), "beyond the 32 MiB"),
    ],
)
def test_a_bad_server_is_said_to_be_one(server, download, behaviour, said):
    server.put_gpuhunt("oci", [item(provider="oci")] * 50, "20261117-1")
    server.misbehave("v3/oci/20261117-1/catalog.zip", behaviour)
    with pytest.raises(ProviderError, match=said):
        SOURCE.ask("oci", HASTY if said == "cut off" else download, None)


def test_a_folder_is_a_mirror(tmp_path, monkeypatch):
    folder = tmp_path / "oci" / "20261117-1"
    folder.mkdir(parents=True)
    (tmp_path / "oci" / "version").write_text("20261117-1\n")
    (folder / "catalog.zip").write_bytes(zip_of({"oci.csv": gpuhunt_csv([item()])}))
    monkeypatch.setenv("OUTLAY_GPUHUNT_CATALOG", str(tmp_path))
    reply = SOURCE.ask("oci", HttpDownloader(offline=True), None)
    assert len(SOURCE.read("oci", reply.data).listings) == 1


def test_a_gpuhunt_that_is_built_otherwise_is_said_to_be(download, monkeypatch):
    monkeypatch.delattr(library, "OFFLINE_PROVIDERS")
    with pytest.raises(ProviderError, match=r"gpuhunt \S+ is not one that outlay knows"):
        SOURCE.ask("aws", download, None)


def test_who_gpuhunt_does_not_know_is_said(download):
    with pytest.raises(ProviderError, match="gpuhunt has no prices of acme"):
        SOURCE.ask("acme", download, None)


def test_our_reader_and_the_library_s_give_the_same_machines(server, download, monkeypatch):
    items = [
        item(),
        item(spot=True, price=9.1),
        item(location="eu-west-1", price=23.7),
        item(instance_name="g5.xlarge", gpu_name="A10G", gpu_memory=22.35, gpu_count=1, price=1.0),
        cpu_item(),
    ]
    server.put_gpuhunt("aws", items, "20261117-1")
    monkeypatch.setattr(library, "OFFLINE_PROVIDERS", ["aws"])
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", server.url("v3"))
    theirs = Catalog(auto_reload=False)
    theirs.load()
    ours = SOURCE.read("aws", SOURCE.ask("aws", download, None).data).listings
    of_ours = {
        (one.instance, one.region, is_spot, usd)
        for one in ours
        for is_spot, usd in ((False, one.price_usd_per_hour), (True, one.spot_usd_per_hour))
        if usd is not None
    }
    of_theirs = {
        (one.instance_name, one.location, one.spot, one.price)
        for one in theirs.catalog["aws"].items
        if one.gpu_count
    }
    assert of_ours == of_theirs
    assert len(ours) == 3


# --- zips ---


def unreadable(data, provider="aws"):
    with pytest.raises(Unreadable) as caught:
        SOURCE.read(provider, data)
    return caught.value.reason


def test_only_the_expected_file_of_a_zip_is_read():
    good = gpuhunt_csv([item()])
    mixed = zip_of({"../../aws.csv": b"evil", "/etc/passwd": b"evil", "aws.csv": good})
    assert len(SOURCE.read("aws", mixed).listings) == 1
    assert unreadable(zip_of({"../../aws.csv": good})) == (
        "the archive has no aws.csv, but '../../aws.csv'"
    )
    assert unreadable(zip_of({"gcp.csv": good})) == "the archive has no aws.csv, but 'gcp.csv'"
    assert unreadable(zip_of({})) == "the archive has no aws.csv, but nothing"


def test_a_bomb_in_a_zip_does_not_go_off():
    started = time.process_time()
    bomb = zip_bomb("aws.csv", 2**22, stated_bytes=2**30)
    assert "would have 1,073,741,824 bytes" in unreadable(bomb)
    # one that lies is read as far as it says, and then its sum is wrong
    assert unreadable(zip_bomb("aws.csv", 2**22, stated_bytes=1000)) == "the archive is damaged"
    assert time.process_time() - started < 4.0


def test_a_zip_with_too_many_names_is_not_opened():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(12_000):
            archive.writestr(f"{number:0>50}", b"")
    # 46 bytes and the name for each: 12,000 x 96 = 1,152,000, above 1,048,576
    assert unreadable(buffer.getvalue()) == "the archive lists more files than any catalogue has"


def test_zips_that_are_none():
    good = zip_of({"aws.csv": gpuhunt_csv([item()] * 50)})
    assert unreadable(encrypted_zip("aws.csv")) == "the archive is encrypted"
    assert unreadable(corrupt_zip(good)) == "the archive is damaged"
    assert unreadable(good[:-30]) == "it is no whole zip archive: its end is missing"
    assert unreadable(good[:100] + good[-22:]) == "the archive is damaged"
    assert unreadable(b"PK\x05\x06") == "the archive is damaged"


# --- tables ---


def table(**columns):
    """A table of one row, some columns changed (None: gone)."""
    row = storage.item_to_row(item()) | columns
    row = {name: value for name, value in row.items() if value is not None}
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(row))
    writer.writeheader()
    writer.writerow(row)
    return text.getvalue().encode()


@pytest.mark.parametrize("column", ["price", "spot", "gpu_count", "instance_name", "location"])
def test_a_column_that_is_gone_refuses_the_table(column):
    assert unreadable(table(**{column: None})) == f"it has no column {column}"


def test_columns_that_may_be_gone_or_new():
    old = table(gpu_vendor=None, flags=None, cpu_arch=None, provider_data=None, disk_size=None)
    assert SOURCE.read("aws", old).listings[0].gpu == "A100"
    assert SOURCE.read("aws", table(colour="red")).listings[0].price_usd_per_hour == 21.957642


def test_what_is_no_table():
    assert unreadable(b"") == "it is empty"
    assert unreadable(b" \n\n") == "it is empty"
    assert unreadable(b"<html>") == "it is a web page, no table"
    assert unreadable(b"\xff\xfe\x00") == "it is no text in UTF-8"
    assert unreadable(b"hello,you\n1,2\n") == (
        "it is no list of machines: it begins with 'hello,you'"
    )
    assert unreadable(table() + b'"open').startswith("line 3 is no CSV")
    head = table().splitlines()[0]
    assert unreadable(head + b",price\n") == "its head names a column twice"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"price": "0.0"}, "line 2: the price 0 is no price"),
        ({"price": "-1"}, "line 2: the price -1 is no price"),
        ({"price": "nan"}, "line 2: the price nan is no price"),
        ({"price": "inf"}, "line 2: the price inf is no price"),
        ({"price": ""}, "line 2: Required field 'price' is empty"),
        ({"price": "a lot"}, "line 2: Cannot parse field 'price'"),
        ({"price": "1e9"}, "line 2: 1e+09 an hour is no price for 8 GPUs"),
        ({"gpu_count": "-8"}, "line 2: -8 is no number of GPUs"),
        ({"gpu_count": "1e3"}, "line 2: Cannot parse field 'gpu_count'"),
        ({"gpu_count": "99999"}, "line 2: 99999 is no number of GPUs"),
        ({"gpu_name": ""}, "line 2: it has GPUs and does not name them"),
        ({"gpu_vendor": "acme"}, "line 2: 'acme' is not a valid AcceleratorVendor"),
        ({"spot": "maybe"}, "line 2: Cannot parse field 'spot'"),
        ({"instance_name": "a\x1b[31m"}, "line 2: a name has characters that no name has"),
        ({"location": "x" * 201}, "line 2: a name has characters that no name has, or far too"),
        ({"memory": "nan"}, "line 2: nan GB is no amount of memory or disk"),
        ({"gpu_memory": "-1"}, "line 2: -1 GB is no amount of memory or disk"),
        ({"provider_data": "{"}, "line 2: Expecting property name"),
        ({"provider_data": "[" * 5000 + "]" * 5000}, "line 2: "),
    ],
)
def test_a_row_that_makes_no_sense_fails_alone(columns, said):
    result = SOURCE.read("aws", table(**columns))
    assert result.listings == ()
    assert result.rows == 1
    (failed,) = result.failed
    assert failed.startswith(said)
    assert failed.isprintable()
    both = SOURCE.read("aws", table(**columns) + table().split(b"\n", 1)[1])
    assert len(both.listings) == 1
    assert (both.rows, len(both.failed)) == (2, 1)


def test_machines_without_gpus_are_counted_and_not_listed():
    tpu = {"gpu_name": "v5litepod-8", "gpu_vendor": AcceleratorVendor.GOOGLE, "gpu_count": 1}
    gaudi = {"gpu_name": "Gaudi2", "gpu_vendor": AcceleratorVendor.INTEL}
    result = read("gcp", item(), cpu_item(), cpu_item(location="x"), item(**tpu), item(**gaudi))
    assert len(result.listings) == result.rows == 1
    assert result.notes == (
        "Rows left out: 2 with accelerators that are no GPUs, 2 without a GPU.",
    )


def test_on_demand_and_spot_are_one_listing():
    listing = only("aws", item(), item(spot=True, price=9.1))
    assert (listing.price_usd_per_hour, listing.spot_usd_per_hour) == (21.957642, 9.1)
    assert only("aws", item(spot=True, price=9.1)).price_usd_per_hour is None


def test_a_machine_that_is_listed_twice_costs_what_it_costs_at_most():
    listing = only("azure", item(), item(price=25.0), item(spot=True, price=5.0))
    assert (listing.price_usd_per_hour, listing.spot_usd_per_hour) == (25.0, 5.0)
    assert listing.doubts == ("listed twice",)
    assert only("azure", item(), item()).doubts == ()


# --- how gpuhunt writes things ---


def test_memory_is_in_gib_whatever_gpuhunt_calls_it():
    listing = only("aws", item())
    assert listing.ram_bytes == 1152 * GIB
    assert listing.gpu_memory_bytes == 40 * GIB
    # Lambda's 200 GiB and 1400 GiB, times 1.074 in providers/lambdalabs.py
    made = {"provider": "lambdalabs", "memory": 200 * 1.074, "disk_size": 1400 * 1.074}
    listing = only("lambda", item(**made))
    assert listing.ram_bytes == pytest.approx(200 * GIB)
    assert listing.local_disk_bytes == pytest.approx(1400 * GIB)
    assert only("vultr", item(disk_size=1400)).local_disk_bytes == 1400 * GB
    assert only("aws", item(gpu_memory=None, memory=0.0)).ram_bytes is None


def test_zones_of_gcp_and_regions_of_others():
    zone = item(instance_name="a2-highgpu-1g", location="us-central1-a", gpu_count=1)
    assert (only("gcp", zone).region, only("gcp", zone).zone) == ("us-central1", "us-central1-a")
    assert only("gcp", item(location="us-central1")).region == "us-central1"
    assert (only("aws", item()).region, only("aws", item()).zone) == ("us-east-1", "")
    local = only("aws", item(location="us-west-2-phx-1"))
    assert (local.region, local.zone) == ("us-west-2-phx-1", "")


def test_rows_that_are_no_offer_of_one_machine():
    gcp = {"instance_name": "a4-highgpu-8g", "location": "us-central1-b", "gpu_name": "B200"}
    result = read(
        "gcp",
        item(**gcp, gpu_memory=180.0, spot=True, price=30.0),
        item(**gcp, gpu_memory=180.0, price=60.0, flags=["gcp-a4", "gcp-dws-calendar-mode"]),
        item(**gcp, gpu_memory=180.0, spot=True, price=30.0, flags=["gcp-g4-preview"]),
    )
    (listing,) = result.listings
    assert (listing.price_usd_per_hour, listing.spot_usd_per_hour) == (None, 30.0)
    (note,) = result.notes
    assert note == (
        "Rows left out: 1 for capacity that is reserved by calendar, "
        "1 listed a second time for old versions of dstack."
    )
    pod = {"instance_name": "NVIDIA H200", "location": "US-KS-2", "gpu_name": "H200"}
    result = read(
        "runpod",
        item(**pod, gpu_memory=141, price=36.72),
        item(**pod, gpu_memory=141, price=30.0, flags=["runpod-cluster"]),
    )
    assert [one.price_usd_per_hour for one in result.listings] == [36.72]


def test_hosts_of_gcp_are_those_that_are_known():
    t4 = {"location": "us-central1-a", "gpu_name": "T4", "gpu_memory": 16.0}
    result = read(
        "gcp",
        item(**t4, instance_name="n1-standard-4", gpu_count=1, price=0.54),
        item(**t4, instance_name="n1-highmem-8", gpu_count=2, price=1.17),
        item(**t4, instance_name="n1-highcpu-96", gpu_count=1, price=3.8),
        item(**t4, instance_name="n1-standard-4", gpu_count=2, price=0.89),
    )
    assert [one.instance for one in result.listings] == ["n1-standard-4+1xT4", "n1-highmem-8+2xT4"]
    assert result.notes == (
        "Rows left out: 2 with another host than gpu_hosts.csv has for the GPU.",
    )


def test_shares_of_a_gpu():
    # Azure's NV6ads_A10_v5 has 4 of an A10's 24 GB; GCP's g4-standard-12 24 of 96
    a10 = item(instance_name="Standard_NV6ads_A10_v5", gpu_count=1, gpu_name="A10", gpu_memory=4.0)
    assert only("azure", a10).gpus == pytest.approx(1 / 6)
    g4 = item(instance_name="g4-standard-12", gpu_count=1, gpu_name="RTXPRO6000", gpu_memory=24.0)
    assert only("gcp", g4).gpus == 0.25
    # 22.35 GiB are what a driver reports of an A10G's 24, 45,776 MiB of an L40S' 48 GiB
    for name, memory in (("A10G", 22.35), ("L40S", 44.7), ("B200", 179.06), ("A100", 80.0)):
        whole = item(gpu_count=1, gpu_name=name, gpu_memory=memory)
        assert only("aws", whole).gpus == 1, name
    # Vultr's A100 has 80 GB: 40 are half of one, not the A100 that was made with 40
    half = item(instance_name="vcg-a100-6c-60g-40vram", gpu_count=1, gpu_memory=40.0)
    assert only("vultr", half).gpus == 0.5
    assert only("crusoe", half).gpus == 1


def test_pods_are_named_as_skypilot_names_them():
    def pod(gpu, location, count=2):
        return only(
            "runpod", item(instance_name=gpu, location=location, gpu_count=count, gpu_memory=80)
        )

    secure = pod("NVIDIA A100-SXM4-80GB", "US-KS-2")
    assert (secure.instance, secure.gpu) == ("2x_A100-80GB-SXM_SECURE", "NVIDIA A100-SXM4-80GB")
    assert (secure.region, secure.zone) == ("US", "US-KS-2")
    assert pod("NVIDIA A100 80GB PCIe", "EU-RO-1").instance == "2x_A100-80GB_SECURE"
    assert pod("NVIDIA A100 80GB PCIe", "EU-RO-1").region == "RO"
    assert pod("NVIDIA H100 80GB HBM3", "SEA-SG-1").instance == "2x_H100-SXM_SECURE"
    assert pod("NVIDIA B300 SXM6 AC", "CA-MTL-1", 1).instance == "1x_B300_SECURE"
    assert pod("NVIDIA B300 SXM6 AC", "CA-MTL-1", 1).region == "CA"
    community = pod("NVIDIA GeForce RTX 3070", "SE")
    assert (community.instance, community.region) == (
        "2x_NVIDIA-GeForce-RTX-3070_COMMUNITY",
        "SE",
    )
    assert pod("NVIDIA X999", "MARS-1").instance == "2x_NVIDIA-X999_SECURE"
    assert pod("NVIDIA X999", "MARS-1").region == "MARS-1"


def test_machines_of_nebius_are_named_as_skypilot_names_them():
    made = item(instance_name="gpu-h100-sxm 8gpu-128vcpu-1600gb", gpu_name="H100", gpu_memory=80)
    assert only("nebius", made).instance == "gpu-h100-sxm_8gpu-128vcpu-1600gb"


@pytest.mark.parametrize(
    ("provider", "instance", "gpu", "memory", "meant"),
    [
        ("aws", "p4d.24xlarge", "A100", 40.0, "A100 40GB SXM"),
        ("aws", "p4de.24xlarge", "A100", 80.0, "A100 80GB SXM"),
        ("aws", "g5.xlarge", "A10G", 22.35, "A10G"),
        ("azure", "Standard_NC24ads_A100_v4", "A100", 80.0, "A100 80GB PCIe"),
        ("azure", "Standard_ND96asr_v4", "A100", 40.0, "A100 40GB SXM"),
        ("azure", "Standard_NC40ads_H100_v5", "H100NVL", 94.0, "H100 NVL"),
        ("azure", "Standard_ND40rs_v2", "V100", 32.0, "V100 SXM2 32GB"),
        ("gcp", "a2-ultragpu-1g", "A100", 80.0, "A100 80GB SXM"),
        ("lambda", "gpu_1x_h100_pcie", "H100", 80.0, "H100 PCIe"),
        ("lambda", "gpu_8x_h100_sxm5", "H100", 80.0, "H100 SXM"),
        ("lambda", "gpu_1x_gh200", "GH200", 96.0, "GH200 96GB"),
        ("lambda", "gpu_1x_rtx6000", "RTX6000", 24.0, "Quadro RTX 6000"),
        ("crusoe", "a100-80gb-sxm-ib.8x", "A100", 80.0, "A100 80GB SXM"),
        ("crusoe", "h100-80gb-sxm-ib.8x", "H100", 80.0, "H100 SXM"),
        ("vultr", "vbm-8-h100", "H100", 80.0, "H100"),
        ("lium", "node", "RTX4060Ti", 16.0, "RTX 4060 Ti 16GB"),
        ("lium", "node", "A100", 80.0, "A100 80GB"),
        ("nebius", "gpu-rtx6000_1gpu", "RTXPRO6000", 96.0, "RTX PRO 6000 Server"),
        ("runpod", "NVIDIA A100-SXM4-80GB", "A100", 80, "A100 80GB SXM"),
        ("runpod", "NVIDIA H100 80GB HBM3", "H100", 80, "H100 SXM"),
        ("runpod", "AMD Instinct MI300X OAM", "MI300X", 192, "MI300X"),
    ],
)
def test_names_mean_the_right_gpu(provider, instance, gpu, memory, meant):
    made = item(instance_name=instance, gpu_name=gpu, gpu_memory=memory)
    prices = price_list(read(provider, made).listings, source="gpuhunt", as_of="2026-11-17")
    assert [offer.gpu for offer in prices.offers] == [meant]
    assert "memory differs" not in {doubt.word for doubt in prices.offers[0].doubts}


UNKNOWN = {
    ("RTX2060", 12), ("RTX3050", 6), ("RTX3060", 8), ("RTX5060", 8),
    ("MI300A", 128), ("MI308X", 128), ("MI350X", 288),
}  # fmt: skip
"""GPUs in gpuhunt's list that outlay has no facts of, or not with so much memory."""
WRONG_MEMORY = {("MI250", 128), ("MI250X", 128), ("MI325X", 288)}
"""gpuhunt counts both devices of a board, and gives AMD's MI325X 288 GB where it has 256."""


@pytest.mark.parametrize(
    "known",
    [
        known
        for known in KNOWN_ACCELERATORS
        if known.vendor in (AcceleratorVendor.NVIDIA, AcceleratorVendor.AMD)
    ],
    ids=lambda known: f"{known.name}-{known.memory}",
)
def test_every_gpu_that_gpuhunt_knows_is_known_or_kept_as_unknown(known):
    made = item(gpu_name=known.name, gpu_memory=float(known.memory), gpu_vendor=known.vendor)
    prices = price_list(read("acme", made).listings, source="gpuhunt", as_of="2026-11-17")
    offers = [*prices.offers, *prices.unknown]
    assert len(offers) == 1
    words = {doubt.word for offer in offers for doubt in offer.doubts}
    key = (known.name, known.memory)
    if key in UNKNOWN:
        assert prices.unknown or "memory differs" in words
    else:
        assert prices.offers
        assert ("memory differs" in words) == (key in WRONG_MEMORY)


def test_what_the_source_s_own_way_calls_for_is_doubted():
    assert only("lambda", item()).doubts == ("region not verified",)
    assert only("crusoe", item()).doubts == ("price not asked",)
    assert only("aws", item()).doubts == ()
    assert "price not asked" in doubt_kinds()


def test_euros_are_dollars_at_the_rate_of_a_day():
    data = zip_of({"seeweb.csv": gpuhunt_csv([item(price=2.0)])})
    result = GpuhuntCatalogue(rate_day="2024-01-02").read("seeweb", data)
    # 1 EUR = 1.0956 USD on 2024-01-02, the European Central Bank's reference rate
    assert result.listings[0].price_usd_per_hour == pytest.approx(2 * 1.0956)
    assert result.listings[0].doubts == ("currency converted",)
    assert result.notes[0] == "Listed in EUR; 1 EUR = 1.0956 USD on 2024-01-02."


# --- live providers ---


@pytest.fixture
def live(server, monkeypatch):
    """A function that puts a provider's recorded replies under the address that gpuhunt asks."""

    def put(provider, *, with_key=True):
        name = gpuhunt_catalog._their_name(provider)
        module = import_module(f"gpuhunt.providers.{name}")
        for path, reply in REPLIES[provider]["replies"].items():
            data = json.dumps(reply).encode()
            server.put(f"{name}/{path}", data, content_type="application/json")
        if name in ADDRESSES:
            constant, path = ADDRESSES[name]
            monkeypatch.setattr(module, constant, f"{server.base}/{name}{path}")
        monkeypatch.setenv("DAYTONA_API_URL", server.url("daytona/api"))
        monkeypatch.setenv("DIGITAL_OCEAN_API_URL", server.url("digitalocean"))
        monkeypatch.setenv("JARVISLABS_API_URL", server.url("jarvislabs"))
        for variable, value in KEYS.items() if with_key else ():
            monkeypatch.setenv(variable, value)

    return put


def asked(provider, download):
    """What a provider answered, with the shape, GPU and price of each listing."""
    reply = SOURCE.ask(provider, download, None)
    result = SOURCE.read(provider, reply.data)
    return reply, result, {(one.instance, one.region): one for one in result.listings}


def test_vultr_answers_without_a_key(live, download, server):
    live("vultr", with_key=False)
    reply, result, machines = asked("vultr", download)
    assert reply.address == server.url("vultr/plans-metal?per_page=500")
    assert reply.modified == ""
    h100 = machines["vbm-112c-2048gb-8-h100-gpu", "sea"]
    assert (h100.gpu, h100.gpus, h100.price_usd_per_hour) == ("H100", 8, 23.92)
    assert h100.ram_bytes == 2048 * GIB  # 2,097,152 MiB
    assert machines["vcg-a100-1c-6g-4vram", "ewr"].gpus == 0.05  # 4 of 80 GB
    assert result.notes == (
        "Rows left out: 1 without a GPU.",
        "gpuhunt: Skipping unknown GPU plan vbm-999c-9-b999-gpu",
    )
    assert all("Authorization" not in request.headers for request in server.requests)


def test_lium_s_nodes_are_hosts_of_a_market(live, download):
    live("lium", with_key=False)
    _, result, machines = asked("lium", download)
    node = machines["2x_f092246d-5704-4c9e-b57f-7c0710a06deb", "us-ms"]
    # 2 x 3.99 dollars; gpuhunt makes 141 of the 140 GB that the feed says
    assert (node.gpus, node.price_usd_per_hour, node.gpu_memory_bytes) == (2, 7.98, 141 * GIB)
    assert node.host is not None
    assert "single host" in node.doubts
    spot = machines["1x_45af0308-a13c-497f-93ea-ab06144eee29", "us-mn"]
    assert (spot.price_usd_per_hour, spot.spot_usd_per_hour) == (None, 0.5)
    assert any("unknown gpu_model 'RTX 4090 D'" in note for note in result.notes)


def test_daytona_is_the_sum_of_its_parts(live, download):
    live("daytona", with_key=False)
    _, result, machines = asked("daytona", download)
    h100 = machines["1x-H100-8cpu-100gb-256gb", "earth"]
    # 3.95 + 8 x 0.0504 + 100 x 0.0162 + 256 x 0.000108
    assert h100.price_usd_per_hour == pytest.approx(6.000848)
    # 2.27 + 8 x 0.03 + 100 x 0.0093 + 256 x 0.000062
    assert h100.spot_usd_per_hour == pytest.approx(3.455872)
    assert len(machines) == 16  # two GPUs, one to eight of each
    assert any("B400" in note for note in result.notes)


def test_crusoe_is_asked_with_a_key_that_is_shown_nowhere(live, download, server):
    live("crusoe")
    reply, _, machines = asked("crusoe", download)
    h100 = machines["h100-80gb-sxm-ib.8x", "us-east1-a"]
    assert h100.price_usd_per_hour == pytest.approx(31.2)  # 8 x 3.90 of gpuhunt's own table
    assert "price not asked" in h100.doubts
    assert server.requests[0].headers["Authorization"].startswith("Bearer 1.0:access-1234:")
    assert b"access-1234" not in reply.data
    assert "access-1234" not in reply.address


@pytest.mark.parametrize(
    ("provider", "machine", "usd", "gpus"),
    [
        ("do", ("gpu-h100x8-640gb", "nyc1"), 23.92, 8),
        ("hotaisle", ("vm-mi300x-1", "us-michigan-1"), 1.99, 1),
        ("jarvislabs", ("A100-1x", "india-noida-01"), 1.49, 1),
    ],
)
def test_others_are_asked_as_gpuhunt_does(live, download, provider, machine, usd, gpus):
    live(provider)
    _, _, machines = asked(provider, download)
    assert (machines[machine].price_usd_per_hour, machines[machine].gpus) == (usd, gpus)


def test_memory_that_is_stated_of_all_gpus(live, download):
    live("do")
    _, _, machines = asked("do", download)
    assert machines["gpu-h100x8-640gb", "nyc1"].gpu_memory_bytes == 80 * GIB
    assert machines["gpu-mi300x8-1536gb", "nyc1"].gpu_memory_bytes == 192 * GIB


def test_seeweb_is_in_euros(live, download):
    live("seeweb")
    _, result, machines = asked("seeweb", download)
    rate = float(result.notes[0].split()[6])
    machine = machines["ECS2GPU3", "it-fr2"]
    assert machine.price_usd_per_hour == pytest.approx(1.98 * rate, rel=1e-3)
    assert 0.8 < rate < 1.7  # of every day since 2000


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("crusoe", "CRUSOE_ACCESS_KEY or CRUSOE_ACCESS_KEY_ID"),
        ("do", "DIGITAL_OCEAN_API_KEY or DIGITALOCEAN_ACCESS_TOKEN or DIGITALOCEAN_TOKEN"),
        ("hotaisle", "HOTAISLE_API_KEY"),
        ("jarvislabs", "JL_API_KEY"),
        ("seeweb", "SEEWEB_API_TOKEN"),
    ],
)
def test_a_key_that_is_missing_is_named(server, download, provider, variable):
    with pytest.raises(MissingCredentials) as caught:
        SOURCE.ask(provider, download, None)
    assert str(caught.value).startswith(f"{provider} was not asked: {variable} is not set.")
    assert missing_variable(provider) == variable.split(" or ")[0]
    assert server.requests == []


def test_who_needs_no_key_lacks_none(server):
    assert [missing_variable(name) for name in ("vultr", "lium", "daytona", "aws")] == [None] * 4


def test_keys_may_be_set_as_the_provider_s_own_tool_calls_them(live, download, server, monkeypatch):
    live("do")
    monkeypatch.delenv("DIGITAL_OCEAN_API_KEY")
    monkeypatch.setenv("DIGITALOCEAN_ACCESS_TOKEN", "doctl-1234")
    assert missing_variable("do") is None
    asked("do", download)
    assert server.requests[0].headers["Authorization"] == "Bearer doctl-1234"
    assert "DIGITAL_OCEAN_API_KEY" not in os.environ


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (status(403), "It refuses to answer (403)."),
        (status(500), "It has trouble of its own (500)."),
        (html(), "A web page came in place of the data."),
        (drips(0.02), "cut off"),
        (resets(), "The connection to 127.0.0.1 broke."),
        (endless("application/json"), "It goes on beyond the 64 MiB"),
        (status(200, b"[1, 2]"), f"lium answered what gpuhunt {GPUHUNT} cannot read."),
        (status(200, b"{"), f"lium answered what gpuhunt {GPUHUNT} cannot read."),
        (status(200, b'{"nodes": 3}'), f"lium answered what gpuhunt {GPUHUNT} cannot read."),
    ],
)
def test_a_live_provider_that_misbehaves(live, download, server, behaviour, said):
    live("lium")
    server.misbehave("lium/nodes", behaviour)
    started = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        SOURCE.ask("lium", HASTY if said == "cut off" else download, None)
    assert said in str(caught.value)
    assert caught.value.fix
    assert caught.value.__cause__ is None
    assert time.monotonic() - started < 8.0


def test_a_provider_that_can_do_without_an_answer_does(live, download, server, monkeypatch):
    """Vultr's availability is asked with a key, and its plans are public."""
    live("vultr")
    monkeypatch.setenv("VULTR_API_KEY", "vultr-1234")
    server.misbehave("vultr/regions", status(403))
    _, result, machines = asked("vultr", download)
    assert len(machines) == 5
    assert any("Failed to fetch Vultr VDM availability" in note for note in result.notes)
    assert not any("vultr-1234" in note for note in result.notes)


def test_keys_are_not_led_to_another_host(live, download, server):
    live("do")
    server.misbehave("digitalocean/v2/sizes", redirects(f"{server.elsewhere}/other"))
    server.put("other", json.dumps(REPLIES["do"]["replies"]["v2/sizes"]).encode())
    asked("do", download)
    assert "Authorization" in server.requests[0].headers
    assert "Authorization" not in server.requests[1].headers


def test_all_questions_together_are_bounded(live, download, server, monkeypatch):
    live("vultr")
    monkeypatch.setattr(gpuhunt_catalog, "LIVE_S", -1.0)
    with pytest.raises(ProviderError, match="was not asked any more"):
        SOURCE.ask("vultr", download, None)
    assert server.requests == []


def test_offline_asks_no_live_provider(live, server, monkeypatch):
    live("vultr")
    with pytest.raises(ProviderError, match="outlay is offline"):
        SOURCE.ask("vultr", HttpDownloader(offline=True), None)
    monkeypatch.setenv("OUTLAY_OFFLINE", "1")
    with pytest.raises(ProviderError, match="vultr was not asked: outlay is offline"):
        SOURCE.ask("vultr", HttpDownloader(), None)
    assert server.requests == []


def test_the_library_gets_its_own_requests_back(live, download, server):
    live("lium")
    module = import_module("gpuhunt.providers.lium")
    asked("lium", download)
    assert module.requests is requests
    server.misbehave("lium/nodes", status(403))
    with pytest.raises(ProviderError):
        SOURCE.ask("lium", download, None)
    assert module.requests is requests
    assert logging.getLogger(module.__name__).handlers == []


def test_nothing_goes_to_the_screen(live, download, capfd):
    live("lium")
    live("hotaisle")
    asked("lium", download)
    asked("hotaisle", download)
    assert capfd.readouterr() == ("", "")


def test_providers_asked_at_once_do_not_mix(live, download):
    names = ("vultr", "lium", "daytona", "do", "lium", "vultr")
    for name in names:
        live(name)
    found = {}
    threads = [
        threading.Thread(target=lambda n=n, name=name: found.update({n: asked(name, download)[1]}))
        for n, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    for number, name in enumerate(names):
        assert {one.provider for one in found[number].listings} == {name}


def test_what_was_left_out_is_told_briefly():
    messages = [f"Skipping plan {number}\nand more" for number in range(50)] * 2
    data = gpuhunt_catalog._stored([item()], messages)
    notes = SOURCE.read("vultr", data).notes
    assert len(notes) == 21
    assert notes[0] == "gpuhunt: Skipping plan 0 and more"
    assert notes[-1] == "gpuhunt: 30 more like these"


# --- any bytes ---


def harmless(data, provider="aws"):
    try:
        result = SOURCE.read(provider, data)
    except Unreadable:
        return
    assert len(result.listings) + len(result.failed) <= max(result.rows, len(result.failed))
    for listing in result.listings:
        for usd in (listing.price_usd_per_hour, listing.spot_usd_per_hour):
            assert usd is None or 0 < usd < 1e8
        assert listing.gpus > 0
        assert listing.instance.isprintable()
    for text in (*result.failed, *result.notes):
        assert text.isprintable()


@given(st.binary(max_size=300))
@example(b"PK\x05\x06" + bytes(18))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(data):
    harmless(data)
    harmless(b"PK" + data)


GOOD_ZIP = zip_of({"aws.csv": gpuhunt_csv([item(), item(spot=True, price=9.0), cpu_item()])})


@given(st.lists(st.tuples(st.integers(0, len(GOOD_ZIP) - 1), st.integers(0, 255)), max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_zip_with_bytes_changed_is_read_or_refused(changes):
    data = bytearray(GOOD_ZIP)
    for place, byte in changes:
        data[place] = byte
    harmless(bytes(data))


CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "nan", "inf", "1e400", "True", "false", "A100", "{}", "x"]
    ),
    st.floats(allow_nan=False).map(str),
    st.text(max_size=12),
)


@given(st.lists(st.dictionaries(st.sampled_from(storage.CATALOG_V2_FIELDS), CELLS), max_size=5))
@settings(max_examples=50, deadline=None)
def test_any_cells_are_read_or_fail_alone(changes):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=storage.CATALOG_V2_FIELDS)
    writer.writeheader()
    writer.writerows(storage.item_to_row(item()) | change for change in changes)
    for provider in ("gcp", "runpod", "lium"):
        harmless(text.getvalue().encode("utf-8", "replace"), provider)


@given(
    st.lists(
        st.builds(
            item,
            price=st.floats(0.01, 500),
            spot=st.booleans(),
            location=st.sampled_from(["us-east-1", "eu-west-1"]),
            gpu_count=st.integers(1, 16),
            memory=st.floats(1, 4000),
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_every_price_that_was_stored_is_read_again(items):
    result = read("aws", *items)
    assert result.failed == ()
    assert result.rows == len(items)
    kept = {
        usd
        for one in result.listings
        for usd in (one.price_usd_per_hour, one.spot_usd_per_hour)
        if usd is not None
    }
    assert kept <= {one.price for one in items}
    assert max(one.price for one in items) in kept
