"""The hosts of Vast.ai, each an offer of its own, with its disk, network and reliability.

Vast is a marketplace: hosts set their prices, and what is listed now may be rented a minute later.
Its search answers without a key. Facts about the reply, all from Vast's documentation
(docs.vast.ai: api-reference/search/search-offers, cli/reference/search-offers, guides/reference/
billing, guides/instances/choosing) and tools that read it (gpuhunt 0.1.34):

- `dph_base` is the price of the machine an hour; `dph_total` adds the disk the search was asked
  for (8 GB unless said), so that it is not what a run pays. Disk (`storage_cost`, USD/GB-month of
  720 h) and traffic (`inet_down_cost`, `inet_up_cost`, USD/GB) are charged apart, each by the host.
- `min_bid` is the lowest bid for the whole machine that is taken now. Who bids it has the machine
  until somebody bids more or rents it on demand, and pays what was bid. In a search for bids
  (`is_bid`) `dph_base` is the bid, too.
- `cpu_ram` (MB) is the machine's: one gets as much of it as of its cores.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outlay.facts import assumed
from outlay.offers.offer import HostQuality
from outlay.prices.sources import Listing, ReadListings, Reply, Unreadable, Validators
from outlay.units import GB, MB, MIB

if TYPE_CHECKING:
    from outlay.prices.download import Downloader

PROVIDER = "vast"
ADDRESS = "https://console.vast.ai/api/v0/bundles/"
MOST_HOSTS = 5000
"""Hosts that are asked for at most."""
# Assumes: Vast lists fewer; some 20,000 GPUs are rented out and free together (vast.ai, 2026).
MBIT_BYTES_PER_S = 1e6 / 8

Row = Mapping[str, Any]


class Vast:
    """Vast's search, asked for every host that can be rented now."""

    name = "vast"

    def providers(self) -> tuple[str, ...]:
        """Vast alone."""
        return (PROVIDER,)

    def ask(
        self,
        provider: str,  # noqa: ARG002
        downloader: Downloader,
        known: Validators | None,  # noqa: ARG002
    ) -> Reply | None:
        """The hosts that can be rented now; it always has changed."""
        return replace(downloader.post(address(), question()), is_live=True)

    def read(self, provider: str, data: bytes) -> ReadListings:  # noqa: ARG002
        """The hosts in an answer, each a listing."""
        reply = _reply(data)
        hosts = reply["offers"]
        listings: list[Listing] = []
        failed: list[str] = []
        seen: set[str] = set()
        for number, row in enumerate(hosts, 1):
            try:
                listing = _listing(row)
                if listing is None:
                    continue
                if listing.instance in seen:
                    raise _BadRow("it is listed twice")
            except _BadRow as error:
                failed.append(f"host {number}{_named(row)}: {error}")
            else:
                seen.add(listing.instance)
                listings.append(listing)
        return ReadListings(
            listings=listings,
            rows=len(listings) + len(failed),
            failed=failed,
            notes=tuple(_notes(reply, len(hosts))),
        )


def address() -> str:
    """Where Vast is asked."""
    return os.environ.get("OUTLAY_VAST_API") or ADDRESS


def question() -> dict[str, object]:
    """What Vast is asked: hosts that can be rented, the best by its own score first."""
    return {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "order": [["score", "desc"]],
        "limit": MOST_HOSTS,
    }


class _BadRow(Exception):
    """A row that cannot be read: says what is wrong."""


