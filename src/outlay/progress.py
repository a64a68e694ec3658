"""What a long computation tells of itself while it runs: values only, for whoever shows them."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears what is being done, and how far it is."""

    def __call__(self, what: str, done: float = 0.0, total: float = 0.0, /) -> None:
        """A stage has begun ("Tracing train.py:step ..."), or is `done` of `total` through.

        A total of 0 is one that nobody knows. What does not end with dots is no stage, but
        something to know.
        """


def silent(_what: str, _done: float = 0.0, _total: float = 0.0, /) -> None:
    """Nobody hears of it."""
