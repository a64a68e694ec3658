"""What pictures as SVG share: the page around them, its style in light and dark, and marks."""

from __future__ import annotations

from html import escape

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
"""


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
