"""What happened since the last optimizer step of a process."""

from __future__ import annotations

from typing import Any

from .channel import StepTold


class Since:
    """What happened since the last optimizer step."""

    __slots__ = (
        "aside",
        "aside_last",
        "aside_loader",
        "asked",
        "batches",
        "evaluated",
        "gradless",
        "gradless_s",
        "loader",
        "new_epoch",
        "passes",
        "samples",
        "saved_s",
        "saves",
        "skipped",
        "started",
        "switched",
        "wait_s",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.aside = 0
        self.aside_loader = 0
        """The last one whose batch was set aside."""
        self.aside_last = 0, 0, 0
        """Which iterator gave those that came last, how many, and their samples."""
        self.asked: set[int] = set()
        """Loaders whose batches are counted."""
        self.batches = 0
        self.evaluated = False
        self.gradless = False
        self.gradless_s = 0.0
        self.loader = 0
        self.new_epoch = False
        self.passes = 0
        self.samples = 0
        self.saved_s = 0.0
        self.saves = 0
        self.skipped = 0
        self.started: tuple[int, ...] = ()
        self.switched: tuple[Any, ...] = ()
        """Modules that the script put into evaluation mode."""
        self.wait_s = 0.0

    def told(self, step: int, optimizer: int, now_s: float, cpu_s: float) -> StepTold:
        """What is told of a step."""
        return (
            step,
            optimizer,
            now_s,
            self.skipped,
            self.passes,
            self.batches,
            self.samples,
            self.wait_s,
            cpu_s,
            self.evaluated,
            self.saves,
            self.saved_s,
            self.new_epoch,
            self.aside,
            self.gradless,
        )
