"""What bounds the speed of a workstation: its cards, its CPU, its SSD."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.workstation.made import a_build, a_card, a_cpu, a_memory, a_use, an_ssd

from outlay.hardware.gpu_names import find_gpu
from outlay.trace.store import find_profile
from outlay.workload.workload import Dataset, Step
from outlay.workstation.speed import (
    Training,
    input_note,
    input_samples_per_s,
    power_speed,
    speed_of,
)

IMAGES = find_profile("resnet50")
TOKENS = find_profile("bert-large")


def training(profile=IMAGES, **data):
    return Training(profile=profile, step=Step(), data=Dataset(**data))


def real(name="RTX 3090", count=1, **changes):
    card = replace(a_card(), gpu=find_gpu(name).gpu)
    return a_build(count, card=card, **changes)


def test_threads_bound_what_is_decoded_while_training():
    # 16 threads x 140 images a second
    assert input_samples_per_s(a_build(), training()) == 2240
    before = a_build(use=a_use(while_training=False))
    assert input_samples_per_s(before, training()) is None
    assert input_samples_per_s(a_build(), training(TOKENS)) is None
    assert input_samples_per_s(a_build(cpu=a_cpu(threads=None)), training()) is None


def test_an_ssd_bounds_what_does_not_stay_in_ram():
    use = a_use(while_training=False)
    large = training(samples=1_000_000, size_bytes=100e9)
    ssd = an_ssd(read_bandwidth=500)
    # 500 MB/s / 100 kB
    assert input_samples_per_s(a_build(ssds=(ssd,), use=use), large) == 5000
    roomy = a_build(ssds=(ssd,), memory=a_memory(size=128), use=use)
    assert input_samples_per_s(roomy, large) is None
    # 100 GB of data do not lie on 50 GB
    small = replace(ssd, facts={**ssd.facts, "size": an_ssd(size=50).facts["size"]})
    assert input_samples_per_s(a_build(ssds=(small,), use=use), large) is None


def test_a_faster_card_is_faster_and_two_are_faster_still():
    speed = speed_of(training(TOKENS))
    one, better, two = (
        speed(real(*machine)).samples_per_s.likely
        for machine in (("RTX 3070",), ("RTX 3090",), ("RTX 3090", 2))
    )
    assert one < better < two <= 2 * better


def test_a_power_limit_costs_what_the_power_model_says():
    speed = speed_of(training(TOKENS))
    full = speed(real()).samples_per_s.likely
    held = speed_of(training(TOKENS))(real(power_limit_w=280)).samples_per_s.likely
    assert held / full == pytest.approx(power_speed()(280 / 350), rel=0.01)


def test_unlike_cards_wait_for_the_slower():
    speed = speed_of(training(TOKENS))
    slow, fast = real("RTX 3070").cards[0], real("RTX 3090").cards[0]
    unlike = speed(replace(real(), cards=(slow, fast))).samples_per_s.likely
    assert unlike <= speed(real("RTX 3070", 2)).samples_per_s.likely * 1.001


def test_without_training_or_where_it_does_not_fit_there_is_no_speed():
    assert speed_of(None)(real()) is None
    large = replace(training(TOKENS), step=Step(batch_size=10_000))
    assert speed_of(large)(real()) is None


def test_the_assumption_on_input_is_told():
    (note,) = input_note(a_build(), training())
    assert "16 threads prepare 140 images a second each" in note
    assert input_note(a_build(), None) == []
    assert input_note(a_build(), training(TOKENS)) == []
