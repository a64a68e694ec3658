from __future__ import annotations

from dataclasses import astuple

import pytest

from outlay.measurement.measurement import TimeShares
from outlay.probe.bottleneck import LoaderSettings, StepObservation, bottleneck_finding, time_shares


def observed(**known):
    """A step of 400 ms on a GPU."""
    return StepObservation(**{"step_s": 0.4, "device": "cuda", "cpus": 1.2, **known})


def told(finding):
    return " ".join(finding.evidence), " ".join(finding.cures)


# --- shares ---


def test_idle_time_is_input_up_to_the_wait_and_host_beyond():
    # 400 - 160 = 240 ms idle, of which 200 were waited for the loader.
    shares = time_shares(observed(busy_s=0.16, wait_s=0.2))
    assert shares == TimeShares(
        compute=pytest.approx(0.4),
        network=0.0,
        input=pytest.approx(0.5),
        host=pytest.approx(0.1),
    )


def test_a_wait_that_the_gpu_works_through_is_no_share():
    # 400 - 380 = 20 ms idle: of 300 ms of waiting the GPU had work for 280.
    shares = time_shares(observed(busy_s=0.38, wait_s=0.3))
    assert shares.input == pytest.approx(0.05)
    assert shares.host == pytest.approx(0)


def test_exchanges_that_nothing_covers_are_the_networks():
    shares = time_shares(observed(busy_s=0.1, exchange_s=0.24, wait_s=0.0, ranks=4))
    assert shares.network == pytest.approx(0.6)
    assert sum(astuple(shares)) == pytest.approx(1)


def test_without_a_profile_the_drivers_samples_stand_in_and_tell_no_exchanges():
    shares = time_shares(observed(gpu_fraction=0.5, wait_s=0.04, ranks=2))
    assert shares.compute == pytest.approx(0.5)
    assert shares.network is None
    assert shares.input == pytest.approx(0.1)


def test_nothing_known_is_nothing_said():
    assert time_shares(observed(wait_s=0.1)) == TimeShares()
    assert bottleneck_finding(observed(wait_s=0.1)) is None


@pytest.mark.parametrize("busy_s", [0.0, 0.4, 0.7])
def test_shares_sum_to_one_whatever_was_measured(busy_s):
    shares = time_shares(observed(busy_s=busy_s, exchange_s=0.3, wait_s=2.0, ranks=2))
    assert sum(astuple(shares)) == pytest.approx(1)
    assert min(astuple(shares)) >= 0


def test_a_process_that_slept_without_a_loader_waits_for_input():
    # 320 ms idle, in which all CPU time of a step is 0.1 * 400 = 40 ms.
    slept = observed(busy_s=0.08, cpus=0.1)
    assert time_shares(slept).input == pytest.approx(0.8)
    evidence, cures = told(bottleneck_finding(slept))
    assert "slept" in evidence
    assert "No DataLoader was seen" in cures


def test_a_process_that_slept_beside_an_idle_loader_is_not_called_input():
    slept = observed(busy_s=0.08, cpus=0.1, wait_s=0.0)
    assert time_shares(slept).host == pytest.approx(0.8)
    assert "another process" in told(bottleneck_finding(slept))[0]
    reading = observed(busy_s=0.08, cpus=0.1, wait_s=0.0, read_bytes_per_s=400e6)
    assert time_shares(reading).input == pytest.approx(0.8)
    assert "400 MB/s" in told(bottleneck_finding(reading))[0]


def test_on_the_cpu_all_but_the_wait_is_computing():
    shares = time_shares(observed(device="cpu", wait_s=0.1, cpus=7.0))
    assert (shares.compute, shares.input) == (pytest.approx(0.75), pytest.approx(0.25))
    assert bottleneck_finding(observed(device="cpu", wait_s=0.1)).holder == "cpu"
    assert bottleneck_finding(observed(device="cpu", wait_s=0.3)).holder == "input"
    # Without a loader, a process that used a tenth of a thread slept for the rest.
    assert bottleneck_finding(observed(device="cpu", cpus=0.1)).holder == "input"


# --- what holds it back ---


@pytest.mark.parametrize(
    ("known", "holder"),
    [
        ({"busy_s": 0.36, "wait_s": 0.1}, "gpu"),
        ({"busy_s": 0.16, "wait_s": 0.22}, "input"),
        ({"busy_s": 0.1, "wait_s": 0.01}, "host"),
        ({"busy_s": 0.1, "wait_s": 0.01, "exchange_s": 0.2, "ranks": 2}, "network"),
        ({"busy_s": 0.2, "wait_s": 0.1}, "gpu"),
    ],
)
def test_the_largest_share_holds(known, holder):
    assert bottleneck_finding(observed(**known)).holder == holder


def test_evidence_and_cures_of_a_starved_gpu_have_its_figures():
    starved = observed(
        busy_s=0.16,
        wait_s=0.212,
        cpu_threads=16,
        loader=LoaderSettings(num_workers=0, pin_memory=False, persistent_workers=False),
    )
    evidence, cures = told(bottleneck_finding(starved))
    assert "The GPU worked 40% of a step (160 ms of 400 ms)" in evidence
    assert "53% of a step (212 ms of 400 ms) went by waiting for the next batch" in evidence
    # 1 / (1 - 0.53) = 2.13.
    assert "at best 2.1 times as fast" in evidence
    assert "num_workers is 0: try 8 (this machine has 16 threads for it)" in cures
    assert "pin_memory is off" in cures
    # There are no workers to keep.
    assert "persistent_workers" not in cures


