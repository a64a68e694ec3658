"""How many elements an operator selects whose result depends on values a trace does not have.

In this order: the number, where the values are known (`values`); the share that the way the mask
was made tells (`shares`); the share the user gave, `SELECTED` without one. Whatever was assumed is
said with the line it was assumed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture.constant_values import ByStorage, ConstantValues, written_arguments
from outlay.trace.tracing import SELECTED

if TYPE_CHECKING:
    from torch._ops import OpOverload


# What the way a tensor was made tells of its values: the share of a mask that is true, say.
#
# A trace cannot know which tokens a router sends where, but of a choice of k among E experts each
# gets k / E of the tokens on average; a mask `rand() < 0.15` keeps 15 %. Such facts follow masks
# through the operators that code makes them with. Where none is known, a selection assumes.


_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStatistics:
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


class StatisticsByStorage:
    """The facts of every storage that has one."""

    def __init__(self, values: ConstantValues) -> None:
        self._values = values
        self._facts: ByStorage[ValueStatistics] = ByStorage()

    def of(self, tensor: Tensor) -> ValueStatistics:
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


_NOTHING = ValueStatistics()


def _kept(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """The same values, or some of them, elsewhere."""
    first = args[0][0] if isinstance(args[0], list | tuple) else args[0]
    fact = shares.of(first)
    return None if fact is _NOTHING else ValueStatistics(share=fact.share, choices=fact.choices)


def _normal(*_: object) -> ValueStatistics:
    return ValueStatistics(middle=0.0)


def _copied(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    fact = shares.of(args[0])
    return None if fact is _NOTHING else fact


def _chosen(
    _shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """Positions along a dimension: top-k, and draws with chances."""
    source, dim = args[0], args[2] if len(args) > 2 and not isinstance(args[2], bool) else -1
    return ValueStatistics(choices=source.shape[dim]) if source.dim() else None


def _chosen_along(
    _shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    source, dim = args[0], args[1] if len(args) > 1 else None
    if not source.dim():
        return None
    return ValueStatistics(choices=source.numel() if dim is None else source.shape[dim])


def _random_integers(
    _shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """randint(high, size) or randint(low, high, size)."""
    bounds = [one for one in args if isinstance(one, int)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    middle = (low + high - 1) // 2
    return ValueStatistics(choices=high if low == 0 and high > 0 else None, middle=middle)


def _uniform(
    _shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """rand(size), rand_like(tensor), or uniform_(tensor, low, high)."""
    bounds = [one for one in args[1:] if isinstance(one, int | float)]
    if not bounds:
        return ValueStatistics(uniform=True, middle=0.5)
    low, high = (*bounds, 1.0)[:2]
    return ValueStatistics(middle=(low + high) / 2)


def _below(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    fact, bound = shares.of(args[0]), args[1]
    if isinstance(bound, Tensor):
        return None
    if bound == math.inf:
        return ValueStatistics(share=1.0)
    if fact.uniform:
        return ValueStatistics(share=_fraction(bound))
    return ValueStatistics(share=_fraction(bound / fact.choices)) if fact.choices else None


def _above(
    shares: StatisticsByStorage, args: tuple[Any, ...], out: object
) -> ValueStatistics | None:
    fact, bound = shares.of(args[0]), args[1]
    if fact.share is not None and not isinstance(bound, Tensor) and bound == 0:
        return ValueStatistics(share=fact.share)
    below = _below(shares, args, out)
    return None if below is None or below.share is None else ValueStatistics(share=1 - below.share)


def _equal(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    if args[0] is args[1]:
        return ValueStatistics(share=1.0)  # not a number is the only one that differs from itself
    if not isinstance(args[1], Tensor) and args[1] == math.inf:
        return ValueStatistics(share=0.0)
    tensors = [one for one in args[:2] if isinstance(one, Tensor)]
    choices = next((shares.of(one).choices for one in tensors if shares.of(one).choices), None)
    return ValueStatistics(share=1 / choices) if choices else None


def _unequal(
    shares: StatisticsByStorage, args: tuple[Any, ...], out: object
) -> ValueStatistics | None:
    fact, bound = shares.of(args[0]), args[1]
    if fact.share is not None and not isinstance(bound, Tensor) and bound == 0:
        return ValueStatistics(share=fact.share)
    equal = _equal(shares, args, out)
    return None if equal is None or equal.share is None else ValueStatistics(share=1 - equal.share)


def _all(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """Sure where the share is; a guess otherwise, which is left to the recorder."""
    share = shares.share_of(args[0])
    return ValueStatistics(share=share) if share in (0.0, 1.0) else None


def _not(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    share = shares.share_of(args[0])
    return None if share is None else ValueStatistics(share=1 - share)


def _both(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """And, and the product: what is not zero in either, as if they knew nothing of each other."""
    parts = [shares.share_of(one) for one in args[:2] if isinstance(one, Tensor)]
    known = [one for one in parts if one is not None]
    if not known:
        return None
    return ValueStatistics(share=known[0] if len(known) == 1 else known[0] * known[1])


def _either(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    one, other = (shares.share_of(arg) for arg in args[:2])
    return (
        None if one is None or other is None else ValueStatistics(share=one + other - one * other)
    )


def _scattered(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    """Ones (or other values) put into zeros: a one-hot code."""
    target, _dim, index, *_ = args
    places = index.numel() / max(target.numel(), 1)
    choices = shares.of(index).choices
    return ValueStatistics(share=_fraction(1 / choices if choices else places))


def _summed(
    shares: StatisticsByStorage, args: tuple[Any, ...], out: object
) -> ValueStatistics | None:
    """Sums of a mask: the total stays; a sum is zero only where all were."""
    source = args[0]
    share = shares.share_of(source)
    if share is None:
        return None
    results = max(out.numel(), 1) if isinstance(out, Tensor) else 1
    together = _fraction(share * source.numel() / results)
    return ValueStatistics(total=share * source.numel(), share=together)


def _counted(_shares: StatisticsByStorage, args: tuple[Any, ...], _out: object) -> ValueStatistics:
    return ValueStatistics(total=args[0].numel())


def _bernoulli(
    shares: StatisticsByStorage, args: tuple[Any, ...], _out: object
) -> ValueStatistics | None:
    if len(args) > 1 and isinstance(args[1], float):
        return ValueStatistics(share=_fraction(args[1]))
    chances = shares._values.of(args[0])
    return None if chances is None else ValueStatistics(share=_fraction(_mean(chances)))


def _mean(values: Tensor) -> float:
    with torch._C._DisableTorchDispatch():
        return float(values.double().mean().item())


def _fraction(number: float) -> float:
    return min(max(float(number), 0.0), 1.0)


_Rule = Callable[[StatisticsByStorage, tuple[Any, ...], object], ValueStatistics | None]
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


_LEAST_PER_SAMPLE = 10
"""From so many on, whole numbers a sample are within 5 % of the share."""
_NOTES_AT_MOST = 12


class SelectionSizes:
    """Counts what selections keep at one batch size, and collects what it assumed."""

    def __init__(
        self,
        batch_size: int,
        selected: float = SELECTED,
        line: Callable[[], str] = lambda: "",
    ) -> None:
        self.values = ConstantValues()
        self.shares = StatisticsByStorage(self.values)
        self._batch_size = batch_size
        self._selected = selected
        self._line = line
        self._assumed: dict[str, None] = {}

    def kept(self, mask: Tensor, operator: str) -> int:
        """How many elements of a mask are true (of numbers, not zero)."""
        known = self.values.of(mask)
        if known is not None:
            with torch._C._DisableTorchDispatch():
                return int(known.count_nonzero().item())
        share = self.shares.share_of(mask)
        if share is None:
            return self.assumed(mask.numel(), operator)
        if share < 1:
            self.note(operator, f"{share:.3g} of its elements are counted, as its mask is made")
        return self._whole(share, mask.numel())

    def assumed(self, elements: int, operator: str) -> int:
        """The user's share of some elements, with a note that says so."""
        self.note(operator, f"{self._selected:g} of its elements were assumed to be kept")
        return self._whole(self._selected, elements)

    def distinct(self, tensor: Tensor, operator: str) -> int:
        """How many different values a tensor has."""
        known = self.values.of(tensor)
        if known is not None:
            with torch._C._DisableTorchDispatch():
                return int(known.unique().numel())
        choices = self.shares.of(tensor).choices
        if choices is None:
            return self.assumed(tensor.numel(), operator)
        # So many of the choices are drawn at least once in n draws.
        drawn: float = choices * (1 - (1 - 1 / choices) ** tensor.numel())
        return max(round(drawn), 1)

    def total(self, counts: Tensor) -> int | None:
        """The sum of a tensor of counts, where it is known.

        Of part of a tensor, its even part of the whole; what is over goes to the first elements.
        """
        known = self.values.of(counts)
        if known is not None:
            with torch._C._DisableTorchDispatch():
                return int(known.sum().item())
        fact = self.shares.of(counts)
        if fact.total is None:
            return None
        elements = counts.untyped_storage().nbytes() // counts.dtype.itemsize
        each, over = divmod(round(fact.total), max(elements, 1))
        first = counts.storage_offset()
        part: int = each * counts.numel() + max(min(over - first, counts.numel()), 0)
        return part

    def likely(self, tensor: Tensor) -> bool | float | None:
        """The likeliest answer to a question, the sum of counts, the middle of a random number.

        None where nothing is known.
        """
        fact = self.shares.of(tensor)
        if tensor.dtype == torch.bool:
            return None if fact.share is None else fact.share > 0.5
        total = self.total(tensor)
        return fact.middle if total is None else total

    def answers(self, tensor: Tensor) -> Tensor:
        """Values for code that reads a whole tensor: those known, even counts, or zeros."""
        known = self.values.of(tensor)
        if known is not None:
            return known
        total = self.total(tensor)
        with torch._C._DisableTorchDispatch():
            zeros = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            if total is None or not tensor.numel():
                return zeros
            each, over = divmod(total, tensor.numel())
            flat = zeros.view(-1)
            flat += each
            flat[:over] += 1
            return zeros

    def note(self, operator: str, what: str) -> None:
        """Say what was assumed for an operator on the line that runs now."""
        line = self._line()
        where = f" at {line}" if line else ""
        self._assumed[f"{operator}{where} depends on values: {what}."] = None

    def notes(self) -> list[str]:
        """Everything that was assumed, each line once."""
        said = list(self._assumed)
        more = len(said) - _NOTES_AT_MOST
        if more > 0:
            said = [*said[:_NOTES_AT_MOST], f"{more} more selections were assumed likewise."]
        if any("assumed to be kept" in one for one in said):
            said.append("Another share of selected elements can be given: --selected 0.25.")
        return said

    def _whole(self, share: float, elements: int) -> int:
        """A share in whole elements, and where there are many of them in whole ones a sample.

        Amounts then stay in proportion to the batch size.
        """
        per_sample = share * elements / self._batch_size
        if elements % self._batch_size == 0 and per_sample >= _LEAST_PER_SAMPLE:
            return round(per_sample) * self._batch_size
        return round(share * elements)
