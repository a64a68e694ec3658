"""How figures are written for people: the only place that rounds."""

from __future__ import annotations

from outlay.estimate import Estimate
from outlay.units import DAY_S, GIB, HOUR_S, MINUTE_S

UNKNOWN = "unknown"


def usd(amount: float | None) -> str:
    """`$1,234`, `$12.30` or `$0.0347`: three figures or more."""
    if amount is None:
        return UNKNOWN
    if abs(amount) >= 1000:
        return f"${amount:,.0f}"
    if abs(amount) >= 0.1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.3g}"


def usd_range(estimate: Estimate) -> str:
    """The range alone: `$120.00-310.00`."""
    return f"{usd(estimate.low)}-{usd(estimate.high).removeprefix('$')}"


def duration(seconds: float | None) -> str:
    """`4.2 d`, `7.0 h`, `35 min`, `12 s` or `83 ms`."""
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


def duration_range(estimate: Estimate) -> str:
    """The range alone."""
    return f"{duration(estimate.low)} - {duration(estimate.high)}"


def gib(amount: float | None) -> str:
    """Memory in GiB."""
    return UNKNOWN if amount is None else f"{amount / GIB:,.1f} GiB"


def count(amount: float | None) -> str:
    """A whole number with separators, or unknown."""
    return UNKNOWN if amount is None else f"{amount:,.0f}"


def tera(amount: float | None) -> str:
    """FLOP/s in tera; a dash where the hardware has none."""
    return "-" if amount is None else f"{amount / 1e12:,.4g}"
