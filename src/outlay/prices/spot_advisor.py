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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import ProviderError
from outlay.facts import newest, rows_of
from outlay.files import data_folder, to_json, write_whole
from outlay.offers.catalog import snapshot_offers
from outlay.offers.offer import SpotRisk
from outlay.offers.price_book import OfferIdentity
from outlay.offers.spot import bucket_risk
from outlay.prices.price_store import Attempt, State
from outlay.prices.sources import BadReply, Unreadable, Validators

if TYPE_CHECKING:
    from outlay.prices.download import Downloader

NAME = "spot-advisor"
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


def address() -> str:
    """Where the file is read."""
    return os.environ.get("OUTLAY_SPOT_ADVISOR") or ADDRESS


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """The last good buckets that were kept."""

    as_of: str
    """The day they are of: when AWS says the file last changed, else when it was asked."""
    validators: Validators
    buckets: tuple[InterruptionBucket, ...]


def refresh_interruptions(downloader: Downloader, now: str) -> Attempt:
    """Ask for today's buckets and keep them where they are good; what happened.

    `now` is UTC, `2026-11-16T20:15:00Z`. `offers` of the attempt are machine types and regions.
    """
    kept = kept_interruptions()
    try:
        reply = downloader.get(address(), None if kept is None else kept.validators)
        if reply is None:
            return _attempt("unchanged", now, kept)
        as_of = min(reply.modified or now[:10], now[:10])
        asked = Interruptions(as_of=as_of, validators=reply.validators, buckets=read(reply.data))
    except Unreadable as error:
        return _attempt("refused", now, kept, error.reason)
    except BadReply as error:
        return _attempt("refused", now, kept, f"{error.what} {error.why}")
    except ProviderError as error:
        return _attempt("kept", now, kept, str(error))
    is_same = kept is not None and kept.buckets == asked.buckets
    keep_interruptions(asked)
    return _attempt("unchanged" if is_same else "fresh", now, asked)


def _attempt(
    state: State, now: str, kept: Interruptions | None, reason: str | None = None
) -> Attempt:
    return Attempt(
        source=NAME,
        provider=PROVIDER,
        at=now,
        state=state,
        offers=0 if kept is None else len(kept.buckets),
        as_of=None if kept is None else kept.as_of,
        reason=reason,
    )


def keep_interruptions(kept: Interruptions) -> None:
    """Put buckets in the place of the last good ones; all or nothing."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(to_json(kept)).encode())


def kept_interruptions() -> Interruptions | None:
    """The last good buckets; None where none were kept, or the file is not readable."""
    try:
        content = json.loads(_path().read_bytes())
        return Interruptions(
            as_of=date.fromisoformat(content["as_of"]).isoformat(),
            validators=Validators(**content["validators"]),
            buckets=tuple(InterruptionBucket(**row) for row in content["buckets"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path() -> Path:
    return data_folder() / "spot_interruptions.json"


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
