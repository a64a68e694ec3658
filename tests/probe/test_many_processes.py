"""Data-parallel training on several processes: all are seen, the slowest counts, all stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.probe.probed import PYTHON, SCRIPTS, probe
from tests.probe.scripts.own_clock import STEP_S

pytestmark = pytest.mark.torch
TORCHRUN = (Path(PYTHON).parent / "torchrun", "--nproc-per-node", 2)


@pytest.mark.parametrize(
    ("starter", "more", "optimizer"),
    [
        ((*TORCHRUN, SCRIPTS / "ddp.py"), (), "SGD"),
        # An optimizer within another is one: its steps are not counted twice.
        ((PYTHON, SCRIPTS / "ddp.py"), ("spawn",), "ZeroRedundancyOptimizer"),
    ],
    ids=["torchrun", "spawn"],
)
def test_two_ranks(tmp_path, starter, more, optimizer):
    probed = probe(tmp_path, "--steps", 30, "--", *starter, "clock.json", *more)
    measurement = probed.measurement
    assert (probed.code, measurement.ending, measurement.status) == (0, "stopped", 0)
    assert (measurement.ranks, measurement.world_size) == (2, 2)
    assert [(each.name, each.per_step) for each in measurement.optimizers] == [(optimizer, 1.0)]
    assert (measurement.batch_size, measurement.samples_per_step) == (5, 5)
    assert measurement.samples_per_s == pytest.approx(2 * 5 / probed.step.mean_s)
    # The second sleeps twice as long, and the first waits for it.
    assert probed.step.mean_s > 2 * STEP_S
    for rank in (0, 1):
        assert probed.step.mean_s == pytest.approx(
            probed.own_mean_s(f"clock.json.{rank}"), rel=0.05
        )
        # Both left through their `finally`, at the same step: neither waited for the other.
        assert (tmp_path / f"left.{rank}").read_text() == "cleanly"
    assert len(probed.own_s("clock.json.0")) == len(probed.own_s("clock.json.1"))
    assert measurement.profile is not None
    forward = [op for op in measurement.profile.ops if op.name == "aten.addmm"]
    assert sum(op.at(5).flops * op.count for op in forward) == 2 * 5 * 32 * 16  # of one rank
