from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.uncertainty import Estimate, total
from tests.builders import exactly, span

amounts = st.floats(0, 1e12)
estimates = st.lists(amounts, min_size=3, max_size=3).map(lambda three: span(*sorted(three)))

usual_amounts = st.just(0.0) | st.floats(1e-6, 1e12)
usual_estimates = st.lists(usual_amounts, min_size=3, max_size=3).map(
    lambda three: span(*sorted(three))
)


def test_exactly_has_no_range():
    assert Estimate.exactly(5.0) == span(5.0, 5.0, 5.0)


@pytest.mark.parametrize(("low", "likely", "high"), [(2, 1, 3), (1, 4, 3), (3, 2, 1)])
def test_estimate_out_of_order_is_refused(low, likely, high):
    with pytest.raises(ValueError, match="not ordered"):
        span(low, likely, high)


def test_estimate_of_nan_is_refused():
    with pytest.raises(ValueError, match="not ordered"):
        exactly(float("nan"))


def test_scaled_and_plus():
    assert span(1, 2, 3).scaled(10) == span(10, 20, 30)
    assert span(1, 2, 3).plus(span(10, 20, 40)) == span(11, 22, 43)


def test_scaled_by_a_negative_factor_is_refused():
    with pytest.raises(ValueError, match="not ordered"):
        span(1, 2, 3).scaled(-1)


def test_total_of_nothing_is_zero():
    assert total([]) == exactly(0.0)


@given(estimates, estimates)
@settings(deadline=None)
def test_plus_keeps_the_order_and_commutes(first, other):
    both = first.plus(other)
    assert both.low <= both.likely <= both.high
    assert both == other.plus(first)


@given(estimates, st.floats(0, 1e6))
@settings(deadline=None)
def test_scaled_keeps_the_order(estimate, factor):
    scaled = estimate.scaled(factor)
    assert scaled.low <= scaled.likely <= scaled.high
    assert scaled.likely == estimate.likely * factor


@given(st.lists(estimates, max_size=8))
@settings(deadline=None)
def test_total_adds_up(parts):
    summed = total(parts)
    for end in ("low", "likely", "high"):
        assert getattr(summed, end) == pytest.approx(
            math.fsum(getattr(first, end) for first in parts), rel=1e-12, abs=1e-12
        )
