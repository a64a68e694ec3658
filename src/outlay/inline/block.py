"""A block of code, probed: `with outlay.probing(steps=200) as probe: train()`."""

from __future__ import annotations

import math
import sys
import threading
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Self

from outlay.errors import InputError
from outlay.measurement.file import (
    HIGHEST_PRICE_USD,
    MOST_IN_A_PASS,
    MOST_STEPS,
    SAMPLES,
    write_measurement,
)
from outlay.measurement.measurement import Ending, Measurement
from outlay.probe.session import PROBED_BY, Session
from outlay.probe.stages import ProbeLimits
from outlay.report.console import Page
from outlay.report.probe import print_probe

_MOST_STOPS = 5
"""How often a block that catches everything is stopped."""
_INTERRUPTED = 130
# Source: 128 + SIGINT, as shells have it
_MOST = {
    "batch_size": MOST_IN_A_PASS,
    "price": HIGHEST_PRICE_USD,
    "samples_per_step": round(SAMPLES.high),
    "steps": MOST_STEPS,
    "total_steps": MOST_STEPS,
}


class BlockProbe:
    """One probed block; its measurement is there when the block has been left."""

    def __init__(
        self,
        limits: ProbeLimits,
        *,
        batch_size: int | None = None,
        samples_per_step: int | None = None,
        total_steps: int | None = None,
        command: tuple[str, ...] | None = None,
        saved_by: str = 'probe.save("OUT.json")',
    ) -> None:
        self._session = Session(
            limits,
            batch_size=batch_size,
            samples_per_step=samples_per_step,
            total_steps=total_steps,
            command=command,
            on_enough=self._leave,
        )
        self._thread = 0
        self._stops = 0
        self._saved_as: str | None = None
        self._saved_by = saved_by

    def __enter__(self) -> Self:
        self._thread, self._stops, self._saved_as = threading.get_ident(), 0, None
        self._session.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        is_ours = isinstance(error, _Enough) and error.block is self
        self._session.end(*(("stopped", 0) if is_ours else _ending_of(error)))
        return is_ours

    @property
    def measurement(self) -> Measurement:
        """The measurement of the block."""
        return self._session.measurement

    def report(self) -> None:
        """Print it: the answer, what holds it back, the figures, the checklist."""
        if self._session.is_probed:
            Page().print(PROBED_BY)
            return
        print_probe(Page(), self.measurement, saved_as=self._saved_as, saved_by=self._saved_by)

    def save(self, path: Path | str) -> None:
        """Write it as JSON, for `outlay predict` and `outlay plan`.

        Where `outlay probe` measures the whole process, it says so and writes nothing.
        """
        if self._session.is_probed:
            sys.stderr.write(f"outlay: {path} is not written. {PROBED_BY}\n")
            return
        write_measurement(self.measurement, path)
        self._saved_as = str(path)

    def _leave(self) -> None:
        """Leave the block from within the optimizer's step; only its own thread can."""
        self._stops += 1
        if self._stops <= _MOST_STOPS and threading.get_ident() == self._thread:
            raise _Enough(self)


class _Enough(BaseException):
    """Enough is known: no error, and nothing that code in the block should catch."""

    def __init__(self, block: BlockProbe) -> None:
        self.block = block
        super().__init__("outlay has seen enough of this block")


def probing(
    *,
    steps: int | None = None,
    seconds: float | None = None,
    precision: float | None = None,
    batch_size: int | None = None,
    samples_per_step: int | None = None,
    total_steps: int | None = None,
    price: float | None = None,
    stop: bool = False,
    operations: bool = True,
) -> BlockProbe:
    """A context manager that measures the training inside it.

        with outlay.probing(steps=200) as probe:
            train()
        probe.report()
        probe.save("probe.json")

    The timing ends after so many training steps or seconds, or once the mean step time is known
    to a precision (0.02 is 2 %, which is also what holds where nothing is given, within ten
    minutes). The block goes on to its end; with `stop` it is left then, its `finally` blocks run.
    `price` is in US dollars an hour. `batch_size` and `samples_per_step` are the samples of one
    pass and of a whole training step, where what is seen of them is wrong. Without `operations`, no
    step is recorded after the timing: the measurement cannot be carried to other GPUs then.
    """
    limits = probe_limits(steps, seconds, precision, price, stop=stop, operations=operations)
    check_above_zero(
        batch_size=batch_size, samples_per_step=samples_per_step, total_steps=total_steps
    )
    return BlockProbe(
        limits, batch_size=batch_size, samples_per_step=samples_per_step, total_steps=total_steps
    )


def probe_limits(
    steps: int | None,
    seconds: float | None,
    precision: float | None,
    price: float | None,
    *,
    stop: bool,
    operations: bool,
) -> ProbeLimits:
    """The limits of a probe from inside; a value that cannot be one is an error."""
    check_above_zero(steps=steps, seconds=seconds, precision=precision, price=price)
    if precision is not None and precision >= 1:
        raise InputError(f"precision={precision!r} is no fraction.", fix="Write 0.02 for 2 %.")
    return ProbeLimits(
        steps=steps,
        duration_s=seconds,
        precision=precision,
        price_usd_per_hour=price,
        to_end=not stop,
        operations=operations,
    )


def check_above_zero(**values: object) -> None:
    """Raise where a value is no amount; None is none given."""
    for name, value in values.items():
        if value is None:
            continue
        amount = _number(value)
        if amount is None:
            raise InputError(
                f"{name}={value!r} is no number.",
                why=f"It is of type {type(value).__name__}.",
                fix=f"Give {name} a number above zero, or leave it out.",
            )
        if not amount > 0:
            raise InputError(f"{name}={value!r} is not above zero.", fix=f"Give {name} a number.")
        if amount > _MOST.get(name, math.inf):
            raise InputError(
                f"{name} is {amount:g}, and may be {_MOST[name]:,.0f} at most.",
                fix=f"Give {name} a smaller number, or leave it out.",
            )


def _number(value: object) -> float | None:
    """A number of Python or numpy; None for anything else, and for True, which counts nothing."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _ending_of(error: BaseException | None) -> tuple[Ending, int]:
    if error is None:
        return "finished", 0
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", _INTERRUPTED
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "finished", 0
    return "failed", 1
