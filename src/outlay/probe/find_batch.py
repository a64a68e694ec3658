"""The largest batch for real: trials in fresh processes, each a short probe.

A trial fits if it makes a few steps. `slot` says where in the command the batch size goes, `trial`
what came of a run, `hunt` what to try next.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from outlay.measurement import Measurement
from outlay.probe.agent.allocations import WANTED
from outlay.probe.batches import BatchSearch, Trial
from outlay.probe.course import LONGEST_S, Limits
from outlay.probe.hunt import Known, bracket, next_size, trials_left
from outlay.probe.listen import Told
from outlay.probe.played import Events, simulated_largest
from outlay.probe.recommend import MARGIN, recommended
from outlay.probe.run import Asking, Show, probe_and_hear
from outlay.probe.slot import Slot
from outlay.probe.trial import is_taken, trial_of, usual_pass
from outlay.units import HOUR_S

TRIAL_STEPS = 20
TRIAL_S = 15.0
LEAST_START_S = 105.0
START_TIMES = 10
"""How long a first step is waited for, beside `TRIAL_S`: as many times the longest trial so far."""
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
        if size is None:
            size = self._untried()
        left_usd = self._left_usd()
        if size is not None and left_usd is not None and left_usd <= 0:
            self._notes.append("The money for this search is spent: a larger batch may fit.")
            return None
        return size

    def _untried(self) -> int | None:
        """The size to recommend, where it is still to be tried and trials are left."""
        found = self.found()
        if found.fails_at is None or found.is_recommended_tried:
            return None
        return found.recommended if trials_left(self._trials, self._known) else None

    def try_size(self, size: int) -> None:
        """Run the command at a batch size, and learn from it."""
        self._tell(f"Trial {len(self._trials) + 1}: batch {size} ...")
        command = self._slot.filled(size)
        limits = self._limits()
        measurement, told, words = _run(self._asking, command, limits, self._show)
        samples = usual_pass(told) or measurement.batch_size
        trial = trial_of(size, measurement, words, limits=limits, samples=samples)
        self._trials.append(trial)
        self._tell(_said(trial))
        self._learn(trial, measurement, told)
        if self._asking.memory_cap_mib is not None and measurement.device == "cpu":
            self._notes.append("The cap did nothing: it is a GPU's, and this trained on the CPU.")
        if trial.outcome == "failed":
            self._notes.append(f"Batch {size} {_failed_words(measurement)}: {trial.why}")
            self._is_interrupted = measurement.ending == "interrupted"
            self._is_over = True
        elif trial.outcome == "fits":
            self._check_samples(size, samples)

    def _limits(self) -> Limits:
        """Of the next trial: a first step that is far later than earlier ones does not come."""
        given = self._asking.limits
        longest_s = max((trial.elapsed_s for trial in self._trials), default=math.inf)
        start_s = max(START_TIMES * longest_s, LEAST_START_S)
        return Limits(
            steps=given.steps or TRIAL_STEPS,
            duration_s=given.duration_s or TRIAL_S,
            start_s=min(start_s, LONGEST_S),
            price_usd_per_hour=given.price_usd_per_hour,
            max_usd=self._left_usd(),
            operations=False,
        )

    def _learn(self, trial: Trial, measurement: Measurement, told: Sequence[Told]) -> None:
        known = _learned(self._known, measurement, self._asking.memory_cap_mib)
        self._played.update(_allocations(trial, told))
        simulated = simulated_largest(self._played, known.limit_bytes)
        self._known = replace(known, simulated=simulated)

    def _check_samples(self, size: int, samples: int | None) -> None:
        """End it where the script goes by another batch size than it is given."""
        self._samples[size] = samples
        if samples is None or samples == size:
            return
        alike = sorted(one for one, found in self._samples.items() if found == samples)
        others = [one for one in alike if not _is_near(one, samples)]
        if not others:
            return
        if len(alike) == 1:
            self._notes.append(
                f"Batch {size:,} was asked for, but the script's passes had {samples:,} samples on "
                "a GPU."
            )
            return
        self._trials = [
            _not_taken(one, samples) if one.batch_size in others else one for one in self._trials
        ]
        self._notes.append(_alike_words(alike, others, samples))
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


def _is_near(size: int, samples: int) -> bool:
    """Whether passes of so many samples are those of a batch of that size, the data's end apart."""
    return is_taken(size, samples) and is_taken(samples, size)


def _not_taken(trial: Trial, samples: int) -> Trial:
    why = f"its passes had {samples:,} samples"
    return replace(trial, outcome="not taken", why=why, step_mean_s=None, samples_per_s=None)


def _alike_words(alike: Sequence[int], others: Sequence[int], samples: int) -> str:
    """What it means that passes are the same at several sizes."""
    sizes = " and ".join(f"{one:,}" for one in alike)
    same = f"The script's passes had {samples:,} samples at batch {sizes} alike: "
    if min(others) > samples:
        return f"{same}it takes no larger batches from there, or its data have no more."
    return f"{same}it does not take its batch size from there."


def _run(
    asking: Asking, command: tuple[str, ...], limits: Limits, show: Show | None
) -> tuple[Measurement, list[Told], bytes]:
    """A short probe, what its processes told, and the end of what the command printed."""
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
    if cap_mib is not None and measurement.device != "cpu":
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
    larger_failed = any(
        one.outcome in ("failed", "not taken") and one.batch_size > low for one in trials
    )
    if low and not high and not larger_failed and known.limit_bytes is not None:
        notes = [*notes, "No larger size was seen to fail."]
    return BatchSearch(
        trials=tuple(trials),
        largest=low or None,
        recommended=recommended(trials, low, high, known),
        margin_fraction=MARGIN if high else 0.0,
        fails_at=high or None,
        limit_bytes=known.limit_bytes,
        notes=tuple(dict.fromkeys(notes)),
    )


def _said(trial: Trial) -> str:
    pace = "" if trial.samples_per_s is None else f", {trial.samples_per_s:,.0f} samples/s"
    why = f" ({trial.why})" if trial.why else ""
    return f"  {trial.outcome}{pace}{why}"
