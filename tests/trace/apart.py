"""A capture made in a process of its own: autograd starts once in a process, with the GPUs of then.

What other tests compute on the CPU would otherwise decide whether a step can be captured.
"""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from tests.forked import call_forked


def capture_apart(target: str, batch_size: int) -> SimpleNamespace:
    """What `capture_steps` finds of a file's step: its operations, parameters and peak."""
    told = call_forked("tests.trace.apart:told", target, batch_size)
    peak = SimpleNamespace(**told.pop("peak"))
    ops = [SimpleNamespace(**op) for op in told.pop("ops")]
    return SimpleNamespace(**told, ops=ops, memory=SimpleNamespace(peak=lambda: peak))


def told(target: str, batch_size: int) -> dict[str, Any]:
    """The same as JSON, in the other process."""
    from outlay.trace.capture import capture_steps, torchvision_ops
    from outlay.trace.target import load_function, parse_target

    torchvision_ops.install()  # before anything imports torchvision
    capture = capture_steps(load_function(parse_target(target)), batch_size)
    names = ("name", "kind", "phase", "flops", "moved_bytes")
    return {
        "ops": [{name: getattr(op, name) for name in names} for op in capture.ops],
        "parameters": capture.parameters,
        "trainable_parameters": capture.trainable_parameters,
        "period": capture.period,
        "unknown_ops": dict(capture.unknown_ops),
        "peak": asdict(capture.memory.peak()),
    }
