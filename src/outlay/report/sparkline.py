"""A curve in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def buckets(points: Sequence[tuple[float, float]], end: float, number: int) -> list[float | None]:
    """Means of the values in equal stretches from 0 to the end; None where none falls."""
    found: list[list[float]] = [[] for _ in range(number)]
    for at, value in points:
        place = min(int(at / end * number), number - 1) if end > 0 else 0
        found[max(place, 0)].append(value)
    return [sum(values) / len(values) if values else None for values in found]


def sparkline(values: Sequence[float | None], top: float = 1.0) -> str:
    """A bar for each value from 0 to the top; a dot where there is none."""
    return "".join("·" if value is None else _bar(value / top) for value in values)


def _bar(fraction: float) -> str:
    return _BARS[min(max(int(fraction * len(_BARS)), 0), len(_BARS) - 1)]
