"""Data-dependent shapes: how many elements an operator selects by values a trace does not have.

`SelectionSizes` counts them, in this order: exactly, where the values follow from constants
(`ConstantValues`); by the fraction that the way the mask was made tells (`StatisticsByStorage`); by
the share the user gave, `SELECTED` without one. Small masks and counts get an example of such
values (`LikelyValues`), so that all that is worked out of them agrees. Whatever was assumed is
noted, with the line it was assumed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture.constant_values import (
    Args,
    ByStorage,
    ConstantValues,
    Kwargs,
    without_dispatch,
    written_arguments,
)
from outlay.trace.capture.likely_values import (
    Example,
    LikelyValues,
    even_counts,
    evenly_set,
    in_turn,
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
        self.statistics = StatisticsByStorage(self.values, selected)
        self.likely = LikelyValues(self.values, self._example_of)
        self.statistics.examples = self.likely
        self._batch_size = batch_size
        self._selected = selected
        self._current_line = current_line
        self._assumptions: dict[str, None] = {}
        self._share_is_used = False

    def follow(self, func: OpOverload, args: Args, kwargs: Kwargs, out: object) -> None:
        """Note what an operator that ran tells of the values it made."""
        stores = (self.values, self.likely)
        for store in reversed(stores) if written_arguments(func) else stores:
            store.follow(func, args, kwargs, out)
        self.statistics.follow(func, args, out)

    def nonzero_count(self, mask: Tensor, operator: str) -> int:
        """How many elements of a mask are true (of numbers, not zero)."""
        constant = self.values.of(mask)
        if constant is not None:
            return _nonzero(constant)
        likely = self.likely.of(mask)
        if likely is not None:
            count, is_assumed = _nonzero(likely), self.likely.is_assumed(mask)
            if self.likely.is_example(mask):
                self._note_share(operator, count / max(mask.numel(), 1), is_assumed=is_assumed)
            return count
        statistics = self.statistics.of(mask)
        fraction = statistics.nonzero_fraction
        if fraction is None:
            return self.assumed_count(mask.numel(), operator)
        self._note_share(operator, fraction, is_assumed=statistics.is_assumed)
        return self._whole(fraction, mask.numel())

    def assumed_count(self, elements: int, operator: str) -> int:
        """The user's share of some elements, with a note that says so; one at least of any."""
        self.note(operator, f"{self._selected:g} of its elements were assumed to be kept")
        return max(self._whole(self._selected, elements), min(elements, 1))

    def distinct_count(self, tensor: Tensor, operator: str) -> int:
        """How many different values a tensor has."""
        likely = self.likely.of(tensor)
        if likely is not None:
            with without_dispatch():
                return int(likely.unique().numel())
        choices = self.statistics.of(tensor).choices
        if choices is None:
            size = self.assumed_count(tensor.numel(), operator)
            self.statistics.set(tensor, replace(_one_of(size), is_assumed=True))
            return size
        if self.statistics.of(tensor).is_assumed:
            return min(choices, int(tensor.numel()))
        # So many of the choices are drawn at least once in n draws.
        drawn = choices * (1.0 - (1.0 - 1.0 / choices) ** int(tensor.numel()))
        return max(round(drawn), 1)

    def describe_distinct(
        self, tensor: Tensor, values: Tensor, inverse: Tensor, counts: Tensor
    ) -> None:
        """Say what `unique` returns: each value once, and how often, as even as it goes."""
        source = self.statistics.of(tensor)
        if source.choices is not None:
            self.statistics.set(values, ValueStatistics(least=0, most=source.choices - 1))
        self.statistics.set(inverse, _one_of(values.numel()))
        self.statistics.set(counts, ValueStatistics(total=tensor.numel()))

    def total(self, counts: Tensor) -> int | None:
        """The sum of a tensor of counts, where it is known or likely.

        Of part of a tensor, its even part of the whole; what is over goes to the first elements.
        """
        values = self.likely.of(counts)
        if values is not None:
            with without_dispatch():
                return int(values.sum().item())
        total = self.statistics.of(counts).total
        if total is None:
            return None
        elements = counts.untyped_storage().nbytes() // counts.dtype.itemsize
        each, over = divmod(round(total), max(elements, 1))
        first = counts.storage_offset()
        part: int = each * counts.numel() + max(min(over - first, counts.numel()), 0)
        return part

    def likely_value(self, tensor: Tensor) -> bool | float | None:
        """A likely value, the likelier of true and false, a sum of counts, a random number's mean.

        None where nothing is known.
        """
        statistics = self.statistics.of(tensor)
        fraction = statistics.nonzero_fraction
        is_question = tensor.dtype == torch.bool and tensor.untyped_storage().nbytes() == 1
        if is_question and fraction is None and not self.likely.was_worked_out(tensor):
            return None
        likely = self.likely.of(tensor)
        if likely is not None:
            with without_dispatch():
                value: bool | float = likely.item()
                return value
        if tensor.dtype == torch.bool:
            return None if fraction is None else fraction > 0.5
        total = self.total(tensor)
        return statistics.mean if total is None else total

    def basis(self, tensor: Tensor) -> str:
        """What an answer rests on, to be said after it, where it is the assumed share."""
        if not self.likely.is_assumed(tensor) and not self.statistics.of(tensor).is_assumed:
            return ""
        self._share_is_used = True
        return f", which follows from the assumed share of {self._selected:g}"

    def array_values(self, tensor: Tensor) -> Tensor:
        """`likely_values` for code that reads an array, with a note of what it is given."""
        if self.values.of(tensor) is None and not self.likely.is_known(tensor):
            is_likely = self.likely.of(tensor) is not None or self.total(tensor) is not None
            what = (
                f"likely values were taken{self.basis(tensor)}" if is_likely else "zeros were taken"
            )
            self.note("An array that is read", what)
        return self.likely_values(tensor)

    def likely_values(self, tensor: Tensor) -> Tensor:
        """Values for code that reads a whole tensor: those known, likely ones, or zeros."""
        likely = self.likely.of(tensor)
        if likely is not None:
            return likely
        total = self.total(tensor)
        with without_dispatch():
            if total is None or not tensor.numel():
                return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            counts = even_counts(tensor.numel(), total)
            return counts.to(tensor.dtype).view(tensor.shape)

    def _example_of(self, tensor: Tensor, elements: int) -> Example | None:
        """Values for the whole storage of a tensor, by its statistics; of a mask by the share."""
        statistics = self.statistics.of(tensor)
        if tensor.dtype == torch.bool:
            fraction = statistics.nonzero_fraction
            share = self._selected if fraction is None else fraction
            is_assumed = fraction is None or statistics.is_assumed
            least = min(elements - 1, 1) if is_assumed and share else 0
            return evenly_set(elements, max(self._whole(share, elements), least)), is_assumed
        if statistics.total is not None:
            return even_counts(elements, round(statistics.total)), statistics.is_assumed
        if statistics.least is not None and statistics.most is not None:
            phase = self.likely.examples if statistics.is_place else 0
            return in_turn(elements, statistics.least, statistics.most, phase), False
        return None

    def _note_share(self, operator: str, fraction: float, *, is_assumed: bool) -> None:
        if is_assumed:
            self.note(operator, f"{fraction:.3g} of its elements were assumed to be kept")
        elif fraction < 1:
            self.note(operator, f"{fraction:.3g} of its elements are counted, as its mask is made")

    def note_example(self, operator: str, tensor: Tensor, what: str) -> None:
        """Note what an operator did by values that are likely, not known."""
        if self.values.of(tensor) is None and not self.likely.is_known(tensor):
            self.note(operator, f"{what}{self.basis(tensor) or ', as its values are made'}")

    def note(self, operator: str, what: str) -> None:
        """Note what was assumed for an operator on the line that runs now."""
        line = self._current_line()
        if not line and torch._C._current_autograd_node() is not None:
            return  # the forward operation that it belongs to has said so
        where = f" at {line}" if line else ""
        self._assumptions[f"{operator}{where} depends on values: {what}."] = None

    def notes(self) -> list[str]:
        """Everything that was assumed, each line once."""
        notes = list(self._assumptions)
        more = len(notes) - _MOST_NOTES
        if more > 0:
            notes = [*notes[:_MOST_NOTES], f"{more} more selections were assumed likewise."]
        if self._share_is_used or any("assumed to be kept" in note for note in notes):
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


