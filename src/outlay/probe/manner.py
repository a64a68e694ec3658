"""How a recorded step computes: what the usual cures would change, and what it does already."""

from __future__ import annotations

from outlay.trace.trace import Profile

PRODUCTS = ("gemm", "conv", "attention", "rnn")
SMALL = 0.1
"""Of a step's arithmetic: convolutions of less, as those that cut images up, matter to nobody."""
ROW_RANK = 3
"""Dimensions of a batch of rows with channels, as sound has; images have more."""


def is_full_precision(profile: Profile | None) -> bool | None:
    """Whether most of the arithmetic of products is in fp32; None where nothing was recorded."""
    if profile is None:
        return None
    flops = {"full": 0.0, "half": 0.0}
    for op in profile.at(min(profile.memory), shapes=False).ops:
        if op.kind in PRODUCTS:
            full = op.precision in ("fp32", "tf32", "fp64")
            flops["full" if full else "half"] += op.flops * op.count
    return flops["full"] > flops["half"]


def has_channels_first(profile: Profile | None) -> bool | None:
    """Whether convolutions of images are much of its arithmetic, mostly in the usual layout."""
    if profile is None:
        return None
    flops = {"first": 0.0, "last": 0.0, "other": 0.0}
    for op in profile.at(min(profile.memory)).ops:
        if op.kind not in PRODUCTS:
            continue
        if op.kind == "conv" and op.shapes and len(op.shapes[0]) > ROW_RANK:
            way = "last" if op.layout == "channels_last" else "first"
        else:
            way = "other"
        flops[way] += op.flops * op.count
    return flops["first"] > max(flops["last"], SMALL * sum(flops.values()))


def is_fused(profile: Profile | None) -> bool | None:
    """Whether an optimizer updates all its parameters in few kernels (`fused=True`)."""
    if profile is None:
        return None
    return any("_fused_" in op.name for op in profile.ops if op.phase == "optimizer")
