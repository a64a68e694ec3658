"""What is kept of prices: whole, every change once, whatever happens to the file."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.prices.stand_in import folder_in_memory, offer, prices

from outlay.errors import PriceStoreFailed
from outlay.offers.catalog import doubt_kinds
from outlay.offers.offer import Doubt, HostQuality, Offer
from outlay.prices import price_store
from outlay.prices.price_store import (
    Attempt,
    PastPrice,
    PriceStore,
    columns_of,
    items_of,
    packed_json,
    unpacked_json,
)
from outlay.prices.sources import ProviderPrices, Validators, ZonePrice
from outlay.uncertainty import Estimate

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("killed_refresh.py")
MONDAY, TUESDAY, FRIDAY = "2026-11-09T08:00:00Z", "2026-11-10T08:00:00Z", "2026-11-13T08:00:00Z"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_in_memory() as folder:
        monkeypatch.setenv("OUTLAY_DATA", str(folder))
        yield folder


def attempt(**more: Any) -> Attempt:
    values = {
        "source": "skypilot",
        "provider": "lambda",
        "at": TUESDAY,
        "state": "fresh",
        "offers": 1,
        "as_of": "2026-11-10",
    }
    return Attempt(**(values | more))


# --- the last good prices ---


FIGURES = st.floats(allow_nan=False)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that an offer is made of, whatever fields it gets one day."""
    inner = get_args(hint)
    if hint is Doubt:
        return st.sampled_from(list(doubt_kinds().values()))
    if hint is Estimate:
        ordered = st.tuples(FIGURES, FIGURES, FIGURES).map(sorted)
        return ordered.map(lambda one: Estimate(low=one[0], likely=one[1], high=one[2]))
    if is_dataclass(hint):
        return st.builds(hint, **{k: anything(v) for k, v in get_type_hints(hint).items()})
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*map(anything, inner))
    if get_origin(hint) is tuple:
        return st.lists(anything(inner[0]), max_size=3).map(tuple)
    if get_origin(hint) is Literal:
        return st.sampled_from(inner)
    atoms = {str: st.text(), int: st.integers(), float: FIGURES, bool: st.booleans()}
    return st.none() if hint is type(None) else atoms[hint]


def bare(value: Offer) -> Offer:
    """An offer as sources give most: little besides the price."""
    return offer(value.instance, value.price_usd_per_hour, doubts=value.doubts, region=value.region)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(items=st.lists(anything(Offer), max_size=4), is_bare=st.booleans())
def test_offers_come_back_as_they_were(items, is_bare):
    kept = tuple(map(bare, items)) if is_bare else tuple(items)
    text = packed_json(columns_of(Offer, kept))
    assert items_of(Offer, unpacked_json(text)) == kept


def test_a_list_comes_back_as_it_was():
    host = HostQuality(disk_bytes_per_s=2.5e9, reliability_fraction=0.997, verified=None)
    marketplace = doubt_kinds()["marketplace"]
    zone = ZonePrice(
        provider="lambda",
        instance="box",
        region="here",
        zone="here-a",
        price_usd_per_hour=2.0,
        spot_usd_per_hour=None,
    )
    whole = prices(
        offer(host=host, doubts=(marketplace,), spot_usd_per_hour=0.1 + 0.2),
        offer("other", None, vcpus=8.0),
        zones=(zone,),
        unknown=(offer("odd", gpu="H900 \N{SNOWMAN}"),),
        notes=("2 of 900 rows could not be read",),
    )
    with PriceStore() as store:
        assert store.replace(whole, Validators(etag='"7"', version="20261110")) is True
        assert store.current() == [whole]
    with PriceStore() as store:
        assert store.current() == [whole]
        assert store.validators("skypilot", "lambda") == Validators(etag='"7"', version="20261110")
        assert store.validators("skypilot", "aws") is None
    assert [path.name for path in store.path.parent.iterdir()] == ["prices.sqlite"]


