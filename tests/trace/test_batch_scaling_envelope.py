from __future__ import annotations

from outlay.trace.batch_scaling import (
    MemoryLine,
    breakpoints,
    lines_through,
    memory_on_line,
    upper_envelope,
)
from outlay.trace.profile import Memory


def _lines(*parts: tuple[float, float]) -> list[MemoryLine]:
    low = [start + slope * 8 for start, slope in parts]
    high = [start + slope * 32 for start, slope in parts]
    return lines_through((8, 32), (low, high))


def test_lines_pass_through_both_traces() -> None:
    (line,) = _lines((100.0, 3.0))
    assert (line.at(8), line.at(32), line.at(1)) == (124, 196, 103)


def test_one_moment_may_be_the_peak_throughout() -> None:
    envelope = upper_envelope(_lines((10, 1), (20, 5), (0, 4)))
    assert [(first, line.event) for first, line in envelope] == [(1, 1)]


def test_another_moment_takes_over_where_the_lines_cross() -> None:
    # 500 (the optimizer) against 20 + 10 b (the backward pass): equal at 48
    envelope = upper_envelope(_lines((500, 0), (20, 10), (0, 9)))
    assert [(first, line.event) for first, line in envelope] == [(1, 0), (48, 1)]


def test_reading_between_the_breakpoints_is_exact() -> None:
    parts = ((500, 0), (300, 4), (20, 10))
    lines = _lines(*parts)
    points = {n: line.at(n) for n, line in breakpoints(upper_envelope(lines)).items()}
    sizes = sorted(points)
    for batch_size in range(1, 200):
        true_peak = max(start + slope * batch_size for start, slope in parts)
        above = next((i for i, n in enumerate(sizes) if n > batch_size), len(sizes) - 1)
        low, high = sizes[max(above, 1) - 1], sizes[max(above, 1)]
        share = (batch_size - low) / (high - low)
        assert points[low] + share * (points[high] - points[low]) == true_peak


def test_memory_on_a_line_by_category() -> None:
    low = Memory(
        parameters=100, gradients=50, optimizer_state=0, inputs=8, activations=80, temporaries=1
    )
    high = Memory(
        parameters=100, gradients=50, optimizer_state=0, inputs=32, activations=320, temporaries=1
    )
    memory = memory_on_line((8, 32), (low, high), 100)
    assert memory.inputs == 100
    assert memory.activations == 1000
    assert memory.peak_bytes == 1251
