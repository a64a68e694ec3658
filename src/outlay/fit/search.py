"""What to change so that a training step fits a GPU, or takes a larger batch, and what it costs.

Every change (`trace.target.Changes`) is made to the user's own step and traced again, alone and
together with others; time and memory are then predicted as for any step. Smaller passes, optimizer
state elsewhere and more GPUs follow from the traces without another one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from outlay.errors import OutlayError
from outlay.fit.advice import places_in
from outlay.fit.variants import (
    SINGLE,
    FitRequest,
    Variant,
    cheapest_offer,
    more_gpus,
    names_of,
    paged,
    priced_offers,
    smaller_passes,
    variant_of,
)
from outlay.hardware.gpu_names import single_gpu
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import offer_gpus
from outlay.plan.from_measurement import profile_for
from outlay.plan.placement import calibration
from outlay.plan.prediction import is_code
from outlay.predict.calibration import Calibration
from outlay.predict.kernels import compiled_profile
from outlay.predict.memory import memory_need
from outlay.predict.parallel_time import computes_in_16_bits
from outlay.predict.step import predict_step
from outlay.progress import Progress, silent
from outlay.trace.process import end_running
from outlay.trace.profile import Profile
from outlay.trace.target import SELECTED, UNCHANGED, Changes
from outlay.trace.trace_cache import TraceCache
from outlay.trace.tracing import profile_of
from outlay.units import MIB
from outlay.workload.workload import Step

TRACED_SIZES = (4, 16)
"""Two sizes tell what a changed step takes at any: the unchanged one was checked at more."""
_MOST_WORKERS = 4
_SAME_COST = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The step as it is, every way to change it, and the cheapest GPU that takes it unchanged."""

    gpu: Gpu
    batch_size: int | None
    """Samples of one update that were asked for; None: each way at its largest batch."""
    unchanged: Variant
    variants: tuple[Variant, ...]
    """Those that fit, cheapest first; then those that do not, by memory."""
    left_out: Mapping[str, str]
    """Changes that do not apply, and why."""
    bigger: Variant | None
    """The cheapest GPU on offer that takes the step as it is; None where none does."""


Tracer = Callable[[Changes], Profile]


# What to try


def singles(profile: Profile, gpu: Gpu) -> tuple[dict[str, Changes], dict[str, str]]:
    """The single changes worth a trace on this GPU, and why the others are not."""
    wanted, left_out = {}, {}
    mixed = computes_in_16_bits(profile)
    for name, changes in SINGLE.items():
        reason = _pointless(changes, profile, gpu, mixed=mixed)
        if reason:
            left_out[name] = reason
        else:
            wanted[name] = changes
    return wanted, left_out


def _pointless(changes: Changes, profile: Profile, gpu: Gpu, *, mixed: bool) -> str:
    """Why a change is not worth a look, or an empty text."""
    memory = profile.memory_at(max(profile.memory))
    if changes.arithmetic in ("bf16 autocast", "fp16 autocast") and mixed:
        if "bf16" not in gpu.peak_flops_per_s and profile.asks_for_bf16:
            return f"the step asks for bf16, which {gpu.name} lacks: ask for torch.float16 there"
        return "the step computes in 16 bits already"
    if changes.arithmetic is not None and changes.arithmetic.startswith("bf16"):
        if "bf16" not in gpu.peak_flops_per_s:
            return f"{gpu.name} has no bf16 units"
        if changes.arithmetic == "bf16" and memory.parameters < 3 * profile.parameters:
            return "the parameters are in 16 bits already"
    if changes.arithmetic == "fp16 autocast":
        if "bf16" in gpu.peak_flops_per_s:
            return "bf16 saves the same and needs no gradient scaler"
        if "fp16" not in gpu.peak_flops_per_s:
            return f"{gpu.name} has no fp16 units"
    if changes.update in ("8-bit", "offloaded") and memory.optimizer_state <= 0:
        return "the optimizer keeps no state"
    return ""