def _nonzero(values: Tensor) -> int:
    with without_dispatch():
        return int(values.count_nonzero().item())


# Statistics. A trace cannot know which tokens a router sends where, but of a choice of k among E
# experts each gets k / E of the tokens on average; a mask `rand() < 0.15` keeps 15 %. Such facts
# follow masks through the operators that code makes them with.


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStatistics:
    """What is known of a tensor's values on average.

    nonzero_fraction: of the elements. least, most: the elements are whole numbers of this range,
    all as likely. uniform: they are between 0 and 1, all as likely. total: their sum. mean: of a
    random number; of whole ones, a whole one. is_place: they are places of something. filled: a
    value that this fraction of the elements was overwritten with. is_exclusive: no two elements
    of a row are set. is_assumed: it rests on the share that selections are assumed to keep.
    """

    nonzero_fraction: float | None = None
    least: int | None = None
    most: int | None = None
    uniform: bool = False
    total: float | None = None
    mean: float | None = None
    is_place: bool = False
    filled: tuple[float, float] | None = None
    is_exclusive: bool = False
    is_assumed: bool = False

    @property
    def choices(self) -> int | None:
        """How many values the elements are one of, counted from 0."""
        return self.most + 1 if self.least == 0 and self.most is not None else None


class StatisticsByStorage:
    """The statistics of every storage that has any; masks without any keep the share `selected`."""

    def __init__(self, values: ConstantValues, selected: float = SELECTED) -> None:
        self.values = values
        self._selected = selected
        self.examples: LikelyValues | None = None
        """Values that tell more than statistics, where there are any."""
        self._statistics: ByStorage[ValueStatistics] = ByStorage()

    def of(self, tensor: Tensor) -> ValueStatistics:
        """What is known of a tensor; statistics that say nothing where nothing is."""
        return self._statistics.get(tensor) or _NOTHING

    def set(self, tensor: Tensor, statistics: ValueStatistics) -> None:
        """Say what is known of a tensor."""
        self._statistics.set(tensor, statistics)

    def nonzero_fraction(self, mask: Tensor) -> float | None:
        """The fraction of elements that are not zero, where it is known."""
        statistics = self._of_example(mask) or self.of(mask)
        return None if statistics.is_assumed else statistics.nonzero_fraction

    def of_mask(self, mask: Tensor) -> ValueStatistics:
        """What is known of a tensor, and of a mask the assumed share where that is nothing."""
        statistics = self._of_example(mask) or self.of(mask)
        if statistics.nonzero_fraction is None and mask.dtype == torch.bool:
            return self.assumed
        return statistics

    def _of_example(self, mask: Tensor) -> ValueStatistics | None:
        """The fraction of a mask or of counts that were worked out element by element."""
        if self.examples is None or not self.examples.was_worked_out(mask):
            return None
        values = self.examples.of(mask)
        if values is None or not values.numel() or mask.is_floating_point():
            return None
        fraction = _nonzero(values) / values.numel()
        return replace(
            self.of(mask),
            nonzero_fraction=fraction,
            is_assumed=self.examples.is_assumed(mask),
        )

    @property
    def assumed(self) -> ValueStatistics:
        """Of a mask that only the data could tell."""
        return ValueStatistics(nonzero_fraction=self._selected, is_assumed=True)

    def follow(self, func: OpOverload, args: Args, out: object) -> None:
        """Note what an operator's arguments tell of its result."""
        packet = func.overloadpacket
        rule = _RULES.get(packet)
        statistics = None if rule is None else rule(self, args, out)
        if isinstance(out, tuple | list) and packet in _EXTREMES:
            self._statistics.set(out[1], _one_of(args[0].shape[args[1]] if args[0].dim() else 1))
        place = 1 if packet in _SECOND_RESULT else 0 if packet in _EXTREMES else None
        is_tuple = isinstance(out, tuple | list)
        target = out[place] if is_tuple and place is not None else out  # type: ignore[index]
        if not isinstance(target, Tensor):
            return
        if statistics is not None:
            self._statistics.set(target, statistics)
        elif written_arguments(func):
            self._statistics.drop(target)


