from __future__ import annotations

import itertools

import pytest
from tests.builders import a_calibration, a_gpu, a_profile, a_transformer
from tests.rows import for_every

from outlay.hardware import gpus as hardware
from outlay.plan.placement import calibration
from outlay.predict.network import Wiring
from outlay.predict.parallel import (
    StepRequest,
    best_step,
    effective_samples_per_s,
    largest_parallel_batch,
    parallel_step,
    slowest_step,
    strategy_effort,
)
from outlay.predict.step import Placement, predict_step
from outlay.predict.strategy import Strategy, parse_strategy
from outlay.trace.store import find_profile

LINKED = {"nvlink_gb_per_s": 400, "nvlink_reach": "all"}


def question(gpus=4, nodes=1, *, memory_gib=10, profile=None, network=10e9, linked=True, **request):
    gpu = a_gpu(memory_gib=memory_gib, **(LINKED if linked else {"peer_to_peer": False}))
    wiring = Wiring(network_bytes_per_s=network)
    return StepRequest(
        profile=profile or a_transformer(),
        placement=Placement(gpu=gpu, gpus=gpus, nodes=nodes, wiring=wiring),
        **request,
    )


def every_strategy(gpus, nodes, blocks, heads):
    """All products of whole numbers that come out at the number of GPUs, tried one by one."""
    total = gpus * nodes
    for data, tensor, pipeline in itertools.product(range(1, total + 1), repeat=3):
        if data * tensor * pipeline != total or tensor > gpus or gpus % tensor:
            continue
        if heads % tensor or pipeline > blocks:
            continue
        kinds = ["none"]
        if data > 1:
            kinds += ["zero1"] if pipeline > 1 else ["zero1", "zero2", "zero3"]
        for kind in kinds:
            yield Strategy(data=data, sharding=kind, tensor=tensor, pipeline=pipeline)
        per_model = tensor * pipeline
        if data > 1 and nodes > 1 and per_model < gpus and gpus % per_model == 0:
            yield Strategy(
                data=data, sharding="zero3", within_node=True, tensor=tensor, pipeline=pipeline
            )


