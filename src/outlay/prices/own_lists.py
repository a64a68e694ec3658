"""Price lists of one's own: offers, agreed discounts, prices of cards and parts, exchange rates.

Lists lie in `price_lists/` of the data folder as they were imported, CSV or TOML; which of them it
is, its columns or tables say:

    offers      what a machine costs oneself: goes before every other price of the same machine
    discounts   what comes off a provider's list prices (TOML: `[[discount]]`)
    cards       what a graphics card was seen for, new or used
    parts       the same of other parts of a workstation

A list is taken whole or not at all: the first cell that cannot be used is an `InputError` with the
line. GPUs that outlay does not know are kept and named. Amounts in another currency become dollars
at the newest exchange rate, whose day the source of a price says.

A discount comes off a list price once: prices in a list of one's own are what one pays, so that
none comes off them, and where the workload file has a discount for a provider
(`[[provider]] discount`), that one counts and a list's does not (`offers.candidates`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.currency import (
    DOLLAR,
    LARGEST_BYTES,
    DailyRates,
    is_rates_file,
    keep_rates,
    known_rates,
    rate_in_words,
    rates_file,
    read_rates,
)
from outlay.errors import InputError, NotKnown, ProviderError
from outlay.facts import ImportedPrices
from outlay.files import PRICE_LISTS, data_folder, read_data, write_whole
from outlay.offers.offer import AgreedDiscount, Offer, Tenancy
from outlay.prices.list_files import (
    LIST_FILE,
    ListKind,
    OwnDiscount,
    OwnList,
    is_toml,
    parse_list,
    with_days,
)
from outlay.prices.price_store import Attempt, State
from outlay.prices.sources import BadReply, Validators

if TYPE_CHECKING:
    from outlay.prices.download import Downloader

FOLDER = PRICE_LISTS
"""In the data folder."""
RATES = "rates"
"""The name of what is no list: exchange rates."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSummary:
    """What is in a list, for whoever imported it."""

    name: str
    kind: ListKind | None
    """None where it cannot be read."""
    rows: int
    """Offers, cards or parts; of exchange rates, days."""
    discounts: int = 0
    as_of: str | None
    """The newest day in it."""
    gpus: tuple[str, ...] = ()
    """That were recognised, as outlay names them."""
    unknown: tuple[str, ...] = ()
    """Names that outlay does not know: kept, and in no plan."""
    notes: tuple[str, ...] = ()


# --- what a command works with ---


def own_offers(today: str) -> tuple[Offer, ...]:
    """The offers of all lists of one's own that have not ended; of one machine, the newest.

    Raises `InputError` where a list cannot be read: planning without it would be planning with
    other prices than the user's.
    """
    newest: dict[tuple[str, str, str], Offer] = {}
    for own in own_lists(today):
        for offer in own.offers_on(today):
            known = newest.get(offer.identity)
            if known is None or offer.as_of >= known.as_of:
                newest[offer.identity] = offer
    return tuple(newest.values())


def unknown_own_offers(today: str) -> tuple[Offer, ...]:
    """Offers of lists of one's own whose GPU outlay does not know."""
    return tuple(offer for own in own_lists(today) for offer in own.unknown)


def own_first(own: Sequence[Offer], listed: Iterable[Offer]) -> tuple[Offer, ...]:
    """One's own offers before listed ones; one's own takes the place of the same machine's.

    It says in its source which price that was, and has the figures of the machine that its list
    does not give.
    """
    mine = {offer.identity: offer for offer in own}
    rest: list[Offer] = []
    for offer in listed:
        if offer.identity in mine:
            mine[offer.identity] = _in_place_of(offer, mine[offer.identity])
        else:
            rest.append(offer)
    return (*mine.values(), *rest)


def _in_place_of(listed: Offer, own: Offer) -> Offer:
    usd = listed.price_usd_per_hour
    price = "an offer without a price" if usd is None else f"${usd:.5g} an hour"
    is_same_gpu = own.gpu == listed.gpu or listed.gpu.startswith(f"{own.gpu} ")
    return replace(
        own,
        source=f"{own.source}; in place of {price} ({listed.source}, {listed.as_of})",
        gpu=listed.gpu if is_same_gpu else own.gpu,
        gpu_memory_bytes=listed.gpu_memory_bytes if is_same_gpu else own.gpu_memory_bytes,
        vcpus=own.vcpus or listed.vcpus,
        ram_bytes=own.ram_bytes or listed.ram_bytes,
        local_disk_bytes=own.local_disk_bytes or listed.local_disk_bytes,
    )


