"""gpuhunt's published catalogues, and the providers that gpuhunt asks itself.

    <base>/<provider>/version                 20261117-4711: the day it was collected, and a number
    <base>/<provider>/<version>/catalog.zip   <provider>.csv, a row for each machine, place, tenancy

Published are the catalogues of the large clouds. Others are asked live: gpuhunt knows how to ask
and how to read them, and our downloader carries the questions, so that they are bounded like all
others. What they answered is kept as gpuhunt would store it, so that any answer can be read again.
"""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import logging
import math
import os
import re
import threading
import time
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import cache, lru_cache
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlencode

import requests

from outlay.currency import usd_per_unit
from outlay.errors import MissingCredentials, ProviderError
from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu, gpu_match
from outlay.offers.offer import HostQuality
from outlay.prices.download import SECRET, Downloader, is_offline, redacted, refuse_offline
from outlay.prices.price_list import quirk_values
from outlay.prices.sources import Listing, ReadListings, Reply, Unreadable, Validators
from outlay.units import GB, GIB, MIB

if TYPE_CHECKING:
    from gpuhunt import CatalogItem

NAME = "gpuhunt"
OUR_NAMES = {"lambdalabs": "lambda", "digitalocean": "do", "vastai": "vast"}
"""Providers that outlay calls otherwise than gpuhunt does."""
ASKED_OTHERWISE = ("vastai",)
"""Providers that outlay asks itself, for what gpuhunt leaves out (`vast.py`)."""
LIVE_S = 90.0
"""How long a live provider may take for all questions together; a last one may still run out."""

_LARGEST_ZIP = 32 * MIB
_LARGEST_CSV = 128 * MIB
_LARGEST_INDEX = MIB
"""Of a zip: some ten thousand names, where one is expected."""
# Source: .github/scripts/publish_catalog.sh of dstackai/gpuhunt: `date +%Y%m%d`, a dash, and the
# number of the run; before version 3 the day alone.
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_DAY = re.compile(r"(20\d\d)(\d\d)(\d\d)(?=-|$)")
_NEEDED = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "spot")
_LEFT_OUT = {
    "gcp-dws-calendar-mode": "for capacity that is reserved by calendar",
    "gcp-g4-preview": "listed a second time for old versions of dstack",
    "runpod-cluster": "for two to eight machines together",
}
"""Flags of rows that are no offer of one machine on demand or as spot, and what they are."""
# Source: the variables that doctl (docs.digitalocean.com/reference/doctl) and Crusoe's own tools
# (crusoecloud/terraform-provider-crusoe, internal/common) read.
_OWN_VARIABLES = {
    "DIGITAL_OCEAN_API_KEY": ("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN"),
    "CRUSOE_ACCESS_KEY": ("CRUSOE_ACCESS_KEY_ID",),
    "CRUSOE_PROJECT_ID": ("CRUSOE_DEFAULT_PROJECT",),
}
"""What gpuhunt calls a key, and what the provider's own tools call it."""
_REMARK = "# gpuhunt: "
"""Begins a line at the end of a live answer: what gpuhunt left out, and why."""
_MOST_REMARKS = 20
_ABSURD_USD_PER_GPU_HOUR = 10_000.0
# Assumes: no GPU costs as much; the dearest of 2026 was $26 an hour (AWS, B300 in Seoul).


class GpuhuntCatalogue:
    """gpuhunt as a price source."""

    name = NAME

    def __init__(self, rate_day: str | None = None) -> None:
        """`rate_day`: the day of the exchange rates that euros are converted at; None: the newest
        there are."""
        self._rate_day = rate_day

    def providers(self) -> tuple[str, ...]:
        """Everything the installed gpuhunt publishes or can ask, but for what outlay asks."""
        names = [*_published(), *(name for name in _live() if name not in ASKED_OTHERWISE)]
        return tuple(dict.fromkeys(OUR_NAMES.get(name, name) for name in names))

    def ask(self, provider: str, downloader: Downloader, known: Validators | None) -> Reply | None:
        """A catalogue, or what a live provider answers; None where the version is the known one."""
        name = _their_name(provider)
        if name in _published():
            return _ask_published(name, downloader, known)
        if name in _live():
            return _ask_live(name, provider, downloader)
        raise ProviderError(
            f"gpuhunt has no prices of {provider}.",
            why=f"Version {_version()} knows {', '.join(self.providers())}.",
            fix="A newer gpuhunt may: pip install --upgrade gpuhunt.",
        )

    def read(self, provider: str, data: bytes) -> ReadListings:
        """The listings in a catalogue, or in what a live provider answered."""
        name = _their_name(provider)
        packed = data.startswith(b"PK")
        table = _unzipped(data, f"{name}.csv") if packed else data
        text, remarks = _decoded(table)
        reader = _Reader(provider, self._rate_day)
        for row, line in _rows(text):
            reader.take(row, line)
        return reader.listings(remarks)


