"""A profile from the operations of one recorded step, against traces at several sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import an_op

from outlay.errors import InputError
from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration
from outlay.predict.kernel_time import device_time
from outlay.predict.roofline import roofline_of
from outlay.trace.from_recording import RecordedStep, profile_of_step, profile_of_steps
from outlay.trace.store import find_profile

TRUE = ("resnet50", "bert-large", "gpt2-medium", "vit-b16", "latent-diffusion-unet", "llama-1b")


def a_recorded_step(batch_size=8, *, ops=None, **changes):
    """x (8, 10) @ weight (10, 5), and an update of the weight."""
    rows = batch_size // changes.get("passes", 1)
    product = an_op(
        "gemm",
        name="aten.mm",
        flops=2.0 * rows * 10 * 5,
        moved_bytes=2.0 * (rows * 10 + 10 * 5 + rows * 5),
        shapes=((rows, 10), (10, 5), (rows, 5)),
        count=changes.get("passes", 1),
    )
    update = an_op("optimizer", phase="optimizer", moved_bytes=400.0, shapes=((50,),))
    defaults = {
        "name": "train.py",
        "batch_size": batch_size,
        "ops": (product, update) if ops is None else ops,
        "parameter_shapes": frozenset({(5, 10)}),
        "parameters": 50,
        "trainable_parameters": 50,
        "issued_ops": 2,
        "parameter_bytes": 200.0,
        "gradient_bytes": 200.0,
        "optimizer_bytes": 400.0,
        "peak_allocated_bytes": 1600.0,
    }
    return RecordedStep(**(defaults | changes))


def test_at_its_own_size_everything_is_as_recorded():
    step = a_recorded_step()
    trace = profile_of_step(step).at(8)
    assert trace.ops == step.ops
    assert trace.memory.peak_bytes == 1600
    assert (trace.parameters, trace.issued_ops) == (50, 2)


def test_at_another_size_what_grows_has_grown():
    product, update = profile_of_step(a_recorded_step()).at(24).ops
    assert product.shapes == ((24, 10), (10, 5), (24, 5))
    assert product.flops == pytest.approx(2 * 24 * 10 * 5)
    # 2 bytes for each of 24 x 10 + 10 x 5 + 24 x 5 elements
    assert product.moved_bytes == pytest.approx(2 * 410)
    assert update.moved_bytes == 400


def test_the_profile_says_that_it_is_scaled():
    assert any(
        "Recorded at batch size 8" in note for note in profile_of_step(a_recorded_step()).notes
    )


def test_a_batch_size_that_the_shapes_do_not_have_is_said():
    # 8 rows, but 7 samples were counted: nothing grows
    profile = profile_of_step(replace(a_recorded_step(), batch_size=7))
    assert any(note.startswith("0% of the step's arithmetic grows") for note in profile.notes)
    assert profile.at(7).ops == a_recorded_step().ops


def test_passes_of_one_step_grow_together():
    # two passes of 4: at a batch of 16, two passes of 8
    product, _ = profile_of_step(a_recorded_step(8, passes=2)).at(16).ops
    assert (product.count, product.shapes[0]) == (2, (8, 10))


def test_passes_of_different_sizes_have_that_of_the_first():
    # 4 + 4 + 3 samples: the product of the first two grows, by its 4 rows
    step = replace(a_recorded_step(8, passes=2), batch_size=11, passes=3, pass_size=4)
    product, _ = profile_of_step(step).at(22).ops
    assert product.shapes[0] == (8, 10)
    # not seen, it is 11 / 3, which is 4 in whole samples
    assert profile_of_step(replace(step, pass_size=None)).at(22).ops[0].shapes[0] == (8, 10)


def test_memory_beside_what_is_fixed_goes_with_the_batch_on_the_careful_side():
    profile = profile_of_step(a_recorded_step())
    # larger: without gradients at the peak, 600 stay and 1000 double
    assert profile.memory_at(16).peak_bytes == 2600
    # smaller: with them, 800 stay and 800 halve
    assert profile.memory_at(4).peak_bytes == 1200


def test_copies_in_16_bits_are_fixed():
    # autocast keeps 5 x 10 elements of 2 bytes: 700 stay, 900 double
    copied = an_op("copy", name="aten._to_copy", shapes=((5, 10), (5, 10)))
    profile = profile_of_step(a_recorded_step(ops=(*a_recorded_step().ops, copied)))
    assert profile.memory_at(16).peak_bytes == 2500


def test_reserved_memory_where_it_was_seen():
    profile = profile_of_step(a_recorded_step(peak_reserved_bytes=2000.0))
    use = profile.allocator_use_at(8)
    assert (use.allocated_bytes, use.reserved_bytes) == (1600, 2000)
    assert profile.allocator_use_at(16).reserved_bytes == 600 + 2 * 1400


def test_memory_that_was_not_measured_is_what_forward_writes():
    profile = profile_of_step(a_recorded_step(peak_allocated_bytes=None))
    # 8 x 5 results of 2 bytes beside 800
    assert profile.memory_at(8).peak_bytes == 800 + 80
    assert profile.allocator_use == {}
    assert any("Memory was not measured" in note for note in profile.notes)


def test_two_sizes_are_fitted():
    profile = profile_of_steps(
        [a_recorded_step(4, peak_allocated_bytes=1200.0), a_recorded_step(8)]
    )
    product, _ = profile.at(16).ops
    assert product.moved_bytes == pytest.approx(2 * (16 * 10 + 50 + 16 * 5))
    assert profile.memory_at(4).peak_bytes == 1200
    assert not any("Recorded at" in note for note in profile.notes)


def test_sizes_that_run_other_operations_are_not():
    other = a_recorded_step(4, ops=(an_op("copy", name="aten.clone", shapes=((4, 5),)),))
    profile = profile_of_steps([other, a_recorded_step(8)])
    assert profile.at(8).ops == a_recorded_step(8).ops
    assert any("run different operations" in note for note in profile.notes)


@pytest.mark.parametrize("changes", [{"ops": ()}, {"batch_size": 0}])
def test_a_record_of_nothing_is_refused(changes):
    with pytest.raises(InputError, match="is no record"):
        profile_of_step(replace(a_recorded_step(), **changes))
    with pytest.raises(InputError):
        profile_of_steps([])


# --- against traces at several sizes ---


def parameters_of(profile):
    """Shapes of the parameters: what forward's convolutions, products, norms and tables keep."""
    result = set()
    for op in profile.ops:
        places = {"conv": slice(1, -1), "norm": slice(1, 3), "gemm": slice(0, -1)}.get(op.kind)
        if op.name.endswith(".embedding"):
            places = slice(0, 1)
        if op.phase == "forward" and places is not None:
            for shape in op.shapes[places]:
                if shape and all(len(size) == 1 for size in shape):
                    result.add(tuple(round(size[0]) for size in shape))
    return frozenset(result)


