from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from outlay.measurement.measurement import TimeShares
from outlay.probe.bottleneck import (
    BUSY,
    LoaderSettings,
    OtherGpu,
    StepObservation,
    bottleneck_finding,
    time_shares,
)
from outlay.probe.health import HealthInputs, checks_of


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
        ({"busy_s": 0.2, "wait_s": 0.11}, "input"),
        ({"busy_s": 0.2, "wait_s": 0.05}, "host"),
    ],
)
def test_a_busy_gpu_holds_or_else_what_it_waits_for_most(known, holder):
    assert bottleneck_finding(observed(**known)).holder == holder


@pytest.mark.parametrize("busy", [0.05, 0.3, 0.5, 0.63, 0.75, 0.79, 0.8, 0.85, 0.99])
@pytest.mark.parametrize("waited", [0.0, 0.1, 0.5])
def test_no_run_is_held_back_by_a_gpu_that_idles(busy, waited):
    """What holds a run back and the line on idling agree, however busy the GPU is."""
    step = observed(busy_s=busy * 0.4, wait_s=waited * 0.4)
    shares, finding = time_shares(step), bottleneck_finding(step)
    checks = checks_of(HealthInputs(device="cuda", shares=shares))
    idling = next(check for check in checks if check.name == "GPU busy")
    is_gpu = finding.holder == "gpu"
    assert is_gpu == (busy >= BUSY)
    assert (idling.verdict == "ok") == is_gpu
    assert ("idling" in idling.why) == (not is_gpu)
    if not is_gpu:
        assert "at best" in told(finding)[0]  # what there is to gain


def test_where_the_process_sleeps_it_is_not_known_what_the_gpu_waits_for():
    # 63 % busy; the loader is idle, and 0.02 CPU seconds a second fill little of 37 %.
    step = observed(busy_s=0.63 * 0.4, wait_s=0.0, cpus=0.02)
    finding = bottleneck_finding(step)
    assert finding.holder == "unknown"
    evidence, cures = told(finding)
    assert "The GPU worked 63% of a step" in evidence
    assert "at best" not in evidence
    assert "the GPU waited, for what is not known" in evidence
    assert "what each step waits for" in cures


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


def test_on_a_cpu_nothing_is_to_be_moved_to_a_gpu():
    step = observed(device="cpu", wait_s=0.3, loader=LoaderSettings(num_workers=0))
    assert bottleneck_finding(step).holder == "input"
    assert "GPU" not in told(bottleneck_finding(step))[1]


def test_a_busy_disk_comes_first():
    step = observed(
        busy_s=0.1, wait_s=0.3, disk_fraction=0.95, loader=LoaderSettings(num_workers=8)
    )
    assert bottleneck_finding(step).cures[0].startswith("The disk is at its limit")


BUSY_GPU = {"busy_s": 0.39, "wait_s": 0.0}


def cures_with(**known):
    return told(bottleneck_finding(observed(**BUSY_GPU, **known)))[1]


def test_cures_for_a_busy_gpu_leave_out_what_it_does_already():
    fp32 = {("gemm", "fp32"): 1.0}
    plain = cures_with(products=fp32, memory_fraction=0.3)
    assert "It computes in fp32: mixed precision" in plain
    assert "A larger batch uses the GPU better (30% of its memory is in use)" in plain
    tuned = {"products": {("gemm", "bf16"): 1.0}, "is_compiled": True, "memory_fraction": 0.9}
    cures = cures_with(**tuned)
    assert "fp32" not in cures
    assert "torch.compile" not in cures
    assert "larger batch" not in cures
    assert "updates all parameters in few kernels, unless it is compiled" in cures
    assert "Convolutions, if it has any, are usually faster" in cures  # nothing was recorded
    cures = cures_with(is_fused=True, has_channels_first=False)
    assert "channels_last" not in cures
    assert "fused" not in cures
    assert "Its convolutions are usually faster" in cures_with(has_channels_first=True)


SWITCH = "set_float32_matmul_precision"


def test_a_step_in_tf32_is_not_told_that_it_computes_in_fp32():
    cures = cures_with(products={("gemm", "tf32"): 0.7, ("conv", "tf32"): 0.3}, has_tf32=True)
    assert "It computes in TF32 (100% of the arithmetic of its products)" in cures
    assert "fp32" not in cures
    assert SWITCH not in cures
    assert "bfloat16) is a further step" in cures


def test_tf32_is_suggested_for_the_products_that_do_not_use_it():
    mixed = cures_with(products={("conv", "tf32"): 0.6, ("gemm", "fp32"): 0.4}, has_tf32=True)
    assert "60% is in TF32 and 40% in fp32, mostly matrix products" in mixed
    assert SWITCH in mixed
    assert "cudnn.allow_tf32" not in mixed
    convolutions = cures_with(products={("conv", "fp32"): 0.9, ("gemm", "tf32"): 0.1})
    assert "cudnn.allow_tf32 = True" in convolutions
    assert SWITCH not in convolutions


