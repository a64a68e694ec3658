"""How often AWS takes spot machines away, as its Spot Instance Advisor says today.

AWS publishes one file, without an account: for each region, system and instance type the bucket
(`r`) that the share of machines taken away in the last month lies in, and what spot saved (`s`).
The buckets are said in the file itself (`ranges`): `<5%`, `5-10%`, `10-15%`, `15-20%`, `>20%`.
(Their `max`, 5, 11, 16, 22 and 100, does not agree with their labels; the labels are what AWS
shows.) The format is as in the copies of alexei-led/spotinfo.

The snapshot has the same of 2025-06-28 (`data/spot_interruptions_DATE.csv`); what is newer goes
first. Only types that outlay knows to have a GPU are kept.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from outlay.facts import newest, rows_of
from outlay.offers.catalog import snapshot_offers
from outlay.offers.offer import SpotRisk
from outlay.offers.price_book import OfferIdentity
from outlay.offers.spot import bucket_risk
from outlay.prices.sources import Reply, Unreadable, Validators

if TYPE_CHECKING:
    from outlay.prices.download import Downloader

PROVIDER = "aws"
ADDRESS = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
SYSTEM = "Linux"
_LABEL = re.compile(r"(?:<(?P<below>\d+)|(?P<low>\d+)-(?P<high>\d+)|>(?P<above>\d+)) ?%")
_GPU_FAMILY = re.compile(r"(p\d|g\d|gr\d)[a-z0-9-]*\.[a-z0-9-]+")
"""Families that AWS sells GPUs in; `trn`, `inf` and `dl` are not GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionBucket:
    """The share of an instance type's machines in a region that is taken away in a month."""

    instance: str
    region: str
    low_fraction_per_month: float
    high_fraction_per_month: float | None
    """None of the last bucket, which is open."""


# --- asking and reading ---


def ask(downloader: Downloader, known: Validators | None) -> Reply | None:
    """The file; None where it has not changed since `known`."""
    return downloader.get(os.environ.get("OUTLAY_SPOT_ADVISOR") or ADDRESS, known)


def read(data: bytes) -> tuple[InterruptionBucket, ...]:
    """The buckets of GPU machines in the file, for Linux.

    Raises `Unreadable` where it is no such file, or more than a tenth of them cannot be read.
    """
    reply = _reply(data)
    ranges = _ranges(reply)
    rows, failed = [], 0
    for region, instance, row in _machines(reply["spot_advisor"]):
        bucket = ranges.get(_index(row))
        if bucket is None:
            failed += 1
        else:
            rows.append(
                InterruptionBucket(
                    instance=instance,
                    region=region,
                    low_fraction_per_month=bucket[0],
                    high_fraction_per_month=bucket[1],
                )
            )
    if not rows or failed > (len(rows) + failed) / 10:
        what = f"{failed:,} of {len(rows) + failed:,} machines have no bucket"
        raise Unreadable(reason=f"AWS's Spot Instance Advisor: {what if rows else 'no machines'}")
    return tuple(rows)


