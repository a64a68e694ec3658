"""The two sides of the roofline model: what a GPU can do in a second, and what a step asks of it.

In: a `Gpu` of the facts table; a `Profile` of a step. Out: a `RooflineGpu`, with the rates that
kernels really reach under its clock, power limit and memory; the step's `Trace` at a batch size.
`predict.kernel_time` makes times of both. Williams, Waterman, Patterson 2009, doi
10.1145/1498765.1498785; what power sustains is fitted (docs/models/time.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.caching import ById
from outlay.errors import InputError
from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.trace.profile import Op, Precision, Profile, Trace

REFERENCE_CACHE_BYTES = 4 * 2**20
"""L2 where the facts table has none: that of the smallest board that torch runs on."""

_TENSOR = ("fp16", "bf16", "tf32")
_WITH_TENSOR_CORES = frozenset(
    {"Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"}
    | {"CDNA1", "CDNA2", "CDNA3", "CDNA4", "RDNA3"}
)
_GEFORCE = re.compile(r"(GTX|RTX [2-5]0[5-9]0|TITAN)")
_BEFORE_VOLTA = frozenset({"Kepler", "Maxwell", "Pascal"})
_FEW_BATCHED_TILES = frozenset({"Pascal", "Volta", "Turing", "Ampere"})
_LEAST_POWER = 0.3
# Assumes: drivers take no limit below about a third of the one a board was shipped with (a guess).

# The GPU


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RooflineGpu:
    """A GPU as the model of time sees it."""

    name: str
    multiprocessors: int
    """Compute units of AMD."""
    clock_hz: float
    bytes_per_s: float
    """What a plain copy reaches, over what it reaches on the reference GPU's kind of memory."""
    cache_bytes: float
    peak_flops_per_s: Mapping[str, float]
    """Of all multiprocessors at boost clock, by arithmetic."""
    sustained_flops_per_s: Mapping[str, float]
    """What the power limit sustains, by arithmetic."""
    flops_per_cycle_ratio: Mapping[str, float]
    """FLOPs of one multiprocessor in a cycle, over the reference GPU's: where they are few, it is
    easily kept busy."""
    memory_lightness: float = 1.0
    """What is left of the obstacles to reaching the bandwidth, where a multiprocessor is brought
    fewer bytes in a cycle than on the reference GPU."""
    direct_share: float = 0.0
    """What convolutions without tensor cores reach of the peak at least, on GPUs before Volta."""
    transformed_share: float = 0.0
    """The same of those that go through a transform, which spares arithmetic: before Ampere."""
    is_before_volta: bool = False
    """Whether it is of the years before Volta, whose libraries split no products."""
    has_few_batched_tiles: bool = False
    """Whether batches of fp32 products come in two tiles only."""

    @property
    def tensor_types(self) -> frozenset[str]:
        """The types that its tensor cores take."""
        return tensor_types(self.peak_flops_per_s)

    @property
    def cycles_per_s(self) -> float:
        """Cycles of all multiprocessors in a second."""
        return self.multiprocessors * self.clock_hz

    def arithmetic(self, precision: Precision) -> str:
        """What it computes with: `tensor` types where it has them, otherwise fp32."""
        return arithmetic_of(precision, self.peak_flops_per_s)


def tensor_types(kinds: Container[str]) -> frozenset[str]:
    """The types that tensor cores take, of the kinds of arithmetic there are."""
    return frozenset(kind for kind in _TENSOR if kind in kinds)


def roofline_of(gpu: Gpu, calibration: Calibration) -> RooflineGpu:
    """A GPU's figures, held to what its power limit sustains; worked out once."""
    return _roofline_of(ById(gpu), ById(calibration))


