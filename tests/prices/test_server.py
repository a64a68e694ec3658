"""The server that the tests of prices are made with: it does what it says."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib

import pytest
import requests
from gpuhunt import AcceleratorVendor, Catalog, CatalogItem
from gpuhunt._internal import catalog as gpuhunt_catalog
from tests.prices.server import (
    CERTIFICATE,
    PriceServer,
    ProxyServer,
    corrupt_zip,
    empty,
    encrypted_zip,
    gzip_bomb,
    html,
    redirects,
    resets,
    slow,
    status,
    too_many,
    truncated,
    unfinished,
    zip_bomb,
    zip_of,
)


@pytest.fixture
def server():
    with PriceServer() as server:
        yield server


def fetch(address, **how):
    with requests.get(address, timeout=5, **how) as reply:
        return reply.status_code, reply.content, reply.headers


def item(**changes):
    values = {
        "provider": "lambdalabs",
        "instance_name": "gpu_1x_a10",
        "location": "us-east-1",
        "price": 0.75,
        "cpu": 30,
        "memory": 214.8,
        "gpu_count": 1,
        "gpu_name": "A10",
        "gpu_memory": 24.0,
        "gpu_vendor": AcceleratorVendor.NVIDIA,
        "spot": False,
        "disk_size": 1503.6,
    }
    return CatalogItem(**(values | changes))


def test_files_are_served_and_said_to_be_unchanged(server):
    address = server.put_skypilot("lambda", b"InstanceType,Price\n")
    code, body, headers = fetch(address)
    assert (code, body) == (200, b"InstanceType,Price\n")
    assert headers["Last-Modified"] == "Mon, 16 Nov 2026 01:07:30 GMT"
    assert fetch(address, headers={"If-None-Match": headers["ETag"]})[0] == 304
    assert fetch(address, headers={"If-Modified-Since": headers["Last-Modified"]})[0] == 304
    assert fetch(server.url("v8/lambda/other.csv"))[0] == 404
    assert server.count("v8/lambda/vms.csv") == 3
    assert server.requests[1].headers["If-None-Match"] == headers["ETag"]


def test_gpuhunt_itself_reads_what_is_served_for_it(server, monkeypatch):
    server.put_gpuhunt("lambdalabs", [item(), item(location="us-west-1")], "20261117-901")
    monkeypatch.setattr(gpuhunt_catalog, "OFFLINE_PROVIDERS", ["lambdalabs"])
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", server.url("v3"))
    catalog = Catalog(auto_reload=False)
    catalog.load()
    assert catalog.catalog["lambdalabs"].version == "20261117-901"
    assert catalog.catalog["lambdalabs"].items == [item(), item(location="us-west-1")]


def test_it_misbehaves_as_often_as_told_then_behaves(server):
    address = server.put("x", b"data")
    server.misbehave("x", status(500), times=2)
    server.misbehave("x", too_many("7"), times=1)
    assert [fetch(address)[0] for _ in range(4)] == [500, 500, 429, 200]
    server.misbehave("x", html())
    assert fetch(address)[1].startswith(b"<!DOCTYPE html>")
    server.behave()
    assert fetch(address)[1] == b"data"


def test_questions_are_answered_by_what_was_asked(server):
    address = server.put("ask", lambda request: request.body.upper())
    assert requests.post(address, data=b"abc", timeout=5).content == b"ABC"
    assert server.requests[0].method == "POST"


def test_bodies_that_are_cut_short(server):
    address = server.put("x", b"0123456789" * 100)
    for behaviour in (truncated(), unfinished(), resets()):
        server.misbehave("x", behaviour, times=1)
        with pytest.raises(requests.RequestException):
            fetch(address)
    server.misbehave("x", empty(), times=1)
    assert fetch(address)[1] == b""


def test_elsewhere_is_another_host(server):
    server.put("x", b"data")
    server.misbehave("y", redirects(f"{server.elsewhere}/x"))
    with requests.get(server.url("y"), timeout=5) as reply:
        assert reply.url == f"http://localhost:{server.port}/x"
        assert reply.content == b"data"


def test_bombs_are_small_and_grow(server):
    server.misbehave("x", gzip_bomb(2**22))
    with requests.get(server.url("x"), timeout=5, stream=True) as reply:
        packed = reply.raw.read(decode_content=False)
    assert len(packed) < 2**14
    assert len(gzip.decompress(packed)) == 2**22
    bomb = zip_bomb("a.csv", 2**22)
    with zipfile.ZipFile(io.BytesIO(bomb)) as archive:
        assert archive.getinfo("a.csv").file_size == 2**22
        assert archive.getinfo("a.csv").compress_size < 2**14
    lying = zip_bomb("a.csv", 2**22, stated_bytes=10)
    with zipfile.ZipFile(io.BytesIO(lying)) as archive:
        assert archive.getinfo("a.csv").file_size == 10


def test_bad_zips_are_bad():
    with (
        zipfile.ZipFile(io.BytesIO(encrypted_zip("a.csv"))) as archive,
        pytest.raises(RuntimeError, match="encrypted"),
    ):
        archive.read("a.csv")
    whole = zip_of({"a.csv": bytes(range(256)) * 10, "../../b.csv": b"x"})
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.namelist() == ["a.csv", "../../b.csv"]
    with (
        zipfile.ZipFile(io.BytesIO(corrupt_zip(whole))) as archive,
        pytest.raises((zipfile.BadZipFile, zlib.error)),
    ):
        archive.read("a.csv")


def test_tls_and_a_proxy_before_it():
    with PriceServer(tls=True) as server, ProxyServer() as proxy:
        address = server.put("x", b"data")
        with pytest.raises(requests.exceptions.SSLError):
            fetch(address)
        assert fetch(address, verify=str(CERTIFICATE))[1] == b"data"
        through = {"http": proxy.base, "https": proxy.base}
        assert fetch(address, verify=str(CERTIFICATE), proxies=through)[1] == b"data"
        assert [request.method for request in proxy.requests] == ["CONNECT"]
    with PriceServer() as server, ProxyServer() as proxy:
        address = server.put("x", b"data")
        assert fetch(address, proxies={"http": proxy.base})[1] == b"data"
        assert proxy.requests[0].path == address
        proxy.refuses = True
        assert fetch(address, proxies={"http": proxy.base})[0] == 407


def test_closing_wakes_what_waits():
    with PriceServer() as server:
        server.misbehave("x", slow(3600))
        with pytest.raises(requests.Timeout):
            requests.get(server.url("x"), timeout=0.2)
