"""The kernels an operator starts: matrix products, and passes over memory.

torch's list of operators is not what runs: cuDNN turns images around before it multiplies, a bias
is added by a kernel of its own, batch norm gives every channel to one block of threads. Here an
`Op` becomes the kernels a GPU runs for it; `predict.kernel_time` times them. `compiled_profile` is
a step as torch.compile runs it: a `Profile` like any other, of which products and memory are those
of eager code; docs/models/compile.md says what is modelled, and what it was held against.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.trace.profile import (
    CompiledProfileOp,
    CompileMode,
    Fused,
    Op,
    Polynomial,
    Precision,
    Profile,
    ProfileOp,
    value_at,
)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A batch of matrix products (m, k) x (k, n)."""

    family: str
    """How it is computed: `gemm`, or `forward`, `input`, `weight` of a convolution ..."""
    batch: float
    m: float
    n: float
    k: float
    precision: Precision
    moved_bytes: float
    aligned: int = 8
    """The largest power of 2, up to 64, in every row's length: elements that are loaded at once."""
    turned: bool = False
    """Whether an operand does not lie along the summed dimension, as the gradient of a weight."""
    repeats: int = 1
    """Times it runs, one after another: groups of a convolution that no kernel takes together."""

    @property
    def flops(self) -> float:
        """A multiply-add counts as two."""
        return 2 * self.repeats * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A kernel that reads, changes and writes elements."""

    family: str
    moved_bytes: float
    elements: float
    """Elements it handles: each costs instructions, whatever its bytes."""
    thread_blocks: float = math.inf
    """Blocks of threads that share the elements, where the operator fixes them: channels, rows."""
    launches: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A kernel whose speed somebody has told: the share it reaches of what a GPU can do at most."""

    flops: float
    moved_bytes: float
    precision: Precision
    efficiency: float
    launches: float = 1
    family: str = "stated"


Kernel = Product | Pass | Stated
_ORDINARY_DEPTH = 1024
"""The summed dimension of a product of which only the FLOPs are known."""


def bytes_of(precision: Precision) -> int:
    """Bytes of one element in memory."""
    return {"fp64": 8, "fp16": 2, "bf16": 2}.get(precision, 4)


def alignment(*lengths: float) -> int:
    """The largest power of 2, up to 64, that divides all lengths."""
    divisor = math.gcd(64, *(round(length) for length in lengths))
    return max(divisor, 1)


def largest(shapes: tuple[Shape, ...]) -> int:
    """Elements of the largest tensor."""
    return max(map(math.prod, shapes), default=0)


# Matrix products


def matmul_kernels(op: Op) -> tuple[Kernel, ...]:
    """mm, addmm, bmm and the like: one product, wherever the shapes say which."""
    matrices = [shape for shape in op.shapes if len(shape) >= 2]
    if len(matrices) < 2 or op.flops <= 0:
        return (_plain_pass(op, "row"),)
    out = matrices[-1]
    batch, m, n = math.prod(out[:-2]), out[-2], out[-1]
    if op.name.endswith(".linear"):  # every row meets one weight
        batch, m = 1, batch * m
    k = op.flops / (2 * max(batch * m * n, 1))
    one_batch = len(out) == 2 or op.name.endswith(".linear")
    return (
        Product(
            family="gemm" if one_batch else "batched",
            batch=batch,
            m=m,
            n=n,
            k=k,
            precision=op.precision,
            moved_bytes=op.moved_bytes,
            aligned=_rows_aligned(op.layout, m, n, k),
            turned=op.layout in ("tn", "tt"),
        ),
    )


def _rows_aligned(layout: str, m: float, n: float, k: float) -> int:
    """By the length of each operand's rows, as they lie in memory, and of the result's."""
    first = m if layout in ("tn", "tt") else k
    second = k if layout in ("nt", "tt") else n
    return alignment(first, second, n)


_WITH_TENSOR_CORES = frozenset({"gemm", "conv", "attention", "rnn"})


def stated_kernels(op: Op) -> tuple[Kernel, ...]:
    """An operator with a stated efficiency; what is no product runs on the plain fp32 units."""
    assert op.efficiency is not None
    kernel = Stated(
        flops=op.flops,
        moved_bytes=op.moved_bytes,
        precision=op.precision if op.kind in _WITH_TENSOR_CORES else "fp32",
        efficiency=op.efficiency,
        launches=max(op.launches, 1),
    )
    return (kernel,)