def live_providers() -> tuple[str, ...]:
    """The providers that gpuhunt asks itself, as outlay names them."""
    names = [name for name in _live() if name not in ASKED_OTHERWISE]
    return tuple(OUR_NAMES.get(name, name) for name in names)


def missing_variable(provider: str) -> str | None:
    """The variable whose absence keeps a live provider from being asked; None where none does."""
    name = _their_name(provider)
    if name not in _live():
        return None
    try:
        _connected(name, provider)
    except MissingCredentials as error:
        return _variable_in(str(error))
    return None


# --- the library ---


def _published() -> tuple[str, ...]:
    return tuple(_library("catalog", "OFFLINE_PROVIDERS"))


def _live() -> tuple[str, ...]:
    return tuple(_library("catalog", "ONLINE_PROVIDERS"))


def _version() -> str:
    return version("gpuhunt")


def _library(module: str, name: str) -> Any:
    """Something that gpuhunt keeps to itself, and that a later version may keep elsewhere."""
    try:
        return getattr(importlib.import_module(f"gpuhunt._internal.{module}"), name)
    except (ImportError, AttributeError):
        raise ProviderError(
            f"gpuhunt {_version()} is not one that outlay knows.",
            why=f"It has no {name}.",
            fix="A newer outlay may know it; else: pip install gpuhunt==0.1.34.",
        ) from None


def _their_name(provider: str) -> str:
    theirs = {ours: name for name, ours in OUR_NAMES.items()}
    return theirs.get(provider, provider)


# --- published catalogues ---


def _base() -> str:
    own = os.environ.get("OUTLAY_GPUHUNT_CATALOG")
    return (own or str(_library("catalog", "CATALOG_URL"))).rstrip("/")


def check_address() -> str:
    """Something small that is there as long as the catalogues are."""
    return f"{_base()}/{_published()[0]}/version"


def _ask_published(name: str, downloader: Downloader, known: Validators | None) -> Reply | None:
    """A provider's newest catalogue, if it is not the known one."""
    base = _base()
    address = f"{base}/{name}/version"
    said = downloader.get(address, largest_bytes=4096)
    newest = "" if said is None else said.data.decode("utf-8", "replace").strip()
    if not _VERSION.fullmatch(newest):
        raise ProviderError(
            f"{redacted(address)} names no catalogue.",
            why=f"It says {newest[:40]!r}, which is no version.",
            fix="Check OUTLAY_GPUHUNT_CATALOG, or try again later.",
        )
    if known is not None and (known.address, known.version) == (redacted(base), newest):
        return None
    zipped = downloader.get(f"{base}/{name}/{newest}/catalog.zip", largest_bytes=_LARGEST_ZIP)
    assert zipped is not None  # nothing conditional was asked
    return Reply(
        data=zipped.data,
        validators=Validators(address=redacted(base), version=newest),
        modified=_day_of(newest) or zipped.modified,
        address=zipped.address,
    )


def _day_of(version: str) -> str:
    """The day in a version, empty where there is none."""
    found = _DAY.match(version)
    try:
        return date(*map(int, found.groups())).isoformat() if found else ""
    except ValueError:
        return ""


# --- live providers ---


def _ask_live(name: str, provider: str, downloader: Downloader) -> Reply:
    """What a provider answers now, as gpuhunt would store it."""
    if is_offline():
        refuse_offline(provider)
    module, connected = _connected(name, provider)
    with _lock_of(name), _heard(module) as remarks, _carried(module, downloader) as carrier:
        items = _items(connected, provider)
    return Reply(
        data=_stored(items, remarks),
        address=carrier.first_address or f"{provider} by gpuhunt {_version()}",
        is_live=True,
    )


