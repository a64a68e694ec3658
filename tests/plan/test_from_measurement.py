"""Measurements that a step names."""

from __future__ import annotations

import pytest
from tests.builders import a_profile
from tests.measured import a_bare_measurement

from outlay.errors import InputError
from outlay.measurement.file import write_measurement
from outlay.plan.from_measurement import (
    at_measured_batch,
    evidence_for,
    measurement_at,
    named_profile,
)
from outlay.predict.evidence import NO_EVIDENCE, LearnedCalibration, LearnedFactor
from outlay.trace.store import write_profile
from outlay.workload.workload import Step


@pytest.fixture
def measured(tmp_path):
    """Write a measurement and return its path."""

    def write(name="m.json", **changes):
        path = tmp_path / name
        write_measurement(a_bare_measurement(**({"profile": a_profile()} | changes)), path)
        return str(path)

    return write


def test_a_measurement_is_told_from_a_profile(measured, tmp_path):
    assert measurement_at(measured()).step.mean_s == 0.2
    write_profile(a_profile(), tmp_path / "p.json")
    assert measurement_at(str(tmp_path / "p.json")) is None
    assert measurement_at("resnet50") is None
    assert measurement_at(str(tmp_path / "none.json")) is None
    (tmp_path / "odd.json").write_text("{")
    assert measurement_at(str(tmp_path / "odd.json")) is None


def test_one_that_is_written_anew_is_read_anew(measured):
    path = measured()
    assert measurement_at(path).step.mean_s == 0.2
    measured(mean_s=0.345)
    assert measurement_at(path).step.mean_s == 0.345


def test_its_operations_are_a_profile(measured):
    assert named_profile(measured()) == a_profile()
    assert named_profile("resnet50").name == "resnet50"


def test_without_operations_it_is_no_target(measured):
    with pytest.raises(InputError, match="no operations of a step"):
        named_profile(measured(profile=None))


def test_its_batch_is_taken_where_nothing_else_is_said(measured):
    path = measured(samples=48)
    assert at_measured_batch(Step(profile=path, batch_left_open=True)).batch_size == 48
    assert at_measured_batch(Step(profile=path)).batch_size is None
    assert at_measured_batch(Step(profile=path, batch_left_open=True, batch_size=8)).batch_size == 8
    assert at_measured_batch(Step(profile="resnet50", batch_left_open=True)).batch_size is None


def test_its_batch_is_held_to_the_most_that_was_asked_for(measured):
    path = measured(samples=48)
    for most, taken in ((16, 16), (64, 48)):
        step = Step(profile=path, batch_left_open=True, max_batch_size=most)
        assert at_measured_batch(step).batch_size == taken


def test_evidence_is_of_the_target_and_of_further_files(measured):
    own, more = measured(), measured("more.json", gpu="NVIDIA H200")
    step = Step(profile=own, measured=(measured("third.json", mean_s=2.0, gpu="Tesla T4"),))
    found = evidence_for(step, named_profile(own), measured=[more])
    assert [one.gpu.name for one in found.measured] == ["RTX 3090", "T4", "H200"]


def test_without_measurements_there_is_none():
    profile = named_profile("resnet50")
    assert evidence_for(Step(profile="resnet50"), profile) is NO_EVIDENCE
    factor = LearnedFactor(
        name="T4", measurements=2, mean_ratio=1.2, factor=1.1, error_before=0.2, error=0.1
    )
    learned = LearnedCalibration(gpus=(factor,))
    assert evidence_for(Step(profile="resnet50"), profile, learned).learned is learned


def test_a_file_that_is_not_there(tmp_path):
    step = Step(profile="resnet50", measured=(str(tmp_path / "none.json"),))
    with pytest.raises(InputError, match="There is no measurement"):
        evidence_for(step, named_profile("resnet50"))
