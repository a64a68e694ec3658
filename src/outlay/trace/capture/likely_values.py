"""Likely values: of masks, choices and counts that only the data could tell, a plain example.

Code that routes tokens, matches boxes or pads to the longest works its sizes out of masks and
counts, step by step. A mask whose share is known (or assumed) gets so many elements spread evenly,
choices among E get each of them in turn, counts are as even as they go; operators are then run on
these values as on constants (`ConstantValues`), so that all sizes that follow agree with each
other. What was made of two masks that have nothing to do with each other is left to statistics:
as examples both are spread alike, and would overlap wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_iter

from outlay.trace.capture.constant_values import (
    Args,
    ByStorage,
    ConstantValues,
    Kwargs,
    without_dispatch,
)

if TYPE_CHECKING:
    from torch._ops import OpOverload

_MOST_ELEMENTS = 2**18
"""Larger ones are left to statistics: a loop over experts goes through its masks many times."""

Example = tuple[Tensor, bool]
"""Values for all elements of a storage, and whether they rest on an assumed share."""

_HOST = torch.device("cpu")
_aten = torch.ops.aten
_JOINING = {_aten.cat, _aten.stack}
_BY_MASK = {
    _aten.index_put,
    _aten.index_put_,
    _aten.masked_fill,
    _aten.masked_fill_,
    _aten.where,
}
_LOGIC_IN_PLACE = {
    _aten.bitwise_and_,
    _aten.bitwise_or_,
    _aten.bitwise_xor_,
    _aten.logical_and_,
    _aten.logical_or_,
    _aten.mul_,
    _aten.__iand__,
    _aten.__ior__,
}
_COMPLEMENTS = {_aten.bitwise_not, _aten.logical_not}
_COPYING = {_aten._to_copy, _aten.clone}


class LikelyValues(ConstantValues):
    """The twins of storages whose values are likely; `of` gives known ones where there are any."""

    def __init__(
        self, known: ConstantValues, example_of: Callable[[Tensor, int], Example | None]
    ) -> None:
        super().__init__()
        self._known = known
        self._example_of = example_of
        """Called with a tensor and the number of elements of its storage."""
        self._origins: ByStorage[frozenset[int]] = ByStorage()
        """The examples that a twin was made of, each by a number; assumed ones are negative."""
        self._gaps: ByStorage[Tensor] = ByStorage()
        """Where a twin was joined of parts, some of them unknown: ones at the unknown elements."""
        self.examples = 0
        """How many there have been."""

    def of(self, tensor: Tensor) -> Tensor | None:
        """The known values of a tensor, else likely ones, or None."""
        if not isinstance(tensor, FakeTensor):
            return self._known.of(tensor)
        values = super().of(tensor)
        if values is not None:
            return None if self._has_gaps(tensor) else values
        known = self._known.of(tensor)
        if known is not None:
            return known
        return super().of(tensor) if self._start(tensor) else None

    def is_assumed(self, tensor: Tensor) -> bool:
        """Whether a tensor's likely values rest on an assumed share."""
        return any(number < 0 for number in self._origins_of(tensor))

    def is_example(self, tensor: Tensor) -> bool:
        """Whether a tensor's values are an example's, or made of one; joined parts may be known."""
        return bool(self._origins_of(tensor))

    def is_known(self, tensor: Tensor) -> bool:
        """Whether a tensor's values here are made of known ones alone."""
        return self._twins.get(tensor) is not None and not self.is_example(tensor)

    def was_worked_out(self, tensor: Tensor) -> bool:
        """Whether a tensor has likely values that an operator, or an example before it, gave."""
        return self._twins.get(tensor) is not None

    def follow(self, func: OpOverload, args: Args, kwargs: Kwargs, out: object) -> None:
        """As `ConstantValues`; call it before that for what works in place, else after it."""
        packet = func.overloadpacket
        if packet in _COMPLEMENTS and not self.was_worked_out(args[0]):
            return  # whichever of the two is used first keeps the share
        if packet in _JOINING and isinstance(out, Tensor):
            self._join(func, args, kwargs, out)
        elif packet in _COPYING and self._gaps.get(args[0]) is not None:
            self._copy_with_gaps(args[0], out)
        else:
            super().follow(func, args, kwargs, out)

    def _may_be_constant(self, func: OpOverload, args: Args, out: object) -> bool:
        result = next((leaf for leaf in tree_iter(out) if isinstance(leaf, Tensor)), None)
        if result is None or result.numel() > _MOST_ELEMENTS:
            return False
        if torch.Tag.nondeterministic_seeded in func.tags or self._known.of(result) is not None:
            return False
        tensors = [leaf for leaf in tree_iter(args) if isinstance(leaf, Tensor)]
        if not tensors or any(self._is_hopeless(tensor) for tensor in tensors):
            return False
        return not self._mixes_examples(func, tensors, result)

    def _follow_new(self, func: OpOverload, args: Args, kwargs: Kwargs, out: object) -> None:
        result = self._on_twins(func, args, kwargs)
        if result is None:
            return
        origins = self._origins_of(*(leaf for leaf in tree_iter(args) if isinstance(leaf, Tensor)))
        for tensor, values in zip(tree_iter(out), tree_iter(result), strict=False):
            are_tensors = isinstance(tensor, Tensor) and isinstance(values, Tensor)
            if are_tensors and tensor.shape == values.shape:
                self._give(tensor, values, origins)

    def _follow_in_place(
        self, func: OpOverload, args: Args, kwargs: Kwargs, places: tuple[int | str, ...]
    ) -> None:
        written = [args[place] for place in places if isinstance(place, int) and place < len(args)]
        others = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in written:
            if isinstance(tensor, Tensor):
                self._take_over(tensor, others)
                self._gaps.drop(tensor)
                is_logic = func.overloadpacket in _LOGIC_IN_PLACE
                if self._overlays(func, others) or (is_logic and self._are_unrelated(others)):
                    self._twins.drop(tensor)
        super()._follow_in_place(func, args, kwargs, places)
        origins = self._origins_of(*others)
        for tensor in written:
            if isinstance(tensor, Tensor) and self._twins.get(tensor) is not None:
                self._origins.set(tensor, origins)

    def _take_over(self, written: Tensor, others: list[Tensor]) -> None:
        """Known values into which likely ones are about to be written become likely ones."""
        known = self._known.of(written)
        if known is None or not isinstance(written, FakeTensor):
            return
        if self._twins.get(written) is not None or known.numel() > _MOST_ELEMENTS:
            return
        unknown = [tensor for tensor in others if self._known.of(tensor) is None]
        if unknown and all(self.of(tensor) is not None for tensor in unknown):
            with without_dispatch():
                self._twins.set(written, known.untyped_storage().clone())

    # Examples

    def _start(self, tensor: Tensor) -> bool:
        """Let a tensor have an example's values, if there is one."""
        if not tensor.dtype.is_floating_point and tensor.layout == torch.strided:
            elements = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize
            example = self._example_of(tensor, elements) if elements <= _MOST_ELEMENTS else None
            if example is not None:
                values, is_assumed = example
                self.examples += 1
                number = -self.examples if is_assumed else self.examples
                with without_dispatch():
                    twin = values.to(dtype=tensor.dtype).contiguous().untyped_storage()
                self._twins.set(tensor, twin)
                self._origins.set(tensor, frozenset((number,)))
                return True
        return False

    def _origins_of(self, *tensors: Tensor) -> frozenset[int]:
        return frozenset().union(*(self._origins.get(tensor) or () for tensor in tensors))

    def _is_hopeless(self, tensor: Tensor) -> bool:
        """Whether a tensor has no values, as most: floating-point ones have no example."""
        if not tensor.dtype.is_floating_point or not isinstance(tensor, FakeTensor):
            return False
        return self._twins.get(tensor) is None and self._known.of(tensor) is None

    def _mixes_examples(self, func: OpOverload, tensors: list[Tensor], result: Tensor) -> bool:
        """Whether a mask, or a product with one, would be made of examples of different origin."""
        if result.dtype != torch.bool and func.overloadpacket is not _aten.mul:
            return self._overlays(func, tensors)
        return self._are_unrelated(tensors)

    def _are_unrelated(self, tensors: list[Tensor]) -> bool:
        origins = [
            self._origins_of(tensor)
            for tensor in tensors
            if self.of(tensor) is not None and self._known.of(tensor) is None
        ]
        return len(origins) > 1 and not frozenset.intersection(*origins)

    def _overlays(self, func: OpOverload, tensors: list[Tensor]) -> bool:
        """Whether values of one assumed mask would be written where those of another are."""
        if func.overloadpacket not in _BY_MASK:
            return False
        assumed = [
            frozenset(number for number in self._origins_of(tensor) if number < 0)
            for tensor in tensors
            if self.of(tensor) is not None
        ]
        masks = [origins for origins in assumed if origins]
        return len(masks) > 1 and not frozenset.intersection(*masks)

    # Parts of which some are unknown

    def _join(self, func: OpOverload, args: Args, kwargs: Kwargs, out: Tensor) -> None:
        """`cat` and `stack`: known parts stay known, such as a column of image numbers."""
        if out.numel() > _MOST_ELEMENTS or self._known.of(out) is not None:
            return
        parts = [self.of(part) for part in args[0]]
        if all(part is None for part in parts):
            return
        with without_dispatch():
            values = [
                torch.zeros(tensor.shape, dtype=tensor.dtype, device=_HOST)
                if part is None
                else part
                for part, tensor in zip(parts, args[0], strict=True)
            ]
            gaps = [
                torch.full(tensor.shape, part is None, dtype=torch.bool, device=_HOST)
                for part, tensor in zip(parts, args[0], strict=True)
            ]
            joined, joined_gaps = (func(part, *args[1:], **kwargs) for part in (values, gaps))
        self._give(out, joined, self._origins_of(*args[0]))
        if any(part is None for part in parts):
            self._give_gaps(out, joined_gaps)

    def _copy_with_gaps(self, source: Tensor, out: object) -> None:
        values, gaps = super().of(source), self._gaps_of(source)
        if isinstance(out, Tensor) and values is not None and gaps is not None:
            self._give(out, values, self._origins_of(source))
            self._give_gaps(out, gaps)

    def _give(self, tensor: Tensor, values: Tensor, origins: frozenset[int]) -> None:
        self.give(tensor, values)
        if self._twins.get(tensor) is not None:
            self._origins.set(tensor, origins)

    def _give_gaps(self, tensor: Tensor, gaps: Tensor) -> None:
        if self._twins.get(tensor) is None:
            return
        with without_dispatch():
            twin = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=torch.bool, device=_HOST
            )
            self._gaps.set(tensor, twin.copy_(gaps))

    def _gaps_of(self, tensor: Tensor) -> Tensor | None:
        gaps = self._gaps.get(tensor)
        if gaps is None:
            return None
        with without_dispatch():
            return gaps.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _has_gaps(self, tensor: Tensor) -> bool:
        gaps = self._gaps_of(tensor)
        with without_dispatch():
            return gaps is not None and bool(gaps.any())


