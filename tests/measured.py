"""Made-up measurements: round figures, so that sums can be done in the head."""

from __future__ import annotations

from outlay.measurement.measurement import (
    Check,
    Finding,
    MeasuredGpu,
    MeasuredMachine,
    MeasuredMemory,
    MeasuredOptimizer,
    MeasuredPause,
    MeasuredPower,
    Measurement,
    Sample,
    StepTime,
    TimeShares,
)
from outlay.probe.find_batch import BatchSearch
from outlay.probe.trial import Trial
from outlay.units import GIB, MIB
from tests.builders import a_profile

LEAST = {
    "command": ("python", "train.py"),
    "measured_on": "2026-11-01",
    "ending": "stopped",
    "status": 0,
    "machine": MeasuredMachine(system="Linux"),
    "device": "cuda",
}
"""What every measurement says."""
GPU = MeasuredGpu(
    name="NVIDIA GeForce RTX 4090",
    memory_bytes=24.0 * GIB,
    driver="570.86",
    power_limit_w=450.0,
    uuid="GPU-1",
)
STEP = StepTime(
    mean_s=0.5,
    low_s=0.49,
    high_s=0.51,  # 0.01 / 0.5 = 2 %
    median_s=0.495,
    p10_s=0.48,
    p90_s=0.53,
    steps=100,
    warm_up_steps=10,
    is_steady=True,
)
EVALUATIONS = MeasuredPause(
    kind="evaluation", times=2, total_s=8.0, spans=((50.0, 4.0), (84.0, 4.0))
)


def a_step_time(**changes):
    given = {name: getattr(STEP, name) for name in STEP.__dataclass_fields__}
    return StepTime(**{**given, **changes})


def a_measurement(**changes):
    """Steps of 0.5 s at batch 10 with 100 W, for 120 s: start-up 10 s, warm-up 8 s, a pause."""
    given = {
        "command": ("python", "train.py", "--batch-size", "10"),
        "machine": MeasuredMachine(
            system="Linux", cpu="EPYC 9354", cpu_threads=16, ram_bytes=64.0 * GIB, gpus=(GPU,)
        ),
        "versions": {"python": "3.12.3", "torch": "2.13.0", "cuda": "12.8"},
        "ranks": 1,
        "world_size": 1,
        "step": STEP,
        "steps_seen": 200,
        "samples_per_step": 10.0,
        "passes_per_step": 1.0,
        "optimizers": (MeasuredOptimizer(name="AdamW", parameters=21_300_000, per_step=1.0),),
        "start_up_s": 10.0,
        "warm_up_s": 8.0,
        "elapsed_s": 120.0,
        "step_times": _step_times(),
        "pauses": (EVALUATIONS,),
        "steps_per_epoch": 100.0,
        "total_steps": 10_000,
        "memory": MeasuredMemory(
            allocated_bytes=16.0 * GIB,
            reserved_bytes=17.5 * GIB,
            used_bytes=18.0 * GIB,
            limit_bytes=23.5 * GIB,
            parameters_bytes=85.2 * MIB,
            gradients_bytes=85.2 * MIB,
            optimizer_bytes=170.4 * MIB,
            host_bytes=6.0 * GIB,
        ),
        "power": MeasuredPower(mean_w=100.0, max_w=130.0, energy_per_step_j=50.0),  # 100 W x 0.5 s
        "gpu_fraction": 0.62,
        "busy_s": 0.3,
        "shares": TimeShares(compute=0.6, input=0.3, host=0.1),
        "finding": Finding(
            holder="input",
            evidence=("30 % of a step waits for the next batch.", "Loader workers are 98 % busy."),
            cures=("More workers: DataLoader(num_workers=8).", "Decode once, and keep the result."),
        ),
        "checks": (
            Check(name="GPU busy", verdict="look", why="62 % of the time: it waits for data."),
            Check(name="Loss finite", verdict="ok", why="All 200 seen are finite."),
            Check(name="No throttling", verdict="bad", why="Clocks held down by heat, 84 C."),
            Check(name="Disk not saturated", verdict="unknown", why="Disks could not be read."),
        ),
        "samples": _samples(),
        "losses": ((1, 2.5), (100, None), (200, 1.25)),
        "price_usd_per_hour": 0.6,
        "profile": a_profile(),
        "notes": ("Samples were counted from the batches of the DataLoader.",),
    }
    return Measurement(**{**LEAST, **given, **changes})


