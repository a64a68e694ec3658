"""The batches that bundled steps were published with."""

from __future__ import annotations

from datetime import date

from tests.rows import for_every

from outlay.facts import rows_of
from outlay.trace.profile import PublishedBatch
from outlay.trace.store import bundled_profiles, find_profile, published_batch

ROWS = rows_of("recipe_batches.csv")


METHODS = {"full", "lora", "qlora"}
STEPS = {"stylegan2-256.gan", "dcgan.gan"}
"""A method of one model."""


def test_rows_are_unique_and_of_bundled_profiles_or_methods():
    keys = [(row["profile"], row["parameter"]) for row in ROWS]
    assert len(set(keys)) == len(keys)
    assert {profile for profile, _ in keys} == set(bundled_profiles()) | METHODS | STEPS


@for_every("row", ROWS)
def test_a_row_has_a_unit_a_source_and_a_date(row):
    assert row["parameter"] in ("per_gpu", "global")
    assert row["unit"] == "samples"
    assert row["value"] == "" or 1 <= int(row["value"]) <= 10_000
    assert row["source"].startswith("https://")
    assert date.fromisoformat(row["as_of"]) <= date(2026, 11, 20)
    assert row["note"]
    assert row["published_by"]


@for_every("profile", bundled_profiles())
def test_every_bundled_step_has_a_batch_that_was_published(profile):
    published = find_profile(profile).published
    assert published is not None
    assert published.per_gpu_on(1) >= 1
    if published.per_gpu and published.global_batch_size:
        assert published.global_batch_size % published.per_gpu == 0


def test_the_published_batches_are_those_of_the_papers():
    # the configuration's training.batch; a mini-batch size of 256 (section 3.4), 8 x 32
    assert find_profile("stylenat").published.per_gpu == 8
    assert find_profile("stylenat").published.global_batch_size is None
    resnet = find_profile("resnet50").published
    assert (resnet.global_batch_size, resnet.per_gpu) == (256, 32)
    # 32 x 8 GPUs x 2 passes x 4
    assert find_profile("latent-diffusion-unet").published.global_batch_size == 32 * 8 * 2 * 4
    # 2 million tokens
    assert find_profile("llama-1b").published.global_batch_size * 2048 == 2 * 2**20


def test_methods_are_compared_at_one_batch():
    # Stanford Alpaca's: 128 for 7B and 13B
    assert {published_batch(method).global_batch_size for method in METHODS} == {128}


def test_a_batch_that_was_spread_over_gpus_is_shared_by_those_at_hand():
    published = PublishedBatch(per_gpu=32, global_batch_size=256, where="a paper")
    assert [published.per_gpu_on(gpus) for gpus in (1, 2, 3, 8, 16)] == [256, 128, 85, 32, 32]
    alone = PublishedBatch(per_gpu=8, where="a configuration")
    assert [alone.per_gpu_on(gpus) for gpus in (1, 8)] == [8, 8]
    together = PublishedBatch(global_batch_size=4, where="a paper")
    assert [together.per_gpu_on(gpus) for gpus in (1, 4, 16)] == [4, 1, 1]
