"""Every operation of a training step, as torch dispatches it.

`op_of` makes an `Op` of one dispatched operator: its kind, amounts, precision, layout and shapes.
`CallSites` finds the line of the user's code that an operation comes from, `PhaseTracker` the phase
of the step it belongs to, `FlowTracker` what it reads and writes. `Recorder` is the dispatch mode
that runs each operator on fake tensors and notes all this, and the memory it takes.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import math
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

from outlay.trace.capture.branches import TURNS, Answers
from outlay.trace.capture.constant_values import Args, Kwargs
from outlay.trace.capture.fake_results import run_operator
from outlay.trace.capture.memory_tracker import MemoryTracker
from outlay.trace.capture.wrappers import AttributePatches, compiled_code, remove_at_end
from outlay.trace.formulas import Hint, OpCost, cost_of, formula_for
from outlay.trace.fusion import Flow, Value
from outlay.trace.own_files import OwnFiles, library_name
from outlay.trace.profile import Compilable, CompileMode, Kind, Op, Phase, Precision
from outlay.trace.step_report import CallSite
from outlay.trace.traffic import elements, layout_of, tensors_in
from outlay.trace.workspace import (
    Workspace,
    has_workspace_formula,
    with_attention,
    workspaces_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from torch._ops import OpOverload

    from outlay.trace.capture.data_dependent import SelectionSizes

# One dispatched operator as an `Op`


_PRECISIONS: dict[torch.dtype, Precision] = {
    torch.float64: "fp64",
    torch.complex128: "fp64",
    torch.float32: "fp32",
    torch.complex64: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
_MOST_SHAPES = 16
_aten = torch.ops.aten


def op_of(
    func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object, name: str = ""
) -> tuple[Op, bool]:
    """The operator as it ran, and whether there is a formula for it.

    `name` is that of the operator whose formula to take, where it is not its own.
    """
    name = name or str(func.overloadpacket)
    cost = cost_of(name, args, kwargs, out, hint=_hint(func))
    results = list(tensors_in(out))
    tensors: list[Tensor] = [*tensors_in(*args, *kwargs.values()), *results]
    precision = precision_of(cost.kind, tensors)
    op = Op(
        name=name,
        kind=cost.kind,
        phase=phase,
        precision=precision,
        count=1,
        flops=cost.flops,
        moved_bytes=cost.moved_bytes,
        launches=cost.launches,
        layout=layout_of(cost.kind, name, tensors, len(results)),
        shapes=_shapes(cost, tensors),
        efficiency=cost.efficiency_in(precision),
    )
    return op, cost.is_known


@cache
def _hint(func: OpOverload) -> Hint:
    """What torch says of an operator; of one in place, what it says of its plain form."""
    if func.is_view:
        return "view"
    operator = func._schema.name.partition("::")[2]
    plain = getattr(_aten, operator[:-1], None) if operator.endswith("_") else None
    overloads = [getattr(plain, name) for name in plain.overloads()] if plain else []
    is_pointwise = any(torch.Tag.pointwise in overload.tags for overload in (func, *overloads))
    return "pointwise" if is_pointwise else ""


def precision_of(kind: Kind, tensors: list[Tensor]) -> Precision:
    """Of the first floating-point tensor; fp32 products follow the two TF32 switches."""
    dtype = next((t.dtype for t in tensors if t.dtype in _PRECISIONS), None)
    if dtype is None:
        return "int"
    if dtype == torch.float32 and _tf32_allowed(kind):
        return "tf32"
    return _PRECISIONS[dtype]


def _tf32_allowed(kind: Kind) -> bool:
    if kind in ("conv", "rnn"):
        operators = torch.backends.cudnn.conv if kind == "conv" else torch.backends.cudnn.rnn
        return _allows(operators, lambda: torch.backends.cudnn.allow_tf32)
    if kind in ("gemm", "attention"):
        matmul = torch.backends.cuda.matmul
        return _allows(matmul, lambda: matmul.allow_tf32)
    return False


def _allows(operators: object, old_switch: Callable[[], bool]) -> bool:
    """torch has an old and a new switch, and refuses to read the old one once the new is used."""
    try:
        return bool(old_switch())
    except RuntimeError:
        return getattr(operators, "fp32_precision", "") == "tf32"


def _shapes(cost: OpCost, tensors: list[Tensor]) -> tuple[tuple[int, ...], ...]:
    """Shapes of arguments and results; of a multi-tensor update only the elements in total."""
    if cost.launches == 0:
        return ()
    if cost.kind == "optimizer":
        return ((sum(tensor.numel() for tensor in tensors),),)
    if cost.kind == "rnn":  # the input, then the states, whatever the number of weights
        tensors = [tensor for tensor in tensors if tensor.dim() == 3]
    return tuple(tuple(tensor.shape) for tensor in tensors[:_MOST_SHAPES])


# The line of the user's own code that an operation comes from. A forward operation: the innermost
# frame in the user's files. A backward operation: the line of the forward operation it belongs to.
# torch numbers the nodes of autograd's graph in the order they are made, in each thread; an
# operation that makes one sees its number (the newest), and backward says which node it is at.


_ENGINE = "_engine_run_backward"
"""The function of torch that starts backward: the operation at hand is not its callers'."""


