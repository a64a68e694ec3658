"""The factor that measured steps make of what is taken for a GPU."""

from __future__ import annotations

import math

import pytest

from outlay.predict.evidence import LearnedFactor
from outlay.predict.learn import StepRatio, is_explained, mean_over_hosts, shrunken_factor


def a_ratio(ratio, base_error=0.2, parameters=0, **changes):
    return StepRatio(
        log_ratio=math.log(ratio), base_error=base_error, parameters=parameters, **changes
    )


def steps(*ratios, base_error=0.2):
    """Steps of different models."""
    return [a_ratio(ratio, base_error, model) for model, ratio in enumerate(ratios)]


def test_one_step_counts_by_how_well_steps_are_known():
    # prior 0.2, one step with an error of 0.2: half of the logarithm
    factor = shrunken_factor("T4", steps(1.21), prior=0.2)
    assert factor.factor == pytest.approx(1.1)
    assert (factor.steps, factor.measurements, factor.mean_ratio) == (1, 1, pytest.approx(1.21))
    # 0.2 / sqrt(2)
    assert (factor.error_before, factor.error) == (0.2, pytest.approx(0.2 * math.sqrt(0.5)))
    assert not factor.is_bounded


def test_steps_that_agree_by_chance_are_not_known_better_than_expected():
    factor = shrunken_factor("T4", steps(*[1.3] * 4), prior=0.2)
    # 0.2² / 4 = 0.01, however much alike: 0.04 / (0.04 + 0.01)
    assert factor.factor == pytest.approx(1.3**0.8)
    assert factor.error == pytest.approx(0.2 * math.sqrt(0.2))


def test_those_that_scatter_count_less():
    alike = shrunken_factor("T4", steps(1.2, 1.2), prior=0.2)
    apart = shrunken_factor("T4", steps(0.6, 2.4), prior=0.2)
    assert apart.mean_ratio == pytest.approx(alike.mean_ratio)
    # log 2 to both sides, in units of 0.2: (2 + 2 x 3.466²) / 3 = 8.67 times the variance
    variance = (2 + 2 * (math.log(2) / 0.2) ** 2) / 3 * 0.04 / 2
    assert apart.factor == pytest.approx(1.2 ** (0.04 / (0.04 + variance)))
    assert alike.error < apart.error < 0.2


def test_better_known_steps_have_more_weight():
    factor = shrunken_factor("T4", [a_ratio(1.5, 0.1, 1), a_ratio(1.0, 0.2, 2)], prior=0.3)
    # weights 1 / 0.01 and 1 / 0.04: 4 to 1
    assert factor.mean_ratio == pytest.approx(1.5**0.8)


@pytest.mark.parametrize(
    "pair",
    [
        [a_ratio(1.3, 0.2, parameters=7), a_ratio(1.3, 0.2, parameters=7)],  # of one model
        [
            a_ratio(1.3, 0.0, 1, kernel_errors={"a": 0.2}),
            a_ratio(1.3, 0.0, 2, kernel_errors={"a": 0.2}),
        ],
    ],
)
def test_what_steps_share_does_not_average_out(pair):
    alone, both = shrunken_factor("T4", pair[:1], 0.2), shrunken_factor("T4", pair, 0.2)
    assert both.factor == pytest.approx(alone.factor)
    assert both.error == pytest.approx(alone.error)
    assert both.steps == 2


def test_other_families_of_kernels_do():
    step = a_ratio(1.3, 0.0, 1, kernel_errors={"a": 0.2})
    other = a_ratio(1.3, 0.0, 2, kernel_errors={"b": 0.2})
    # 0.04 / 2
    assert shrunken_factor("T4", [step, other], 0.2).factor == pytest.approx(1.3 ** (0.04 / 0.06))


def test_no_factor_goes_further_than_three_errors():
    # 100 steps at 0.8, 0.05 each: a variance of 0.000025 against 0.0004, 94 % of -0.223
    factor = shrunken_factor("H200", steps(*[0.8] * 100, base_error=0.05), prior=0.02)
    assert factor.is_bounded
    assert factor.factor == pytest.approx(math.exp(-0.06))
    assert factor.error == 0.02


def test_what_errors_explain():
    # 3 x hypot(0.03, 0.04) = 0.15
    assert is_explained(a_ratio(math.exp(0.149), 0.04), prior=0.03)
    assert not is_explained(a_ratio(math.exp(-0.151), 0.04), prior=0.03)


def test_an_inaccurate_measurement_says_less():
    # hypot(0.12, 0.16) = 0.2
    assert a_ratio(1.2, 0.12, noise=0.16).error == pytest.approx(0.2)


def host(factor, error, measurements=1):
    return LearnedFactor(
        name="CPU",
        measurements=measurements,
        mean_ratio=factor,
        factor=factor,
        error_before=0.4,
        error=error,
    )


def test_each_cpu_counts_once_for_the_host():
    factor = mean_over_hosts([host(0.5, 0.1, measurements=9), host(2.0, 0.1)])
    assert (factor.name, factor.measurements, factor.steps) == ("host", 10, 2)
    assert factor.factor == pytest.approx(1.0)
    # each is log 2 away from the mean
    assert factor.error == pytest.approx(math.hypot(0.1, math.log(2)))
    assert mean_over_hosts([host(0.5, 0.1)]).factor == pytest.approx(0.5)
    assert mean_over_hosts([]) is None