def test_reading_where_nothing_was_kept_makes_no_file():
    with PriceStore() as store:
        assert store.current() == store.attempts() == store.prices_at("2026-11-10") == []
        assert list(store.past()) == store.refresh_days("skypilot", "lambda") == []
        assert store.validators("skypilot", "lambda") is store.derived("book") is None
        assert store.put_damaged_aside() is None
    assert not store.path.parent.exists()


def test_lists_of_each_source_and_provider_are_apart():
    ours, theirs = prices(offer()), prices(offer(price=3.0), source="gpuhunt")
    newer = replace(ours, offers=(offer(price=2.5),), fetched_at=FRIDAY, as_of="2026-11-13")
    with PriceStore() as store:
        for one in (ours, theirs, newer):
            store.replace(one, Validators())
        assert store.current() == [theirs, newer]


def test_a_refresh_that_took_longer_does_not_bring_back_older_prices():
    older, newer = prices(offer(price=1.0), fetched_at=MONDAY), prices(offer(price=2.0))
    with PriceStore() as store:
        assert store.replace(newer, Validators())
        assert not store.replace(older, Validators(), attempt(at=MONDAY))
        assert store.current() == [newer]
        assert store.attempts() == []
        # ... but a clock that was ahead once is no reason to keep the prices of then for ever
        assert store.replace(older, Validators(), over=newer.fetched_at)
        assert store.current() == [older]


def test_what_another_version_read_is_read_again(monkeypatch):
    with PriceStore() as store:
        store.replace(prices(offer()), Validators(etag='"7"'))
        monkeypatch.setattr(price_store, "_made_by", lambda: "99.0")
        assert store.validators("skypilot", "lambda") is None
        assert len(store.current()) == 1


def test_confirmed_prices_are_the_same_asked_for_later():
    with PriceStore() as store:
        store.replace(prices(offer()), Validators(etag='"7"'))
        store.confirm(attempt(at=FRIDAY, state="unchanged"))
        assert store.current() == [prices(offer(), fetched_at=FRIDAY)]
        assert store.validators("skypilot", "lambda") == Validators(etag='"7"')
        store.confirm(attempt(at=FRIDAY, state="unchanged"), Validators(etag='"8"'))
        assert store.validators("skypilot", "lambda") == Validators(etag='"8"')
        # A confirmation that took longer than another refresh says nothing of what that brought.
        store.confirm(attempt(at=MONDAY, state="unchanged"), Validators(etag='"6"'))
        assert store.current() == [prices(offer(), fetched_at=FRIDAY)]
        assert store.validators("skypilot", "lambda") == Validators(etag='"8"')


def test_a_doubt_of_a_later_outlay_is_a_caution():
    word = doubt_kinds()["stale"]
    columns = columns_of(Offer, [offer(doubts=(word,))])
    columns["doubts"] = [["from the future"]]
    columns["colour"] = ["blue"]
    [read] = items_of(Offer, columns)
    assert read.doubts == (Doubt(word="from the future", kind="caution", about="offer"),)


def test_what_was_worked_out_holds_for_the_prices_it_was_worked_out_of():
    with PriceStore() as store:
        store.replace(prices(offer()), Validators())
        before = store.stamp()
        store.keep_derived("book", before, b"of tuesday")
        assert store.derived("book") == b"of tuesday"
        assert store.derived("other") is None
        store.note(attempt(state="kept"))
        assert store.derived("book") == b"of tuesday"
        store.replace(prices(offer(), fetched_at=FRIDAY), Validators())
        assert store.derived("book") is None
        # Worked out of Tuesday's prices while another refresh brought Friday's.
        store.keep_derived("book", before, b"of tuesday")
        assert store.derived("book") is None


# --- attempts ---


