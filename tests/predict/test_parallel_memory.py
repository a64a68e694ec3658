from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_transformer

from outlay.predict.parallel_memory import bytes_spared_per_gpu
from outlay.predict.parallel_time import Site
from outlay.predict.strategy import Strategy

# Memory: 200e6 parameters in fp32: 0.8 GB, Adam 1.6 GB, 0.1 GB a sample


def held(strategy, batch_size=4, site=None):
    profile = a_transformer()
    site = site or Site(gpus=strategy.gpus)
    alone = profile.memory_at(batch_size).peak_bytes
    return alone - bytes_spared_per_gpu(profile, batch_size, strategy, site)


def test_alone_nothing_is_saved():
    assert held(Strategy()) == pytest.approx(0.8e9 + 1.6e9 + 0.4e9)


def test_data_parallel_keeps_buckets_of_gradients():
    assert held(Strategy(data=8)) == pytest.approx(2.8e9 + 0.8e9)


def test_each_stage_of_sharding_holds_less():
    holds = [held(Strategy(data=8, sharding=kind)) for kind in ("none", "zero1", "zero3")]
    assert holds == sorted(holds, reverse=True)
    # ZeRO-1: parameters, an eighth of the state, activations, a bucket of all gradients
    assert holds[1] == pytest.approx(0.8e9 + 0.2e9 + 0.4e9 + 0.8e9)
    # FSDP, in backward of the second block from the end: an eighth of parameters, state and the
    # gradients of one block; three quarters of the activations; this block's parameters and
    # gradients and the next one's parameters in 2 bytes, the last one's gradients in 4; and what
    # lies outside of blocks with its gradients in 2
    sharded = 0.1e9 + 0.2e9 + 0.1e9 / 8
    assert holds[2] == pytest.approx(sharded + 0.3e9 + 5 * 0.05e9 + 2 * 0.2e9)


def test_tensors_and_stages_share_the_model():
    # a quarter of parameters and state; of activations 10/34 everywhere and 24/34 shared
    share = 10 / 34 + 24 / 34 / 4
    assert held(Strategy(tensor=4)) == pytest.approx(0.6e9 + 0.4e9 * share)
    # a stage holds a quarter of the blocks of four micro-batches
    assert held(Strategy(pipeline=4)) == pytest.approx(0.6e9 + 0.4e9)


def test_hybrid_shards_over_one_machine():
    near = held(Strategy(data=16, sharding="zero3", within_node=True), site=Site(gpus=8, nodes=2))
    far = held(Strategy(data=16, sharding="zero3"), site=Site(gpus=8, nodes=2))
    # parameters, state, and the gradients of one block
    assert near - far == pytest.approx(2.5e9 / 8 - 2.5e9 / 16)


def test_gradients_stay_between_passes():
    profile = a_transformer()
    for strategy, accumulated in (
        (Strategy(), 0.8e9),
        (Strategy(data=8), 0.8e9),
        (Strategy(data=8, sharding="zero3"), 0.1e9),
        (Strategy(tensor=4), 0.2e9),
    ):
        site = Site(gpus=strategy.gpus)
        once, several = (
            bytes_spared_per_gpu(profile, 4, strategy, site, passes=passes) for passes in (1, 2)
        )
        assert once - several == pytest.approx(accumulated)


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_passes_within_a_traced_step_add_their_gradients_up(sharding):
    once = a_transformer()
    twice = replace(once, structure=replace(once.structure, gradient_bytes=2 * 0.8e9))
    strategy, site = Strategy(data=8, sharding=sharding), Site(gpus=8)
    for passes in (1, 2):
        spared = [
            bytes_spared_per_gpu(profile, 4, strategy, site, passes=passes)
            for profile in (once, twice)
        ]
        assert spared[0] == spared[1]
