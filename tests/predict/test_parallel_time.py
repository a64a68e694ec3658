from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_calibration, a_gpu, a_profile, a_transformer

from outlay.predict.network import Wiring, fabric_of
from outlay.predict.parallel_time import (
    CommunicationLoad,
    PhaseTimes,
    Site,
    attention_heads,
    block_width,
    communication_load,
    data_parallel_group,
    gathered_bytes_per_parameter,
    parallel_step_time,
    shard_count,
)
from outlay.predict.strategy import Strategy

PHASES = PhaseTimes(
    forward_s=1.0, backward_s=2.0, update_s=0.4, host_pass_s=0.1, host_update_s=0.01
)
LOAD = CommunicationLoad(
    gradient_bytes=16e9,
    gathered_bytes=8e9,
    blocks=4,
    block_bytes=1.5e9,
    rest_bytes=2e9,
    block_output_bytes=1e9,
    ready=tuple((i + 1) / 16 for i in range(16)),
)
LINKED = a_gpu(nvlink_gb_per_s=400, nvlink_reach="all")
"""100 GB/s in a large sum: 400 / 2 x 0.5."""


def taken(strategy, *, gpus=None, nodes=1, micro_batches=1, load=LOAD, **numbers):
    calibration = a_calibration(**numbers)
    site = Site(gpus=gpus or strategy.gpus // nodes, nodes=nodes)
    wiring = Wiring(network_bytes_per_s=12.5e9)  # 10 GB/s at 0.8
    fabric = fabric_of(LINKED, site.gpus, wiring, calibration, nodes=nodes)
    return parallel_step_time(
        PHASES, load, strategy, site, fabric, "likely", micro_batches, calibration
    )


def test_one_gpu_computes_and_nothing_else():
    time = taken(Strategy())
    assert (time.compute_s, time.exchange_s, time.waiting_s) == pytest.approx((3.4, 0, 0))


def test_data_parallel_hides_all_but_the_last_part():
    time = taken(Strategy(data=8))
    # 16 GB in 16 parts, each 2 x 7/8 x 1 GB / 100 GB/s = 17.5 ms, every 2 s / 16 = 125 ms
    assert time.exchange_s == pytest.approx(0.0175)
    assert time.compute_s == pytest.approx(3.4)


def test_what_is_not_hidden_is_added():
    time = taken(Strategy(data=8), overlap_nvlink=0.5)
    # half of the last part alone, and half of everything: 16 x 17.5 ms
    assert time.exchange_s == pytest.approx(0.5 * 0.0175 + 0.5 * 0.28)


def test_passes_exchange_once():
    time = taken(Strategy(data=8), micro_batches=4)
    assert time.exchange_s == pytest.approx(0.0175)
    assert time.compute_s == pytest.approx(4 * 3 + 0.4)


def test_sharded_state_is_updated_in_parts_and_gathered():
    time = taken(Strategy(data=8, sharding="zero1"))
    # gradients are scattered: half of the last part; 7/8 x 8 GB of parameters come back in 70 ms
    assert time.exchange_s == pytest.approx(0.00875 + 0.07)
    assert time.compute_s == pytest.approx(3.0 + 0.4 / 8)


def test_a_fully_sharded_step_shows_the_ends_only():
    time = taken(Strategy(data=8, sharding="zero3"))
    # a block of 1.5 GB is gathered in 13.1 ms, the rest of 2 GB in 17.5 ms: each once at the start
    # of forward and once at the end of backward; blocks compute for 250 and 500 ms
    assert time.exchange_s == pytest.approx(2 * (0.013125 + 0.0175))


def test_fully_sharded_passes_gather_each_time():
    time = taken(Strategy(data=8, sharding="zero3"), micro_batches=3)
    assert time.exchange_s == pytest.approx(3 * 2 * (0.013125 + 0.0175))


def test_computing_beside_gathering_takes_longer():
    time = taken(Strategy(data=8, sharding="zero3"), sharded_work=1.2)
    assert time.compute_s == pytest.approx(1.2 * 3.0 + 0.4 / 8)


def test_over_a_slow_network_gathering_shows():
    time = taken(Strategy(data=16, sharding="zero3"), nodes=2)
    # 15/16 x 1.5 GB / 10 GB/s = 141 ms for a block, 187.5 ms for the rest. Forward computes 250 ms
    # a block and hides it; backward computes 500 ms and has two to hide.
    assert time.exchange_s == pytest.approx(2 * (0.140625 + 0.1875))


def test_hybrid_sharding_gathers_within_a_machine():
    hybrid = taken(Strategy(data=16, sharding="zero3", within_node=True), nodes=2)
    # as on one machine; gradients between machines are hidden
    assert hybrid.exchange_s == pytest.approx(2 * (0.013125 + 0.0175))


def test_tensor_parallel_sums_in_the_way():
    time = taken(Strategy(tensor=4))
    # 4 blocks x 4 sums of 1 GB over 4 GPUs: 2 x 3/4 / 100 GB/s = 15 ms
    assert time.exchange_s == pytest.approx(16 * 0.015)


def test_a_pipeline_stands_idle_at_both_ends():
    time = taken(Strategy(pipeline=4), micro_batches=8)
    # every stage has 3 s / 4 a micro-batch: 8 of them, and 3 to fill and drain
    assert time.compute_s == pytest.approx(8 * 0.75 + 0.4 / 4)
    assert time.waiting_s == pytest.approx(3 * 0.75)
    # 11 hand on 1 GB each way: 2 x 10 ms
    assert time.exchange_s == pytest.approx(11 * 0.02)


def test_stages_that_do_not_come_out_even():
    # 4 blocks in 3 stages: the fullest has two
    time = taken(Strategy(pipeline=3), micro_batches=1)
    assert time.compute_s == pytest.approx(1.5 + 0.4 / 3)


def test_many_gpus_wait_for_the_slowest():
    time = taken(Strategy(data=8), straggling=0.01)
    assert time.waiting_s == pytest.approx(0.03 * 3.4)  # three doublings


def test_groups_that_sum_gradients():
    site = Site(gpus=8, nodes=4)
    assert data_parallel_group(Strategy(data=32), site) == data_parallel_group(
        Strategy(data=32), site
    )
    assert data_parallel_group(Strategy(data=32), site).members == 32
    cut = data_parallel_group(Strategy(data=16, tensor=2), site)
    assert (cut.gpus_per_node, cut.nodes, cut.groups_per_node) == (4, 4, 2)
    whole = data_parallel_group(Strategy(data=2, tensor=8, pipeline=2), site)
    assert (whole.gpus_per_node, whole.nodes, whole.groups_per_node) == (1, 2, 8)


def test_over_how_many_gpus_shards_are_spread():
    site = Site(gpus=8, nodes=4)
    assert shard_count(Strategy(data=32), site) == 1
    assert shard_count(Strategy(data=32, sharding="zero3"), site) == 32
    assert shard_count(Strategy(data=32, sharding="zero3", within_node=True), site) == 8


# What a step sends


def test_what_a_transformer_sends():
    load = communication_load(a_transformer(), 2)
    # 4 blocks of 25e6 and 100e6 besides; products in fp16, so parameters are sent in 2 bytes
    assert load.gradient_bytes == 4 * 200e6
    assert load.gathered_bytes == 2 * 200e6
    assert (load.blocks, load.block_bytes, load.rest_bytes) == (4, 50e6, 200e6)
    assert load.block_output_bytes == 2e6
    assert block_width(a_transformer()) == 1280
    assert attention_heads(a_transformer()) == 8


def test_a_profile_without_structure_is_one_block_that_comes_last():
    load = communication_load(a_profile(), 2)
    assert (load.blocks, load.gradient_bytes) == (0, 4e8)
    assert set(load.ready) == {1.0}
    assert attention_heads(a_profile()) is None


def test_parameters_are_sent_as_they_are_where_products_are_in_fp32():
    ops = tuple(replace(op, precision="fp32") for op in a_transformer().ops)
    assert gathered_bytes_per_parameter(replace(a_transformer(), ops=ops)) == 4
