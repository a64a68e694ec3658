"""The live line of a probe: one line of text, with the least important left out when narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlay.probe.live import LiveState
from outlay.report.text import clock, count, duration, percent, rate, usd
from outlay.units import GIB

_BETWEEN = " · "


def live_line(state: LiveState, width: int) -> str:
    """The line, no longer than the width; the phase stays to the last, and is cut if need be."""
    parts = list(_parts(state))
    while len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    return _joined(parts)[: max(width, 0)]


def _joined(parts: list[tuple[int, int, str]]) -> str:
    return _BETWEEN.join(text for _, _, text in parts)


def _parts(state: LiveState) -> Iterator[tuple[int, int, str]]:
    """Rank, where 0 is left out last; place on the line; text."""
    told = (
        (0, _phase(state)),
        (1, _step(state)),
        (8, _pace(state)),
        (3, _with("{} samples/s", state.samples_per_s, rate)),
        (4, _with("GPU {}", state.gpu_fraction, percent)),
        (7, _memory(state)),
        (9, _with("{} W", state.power_w, count)),
        (2, _precision(state)),
        (6, _with("{} so far", state.usd, usd)),
        (5, _left(state)),
    )
    for place, (rank, text) in enumerate(told):
        if text:
            yield rank, place, text


def _with(words: str, value: float | None, written: Callable[[float], str]) -> str:
    """The value within its words; nothing where it is not known."""
    return "" if value is None else words.format(written(value))


def _phase(state: LiveState) -> str:
    return f"{state.phase} {clock(state.elapsed_s)}"


def _step(state: LiveState) -> str:
    if not state.step:
        return "no step yet"
    of = "" if state.wanted_steps is None else f" of {count(state.wanted_steps)}"
    return f"step {count(state.step)}{of}"


def _pace(state: LiveState) -> str:
    """Iterations a second, or seconds each where they are slow."""
    if not state.step_s:
        return ""
    slow = state.step_s > 1
    return f"{rate(state.step_s)} s/it" if slow else f"{rate(1 / state.step_s)} it/s"


def _memory(state: LiveState) -> str:
    if state.memory_bytes is None:
        return ""
    has = state.memory_limit_bytes
    of = "" if has is None else f" of {has / GIB:.1f}"
    return f"{state.memory_bytes / GIB:.1f}{of} GiB"


def _precision(state: LiveState) -> str:
    """How well the mean is known, and how well it should be."""
    if state.precision is None:
        return ""
    wanted = state.wanted_precision
    goal = "" if wanted is None else f" (want {100 * wanted:.3g} %)"
    return f"± {100 * state.precision:.1f} %{goal}"


def _left(state: LiveState) -> str:
    if state.left_s is None:
        return ""
    price = "" if state.left_usd is None else f", {usd(state.left_usd)}"
    return f"{duration(state.left_s)}{price} left"