def attention_kernels(op: Op) -> tuple[Kernel, ...]:
    """Fused attention: its products, never written to memory; backward first sums per row."""
    backward = "backward" in op.name
    query = op.shapes[1] if backward else op.shapes[0]
    dim = query[-1] if query else 1
    rows = query[2] if len(query) == 4 else math.prod(query[:-1])
    if len(query) == 4 and not op.name.startswith("aten."):  # libraries may have the heads third
        rows = max(query[1], query[2])
    heads = math.prod(query) / max(rows * dim, 1)
    products = 5 if backward else 2
    columns = op.flops / max(2 * products * heads * rows * dim, 1)
    family = "attention_backward" if backward else "attention"
    kernels: list[Kernel] = [
        Product(
            family=family,
            batch=heads,
            m=rows,
            n=dim * products,
            k=columns,
            precision=op.precision,
            moved_bytes=op.moved_bytes,
        )
    ]
    if backward:
        elements = math.prod(query)
        moved = 3 * elements * bytes_of(op.precision)
        kernels.append(Pass(family="row", moved_bytes=moved, elements=elements))
    return tuple(kernels)


def recurrent_kernels(op: Op) -> tuple[Kernel, ...]:
    """cuDNN's recurrent layers: all inputs in one product, then position after position.

    At each position the states are multiplied, and a kernel of their own makes of both products
    the next states. Backward goes back through the positions in the same way; the gradients of
    inputs and weights are products over all positions again. The shapes are those of the input,
    then of the states: (layers and directions, batch, hidden).
    """
    positions, layers, batch, hidden = _recurrence(op)
    turns = recurrent_turns(op)
    backward = "backward" in op.name
    gates = op.flops / max(4 * (2 if backward else 1) * positions * layers * hidden, 1)
    size = bytes_of(op.precision)

    def over_all(m: float, n: float, k: float) -> Product:
        return Product(
            family="gemm",
            batch=layers,
            m=m,
            n=n,
            k=k,
            precision=op.precision,
            moved_bytes=layers * size * (m * n + n * k + m * k),
            turned=k == positions,
        )

    states = Product(
        family="recurrent_backward" if backward else "recurrent",
        batch=1,
        m=batch,
        n=hidden if backward else gates,
        k=gates if backward else hidden,
        precision=op.precision,
        moved_bytes=size * (hidden * gates + batch * (gates + hidden)),
        repeats=turns,
    )
    tensors_read_and_written = 2 * gates + 4 * hidden if backward else 3 * gates + 3 * hidden
    cells = Pass(
        family="math",
        moved_bytes=size * positions * layers * tensors_read_and_written,
        elements=positions * layers * gates,
        launches=turns,
    )
    if not backward:
        return (over_all(positions, gates, hidden), states, cells)
    of_weights = over_all(gates, hidden, positions)
    return (over_all(positions, hidden, gates), of_weights, of_weights, states, cells)


def recurrent_turns(op: Op) -> int:
    """How often a recurrent layer's states are multiplied: once a position, layer and direction."""
    positions, layers, batch, _ = _recurrence(op)
    return max(round(positions / max(batch, 1)), 1) * layers


def _recurrence(op: Op) -> tuple[int, int, int, int]:
    """Positions of all samples, layers and directions, samples, hidden units."""
    x, state = (*op.shapes, (1, 1, 1), (1, 1, 1))[:2]
    layers, batch, hidden = (*state, 1, 1, 1)[:3]
    return math.prod(x[:-1]), layers, batch, hidden


def shapeless_kernels(op: Op) -> tuple[Kernel, ...]:
    """Operations known only by their amounts: a product of ordinary depth, or a pass."""
    if op.flops <= 0:
        return pass_kernels(op)
    side = math.sqrt(op.flops / (2 * _ORDINARY_DEPTH))
    families = {"conv": "forward", "attention": "attention", "rnn": "recurrent"}
    return (
        Product(
            family=families.get(op.kind, "gemm"),
            batch=1,
            m=side,
            n=side,
            k=_ORDINARY_DEPTH,
            precision=op.precision,
            moved_bytes=op.moved_bytes,
        ),
    )


# Passes


def _plain_pass(op: Op, family: str) -> Pass:
    return Pass(
        family=family,
        moved_bytes=op.moved_bytes,
        elements=largest(op.shapes),
        launches=max(op.launches, 1),
    )


