"""Refreshes that are killed, or that run beside each other; started by tests as a program.

python -m tests.prices.killed_refresh kill FOLDER TIMES    prints what was found broken
python -m tests.prices.killed_refresh loop FOLDER TIMES
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stand_in import StandIn, rows, stand_in_for_others

from outlay.offers.catalog import snapshot_offers
from outlay.offers.terms import all_terms
from outlay.prices.price_store import PriceStore
from outlay.prices.refresh import refresh_prices

PROVIDERS = ("aws", "gcp", "lambda")
OFFERS = 60


def set_attribute(name: str, value: object) -> None:
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


def moment(number: int) -> str:
    then = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=number)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def refresh(path: Path, number: int) -> None:
    """A refresh in which every machine of every provider costs `number` dollars."""
    answers = {provider: rows(float(number), OFFERS) for provider in PROVIDERS}
    refresh_prices(
        now=moment(number),
        store=PriceStore(path),
        downloader=object(),
        known_sources=[StandIn(answers=answers)],
    )


def last(path: Path) -> int:
    with PriceStore(path) as store:
        priced = [int(o.price_usd_per_hour) for one in store.current() for o in one.offers]
    return max(priced, default=0)


def broken(path: Path) -> list[str]:
    """What is wrong with what is kept."""
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as file:
        [found] = file.execute("PRAGMA integrity_check").fetchone()
    wrong = [] if found == "ok" else [found]
    with PriceStore(path) as store:
        stood = {
            (price.provider, price.instance): price.price_usd_per_hour
            for price in store.prices_at("2027-01-01")
        }
        lists = store.current()
    for one in lists:
        priced = {offer.price_usd_per_hour for offer in one.offers}
        if len(one.offers) != OFFERS or len(priced) != 1:
            wrong.append(f"{one.provider}: {len(one.offers)} offers at {priced}")
        wrong += [
            f"{offer.identity}: not what the history says"
            for offer in one.offers
            if stood.pop((offer.provider, offer.instance), None) != offer.price_usd_per_hour
        ]
    return wrong + [f"{left}: in the history alone" for left in stood]


def seconds_of_one(path: Path) -> float:
    """How long a refresh takes here, in a process of its own."""
    started_s = time.perf_counter()
    child = os.fork()
    if child == 0:
        refresh(path, 1)
        os._exit(0)
    os.waitpid(child, 0)
    return time.perf_counter() - started_s


def kill(path: Path, times: int) -> None:
    luck, wrong, before, journals = random.Random(7), [], 0, 0
    snapshot_offers(), all_terms()  # read once for all children
    longest_s = 1.5 * seconds_of_one(path)
    for _ in range(times):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            number = last(path)
            os.write(write, b".")
            while True:
                number += 1
                refresh(path, number)
        os.close(write)
        os.read(read, 1)
        os.close(read)
        time.sleep(luck.uniform(0.0, longest_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        journals += path.with_name(f"{path.name}-journal").exists()
        wrong += broken(path)
        now = last(path)
        if now < before:
            wrong.append(f"went back from {before} to {now}")
        before = now
    report = {"kills": times, "broken": wrong, "refreshes": before, "journals": journals}
    print(json.dumps(report))  # noqa: T201


def loop(path: Path, times: int) -> None:
    for number in range(1, times + 1):
        refresh(path, number)


if __name__ == "__main__":
    stand_in_for_others(set_attribute)
    what = {"kill": kill, "loop": loop}[sys.argv[1]]
    what(Path(sys.argv[2]) / "prices.sqlite", int(sys.argv[3]))
