"""Scripts in the style of public repositories under `outlay probe`, to their end on a CPU.

What they are called with and what is true of them is in `tests.gpu.public_scripts`; here the ones
whose steps, samples or epochs are easiest to get wrong. Their times are checked on a GPU.
"""

from __future__ import annotations

import pytest
from tests.gpu.public_scripts import SCRIPTS
from tests.probe.probed import PYTHON, probe

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["stargan2", "ddpm", "nanogpt"])
def test_steps_samples_and_epochs_of_a_public_style_script(name, tmp_path):
    script = SCRIPTS[name]
    truth = script.tiny
    options = ("--to-end", "--no-operations")
    probed = probe(tmp_path, *options, "--", PYTHON, *script.command(truth))
    measurement = probed.measurement
    assert (probed.code, measurement.ending) == (0, "finished"), probed.err[-3000:]
    per_step = sorted((optimizer.per_step for optimizer in measurement.optimizers), reverse=True)
    assert per_step == pytest.approx(sorted(script.per_step, reverse=True), abs=0.05)
    # A training step of several optimizers may be known to be over only when the next begins.
    assert truth.steps - measurement.steps_seen in (0, 1)
    assert measurement.samples_per_step == truth.samples
    assert measurement.steps_per_epoch == truth.steps_per_epoch
