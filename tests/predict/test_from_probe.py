"""A probe's measurement as a prediction can use it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_profile
from tests.measured import a_bare_measurement

from outlay.errors import InputError
from outlay.hardware.gpu_names import find_gpu
from outlay.measurement.measurement import MeasuredMachine, MeasuredOptimizer
from outlay.predict.from_probe import evidence_of, measured_batch_size, measured_step_of
from outlay.units import GIB


def a_light_profile(**changes):
    """Light enough for 64 samples in the 0.2 s of `a_bare_measurement` on an RTX 3090."""
    return a_profile(**{"flops_per_sample": 1e10, **changes})


@pytest.mark.parametrize(
    ("driver_s", "ours"),
    [
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_a_driver_s_names_are_found(driver_s, ours):
    step, notes = measured_step_of(a_bare_measurement(gpu=driver_s))
    assert (step.gpu.name, notes) == (ours, ())


def test_the_figures_of_a_step():
    step, _ = measured_step_of(a_bare_measurement(0.2, samples=64, precision=0.0196, busy_s=0.15))
    assert (step.step_s, step.batch_size, step.busy_s, step.holder) == (0.2, 64, 0.15, "gpu")
    # 95 % of a normal distribution lie within 1.96 standard errors
    assert step.error == pytest.approx(0.01)
    assert (step.gpus, step.nodes, step.power_limit_w) == (1, 1, None)


def test_memory_tells_forms_of_a_gpu_apart():
    step, _ = measured_step_of(a_bare_measurement(gpu="NVIDIA A100", memory_bytes=39.4 * GIB))
    assert step.gpu.memory_bytes == 40 * GIB


def test_a_power_limit_below_the_shipped_one_counts():
    # an RTX 3090 is shipped with 350 W
    assert measured_step_of(a_bare_measurement(power_limit_w=350))[0].power_limit_w is None
    assert measured_step_of(a_bare_measurement(power_limit_w=250))[0].power_limit_w == 250


def test_all_passes_are_one_step():
    measurement = a_bare_measurement(samples=64, passes_per_step=4)
    assert (measured_batch_size(measurement), measurement.batch_size) == (64, 16)
    assert measured_batch_size(a_bare_measurement(samples=None)) == 1


def test_ranks_on_several_machines():
    step, notes = measured_step_of(a_bare_measurement(ranks=8, world_size=16))
    assert (step.gpus, step.nodes) == (8, 2)
    assert "other GPUs are not corrected" in notes[0]
    assert measured_step_of(a_bare_measurement(ranks=8, world_size=16, busy_s=0.1))[1] == ()


@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        (a_bare_measurement(step=None), "no step time"),
        (a_bare_measurement(gpu="Some Card 9"), "no GPU is known as 'Some Card 9'"),
        (a_bare_measurement(device="cpu"), "ran on the CPU"),
        (a_bare_measurement(samples=None), "how many samples a step has was not seen"),
        (a_bare_measurement(machine=MeasuredMachine(system="Linux")), "ran on the CPU"),
    ],
)
def test_what_corrects_nothing_says_why(measurement, why):
    step, notes = measured_step_of(measurement)
    assert step is None
    assert why in notes[0]
    evidence = evidence_of([("m.json", measurement)], a_light_profile())
    assert evidence.measured == ()
    assert evidence.notes[0].startswith("m.json: ")


def test_a_step_that_was_never_steady_is_used_with_a_word():
    unsteady = a_bare_measurement()
    unsteady = replace(unsteady, step=replace(unsteady.step, is_steady=False))
    step, notes = measured_step_of(unsteady)
    assert step is not None
    assert "no steady state" in notes[0]


def test_a_measurement_of_another_step_is_refused():
    other = a_bare_measurement(profile=a_light_profile(trainable_parameters=7))
    with pytest.raises(InputError, match="m.json is of another step: it has 7 parameters"):
        evidence_of([("m.json", other)], a_light_profile())
    assert evidence_of(
        [("m.json", a_bare_measurement(profile=a_light_profile()))], a_light_profile()
    ).measured


def test_measurements_that_contradict_each_other_are_named():
    # 0.25 / 0.2 = 1.25: no repeat of one step differs so
    pair = [("a.json", a_bare_measurement(0.2)), ("b.json", a_bare_measurement(0.25))]
    (note,) = evidence_of(pair, a_light_profile()).notes
    assert note.startswith("a.json and b.json contradict each other: 200 ms and 250 ms a step")
    again = [("a.json", a_bare_measurement(0.2)), ("b.json", a_bare_measurement(0.205))]
    assert evidence_of(again, a_light_profile()).notes == ()


def holding(parameters):
    """A measurement without operations, whose optimizer holds so many parameters."""
    optimizer = MeasuredOptimizer(name="Adam", parameters=round(parameters), per_step=1.0)
    return a_bare_measurement(optimizers=(optimizer,))


def test_optimizers_of_another_model_are_doubted():
    profile = a_light_profile()
    # a tenth more: perhaps not all were seen when one of them was counted
    (note,) = evidence_of([("m.json", holding(1.1 * profile.parameters))], profile).notes
    assert "is it the same step?" in note
    same = holding(profile.trainable_parameters)
    assert evidence_of([("m.json", same)], profile).notes == ()


@pytest.mark.parametrize("times", [0.1, 0.7, 1.3, 3])
def test_optimizers_of_clearly_another_model_are_refused(times):
    profile = a_light_profile()
    other = holding(times * profile.parameters)
    with pytest.raises(InputError, match="m.json is of another step: its optimizers hold"):
        evidence_of([("m.json", other)], profile)
    # of several processes each may hold a part
    spread = replace(other, ranks=2, world_size=2, busy_s=0.1)
    assert evidence_of([("m.json", spread)], profile).notes == ()


# An RTX 3090 does 71 TFLOP/s in fp16 at most; 64 samples of 1e12 FLOPs take 0.9 s at that.
IDEAL_S = 64e12 / find_gpu("RTX 3090").gpu.peak("fp16")


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_time_below_that_at_the_peak_cannot_be(by_hand):
    def evidence(step_s, profile=None, **changes):
        measurement = a_bare_measurement(step_s, profile=profile, **changes)
        if by_hand and profile is None:
            return evidence_of([], predicted, stated=[("m.json", measured_step_of(measurement)[0])])
        return evidence_of([("m.json", measurement)], predicted)

    predicted = a_profile(flops_per_sample=1e12)
    assert evidence(1.01 * IDEAL_S).notes == ()
    (note,) = evidence(IDEAL_S / 2).notes
    assert note.startswith("m.json: ")
    assert "would be 200% of the dense peak of RTX 3090, which cannot be" in note
    with pytest.raises(InputError, match="m.json cannot be this step: .* would be 500%"):
        evidence(IDEAL_S / 5)
    # several GPUs may share the arithmetic of a sample
    assert evidence(IDEAL_S / 5, ranks=8, world_size=8, busy_s=0.01).notes == ()
    # its own operations are taken as they are
    assert "cannot be" in evidence(IDEAL_S / 5, profile=predicted).notes[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ending": "failed", "status": 3}, "its command failed (status 3)"),
        ({"ending": "killed", "status": -9}, "its command was killed (status -9)"),
        ({"ran_out_of_memory": True}, "its GPU ran out of memory"),
        ({"ran_out_of_memory": True, "step": None}, "its GPU ran out of memory"),
    ],
)
def test_what_went_wrong_while_it_was_measured_is_said(changes, words):
    evidence = evidence_of([("m.json", a_bare_measurement(**changes))], a_light_profile())
    assert evidence.notes[-1].startswith(f"m.json: {words}")
    assert bool(evidence.measured) == ("step" not in changes)
    assert all(step.fits != ("ran_out_of_memory" in changes) for step in evidence.measured)


@pytest.mark.parametrize("ending", ["stopped", "finished", "interrupted"])
def test_an_end_as_it_should_be_needs_no_word(ending):
    evidence = evidence_of([("m.json", a_bare_measurement(ending=ending))], a_light_profile())
    assert evidence.notes == ()


def doubts(measured, profile, **changes):
    step = replace(a_bare_measurement(samples=4, profile=measured), **changes)
    return evidence_of([("m.json", step)], profile).notes


def test_another_amount_of_arithmetic_is_doubted():
    # a quarter more operations, and a tenth more
    ours = a_light_profile()
    more, alike = (
        replace(ours, ops=(*ours.ops, *(replace(op, count=op.count * share) for op in ours.ops)))
        for share in (0.25, 0.1)
    )
    (note,) = doubts(more, ours)
    assert note.startswith(f"m.json: its step does 1.25 times the arithmetic of {ours.name} ")
    assert doubts(alike, ours) == ()
    assert doubts(ours, ours) == ()


def test_another_precision_or_order_is_doubted():
    ours = a_light_profile()
    (kind,) = {op.precision for op in ours.ops if op.flops}
    other = "fp32" if kind != "fp32" else "bf16"
    in_other = replace(ours, ops=tuple(replace(op, precision=other) for op in ours.ops))
    (note,) = doubts(in_other, ours)
    assert f"does 1.00 of its arithmetic in {other}, {ours.name} 0.00: is it the same" in note
    first = replace(ours, ops=tuple(replace(op, kind="conv", layout="plain") for op in ours.ops))
    last = replace(first, ops=tuple(replace(op, layout="channels_last") for op in first.ops))
    (note,) = doubts(last, first)
    assert f"1.00 of its arithmetic channels last, {ours.name} 0.00" in note


def test_compiled_code_is_said_to_be_such():
    (note,) = doubts(None, a_light_profile(), is_compiled=True, optimizers=())
    assert "it ran compiled code" in note
    assert doubts(None, a_light_profile(), is_compiled=False, optimizers=()) == ()
