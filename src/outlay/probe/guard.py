"""Parts of a result that may fail alone: a run that was paid for is not lost for an error of ours.

guard = Guard()
memory = guard.value("memory", lambda: memory_of(logs), MeasuredMemory())
guard.notes  # what failed, and how
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from outlay.probe.agent.channel import log_error

Value = TypeVar("Value")
Otherwise = TypeVar("Otherwise")


class Guard:
    """Works out parts; one that fails is noted, and what was to be in its place is."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """A sentence for each part that failed; once, however often it did."""

    def value(
        self, part: str, make: Callable[[], Value], otherwise: Otherwise
    ) -> Value | Otherwise:
        """What `make` gives; `otherwise` where it fails. `part` names it in the note."""
        try:
            return make()
        except Exception as error:
            log_error(error)
            said = " ".join(str(error).split())
            reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
            note = f"Left out, for an error of outlay's own ({reason}): {part}."
            if note not in self.notes:
                self.notes.append(note)
            return otherwise

    def do(self, part: str, action: Callable[[], object]) -> bool:
        """Do something that gives nothing; whether it was done."""
        failed = object()
        return self.value(part, action, failed) is not failed

    def values(self, makes: Mapping[str, tuple[str, Callable[[], Any]]]) -> dict[str, Any]:
        """What each gives, by its key; those that fail are missing. With each comes its name."""
        missing = object()
        made = {key: self.value(part, make, missing) for key, (part, make) in makes.items()}
        return {key: value for key, value in made.items() if value is not missing}