def discounted(offers: Iterable[Offer], today: str = "") -> tuple[Offer, ...]:
    """Offers with what was agreed off their list prices; the first discount that fits counts.

    None comes off one's own offers and machines. Without a day, no discount has ended.
    """
    discounts = [
        discount
        for own in own_lists(today)
        for discount in own.discounts
        if not discount.is_over(today)
    ]
    if not discounts:
        return tuple(offers)
    return tuple(_less_agreed(offer, discounts) for offer in offers)


def _less_agreed(offer: Offer, discounts: Sequence[OwnDiscount]) -> Offer:
    if offer.is_promised or offer.owned is not None or offer.discount is not None:
        return offer
    fitting = [discount for discount in discounts if discount.fits(offer)]
    if not fitting:
        return offer

    def first(tenancy: Tenancy) -> OwnDiscount | None:
        return next((item for item in fitting if item.fraction_for(tenancy)), None)

    by_tenancy = {tenancy: first(tenancy) for tenancy in ("on-demand", "spot", "reserved")}
    fractions = {name: item.fraction if item else 0.0 for name, item in by_tenancy.items()}
    return offer.less(
        AgreedDiscount(
            on_demand_fraction=fractions["on-demand"],
            spot_fraction=fractions["spot"],
            reserved_fraction=fractions["reserved"],
            words="; ".join(dict.fromkeys(item.words for item in by_tenancy.values() if item)),
        )
    )


def imported_prices(today: str) -> ImportedPrices:
    """The prices of cards and parts in all lists of one's own."""
    lists = own_lists(today)
    return ImportedPrices(
        cards=tuple(price for own in lists for price in own.cards),
        parts=tuple(price for own in lists for price in own.parts),
    )


# --- the folder of lists ---


def own_lists(today: str) -> tuple[OwnList, ...]:
    """Every list that is kept, by name."""
    return tuple(_kept_list(path, today) for path in _kept_files())


def _kept_files() -> list[Path]:
    try:
        files = sorted((data_folder() / FOLDER).iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{data_folder() / FOLDER} cannot be read: {error.strerror}.") from error
    return [path for path in files if path.suffix.lower() in (".csv", ".toml")]


def _kept_list(path: Path, today: str) -> OwnList:
    state = path.stat()
    return _read_kept(path, today, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=64)
def _read_kept(path: Path, today: str, changed: tuple[int, int]) -> OwnList:  # noqa: ARG001
    """A kept list; `changed` tells its versions apart."""
    try:
        return parse_list(_data_of(path), path.stem, str(path), today)
    except InputError as error:
        fix = f"Mend the file, or remove it: outlay prices import --remove {path.stem!r}."
        raise InputError(error.what, why=error.why, fix=f"{error.fix} {fix}".strip()) from error


def _data_of(path: Path) -> bytes:
    try:
        return read_data(path)
    except FileNotFoundError:
        raise InputError(f"There is no price list {path}.", fix=LIST_FILE.absent) from None
    except ValueError as error:
        raise InputError(f"The price list {path} cannot be read: {error}") from error


def import_list(path: Path, today: str, name: str = "") -> ListSummary:
    """Check a list and keep it under a name (else the file's own), in the place of one that has it.

    Exchange rates are recognised, too, and kept as those.
    """
    data = _data_of(path)
    if is_rates_file(data):
        keep_rates(read_rates(data, str(path)), today)
        return _rates_summary(today)
    name = _checked_name(name or path.stem)
    own = parse_list(data, name, str(path), today, undated=today)
    dated = with_days(data, str(path), today)
    suffix = ".toml" if is_toml(data) else ".csv"
    kept = data_folder() / FOLDER / f"{name}{suffix}"
    _make_folder(kept.parent)
    write_whole(kept, dated)
    other = kept.with_suffix(".csv" if suffix == ".toml" else ".toml")
    other.unlink(missing_ok=True)
    return summary_of(own, today)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The folder {folder} cannot be made: {error.strerror}.",
            fix="OUTLAY_DATA says where outlay keeps its files.",
        ) from error


def _checked_name(name: str) -> str:
    if name.lower() == RATES or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name for a price list.",
            why="A name has letters, digits, spaces, dots, dashes and underscores, 64 at most; "
            f"{RATES!r} are the exchange rates.",
            fix="Give another with --as.",
        )
    return name


def remove_list(name: str) -> None:
    """Remove a list by its name, or the exchange rates that were refreshed or imported."""
    by_name: dict[str, list[Path]] = {}
    for path in _kept_files():
        by_name.setdefault(path.stem, []).append(path)
    if rates_file().exists():
        by_name[RATES] = [rates_file(), _validators_file()]
    if name not in by_name:
        raise NotKnown(
            "price list", name, by_name, fix="`outlay prices import --list` has those there are."
        )
    for path in by_name[name]:
        path.unlink(missing_ok=True)


