"""Functions of torch and others replaced by ones that count, and put back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .imports import after_import, forget


class Patches:
    """What was changed, and how to undo it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def finally_do(self, undo: Callable[[], None]) -> None:
        """Call this when everything is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Leave everything as it was, last change first."""
        while self._undo:
            self._undo.pop()()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until `undo`."""
        original = getattr(owner, name)
        setattr(owner, name, value)

        def undo() -> None:
            if getattr(owner, name) is value:  # else others have put theirs around ours
                setattr(owner, name, original)

        self._undo.append(undo)

    def wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Put `wrapper(original, *args)` in the place of a function."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        self.replace(owner, name, call)

    def once_imported(self, name: str, action: Callable[[Any], None]) -> None:
        """Do something as soon as the script imports a module."""
        after_import(name, action)
        self._undo.append(lambda: forget(name, action))
