"""Time on the device, kernel by kernel.

In: a step's `Trace`, a `RooflineGpu`, the fitted numbers. Out: a `DeviceTime`, with its parts and
the error to expect. An operator becomes the kernels a GPU runs for it (`predict.kernels`,
`predict.convolution`); each is a matrix product or a pass over memory, and the device pauses about
a microsecond before each. docs/models/time.md has the equations with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from outlay.caching import ById
from outlay.predict.calibration import Calibration, ProductNumbers
from outlay.predict.convolution import SAVED_BY_TRANSFORM, TRANSFORMED, convolution_kernels
from outlay.predict.kernels import (
    Kernel,
    Pass,
    Product,
    Stated,
    attention_kernels,
    fused_kernels,
    matmul_kernels,
    norm_kernels,
    pass_kernels,
    recurrent_kernels,
    shapeless_kernels,
    stated_kernels,
)
from outlay.predict.roofline import RooflineGpu, arithmetic_of, tensor_types
from outlay.trace.profile import CompiledOp, Kind, Op, Phase, Trace
from outlay.uncertainty import Array

Places = npt.NDArray[np.intp]
"""Rows of a table."""

COMPILED = "compiled"
"""Among the errors of kernels: that nothing says how well compiled code is predicted."""

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
    table = _kernel_table(trace, frozenset(gpu.peak_flops_per_s), of_calibration)
    once_s = table.times_s(gpu, calibration)
    times_s = table.counts * once_s
    bound = table.products.bound_by_arithmetic(gpu)
    families = table.family.sums(times_s)
    kinds = table.kind.sums(times_s)
    total_s = sum(kinds.values())
    kernel_errors = _kernel_errors(families, total_s, calibration)
    if trace.value.compiled_calls:
        kernel_errors[COMPILED] = calibration.number("compiled_error")
    return DeviceTime(
        total_s=total_s,
        by_kind_s=dict(sorted(kinds.items(), key=lambda item: -item[1])),
        by_phase_s=table.phase.sums(table.phase_counts * once_s[table.phase_kernels]),
        arithmetic_s=sum(times_s[table.product_rows[bound]].tolist()),
        kernel_error=math.hypot(*kernel_errors.values()),
        kernel_errors=kernel_errors,
        unknown_s=sum(
            op.count * op_time_s(op, gpu, calibration)
            for op in trace.value.ops
            if op.name in trace.value.unknown_ops
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """To which of some groups each row belongs."""

    names: tuple[str, ...]
    """In the order they first come."""
    places: Places

    def sums(self, amounts: Array) -> dict[Any, float]:
        """What each group adds up to, one row after another."""
        totals = np.bincount(self.places, weights=amounts, minlength=len(self.names))
        return dict(zip(self.names, totals.tolist(), strict=True))


def _groups(names: Sequence[str]) -> _Groups:
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return _Groups(tuple(places), np.asarray([places[name] for name in names], np.intp))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _KernelTable:
    """Every kernel of a step once, in columns: on all GPUs with the same arithmetic."""

    counts: Array
    """How often each runs in a step."""
    kind: _Groups
    family: _Groups
    phase: _Groups
    phase_counts: Array
    phase_kernels: Places
    """A row for each kernel and phase: which kernel, and how often it runs there."""
    products: _Products
    product_rows: Places
    passes: _Passes
    pass_rows: Places
    stated: tuple[tuple[int, Stated], ...]

    def times_s(self, gpu: RooflineGpu, calibration: Calibration) -> Array:
        """Seconds of each kernel once, with the pause before it."""
        pause_s = calibration.number("kernel_pause_s")
        times_s = np.empty(len(self.counts))
        times_s[self.product_rows] = self.products.repeats * pause_s + self.products.times_s(gpu)
        times_s[self.pass_rows] = self.passes.launches * pause_s + self.passes.times_s(
            gpu, calibration
        )
        for row, kernel in self.stated:
            times_s[row] = kernel_time_s(kernel, gpu, calibration)
        return times_s


@lru_cache(maxsize=64)
def _kernel_table(
    trace: ById[Trace], arithmetic: frozenset[str], of_calibration: ById[Calibration]
) -> _KernelTable:
    """The kernels of a step on GPUs that have these kinds of arithmetic."""
    calibration = of_calibration.value
    rows = _kernel_counts(trace, tensor_types(arithmetic))
    kernels = [kernel for _, kernel, _ in rows]
    products = [(row, one) for row, one in enumerate(kernels) if isinstance(one, Product)]
    passes = [(row, one) for row, one in enumerate(kernels) if isinstance(one, Pass)]
    in_phases = [(row, *phase) for row, (_, _, phases) in enumerate(rows) for phase in phases]
    return _KernelTable(
        counts=np.asarray([sum(count for _, count in phases) for _, _, phases in rows], float),
        kind=_groups([kind for kind, _, _ in rows]),
        family=_groups([_family(kernel, arithmetic) for kernel in kernels]),
        phase=_groups([phase for _, phase, _ in in_phases]),
        phase_counts=np.asarray([count for _, _, count in in_phases], float),
        phase_kernels=np.asarray([row for row, _, _ in in_phases], np.intp),
        products=_products([one for _, one in products], arithmetic, calibration),
        product_rows=np.asarray([row for row, _ in products], np.intp),
        passes=_passes([one for _, one in passes], calibration),
        pass_rows=np.asarray([row for row, _ in passes], np.intp),
        stated=tuple((row, one) for row, one in enumerate(kernels) if isinstance(one, Stated)),
    )


def _family(kernel: Kernel, arithmetic: frozenset[str]) -> str:
    """The calibration row that a kernel's error is of."""
    if isinstance(kernel, Product):
        return product_family(kernel, arithmetic_of(kernel.precision, arithmetic))
    return kernel.family