def kept_summaries(today: str) -> list[ListSummary]:
    """What is kept: every list, one that cannot be read included, and refreshed exchange rates."""
    summaries = [_summary_at(path, today) for path in _kept_files()]
    return [*summaries, *([_rates_summary(today)] if rates_file().exists() else [])]


def _summary_at(path: Path, today: str) -> ListSummary:
    try:
        return summary_of(_kept_list(path, today), today)
    except InputError as error:
        return ListSummary(name=path.stem, kind=None, rows=0, as_of=None, notes=(str(error),))


def summary_of(own: OwnList, today: str) -> ListSummary:
    """What is in a list, in figures."""
    days = [offer.as_of for offer in (*own.offers, *own.unknown)]
    days += [card.fact.as_of for card in own.cards] + [part.fact.as_of for part in own.parts]
    names = (*(offer.gpu for offer in own.offers), *(card.gpu for card in own.cards))
    unknown = (*(offer.gpu for offer in own.unknown), *own.unknown_cards)
    items = (own.offers, own.unknown, own.cards, own.parts, own.unknown_cards)
    return ListSummary(
        name=own.name,
        kind=own.kind,
        rows=sum(map(len, items)),
        discounts=len(own.discounts),
        as_of=max(days, default=None),
        gpus=tuple(sorted(set(names))),
        unknown=tuple(dict.fromkeys(unknown)),
        notes=tuple(_notes(own, today)),
    )


def _notes(own: OwnList, today: str) -> Iterator[str]:
    ended = len(own.offers) - len(own.offers_on(today))
    if ended:
        yield f"{ended} of its offers have ended and count no more."
    over = sum(discount.is_over(today) for discount in own.discounts)
    if over:
        yield f"{over} of its discounts have ended and come off no more."
    yield from (f"{rate}." for rate in own.rates)


# --- refreshing exchange rates ---

RATES_ADDRESS = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist.zip"
"""Every day since 1999, of the European Central Bank; OUTLAY_RATES sets another place."""


def _rates_summary(today: str) -> ListSummary:
    known = known_rates()
    rate = rate_in_words(known.last, today)
    return ListSummary(
        name=RATES,
        kind="rates",
        rows=len(known.days),
        as_of=known.last,
        notes=(f"1 EUR is ${known.days[known.last][DOLLAR]:g}, {rate}.",),
    )


def rates_address() -> str:
    """Where exchange rates are read."""
    return os.environ.get("OUTLAY_RATES") or RATES_ADDRESS


def refresh_rates(downloader: Downloader, now: str) -> Attempt:
    """Ask for today's exchange rates and keep them where they are good; what happened.

    `now` is UTC, `2026-11-16T20:15:00Z`. `offers` of the attempt are the currencies that have a
    rate on the newest day. What is at hand stays where nothing better comes.
    """
    address = rates_address()
    known = known_rates()
    try:
        reply = downloader.get(address, _last_validators(address), largest_bytes=LARGEST_BYTES)
    except BadReply as error:
        return _attempt("refused", now, known, f"{error.what} {error.why}")
    except ProviderError as error:
        return _attempt("kept", now, known, str(error))
    if reply is None:
        return _attempt("unchanged", now, known)
    try:
        rates = read_rates(reply.data)
        keep_rates(rates, now[:10])
        _keep_validators(address, reply.validators)
    except InputError as error:
        return _attempt("refused", now, known, str(error))
    return _attempt("unchanged" if rates.days.is_same(known.days) else "fresh", now, rates)


def _attempt(state: State, now: str, rates: DailyRates, reason: str | None = None) -> Attempt:
    return Attempt(
        source=RATES,
        provider="ecb",
        at=now,
        state=state,
        offers=len(rates.days[rates.last]),
        as_of=rates.last,
        reason=reason,
    )


def _validators_file() -> Path:
    return rates_file().with_suffix(".json")


def _last_validators(address: str) -> Validators | None:
    """What the place said of its last good reply; None where that was another, or is gone."""
    try:
        kept = json.loads(_validators_file().read_bytes())
        if not rates_file().exists() or kept["address"] != address:
            return None
        return Validators(etag=str(kept["etag"]), address=str(kept["said_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep_validators(address: str, validators: Validators) -> None:
    kept = {
        "address": address,
        "said_at": validators.address,
        "etag": validators.etag,
    }
    write_whole(_validators_file(), json.dumps(kept).encode())
