"""SkyPilot's hosted catalogue: a CSV file for each cloud, `<base>/v8/<cloud>/vms.csv`.

A row is a machine type in a zone. Columns stand in any order and some clouds lack some; GCP lists
GPUs apart from their hosts. Where a cloud's file is odd, `data/catalogue_quirks.csv` says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from outlay.currency import usd_per_unit
from outlay.errors import ProviderError
from outlay.facts import rows_of
from outlay.prices.price_list import (
    ABSURD_USD_PER_GPU_HOUR,
    ANY_CATALOGUE,
    MOST_GPUS,
    is_no_gpu,
    not_gpus_note,
    quirk_values,
)
from outlay.prices.sources import Listing, ReadListings, Reply, Unreadable, Validators
from outlay.units import GIB, MIB

if TYPE_CHECKING:
    from outlay.prices.download import Downloader

NAME = "skypilot"
ADDRESS = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs"
"""Where SkyPilot itself reads it; `OUTLAY_SKYPILOT_CATALOG` names another place."""
CLOUDS = (
    "aws", "azure", "cudo", "do", "fluidstack", "gcp", "hyperbolic", "hyperstack", "ibm", "lambda",
    "mithril", "nebius", "oci", "ovhcloud", "paperspace", "primeintellect", "runpod", "scaleway",
    "scp", "seeweb", "shadeform", "vast", "verda", "yotta",
)  # fmt: skip
_VERSIONS = {"aws": ("v8", "v7")}
"""Schema versions of a cloud's file, the first that is there counts; `v8` of all others."""

_NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
_OPTIONAL = ("vCPUs", "MemoryGiB", "GpuInfo", "AvailabilityZone")
_UNUSED = frozenset(
    ("Arch", "Generation", "UpstreamCloudId", "StorageGiB", "HostingType", "Provider",
     "OperatingSystem", "SpheronInstanceType")
)  # fmt: skip
"""Columns that are known and say nothing of a price."""

# Bounds on what is read: the largest file there is (AWS) has 54,000 lines of up to 330 characters
# and 10 columns.
_LARGEST_BYTES = 128 * 2**20
_LONGEST_LINE = 2**16
_LONGEST_NAME = 200
_MOST_LINES = 1_000_000
_MOST_COLUMNS = 200
_MOST_FAILED = 10_000
_QUOTED = 40
"""Characters of a bad cell or file that a message repeats."""

# Assumes: pods of one GPU type have about the same RAM for each GPU.
_UNLIKELY_RAM_FACTOR = 1.5

_MEMORY = re.compile(r"SizeInMiB['\"]?\s*:\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)")
_POD = re.compile(r"\d{1,4}x")
_CLOUD = re.compile(r"'([A-Za-z0-9 _.-]{1,40})'")


class SkyPilotCatalogue:
    """SkyPilot's hosted catalogue as a price source."""

    name = NAME
    takes_any_provider = True

    def __init__(self, rate_day: str | None = None) -> None:
        """`rate_day`: the day of the exchange rates that euros are converted at; None: the newest
        there are."""
        self._rate_day = rate_day

    def providers(self) -> tuple[str, ...]:
        """The clouds whose files are known; any other may be asked about, too."""
        return CLOUDS

    def new_providers(self, downloader: Downloader) -> tuple[str, ...]:
        """Clouds that the catalogue's list of accelerators names and outlay does not know yet."""
        return new_clouds(downloader)

    def ask(self, provider: str, downloader: Downloader, known: Validators | None) -> Reply | None:
        """A cloud's file; None where it has not changed since `known`.

        When a server says it was put there tells nothing of its age: mirrors copy lists that
        nobody has renewed for years. A file that is still what it was at a
        snapshot has the day on which it had changed then. One in another currency is read again
        whenever there are newer exchange rates.
        """
        first, *others = _VERSIONS.get(provider, ("v8",))
        rate_day = _UsdRate.of(provider, self._rate_day).day
        digest_before, _, rate_day_before = (known.version if known else "").partition(" ")
        if rate_day != rate_day_before:
            known = None
        try:
            reply = downloader.get(_address(first, provider, "vms.csv"), known)
        except ProviderError as error:
            if not others or not _is_missing(error):
                raise
            reply = downloader.get(_address(others[0], provider, "vms.csv"), known)
        if reply is None:
            return None
        digest = hashlib.sha256(reply.data).hexdigest()
        return replace(
            reply,
            modified=_day_of_content(provider, digest),
            validators=replace(reply.validators, version=f"{digest} {rate_day}".strip()),
            is_same=digest == digest_before,
        )

    def read(self, provider: str, data: bytes) -> ReadListings:
        """The listings in a cloud's file."""
        table = _table(provider, data)
        reader = _Reader(provider, table, _UsdRate.of(provider, self._rate_day))
        for line, cells in table.rows(reader.host_names):
            reader.take(line, cells)
        return reader.listings()