@lru_cache(maxsize=64)
def _kernel_counts(
    trace: ById[Trace], tensor_types: frozenset[str]
) -> tuple[tuple[Kind, Kernel, tuple[tuple[Phase, float], ...]], ...]:
    """Every kernel of a step once, with how often it runs in each phase, by tensor types."""
    counts: dict[tuple[Kind, Kernel], dict[Phase, float]] = {}
    for op in trace.value.ops:
        for kernel in _kernels_on(op, tensor_types):
            phases = counts.setdefault((op.kind, kernel), {})
            phases[op.phase] = phases.get(op.phase, 0.0) + op.count
    return tuple((kind, kernel, tuple(phases.items())) for (kind, kernel), phases in counts.items())


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
    kernels = _kernels_on(op, gpu.tensor_types)
    return sum(kernel_time_s(kernel, gpu, calibration) for kernel in kernels)


def _kernels_on(op: Op, tensor_types: frozenset[str]) -> tuple[Kernel, ...]:
    """The kernels of an operator on GPUs whose tensor cores take these types."""
    before_ampere = "tf32" not in tensor_types
    return kernels_of(op, tensor_cores=op.precision in tensor_types, transforms=before_ampere)


@lru_cache(maxsize=65_536)
def kernels_of(op: Op, *, tensor_cores: bool, transforms: bool = False) -> tuple[Kernel, ...]:
    """The kernels one operator starts; none for a view. `transforms`: see `convolution_kernels`."""
    if op.launches <= 0 and op.moved_bytes <= 0 and op.flops <= 0:
        return ()
    if isinstance(op, CompiledOp) and op.is_fused:
        return fused_kernels(op)
    if op.efficiency is not None:
        return stated_kernels(op)
    if not op.shapes:
        return shapeless_kernels(op)
    if op.kind == "conv" and "convolution" in op.name and len(op.shapes) > 2:
        if tensor_cores and isinstance(op, CompiledOp) and op.is_turned:
            op = replace(op, layout="channels_last")
        return convolution_kernels(op, tensor_cores=tensor_cores, transforms=transforms)
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


