"""How figures are written for people: the only place that rounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

from outlay.currency import DOLLAR
from outlay.facts import rows_of
from outlay.offers.catalog import doubt_meanings
from outlay.offers.offer import BEFORE, Offer, Tenancy
from outlay.offers.price_book import PriceBook
from outlay.predict.memory import LARGEST_BATCH
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GIB, HOUR_S, KIB, KWH_J, MIB, MINUTE_S, days_between

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCurrency:
    """What amounts on a page are in; inside and in JSON they are dollars."""

    code: str = DOLLAR
    usd_per_unit: float = 1.0

    @property
    def symbol(self) -> str:
        """What stands before an amount: `$`, `€`, `CHF `."""
        return _style(self.code, "symbol") or f"{self.code} "

    @property
    def decimals(self) -> int:
        """Of its smallest coin: 2 for cents, 0 where there are none."""
        return int(_style(self.code, "decimals") or 2)

    def written(self, amount_usd: float) -> str:
        """`$1,234`, `€12.30`, `$0.069`, `<€0.01` for what hardly counts, `₩17,000`."""
        amount = amount_usd / self.usd_per_unit
        if amount < 0:
            return f"-{self.written(-amount_usd)}"
        least = 10.0**-self.decimals
        if 0 < amount < least:
            return f"<{self.symbol}{least:.{self.decimals}f}"
        small = self.decimals > 0 and least <= amount < 10 * least
        decimals = self.decimals + 1 if small else 0 if amount >= 1000 else self.decimals
        return f"{self.symbol}{amount:,.{decimals}f}"

    def converted(self, text: str) -> str:
        """A text with its amounts in dollars (`$1,234.50`) in this currency, as exactly."""
        return text if self.code == DOLLAR else _DOLLARS.sub(self._one_converted, text)

    def _one_converted(self, match: re.Match[str]) -> str:
        figures = match[1].replace(",", "")
        amount = float(figures) / self.usd_per_unit
        digits = max(len(figures.replace(".", "").lstrip("0")), 3)
        if amount == 0:
            return f"{self.symbol}0"
        before_point = math.floor(math.log10(amount)) + 1
        if before_point >= digits:
            return f"{self.symbol}{round(amount, digits - before_point):,.0f}"
        decimals = min(digits - before_point, max(self.decimals, 2 - before_point))
        return f"{self.symbol}{amount:,.{decimals}f}"


@cache
def _style(code: str, parameter: str) -> str:
    """How amounts of a currency are written: `data/currencies.csv`; empty where it is as usual."""
    rows = rows_of("currencies.csv")
    return next(
        (row["value"] for row in rows if (row["currency"], row["parameter"]) == (code, parameter)),
        "",
    )


_DOLLARS = re.compile(r"(?<![A-Z])\$([0-9][0-9,]*(?:\.[0-9]+)?)")
_own: ContextVar[OwnCurrency] = ContextVar("own", default=OwnCurrency())  # noqa: B039


@contextmanager
def amounts_in(code: str, usd_per_unit: float) -> Iterator[None]:
    """Within this, pages are in a currency of the user's: each of its units is so many dollars."""
    token = _own.set(OwnCurrency(code=code.upper(), usd_per_unit=usd_per_unit))
    try:
        yield
    finally:
        _own.reset(token)


def own_symbol() -> str:
    """What stands for dollars in the heads of tables: `$`, `€`, `CHF`."""
    return _own.get().symbol.strip()


def in_own_currency(text: str) -> str:
    """A text that was written in dollars, in what the page is in."""
    return _own.get().converted(text)


def usd(amount: float | None) -> str:
    """`$1,234`, `$12.30`, `$0.069`, `<$0.01` for what hardly counts; in the page's currency."""
    return UNKNOWN if amount is None else _own.get().written(amount)


def in_currency(amount_usd: float, currency: str, usd_per_unit: float) -> str:
    """As the page has it; on one in dollars with the user's own beside: `$12.30 (11.38 EUR)`."""
    own = OwnCurrency(code=currency, usd_per_unit=usd_per_unit)
    if currency == DOLLAR or _own.get().code != DOLLAR:
        return usd(amount_usd)
    amount = own.written(amount_usd).replace(own.symbol, "")
    return f"{usd(amount_usd)} ({amount} {currency})"


