"""The bundled profiles are what the tracer makes of the examples today."""

from __future__ import annotations

import pytest
from tools.build_profiles import PROFILES, ROOT

from outlay.trace import allocator
from outlay.trace.store import bundled_profiles, find_profile
from outlay.trace.tracing import profile_of

BATCH_SIZE = 8


def test_all_are_built_by_the_same_tool():
    assert sorted(PROFILES) == sorted(bundled_profiles())


@pytest.mark.torch
@pytest.mark.parametrize("name", PROFILES)
def test_a_bundled_profile_is_current(name):
    """If this fails, run `make profiles` and look at what changed."""
    bundled = find_profile(name)
    fresh = profile_of(str(ROOT / "examples" / PROFILES[name][0]), [BATCH_SIZE])
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
