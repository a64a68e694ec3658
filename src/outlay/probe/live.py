"""What is known of a probe while it runs: plain values for the live line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlay.units import HOUR_S

Phase = Literal["starting", "warming up", "measuring", "profiling", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """One moment of a probe; None for what is not known yet, or never will be."""

    phase: Phase
    elapsed_s: float
    """Since the command was started."""
    step: int = 0
    """Training steps so far."""
    wanted_steps: int | None = None
    """Where a number of steps was asked for."""
    total_steps: int | None = None
    """What the whole run would do."""
    step_s: float | None = None
    """Of the latest steps."""
    samples_per_s: float | None = None
    """Of all ranks together."""
    gpu_fraction: float | None = None
    memory_bytes: float | None = None
    """In use on the fullest GPU."""
    memory_limit_bytes: float | None = None
    """What it has."""
    power_w: float | None = None
    """Of all GPUs used."""
    price_usd_per_hour: float | None = None
    precision: float | None = None
    """Half the confidence interval over the mean, as far as it is known."""
    wanted_precision: float | None = None

    @property
    def usd(self) -> float | None:
        """What it cost so far."""
        return self._priced(self.elapsed_s)

    @property
    def left_s(self) -> float | None:
        """Until the whole run would be done, at the pace of the latest steps; no pauses counted."""
        if self.total_steps is None or self.step_s is None:
            return None
        return max(self.total_steps - self.step, 0) * self.step_s

    @property
    def left_usd(self) -> float | None:
        """What that costs."""
        return None if self.left_s is None else self._priced(self.left_s)

    def _priced(self, time_s: float) -> float | None:
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour * time_s / HOUR_S
