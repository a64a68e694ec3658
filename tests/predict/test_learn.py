"""What a user's own measurements say of their GPUs and hosts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.builders import a_calibration, a_profile
from tests.measured import a_bare_measurement

from outlay.hardware.gpu_names import find_gpu
from outlay.measurement.measurement import MeasuredGpu, MeasuredMachine
from outlay.plan.placement import calibration
from outlay.predict.correct import step_error
from outlay.predict.host_time import host_time_s
from outlay.predict.kernel_time import device_time
from outlay.predict.learn import calibration_report
from outlay.predict.roofline import roofline_of, trace_at

PROFILE = a_profile(issued_ops=2)
"""One fp16 product: its host needs next to nothing."""
BUSY = a_profile(issued_ops=100_000)


def device(profile, batch_size=4):
    gpu, numbers = find_gpu("RTX 3090").gpu, calibration()
    return device_time(trace_at(profile, batch_size), roofline_of(gpu, numbers), numbers)


def at(ratio, profile=PROFILE, samples=4, **changes):
    """A step of the GPU's that took so much of what is predicted."""
    time_s = ratio * device(profile, samples).total_s
    return a_bare_measurement(time_s, samples=samples, profile=profile, precision=0.0, **changes)


def on(cpu):
    gpus = (MeasuredGpu(name="NVIDIA GeForce RTX 3090"),)
    return MeasuredMachine(system="Linux", cpu=cpu, gpus=gpus)


def waiting(ratio, cpu="Zen", profile=BUSY):
    """A step that its host took so much of what is predicted for."""
    host_s = host_time_s(trace_at(profile, 4), calibration())
    busy_s = device(profile).total_s
    return a_bare_measurement(
        ratio * host_s,
        samples=4,
        profile=profile,
        holder="host",
        busy_s=busy_s,
        machine=on(cpu),
        precision=0.0,
    )


PRIOR = calibration().number("error_on_Ampere")
"""How well an RTX 3090 is known before anything is learned."""


def learned(*measurements):
    named = [(f"{chr(97 + place)}.json", entry) for place, entry in enumerate(measurements)]
    return calibration_report(named, calibration())


def drawn(log, steps=1):
    """The logarithm that so many steps of different models, alike in their kernels, make of it."""
    numbers = calibration()
    prior, base = numbers.number("error_on_Ampere"), numbers.number("error_base")
    # kernels' errors are shared by all, the rest averages out
    variance = device(PROFILE).kernel_error ** 2 + base**2 / steps
    return log * prior**2 / (prior**2 + variance)


def test_a_step_corrects_its_gpu_by_how_well_both_were_known():
    report = learned(at(1.2))
    (gpu,) = report.calibration.gpus
    assert (gpu.name, gpu.measurements, gpu.steps) == ("RTX 3090", 1, 1)
    assert gpu.mean_ratio == pytest.approx(1.2)
    error = step_error(device(PROFILE), calibration())
    assert gpu.factor == pytest.approx(1.2 ** (PRIOR**2 / (PRIOR**2 + error**2)))
    assert math.log(gpu.factor) == pytest.approx(drawn(math.log(1.2)))
    assert gpu.error < gpu.error_before == calibration().number("error_on_Ampere")
    assert report.notes == ()


def test_repeats_and_batch_sizes_of_one_step_are_one_vote():
    once = learned(at(1.2)).calibration.gpus[0]
    named_otherwise = replace(PROFILE, name="another script")
    repeats = [
        at(1.2),
        at(1.2, elapsed_s=1.0),
        at(1.2, command=("python", "other.py"), profile=named_otherwise),
        at(1.2, samples=8),
    ]
    report = learned(*repeats)
    (gpu,) = report.calibration.gpus
    assert (gpu.measurements, gpu.steps) == (4, 1)
    assert gpu.factor == pytest.approx(once.factor)
    assert gpu.error == pytest.approx(once.error)
    assert {entry.step for entry in report.entries} == {1}


def test_one_vote_is_the_median_of_its_repeats():
    # of log 1.1 and log 1.3 that of sqrt(1.43)
    (gpu,) = learned(at(1.1), at(1.3)).calibration.gpus
    assert gpu.mean_ratio == pytest.approx(math.sqrt(1.43))
    (gpu,) = learned(at(1.0), at(1.05), at(1.3)).calibration.gpus
    assert gpu.mean_ratio == pytest.approx(1.05)


@pytest.mark.parametrize("spoiled", [3.0, 1.8])
def test_a_spoiled_repeat_is_left_out_alone(spoiled):
    # explained are 3 times the root of the GPU's and the step's own errors: up to some 1.5
    error = math.hypot(PRIOR, step_error(device(PROFILE), calibration()))
    assert math.exp(3 * error) < 1.8
    good = (at(0.99), at(1.01))
    report = learned(*good, at(spoiled))
    assert [entry.used_for for entry in report.entries] == [("gpu",), ("gpu",), ()]
    (note,) = report.notes
    assert note.startswith(f"c.json: it took {spoiled:.2f} of what is predicted")
    assert report.calibration == learned(*good).calibration