@lru_cache(maxsize=512)
def _roofline_of(of_gpu: ById[Gpu], of_calibration: ById[Calibration]) -> RooflineGpu:
    gpu, calibration = of_gpu.value, of_calibration.value
    peaks = _peaks(gpu)
    peaks["fp32"] *= _matrix_over_vector_fp32(gpu, calibration)
    clock_ratio = _clock_over_boost(gpu, calibration)
    return RooflineGpu(
        name=gpu.name,
        multiprocessors=gpu.sm_count,
        clock_hz=gpu.boost_hz * clock_ratio,
        bytes_per_s=gpu.memory_bytes_per_s * _memory_share(gpu, calibration),
        cache_bytes=gpu.l2_bytes or REFERENCE_CACHE_BYTES,
        peak_flops_per_s={kind: peak * clock_ratio for kind, peak in peaks.items()},
        sustained_flops_per_s={
            kind: _sustained_flops_per_s(gpu, kind, peak, calibration)
            for kind, peak in peaks.items()
        },
        flops_per_cycle_ratio={
            kind: peak / (gpu.sm_count * gpu.boost_hz) / calibration.number(f"reference_{kind}")
            for kind, peak in peaks.items()
        },
        memory_lightness=_memory_lightness(gpu, calibration),
        direct_share=_share_if(
            gpu.architecture in _BEFORE_VOLTA, "share_direct_before_volta", calibration
        ),
        transformed_share=_share_if(
            "bf16" not in peaks, "share_transformed_before_ampere", calibration
        ),
        is_before_volta=gpu.architecture in _BEFORE_VOLTA,
        has_few_batched_tiles=gpu.architecture in _FEW_BATCHED_TILES,
    )


def _peaks(gpu: Gpu) -> dict[str, float]:
    """Dense peaks of the arithmetic that training uses; no tensor types without tensor cores.

    The GTX boards of Turing have none.
    """
    tensor = gpu.architecture in _WITH_TENSOR_CORES and not gpu.name.startswith("GTX")
    kinds = ("fp64", "fp32", *(_TENSOR if tensor else ()))
    return {kind: gpu.peak_flops_per_s[kind] for kind in kinds if kind in gpu.peak_flops_per_s}


def _matrix_over_vector_fp32(gpu: Gpu, calibration: Calibration) -> float:
    """What matrix units do in plain fp32, over the vector units of the datasheet's peak."""
    name = f"matrix_fp32_{gpu.architecture}"
    return calibration.number(name) if name in calibration.values else 1.0


def arithmetic_of(precision: Precision, kinds: Container[str]) -> str:
    """What a GPU with these kinds computes with: `tensor` types where it has them, or fp32."""
    return precision if precision not in ("int", "fp32") and precision in kinds else "fp32"


def _clock_over_boost(gpu: Gpu, calibration: Calibration) -> float:
    """GeForce boards run faster than the boost clock on their box; others are held to it."""
    return calibration.number("clock_geforce") if _is_geforce(gpu) else 1.0


def _is_geforce(gpu: Gpu) -> bool:
    return bool(_GEFORCE.match(gpu.name)) and gpu.form != "laptop"


def _sustained_flops_per_s(gpu: Gpu, kind: str, peak: float, calibration: Calibration) -> float:
    """FLOP/s that the board's power sustains, beside what it draws at rest.

    Tensor cores: power goes with the square of the clock, so the rate with the root of the power.
    Plain fp32: so many FLOPs a watt. GeForce boards have power to spare for their tensor cores,
    which add in fp32 at half the rate.
    """
    watts = max(gpu.tdp_w - calibration.number("power_at_rest"), 1.0)
    if kind not in _TENSOR:
        return watts * calibration.first(f"power_fp32_{gpu.architecture}", "power_fp32")
    if _is_geforce(gpu):
        return math.inf
    memory = "HBM" if _is_stacked(gpu) else "GDDR"
    per_watt = calibration.first(
        f"power_tensor_{gpu.architecture}_{memory}",
        f"power_tensor_{gpu.architecture}",
        "power_tensor",
    )
    if kind == "tf32":
        per_watt /= 2
    return math.sqrt(peak * per_watt * watts)


def _memory_share(gpu: Gpu, calibration: Calibration) -> float:
    """Stacked memory delivers the largest share; old boards and checked GDDR less."""
    if gpu.architecture in _BEFORE_VOLTA:
        return calibration.number("memory_share_old")
    return 1.0 if _is_stacked(gpu) else calibration.number("memory_share_gddr")


