"""Time of a matrix product: tiles of the result, dealt out to the multiprocessors in waves.

    time = start + min over tiles (tm x tn) and splits s of
           max( arithmetic, power, memory ) + joining

    arithmetic = waves x 2 tm tn (k / s + lead) (1 + narrow (1/tm + 1/tn - 1/64)) / rate of one
                 multiprocessor;  waves = tiles x s / multiprocessors, rounded up
    power      = the same work of all tiles, without waves, at the rate the power limit sustains
    memory     = bytes / (bandwidth x share)
    joining    = writing and reading the s partial results, where k is split

The library takes the fastest of its kernels, so the prediction takes the minimum. The rate is the
GPU's peak times the share that such kernels reached on the reference GPU, and a little more on
GPUs whose multiprocessors do less in a cycle: those are easier to feed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.predict.calibration import Calibration, ProductNumbers
from outlay.predict.kernels import Product
from outlay.predict.machine import Machine

_SPLITS = (1, 2, 4, 8, 16, 32)
_UNSPLIT = (1,)
_PARTIAL_BYTES = 4
_SPAN_COST = 78.6
_SPAN_BYTES = 189e6
"""How rows that lie far apart slow a product down on GPUs before Volta, and from which span on."""
_NARROWEST = 64
"""Tiles no wider than this are tried whatever the product's size."""
_SHORT = 64
"""A part of k is no shorter than this."""
_JOIN_S = 1.5e-6
"""Start of the kernel that adds partial results."""
HIGHEST_SHARE = 0.97


@dataclass(frozen=True, slots=True)
class _Tile:
    m: int
    n: int
    operands: float
    """Rows and columns fetched for one multiply-add, beyond those of the largest tiles."""


def _tiles(*sizes: tuple[int, int]) -> tuple[_Tile, ...]:
    return tuple(_Tile(m, n, max(1 / m + 1 / n - 1 / 64, 0.0)) for m, n in sizes)


_SMALL = ((64, 64), (64, 32), (32, 64), (32, 32))
_TENSOR_TILES = _tiles((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), *_SMALL)
_PLAIN_TILES = _tiles((128, 128), (64, 128), (128, 64), (32, 128), (128, 32), *_SMALL)
_BATCHED_TILES = _tiles((128, 128), (64, 128))


def product_s(kernel: Product, machine: Machine, calibration: Calibration) -> float:
    """Seconds of one product on one GPU."""
    arithmetic = machine.arithmetic(kernel.precision)
    recipe = recipe_of(kernel, arithmetic)
    numbers = calibration.of_product(recipe, _plain(recipe), f"gemm_{_class(arithmetic)}")
    share = _share_on(numbers.share, kernel, machine, arithmetic, calibration)
    best_s = _fastest(kernel, machine, arithmetic, share, numbers)
    return kernel.repeats * (numbers.start_s + best_s)


def _fastest(
    kernel: Product, machine: Machine, arithmetic: str, share: float, numbers: ProductNumbers
) -> float:
    """Seconds with the fastest tile and split."""
    units, far = machine.units, machine.older
    rate, sustained = machine.rates[arithmetic] * share, machine.sustained[arithmetic]
    moved_rate = machine.bytes_per_s * numbers.memory_share
    tile_list = _tiles_for(kernel, machine, arithmetic)
    splits = _UNSPLIT if machine.older else _SPLITS
    m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
    narrow, lead = numbers.narrow, numbers.lead
    memory = kernel.moved_bytes / moved_rate
    results = batch * m * n
    best = math.inf
    for tile in tile_list:
        wide = (tile.m >= 2 * m and tile.m > _NARROWEST) or (
            tile.n >= 2 * n and tile.n > _NARROWEST
        )
        if wide and tile is not tile_list[-1]:
            continue  # half of it would be empty
        tiles = batch * math.ceil(m / tile.m) * math.ceil(n / tile.n)
        flops = 2 * tile.m * tile.n * (1 + narrow * tile.operands)
        at_least = max(tiles * k * flops / sustained, memory)
        in_turn = flops * units / rate
        for split in splits:
            steps = k / split * _far_apart(k / split, m + n, tile, units) if far else k / split
            time = max(math.ceil(tiles * split / units) * (steps + lead) * in_turn, at_least)
            if split > 1:
                time += _JOIN_S + _PARTIAL_BYTES * (split + 1) * results / moved_rate
            best = min(best, time)
            if tiles * split >= 4 * units or k < _SHORT * split:  # more parts would only cost
                break
    return best


def _far_apart(k: float, rows: float, tile: _Tile, units: int) -> float:
    """How much slower where the rows in flight span more than addresses are kept at hand for.

    Seen on P4 and P100 in NeuSight's measurements of fp32 products.
    """
    resident = max(1, min(8, 2 * 128 * 128 // (tile.m * tile.n)))
    in_flight = 2 * math.sqrt(units * resident * tile.m * tile.n)
    span_bytes = 4 * k * math.sqrt(min(rows, in_flight) * rows)
    fetched = 1 / tile.m + 1 / tile.n
    return 1 + _SPAN_COST * fetched * max(0.0, 1 - _SPAN_BYTES / max(span_bytes, 1.0))


def _tiles_for(kernel: Product, machine: Machine, arithmetic: str) -> tuple[_Tile, ...]:
    """The tiles that libraries have: fewer for plain fp32, and for batches of it before Hopper.

    Source: names of the kernels in NeuSight's measurements on P4, P100, T4, V100 and A100.
    """
    if arithmetic != "fp32":
        return _TENSOR_TILES
    return _BATCHED_TILES if kernel.batch > 1 and machine.plain_batches else _PLAIN_TILES


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
    exponent = calibration.number(f"lightness_{_sort(kernel, arithmetic)}")
    if recipe_of(kernel, arithmetic).endswith(("_odd", "_single")):
        exponent = 1.0  # held up by loading, whatever the arithmetic could do
    reached = share * math.pow(machine.weight[arithmetic], -exponent)
    return min(reached, max(HIGHEST_SHARE, share))


def _sort(kernel: Product, arithmetic: str) -> str:
    if arithmetic in ("fp32", "fp64"):
        return "direct" if kernel.family.startswith("direct") else "fp32"
    return "conv" if kernel.family.startswith(("forward", "input", "weight")) else "gemm"
