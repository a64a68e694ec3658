"""Data-dependent shapes: how many elements an operator selects by values a trace does not have.

`SelectionSizes` counts them, in this order: exactly, where the values follow from constants
(`ConstantValues`); by the fraction that the way the mask was made tells (`StatisticsByStorage`); by
the share the user gave, `SELECTED` without one. Whatever was assumed is noted, with the line it was
assumed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture.constant_values import (
    Args,
    ByStorage,
    ConstantValues,
    without_dispatch,
    written_arguments,
)
from outlay.trace.target import SELECTED

if TYPE_CHECKING:
    from torch._ops import OpOverload


_LEAST_PER_SAMPLE = 10
"""From so many on, whole numbers a sample are within 5 % of the share."""
_MOST_NOTES = 12


class SelectionSizes:
    """Counts what selections keep at one batch size, and collects what it assumed."""

    def __init__(
        self,
        batch_size: int,
        selected: float = SELECTED,
        current_line: Callable[[], str] = lambda: "",
    ) -> None:
        self.values = ConstantValues()
        self.statistics = StatisticsByStorage(self.values)
        self._batch_size = batch_size
        self._selected = selected
        self._current_line = current_line
        self._assumptions: dict[str, None] = {}

    def nonzero_count(self, mask: Tensor, operator: str) -> int:
        """How many elements of a mask are true (of numbers, not zero)."""
        constant = self.values.of(mask)
        if constant is not None:
            with without_dispatch():
                return int(constant.count_nonzero().item())
        fraction = self.statistics.nonzero_fraction(mask)
        if fraction is None:
            return self.assumed_count(mask.numel(), operator)
        if fraction < 1:
            self.note(operator, f"{fraction:.3g} of its elements are counted, as its mask is made")
        return self._whole(fraction, mask.numel())

    def assumed_count(self, elements: int, operator: str) -> int:
        """The user's share of some elements, with a note that says so."""
        self.note(operator, f"{self._selected:g} of its elements were assumed to be kept")
        return self._whole(self._selected, elements)

    def distinct_count(self, tensor: Tensor, operator: str) -> int:
        """How many different values a tensor has."""
        constant = self.values.of(tensor)
        if constant is not None:
            with without_dispatch():
                return int(constant.unique().numel())
        choices = self.statistics.of(tensor).choices
        if choices is None:
            return self.assumed_count(tensor.numel(), operator)
        # So many of the choices are drawn at least once in n draws.
        drawn: float = choices * (1 - (1 - 1 / choices) ** tensor.numel())
        return max(round(drawn), 1)

    def total(self, counts: Tensor) -> int | None:
        """The sum of a tensor of counts, where it is known.

        Of part of a tensor, its even part of the whole; what is over goes to the first elements.
        """
        constant = self.values.of(counts)
        if constant is not None:
            with without_dispatch():
                return int(constant.sum().item())
        total = self.statistics.of(counts).total
        if total is None:
            return None
        elements = counts.untyped_storage().nbytes() // counts.dtype.itemsize
        each, over = divmod(round(total), max(elements, 1))
        first = counts.storage_offset()
        part: int = each * counts.numel() + max(min(over - first, counts.numel()), 0)
        return part

    def likely_value(self, tensor: Tensor) -> bool | float | None:
        """The likelier of true and false, the sum of counts, the mean of a random number.

        None where nothing is known.
        """
        statistics = self.statistics.of(tensor)
        if tensor.dtype == torch.bool:
            fraction = statistics.nonzero_fraction
            return None if fraction is None else fraction > 0.5
        total = self.total(tensor)
        return statistics.mean if total is None else total

    def likely_values(self, tensor: Tensor) -> Tensor:
        """Values for code that reads a whole tensor: those known, even counts, or zeros."""
        constant = self.values.of(tensor)
        if constant is not None:
            return constant
        total = self.total(tensor)
        with without_dispatch():
            zeros = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            if total is None or not tensor.numel():
                return zeros
            each, over = divmod(total, tensor.numel())
            flat = zeros.view(-1)
            flat += each
            flat[:over] += 1
            return zeros

    def note(self, operator: str, what: str) -> None:
        """Note what was assumed for an operator on the line that runs now."""
        line = self._current_line()
        where = f" at {line}" if line else ""
        self._assumptions[f"{operator}{where} depends on values: {what}."] = None

    def notes(self) -> list[str]:
        """Everything that was assumed, each line once."""
        notes = list(self._assumptions)
        more = len(notes) - _MOST_NOTES
        if more > 0:
            notes = [*notes[:_MOST_NOTES], f"{more} more selections were assumed likewise."]
        if any("assumed to be kept" in note for note in notes):
            notes.append("Another share of selected elements can be given: --selected 0.25.")
        return notes

    def _whole(self, fraction: float, elements: int) -> int:
        """A fraction in whole elements, and where there are many of them in whole ones a sample.

        Amounts then stay in proportion to the batch size.
        """
        per_sample = fraction * elements / self._batch_size
        if elements % self._batch_size == 0 and per_sample >= _LEAST_PER_SAMPLE:
            return round(per_sample) * self._batch_size
        return round(fraction * elements)


