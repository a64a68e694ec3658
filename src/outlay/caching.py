"""Values known by their identity, to remember what was computed from them."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ById(Generic[T]):
    """A value that equals itself alone: a key for caches of what is too large to compare."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        """By identity; the key keeps its value alive, so that no other can take its place."""
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        """Whether the other holds the very same value."""
        return isinstance(other, ById) and self.value is other.value