def _day_of_content(provider: str, digest: str) -> str:
    """The day on which a cloud's file had become what it is; empty where that is not known."""
    return next(
        (
            row["changed"]
            for row in rows_of("catalogue_files.csv")
            if (row["catalogue"], row["provider"], row["sha256"]) == (NAME, provider, digest)
        ),
        "",
    )


def check_address() -> str:
    """Something small that is there as long as the catalogue is."""
    return _address("v8", "common", "accelerators.csv")


def new_clouds(downloader: Downloader) -> tuple[str, ...]:
    """Clouds that the catalogue's list of accelerators names and outlay does not know yet."""
    reply = downloader.get(check_address())
    text = "" if reply is None else reply.data.decode("utf-8", "replace")
    named = {name.lower() for line in text.splitlines() for name in _CLOUD.findall(line)}
    return tuple(sorted(named - set(CLOUDS)))


def _address(version: str, cloud: str, file: str) -> str:
    base = os.environ.get("OUTLAY_SKYPILOT_CATALOG") or ADDRESS
    return f"{base.rstrip('/')}/{version}/{quote(cloud, safe='')}/{file}"


def _is_missing(error: ProviderError) -> bool:
    """Whether a source, or a mirror on disk, answered that it has no such file."""
    return "404" in error.why or "no such file" in error.why.lower()


# --- the file as a table ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A CSV file whose head has been read."""

    lines: Iterator[tuple[int, list[str]]]
    columns: Mapping[str, int]
    notes: tuple[str, ...]

    def cell(self, cells: Sequence[str], column: str) -> str:
        """What a row says in a column; empty where the file has none."""
        place = self.columns.get(column)
        return "" if place is None else cells[place].strip()

    def rows(self, host_names: Collection[str]) -> Iterator[tuple[int, list[str]]]:
        """Each row with its line, but for machines that have no GPU and are no hosts of any.

        The last one must be whole, or the file was cut off.
        """
        gpu, instance = self.columns["AcceleratorName"], self.columns["InstanceType"]
        line, cells, width = 0, [""] * len(self.columns), len(self.columns)
        for line, cells in self.lines:
            # nine of ten rows are left out: AWS and GCP list all their machines
            if len(cells) != width or cells[gpu] or cells[instance] in host_names:
                yield line, cells
        if line == 0:
            raise Unreadable(reason="it has a head and no rows")
        if len(cells) < len(self.columns):
            raise Unreadable(
                reason=f"its last line has {len(cells)} of {len(self.columns)} cells: "
                "it was cut off"
            )


def _table(provider: str, data: bytes) -> _Table:
    """A file's head, checked. Raises `Unreadable` for what is no such file."""
    _refuse_what_is_no_text(data)
    lines = _parsed(data)
    head = [name.strip() for name in next(lines, (0, []))[1]]
    _refuse_head(provider, head, data)
    if not data.endswith((b"\n", b"\r")) and "no newline" not in quirk_values(
        NAME, provider, "end"
    ):
        raise Unreadable(reason="it ends in the middle of a line: it was cut off")
    columns = {name: place for place, name in enumerate(head)}
    return _Table(lines=lines, columns=columns, notes=tuple(_column_notes(columns)))


