"""What the way a tensor was made tells of its values: the share of a mask that is true, say.

A trace cannot know which tokens a router sends where, but of a choice of k among E experts each
gets k / E of the tokens on average; a mask `rand() < 0.15` keeps 15 %. Such facts follow masks
through the operators that code makes them with. Where none is known, a selection assumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture.values import ByStorage, Values, written_arguments

if TYPE_CHECKING:
    from torch._ops import OpOverload

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What is known of a tensor's values on average.

    share: of the elements that are not zero. choices: the elements are whole numbers from 0 to
    below this, all as likely. uniform: they are between 0 and 1, all as likely. total: their sum.
    middle: what a random number is in the middle.
    """

    share: float | None = None
    choices: int | None = None
    uniform: bool = False
    total: float | None = None
    middle: float | None = None


class Shares:
    """The facts of every storage that has one."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._facts: ByStorage[Fact] = ByStorage()

    def of(self, tensor: Tensor) -> Fact:
        """What is known of a tensor; a fact that says nothing where nothing is."""
        return self._facts.get(tensor) or _NOTHING

    def share_of(self, mask: Tensor) -> float | None:
        """The share of elements that are not zero."""
        return self.of(mask).share

    def follow(self, func: OpOverload, args: tuple[Any, ...], out: object) -> None:
        """Note what an operator's arguments tell of its result."""
        packet = func.overloadpacket
        rule = _RULES.get(packet)
        fact = None
        if rule is not None:
            fact = rule(self, args, out)
        target = out[1] if packet in _SECOND_RESULT and isinstance(out, tuple | list) else out
        if not isinstance(target, Tensor):
            return
        if fact is not None:
            self._facts.set(target, fact)
        elif written_arguments(func):
            self._facts.drop(target)


_NOTHING = Fact()


