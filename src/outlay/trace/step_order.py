"""Which optimizer steps of a script make one training step, and after how many it repeats.

A script is watched from one optimizer step to the next. `StepOrder` is told of each and says, once
it knows, how many of them make a training step (two of a GAN, six of one with several networks) and
how many to record: more than one training step where something comes only now and then, such as a
penalty in every sixteenth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

MOST_LOOKED_AT = 160
"""Optimizer steps after which what was seen is taken as it is."""
LOOK_ON = 40
"""Optimizer steps that are looked at in any case, as long as they are quick."""
QUICK_S = 8.0
LONGEST_S = 240.0
WAITED_FOR = 17
"""Training steps for which something that was seen once is waited for: penalties come in every
sixteenth as a rule, and what the first step alone does comes never again."""
PATIENCE_S = 120.0
"""The longest that is waited for it."""
NEGLIGIBLE = 0.05
"""Of what a usual step writes: a rare one with less beyond that (a moving average of the weights,
now and then) is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTurn:
    """What a script did from one optimizer step to the next."""

    optimizer: int
    forward: int
    """A hash of the operators that ran forward with gradients: a penalty has others."""
    elements: int = 0
    """What those wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """What to record of a script."""

    turns: int
    """Optimizer steps, from the end of one to the end of the last."""
    steps: int
    """Training steps in them."""
    order: tuple[int, ...]
    """The optimizers that step in one training step, in order."""
    is_regular: bool = True
    """False where no order repeated."""


class StepOrder:
    """Looks for the order in which the optimizers of a script step."""

    def __init__(self) -> None:
        self.turns: list[OptimizerTurn] = []
        self._bases: Counter[int] = Counter()
        """How often each length of a training step was found."""

    def add(self, turn: OptimizerTurn, seconds: float, optimizers: int = 1) -> StepWindow | None:
        """Note an optimizer step; what to record once that is known.

        `seconds` have passed since the first one, and the script has made so many `optimizers`.
        """
        if all(turn.optimizer != earlier.optimizer for earlier in self.turns):
            self._bases.clear()  # what was found is without it
        self.turns.append(turn)
        count = len(self.turns)
        repeating = self._repeating()
        if repeating is not None:
            self._bases[repeating] += 1
        unseen = max(optimizers - len({each.optimizer for each in self.turns}), 0)
        if count >= MOST_LOOKED_AT or seconds > LONGEST_S:
            return self.window()
        base = self._base()
        if base is None or (unseen and count < LOOK_ON):
            return None
        if count < LOOK_ON and seconds < QUICK_S:
            return None
        if seconds < PATIENCE_S and self._may_come_again(base):
            return None
        return self.window()

    def _may_come_again(self, base: int) -> bool:
        """Whether something rare was seen once, not long ago."""
        rare = self._rare(base)
        once = [places[0] for places in rare.values() if len(places) == 1]
        if not once:
            return False
        added = sum(len(places) for places in rare.values())
        return len(self.turns) - max(once) - added <= WAITED_FOR * base

    def window(self) -> StepWindow | None:
        """What to record by all that was seen; None where no step was."""
        if not self.turns:
            return None
        base = self._base()
        if base is None:
            return self._irregular()
        order = tuple(turn.optimizer for turn in self._usual()[:base])
        repeated = {what: places for what, places in self._rare(base).items() if len(places) > 1}
        gap = max((places[-1] - places[-2] for places in repeated.values()), default=base)
        turns = max(gap, base)
        return StepWindow(
            turns=turns, steps=self._steps_in(turns, base, set(repeated)), order=order
        )

    def _base(self) -> int | None:
        """Optimizer steps in a training step, as they were found most often."""
        return self._bases.most_common(1)[0][0] if self._bases else None

    def _repeating(self) -> int | None:
        """The least number of steps after which all repeats, just now.

        Not always that of a training step: something rare in the place of a usual step breaks the
        order for a while.
        """
        turns = self._usual()
        optimizers = {turn.optimizer for turn in turns}
        for length in range(1, len(turns) // 2 + 1):
            last, before = turns[-length:], turns[-2 * length : -length]
            if last == before and {turn.optimizer for turn in last} == optimizers:
                return length
        return None

    def _usual(self) -> list[OptimizerTurn]:
        """The steps without those in which something rare is done."""
        counts: dict[tuple[int, int], int] = {}
        for turn in self.turns:
            key = turn.optimizer, turn.forward
            counts[key] = counts.get(key, 0) + 1
        most = max(counts.values())
        is_usual = {key for key, times in counts.items() if 2 * times >= most}
        kinds: dict[int, OptimizerTurn] = {}
        for turn in self.turns:
            if (turn.optimizer, turn.forward) in is_usual:
                kinds.setdefault(turn.optimizer, turn)
        usual = []
        for turn in self.turns:
            forward, kind = turn.forward, kinds.get(turn.optimizer)
            if kind is not None and (turn.optimizer, forward) not in is_usual:
                if not _are_alike(turn, kind):
                    continue
                forward = kind.forward
            usual.append(OptimizerTurn(optimizer=turn.optimizer, forward=forward))
        return usual

    def _rare(self, base: int) -> dict[tuple[int, int], list[int]]:
        """Where each kind of step was made that is no part of the usual training step."""
        usual = {(turn.optimizer, turn.forward) for turn in self._usual()[-base:]}
        kinds = {
            turn.optimizer: turn for turn in self.turns if (turn.optimizer, turn.forward) in usual
        }
        places: dict[tuple[int, int], list[int]] = {}
        for place, turn in enumerate(self.turns):
            key, kind = (turn.optimizer, turn.forward), kinds.get(turn.optimizer)
            if key not in usual and not (kind is not None and _are_alike(turn, kind)):
                places.setdefault(key, []).append(place)
        return places

    def _steps_in(self, turns: int, base: int, rare: set[tuple[int, int]]) -> int:
        """Training steps in so many optimizer steps.

        What is rare is a step of its own that is added to a training step, or one in the place of
        a usual one.
        """
        if turns % base == 0:
            return turns // base
        window = self.turns[-turns:]
        usual = sum((turn.optimizer, turn.forward) not in rare for turn in window)
        return max(-(-usual // base), 1)

    def _irregular(self) -> StepWindow:
        """The later half of what was seen, each optimizer's own share of it a training step."""
        turns = self.turns[len(self.turns) // 2 :]
        optimizers = [turn.optimizer for turn in turns]
        most = max(set(optimizers), key=optimizers.count)
        return StepWindow(
            turns=len(turns),
            steps=optimizers.count(most) or 1,
            order=tuple(dict.fromkeys(optimizers)),
            is_regular=len(turns) < 2,
        )


def _are_alike(turn: OptimizerTurn, usual: OptimizerTurn) -> bool:
    return abs(turn.elements - usual.elements) < NEGLIGIBLE * usual.elements