@pytest.mark.parametrize(
    ("workers", "ranks", "advice"),
    [
        (4, 1, "num_workers is 4: try 8 (this machine has 16 threads for it)"),
        (12, 1, "num_workers is 12: try 16"),
        (16, 1, "more workers will not help"),
        (0, 4, "num_workers is 0: try 4 (this machine has 4 threads for it)"),
    ],
)
def test_workers_are_advised_by_the_threads_there_are(workers, ranks, advice):
    step = observed(
        busy_s=0.1,
        wait_s=0.3,
        exchange_s=0.0,
        ranks=ranks,
        cpu_threads=16,
        loader=LoaderSettings(num_workers=workers),
    )
    assert advice in told(bottleneck_finding(step))[1]


@pytest.mark.parametrize(
    ("used", "advice"), [(0.3, "Try 32"), (0.95, "more workers will not help")]
)
def test_workers_that_wait_for_something_else_than_a_thread_may_be_more(used, advice):
    step = observed(
        busy_s=0.1,
        wait_s=0.3,
        cpu_threads=16,
        machine_cpu_fraction=used,
        loader=LoaderSettings(num_workers=16),
    )
    assert advice in told(bottleneck_finding(step))[1]


def test_ranks_on_a_cpu_that_sleep_wait_for_each_other():
    # 0.2 CPU seconds a second: of 400 ms, 80 are computing, 20 loading.
    step = observed(device="cpu", ranks=2, cpus=0.2, wait_s=0.02)
    shares = time_shares(step)
    assert (shares.compute, shares.input) == (pytest.approx(0.2), pytest.approx(0.05))
    assert shares.network == pytest.approx(0.75)
    finding = bottleneck_finding(step)
    assert finding.holder == "network"
    assert "asleep until the other ranks" in told(finding)[0]


def test_a_step_that_sleeps_on_a_cpu_is_not_held_back_by_it():
    """Its loader is quick; it waits for an environment, say."""
    step = observed(device="cpu", wait_s=0.01, cpus=0.2)
    shares = time_shares(step)
    assert (shares.compute, shares.input) == (pytest.approx(0.2), pytest.approx(0.025))
    assert shares.host == pytest.approx(0.775)
    finding = bottleneck_finding(step)
    assert finding.holder == "host"
    evidence, cures = told(finding)
    assert "of a step (310 ms of 400 ms) went by asleep" in evidence
    assert "what each step waits for" in cures
    assert "GPU" not in evidence + cures
    assert bottleneck_finding(observed(device="cpu", wait_s=0.01, cpus=0.9)).holder == "cpu"


def test_a_busy_disk_comes_first():
    step = observed(
        busy_s=0.1, wait_s=0.3, disk_fraction=0.95, loader=LoaderSettings(num_workers=8)
    )
    assert bottleneck_finding(step).cures[0].startswith("The disk is at its limit")


def test_cures_for_a_busy_gpu_leave_out_what_it_does_already():
    busy = {"busy_s": 0.39, "wait_s": 0.0}
    plain = told(bottleneck_finding(observed(**busy, is_full_precision=True, memory_fraction=0.3)))[
        1
    ]
    assert "It computes in fp32: mixed precision" in plain
    assert "A larger batch uses the GPU better (30% of its memory is in use)" in plain
    tuned = observed(**busy, is_full_precision=False, is_compiled=True, memory_fraction=0.9)
    cures = told(bottleneck_finding(tuned))[1]
    assert "fp32" not in cures
    assert "torch.compile" not in cures
    assert "larger batch" not in cures
    assert "updates all parameters in few kernels, unless it is compiled" in cures
    assert "Convolutions, if it has any, are usually faster" in cures  # nothing was recorded
    known = {"is_fused": True, "has_channels_first": False}
    cures = told(bottleneck_finding(observed(**busy, **known)))[1]
    assert "channels_last" not in cures
    assert "fused" not in cures
    assert (
        "Its convolutions are usually faster"
        in told(bottleneck_finding(observed(**busy, has_channels_first=True)))[1]
    )


def test_a_hot_gpu_is_said_to_be_one():
    evidence, cures = told(bottleneck_finding(observed(busy_s=0.39, slowed_by=("heat",))))
    assert "held down by heat" in evidence
    assert "too hot" in cures


def test_coarse_samples_are_called_so():
    assert "driver's samples" in told(bottleneck_finding(observed(gpu_fraction=0.9)))[0]


def test_who_waits_for_a_cpu_is_not_asleep():
    """A process that gets a third of a CPU because others take the rest works all the time."""
    crowded = {"cpus": 0.33, "queued_fraction": 0.6}
    on_cpu = bottleneck_finding(observed(device="cpu", **crowded))
    assert on_cpu.holder == "cpu"
    assert "60% of the time it waited for a CPU" in told(on_cpu)[0]
    assert bottleneck_finding(observed(busy_s=0.08, **crowded)).holder == "host"
    asleep = bottleneck_finding(observed(device="cpu", cpus=0.33, queued_fraction=0.05))
    assert asleep.holder == "input"
    assert "waited for a CPU" not in told(asleep)[0]