_SPLITS = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
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
HIGHEST_MEMORY_SHARE = 0.93
"""Of the bandwidth: what plain copies reach on the reference GPU."""
HIGHEST_SHARE = 0.97
"""Of the peak: what is easier to feed than the reference GPU reaches no more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tiles:
    """The tiles that libraries have: fewer for plain fp32, and for batches of it before Hopper.

    Source: names of the kernels in NeuSight's measurements on P4, P100, T4, V100 and A100.
    """

    m: Array
    n: Array
    operands: Array
    """Rows and columns fetched for one multiply-add, beyond those of the largest tiles."""


def _tiles(*sizes: tuple[int, int]) -> _Tiles:
    m, n = np.asarray(sizes, float).T
    return _Tiles(m, n, np.maximum(1 / m + 1 / n - 1 / 64, 0.0))


_SMALL = ((64, 64), (64, 32), (32, 64), (32, 32))
_TENSOR_TILES = _tiles((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), *_SMALL)
_PLAIN_TILES = _tiles((128, 128), (64, 128), (128, 64), (32, 128), (128, 32), *_SMALL)
_BATCHED_TILES = _tiles((128, 128), (64, 128))


def product_time_s(kernel: Product, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one product on one GPU."""
    products = _products([kernel], frozenset(gpu.peak_flops_per_s), calibration)
    return float(products.times_s(gpu)[0])


