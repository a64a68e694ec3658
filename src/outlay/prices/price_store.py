"""What is kept of prices under the user's data folder: the last good ones, and all there ever were.

One SQLite file, `prices.sqlite`: a refresh is one transaction for each source and provider, so
that one that is killed leaves the old prices whole, and two at once wait for each other.

    provider_prices   the last good offers of a source and provider, as JSON that zlib has packed
    attempts          every time that a source was asked, and how that ended
    price_keys        what a price is of: source, provider, instance, region, zone, GPU, its number
    derived           what commands work with, worked out of the last good offers
    price_changes     (key, time, price, spot), only where one of them changed; both empty: gone;
                      beside them the day of the list, and which doubts the offer had

The journal is SQLite's rollback journal, not its write-ahead log: home folders of clusters lie on
network file systems, where the log does not work, and a folder that may only be read has no place
for the log's index. A reader sees the last commit while a refresh writes; it waits for the
milliseconds of a commit alone. What is written is never spilled before its commit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from outlay.errors import PriceStoreFailed
from outlay.files import data_folder, free_path, to_json
from outlay.offers.catalog import doubt_kinds
from outlay.offers.offer import Doubt, Offer
from outlay.prices.sources import ProviderPrices, Validators, ZonePrice
from outlay.units import DAY_S, WEEK_S

T = TypeVar("T")
State = Literal["fresh", "unchanged", "kept", "refused"]
"""How asking ended: new prices; the same as before; no answer, so that the last good ones are
kept; an answer that was refused whole, so that the last good ones are kept."""
UNREAD = "rows could not be read"
"""What a note of an attempt says of rows that were left out."""
VERSION = 1
"""Of the file's tables, its `user_version`."""
READ_WAIT_S = 2.0
"""How long a reader waits for a commit to end."""
WRITE_WAIT_S = 20.0
"""How long a refresh waits for another that writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One time that a source was asked about a provider."""

    source: str
    provider: str
    at: str
    """UTC, `2026-11-16T20:15:00Z`."""
    state: State
    offers: int
    """That are kept of it now."""
    as_of: str | None
    """The day of those; None where there are none."""
    reason: str | None = None
    missing_key: str = ""
    """The variables that hold the key without which it is not answered; empty where none is
    needed, or it is set."""
    unknown_gpus: tuple[str, ...] = ()
    """GPUs among its prices that outlay does not know, by the source's spelling."""
    is_new_provider: bool = False
    """Whether nothing at all is known of the provider but these prices."""
    notes: tuple[str, ...] = ()
    """What else to say: rows that could not be read, names that are new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrice:
    """A price from when it was seen first; both prices None where it is no longer listed."""

    at: str
    """When the source was asked: UTC, `2026-11-16T20:15:00Z`."""
    source: str
    provider: str
    instance: str
    region: str
    zone: str
    """Empty for the offer of the region."""
    gpu: str
    gpus: float
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    as_of: str = ""
    """The day the source's list is of (YYYY-MM-DD), as of `ProviderPrices`; empty: not known, and
    taken for the day it was asked. A list that is old by then is no observation."""
    doubts: tuple[str, ...] = ()
    """Words of `data/offer_doubts.csv` that the offer had."""


class PriceStore:
    """The file of prices; a context manager.

    Reading a file that is not there gives nothing and makes none; the first write makes it. A file
    that cannot be used is a `PriceStoreFailed`.
    """

    def __init__(self, path: Path | None = None, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """`path`: None for `prices.sqlite` in the data folder."""
        self.path = path or data_folder() / "prices.sqlite"
        self._write_wait_s = write_wait_s
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Writing

    def replace(
        self,
        prices: ProviderPrices,
        validators: Validators,
        attempt: Attempt | None = None,
        *,
        over: str | None = None,
    ) -> bool:
        """Put good prices in the place of the last good ones of their source and provider, every
        price that changed into the history, and `attempt` beside them; all or nothing.

        False, and nothing is changed, where another refresh has put newer ones there since those
        that were fetched at `over`.
        """
        with self._transaction() as file:
            kept_at = _fetched_at(file, prices.source, prices.provider)
            if kept_at is not None and kept_at != over and kept_at > prices.fetched_at:
                return False
            file.execute(
                "INSERT OR REPLACE INTO provider_prices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    prices.source,
                    prices.provider,
                    prices.as_of,
                    prices.fetched_at,
                    validators.etag,
                    validators.address,
                    validators.version,
                    _made_by(),
                    _packed(prices),
                ),
            )
            _record_changes(file, prices)
            if attempt is not None:
                _record_attempt(file, attempt)
        return True

    def confirm(self, attempt: Attempt, validators: Validators | None = None) -> None:
        """Keep that the last good prices of a source and provider are still what it says.

        `validators`: of the new reply, where there was one. What another refresh has put there
        since is left as it is.
        """
        changes = {"fetched_at": attempt.at}
        if validators is not None:
            changes["etag"] = validators.etag
            changes["address"] = validators.address
            changes["version"] = validators.version
        set_all = ", ".join(f"{column} = :{column}" for column in changes)
        with self._transaction() as file:
            file.execute(
                f"UPDATE provider_prices SET {set_all} "
                "WHERE source = :source AND provider = :provider AND fetched_at <= :fetched_at",
                {**changes, "source": attempt.source, "provider": attempt.provider},
            )
            _record_attempt(file, attempt)

    def note(self, attempt: Attempt) -> None:
        """Keep how asking ended."""
        with self._transaction() as file:
            _record_attempt(file, attempt)

    def add_past(self, prices: Iterable[PastPrice]) -> None:
        """Append to the history (imports and tests)."""
        with self._transaction() as file:
            keys = _Numbers(file)
            file.executemany(
                _APPEND,
                (
                    (
                        keys.of_key((price.source, price.provider), _key(price)),
                        _seconds(price.at),
                        price.price_usd_per_hour,
                        price.spot_usd_per_hour,
                        _day_number(price.as_of),
                        keys.of_doubts(price.doubts),
                    )
                    for price in prices
                ),
            )

    def put_damaged_aside(self) -> Path | None:
        """Where a damaged file was put, so that a new one can be begun; None where none is.

        The whole file is looked through. It is never deleted: `prices-damaged.sqlite` beside it.
        """
        if not self._is_there():
            return None
        before = self.path.stat()
        try:
            self._check_whole()
        except _Damaged:
            self.close()
            return self._put_aside(before.st_ino)
        return None

    def _check_whole(self) -> None:
        file = self._opened()
        if file is None:
            return
        with _in_words(self.path):
            [found] = file.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise _damaged(self.path, str(found))

    def _put_aside(self, inode: int) -> Path | None:
        """Rename the file with its journal, which belongs to no other."""
        aside = free_path(self.path.with_name(f"{self.path.stem}-damaged"), self.path.suffix)
        try:
            if self.path.stat().st_ino != inode:  # another refresh has done so already
                return None
            journal = self.path.with_name(f"{self.path.name}-journal")
            if journal.exists():
                journal.rename(aside.with_name(f"{aside.name}-journal"))
            self.path.rename(aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PriceStoreFailed(
                f"{self.path} is damaged and cannot be put aside: {error.strerror}.",
                fix="Move it elsewhere, and refresh again.",
            ) from error
        return aside

    def keep_derived(self, name: str, stamp: str, data: bytes) -> None:
        """Keep what was worked out of the last good prices, which holds while they are the same.

        `stamp`: that of the prices (`stamp()`), taken before they were read.
        """
        with self._transaction() as file:
            file.execute("INSERT OR REPLACE INTO derived VALUES (?, ?, ?)", (name, stamp, data))

    # Reading

    def stamp(self) -> str:
        """Which good prices are kept, and which outlay reads them; empty where none are."""
        rows = self._rows(
            "SELECT source, provider, as_of, fetched_at FROM provider_prices "
            "ORDER BY source, provider"
        )
        return json.dumps([_made_by(), *rows]) if rows else ""

    def derived(self, name: str) -> bytes | None:
        """What was worked out of the last good prices; None where they are others by now."""
        stamp = self.stamp()
        rows = self._rows("SELECT data FROM derived WHERE name = ? AND stamp = ?", (name, stamp))
        return rows[0][0] if rows else None

    def validators(self, source: str, provider: str) -> Validators | None:
        """What the source said of its last good reply; None where the reply is to be read again,
        as another version of outlay read it."""
        rows = self._rows(
            "SELECT etag, address, version FROM provider_prices "
            "WHERE source = ? AND provider = ? AND made_by = ?",
            (source, provider, _made_by()),
        )
        for etag, address, version in rows:
            return Validators(etag=etag, address=address, version=version)
        return None

    def current(self) -> list[ProviderPrices]:
        """The last good prices of every source and provider."""
        rows = self._rows(
            "SELECT source, provider, as_of, fetched_at, data FROM provider_prices "
            "ORDER BY source, provider"
        )
        return [self._unpacked(*row) for row in rows]

    def _unpacked(
        self, source: str, provider: str, as_of: str, fetched_at: str, data: bytes
    ) -> ProviderPrices:
        try:
            content = _unpacked(data)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(self.path, f"the prices of {provider} from {source}: {error}") from error
        return ProviderPrices(
            source=source, provider=provider, as_of=as_of, fetched_at=fetched_at, **content
        )

    def attempts(self) -> list[Attempt]:
        """The last attempt of every source and provider."""
        rows = self._rows(
            "SELECT source, provider, at, state, offers, as_of, reason, more FROM attempts WHERE "
            "id IN (SELECT max(id) FROM attempts GROUP BY source, provider) "
            "ORDER BY source, provider"
        )
        return [_attempt(row) for row in rows]

    def refresh_days(self, source: str, provider: str) -> list[str]:
        """The days on which the prices of a provider were confirmed or changed, oldest first."""
        seller = {"source": source, "provider": provider}
        asked = self._rows(
            "SELECT DISTINCT substr(at, 1, 10) FROM attempts "
            "WHERE source = :source AND provider = :provider AND state IN ('fresh', 'unchanged')",
            seller,
        )
        changed = self._rows(
            f"SELECT DISTINCT at / {int(DAY_S)} FROM price_keys CROSS JOIN price_changes "
            "ON price_changes.key = price_keys.id "
            "WHERE source = :source AND provider = :provider",
            seller,
        )
        days = {_time(int(DAY_S) * number)[:10] for (number,) in changed}
        return sorted(days | {day for (day,) in asked})

    def confirmations(self, source: str, provider: str) -> dict[str, str]:
        """The days on which the prices of a provider were confirmed or changed, oldest first, each
        with the day that the list was of then."""
        rows = self._rows(
            "SELECT day, max(coalesce(as_of, day)) FROM ("
            "SELECT substr(at, 1, 10) AS day, as_of FROM attempts "
            "WHERE source = :source AND provider = :provider AND state IN ('fresh', 'unchanged') "
            "UNION SELECT date(at, 'unixepoch'), date(as_of + :before_year_1) "
            "FROM price_keys JOIN price_changes ON price_changes.key = price_keys.id "
            "WHERE source = :source AND provider = :provider) GROUP BY day ORDER BY day",
            {"source": source, "provider": provider, "before_year_1": _JULIAN_DAY},
        )
        return dict(rows)

    def past(
        self, gpus: Sequence[str] = (), *, provider: str = "", since: str = "", until: str = ""
    ) -> Iterator[PastPrice]:
        """Every change of a price, oldest first: of GPUs by outlay's names, or of all.

        `since` and `until` are days, each of them included, or times.
        """
        wanted, values = _wanted(gpus, provider)
        keys = self._keys(wanted, values)
        changes = self._rows(
            f"SELECT {_CHANGE} FROM price_keys CROSS JOIN price_changes "
            f"ON price_changes.key = price_keys.id WHERE {wanted} AND at BETWEEN ? AND ? "
            "ORDER BY at, price_changes.key",
            (*values, _seconds(since) if since else 0, _last_second(until) if until else _NEVER),
        )
        doubts = self._doubt_sets()
        return (_past_price(keys[key], change, doubts) for key, *change in changes)

    def past_weeks(self, source: str, provider: str) -> Iterator[PastPrice]:
        """The last change of each price in each week (Monday to Sunday), by price and week.

        A year of daily changes is 52 rows a price, and not 365.
        """
        wanted, values = "source = ? AND provider = ?", (source, provider)
        keys = self._keys(wanted, values)
        changes = self._rows(  # of a group SQLite takes the row that has the greatest `at`
            "SELECT price_changes.key, max(at), price, spot, as_of, doubts "
            "FROM price_keys CROSS JOIN price_changes ON price_changes.key = price_keys.id "
            f"WHERE {wanted} GROUP BY price_changes.key, (at + {_TO_MONDAY_S}) / {int(WEEK_S)}",
            values,
        )
        doubts = self._doubt_sets()
        return (_past_price(keys[key], change, doubts) for key, *change in changes)

    def prices_at(self, at: str) -> list[PastPrice]:
        """Every price as it stood at a time (or at the end of a day), of every source: the last
        change up to then. What was no longer listed is not there."""
        keys = self._keys("TRUE", ())
        standing = self._rows(
            f"SELECT {_CHANGE} FROM {_STANDING}",
            (_last_second(at),),
        )
        doubts = self._doubt_sets()
        return [_past_price(keys[key], change, doubts) for key, *change in standing]

    def _doubt_sets(self) -> dict[int | None, tuple[str, ...]]:
        rows = self._rows("SELECT id, words FROM doubt_sets")
        return {None: (), **{number: tuple(words.split(";")) for number, words in rows}}

    def _keys(self, wanted: str, values: Sequence[object]) -> dict[int, tuple[Any, ...]]:
        rows = self._rows(f"SELECT id, {_KEY_COLUMNS} FROM price_keys WHERE {wanted}", values)
        return {number: tuple(rest) for number, *rest in rows}

    def _rows(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """All rows at once: a query that is left half-read would hold up a refresh."""
        file = self._opened()
        if file is None:
            return []
        with _in_words(self.path):
            return file.execute(query, values).fetchall()

    # The file

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:
            raise _forbidden(self.path, error.strerror or str(error)) from error

    def _opened(self) -> sqlite3.Connection | None:
        """The file, None where there is nothing in it yet."""
        if self._connection is None and self._is_there():
            self._connection = _connected(self.path, "rw", READ_WAIT_S)
        if self._connection is None or not _version(self._connection, self.path):
            return None
        return self._connection

    def _opened_to_write(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _forbidden(self.path, error.strerror or str(error)) from error
            self._connection = _connected(self.path, "rwc", self._write_wait_s)
        with _in_words(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * self._write_wait_s)}")
            self._connection.execute("PRAGMA cache_spill = OFF")
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written within, or nothing of it."""
        file = self._opened_to_write()
        with _in_words(self.path):
            file.execute("BEGIN IMMEDIATE")
            try:
                if _version(file, self.path) == 0:
                    _make_tables(file)
                yield file
                file.execute("COMMIT")
            finally:
                if file.in_transaction:
                    file.execute("ROLLBACK")