def recorded(profile, batch_size):
    trace = profile.at(batch_size)
    return RecordedStep(
        name=profile.name,
        batch_size=batch_size,
        ops=trace.ops,
        parameter_shapes=parameters_of(profile),
        parameters=profile.parameters,
        trainable_parameters=profile.trainable_parameters,
        issued_ops=profile.issued_ops,
        parameter_bytes=trace.memory.parameters,
        gradient_bytes=trace.memory.gradients,
        optimizer_bytes=trace.memory.optimizer_state,
        peak_allocated_bytes=trace.memory.peak_bytes,
    )


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("batch_size", [8, 32])
def test_device_time_at_other_sizes_is_that_of_a_trace_there(name, batch_size):
    true = find_profile(name)
    profile = profile_of_step(recorded(true, batch_size))
    machine = roofline_of(gpus()["H200"], calibration())
    for size in (8, 16, 64, 128):
        expected_s = device_time(true.at(size), machine, calibration()).total_s
        found_s = device_time(profile.at(size), machine, calibration()).total_s
        assert found_s == pytest.approx(expected_s, rel=0.02)


def test_style_nat_s_steps_too_though_every_sixteenth_differs():
    true = find_profile("stylenat")
    profile = profile_of_step(recorded(true, 32))
    machine = roofline_of(gpus()["H200"], calibration())
    for size in (8, 16, 64):
        expected_s = device_time(true.at(size), machine, calibration()).total_s
        found_s = device_time(profile.at(size), machine, calibration()).total_s
        assert found_s == pytest.approx(expected_s, rel=0.03)


def test_what_no_optimizer_updates_does_not_grow_with_the_batch():
    # Adapters of 200 MB with as much of gradients and twice that of states, on a base of 14 GB.
    step = a_recorded_step(
        parameter_bytes=2e8,
        gradient_bytes=2e8,
        optimizer_bytes=4e8,
        frozen_bytes=14e9,
        peak_allocated_bytes=16e9,
    )
    memory = profile_of_step(step).memory
    # 16 GB less 14.8 GB that are fixed are 1.2 GB of activations at 8 samples, half at 4; at 16
    # they are twice 1.4 GB: gradients may not have been there at the peak.
    assert memory[8].peak_bytes == pytest.approx(16e9)
    assert memory[4].peak_bytes == pytest.approx(14.8e9 + 0.6e9)
    assert memory[16].peak_bytes == pytest.approx(14.6e9 + 2 * 1.4e9)
    assert {point.inputs for point in memory.values()} == {14e9}
