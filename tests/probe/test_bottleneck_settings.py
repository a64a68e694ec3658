"""What a recorded step does already is seen in its operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outlay.probe.bottleneck import has_channels_first, is_full_precision, is_fused
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
    assert (is_full_precision(profile), has_channels_first(profile)) == (full, first)
    assert is_fused(profile) is False


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
    assert (is_full_precision(None), has_channels_first(None), is_fused(None)) == (None,) * 3
