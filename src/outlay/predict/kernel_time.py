"""Time on the device, kernel by kernel.

In: a step's `Trace`, a `RooflineGpu`, the fitted numbers. Out: a `DeviceTime`, with its parts and
the error to expect. An operator becomes the kernels a GPU runs for it (`predict.kernels`,
`predict.convolution`); each is a matrix product or a pass over memory, and the device pauses about
a microsecond before each. docs/models/time.md has the equations with their sources.
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
    Stated,
    attention_kernels,
    matmul_kernels,
    norm_kernels,
    pass_kernels,
    recurrent_kernels,
    shapeless_kernels,
    stated_kernels,
)
from outlay.predict.roofline import RooflineGpu
from outlay.trace.profile import Kind, Op, Phase, Trace

# A step


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """What the device needs for one step, and on what."""

    total_s: float
    by_kind_s: Mapping[Kind, float]
    """By kind of operation, largest first."""
    by_phase_s: Mapping[Phase, float]
    arithmetic_s: float
    """In matrix products that wait for arithmetic rather than for memory."""
    kernel_error: float
    """Relative error to expect from the kernels' own errors when they were fitted."""
    kernel_errors: Mapping[str, float] = field(default_factory=dict)
    """The same by family of kernels: errors of one family go together, in other steps, too."""
    unknown_s: float = 0.0
    """In operators without a formula: the least they take, which is to move their tensors once."""


def device_time(trace: Trace, gpu: RooflineGpu, calibration: Calibration) -> DeviceTime:
    """The time the device is busy in one step; worked out once."""
    return _device_time(ById(trace), ById(gpu), ById(calibration))


@lru_cache(maxsize=1024)
def _device_time(
    trace: ById[Trace], of_gpu: ById[RooflineGpu], of_calibration: ById[Calibration]
) -> DeviceTime:
    gpu, calibration = of_gpu.value, of_calibration.value
    kinds: dict[Kind, float] = {}
    phases: dict[Phase, float] = {}
    families: dict[str, float] = {}
    arithmetic_s = 0.0
    for kind, kernel, counts in _kernel_counts(trace, gpu.tensor_types):
        once_s = kernel_time_s(kernel, gpu, calibration)
        for phase, count in counts:
            phases[phase] = phases.get(phase, 0.0) + count * once_s
        time_s = sum(count for _, count in counts) * once_s
        kinds[kind] = kinds.get(kind, 0.0) + time_s
        family = kernel.family
        if isinstance(kernel, Product):
            arithmetic = gpu.arithmetic(kernel.precision)
            family = product_family(kernel, arithmetic)
            if _is_bound_by_arithmetic(kernel, gpu, arithmetic):
                arithmetic_s += time_s
        families[family] = families.get(family, 0.0) + time_s
    total_s = sum(kinds.values())
    kernel_errors = _kernel_errors(families, total_s, calibration)
    return DeviceTime(
        total_s=total_s,
        by_kind_s=dict(sorted(kinds.items(), key=lambda item: -item[1])),
        by_phase_s=phases,
        arithmetic_s=arithmetic_s,
        kernel_error=math.hypot(*kernel_errors.values()),
        kernel_errors=kernel_errors,
        unknown_s=sum(
            op.count * op_time_s(op, gpu, calibration)
            for op in trace.value.ops
            if op.name in trace.value.unknown_ops
        ),
    )


@lru_cache(maxsize=64)
def _kernel_counts(
    trace: ById[Trace], tensor_types: frozenset[str]
) -> tuple[tuple[Kind, Kernel, tuple[tuple[Phase, float], ...]], ...]:
    """Every kernel of a step once, with how often it runs in each phase, by tensor types."""
    counts: dict[tuple[Kind, Kernel], dict[Phase, float]] = {}
    for op in trace.value.ops:
        for kernel in kernels_of(op, tensor_cores=op.precision in tensor_types):
            phases = counts.setdefault((op.kind, kernel), {})
            phases[op.phase] = phases.get(op.phase, 0.0) + op.count
    return tuple((kind, kernel, tuple(phases.items())) for (kind, kernel), phases in counts.items())


def _is_bound_by_arithmetic(kernel: Product, gpu: RooflineGpu, arithmetic: str) -> bool:
    """By the roofline: whether its arithmetic takes longer than its bytes."""
    needed_s = kernel.flops / gpu.peak_flops_per_s[arithmetic]
    return needed_s > kernel.repeats * kernel.moved_bytes / gpu.bytes_per_s


def _kernel_errors(
    families: Mapping[str, float], total_s: float, calibration: Calibration
) -> dict[str, float]:
    """Errors of one kind of kernel go together, those of different kinds do not."""
    if total_s <= 0:
        return {}
    unknown = calibration.number("kernel_error_unknown")
    known = dict(calibration.kernel_errors)
    if "stated" in families:
        known["stated"] = calibration.number("kernel_error_stated")
    return {
        family: time_s / total_s * known.get(family, unknown) for family, time_s in families.items()
    }


# An operator and its kernels


