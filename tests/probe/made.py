"""Made-up steps and reports of agents, and what agents wrote."""

from __future__ import annotations

import itertools
import json
import math

from outlay.probe.agent.protocol import (
    REPORTS,
    STEP,
    STEP_FIELDS,
    OptimizerStep,
    parse_report,
    step_values,
)
from outlay.probe.messages import OptimizerStepTable, ProcessLog


def steps(order, each_s=0.1, *, marks=None, **always):
    """The values of a step for each number of `order`, `each_s` (or each of those) apart.

    `marks` has fields for the steps of some places, counted from 0.
    """
    apart_s = each_s if hasattr(each_s, "__iter__") else itertools.repeat(each_s)
    now_s, made = 100.0, []
    for place, (optimizer, took_s) in enumerate(zip(order, apart_s, strict=False)):
        now_s += took_s
        fields = {
            "number": place + 1,
            "optimizer": optimizer,
            "host_s": now_s,
            "cpu_s": math.nan,
            **always,
            **(marks or {}).get(place, {}),
        }
        made.append(step_values(OptimizerStep(**fields)))
    return made


def table(order, each_s=0.1, *, gpu=False, **fields):
    """Their table; `gpu`, a GPU finished each when it returned, on a clock of its own."""
    made = OptimizerStepTable(steps(order, each_s, **fields))
    if gpu:
        finish(made, *(made.column("host_s") - 50))
    return made


def finish(made, *device_s, after=0):
    """Fill in when a GPU had finished steps of a table, the first `after` apart."""
    for number, time_s in enumerate(device_s, after + 1):
        made.set_device_time(number, time_s)


def a_log(*reports, **fields):
    """The log of a process that has made these reports."""
    log = ProcessLog(**fields)
    for report in reports:
        log.add(report)
    return log


def letters(text):
    """Optimizers in the order their letters first appear, spaces apart."""
    order = text.replace(" ", "").replace("|", "")
    known = list(dict.fromkeys(order))
    return [known.index(letter) for letter in order]


def written_steps(channel):
    """The records of steps in the lines of a channel."""
    lines = [json.loads(line) for line in channel.lines]
    steps = [values for kind, *values in lines if kind == STEP]
    return [OptimizerStep(**dict(zip(STEP_FIELDS, values, strict=True))) for values in steps]


def written_reports(channel, report_kind):
    """The reports of a kind in the lines of a channel."""
    lines = [json.loads(line) for line in channel.lines]
    reports = [parse_report(kind, *values) for kind, *values in lines if kind in REPORTS]
    return [report for report in reports if isinstance(report, report_kind)]
