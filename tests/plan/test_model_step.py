"""The step of a model by its name: its checkpoints, and the weights it begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_profile, a_workload

from outlay.facts import assumed, assumed_range
from outlay.plan.model_step import trained_state_bytes, with_model_defaults
from outlay.trace.profile import Memory, Structure
from outlay.workload.workload import Checkpoint, Dataset, Step

ADAPTED = replace(
    a_profile(),
    parameters=1_000_000_000,
    trainable_parameters=10_000_000,
    structure=Structure(blocks=(), gradient_bytes=20e6, ready=()),
    memory={
        4: Memory(
            parameters=2e9,
            gradients=20e6,
            optimizer_state=40e6,
            inputs=0,
            activations=1e9,
            temporaries=0,
        )
    },
)
STEP = Step(model="llama-3.2-1b", method="lora")


def test_a_checkpoint_of_an_adapter_is_the_adapter_and_its_optimizer():
    # 10 M parameters in bf16: 20 MB; AdamW keeps two of them each: 40 MB
    assert trained_state_bytes(ADAPTED) == 60e6
    workload, notes = with_model_defaults(a_workload(step=STEP), ADAPTED)
    assert workload.checkpoint.size_bytes == 60e6
    assert "60 MB" in notes[0]
    assert "10,000,000 of 1,000,000,000 parameters" in notes[0]


def test_the_published_weights_are_fetched_in_each_session():
    workload, notes = with_model_defaults(a_workload(step=STEP), ADAPTED)
    # a billion parameters of two bytes at 100 MB/s (25 to 400): 20 s (5 to 80)
    rate = assumed_range("data_download_bytes_per_s")
    size = 1e9 * assumed("weight_bytes_per_parameter")
    found = workload.data.preparation_s
    assert (found.low, found.likely, found.high) == (
        size / rate.high,
        size / rate.likely,
        size / rate.low,
    )
    assert found.likely == 20
    assert "fetches 2 GB of published weights" in notes[1]
    assert "20 s (5 to 80)" in notes[1]


def test_pretraining_fetches_nothing():
    step = replace(STEP, method="pretrain")
    workload, notes = with_model_defaults(a_workload(step=step), ADAPTED)
    assert workload.data.preparation_s == 0
    assert len(notes) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"checkpoint": Checkpoint(size_bytes=5), "data": Dataset(preparation_s=7.0)},
        {"step": Step(profile="resnet50")},
    ],
)
def test_what_the_file_says_stays(said):
    workload = a_workload(**{"step": STEP} | said)
    assert with_model_defaults(workload, ADAPTED) == (workload, ())