def op_time_s(op: Op, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Time of one operation on one GPU."""
    kernels = kernels_of(op, tensor_cores=op.precision in gpu.tensor_types)
    return sum(kernel_time_s(kernel, gpu, calibration) for kernel in kernels)


@lru_cache(maxsize=65_536)
def kernels_of(op: Op, *, tensor_cores: bool) -> tuple[Kernel, ...]:
    """The kernels one operator starts; none for a view."""
    if op.launches <= 0 and op.moved_bytes <= 0 and op.flops <= 0:
        return ()
    if op.efficiency is not None:
        return stated_kernels(op)
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


def kernel_time_s(kernel: Kernel, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one kernel, with the pause before it."""
    pause_s = calibration.number("kernel_pause_s")
    if isinstance(kernel, Product):
        return kernel.repeats * pause_s + product_time_s(kernel, gpu, calibration)
    if isinstance(kernel, Stated):
        return kernel.launches * pause_s + stated_time_s(kernel, gpu)
    return kernel.launches * pause_s + pass_time_s(kernel, gpu, calibration)


def stated_time_s(kernel: Stated, gpu: RooflineGpu) -> float:
    """The slower of arithmetic and memory, both at the efficiency that was told."""
    peak = gpu.peak_flops_per_s[gpu.arithmetic(kernel.precision)]
    bound_s = max(kernel.flops / peak, kernel.moved_bytes / gpu.bytes_per_s)
    return bound_s / kernel.efficiency


# A matrix product: tiles of the result, dealt out to the multiprocessors in waves
#
#     time = start + min over tiles (tm x tn) and splits s of
#            max( arithmetic, power, memory ) + sum of the splits
#
#     arithmetic = waves x 2 tm tn (k / s + lead) (1 + narrow (1/tm + 1/tn - 1/64)) / rate of one
#                  multiprocessor;  waves = tiles x s / multiprocessors, rounded up
#     power      = the same work of all tiles, without waves, at the rate the power limit sustains
#     memory     = bytes / (bandwidth x share)
#     sum        = writing and reading the s partial results, where k is split (split-K)
#
# The library takes the fastest of its kernels, so the prediction takes the minimum. The rate is the
# GPU's peak times the share that such kernels reached on the reference GPU, and a little more on
# GPUs whose multiprocessors do less in a cycle: those are easier to feed.


_SPLITS = (1, 2, 4, 8, 16, 32)
_UNSPLIT = (1,)
_SHORTEST_K = 64
"""A part of k is no shorter than this."""
_PARTIAL_BYTES = 4
_SPLIT_SUM_START_S = 1.5e-6
"""Start of the kernel that adds partial results."""
_SPAN_COST = 78.6
_SPAN_BYTES = 189e6
"""How rows that lie far apart slow a product down on GPUs before Volta, and from which span on."""
_NARROWEST = 64
"""Tiles no wider than this are tried whatever the product's size."""
HIGHEST_SHARE = 0.97
"""Of the peak: what is easier to feed than the reference GPU reaches no more."""


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


def product_time_s(kernel: Product, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one product on one GPU."""
    arithmetic = gpu.arithmetic(kernel.precision)
    family = product_family(kernel, arithmetic)
    numbers = calibration.of_product(
        family, _without_loading(family), f"gemm_{_arithmetic_class(arithmetic)}"
    )
    share = _peak_share(numbers.share, kernel, gpu, arithmetic, calibration)
    best_s = _fastest_s(kernel, gpu, arithmetic, share, numbers)
    return kernel.repeats * (numbers.start_s + best_s)


def _fastest_s(
    kernel: Product, gpu: RooflineGpu, arithmetic: str, share: float, numbers: ProductNumbers
) -> float:
    """Seconds with the fastest tile and split."""
    multiprocessors, is_old = gpu.multiprocessors, gpu.is_before_volta
    flops_per_s = gpu.peak_flops_per_s[arithmetic] * share
    sustained = gpu.sustained_flops_per_s[arithmetic]
    bytes_per_s = gpu.bytes_per_s * numbers.memory_share
    tile_sizes = _tiles_for(kernel, gpu, arithmetic)
    splits = _UNSPLIT if is_old else _SPLITS
    m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
    narrow, lead = numbers.narrow, numbers.lead
    memory_s = kernel.moved_bytes / bytes_per_s
    results = batch * m * n
    best_s = math.inf
    for tile in tile_sizes:
        is_wide = (tile.m >= 2 * m and tile.m > _NARROWEST) or (
            tile.n >= 2 * n and tile.n > _NARROWEST
        )
        if is_wide and tile is not tile_sizes[-1]:
            continue  # half of it would be empty
        tiles = batch * math.ceil(m / tile.m) * math.ceil(n / tile.n)
        flops = 2 * tile.m * tile.n * (1 + narrow * tile.operands)
        least_s = max(tiles * k * flops / sustained, memory_s)
        wave_s = flops * multiprocessors / flops_per_s
        for split in splits:
            depth = k / split
            if is_old:
                depth = depth * _span_slowdown(depth, m + n, tile, multiprocessors)
            waves = math.ceil(tiles * split / multiprocessors)
            time_s = max(waves * (depth + lead) * wave_s, least_s)
            if split > 1:
                partial_bytes = _PARTIAL_BYTES * (split + 1) * results
                time_s += _SPLIT_SUM_START_S + partial_bytes / bytes_per_s
            best_s = min(best_s, time_s)
            if tiles * split >= 4 * multiprocessors or k < _SHORTEST_K * split:
                break  # more parts would only cost
    return best_s


def _span_slowdown(k: float, rows: float, tile: _Tile, multiprocessors: int) -> float:
    """How much slower where the rows in flight span more than addresses are kept at hand for.

    Seen on P4 and P100 in NeuSight's measurements of fp32 products.
    """
    resident = max(1, min(8, 2 * 128 * 128 // (tile.m * tile.n)))
    in_flight = 2 * math.sqrt(multiprocessors * resident * tile.m * tile.n)
    span_bytes = 4 * k * math.sqrt(min(rows, in_flight) * rows)
    fetched = 1 / tile.m + 1 / tile.n
    return 1 + _SPAN_COST * fetched * max(0.0, 1 - _SPAN_BYTES / max(span_bytes, 1.0))


def _tiles_for(kernel: Product, gpu: RooflineGpu, arithmetic: str) -> tuple[_Tile, ...]:
    """The tiles that libraries have: fewer for plain fp32, and for batches of it before Hopper.

    Source: names of the kernels in NeuSight's measurements on P4, P100, T4, V100 and A100.
    """
    if arithmetic != "fp32":
        return _TENSOR_TILES
    return _BATCHED_TILES if kernel.batch > 1 and gpu.has_few_batched_tiles else _PLAIN_TILES


def product_family(kernel: Product, arithmetic: str) -> str:
    """Which calibration row is of a product: its family, its arithmetic, how it is loaded."""
    kind = _arithmetic_class(arithmetic)
    if kind == "fp32":
        return f"{kernel.family}_fp32"
    lanes = 8 if kind == "16" else 4
    loading = ""
    if kernel.aligned < lanes:
        loading = "_odd" if kernel.aligned > 1 else "_single"
    elif kind == "tf32" and kernel.turned:
        loading = "_turned"
    return f"{kernel.family}_{kind}{loading}"


def _without_loading(family: str) -> str:
    """The family without how it is loaded."""
    for suffix in ("_odd", "_single", "_turned"):
        family = family.removesuffix(suffix)
    return family


def _arithmetic_class(arithmetic: str) -> str:
    if arithmetic in ("fp16", "bf16"):
        return "16"
    return "tf32" if arithmetic == "tf32" else "fp32"


def _peak_share(
    share: float, kernel: Product, gpu: RooflineGpu, arithmetic: str, calibration: Calibration
) -> float:
    """The share of the peak reached here: more where a multiprocessor does less in a cycle."""
    exponent = calibration.number(f"lightness_{_lightness_row(kernel, arithmetic)}")
    if product_family(kernel, arithmetic).endswith(("_odd", "_single")):
        exponent = 1.0  # held up by loading, whatever the arithmetic could do
    reached = share * math.pow(gpu.flops_per_cycle_ratio[arithmetic], -exponent)
    return min(reached, max(HIGHEST_SHARE, share))


def _lightness_row(kernel: Product, arithmetic: str) -> str:
    """The kind of product that a calibration row of lightness is of."""
    if arithmetic in ("fp32", "fp64"):
        return "direct" if kernel.family.startswith("direct") else "fp32"
    return "conv" if kernel.family.startswith(("forward", "input", "weight")) else "gemm"


# A pass over memory: bytes at a share of bandwidth, or the instructions of its elements
#
#     time = launches x start + ( memory^4 + work^4 + serial^4 )^(1/4)
#
#     memory = bytes / (bandwidth x share), faster where everything fits the L2 cache
#     work   = (elements x cycles + thread blocks x unit) / (multiprocessors x clock)
#     serial = elements / thread blocks x serial / clock: a block's elements, one after another
#
# Every family has a row with these numbers in `data/kernel_passes.csv`.


def pass_time_s(kernel: Pass, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one pass on one GPU."""
    numbers = calibration.of_pass(kernel.family)
    bytes_per_s = gpu.bytes_per_s * numbers.share
    if kernel.moved_bytes < calibration.number("cache_fill") * gpu.cache_bytes:
        bytes_per_s *= calibration.number("cache_gain")
    memory_s = kernel.moved_bytes / bytes_per_s
    cycles = kernel.elements * numbers.cycles
    serial_s = 0.0
    if kernel.thread_blocks != math.inf:
        cycles += kernel.thread_blocks * numbers.unit_cycles
        serial_s = kernel.elements / max(kernel.thread_blocks, 1.0) * numbers.serial_cycles
        serial_s /= gpu.clock_hz
    work_s = cycles / gpu.cycles_per_s
    start_s = kernel.launches * numbers.start_s
    longest_s = max(memory_s, work_s, serial_s)
    if longest_s <= 0:
        return start_s
    powers = (memory_s / longest_s) ** 4 + (work_s / longest_s) ** 4 + (serial_s / longest_s) ** 4
    return start_s + longest_s * math.sqrt(math.sqrt(powers))
