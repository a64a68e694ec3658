"""Draw `docs/architecture.svg`: how data flows through outlay's packages.

    make docs

`tools/build_docs.py` writes it, and a test fails where the file is another. Packages are boxes,
what a user gives has round ends, and what is foreseen has a dashed edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 1000, 676
STYLE = """
  svg { --ground: #ffffff; --box: #eef3fb; --edge: #4a6fa5; --input: #fdf3e1; --warm: #b07d2b;
        --ink: #1c2430; --soft: #566274; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #171b22; --box: #223149; --edge: #7fa6dd; --input: #3a301c; --warm: #d8a657;
          --ink: #e8edf5; --soft: #a9b5c6; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
         fill: var(--ink); text-anchor: middle; }
  .name { font-size: 15px; font-weight: 600; }
  .about { font-size: 12px; fill: var(--soft); }
  .ground { fill: var(--ground); }
  .box { fill: var(--box); stroke: var(--edge); stroke-width: 1.4; }
  .input { fill: var(--input); stroke: var(--warm); stroke-width: 1.4; }
  .foreseen { fill: none; stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 5 4; }
  .flow { fill: none; stroke: var(--edge); stroke-width: 1.6; marker-end: url(#head); }
  .later { fill: none; stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 5 4;
           marker-end: url(#soft); }
  #head path { fill: var(--edge); }
  #soft path { fill: var(--soft); }
"""
HEADS = "".join(
    f'  <marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker>\n'
    for name in ("head", "soft")
)
ROOT_MODULES = (
    *("errors", "units", "files", "uncertainty", "progress"),
    *("caching", "facts", "currency"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A package, something a user gives, or something foreseen."""

    name: str
    about: tuple[str, ...]
    left: int
    top: int
    width: int
    height: int = 56
    kind: str = "box"

    def svg(self) -> str:
        """The box with its name and what it is about."""
        middle = self.left + self.width // 2
        first = self.top + (self.height - 16 * len(self.about)) // 2 + 5
        rounded = self.height // 2 if self.kind == "input" else 7
        lines = [
            (
                f'  <rect class="{self.kind}" x="{self.left}" y="{self.top}" width="{self.width}" '
                f'height="{self.height}" rx="{rounded}"/>'
            ),
            f'  <text class="name" x="{middle}" y="{first}">{escape(self.name)}</text>',
        ]
        lines += [
            f'  <text class="about" x="{middle}" y="{first + 16 * number}">{escape(text)}</text>'
            for number, text in enumerate(self.about, 1)
        ]
        return "\n".join(lines)


def _given(name: str, left: int) -> Box:
    return Box(name=name, about=(), left=left, top=20, width=205, height=40, kind="input")


BOXES = (
    _given("your training code", 30),
    _given("your script, really run", 275),
    _given("workload file, quotes", 520),
    _given("tables, price sources", 765),
    Box(
        name="trace",
        about=("operators, FLOPs, memory:", "a profile"),
        left=30,
        top=98,
        width=205,
        height=68,
    ),
    Box(
        name="probe",
        about=("trains for a while,", "script unchanged"),
        left=275,
        top=98,
        width=125,
        height=68,
    ),
    Box(name="inline", about=("from inside", "a process"), left=416, top=98, width=91, height=68),
    Box(
        name="workload",
        about=("what to train, how long,", "within which limits"),
        left=520,
        top=98,
        width=205,
        height=68,
    ),
    Box(name="hardware", about=("GPUs under", "any name"), left=765, top=98, width=112, height=68),
    Box(name="models", about=("by name",), left=30, top=204, width=90),
    Box(name="measurement", about=("what a run took",), left=275, top=204, width=125),
    Box(name="ledger", about=("keeps them",), left=416, top=204, width=91),
    Box(name="offers", about=("machines, terms",), left=765, top=204, width=112),
    Box(name="prices", about=("refreshed",), left=895, top=204, width=75),
    Box(
        name="predict",
        about=("step time, memory, several GPUs, run time: each with its range",),
        left=30,
        top=300,
        width=695,
    ),
    Box(name="fit", about=("what to change",), left=30, top=396, width=205),
    Box(name="workstation", about=("a machine of parts",), left=275, top=396, width=205),
    Box(
        name="cost",
        about=("a bill: lines that add up, drawn ten thousand times",),
        left=520,
        top=396,
        width=450,
    ),
    Box(name="run", about=("launch, bench, watch",), left=335, top=484, width=145),
    Box(name="plan", about=("options ranked, and why",), left=520, top=484, width=205),
    Box(name="advise", about=("buy which card, rent where",), left=765, top=484, width=205),
    Box(
        name="report", about=("the only place that rounds or formats",), left=30, top=572, width=450
    ),
    Box(name="cli", about=("parse, call, print",), left=520, top=572, width=205),
    Box(name="page", about=("in a browser",), left=765, top=572, width=205, kind="foreseen"),
)
FLOWS = (
    "M132 60V96",
    "M337 60V96",
    "M448 60V96",
    "M622 60V96",
    "M821 60V96",
    "M932 60V202",
    "M132 166V298",
    "M75 204V168",
    "M337 166V202",
    "M448 166V184H370V202",
    "M400 232H414",
    "M337 260V298",
    "M461 260V298",
    "M622 166V298",
    "M765 126H745V320H727",
    "M821 166V202",
    "M895 232H879",
    "M821 260V394",
    "M132 356V394",
    "M377 356V394",
    "M622 356V394",
    "M622 452V482",
    "M725 512H763",
    "M132 452V570",
    "M305 452V570",
    "M560 540V550H430V570",
    "M867 540V560H455V570",
    "M480 600H518",
)
LATER = ("M520 512H482", "M725 600H763")


def drawing() -> str:
    """The whole picture."""
    rests_on = "everything rests on  " + " · ".join(ROOT_MODULES)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'aria-label="How data flows through the packages of outlay: from code, runs, workload '
            'files, tables and prices through predict, cost and plan to report and cli">'
        ),
        f"<style>{STYLE}</style>",
        f"<defs>\n{HEADS}</defs>",
        f'  <rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        *(f'  <path class="flow" d="{path}"/>' for path in FLOWS),
        *(f'  <path class="later" d="{path}"/>' for path in LATER),
        *(box.svg() for box in BOXES),
        f'  <text class="about" x="{WIDTH // 2}" y="{HEIGHT - 18}">{escape(rests_on)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
