"""A step as torch.compile runs it, from the profile of the same step as it is written.

In: an eager `Profile`, a mode, the fitted numbers. Out: a `Profile` of `CompiledProfileOp`s, used
like any other. Its products, convolutions and attention are the same, and so is its memory, which
compiling mostly lowers: what it says of memory is that of eager code. docs/models/compile.md says
what is modelled, and what it was held against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.trace.profile import (
    CompiledProfileOp,
    CompileMode,
    Fused,
    Polynomial,
    Profile,
    ProfileOp,
    value_at,
)

_SHARED_KINDS = frozenset({"elementwise", "copy", "norm", "softmax", "reduction"})
"""What is fused where nobody noted which operations share data, by a share of its bytes."""
_NODES_PER_CONVOLUTION = 300
# Source: decide_layout_opt in torch/_inductor/graph.py, torch 2.13: with as many nodes of its graph
# for each convolution, images keep their order.
_TENSOR_CORES = ("fp16", "bf16", "tf32")


def compiled_profile(profile: Profile, mode: CompileMode, calibration: Calibration) -> Profile:
    """The step as compiled code; worked out once. One that is compiled stays as it is."""
    if profile.compiled is not None:
        return profile
    return _compiled_profile(ById(profile), mode, ById(calibration))


@lru_cache(maxsize=32)
def _compiled_profile(
    of_profile: ById[Profile], mode: CompileMode, calibration: ById[Calibration]
) -> Profile:
    profile = of_profile.value
    turns_images = _turns_images(profile.ops)
    reached = calibration.value.number("compiled_saving")
    ops = tuple(
        compiled
        for op, fused in _with_fused(profile, calibration.value)
        for compiled in _compiled_ops(op, fused, mode, reached, turns_images=turns_images)
    )
    kept = tuple(op for op in ops if _does_anything(op))
    return replace(
        profile,
        ops=kept,
        issued_ops=sum(op.count for op in kept),
        compiled=mode,
        eager=profile,
        notes=(*compiled_notes(profile, mode), *profile.notes),
    )


def compiled_notes(profile: Profile, mode: CompileMode) -> Iterator[str]:
    """What to know of a step that is predicted as compiled."""
    graphs = "" if mode == "default" else ", as CUDA graphs"
    yield (
        f"Predicted as compiled by torch.compile (mode {mode}){graphs}: by its rules of fusing, "
        "held against four measured steps alone, so that the range is wider. Memory is that of "
        "eager code, which compiling mostly lowers; the optimizer is eager."
    )
    if not profile.knows_fusions:
        yield (
            "Which of its operations share data is not in this profile: what fusing spares is an "
            "average over other steps. `outlay trace` of its code finds it out."
        )


def _with_fused(
    profile: Profile, calibration: Calibration
) -> Iterator[tuple[ProfileOp, Fused | None]]:
    """Each operation with what compiling leaves of it."""
    knows_fusions = profile.knows_fusions
    for op in profile.ops:
        if knows_fusions:
            yield op, op.fused
        elif op.phase == "optimizer":
            yield op, None
        else:
            yield op, _usual_fused(op, calibration)


def _usual_fused(op: ProfileOp, calibration: Calibration) -> Fused:
    """What is left of an operation of its kind on average."""
    if op.kind not in _SHARED_KINDS or op.launches <= 0 or op.efficiency is not None:
        return Fused(launches=op.launches)
    share = calibration.number(f"compiled_bytes_{op.kind}")
    return Fused(
        moved_bytes=tuple(share * coefficient for coefficient in op.moved_bytes),
        launches=op.launches * calibration.number("compiled_launches"),
    )


def _compiled_ops(
    op: ProfileOp, fused: Fused | None, mode: CompileMode, reached: float, *, turns_images: bool
) -> Iterator[ProfileOp]:
    """An operation as it is compiled; of what fusing could spare, a share is `reached`.

    So that share of its calls is fused, and the others stay as they are.
    """
    if fused is None:
        yield op
        return
    compiled = _compiled_op(op, fused, mode, turns_images=turns_images)
    if compiled.is_fused:
        alone = _compiled_op(op, Fused(launches=op.launches), mode, turns_images=False)
        yield replace(alone, count=op.count * (1 - reached), is_fused=False)
        yield replace(compiled, count=op.count * reached)
    else:
        yield compiled


def _compiled_op(
    op: ProfileOp, fused: Fused, mode: CompileMode, *, turns_images: bool
) -> CompiledProfileOp:
    turned = turns_images and op.kind == "conv" and op.precision in _TENSOR_CORES
    return CompiledProfileOp(
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        precision=op.precision,
        count=op.count,
        flops=op.flops,
        moved_bytes=op.moved_bytes if fused.moved_bytes is None else fused.moved_bytes,
        launches=fused.launches,
        layout=op.layout,
        shapes=op.shapes,
        efficiency=op.efficiency,
        is_fused=fused.moved_bytes is not None or _is_generated(op),
        is_turned=turned and op.layout in ("plain", "mixed"),
        in_graph=mode != "default",
    )


def _is_generated(op: ProfileOp) -> bool:
    """Whether an operator that is fused with nothing still gets a kernel of its own that is
    faster: where the library goes element by element because widths or strides differ."""
    is_plain = op.kind in ("elementwise", "copy") and op.name.startswith("aten.")
    return is_plain and op.layout == "unlike" and op.efficiency is None


def _does_anything(op: ProfileOp) -> bool:
    """Views are not there in compiled code, nor what is computed in another's kernel."""
    is_nothing = op.launches <= 0 and not any(op.moved_bytes) and not any(op.flops)
    return not (is_nothing and isinstance(op, CompiledProfileOp))


def _turns_images(ops: Sequence[ProfileOp]) -> bool:
    """Whether Inductor puts the images of all convolutions in channels last.

    It does unless convolutions are few, one has groups of several channels, or one with a kernel
    beyond 1x1 makes half the channels or fewer (decide_layout_opt).
    """
    forward = [op for op in ops if op.kind == "conv" and op.phase == "forward"]
    weights = [_sizes(op.shapes[1]) for op in forward if len(op.shapes) > 2]
    channels = [_sizes(op.shapes[0])[1] for op in forward if len(op.shapes) > 2]
    nodes = sum(op.count for op in ops if op.phase == "forward")
    if not weights or nodes >= _NODES_PER_CONVOLUTION * sum(op.count for op in forward):
        return False
    for weight, wide in zip(weights, channels, strict=True):
        if len(weight) < 3 or (weight[1] > 1 and weight[1] < wide and weight[0] != wide):
            return False
        if 2 * weight[0] <= weight[1] and weight[2] > 1:
            return False
    return True


def _sizes(shape: Sequence[Polynomial]) -> tuple[int, ...]:
    return tuple(round(value_at(size, 1)) for size in shape)
