"""What a recorded step does already is seen in its operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outlay.probe.bottleneck import (
    arithmetic_by_precision,
    has_channels_first,
    is_fused,
    product_shares,
)
from outlay.trace.store import find_profile


@pytest.mark.parametrize(
    ("name", "full", "first"),
    [
        ("resnet50", False, True),
        ("stylenat", True, True),
        ("vit-b16", False, False),  # one convolution cuts images up: nothing to gain
        ("bert-large", False, False),
    ],
)
def test_examples_are_what_their_sources_say(name, full, first):
    profile = find_profile(name)
    shares = arithmetic_by_precision(product_shares(profile))
    assert sum(shares.values()) == pytest.approx(1)
    assert (shares.get("tf32", 0.0) + shares.get("fp32", 0.0) > 0.5) == full
    assert has_channels_first(profile) == first
    assert is_fused(profile) is False


def test_products_are_tf32_by_their_switches_and_only_where_the_gpu_has_it():
    """Each product of a step in fp32 with convolutions in TF32, as torch has them by default."""
    profile = find_profile("resnet50")
    in_fp32 = {"conv": "tf32", "gemm": "fp32"}
    ops = tuple(
        replace(op, precision=in_fp32.get(op.kind, "fp32"))
        if op.precision in ("fp16", "bf16")
        else op
        for op in profile.ops
    )
    by_default = replace(profile, ops=ops)
    shares = product_shares(by_default, has_tf32=True)
    assert set(shares) == {("conv", "tf32"), ("gemm", "fp32")}
    # Its one matrix product has 2048 x 1000 of the 4.1e9 multiply-adds of a forward pass.
    assert shares["gemm", "fp32"] == pytest.approx(2048 * 1000 / 4.1e9, rel=0.05)
    before_ampere = product_shares(by_default, has_tf32=False)
    assert {precision for _, precision in before_ampere} == {"fp32"}


def test_the_other_layout_is_seen():
    profile = find_profile("resnet50")
    ops = tuple(
        replace(op, layout="channels_last") if op.kind == "conv" else op for op in profile.ops
    )
    assert has_channels_first(replace(profile, ops=ops)) is False


def test_a_fused_optimizer_is_seen():
    profile = find_profile("resnet50")
    update = next(op for op in profile.ops if op.phase == "optimizer")
    fused = replace(update, name="aten._fused_adamw_")
    assert is_fused(replace(profile, ops=(*profile.ops, fused))) is True


def test_nothing_is_said_of_a_step_that_was_not_recorded():
    assert (product_shares(None), has_channels_first(None), is_fused(None)) == (None,) * 3