def _reply(data: bytes) -> dict[str, Any]:
    """The answer, with a list of hosts in it."""
    try:
        reply = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise Unreadable(reason="Vast's answer is not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("offers"), list):
        raise Unreadable(reason=f"Vast's answer has no list of offers{_said(reply)}")
    return reply


def _said(reply: object) -> str:
    """What Vast says instead, in its own words."""
    text = (reply.get("msg") or reply.get("error")) if isinstance(reply, dict) else None
    return f': it says "{text[:200]}"' if isinstance(text, str) else ""


def _named(row: object) -> str:
    return f" (id {row['id']})" if isinstance(row, dict) and _is_id(row.get("id")) else ""


def _notes(reply: Row, hosts: int) -> Iterator[str]:
    if reply.get("truncated") is True or hosts >= MOST_HOSTS:
        yield f"Vast has more hosts than the {hosts:,} it gave, the best by its own score."


def _listing(row: object) -> Listing | None:
    """A host; None where it has no GPU or cannot be rented."""
    if not isinstance(row, dict):
        raise _BadRow("it is no table of figures")
    if row.get("rentable") is False or row.get("rented") is True or row.get("num_gpus") == 0:
        return None
    price_usd, bid_usd = _price(row, "dph_base"), _price(row, "min_bid", least=0.0)
    if row.get("is_bid") is True:
        price_usd, bid_usd = None, bid_usd or price_usd
    if price_usd is None and not bid_usd:
        raise _BadRow("it has no price")
    host = _host(row)
    return Listing(
        provider=PROVIDER,
        instance=_id(row),
        gpu=_gpu(row),
        gpus=_gpus(row),
        region=_region(row.get("geolocation")),
        price_usd_per_hour=price_usd,
        spot_usd_per_hour=bid_usd or None,
        gpu_memory_bytes=_figure(row, "gpu_ram", MIB),
        vcpus=_figure(row, "cpu_cores_effective"),
        ram_bytes=_ram_bytes(row),
        local_disk_bytes=_figure(row, "disk_space", GB),
        host=host,
        doubts=tuple(_doubts(host, has_bid=bool(bid_usd))),
    )


def _host(row: Row) -> HostQuality:
    reliability = _number(row.get("reliability2"))
    if reliability is None:
        reliability = _number(row.get("reliability"))
    return HostQuality(
        disk_bytes_per_s=_figure(row, "disk_bw", MB),
        download_bytes_per_s=_figure(row, "inet_down", MBIT_BYTES_PER_S),
        upload_bytes_per_s=_figure(row, "inet_up", MBIT_BYTES_PER_S),
        reliability_fraction=(
            reliability if reliability is not None and 0 <= reliability <= 1 else None
        ),
        verified=_verified(row),
        disk_usd_per_byte_month=_charge(row, "storage_cost"),
        download_usd_per_byte=_charge(row, "inet_down_cost"),
        upload_usd_per_byte=_charge(row, "inet_up_cost"),
        available_s=_figure(row, "duration"),
        dlperf=_figure(row, "dlperf"),
    )


def _doubts(host: HostQuality, *, has_bid: bool) -> Iterator[str]:
    """What is to be said of a host, in words of `data/offer_doubts.csv`."""
    yield "single host"
    if host.verified is False:
        yield "unverified host"
    reliability = host.reliability_fraction
    if reliability is not None and reliability < assumed("host_reliability_least"):
        yield "unreliable host"
    if has_bid:
        yield "lowest bid"


def _verified(row: Row) -> bool | None:
    """Whether Vast has checked it: `verified`, not `unverified` or `deverified`."""
    state = row.get("verification")
    if isinstance(state, str) and state:
        return state == "verified"
    verified = row.get("verified")
    return verified if isinstance(verified, bool) else None


def _ram_bytes(row: Row) -> float | None:
    """RAM that one gets: as much of the machine's as of its cores."""
    whole = _figure(row, "cpu_ram", MB)
    cores, mine = _figure(row, "cpu_cores"), _figure(row, "cpu_cores_effective")
    if whole is None or cores is None or mine is None:
        return None
    return whole * min(mine / cores, 1.0)


def _region(place: object) -> str:
    """`California, US`; `US` of a place without a state."""
    if not isinstance(place, str):
        return ""
    return ", ".join(part for part in map(str.strip, place.split(",")) if part)


# --- figures ---


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _figure(row: Row, name: str, unit: float = 1.0) -> float | None:
    """A figure above zero in outlay's unit; None where there is none."""
    number = _number(row.get(name))
    scaled = 0.0 if number is None else number * unit
    return scaled if 0 < scaled < math.inf else None


def _charge(row: Row, name: str) -> float | None:
    """Dollars a byte of dollars a GB; nothing may be charged."""
    number = _number(row.get(name))
    return None if number is None or number < 0 else number / GB


def _price(row: Row, name: str, *, least: float | None = None) -> float | None:
    """A price above zero, or from `least`; None where there is none."""
    value = row.get(name)
    if value is None:
        return None
    number = _number(value)
    if number is None:
        raise _BadRow(f"the price {_short(value)} ({name}) is no number")
    if number < 0 or (least is None and number == 0):
        raise _BadRow(f"the price {number:g} ({name}) is not above zero")
    return number


def _id(row: Row) -> str:
    value = row.get("id")
    if not _is_id(value):
        raise _BadRow(f"the id {_short(value)} is none to rent it by")
    return str(value)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _gpu(row: Row) -> str:
    name = row.get("gpu_name")
    if not isinstance(name, str) or not name.strip():
        raise _BadRow("it does not say which GPU it has")
    return name.strip()


def _gpus(row: Row) -> int:
    number = _number(row.get("num_gpus"))
    if number is None or number < 1 or number != int(number):
        raise _BadRow(f"the number of GPUs {_short(row.get('num_gpus'))} is none")
    return int(number)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]} ..."