def _reply(data: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(reason="AWS's Spot Instance Advisor: not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("spot_advisor"), dict):
        raise Unreadable(reason="AWS's Spot Instance Advisor: no regions in it")
    return reply


def _ranges(reply: Mapping[str, Any]) -> dict[int, tuple[float, float | None]]:
    """The buckets by their number, as shares of a month."""
    ranges = reply.get("ranges")
    buckets: dict[int, tuple[float, float | None]] = {}
    for row in ranges if isinstance(ranges, list) else ():
        label = row.get("label") if isinstance(row, dict) else None
        match = _LABEL.fullmatch(label) if isinstance(label, str) else None
        bucket = None if match is None else _bucket(match)
        if bucket is None or not isinstance(row.get("index"), int):
            raise Unreadable(
                reason=f"AWS's Spot Instance Advisor: a bucket {str(label)[:40]!r}, not known"
            )
        buckets[row["index"]] = bucket
    return buckets


def _bucket(match: re.Match[str]) -> tuple[float, float | None] | None:
    """The ends of a label such as `5-10%`, None where they are no shares."""
    low = int(match["low"] or match["above"] or 0) / 100
    high = None if match["above"] else int(match["high"] or match["below"]) / 100
    return (low, high) if low < (0.99 if high is None else high) < 1 else None


def _machines(regions: Mapping[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Region, type and row of the GPU machines."""
    for region, systems in regions.items():
        types = systems.get(SYSTEM) if isinstance(systems, dict) else None
        for instance, row in types.items() if isinstance(types, dict) else ():
            if instance in _known_types() or _GPU_FAMILY.fullmatch(instance):
                yield region, instance, row


@cache
def _known_types() -> frozenset[str]:
    return frozenset(o.instance for o in snapshot_offers() if o.provider == PROVIDER)


def _index(row: object) -> int:
    index = row.get("r") if isinstance(row, dict) else None
    return index if isinstance(index, int) and not isinstance(index, bool) else -1


# --- keeping them ---

_BUCKETS_TABLE = """
CREATE TABLE IF NOT EXISTS interruptions (
    instance TEXT NOT NULL, region TEXT NOT NULL, low REAL NOT NULL, high REAL,
    PRIMARY KEY (instance, region)
) WITHOUT ROWID"""
_HEAD_TABLE = """
CREATE TABLE IF NOT EXISTS interruptions_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at TEXT NOT NULL, etag TEXT NOT NULL, last_modified TEXT NOT NULL, version TEXT NOT NULL
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """The last good buckets that were kept."""

    at: str
    """When AWS was asked: UTC, `2026-11-16T20:15:00Z`."""
    validators: Validators
    buckets: tuple[InterruptionBucket, ...]

    @property
    def as_of(self) -> str:
        """The day they are of: when AWS says the file last changed, else when it was asked."""
        try:
            changed = parsedate_to_datetime(self.validators.last_modified)
        except (TypeError, ValueError):
            return self.at[:10]
        return min(changed.date().isoformat(), self.at[:10])


def replace_interruptions(
    database: sqlite3.Connection,
    buckets: Iterable[InterruptionBucket],
    at: str,
    validators: Validators,
) -> None:
    """Put buckets in the place of the last good ones; all or nothing.

    In a transaction of its own, unless the connection is in one already.
    """
    rows = [
        (row.instance, row.region, row.low_fraction_per_month, row.high_fraction_per_month)
        for row in buckets
    ]
    own = not database.in_transaction
    if own:
        database.execute("BEGIN IMMEDIATE")
    try:
        database.execute(_BUCKETS_TABLE)
        database.execute(_HEAD_TABLE)
        database.execute("DELETE FROM interruptions")
        database.executemany("INSERT INTO interruptions VALUES (?, ?, ?, ?)", rows)
        database.execute(
            "INSERT OR REPLACE INTO interruptions_head VALUES (1, ?, ?, ?, ?)",
            (at, validators.etag, validators.last_modified, validators.version),
        )
    except BaseException:
        if own:
            database.execute("ROLLBACK")
        raise
    if own:
        database.execute("COMMIT")


def kept_interruptions(database: sqlite3.Connection) -> Interruptions | None:
    """The last good buckets; None where none were kept."""
    try:
        head = database.execute(
            "SELECT at, etag, last_modified, version FROM interruptions_head"
        ).fetchone()
    except sqlite3.OperationalError:  # nothing was kept yet
        return None
    if head is None:
        return None
    at, etag, last_modified, version = head
    rows = database.execute("SELECT instance, region, low, high FROM interruptions")
    return Interruptions(
        at=at,
        validators=Validators(etag=etag, last_modified=last_modified, version=version),
        buckets=tuple(
            InterruptionBucket(
                instance=instance,
                region=region,
                low_fraction_per_month=low,
                high_fraction_per_month=high,
            )
            for instance, region, low, high in rows
        ),
    )


# --- what a price book is given ---


def interruption_risks(kept: Interruptions | None) -> Mapping[OfferIdentity, SpotRisk]:
    """How often spot machines are taken away, of what was kept; empty where the bundled buckets
    are as new."""
    if kept is None or kept.as_of <= bundled_date():
        return {}
    source = f"AWS Spot Instance Advisor, {kept.as_of}"
    risks: dict[tuple[float, float | None], SpotRisk] = {}
    for row in kept.buckets:
        ends = (row.low_fraction_per_month, row.high_fraction_per_month)
        if ends not in risks:
            risks[ends] = bucket_risk(*ends, source)
    return {
        (PROVIDER, row.instance, row.region): risks[
            row.low_fraction_per_month, row.high_fraction_per_month
        ]
        for row in kept.buckets
    }


def bundled_date() -> str:
    """The day of the bundled buckets."""
    return max(row["as_of"] for row in rows_of(newest("spot_interruptions")))
