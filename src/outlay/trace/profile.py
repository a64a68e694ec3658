"""What one training step does, operation by operation: `Op`, `Trace`, and `Profile`.

A `Trace` is one step at one batch size: its operations (`Op`) and its peak (`Memory`). A `Profile`
is that step at any batch size: each amount is a polynomial in the batch size, found by tracing at
a few sizes and checked at another. It also has what the step allocates and frees (`History`), what
torch's caching allocator makes of that (`AllocatorUse`), and what matters for spreading the step
over GPUs (`Structure`). All of it is plain data: it is read and used without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

Kind = Literal[
    "gemm",  # mm, addmm, bmm, linear: arithmetic on matrices
    "conv",  # convolution forward and both backwards
    "attention",  # fused attention, forward and backward
    "norm",  # batch, layer, group and instance norm
    "softmax",
    "reduction",
    "elementwise",
    "embedding",  # gather, scatter, index
    "copy",  # copies, casts, layout changes, fills
    "optimizer",  # foreach and fused updates
    "rnn",
    "other",  # an operator outlay has no formula for
]
Phase = Literal[
    "forward",
    "backward",
    "recompute",  # forward again within backward, as activation checkpointing does
    "optimizer",
]
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "int"]
"""The arithmetic the code asks for. `tf32` is fp32 tensors with TF32 allowed; what a GPU makes of
it (fp32 where it has no TF32) is decided when predicting."""

Layout = Literal[
    "plain",  # row after row: NCHW of images; neither matrix of a product transposed
    "channels_last",  # NHWC
    "mixed",  # convolutions: images of both orders, one of which is turned first
    "nt",  # products: the second matrix transposed, as in x @ weight.t()
    "tn",  # products: the first, as in the gradient of a weight
    "tt",
    "unlike",  # tensors of different shape, order or width: elements are handled one by one
    "crossed",  # what lies side by side in one tensor lies apart in another
]
"""How an operator's tensors lie in memory: it decides which kernel runs, and how fast."""

CompileMode = Literal["default", "reduce-overhead", "max-autotune"]
"""A mode of torch.compile. The last two run what the host issues as CUDA graphs."""

Polynomial = tuple[float, ...]
"""Coefficients (c0, c1, ...) of c0 + c1 b + c2 b^2 in the batch size b."""


