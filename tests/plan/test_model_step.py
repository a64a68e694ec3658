"""The step of a model by its name: its checkpoints, and the weights it begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_profile, a_workload

from outlay.facts import assumed, assumed_range
from outlay.models.recipe import AS_IT_IS, RecipeSettings
from outlay.plan.model_step import (
    bundled_step,
    profile_of_model,
    trained_state_bytes,
    with_model_defaults,
)
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


@pytest.mark.parametrize(
    ("name", "method", "sample"),
    [
        ("llama-3.1-8b", "qlora", "sequence of 1024 tokens"),
        ("bert-base", "full", "sequence of 512 tokens"),
        ("clip", "embedding", "sequence of 77 tokens"),
        ("convnext-tiny", "classify", "image 224x224"),
        ("whisper-small", "speech", "recording of 30 s"),
        ("wav2vec2-base", "speech", "recording of 15 s"),
        ("sdxl", "diffusion", "image 1024x1024"),
        ("dit-xl-2", "diffusion", "image 256x256"),
        ("stylegan2-256", "gan", "image 256x256"),
    ],
)
def test_models_of_each_kind_are_bundled(name, method, sample):
    step = bundled_step(name, method, AS_IT_IS)
    assert step is not None
    assert profile_of_model(step).sample == sample


def test_what_is_set_is_another_step():
    assert bundled_step("sdxl", None, RecipeSettings(values={"lora_rank": "16"})) is not None
    assert bundled_step("sdxl", None, RecipeSettings(values={"lora_rank": "17"})) is None


def test_a_gan_is_planned_at_the_batch_of_its_paper():
    step = bundled_step("stylegan2-256", "gan", AS_IT_IS)
    published = profile_of_model(step).published
    assert (published.per_gpu, published.global_batch_size) == (4, 32)


def test_of_one_sample_a_part_of_the_batch_is_one_still():
    """StyleGAN2 penalises path lengths on half of its batch."""
    profile = profile_of_model(bundled_step("stylegan2-256", "gan", AS_IT_IS))
    sizes = [size for op in profile.at(1).ops for shape in op.shapes for size in shape]
    assert min(sizes) == 1