def _connected(name: str, provider: str) -> tuple[ModuleType, Any]:
    """A live provider with its key, and the module that it is written in."""
    from gpuhunt import MissingCredsError

    kinds: list[tuple[str, str]] = _library("default", "ONLINE_PROVIDER_MODULES")
    for module_name, class_name in sorted(kinds, key=lambda it: not it[0].endswith(f".{name}")):
        try:
            module = importlib.import_module(module_name)
            kind = getattr(module, class_name)
            if name == kind.NAME:
                with _own_keys():
                    return module, kind.from_env()
        except ImportError:
            continue
        except MissingCredsError as error:
            _refuse_without_key(provider, str(error))
    raise ProviderError(
        f"gpuhunt cannot ask {provider}.",
        why=f"Version {_version()} lists it and has nothing that asks it.",
        fix="pip install --upgrade gpuhunt",
    )


def _refuse_without_key(provider: str, said: str) -> NoReturn:
    variable = _variable_in(said)
    names = " or ".join((variable, *_OWN_VARIABLES.get(variable, ())))
    raise MissingCredentials(
        f"{provider} was not asked: {names} is not set.",
        why="It answers only with a key.",
        fix=f"Set {variable} to yours, or leave {provider} out.",
    )


def _variable_in(said: str) -> str:
    found = re.search(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", said)
    return found[0] if found else "its key"


_keys_lock = threading.Lock()


@contextmanager
def _own_keys() -> Iterator[None]:
    """While a provider is made: keys that are set as its own tools call them, as gpuhunt does."""
    with _keys_lock:
        added = [name for name, others in _OWN_VARIABLES.items() if _borrow(name, others)]
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)


def _borrow(name: str, others: Iterable[str]) -> bool:
    """Set a variable to the first of others that is set, if it is not set itself."""
    value = next((os.environ[other] for other in others if os.environ.get(other)), "")
    if os.environ.get(name) or not value:
        return False
    os.environ[name] = value
    return True


@cache
def _lock_of(name: str) -> threading.Lock:  # noqa: ARG001
    """One lock for each provider, because its module is lent a carrier while it is asked."""
    return threading.Lock()


def _items(connected: Any, provider: str) -> list[CatalogItem]:
    """A provider's items, or in plain words why there are none."""
    try:
        return list(connected.get())
    except _Unanswered as error:
        raise error.error from None
    except Exception as error:
        raise ProviderError(
            f"{provider} answered what gpuhunt {_version()} cannot read.",
            why=f"It met a {type(error).__name__}: the answer has another form than it knows.",
            fix="A newer gpuhunt may read it: pip install --upgrade gpuhunt.",
        ) from None