def _step_times():
    """Steps of 1 s that get faster in the warm-up, then of 0.48, 0.5 and 0.52 s in turns."""
    now, made = 9.0, []
    while now < 118:
        length = 1.0 if not made else 0.8 if now < 18 else (0.48, 0.5, 0.52)[len(made) % 3]
        now += 4.0 if any(at <= now < at + 1 for at in (50.0, 84.0)) else 0.0
        now += length
        made.append((now, length))
    return tuple(made)


def _samples():
    return tuple(
        Sample(
            time_s=float(second),
            gpu_fraction=0.0 if second < 9 or 50 <= second < 54 else 0.6 + 0.01 * (second % 5),
            gpu_memory_bytes=(0.5 if second < 6 else 18.0) * GIB,
            power_w=40.0 if second < 9 else 95.0 + second % 11,
            cpu_fraction=0.4,
            process_cpus=6.4,
            process_bytes=6.0 * GIB,
        )
        for second in range(1, 120)
    )


def on_the_cpu(**changes):
    """The same on a machine without a GPU."""
    given = {
        "machine": MeasuredMachine(system="Linux", cpu="EPYC 9354", cpu_threads=16),
        "device": "cpu",
        "memory": MeasuredMemory(host_bytes=2.0 * GIB),
        "power": None,
        "gpu_fraction": None,
        "busy_s": None,
        "shares": TimeShares(),
        "samples": tuple(
            Sample(time_s=float(at), cpu_fraction=0.9, process_bytes=2.0 * GIB)
            for at in range(1, 120)
        ),
        "finding": Finding(holder="cpu", evidence=("It computes on the CPU.",), cures=()),
        "notes": ("No GPU was used: the steps ran on the CPU.",),
    }
    return a_measurement(**{**given, **changes})


def without_steps(**changes):
    """A command that died at once."""
    given = {
        "ending": "failed",
        "status": 1,
        "device": None,
        "elapsed_s": 3.0,
        "notes": ("No NVIDIA driver was found: GPU use, memory and power were not read.",),
    }
    return Measurement(**{**LEAST, **given, **changes})


def a_bare_measurement(
    mean_s=0.2,
    *,
    gpu="NVIDIA GeForce RTX 3090",
    samples=64,
    precision=0.02,
    holder="gpu",
    memory_bytes=None,
    power_limit_w=None,
    **changes,
):
    """Steps of 0.2 s with 64 samples on one RTX 3090, the mean known to 2 %; nothing else."""
    given = {
        "machine": MeasuredMachine(
            system="Linux",
            gpus=(MeasuredGpu(name=gpu, memory_bytes=memory_bytes, power_limit_w=power_limit_w),),
        ),
        "ranks": 1,
        "world_size": 1,
        "samples_per_step": samples,
        "step": StepTime(
            mean_s=mean_s,
            low_s=mean_s * (1 - precision),
            high_s=mean_s * (1 + precision),
            median_s=mean_s,
            p10_s=mean_s,
            p90_s=mean_s,
            steps=100,
            warm_up_steps=10,
            is_steady=True,
        ),
        "finding": None if holder is None else Finding(holder=holder, evidence=(), cures=()),
    }
    return Measurement(**{**LEAST, **given, **changes})


def a_short_measurement(**changes):
    """Outlay stopped it after 20 steps of 32 samples; the machine's GPU is not known."""
    given = {
        "step": STEP,
        "steps_seen": 20,
        "samples_per_step": 32.0,
        "memory": MeasuredMemory(allocated_bytes=5e9, reserved_bytes=6e9),
    }
    return Measurement(**{**LEAST, **given, **changes})


def a_search(**changes):
    """Batches up to 48, of which 64 is too much; 32 is about as fast as 48."""
    given = {
        "trials": (
            a_trial(16, 100.0, 6.0),
            Trial(
                batch_size=64,
                outcome="out of memory",
                why="CUDA out of memory. Tried to allocate 2.00 GiB.",
                peak_reserved_bytes=23.0 * GIB,
                elapsed_s=20.0,
            ),
            a_trial(32, 192.0, 12.0),
            a_trial(48, 200.0, 18.0),
        ),
        "largest": 48,
        "recommended": 44,
        "margin_fraction": 0.05,
        "fails_at": 64,
        "limit_bytes": 24.0 * GIB,
    }
    return BatchSearch(**{**given, **changes})


def a_trial(batch_size, samples_per_s, peak_gib):
    return Trial(
        batch_size=batch_size,
        outcome="fits",
        peak_allocated_bytes=peak_gib * GIB,
        peak_reserved_bytes=(peak_gib + 1) * GIB,
        step_mean_s=batch_size / samples_per_s,
        samples_per_s=samples_per_s,
        elapsed_s=30.0,
    )