def test_a_spoiled_repeat_of_a_host_is_left_out_alone():
    report = learned(waiting(1.1), waiting(20.0))
    (host,) = report.calibration.hosts
    assert (host.measurements, host.mean_ratio) == (1, pytest.approx(1.1))
    assert [entry.used_for for entry in report.entries] == [("host",), ()]


def test_steps_that_differ_are_votes_of_their_own():
    other = a_profile(issued_ops=2, trainable_parameters=50_000_000)
    report = learned(at(1.2), at(1.2, profile=other))
    (gpu,) = report.calibration.gpus
    assert gpu.steps == 2
    assert math.log(gpu.factor) == pytest.approx(drawn(math.log(1.2), steps=2))
    # the same model with twice the work for a sample is another step, but shares what it is off by
    longer = a_profile(issued_ops=2, flops_per_sample=2e12)
    (gpu,) = learned(at(1.2), at(1.2, profile=longer)).calibration.gpus
    assert gpu.steps == 2
    assert math.log(gpu.factor) == pytest.approx(drawn(math.log(1.2)), rel=0.02)


def test_a_measurement_under_two_names_counts_once():
    report = learned(at(1.2), at(1.2))
    (gpu,) = report.calibration.gpus
    assert gpu.measurements == 1
    assert report.notes == ("b.json: the same measurement as a.json, which counts.",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"holder": "input", "busy_s": 0.01}, "waited for its input"),
        ({"holder": "network", "busy_s": 0.01}, "waited for exchange between GPUs"),
        ({"holder": None, "busy_s": 0.001}, "the GPU worked"),
        ({"is_compiled": True}, "its code was compiled"),
        ({"busy_s": 100.0}, "not like the timed ones"),
    ],
)
def test_what_is_not_the_gpus_is_left_out_and_named(changes, why):
    report = learned(at(1.2, **changes))
    assert report.calibration.gpus == ()
    (note,) = report.notes
    assert note.startswith("a.json: ")
    assert why in note


def test_code_that_is_known_not_to_be_compiled_counts():
    assert learned(at(1.2, is_compiled=False)).calibration.gpus[0].measurements == 1


def test_a_step_that_no_error_explains_is_left_out_and_named():
    bound = math.exp(3 * math.hypot(PRIOR, step_error(device(PROFILE), calibration())))
    assert learned(at(0.99 * bound)).calibration.gpus[0].measurements == 1
    report = learned(at(1.01 * bound))
    assert report.calibration.gpus == ()
    assert f"{1 / bound:.2f} to {bound:.2f}" in report.notes[0]
    assert report.entries[0].used_for == ()


def test_hosts_by_steps_that_waited_for_them():
    report = learned(waiting(1.1))
    assert report.calibration.gpus == ()
    (host,) = report.calibration.hosts
    assert (host.name, host.measurements, host.steps) == ("Zen", 1, 1)
    assert host.mean_ratio == pytest.approx(1.1)
    # log(1.3 / 0.5) / 2.563 = 0.3728 and log(1.2 / 0.85) / 2.563 = 0.1345: 0.885 of the logarithm
    assert host.factor == pytest.approx(1.1**0.885, rel=1e-4)
    assert report.calibration.host.factor == pytest.approx(host.factor)
    assert report.entries[0].used_for == ("host",)
    assert "waited for its host" in report.notes[0]


def test_hosts_with_other_cpus_are_not_pooled():
    other = a_profile(issued_ops=100_000, trainable_parameters=50_000_000)
    report = learned(waiting(0.8), waiting(0.8, profile=other), waiting(1.25, cpu="Xeon"))
    rows = {entry.name: entry for entry in report.calibration.hosts}
    assert {name: entry.steps for name, entry in rows.items()} == {"Zen": 2, "Xeon": 1}
    assert rows["Zen"].factor < 1 < rows["Xeon"].factor
    # one vote a CPU, however many steps
    mean = math.sqrt(rows["Zen"].factor * rows["Xeon"].factor)
    assert report.calibration.host.factor == pytest.approx(mean)


def test_the_same_step_on_another_cpu_is_a_vote_there():
    report = learned(waiting(1.1), waiting(1.1, cpu=None))
    assert [entry.name for entry in report.calibration.hosts] == ["Zen", "unnamed CPU"]


def test_what_says_nothing_is_named():
    profile = a_profile()
    report = calibration_report(
        [
            ("a.json", a_bare_measurement()),
            ("b.json", a_bare_measurement(device="cpu", profile=profile)),
            ("c.json", a_bare_measurement(holder="input", profile=profile)),
        ],
        a_calibration(error_on_Ampere=0.2),
    )
    assert report.calibration.gpus == ()
    assert report.calibration.host is None
    assert [note.partition(":")[0] for note in report.notes] == ["a.json", "b.json", "c.json"]
    assert "without operations" in report.notes[0]