def _memory_lightness(gpu: Gpu, calibration: Calibration) -> float:
    """By the bytes that a multiprocessor is brought in a cycle, over the reference GPU's."""
    bytes_per_cycle = gpu.memory_bytes_per_s / (gpu.sm_count * gpu.boost_hz)
    ratio = bytes_per_cycle / calibration.number("reference_bytes")
    return math.pow(min(ratio, 1.0), calibration.number("lightness_memory"))


def _share_if(holds: bool, name: str, calibration: Calibration) -> float:
    return calibration.number(name) if holds else 0.0


def _is_stacked(gpu: Gpu) -> bool:
    return (gpu.facts["memory_type"].text or "").startswith("HBM")


# Under a power limit


def power_limit_speed(gpu: Gpu, limit_w: float | None, calibration: Calibration) -> float:
    """Training speed under a power limit, over that at the limit a GPU was shipped with."""
    return 1.0 if limit_w is None else speed_at_power_share(limit_w / gpu.tdp_w, calibration)


def power_limit_error(gpu: Gpu, limit_w: float | None, calibration: Calibration) -> float:
    """The relative error of that speed: a part of what the limit takes."""
    lost = 1 - power_limit_speed(gpu, limit_w, calibration)
    return calibration.number("power_loss_error") * lost


def speed_at_power_share(share: float, calibration: Calibration) -> float:
    """Training speed at a share of the power limit a GPU was shipped with, over that at all of it.

    One curve through published training under limits on V100, Quadro RTX 6000, A40, A100 and
    RTX 3090: little is lost at first, then ever more.
    """
    if share >= 1:
        return 1.0
    bend = calibration.number("power_loss_bend")
    lost: float = calibration.number("power_loss") * (1 - share) ** bend
    return max(1 - lost, 0.1)


def checked_power_limit_w(limit_w: float | None, gpu: Gpu) -> float | None:
    """A power limit that a driver would take; None where it is none."""
    if limit_w is None or limit_w >= gpu.tdp_w:
        return None
    least_w = _LEAST_POWER * gpu.tdp_w
    if limit_w < least_w:
        raise InputError(
            f"A power limit of {limit_w:g} W is too low for {gpu.name}.",
            why=f"It was shipped with {gpu.tdp_w:g} W; drivers take no less than about a third.",
            fix=f"Give {least_w:.0f} W or more.",
        )
    return limit_w


# The step


def trace_at(profile: Profile, batch_size: int, precision: Precision | None = None) -> Trace:
    """The step at a batch size; worked out once."""
    return _trace_at(ById(profile), batch_size, precision)


@lru_cache(maxsize=256)
def _trace_at(profile: ById[Profile], batch_size: int, precision: Precision | None) -> Trace:
    return with_precision(profile.value.at(batch_size), precision)


def with_precision(trace: Trace, precision: Precision | None) -> Trace:
    """The step with its matrix arithmetic in another precision; traffic stays as traced."""
    if precision is None:
        return trace
    return replace(trace, ops=tuple(_with_precision(op, precision) for op in trace.ops))


def _with_precision(op: Op, precision: Precision) -> Op:
    is_matrix = op.kind in ("gemm", "conv", "attention", "rnn")
    return replace(op, precision=precision) if is_matrix else op


def ideal_time_s(trace: Trace, gpu: Gpu) -> float:
    """The time of a step's FLOPs at the dense peaks of the arithmetic it runs in."""
    flops = _flops_by_arithmetic(ById(trace), frozenset(_peaks(gpu)))
    return sum(amount / gpu.peak(kind) for kind, amount in flops.items())


@lru_cache(maxsize=1024)
def _flops_by_arithmetic(trace: ById[Trace], kinds: frozenset[str]) -> Mapping[str, float]:
    """What a GPU with these kinds of arithmetic computes in each; added up once."""
    flops: dict[str, float] = {}
    for op in trace.value.ops:
        if op.flops:
            kind = arithmetic_of(op.precision, kinds)
            flops[kind] = flops.get(kind, 0.0) + op.count * op.flops
    return flops


def flops_of(trace: Trace) -> float:
    """FLOPs of one step, added up once."""
    return _flops_of(ById(trace))


@lru_cache(maxsize=1024)
def _flops_of(trace: ById[Trace]) -> float:
    return trace.value.flops
