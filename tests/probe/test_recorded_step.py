"""The size of the step that was recorded is its own, not the mean of all."""

from __future__ import annotations

import pytest
from tests.measured import a_measurement
from tests.probe.made import table

from outlay.measurement.measurement import MeasuredOptimizer
from outlay.probe.messages import ProcessLog
from outlay.probe.recorded_step import StepSizeOverride, recorded_step

SGD = MeasuredOptimizer(name="SGD", parameters=10, per_step=1.0)


def recorded(looked, *steps, given=None, optimizers=1):
    """The size of these steps, told from the ninth on, in a run of 62 samples in 3.875 passes."""
    operations = {
        "ops": [],
        "unknown_ops": {},
        "parameter_shapes": [],
        "parameters": 10,
        "trainable_parameters": 10,
        "optimizer_steps": len(steps),
        "numbers": [9, 8 + len(steps)],
        "look": looked,
    }
    usual = {} if steps == ({},) else {"batches": 4, "passes": 4, "samples": 64}
    marks = dict(enumerate(steps, 8))
    told = ProcessLog(table=table([0] * 20, marks=marks, **usual), facts={"operations": operations})
    seen = a_measurement(
        samples_per_step=62.0, passes_per_step=3.875, optimizers=(SGD,) * optimizers
    )
    found = recorded_step(seen, told, given or StepSizeOverride())
    return found.batch_size, found.passes, found.pass_size


def look(*rows):
    return {"samples": rows[0], "inputs": len(rows), "rows": sum(rows)}


@pytest.mark.parametrize(
    ("looked", "batches", "samples", "size"),
    [
        (look(16, 16, 16, 16), 4, 64, (64, 4, 16)),
        (look(16, 16, 16, 16), 5, 80, (64, 4, 16)),  # one of them loaded ahead
        (look(64, 64, 64, 58), 1, 250, (250, 4, 64)),  # a batch that is cut up
        (look(3, 3, 3, 3), 4, 64, (64, 4, None)),  # rows that are no samples: colours of images
        (None, 4, 64, (64, 4, None)),  # compiled, where modules are not asked
        (look(16, 16, 16, 16), 0, None, (64, 4, 16)),  # loaded before: 16 are 62 / 3.875
        (look(3, 3, 3, 3), 0, None, (62, 4, None)),
    ],
)
def test_a_step_with_loaders(looked, batches, samples, size):
    assert recorded(looked, {"batches": batches, "samples": samples, "passes": 4}) == size


def test_several_steps_in_one_record_are_averaged():
    steps = [{"batches": count, "passes": count, "samples": 16 * count} for count in (4, 2)]
    # 64 and 32 samples in 4 and 2 passes
    assert recorded(look(16, 16, 16, 16), *steps) == (48, 3, None)


def test_a_step_without_loaders_has_what_its_modules_got():
    assert recorded(look(20, 12), {}) == (32, 2, 20)


def test_what_the_user_says_comes_first():
    step = {"batches": 4, "passes": 4, "samples": 64}
    assert recorded(look(16, 16, 16, 16), step, given=StepSizeOverride(batch_size=16)) == (
        62,
        4,
        None,
    )


def test_a_gans_batches_are_what_its_loaders_gave():
    steps = [
        {"batches": 1, "passes": 2, "samples": 8},
        {"batches": 0, "passes": 1, "samples": None},
    ]
    # two optimizers: the two records are one training step
    assert recorded(look(8, 8), *steps, optimizers=2) == (8, 1, None)