@contextmanager
def _heard(module: ModuleType) -> Iterator[list[str]]:
    """What gpuhunt warns of while it asks: what it left out. Nothing of it goes to the screen."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, listener = logging.getLogger(module.__name__), Listener(logging.WARNING)
    logger.addHandler(listener)
    try:
        yield messages
    finally:
        logger.removeHandler(listener)


@contextmanager
def _carried(module: ModuleType, downloader: Downloader) -> Iterator[_Carrier]:
    """While a provider is asked, our downloader carries what its module asks of `requests`."""
    carrier, lent = _Carrier(downloader), "requests" in vars(module)
    theirs = vars(module).get("requests")
    if lent:
        vars(module)["requests"] = carrier
    try:
        yield carrier
    finally:
        if lent:
            vars(module)["requests"] = theirs


class _Carrier:
    """What a provider of gpuhunt uses as `requests`: its questions, bounded as all of ours are."""

    def __init__(self, downloader: Downloader) -> None:
        self.first_address = ""
        self._downloader = downloader
        self._ends_at = time.monotonic() + LIVE_S

    def __getattr__(self, name: str) -> Any:
        return getattr(requests, name)

    def get(self, url: str, **options: Any) -> Any:
        """As `requests.get`."""
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> Any:
        """As `requests.post`."""
        return self.request("POST", url, **options)

    def request(self, method: str, url: str, **options: Any) -> Any:
        """As `requests.request`: the answer, or an error that says in our words what happened."""
        query = urlencode(options.get("params") or {})
        address = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
        self.first_address = self.first_address or redacted(address)
        try:
            reply = self._reply(method.upper(), address, options)
        except ProviderError as error:
            raise _Unanswered(error) from None
        answer = requests.Response()
        answer.status_code, answer.url, answer._content = 200, address, reply.data
        return answer

    def _reply(self, method: str, address: str, options: Mapping[str, Any]) -> Reply:
        if time.monotonic() > self._ends_at:
            raise ProviderError(
                f"{redacted(address)} was not asked any more.",
                why=f"All questions together took longer than {LIVE_S:g} s.",
                fix="Try again later.",
            )
        if method == "POST":
            return self._downloader.post(address, options.get("json"))
        reply = self._downloader.get(address, headers=options.get("headers") or {})
        assert reply is not None  # nothing conditional was asked
        return reply


class _Unanswered(requests.RequestException):  # type: ignore[misc]
    """A question of gpuhunt's that got no answer, with our words for it.

    One of `requests`, because providers catch those where they can do without an answer.
    """

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.what)
        self.error = error


def _stored(items: Iterable[CatalogItem], messages: Sequence[str]) -> bytes:
    """Items as gpuhunt stores them, then what it left out."""
    columns, row_of = _library("storage", "CATALOG_V2_FIELDS"), _library("storage", "item_to_row")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row_of(item) for item in items)
    said = list(dict.fromkeys(_without_secrets(message) for message in messages))
    if len(said) > _MOST_REMARKS:
        said = [*said[:_MOST_REMARKS], f"{len(said) - _MOST_REMARKS} more like these"]
    text.writelines(f"{_REMARK}{message}\n" for message in said)
    return text.getvalue().encode()


def _without_secrets(message: str) -> str:
    """A message on one line, without the value of any key."""
    for name, value in os.environ.items():
        if len(value) > 5 and SECRET.search(name):
            message = message.replace(value, "...")
    return "".join(c if c.isprintable() else " " for c in message)[:200]


# --- the zip, and the table in it ---


def _unzipped(data: bytes, member: str) -> bytes:
    """The one file that is expected in a zip; nothing else in it is looked at."""
    _check_index(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if member not in names:
                others = ", ".join(repr(name[:60]) for name in names[:3]) or "nothing"
                raise Unreadable(reason=f"the archive has no {member}, but {others}")
            return _unpacked(archive, archive.getinfo(member))
    except Unreadable:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise Unreadable(reason="the archive is damaged") from error
    except (NotImplementedError, RuntimeError) as error:
        raise Unreadable(reason="the archive is packed in a way that is not known") from error


def _check_index(data: bytes) -> None:
    """Refuse a zip whose list of names alone would fill the memory."""
    # Source: APPNOTE.TXT of PKWARE, 4.3.15 and 4.3.16: the end of the directory and, 20 bytes
    # before it, the locator of its 64-bit form, which no catalogue needs.
    end = data.rfind(b"PK\x05\x06")
    if end < 0:
        raise Unreadable(reason="it is no whole zip archive: its end is missing")
    index_bytes = int.from_bytes(data[end + 12 : end + 16], "little")
    if index_bytes > _LARGEST_INDEX or data[max(end - 20, 0) : end].startswith(b"PK\x06\x07"):
        raise Unreadable(reason="the archive lists more files than any catalogue has")


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member of a zip, no more of it than may be."""
    if info.flag_bits & 0x1:
        raise Unreadable(reason="the archive is encrypted")
    if info.file_size > _LARGEST_CSV:
        raise Unreadable(
            reason=f"{info.filename} would have {info.file_size:,} bytes: no list is that long"
        )
    with archive.open(info) as file:
        data = file.read(_LARGEST_CSV + 1)
    if len(data) > _LARGEST_CSV:
        raise Unreadable(reason=f"{info.filename} goes on beyond {_LARGEST_CSV:,} bytes")
    return data