# Statistics. A trace cannot know which tokens a router sends where, but of a choice of k among E
# experts each gets k / E of the tokens on average; a mask `rand() < 0.15` keeps 15 %. Such facts
# follow masks through the operators that code makes them with.


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStatistics:
    """What is known of a tensor's values on average.

    nonzero_fraction: of the elements. choices: the elements are whole numbers from 0 to below
    this, all as likely. uniform: they are between 0 and 1, all as likely. total: their sum.
    mean: of a random number; of whole ones, a whole one.
    """

    nonzero_fraction: float | None = None
    choices: int | None = None
    uniform: bool = False
    total: float | None = None
    mean: float | None = None


class StatisticsByStorage:
    """The statistics of every storage that has any."""

    def __init__(self, values: ConstantValues) -> None:
        self.values = values
        self._statistics: ByStorage[ValueStatistics] = ByStorage()

    def of(self, tensor: Tensor) -> ValueStatistics:
        """What is known of a tensor; statistics that say nothing where nothing is."""
        return self._statistics.get(tensor) or _NOTHING

    def nonzero_fraction(self, mask: Tensor) -> float | None:
        """The fraction of elements that are not zero."""
        return self.of(mask).nonzero_fraction

    def follow(self, func: OpOverload, args: Args, out: object) -> None:
        """Note what an operator's arguments tell of its result."""
        packet = func.overloadpacket
        rule = _RULES.get(packet)
        statistics = None if rule is None else rule(self, args, out)
        target = out[1] if packet in _SECOND_RESULT and isinstance(out, tuple | list) else out
        if not isinstance(target, Tensor):
            return
        if statistics is not None:
            self._statistics.set(target, statistics)
        elif written_arguments(func):
            self._statistics.drop(target)


_NOTHING = ValueStatistics()
_Rule = Callable[[StatisticsByStorage, Args, object], ValueStatistics | None]
"""Called with all statistics, an operator's arguments and its result; those of the result."""


# Rules: copies, and values from elsewhere