def is_exact(estimate: Estimate) -> bool:
    """Whether the range is too narrow to be worth a word."""
    return estimate.high - estimate.low <= 0.005 * max(estimate.high, 1e-9)


def usd_range(estimate: Estimate) -> str:
    """The range alone, `$120-310`; nothing where there is none."""
    high = usd(estimate.high)
    if is_exact(estimate) or high.startswith("<"):
        return ""
    return f"{usd(estimate.low)}-{high.removeprefix(_own.get().symbol)}"


def duration(seconds: float | None) -> str:
    """`4.2 d`, `7.0 h`, `35 min`, `12.0 s` or `83.1 ms`."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:,.1f} d"
    if seconds >= HOUR_S:
        return f"{seconds / HOUR_S:,.1f} h"
    if seconds >= MINUTE_S:
        return f"{seconds / MINUTE_S:,.0f} min"
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1000:,.1f} ms"


def step_time(seconds: float) -> str:
    """`0.384 s`, `12.4 s`, `83.1 ms` or `20.4 µs`: three figures."""
    if 0 < seconds < 0.9995e-4:
        return f"{_three_figures(seconds * 1e6)} µs"
    if seconds < 0.1:
        return f"{_three_figures(seconds * 1000)} ms"
    return f"{seconds:.3f} s" if seconds < 0.9995 else f"{_three_figures(seconds)} s"


def clock(seconds: float) -> str:
    """`42 s`, `3:05 min` or `2:07 h`: time as it passes, short."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    minutes = whole // 60
    return f"{minutes // 60:,}:{minutes % 60:02} h"


def duration_range(estimate: Estimate) -> str:
    """The range alone; nothing where there is none."""
    if is_exact(estimate):
        return ""
    return f"{duration(estimate.low)} - {duration(estimate.high)}"


def gib(amount: float | None) -> str:
    """Memory in GiB."""
    return UNKNOWN if amount is None else f"{amount / GIB:,.1f} GiB"


def size(amount_bytes: float) -> str:
    """`1.24 GiB`, `640 MiB`, `12.0 KiB` or `512 B`: three figures."""
    for unit_bytes, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if amount_bytes >= unit_bytes:
            return f"{_three_figures(amount_bytes / unit_bytes)} {name}"
    return f"{amount_bytes:.0f} B"


def flops(amount: float) -> str:
    """`1.24 TFLOP`, `64.0 GFLOP`, `12.0 MFLOP`, or nothing for none."""
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP")):
        if amount >= unit:
            return f"{_three_figures(amount / unit)} {name}"
    return f"{amount:.0f} FLOP" if amount else ""


def energy(amount_j: float) -> str:
    """`131 J`, `4.20 kJ` or `1.24 kWh`."""
    for unit_j, name in ((KWH_J, "kWh"), (1e3, "kJ")):
        if amount_j >= unit_j:
            return f"{_three_figures(amount_j / unit_j)} {name}"
    return f"{_three_figures(amount_j)} J"


def rate(per_second: float) -> str:
    """`1,240`, `66.7` or `0.38`: three figures, without a unit."""
    return _three_figures(per_second)


def figure(amount: float) -> str:
    """`3`, `2.94`, `0.0198` or `1,240`: at most three figures, none for their own sake."""
    return f"{amount:.3g}" if amount < 999.5 else f"{amount:,.0f}"


def magnitude(amount: float) -> str:
    """`7.20 k`, `21.3 M` or `1.24 B`: large counts, short."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if amount >= unit:
            return f"{_three_figures(amount / unit)} {name}"
    return f"{amount:,.0f}"


def _three_figures(amount: float) -> str:
    decimals = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    return f"{amount:,.{decimals}f}"


def clipped_percent(fraction: float) -> str:
    """`87 %`; `>99 %` and `<1 %` near the ends, where simulations cannot tell."""
    if fraction < 0.01:
        return "<1 %"
    if fraction > 0.99:
        return ">99 %"
    return f"{fraction:.0%}".replace("%", " %")


def percent(fraction: float) -> str:
    """`87 %`, of what was measured."""
    return f"{100 * fraction:.0f} %"


def share(part: float, whole: float) -> str:
    """`12.4 %`, or nothing for none."""
    return f"{100 * part / whole:.1f} %" if part and whole else ""


def count(amount: float | None) -> str:
    """A whole number with separators, or unknown."""
    return UNKNOWN if amount is None else f"{amount:,.0f}"


def or_more(batch_size: int) -> str:
    """`+` behind a largest batch where the search ended before the memory did."""
    return "+" if batch_size >= LARGEST_BATCH else ""


def counted(amount: int, noun: str) -> str:
    """`1 option`, `2 options`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def tera(amount: float | None) -> str:
    """FLOP/s in tera; a dash where the hardware has none."""
    return "-" if amount is None else f"{amount / 1e12:,.4g}"