def fused_kernels(op: Op) -> tuple[Kernel, ...]:
    """An operator's share of a kernel that torch.compile generates.

    Assumes that such kernels are as fast as the library's that go over data alike: element by
    element, row by row, or, for a batch norm, over images in channels last.
    """
    family = _fused_family(op)
    elements: float = largest(op.shapes)
    if not family.startswith("batch_norm"):  # whose statistics go through all of its input
        elements = min(op.moved_bytes / (2 * bytes_of(op.precision)), elements)
    kernel = Pass(
        family=family, moved_bytes=op.moved_bytes, elements=elements, launches=op.launches
    )
    return (kernel,)


def _fused_family(op: Op) -> str:
    if op.kind == "norm":
        backward = "_backward" if "backward" in op.name else ""
        is_of_rows = not ("batch_norm" in op.name or "group_norm" in op.name)
        return "reduce_rows" if is_of_rows else f"batch_norm_last{backward}"
    if op.kind == "softmax":
        is_long = bool(op.shapes) and op.shapes[0][-1] > _SHORT_ROW
        return "reduce_rows" if is_long else "alike"
    if op.layout == "crossed" and op.kind in ("elementwise", "copy"):
        return "crossed"
    return _reduction(op) if op.kind == "reduction" and op.name == "aten.sum" else "alike"


_NAMES: Mapping[str, str] = {
    "gelu gelu_backward tanh tanh_backward silu silu_backward sigmoid sigmoid_backward exp expm1 "
    "log log1p pow softplus softplus_backward mish mish_backward erf erfinv sin cos atan2 logit "
    "elu elu_backward glu glu_backward log_sigmoid_forward log_sigmoid_backward": "math",
    "native_dropout _fused_dropout bernoulli bernoulli_ rand rand_like randn randn_like randint "
    "randperm random_ normal normal_ uniform_ exponential_ rrelu_with_noise": "random",
    "zeros zeros_like zero new_zeros ones ones_like new_ones full full_like new_full fill arange "
    "linspace scalar_tensor eye select_backward slice_backward constant_pad_nd "
    "adaptive_max_pool2d_backward": "alike",
    "max_pool2d_with_indices max_pool3d_with_indices": "max_pool",
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward": "max_pool_backward",
    "avg_pool2d avg_pool3d": "mean_pool",
    "avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward "
    "_adaptive_avg_pool3d_backward": "mean_pool_backward",
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d": "adaptive_pool",
    "roll flip im2col col2im reflection_pad1d reflection_pad2d replication_pad2d": "remap",
    "reflection_pad1d_backward reflection_pad2d_backward "
    "replication_pad2d_backward": "remap_backward",
    "cumsum cumprod": "scan",
    "sort argsort topk _unique2": "sort",
    "_safe_softmax": "safe_softmax",
    "embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward": "scatter",
}
"""Operators, and the family of their kernel, where the kind alone does not say it."""
_FAMILIES = {name: family for names, family in _NAMES.items() for name in names.split()}
_CROWDED = 256
"""Additions into one place, from which they wait for each other: an image from one pixel."""
_SHORT_ROW = 2048
"""Elements of a row, up to which softmax keeps it in registers and reads it once."""


def pass_kernels(op: Op) -> tuple[Kernel, ...]:
    """Whatever is bound by moving data, by its family."""
    name = op.name.rpartition(".")[2]
    plain = name.removesuffix("_") if not name.startswith("_") else name
    family = _FAMILIES.get(name) or _FAMILIES.get(plain) or _family_by_name(op, plain)
    if family == "math" and op.layout in ("unlike", "crossed"):
        family = op.layout
    elif family.startswith("max_pool") and op.layout == "channels_last":
        family = f"{family}_last"
    elements: float = largest(op.shapes) or op.moved_bytes / (2 * bytes_of(op.precision))
    thread_blocks = math.inf
    if op.kind == "embedding" or family == "scatter":
        elements = op.moved_bytes / (2 * bytes_of(op.precision))
        thread_blocks = _rows_picked(op)
    elif family.startswith(("reduce", "softmax")):
        thread_blocks = _rows(op)
    elif family == "upsample_linear":
        thread_blocks = _positions(op)
    elif family == "upsample_linear_backward" and elements > _CROWDED * _smallest(op):
        family = "upsample_linear_backward_crowded"
    kernel = Pass(
        family=family,
        moved_bytes=op.moved_bytes,
        elements=elements,
        thread_blocks=thread_blocks,
        launches=max(op.launches, 1),
    )
    return (kernel,)