def _decoded(data: bytes) -> tuple[str, list[str]]:
    """The table as text, and what gpuhunt left out of it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(reason="it is no text in UTF-8") from error
    if not text.strip():
        raise Unreadable(reason="it is empty")
    if text.lstrip().startswith("<"):
        raise Unreadable(reason="it is a web page, no table")
    table, *remarks = text.split(f"\n{_REMARK}")
    return f"{table}\n" if remarks else table, [remark.strip() for remark in remarks]


def _rows(text: str) -> Iterator[tuple[dict[str, str], int]]:
    """The rows of a table, each with the line it ends on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        _check_head(head)
        for cells in reader:
            if cells:
                yield dict(itertools.zip_longest(head, cells[: len(head)])), reader.line_num
    except csv.Error as error:
        raise Unreadable(reason=f"line {reader.line_num} is no CSV ({error})") from error


def _check_head(head: Sequence[str]) -> None:
    gone = [column for column in _NEEDED if column not in head]
    if len(gone) == len(_NEEDED):
        begins = ",".join(head)[:40]
        raise Unreadable(reason=f"it is no list of machines: it begins with {begins!r}")
    if gone:
        raise Unreadable(reason=f"it has no column {', '.join(gone)}")
    if len(set(head)) < len(head):
        raise Unreadable(reason="its head names a column twice")


# --- rows as listings ---


class _BadRow(Exception):
    """A row that cannot be read: says what is wrong."""


@dataclass(slots=True, kw_only=True)
class _Pair:
    """What a machine costs in one place, on demand and as spot."""

    item: CatalogItem
    prices: dict[bool, set[float]] = field(default_factory=lambda: defaultdict(set))
    """By whether it is spot; more than one where the list has it twice."""


class _Reader:
    """What has been read of one provider's table so far."""

    def __init__(self, provider: str, rate_day: str | None) -> None:
        self._provider = provider
        self._item_from_row = _library("storage", "item_from_row")
        self._pairs: dict[tuple[object, ...], _Pair] = {}
        self._failed: list[str] = []
        self._rows = 0
        self._passed: Counter[str] = Counter()
        self._notes: list[str] = []
        self._usd = 1.0
        for currency in quirk_values(NAME, provider, "currency"):
            self._usd, day = usd_per_unit(currency, rate_day)
            self._notes.append(
                f"Listed in {currency}; 1 {currency} = {self._usd:.4f} USD on {day}."
            )

    def take(self, row: Mapping[str, str], line: int) -> None:
        """Read a row: a machine with a GPU; everything else is passed by and counted."""
        if row.get("gpu_count") in ("0", "0.0") and not row.get("gpu_name"):
            self._passed["without a GPU"] += 1
            return
        try:
            item = self._item(row)
        except _BadRow as error:
            self._rows += 1
            self._failed.append(f"line {line}: {error}")
            return
        if reason := self._passed_for(item):
            self._passed[reason] += 1
            return
        self._rows += 1
        pair = self._pairs.setdefault(_machine(item), _Pair(item=item))
        pair.prices[item.spot].add(item.price)

    def _item(self, row: Mapping[str, str]) -> CatalogItem:
        """A row as gpuhunt reads it, if it makes sense."""
        try:
            item: CatalogItem = self._item_from_row(row, provider=_their_name(self._provider))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _BadRow(_printable(str(error))) from None
        _check(item)
        return item

    def _passed_for(self, item: CatalogItem) -> str:
        """Why a machine is no offer, empty where it is one."""
        if item.gpu_count == 0:
            return "without a GPU"
        vendor = item.gpu_vendor.value if item.gpu_vendor else ""
        if vendor not in ("nvidia", "amd"):
            return "with accelerators that are no GPUs"
        flags = [_LEFT_OUT[flag] for flag in item.flags if flag in _LEFT_OUT]
        if flags:
            return flags[0]
        if _host(self._provider, item) == "":
            return "with another host than gpu_hosts.csv has for the GPU"
        return ""

    def listings(self, remarks: Sequence[str]) -> ReadListings:
        """All that was read."""
        passed = ", ".join(f"{count:,} {what}" for what, count in sorted(self._passed.items()))
        if passed:
            self._notes.append(f"Rows left out: {passed}.")
        self._notes.extend(f"gpuhunt: {_printable(remark)}" for remark in remarks)
        return ReadListings(
            listings=tuple(self._listing(pair) for pair in self._pairs.values()),
            rows=self._rows,
            failed=tuple(self._failed),
            notes=tuple(self._notes),
        )

    def _listing(self, pair: _Pair) -> Listing:
        item, provider = pair.item, self._provider
        instance = _instance(provider, item)
        region, zone = _place(provider, item.location)
        gpus, memory_gib = _gpus(provider, item)
        return Listing(
            provider=provider,
            instance=instance,
            gpu=_spelling(provider, item),
            gpus=gpus,
            region=region,
            zone=zone,
            price_usd_per_hour=self._price(pair.prices[False]),
            spot_usd_per_hour=self._price(pair.prices[True]),
            gpu_memory_bytes=None if memory_gib is None else memory_gib * GIB,
            vcpus=float(item.cpu) if item.cpu > 0 else None,
            ram_bytes=_bytes(provider, item.memory, GIB),
            local_disk_bytes=_bytes(provider, item.disk_size, GB),
            host=HostQuality() if provider in _MARKETS else None,
            doubts=tuple(self._doubts(pair, instance)),
        )

    def _price(self, prices: set[float]) -> float | None:
        """Of several prices of one machine the highest: nobody is promised too little."""
        return max(prices) * self._usd if prices else None

    def _doubts(self, pair: _Pair, instance: str) -> Iterator[str]:
        yield from quirk_values(NAME, self._provider, "doubt", instance)
        if self._usd != 1.0:
            yield "currency converted"
        if any(len(prices) > 1 for prices in pair.prices.values()):
            yield "listed twice"
        if self._provider in _MARKETS:
            yield "single host"


