"""Peak memory at any batch size: the highest of the straight lines that live memory follows.

At each event of a step (a storage made or freed) the live bytes of every category grow with the
batch size along a line, which two traces give. The peak is the upper envelope of those lines:
piecewise linear, with a bend where another moment of the step becomes the highest. A profile
keeps the envelope's ends and bends, so that reading between them is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from outlay.trace.trace import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST = 65_536
"""The batch size up to which bends are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Live bytes at one event of the step: `start_bytes + slope_bytes * batch size`."""

    event: int
    start_bytes: float
    slope_bytes: float

    def at(self, batch_size: float) -> float:
        """Live bytes at a batch size."""
        return self.start_bytes + self.slope_bytes * batch_size


def lines_through(
    sizes: tuple[int, int], live_bytes: tuple[Sequence[float], Sequence[float]]
) -> list[Line]:
    """The line of each event, from the live bytes after it at two batch sizes."""
    lines = []
    for event, (low, high) in enumerate(zip(*live_bytes, strict=True)):
        slope = (high - low) / (sizes[1] - sizes[0])
        lines.append(Line(event=event, start_bytes=low - slope * sizes[0], slope_bytes=slope))
    return lines


def upper_envelope(lines: Sequence[Line]) -> list[tuple[int, Line]]:
    """The highest line from batch size 1 on: (first batch size, line), ascending."""
    result: list[tuple[int, Line]] = []
    first = 1
    current = max(lines, key=lambda line: (line.at(1), line.slope_bytes))
    steeper = [line for line in lines if line.slope_bytes > current.slope_bytes]
    while steeper:
        result.append((first, current))
        crossing, current = min(
            ((_crossing(current, line), line) for line in steeper),
            key=lambda pair: (pair[0], -pair[1].slope_bytes),
        )
        first = math.ceil(crossing)
        steeper = [line for line in steeper if line.slope_bytes > current.slope_bytes]
        if first > LARGEST:
            return result
    return [*result, (first, current)]


def _crossing(flat: Line, steep: Line) -> float:
    rise = steep.slope_bytes - flat.slope_bytes
    return max((flat.start_bytes - steep.start_bytes) / rise, 1.0)


def bends(envelope: Sequence[tuple[int, Line]]) -> dict[int, Line]:
    """The batch sizes to keep: both ends of every piece, and two of the last."""
    points: dict[int, Line] = {}
    following = [first for first, _ in envelope[1:]]
    for (first, line), after in zip(envelope, [*following, 0], strict=True):
        points[first] = line
        last = after - 1 if after else 2 * first + 1
        if last > first:
            points[last] = line
    return points


def blended(sizes: tuple[int, int], memories: tuple[Memory, Memory], batch_size: int) -> Memory:
    """Memory by category on the line through two batch sizes."""
    share = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    amounts: Mapping[str, float] = {
        field.name: _blend(field.name, memories, share) for field in fields(Memory)
    }
    return Memory(**amounts)


def _blend(name: str, memories: tuple[Memory, Memory], share: float) -> float:
    low, high = (getattr(memory, name) for memory in memories)
    return max(float(round(low + (high - low) * share)), 0.0)