def brute_force(request, calibration):
    """The best of every strategy at every batch that fits, by the same measure."""
    placement = request.placement
    best = None
    every = list(every_strategy(placement.gpus, placement.nodes, 4, 8))
    if request.global_batch_size is None:  # pipelines come last: their updates are larger
        every.sort(key=lambda each: each.pipeline > 1)
    for strategy in every:
        if best is not None and strategy.pipeline > 1 and request.global_batch_size is None:
            break
        limit = largest_parallel_batch(request.profile, strategy, placement, calibration)
        passes = 4 * strategy.pipeline if strategy.pipeline > 1 else 1
        if request.global_batch_size is None:
            sizes = [(limit, passes)] if limit else []
        else:
            share, rest = divmod(request.global_batch_size, strategy.data)
            sizes = [(n, share // n) for n in range(1, limit + 1) if not rest and share % n == 0]
        for size, count in sizes:
            step = parallel_step(
                request.profile,
                placement,
                strategy,
                size,
                calibration,
                micro_batches=count,
                largest=limit,
            )
            if step.fits and (
                best is None or effective_samples_per_s(step) > effective_samples_per_s(best)
            ):
                best = step
    return best


@pytest.mark.parametrize("global_batch_size", [None, 16, 48])
@pytest.mark.parametrize("memory_gib", [2, 4, 10])
@pytest.mark.parametrize(("gpus", "nodes"), [(2, 1), (4, 1), (8, 1), (4, 2), (6, 2)])
def test_the_search_finds_what_trying_everything_finds(gpus, nodes, memory_gib, global_batch_size):
    calibration = a_calibration()
    request = question(gpus, nodes, memory_gib=memory_gib, global_batch_size=global_batch_size)
    expected = brute_force(request, calibration)
    step = best_step(request, calibration)
    if expected is None:
        assert not step.fits
        return
    assert step.fits
    assert effective_samples_per_s(step) == pytest.approx(effective_samples_per_s(expected))


def test_plain_data_parallel_where_it_is_good_enough():
    request = question(4)
    for thorough in (True, False):
        assert best_step(request, a_calibration(), thorough=thorough).strategy == Strategy(data=4)


def test_a_model_too_large_for_one_gpu_is_sharded():
    # 2.4 GB of parameters and state do not fit into 2 GiB beside activations
    step = best_step(question(8, memory_gib=2), a_calibration())
    assert step.fits
    assert step.strategy.sharding != "none" or step.strategy.gpus > step.strategy.data


def test_what_fits_nowhere_says_so():
    step = best_step(question(2, memory_gib=1), a_calibration())
    assert not step.fits
    assert step.batch_size == 0
    assert step.memory.reserved_bytes.likely > step.memory.available_bytes


def test_a_wanted_strategy_is_kept_to():
    request = question(8, strategy=parse_strategy("fsdp,tensor=2"))
    step = best_step(request, a_calibration())
    assert (step.strategy.tensor, step.strategy.sharding) == (2, "zero3")


def test_a_global_batch_is_kept_on_any_number_of_gpus():
    for gpus in (1, 2, 4, 8):
        step = best_step(question(gpus, global_batch_size=64), a_calibration())
        assert step.global_batch_size == 64


def test_a_global_batch_no_number_of_gpus_divides():
    step = best_step(question(4, global_batch_size=7), a_calibration())
    assert not step.fits or step.strategy.data == 1


def test_a_batch_size_is_kept():
    step = best_step(question(4, batch_size=3), a_calibration())
    assert (step.batch_size, step.global_batch_size) == (3, 12)


def test_on_one_gpu_it_is_the_step_alone():
    request = question(1, profile=a_profile())
    alone = predict_step(a_profile(), request.placement, None, a_calibration())
    assert best_step(request, a_calibration()) == alone


def test_complications_have_to_earn_their_keep():
    assert strategy_effort(Strategy(data=8)) == 0
    assert strategy_effort(Strategy(data=8, sharding="zero3")) < strategy_effort(Strategy(tensor=8))


def test_unlike_gpus_wait_for_the_slowest_and_fit_the_smallest():
    fast = predict_step(a_profile(), Placement(gpu=a_gpu("fast", memory_gib=4)), 4, a_calibration())
    slow_gpu = a_gpu("slow", memory_gib=10, peaks={"fp32": 5e12, "fp16": 50e12})
    slow = predict_step(a_profile(), Placement(gpu=slow_gpu), 4, a_calibration())
    step = slowest_step([fast, slow])
    assert step.step_time_s == slow.step_time_s
    assert step.max_batch_size == fast.max_batch_size < slow.max_batch_size


def test_a_strategy_that_does_not_go_with_the_gpus_says_so():
    step = best_step(question(8, strategy=parse_strategy("tensor=3")), a_calibration())
    assert not step.fits
    assert step.placement.gpus == 8
    assert "does not go with 8 GPUs" in step.notes[-1]


def test_a_global_batch_that_cannot_be_shared_says_so():
    step = best_step(
        question(4, global_batch_size=7, strategy=parse_strategy("ddp")), a_calibration()
    )
    assert not step.fits
    assert "cannot be shared evenly by 4 GPUs" in step.notes[-1]


# Whether a step fits, and what it reserves of what there is

CARDS = ["T4", "RTX 3090", "H100 SXM", "GH200 144GB", *list(hardware.gpus())[::20]]


@pytest.mark.parametrize("profile", ["resnet50", "llama-1b"])
@for_every("card, count", itertools.product(CARDS, (1, 2, 8)))
def test_a_step_fits_where_it_reserves_no_more_than_there_is(profile, card, count):
    step = find_profile(profile)
    placement = Placement(gpu=hardware.gpus()[card], gpus=count)

    def best(batch_size):
        request = StepRequest(profile=step, placement=placement, batch_size=batch_size)
        return best_step(request, calibration(), thorough=False)

    largest = max(best(None).max_batch_size, 1)
    for size in {1, max(largest // 2, 1), largest, largest + 1, largest + largest // 8 + 1}:
        memory = best(size).memory
        assert memory.fits == (memory.reserved_bytes.high <= memory.available_bytes), size
        # a margin stays free, for what the simulation of the allocator gets wrong
        safe = 1 - calibration().number("memory_margin_fraction")
        assert memory.fits or memory.reserved_bytes.likely > safe * memory.available_bytes, size