def _family_by_name(op: Op, plain: str) -> str:
    backward = "_backward" if plain.endswith("backward") else ""
    if plain.startswith(("upsample", "_upsample")):
        return f"upsample_{'nearest' if 'nearest' in plain else 'linear'}{backward}"
    if op.kind == "softmax":
        short = op.shapes and op.shapes[0] and op.shapes[0][-1] <= _SHORT_ROW
        return f"softmax_{'short' if short else 'long'}{'_backward' if 'backward' in plain else ''}"
    if op.kind == "embedding":
        return "scatter" if plain.startswith(("scatter", "index_put", "index_add")) else "gather"
    if op.kind in ("elementwise", "copy"):
        return {"unlike": "unlike", "crossed": "crossed"}.get(op.layout, "alike")
    if op.kind == "optimizer":
        return "update"
    return _reduction(op) if op.kind == "reduction" else "other"


def _reduction(op: Op) -> str:
    """Over rows, or over columns: the last dimension is kept."""
    if len(op.shapes) < 2 or not op.shapes[-1] or not op.shapes[0]:
        return "reduce_rows"
    keeps_last = op.shapes[-1][-1] == op.shapes[0][-1] > 1
    return "reduce_columns" if keeps_last else "reduce_rows"


def _rows(op: Op) -> float:
    """Results of a reduction; rows of a softmax."""
    if not op.shapes or not op.shapes[0]:
        return math.inf
    if op.kind == "softmax":
        return max(math.prod(op.shapes[0][:-1]), 1)
    return max(math.prod(op.shapes[-1]), 1)


def _rows_picked(op: Op) -> float:
    """Rows that an indexing operator picks or adds: one for each index."""
    by_row = op.name.rpartition(".")[2].startswith(("index", "embedding", "_index_put"))
    if not by_row or len(op.shapes) < 2:
        return math.inf
    return max(math.prod(op.shapes[1]), 1)


def _smallest(op: Op) -> int:
    """Elements of the smallest image."""
    return min((math.prod(shape) for shape in op.shapes if len(shape) > 2), default=1)


def _positions(op: Op) -> float:
    """Positions of the larger image: threads share those, and go through samples and channels."""
    images = [shape for shape in op.shapes if len(shape) > 2]
    return max((math.prod(shape[2:]) for shape in images), default=1)


# Normalisation

_ROW_COST = 12
"""Elements that the start of each image costs in a batch norm."""
_WIDEST_BLOCK = 512


def norm_kernels(op: Op) -> tuple[Kernel, ...]:
    """Batch norm gives each channel to one block, group norm each group, layer norm each row."""
    name = op.name.rpartition(".")[2]
    backward = "backward" in name
    x = op.shapes[1] if backward and len(op.shapes) > 1 else op.shapes[0]
    elements: float = math.prod(x)
    suffix = "_backward" if backward else ""
    kernels: list[Kernel] = []
    if "batch_norm" in name:
        last = op.layout == "channels_last" or len(x) == 2
        own = "_torch" if op.precision == "bf16" else ""  # cuDNN's is not used in bf16
        family = f"batch_norm_{'last' if last else 'first'}{own}{suffix}"
        thread_blocks: float = x[1] if len(x) > 1 else math.inf
        if not last:
            elements = x[0] * thread_blocks * (_whole_blocks(math.prod(x[2:])) + _ROW_COST)
    elif "group_norm" in name:
        family, thread_blocks = f"group_norm{suffix}", _groups(op, x)
    else:
        family = f"{'rms' if 'rms' in name else 'layer'}_norm{suffix}"
        thread_blocks = max(elements / max(x[-1], 1), 1)
        if op.layout in ("unlike", "crossed"):  # first put in order
            moved = 2 * elements * bytes_of(op.precision)
            kernels.append(Pass(family=op.layout, moved_bytes=moved, elements=elements))
    kernels.append(
        Pass(
            family=family,
            moved_bytes=op.moved_bytes,
            elements=elements,
            thread_blocks=thread_blocks,
            launches=max(op.launches, 1),
        )
    )
    return tuple(kernels)


def _whole_blocks(positions: int) -> int:
    """Positions rounded up to what the block of threads that goes over an image takes at once."""
    threads = 32
    while threads < min(positions, _WIDEST_BLOCK):
        threads *= 2
    return math.ceil(positions / threads) * threads


def _groups(op: Op, x: Shape) -> float:
    """Groups of all samples: the statistics have one value each."""
    statistics = [shape for shape in op.shapes if len(shape) == 2 and shape[0] == x[0]]
    return math.prod(statistics[0]) if statistics else math.inf


# Compiled code: a step as torch.compile runs it, from the profile of the same step as it is written

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