def machine(offer: Offer, nodes: int = 1) -> str:
    """`8x H100 SXM`, `4 x 8x H100 SXM` of several machines, or a share: `0.125 of one L4`."""
    if offer.gpu_share != 1:
        return f"{offer.gpu_share:.3g} of one {offer.gpu}"
    unlike = " + ".join((offer.gpu, *offer.other_gpus))
    single = unlike if offer.other_gpus else f"{offer.gpus}x {offer.gpu}"
    return f"{nodes} x {single}" if nodes > 1 else single


_OF_THE_PAST = ("outlier", "spot outlier", "price gone")


def doubt_reasons(offer: Offer, words: Iterable[str]) -> dict[str, str]:
    """What each doubt means, with the other price where there is one; by word."""
    return {word: _doubt_reason(offer, word) for word in words}


def _doubt_reason(offer: Offer, word: str) -> str:
    """`Another source's price differs by more than 5 % ...: gpuhunt $2.10 on 2026-11-15`."""
    meaning = doubt_meanings().get(word, word)
    if word == "sources disagree":
        others = [price for price in offer.other_prices if price.source != BEFORE]
    else:
        of_past = word in _OF_THE_PAST
        others = [price for price in offer.other_prices if of_past and price.source == BEFORE]
    figures = [
        f"{price.source} {usd(price.price_usd_per_hour)}"
        + (f" (spot {usd(price.spot_usd_per_hour)})" if word == "spot outlier" else "")
        + f" on {price.as_of}"
        for price in others
    ]
    return f"{meaning}: {', '.join(figures)}" if figures else meaning


# Whose prices, and how old

OLD_DAYS = 14
"""Prices older than that are said to be old, with the command that renews them."""


def prices_in_words(book: PriceBook, today: str) -> str:
    """Whose prices, how old, and how to renew old ones: `the bundled snapshot of 2026-08-22`."""
    if book.kind == "past" or not today:
        return book.name
    days = days_between(book.as_of, today)
    if book.freshness and days <= OLD_DAYS:
        return _refreshed_in_words(book, today)
    age = "of today" if days <= 0 else f"{counted(days, 'day')} old"
    asked = max((book.as_of, *book.confirmed.values()))
    renew = ": `outlay prices refresh` renews them"
    return f"{book.name}, {age}" + (renew if days_between(asked, today) > OLD_DAYS else "")


def _refreshed_in_words(book: PriceBook, today: str) -> str:
    """`26 providers refreshed today, 4 with older lists: azure 2024-08-19, ... and 1 more`."""
    days = {name: days_between(day, today) for name, day in book.freshness.items()}
    new = [name for name, age in days.items() if age <= OLD_DAYS]
    old = sorted((day, name) for name, day in book.freshness.items() if name not in new)
    is_of_today = all(book.confirmed.get(name) == today for name in new)
    when = "refreshed today" if is_of_today else f"of the last {OLD_DAYS} days"
    words = f"{counted(len(new), 'provider')} {when}"
    if not old:
        return words
    named = [f"{name} {day}" for day, name in old]
    shown = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    asked = [book.confirmed.get(name) or day for day, name in old]
    is_waiting = any(days_between(day, today) > OLD_DAYS for day in asked)
    renew = ": `outlay prices refresh` renews them" if is_waiting else ""
    lists = "an older list" if len(old) == 1 else "older lists"
    return f"{words}, {len(old)} with {lists}: {shown}{renew}"


def is_old(book: PriceBook, offer: Offer, tenancy: Tenancy, today: str) -> bool:
    """Whether nobody has asked for the price of an offer for long; what was promised holds."""
    if offer.is_promised:
        return False
    asked = max(offer.seen_on(tenancy), book.confirmed.get(offer.provider, ""))
    return days_between(asked, today) > OLD_DAYS
