"""What a trace cannot follow, and how to get round it."""

from __future__ import annotations


class NotTraceable(Exception):
    """The user's code does something that has no meaning without a GPU."""

    def __init__(self, what: str, *, fix: str) -> None:
        self.fix = fix
        super().__init__(what)