_MARKETS = ("lium",)
"""Providers whose items are single hosts (providers/lium.py of gpuhunt)."""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:160]


def _check(item: CatalogItem) -> None:
    """Refuse what gpuhunt's own reader lets through."""
    for text in (item.instance_name, item.location, item.gpu_name or ""):
        if not text.isprintable() or len(text) > 200:
            raise _BadRow("a name has characters that no name has, or far too many")
    if not math.isfinite(item.price) or item.price <= 0:
        raise _BadRow(f"the price {item.price:g} is no price")
    if not 0 <= item.gpu_count <= 1024:
        raise _BadRow(f"{item.gpu_count} is no number of GPUs")
    if item.gpu_count and item.price / item.gpu_count > _ABSURD_USD_PER_GPU_HOUR:
        raise _BadRow(f"{item.price:g} an hour is no price for {item.gpu_count} GPUs")
    if item.gpu_count and not item.gpu_name:
        raise _BadRow("it has GPUs and does not name them")
    for amount in (item.memory, item.disk_size or 0.0, item.gpu_memory or 0.0):
        if not math.isfinite(amount) or amount < 0:
            raise _BadRow(f"{amount:g} GB is no amount of memory or disk")


def _machine(item: CatalogItem) -> tuple[object, ...]:
    """What makes two rows one machine in one place: all but its tenancy and its price."""
    return (
        item.instance_name,
        item.location,
        (item.gpu_name, item.gpu_count, item.gpu_memory),
        (item.cpu, item.memory, item.disk_size),
    )


# --- how gpuhunt writes things ---


def _spelling(provider: str, item: CatalogItem) -> str:
    """The GPU as price_list looks it up: by gpuhunt's name, of which forms are gone."""
    if provider == "runpod":
        # Source: providers/runpod.py: the instance is RunPod's own GPU id, which says the form.
        return str(item.instance_name)
    # Written apart, because a GeForce without its "Ti" is what some providers call another card.
    return re.sub(r"^(RTX|GTX)(?=\d{4})", r"\1 ", item.gpu_name or "")


def _gpus(provider: str, item: CatalogItem) -> tuple[float, float | None]:
    """How many GPUs a machine has, below 1 for a share of one, and the memory of one in GiB."""
    memory_gib = item.gpu_memory or None
    if memory_gib is None:
        return float(item.gpu_count), None
    if "of all GPUs" in quirk_values(NAME, provider, "memory", item.instance_name):
        memory_gib /= item.gpu_count
    whole_gib = _whole_gib(provider, item.instance_name, item.gpu_name or "", memory_gib)
    if item.gpu_count > 1 or whole_gib is None:
        return float(item.gpu_count), memory_gib
    return memory_gib / whole_gib, memory_gib


