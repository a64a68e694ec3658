"""The size of the step that was recorded is its own, not the mean of all."""

from __future__ import annotations

import pytest
from tests.measured import a_measurement
from tests.probe.made import a_log, table

from outlay.measurement.measurement import MeasuredOptimizer
from outlay.probe.agent.protocol import ModuleInputs, RecordedOperations
from outlay.probe.recorded_step import recorded_step
from outlay.probe.steps import StepSizeOverride

SGD = MeasuredOptimizer(name="SGD", parameters=10, per_step=1.0)


def recorded(inputs, *steps, override=None, optimizers=1):
    """The size of these steps, from the ninth on, in a run of 62 samples in 3.875 passes."""
    recording = {
        "ops": [],
        "unknown_ops": {},
        "parameter_shapes": [],
        "parameters": 10,
        "trainable_parameters": 10,
    }
    operations = RecordedOperations(
        recording=recording,
        optimizer_steps=len(steps),
        first_step=9,
        last_step=8 + len(steps),
        inputs=None if inputs is None else inputs._asdict(),
    )
    usual = {} if steps == ({},) else {"batches": 4, "passes": 4, "samples": 64}
    marks = dict(enumerate(steps, 8))
    log = a_log(operations, table=table([0] * 20, marks=marks, **usual))
    measurement = a_measurement(
        samples_per_step=62.0, passes_per_step=3.875, optimizers=(SGD,) * optimizers
    )
    step = recorded_step(measurement, log, override or StepSizeOverride())
    return step.batch_size, step.passes, step.pass_size


def inputs(*rows):
    return ModuleInputs(samples=rows[0], inputs=len(rows), rows=sum(rows))


@pytest.mark.parametrize(
    ("given", "batches", "samples", "size"),
    [
        (inputs(16, 16, 16, 16), 4, 64, (64, 4, 16)),
        (inputs(16, 16, 16, 16), 5, 80, (64, 4, 16)),  # one of them loaded ahead
        (inputs(64, 64, 64, 58), 1, 250, (250, 4, 64)),  # a batch that is cut up
        (inputs(3, 3, 3, 3), 4, 64, (64, 4, None)),  # rows that are no samples: colours of images
        (None, 4, 64, (64, 4, None)),  # compiled, where modules are not asked
        (inputs(16, 16, 16, 16), 0, 0, (64, 4, 16)),  # loaded before: 16 are 62 / 3.875
        (inputs(3, 3, 3, 3), 0, 0, (62, 4, None)),
    ],
)
def test_a_step_with_loaders(given, batches, samples, size):
    assert recorded(given, {"batches": batches, "samples": samples, "passes": 4}) == size


def test_several_steps_in_one_record_are_averaged():
    steps = [{"batches": count, "passes": count, "samples": 16 * count} for count in (4, 2)]
    # 64 and 32 samples in 4 and 2 passes
    assert recorded(inputs(16, 16, 16, 16), *steps) == (48, 3, None)


def test_a_step_without_loaders_has_what_its_modules_got():
    assert recorded(inputs(20, 12), {}) == (32, 2, 20)


def test_what_the_user_says_comes_first():
    step = {"batches": 4, "passes": 4, "samples": 64}
    given = StepSizeOverride(batch_size=16)
    assert recorded(inputs(16, 16, 16, 16), step, override=given) == (62, 4, None)


def test_a_gans_batches_are_what_its_loaders_gave():
    steps = [
        {"batches": 1, "passes": 2, "samples": 8},
        {"batches": 0, "passes": 1, "samples": 0},
    ]
    # two optimizers: the two records are one training step
    assert recorded(inputs(8, 8), *steps, optimizers=2) == (8, 1, None)