# --- the file ---


@cache
def _made_by() -> str:
    """The version of outlay that reads and looks up what it keeps."""
    return str(importlib.import_module("outlay").__version__)


_TABLES = (
    """CREATE TABLE provider_prices (
        source TEXT NOT NULL, provider TEXT NOT NULL, as_of TEXT NOT NULL, fetched_at TEXT NOT NULL,
        etag TEXT NOT NULL, address TEXT NOT NULL, version TEXT NOT NULL,
        made_by TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (source, provider))""",
    """CREATE TABLE attempts (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, provider TEXT NOT NULL, at TEXT NOT NULL,
        state TEXT NOT NULL, offers INTEGER NOT NULL, as_of TEXT, reason TEXT, more TEXT)""",
    "CREATE INDEX attempts_of_provider ON attempts (source, provider, state, at)",
    """CREATE TABLE price_keys (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, provider TEXT NOT NULL,
        instance TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL, gpu TEXT NOT NULL,
        gpus REAL NOT NULL, UNIQUE (source, provider, instance, region, zone, gpu, gpus))""",
    "CREATE INDEX price_keys_of_gpu ON price_keys (gpu)",
    """CREATE TABLE price_changes (
        key INTEGER NOT NULL REFERENCES price_keys, at INTEGER NOT NULL, price REAL, spot REAL,
        as_of INTEGER, doubts INTEGER REFERENCES doubt_sets, PRIMARY KEY (key, at))
        WITHOUT ROWID""",
    "CREATE TABLE doubt_sets (id INTEGER PRIMARY KEY, words TEXT NOT NULL UNIQUE)",
    """CREATE TABLE derived (
        name TEXT PRIMARY KEY NOT NULL, stamp TEXT NOT NULL, data BLOB NOT NULL)""",
    f"PRAGMA user_version = {VERSION}",
)
_STANDING = (
    "price_keys CROSS JOIN price_changes ON price_changes.key = price_keys.id AND at = "
    "(SELECT at FROM price_changes AS earlier WHERE earlier.key = price_keys.id "
    "AND earlier.at <= ? ORDER BY earlier.at DESC LIMIT 1) "
    "WHERE (price IS NOT NULL OR spot IS NOT NULL)"
)
"""The last change of each key up to a time, without what was gone by then."""
_CHANGE = "price_changes.key, at, price, spot, as_of, doubts"
_APPEND = "INSERT OR REPLACE INTO price_changes VALUES (?, ?, ?, ?, ?, ?)"
_NEVER = 2**62
_TO_MONDAY_S = int(3 * DAY_S)
"""1970 began on a Thursday."""
_JULIAN_DAY = 1721424.5
"""SQLite's number of the day before 0001-01-01, from which days are counted here."""
_FULL = (sqlite3.SQLITE_FULL,)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class _Damaged(PriceStoreFailed):
    """What is in the file is not what was written."""


