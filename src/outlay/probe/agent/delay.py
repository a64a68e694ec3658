"""When a process does what outlay asks for: at the step it names, or later."""

from __future__ import annotations

from .channel import Asked


class Delay:
    """How many steps later than asked; several processes must be at the same step, and do without.

    Steps that come in bursts, with long pauses between, are told only when the next one is made:
    outlay asks for what is past by then.
    """

    def __init__(self) -> None:
        self.is_alone = False
        self._steps: int | None = None
        """Known from when it is first asked for something."""

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._steps = None

    def of(self, asked: Asked, step: int) -> Asked:
        """What is asked for, after a step, with the delay."""
        if not asked.profile_from:
            return asked
        if self._steps is None:
            self._steps = max(step - asked.profile_from, 0) if self.is_alone else 0
        late = self._steps
        return Asked(*(one + late if one else 0 for one in asked))

    def put_off(self, steps: int) -> bool:
        """Do all that is left so many steps later; False where that cannot be."""
        if self._steps is None or not self.is_alone:
            return False
        self._steps += steps
        return True
