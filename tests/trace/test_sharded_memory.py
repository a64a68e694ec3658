"""What one GPU of several holds, against PyTorch's own FSDP, DDP and ZeRO on CPU with gloo."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.forked import call_forked

from outlay.predict.parallel_memory import bytes_spared_per_gpu
from outlay.predict.parallel_time import Site
from outlay.predict.strategy import Strategy
from outlay.trace.tracing import profile_of

pytestmark = pytest.mark.torch

STEPS = Path(__file__).with_name("sharded_steps.py")
SHARDING = {"ddp": "none", "zero1": "zero1", "fsdp": "zero3", "fsdp bf16": "zero3"}
CASES = {  # small batches have their peak at the update or in backward, large ones at the loss
    1: ["alone@1", "alone@24"],
    2: ["ddp@1", "ddp@24", "zero1@1", "fsdp@1", "fsdp@8", "fsdp@24", "fsdp bf16@24"],
    4: ["zero1@8", "fsdp@1", "fsdp@4", "fsdp@24", "fsdp bf16@1", "fsdp bf16@8"],
}
ALL = [(ranks, *case.split("@")) for ranks, cases in CASES.items() for case in cases]


@pytest.fixture(scope="module")
def traced_and_measured(tmp_path_factory):
    """The profiles, and what was measured; at the same time, as all run in other processes."""
    folder = tmp_path_factory.mktemp("stores")
    with ThreadPoolExecutor() as pool:
        measured = pool.submit(_measured, folder)
        names = ("step", "step_bf16")
        profiles = list(pool.map(profile_of, [f"{STEPS}:{name}" for name in names]))
    return dict(zip(names, profiles, strict=True)), measured.result()


@pytest.fixture(scope="module")
def profiles(traced_and_measured):
    return lambda scheme: traced_and_measured[0]["step_bf16" if "bf16" in scheme else "step"]


@pytest.fixture(scope="module")
def measured(traced_and_measured):
    return traced_and_measured[1]


def _measured(folder):
    """For each number of processes what each of them measured, by case."""
    measured = call_forked("tests.trace.sharded_steps:measure_all", str(folder), CASES)
    return {int(ranks): cases for ranks, cases in measured.items()}


def _predicted_bytes(profile, scheme, ranks, batch_size):
    alone = profile.memory_at(batch_size)
    strategy = Strategy(data=ranks, sharding=SHARDING.get(scheme, "none"))
    relief = bytes_spared_per_gpu(profile, batch_size, strategy, Site(gpus=ranks))
    return alone.peak_bytes - relief - alone.workspace  # a CPU has no cuBLAS that takes any


@pytest.mark.parametrize(("ranks", "scheme", "batch_size"), ALL)
def test_each_process_has_the_predicted_share_of_the_state(
    profiles, measured, ranks, scheme, batch_size
):
    profile, sharding = profiles(scheme), SHARDING.get(scheme, "none")
    alone = profile.memory_at(1)
    expected = {
        "parameters": alone.parameters / (ranks if sharding == "zero3" else 1),
        "gradients": profile.structure.gradient_bytes / (ranks if sharding == "zero3" else 1),
        "state": alone.optimizer_state / (1 if sharding == "none" else ranks),
    }
    # The allocator rounds each tensor up to 512 bytes; ZeRO-1 deals out whole tensors.
    tolerance = 0.03 if scheme == "zero1" else 0.003
    for process in measured[ranks]:
        parts = process[f"{scheme}@{batch_size}"]
        assert {name: parts[name] for name in expected} == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("ranks", "scheme", "batch_size"), ALL)
def test_the_peak_of_a_step_is_as_predicted(profiles, measured, ranks, scheme, batch_size):
    peak = max(process[f"{scheme}@{batch_size}"]["peak"] for process in measured[ranks])
    ratio = _predicted_bytes(profiles(scheme), scheme, ranks, int(batch_size)) / peak
    low, high = _tolerated(scheme)
    assert low < ratio < high, f"predicted {ratio:.3f} of what was measured"


def _tolerated(scheme):
    if scheme == "fsdp":
        # Gradients outside of blocks count as all there in backward, and what the loss kept as
        # much as backward of a block takes: both a little too much.
        return 0.98, 1.09
    if scheme == "fsdp bf16":
        # Autocast, which is traced, keeps what passes from block to block in fp32; torch's policy
        # has it in bf16.
        return 0.98, 1.12
    return 0.99, 1.01  # nothing is guessed: buckets are copies of the gradients