def _refuse_what_is_no_text(data: bytes) -> None:
    start = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not data.strip():
        raise Unreadable(reason="it is empty")
    if len(data) > _LARGEST_BYTES:
        raise Unreadable(reason=f"it is larger than {_LARGEST_BYTES // 2**20} MiB")
    if start.startswith(b"<"):
        raise Unreadable(reason="it is a web page, no CSV file")
    if b"\0" in data:
        raise Unreadable(reason="it is binary, no CSV file")


def _refuse_head(provider: str, head: Sequence[str], data: bytes) -> None:
    if len(head) > _MOST_COLUMNS:
        raise Unreadable(reason=f"its head has {len(head)} columns")
    if len(set(head)) < len(head):
        raise Unreadable(reason=f"its head names a column twice: {_quoted(','.join(head))}")
    by_zone = "apart" in quirk_values(ANY_CATALOGUE, provider, "zones")
    needed = (*_NEEDED, "AvailabilityZone") if by_zone else _NEEDED
    gone = [column for column in needed if column not in head]
    if len(gone) == len(needed):
        start = data.lstrip()[:_QUOTED].decode("utf-8", "replace")
        raise Unreadable(reason=f"it is no list of machines: it begins with {start!r}")
    if gone:
        raise Unreadable(reason=f"it has no column {', '.join(gone)}")


def _column_notes(columns: Mapping[str, int]) -> Iterator[str]:
    new = [name for name in columns if name not in {*_NEEDED, *_OPTIONAL, *_UNUSED}]
    if new:
        yield f"Columns that outlay does not know and left aside: {_quoted(', '.join(new))}."
    gone = [name for name in _OPTIONAL[:3] if name not in columns]
    if gone:
        yield f"The file has no column {', '.join(gone)}."