def test_every_attempt_is_kept_and_the_last_of_each_is_given():
    failed = attempt(
        at=FRIDAY,
        state="kept",
        reason="No answer within 120 s.",
        missing_key="LAMBDA_API_KEY",
        unknown_gpus=("H900",),
        is_new_provider=True,
        notes=("new",),
    )
    other = attempt(provider="aws", offers=0, as_of=None)
    with PriceStore() as store:
        for one in (attempt(), other, failed):
            store.note(one)
        assert store.attempts() == [other, failed]
    assert sqlite3.connect(store.path).execute("SELECT count(*) FROM attempts").fetchone() == (3,)


def test_days_on_which_prices_were_confirmed_or_changed():
    with PriceStore() as store:
        store.note(attempt(at="2026-11-12T23:59:59Z", state="unchanged"))
        store.note(attempt(at="2026-11-11T00:00:00Z", state="kept"))
        store.note(attempt(at="2026-11-12T01:00:00Z"))
        store.add_past([past(at=MONDAY)])
        store.note(attempt(at=FRIDAY, provider="aws"))
        assert store.refresh_days("skypilot", "lambda") == ["2026-11-09", "2026-11-12"]


def test_days_of_refreshes_with_the_day_of_the_list():
    with PriceStore() as store:
        store.add_past([past(at=MONDAY, as_of="2026-08-22"), past(at=TUESDAY, price=3.0)])
        store.note(attempt(at="2026-11-12T01:00:00Z", state="unchanged", as_of="2026-11-01"))
        store.note(attempt(at="2026-11-12T02:00:00Z", state="kept", as_of="2026-11-02"))
        assert store.confirmations("skypilot", "lambda") == {
            "2026-11-09": "2026-08-22",
            "2026-11-10": "2026-11-10",
            "2026-11-12": "2026-11-01",
        }


# --- history ---


def past(price: float | None = 2.0, spot: float | None = None, **more: Any) -> PastPrice:
    values = {
        "at": TUESDAY,
        "source": "skypilot",
        "provider": "lambda",
        "instance": "box",
        "region": "here",
        "zone": "",
        "gpu": "H100 SXM",
        "gpus": 1.0,
        "as_of": "2026-11-10",
    }
    return PastPrice(price_usd_per_hour=price, spot_usd_per_hour=spot, **(values | more))


def test_only_what_changes_goes_into_the_history():
    first = prices(offer("a", 1.0), offer("b", 2.0), offer("c", 3.0), fetched_at=MONDAY)
    second = prices(offer("a", 1.0), offer("b", 2.5), offer("d", 4.0), fetched_at=TUESDAY)
    third = prices(offer("a", 1.0), offer("b", 2.5), offer("c", 3.0), fetched_at=FRIDAY)
    with PriceStore() as store:
        for one in (first, second, third):
            store.replace(one, Validators())
        assert list(store.past()) == [
            past(1.0, at=MONDAY, instance="a"),
            past(2.0, at=MONDAY, instance="b"),
            past(3.0, at=MONDAY, instance="c"),
            past(2.5, instance="b"),
            past(None, instance="c"),  # gone
            past(4.0, instance="d"),  # new
            past(3.0, at=FRIDAY, instance="c"),  # back
            past(None, at=FRIDAY, instance="d"),
        ]
        stood = {price.instance: price for price in store.prices_at("2026-11-10")}
        assert stood == {
            "a": past(1.0, at=MONDAY, instance="a"),
            "b": past(2.5, instance="b"),
            "d": past(4.0, instance="d"),
        }
        assert store.prices_at("2026-11-09T07:59:59Z") == []
        assert len(store.prices_at(MONDAY)) == 3


