"""The largest batch for real: trials in fresh processes, each a short probe.

A trial fits if it makes a few steps. `slot` says where in the command the batch size goes, `trial`
what came of a run, `hunt` what to try next.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from outlay.measurement import Measurement
from outlay.probe.agent.allocations import WANTED
from outlay.probe.batches import BatchSearch, Trial
from outlay.probe.course import Limits
from outlay.probe.hunt import Known, allocated, bracket, memory_line, next_size
from outlay.probe.listen import Told
from outlay.probe.played import Events, simulated_largest
from outlay.probe.run import Asking, Show, probe_and_hear
from outlay.probe.slot import Slot
from outlay.probe.trial import trial_of
from outlay.units import HOUR_S

TRIAL_STEPS = 20
TRIAL_S = 15.0
MARGIN = 0.03
"""Of the limit, left free at the recommended size: longer runs meet longer samples."""
START = 8
_LAST_WORDS_BYTES = 65_536
Tell = Callable[[str], None]


def find_batch(
    asking: Asking,
    argument: str,
    *,
    known: Known,
    show: Show | None = None,
    tell: Tell = lambda _: None,
) -> BatchSearch:
    """Trials until the largest batch is known well enough, or something ends them."""
    slot = Slot(command=asking.command, argument=argument)
    slot.check()
    hunt = _Hunt(asking, slot, known, show, tell)
    while (size := hunt.next_size()) is not None:
        hunt.try_size(size)
    return hunt.found()


class _Hunt:
    """Where a search stands."""

    def __init__(
        self, asking: Asking, slot: Slot, known: Known, show: Show | None, tell: Tell
    ) -> None:
        self._asking = asking
        self._slot = slot
        self._known = known
        self._show = show
        self._tell = tell
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._played: dict[int, Events] = {}
        """What trials that fit asked their allocator for."""
        self._samples: dict[int, int | None] = {}
        """What the passes of trials that fit really had."""
        self._is_over = self._is_interrupted = False

    def next_size(self) -> int | None:
        """The size to try, or None when that is all."""
        if self._is_over:
            return None
        size = next_size(self._trials, self._known, self._slot.present or START)
        left_usd = self._left_usd()
        if size is not None and left_usd is not None and left_usd <= 0:
            self._notes.append("The money for this search is spent: a larger batch may fit.")
            return None
        return size

    def try_size(self, size: int) -> None:
        """Run the command at a batch size, and learn from it."""
        self._tell(f"Trial {len(self._trials) + 1}: batch {size} ...")
        command = self._slot.filled(size)
        measurement, told, words = _run(self._asking, command, self._left_usd(), self._show)
        trial = trial_of(size, measurement, words)
        self._trials.append(trial)
        self._tell(_said(trial))
        self._learn(trial, measurement, told)
        if trial.outcome == "failed":
            self._notes.append(f"Batch {size} {_failed_words(measurement)}: {trial.why}")
            self._is_interrupted = measurement.ending == "interrupted"
            self._is_over = True
        elif trial.outcome == "fits":
            self._check_samples(size, measurement.batch_size)

    def _learn(self, trial: Trial, measurement: Measurement, told: Sequence[Told]) -> None:
        known = _learned(self._known, measurement, self._asking.memory_cap_mib)
        self._played.update(_allocations(trial, told))
        simulated = simulated_largest(self._played, known.limit_bytes)
        self._known = replace(known, simulated=simulated)

    def _check_samples(self, size: int, samples: int | None) -> None:
        """End it where the script goes by another batch size than it is given."""
        self._samples[size] = samples
        alike = [one for one, found in self._samples.items() if found == samples]
        if samples is None or samples == size:
            return
        if len(alike) == 1:
            self._notes.append(
                f"Batch {size} was asked for, but the script's passes had {samples} samples on a "
                "GPU."
            )
            return
        why = f"its passes had {samples:,} samples"
        self._trials = [
            _ignored(one, why) if one.batch_size in alike else one for one in self._trials
        ]
        sizes = " and ".join(f"{one:,}" for one in sorted(alike))
        self._notes.append(
            f"The script's passes had {samples:,} samples at batch {sizes} alike: it does not "
            "take its batch size from there, or its data have no more."
        )
        self._is_over = True

    def _left_usd(self) -> float | None:
        """What is left of the money for all trials together; None without a limit."""
        limits = self._asking.limits
        if limits.max_usd is None or limits.price_usd_per_hour is None:
            return None
        spent_s = sum(trial.elapsed_s for trial in self._trials)
        return limits.max_usd - limits.price_usd_per_hour * spent_s / HOUR_S

    def found(self) -> BatchSearch:
        """What came out."""
        search = _search(self._trials, self._known, self._notes)
        return replace(search, is_interrupted=self._is_interrupted)


def _failed_words(measurement: Measurement) -> str:
    if measurement.ending == "interrupted":
        return "was not tried to its end"
    return "failed for another reason"


def _ignored(trial: Trial, why: str) -> Trial:
    return replace(trial, outcome="failed", why=why, step_mean_s=None, samples_per_s=None)


def _run(
    asking: Asking, command: tuple[str, ...], left_usd: float | None, show: Show | None
) -> tuple[Measurement, list[Told], bytes]:
    """A short probe, what its processes told, and the end of what the command printed."""
    limits = Limits(
        steps=asking.limits.steps or TRIAL_STEPS,
        duration_s=asking.limits.duration_s or TRIAL_S,
        price_usd_per_hour=asking.limits.price_usd_per_hour,
        max_usd=left_usd,
        operations=False,
    )
    with tempfile.TemporaryDirectory(prefix="outlay-trial-") as folder:
        log = Path(folder) / "log"
        given = {**asking.environment, WANTED: "1"}
        asking = replace(asking, command=command, limits=limits, log=log, environment=given)
        measurement, told = probe_and_hear(asking, show)
        return measurement, told, log.read_bytes()[-_LAST_WORDS_BYTES:]


def _allocations(trial: Trial, told: Sequence[Told]) -> dict[int, Events]:
    """What the first rank of a trial that fits asked its allocator for."""
    found = [one.facts["allocations"]["events"] for one in told if "allocations" in one.facts]
    return {trial.batch_size: found[0]} if found and trial.outcome == "fits" else {}


def _learned(known: Known, measurement: Measurement, cap_mib: int | None) -> Known:
    """The limit and what is fixed, as the last trial showed them."""
    memory = measurement.memory
    parts = (
        memory.parameters_bytes,
        memory.gradients_bytes,
        memory.optimizer_bytes,
        memory.frozen_bytes,
    )
    fixed = sum(part for part in parts if part is not None) if any(parts) else known.fixed_bytes
    limit = known.limit_bytes
    if cap_mib is not None:
        limit = float(cap_mib * 2**20)
    if memory.limit_bytes is not None:
        limit = memory.limit_bytes
    elif limit is None:
        limit = memory.available_bytes
    return replace(known, fixed_bytes=fixed, limit_bytes=limit)


def _search(trials: Sequence[Trial], known: Known, notes: Sequence[str]) -> BatchSearch:
    low, _ = bracket(trials)
    full = [one.batch_size for one in trials if one.outcome == "out of memory"]
    high = min((size for size in full if size > low), default=0)
    larger_failed = any(one.outcome == "failed" and one.batch_size > low for one in trials)
    if low and not high and not larger_failed and known.limit_bytes is not None:
        notes = [*notes, "No larger size was seen to fail."]
    return BatchSearch(
        trials=tuple(trials),
        largest=low or None,
        recommended=_recommended(trials, low, high, known),
        margin_fraction=MARGIN if high else 0.0,
        fails_at=high or None,
        limit_bytes=known.limit_bytes,
        notes=tuple(dict.fromkeys(notes)),
    )


def _recommended(trials: Sequence[Trial], largest: int, fails_at: int, known: Known) -> int | None:
    """The largest size that leaves the margin free; all of it where none ran out of memory."""
    if not largest or not fails_at:
        return largest or None
    line = memory_line(allocated(trials), known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return max(int(largest * (1 - MARGIN)), 1)
    start_bytes, slope_bytes, _ = line
    by_line = int((known.limit_bytes * (1 - MARGIN) - start_bytes) / slope_bytes)
    return max(min(by_line, largest - (largest > 1)), 1)


def _said(trial: Trial) -> str:
    pace = "" if trial.samples_per_s is None else f", {trial.samples_per_s:,.0f} samples/s"
    why = f" ({trial.why})" if trial.why else ""
    return f"  {trial.outcome}{pace}{why}"
