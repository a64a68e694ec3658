"""One training step, operation by operation, without a GPU. torch is here, and in `libraries`.

`capture_steps` builds the user's step on fake CUDA tensors, runs it and returns what it did. It
changes torch for the whole process while it runs and may, with an untried torch build, abort it:
run it in a process of its own (`outlay.trace.child`).
"""

from __future__ import annotations

from outlay.errors import ExtraMissing, pip_command

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ExtraMissing(f"Tracing needs torch: {pip_command('torch')}.") from error

from outlay.trace.capture.capture import Capture, capture_steps, prepare_process
from outlay.trace.capture.wrappers import NotTraceable

__all__ = ["Capture", "NotTraceable", "capture_steps", "prepare_process"]