def _kept(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """The same values, or some of them, elsewhere."""
    first = args[0][0] if isinstance(args[0], list | tuple) else args[0]
    fact = shares.of(first)
    return None if fact is _NOTHING else Fact(share=fact.share, choices=fact.choices)


def _normal(*_: object) -> Fact:
    return Fact(middle=0.0)


def _copied(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    fact = shares.of(args[0])
    return None if fact is _NOTHING else fact


def _chosen(_shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """Positions along a dimension: top-k, and draws with chances."""
    source, dim = args[0], args[2] if len(args) > 2 and not isinstance(args[2], bool) else -1
    return Fact(choices=source.shape[dim]) if source.dim() else None


def _chosen_along(_shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    source, dim = args[0], args[1] if len(args) > 1 else None
    if not source.dim():
        return None
    return Fact(choices=source.numel() if dim is None else source.shape[dim])


def _random_integers(_shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """randint(high, size) or randint(low, high, size)."""
    bounds = [one for one in args if isinstance(one, int)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    middle = (low + high - 1) // 2
    return Fact(choices=high if low == 0 and high > 0 else None, middle=middle)


def _uniform(_shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """rand(size), rand_like(tensor), or uniform_(tensor, low, high)."""
    bounds = [one for one in args[1:] if isinstance(one, int | float)]
    if not bounds:
        return Fact(uniform=True, middle=0.5)
    low, high = (*bounds, 1.0)[:2]
    return Fact(middle=(low + high) / 2)


def _below(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    fact, bound = shares.of(args[0]), args[1]
    if isinstance(bound, Tensor):
        return None
    if bound == math.inf:
        return Fact(share=1.0)
    if fact.uniform:
        return Fact(share=_fraction(bound))
    return Fact(share=_fraction(bound / fact.choices)) if fact.choices else None


def _above(shares: Shares, args: tuple[Any, ...], out: object) -> Fact | None:
    fact, bound = shares.of(args[0]), args[1]
    if fact.share is not None and not isinstance(bound, Tensor) and bound == 0:
        return Fact(share=fact.share)
    below = _below(shares, args, out)
    return None if below is None or below.share is None else Fact(share=1 - below.share)


def _equal(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    if args[0] is args[1]:
        return Fact(share=1.0)  # not a number is the only one that differs from itself
    if not isinstance(args[1], Tensor) and args[1] == math.inf:
        return Fact(share=0.0)
    tensors = [one for one in args[:2] if isinstance(one, Tensor)]
    choices = next((shares.of(one).choices for one in tensors if shares.of(one).choices), None)
    return Fact(share=1 / choices) if choices else None


def _unequal(shares: Shares, args: tuple[Any, ...], out: object) -> Fact | None:
    fact, bound = shares.of(args[0]), args[1]
    if fact.share is not None and not isinstance(bound, Tensor) and bound == 0:
        return Fact(share=fact.share)
    equal = _equal(shares, args, out)
    return None if equal is None or equal.share is None else Fact(share=1 - equal.share)


def _all(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """Sure where the share is; a guess otherwise, which is left to the recorder."""
    share = shares.share_of(args[0])
    return Fact(share=share) if share in (0.0, 1.0) else None


def _not(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    share = shares.share_of(args[0])
    return None if share is None else Fact(share=1 - share)


def _both(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """And, and the product: what is not zero in either, as if they knew nothing of each other."""
    parts = [shares.share_of(one) for one in args[:2] if isinstance(one, Tensor)]
    known = [one for one in parts if one is not None]
    if not known:
        return None
    return Fact(share=known[0] if len(known) == 1 else known[0] * known[1])


def _either(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    one, other = (shares.share_of(arg) for arg in args[:2])
    return None if one is None or other is None else Fact(share=one + other - one * other)


def _scattered(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    """Ones (or other values) put into zeros: a one-hot code."""
    target, _dim, index, *_ = args
    places = index.numel() / max(target.numel(), 1)
    choices = shares.of(index).choices
    return Fact(share=_fraction(1 / choices if choices else places))


def _summed(shares: Shares, args: tuple[Any, ...], out: object) -> Fact | None:
    """Sums of a mask: the total stays; a sum is zero only where all were."""
    source = args[0]
    share = shares.share_of(source)
    if share is None:
        return None
    results = max(out.numel(), 1) if isinstance(out, Tensor) else 1
    together = _fraction(share * source.numel() / results)
    return Fact(total=share * source.numel(), share=together)


def _counted(_shares: Shares, args: tuple[Any, ...], _out: object) -> Fact:
    return Fact(total=args[0].numel())


def _bernoulli(shares: Shares, args: tuple[Any, ...], _out: object) -> Fact | None:
    if len(args) > 1 and isinstance(args[1], float):
        return Fact(share=_fraction(args[1]))
    chances = shares._values.of(args[0])
    return None if chances is None else Fact(share=_fraction(_mean(chances)))


def _mean(values: Tensor) -> float:
    with torch._C._DisableTorchDispatch():
        return float(values.double().mean().item())


def _fraction(number: float) -> float:
    return min(max(float(number), 0.0), 1.0)


_Rule = Callable[[Shares, tuple[Any, ...], object], Fact | None]
_SECOND_RESULT = {_aten.topk, _aten.sort, _aten.kthvalue}
_NAMES: dict[str, _Rule] = {
    "cat stack index gather index_select repeat expand_copy masked_fill take": _kept,
    "_to_copy clone contiguous detach alias lift_fresh abs": _copied,
    "topk multinomial": _chosen,
    "argmax argmin sort argsort": _chosen_along,
    "randint": _random_integers,
    "rand rand_like uniform_": _uniform,
    "randn randn_like normal_": _normal,
    "lt le": _below,
    "gt ge": _above,
    "eq": _equal,
    "ne": _unequal,
    "logical_not bitwise_not": _not,
    "logical_and bitwise_and __and__ mul": _both,
    "logical_or bitwise_or __or__": _either,
    "scatter scatter_": _scattered,
    "sum any count_nonzero": _summed,
    "all": _all,
    "bincount histc": _counted,
    "bernoulli bernoulli_": _bernoulli,
}
_RULES: dict[Any, _Rule] = {
    getattr(_aten, name): rule for names, rule in _NAMES.items() for name in names.split()
}
