"""How many elements an operator selects whose result depends on values a trace does not have.

In this order: the number, where the values are known (`values`); the share that the way the mask
was made tells (`shares`); the share the user gave, `SELECTED` without one. Whatever was assumed is
said with the line it was assumed for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from outlay.trace.capture.shares import Shares
from outlay.trace.capture.values import Values
from outlay.trace.profile import SELECTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_LEAST_PER_SAMPLE = 10
"""From so many on, whole numbers a sample are within 5 % of the share."""
_NOTES_AT_MOST = 12


class Selection:
    """Counts what selections keep at one batch size, and collects what it assumed."""

    def __init__(
        self,
        batch_size: int,
        selected: float = SELECTED,
        line: Callable[[], str] = lambda: "",
    ) -> None:
        self.values = Values()
        self.shares = Shares(self.values)
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