def test_zones_unknown_gpus_and_shares_have_a_history_of_their_own():
    def in_zone(zone: str, spot: float) -> ZonePrice:
        return ZonePrice(
            provider="lambda",
            instance="box",
            region="here",
            zone=zone,
            price_usd_per_hour=2.0,
            spot_usd_per_hour=spot,
        )

    odd = offer("odd", 9.0, gpu="H900", gpus=1, gpu_share=0.25)
    whole = prices(
        offer(spot_usd_per_hour=0.5),
        zones=(in_zone("here-a", 0.5), in_zone("here-b", 0.7)),
        unknown=(odd,),
    )
    with PriceStore() as store:
        store.replace(whole, Validators())
        found = sorted(store.past(), key=lambda price: (price.instance, price.zone))
        assert found == [
            past(2.0, 0.5),
            past(2.0, 0.5, zone="here-a"),
            past(2.0, 0.7, zone="here-b"),
            past(9.0, instance="odd", gpu="H900", gpus=0.25),
        ]
        store.replace(replace(whole, fetched_at=FRIDAY), Validators())
        assert len(list(store.past())) == 4


def test_the_order_of_two_offers_with_one_name_is_no_change():
    one, other = offer(price=2.0), offer(price=1.5)
    with PriceStore() as store:
        store.replace(prices(one, other, fetched_at=MONDAY), Validators())
        store.replace(prices(other, one, fetched_at=TUESDAY), Validators())
        assert list(store.past()) == [past(1.5, at=MONDAY)]


def test_history_by_gpu_provider_and_time():
    changes = [
        past(1.0, at=MONDAY, gpu="L4", instance="small"),
        past(2.0, at=MONDAY),
        past(2.1, at=TUESDAY, provider="aws"),
        past(2.2, at=FRIDAY),
        past(0.9, at=FRIDAY, gpu="L4", instance="small"),
    ]
    with PriceStore() as store:
        store.add_past(changes)
        assert [c.price_usd_per_hour for c in store.past(["L4"])] == [1.0, 0.9]
        assert [c.price_usd_per_hour for c in store.past(["L4", "H100 SXM"])] == [
            1.0, 2.0, 2.1, 0.9, 2.2,
        ]  # fmt: skip
        assert [c.price_usd_per_hour for c in store.past(provider="aws")] == [2.1]
        recent = store.past(["H100 SXM"], provider="lambda", since="2026-11-10")
        assert [c.price_usd_per_hour for c in recent] == [2.2]
        until = store.past(since="2026-11-09", until="2026-11-10")  # both days are in it
        assert [c.price_usd_per_hour for c in until] == [1.0, 2.0, 2.1]
        assert list(store.past(["T4"])) == []


def test_history_is_found_by_index():
    with PriceStore() as store:
        store.add_past([past()])
    file = sqlite3.connect(store.path)
    asked: list[str] = []
    with PriceStore() as store:
        store._opened().set_trace_callback(asked.append)
        list(store.past(["L4"], since="2026-11-10"))
        store.prices_at("2026-11-10")
    plans = [
        step
        for query in asked
        if "price_changes" in query
        for *_, step in file.execute(f"EXPLAIN QUERY PLAN {query}")
    ]
    file.close()
    assert any("INDEX price_keys_of_gpu (gpu=?)" in step for step in plans), plans
    assert sum("SEARCH price_changes USING PRIMARY KEY" in step for step in plans) == 2
    assert not any("SCAN price_changes" in step for step in plans)


def test_a_price_has_the_day_of_its_list_and_its_doubts_of_then():
    words = ("stale", "form not stated")
    doubted = offer(price=1.0, doubts=tuple(doubt_kinds()[word] for word in words))
    imported = past(5.0, at=MONDAY, as_of="", provider="aws", doubts=("bid floor",))
    with PriceStore() as store:
        store.add_past([imported])
        store.replace(prices(doubted, as_of="2025-01-02"), Validators())
        store.replace(prices(as_of="2026-11-13", fetched_at=FRIDAY), Validators())
        assert list(store.past()) == [
            imported,
            past(1.0, as_of="2025-01-02", doubts=words),
            past(None, at=FRIDAY, as_of="2026-11-13"),
        ]
        assert past(1.0, as_of="2025-01-02", doubts=words) in store.prices_at(TUESDAY)


