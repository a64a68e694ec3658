"""A run that is looked at, for people: a panel on a terminal, or a line now and then."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outlay.files import to_json
from outlay.report.encoding import json_shown
from outlay.run.progress import RunStatus
from outlay.run.rules import span
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GIB

LINE_S = 60.0
"""Where nobody watches, a line in so long."""
_SHOWN_EVENTS = 4


def usd(amount: float) -> str:
    """Money: cents where they matter."""
    return f"${amount:,.2f}" if amount < 1000 else f"${amount:,.0f}"


def _range(low: str, high: str) -> str:
    return "" if low == high else f" ({low} to {high})"


def cost_words(status: RunStatus) -> str | None:
    """`$1.20 of $5.00 so far, $4.10 ($3.90 to $4.40) in the end`; None where no price is known."""
    if status.cost_usd is None:
        return None
    budget = "" if status.budget_usd is None else f" of {usd(status.budget_usd)}"
    if status.phase == "ended":
        return f"{usd(status.cost_usd)}{budget} in all"
    words = f"{usd(status.cost_usd)}{budget} so far"
    final = status.final_cost_usd
    if final is None:
        return words
    return f"{words}, {usd(final.likely)}{_range(usd(final.low), usd(final.high))} in the end"


def finish_words(status: RunStatus) -> str | None:
    """`Tue 14:20 (14:05 to 14:40), in 3.5 h`; None where it is not known."""
    left = status.remaining_s
    if left is None or status.phase == "ended":
        return None
    ends = [_clock(status.time_s + seconds) for seconds in (left.low, left.likely, left.high)]
    return f"{ends[1]}{_range(ends[0], ends[2])}, in {span(left.likely)}"


def _clock(time_s: float) -> str:
    """A time of day, with the day where it is another than today."""
    at = datetime.datetime.fromtimestamp(time_s).astimezone()
    is_near = abs(time_s - time.time()) < DAY_S / 2
    return at.strftime("%H:%M" if is_near else "%a %d %b %H:%M")


def step_words(status: RunStatus) -> str | None:
    """`1,200 of 90,000 (1.3 %), 12.5 a second`; None where steps are not known."""
    if status.steps_done is None:
        return None
    words = f"{status.steps_done:,}"
    if status.total_steps:
        share = status.steps_done / status.total_steps
        words += f" of {status.total_steps:,.0f} ({share:.1%})"
    rate = rate_words(status.step_time_s)
    return f"{words}, {rate}" if rate else words


def rate_words(step_time_s: float | None) -> str | None:
    """`12.5 a second`, or `3.2 s each` for slow ones."""
    if not step_time_s:
        return None
    return f"{1 / step_time_s:,.1f} a second" if step_time_s < 1 else f"{step_time_s:,.1f} s each"


def predicted_words(status: RunStatus) -> str | None:
    """How what is seen compares with what was predicted; None where nothing was."""
    parts = []
    expected = status.predicted_step_time_s
    if expected is not None and status.step_time_s:
        parts.append(f"a step takes {_against(status.step_time_s, expected)}")
    cost, final = status.predicted_cost_usd, status.final_cost_usd
    if cost is not None and final is not None:
        parts.append(f"{usd(cost.likely)} were predicted, {_change(final.likely, cost.likely)}")
    return "; ".join(parts) or None


def _against(value: float, expected: Estimate) -> str:
    within = "within" if expected.low <= value <= expected.high else "outside"
    change = f"{_change(value, expected.likely)}, {within} the range"
    return f"{_seconds(value)}, {_seconds(expected.likely)} were predicted ({change})"


def _seconds(value: float) -> str:
    return f"{value * 1000:,.1f} ms" if value < 1 else f"{value:,.2f} s"


def _change(value: float, expected: float) -> str:
    return f"{value / expected - 1:+.0%}" if expected > 0 else "?"


def use_words(status: RunStatus) -> str | None:
    """`GPU 93%, 412 W, 61 GiB; 3.1 CPUs busy`."""
    gpu = [
        None if status.gpu_fraction is None else f"{status.gpu_fraction:.0%}",
        None if status.gpu_power_w is None else f"{status.gpu_power_w:,.0f} W",
        None if status.gpu_memory_bytes is None else f"{status.gpu_memory_bytes / GIB:,.1f} GiB",
    ]
    known = [part for part in gpu if part]
    if status.phase == "ended":
        return None
    parts = [f"GPU {', '.join(known)}" if known else "GPU not known, which counts as busy"]
    if status.cpus is not None:
        parts.append(f"{status.cpus:.1f} CPUs busy")
    return "; ".join(parts)


def loss_words(status: RunStatus) -> str | None:
    """The last loss; None where none was seen."""
    if status.is_loss_finite is None:
        return None
    return (
        f"{status.loss:.4g}" if status.is_loss_finite and status.loss is not None else "not finite"
    )


def line(status: RunStatus) -> str:
    """The run in one line."""
    loss = loss_words(status)
    finish = finish_words(status)
    parts = [
        status.run or (f"process {status.pid}" if status.pid else None),
        status.phase,
        None if (steps := step_words(status)) is None else f"step {steps}",
        use_words(status),
        None if loss is None else f"loss {loss}",
        cost_words(status),
        None if finish is None else f"ends {finish}",
        status.warning,
    ]
    return " | ".join(part for part in parts if part)


def live_line(status: RunStatus, width: int) -> str:
    """The run in what a terminal is wide: what matters most comes first, the rest where it fits."""
    text = "outlay"
    for part in filter(None, _short_parts(status)):
        longer = f"{text} | {part}"
        if len(longer) < width:
            text = longer
    return text


def _short_parts(status: RunStatus) -> tuple[str | None, ...]:
    loss, left, final = loss_words(status), status.remaining_s, status.final_cost_usd
    cost = None if status.cost_usd is None else usd(status.cost_usd)
    if cost is not None and status.budget_usd is not None:
        cost = f"{cost} of {usd(status.budget_usd)}"
    return (
        status.warning,
        None if (steps := step_words(status)) is None else f"step {steps}",
        cost,
        None if left is None else f"ends {_clock(status.time_s + left.likely)}",
        None if final is None else f"{usd(final.likely)} in the end",
        None if status.gpu_fraction is None else f"GPU {status.gpu_fraction:.0%}",
        None if loss is None else f"loss {loss}",
    )


# The panel


def panel(status: RunStatus, events: list[str]) -> RenderableType:
    """The run as a few rows, each with its name; what is not known is left out."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    title = status.run or (f"process {status.pid}" if status.pid else "this machine")
    phase_style = {"warned": "yellow", "stopping": "red", "ended": "bold"}.get(
        status.phase, "green"
    )
    rows.add_row("run", Text.assemble((title, "bold"), "  ", (status.phase, phase_style)))
    for name, words in (
        ("steps", step_words(status)),
        ("use", use_words(status)),
        ("loss", loss_words(status)),
        ("cost", cost_words(status)),
        ("ends", finish_words(status)),
        ("deadline", _deadline_words(status)),
        ("predicted", predicted_words(status)),
    ):
        if words is not None:
            rows.add_row(name, Text(words))
    if status.warning:
        rows.add_row("warning", Text(status.warning, style="yellow"))
    if status.stopped_for:
        rows.add_row("stopped", Text(status.stopped_for, style="red"))
    for note in status.notes[:2]:
        rows.add_row("note", Text(note, style="dim"))
    parts: list[RenderableType] = [rows]
    if status.total_steps and status.steps_done is not None:
        bar = Table.grid()
        bar.add_row(ProgressBar(total=status.total_steps, completed=status.steps_done, width=60))
        parts.append(bar)
    parts += [Text(text, style="dim") for text in events[-_SHOWN_EVENTS:]]
    return Group(*parts)