def _connected(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    with _in_words(path):
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=wait_s,
            isolation_level=None,
        )


def _version(file: sqlite3.Connection, path: Path) -> int:
    """The version of the tables, 0 where there are none; one that is not ours is refused."""
    with _in_words(path):
        version = int(file.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise PriceStoreFailed(
                f"{path} was written by a later outlay (tables of version {version}).",
                why=f"This one knows version {VERSION}.",
                fix="Update outlay, or set OUTLAY_DATA to another folder.",
            )
        if not version and file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise _damaged(path, "it has tables that are not outlay's")
    return version


def _make_tables(file: sqlite3.Connection) -> None:
    for statement in _TABLES:
        file.execute(statement)


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """What SQLite finds wrong, as what a user can do something about."""
    try:
        yield
    except sqlite3.Error as error:
        raise _failure(path, error) from error


def _failure(path: Path, error: sqlite3.Error) -> PriceStoreFailed:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more of the same
    if code in _DAMAGED:
        return _damaged(path, str(error))
    if code in _BUSY:
        return PriceStoreFailed(
            f"{path} is in use: another refresh is writing prices, for longer than outlay waits.",
            fix="Wait until it has ended, and try again.",
        )
    if code in _FULL:
        return PriceStoreFailed(
            f"{path} could not be written: the disk is full.",
            why="The last good prices are still there.",
            fix="Make room, and refresh again.",
        )
    if code in _FORBIDDEN:
        return _forbidden(path, str(error))
    return PriceStoreFailed(f"{path} could not be used: {error}.", fix="Try again.")


def _forbidden(path: Path, why: str) -> PriceStoreFailed:
    return PriceStoreFailed(
        f"{path} cannot be used: {why}.",
        fix="Allow it, or set OUTLAY_DATA to a folder that you may write in.",
    )


def _damaged(path: Path, why: str) -> _Damaged:
    return _Damaged(
        f"{path} is damaged: {why}.",
        fix="`outlay prices refresh` puts it aside under another name and begins a new one.",
    )


# --- times ---


@lru_cache(maxsize=4096)
def _seconds(at: str) -> int:
    """A UTC time, or the beginning of a day, as seconds since 1970."""
    then = datetime.fromisoformat(at)
    return int((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp())


def _last_second(at: str) -> int:
    """A time, or the end of a day."""
    return _seconds(f"{at}T23:59:59Z" if len(at) == len("2026-11-16") else at)


@lru_cache(maxsize=4096)
def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def _day_number(day: str) -> int | None:
    return date.fromisoformat(day).toordinal() if day else None


@lru_cache(maxsize=4096)
def _day(number: int) -> str:
    return date.fromordinal(number).isoformat()


# --- attempts ---


_MORE = ("missing_key", "unknown_gpus", "is_new_provider", "notes")


def _record_attempt(file: sqlite3.Connection, attempt: Attempt) -> None:
    more = {name: getattr(attempt, name) for name in _MORE if getattr(attempt, name)}
    file.execute(
        "INSERT INTO attempts (source, provider, at, state, offers, as_of, reason, more) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            attempt.source,
            attempt.provider,
            attempt.at,
            attempt.state,
            attempt.offers,
            attempt.as_of,
            attempt.reason,
            json.dumps(more) if more else None,
        ),
    )


def _attempt(row: Sequence[Any]) -> Attempt:
    source, provider, at, state, offers, as_of, reason, text = row
    more = json.loads(text) if text else {}
    return Attempt(
        source=source,
        provider=provider,
        at=at,
        state=state,
        offers=offers,
        as_of=as_of,
        reason=reason,
        missing_key=more.get("missing_key", ""),
        unknown_gpus=tuple(more.get("unknown_gpus", ())),
        is_new_provider=more.get("is_new_provider", False),
        notes=tuple(more.get("notes", ())),
    )


def _fetched_at(file: sqlite3.Connection, source: str, provider: str) -> str | None:
    row = file.execute(
        "SELECT fetched_at FROM provider_prices WHERE source = ? AND provider = ?",
        (source, provider),
    ).fetchone()
    return None if row is None else str(row[0])


# --- history ---


PriceKey = tuple[str, str, str, str, float]
"""Instance, region, zone, GPU and their number: what a price of a source and provider is of."""
PricePair = tuple[float | None, float | None]
"""On demand and spot, USD an hour."""


def pairs_of(prices: ProviderPrices) -> dict[PriceKey, PricePair]:
    """Every price of a list: of offers, those of unknown GPUs included, and of zones."""
    pairs: dict[PriceKey, PricePair] = {}
    gpus: dict[tuple[str, str], tuple[str, float]] = {}
    for offer in (*prices.offers, *prices.unknown):
        counted = offer.gpus * offer.gpu_share
        gpus.setdefault((offer.instance, offer.region), (offer.gpu, counted))
        key = (offer.instance, offer.region, "", offer.gpu, counted)
        _add(pairs, key, (offer.price_usd_per_hour, offer.spot_usd_per_hour))
    for zone in prices.zones:
        gpu, counted = gpus.get((zone.instance, zone.region), ("", 0.0))
        key = (zone.instance, zone.region, zone.zone, gpu, counted)
        _add(pairs, key, (zone.price_usd_per_hour, zone.spot_usd_per_hour))
    return pairs


def _add(pairs: dict[PriceKey, PricePair], key: PriceKey, pair: PricePair) -> None:
    """Of two with one name the cheaper, so that their order changes nothing."""
    before = pairs.get(key)
    if pair != (None, None) and (before is None or _order(pair) < _order(before)):
        pairs[key] = pair


def _order(pair: PricePair) -> tuple[float, float]:
    price, spot = (float("inf") if usd is None else usd for usd in pair)
    return price, spot


def _key(price: PastPrice) -> PriceKey:
    return (price.instance, price.region, price.zone, price.gpu, price.gpus)


_KEY_COLUMNS = "source, provider, instance, region, zone, gpu, gpus"


class _Numbers:
    """The numbers that keys and sets of doubts have in the file, new ones added."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._known: dict[tuple[object, ...], int] = {}

    def of_key(self, seller: tuple[str, str], key: PriceKey) -> int:
        """The number of a key."""
        return self._of("price_keys", _KEY_COLUMNS, (*seller, *key))

    def of_doubts(self, words: Sequence[str]) -> int | None:
        """The number of a set of doubts; None where there are none."""
        return self._of("doubt_sets", "words", (";".join(words),)) if words else None

    def _of(self, table: str, columns: str, values: tuple[object, ...]) -> int:
        if values not in self._known:
            marks = f"({', '.join('?' * len(values))})"
            self._file.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES {marks}", values)
            found = self._file.execute(
                f"SELECT id FROM {table} WHERE ({columns}) = {marks}", values
            )
            self._known[values] = found.fetchone()[0]
        return self._known[values]


def _record_changes(file: sqlite3.Connection, prices: ProviderPrices) -> None:
    """Append what differs from what stood at that time; what is gone has no price."""
    at, seller = _seconds(prices.fetched_at), (prices.source, prices.provider)
    now, before = pairs_of(prices), _standing(file, seller, at)
    changed = {key: pair for key, pair in now.items() if before.get(key) != pair}
    gone: dict[PriceKey, PricePair] = {key: (None, None) for key in before if key not in now}
    numbers, as_of = _Numbers(file), _day_number(prices.as_of)
    keys = _key_numbers(file, seller, (*changed, *gone))
    doubts = {
        (offer.instance, offer.region, "", offer.gpu): [doubt.word for doubt in offer.doubts]
        for offer in (*prices.offers, *prices.unknown)
    }
    file.executemany(
        _APPEND,
        [
            (keys[key], at, *pair, as_of, numbers.of_doubts(doubts.get(key[:4], ())))
            for key, pair in (changed | gone).items()
        ],
    )


def _key_numbers(
    file: sqlite3.Connection, seller: tuple[str, str], keys: Sequence[PriceKey]
) -> dict[PriceKey, int]:
    """The numbers of all keys of a source and provider, those given added."""
    file.executemany(
        f"INSERT OR IGNORE INTO price_keys ({_KEY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*seller, *key) for key in keys],
    )
    rows = file.execute(
        "SELECT id, instance, region, zone, gpu, gpus FROM price_keys "
        "WHERE source = ? AND provider = ?",
        seller,
    )
    return {tuple(key): number for number, *key in rows} if keys else {}


def _standing(
    file: sqlite3.Connection, seller: tuple[str, str], at: int
) -> dict[PriceKey, PricePair]:
    """The prices of a source and provider as they stood at a time."""
    rows = file.execute(
        f"SELECT instance, region, zone, gpu, gpus, price, spot FROM {_STANDING} "
        "AND source = ? AND provider = ?",
        (at, *seller),
    )
    return {tuple(key): (price, spot) for *key, price, spot in rows}


def _wanted(gpus: Sequence[str], provider: str) -> tuple[str, tuple[str, ...]]:
    """Which keys, as a condition of SQL and its values."""
    conditions, values = ["TRUE"], list(gpus)
    if gpus:
        conditions.append(f"gpu IN ({', '.join('?' * len(gpus))})")
    if provider:
        conditions.append("provider = ?")
        values.append(provider)
    return " AND ".join(conditions), tuple(values)


def _past_price(
    key: Sequence[Any], change: Sequence[Any], doubts: Mapping[int | None, tuple[str, ...]]
) -> PastPrice:
    source, provider, instance, region, zone, gpu, gpus = key
    at_s, price, spot, day, words = change
    return PastPrice(
        at=_time(at_s),
        source=source,
        provider=provider,
        instance=instance,
        region=region,
        zone=zone,
        gpu=gpu,
        gpus=gpus,
        price_usd_per_hour=price,
        spot_usd_per_hour=spot,
        as_of="" if day is None else _day(day),
        doubts=doubts[words],
    )


# --- lists as JSON ---
#
# A column for each field that any item of a list has set, with a value for each item; doubts by
# their words. A field that this version does not know is left out.


def _packed(prices: ProviderPrices) -> bytes:
    return packed_json(
        {
            "offers": columns_of(Offer, prices.offers),
            "zones": columns_of(ZonePrice, prices.zones),
            "unknown": columns_of(Offer, prices.unknown),
            "notes": prices.notes,
        }
    )


def _unpacked(data: bytes) -> dict[str, Any]:
    content = unpacked_json(data)
    return {
        "offers": items_of(Offer, content["offers"]),
        "zones": items_of(ZonePrice, content["zones"]),
        "unknown": items_of(Offer, content["unknown"]),
        "notes": tuple(content["notes"]),
    }


def packed_json(content: object) -> bytes:
    """JSON in as few bytes as zlib makes of it."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"))