def value_at(polynomial: Polynomial, batch_size: int) -> float:
    """The polynomial's value at a batch size (Horner's scheme)."""
    result = 0.0
    for coefficient in reversed(polynomial):
        result = result * batch_size + coefficient
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A group of identical operations of one step.

    `count` is how often it runs in a step (a mean over the traced steps, so it may be a fraction);
    the amounts are of one of them. `shapes` are those of its tensor arguments, then its outputs.
    `launches` is the number of GPU kernels one of them starts: 0 for views.
    """

    name: str
    kind: Kind
    phase: Phase
    precision: Precision
    count: float
    flops: float
    moved_bytes: float
    launches: float = 1
    layout: Layout = "plain"
    shapes: tuple[tuple[int, ...], ...] = ()
    efficiency: float | None = None
    """The share of what a GPU can do at most that one of them reaches, where somebody has told it
    (`outlay.register_op`); then no other model of its time is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledOp(Op):
    """An operation of compiled code, with what fusing has left of it."""

    is_fused: bool = False
    """Whether it is a part of a generated kernel; else it is as it was, in a library."""
    is_turned: bool = False
    """Whether its images are in channels last, for tensor cores, and were not before."""
    in_graph: bool = False
    """Whether a CUDA graph starts it, and the host does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes allocated at the moment of the step's peak, by category; the peak is their sum.

    parameters, gradients, optimizer_state: as torch means them (gradients alive at the peak).
    inputs: tensors that exist before the step and are none of the above (data, buffers).
    activations: made in forward and alive at the peak. workspace: what libraries and operators
    take for themselves, on an H200. temporaries: the rest.
    """

    parameters: float
    gradients: float
    optimizer_state: float
    inputs: float
    activations: float
    temporaries: float
    workspace: float = 0.0

    @property
    def peak_bytes(self) -> float:
        """Bytes allocated at the peak, before the CUDA context."""
        return (
            self.parameters
            + self.gradients
            + self.optimizer_state
            + self.inputs
            + self.activations
            + self.temporaries
            + self.workspace
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorUse:
    """Peak memory of a run as torch's caching allocator counts it.

    allocated: the most in use at once, `torch.cuda.max_memory_allocated`: blocks are a little
    larger than what was requested. reserved: `max_memory_reserved` where there is plenty of memory.
    Both with library workspaces where the profile has a history, else without.
    """

    allocated_bytes: float
    reserved_bytes: float
    needed_bytes: float | None = None
    """The least the allocator must be allowed to reserve for the run not to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is allocated and freed from the building of the model to a steady step, in order.

    Of an event n >= 0, a storage of `sizes[n]` bytes is made; of -n, the n-th last made ends.
    Storages whose size is in `optional` are workspaces an operator can do without; those in
    `conditions` are made only on GPUs that meet the condition (`outlay.trace.workspace`).
    """

    sizes: tuple[Polynomial, ...]
    events: tuple[int, ...]
    optional: frozenset[int] = frozenset()
    conditions: Mapping[int, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        """A cheap hash: simulations are remembered by history."""
        return hash((self.sizes[:8], len(self.events)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGroup:
    """Blocks of one class and size in a model: encoder layers, bottlenecks."""

    name: str
    count: int
    parameters: int
    """Of one of them."""
    output_bytes: Polynomial
    """What one hands to the next."""
    width: int
    """The last dimension of that: the hidden size of a transformer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What of a step matters for spreading it over GPUs."""

    blocks: tuple[BlockGroup, ...]
    gradient_bytes: float
    """Gradients finished in a step: what data-parallel training exchanges."""
    ready: tuple[float, ...]
    """The share of backward that has passed when 1/16, 2/16 ... 16/16 of them are finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One training step at one batch size."""

    batch_size: int
    ops: tuple[Op, ...]
    memory: Memory
    parameters: int
    issued_ops: float
    """Operations the host issues one after another, views included."""
    unknown_ops: frozenset[str] = frozenset()
    """Names of operators without a formula: of these, the least they can take is known."""
    compiled_calls: float = 0.0
    """Compiled functions that the step calls; 0 of eager code."""

    @property
    def flops(self) -> float:
        """FLOPs of one step; a multiply-add counts as two."""
        return sum(op.count * op.flops for op in self.ops)

    @property
    def moved_bytes(self) -> float:
        """Bytes read and written by one step if every operation goes to memory."""
        return sum(op.count * op.moved_bytes for op in self.ops)


def _dimension(size: float) -> int:
    """A whole number: where a part of the batch is taken, of a single sample it is one still."""
    return max(round(size), 1) if size > 0.01 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """What is left of an operation where torch.compile compiles it (`outlay.trace.fusion`)."""

    moved_bytes: Polynomial | None = None
    """None: all of it, as it is fused with nothing."""
    launches: float = 1
    """Of a group that becomes one kernel, the first operation has that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOp:
    """An `Op` at any batch size: amounts and dimensions are polynomials in it."""

    name: str
    kind: Kind
    phase: Phase
    precision: Precision
    count: float
    flops: Polynomial
    moved_bytes: Polynomial
    launches: float = 1
    layout: Layout = "plain"
    shapes: tuple[tuple[Polynomial, ...], ...] = ()
    efficiency: float | None = None
    fused: Fused | None = None
    """None: it is in code that is not compiled, or nobody knows (`Profile.knows_fusions`)."""

    def at(self, batch_size: int, *, shapes: bool = True) -> Op:
        """The operation at one batch size, with or without the shapes, which take the longest."""
        return Op(**self._amounts(batch_size, shapes=shapes))

    def _amounts(self, batch_size: int, *, shapes: bool) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "phase": self.phase,
            "precision": self.precision,
            "count": self.count,
            "flops": max(value_at(self.flops, batch_size), 0.0),
            "moved_bytes": max(value_at(self.moved_bytes, batch_size), 0.0),
            "launches": self.launches,
            "layout": self.layout,
            "shapes": tuple(
                tuple(_dimension(value_at(size, batch_size)) for size in shape)
                for shape in self.shapes
            )
            if shapes
            else (),
            "efficiency": self.efficiency,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProfileOp(ProfileOp):
    """A `CompiledOp` at any batch size."""

    is_fused: bool = False
    is_turned: bool = False
    in_graph: bool = False

    def at(self, batch_size: int, *, shapes: bool = True) -> CompiledOp:
        """The operation at one batch size."""
        return CompiledOp(
            **self._amounts(batch_size, shapes=shapes),
            is_fused=self.is_fused,
            is_turned=self.is_turned,
            in_graph=self.in_graph,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBatch:
    """The batch that a training was published with; either figure may be unknown."""

    per_gpu: int | None = None
    global_batch_size: int | None = None
    """Samples of one update over all GPUs."""
    where: str
    """Who published it, in a word or two."""

    def per_gpu_on(self, gpus: int) -> int:
        """The largest batch on each of so many GPUs that makes no other training of it.

        A batch that was spread over many GPUs may be taken by fewer.
        """
        return max(self.per_gpu or 0, (self.global_batch_size or 0) // gpus, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilable:
    """How a step calls torch.compile."""

    mode: CompileMode | None = None
    """In which the step compiles code itself; None: it does not, and all but its optimizer counts
    as what could be compiled."""
    calls: float = 1
    """Compiled functions that it calls, each of which checks its guards."""


NOT_COMPILED = Compilable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A training step at any batch size, with where it came from."""

    name: str
    description: str
    sample: str
    """What one sample is: `image 256x256`, `sequence of 1024 tokens`."""
    parameters: int
    trainable_parameters: int
    ops: tuple[ProfileOp, ...]
    memory: Mapping[int, Memory]
    """Peak memory at each traced batch size and wherever its slope changes, ascending."""
    issued_ops: float
    allocator_use: Mapping[int, AllocatorUse] = field(default_factory=dict)
    """What the allocator makes of it at some batch sizes, ascending; empty where not modelled."""
    history: History | None = None
    """What the allocator was modelled with; None where traces at two sizes did not line up."""
    table_suffices: bool = False
    """Whether `allocator_use` is to be read where it could be simulated, which takes longer."""
    structure: Structure | None = None
    """None in profiles that were written without it."""
    period: int = 1
    """Consecutive steps that were traced and averaged (16 where every 16th differs)."""
    traced_on: str = ""
    """Date of the trace, YYYY-MM-DD."""
    versions: Mapping[str, str] = field(default_factory=dict)
    unknown_ops: Mapping[str, float] = field(default_factory=dict)
    """Operators without a formula, and how often each runs in a step."""
    notes: tuple[str, ...] = ()
    from_cache: bool = field(default=False, compare=False)
    """Whether the trace was made earlier, and kept (`outlay.trace.trace_cache`)."""
    published: PublishedBatch | None = None
    """The batch of the recipe that a bundled profile follows."""
    compilable: Compilable | None = None
    """How its code calls torch.compile; None where nobody knows."""
    compiled: CompileMode | None = None
    """As which its operations are counted; None: eager code."""
    eager: Profile | None = field(default=None, compare=False, repr=False)
    """Of compiled code, the profile it was made of."""

    @property
    def knows_fusions(self) -> bool:
        """Whether the trace noted which operations share data."""
        return any(op.fused is not None for op in self.ops)

    @property
    def asks_for_bf16(self) -> bool:
        """Whether any of its products is in bf16."""
        return any(op.precision == "bf16" and op.kind in ("gemm", "conv") for op in self.ops)

    @property
    def custom_ops(self) -> tuple[str, ...]:
        """Operators that neither PyTorch nor torchvision brings: they need a build for each GPU."""
        names = dict.fromkeys((*(op.name for op in self.ops), *self.unknown_ops))
        return tuple(name for name in names if _is_custom(name))

    @property
    def gradient_bytes(self) -> float:
        """A gradient of each trained parameter: the most there is of them at once.

        A step of several passes finishes more, one after another; those are added up.

        # Assumes: gradients in fp32 at most, or as wide as parameters are in the mean.
        """
        if self.structure is None:
            return 4.0 * self.trainable_parameters
        of_parameter = max(self.memory_at(1).parameters / max(self.parameters, 1), 4.0)
        return min(self.structure.gradient_bytes, of_parameter * self.trainable_parameters)

    def at(self, batch_size: int, *, shapes: bool = True) -> Trace:
        """The step at one batch size."""
        return Trace(
            batch_size=batch_size,
            ops=tuple(op.at(batch_size, shapes=shapes) for op in self.ops),
            memory=self.memory_at(batch_size),
            parameters=self.parameters,
            issued_ops=self.issued_ops,
            unknown_ops=self._unknown_names(),
            compiled_calls=0.0 if self.compiled is None else self._compiled_calls,
        )

    @property
    def _compiled_calls(self) -> float:
        return 1.0 if self.compilable is None else self.compilable.calls

    def _unknown_names(self) -> frozenset[str]:
        """Of operators without a formula; where a step's are summed by kind, that sum's."""
        summed = {op.name for op in self.ops if op.name == "other (summed)"}
        return frozenset({*self.unknown_ops, *(summed if self.unknown_ops else ())})

    def memory_at(self, batch_size: int) -> Memory:
        """Peak memory at a batch size: piecewise linear between and beyond the traced ones."""
        return _interpolated(self.memory, batch_size)

    def allocator_use_at(self, batch_size: int) -> AllocatorUse | None:
        """What the allocator makes of a batch size, or None where it was not modelled."""
        return _interpolated(self.allocator_use, batch_size) if self.allocator_use else None


_PYTORCH = ("aten", "prims", "c10d", "torchvision", "torchaudio", "outlay")
"""Namespaces of operators that come with PyTorch and its own libraries, or stand in for some."""


def _is_custom(name: str) -> bool:
    """Whether an operator is of an extension; what was summed up has no namespace."""
    namespace, dot, _ = name.partition(".")
    return bool(dot) and namespace not in _PYTORCH


_Point = TypeVar("_Point", Memory, AllocatorUse)


def _interpolated(points: Mapping[int, _Point], batch_size: int) -> _Point:
    """Every amount on the straight line through the two nearest batch sizes."""
    low, high = _neighbours(sorted(points), batch_size)
    if low == high:
        return points[low]
    fraction = (batch_size - low) / (high - low)
    first, second = points[low], points[high]
    amounts: dict[str, Any] = {
        amount.name: _blended(getattr(first, amount.name), getattr(second, amount.name), fraction)
        for amount in fields(first)
    }
    return type(first)(**amounts)


def _neighbours(sizes: list[int], batch_size: int) -> tuple[int, int]:
    """The two batch sizes to draw the line through; one and the same where nothing is between."""
    if len(sizes) == 1 or batch_size in sizes:
        nearest = min(sizes, key=lambda size: abs(size - batch_size))
        return nearest, nearest
    above = next((i for i, size in enumerate(sizes) if size > batch_size), len(sizes) - 1)
    above = max(above, 1)
    return sizes[above - 1], sizes[above]


def _blended(first: float | None, second: float | None, fraction: float) -> float | None:
    """The value so far between two, not below zero; None where either is unknown."""
    if first is None or second is None:
        return None
    return max(first + (second - first) * fraction, 0.0)
