from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_gpu, a_profile

from outlay.predict.memory import LARGEST_BATCH
from outlay.predict.parallel import (
    StepRequest,
    best_step,
    largest_parallel_batch,
    parallel_memory_need,
    parallel_step,
)
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.predict.strategy import Strategy


def alone(batch_size=4):
    return predict_step(a_profile(), Placement(gpu=a_gpu()), batch_size, a_calibration())


def spread(strategy, batch_size=4, *, profile=None, gpu=None, micro_batches=1, **placement):
    return parallel_step(
        profile or a_profile(),
        Placement(gpu=gpu or a_gpu(), **placement),
        strategy,
        batch_size,
        a_calibration(),
        micro_batches=micro_batches,
    )


def test_several_gpus_exchange_gradients():
    step = spread(Strategy(data=2), gpus=2)
    # 1e8 parameters x 4 B = 0.4 GB, all of it moved between two: / 7.88 GB/s = 50.8 ms. Without a
    # recorded structure gradients come at the end of backward, and nothing is hidden.
    assert step.gradient_bytes == 4e8
    assert step.exchange_s.likely == pytest.approx(0.0507614, rel=1e-3)
    assert step.step_time_s.likely == pytest.approx(0.1307614, rel=1e-3)
    assert step.global_batch_size == 8
    assert step.bound == "arithmetic"


def test_a_step_bound_by_the_network():
    step = spread(Strategy(data=2), gpus=2, profile=a_profile(trainable_parameters=10_000_000_000))
    # 40 GB / 7.88 GB/s = 5.08 s against 80 ms
    assert step.bound == "network"


def test_passes_before_an_update_multiply_the_step_and_the_global_batch():
    step = spread(Strategy(), micro_batches=3)
    assert step.step_time_s.likely == pytest.approx(3 * 0.08)
    assert step.global_batch_size == 12
    assert step.mfu == pytest.approx(alone().mfu)


def test_buckets_of_gradients_take_memory_beside_them():
    single, two = alone(), spread(Strategy(data=2), gpus=2)
    more = two.memory.allocated_bytes.likely - single.memory.allocated_bytes.likely
    assert more == pytest.approx(4e8)
    assert two.max_batch_size == 0  # nobody asked


def test_the_largest_batch_by_a_strategy_fits_and_the_next_does_not():
    placement = Placement(gpu=a_gpu(), gpus=2)
    strategy = Strategy(data=2, sharding="zero3")
    largest = largest_parallel_batch(a_profile(), strategy, placement, a_calibration())
    assert largest > 0
    for size, fits in ((largest, True), (largest + max(largest // 8, 1) + 1, False)):
        need = parallel_memory_need(a_profile(), size, strategy, placement, a_calibration())
        assert need.fits is fits


def test_the_search_ends_where_it_does_on_one_gpu():
    # samples take no memory
    profile, strategy = a_profile(bytes_per_sample=0.0), Strategy(data=2)
    placement = Placement(gpu=a_gpu(), gpus=2)
    assert largest_parallel_batch(profile, strategy, placement, a_calibration()) == LARGEST_BATCH


def test_too_few_threads_slow_the_host():
    # 8 processes that keep 2 threads busy each, on 8 threads: twice the time
    crowded = spread(Strategy(data=8), gpus=8, vcpus=8).host_time_s
    assert crowded == pytest.approx(2 * spread(Strategy(data=8), gpus=8).host_time_s)


def test_input_of_a_machine_is_shared_by_its_gpus():
    conditions = Conditions(node_samples_per_s=16)
    step = parallel_step(
        a_profile(),
        Placement(gpu=a_gpu(), gpus=8),
        Strategy(data=8),
        4,
        a_calibration(),
        conditions=conditions,
    )
    assert step.input_s == pytest.approx(2.0)  # 8 x 4 samples at 16 a second
    assert step.step_time_s.likely == pytest.approx(2.0)
    assert step.bound == "input"


# --- held to a batch ---


def best(gpus=1, **request):
    question = StepRequest(
        profile=a_profile(), placement=Placement(gpu=a_gpu(), gpus=gpus), **request
    )
    return best_step(question, a_calibration())


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_largest_that_fits_is_held_to_a_limit(gpus):
    free, held = best(gpus), best(gpus, batch_limit=3)
    assert free.batch_size == free.max_batch_size > 3
    assert (held.batch_size, held.max_batch_size) == (3, free.max_batch_size)


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_limit_beyond_what_fits_limits_nothing(gpus):
    assert best(gpus, batch_limit=10_000).batch_size == best(gpus).batch_size


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_global_batch_is_taken_in_passes_no_larger_than_the_limit(gpus):
    step = best(gpus, batch_limit=3, global_batch_size=24)
    assert step.batch_size <= 3
    assert step.global_batch_size == 24


def test_a_batch_that_is_given_is_no_other_for_a_limit():
    assert best(batch_size=4, batch_limit=3).batch_size == 4
