"""What all pictures share: the file's form by its ending, and round numbers for axes."""

from __future__ import annotations

import importlib.util
from math import ceil, log10
from typing import TYPE_CHECKING, TypeVar

from outlay.errors import ExtraMissing, InputError
from outlay.files import check_folder, write_whole
from outlay.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")
MOST_POINTS = 2000
INK, SOFT, LINE = "#1b1e23", "#667080", "#d9dde3"
"""Of a .png, which is light; `svg.STYLE` has the same, and the dark ones."""
DPI = 150


def check_plot_path(path: Path) -> None:
    """Refuse at once what could not be written after a long run."""
    if path.suffix.lower() not in (".html", ".png"):
        raise InputError(
            f"{path} is neither a .html nor a .png file.",
            fix=f"Write for example --plot {path.stem}.html.",
        )
    check_folder(path)
    if path.suffix.lower() == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise ExtraMissing("A .png needs matplotlib: pip install matplotlib (or plot to .html).")


def write_picture(path: Path, html: Callable[[], str], png: Callable[[], bytes]) -> None:
    """Write the picture in the form the file's ending names."""
    check_plot_path(path)
    if path.suffix.lower() == ".png":
        write_whole(path, png())
    else:
        write_whole(path, html().encode())


def extremes(points: Sequence[T], most: int, height: Callable[[T], float]) -> list[T]:
    """At most that many points: of every stretch the highest and the lowest, in order."""
    if len(points) <= most:
        return list(points)
    length = ceil(len(points) / max(most // 2, 1))
    kept: list[T] = []
    for start in range(0, len(points), length):
        stretch = range(start, min(start + length, len(points)))
        ends = {end(stretch, key=lambda index: height(points[index])) for end in (min, max)}
        kept += [points[index] for index in sorted(ends)]
    return kept


def ticks(highest: float, most: int, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Round numbers from 0 up to the highest."""
    if highest <= 0:
        return [0.0]
    power = 10.0 ** (ceil(log10(highest / most)) - 1)
    step = next(s * power for s in (*steps, 10) if highest / (s * power) <= most)
    return [step * index for index in range(int(highest / step) + 1)]


def byte_unit(highest_bytes: float) -> tuple[float, str]:
    """The unit that makes an axis of bytes readable."""
    for unit_bytes, name in ((GIB, "GiB"), (MIB, "MiB")):
        if highest_bytes >= 2 * unit_bytes:
            return float(unit_bytes), name
    return float(KIB), "KiB"
