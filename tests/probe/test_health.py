from __future__ import annotations

import pytest
from tests.measured import a_measurement, on_the_cpu
from tests.probe.made import a_log

from outlay.measurement.measurement import (
    Finding,
    MeasuredGpu,
    MeasuredMachine,
    MeasuredMemory,
    Sample,
    StepTime,
    TimeShares,
)
from outlay.probe.agent.protocol import MathSettings
from outlay.probe.health import HealthInputs, checks_of, has_tf32, step_on_others
from outlay.trace.store import find_profile

STEP = StepTime(
    mean_s=0.1,
    low_s=0.099,
    high_s=0.101,
    median_s=0.1,
    p10_s=0.095,
    p90_s=0.108,
    steps=200,
    warm_up_steps=3,
    is_steady=True,
)


def judged(name, **known):
    watched = HealthInputs(**{"device": "cuda", **known})
    return next(check for check in checks_of(watched) if check.name == name)


def samples(count=20, **known):
    return [Sample(time_s=float(place), **known) for place in range(count)]


def test_nothing_seen_is_unknown_all_through():
    checks = checks_of(HealthInputs(device="cuda"))
    assert {check.verdict for check in checks} == {"unknown"}
    assert all(check.why for check in checks)


def test_what_makes_no_sense_is_left_out():
    names = {check.name for check in checks_of(HealthInputs(device="cpu"))}
    assert names.isdisjoint({"GPU busy", "clock not held down", "GPU memory left"})
    assert "ranks equally busy" not in names


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.95, "ok"), (0.8, "ok"), (0.7, "look"), (0.5, "look"), (0.1, "bad")]
)
def test_gpu_busy(share, verdict):
    assert judged("GPU busy", gpu_fraction=share).verdict == verdict
    # A profile knows better than the driver's samples.
    profiled = judged("GPU busy", gpu_fraction=0.99, shares=TimeShares(compute=share))
    assert profiled.verdict == verdict
    assert f"{share:.0%}" in profiled.why


@pytest.mark.parametrize(
    ("losses", "verdict", "words"),
    [
        ([(1, 2.5), (2, 2.25), (3, 2.0)], "ok", "2.5 to 2"),
        ([(1, 2.5)], "ok", "The one loss looked at is finite: 2.5."),
        ([(1, 2.5), (2, None), (3, 2.0)], "look", "1 of 3"),
        ([(1, 2.5), (20, None), (30, float("nan"))], "bad", "since step 20"),
        ([(step, 0.693) for step in range(10)], "bad", "exactly 0.693"),
        ([(step, 0.693) for step in range(9)], "ok", "finite"),
        ([(1, 2.5), (2, 40.0), (3, 6e22)], "look", "from 2.5 to 6e+22"),
        ([(1, 0.1), (2, -300.0), (3, -2e4)], "look", "lower the learning rate"),
        # Up and down again, or from next to nothing (a critic's), is no divergence.
        ([(1, 2.5), (2, 6e9), (3, 2.0)], "ok", "2.5 to 2"),
        ([(1, 1e-6), (2, 3.0), (3, 8.0)], "ok", "1e-06 to 8"),
    ],
)
def test_loss(losses, verdict, words):
    check = judged("loss finite", losses=losses)
    assert check.verdict == verdict
    assert words in check.why


def test_steadiness():
    assert judged("steps steady", step=STEP).verdict == "ok"
    assert "95 ms to 108 ms" in judged("steps steady", step=STEP).why
    fields = {name: getattr(STEP, name) for name in STEP.__slots__}
    drifting = StepTime(**{**fields, "is_steady": False})
    assert judged("steps steady", step=drifting).verdict == "look"
    # (180 - 95) / 100 is more than a half.
    uneven = StepTime(**{**fields, "p90_s": 0.18})
    assert judged("steps steady", step=uneven).verdict == "look"


@pytest.mark.parametrize(("share", "verdict"), [(0.05, "ok"), (0.2, "look"), (0.6, "bad")])
def test_input(share, verdict):
    assert judged("input keeps up", shares=TimeShares(input=share)).verdict == verdict


@pytest.mark.parametrize(
    ("why", "verdict", "words"),
    [
        ((), "ok", "Nothing holds it down"),
        (("power",), "ok", "normal"),
        (("heat",), "bad", "86 °C"),
        (("power", "heat"), "bad", "cooling"),
        (("hardware",), "bad", "power supply"),
    ],
)
def test_clock(why, verdict, words):
    readings = samples(slowed_by=why, clock_fraction=0.8, temperature_c=86.0)
    check = judged("clock not held down", samples=readings)
    assert check.verdict == verdict
    assert words in check.why