@lru_cache(4096)
def _whole_gib(provider: str, instance: str, gpu: str, memory_gib: float) -> float | None:
    """The memory of the whole GPU that a machine has a share of; None where it has all of it."""
    from gpuhunt import correct_gpu_memory_gib, find_accelerators

    known = {float(kind.memory) for kind in find_accelerators(names=[gpu]) if kind.memory}
    of_provider = quirk_values(NAME, provider, "whole memory", instance)
    sizes = {float(size) for size in of_provider} or known
    nearest = correct_gpu_memory_gib(gpu, memory_gib * 1024)
    if len(sizes) != 1 or nearest >= max(sizes):
        return None
    return max(sizes)


def _bytes(provider: str, amount: float | None, unit_bytes: int) -> float | None:
    """RAM or disk. gpuhunt calls RAM GB and means GiB, as the providers do that it copies."""
    if not amount:
        return None
    if "GiB times 1.074" in quirk_values(NAME, provider, "ram"):
        return amount / 1.074 * GIB
    return amount * unit_bytes


def _instance(provider: str, item: CatalogItem) -> str:
    """The machine by the name that other lists know it by."""
    if provider == "runpod":
        return _pod(item)
    if provider == "nebius":  # Source: providers/nebius.py: platform and preset, with a space
        return str(item.instance_name).replace(" ", "_")
    if provider in _MARKETS:
        return f"{item.gpu_count}x_{item.instance_name}"
    return _host(provider, item) or str(item.instance_name)


def _host(provider: str, item: CatalogItem) -> str | None:
    """The name of a host with its GPUs, empty where it is none of `gpu_hosts.csv`; None where GPUs
    are no matter of choice.

    GCP's N1 machines take GPUs of any kind and number, and gpuhunt lists all of them.
    """
    if provider != "gcp" or not item.instance_name.startswith("n1-"):
        return None
    return _hosts().get((item.instance_name, item.gpu_name or "", item.gpu_count), "")


@cache
def _hosts() -> dict[tuple[str, str, int], str]:
    return {
        (row["host"], row["gpu"], int(row["gpus"])): row["instance"]
        for row in rows_of("gpu_hosts.csv")
        if row["provider"] == "gcp"
    }


def _place(provider: str, location: str) -> tuple[str, str]:
    """The region and the zone that a location means."""
    if provider == "gcp" and re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", location):
        return location[:-2], location
    if provider == "runpod" and (found := _RUNPOD_PLACE.fullmatch(location)):
        return found["country"] or found["place"], location
    return location, ""


# Source: the regions and zones of runpod in SkyPilot's catalogue of 2026-08-22: US-KS-2 and
# CA-MTL-1 begin with the country, EU-RO-1, EUR-IS-1, SEA-SG-1, OC-AU-1, AP-JP-1 with the continent.
_RUNPOD_PLACE = re.compile(
    r"(?:(?P<country>US|CA)-[A-Z]+|(?:EU|EUR|SEA|OC|AP)-(?P<place>[A-Z]{2}))-\d+"
)


def _pod(item: CatalogItem) -> str:
    """A pod as SkyPilot names it: `2x_A100-80GB-SXM_SECURE`.

    Data centres are RunPod's own, country codes those of its community (providers/runpod.py).
    """
    cloud = "COMMUNITY" if re.fullmatch(r"[A-Z]{2}", item.location) else "SECURE"
    return f"{item.gpu_count}x_{_pod_gpu(item.instance_name)}_{cloud}"


@lru_cache(4096)
def _pod_gpu(spelling: str) -> str:
    """SkyPilot's name of a GPU of RunPod's; RunPod's own where it has none."""
    match = gpu_match(spelling, "runpod")
    named = () if match is None else match.candidates
    known = _pod_names().get(named[0].name) if len(named) == 1 else None
    return known or spelling.replace(" ", "-")


@cache
def _pod_names() -> dict[str, str]:
    """SkyPilot's names of RunPod's GPUs by ours; a name that leaves the form open is that of the
    form without a name of its own."""
    rows = [row for row in rows_of("gpu_spellings.csv") if row["provider"] == "runpod"]
    meanings = [(row["spelling"], find_gpu(row["gpu"]).candidates) for row in rows if row["gpu"]]
    names = {gpus[0].name: spelling for spelling, gpus in meanings if len(gpus) == 1}
    for spelling, gpus in meanings:
        for gpu in gpus:
            names.setdefault(gpu.name, spelling)
    return names
