from __future__ import annotations

import pytest

from outlay.errors import InputError
from outlay.predict.strategy import ANY_STRATEGY, Strategy, parse_strategy, possible_strategies


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (Strategy(), "one GPU"),
        (Strategy(data=8), "DDP"),
        (Strategy(data=8, sharding="zero1"), "ZeRO-1"),
        (Strategy(data=8, sharding="zero3"), "FSDP"),
        (Strategy(data=16, sharding="zero3", within_node=True), "FSDP in each machine"),
        (Strategy(data=4, sharding="zero3", tensor=2), "FSDP 4 x tensor 2"),
        (Strategy(tensor=8, pipeline=4), "tensor 8 x pipeline 4"),
    ],
)
def test_names(strategy, name):
    assert strategy.name == name


@pytest.mark.parametrize(
    ("text", "allowed", "not_allowed"),
    [
        ("ddp", Strategy(data=8), Strategy(data=8, sharding="zero3")),
        ("FSDP", Strategy(data=8, sharding="zero3"), Strategy(data=4, sharding="zero3", tensor=2)),
        ("zero-2", Strategy(data=8, sharding="zero2"), Strategy(data=8)),
        (
            "fsdp,tensor=2",
            Strategy(data=4, sharding="zero3", tensor=2),
            Strategy(data=8, sharding="zero3"),
        ),
        ("tp=8", Strategy(tensor=8), Strategy(data=8)),
        ("ddp + pp=2", Strategy(data=4, pipeline=2), Strategy(data=8)),
        (
            "hybrid",
            Strategy(data=16, sharding="zero3", within_node=True),
            Strategy(data=16, sharding="zero3"),
        ),
    ],
)
def test_what_a_text_asks_for(text, allowed, not_allowed):
    request = parse_strategy(text)
    assert request.allows(allowed)
    assert not request.allows(not_allowed)


def test_auto_is_anything():
    assert parse_strategy("auto") == ANY_STRATEGY
    assert ANY_STRATEGY.allows(Strategy(data=2, sharding="zero2"))


@pytest.mark.parametrize("text", ["dpp", "tensor", "tensor=0", "fsdp,tensro=2", "8"])
def test_a_strategy_nobody_knows(text):
    with pytest.raises(InputError, match="is no strategy"):
        parse_strategy(text)


def test_every_strategy_takes_all_gpus():
    strategies = possible_strategies(8, 4, blocks=12, heads=16)
    assert strategies
    assert {strategy.gpus for strategy in strategies} == {32}
    assert len(strategies) == len(set(strategies))


def test_tensors_divide_the_heads_and_stay_in_a_machine():
    cuts = {strategy.tensor for strategy in possible_strategies(8, 4, blocks=12, heads=12)}
    assert cuts == {1, 2, 4}  # 8 does not divide 12 heads


def test_a_pipeline_has_no_more_stages_than_blocks():
    assert (
        max(strategy.pipeline for strategy in possible_strategies(8, 1, blocks=3, heads=None)) == 2
    )
    assert {strategy.pipeline for strategy in possible_strategies(8, 1, blocks=0, heads=None)} == {
        1
    }


def test_without_attention_nothing_is_cut():
    assert {strategy.tensor for strategy in possible_strategies(8, 1, blocks=12, heads=None)} == {1}


def test_hybrid_sharding_wants_several_machines():
    assert not any(
        strategy.within_node for strategy in possible_strategies(8, 1, blocks=4, heads=4)
    )
    assert any(strategy.within_node for strategy in possible_strategies(8, 2, blocks=4, heads=4))