def _deadline_words(status: RunStatus) -> str | None:
    if status.deadline_in_s is None or status.phase == "ended":
        return None
    return f"{_clock(status.time_s + status.deadline_in_s)}, in {span(status.deadline_in_s)}"


class LiveView:
    """The panel on a terminal, drawn anew with every status."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._events: list[str] = []
        self._status: RunStatus | None = None
        self._live.start()

    def status(self, status: RunStatus) -> None:
        """Draw it."""
        self._status = status
        self._draw()

    def event(self, event: Mapping[str, Any]) -> None:
        """Show what happened below it."""
        if event["event"] != "started":
            self._events.append(f"{_clock(event['time_s'])}  {event['text']}")
            self._draw()

    def _draw(self) -> None:
        if self._status is not None:
            self._live.update(panel(self._status, self._events), refresh=True)

    def close(self) -> None:
        """Leave the last of it on the terminal."""
        self._live.stop()


class LineView:
    """A line every minute, and one for what happens."""

    def __init__(self, every_s: float = LINE_S) -> None:
        self._every_s = every_s
        self._said_s = float("-inf")

    def status(self, status: RunStatus) -> None:
        """Print it, where the last is long enough ago, or where it has ended."""
        now_s = time.monotonic()
        if now_s - self._said_s >= self._every_s or status.phase == "ended":
            self._said_s = now_s
            at = datetime.datetime.fromtimestamp(status.time_s).astimezone()
            click.echo(f"{at:%Y-%m-%d %H:%M:%S} {line(status)}")

    def event(self, event: Mapping[str, Any]) -> None:
        """Print it at once, to where messages go."""
        if event["event"] != "started":
            click.echo(f"outlay: {event['text']}", err=True)

    def close(self) -> None:
        """Nothing is open."""


class JsonView:
    """One JSON object a line: every status as it comes."""

    def status(self, status: RunStatus) -> None:
        """Print it."""
        import json

        click.echo(json_shown(json.dumps(to_json(status), ensure_ascii=False)))
        sys.stdout.flush()

    def event(self, event: Mapping[str, Any]) -> None:
        """What happens is in the next status; a person may want to know it now."""
        if event["event"] != "started":
            click.echo(f"outlay: {event['text']}", err=True)

    def close(self) -> None:
        """Nothing is open."""
