"""A callback for the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from outlay.errors import ExtraMissing
from outlay.inline.callback import FitProbe

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ExtraMissing("TrainerProbe needs transformers: pip install transformers.") from error


class TrainerProbe(FitProbe, TrainerCallback):  # type: ignore[misc]
    """Measures `trainer.train()`, and with `stop=True` stops it when enough is known.

    trainer = Trainer(..., callbacks=[outlay.TrainerProbe(steps=200, json="probe.json")])

    The figures are appended to the trainer's log history and logged to an active run of Weights &
    Biases or MLflow. After an error in training, which callbacks do not get, `close` stops
    watching.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin to watch."""
        self._start(state.train_batch_size or args.train_batch_size)
        self._set_total_steps(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Ask the trainer to stop once enough is known.

        At the last step everything is put together: at the end of training, trackers may have
        closed their run already.
        """
        if self._wants_stop:
            control.should_training_stop = True
        if self._wants_stop or state.global_step >= state.max_steps:
            self._finish(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Put everything together, where others have stopped the training."""
        self._finish(state)

    def _finish(self, state: Any) -> None:
        numbers = self._end(reports=state.is_world_process_zero)
        if numbers:
            state.log_history.append({**numbers, "step": state.global_step})
