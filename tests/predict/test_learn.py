"""What a user's own measurements say of their GPUs and hosts."""

from __future__ import annotations

import math

import pytest
from tests.builders import a_calibration, a_measurement, a_profile

from outlay.gpu_names import find_gpu
from outlay.placing import calibration
from outlay.predict.compute import device_time
from outlay.predict.learn import Ratio, learned_from, own_factor
from outlay.predict.traced import machine_at, trace_at


def ratios(*values, error=0.2):
    return [Ratio(measured_over_predicted=value, expected_error=error) for value in values]


def test_one_ratio_counts_by_how_well_steps_are_known():
    # prior 0.2, one step with an error of 0.2: half of the logarithm
    found = own_factor("T4", ratios(1.21), prior=0.2)
    assert found.factor == pytest.approx(1.1)
    assert (found.measurements, found.mean_ratio) == (1, pytest.approx(1.21))
    # 0.2 / sqrt(2)
    assert (found.error_before, found.error) == (0.2, pytest.approx(0.2 * math.sqrt(0.5)))


def test_many_alike_count_nearly_fully():
    found = own_factor("T4", ratios(*[1.3] * 50), prior=0.2)
    # spread: (2 x 0.04 + 0) / 51; of 50, a variance of 0.0000314 against 0.04
    shrink = 0.04 / (0.04 + 0.08 / 51 / 50)
    assert found.factor == pytest.approx(1.3**shrink)
    assert found.error < 0.01


def test_those_that_scatter_count_less():
    alike = own_factor("T4", ratios(1.3, 1.3), prior=0.2)
    apart = own_factor("T4", ratios(0.65, 2.6), prior=0.2)
    assert apart.mean_ratio == pytest.approx(alike.mean_ratio)
    assert 1 < apart.factor < alike.factor
    assert alike.error < apart.error < 0.2


def predicted_s(profile, batch_size=4):
    gpu, numbers = find_gpu("RTX 3090").gpu, calibration()
    trace = trace_at(profile, batch_size)
    return device_time(trace, machine_at(gpu, numbers), numbers).total_s


def test_gpus_by_their_kernels_and_hosts_by_steps_that_waited_for_them():
    profile = a_profile(issued_ops=2)
    device_s = predicted_s(profile)
    slow = a_measurement(2 * device_s, samples=4, profile=profile)
    waited = a_measurement(9.0, samples=4, profile=profile, holder="host", busy_s=2 * device_s)
    learned = learned_from([("a", slow), ("b", waited)], calibration())
    (gpu,) = learned.calibration.gpus
    assert (gpu.name, gpu.measurements) == ("RTX 3090", 2)
    assert gpu.mean_ratio == pytest.approx(2.0)
    assert 1 < gpu.factor < 2
    assert gpu.error_before == calibration().number("error_on_Ampere")
    assert gpu.error < gpu.error_before
    host = learned.calibration.host
    assert (host.name, host.measurements) == ("host", 1)
    assert learned.notes == ()


def test_what_says_nothing_is_named():
    profile = a_profile()
    learned = learned_from(
        [
            ("a.json", a_measurement()),
            ("b.json", a_measurement(device="cpu", profile=profile)),
            ("c.json", a_measurement(holder="input", profile=profile)),
        ],
        a_calibration(error_on_Ampere=0.2),
    )
    assert learned.calibration.gpus == ()
    assert learned.calibration.host is None
    assert [note.partition(":")[0] for note in learned.notes] == ["a.json", "b.json", "c.json"]
    assert "without operations" in learned.notes[0]
