"""Which steps are profiled and recorded once the timing is over."""

from __future__ import annotations

import pytest

from outlay.measurement.measurement import StepTime
from outlay.probe.stages import ProbeLimits, ProbeStages
from outlay.probe.steps import StepStatistics


def profiled_steps(period: int, step_s: float) -> int:
    """How many steps are profiled of a script whose times repeat after a number of them."""
    step = StepTime(
        mean_s=step_s,
        low_s=step_s,
        high_s=step_s,
        median_s=step_s,
        p10_s=step_s,
        p90_s=step_s,
        steps=100,
        warm_up_steps=3,
        is_steady=True,
    )
    statistics = StepStatistics(step=step, steps_seen=103, per_step=(1.0,), period=period)
    stages = ProbeStages(ProbeLimits(steps=100))
    request = stages.advance(statistics, [103], 60.0)
    assert request.profile_from
    return request.profile_until - request.profile_from


@pytest.mark.parametrize(
    ("period", "step_s", "steps"),
    [
        (1, 0.1, 3),
        (16, 0.1, 16),  # every 16th is longer: else the kernels of the others stand for all
        (16, 1.0, 3),  # 16 s of a profile are too long
        (80, 0.01, 3),
        (1, 5.0, 1),
    ],
)
def test_a_whole_period_is_profiled_where_that_is_short(period, step_s, steps):
    assert profiled_steps(period, step_s) == steps