class CallSites:
    """Finds the user's line for every operation of a step; `file` is where the step is.

    `OwnFiles` says which files are the user's own.
    """

    def __init__(self, file: str) -> None:
        self._own_files = OwnFiles(file)
        self._nodes: dict[int, dict[int, tuple[str, _Sites]]] = {}
        """Of each thread, by a node's number: the operator that made it, and its call sites."""

    def sites_of(self, func: OpOverload) -> tuple[CallSite | None, CallSite | None]:
        """The call site of the operation that runs now, and the library's line it led to."""
        node = torch._C._current_autograd_node()
        sites = self._innermost(sys._getframe(1), in_backward=node is not None)
        if node is not None and sites[0] is None:
            sites = self._node_sites(node)
        nodes = self._nodes.setdefault(threading.get_ident(), {})
        nodes.setdefault(torch.autograd._get_sequence_nr() - 1, (_letters(func.name()), sites))
        return sites

    def current_line(self, *, with_code: bool = False) -> str:
        """The line that runs now, `train.py:31`; a library's with the user's line that led there.

        With its text in brackets if asked for. Empty where neither is known.
        """
        in_backward = torch._C._current_autograd_node() is not None
        own, library = self._innermost(sys._getframe(1), in_backward=in_backward)
        node = torch._C._current_autograd_node() if own is None else None
        if node is not None:
            own, library = self._node_sites(node)
        if own is None:
            return "" if library is None else str(library)
        user = f"{own} ({own.code})" if with_code and own.code else str(own)
        return user if library is None else f"{library}, from {user}"

    def _innermost(self, frame: FrameType | None, *, in_backward: bool) -> _Sites:
        """The innermost line of the user's own, and that of a library if it is deeper."""
        library = None
        while frame is not None:
            code = frame.f_code
            if in_backward and code.co_name == _ENGINE:
                break
            name = self._own_files.name_of(code.co_filename)
            if name is not None:
                return _site(name, frame.f_lineno, code.co_name, code.co_filename), library
            installed = library_name(code.co_filename) if library is None else None
            if installed is not None:
                library = _site(installed, frame.f_lineno, code.co_name, code.co_filename)
            frame = frame.f_back
        return None, library

    def _node_sites(self, node: torch.autograd.graph.Node) -> _Sites:
        """Where the node was made; of two threads' nodes with its number, the one of its name."""
        number, name = node._sequence_nr(), _letters(_node_name(node))
        candidates = [nodes[number] for nodes in self._nodes.values() if number in nodes]
        named = [sites for operator, sites in candidates if name.startswith(operator)]
        return next(iter(named or [sites for _, sites in candidates]), (None, None))


def _node_name(node: torch.autograd.graph.Node) -> str:
    """What torch calls a node; functions of one's own may keep something else under `name`."""
    return node.name() if callable(node.name) else type(node).__name__


_Sites = tuple["CallSite | None", "CallSite | None"]
"""A line of the user's own, and the line of an installed library it led to."""


@cache
def _site(name: str, line: int, function: str, filename: str) -> CallSite:
    text = linecache.getline(filename, line).strip()
    return CallSite(file=name, line=line, function=function, code=text)


@cache
def _letters(name: str) -> str:
    """`aten::native_layer_norm` and `NativeLayerNormBackward0` begin alike."""
    operator = name.rpartition("::")[2].partition(".")[0]
    return operator.replace("_", "").lower()