@dataclass(frozen=True, slots=True)
class _Way:
    """What products have in common that are computed and loaded alike."""

    arithmetic: str
    numbers: ProductNumbers
    lightness: float
    """How much more of the peak is reached where multiprocessors do less in a cycle."""
    saved: float = 1.0
    """What of its arithmetic a transform spares, at most: times so much."""
    is_plain_product: bool = True
    """Whether it is a product of matrices as they lie, not one of a convolution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Products:
    """Products in columns; `way` is the place of a row among `ways`."""

    m: Array
    n: Array
    k: Array
    batch: Array
    repeats: Array
    moved_bytes: Array
    flops: Array
    ways: tuple[_Way, ...]
    way: Places
    tensor: Places
    """The rows by the tiles that libraries have for them: of tensor cores and fp64 ..."""
    plain: Places
    """... of plain fp32 ..."""
    batched: Places
    """... and of batches of it."""

    def times_s(self, gpu: RooflineGpu) -> Array:
        """Seconds of each on one GPU, with the fastest tile and split."""
        best_s = np.empty(len(self.m))
        batched = _BATCHED_TILES if gpu.has_few_batched_tiles else _PLAIN_TILES
        for rows, tiles in (
            (self.tensor, _TENSOR_TILES),
            (self.plain, _PLAIN_TILES),
            (self.batched, batched),
        ):
            if len(rows):
                best_s[rows] = self._fastest_s(rows, tiles, gpu)
        start_s = np.asarray([way.numbers.start_s for way in self.ways])[self.way]
        return self.repeats * (start_s + best_s)

    def _fastest_s(self, rows: Places, tiles: _Tiles, gpu: RooflineGpu) -> Array:
        """Seconds of some rows: the least over tiles (second axis) and splits (third)."""
        way = self.way[rows]
        m, n, k, batch = (column[rows, None] for column in (self.m, self.n, self.k, self.batch))

        def of_way(amounts: Sequence[float]) -> Array:
            return np.asarray(amounts)[way, None]

        numbers = [way.numbers for way in self.ways]
        flops_per_s = of_way([_reached_flops_per_s(way, gpu) for way in self.ways])
        sustained = of_way(
            [gpu.sustained_flops_per_s[way.arithmetic] * way.saved for way in self.ways]
        )
        shares = of_way([one.memory_share for one in numbers])
        bytes_per_s = gpu.bytes_per_s * reached_memory_share(shares, gpu)
        memory_s = self.moved_bytes[rows, None] / bytes_per_s
        multiprocessors = gpu.multiprocessors
        tile_count = batch * np.ceil(m / tiles.m) * np.ceil(n / tiles.n)
        narrow = of_way([one.narrow for one in numbers])
        flops = 2 * tiles.m * tiles.n * (1 + narrow * tiles.operands)
        least_s = np.maximum(tile_count * k * flops / sustained, memory_s)[..., None]
        wave_s = (flops * multiprocessors / flops_per_s)[..., None]
        splits = _SPLITS
        depth = k[..., None] / splits
        parts = tile_count[..., None] * splits
        lead = of_way([one.lead for one in numbers])[..., None]
        waves = np.ceil(parts / multiprocessors)
        time_s = np.maximum(waves * (depth + lead) * wave_s, least_s)
        partial_bytes = _PARTIAL_BYTES * (splits[1:] + 1) * (batch * m * n)[..., None]
        time_s[..., 1:] += _SPLIT_SUM_START_S + partial_bytes / bytes_per_s[..., None]
        if gpu.is_before_volta:
            # libraries of before Volta: no product is split, and rows that lie far apart cost
            old = np.asarray([way.is_plain_product for way in self.ways])[way]
            slowed = _span_slowdown(k[old][..., None], (m + n)[old][..., None], tiles, gpu)
            time_s[old, :, :1] = np.maximum(
                waves[old, :, :1] * (k[old][..., None] * slowed + lead[old]) * wave_s[old],
                least_s[old],
            )
            time_s[old, :, 1:] = math.inf
        enough = (parts >= 4 * multiprocessors) | (k[..., None] < _SHORTEST_K * splits)
        time_s[..., 1:][enough[..., :-1]] = math.inf  # more parts would only cost
        is_wide = ((tiles.m >= 2 * m) & (tiles.m > _NARROWEST)) | (
            (tiles.n >= 2 * n) & (tiles.n > _NARROWEST)
        )
        is_wide[:, -1] = False
        time_s[is_wide] = math.inf  # half of it would be empty
        fastest_s: Array = time_s.min(axis=(1, 2))
        return fastest_s

    def bound_by_arithmetic(self, gpu: RooflineGpu) -> npt.NDArray[np.bool_]:
        """By the roofline: whose arithmetic takes longer than its bytes."""
        peaks = np.asarray([gpu.peak_flops_per_s[way.arithmetic] for way in self.ways])
        bound: npt.NDArray[np.bool_] = (
            self.flops / peaks[self.way] > self.repeats * self.moved_bytes / gpu.bytes_per_s
        )
        return bound


def _products(
    kernels: Sequence[Product], arithmetic: frozenset[str], calibration: Calibration
) -> _Products:
    """Products in columns, as GPUs with these kinds of arithmetic compute them."""
    kinds = [arithmetic_of(kernel.precision, arithmetic) for kernel in kernels]
    ways: dict[_Way, int] = {}
    way = [
        ways.setdefault(_way(kernel, kind, calibration), len(ways))
        for kernel, kind in zip(kernels, kinds, strict=True)
    ]
    tiles = [
        "tensor" if kind != "fp32" else "batched" if kernel.batch > 1 else "plain"
        for kernel, kind in zip(kernels, kinds, strict=True)
    ]

    def rows_of(name: str) -> Places:
        return np.asarray([row for row, its in enumerate(tiles) if its == name], np.intp)

    columns = ("m", "n", "k", "batch", "repeats", "moved_bytes", "flops")
    return _Products(
        **{name: np.asarray([getattr(one, name) for one in kernels], float) for name in columns},
        ways=tuple(ways),
        way=np.asarray(way, np.intp),
        tensor=rows_of("tensor"),
        plain=rows_of("plain"),
        batched=rows_of("batched"),
    )


def _way(kernel: Product, arithmetic: str, calibration: Calibration) -> _Way:
    family = product_family(kernel, arithmetic)
    numbers = calibration.of_product(
        family, _without_loading(family), f"gemm_{_arithmetic_class(arithmetic)}"
    )
    exponent = calibration.number(f"lightness_{_lightness_row(kernel, arithmetic)}")
    if family.endswith(("_odd", "_single")):
        exponent = 1.0  # held up by loading, whatever the arithmetic could do
    return _Way(
        arithmetic,
        numbers,
        exponent,
        saved=SAVED_BY_TRANSFORM if kernel.family == TRANSFORMED else 1.0,
        is_plain_product=not kernel.family.startswith("direct"),
    )


def _reached_flops_per_s(way: _Way, gpu: RooflineGpu) -> float:
    """The peak times the share reached: more where a multiprocessor does less in a cycle."""
    share = way.numbers.share
    reached = share * math.pow(gpu.flops_per_cycle_ratio[way.arithmetic], -way.lightness)
    if not way.is_plain_product:
        reached = max(reached, gpu.transformed_share if way.saved > 1 else gpu.direct_share)
    highest = max(HIGHEST_SHARE * way.saved, share)
    return gpu.peak_flops_per_s[way.arithmetic] * min(reached, highest)


def _span_slowdown(k: Array, rows: Array, tiles: _Tiles, gpu: RooflineGpu) -> Array:
    """How much slower where the rows in flight span more than addresses are kept at hand for.

    Seen on P4 and P100 in NeuSight's measurements of fp32 products.
    """
    m, n = tiles.m[:, None], tiles.n[:, None]
    resident = np.clip(2 * 128 * 128 // (m * n), 1, 8)
    in_flight = 2 * np.sqrt(gpu.multiprocessors * resident * m * n)
    span_bytes = 4 * k * np.sqrt(np.minimum(rows, in_flight) * rows)
    fetched = 1 / m + 1 / n
    beyond = np.maximum(0.0, 1 - _SPAN_BYTES / np.maximum(span_bytes, 1.0))
    slowdown: Array = 1 + _SPAN_COST * fetched * beyond
    return slowdown


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


def reached_memory_share(share: Array, gpu: RooflineGpu) -> Array:
    """What a kernel reaches of the bandwidth on a GPU, from its share on the reference GPU.

    What holds it back there, beside memory, holds it back less where a multiprocessor is brought
    fewer bytes in a cycle: then memory alone does.
    """
    most: Array = np.maximum(share, HIGHEST_MEMORY_SHARE)
    return most - (most - share) * gpu.memory_lightness


def pass_time_s(kernel: Pass, gpu: RooflineGpu, calibration: Calibration) -> float:
    """Seconds of one pass on one GPU."""
    return float(_passes([kernel], calibration).times_s(gpu, calibration)[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Passes:
    """Passes in columns."""

    moved_bytes: Array
    launches: Array
    start_s: Array
    share: Array
    """Of the bandwidth."""
    cycles: Array
    """Of all elements and blocks."""
    serial_cycles: Array
    """Of the elements of a block, one after another."""

    def times_s(self, gpu: RooflineGpu, calibration: Calibration) -> Array:
        """Seconds of each on one GPU."""
        bytes_per_s = gpu.bytes_per_s * reached_memory_share(self.share, gpu)
        in_cache = self.moved_bytes < calibration.number("cache_fill") * gpu.cache_bytes
        bytes_per_s[in_cache] *= calibration.number("cache_gain")
        memory_s = self.moved_bytes / bytes_per_s
        work_s = self.cycles / gpu.cycles_per_s
        serial_s = self.serial_cycles / gpu.clock_hz
        longest_s = np.maximum(np.maximum(memory_s, work_s), serial_s)
        longest_s[longest_s <= 0] = 1.0  # nothing to do beside its start
        powers = [
            (memory / longest) ** 4 + (work / longest) ** 4 + (serial / longest) ** 4
            for memory, work, serial, longest in zip(
                *(times.tolist() for times in (memory_s, work_s, serial_s, longest_s)), strict=True
            )
        ]
        busy_s = longest_s * np.sqrt(np.sqrt(np.asarray(powers)))
        times_s: Array = self.launches * self.start_s + busy_s
        return times_s


def _passes(kernels: Sequence[Pass], calibration: Calibration) -> _Passes:
    """Passes in columns, with the numbers of their families."""
    numbers = [calibration.of_pass(kernel.family) for kernel in kernels]
    blocks = np.asarray([kernel.thread_blocks for kernel in kernels], float)
    elements = np.asarray([kernel.elements for kernel in kernels], float)
    fixed = blocks != math.inf  # where the operator fixes the blocks that share the elements
    unit_cycles = np.asarray([one.unit_cycles for one in numbers], float)
    serial_cycles = np.asarray([one.serial_cycles for one in numbers], float)
    cycles = elements * np.asarray([one.cycles for one in numbers], float)
    cycles[fixed] += blocks[fixed] * unit_cycles[fixed]
    serial = np.zeros(len(kernels))
    serial[fixed] = elements[fixed] / np.maximum(blocks[fixed], 1.0) * serial_cycles[fixed]
    return _Passes(
        moved_bytes=np.asarray([kernel.moved_bytes for kernel in kernels], float),
        launches=np.asarray([kernel.launches for kernel in kernels], float),
        start_s=np.asarray([one.start_s for one in numbers], float),
        share=np.asarray([one.share for one in numbers], float),
        cycles=cycles,
        serial_cycles=serial,
    )