def test_an_offer_without_any_price_is_no_history():
    with PriceStore() as store:
        store.replace(prices(offer(price=None)), Validators())
        assert list(store.past()) == []


# --- a file that cannot be used ---


def kept(*offers: Offer) -> Path:
    with PriceStore() as store:
        store.replace(prices(*(offers or (offer(),))), Validators(), attempt())
    return store.path


def failure(store: PriceStore) -> PriceStoreFailed:
    with store, pytest.raises(PriceStoreFailed) as raised:
        store.current()
    return raised.value


def garbage(path: Path) -> None:
    path.write_bytes(b"<html>404</html>" * 500)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path: Path) -> None:
    """Every page but the first is noise: the head still says that all is well."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def foreign(path: Path) -> None:
    path.unlink()
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE photos (id)")
    file.close()


def half_a_blob(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE provider_prices SET data = substr(data, 1, 20)")
        file.commit()


@pytest.mark.parametrize("damage", [garbage, truncated, overwritten, foreign, half_a_blob])
def test_a_damaged_file_is_said(damage):
    path = kept()
    damage(path)
    error = failure(PriceStore())
    assert f"{path} is damaged" in error.what
    assert "outlay prices refresh" in error.fix
    assert path.exists()


@pytest.mark.parametrize("damage", [garbage, truncated, overwritten, foreign])
def test_a_damaged_file_is_put_aside_and_never_deleted(damage):
    for name in ("prices-damaged.sqlite", "prices-damaged-2.sqlite"):
        path = kept()
        damage(path)
        data = path.read_bytes()
        journal = path.with_name("prices.sqlite-journal")
        journal.write_bytes(b"of the damaged file")
        with PriceStore() as store:
            aside = store.put_damaged_aside()
            assert aside == path.with_name(name)
            assert aside.read_bytes() == data
            assert not path.exists()
            assert not journal.exists()  # it would be played back into the new file
            store.replace(prices(offer()), Validators())
            assert len(store.current()) == 1
        path.unlink()
    assert (path.parent / "prices-damaged.sqlite").exists()


def test_a_whole_file_stays_where_it_is():
    kept()
    with PriceStore() as store:
        assert store.put_damaged_aside() is None
        assert len(store.current()) == 1


def test_a_file_of_a_later_version_is_left_alone():
    path = kept()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 2")
    data = path.read_bytes()
    error = failure(PriceStore())
    assert "later outlay (tables of version 2)" in error.what
    assert "Update outlay" in error.fix
    for act in (
        lambda store: store.put_damaged_aside(),
        lambda store: store.replace(prices(offer(price=9.0)), Validators()),
    ):
        with PriceStore() as store, pytest.raises(PriceStoreFailed, match="later outlay"):
            act(store)
    assert path.read_bytes() == data


def test_an_empty_file_is_a_new_one(own_folder):
    own_folder.mkdir()
    (own_folder / "prices.sqlite").touch()
    with PriceStore() as store:
        assert store.current() == []
        assert store.put_damaged_aside() is None
        store.replace(prices(offer()), Validators())
        assert len(store.current()) == 1


def test_a_folder_that_is_a_file(own_folder):
    own_folder.write_text("not a folder")
    with PriceStore() as store, pytest.raises(PriceStoreFailed, match="OUTLAY_DATA"):
        store.note(attempt())


@contextlib.contextmanager
def forbidden_folder() -> Iterator[Path]:
    """A folder with prices in which one may only read, for root as well (who becomes nobody)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        with PriceStore(folder / "prices.sqlite") as store:
            store.replace(prices(offer()), Validators())
        (folder / "prices.sqlite").chmod(0o444)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_prices_in_a_folder_that_may_only_be_read():
    with forbidden_folder() as folder, PriceStore(folder / "prices.sqlite") as store:
        assert store.current() == [prices(offer())]
        with pytest.raises(PriceStoreFailed, match="OUTLAY_DATA to a folder that you may write"):
            store.replace(prices(offer(price=9.0)), Validators())
        assert store.current() == [prices(offer())]
        new = PriceStore(folder / "new" / "prices.sqlite")
        with new, pytest.raises(PriceStoreFailed, match="cannot be used"):
            new.note(attempt())


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of 192 KiB, if one may be made."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing(own_folder):
    many = prices(
        *(offer(f"box-{number}", price=1 / (number + 1)) for number in range(4000)),
        fetched_at=FRIDAY,
    )
    with small_disk(own_folder) as is_small:
        kept()
        with PriceStore() as store:
            if not is_small:
                store._opened_to_write().execute("PRAGMA max_page_count = 40")
            with pytest.raises(PriceStoreFailed, match="disk is full") as raised:
                store.replace(many, Validators(), attempt(at=FRIDAY))
            assert "last good prices are still there" in raised.value.why
            assert store.current() == [prices(offer())]
        with PriceStore() as store:
            assert store.put_damaged_aside() is None
            assert store.current() == [prices(offer())]
            assert [one.at for one in store.attempts()] == [TUESDAY]
            store.replace(prices(offer(price=3.0), fetched_at=FRIDAY), Validators())