def test_a_gpu_without_tf32_computes_in_fp32_whatever_its_switches_say():
    cures = cures_with(products={("gemm", "fp32"): 1.0}, has_tf32=False, matmul_tf32=True)
    assert "It computes in fp32, as this GPU has no TF32" in cures
    assert "torch.autocast with float16, and a GradScaler" in cures
    assert SWITCH not in cures
    amd = cures_with(products={("gemm", "fp32"): 1.0}, has_tf32=False, device="rocm")
    assert "torch.autocast with bfloat16" in amd
    assert SWITCH not in amd


def test_without_a_recording_the_switches_tell():
    assert f"at least TF32 (torch.{SWITCH}" in cures_with(matmul_tf32=False)
    allowed = cures_with(matmul_tf32=True)
    assert "TF32 is allowed already" in allowed
    assert SWITCH not in allowed


# --- other GPUs ---


def test_a_faster_gpu_is_advised_by_what_is_predicted_on_it():
    # 400 ms here: 250 there are worth a word, 350 are not.
    faster = (OtherGpu(name="B200", step_s=0.25), OtherGpu(name="L4", step_s=3.0))
    assert "on a B200 a step is predicted to take 250 ms" in cures_with(other_gpus=faster)
    assert "faster GPU" not in cures_with(other_gpus=(OtherGpu(name="H100 SXM", step_s=0.35),))
    assert "faster GPU" not in cures_with(other_gpus=None)


def on_cpu(step_s, *others):
    step = observed(device="cpu", cpus=1.0, step_s=step_s, other_gpus=others or None)
    return told(bottleneck_finding(step))[1]


def test_a_tiny_model_on_the_cpu_is_told_that_a_gpu_gains_nothing():
    host_bound = OtherGpu(name="RTX 4090", step_s=0.0009, is_host_bound=True)
    cures = on_cpu(0.001, host_bound)
    said = "too small to gain from a GPU: there its operations are predicted to take 0.9 ms"
    assert said in cures
    assert "mostly for launching them" in cures
    assert "even on an RTX 4090" in on_cpu(0.001, OtherGpu(name="RTX 4090", step_s=0.0009))
    assert "outlay plan" not in cures
    # Nor where it is slow because others keep its CPU busy: of 4 ms it waited for 3.2.
    crowded = observed(
        device="cpu", cpus=0.2, queued_fraction=0.8, step_s=0.01, other_gpus=(host_bound,) * 2
    )
    assert "outlay plan" in on_cpu(0.01, host_bound)
    assert "outlay plan" in told(bottleneck_finding(crowded))[1]
    crowded = replace(crowded, step_s=0.004)
    assert "too small to gain" in told(bottleneck_finding(crowded))[1]


def test_arithmetic_that_one_thread_does_sooner_than_a_gpu_launches_it_is_too_small():
    """However long the step is: what it does beside its operations stays."""
    gpu = OtherGpu(name="L4", step_s=0.002, is_host_bound=True)
    step = observed(device="cpu", cpus=1.0, other_gpus=(gpu,), one_thread_s=0.0001)
    assert "too small to gain" in told(bottleneck_finding(step))[1]
    longer = replace(step, one_thread_s=0.1)
    assert (
        "on an L4 the operations of a step are predicted to take 2 ms"
        in told(bottleneck_finding(longer))[1]
    )


def test_a_large_model_on_the_cpu_is_told_what_a_gpu_would_take():
    cures = on_cpu(4.0, OtherGpu(name="H100 SXM", step_s=0.02), OtherGpu(name="L4", step_s=0.2))
    assert "on an H100 SXM the operations of a step are predicted to take 20 ms" in cures
    assert "on an L4 200 ms, instead of 4 s" in cures


def test_without_operations_nothing_is_said_of_how_fast_a_gpu_is():
    assert "whether a GPU would be faster is not known" in on_cpu(0.1)


def test_a_hot_gpu_is_said_to_be_one():
    evidence, cures = told(bottleneck_finding(observed(busy_s=0.39, slowed_by=("heat",))))
    assert "held down by heat" in evidence
    assert "too hot" in cures


def test_coarse_samples_are_called_so():
    assert "driver's samples" in told(bottleneck_finding(observed(gpu_fraction=0.9)))[0]


@pytest.mark.parametrize("cpus", [0.05, 0.08, 0.1, 0.13, 0.2, 0.3])
def test_one_sleep_is_told_of_once(cpus):
    """1 - (1 - cpus) - cpus is no whole zero: of a sleep that is all input, nothing is left."""
    finding = bottleneck_finding(observed(device="cpu", cpus=cpus))
    assert finding.holder == "input"
    assert not any(line.endswith("went by asleep.") for line in finding.evidence)


def test_who_waits_for_a_cpu_is_not_asleep():
    """A process that gets a third of a CPU because others take the rest works all the time."""
    crowded = {"cpus": 0.33, "queued_fraction": 0.6}
    on_cpu = bottleneck_finding(observed(device="cpu", **crowded))
    assert on_cpu.holder == "cpu"
    assert "60% of the time it waited for a CPU" in told(on_cpu)[0]
    assert "The CPU worked" not in told(on_cpu)[0]  # 100 % of it beside those 60 % is a riddle
    assert bottleneck_finding(observed(busy_s=0.08, **crowded)).holder == "host"
    asleep = bottleneck_finding(observed(device="cpu", cpus=0.33, queued_fraction=0.05))
    assert asleep.holder == "input"
    assert "waited for a CPU" not in told(asleep)[0]
