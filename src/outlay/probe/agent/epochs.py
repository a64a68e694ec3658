"""Which loaders are trained on, and when an epoch begins.

The loader that was asked last before a step is trained on, those of an evaluation apart (`aside`).
Beside it others may be: a second source of data, a set without labels. Of loaders that are used
side by side the longest makes the epoch: shorter ones are started again and again in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .aside import take_back

_SIDE_BY_SIDE = 3
"""Steps in a row for which a loader is asked beside another, to be trained on as well."""

_MOST = 50
"""Loaders that are kept in mind."""


class Epochs:
    """Loaders by their numbers, and the steps at which each was last asked and started."""

    def __init__(self, watch: Any, facts_of: Callable[[int], dict[str, Any]]) -> None:
        self._watch = watch
        self._facts_of = facts_of
        self._in_a_row: dict[int, tuple[int, int]] = {}
        self._asked: dict[int, int] = {}
        self._started: dict[int, int] = {}

    def begin(self) -> bool:
        """Whether an epoch began since the last step; called when a step was made."""
        watch, since = self._watch, self._watch.since
        if since.loader and since.loader not in watch.loaders:
            self._take(since.loader)
        elif since.aside_loader and not since.loader and since.aside_loader not in watch.loaders:
            self._ask_beside(since.aside_loader)
        take_back(since, since.aside_loader in watch.loaders)
        for number in since.asked - watch.loaders:
            self._ask_beside(number)
        begins = [number for number in since.started if self._makes_epoch(number)]
        if len(self._asked) > _MOST:  # a loader for each step: they do not come back
            self.forget()
        self._asked.update(dict.fromkeys(since.asked, watch.steps))
        self._started.update(dict.fromkeys(since.started, watch.steps))
        return bool(begins)

    def forget(self) -> None:
        """Begin anew."""
        self._in_a_row.clear()
        self._asked.clear()
        self._started.clear()

    def _take(self, number: int) -> None:
        self._watch.loaders.add(number)
        facts = self._facts_of(number)
        if facts:
            self._watch.channel.tell_values("loader", facts)

    def _ask_beside(self, number: int) -> None:
        last, before = self._in_a_row.get(number, (0, 0))
        in_a_row = before + 1 if last == self._watch.steps - 1 else 1
        self._in_a_row[number] = self._watch.steps, in_a_row
        if in_a_row >= _SIDE_BY_SIDE:
            self._take(number)

    def _makes_epoch(self, number: int) -> bool:
        if number not in self._watch.loaders:
            return False
        length, before = self._length(number), self._started.get(number)
        if length is None or before is None:
            return True
        used = [one for one, last in self._asked.items() if one != number and last > before]
        return not any((self._length(one) or 0) > length for one in used)

    def _length(self, number: int) -> int | None:
        return self._facts_of(number).get("batches")
