"""One fused operator known by shapes and cost alone, with its gradient: `fused_op`.

To torch it is an operator without kernels: fake tensors pass through it, a recorder sees it once
forward and once backward, and nothing below it. Its arguments may be anything Python has; what it
costs is told by functions of those arguments, as in `outlay.trace.formulas`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from outlay.trace import traffic
from outlay.trace.capture.recorder import precision_of
from outlay.trace.formulas import Amount, Formula, enter_formula, evaluated_cost
from outlay.trace.profile import Kind

Results = Any
"""A tensor, or tensors and other values in tuples, lists and dictionaries."""

used_libraries: set[str] = set()
"""The first names of the operators that have run: `natten` of `natten.na2d`."""


def fused_op(
    name: str,
    forward: Callable[..., Results],
    *,
    kind: Kind,
    flops: Amount | float = 0.0,
    moved_bytes: Amount | None = None,
    launches: Amount | float = 1,
    efficiency: Amount | float | None = None,
    backward: Callable[..., Sequence[Tensor | None]] | None = None,
    backward_flops: Amount | float | None = None,
    backward_bytes: Amount | None = None,
    backward_launches: float = 1,
    saved: Callable[..., Sequence[Tensor]] | None = None,
    is_known: bool = True,
) -> FusedOp:
    """A function to call in the place of a kernel `library.operator`, with its gradient.

    `forward` gets the arguments and returns empty tensors like the kernel's results (`new_empty`);
    an argument it returns was changed in place. `flops`, `moved_bytes`, `launches` and their
    `backward_` forms get the arguments and `out`; without `moved_bytes` each tensor counts once.

    The gradient is one operator `library.operator_backward`, twice the FLOPs where nothing is
    said. It reads the gradients of the results and what `saved(*args, out=...)` names, which is
    held in memory until then (all tensor arguments without it). `backward(grads, *args, **kwargs)`
    replaces it: it returns the gradient of each tensor argument in order, computed by operators
    that can be differentiated again. Gradients of any order work either way.
    """
    cost = Formula(
        kind=kind,
        flops=flops,
        moved_bytes=moved_bytes or traffic.read_and_written_bytes,
        launches=launches,
        efficiency=efficiency,
    )
    return FusedOp(
        name=name,
        forward=forward,
        cost=cost,
        backward=backward,
        backward_flops=backward_flops,
        backward_bytes=backward_bytes,
        backward_launches=backward_launches,
        saved=saved,
        is_known=is_known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """The arguments of a call without its tensors, which torch has to see."""

    spec: TreeSpec
    others: tuple[object, ...]
    """Every leaf that is no tensor, `_TENSOR` in the place of one that is."""

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """The arguments with these tensors."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self.others]
        return tree_unflatten(leaves, self.spec)


_TENSOR = object()


