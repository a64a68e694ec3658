"""Values of the live line that follow from others."""

from __future__ import annotations

import pytest

from outlay.probe.stages import LiveState


def test_cost_so_far_and_to_finish():
    state = LiveState(
        phase="measuring",
        elapsed_s=360.0,
        step=200,
        total_steps=7400,
        step_s=0.5,
        price_usd_per_hour=2.0,
    )
    assert state.usd == pytest.approx(0.2)  # a tenth of an hour
    assert state.left_s == 3600  # 7200 x 0.5
    assert state.left_usd == pytest.approx(2.0)


def test_unknown_stays_unknown():
    state = LiveState(phase="starting", elapsed_s=3.0)
    assert (state.usd, state.left_s, state.left_usd) == (None, None, None)
    assert LiveState(phase="measuring", elapsed_s=3.0, total_steps=10, step_s=1.0).left_usd is None


def test_nothing_is_left_beyond_the_end():
    state = LiveState(phase="measuring", elapsed_s=3.0, step=12, total_steps=10, step_s=1.0)
    assert state.left_s == 0
