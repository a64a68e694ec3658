"""The bundled profiles are what the tracer makes of the examples today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.examples import periodic
from tools.build_profiles import PROFILES, ROOT

from outlay.trace import allocator
from outlay.trace.profile import Profile
from outlay.trace.store import bundled_profiles, find_profile
from outlay.trace.tracing import profile_of

BATCH_SIZE = 8


def profile_at(target: str, batch_size: int) -> Profile:
    return profile_of(target, [batch_size])


TRACED: dict[str, Callable[[str, int], Profile]] = {"stylenat": periodic.profile_of_period}
"""Where not all of a period is traced: sixteen iterations of StyleNAT take minutes."""


def test_all_are_built_by_the_same_tool():
    assert sorted(PROFILES) == sorted(bundled_profiles())


@pytest.mark.torch
@pytest.mark.parametrize("name", PROFILES)
def test_a_bundled_profile_is_current(name):
    """If this fails, run `make profiles` and look at what changed."""
    bundled = find_profile(name)
    fresh = TRACED.get(name, profile_at)(str(ROOT / "examples" / PROFILES[name][0]), BATCH_SIZE)
    assert fresh.period == bundled.period
    assert fresh.parameters == bundled.parameters
    assert fresh.issued_ops == bundled.issued_ops
    now, then = fresh.at(BATCH_SIZE), bundled.at(BATCH_SIZE)
    assert now.flops == pytest.approx(then.flops, rel=1e-9)
    assert now.moved_bytes == pytest.approx(then.moved_bytes, rel=1e-9)
    # A polynomial in the batch size is kept in whole bytes: blocks of 512 bytes may differ.
    assert now.memory.peak_bytes == pytest.approx(then.memory.peak_bytes, rel=1e-4)
    assert bundled.history is not None
    use = allocator.peak_use(bundled.history, BATCH_SIZE)
    assert fresh.allocator_use[BATCH_SIZE].allocated_bytes == pytest.approx(
        use.allocated_bytes, rel=1e-3
    )
    assert fresh.allocator_use[BATCH_SIZE].reserved_bytes == pytest.approx(
        use.reserved_bytes, rel=0.01
    )


def counts(ops):
    """How often each operation runs, whatever torch.compile would fuse: a period does not say."""
    found = {}
    for op in ops:
        alike = replace(op, count=0, fused=None)
        found[alike] = found.get(alike, 0.0) + op.count
    return found


@pytest.mark.torch
def test_a_period_is_known_from_two_of_its_iterations():
    target = f"{Path(periodic.__file__)}:Iteration"
    whole, known = profile_at(target, BATCH_SIZE), periodic.profile_of_period(target, BATCH_SIZE)
    assert counts(known.ops) == pytest.approx(counts(whole.ops))
    # (4 n + m) / 5, the last with a second forward and backward
    assert known.issued_ops == whole.issued_ops
    assert (known.period, known.parameters) == (whole.period, whole.parameters)
    assert known.memory == whole.memory
    assert known.allocator_use == whole.allocator_use
    # Its peak is that of the last iteration: all of it is gone before the next plain one's.
    exp = [op for op in known.ops if op.name == "aten.exp"]
    assert [op.count for op in exp] == [1 / 5]
