"""What `outlay probe` saw, printed for people: the answer, what holds it back, the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outlay.measurement import Check, Finding, Measurement, Verdict
from outlay.report.console import Page, bullets, muted, table
from outlay.report.probe_figures import figures
from outlay.report.probe_words import (
    answer,
    cost,
    holds_back,
    next_step,
    ran,
    to_finish,
    why_incomplete,
)
from outlay.report.sparkline import buckets, sparkline
from outlay.report.text import clock, percent

_INDENT = 2
_MOST_BARS = 60
_SHARE_BARS = 40
_MARKS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✔ ok", "green"),
    "look": ("! look", "yellow"),
    "bad": ("✘ bad", "bold red"),
    "unknown": ("? unknown", "dim"),
}
_WAITS = {
    "compute": "computing",
    "network": "waiting for other GPUs",
    "input": "waiting for data",
    "host": "waiting for Python",
}


def print_probe(
    page: Page,
    measurement: Measurement,
    *,
    total_steps: int | None = None,
    saved_as: str | None = None,
    saved_by: str = "--json OUT.json",
) -> None:
    """Print the answer, what holds it back, the figures, the checklist, and what to do next.

    `total_steps` is how long the whole run is, where the user knows better than the script;
    `saved_as` is the file the measurement was written to; without one, `saved_by` is what would.
    """
    page.print(Text(answer(measurement), style="bold"))
    page.print(ran(measurement))
    for line in why_incomplete(measurement):
        page.print(Text(line, style="yellow"))
    for title, body in _sections(measurement, total_steps, page.width - _INDENT):
        page.print()
        page.print(Text(title, style="bold"))
        page.print(Padding(body, (0, 0, 0, _INDENT)))
    further = next_step(measurement, saved_as, saved_by)
    if further is not None:
        page.print()
        page.print(muted(further))


def _sections(
    measurement: Measurement, total_steps: int | None, width: int
) -> Iterator[tuple[str, RenderableType]]:
    if measurement.finding is not None:
        yield (
            holds_back(measurement.finding, measurement.device),
            _finding(measurement.finding, measurement, width),
        )
    rows = list(figures(measurement))
    if rows:
        yield "Figures", table(("what", "seen", "how"), rows, width, wrap="how")
    curve = _use_over_time(measurement, width)
    if curve is not None:
        yield curve
    if measurement.checks:
        yield "Is it training properly?", _checks(measurement.checks)
    money = [*cost(measurement), *to_finish(measurement, total_steps)]
    if money:
        yield "Time and cost", Group(*money)
    if measurement.notes:
        yield "Not seen, or taken for granted", bullets(measurement.notes)


def _finding(finding: Finding, measurement: Measurement, width: int) -> Group:
    parts: list[RenderableType] = [_remarks(finding.evidence)] if finding.evidence else []
    parted = _shares(measurement, width)
    if parted is not None:
        parts.append(parted)
    if finding.cures:
        parts += [Text("What usually helps:"), _remarks(finding.cures)]
    return Group(*parts)


def _remarks(lines: Sequence[str]) -> Table:
    """A list that counts as much as the text around it."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(width=1)
    made.add_column(overflow="fold")
    for line in lines:
        made.add_row("-", Text(line))
    return made


def _shares(measurement: Measurement, width: int) -> Table | None:
    """Where the time of a step goes, a bar for each part that is known."""
    waits = _WAITS | ({"host": "asleep"} if measurement.device == "cpu" else {})
    known = [(name, getattr(measurement.shares, field)) for field, name in waits.items()]
    bars = min(_SHARE_BARS, width - 34)
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, justify="right")
    made.add_column(no_wrap=True)
    for name, fraction in known:
        if fraction is not None:
            made.add_row(name, percent(fraction), "█" * round(fraction * bars))
    return made if made.row_count else None


def _use_over_time(measurement: Measurement, width: int) -> tuple[str, RenderableType] | None:
    """The GPU's use as one line, or the CPU's for a run on it; None where nothing was read."""
    field, name = (
        ("cpu_fraction", "CPU") if measurement.device == "cpu" else ("gpu_fraction", "GPU")
    )
    points = [
        (sample.time_s, value)
        for sample in measurement.samples
        if (value := getattr(sample, field)) is not None
    ]
    if not points:
        return None
    end_s = max(measurement.elapsed_s, points[-1][0])
    values = buckets(points, end_s, min(_MOST_BARS, width, len(points)))
    begun_s = measurement.start_up_s
    trained = [value for time_s, value in points if begun_s is not None and time_s > begun_s]
    counted = trained or [value for _, value in points]
    after = f"after its start ({clock(begun_s)}) " if trained and begun_s else ""
    mean = sum(counted) / len(counted)
    title = (
        f"{name} use over {clock(end_s)}: {after}{percent(mean)} on average, "
        f"{percent(min(counted))} at least"
    )
    return title, Text(sparkline(values))


def _checks(checks: Sequence[Check]) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold", max_width=28)
    made.add_column(overflow="fold")
    for check in checks:
        mark, style = _MARKS[check.verdict]
        made.add_row(Text(mark, style=style), check.name, Text(check.why))
    return made
