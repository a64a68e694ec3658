"""A step at any batch size and length, from few layers, against traces of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.forked import call_forked

from outlay.trace.length_profile import LengthProfile, profile_at
from outlay.trace.length_scaling import SurfaceFit, TraceGrid, value_on
from outlay.trace.profile import Op, Profile
from outlay.trace.store import length_profile_from_json, profile_from_json

UNSEEN = 896
"""A length that no fit has seen, at which kernels' tiles are full."""


@cache
def _traced(kind: str) -> dict[str, Any]:
    return call_forked("tests.trace.steps_lengths:at_any_length", kind, UNSEEN)


@cache
def _pieces(kind: str) -> list[LengthProfile]:
    return [length_profile_from_json(piece) for piece in _traced(kind)["pieces"]]


@cache
def _direct(kind: str) -> Profile:
    return profile_from_json(_traced(kind)["direct"])


def _pair(kind: str) -> tuple[Profile, Profile]:
    """The profile of few layers and one whole trace, and that of whole traces at the length."""
    return profile_at(_pieces(kind), UNSEEN), _direct(kind)


def counts(ops: Iterable[Op]) -> dict[Op, float]:
    """How often each operation runs; a whole trace has those apart that are fused unlike."""
    found: dict[Op, float] = {}
    for op in ops:
        alike = replace(op, count=0)
        found[alike] = found.get(alike, 0.0) + op.count
    return found


# Whole traces of 4 layers at two batch sizes, against traces of 3 layers and one of all


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["windowed", "adapters"])
def test_all_is_as_in_a_trace_at_that_length(kind: str) -> None:
    profile, direct = _pair(kind)
    assert profile.history == direct.history
    assert profile.parameters == direct.parameters
    assert profile.trainable_parameters == direct.trainable_parameters
    assert profile.issued_ops == direct.issued_ops
    assert profile.sample == direct.sample
    for batch_size in (1, 3, 8, 32, 100):
        at, expected = profile.at(batch_size), direct.at(batch_size)
        assert counts(at.ops) == pytest.approx(counts(expected.ops))
        assert at.memory == expected.memory


@pytest.mark.torch
def test_blocks_and_gradients_are_as_in_a_trace_at_that_length() -> None:
    profile, direct = _pair("adapters")
    made, expected = profile.structure, direct.structure
    assert made is not None
    assert expected is not None
    assert made.blocks == expected.blocks
    assert made.blocks[0].count == 4
    assert made.gradient_bytes == expected.gradient_bytes
    # drawn between lengths a doubling apart
    assert made.ready == pytest.approx(expected.ready, abs=0.01)


@pytest.mark.torch
def test_the_step_has_the_flops_of_its_formula() -> None:
    # At length 1000, batch 3, of 3000 tokens: products forward and twice backward with 3 + 1
    # squares of 64 in 4 layers and a head of 64 x 100; attention of 3 samples and 4 heads, two
    # products forward and five backward of 1000 x 1000 x 16, halved by the mask
    piece = _pieces("windowed")[-1]
    products = 3 * 2 * 3000 * (4 * 4 * 64 * 64 + 64 * 100)
    attention = 4 * 7 * 3 * 4 * 2 * 1000 * 1000 * 16 / 2
    at = piece.at(1000).at(3)
    counted = sum(op.count * op.flops for op in at.ops if op.kind in ("gemm", "attention"))
    assert counted == products + attention


@pytest.mark.torch
def test_lengths_are_cut_where_the_step_changes() -> None:
    assert [piece.lengths for piece in _pieces("windowed")] == [(64, 255), (256, 1024)]
    assert [piece.lengths for piece in _pieces("adapters")] == [(64, 1024)]


@pytest.mark.torch
def test_what_all_layers_make_together_is_refused() -> None:
    # torch.cat of all layers grows with length and depth: one trace of the whole cannot tell
    assert _traced("stacked")["error"] == "LayersDiffer"
    assert "number of layers" in _traced("stacked")["what"]


# Surfaces


GRID = TraceGrid(batch_sizes=(2, 5), lengths=(128, 256, 512), checks=((8, 384),))


def _values(function: Any, grid: TraceGrid = GRID) -> list[float]:
    return [function(b, n) for b, n in grid.points]


def test_a_surface_has_the_lowest_degree_and_meets_its_check() -> None:
    fit = SurfaceFit(GRID)
    surface = fit.surface(_values(lambda b, n: 3 + 2 * b + 5 * b * n + 7 * b * n * n), "x")
    assert surface == ((3.0,), (2.0, 5.0, 7.0))
    assert value_on(surface, (10, 1000)) == 3 + 20 + 5 * 10_000 + 7 * 10 * 1000 * 1000
    assert fit.surface([42] * 7, "x") == ((42.0,),)
    assert fit.surface(_values(lambda b, n: n + 0 * b), "x") == ((0.0, 1.0),)
    assert not fit.missed


def test_large_amounts_stay_exact() -> None:
    slope = 3_141_592_653_589.0
    surface = SurfaceFit(GRID).surface(_values(lambda b, n: slope * b * n), "x")
    assert surface == ((0.0,), (0.0, slope))


def test_what_misses_its_check_is_told() -> None:
    fit = SurfaceFit(GRID)
    fit.surface(_values(lambda b, n: b * b * n), "pairs of samples")
    # linear in b between 2 and 5: 4 n and 25 n, so 7 n b - 10 n = 46 n at 8, where it is 64 n
    assert fit.missed == {"pairs of samples": pytest.approx(18 / 64)}
    curved = TraceGrid(batch_sizes=(2, 5, 8), lengths=GRID.lengths, checks=((3, 384),))
    fit = SurfaceFit(curved)
    assert fit.surface(_values(lambda b, n: b * b * n, curved), "x") == (
        (0.0,),
        (0.0,),
        (0.0, 1.0),
    )
    assert not fit.missed
