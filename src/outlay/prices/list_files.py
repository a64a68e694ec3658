"""Reading price lists that people write: CSV with any usual heads, TOML as in a workload file.

Which kind of list a file is, its columns or tables say: offers, discounts, cards or parts.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outlay.currency import (
    DOLLAR,
    known_currencies,
    rate_in_words,
    usd_per_unit,
)
from outlay.errors import InputError, NotKnown
from outlay.facts import CardPrice, Fact, PartPrice
from outlay.hardware.gpu_names import gpu_match
from outlay.offers.candidates import quoted_offer
from outlay.offers.catalog import gpu_filter
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.terms import as_known_provider, known_provider
from outlay.workload.tables import Day, Name, OfferTable
from outlay.workload.toml import FileKind, line_of, model_of, parse_table, reason_of
from outlay.workload.workload import Quote

if TYPE_CHECKING:
    pass


ListKind = Literal["offers", "discounts", "cards", "parts", "rates"]
LIST_FILE = FileKind(
    noun="price list",
    absent="Give the path of a CSV or TOML file.",
    missing="docs/prices.md shows every key.",
)
_CARD_FORM = "PCIe"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDiscount:
    """What comes off a provider's list prices, as agreed: a `[[discount]]` of a list."""

    provider: str
    fraction: float
    instance: str = "*"
    """A pattern of instance types, as in shell globs."""
    gpu: str = ""
    """As in `outlay offers --gpu`; empty: any."""
    tenancy: Tenancy | None = None
    """None: on demand, as spot and for a term."""
    until: str = ""
    """The last day (YYYY-MM-DD); empty: no end."""
    words: str = ""
    """For the source of a price: `15 % off as agreed (your price list edp)`."""

    def is_over(self, today: str) -> bool:
        """Whether it has ended by a day; without a day, not."""
        return bool(today and self.until) and self.until < today

    def fits(self, offer: Offer) -> bool:
        """Whether it is for an offer, whatever the tenancy."""
        from fnmatch import fnmatchcase

        return (
            offer.provider == self.provider
            and fnmatchcase(offer.instance.lower(), self.instance.lower())
            and (not self.gpu or gpu_filter(self.gpu).accepts(offer))
        )

    def fraction_for(self, tenancy: Tenancy) -> float:
        """What comes off in a tenancy."""
        return self.fraction if self.tenancy in (None, tenancy) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnList:
    """One price list, read."""

    name: str
    kind: ListKind
    offers: tuple[Offer, ...] = ()
    unknown: tuple[Offer, ...] = ()
    """Of GPUs that outlay does not know, by the list's spelling."""
    discounts: tuple[OwnDiscount, ...] = ()
    cards: tuple[CardPrice, ...] = ()
    parts: tuple[PartPrice, ...] = ()
    unknown_cards: tuple[str, ...] = ()
    """Cards that outlay does not know, by the list's spelling."""
    expires: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """The last day of offers that have one, by provider, instance and region."""
    rates: tuple[str, ...] = ()
    """The exchange rates that its amounts went through, in words."""

    def offers_on(self, today: str) -> tuple[Offer, ...]:
        """Its offers that have not ended by a day."""
        return tuple(offer for offer in self.offers if not self._is_over(offer, today))

    def _is_over(self, offer: Offer, today: str) -> bool:
        last = self.expires.get(offer.identity, "")
        return bool(today and last) and last < today


# --- reading a list ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """What a list is called, and the days it is read by."""

    name: str
    where: str
    """The file, for messages."""
    today: str
    """Days after it are refused; empty: none is."""
    undated: str
    """The day of prices that say none; empty: they are refused."""


def parse_list(
    data: bytes, name: str, where: str, today: str = "", *, undated: str = ""
) -> OwnList:
    """The list in a file's bytes. `where` names the file in messages; `today` refuses days to
    come; `undated` is the day of prices that say none, which are refused without it."""
    text = _text_of(data, where)
    naming = _Naming(name=name, where=where, today=today, undated=undated)
    return _toml_list(text, naming) if is_toml(data) else _csv_list(text, naming)


def _text_of(data: bytes, where: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is no text in UTF-8 (byte {error.start + 1}).",
            fix="Save it as CSV in UTF-8, or as TOML.",
        ) from None
    if not text.strip():
        raise InputError(f"{where} is empty.", fix=LIST_FILE.absent)
    return text