_NOTHING = ValueStatistics()
_Rule = Callable[[StatisticsByStorage, Args, object], ValueStatistics | None]
"""Called with all statistics, an operator's arguments and its result; those of the result."""


def _one_of(choices: int) -> ValueStatistics:
    """Places, counted from 0 to below this."""
    return ValueStatistics(least=0, most=choices - 1, is_place=True) if choices > 0 else _NOTHING


def _share(fraction: float, source: ValueStatistics = _NOTHING) -> ValueStatistics:
    """A mask's fraction; as much an assumption as that of its source."""
    return ValueStatistics(
        nonzero_fraction=min(max(float(fraction), 0.0), 1.0), is_assumed=source.is_assumed
    )


# Rules: copies, and values from elsewhere


def _copied(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    is_cast = isinstance(out, Tensor) and out.dtype != args[0].dtype
    source = statistics.of_mask(args[0]) if is_cast else statistics.of(args[0])
    return None if source is _NOTHING else source


def _moved(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """The same values, or some of them, elsewhere."""
    first = args[0][0] if isinstance(args[0], list | tuple) else args[0]
    source = statistics.of(first)
    if source is _NOTHING:
        return _range_of(statistics.values.of(first)) if isinstance(args[0], list) else None
    return replace(source, total=None, mean=None, uniform=False)


def _range_of(values: Tensor | None) -> ValueStatistics | None:
    """Of known whole numbers that are joined with unknown ones: numbers of images, say."""
    if values is None or not values.numel() or values.dtype == torch.bool:
        return None
    with without_dispatch():
        least, most = float(values.min().item()), float(values.max().item())
        is_whole = bool((values == values.round()).all())
    return ValueStatistics(least=int(least), most=int(most)) if is_whole else None


def _overwritten(
    statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    """masked_fill(tensor, mask, value): some elements have one value, the others theirs."""
    source, (_, mask, value) = statistics.of(args[0]), args[:3]
    share = statistics.of_mask(mask)
    number = _number(statistics, value)
    if number is None or share.nonzero_fraction is None:
        return replace(source, total=None, mean=None, uniform=False)
    return _filled(source, number, share)


def _chosen_by_mask(
    statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    """where(mask, one, other) with a number as either of them."""
    if len(args) < 3:
        return None
    mask, one, other = args[:3]
    share = statistics.of_mask(mask)
    for value, kept, fraction in ((other, one, 1.0), (one, other, 0.0)):
        number = _number(statistics, value)
        if number is not None and isinstance(kept, Tensor) and share.nonzero_fraction is not None:
            of_value = abs(fraction - share.nonzero_fraction)
            return _filled(statistics.of(kept), number, _share(of_value, share))
    return _mixed(share, *(statistics.of(arg) for arg in (one, other) if isinstance(arg, Tensor)))


def _mixed(share: ValueStatistics, *sources: ValueStatistics) -> ValueStatistics | None:
    """Of two masks the mean by the share of either; where one alone is known, that one."""
    known = [source for source in sources if source.nonzero_fraction is not None]
    if len(known) < 2 or share.nonzero_fraction is None:
        return known[0] if known and len(sources) == 2 else None
    one, other = (source.nonzero_fraction or 0.0 for source in known)
    mean = share.nonzero_fraction * one + (1 - share.nonzero_fraction) * other
    return replace(_share(mean), is_assumed=any(source.is_assumed for source in known))


def _put(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """tensor[mask] = number, or mask[places] = True."""
    target, indices, value = args[:3]
    number = _number(statistics, value)
    if number is None or len(indices) != 1 or indices[0] is None:
        return None
    (index,), source = indices, statistics.of(target)
    if index.dtype == torch.bool:
        return _filled(source, number, statistics.of_mask(index))
    if target.dtype != torch.bool or not number:
        return None
    return _share((source.nonzero_fraction or 0) + index.numel() / max(target.numel(), 1), source)


def _filled(source: ValueStatistics, number: float, share: ValueStatistics) -> ValueStatistics:
    fraction = share.nonzero_fraction or 0.0
    rest = source.nonzero_fraction
    return ValueStatistics(
        filled=(number, fraction),
        nonzero_fraction=None if rest is None or number else rest * (1 - fraction),
        is_assumed=share.is_assumed or source.is_assumed,
    )


def _number(statistics: StatisticsByStorage, value: object) -> float | None:
    """A number, or the one of a tensor of a single element."""
    if not isinstance(value, Tensor):
        return float(value) if isinstance(value, int | float) else None
    constant = statistics.values.of(value) if value.numel() == 1 else None
    if constant is None:
        return None
    with without_dispatch():
        return float(constant.item())


# Rules: positions and random numbers


def _chosen(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Positions along a dimension: top-k, and draws with chances."""
    source, dim = args[0], args[2] if len(args) > 2 and not isinstance(args[2], bool) else -1
    return _one_of(source.shape[dim]) if source.dim() else None


def _chosen_along(
    _statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    source, dim = args[0], args[1] if len(args) > 1 else None
    if not source.dim():
        return None
    return _one_of(source.numel() if dim is None else source.shape[dim])


def _positions(
    _statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    return _one_of(args[0].numel()) if args[0].dim() == 1 else None


def _permuted(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics:
    return _one_of(args[0])


def _random_integers(
    _statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    """randint(high, size) or randint(low, high, size); randint_like has a tensor first."""
    bounds = [arg for arg in args if isinstance(arg, int)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    return ValueStatistics(least=low, most=high - 1, mean=(low + high - 1) // 2)


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
        return _share(args[1])
    chances = statistics.values.of(args[0])
    if chances is None:
        return None
    with without_dispatch():
        mean = float(chances.double().mean().item())
    return _share(mean)


# Rules: comparisons


def _below(*, or_equal: bool) -> _Rule:
    def below(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
        source, bound = statistics.of(args[0]), args[1]
        if isinstance(bound, Tensor):
            return None
        if bound == math.inf:
            return _share(1.0)
        if source.uniform:
            return _share(bound)
        if source.least is not None and source.most is not None:
            values = source.most - source.least + 1
            return _share((math.floor(bound) + or_equal - source.least) / values, source)
        if source.total is not None and args[0].numel() > 1:
            elements = args[0].untyped_storage().nbytes() // args[0].dtype.itemsize
            at_most = math.floor(bound) if or_equal else math.ceil(bound) - 1
            return _share(_poisson_at_most(at_most, source.total / elements), source)
        return None

    return below


_MOST_COUNTED = 50


def _poisson_at_most(count: int, mean: float) -> float:
    """The chance that something which comes `mean` times on average comes no more often."""
    if mean > _MOST_COUNTED:
        return float(count >= mean)
    term, total = math.exp(-mean), 0.0
    for number in range(min(count, 4 * _MOST_COUNTED) + 1):
        total += term
        term *= mean / (number + 1)
    return total


def _equal(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    first, second = args[:2]
    if first is second:
        return _share(1.0)  # only not-a-number differs from itself
    if not isinstance(second, Tensor):
        return _equal_to(statistics.of(first), second)
    choices = [n for n in (statistics.of(tensor).choices for tensor in (first, second)) if n]
    return _share(1 / choices[0]) if choices else None


def _equal_to(source: ValueStatistics, number: float) -> ValueStatistics | None:
    if number == math.inf:
        return _share(0.0)
    if source.filled is not None and source.filled[0] == number:
        return _share(source.filled[1], source)
    if source.least is not None and source.most is not None:
        is_within = source.least <= number <= source.most
        share = _share(1 / (source.most - source.least + 1) if is_within else 0.0, source)
        return replace(share, is_exclusive=source.is_place)  # a top-k chooses nothing twice
    if number == 0 and source.nonzero_fraction is not None:
        return _share(1 - source.nonzero_fraction, source)
    return None


def _never(*_: object) -> ValueStatistics:
    """Not-a-number and infinity: a run that has them is no run to plan."""
    return _share(0.0)


def _always(*_: object) -> ValueStatistics:
    return _share(1.0)


def _opposite(rule: _Rule) -> _Rule:
    """Of a comparison with the opposite outcome; of one with 0, what is not zero."""

    def opposite(
        statistics: StatisticsByStorage, args: Args, out: object
    ) -> ValueStatistics | None:
        source, bound = statistics.of(args[0]), args[1]
        if source.nonzero_fraction is not None and not isinstance(bound, Tensor) and bound == 0:
            return _share(source.nonzero_fraction, source)
        compared = rule(statistics, args, out)
        if compared is None or compared.nonzero_fraction is None:
            return None
        return _share(1 - compared.nonzero_fraction, compared)

    return opposite


def _in_place(rule: _Rule) -> _Rule:
    """Of a comparison written over a tensor of numbers: a mask of ones and zeros."""

    def compared(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics:
        return rule(statistics, args, out) or statistics.assumed

    return compared


# Rules: logic


def _not(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    source = statistics.of(args[0])
    if source.nonzero_fraction is None:
        return None
    return _share(1 - source.nonzero_fraction, source)


def _and(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """And, and the product: what is not zero in either, as if they were independent.

    Beside a known fraction an assumed one does not count; of two assumed ones, the smaller does.
    """
    tensors = [arg for arg in args[:2] if isinstance(arg, Tensor)]
    known = [f for f in map(statistics.nonzero_fraction, tensors) if f is not None]
    if known:
        return _share(math.prod(known))
    sources = [source for source in map(statistics.of, tensors) if source.is_assumed]
    fractions = [source.nonzero_fraction for source in sources]
    return _share(min(f or 0.0 for f in fractions), sources[0]) if sources else None


def _or(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    first, second = (statistics.nonzero_fraction(arg) for arg in args[:2])
    if first is None or second is None:
        return None
    return _share(first + second - first * second)


def _all(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Certain where the fraction is 1; nothing is said of a single question."""
    source = statistics.of_mask(args[0]) if args[0].numel() > 1 else statistics.of(args[0])
    if source.nonzero_fraction is None:
        return None
    return _share(float(source.nonzero_fraction == 1), source)


def _any(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """Of a whole mask yes, if it keeps anything; of its rows as many as have one."""
    source = statistics.of_mask(args[0]) if args[0].numel() > 1 else statistics.of(args[0])
    fraction = source.nonzero_fraction
    if fraction is None or not isinstance(out, Tensor):
        return None
    if out.numel() == 1:
        return _share(float(fraction > 0), source)
    in_row = args[0].numel() / max(out.numel(), 1)
    return _share(
        fraction * in_row if source.is_exclusive else 1 - (1 - fraction) ** in_row, source
    )


# Rules: sums, counts and extremes


def _scattered(statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics | None:
    """Ones (or other values) put into zeros: a one-hot code, or several in a row."""
    target, _dim, index, *_ = args
    source = statistics.of(index)
    written = index.numel() / max(target.numel(), 1)
    return _share(written, source)


def _scattered_in_addition(
    statistics: StatisticsByStorage, args: Args, _out: object
) -> ValueStatistics | None:
    """Counts of how often a place was chosen."""
    target, _dim, index, *_ = args
    if target.is_floating_point():
        return None
    before, elements = statistics.of(target), max(target.numel(), 1)
    share = _share((before.nonzero_fraction or 0.0) + index.numel() / elements)
    return replace(share, total=(before.total or 0.0) + index.numel())


def _summed(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """Sums of a mask or of counts: the total stays; a sum is zero only where all were."""
    tensor = args[0]
    source = statistics.of_mask(tensor)
    if source.total is not None:
        total = source.total
    elif source.nonzero_fraction is not None:
        total = source.nonzero_fraction * tensor.numel()
    elif source.mean is not None and not tensor.is_floating_point():
        total = source.mean * tensor.numel()
    else:
        return None
    results = max(out.numel(), 1) if isinstance(out, Tensor) else 1
    return replace(_share(total / results, source), total=total)


def _counted(_statistics: StatisticsByStorage, args: Args, _out: object) -> ValueStatistics:
    return ValueStatistics(total=args[0].numel())


def _largest(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """Of numbers of a range its end; of counts their even share, rounded up."""
    return _extreme(statistics, args, out, largest=True)


def _smallest(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """Of numbers of a range its start; of counts their even share, rounded down."""
    return _extreme(statistics, args, out, largest=False)


def _extreme(
    statistics: StatisticsByStorage, args: Args, out: object, *, largest: bool
) -> ValueStatistics | None:
    result = out[0] if isinstance(out, tuple | list) else out
    if not isinstance(result, Tensor) or (len(args) > 1 and isinstance(args[1], Tensor)):
        return None
    source = statistics.of_mask(args[0]) if args[0].numel() > 1 else statistics.of(args[0])
    end = source.most if largest else source.least
    if end is not None:
        return ValueStatistics(least=end, most=end, mean=end)
    if source.total is not None:
        each = source.total / max(args[0].numel(), 1)
        whole = math.ceil(each) if largest else math.floor(each)
        return replace(_share(float(whole > 0), source), total=whole * result.numel())
    if source.nonzero_fraction is not None and largest and not args[0].is_floating_point():
        return _any(statistics, args, result)
    return None


def _clamped(statistics: StatisticsByStorage, args: Args, out: object) -> ValueStatistics | None:
    """clamp(tensor, min): a count is at least that; a number nobody knows is taken to be it."""
    source = statistics.of(args[0])
    bound = args[1] if len(args) > 1 and isinstance(args[1], int | float) else None
    if source.total is not None and isinstance(out, Tensor):
        total = max(source.total, (bound or 0) * out.numel())
        return replace(source, total=total, nonzero_fraction=None)
    if bound is None or source.most is not None or not isinstance(out, Tensor):
        return None
    return None if out.is_floating_point() else ValueStatistics(mean=bound)


_aten = torch.ops.aten
_SECOND_RESULT = {_aten.topk, _aten.sort, _aten.kthvalue}
_EXTREMES = {_aten.max, _aten.min}
_lt, _le = _below(or_equal=False), _below(or_equal=True)
_RULES_BY_NAMES: dict[str, _Rule] = {
    "cat stack index gather index_select repeat expand_copy take roll flip": _moved,
    "_to_copy clone contiguous detach alias lift_fresh abs": _copied,
    "masked_fill masked_fill_": _overwritten,
    "where": _chosen_by_mask,
    "index_put index_put_": _put,
    "topk multinomial": _chosen,
    "argmax argmin sort argsort": _chosen_along,
    "nonzero": _positions,
    "randperm": _permuted,
    "randint randint_like": _random_integers,
    "rand rand_like uniform_": _uniform,
    "randn randn_like normal_": _normal,
    "bernoulli bernoulli_": _bernoulli,
    "lt": _lt,
    "le": _le,
    "gt": _opposite(_le),
    "ge": _opposite(_lt),
    "eq": _equal,
    "ne": _opposite(_equal),
    "isnan isinf isposinf isneginf": _never,
    "isfinite": _always,
    "lt_": _in_place(_lt),
    "le_": _in_place(_le),
    "gt_": _in_place(_opposite(_le)),
    "ge_": _in_place(_opposite(_lt)),
    "eq_": _in_place(_equal),
    "ne_": _in_place(_opposite(_equal)),
    "logical_not bitwise_not": _not,
    "logical_and bitwise_and __and__ mul": _and,
    "logical_and_ bitwise_and_ __iand__ mul_": _and,
    "logical_or bitwise_or __or__ logical_or_ bitwise_or_ __ior__": _or,
    "all _is_all_true": _all,
    "any _is_any_true": _any,
    "scatter scatter_": _scattered,
    "scatter_add scatter_add_": _scattered_in_addition,
    "sum count_nonzero": _summed,
    "bincount histc": _counted,
    "max amax": _largest,
    "min amin": _smallest,
    "clamp clamp_ clamp_min clamp_min_": _clamped,
}
_RULES: dict[Any, _Rule] = {
    getattr(_aten, name): rule for names, rule in _RULES_BY_NAMES.items() for name in names.split()
}
