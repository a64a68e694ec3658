"""Units: inside outlay everything is seconds, bytes, FLOPs, watts and US dollars.

Other units exist only where text comes in (a reader) or goes out (`report/`).
"""

from __future__ import annotations

import re

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
MONTH_S = 30 * DAY_S
"""A month is 30 days, as in the price lists that say so and in everyday sums."""
YEAR_S = 365 * DAY_S

_DURATION_S = {
    "s": 1.0,
    "sec": 1.0,
    "m": MINUTE_S,
    "min": MINUTE_S,
    "h": HOUR_S,
    "hour": HOUR_S,
    "hours": HOUR_S,
    "d": DAY_S,
    "day": DAY_S,
    "days": DAY_S,
    "w": 7 * DAY_S,
    "week": 7 * DAY_S,
    "weeks": 7 * DAY_S,
    "month": MONTH_S,
    "months": MONTH_S,
    "y": YEAR_S,
    "year": YEAR_S,
    "years": YEAR_S,
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
_QUANTITY = re.compile(r"\s*([0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]+)\s*")


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
        raise InputError("An empty text is not a duration.", fix='Write for example "35m".')
    return total_s


def size_bytes(text: str) -> int:
    """Bytes in a size such as `24GB` (10^9), `24GiB` (2^30) or `512 MiB`."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_BYTES:
        raise InputError(
            f"{text!r} is not a size.",
            why="A size is a number with a unit: B, KB, MB, GB, TB, or KiB, MiB, GiB, TiB.",
            fix='Write for example "13.8GB" or "900GiB".',
        )
    return round(_number(match[1]) * _SIZE_BYTES[match[2].lower()])


def _number(text: str) -> float:
    return float(text.replace("_", "").replace(",", ""))