# The phase of a step that an operation belongs to


class PhaseTracker:
    """The phase of what runs now, by hooks on modules and optimizers and by autograd's engine."""

    def __init__(self) -> None:
        self.in_optimizer = False
        self._optimizer_task = -1
        """The backward pass that called the optimizer from a hook, if one did."""
        self.module_depth = 0
        """How many modules deep a forward is."""
        self.recompute_depth = 0
        """How many of torch's checkpoints deep a forward that runs again is."""
        self._after_backward = False

    def start_step(self) -> None:
        """Say that the next operation belongs to a new step."""
        self._after_backward = False

    def enter_optimizer(self) -> None:
        """Say that an optimizer begins its step."""
        self.in_optimizer = True
        self._optimizer_task = torch._C._current_graph_task_id()

    def exit_optimizer(self) -> None:
        """Say that its step has ended."""
        self.in_optimizer = False

    def phase_of(self, func: OpOverload) -> Phase:
        """Backward is what autograd's engine runs; after it, whatever needs no gradient updates.

        What a module computes is forward, also without gradients (a teacher, an evaluation).
        """
        task = torch._C._current_graph_task_id()
        if task != -1:
            self._after_backward = True
            if self.in_optimizer and task == self._optimizer_task:
                return "optimizer"
            again = self.recompute_depth or (self.module_depth and torch.is_grad_enabled())
            return "recompute" if again else "backward"
        if self.module_depth:
            return "forward"
        if self.in_optimizer or func.name().startswith(("aten::_amp_", "aten::_fused_")):
            return "optimizer"
        if self._after_backward and not torch.is_grad_enabled():
            return "optimizer"
        return "forward"


@contextlib.contextmanager
def track_modules(
    phases: PhaseTracker, on_input: Callable[[tuple[object, ...]], None] | None = None
) -> Iterator[None]:
    """Let the tracker know while a module computes; `on_input` gets what modules are given."""

    def before(_: object, inputs: tuple[object, ...]) -> None:
        phases.module_depth += 1
        if on_input is not None:
            on_input(inputs)

    def after(*_: object) -> None:
        phases.module_depth -= 1

    hooks = [
        module.register_module_forward_pre_hook(before),
        module.register_module_forward_hook(after, always_call=True),
    ]
    with remove_at_end(hooks):
        yield


@contextlib.contextmanager
def track_recomputation(phases: PhaseTracker) -> Iterator[None]:
    """Let the tracker know while torch's checkpoint runs a forward again."""
    patches = AttributePatches()
    hook = getattr(checkpoint, "_recomputation_hook", None)

    def counting(original: Callable[..., object], change: int) -> Callable[..., object]:
        def call(*args: object) -> object:
            phases.recompute_depth += change
            return original(*args)

        return call

    if hook is not None:
        patches.set(hook, "__enter__", counting(hook.__enter__, 1))
        patches.set(hook, "__exit__", counting(hook.__exit__, -1))
    try:
        yield
    finally:
        patches.restore()


# What operations read and wrote