def combinations(traced: Sequence[Changes]) -> Iterator[Changes]:
    """The traced changes together: precision with recomputing, then with a smaller optimizer.

    LoRA goes with all of them but the optimizers, of whose state it leaves little.
    """
    arithmetic = [changes for changes in traced if changes.arithmetic]
    recompute = [changes for changes in traced if changes.recompute]
    small = [changes for changes in traced if changes.update in ("8-bit", "offloaded")]
    lora = [changes for changes in traced if changes.lora_rank]
    pairs = [both for a in arithmetic for r in recompute if (both := a.joined(r))]
    yield from pairs
    blocks = [changes for changes in (*pairs, *recompute) if changes.recompute == "blocks"]
    for changes in blocks[:2]:
        for other in (*small, *lora):
            both = changes.joined(other)
            if both is not None:
                yield both
    if not blocks:
        for a in arithmetic:
            for other in (*small, *lora):
                both = a.joined(other)
                if both is not None:
                    yield both


# The answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedStep:
    """What to change in a user's step, and where in their code."""

    fit: Fit
    places: Mapping[str, str]
    """The user's own lines at which to make the changes, by what is changed there."""
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the step fits, as it is or with some change."""
        return self.fit.unchanged.step.fits or any(
            variant.step.fits for variant in self.fit.variants
        )


def fit_on_gpu(
    target: str,
    gpu: str,
    *,
    batch_size: int | None = None,
    memory_cap_bytes: float | None = None,
    expandable_segments: bool = False,
    selected: float = SELECTED,
    together: bool = True,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> FittedStep:
    """What to change so that a step fits a GPU, or takes a larger batch.

    target: `path/to/file.py:function`, traced again with every change made; or a profile, which
    tells of those changes that need no other trace.
    gpu: its name, under any usual spelling.
    batch_size: samples of one update; None is each way at the largest batch it allows.
    selected: share of elements that a selection by unknown values keeps.
    together: also changes combined; without, only single ones.
    cache: where traces are kept; True is the user's own place, False nowhere.
    """
    match = single_gpu(gpu)
    path, _, function = target.rpartition(":")
    traced = is_code(target)
    if traced:
        progress(f"Tracing {target} ...")
    step = Step(target=target) if traced else Step(profile=target)
    profile = profile_for(step, selected, cache=cache, progress=progress)

    def trace(changes: Changes) -> Profile:
        traced = profile_of(target, TRACED_SIZES, changes=changes, selected=selected, cache=cache)
        mode = profile.compiled
        return traced if mode is None else compiled_profile(traced, mode, calibration())

    request = FitRequest(
        gpu=match.gpu,
        batch_size=batch_size,
        memory_cap_bytes=memory_cap_bytes,
        expandable_segments=expandable_segments,
    )
    tracer = trace if traced else None
    try:
        fit = fit_step(profile, request, calibration(), tracer, progress, together=together)
    finally:
        end_running()
    places = places_in(Path(path), function) if traced else {}
    return FittedStep(fit=fit, places=places, notes=(match.note,) if match.note else ())


def fit_step(
    profile: Profile,
    request: FitRequest,
    calibration: Calibration,
    trace: Tracer | None,
    progress: Progress = silent,
    *,
    together: bool = True,
) -> Fit:
    """Every way to make a step fit a GPU; without a tracer, those that need no other trace.

    Without `together`, changes are made one at a time.
    """
    request = replace(request, moments=moments_of(profile))
    wanted, left_out = singles(profile, request.gpu)
    profiles: dict[str, tuple[Changes, Profile]] = {}
    if trace is None:
        for name in wanted:
            left_out[name] = "needs the code: give path/to/file.py:function as TARGET"
    else:
        profiles, failed = _traced(wanted, trace, progress)
        left_out.update(failed)
        for name in [name for name, (_, traced) in profiles.items() if _is_same(traced, profile)]:
            left_out[name] = "changes nothing here"
            del profiles[name]
        done = [changes for changes, _ in profiles.values()]
        if together:
            named = {" + ".join(names_of(both)): both for both in combinations(done)}
            profiles.update(_traced(named, trace, progress)[0])
    unchanged = variant_of(profile, UNCHANGED, request, calibration)
    variants = [
        variant_of(traced, changes, request, calibration) for changes, traced in profiles.values()
    ]
    variants += smaller_passes([("", UNCHANGED, profile), *_flat(profiles)], request, calibration)
    variants += paged(profiles, request, calibration)
    variants += more_gpus([("", UNCHANGED, profile), *_flat(profiles)], request, calibration)
    compared = [_against(variant, unchanged, profile, calibration) for variant in variants]
    return Fit(
        gpu=request.gpu,
        batch_size=request.batch_size,
        unchanged=unchanged,
        variants=tuple(sorted(compared, key=_order)),
        left_out=left_out,
        bigger=_bigger(profile, request, calibration),
    )


def _is_same(changed: Profile, profile: Profile) -> bool:
    """Whether a change left the step as it was: it did so already, or has no such part."""
    size = max(TRACED_SIZES)
    mine, theirs = changed.at(size), profile.at(size)
    return (
        sum(op.count * op.launches for op in mine.ops)
        == sum(op.count * op.launches for op in theirs.ops)
        and mine.flops == theirs.flops
        and mine.moved_bytes == theirs.moved_bytes
        and abs(mine.memory.peak_bytes - theirs.memory.peak_bytes) < MIB
    )


def moments_of(profile: Profile) -> float:
    """How many numbers the optimizer keeps for each parameter."""
    memory = profile.memory_at(1)
    return memory.optimizer_state / max(memory.parameters, 1.0)


def _traced(
    wanted: Mapping[str, Changes], trace: Tracer, progress: Progress
) -> tuple[dict[str, tuple[Changes, Profile]], dict[str, str]]:
    """The profiles with the changes made, and why some could not be."""

    done = count(1)

    def attempt(changes: Changes) -> Profile | OutlayError:
        try:
            return trace(changes)
        except OutlayError as error:
            return error
        finally:
            number = next(done)
            progress(f"Tracing with changes ({number} of {len(wanted)}) ...", number, len(wanted))

    workers = min(max((os.cpu_count() or 2) // 2, 2), _MOST_WORKERS)
    pool = ThreadPoolExecutor(workers)
    try:
        answers = list(pool.map(attempt, wanted.values()))
    finally:  # an interrupted caller does not wait for the rest
        pool.shutdown(wait=False, cancel_futures=True)
    profiles: dict[str, tuple[Changes, Profile]] = {}
    failed: dict[str, str] = {}
    for (name, changes), answer in zip(wanted.items(), answers, strict=True):
        if isinstance(answer, OutlayError):
            failed[name] = answer.why or answer.what
        else:
            profiles[name] = (changes, answer)
    return profiles, failed


def _flat(
    profiles: Mapping[str, tuple[Changes, Profile]],
) -> list[tuple[str, Changes, Profile]]:
    return [(name, changes, profile) for name, (changes, profile) in profiles.items()]


def _against(
    variant: Variant, unchanged: Variant, profile: Profile, calibration: Calibration
) -> Variant:
    """The variant with what it saves and costs against the unchanged step at its own samples."""
    step, alone = variant.step, unchanged.step
    if not step.batch_size:
        return variant
    size = step.global_batch_size
    need = memory_need(profile, size, alone.placement.memory_budget, calibration)
    saved = need.reserved_bytes.likely - step.memory.reserved_bytes.likely
    ratio = None
    if alone.max_batch_size:
        best = predict_step(
            profile,
            replace(alone.placement, memory_cap_bytes=None),
            min(size, alone.max_batch_size),
            calibration,
            largest=alone.max_batch_size,
        )
        ratio = best.samples_per_s / step.samples_per_s
    return replace(variant, saved_bytes=saved, time_ratio=ratio)


def _order(variant: Variant) -> tuple[bool, int, int, float]:
    """Cheapest first; among those that cost the same within a few per cent, the simplest."""
    cost = variant.usd_per_million_samples
    return (
        not variant.step.fits,
        0 if cost is None else round(math.log(cost) / _SAME_COST),
        len(variant.kinds),
        variant.step.memory.reserved_bytes.likely if cost is None else cost,
    )


def _bigger(profile: Profile, request: FitRequest, calibration: Calibration) -> Variant | None:
    """The GPU on offer that runs the unchanged step cheapest."""
    best: Variant | None = None
    gpus = {gpu for offer in priced_offers() if offer.gpus == 1 for gpu in offer_gpus(offer)[:1]}
    for gpu in sorted(gpus, key=lambda gpu: gpu.name):
        if gpu.software.runs not in ("yes", "old builds") or gpu is request.gpu:
            continue
        placement = request.placement(gpu)
        size = request.batch_size or 1
        if not memory_need(profile, size, placement.memory_budget, calibration).fits:
            continue
        step = predict_step(
            profile, placement, request.batch_size, calibration, conditions=request.conditions
        )
        variant = Variant(
            name=gpu.name,
            changes=UNCHANGED,
            kinds=(),
            step=step,
            offer=cheapest_offer(gpu, 1),
        )
        if best is None or _order(variant) < _order(best):
            best = variant
    return best
