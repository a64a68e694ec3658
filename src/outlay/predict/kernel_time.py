"""Time on the device, kernel by kernel.

An operator becomes the kernels a GPU runs for it (`predict.kernels`, `predict.convolution`); each
is a matrix product (`predict.product`) or a pass over memory (`predict.passing`). Between kernels
the device pauses about a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration, ProductNumbers
from outlay.predict.convolution import convolution_kernels
from outlay.predict.kernels import (
    Kernel,
    Pass,
    Product,
    attention_kernels,
    matmul_kernels,
    norm_kernels,
    pass_kernels,
    recurrent_kernels,
    shapeless_kernels,
)
from outlay.predict.roofline import RooflineGpu
from outlay.trace.profile import Kind, Op, Phase, Trace

# Time of a matrix product: tiles of the result, dealt out to the multiprocessors in waves.
#
#     time = start + min over tiles (tm x tn) and splits s of
#            max( arithmetic, power, memory ) + joining
#
#     arithmetic = waves x 2 tm tn (k / s + lead) (1 + narrow (1/tm + 1/tn - 1/64)) / rate of one
#                  multiprocessor;  waves = tiles x s / multiprocessors, rounded up
#     power      = the same work of all tiles, without waves, at the rate the power limit sustains
#     memory     = bytes / (bandwidth x share)
#     joining    = writing and reading the s partial results, where k is split
#
# The library takes the fastest of its kernels, so the prediction takes the minimum. The rate is the
# GPU's peak times the share that such kernels reached on the reference GPU, and a little more on
# GPUs whose multiprocessors do less in a cycle: those are easier to feed.


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


def product_time_s(kernel: Product, machine: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one product on one GPU."""
    arithmetic = machine.arithmetic(kernel.precision)
    recipe = product_family(kernel, arithmetic)
    numbers = calibration.of_product(recipe, _plain(recipe), f"gemm_{_class(arithmetic)}")
    share = _share_on(numbers.share, kernel, machine, arithmetic, calibration)
    best_s = _fastest(kernel, machine, arithmetic, share, numbers)
    return kernel.repeats * (numbers.start_s + best_s)


def _fastest(
    kernel: Product, machine: RooflineGpu, arithmetic: str, share: float, numbers: ProductNumbers
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


def _tiles_for(kernel: Product, machine: RooflineGpu, arithmetic: str) -> tuple[_Tile, ...]:
    """The tiles that libraries have: fewer for plain fp32, and for batches of it before Hopper.

    Source: names of the kernels in NeuSight's measurements on P4, P100, T4, V100 and A100.
    """
    if arithmetic != "fp32":
        return _TENSOR_TILES
    return _BATCHED_TILES if kernel.batch > 1 and machine.plain_batches else _PLAIN_TILES


def product_family(kernel: Product, arithmetic: str) -> str:
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
    share: float, kernel: Product, machine: RooflineGpu, arithmetic: str, calibration: Calibration
) -> float:
    """The share reached here: more where a multiprocessor does less in a cycle."""
    exponent = calibration.number(f"lightness_{_sort(kernel, arithmetic)}")
    if product_family(kernel, arithmetic).endswith(("_odd", "_single")):
        exponent = 1.0  # held up by loading, whatever the arithmetic could do
    reached = share * math.pow(machine.weight[arithmetic], -exponent)
    return min(reached, max(HIGHEST_SHARE, share))


def _sort(kernel: Product, arithmetic: str) -> str:
    if arithmetic in ("fp32", "fp64"):
        return "direct" if kernel.family.startswith("direct") else "fp32"
    return "conv" if kernel.family.startswith(("forward", "input", "weight")) else "gemm"


# Time of a pass over memory: bytes at a share of bandwidth, or the instructions of its elements.
#
#     time = launches x start + ( memory^4 + work^4 + serial^4 )^(1/4)
#
#     memory = bytes / (bandwidth x share), faster where everything fits the L2 cache
#     work   = (elements x cycles + units x unit) / (multiprocessors x clock)
#     serial = elements / units x serial / clock: a unit's elements, one after another
#
# Every family has a row with these numbers in `data/kernel_passes.csv`.


