"""Units: inside outlay everything is seconds, bytes, FLOPs, watts and US dollars.

Other units exist only where text comes in (a reader) or goes out (`report/`).
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import lru_cache

from outlay.errors import InputError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12
TERA = 10**12

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
MONTH_S = 30 * DAY_S
"""A month is 30 days, as in the price lists that say so and in everyday sums."""
YEAR_S = 365 * DAY_S

KWH_J = 1000 * HOUR_S

_DURATION_S = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE_S),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR_S),
    **dict.fromkeys(("d", "day", "days"), DAY_S),
    **dict.fromkeys(("w", "week", "weeks"), WEEK_S),
    **dict.fromkeys(("month", "months"), MONTH_S),
    **dict.fromkeys(("y", "year", "years"), YEAR_S),
}
_SIZE_BYTES = {
    "b": 1,
    "kb": KB,
    "mb": MB,
    "gb": GB,
    "tb": TB,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
}
_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
"""A number, perhaps with commas or underscores between thousands; a comma is no decimal point."""
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*")


def duration_s(text: str) -> float:
    """Seconds in a duration such as `90s`, `35m`, `1.5h`, `1h30m` or `3d`."""
    total_s, position = 0.0, 0
    while position < len(text):
        match = _QUANTITY.match(text, position)
        if match is None or match[2].lower() not in _DURATION_S:
            raise InputError(
                f"{text!r} is not a duration.",
                why="A duration is a number with a unit: s, m, h, d, week, month or year.",
                fix='Write for example "35m", "1h30m" or "3d".',
            )
        total_s += _number(match[1]) * _DURATION_S[match[2].lower()]
        position = match.end()
    if position == 0:
        raise InputError(
            "An empty text is not a duration.",
            why="A duration is a number with a unit: s, m, h, d, week, month or year.",
            fix='Write for example "35m", "1h30m" or "3d".',
        )
    return total_s


def size_bytes(text: str) -> int:
    """Bytes in a size such as `24GB` (10^9), `24GiB` (2^30) or `512 MiB`."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_BYTES or _number(match[1]) > 1e30:
        raise InputError(
            f"{text!r} is not a size.",
            why="A size is a number with a unit: B, KB, MB, GB, TB, or KiB, MiB, GiB, TiB.",
            fix='Write for example "13.8GB" or "900GiB".',
        )
    return round(_number(match[1]) * _SIZE_BYTES[match[2].lower()])


@lru_cache(maxsize=8192)
def days_between(first: str, last: str) -> int:
    """Days from one day to another, both YYYY-MM-DD."""
    return (date.fromisoformat(last) - date.fromisoformat(first)).days


@lru_cache(maxsize=8192)
def days_after(day: str, days: int) -> str:
    """The day so many days after another, YYYY-MM-DD; before it where they are below 0."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _number(text: str) -> float:
    return float(text.replace("_", "").replace(",", ""))
