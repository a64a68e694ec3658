"""Vast's answer. The first host of `vast_bundles.json` is one that Vast gave on 2024-07-30 (field
names and figures as published), the price and disk of the second too; the rest is made up in the
same shape (docs.vast.ai, search offers)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.facts import assumed
from outlay.offers.catalog import doubt_kinds
from outlay.prices.sources import ReadListings, Reply, Unreadable
from outlay.prices.vast import ADDRESS, MOST_HOSTS, Vast, question

BUNDLES = (Path(__file__).parent / "data" / "vast_bundles.json").read_bytes()


def read(data: object) -> ReadListings:
    return Vast().read("vast", data if isinstance(data, bytes) else json.dumps(data).encode())


def a_host(**figures: Any) -> dict[str, Any]:
    return {"id": 7, "gpu_name": "RTX 4090", "num_gpus": 1, "dph_base": 0.3} | figures


def only(data: object) -> Any:
    (listing,) = read(data).listings
    return listing


class _Answers:
    """A downloader that answers from a value, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def get(self, *_: object, **__: object) -> Reply | None:
        raise AssertionError("a search is a POST")

    def post(self, address: str, body: object, *, largest_bytes: int = 0) -> Reply:
        self.asked.append((address, body))
        return Reply(data=BUNDLES, address=address)


def test_a_host_is_an_offer_that_can_be_rented_by_its_name() -> None:
    host = read(BUNDLES).listings[0]
    assert (host.provider, host.instance, host.gpu, host.gpus) == (
        "vast",
        "11684738",
        "RTX 4090",
        1,
    )
    assert host.region == "Guangxi, CN"
    # the machine alone: the 9e-06 of disk in dph_total are not in it
    assert host.price_usd_per_hour == 0.24666666666666665
    assert host.spot_usd_per_hour == 0.2
    assert host.gpu_memory_bytes == 24564 * 2**20
    assert host.vcpus == 24
    # 24 of 96 cores: a quarter of 64,393 MB
    assert host.ram_bytes == pytest.approx(64393e6 / 4)
    assert host.local_disk_bytes == 1607.875e9


def test_a_host_comes_with_its_qualities() -> None:
    quality = read(BUNDLES).listings[0].host
    assert quality.disk_bytes_per_s == pytest.approx(2545.294e6)
    # 105.9 and 77.7 Mbit/s
    assert quality.download_bytes_per_s == pytest.approx(13.2375e6)
    assert quality.upload_bytes_per_s == pytest.approx(9.7125e6)
    assert quality.reliability_fraction == 0.9700835
    assert quality.verified is True
    assert quality.available_s == 13356528.565657616
    assert quality.dlperf == 106.63705612622635
    # nothing for traffic is a price, too
    assert quality.download_usd_per_byte == quality.upload_usd_per_byte == 0.0


def test_its_disk_is_charged_apart_at_the_hosts_price() -> None:
    host = read(BUNDLES).listings[1]
    # $0.2 for a GB and month of 720 h; 5 GB of it are what dph_total has besides dph_base:
    # 0.12 + 5 * 0.2 / 720 = 0.1213888...
    disk_usd = host.host.disk_usd_per_byte_month * 5e9 / 720
    assert host.price_usd_per_hour + disk_usd == pytest.approx(0.1213888888888889)


def test_what_is_to_be_said_of_a_host() -> None:
    hosts = read(BUNDLES).listings
    assert hosts[0].doubts == ("single host", "lowest bid")
    assert hosts[1].doubts == ("single host", "unverified host", "unreliable host", "lowest bid")
    assert hosts[2].doubts == ("single host",)
    kinds = doubt_kinds()
    assert kinds["single host"].kind == "note"
    for word in ("unverified host", "unreliable host", "lowest bid"):
        assert kinds[word].kind == "caution", word
    assert kinds["lowest bid"].about == "spot"


def test_reliability_is_doubted_below_what_is_assumed() -> None:
    least = assumed("host_reliability_least")
    assert "unreliable host" not in only({"offers": [a_host(reliability=least)]}).doubts
    assert "unreliable host" in only({"offers": [a_host(reliability=least - 0.001)]}).doubts


def test_what_a_host_does_not_say_is_unknown() -> None:
    host = read(BUNDLES).listings[2]
    assert host.ram_bytes is None  # of how many cores is not said
    assert host.region == ""
    assert host.spot_usd_per_hour is None
    assert (host.host.disk_bytes_per_s, host.host.available_s) == (None, None)
    bare = only({"offers": [a_host()]})
    assert (bare.vcpus, bare.local_disk_bytes, bare.host.verified) == (None, None, None)
    assert bare.host.download_usd_per_byte is None
    assert bare.doubts == ("single host",)


