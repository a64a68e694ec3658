"""The prices that a command works with: of each provider the newest good ones."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.prices.stand_in import (
    StandIn,
    folder_in_memory,
    offer,
    prices,
    rows,
    stand_in_for_others,
)

from outlay.files import data_folder
from outlay.offers.catalog import doubt_kinds, snapshot_date, snapshot_offers
from outlay.offers.expected_price import SpotMarket
from outlay.offers.offer import Offer, ZoneQuote
from outlay.offers.price_book import PriceBook, bundled_book
from outlay.prices import books
from outlay.prices.books import chosen_lists, current_prices, keep_book
from outlay.prices.price_store import PriceStore
from outlay.prices.refresh import refresh_prices
from outlay.prices.sources import ProviderPrices, Validators
from outlay.report.text import is_old, prices_in_words

TODAY = "2026-11-17"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_in_memory() as folder:
        monkeypatch.setenv("OUTLAY_DATA", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_others(monkeypatch.setattr)


def no_warning(message: str) -> None:
    raise AssertionError(message)


def keep(*lists: ProviderPrices) -> None:
    with PriceStore() as store:
        for one in lists:
            store.replace(one, Validators())


def listed(book: PriceBook, provider: str) -> list[Offer]:
    return [one for one in book.listed if one.provider == provider]


# --- which list ---


def of(source: str, as_of: str, provider: str = "lambda", price: float = 2.0) -> ProviderPrices:
    box = offer(provider=provider, price=price, as_of=as_of)
    return prices(box, source=source, provider=provider, as_of=as_of)


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        # the newest
        ({"skypilot": "2026-10-01", "gpuhunt": "2026-11-10"}, "gpuhunt"),
        # within a week, the preferred one
        ({"skypilot": "2026-11-03", "gpuhunt": "2026-11-10"}, "skypilot"),
        ({"skypilot": "2026-11-02", "gpuhunt": "2026-11-10"}, "gpuhunt"),
        ({"skypilot": "2026-11-10", "gpuhunt": "2026-11-10", "vast": "2026-11-09"}, "vast"),
        ({"gpuhunt": "2026-11-10", "a new source": "2026-11-10"}, "gpuhunt"),
        # lambda's bundled offers are of 2026-07-23
        ({"skypilot": "2026-07-23"}, "skypilot"),
        ({"skypilot": "2026-07-22"}, None),
    ],
)
def test_the_newest_list_or_the_preferred_of_those_as_new(lists, chosen):
    assert {one.as_of for one in snapshot_offers() if one.provider == "lambda"} == {"2026-07-23"}
    found, second = chosen_lists([of(source, as_of) for source, as_of in lists.items()])
    assert [one.source for one in found.values()] == ([] if chosen is None else [chosen])
    assert {one.source for one in second["lambda"]} == set(lists) - {chosen}


def test_a_list_of_unknown_gpus_takes_no_provider_away():
    good = of("skypilot", "2026-11-01")
    strange = replace(good, source="gpuhunt", as_of="2026-11-16", offers=(), unknown=good.offers)
    found, second = chosen_lists([good, strange])
    assert found == {good.provider: good}
    assert second == {good.provider: [strange]}
    # Nothing else was refreshed: the bundled offers stay.
    assert good.provider in {offer.provider for offer in snapshot_offers()}
    assert chosen_lists([strange]) == ({}, {good.provider: [strange]})


def test_a_list_without_offers_is_no_list():
    empty = replace(of("skypilot", "2026-11-10"), offers=())
    assert chosen_lists([empty]) == ({}, {})


# --- the book ---


def test_nothing_refreshed_is_the_snapshot():
    assert current_prices(TODAY, no_warning) is bundled_book()


def test_refreshed_providers_are_new_and_all_others_bundled():
    keep(of("skypilot", "2026-11-10", price=2.5), of("gpuhunt", "2026-11-16", provider="vultr"))
    book = current_prices(TODAY, no_warning)
    assert (book.kind, book.as_of) == ("refreshed", "2026-11-16")
    assert [one.price_usd_per_hour for one in listed(book, "lambda")] == [2.5]
    assert [one.instance for one in listed(book, "vultr")] == ["box"]
    snapshot = {one.identity: one for one in snapshot_offers() if one.provider != "lambda"}
    others = {one.identity: one for one in book.listed if one.provider in book.confirmed}
    others = {name: one for name, one in others.items() if name[0] not in ("lambda", "vultr")}
    assert others.keys() == snapshot.keys()
    for name, one in others.items():  # the same, but for what has become stale since
        known = {*snapshot[name].doubts, doubt_kinds()["stale"]}
        assert replace(one, doubts=()) == replace(snapshot[name], doubts=())
        assert set(one.doubts) <= known
    assert book.freshness["lambda"] == "2026-11-10"
    assert book.freshness["azure"] == "2024-08-19"
    assert book.confirmed["lambda"] == "2026-11-10"
    assert book.confirmed["azure"] == snapshot_date()
    assert "lambda" in {one.provider for one in book.offers_on(TODAY)}


def test_unknown_gpus_are_in_the_book_and_not_among_its_offers():
    odd = offer("odd", gpu="H900")
    keep(replace(of("skypilot", "2026-11-10"), unknown=(odd,)))
    book = current_prices(TODAY, no_warning)
    assert book.unknown == (odd,)
    assert odd not in book.listed


def test_other_sources_are_looked_at_for_doubts(monkeypatch):
    looked_at = {}

    def doubted(offers: tuple[Offer, ...], second: Any) -> tuple[Offer, ...]:
        looked_at.update(second)
        stale = doubt_kinds()["stale"]
        return tuple(replace(one, doubts=(stale,)) for one in offers if one.provider == "lambda")

    monkeypatch.setattr(books, "doubted_by_others", doubted)
    first, second = of("skypilot", "2026-11-10"), of("gpuhunt", "2026-11-10", price=9.0)
    keep(first, second)
    book = current_prices(TODAY, no_warning)
    assert looked_at == {"lambda": [second]}
    assert [one.doubts[0].word for one in book.listed] == ["stale"]


def test_lists_that_nobody_renews_judge_nobody(monkeypatch):
    judges: list[Offer] = []
    monkeypatch.setattr(books, "doubted_by_others", lambda offers, _: judges.extend(offers) or ())
    new, old = (
        prices(offer(provider=provider, as_of=day), source="skypilot", provider=provider, as_of=day)
        for provider, day in (("lambda", "2026-11-16"), ("newcloud", "2025-01-01"))
    )
    keep(new, old)
    current_prices(TODAY, no_warning)
    stale = {one.provider for one in judges if "stale" in {doubt.word for doubt in one.doubts}}
    assert "newcloud" in stale
    assert "lambda" not in stale


def test_what_a_refresh_put_together_is_read_as_it_was(monkeypatch):
    quote = ZoneQuote(
        zone="here-a",
        usd_per_hour=0.5,
        share=0.25,
        weeks=3,
        seen_first=None,
        mean_share=None,
        weekly_change=0.1,
    )
    market = SpotMarket({("lambda", "box", "here"): [quote]})
    monkeypatch.setattr(books, "_market", lambda *_: market)
    keep(replace(of("skypilot", "2026-11-10"), unknown=(offer("odd", gpu="H900"),)))
    direct = current_prices(TODAY, no_warning)  # which keeps it, too
    monkeypatch.setattr(books, "_merged", no_warning)  # not put together again
    book = current_prices(TODAY, no_warning)
    for name in ("name", "kind", "as_of", "listed", "freshness", "confirmed", "unknown"):
        assert getattr(book, name) == getattr(direct, name), name
    assert book.market is not None
    assert book.market.zones(offer()) == [quote]


def test_what_was_put_together_of_other_prices_is_put_together_anew(monkeypatch):
    keep(of("skypilot", "2026-11-10"))
    with PriceStore() as store:
        keep_book(store)
    keep(replace(of("skypilot", "2026-11-12", price=7.0), fetched_at="2026-11-12T08:00:00Z"))
    assert listed(current_prices(TODAY), "lambda")[0].price_usd_per_hour == 7.0
    with PriceStore() as store:
        keep_book(store)
    monkeypatch.setattr(books, "snapshot_date", lambda: "2026-12-01")
    assert current_prices(TODAY).confirmed["azure"] == "2026-12-01"


def test_a_refresh_leaves_a_book_behind():
    source = StandIn(name="gpuhunt", answers={"lambda": rows(2.5)})
    refresh_prices(now=f"{TODAY}T08:00:00Z", downloader=object(), known_sources=[source])
    with PriceStore() as store:
        assert store.derived("book") is not None
    book = current_prices(TODAY, no_warning)
    assert len(listed(book, "lambda")) == 3
    assert book.freshness["lambda"] == TODAY


def test_a_book_that_cannot_be_read_is_put_together_anew():
    keep(of("skypilot", "2026-11-10"))
    with PriceStore() as store:
        store.keep_derived("book", store.stamp(), b"noise")
    assert len(listed(current_prices(TODAY, no_warning), "lambda")) == 1
    with PriceStore() as store:
        assert store.derived("book") != b"noise"


def test_a_damaged_store_is_one_warning_and_the_snapshot(own_folder):
    own_folder.mkdir()
    (own_folder / "prices.sqlite").write_bytes(b"noise" * 1000)
    said: list[str] = []
    assert current_prices(TODAY, said.append) is bundled_book()
    [warning] = said
    assert "prices.sqlite is damaged" in warning
    assert "outlay prices refresh" in warning
    assert "bundled prices are used" in warning
    assert (own_folder / "prices.sqlite").exists()


def test_a_store_of_a_later_outlay_is_one_warning_and_the_snapshot():
    keep(of("skypilot", "2026-11-10"))
    with PriceStore() as store:
        file = sqlite3.connect(store.path)
        file.execute("PRAGMA user_version = 7")
        file.close()
    said: list[str] = []
    assert current_prices(TODAY, said.append) is bundled_book()
    assert len(said) == 1


def test_refreshed_prices_are_read_as_fast_as_bundled_ones():
    many = [
        replace(one, provider="cloud", region=f"{one.region}-{number}")
        for number in range(2)
        for one in snapshot_offers()
    ]
    keep(prices(*many, provider="cloud"), of("gpuhunt", "2026-11-10"))
    with PriceStore() as store:
        keep_book(store)
    current_prices(TODAY)  # what is read once for all
    started_s = time.process_time()
    book = current_prices(TODAY, no_warning)
    taken_s = time.process_time() - started_s
    assert len(book.listed) > 3 * 2300  # the snapshot has 2,419, and goes on beside them
    assert taken_s < 1.0  # tools/bench.py has the bound for a machine that does nothing else


# --- lists of one's own ---


def own_prices(
    monkeypatch: pytest.MonkeyPatch, own: tuple[Offer, ...] = (), fraction: float = 0.0
) -> None:
    """Own offers, and a discount on everything."""

    def discounted(offers: tuple[Offer, ...], today: str) -> tuple[Offer, ...]:
        assert today == TODAY
        if not fraction:
            return offers
        return tuple(
            replace(one, price_usd_per_hour=one.price_usd_per_hour * (1 - fraction))
            if one.price_usd_per_hour is not None
            else one
            for one in offers
        )

    (data_folder() / "price_lists").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr("outlay.prices.own_lists.own_offers", lambda _: own)
    monkeypatch.setattr("outlay.prices.own_lists.discounted", discounted)


def test_ones_own_list_goes_first_and_discounts_come_off(monkeypatch):
    mine = offer(price=1.0, as_of="2026-11-15")
    keep(of("skypilot", "2026-11-10", price=2.5))
    own_prices(monkeypatch, (mine,), 0.1)
    book = current_prices(TODAY, no_warning)
    assert [one.price_usd_per_hour for one in listed(book, "lambda")] == [0.9]  # 1.00 less 10 %
    assert book.freshness["lambda"] == "2026-11-10"  # of its other machines
    assert book.name == "refreshed prices, the newest of 2026-11-10, with your own price lists"


def test_ones_own_lists_come_off_the_snapshot_too(monkeypatch):
    own_prices(monkeypatch)
    assert current_prices(TODAY, no_warning) is bundled_book()
    own_prices(monkeypatch, fraction=0.5)
    book = current_prices(TODAY, no_warning)
    assert book.kind == "refreshed"
    assert book.as_of == snapshot_date()
    first = snapshot_offers()[0]
    assert book.listed[0].price_usd_per_hour == 0.5 * (first.price_usd_per_hour or 0.0)
    assert set(book.freshness) == {one.provider for one in snapshot_offers()}


def test_a_quote_makes_no_list_older_and_is_not_old_itself(monkeypatch):
    mine = replace(offer(price=1.0, as_of="2026-10-01"), provider="acme", in_own_list=True)
    own_prices(monkeypatch, (replace(mine, as_of=TODAY),))
    book = current_prices(TODAY, no_warning)
    assert book.as_of == snapshot_date()
    later = "2026-12-01"  # 101 days after the snapshot, all of which would have fallen behind
    words = [{doubt.word for doubt in one.doubts} for one in book.offers_on(later)]
    assert sum("stale" in found for found in words) < len(words) / 2
    own_prices(monkeypatch, (mine,))
    keep(of("skypilot", TODAY))
    assert "acme" in current_prices(TODAY, no_warning).freshness
    words = prices_in_words(current_prices(TODAY, no_warning), TODAY)
    assert words.endswith("`outlay prices refresh` renews them")  # the snapshot's providers
    assert not is_old(current_prices(TODAY, no_warning), mine, "on-demand", TODAY)


# --- in words ---


def book_of(freshness: dict[str, str], confirmed: dict[str, str] | None = None) -> PriceBook:
    return PriceBook(
        name="refreshed prices",
        kind="refreshed",
        as_of=max(freshness.values()),
        listed=(),
        freshness=freshness,
        confirmed=confirmed or dict.fromkeys(freshness, TODAY),
    )


@pytest.mark.parametrize(
    ("book", "words"),
    [
        (book_of({"aws": TODAY, "gcp": TODAY}), "2 providers refreshed today"),
        (
            book_of({"aws": TODAY, "gcp": "2026-11-16", "azure": "2024-08-19"}),
            "2 providers refreshed today, 1 with an older list: azure 2024-08-19",
        ),
        (
            book_of({"aws": TODAY} | {f"cloud{n}": f"2026-0{n}-01" for n in range(1, 6)}),
            (
                "1 provider refreshed today, 5 with older lists: cloud1 2026-01-01, "
                "cloud2 2026-02-01, cloud3 2026-03-01 and 2 more"
            ),
        ),
        (
            book_of({"aws": "2026-11-12"}, {"aws": "2026-11-12"}),
            "1 provider of the last 14 days",
        ),
        (
            book_of({"aws": TODAY, "ibm": "2026-08-22"}, {"aws": TODAY, "ibm": "2026-08-22"}),
            (
                "1 provider refreshed today, 1 with an older list: ibm 2026-08-22: "
                "`outlay prices refresh` renews them"
            ),
        ),
        (
            book_of({"aws": "2026-10-01"}, {"aws": "2026-10-01"}),
            "refreshed prices, 47 days old: `outlay prices refresh` renews them",
        ),
        (book_of({"aws": "2026-10-01"}), "refreshed prices, 47 days old"),  # asked for today
    ],
)
def test_how_old_prices_are_in_words(book, words):
    assert prices_in_words(book, TODAY) == words


def test_a_price_is_old_where_nobody_has_asked_for_long():
    box = offer(as_of="2026-07-01")
    asked = book_of({"lambda": "2026-07-01"}, {"lambda": "2026-11-03"})
    assert not is_old(asked, box, "on-demand", TODAY)  # asked 14 days ago, and it had not changed
    assert is_old(asked, box, "on-demand", "2026-11-18")
    assert not is_old(asked, replace(box, as_of="2026-11-15"), "on-demand", "2026-11-18")
