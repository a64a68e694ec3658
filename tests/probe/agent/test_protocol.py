"""What the agent writes is what outlay reads: one definition for both sides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outlay.probe import inject
from outlay.probe.agent import protocol
from outlay.probe.agent.protocol import (
    REPORTS,
    STEP_FIELDS,
    AgentRequest,
    GpuFinishTime,
    KernelTimes,
    LoaderInfo,
    LoaderUse,
    Loss,
    MemoryPeaks,
    OptimizerStep,
    StepsDiscarded,
    device_time_line,
    parse_report,
    report_line,
    step_line,
    step_values,
)
from outlay.probe.messages import ProcessLog


def test_a_step_comes_back_field_by_field():
    fields = {name: place + 1 for place, name in enumerate(STEP_FIELDS)}
    log = ProcessLog()
    log.read_lines([step_line(step_values(OptimizerStep(**fields)))])
    assert {name: log.table.column(name)[0] for name in STEP_FIELDS} == fields
    assert log.last_step == fields["number"]


def test_a_step_of_which_nothing_is_known_has_no_samples_and_no_time_on_a_gpu():
    log = ProcessLog()
    log.read_lines([step_line(step_values(OptimizerStep(number=1, host_s=2.5)))])
    assert log.table.column("samples")[0] != log.table.column("samples")[0]  # NaN
    assert log.table.column("device_s")[0] != log.table.column("device_s")[0]
    log.read_lines([device_time_line(GpuFinishTime(step=1, device_s=0.25))])
    assert log.table.column("device_s")[0] == 0.25


@pytest.mark.parametrize(
    "report",
    [
        KernelTimes(optimizer_steps=3, busy_s=0.5, longest=[["gemm", 0.4]]),
        LoaderInfo(
            batch_size=8, batches=None, workers=2, pin_memory=True, persistent_workers=False
        ),
        Loss(step=7, value=None),
        StepsDiscarded(),
    ],
)
def test_a_report_comes_back_as_it_was(report):
    kind, values = json.loads(report_line(report))
    read = parse_report(kind, values)
    assert (type(read), read) == (type(report), report)


def test_all_reports_are_listed():
    classes = [x for x in vars(protocol).values() if isinstance(x, type) and hasattr(x, "_fields")]
    assert {*classes} - {*REPORTS.values()} == {GpuFinishTime, AgentRequest, LoaderUse}


def test_of_most_reports_the_last_is_kept_and_of_memory_the_most():
    log = ProcessLog()
    for reserved_bytes, steps in ((5, 2), (9, 3), (7, 4)):
        log.add(MemoryPeaks(allocated_bytes=1, reserved_bytes=reserved_bytes))
        log.add(KernelTimes(optimizer_steps=steps))
    assert log.peak_reserved_bytes == 9
    assert log.last(KernelTimes) == KernelTimes(optimizer_steps=4)


def test_steps_that_were_none_are_discarded():
    log = ProcessLog()
    steps = [step_line(step_values(OptimizerStep(number=number))) for number in (1, 2, 3)]
    log.read_lines([*steps, report_line(StepsDiscarded()), steps[0]])
    assert len(log.table) == 1


def test_a_line_that_was_cut_off_is_left_out():
    log = ProcessLog()
    whole = step_line(step_values(OptimizerStep(number=1)))
    log.read_lines([whole[:-4], whole, b"", b"7"])
    assert len(log.table) == 1


def test_a_request_comes_back():
    request = AgentRequest(profile_from=3, profile_until=6, record_from=7, stop_at=2**40)
    assert AgentRequest.unpacked(request.packed()) == request
    assert len(request.packed()) == protocol.REQUEST_BYTES


def test_the_names_that_are_needed_before_the_agent_is_loaded():
    """`sitecustomize` cannot import them: it has them written out."""
    (folder,) = inject.__path__
    text = (Path(folder) / "sitecustomize.py").read_text()
    assert f'"{protocol.FOLDER_VARIABLE}"' in text
    assert f'"{protocol.AGENT_MODULE}"' in text
