"""Where sending costs nothing, several GPUs take what one does at the same batch on each."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.builders import a_calibration, a_gpu, a_profile, exactly

from outlay.hardware.gpu_names import find_gpu
from outlay.plan.placement import calibration
from outlay.predict.host_time import Host
from outlay.predict.kernel_time import device_time
from outlay.predict.network import Wiring
from outlay.predict.parallel import parallel_step
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.predict.strategy import Strategy
from outlay.trace.profile import ProfileOp
from outlay.trace.store import find_profile

PROFILES = ("bert-large", "resnet50", "vit-b16", "stylenat", "latent-diffusion-unet")
GPUS = ("V100 16GB", "RTX 4090", "A100 40GB PCIe", "H100 SXM", "MI300X")
HOSTS = (Host(speed=0.1), Host(), Host(speed=50.0, measured=True))
"""So slow that every step waits for it, the usual one, and one that no step waits for."""
PLACES = ((2, 1), (8, 1), (8, 4))
"""GPUs in a machine, and machines."""
FREE = {"straggling": 0.0, "sharded_work": 1.0, "host_shard_s": 0.0, "network_start_s": 0.0}
RATES = ("link_nvlink", "link_mesh", "link_bridge", "link_pcie", "link_host", "network_rdma")
ENDLESS = 1e40
"""So many times the bytes a second that any exchange takes no time."""


@cache
def free_calibration():
    rows = dict(calibration().values)
    rows |= {name: exactly(0.0) for name in rows if name.startswith(("link_start", "link_half"))}
    rows |= {name: rows[name].scaled(ENDLESS) for name in RATES}
    rows |= {name: exactly(value) for name, value in FREE.items()}
    return replace(calibration(), values=rows)


def steps_of(name, gpu_name, host, strategy, site, micro_batches=1):
    """The step on one GPU and on several, at 8 samples on each."""
    profile, gpu = find_profile(name), find_gpu(gpu_name).gpu
    conditions, (gpus, nodes) = Conditions(host=host), site
    wiring = Wiring(network_bytes_per_s=1e10)
    one, several = (
        parallel_step(
            profile,
            Placement(gpu=gpu, gpus=each[0], nodes=each[1], wiring=wiring),
            each_strategy,
            8,
            free_calibration(),
            micro_batches=micro_batches,
            conditions=conditions,
        )
        for each, each_strategy in (((1, 1), Strategy()), ((gpus, nodes), strategy))
    )
    return one, several


@pytest.mark.parametrize("gpu_name", GPUS)
@pytest.mark.parametrize("name", PROFILES)
def test_data_parallel_takes_what_one_gpu_does(name, gpu_name):
    profile, gpu = find_profile(name), find_gpu(gpu_name).gpu
    for host in HOSTS:
        alone = predict_step(
            profile,
            Placement(gpu=gpu),
            8,
            free_calibration(),
            largest=8,
            conditions=Conditions(host=host),
        )
        for site in PLACES:
            one, several = steps_of(name, gpu_name, host, Strategy(data=site[0] * site[1]), site)
            assert several.step_time_s == one.step_time_s
            assert several.bound == one.bound == alone.bound
            for end in ("low", "likely", "high"):
                expected = getattr(alone.step_time_s, end)
                assert getattr(several.step_time_s, end) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
@pytest.mark.parametrize("name", PROFILES)
def test_sharded_state_spares_nothing_but_its_part_of_the_update(name, sharding, micro_batches):
    gpu_name, site = "A100 40GB PCIe", (8, 1)
    trace = trace_at(find_profile(name), 8, None)
    gpu = roofline_of(find_gpu(gpu_name).gpu, free_calibration())
    update_s = device_time(trace, gpu, free_calibration()).by_phase_s.get("optimizer", 0.0)
    for host in HOSTS:
        strategy = Strategy(data=8, sharding=sharding)
        one, several = steps_of(name, gpu_name, host, strategy, site, micro_batches)
        device_s = one.device_time_s - update_s * 7 / 8
        expected = max(device_s, one.host_time_s)
        assert several.step_time_s.likely == pytest.approx(expected, rel=1e-12)


def an_unfused_profile():
    """1.6 s on the device at 80 samples; the host takes 1.5 s, nearly all of it for the update."""
    update = ProfileOp(
        name="aten.add_",
        kind="elementwise",
        phase="optimizer",
        precision="fp32",
        count=150_000,
        flops=(0.0,),
        moved_bytes=(0.0,),
        shapes=(((1.0,),),),
    )
    profile = a_profile()
    return replace(profile, ops=(*profile.ops, update))


def test_an_unfused_optimizer_is_issued_while_the_device_computes():
    one, two = (
        parallel_step(
            an_unfused_profile(),
            Placement(gpu=a_gpu(), gpus=gpus),
            Strategy(data=gpus),
            80,
            a_calibration(),
        )
        for gpus in (1, 2)
    )
    # 150,000 updates of 10 us, and the operators before
    assert one.host_time_s == pytest.approx(1.5, rel=1e-2)
    assert one.step_time_s.likely == pytest.approx(1.6, rel=1e-2)
    # 0.4 GB of gradients at 7.88 GB/s come on top of what the device takes
    assert two.step_time_s.likely - one.step_time_s.likely == pytest.approx(0.0507614, rel=1e-3)


def test_a_step_that_waits_for_its_host_hides_its_exchange():
    one, two = (
        parallel_step(
            an_unfused_profile(),
            Placement(gpu=a_gpu(), gpus=gpus),
            Strategy(data=gpus),
            4,
            a_calibration(),
        )
        for gpus in (1, 2)
    )
    # 80 ms of computing and 51 ms of sending, while the host issues for 1.5 s
    assert two.step_time_s.likely == one.step_time_s.likely
    assert two.exchange_s.likely == 0
    assert two.bound == "host"
