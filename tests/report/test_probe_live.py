"""The live line: what it says, and what it leaves out first."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.stages import LiveState
from outlay.report.probe import live_line
from outlay.units import GIB

FULL = LiveState(
    phase="measuring",
    elapsed_s=360.0,
    step=200,
    wanted_steps=1000,
    total_steps=7400,
    step_s=0.5,
    samples_per_s=667.0,
    gpu_fraction=0.97,
    memory_bytes=18.2 * GIB,
    memory_limit_bytes=24.0 * GIB,
    power_w=341.0,
    price_usd_per_hour=2.0,
    precision=0.024,
    wanted_precision=0.02,
)


def test_all_parts_where_there_is_room():
    # 1 / 0.5 s = 2 it/s; 7200 steps x 0.5 s = 1 h at $2; 360 s = 0.1 h
    assert live_line(FULL, 200) == (
        "measuring 6:00 min · step 200 of 1,000 · 2.00 it/s · 667 samples/s · GPU 97 % · "
        "18.2 of 24.0 GiB · 341 W · ± 2.4 % (want 2 %) · $0.20 so far · 1.0 h, $2.00 left"
    )


def test_parts_go_in_the_order_of_their_weight():
    words = ("341 W", "it/s", "GiB", "so far", "left", "GPU", "samples/s", "±", "step")
    gone_at = [max(w for w in range(201) if word not in live_line(FULL, w)) for word in words]
    assert gone_at == sorted(gone_at, reverse=True)
    assert all(text in live_line(FULL, 80) for text in ("step 200", "± 2.4 %", "667 samples/s"))


@given(st.integers(0, 220), st.sampled_from(["starting", "warming up", "stopping"]))
def test_never_wider_than_the_terminal(width, phase):
    line = live_line(replace(FULL, phase=phase), width)
    assert len(line) <= width
    assert line.startswith(phase[:width])
    assert not line.rstrip().endswith("·")


def test_before_the_first_step():
    assert live_line(LiveState(phase="starting", elapsed_s=3.0), 80) == "starting 3 s · no step yet"


def test_slow_steps_are_told_in_seconds():
    line = live_line(LiveState(phase="measuring", elapsed_s=90.0, step=9, step_s=9.5), 80)
    assert line == "measuring 1:30 min · step 9 · 9.50 s/it"


def test_memory_without_a_limit_and_cost_without_an_end():
    state = LiveState(
        phase="warming up", elapsed_s=36.0, step=1, memory_bytes=GIB, price_usd_per_hour=50.0
    )
    # 36 s are a hundredth of an hour
    assert live_line(state, 80) == "warming up 36 s · step 1 · 1.0 GiB · $0.50 so far"
