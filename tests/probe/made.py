"""Made-up records: sequences of optimizers with given intervals; and a run that trained."""

from __future__ import annotations

import itertools

from tests.measured import a_step

from outlay.measurement.measurement import MeasuredMachine, MeasuredMemory, Measurement
from outlay.probe.messages import OptimizerStep, OptimizerStepTable


def records(order, each_s=0.1, *, gpu=False, marks=None, **always):
    """One record for each number of `order`, `each_s` (or each of those) apart.

    `marks` has fields for the records of some places, counted from 0.
    """
    apart_s = each_s if hasattr(each_s, "__iter__") else itertools.repeat(each_s)
    now_s, made = 100.0, []
    for place, (optimizer, took_s) in enumerate(zip(order, apart_s, strict=False)):
        now_s += took_s
        fields = {
            "number": place + 1,
            "optimizer": optimizer,
            "host_s": now_s,
            "device_s": now_s - 50 if gpu else None,
            **always,
            **(marks or {}).get(place, {}),
        }
        made.append(OptimizerStep(**fields))
    return made


def table(order, each_s=0.1, **fields):
    return OptimizerStepTable(records(order, each_s, **fields))


def letters(text):
    """Optimizers in the order their letters first appear, spaces apart."""
    order = text.replace(" ", "").replace("|", "")
    seen = list(dict.fromkeys(order))
    return [seen.index(letter) for letter in order]


def a_run(**changes: object) -> Measurement:
    """A short run that outlay stopped after 20 steps of 32 samples."""
    given = {
        "command": ("python", "train.py"),
        "measured_on": "2026-11-15",
        "ending": "stopped",
        "status": 0,
        "machine": MeasuredMachine(system="Linux"),
        "device": "cuda",
        "step": a_step(),
        "steps_seen": 20,
        "samples_per_step": 32.0,
        "memory": MeasuredMemory(allocated_bytes=5e9, reserved_bytes=6e9),
    }
    return Measurement(**{**given, **changes})
