"""Where in a command its batch size goes: `{batch}` anywhere, or an option that it already has."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where in a command its batch size goes."""

    command: tuple[str, ...]
    argument: str

    def filled(self, batch_size: int) -> tuple[str, ...]:
        """The command at a batch size."""
        mark, text = self._mark, str(batch_size)
        if any(mark in part for part in self.command):
            return tuple(part.replace(mark, text) for part in self.command)
        parts = list(self.command)
        place, joined = self._place()
        if joined:
            parts[place] = f"{self.argument}={text}"
        else:
            parts[place + 1] = text
        return tuple(parts)

    @property
    def present(self) -> int | None:
        """The size that the command has now."""
        if any(self._mark in part for part in self.command):
            return None
        place, joined = self._place()
        text = self.command[place].partition("=")[2] if joined else self.command[place + 1]
        return int(text) if text.isdecimal() and int(text) > 0 else None

    @property
    def _mark(self) -> str:
        return "{" + self.argument.strip("{}") + "}"

    def _place(self) -> tuple[int, bool]:
        for place, part in enumerate(self.command):
            if part.startswith(f"{self.argument}="):
                return place, True
            if part == self.argument and place + 1 < len(self.command):
                return place, False
        raise InputError(
            f"The command has neither {self._mark} nor {self.argument}.",
            why="outlay must know where the batch size goes.",
            fix="Write for example: outlay probe --find-batch batch -- "
            "python train.py --batch-size {batch}",
        )

    def check(self) -> None:
        """Raise where the command has no place for a batch size."""
        self.filled(1)