# --- several at once ---


def test_a_reader_sees_the_last_commit_and_does_not_wait_for_the_next():
    kept()
    many = prices(*(offer(f"box-{n}", price=1 / (n + 1)) for n in range(3000)), fetched_at=FRIDAY)
    with PriceStore() as writer, PriceStore() as reader:
        with contextlib.suppress(RuntimeError), writer._transaction() as file:
            price_store._record_changes(file, many)
            file.execute("DELETE FROM provider_prices")
            started_s = time.perf_counter()
            assert reader.current() == [prices(offer())]
            assert len(list(reader.past())) == 1
            assert time.perf_counter() - started_s < 0.5
            raise RuntimeError  # nothing of it is written
        assert reader.current() == [prices(offer())]
        writer.replace(many, Validators())
        assert reader.current() == [many]


def test_a_second_writer_waits_with_a_bound_and_says_so():
    kept()
    with PriceStore() as first, PriceStore(write_wait_s=0.2) as second, first._transaction():
        started_s = time.perf_counter()
        with pytest.raises(PriceStoreFailed, match="another refresh is writing"):
            second.note(attempt())
        assert 0.15 < time.perf_counter() - started_s < 3


def test_a_history_that_is_half_read_holds_nobody_up():
    kept(offer("a"), offer("b"))
    with PriceStore() as reader, PriceStore(write_wait_s=0.2) as writer:
        changes = reader.past()
        next(changes)
        writer.replace(prices(offer(), fetched_at=FRIDAY), Validators())
        assert len(list(changes)) == 1


def test_killed_at_any_moment_old_prices_or_new_ones_are_whole(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "kill", str(tmp_path), "30"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 30
    assert report["broken"] == []
    # They were killed at work and not before: some while they wrote, some after they had.
    assert report["journals"] + report["refreshes"] > 5


def test_two_refreshes_at_once_do_no_harm(tmp_path):
    command = [sys.executable, str(SCRIPT), "loop", str(tmp_path), "6"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    both = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    with PriceStore(tmp_path / "prices.sqlite") as store:
        lists: list[ProviderPrices] = store.current()
        assert [one.provider for one in lists] == ["aws", "gcp", "lambda"]
        for one in lists:
            assert len({offer.price_usd_per_hour for offer in one.offers}) == 1
    with contextlib.closing(sqlite3.connect(store.path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        # 2 processes, 6 refreshes, 3 providers
        assert file.execute("SELECT count(*) FROM attempts").fetchone() == (36,)