def pass_time_s(kernel: Pass, machine: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one pass on one GPU."""
    numbers = calibration.of_pass(kernel.family)
    rate = machine.bytes_per_s * numbers.share
    if kernel.moved_bytes < calibration.number("cache_fill") * machine.cache_bytes:
        rate *= calibration.number("cache_gain")
    memory = kernel.moved_bytes / rate
    work = kernel.elements * numbers.cycles
    alone = 0.0
    if kernel.units != math.inf:
        work += kernel.units * numbers.unit_cycles
        alone = kernel.elements / max(kernel.units, 1.0) * numbers.serial_cycles
        alone /= machine.clock_hz
    work /= machine.cycles_per_s
    started = kernel.launches * numbers.start_s
    longest = max(memory, work, alone)
    if longest <= 0:
        return started
    together = (memory / longest) ** 4 + (work / longest) ** 4 + (alone / longest) ** 4
    return started + longest * math.sqrt(math.sqrt(together))


@lru_cache(maxsize=65_536)
def kernels_of(op: Op, *, tensor_cores: bool) -> tuple[Kernel, ...]:
    """The kernels one operator starts; none for a view."""
    if op.launches <= 0 and op.moved_bytes <= 0 and op.flops <= 0:
        return ()
    if not op.shapes:
        return shapeless_kernels(op)
    if op.kind == "conv" and "convolution" in op.name and len(op.shapes) > 2:
        return convolution_kernels(op, tensor_cores=tensor_cores)
    if op.kind == "gemm":
        return matmul_kernels(op)
    if op.kind == "attention":
        return attention_kernels(op)
    if op.kind == "rnn" and op.flops > 0:
        return recurrent_kernels(op)
    if op.kind == "norm":
        return norm_kernels(op)
    return shapeless_kernels(op) if op.flops > 0 else pass_kernels(op)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """What the device needs for one step, and on what."""

    total_s: float
    by_kind_s: Mapping[Kind, float]
    """By kind of operation, largest first."""
    by_phase_s: Mapping[Phase, float]
    arithmetic_s: float
    """In matrix products that wait for arithmetic rather than for memory."""
    doubt: float
    """Relative error to expect from the kernels' own errors when they were fitted."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """The same by family of kernels: errors of one family go together, in other steps, too."""


def kernel_time_s(kernel: Kernel, machine: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one kernel, with the pause before it."""
    pause_s = calibration.number("kernel_pause_s")
    if isinstance(kernel, Product):
        return kernel.repeats * pause_s + product_time_s(kernel, machine, calibration)
    return kernel.launches * pause_s + pass_time_s(kernel, machine, calibration)


def op_time_s(op: Op, machine: RooflineGpu, calibration: Calibration) -> float:
    """Time of one operation on one GPU."""
    kernels = kernels_of(op, tensor_cores=op.precision in machine.tensor_types)
    return sum(kernel_time_s(kernel, machine, calibration) for kernel in kernels)


def device_time(trace: Trace, machine: RooflineGpu, calibration: Calibration) -> DeviceTime:
    """The time the device is busy in one step."""
    return _device_time(ById(trace), ById(machine), ById(calibration))


@lru_cache(maxsize=1024)
def _device_time(
    trace: ById[Trace], gpu: ById[RooflineGpu], numbers: ById[Calibration]
) -> DeviceTime:
    machine, calibration = gpu.value, numbers.value
    kinds: dict[Kind, float] = {}
    phases: dict[Phase, float] = {}
    families: dict[str, float] = {}
    arithmetic_s = 0.0
    for kind, kernel, counts in _work(trace, machine.tensor_types):
        once_s = kernel_time_s(kernel, machine, calibration)
        for phase, count in counts:
            phases[phase] = phases.get(phase, 0.0) + count * once_s
        time_s = sum(count for _, count in counts) * once_s
        kinds[kind] = kinds.get(kind, 0.0) + time_s
        family = kernel.family
        if isinstance(kernel, Product):
            arithmetic = machine.arithmetic(kernel.precision)
            family = product_family(kernel, arithmetic)
            if _is_bound_by_arithmetic(kernel, machine, arithmetic):
                arithmetic_s += time_s
        families[family] = families.get(family, 0.0) + time_s
    total_s = sum(kinds.values())
    doubts = _doubts(families, total_s, calibration)
    return DeviceTime(
        total_s=total_s,
        by_kind_s=dict(sorted(kinds.items(), key=lambda item: -item[1])),
        by_phase_s=phases,
        arithmetic_s=arithmetic_s,
        doubt=math.hypot(*doubts.values()),
        doubts=doubts,
    )


@lru_cache(maxsize=64)
def _work(
    trace: ById[Trace], tensor_types: frozenset[str]
) -> tuple[tuple[Kind, Kernel, tuple[tuple[Phase, float], ...]], ...]:
    """Every kernel of a step once, with how often it runs in each phase, by tensor types."""
    counts: dict[tuple[Kind, Kernel], dict[Phase, float]] = {}
    for op in trace.value.ops:
        for kernel in kernels_of(op, tensor_cores=op.precision in tensor_types):
            phases = counts.setdefault((op.kind, kernel), {})
            phases[op.phase] = phases.get(op.phase, 0.0) + op.count
    return tuple((kind, kernel, tuple(phases.items())) for (kind, kernel), phases in counts.items())


def _is_bound_by_arithmetic(kernel: Product, machine: RooflineGpu, arithmetic: str) -> bool:
    """By the roofline: whether its arithmetic takes longer than its bytes."""
    needed_s = kernel.flops / machine.rates[arithmetic]
    return needed_s > kernel.repeats * kernel.moved_bytes / machine.bytes_per_s


def _doubts(
    families: Mapping[str, float], total_s: float, calibration: Calibration
) -> dict[str, float]:
    """Errors of one kind of kernel go together, those of different kinds do not."""
    if total_s <= 0:
        return {}
    unknown = calibration.number("doubt_unknown")
    return {
        family: time_s / total_s * calibration.doubts.get(family, unknown)
        for family, time_s in families.items()
    }