def _parsed(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, each with the line it ends on."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    reader = csv.reader(_bounded(text), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise Unreadable(reason=f"line {reader.line_num} is no CSV ({error})") from error
    except UnicodeDecodeError as error:
        raise Unreadable(reason="it is no text in UTF-8") from error


def _bounded(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE:
            raise Unreadable(reason=f"line {number} has more than {_LONGEST_LINE} characters")
        if number > _MOST_LINES:
            raise Unreadable(reason=f"it has more than {_MOST_LINES:,} lines")
        yield line


def _quoted(text: str) -> str:
    """A text from a file as a message repeats it: short, and with nothing that moves a cursor."""
    shown = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
    return repr(shown)


# --- rows as listings ---


class _Reader:
    """What has been read of one cloud's file so far."""

    def __init__(self, provider: str, table: _Table, usd: _UsdRate) -> None:
        self._provider = provider
        self._table = table
        self._hosts_of = _hosts_of(provider)
        self.host_names = {host for hosts in self._hosts_of.values() for host, _ in hosts}
        self._listings: list[Listing] = []
        self._failed: dict[int, str] = {}
        self._others: Counter[str] = Counter()
        self._hosts: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self._gpus_apart: list[tuple[int, list[str]]] = []
        self._notes = list(table.notes)
        self._unread = 0
        self._usd = usd

    def take(self, line: int, cells: list[str]) -> None:
        """Read a row: a machine with a GPU, or half of one; everything else is passed by."""
        table = self._table
        if len(cells) != len(table.columns):
            self._fail(line, f"{len(cells)} cells, not {len(table.columns)}")
            self._unread += 1
            return
        gpu = cells[table.columns["AcceleratorName"]].strip()
        instance = cells[table.columns["InstanceType"]].strip()
        if not gpu:
            if instance in self.host_names:
                zone = table.cell(cells, "AvailabilityZone")
                self._hosts.setdefault((instance, zone), (line, cells))
        elif is_no_gpu(gpu):
            self._others[gpu] += 1
        elif not instance and self._hosts_of:
            self._gpus_apart.append((line, cells))
        else:
            self._add(line, cells, instance)

    def listings(self) -> ReadListings:
        """All that was read."""
        self._join_hosts()
        if self._others:
            self._notes.append(not_gpus_note(self._others))
        self._notes.extend(self._usd.notes)
        listings = tuple(_with_ram_mended(self._provider, self._listings))
        return ReadListings(
            listings=listings,
            rows=len(listings) + self._unread,
            failed=tuple(self._failed[line] for line in sorted(self._failed)),
            notes=tuple(self._notes),
        )

    def _fail(self, line: int, *problems: str) -> None:
        self._failed[line] = f"line {line}: {'; '.join(problems)}"
        if len(self._failed) > _MOST_FAILED:
            first = self._failed[min(self._failed)]
            raise Unreadable(reason=f"over {_MOST_FAILED:,} rows cannot be read, first {first}")

    def _add(self, line: int, cells: list[str], instance: str) -> None:
        """A machine with its GPU, or why it is none."""
        problems: list[str] = []
        gpus = self._gpus(cells, instance, problems)
        if not instance:
            problems.append("no instance type is named")
        problems.extend(self._bad_names(cells))
        if gpus is None or problems:
            self._fail(line, *problems)
            self._unread += 1
            return
        self._listings.append(self._listing(cells, instance, gpus, problems, is_mended=True))
        if problems:
            self._fail(line, *problems)

    def _bad_names(self, cells: list[str]) -> Iterator[str]:
        """What is wrong with the names in a row, which go to a terminal as they are."""
        for column in ("InstanceType", "AcceleratorName", "Region", "AvailabilityZone"):
            name = self._table.cell(cells, column)
            if len(name) > _LONGEST_NAME or not name.isprintable():
                yield f"{_quoted(name)} is no {column}"

    def _gpus(self, cells: list[str], instance: str, problems: list[str]) -> float | None:
        """How many GPUs a row has: a whole number, or a share of one."""
        known = quirk_values(NAME, self._provider, "gpus", instance)
        text = known[0] if known else self._table.cell(cells, "AcceleratorCount")
        gpus = _number(text)
        if gpus is None or not 0 < gpus <= MOST_GPUS or (gpus > 1 and gpus != int(gpus)):
            problems.append(f"{_quoted(text)} is no number of GPUs")
            return None
        return gpus

    def _listing(
        self,
        cells: list[str],
        instance: str,
        gpus: float,
        problems: list[str],
        *,
        is_mended: bool = False,
    ) -> Listing:
        """A row as a listing, as it stands or with what is known of its instance type."""
        cell = self._table.cell
        vcpus = _amount(cell(cells, "vCPUs"), "number of vCPUs", problems)
        memory_bytes = _gpu_memory_bytes(cell(cells, "GpuInfo"))
        if memory_bytes and quirk_values(NAME, self._provider, "memory") == ("of all GPUs",):
            memory_bytes /= max(gpus, 1.0)
        ram_gib = _amount(cell(cells, "MemoryGiB"), "amount of RAM", problems)
        prices = _Prices(
            usd_per_hour=_price(cell(cells, "Price"), gpus, "price", problems),
            spot_usd_per_hour=_price(cell(cells, "SpotPrice"), gpus, "spot price", problems),
        )
        region = cell(cells, "Region")
        if is_mended:
            prices = _mended(prices, self._provider, instance, region, self._usd)
        return Listing(
            provider=self._provider,
            instance=instance,
            gpu=cell(cells, "AcceleratorName"),
            gpus=gpus,
            region=region,
            zone=cell(cells, "AvailabilityZone"),
            price_usd_per_hour=prices.usd_per_hour,
            spot_usd_per_hour=prices.spot_usd_per_hour,
            gpu_memory_bytes=memory_bytes,
            vcpus=vcpus,
            ram_bytes=None if ram_gib is None else ram_gib * GIB,
            doubts=prices.doubts,
            note=prices.note,
        )

    # GPUs that are listed apart from their hosts

    def _join_hosts(self) -> None:
        """Put GPUs that are listed apart into the hosts of their zone."""
        homeless: Counter[str] = Counter()
        for line, cells in self._gpus_apart:
            problems: list[str] = []
            gpus = self._gpus(cells, "", problems)
            problems.extend(self._bad_names(cells))
            if gpus is None or problems:
                self._fail(line, *problems)
                self._unread += 1
                continue
            gpu = self._listing(cells, "", gpus, problems)
            hosts = self._hosts_of.get((gpu.gpu, gpus))
            if hosts is None:
                self._listings.append(_without_host(gpu))
            there = [(host, name) for host, name in hosts or () if (host, gpu.zone) in self._hosts]
            if hosts is not None and not there:
                homeless[gpu.gpu] += 1
            for host, name in there:
                self._listings.append(self._joined(gpu, host, name, problems))
            if problems:
                self._fail(line, *problems)
        self._notes.extend(_host_notes(self._listings, homeless))

    def _joined(self, gpu: Listing, host: str, name: str, problems: list[str]) -> Listing:
        """A GPU in a host: their prices together, the host's vCPUs and RAM."""
        _, cells = self._hosts[host, gpu.zone]
        is_free = bool(quirk_values(NAME, self._provider, "host", host))
        own = self._listing(cells, host, gpu.gpus, [] if is_free else problems)
        price, spot = own.price_usd_per_hour, own.spot_usd_per_hour
        together = _Prices(
            usd_per_hour=_sum(gpu.price_usd_per_hour, 0.0 if is_free else price),
            spot_usd_per_hour=_sum(gpu.spot_usd_per_hour, 0.0 if is_free else spot),
            doubts=("host added",),
        )
        prices = _mended(together, self._provider, name, gpu.region, self._usd)
        return replace(
            gpu,
            instance=name,
            price_usd_per_hour=prices.usd_per_hour,
            spot_usd_per_hour=prices.spot_usd_per_hour,
            vcpus=own.vcpus,
            ram_bytes=own.ram_bytes,
            doubts=prices.doubts,
            note=prices.note,
        )


def _number(text: str) -> float | None:
    """A cell as a number; None for what is none, or has no end."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _amount(text: str, what: str, problems: list[str]) -> float | None:
    """How much of something there is; nothing where the cell is empty."""
    value = _number(text)
    if text and (value is None or value <= 0):
        problems.append(f"{_quoted(text)} is no {what}")
    return value if value is not None and value > 0 else None


def _price(text: str, gpus: float, what: str, problems: list[str]) -> float | None:
    """The price of the whole machine; a spot price of 0 says that there is none."""
    value = _number(text)
    if not text or (what == "spot price" and value == 0):
        return None
    if value is None or value <= 0:
        problems.append(f"{_quoted(text)} is no {what}")
        return None
    if value / gpus > ABSURD_USD_PER_GPU_HOUR:
        problems.append(f"a {what} of {value:g} an hour is no price for {gpus:g} GPUs")
        return None
    return value


@lru_cache(4096)
def _gpu_memory_bytes(gpu_info: str) -> float | None:
    """What a row says of one GPU's memory, taking its unit at its word."""
    found = _MEMORY.search(gpu_info)
    mib = float(found[1]) if found else 0.0
    return mib * MIB if mib > 0 else None


def _sum(one: float | None, other: float | None) -> float | None:
    """Two prices together, which the list gives to five decimals."""
    return None if one is None or other is None else round(one + other, 6)


@cache
def _hosts_of(provider: str) -> dict[tuple[str, float], tuple[tuple[str, str], ...]]:
    """The hosts that take so many GPUs of a spelling, and the names of the two together."""
    hosts: dict[tuple[str, float], tuple[tuple[str, str], ...]] = {}
    for row in rows_of("gpu_hosts.csv"):
        if row["provider"] == provider:
            key = (row["gpu"], float(row["gpus"]))
            hosts[key] = (*hosts.get(key, ()), (row["host"], row["instance"]))
    return hosts


def host_of(provider: str, instance: str) -> tuple[str, str] | None:
    """The host of a machine whose GPUs the catalogue lists apart, and its spelling of them
    (`n1-standard-8`, `V100`); None where a machine has its GPUs in itself."""
    for (gpu, _), hosts in _hosts_of(provider).items():
        for host, name in hosts:
            if name == instance:
                return host, gpu
    return None


def _without_host(gpu: Listing) -> Listing:
    """GPUs whose host nobody knows: named, without the price of a machine."""
    name = f"{gpu.gpus:g}x{gpu.gpu}"
    return replace(gpu, instance=name, price_usd_per_hour=None, spot_usd_per_hour=None)


def _host_notes(listings: Sequence[Listing], homeless: Counter[str]) -> Iterator[str]:
    unknown = {one.instance for one in listings if one.instance == f"{one.gpus:g}x{one.gpu}"}
    if unknown:
        names = ", ".join(sorted(unknown)[:9])
        yield f"GPUs whose host is not in gpu_hosts.csv, so without a price: {names}."
    if homeless:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(homeless.items()))
        yield f"GPUs in zones that have no host for them: {names}."


# --- what is known to be odd ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _UsdRate:
    """Dollars for what a cloud's prices are in."""

    usd_per_unit: float = 1.0
    day: str = ""
    """Of the rate; empty where the prices are in dollars."""
    notes: tuple[str, ...] = ()
    words: str = ""
    """`EUR at 1.1699 USD of 2026-08-21`."""

    @classmethod
    def of(cls, provider: str, rate_day: str | None) -> _UsdRate:
        """The rate of the currency that a cloud's file is in."""
        for currency in quirk_values(NAME, provider, "currency"):
            rate, day = usd_per_unit(currency, rate_day)
            note = f"Listed in {currency}; 1 {currency} = {rate:.4f} USD on {day}."
            words = f"{currency} at {rate:.4f} USD of {day}"
            return cls(usd_per_unit=rate, day=day, notes=(note,), words=words)
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prices:
    """What a row says a machine costs, and what is to be said of that."""

    usd_per_hour: float | None
    spot_usd_per_hour: float | None
    doubts: tuple[str, ...] = ()
    note: str = ""


def _mended(prices: _Prices, provider: str, instance: str, region: str, usd: _UsdRate) -> _Prices:
    """Prices with what `catalogue_quirks.csv` knows of their cloud and instance type."""
    words = quirk_values(NAME, provider, "doubt", instance)
    if not region.strip(" ,"):
        words += quirk_values(NAME, provider, "region", instance)
    price, spot = prices.usd_per_hour, prices.spot_usd_per_hour
    if quirk_values(NAME, provider, "price", instance) == ("bid floor",):
        # the floor stands in both columns; nobody sells at it on demand
        price, spot, words = None, spot or price, (*words, "bid floor")
    note = ""
    if usd.words:
        words += ("currency converted",)
        note = "" if price is None else f"{price:g} {usd.words}"
        price = None if price is None else price * usd.usd_per_unit
        spot = None if spot is None else spot * usd.usd_per_unit
    if not words:
        return prices
    doubts = (*prices.doubts, *words)
    return _Prices(usd_per_hour=price, spot_usd_per_hour=spot, doubts=doubts, note=note)


def _with_ram_mended(provider: str, listings: Sequence[Listing]) -> Iterator[Listing]:
    """Listings with their RAM right, where the catalogue multiplied it by the GPUs twice.

    Such pods stand out: RAM for each GPU is far above that of the same pod with one GPU.
    """
    if not quirk_values(NAME, provider, "ram"):
        yield from listings
        return
    single = {_pod(one): one.ram_bytes for one in listings if one.gpus == 1 and one.ram_bytes}
    for one in listings:
        usual, ram_bytes = single.get(_pod(one)), one.ram_bytes
        if usual and ram_bytes and ram_bytes / one.gpus > _UNLIKELY_RAM_FACTOR * usual:
            doubts = (*one.doubts, "ram fixed")
            yield replace(one, ram_bytes=ram_bytes / one.gpus, doubts=doubts)
        else:
            yield one


def _pod(listing: Listing) -> str:
    """A pod's name without its number of GPUs: `2x_H100-SXM_SECURE` is `_H100-SXM_SECURE`."""
    return _POD.sub("", listing.instance, count=1)
