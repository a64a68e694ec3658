"""The way out: what is left to tell, then the end of the script as if it had called `sys.exit`.

`finally` blocks, context managers and exit handlers of the script run. A script that catches the
exit and trains on is asked again, and ended after a few times. Where another thread than the main
one trains, both are left.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any

from .channel import complain

_ASKED_AT_MOST = 5
_LOOK_S = 0.05
FIGURES = "figures.json"
LAST_FIGURES = "last_figures.json"
"""Those of a script that ends by itself, which asks for them."""
AWAITED_S = 2.0
"""How long it waits for them at most, where it has a run to log them to."""
_VERSIONS = (
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
    "bitsandbytes",
    "torchao",
    "flash_attn",
    "xformers",
    "triton",
    "numpy",
)


class Shutdown:
    """Leaves the process, more firmly each time it is asked."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._asked = 0

    def leave(self) -> None:
        """Raise `SystemExit`; of a script that goes on nevertheless, end the process."""
        if not self._asked:
            self._watch.channel.tell_values("stopping", {"step": self._watch.steps})
            last_words(self._watch)
            log_figures(self._watch.channel.folder)
            _end_main_thread()
        self._asked += 1
        if self._asked > _ASKED_AT_MOST:
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
        complain(error)


def last_words(watch: Any) -> None:
    """Tell what is known at the end only, once."""
    if watch.has_said_last:
        return
    watch.has_said_last = True
    try:
        watch.device.finish()
        watch.device.look()
        watch.optimizers.tell_held()
        watch.channel.tell_values("versions", dict(versions()))
        watch.channel.tell_values("compiled", {"frames": compiled_frames()})
        watch.channel.flush()
    except Exception as error:
        complain(error)


def compiled_frames() -> int:
    """Functions of the script that torch has compiled; with `fullgraph` it counts graphs alone."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", {})
    frames = int(counters.get("frames", {}).get("ok", 0))
    return frames or int(counters.get("stats", {}).get("unique_graphs", 0))


def versions() -> dict[str, str]:
    """The libraries that the script has imported."""
    import importlib.metadata

    found = {}
    for name in _VERSIONS:
        if name in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
    return found


def log_figures(folder: str, name: str = FIGURES) -> bool:
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
    if not _has_run():
        return
    channel.tell_values("awaits", {"figures": True})
    channel.flush()
    until_s = time.perf_counter() + AWAITED_S
    while not log_figures(channel.folder, LAST_FIGURES):
        if time.perf_counter() > until_s or channel.is_deserted():
            log_figures(channel.folder)
            return
        time.sleep(_LOOK_S)


def _has_run() -> bool:
    """Whether a tracker has a run that is open in this process."""
    try:
        return _wandb_run() is not None or _mlflow_run() is not None
    except Exception as error:
        complain(error)
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
            complain(error)


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