def _split(value: object) -> tuple[list[Tensor], _Arguments]:
    leaves, spec = tree_flatten(value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    others = tuple(_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    return tensors, _Arguments(spec=spec, others=others)


@dataclass(slots=True, kw_only=True)
class _Call:
    """One call while it runs: its arguments, and what of its results torch does not see."""

    op: FusedOp
    arguments: _Arguments
    cost: Formula
    results: _Arguments | None = None
    unchanged: dict[int, int] = field(default_factory=dict)
    """Of results that are arguments: the place among the result's tensors, and in the call's."""


_calls: dict[int, _Call] = {}
_numbers = itertools.count()
_libraries: dict[str, torch.library.Library] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class FusedOp:
    """A kernel's stand-in; calling it runs nothing but is recorded as one operator."""

    name: str
    forward: Callable[..., Results]
    cost: Formula
    backward: Callable[..., Sequence[Tensor | None]] | None = None
    backward_flops: Amount | float | None = None
    backward_bytes: Amount | None = None
    backward_launches: float = 1
    saved: Callable[..., Sequence[Tensor]] | None = None
    is_known: bool = True
    _declared: list[Any] = field(default_factory=list, repr=False)
    _gradient: list[FusedOp] = field(default_factory=list, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Results:
        """Results of the right shapes; differentiable where an argument is."""
        return self.run_with(self.cost, *args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a class's attribute, a method."""
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    @property
    def __name__(self) -> str:
        return self.name.rpartition(".")[2]

    def run_with(self, cost: Formula, *args: Any, **kwargs: Any) -> Results:
        """The same, with a cost of this call alone."""
        used_libraries.add(self.name.partition(".")[0])
        tensors, arguments = _split((args, kwargs))
        call = _Call(op=self, arguments=arguments, cost=cost)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            outputs = _Differentiable.apply(call, *tensors)
        else:
            outputs = self.dispatch(call, tensors)
        assert call.results is not None
        rest = iter(outputs)
        total = sum(leaf is _TENSOR for leaf in call.results.others)
        filled = [
            tensors[call.unchanged[place]] if place in call.unchanged else next(rest)
            for place in range(total)
        ]
        return call.results.filled(filled)

    def dispatch(self, call: _Call, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that are new among the results, through torch's dispatcher."""
        number = next(_numbers)
        _calls[number] = call
        try:
            outputs: list[Tensor] = self._operator(list(tensors), number)
            return outputs
        finally:
            del _calls[number]

    @property
    def _operator(self) -> Any:
        """The operator of torch, declared when it is first needed."""
        if not self._declared:
            self._declared.append(_declare(self))
        return self._declared[0]

    @property
    def gradient(self) -> FusedOp:
        """The operator that computes the gradients, where they are one kernel."""
        if not self._gradient:
            gradient = FusedOp(
                name=f"{self.name}_backward",
                forward=_empty_gradients,
                cost=Formula(kind=self.cost.kind, launches=self.backward_launches),
                is_known=self.is_known,
            )
            self._gradient.append(gradient)
        return self._gradient[0]

    def gradient_cost(self, call: _Call, tensors: Sequence[Tensor], out: Results) -> Formula:
        """What the gradients of a call cost, worked out while its arguments are at hand."""
        args, kwargs = call.arguments.filled(tensors)

        def amount(value: Amount | float | None) -> float | None:
            return float(value(*args, **kwargs, out=out)) if callable(value) else value

        flops = amount(self.backward_flops)
        if flops is None:
            flops = 2 * (amount(call.cost.flops) or 0.0)
        moved = amount(self.backward_bytes)
        forward = evaluated_cost(call.cost, args, kwargs, out)
        precision = precision_of(self.cost.kind, list(tensors))
        efficiency = forward.efficiency_in(precision)
        cost: Formula = replace(self.gradient.cost, flops=flops, efficiency=efficiency)
        if moved is not None:
            cost = replace(cost, moved_bytes=lambda *_, **__: moved)
        return cost


def _declare(op: FusedOp) -> Any:
    """The operator in torch, under its own name unless that is taken, and its formula."""
    namespace, _, rest = op.name.partition(".")
    operator = rest.replace(".", "_") or namespace
    while torch._C._jit_get_schemas_for_operator(f"{namespace}::{operator}"):
        operator += "_traced"
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries.setdefault(namespace, torch.library.Library(namespace, "FRAGMENT"))
    library.define(f"{operator}(Tensor[] tensors, int call) -> Tensor[]")
    torch.library.register_fake(f"{namespace}::{operator}", _fake_results, lib=library)
    if op.is_known:
        enter_formula(
            f"{namespace}.{operator}",
            Formula(
                kind=op.cost.kind,
                flops=_amount_of("flops"),
                moved_bytes=_amount_of("moved_bytes"),
                launches=_amount_of("launches"),
                efficiency=_amount_of("efficiency"),
                seconds=_amount_of("seconds"),
                measured_on=op.cost.measured_on,
            ),
        )
    return getattr(getattr(torch.ops, namespace), operator)


def _fake_results(tensors: list[Tensor], number: int) -> list[Tensor]:
    call = _calls[number]
    args, kwargs = call.arguments.filled(tensors)
    results, call.results = _split(call.op.forward(*args, **kwargs))
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    call.unchanged = {
        place: places[id(result)] for place, result in enumerate(results) if id(result) in places
    }
    return [result for place, result in enumerate(results) if place not in call.unchanged]


def _amount_of(name: str) -> Amount:
    """The formula of an operator: asks the call that runs."""

    def amount(tensors: list[Tensor], number: int, *, out: list[Tensor]) -> float:
        call = _calls[number]
        value = getattr(call.cost, name)
        if not callable(value):
            return 0.0 if value is None else float(value)
        args, kwargs = call.arguments.filled(tensors)
        return float(value(*args, **kwargs, out=_filled_results(call, tensors, out)))

    return amount


def _filled_results(call: _Call, tensors: Sequence[Tensor], new: Sequence[Tensor]) -> Results:
    assert call.results is not None
    rest = iter(new)
    total = sum(leaf is _TENSOR for leaf in call.results.others)
    return call.results.filled(
        [
            tensors[call.unchanged[place]] if place in call.unchanged else next(rest)
            for place in range(total)
        ]
    )


# Gradients


class _Differentiable(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        op = call.op
        outputs = op.dispatch(call, tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(t for t in outputs if not t.dtype.is_floating_point))
        ctx.call, ctx.saves_all = call, op.saved is None or op.backward is not None
        results = _filled_results(call, tensors, outputs)
        kept: Sequence[Tensor] = tensors
        if op.saved is not None and op.backward is None:
            args, kwargs = call.arguments.filled(tensors)
            kept = op.saved(*args, **kwargs, out=results)
        ctx.save_for_backward(*kept)
        ctx.shapes = [(tuple(t.shape), t.dtype) for t in tensors]
        ctx.cost = None if op.backward else op.gradient_cost(call, tensors, results)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        if not any(grad is not None for grad in grads):
            return (None, *(None for _ in wanted))
        op, call = ctx.call.op, ctx.call
        if op.backward is not None:
            args, kwargs = call.arguments.filled(ctx.saved_tensors)
            return (None, *op.backward(grads, *args, **kwargs))
        shapes = [shape for shape, needed in zip(ctx.shapes, wanted, strict=True) if needed]
        given = [grad for grad in grads if grad is not None]
        results = iter(op.gradient.run_with(ctx.cost, given, list(ctx.saved_tensors), shapes))
        return (None, *(next(results) if needed else None for needed in wanted))


def _empty_gradients(
    grads: Sequence[Tensor], _saved: Sequence[Tensor], shapes: Sequence[Any]
) -> list[Tensor]:
    return [grads[0].new_empty(shape, dtype=dtype) for shape, dtype in shapes]