class FlowTracker:
    """Makes the flow of each operation, in order."""

    def __init__(self, memory: MemoryTracker) -> None:
        self._memory = memory
        self._versions: dict[int, int] = {}
        self._compiled_nodes: set[int] = set()
        """Autograd's numbers of nodes that compiled code made: their backward is compiled, too."""

    def flow_of(self, func: OpOverload, op: Op, args: Args, kwargs: Kwargs, out: object) -> Flow:
        """What an operator that has just run read and wrote."""
        is_compiled = self._is_compiled(op)
        if op.launches <= 0:
            return Flow(is_compiled=is_compiled)
        changed = [t for argument in _changed(func, args, kwargs) for t in _on_gpu(argument)]
        results = [t for t in _on_gpu(out) if not any(t is other for other in changed)]
        read = list({id(t): t for t in _on_gpu((args, kwargs))}.values())
        reads = [(self._value(t), int(t.storage_offset())) for t in read]
        writes = [self._written(t) for t in (*changed, *results)]
        written_bytes = [_bytes(t) for t in (*changed, *results)]
        limit = max(int(op.moved_bytes) - sum(written_bytes), 0)
        read_bytes = _within(limit, [_bytes(t) for t in read])
        whole = [t for t, size in zip(read, read_bytes, strict=True) if size == _bytes(t)]
        return Flow(
            reads=tuple(reads),
            writes=tuple(writes),
            sizes_bytes=(*read_bytes, *written_bytes),
            elements=max((math.prod(t.shape) for t in (*whole, *changed, *results)), default=0),
            is_compiled=is_compiled,
        )

    def _is_compiled(self, op: Op) -> bool:
        """Whether it is in compiled code, or what autograd runs for such; see `Compilable`."""
        if compiled_code.mode is None:
            return op.phase != "optimizer"
        node = torch._C._current_autograd_node()
        if node is not None and compiled_code.depth == 0:
            return node._sequence_nr() in self._compiled_nodes
        if compiled_code.depth:
            self._compiled_nodes.add(torch.autograd._get_sequence_nr() - 1)
        return compiled_code.depth > 0

    def _value(self, tensor: Tensor) -> Value:
        number = self._memory.number_of(tensor)
        if number is None:
            return -tensor.untyped_storage()._cdata, 0
        return number, self._versions.get(number, 0)

    def _written(self, tensor: Tensor) -> Value:
        number, version = self._value(tensor)
        self._versions[number] = version + 1
        return number, version + 1


def _within(limit_bytes: int, sizes_bytes: list[int]) -> list[int]:
    """What is really read of each tensor: where a formula has less, less of the largest.

    Of a table of embeddings some rows are read, of a target of a copy nothing.
    """
    excess = sum(sizes_bytes) - limit_bytes
    while excess > 0:
        place = max(range(len(sizes_bytes)), key=sizes_bytes.__getitem__)
        taken = min(sizes_bytes[place], excess)
        sizes_bytes[place] -= taken
        excess -= taken
    return sizes_bytes


def _bytes(tensor: Tensor) -> int:
    return int(elements(tensor) * tensor.dtype.itemsize)


def _on_gpu(values: object) -> Iterator[Tensor]:
    for value in tree_iter(values):
        if isinstance(value, Tensor) and value.layout == torch.strided:
            if type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__ and hasattr(
                value, "__tensor_flatten__"
            ):
                continue  # made of other tensors, which are never fused
            if value.device.type == "cuda":
                yield value


def _changed(func: OpOverload, args: Args, kwargs: Kwargs) -> Iterator[object]:
    """The arguments that an operator writes to."""
    for place, name in _written_arguments(func):
        if place < len(args):
            yield args[place]
        elif name in kwargs:
            yield kwargs[name]


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int, str], ...]:
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


# The recorder


