"""The operations of the first steps, so that every probe has them, however soon it ends.

The first step makes states that later ones have: those after it are recorded, one optimizer step
after the other, until they make a whole training step. Their times are no step's, and count as part
of the warm-up. Once the timing is over one more step is recorded (`recording`), which counts before
these: by then it is known what a training step is.

An evaluation is no step: where one begins, recording ends, and goes on after the next step.
"""

from __future__ import annotations

import time
from typing import Any

from .channel import log_error
from .optimizers import live_optimizers, optimizer_key
from .protocol import StepOperations
from .recording import is_in_compiled_call, new_recorder, report_failure

_ALONE_STEPS = 8
"""Steps of one optimizer after which others that are there are no longer waited for."""
_RESTARTS = 2
"""How often recording begins anew after what looked like an evaluation; then it is the step's."""
_LONGEST_S = 20.0
"""Recording takes no new step after so long."""
_MOST_GRADLESS = 5_000
"""Operators without gradients since the last step, from which on they are an evaluation."""
_EAGER_FRACTION = 0.25
# Assumes: code that was compiled takes up to four times its memory where it runs as written.


class EarlyRecording:
    """Begins after the first step, and ends by itself."""

    def __init__(self, watch: Any, most_steps: int) -> None:
        self._watch = watch
        self._most_steps = most_steps
        self._recorder: Any = None
        self._live: set[int] = set()
        """The optimizers that are there, by their keys; not all of them need ever step."""
        self._stepped: set[int] = set()
        """Those that have stepped since recording began."""
        self._numbers: list[tuple[int, int]] = []
        """Number of the optimizer and passes of each step, the one before the first included."""
        self._restarts = 0
        self._until_s = 0.0
        self._was_muted = False
        """Whether a part of the step that has just ended was left out."""

    def after_step(self, optimizers: tuple[Any, ...]) -> None:
        """Report the step that has just ended, and end or go on; begin, after the first one."""
        watch = self._watch
        try:
            if watch.steps == 1:
                self._prepare()
            elif self._recorder is not None and not watch.graphs.are_replayed:
                self._was_muted = self._recorder.is_muted
                self._report()
            self._follow(optimizers)
            if self._is_over():
                self.abandon()
            elif self._recorder is None:
                self._start()
        except Exception as error:
            self.abandon()
            report_failure(watch.channel, "record", error)
        watch.is_disturbed = True

    def abandon(self) -> None:
        """End it, for good."""
        self._stop()
        self._watch.early = None

    def pause_begins(self) -> None:
        """Keep out what is likely to be an evaluation; recording goes on after the next step.

        It ends where it can, and notes nothing where it cannot: inference mode leaves torch's
        dispatcher as it was before, as a compiled function does.
        """
        if self._recorder is None or self._restarts >= _RESTARTS:
            return
        is_within = self._watch.torch.is_inference_mode_enabled() or is_in_compiled_call()
        if is_within or not self._recorder.is_current:
            self._recorder.is_muted = True
            return
        self._restarts += 1
        self._stop()
        self._watch.is_disturbed = True

    def _mute(self) -> None:
        self._recorder.is_muted = True

    def _prepare(self) -> None:
        watch = self._watch
        self._until_s = time.perf_counter() + _LONGEST_S
        if not self._has_memory() or watch.graphs.are_replayed:
            self._until_s = 0.0
            return
        self._live = live_optimizers(watch.torch)

    def _has_memory(self) -> bool:
        """Whether compiled code may run as it is written, for which it takes more memory."""
        from .shutdown import compiled_frames

        index, cuda = self._watch.device.index, self._watch.torch.cuda
        if index is None or not compiled_frames():
            return True
        total = cuda.get_device_properties(index).total_memory
        return bool(cuda.max_memory_allocated(index) <= _EAGER_FRACTION * total)

    def _follow(self, optimizers: tuple[Any, ...]) -> None:
        """Take in which optimizer has stepped; begin anew after a pause or a step left out."""
        counters = self._watch.counters
        self._stepped.update(map(optimizer_key, optimizers))
        self._numbers.append((counters.optimizer, counters.passes))
        is_odd = counters.evaluated or counters.mostly_no_grad or counters.skipped
        is_odd = is_odd or self._was_muted
        if is_odd and self._recorder is not None and self._restarts < _RESTARTS:
            self._restarts += 1
            if self._restarts == _RESTARTS:
                self._recorder.on_excess = None
            self._forget()
        elif self._recorder is None:
            self._forget()

    def _forget(self) -> None:
        """Let a whole step begin after the one that has just ended."""
        del self._numbers[:-1]
        self._stepped.clear()

    def _is_over(self) -> bool:
        """Whether a whole training step is there, or is no longer waited for.

        As many optimizer steps in a row as one has, wherever in it they begin, are a whole one.
        """
        watch = self._watch
        if watch.steps > self._most_steps or time.perf_counter() > self._until_s:
            return True
        if watch.graphs.are_replayed or (self._recorder is None and is_in_compiled_call()):
            return True
        if len(self._numbers) < 2:
            return False
        (first, passes_before), (before, _), (last, passes) = (
            self._numbers[place] for place in (0, -2, -1)
        )
        if len({number for number, _ in self._numbers}) > 1:
            return last == first != before and self._live <= self._stepped
        if not self._live <= self._stepped:
            return len(self._numbers) > _ALONE_STEPS
        # One that steps again without a backward pass updates the rest of its parameters.
        return bool(passes or not passes_before)

    def _start(self) -> None:
        watch = self._watch
        self._recorder = watch.recorder = new_recorder(watch)
        if self._restarts < _RESTARTS:
            self._recorder.most_gradless = _MOST_GRADLESS
            self._recorder.on_excess = self._mute
        self._recorder.start()
        watch.batch.start()

    def _report(self) -> None:
        watch = self._watch
        inputs, recording = watch.batch.last_inputs, self._recorder.take()
        if self._was_muted:
            return
        watch.channel.report(
            StepOperations(
                step=watch.steps,
                recording=recording,
                inputs=inputs._asdict() if inputs.step == watch.steps else None,
            )
        )
        watch.channel.flush()

    def _stop(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._watch.recorder is recorder:
            self._watch.recorder = None
        try:
            recorder.stop()
        except Exception as error:
            log_error(error)
