"""Refreshing: each source and provider on its own, the last good prices stay, days are honest."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.prices.stand_in import (
    StandIn,
    folder_in_memory,
    offer,
    prices,
    rows,
    stand_in_for_others,
)

from outlay.errors import InputError, MissingCredentials, NotKnown, PriceStoreFailed, ProviderError
from outlay.offers.catalog import snapshot_offers
from outlay.prices import checks, price_store, refresh
from outlay.prices.price_store import Attempt, PriceStore
from outlay.prices.refresh import RefreshInterrupted, day_of_prices, refresh_prices
from outlay.prices.sources import Reply, Validators

TUESDAY, FRIDAY = "2026-11-10T08:00:00Z", "2026-11-13T08:00:00Z"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_in_memory() as folder:
        monkeypatch.setenv("OUTLAY_DATA", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_others(monkeypatch.setattr)


def refreshed(*sources: StandIn, now: str = TUESDAY, **more: Any) -> list[Attempt]:
    return refresh_prices(now=now, downloader=object(), known_sources=sources, **more)


def states(attempts: list[Attempt]) -> dict[str, tuple[str, int, str | None]]:
    return {one.provider: (one.state, one.offers, one.as_of) for one in attempts}


def kept_prices() -> dict[tuple[str, str], float | None]:
    """The price of the first offer of each list that is kept."""
    with PriceStore() as store:
        return {
            (one.source, one.provider): one.offers[0].price_usd_per_hour for one in store.current()
        }


# --- how asking ends ---


def test_new_prices_are_fresh_and_the_same_ones_unchanged():
    source = StandIn(answers={"lambda": rows(2.0), "aws": rows(3.0, 5)})
    assert states(refreshed(source)) == {
        "lambda": ("fresh", 3, "2026-11-10"),
        "aws": ("fresh", 5, "2026-11-10"),
    }
    source.answers["aws"] = rows(3.5, 5)
    assert states(refreshed(source, now=FRIDAY)) == {
        "lambda": ("unchanged", 3, "2026-11-10"),  # 304
        "aws": ("fresh", 5, "2026-11-13"),
    }
    with PriceStore() as store:
        assert [(one.provider, one.fetched_at) for one in store.current()] == [
            ("aws", FRIDAY),
            ("lambda", FRIDAY),  # confirmed
        ]
        assert store.refresh_days("stand-in", "lambda") == ["2026-11-10", "2026-11-13"]
        assert len(store.attempts()) == 2


def test_the_same_list_without_an_etag_is_unchanged_and_keeps_its_doubts(monkeypatch):
    monkeypatch.setattr(refresh, "doubted_by_past", checks.doubted_by_past)
    source = StandIn(answers={"lambda": rows(2.0)}, has_etag=False)
    refreshed(source)
    dear = [{**row, "price": 100.0} if n == 0 else row for n, row in enumerate(rows(2.0))]
    source.answers["lambda"] = dear
    for state, now in (("fresh", TUESDAY), ("unchanged", FRIDAY), ("unchanged", FRIDAY)):
        assert states(refreshed(source, now=now)) == {"lambda": (state, 3, "2026-11-10")}
        assert [words for words in kept_doubts() if words] == [["outlier"]]
    refreshed(source, now=FRIDAY, accept=True)
    assert not any(kept_doubts())


def kept_doubts() -> list[list[str]]:
    with PriceStore() as store:
        [kept] = store.current()
    return [[doubt.word for doubt in offer.doubts] for offer in kept.offers]


def test_what_else_a_list_says_of_a_machine_is_kept_though_no_price_changed():
    source = StandIn(answers={"lambda": rows(2.0)}, has_etag=False)
    refreshed(source)
    source.answers["lambda"] = [{**row, "vcpus": 7.0} for row in rows(2.0)]
    assert states(refreshed(source, now=FRIDAY)) == {"lambda": ("unchanged", 3, "2026-11-10")}
    with PriceStore() as store:
        [kept] = store.current()
        assert {offer.vcpus for offer in kept.offers} == {7.0}
        assert len(list(store.past())) == 3


def test_what_another_version_kept_is_read_again(monkeypatch):
    source = StandIn(answers={"lambda": rows(2.0)})
    refreshed(source)
    monkeypatch.setattr(price_store, "_made_by", lambda: "99.0")
    assert states(refreshed(source, now=FRIDAY)) == {"lambda": ("unchanged", 3, "2026-11-10")}
    assert [known for _, known in source.asked] == [None, None]
    refreshed(source, now=FRIDAY)
    assert source.asked[-1][1] is not None


FAILURES = {
    "known": ProviderError("https://x.example gave no prices.", why="It has trouble (500)."),
    "bug": KeyError("price"),
    "deep": RecursionError("too deep"),
    "key": MissingCredentials("Lambda needs a key.", fix="Set LAMBDA_API_KEY."),
    "no bytes": b"<html>",
    "half": rows(9.0, 1),
}


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        ("known", "kept", "https://x.example gave no prices. It has trouble (500)."),
        ("bug", "kept", "Reading it failed inside outlay: KeyError: 'price'"),
        ("deep", "kept", "Reading it failed inside outlay: RecursionError: too deep"),
        ("key", "kept", "Lambda needs a key. Set LAMBDA_API_KEY."),
        ("no bytes", "refused", "It is no list of prices."),
        ("half", "refused", "1 of 3 machines are left."),
    ],
)
def test_a_failure_hurts_nobody_else_and_the_last_good_prices_stay(kind, state, reason):
    source = StandIn(answers={"lambda": rows(2.0), "aws": rows(3.0)})
    refreshed(source)
    source.answers = {"lambda": FAILURES[kind], "aws": rows(3.5)}
    attempts = {one.provider: one for one in refreshed(source, now=FRIDAY)}
    assert states(list(attempts.values())) == {
        "lambda": (state, 3, "2026-11-10"),
        "aws": ("fresh", 3, "2026-11-13"),
    }
    assert attempts["lambda"].reason == reason
    assert attempts["lambda"].missing_key == ("LAMBDA_API_KEY" if kind == "key" else "")
    assert kept_prices() == {("stand-in", "lambda"): 2.0, ("stand-in", "aws"): 3.5}
    with PriceStore() as store:
        assert {one.provider: one for one in store.attempts()} == attempts
        assert store.refresh_days("stand-in", "lambda") == ["2026-11-10"]


def test_a_failure_where_nothing_was_kept_keeps_nothing():
    source = StandIn(answers={"lambda": FAILURES["known"]})
    assert states(refreshed(source)) == {"lambda": ("kept", 0, None)}
    assert kept_prices() == {}


def test_reasons_are_one_line_without_secrets_or_control_characters():
    error = RuntimeError(
        "GET https://me:pass@host/x?api_key=SECRET failed\n\x1b[31mred\x07 " + 500 * "x"
    )
    [attempt] = refreshed(StandIn(answers={"lambda": error}))
    assert attempt.reason is not None
    assert attempt.reason.startswith(
        "Reading it failed inside outlay: RuntimeError: GET https://...host/x?... failed [31mred"
    )
    assert len(attempt.reason) <= 400
    assert attempt.reason.isprintable()


@given(st.text())
def test_any_reason_can_be_shown(text):
    reason = refresh._plain(text)
    assert reason.isprintable()
    assert len(reason) <= 400


def test_accept_takes_what_was_refused_but_not_what_cannot_be_read():
    source = StandIn(answers={"lambda": rows(2.0), "aws": rows(2.0)})
    refreshed(source)
    source.answers = {"lambda": rows(9.0, 1), "aws": b"<html>"}
    attempts = refreshed(source, now=FRIDAY, accept=True)
    assert states(attempts) == {
        "lambda": ("fresh", 1, "2026-11-13"),
        "aws": ("refused", 3, "2026-11-10"),
    }
    assert kept_prices()["stand-in", "lambda"] == 9.0


def test_an_empty_list_is_refused():
    for accept in (False, True):
        [attempt] = refreshed(StandIn(answers={"lambda": []}), accept=accept)
        assert (attempt.state, attempt.reason) == ("refused", "It lists no machine with a GPU.")


def test_the_first_list_of_another_source_is_held_against_the_bundled_machines(monkeypatch):
    monkeypatch.setattr(refresh, "doubted_by_past", checks.doubted_by_past)
    monkeypatch.setattr(refresh, "refusal", checks.refusal)
    monkeypatch.setattr(refresh, "same_machines", checks.same_machines)
    l4 = next(o for o in snapshot_offers() if o.identity == ("gcp", "g2-standard-4", "us-east1"))
    row = {"instance": "L4 by another name", "region": "us-east1", "gpu": "L4", "vcpus": 4.0}
    assert (l4.gpu, l4.gpus, l4.vcpus) == ("L4", 1, 4.0)
    monkeypatch.setattr(refresh, "_bundled_by_provider", lambda: {"gcp": [l4]})
    usd = (l4.price_usd_per_hour or 0.0) / 100
    dear = [{**row, "price": usd}, {"instance": "other", "gpus": 8, "price": 20.0}]
    source = StandIn(name="gpuhunt", answers={"gcp": dear})
    assert states(refreshed(source))["gcp"][0] == "fresh"
    assert kept_doubts() == [["outlier"], []]
    refreshed(source, now=FRIDAY, accept=True)
    assert kept_doubts() == [[], []]


def test_what_is_accepted_is_held_against_nothing(monkeypatch):
    held_against = []

    def doubted(offers, before):
        held_against.append(len(before))
        return tuple(offers)

    monkeypatch.setattr(refresh, "doubted_by_past", doubted)
    source = StandIn(answers={"lambda": rows(2.0)})
    refreshed(source)
    for price, accept in ((3.0, False), (9.0, True)):
        source.answers["lambda"] = rows(price)
        refreshed(source, now=FRIDAY, accept=accept)
    # Three offers were kept before; what the user takes is good.
    assert held_against[-2:] == [3, 0]


def test_not_changed_since_nothing_is_no_answer():
    class Says304(StandIn):
        def ask(self, *_: object) -> None:
            return None

    [attempt] = refreshed(Says304(answers={"lambda": []}))
    assert (attempt.state, attempt.offers) == ("kept", 0)
    assert "nothing is kept" in (attempt.reason or "")


def test_unknown_gpus_new_providers_and_bad_rows_are_named_and_kept():
    odd = [*rows(2.0), {"instance": "new", "gpu": "H900", "price": 9.0}, "no row"]
    [attempt] = refreshed(StandIn(answers={"brandnew": odd}))
    assert attempt.unknown_gpus == ("H900",)
    assert attempt.is_new_provider
    assert attempt.notes == ("1 of 5 rows could not be read: line 4: 'no row'",)
    with PriceStore() as store:
        [one] = store.current()
        assert [o.gpu for o in one.unknown] == ["H900"]
        assert one.notes == attempt.notes
        assert [change.gpu for change in store.past(["H900"])] == ["H900"]


def test_a_list_of_unknown_gpus_alone_is_kept():
    [attempt] = refreshed(StandIn(answers={"lambda": [{"instance": "new", "gpu": "H900"}]}))
    assert (attempt.state, attempt.offers) == ("fresh", 0)
    assert attempt.unknown_gpus == ("H900",)


def test_a_source_that_cannot_say_whom_it_has():
    class Broken(StandIn):
        def providers(self) -> tuple[str, ...]:
            raise OSError("no list of providers")

    attempts = refreshed(Broken(name="broken"), StandIn(answers={"lambda": rows(2.0)}))
    assert states(attempts) == {
        "all": ("kept", 0, None),
        "lambda": ("fresh", 3, "2026-11-10"),
    }


def test_what_is_asked_for_besides_offers_fails_by_itself(monkeypatch):
    def fails(downloader: object, now: str) -> Attempt:
        raise KeyError("rate")

    monkeypatch.setattr(refresh, "all_besides", lambda: {"rates": fails})
    source = StandIn(answers={"lambda": rows(2.0)})
    assert [one.source for one in refreshed(source)] == ["stand-in"]  # named ones alone
    [attempt] = refreshed(source, sources=["rates"])
    assert (attempt.source, attempt.state) == ("rates", "kept")
    assert attempt.reason == "Reading it failed inside outlay: KeyError: 'rate'"


def test_exchange_rates_come_first(monkeypatch):
    order = []

    def rates(downloader: object, now: str) -> Attempt:
        time.sleep(0.2)
        order.append("rates")
        raise ProviderError("No rates today.")

    monkeypatch.setattr(refresh, "all_besides", lambda: {"rates": rates})
    source = StandIn(answers={"lambda": lambda: order.append("lambda") or rows(2.0)})
    refreshed(source, sources=["stand-in", "rates"])
    assert order == ["rates", "lambda"]


def test_nobody_waits_long_for_what_is_asked_besides(monkeypatch):
    gate = threading.Event()

    def hangs(*_: object) -> Attempt:
        gate.wait(60)
        raise ProviderError("Too late.")

    monkeypatch.setattr(refresh, "all_besides", lambda: {"rates": hangs, "spot-advisor": hangs})
    monkeypatch.setattr(refresh, "ANSWER_S", 0.3)
    monkeypatch.setattr(refresh, "_RATES_S", 0.2)
    source = StandIn(answers={"lambda": rows(2.0)})
    source.new_providers = hangs  # the list of all clouds hangs, too
    started_s = time.monotonic()
    attempts = refreshed(source, sources=["stand-in", "rates", "spot-advisor"])
    gate.set()
    assert time.monotonic() - started_s < 5
    assert [(one.source, one.state, one.reason) for one in attempts] == [
        ("stand-in", "fresh", None),
        ("rates", "kept", "No answer within 0 s."),
        ("spot-advisor", "kept", "No answer within 0 s."),
    ]


def test_the_same_file_at_another_exchange_rate_keeps_its_day():
    class Converted(StandIn):
        usd_per_eur = 1.1

        def ask(self, provider: str, downloader: Any, known: Validators | None) -> Reply:
            price_usd = 2.0 * self.usd_per_eur
            reply = super().ask(provider, downloader, None)
            return replace(reply, data=json.dumps(rows(price_usd)).encode(), is_same=bool(known))

    source = Converted(answers={"lambda": rows(2.0)})
    assert states(refreshed(source)) == {"lambda": ("fresh", 3, "2026-11-10")}
    source.usd_per_eur = 1.2
    assert states(refreshed(source, now=FRIDAY)) == {"lambda": ("fresh", 3, "2026-11-10")}
    # 2.00 EUR at 1.2 USD
    assert kept_prices() == {("stand-in", "lambda"): pytest.approx(2.4)}


def test_a_refresh_that_was_overtaken_keeps_the_newer_prices():
    source = StandIn(answers={"lambda": rows(2.0)})
    later = StandIn(answers={"lambda": rows(5.0)})

    def overtaken() -> list[dict[str, Any]]:
        refreshed(later, now=FRIDAY)
        return rows(2.0)

    source.answers["lambda"] = overtaken
    [attempt] = refreshed(source)
    assert attempt.state == "unchanged"
    assert "newer prices meanwhile" in (attempt.reason or "")
    assert kept_prices() == {("stand-in", "lambda"): 5.0}


# --- at the same time, and for how long ---


def test_sources_are_asked_at_the_same_time_and_not_all_at_once(monkeypatch):
    monkeypatch.setattr(refresh, "AT_ONCE", 3)
    busy, most, lock = [0], [0], threading.Lock()

    def slow() -> list[dict[str, Any]]:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.05)
        with lock:
            busy[0] -= 1
        return rows(2.0)

    source = StandIn(answers={f"cloud{n}": slow for n in range(9)})
    attempts = refreshed(source)
    assert [one.provider for one in attempts] == [f"cloud{n}" for n in range(9)]
    assert most[0] == 3


def test_a_source_that_hangs_is_left(monkeypatch):
    monkeypatch.setattr(refresh, "ANSWER_S", 0.3)
    monkeypatch.setattr(refresh, "_SAY_S", 0.1)
    monkeypatch.setattr(refresh, "_LOOK_S", 0.02)
    ended, said = threading.Event(), []

    def hangs() -> None:
        ended.wait(10)

    source = StandIn(answers={"lambda": hangs, "aws": rows(3.0)})
    started_s = time.perf_counter()
    attempts = {
        one.provider: one for one in refreshed(source, progress=lambda what, *_: said.append(what))
    }
    assert time.perf_counter() - started_s < 3
    ended.set()
    assert attempts["aws"].state == "fresh"
    assert attempts["lambda"].state == "kept"
    assert attempts["lambda"].reason == "No answer within 0 s."
    assert "Waiting for stand-in lambda" in said
    assert "stand-in aws: fresh, 3 offers (1 of 2)" in said


def test_interrupted_by_the_user_what_was_done_is_kept():
    done = threading.Event()

    def interrupts() -> None:
        done.wait(5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

    def said(*_: object) -> None:
        done.set()

    source = StandIn(answers={"aws": rows(3.0), "lambda": interrupts})
    with pytest.raises(RefreshInterrupted) as raised:
        refreshed(source, progress=said)
    assert [one.provider for one in raised.value.done] == ["aws"]
    assert raised.value.asked == 2
    assert isinstance(raised.value, KeyboardInterrupt)
    assert kept_prices() == {("stand-in", "aws"): 3.0}


def test_a_store_that_cannot_be_written_ends_the_refresh(own_folder):
    own_folder.write_text("a file")
    with pytest.raises(PriceStoreFailed):
        refreshed(StandIn(answers={"lambda": rows(2.0)}))


def test_a_damaged_store_is_put_aside_and_begun_anew(own_folder):
    own_folder.mkdir()
    (own_folder / "prices.sqlite").write_bytes(b"noise" * 1000)
    said: list[str] = []
    refreshed(StandIn(answers={"lambda": rows(2.0)}), progress=lambda what, *_: said.append(what))
    assert kept_prices() == {("stand-in", "lambda"): 2.0}
    assert (own_folder / "prices-damaged.sqlite").read_bytes() == b"noise" * 1000
    assert "put aside" in said[0]


# --- whom to ask ---


def two() -> tuple[StandIn, StandIn]:
    first = StandIn(name="skypilot", answers={"lambda": rows(2.0), "aws": rows(3.0)})
    return first, StandIn(name="gpuhunt", answers={"lambda": rows(2.1), "vultr": rows(1.0)})


def pairs(attempts: list[Attempt]) -> list[tuple[str, str]]:
    return [(one.source, one.provider) for one in attempts]


def test_all_of_all_in_the_order_of_sources():
    assert pairs(refreshed(*two())) == [
        ("skypilot", "lambda"), ("skypilot", "aws"), ("gpuhunt", "lambda"), ("gpuhunt", "vultr"),
    ]  # fmt: skip


def test_named_sources_and_providers_in_any_case():
    assert pairs(refreshed(*two(), sources=["SkyPilot"])) == [
        ("skypilot", "lambda"),
        ("skypilot", "aws"),
    ]
    assert pairs(refreshed(*two(), providers=["LAMBDA", "Amazon Web Services"])) == [
        ("skypilot", "lambda"),
        ("skypilot", "aws"),
        ("gpuhunt", "lambda"),
    ]
    assert pairs(refreshed(*two(), sources=["gpuhunt"], providers=["vultr"])) == [
        ("gpuhunt", "vultr")
    ]


def test_a_source_nobody_knows_is_named_with_the_nearest():
    with pytest.raises(NotKnown) as raised:
        refreshed(*two(), sources=["skypilt"])
    assert raised.value.suggestions == ("skypilot",)


def test_a_provider_nobody_knows_is_named_with_the_nearest():
    with pytest.raises(NotKnown) as raised:
        refreshed(*two(), providers=["lamda"])
    assert raised.value.suggestions == ("lambda",)


def test_a_provider_that_the_named_source_does_not_have():
    with pytest.raises(InputError, match="No prices of aws can be had from gpuhunt"):
        refreshed(two()[1], providers=["aws"])


def test_a_name_that_nobody_knows_is_asked_where_any_name_is_taken():
    first, second = two()
    first.takes_any_provider = True
    first.unlisted = ("newcloud",)
    first.answers["newcloud"] = rows(1.5)
    second.takes_any_provider = True  # answers 404
    [attempt] = refreshed(first, second, providers=["NewCloud"])
    assert (attempt.source, attempt.provider, attempt.state) == ("skypilot", "newcloud", "fresh")
    # from then on it is asked about without being named
    assert ("skypilot", "newcloud") in pairs(refreshed(first, second, now=FRIDAY))


def test_a_name_that_all_sources_answer_with_nothing_is_not_known():
    first, second = two()
    first.takes_any_provider = second.takes_any_provider = True
    second.unlisted = ("lamda",)
    second.answers["lamda"] = []
    with pytest.raises(NotKnown) as raised:
        refreshed(first, second, providers=["lamda", "aws"])
    assert "lambda" in raised.value.suggestions
    with PriceStore() as store:
        assert store.attempts() == []


def test_a_name_that_could_not_be_asked_about_is_not_known_and_says_why():
    first, second = two()
    first.takes_any_provider = second.takes_any_provider = True
    second.unlisted = ("newcloud",)
    second.answers["newcloud"] = FAILURES["known"]
    with pytest.raises(NotKnown, match="It has trouble"):
        refreshed(first, second, providers=["newcloud"])
    with PriceStore() as store:
        assert store.attempts() == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "-x", "a b", "x" * 65, "ä"])
def test_a_name_that_cannot_be_in_an_address_is_never_asked(name):
    source = StandIn(answers={"lambda": rows(2.0)}, takes_any_provider=True)
    with pytest.raises(NotKnown):
        refreshed(source, providers=[name])
    assert source.asked == []


# --- of which day ---


@dataclass(frozen=True)
class Day:
    """A day, and what says that prices are of it."""

    modified: str
    before: float | None
    bundled: float | None
    expected: str


# Fetched on 2026-11-13 at 2 dollars; the list before is of 2026-11-10, the snapshot of 2026-08-22.
DAYS = {
    "the source says so": Day("2026-11-12", 2.0, 2.0, "2026-11-12"),
    "the source says tomorrow": Day("2026-11-14", None, None, "2026-11-13"),
    "the source says nonsense": Day("yesterday", None, None, "2026-11-13"),
    "as in the list before": Day("", 2.0, None, "2026-11-10"),
    "other than in the list before": Day("", 2.5, 2.0, "2026-11-13"),
    "as in the snapshot": Day("", None, 2.0, "2026-08-22"),
    "as in the snapshot, which is rounded": Day("", None, 2.0004, "2026-08-22"),
    "other than in the snapshot": Day("", None, 2.1, "2026-11-13"),
    "seen for the first time": Day("", None, None, "2026-11-13"),
}


@pytest.mark.parametrize("case", DAYS)
def test_the_day_of_prices(case):
    day = DAYS[case]
    fetched = prices(offer(price=2.0), fetched_at=FRIDAY, as_of="2026-11-13")
    before = None if day.before is None else prices(offer(price=day.before))
    bundled = () if day.bundled is None else (offer(price=day.bundled, as_of="2026-08-22"),)
    found = day_of_prices(fetched, modified=day.modified, before=before, bundled=bundled)
    assert found == day.expected


def test_no_price_is_of_a_day_to_come():
    fetched = prices(offer(), fetched_at="2026-06-01T08:00:00Z", as_of="2026-06-01")
    bundled = (offer(as_of="2026-08-22"),)
    assert day_of_prices(fetched, bundled=bundled) == "2026-06-01"


def test_a_snapshot_of_later_is_not_what_was_there_before():
    source = StandIn(name="skypilot", answers={"lambda": rows(2.0)})  # 3 machines, bundled are 22
    assert states(refreshed(source))["lambda"][0] == "refused"
    assert states(refreshed(source, now="2026-06-01T08:00:00Z"))["lambda"][0] == "fresh"


def test_a_machine_more_or_one_less_is_a_renewed_list():
    one, other = offer("a"), offer("b")
    before = prices(one, other)
    for offers in ((one,), (one, other, offer("c"))):
        fetched = prices(*offers, fetched_at=FRIDAY, as_of="2026-11-13")
        assert day_of_prices(fetched, before=before) == "2026-11-13"


@pytest.mark.parametrize(
    ("changed", "last_day", "day"),
    [
        (2, "2026-05-16", "2026-05-16"),  # a tenth of 20 after 181 days
        (3, "2026-05-16", "2026-11-13"),  # more than a tenth
        (2, "2026-05-17", "2026-11-13"),  # after 180 days
    ],
)
def test_a_long_old_list_with_a_row_corrected_is_the_old_list(changed, last_day, day):
    old = [offer(f"box-{n}", as_of=last_day) for n in range(20)]
    before = prices(*old, as_of=last_day)
    new = [offer(f"box-{n}", 2.2 if n < changed else 2.0, as_of="2026-11-13") for n in range(20)]
    fetched = prices(*new, fetched_at=FRIDAY, as_of="2026-11-13")
    assert day_of_prices(fetched, before=before) == day
    assert day_of_prices(fetched, bundled=old) == day


def test_a_rate_of_exchange_that_moves_renews_no_price():
    # 2.6 * 1.1699 = 3.04174, 2.6 * 1.1172 = 2.90472; of other euros 2.7 * 1.1172 = 3.01644
    last = offer(price=3.0417, source="x: 2.6 EUR at 1.1699 USD of 2026-08-21", as_of="2026-10-10")
    same = offer(price=2.9047, source="x: 2.6 EUR at 1.1172 USD of 2026-10-30")
    other = offer(price=3.0164, source="x: 2.7 EUR at 1.1172 USD of 2026-10-30")
    for new, day in ((same, "2026-10-10"), (other, "2026-11-13")):
        fetched = prices(new, fetched_at=FRIDAY, as_of="2026-11-13")
        assert day_of_prices(fetched, before=prices(last, as_of="2026-10-10")) == day
        assert day_of_prices(fetched, bundled=[last]) == day


def test_of_a_long_old_list_only_what_was_corrected_is_of_today():
    source = StandIn(answers={"lambda": rows(2.0, 20)}, has_etag=False)
    refreshed(source, now="2026-01-02T08:00:00Z")
    source.answers["lambda"][7]["price"] = 2.5
    for now, state in ((TUESDAY, "fresh"), (FRIDAY, "unchanged")):
        assert states(refreshed(source, now=now)) == {"lambda": (state, 20, "2026-01-02")}
        with PriceStore() as store:
            [kept] = store.current()
        assert {one.instance: one.as_of for one in kept.offers} == {
            f"box-{n}": "2026-11-10" if n == 7 else "2026-01-02" for n in range(20)
        }


def test_a_list_that_nobody_renews_stays_as_old_as_the_snapshot():
    lambdas = [one for one in snapshot_offers() if one.provider == "lambda"]
    listed = [
        {
            "instance": one.instance,
            "region": one.region,
            "gpu": "L4",
            "gpus": one.gpus,
            "price": one.price_usd_per_hour,
            "spot": one.spot_usd_per_hour,
        }
        for one in lambdas
    ]
    [day] = {one.as_of for one in lambdas}
    source = StandIn(name="skypilot", answers={"lambda": listed})
    assert states(refreshed(source)) == {"lambda": ("fresh", len(lambdas), day)}
    with PriceStore() as store:
        [kept] = store.current()
        assert {one.as_of for one in kept.offers} == {day}
    assert states(refreshed(source, now=FRIDAY))["lambda"] == ("unchanged", len(lambdas), day)
    # Another source has other names: the snapshot says nothing of it.
    other = StandIn(name="gpuhunt", answers={"lambda": listed})
    assert states(refreshed(other))["lambda"] == ("fresh", len(lambdas), "2026-11-10")


def test_a_source_that_says_its_list_is_of_today_dates_the_same_prices_anew():
    source = StandIn(answers={"lambda": rows(2.0)}, has_etag=False, modified="2026-11-10")
    refreshed(source)
    source.modified = "2026-11-12"
    assert states(refreshed(source, now=FRIDAY)) == {"lambda": ("unchanged", 3, "2026-11-12")}
    with PriceStore() as store:
        [kept] = store.current()
        assert {one.as_of for one in kept.offers} == {"2026-11-12"}
        assert kept.fetched_at == FRIDAY
        assert len(list(store.past())) == 3


def test_a_provider_that_answers_itself_has_prices_of_the_day_it_is_asked():
    source = StandIn(answers={"lambda": rows(2.0)}, has_etag=False, is_live=True)
    refreshed(source)
    assert states(refreshed(source, now=FRIDAY)) == {"lambda": ("unchanged", 3, "2026-11-13")}
    with PriceStore() as store:
        [kept] = store.current()
        assert {one.as_of for one in kept.offers} == {"2026-11-13"}


def test_a_source_that_goes_back_to_older_prices_is_followed_and_they_keep_their_day():
    source = StandIn(answers={"lambda": rows(2.0)}, modified="2026-11-10")
    refreshed(source)
    source.answers["lambda"], source.modified = rows(1.0), "2026-06-01"
    [attempt] = refreshed(source, now=FRIDAY)
    assert (attempt.state, attempt.as_of) == ("fresh", "2026-06-01")


def test_validators_are_those_of_the_last_good_reply():
    source = StandIn(answers={"lambda": rows(2.0)})
    refreshed(source)
    with PriceStore() as store:
        good = store.validators("stand-in", "lambda")
    source.answers["lambda"] = b"<html>"
    refreshed(source)
    with PriceStore() as store:
        assert store.validators("stand-in", "lambda") == good
        assert good != Validators()
        [kept] = store.current()
        assert replace(kept, offers=()) == replace(kept, offers=(), fetched_at=TUESDAY)