_COLLECT_EVERY = 256
"""Operators between collections of garbage: Python's own come at moments that differ from trace to
trace, and what lives in a cycle would then be freed elsewhere in each."""
_LIKELY_TRUE = (_aten.all, _aten._is_all_true, _aten.isfinite)
_FLASH = "aten._scaled_dot_product_flash_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """What had been noted when a step began."""

    ops: int
    sites: int
    unknown: Counter[str]
    host_reads: Counter[tuple[str, str]]
    dispatched: int
    examples: int


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records operations on the GPU while `recording`, and live memory always.

    With `with_lines`, `sites` has the user's line of each operation.
    """

    def __init__(
        self,
        selection: SelectionSizes,
        callsites: CallSites | None = None,
        *,
        with_lines: bool = False,
        batch_size: int = 1,
    ) -> None:
        super().__init__()
        self.selection = selection
        self.memory = MemoryTracker(batch_size)
        self.ops: list[Op] = []
        self.flows: list[Flow] = []
        """What each operation read and wrote."""
        self._flow = FlowTracker(self.memory)
        self.sites: list[CallSite | None] = []
        self.library_sites: list[CallSite | None] = []
        """Of each operation, the line of an installed library, where it is not the user's own."""
        self._callsites = callsites
        self._with_lines = with_lines
        self.unknown: Counter[str] = Counter()
        self.host_reads: Counter[tuple[str, str]] = Counter()
        """Lines that read a value off the GPU and which value they got, with how often."""
        self.recording = False
        self.in_evaluation = False
        """Whether what runs without gradients is an evaluation between two steps, and not noted."""
        self.forward_hash = 0
        """Of the operators that ran forward with gradients, since it was last set to 0."""
        self.forward_elements = 0
        """What those wrote, in elements."""
        self.phases = PhaseTracker()
        self.optimized: dict[int, Tensor] = {}
        """Parameters that an optimizer on the GPU has updated, by identity."""
        self.compile_mode: CompileMode | None = None
        """In which the step compiles code; and calls of such code, before and while recording."""
        self.calls_before = 0
        self.compiled_calls = 0
        self._dispatched = 0
        self._answers = Answers()
        self._at_start = self._counts()

    def compilable(self, period: int) -> Compilable:
        """How the step calls torch.compile, of a record of so many."""
        calls = max(self.compiled_calls / period, 1)
        return Compilable(mode=self.compile_mode, calls=calls)

    def start_step(self) -> None:
        """Say that the next operation belongs to a new step."""
        self.phases.start_step()
        self.memory.start_step()
        self._answers = Answers()
        self._at_start = self._counts()

    def _counts(self) -> _Counts:
        return _Counts(
            ops=len(self.ops),
            sites=len(self.sites),
            unknown=self.unknown.copy(),
            host_reads=self.host_reads.copy(),
            dispatched=self._dispatched,
            examples=self.selection.likely.examples,
        )

    def repeat_step(self, times: int) -> None:
        """Note the last step so many times more, as if it had run again."""
        start = self._at_start
        self.ops += self.ops[start.ops :] * times
        self.flows += self.flows[start.ops :] * times
        self.sites += self.sites[start.sites :] * times
        self.library_sites += self.library_sites[start.sites :] * times
        for operator, count in list(self.unknown.items()):
            self.unknown[operator] += times * (count - start.unknown[operator])
        for read, count in list(self.host_reads.items()):
            self.host_reads[read] += times * (count - start.host_reads[read])
        self._dispatched += times * (self._dispatched - start.dispatched)
        self.selection.likely.examples += times * (self.selection.likely.examples - start.examples)
        self.memory.repeat_step(times)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> object:
        """Run one operator on fake tensors and note it."""
        kwargs = kwargs or {}
        if func.namespace == "prim":  # a question about a tensor (its device), not an operation
            return func(*args, **kwargs)
        if func is _aten._local_scalar_dense.default:
            return self._read_value(args[0])
        self._dispatched += 1
        if self._dispatched % _COLLECT_EVERY == 0:
            gc.collect(1)
        phase = self.phases.phase_of(func)
        out = run_operator(func, args, kwargs, self.selection)
        self.selection.follow(func, args, kwargs, out)
        if func.overloadpacket in _LIKELY_TRUE and isinstance(out, FakeTensor):
            out.outlay_likely = True
        on_gpu = [t for t in with_storage(out) if _is_on_gpu(t)]
        during: Phase = "backward" if phase == "recompute" else phase
        with self.memory.workspaces_during(_early_workspaces(func, args, kwargs, out), during):
            for tensor in on_gpu:
                self.memory.add(tensor, during)
        self._add_workspaces(func, during, args, kwargs, out)
        if isinstance(out, bool):  # a question, answered on the host
            return out
        with_gradients = torch.is_grad_enabled()
        if phase == "forward" and with_gradients and on_gpu:
            self.forward_hash = hash((self.forward_hash, func))
            self.forward_elements += 0 if func.is_view else sum(map(_elements, on_gpu))
        is_noted = self.recording and (with_gradients or not self.in_evaluation)
        if is_noted and (on_gpu or any(map(_is_on_gpu, tree_iter(args)))):
            self._note(func, phase, args, kwargs, out)
            if self._callsites is not None and self._with_lines:
                own, library = self._callsites.sites_of(func)
                self.sites.append(own)
                self.library_sites.append(library)
                self.memory.end_operation()
        return out

    def _note(
        self, func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        op, is_known = op_of(func, phase, args, kwargs, out)
        self.ops.append(op)
        self.flows.append(self._flow.flow_of(func, op, args, kwargs, out))
        if not is_known:
            self.unknown[op.name] += 1

    def _add_workspaces(
        self, func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        """Note what a library allocates for itself while this operator runs."""
        name = str(func.overloadpacket)
        formula = formula_for(name)
        if formula is None or not any(map(_is_on_gpu, tree_iter(args))):
            return
        if formula.kind == "gemm":
            self.memory.add_cublas_workspace(phase)
        has_workspaces = has_workspace_formula(name) or name == _FLASH
        if func is _aten._cudnn_rnn.default or not has_workspaces:
            return
        tensors: list[Tensor] = [*tensors_in(*args, *kwargs.values()), *tensors_in(out)]
        precision = precision_of(formula.kind, tensors)
        workspaces = workspaces_of(name, args, kwargs, out, precision)
        if workspaces:
            self.memory.add_workspaces(workspaces, phase, _rows(tensors))
        if name == _FLASH:
            self._add_scores(args, out, phase, precision)

    def _add_scores(self, args: Args, out: Any, phase: Phase, precision: Precision) -> None:
        """Note what GPUs without a fused kernel keep for backward: all scores, in fp32."""
        batch, heads, rows, _ = args[0].shape
        scores_bytes = 4 * batch * heads * rows * args[1].shape[-2]
        scores = Workspace(size_bytes=scores_bytes, condition=with_attention("math", precision))
        self.memory.add_workspaces([scores], phase)
        self.memory.add_companion(out[1], scores, phase)

    def _read_value(self, tensor: Tensor) -> bool | int | float:
        """What `.item()` returns: the value where it follows from constants, else a likely one.

        Of a floating-point number nobody knows 0, which is "no overflow" to a GradScaler; of a
        whole one 1, so that what is done as often is not left out; on the CPU always 1. Questions
        are answered so that the code works and does not raise (`Answers`).
        """
        constant = self._constant_value(tensor)
        if constant is not None:
            if isinstance(constant, bool):
                self._answers.count_known()
            return constant
        likely = self.selection.likely_value(tensor)
        on_gpu, is_float = _is_on_gpu(tensor), tensor.dtype.is_floating_point
        if tensor.dtype == torch.bool:
            usual = bool(getattr(tensor, "outlay_likely", False))
            answer = self._answers.answer(None if likely is None else bool(likely), usual)
            value = answer.value
        else:
            answer = self._answers.number(likely, 0 if on_gpu and is_float else 1)
            value = float(answer.value) if is_float else int(answer.value)
        if answer.is_of_loop:
            self.selection.note("The loop", f"{TURNS} turns at most were assumed")
        if on_gpu and self.recording:
            line = "" if self._callsites is None else self._callsites.current_line(with_code=True)
            follows_share = value == likely and not answer.is_of_loop
            basis = self.selection.basis(tensor) if follows_share else ""
            why = f", {answer.why}" if answer.why else basis
            self.host_reads[line, f"{_text(value)}{why}"] += 1
        return value

    def _constant_value(self, tensor: Tensor) -> bool | int | float | None:
        """The tensor's value where it does not depend on the data."""
        constant = tensor.constant if isinstance(tensor, FakeTensor) else tensor
        constant = self.selection.values.of(tensor) if constant is None else constant
        if constant is None:
            return None
        with torch._C._DisableTorchDispatch():
            value: bool | int | float = constant.item()
            return value


def _early_workspaces(
    func: OpOverload, args: Args, kwargs: Kwargs, out: object
) -> Sequence[Workspace]:
    """What an operator allocates before it makes its results: recurrent layers do."""
    if func is not _aten._cudnn_rnn.default:
        return ()
    return workspaces_of(str(func.overloadpacket), args, kwargs, out, "fp32")


def _elements(value: object) -> int:
    return value.numel() if isinstance(value, Tensor) else 0


def _text(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}"


def with_storage(out: object) -> Iterator[object]:
    """What of a result has a storage: of a sparse tensor, its indices and values.

    Of a tensor made of tensors (a quantised state), those.
    """
    for value in tree_iter(out):
        if isinstance(value, FakeTensor) and value.layout == torch.sparse_coo:
            yield from (value._indices(), value._values())
        elif isinstance(value, Tensor) and is_traceable_wrapper_subclass(value):
            inner = [getattr(value, name) for name in value.__tensor_flatten__()[0]]
            yield from with_storage(inner)
        else:
            yield value


def _rows(tensors: list[Tensor]) -> int:
    """The first dimension of an operator's first tensor, mostly its samples."""
    return tensors[0].shape[0] if tensors and tensors[0].dim() else 1


def _is_on_gpu(value: object) -> bool:
    return isinstance(value, FakeTensor) and bool(value.device.type == "cuda")
