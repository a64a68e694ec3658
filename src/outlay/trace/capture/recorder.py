"""Every operation of a training step, as torch dispatches it."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

from outlay.trace.capture.ledger import Ledger
from outlay.trace.capture.operations import Args, Kwargs, op_of, precision_of
from outlay.trace.capture.phases import PhaseTeller
from outlay.trace.capture.standins import run_operator
from outlay.trace.formulas import formula_for
from outlay.trace.moved import tensors_in
from outlay.trace.takings import takes_workspace, workspaces_of
from outlay.trace.trace import Op, Phase, Precision
from outlay.trace.workspace import Workspace, with_attention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch._ops import OpOverload

    from outlay.trace.capture.callsites import CallSites
    from outlay.trace.capture.selection import Selection
    from outlay.trace.step_report import CallSite

_COLLECT_EVERY = 256
"""Operators between collections of garbage: Python's own come at moments that differ from trace to
trace, and what lives in a cycle would then be freed elsewhere in each."""
_aten = torch.ops.aten
_LIKELY_TRUE = (_aten.all, _aten.isfinite)
_FLASH = "aten._scaled_dot_product_flash_attention"


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records operations on the GPU while `recording`, and live memory always.

    With `with_lines`, `sites` has the user's line of each operation.
    """

    def __init__(
        self,
        selection: Selection,
        callsites: CallSites | None = None,
        *,
        with_lines: bool = False,
        batch_size: int = 1,
    ) -> None:
        super().__init__()
        self.selection = selection
        self.ledger = Ledger(batch_size)
        self.ops: list[Op] = []
        self.sites: list[CallSite | None] = []
        self._callsites = callsites
        self._with_lines = with_lines
        self.unknown: Counter[str] = Counter()
        self.host_reads: Counter[tuple[str, str]] = Counter()
        """Lines that read a value off the GPU and what they were answered, with how often."""
        self.recording = False
        self.teller = PhaseTeller()
        self.optimized: dict[int, Tensor] = {}
        """Parameters that an optimizer on the GPU has updated, by identity."""
        self._dispatched = 0

    def start_step(self) -> None:
        """Say that the next operation belongs to a new step."""
        self.teller.start_step()
        self.ledger.start_step()

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
        phase = self.teller.phase(func)
        out = run_operator(func, args, kwargs, self.selection)
        self.selection.values.follow(func, args, kwargs, out)
        self.selection.shares.follow(func, args, out)
        if func.overloadpacket in _LIKELY_TRUE and isinstance(out, FakeTensor):
            out.outlay_answer = True
        on_gpu = [t for t in stored(out) if _is_on_gpu(t)]
        during: Phase = "backward" if phase == "recompute" else phase
        with self.ledger.holding(self._first_taken(func, args, kwargs, out), during):
            for tensor in on_gpu:
                self.ledger.made(tensor, during)
        self._take_workspace(func, during, args, kwargs, out)
        if isinstance(out, bool):  # a question, answered on the host
            return out
        if self.recording and (on_gpu or any(map(_is_on_gpu, tree_iter(args)))):
            self._note(func, phase, args, kwargs, out)
            if self._callsites is not None and self._with_lines:
                self.sites.append(self._callsites.here(func))
                self.ledger.mark()
        return out

    def _note(
        self, func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        op, is_known = op_of(func, phase, args, kwargs, out)
        self.ops.append(op)
        if not is_known:
            self.unknown[op.name] += 1

    def _first_taken(
        self, func: OpOverload, args: Args, kwargs: Kwargs, out: object
    ) -> Sequence[Workspace]:
        """What an operator takes before it makes its results: recurrent layers do."""
        if func is not _aten._cudnn_rnn.default:
            return ()
        return workspaces_of(str(func.overloadpacket), args, kwargs, out, "fp32")

    def _take_workspace(
        self, func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        """Note what a library takes for itself while this operator runs."""
        name = str(func.overloadpacket)
        formula = formula_for(name)
        if formula is None or not any(map(_is_on_gpu, tree_iter(args))):
            return
        if formula.kind == "gemm":
            self.ledger.cublas(phase)
        if func is _aten._cudnn_rnn.default or not (takes_workspace(name) or name == _FLASH):
            return
        tensors: list[Tensor] = [*tensors_in(*args, *kwargs.values()), *tensors_in(out)]
        precision = precision_of(formula.kind, tensors)
        taken = workspaces_of(name, args, kwargs, out, precision)
        if taken:
            self.ledger.workspaces(taken, phase, _rows(tensors))
        if name == _FLASH:
            self._keep_scores(args, out, phase, precision)

    def _keep_scores(self, args: Args, out: Any, phase: Phase, precision: Precision) -> None:
        """Note what GPUs without a fused kernel keep for backward: all scores, in fp32."""
        batch, heads, rows, _ = args[0].shape
        scores_bytes = 4 * batch * heads * rows * args[1].shape[-2]
        scores = Workspace(size_bytes=scores_bytes, condition=with_attention("math", precision))
        self.ledger.workspaces([scores], phase)
        self.ledger.beside(out[1], scores, phase)

    def _read_value(self, tensor: Tensor) -> bool | int | float:
        """An answer to `.item()`: the value where it follows from constants, else 0 from the GPU.

        0 is "no overflow" to a GradScaler. "Are all ...?" and "is it finite?" are answered with
        yes, other questions with what is likelier, or no. A random number is in the middle, and
        any other value on the CPU 1.
        """
        known = self._known(tensor)
        if known is not None:
            return known
        on_gpu = _is_on_gpu(tensor)
        answer = self._answer(tensor, 0 if on_gpu else 1)
        if on_gpu and self.recording:
            line = "" if self._callsites is None else self._callsites.line_now(with_code=True)
            self.host_reads[line, _said(answer)] += 1
        return answer

    def _answer(self, tensor: Tensor, otherwise: int) -> bool | int | float:
        likely = self.selection.likely(tensor)
        if tensor.dtype == torch.bool:
            usual = bool(getattr(tensor, "outlay_answer", False))
            return usual if likely is None else bool(likely)
        answer = otherwise if likely is None else likely
        return float(answer) if tensor.dtype.is_floating_point else int(answer)

    def _known(self, tensor: Tensor) -> bool | int | float | None:
        """The tensor's value where it does not depend on the data."""
        constant = tensor.constant if isinstance(tensor, FakeTensor) else tensor
        values = self.selection.values.of(tensor) if constant is None else constant
        if values is None:
            return None
        with torch._C._DisableTorchDispatch():
            value: bool | int | float = values.item()
            return value


def _said(answer: bool | int | float) -> str:
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return f"{answer:g}"


def stored(out: object) -> Iterator[object]:
    """The tensors of a result that have a storage: of a sparse one, its places and values.

    Of a tensor made of tensors (a quantised state), those.
    """
    for one in tree_iter(out):
        if isinstance(one, FakeTensor) and one.layout == torch.sparse_coo:
            yield from (one._indices(), one._values())
        elif isinstance(one, Tensor) and is_traceable_wrapper_subclass(one):
            yield from stored([getattr(one, name) for name in one.__tensor_flatten__()[0]])
        else:
            yield one


def _rows(tensors: list[Tensor]) -> int:
    """The first dimension of an operator's first tensor, mostly its samples."""
    return tensors[0].shape[0] if tensors and tensors[0].dim() else 1


def _is_on_gpu(value: object) -> bool:
    return isinstance(value, FakeTensor) and bool(value.device.type == "cuda")