# Plain examples


def evenly_set(elements: int, ones: int) -> Tensor:
    """A mask with so many elements set, spread evenly."""
    with without_dispatch():
        return _evenly_set(elements, ones).clone()


@lru_cache(maxsize=32)
def _evenly_set(elements: int, ones: int) -> Tensor:
    """Made once: layers of a model ask for the same ones again and again."""
    with without_dispatch():
        ends = torch.arange(elements + 1, device=_HOST) * ones // max(elements, 1)
        return ends[1:] > ends[:-1]


_GOLDEN = (5**0.5 - 1) / 2


def in_turn(elements: int, least: int, most: int, phase: int = 0) -> Tensor:
    """Whole numbers that take every value of a range in turn; where they are few, spread over it.

    A single one is in the middle. Examples of another `phase` begin elsewhere, so that two of
    them rarely meet.
    """
    values = most - least + 1
    start = int(phase * _GOLDEN * values)
    with without_dispatch():
        places = torch.arange(elements, device=_HOST)
        if elements >= values:
            return least + places % values
        if elements == 1 or phase:
            middle = (values - 1) // 2
            return least + (places * values // elements + middle + start) % values
        return least + places * (values - 1) // (elements - 1)


def even_counts(elements: int, total: int) -> Tensor:
    """Counts of one total, as even as they go: what is over goes to the first."""
    each, over = divmod(total, max(elements, 1))
    with without_dispatch():
        return each + (torch.arange(elements, device=_HOST) < over).long()