def test_a_clock_held_down_for_a_moment_does_not_count():
    readings = [
        *samples(1, slowed_by=("heat",), clock_fraction=0.5),
        *samples(30, clock_fraction=1.0),
    ]
    assert judged("clock not held down", samples=readings).verdict == "ok"


def test_gpu_memory():
    full = MeasuredMemory(reserved_bytes=78e9)
    # 78 / 80 = 97.5 %; of a limit of 100 GB, 78 %.
    assert judged("GPU memory left", memory=full, gpu_memory_bytes=80e9).verdict == "look"
    roomy = MeasuredMemory(reserved_bytes=78e9, limit_bytes=100e9)
    assert judged("GPU memory left", memory=roomy, gpu_memory_bytes=80e9).verdict == "ok"


@pytest.mark.parametrize(("used_bytes", "verdict"), [(20e9, "ok"), (29e9, "look"), (31e9, "bad")])
def test_host_memory(used_bytes, verdict):
    readings = samples(process_bytes=used_bytes)
    assert judged("host memory left", samples=readings, ram_bytes=32e9).verdict == verdict


@pytest.mark.parametrize(("rate", "verdict"), [(0.0, "ok"), (1e5, "ok"), (30e6, "bad")])
def test_swap(rate, verdict):
    assert judged("no swapping", samples=samples(swapped_bytes_per_s=rate)).verdict == verdict


@pytest.mark.parametrize(
    ("share", "waiting", "verdict"),
    [(0.2, 0.5, "ok"), (0.8, 0.0, "look"), (0.99, 0.0, "look"), (0.99, 0.5, "bad")],
)
def test_disk(share, waiting, verdict):
    readings, shares = samples(disk_fraction=share), TimeShares(input=waiting)
    assert judged("disk keeps up", samples=readings, shares=shares).verdict == verdict


def test_a_straggler_is_named():
    even = judged("ranks equally busy", rank_work=(0.1, 0.101))
    assert even.verdict == "ok"
    # 120 / 100 - 1 = 20 %.
    uneven = judged("ranks equally busy", rank_work=(0.1, 0.1, 0.12))
    assert uneven.verdict == "look"
    assert "Rank 2 computes 20% more" in uneven.why
    assert judged("ranks equally busy", rank_work=(0.1, None)).verdict == "unknown"


def test_sleep_without_a_loader_is_not_put_down_to_data():
    waiting = TimeShares(input=0.9)
    assert judged("input keeps up", shares=waiting).verdict == "bad"
    asleep = judged("input keeps up", shares=waiting, has_loader=False)
    assert asleep.verdict == "look"
    assert "asleep 90%" in asleep.why


def test_input_that_holds_a_run_back_does_not_keep_up():
    little = TimeShares(compute=0.78, input=0.09, host=0.08, network=0.05)
    assert judged("input keeps up", shares=little).verdict == "ok"
    assert judged("input keeps up", shares=little, holder="input").verdict == "look"


# --- other GPUs ---


def on_a_gpu(name, **changes):
    machine = MeasuredMachine(system="Linux", gpus=(MeasuredGpu(name=name),))
    finding = Finding(holder="gpu", evidence=(), cures=())
    shares = TimeShares(compute=0.96, input=0.0, host=0.04)
    return a_measurement(machine=machine, finding=finding, shares=shares, busy_s=0.48, **changes)


def test_a_step_is_predicted_on_other_gpus_than_its_own():
    resnet = find_profile("resnet50")
    others = step_on_others(on_a_gpu("Tesla T4", profile=resnet))
    names = [other.name for other in others]
    assert "L4" in names
    assert "H200" not in [
        other.name for other in step_on_others(on_a_gpu("NVIDIA H200", profile=resnet))
    ]
    # The first is as fast as any, or within a tenth of it; the last is the slowest.
    assert others[0].step_s <= 1.1 * min(other.step_s for other in others)
    assert others[-1].step_s == max(other.step_s for other in others)


def test_without_operations_or_with_several_gpus_no_other_gpu_is_predicted():
    assert step_on_others(on_a_gpu("Tesla T4", profile=None)) is None
    many = on_a_gpu("Tesla T4", profile=find_profile("resnet50"), world_size=4)
    assert step_on_others(many) is None


@pytest.mark.parametrize(
    ("gpu", "known"), [("Tesla T4", False), ("NVIDIA H200", True), ("Acme 9000", None)]
)
def test_tf32_is_told_by_torch_or_else_by_the_name_of_the_gpu(gpu, known):
    measurement = on_a_gpu(gpu)
    assert has_tf32([], measurement) is known
    assert has_tf32([a_log(MathSettings(has_tf32=True))], measurement) is True
    assert has_tf32([], on_the_cpu()) is False