def test_hosts_that_cannot_be_rented_or_read() -> None:
    found = read(BUNDLES)
    assert [host.instance for host in found.listings[3:]] == ["50000004"]
    # rented by the one who asks: not there. No price: failed, with the reason.
    assert found.failed == [
        "host 4 (id 50000002): the price 0 (dph_base) is not above zero",
    ]
    assert found.rows == 5


def test_in_a_search_for_bids_the_price_is_the_bid() -> None:
    host = read(BUNDLES).listings[3]
    assert (host.price_usd_per_hour, host.spot_usd_per_hour) == (None, 0.3)


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"dph_base": "0.3"}, "host 1 (id 7): the price '0.3' (dph_base) is no number"),
        ({"dph_base": -1}, "host 1 (id 7): the price -1 (dph_base) is not above zero"),
        ({"dph_base": None}, "host 1 (id 7): it has no price"),
        ({"gpu_name": " "}, "host 1 (id 7): it does not say which GPU it has"),
        ({"num_gpus": 1.5}, "host 1 (id 7): the number of GPUs 1.5 is none"),
        ({"id": "x"}, "host 1: the id 'x' is none to rent it by"),
    ],
)
def test_a_bad_row_is_one_that_failed_with_the_reason(figures: dict[str, Any], reason: str) -> None:
    found = read({"offers": [a_host(**figures)]})
    assert (found.listings, found.rows, found.failed) == ([], 1, [reason])


def test_a_row_that_is_no_table_or_comes_twice_fails() -> None:
    found = read({"offers": [a_host(), 3, a_host()]})
    assert found.failed == [
        "host 2: it is no table of figures",
        "host 3 (id 7): it is listed twice",
    ]
    assert len(found.listings) == 1


def test_that_there_are_more_hosts_is_said() -> None:
    assert read({"offers": [a_host()]}).notes == ()
    (note,) = read({"offers": [a_host()], "truncated": True}).notes
    assert "more hosts than the 1" in note


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "Vast's answer is not JSON"),
        (b"", "Vast's answer is not JSON"),
        (b"[" * 100_000, "Vast's answer is not JSON"),
        (b"\xff\xfe", "Vast's answer is not JSON"),
        (b"[]", "Vast's answer has no list of offers"),
        (b'{"offers": {}}', "Vast's answer has no list of offers"),
        (
            b'{"success": false, "msg": "slow down"}',
            'Vast\'s answer has no list of offers: it says "slow down"',
        ),
    ],
)
def test_what_is_no_answer_is_refused_whole(data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read(data)
    assert refused.value.reason == reason


def test_it_asks_for_hosts_that_can_be_rented() -> None:
    answers = _Answers()
    reply = Vast().ask("vast", answers, None)
    assert reply is not None
    assert reply.data == BUNDLES
    ((address, body),) = answers.asked
    assert address == ADDRESS
    assert body == question()
    assert question()["rentable"] == {"eq": True}
    assert question()["limit"] == MOST_HOSTS


def test_a_mirror_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAY_VAST_API", "http://localhost:1/bundles/")
    answers = _Answers()
    Vast().ask("vast", answers, None)
    assert answers.asked[0][0] == "http://localhost:1/bundles/"


# --- anything at all ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = sorted({name for row in json.loads(BUNDLES)["offers"] for name in row})
HOSTS = st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON, max_size=4)
FIGURES = (
    "price_usd_per_hour", "spot_usd_per_hour", "vcpus", "ram_bytes", "local_disk_bytes",
    "gpu_memory_bytes",
)  # fmt: skip


@given(HOSTS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_hosts_are_listings_or_failed_rows(rows: list[Any], like: bool) -> None:
    """Hosts with anything in any field: figures above zero or none, every row accounted for."""
    rows = [a_host(id=n + 1, **{k: v for k, v in row.items() if k != "id"})
            if like and isinstance(row, dict) else row for n, row in enumerate(rows)]  # fmt: skip
    found = read({"offers": rows})
    assert found.rows == len(found.listings) + len(found.failed) <= len(rows)
    for listing in found.listings:
        assert listing.gpus >= 1
        assert all((getattr(listing, name) or 1.0) > 0 for name in FIGURES)
        assert listing.price_usd_per_hour or listing.spot_usd_per_hour
        assert set(listing.doubts) <= set(doubt_kinds())


@given(st.binary(max_size=200) | st.text(max_size=50).map(str.encode) | JSON)
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(data: Any) -> None:
    try:
        found = read(data)
    except Unreadable as error:
        refused, rows = error.reason, -1
    else:
        refused, rows = "", found.rows
    assert refused.startswith("Vast's answer") != (rows >= 0)