_TOML_LINE = re.compile(rb"\[|[A-Za-z_]+\s*=")


def is_toml(data: bytes) -> bool:
    """Whether the first line that says anything is one of TOML: a table or a key."""
    lines = (line.strip() for line in data.removeprefix(b"\xef\xbb\xbf").splitlines())
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return bool(_TOML_LINE.match(first))


# TOML: `[[offer]]` as in a workload file, and `[[discount]]`


class OwnOfferTable(OfferTable):
    """An offer of a price list: the keys of a workload file's `[[offer]]`, and three more."""

    valid_until: Day | None = Field(None, description="The last day it can be had at that price.")
    currency: Name | None = Field(None, description="Of its amounts, if not the list's.")
    source: str = Field("", description="Where it was read, or who said so.")

    def arguments(self, usd: float) -> dict[str, Any]:
        """The fields of a quote."""
        own = ("valid_until", "currency", "source")
        return {name: value for name, value in super().arguments(usd).items() if name not in own}


class DiscountTable(BaseModel):
    """What was agreed with a provider, off its list prices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Name
    fraction: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(
        description="What comes off: 0.15 is 15 %."
    )
    instance: Name = Field("*", description="A pattern of instance types: p4d*.")
    gpu: Name | None = None
    tenancy: Literal["on-demand", "spot", "reserved"] | None = None
    until: Day | None = Field(None, description="The last day.")
    note: str = ""


class OwnListFile(BaseModel):
    """A price list in TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: Name = Field(DOLLAR, description="Of every amount, unless an offer has its own.")
    usd_per_unit: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = Field(
        None, description="An exchange rate of your own: dollars for one unit of the currency."
    )
    as_of: Day | None = Field(None, description="The day of offers that have none of their own.")
    offer: tuple[OwnOfferTable, ...] = ()
    discount: tuple[DiscountTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One offer as it stands in a list."""

    where: str
    table: OwnOfferTable
    usd_per_unit: float
    rate: str
    """Of which day the exchange rate is, in words; empty for dollars."""


def _toml_list(text: str, naming: _Naming) -> OwnList:
    where = naming.where
    file = model_of(parse_table(text, where), text, where, OwnListFile, LIST_FILE)
    if not file.offer and not file.discount:
        raise InputError(
            f"{where} has neither an [[offer]] nor a [[discount]].", fix=LIST_FILE.missing
        )
    rows = []
    for index, table in enumerate(file.offer):
        place = f"{where}, line {line_of(text, ['offer', index]) or 1}"
        dated = table.model_copy(update={"as_of": table.as_of or file.as_of})
        if dated.currency is None and file.usd_per_unit is not None:
            rate = (file.usd_per_unit, f"1 {file.currency} is ${file.usd_per_unit:.5g}, your rate")
        else:
            rate = _rate(place, dated.currency or file.currency, naming.today)
        rows.append(_Row(where=place, table=dated, usd_per_unit=rate[0], rate=rate[1]))
    own = _offers_list(rows, naming)
    discounts = tuple(
        _discount(table, own, f"{where}, line {line_of(text, ['discount', index]) or 1}")
        for index, table in enumerate(file.discount)
    )
    kind: ListKind = "offers" if file.offer else "discounts"
    return replace(own, kind=kind, discounts=discounts)


def _discount(table: DiscountTable, own: OwnList, where: str) -> OwnDiscount:
    note = f": {table.note}" if table.note else ""
    try:
        if table.gpu is not None:
            gpu_filter(table.gpu)
        sellers = tuple({offer.provider for offer in (*own.offers, *own.unknown)})
        provider = known_provider(table.provider, sellers)
    except NotKnown as error:
        if "provider" not in error.what or error.suggestions:
            raise InputError(f"{where}: {error.what}", why=error.why, fix=error.fix) from None
        provider = table.provider  # one that nobody has heard of may come with a refresh
    return OwnDiscount(
        provider=provider,
        fraction=table.fraction,
        instance=table.instance,
        gpu=table.gpu or "",
        tenancy=table.tenancy,
        until=table.until or "",
        words=f"{100 * table.fraction:.4g} % off as agreed (your price list {own.name}{note})",
    )


def _rate(where: str, currency: str, today: str) -> tuple[float, str]:
    """Dollars for one unit, and the rate in words: `1 EUR is $1.15, the rate of 2026-10-30`."""
    try:
        usd, day = usd_per_unit(currency)
    except InputError as error:
        raise InputError(f"{where}: {error.what}", why=error.why) from None
    return usd, f"1 {currency.upper()} is ${usd:.5g}, {rate_in_words(day, today)}" if day else ""


# Offers, of either form


def _offers_list(rows: Sequence[_Row], naming: _Naming) -> OwnList:
    known: dict[tuple[str, str, str], Offer] = {}
    unknown: list[Offer] = []
    lines: dict[tuple[str, str, str], str] = {}
    expires: dict[tuple[str, str, str], str] = {}
    for row in rows:
        offer, is_known = _offer(row, naming)
        if offer.identity in lines:
            raise InputError(
                f"{row.where}: {' / '.join(offer.identity)} is there already "
                f"({lines[offer.identity].rpartition(', ')[2]}).",
                why="Provider, instance and region together name an offer.",
                fix="Give each its own instance, or remove one.",
            )
        lines[offer.identity] = row.where
        if is_known:
            known[offer.identity] = offer
        else:
            unknown.append(offer)
        if row.table.valid_until:
            expires[offer.identity] = row.table.valid_until
    return OwnList(
        name=naming.name,
        kind="offers",
        offers=tuple(known.values()),
        unknown=tuple(unknown),
        expires=expires,
        rates=tuple(sorted({row.rate for row in rows if row.rate})),
    )


def _offer(row: _Row, naming: _Naming) -> tuple[Offer, bool]:
    """A row as an offer, and whether outlay knows its GPU."""
    table = row.table.model_copy(update={"as_of": row.table.as_of or naming.undated or None})
    if table.price_usd_per_hour is None and table.spot_usd_per_hour is None:
        raise InputError(
            f"{row.where}: the offer has no price.", fix="Give price_per_hour or spot_per_hour."
        )
    _check_days(row.where, table.as_of or "", table.valid_until or "", naming.today)
    provider = as_known_provider(table.provider)
    gpu, is_known = _gpu_name(table.gpu, provider)
    instance = table.instance or f"{table.gpus}x {gpu}"
    quote: Quote = table.model_copy(update={"instance": instance}).value(row.usd_per_unit)
    try:
        offer = quoted_offer(quote, gpu)
    except InputError as error:
        raise InputError(f"{row.where}: {error.what}", why=error.why, fix=error.fix) from None
    source = _source(naming.name, table.source or table.note, row.rate)
    return replace(offer, source=source, quoted=False, in_own_list=True), is_known


def _source(name: str, said: str, rate: str = "") -> str:
    """`your price list acme: their mail of 3 November; 1 EUR is $1.15, the rate of ...`."""
    return f"your price list {name}{f': {said}' if said else ''}{f'; {rate}' if rate else ''}"


@lru_cache(maxsize=1024)
def _gpu_name(spelling: str, provider: str) -> tuple[str, bool]:
    """What outlay calls a GPU and whether it knows it; else the spelling itself."""
    match = gpu_match(spelling, provider)
    return (spelling, False) if match is None else (match.meaning, True)


def _check_days(where: str, as_of: str, valid_until: str, today: str) -> None:
    if not as_of:
        raise InputError(
            f"{where}: it is not said of which day the price is.",
            fix="Give as_of = 2026-11-01, or import the list: that is the day then.",
        )
    if today and as_of > today:
        raise InputError(
            f"{where}: as_of is {as_of}, a day to come.", fix="Give the day the price was seen."
        )
    if valid_until and valid_until < as_of:
        raise InputError(
            f"{where}: valid_until {valid_until} is before as_of {as_of}.",
            fix="Give the last day the price holds.",
        )


# --- CSV: columns under any usual head ---

_FILLERS = {"per", "a", "an", "the", "of", "in", "for", "each", "and"}
_SAME_WORDS = {"hr": "hour", "h": "hour", "hours": "hour", "hourly": "hour", "ondemand": "demand",
               "on": "demand", "cost": "price", "rate": "price", "cpus": "vcpus", "vcpu": "vcpus",
               "url": "source", "link": "source", "count": "number",
               "num": "number", "qty": "number", "location": "region", "cloud": "provider",
               "vendor": "provider", "accelerator": "gpu", "model": "name", "comment": "note",
               "notes": "note", "date": "day", "seen": "day", "component": "part"}  # fmt: skip
_SYMBOLS = {"$": " usd ", "€": " eur ", "£": " gbp ", "/": " per "}
_SIZE_UNITS = {"gb", "gib", "tb", "tib", "mb", "mib"}
_SIZES = ("ram", "local_disk")
_PRICES = ("price_per_hour", "price_per_gpu_hour", "spot_per_hour", "spot_per_gpu_hour", "price")
_NUMBERS = ("vcpus", "network_gbit", "upfront")
_RANGES = ("disk_mb_per_s", "interruptions_per_month", "setup_cost")
_DAYS = ("as_of", "valid_until")

_COMMON = {
    "currency": ("currency",),
    "as_of": ("as_of", "day", "as"),
    "source": ("source",),
    "note": ("note",),
}
_COLUMNS: dict[ListKind, dict[str, tuple[str, ...]]] = {
    "offers": {
        "provider": ("provider", "provider_name"),
        "instance": ("instance", "instance_type", "machine", "machine_type", "sku", "type"),
        "gpu": ("gpu", "gpu_name", "gpu_type"),
        "gpus": ("gpus", "gpu_number", "number_gpus"),
        "region": ("region",),
        "price_per_hour": ("price_hour", "price", "hour", "demand", "demand_price",
                           "demand_hour", "demand_price_hour"),
        "price_per_gpu_hour": ("price_gpu_hour", "price_gpu", "gpu_hour"),
        "spot_per_hour": ("spot_hour", "spot", "spot_price", "spot_price_hour"),
        "spot_per_gpu_hour": ("spot_gpu_hour", "spot_gpu", "spot_price_gpu_hour"),
        "valid_until": ("valid_until", "until", "expires"),
        "vcpus": ("vcpus",),
        "ram": ("ram",),
        "local_disk": ("local_disk", "local_ssd"),
        "network_gbit": ("network_gbit", "network_gbps", "network_gbit_s"),
        "disk": ("disk", "disk_kind"),
        "disk_mb_per_s": ("disk_mb_s",),
        "interruptions_per_month": ("interruptions_month",),
        "term": ("term",),
        "upfront": ("upfront",),
        "setup": ("setup",),
        "setup_cost": ("setup_price",),
        **_COMMON,
    },
    "cards": {
        "card": ("card", "gpu", "gpu_name", "card_name", "name"),
        "condition": ("condition",),
        "price": ("price",),
        **_COMMON,
    },
    "parts": {"part": ("part", "name", "part_name"), "price": ("price",), **_COMMON},
}  # fmt: skip
"""The columns of each kind of list, and what their heads are read as once units, currencies and
small words are taken off."""
_REQUIRED: dict[ListKind, tuple[str, ...]] = {
    "offers": ("provider", "gpu"),
    "cards": ("card", "condition", "price"),
    "parts": ("part", "price"),
}
_TELLING: tuple[tuple[str, ListKind], ...] = (
    ("provider", "offers"),
    ("part", "parts"),
    ("condition", "cards"),
)
"""Columns that only one kind of list has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column of a list: which it is, and what its head says of the unit."""

    head: str
    key: str
    currency: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """One line of a list, by column."""

    where: str
    by_key: Mapping[str, str]
    columns: Mapping[str, _Column]
    comma_parts_cells: bool
    """Whether cells are parted by commas, so that one within a number is no decimal point."""

    def text(self, key: str) -> str:
        """A cell; empty where the column is not there."""
        return self.by_key.get(key, "")

    def number(self, key: str) -> float | None:
        """The number in a cell, None where it is empty."""
        text = self.text(key)
        return _number(f"{self.where}: {self.head(key)}", text, self) if text else None

    def head(self, key: str) -> str:
        """What the list calls a column."""
        return self.columns[key].head if key in self.columns else key

    def currency(self, *keys: str) -> str:
        """The currency of a line: of its own cell, or of the head of its prices."""
        heads = {self.columns[key].currency for key in keys if key in self.columns} - {""}
        said = {*heads, *([self.text("currency").upper()] if self.text("currency") else [])}
        if len(said) > 1:
            raise InputError(
                f"{self.where}: the prices are in {' and '.join(sorted(said))} at once.",
                fix="Name the currency in the heads or in the column currency, not both.",
            )
        return next(iter(said), DOLLAR)


def _csv_list(text: str, naming: _Naming) -> OwnList:
    where = naming.where
    head, lines, delimiter = _csv_lines(text, where)
    kind = _kind_of(head)
    columns = _columns_of(kind, head, where)
    cells = [
        _Cells(
            where=f"{where}, line {line}",
            by_key={column.key: cell for column, cell in zip(columns, row, strict=True)},
            columns={column.key: column for column in columns},
            comma_parts_cells=delimiter == ",",
        )
        for line, row in lines
    ]
    if not cells:
        raise InputError(f"{where} has a head and no line below it.")
    if kind == "offers":
        return _offers_list([_offer_row(line, naming.today) for line in cells], naming)
    return _cards_list(cells, naming) if kind == "cards" else _parts_list(cells, naming)


def _csv_lines(text: str, where: str) -> tuple[list[str], list[tuple[int, list[str]]], str]:
    """The head, the lines below it with their numbers, and what parts the cells."""
    said = (line for line in text.splitlines() if line.strip(" \t,;") and line[0] != "#")
    delimiter = max(",;\t", key=next(said, "").count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise InputError(f"{where}, line {reader.line_num}: no CSV: {error}.") from error
    if not lines:
        raise InputError(f"{where} is empty.", fix=LIST_FILE.absent)
    _, head = lines.pop(0)
    for line, cells in lines:
        if len(cells) != len(head):
            raise InputError(
                f"{where}, line {line}: {len(cells)} cells where the head has {len(head)}.",
                why="The line is cut short, or a comma stands in a cell without quotes.",
                fix='Put such a cell in quotes: "1,299.00".',
            )
    return head, lines, delimiter


def _words(head: str) -> list[str]:
    """The words of a head that say which column it is."""
    plain = head.strip().casefold()
    for symbol, word in _SYMBOLS.items():
        plain = plain.replace(symbol, word)
    words = [_SAME_WORDS.get(word, word) for word in re.findall(r"[a-z0-9]+", plain)]
    return list(dict.fromkeys(word for word in words if word not in _FILLERS))


def _column(kind: ListKind, head: str) -> _Column | None:
    """The column that a head means, with the unit or currency in it; None: no such column."""
    words = _words(head)
    readings = [(words, "", "")]
    codes = [word for word in words if word.upper() in known_currencies()]
    units = [word for word in words if word in _SIZE_UNITS]
    readings += [([word for word in words if word != code], code.upper(), "") for code in codes]
    readings += [([word for word in words if word != unit], "", unit) for unit in units]
    for rest, currency, unit in readings:
        for key, names in _COLUMNS[kind].items():
            if {"_".join(rest), "_".join(sorted(rest))} & _spellings(key, names):
                if (currency and key not in _PRICES) or (unit and key not in _SIZES):
                    continue
                return _Column(head=head, key=key, currency=currency, unit=unit)
    return None


@cache
def _spellings(key: str, names: tuple[str, ...]) -> frozenset[str]:
    """What the words of a column's head may be, in their order and sorted."""
    spelled = {*names, "_".join(_words(key))}
    return frozenset(spelled | {"_".join(sorted(name.split("_"))) for name in spelled})


def _kind_of(head: Sequence[str]) -> ListKind:
    """The kind of list that has such a head: by a column that no other has, else by most."""
    for key, kind in _TELLING:
        if any((column := _column(kind, name)) and column.key == key for name in head):
            return kind
    return max(_COLUMNS, key=lambda kind: sum(_column(kind, name) is not None for name in head))


def _columns_of(kind: ListKind, head: Sequence[str], where: str) -> list[_Column]:
    """The columns of a head; one that is missing, foreign or there twice is an error."""
    columns: list[_Column] = []
    for name in head:
        column = _column(kind, name)
        if column is None:
            raise _no_such_column(kind, name, where)
        twice = next((other for other in columns if other.key == column.key), None)
        if twice is not None:
            raise InputError(
                f"{where}, line 1: {twice.head!r} and {name!r} are both {column.key}.",
                fix="Remove one.",
            )
        columns.append(column)
    missing = [key for key in _REQUIRED[kind] if key not in {column.key for column in columns}]
    if missing:
        raise InputError(
            f"{where}, line 1: there is no column {missing[0]!r}.",
            why=f"It was read as a list of {kind}, whose columns are {', '.join(_COLUMNS[kind])}.",
        )
    return columns


def _no_such_column(kind: ListKind, name: str, where: str) -> InputError:
    known = list(_COLUMNS[kind])
    near = difflib.get_close_matches("_".join(_words(name)), known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return InputError(
        f"{where}, line 1: there is no column {name!r}.",
        why=f"{hint}It was read as a list of {kind}.",
        fix=f"Its columns are {', '.join(known)}.",
    )


_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_IN_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")


def _number(where: str, text: str, cells: _Cells | None = None) -> float:
    """A number, perhaps with commas between thousands where a comma can be nothing else."""
    plain = text
    if (cells is None or cells.comma_parts_cells) and _IN_THOUSANDS.fullmatch(text):
        plain = text.replace(",", "")
    if not _PLAIN_NUMBER.fullmatch(plain) or not math.isfinite(float(plain)):
        raise InputError(
            f"{where}: {text!r} is no number.",
            fix="Write it with a point and without a unit: 1299.50.",
        )
    return float(plain)


def _offer_row(cells: _Cells, today: str) -> _Row:
    currency = cells.currency(*_PRICES)
    try:
        table = OwnOfferTable.model_validate(_offer_keys(cells))
    except ValidationError as error:
        raise _bad_cell(error, cells) from None
    usd, rate = _rate(cells.where, currency, today)
    return _Row(where=cells.where, table=table, usd_per_unit=usd, rate=rate)


def _offer_keys(cells: _Cells) -> dict[str, Any]:
    """A line as the keys of an `[[offer]]`; what is empty is not there."""
    keys: dict[str, Any] = {}
    for key in ("provider", "gpu", "instance", "region", "disk", "note", "source", "term", "setup"):
        keys[key] = cells.text(key)
    for key in _DAYS:
        keys[key] = cells.text(key)
    for key in _NUMBERS:
        keys[key] = cells.number(key)
    for key in _RANGES:
        keys[key] = cells.text(key) if ".." in cells.text(key) else cells.number(key)
    for key in _SIZES:
        keys[key] = _size(cells, key)
    keys["gpus"] = _whole(cells, "gpus")
    keys["price_per_hour"] = _hourly(cells, "price", keys["gpus"] or 1)
    keys["spot_per_hour"] = _hourly(cells, "spot", keys["gpus"] or 1)
    return {key: value for key, value in keys.items() if value not in (None, "")}


def _whole(cells: _Cells, key: str) -> int | None:
    number = cells.number(key)
    if number is not None and number != int(number):
        raise InputError(f"{cells.where}: {cells.head(key)} = {cells.text(key)}: no whole number.")
    return None if number is None else int(number)


def _size(cells: _Cells, key: str) -> str:
    """A size with its unit: of the cell, or of the head."""
    text = cells.text(key)
    if not text or not _PLAIN_NUMBER.fullmatch(text):
        return text
    unit = cells.columns[key].unit
    if not unit:
        raise InputError(
            f"{cells.where}: {cells.head(key)} = {text} has no unit.",
            fix=f"Call the column {key}_gib, or write {text}GiB.",
        )
    return f"{text}{unit}"


def _hourly(cells: _Cells, price: str, gpus: int) -> float | None:
    """The price of a whole machine, which may be given for one of its GPUs."""
    whole, each = cells.number(f"{price}_per_hour"), cells.number(f"{price}_per_gpu_hour")
    if whole is not None and each is not None:
        raise InputError(
            f"{cells.where}: there is a price of the machine and one of a GPU.",
            fix="Leave one of the cells empty.",
        )
    return each * gpus if each is not None else whole


def _bad_cell(error: ValidationError, cells: _Cells) -> InputError:
    """What is wrong with a cell, in the words of the list."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing":
        return InputError(f"{cells.where}: {cells.head(key)} is empty.")
    shown = cells.text(key) or first["input"]
    what = f"{cells.head(key)} = {shown}: " if key else ""
    return InputError(f"{cells.where}: {what}{reason_of(first['msg'])}.")


# Cards and parts


def _cards_list(lines: Sequence[_Cells], naming: _Naming) -> OwnList:
    cards: dict[tuple[str, str], CardPrice] = {}
    unknown: list[str] = []
    for cells in lines:
        condition = cells.text("condition").casefold()
        if condition not in ("new", "used"):
            raise InputError(
                f"{cells.where}: {cells.head('condition')} = {cells.text('condition')!r}.",
                why="A card is new or used.",
            )
        gpu, fact = _card_gpu(cells), _price_fact(cells, naming)
        if gpu is None:
            unknown.append(cells.text("card"))
            continue
        _refuse_twice(cells, (gpu, condition), cards)
        cards[gpu, condition] = CardPrice(gpu=gpu, condition=condition, fact=fact)
    return OwnList(
        name=naming.name,
        kind="cards",
        cards=tuple(cards.values()),
        unknown_cards=tuple(unknown),
        rates=_rates_of(lines, naming.today),
    )


def _card_gpu(cells: _Cells) -> str | None:
    """The GPU of a card, None where outlay knows none of that name; it must be one alone."""
    spelling = cells.text("card")
    if not spelling:
        raise InputError(f"{cells.where}: the card has no name.")
    match = gpu_match(spelling)
    if match is None:
        return None
    candidates = match.candidates
    as_card = [gpu for gpu in candidates if gpu.form == _CARD_FORM and " MIG " not in gpu.name]
    meant = as_card or list(candidates)
    if len(meant) > 1:
        raise InputError(
            f"{cells.where}: {spelling!r} may be {' or '.join(gpu.name for gpu in meant)}.",
            fix="Write which: their prices differ.",
        )
    return meant[0].name


def _parts_list(lines: Sequence[_Cells], naming: _Naming) -> OwnList:
    parts: dict[str, PartPrice] = {}
    for cells in lines:
        part = cells.text("part")
        if not part:
            raise InputError(f"{cells.where}: the part has no name.")
        _refuse_twice(cells, part.casefold(), parts)
        parts[part.casefold()] = PartPrice(part=part, fact=_price_fact(cells, naming))
    return OwnList(
        name=naming.name,
        kind="parts",
        parts=tuple(parts.values()),
        rates=_rates_of(lines, naming.today),
    )


def _rates_of(lines: Sequence[_Cells], today: str) -> tuple[str, ...]:
    """The exchange rates of the prices in a list, in words."""
    rates = {_rate(cells.where, cells.currency("price"), today)[1] for cells in lines}
    return tuple(sorted(rates - {""}))


def _refuse_twice(cells: _Cells, key: object, known: Mapping[Any, object]) -> None:
    if key in known:
        name = cells.text("card") or cells.text("part")
        raise InputError(f"{cells.where}: {name!r} stands there twice.", fix="Remove one.")


def _price_fact(cells: _Cells, naming: _Naming) -> Fact:
    """The price of a card or part, with its day and who says so."""
    where = f"{cells.where}: {cells.head('price')}"
    amount = cells.number("price")
    if amount is None or not 0 < amount <= 1e9:
        raise InputError(f"{where}: {cells.text('price')!r} is no price above zero.")
    as_of = _day(cells, "as_of") or naming.undated
    _check_days(cells.where, as_of, "", naming.today)
    return Fact(
        text=repr(amount),
        unit=cells.currency("price"),
        source=_source(naming.name, cells.text("source")),
        as_of=as_of,
        note=cells.text("note"),
    )


def _day(cells: _Cells, key: str) -> str:
    text = cells.text(key)
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise InputError(
            f"{cells.where}: {cells.head(key)} = {text!r} is no day.", fix="Write 2026-11-01."
        ) from None


# A list without days has the day it was imported


def with_days(data: bytes, where: str, today: str) -> bytes:
    """The list as it is kept: with the day of import where it says none."""
    text = _text_of(data, where)
    if is_toml(data):
        table = parse_table(text, where)
        undated = "as_of" not in table and any(
            isinstance(offer, dict) and "as_of" not in offer for offer in _listed(table, "offer")
        )
        return f'as_of = "{today}"\n{text}'.encode() if undated else text.encode()
    head, lines, delimiter = _csv_lines(text, where)
    kind = _kind_of(head)
    places = [place for place, name in enumerate(head) if _is_day(kind, name)]
    if places and all(row[places[0]] for _, row in lines):
        return text.encode()
    if not places:
        places = [len(head)]
        head, lines = [*head, "as_of"], [(line, [*row, ""]) for line, row in lines]
    for _, row in lines:
        row[places[0]] = row[places[0]] or today
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n")
    writer.writerows([head, *(row for _, row in lines)])
    return written.getvalue().encode()


def _listed(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key)
    return value if isinstance(value, list) else []


def _is_day(kind: ListKind, head: str) -> bool:
    column = _column(kind, head)
    return column is not None and column.key == "as_of"
