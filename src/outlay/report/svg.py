"""What pictures share: the HTML page around an SVG, its style in light and dark, marks, and axes.

A picture is written as `.html` or `.png` (some as `.svg`) by its file's ending (`write_picture`);
of many points the extremes are drawn, and axes have round numbers.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from html import escape
from math import ceil, log10
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

from outlay.errors import ExtraMissing, InputError
from outlay.files import check_folder, write_whole
from outlay.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


STYLE = """
:root { color-scheme: light dark; --ink: #1b1e23; --soft: #667080; --line: #d9dde3;
  --back: #ffffff; --note: #ffffffe6; --band: #0000000a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9ecf1; --soft: #97a1b0;
  --line: #343a44; --back: #14171c; --note: #14171ce6; --band: #ffffff0d; } }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 13px/1.4 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px; }
svg { width: 100%; height: auto; display: block; }
text { fill: var(--ink); font-size: 13px; }
.title { font-size: 18px; font-weight: 600; }
.soft { fill: var(--soft); font-size: 12px; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .mark { stroke: var(--soft); stroke-dasharray: 3 4; }
.band { fill: var(--band); }
.hover rect { fill: transparent; } .hover rect:hover { fill: var(--ink); fill-opacity: .16; }
.strong { font-weight: 600; }
.level { stroke: var(--ink); stroke-dasharray: 5 4; stroke-opacity: .7; }
.over { paint-order: stroke; stroke: var(--back); stroke-width: 4px; stroke-linejoin: round; }
.narrow { display: none; }
@media (max-width: 700px) { .wide { display: none; } .narrow { display: block; }
  main { padding: 12px 8px; } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The size of a drawing and the room around its axes."""

    width: int
    height: int
    left: int
    right: int
    top: int = 22
    bottom: int = 28
    are_named: bool = True
    """Whether there is room for names beside what is drawn."""

    @property
    def is_narrow(self) -> bool:
        """Whether it is drawn for a telephone: fewer numbers, words in several lines."""
        return self.width < 500


def for_widths(draw: Callable[[Layout], str], wide: Layout, narrow: Layout) -> str:
    """One picture drawn for a screen and for a telephone; the page shows the one that suits."""
    return f'<div class="wide">{draw(wide)}</div>\n<div class="narrow">{draw(narrow)}</div>'


def folded(words: str, width: float, letter: float = 6.6) -> list[str]:
    """Words in lines no longer than a width, with letters of about some width."""
    return wrap(words, max(int(width / letter), 12)) or [""]


def page(title: str, svg: str, style: str = "") -> str:
    """One HTML file that stands alone."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width"/>\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n"
        f"<body><main>\n{svg}\n</main></body>\n</html>\n"
    )


def drawing(width: int, height: int, about: str, parts: list[str]) -> str:
    """The picture alone, as XML; `about` is for those who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<desc>{escape(about)}</desc>\n{body}\n</svg>"
    )


def text(x: float, y: float, words: str, classes: str = "") -> str:
    """Words at a place."""
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, classes: str, tip: str = "") -> str:
    """A box; with hover text where it has a tip."""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    named = f' class="{classes}"' if classes else ""
    if tip:
        return f"<rect{named} {box}><title>{escape(tip)}</title></rect>"
    return f"<rect{named} {box}/>"


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line class="{classes}" {ends}/>'


# Of both forms: which one by the file's ending, fewer points, round numbers for axes.


T = TypeVar("T")
MOST_POINTS = 2000
INK, SOFT, LINE = "#1b1e23", "#667080", "#d9dde3"
"""Of a .png, which is light; `STYLE` has the same, and the dark ones."""
DPI = 150


def check_plot_path(path: Path, *, with_svg: bool = False) -> None:
    """Refuse at once what could not be written after a long run."""
    endings = (".html", ".svg", ".png") if with_svg else (".html", ".png")
    if path.suffix.lower() not in endings:
        raise InputError(
            f"{path} is no {', '.join(endings[:-1])} or {endings[-1]} file.",
            fix=f"Write for example --plot {path.stem}.html.",
        )
    check_folder(path)
    if path.suffix.lower() == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise ExtraMissing("A .png needs matplotlib: pip install matplotlib (or plot to .html).")


def write_picture(
    path: Path,
    html: Callable[[], str],
    png: Callable[[], bytes],
    svg: Callable[[], str] | None = None,
) -> None:
    """Write the picture in the form the file's ending names; `svg` for those that have one."""
    check_plot_path(path, with_svg=svg is not None)
    if path.suffix.lower() == ".png":
        write_whole(path, png())
    else:
        is_svg = path.suffix.lower() == ".svg" and svg is not None
        write_whole(path, (svg if is_svg and svg else html)().encode())


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