def unpacked_json(data: bytes) -> Any:
    """What `packed_json` packed; a ValueError where it is something else."""
    try:
        return json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def columns_of(kind: type[Any], items: Sequence[Any]) -> dict[str, list[Any]]:
    """Items of a dataclass as JSON: for each field that any of them has set, all values."""
    columns = {}
    for field in fields(kind):
        values = [getattr(item, field.name) for item in items]
        if field.default is MISSING or any(value != field.default for value in values):
            columns[field.name] = [_plain(value) for value in values]
    return columns


def _plain(value: Any) -> Any:
    """A value as JSON has it; doubts by word."""
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value.word if isinstance(value, Doubt) else to_json(value)


def items_of(kind: type[T], columns: Mapping[str, Sequence[Any]]) -> tuple[T, ...]:
    """The items that `columns_of` wrote."""
    readers: dict[str, Reader | None] = _readers(kind)  # type: ignore[arg-type]
    values = {}
    for name, column in columns.items():
        if name in readers:
            read = readers[name]
            values[name] = column if read is None else [read(value) for value in column]
    names = tuple(values)
    return tuple(
        kind(**dict(zip(names, row, strict=True))) for row in zip(*values.values(), strict=True)
    )


Reader = Callable[[Any], Any]


@cache
def _readers(kind: type[Any]) -> dict[str, Reader | None]:
    """How each field is read from JSON; None for what is there already."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Reader | None:
    inner = get_args(hint)
    if hint is Doubt:
        return _doubt
    if is_dataclass(hint) and isinstance(hint, type):
        return lambda value: _object(hint, value)
    if get_origin(hint) is tuple:
        read = _reader(inner[0])
        return tuple if read is None else lambda value: tuple(map(read, value))
    if get_origin(hint) in (Union, UnionType):
        objects = [read for part in inner if (read := _reader(part)) is not None]
        assert len(objects) <= 1, f"{hint} cannot be told apart in JSON"
        if objects:
            return lambda value: objects[0](value) if isinstance(value, dict | list) else value
    return None


def _object(kind: type[T], values: Mapping[str, Any]) -> T:
    readers: dict[str, Reader | None] = _readers(kind)  # type: ignore[arg-type]
    known = {name: value for name, value in values.items() if name in readers}
    return kind(**{name: (readers[name] or _same)(value) for name, value in known.items()})


def _same(value: Any) -> Any:
    return value


def _doubt(word: str) -> Doubt:
    """A doubt by its word; one that a later outlay has is a caution about all of the offer."""
    known = doubt_kinds().get(word)
    return known or Doubt(word=word, kind="caution", about="offer")
