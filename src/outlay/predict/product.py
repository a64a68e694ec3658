"""Time of a matrix product: tiles of the result, dealt out to the multiprocessors in waves.

    time = start + min over tiles (tm x tn) and splits s of  max( arithmetic, memory ) + joining

    arithmetic = waves x 2 tm tn (k / s + lead) (1 + narrow (1/tm + 1/tn - 1/64)) / rate of one
                 multiprocessor;  waves = tiles x s / multiprocessors, rounded up
    memory     = bytes / (bandwidth x share)
    joining    = writing and reading the s partial results, where k is split

The library takes the fastest of its kernels, so the prediction takes the minimum. The rate is the
GPU's (under its power limit) times the share that such kernels reached on the reference GPU, and a
little more on GPUs whose multiprocessors do less in a cycle: those are easier to feed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.predict.calibration import Calibration, ProductNumbers
from outlay.predict.kernels import Product
from outlay.predict.machine import Machine

_TILES = (
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (64, 32),
    (32, 64),
    (32, 32),
)
_SPLITS = (1, 2, 4, 8, 16, 32)
_PARTIAL_BYTES = 4
_JOIN_S = 1.5e-6
"""Start of the kernel that adds partial results."""
HIGHEST_SHARE = 0.97


@dataclass(frozen=True, slots=True)
class _Tile:
    m: int
    n: int
    operands: float
    """Rows and columns fetched for one multiply-add, beyond those of the largest tiles."""


_TILE_LIST = tuple(_Tile(m, n, max(1 / m + 1 / n - 1 / 64, 0.0)) for m, n in _TILES)


def product_s(kernel: Product, machine: Machine, calibration: Calibration) -> float:
    """Seconds of one product on one GPU."""
    arithmetic = machine.arithmetic(kernel.precision)
    recipe = recipe_of(kernel, arithmetic)
    numbers = calibration.of_product(recipe, _plain(recipe), f"gemm_{_class(arithmetic)}")
    share = _share_on(numbers.share, kernel, machine, arithmetic, calibration)
    best_s = _fastest(
        kernel,
        machine.units,
        machine.rates[arithmetic] * share,
        machine.bytes_per_s * numbers.memory_share,
        numbers,
    )
    return kernel.repeats * (numbers.start_s + best_s)


def _fastest(
    kernel: Product, units: int, rate: float, moved_rate: float, numbers: ProductNumbers
) -> float:
    """The fastest tile and split."""
    narrow, lead = numbers.narrow, numbers.lead
    memory = kernel.moved_bytes / moved_rate
    m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
    per_flop = units / rate
    results = batch * m * n
    best = math.inf
    for tile in _TILE_LIST:
        tiles = batch * math.ceil(m / tile.m) * math.ceil(n / tile.n)
        cost = 2 * tile.m * tile.n * (1 + narrow * tile.operands) * per_flop
        for split in _SPLITS:
            time = max(math.ceil(tiles * split / units) * (k / split + lead) * cost, memory)
            if split > 1:
                time += _JOIN_S + _PARTIAL_BYTES * (split + 1) * results / moved_rate
            best = min(best, time)
            if tiles * split >= 4 * units:  # enough for everyone: more parts only cost
                break
    return best


def recipe_of(kernel: Product, arithmetic: str) -> str:
    """Which calibration rows speak of a product: its family, its arithmetic, how it is loaded."""
    kind = _class(arithmetic)
    if kind == "fp32":
        return f"{kernel.family}_fp32"
    wanted = 8 if kind == "16" else 4
    loaded = ""
    if kernel.aligned < wanted:
        loaded = "_odd" if kernel.aligned > 1 else "_single"
    elif kind == "tf32" and kernel.turned:
        loaded = "_turned"
    return f"{kernel.family}_{kind}{loaded}"


def _plain(recipe: str) -> str:
    """The recipe without how it is loaded."""
    for suffix in ("_odd", "_single", "_turned"):
        recipe = recipe.removesuffix(suffix)
    return recipe


def _class(arithmetic: str) -> str:
    if arithmetic in ("fp16", "bf16"):
        return "16"
    return "tf32" if arithmetic == "tf32" else "fp32"


def _share_on(
    share: float, kernel: Product, machine: Machine, arithmetic: str, calibration: Calibration
) -> float:
    """The share reached here: more where a multiprocessor does less in a cycle."""
    weight = machine.weight[arithmetic]
    exponent = calibration.first(f"lightness_{kernel.family}", "lightness")
    return min(share * weight**-exponent, max(HIGHEST_SHARE, share))
