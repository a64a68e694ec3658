"""The end of a training process: final reports, then out as if the script had called `sys.exit`.

`finally` blocks, context managers and exit handlers of the script run. A script that catches the
exit and trains on is stopped again, and ended after a few times. Where another thread than the main
one trains, both are left. Before the end, figures of the probe are logged to the script's trackers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any

from .channel import log_error
from .protocol import (
    FIGURES_FILE,
    FINAL_FIGURES_FILE,
    AwaitingFigures,
    CompiledFrames,
    LibraryVersions,
    Stopping,
)

_MOST_EXITS = 5
_POLL_S = 0.05
FIGURES_WAIT_S = 2.0
"""How long a script that ends by itself waits for figures, where it has a run to log them to."""
_LIBRARIES = (
    "torchvision",
    "torchaudio",
    "transformers",
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "timm",
    "diffusers",
    "peft",
    "deepspeed",
    "trl",
    "litgpt",
    "torchtune",
    "torchtitan",
    "torchdata",
    "ultralytics",
    "axolotl",
    "bitsandbytes",
    "torchao",
    "flash_attn",
    "xformers",
    "triton",
    "numpy",
)


class Shutdown:
    """Leaves the process, more firmly each time."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._exits = 0

    def leave(self) -> None:
        """Raise `SystemExit`; end the process of a script that goes on nevertheless."""
        if not self._exits:
            self._watch.channel.report(Stopping(step=self._watch.steps))
            send_final_reports(self._watch)
            log_figures(self._watch.channel.folder)
            _end_main_thread()
        self._exits += 1
        if self._exits > _MOST_EXITS:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        raise SystemExit(0)


def _end_main_thread() -> None:
    """Let a main thread that is not this one end as well, with the next line it runs.

    Else it would go on as if the thread that trains had done all it was to do, and keep a model
    that is not finished. What it waits for without an end, it goes on waiting for: outlay ends it.
    """
    main = threading.main_thread()
    if main is threading.current_thread() or not main.is_alive() or main.ident is None:
        return
    try:
        import ctypes

        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit))
    except Exception as error:  # another Python than CPython
        log_error(error)


def send_final_reports(watch: Any) -> None:
    """Report what is known at the end only, once."""
    if watch.has_sent_final_reports:
        return
    watch.has_sent_final_reports = True
    try:
        watch.device.finish()
        watch.report_rest()
        watch.device.report_memory()
        watch.optimizers.report_memory()
        watch.report_loaders()
        watch.channel.report(LibraryVersions(versions=library_versions()))
        watch.channel.report(CompiledFrames(frames=compiled_frames()))
        watch.channel.flush()
    except Exception as error:
        log_error(error)


def compiled_frames() -> int:
    """Functions of the script that torch has compiled; with `fullgraph` it counts graphs alone."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", {})
    frames = int(counters.get("frames", {}).get("ok", 0))
    return frames or int(counters.get("stats", {}).get("unique_graphs", 0))


def library_versions() -> dict[str, str]:
    """The versions of libraries that the script has imported."""
    import importlib.metadata

    versions = {}
    for name in _LIBRARIES:
        if name in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
    return versions


def log_figures(folder: str, name: str = FIGURES_FILE) -> bool:
    """Give the figures to Weights & Biases and MLflow, where the script has a run of theirs.

    False where there are none yet.
    """
    try:
        with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH118, PTH123
            figures = json.load(file)
    except (OSError, ValueError):
        return False
    log_to_trackers(figures)
    return True


def log_at_exit(channel: Any) -> None:
    """Ask for the figures of a script that ends by itself, and log them when they are there."""
    if not _has_tracker_run():
        return
    channel.report(AwaitingFigures())
    channel.flush()
    until_s = time.perf_counter() + FIGURES_WAIT_S
    while not log_figures(channel.folder, FINAL_FIGURES_FILE):
        if time.perf_counter() > until_s or channel.is_abandoned():
            log_figures(channel.folder)
            return
        time.sleep(_POLL_S)


def _has_tracker_run() -> bool:
    """Whether a tracker has a run that is open in this process."""
    try:
        return _wandb_run() is not None or _mlflow_run() is not None
    except Exception as error:
        log_error(error)
        return False


def _wandb_run() -> Any:
    return getattr(sys.modules.get("wandb"), "run", None)


def _mlflow_run() -> Any:
    mlflow: Any = sys.modules.get("mlflow")
    return None if mlflow is None else mlflow.active_run()


def log_to_trackers(figures: dict[str, Any]) -> None:
    """Log figures to whichever tracker has an active run in this process.

    Numbers and words go into the summary of a run at Weights & Biases; at MLflow, numbers are
    metrics and words are tags.
    """
    for log in (_log_to_wandb, _log_to_mlflow):
        try:
            log(figures)
        except Exception as error:
            log_error(error)


def _log_to_wandb(figures: dict[str, Any]) -> None:
    run = _wandb_run()
    if run is not None:
        run.summary.update(figures)


def _log_to_mlflow(figures: dict[str, Any]) -> None:
    if _mlflow_run() is None:
        return
    mlflow: Any = sys.modules["mlflow"]
    words = {name: value for name, value in figures.items() if isinstance(value, str)}
    numbers = {name: value for name, value in figures.items() if name not in words}
    if numbers:
        mlflow.log_metrics(numbers)
    if words:
        mlflow.set_tags(words)
