"""A callback for Lightning's Trainer, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from outlay.errors import ExtraMissing
from outlay.inline.callback import FitProbe

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    """The Callback of each package that is imported; of one that is installed where none is."""
    imported = [module for name in _PACKAGES if (module := sys.modules.get(name)) is not None]
    return tuple(module.Callback for module in imported or [_installed()])


def _installed() -> Any:
    for name in _PACKAGES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ExtraMissing("LightningProbe needs Lightning: pip install lightning.")


_Callback: Any = type("_Callback", _bases(), {})


class LightningProbe(FitProbe, _Callback):  # type: ignore[misc]
    """Measures `trainer.fit`, and with `stop=True` stops it when enough is known.

    trainer = Trainer(callbacks=[outlay.LightningProbe(steps=200, json="probe.json")])

    The figures go to the trainer's loggers as `outlay/step_s`, `outlay/samples_per_s` and so on.
    """

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Begin to watch, before the loaders are started."""
        self._start()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Learn how long the run is."""
        self._set_total_steps(trainer.estimated_stepping_batches)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Ask the trainer to stop once enough is known."""
        if self._wants_stop:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Put everything together."""
        numbers = self._end(reports=trainer.is_global_zero)
        for logger in trainer.loggers if numbers else ():
            logger.log_metrics(numbers, step=trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Keep what was measured until then."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._end(
            reports=trainer.is_global_zero,
            ending="interrupted" if interrupted else "failed",
            status=130 if interrupted else 1,
        )