def _copied(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    source = statistics.of(args[0])
    return None if source is _NOTHING else source


def _moved(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """The same values, or some of them, elsewhere."""
    first = args[0][0] if isinstance(args[0], list | tuple) else args[0]
    source = statistics.of(first)
    if source is _NOTHING:
        return None
    return ValueStatistics(nonzero_fraction=source.nonzero_fraction, choices=source.choices)


# Rules: positions and random numbers


def _chosen(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Positions along a dimension: top-k, and draws with chances."""
    source, dim = args[0], args[2] if len(args) > 2 and not isinstance(args[2], bool) else -1
    return ValueStatistics(choices=source.shape[dim]) if source.dim() else None


def _chosen_along(
    _statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    source, dim = args[0], args[1] if len(args) > 1 else None
    if not source.dim():
        return None
    return ValueStatistics(choices=source.numel() if dim is None else source.shape[dim])


def _random_integers(
    _statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    """randint(high, size) or randint(low, high, size)."""
    bounds = [arg for arg in args if isinstance(arg, int)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    mean = (low + high - 1) // 2
    return ValueStatistics(choices=high if low == 0 and high > 0 else None, mean=mean)


def _uniform(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """rand(size), rand_like(tensor), or uniform_(tensor, low, high)."""
    bounds = [arg for arg in args[1:] if isinstance(arg, int | float)]
    if not bounds:
        return ValueStatistics(uniform=True, mean=0.5)
    low, high = (*bounds, 1.0)[:2]
    return ValueStatistics(mean=(low + high) / 2)


def _normal(*_: object) -> ValueStatistics:
    return ValueStatistics(mean=0.0)


def _bernoulli(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    if len(args) > 1 and isinstance(args[1], float):
        return ValueStatistics(nonzero_fraction=_fraction(args[1]))
    chances = statistics.values.of(args[0])
    if chances is None:
        return None
    with without_dispatch():
        mean = float(chances.double().mean().item())
    return ValueStatistics(nonzero_fraction=_fraction(mean))


# Rules: comparisons


def _below(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    source, bound = statistics.of(args[0]), args[1]
    if isinstance(bound, Tensor):
        return None
    if bound == math.inf:
        return ValueStatistics(nonzero_fraction=1.0)
    if source.uniform:
        return ValueStatistics(nonzero_fraction=_fraction(bound))
    if source.choices:
        return ValueStatistics(nonzero_fraction=_fraction(bound / source.choices))
    return None


def _equal(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    if args[0] is args[1]:
        return ValueStatistics(nonzero_fraction=1.0)  # only not-a-number differs from itself
    if not isinstance(args[1], Tensor) and args[1] == math.inf:
        return ValueStatistics(nonzero_fraction=0.0)
    tensors = [arg for arg in args[:2] if isinstance(arg, Tensor)]
    choices = next((n for n in (statistics.of(tensor).choices for tensor in tensors) if n), None)
    return ValueStatistics(nonzero_fraction=1 / choices) if choices else None


def _opposite(rule: _Rule) -> _Rule:
    """Of a comparison with the opposite outcome; of one with 0, what is not zero."""

    def opposite(
        statistics: StatisticsByStorage, args: Args, out: object
    ) -> ValueStatistics | None:
        fraction, bound = statistics.nonzero_fraction(args[0]), args[1]
        if fraction is not None and not isinstance(bound, Tensor) and bound == 0:
            return ValueStatistics(nonzero_fraction=fraction)
        compared = rule(statistics, args, out)
        if compared is None or compared.nonzero_fraction is None:
            return None
        return ValueStatistics(nonzero_fraction=1 - compared.nonzero_fraction)

    return opposite


# Rules: logic


def _not(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    fraction = statistics.nonzero_fraction(args[0])
    return None if fraction is None else ValueStatistics(nonzero_fraction=1 - fraction)


def _and(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """And, and the product: what is not zero in either, as if they were independent."""
    fractions = [statistics.nonzero_fraction(arg) for arg in args[:2] if isinstance(arg, Tensor)]
    known = [fraction for fraction in fractions if fraction is not None]
    if not known:
        return None
    return ValueStatistics(nonzero_fraction=known[0] if len(known) == 1 else known[0] * known[1])


def _or(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    first, second = (statistics.nonzero_fraction(arg) for arg in args[:2])
    if first is None or second is None:
        return None
    return ValueStatistics(nonzero_fraction=first + second - first * second)


def _all(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Certain where the fraction is; a guess otherwise, which is left to the recorder."""
    fraction = statistics.nonzero_fraction(args[0])
    return ValueStatistics(nonzero_fraction=fraction) if fraction in (0.0, 1.0) else None


# Rules: sums and counts


def _scattered(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Ones (or other values) put into zeros: a one-hot code."""
    target, _dim, index, *_ = args
    written = index.numel() / max(target.numel(), 1)
    choices = statistics.of(index).choices
    return ValueStatistics(nonzero_fraction=_fraction(1 / choices if choices else written))


def _summed(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """Sums of a mask: the total stays; a sum is zero only where all were."""
    source = args[0]
    fraction = statistics.nonzero_fraction(source)
    if fraction is None:
        return None
    total = fraction * source.numel()
    results = max(out.numel(), 1) if isinstance(out, Tensor) else 1
    return ValueStatistics(total=total, nonzero_fraction=_fraction(total / results))


def _counted(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics:
    return ValueStatistics(total=args[0].numel())


def _fraction(number: float) -> float:
    return min(max(float(number), 0.0), 1.0)


_aten = torch.ops.aten
_SECOND_RESULT = {_aten.topk, _aten.sort, _aten.kthvalue}
_RULES_BY_NAMES: dict[str, _Rule] = {
    "cat stack index gather index_select repeat expand_copy masked_fill take": _moved,
    "_to_copy clone contiguous detach alias lift_fresh abs": _copied,
    "topk multinomial": _chosen,
    "argmax argmin sort argsort": _chosen_along,
    "randint": _random_integers,
    "rand rand_like uniform_": _uniform,
    "randn randn_like normal_": _normal,
    "bernoulli bernoulli_": _bernoulli,
    "lt le": _below,
    "gt ge": _opposite(_below),
    "eq": _equal,
    "ne": _opposite(_equal),
    "logical_not bitwise_not": _not,
    "logical_and bitwise_and __and__ mul": _and,
    "logical_or bitwise_or __or__": _or,
    "all": _all,
    "scatter scatter_": _scattered,
    "sum any count_nonzero": _summed,
    "bincount histc": _counted,
}
_RULES: dict[Any, _Rule] = {
    getattr(_aten, name): rule for names, rule in _RULES_BY_NAMES.items() for name in names.split()
}
