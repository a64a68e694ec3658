"""Attributes changed for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Patches:
    """Attributes set for a while, each put back to what it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace `owner.name` until `restore`; nothing happens where there is no such name."""
        if not hasattr(owner, name):
            return
        original = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))

    def add(self, owner: object, name: str, value: object) -> None:
        """Give `owner` an attribute it does not have, until `restore`."""
        if not hasattr(owner, name):
            setattr(owner, name, value)
            self._undo.append(lambda: delattr(owner, name))

    def extend(self, names: list[type], value: type) -> None:
        """Append to a list until `restore`."""
        names.append(value)
        self._undo.append(lambda: names.remove(value))

    def finally_do(self, undo: Callable[[], object]) -> None:
        """Call this at `restore`, too."""
        self._undo.append(lambda: (undo(), None)[1])

    def restore(self) -> None:
        """Undo everything, last first."""
        while self._undo:
            self._undo.pop()()
