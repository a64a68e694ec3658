from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.builders import a_calibration, a_gpu, a_profile, a_transformer

from outlay.errors import TraceFailed
from outlay.fit.search import combinations, fit_step, moments_of, singles
from outlay.fit.variants import FitRequest, cheapest_offer, variant_of
from outlay.hardware.gpu_names import find_gpu
from outlay.trace.target import UNCHANGED, Changes, changes_from_json, changes_to_json

BF16 = {"fp32": 10e12, "fp16": 100e12, "bf16": 100e12}


def wish(memory_gib=10, batch_size=None, **gpu):
    return FitRequest(gpu=a_gpu(memory_gib=memory_gib, peaks=BF16, **gpu), batch_size=batch_size)


def in_fp32(profile):
    return replace(profile, ops=tuple(replace(op, precision="fp32") for op in profile.ops))


def lighter(profile, factor):
    """The step with a share of its activations."""
    memory = {
        size: replace(one, activations=one.activations * factor)
        for size, one in profile.memory.items()
    }
    return replace(profile, memory=memory)


def tracer(profile):
    """Recomputing keeps a tenth; 16 bits halve; LoRA cannot be traced."""

    def trace(changes: Changes):
        if changes.lora_rank:
            raise TraceFailed("No linear layers.", why="There are none.", fix="")
        factor = 0.1 if changes.recompute else 1.0
        return lighter(profile, factor * (0.5 if changes.arithmetic else 1.0))

    return trace


# Changes


def test_changes_about_different_parts_go_together():
    both = Changes(arithmetic="bf16").joined(Changes(recompute="blocks"))
    assert both == Changes(arithmetic="bf16", recompute="blocks")
    assert Changes(arithmetic="bf16").joined(Changes(arithmetic="bf16 autocast")) is None
    assert UNCHANGED.joined(UNCHANGED) == UNCHANGED
    assert UNCHANGED.is_none


def test_changes_travel_as_json():
    changes = Changes(arithmetic="bf16", recompute="selective", update="8-bit", lora_rank=8)
    assert changes_from_json(changes_to_json(changes)) == changes
    assert changes_from_json(None) == UNCHANGED


# Which are worth a try


def test_a_step_in_16_bits_is_not_put_under_autocast():
    wanted, left_out = singles(a_transformer(), a_gpu(peaks=BF16))
    assert "bf16 autocast" not in wanted
    assert "already" in left_out["bf16 autocast"]


def test_a_gpu_without_bf16_gets_fp16():
    wanted, left_out = singles(in_fp32(a_transformer()), a_gpu())
    assert "fp16 autocast" in wanted
    assert "has no bf16 units" in left_out["bf16 autocast"]
    assert "has no bf16 units" in left_out["pure bf16"]


def test_bf16_on_a_gpu_that_lacks_it_is_named():
    ops = tuple(replace(op, precision="bf16") for op in a_transformer().ops)
    _, left_out = singles(replace(a_transformer(), ops=ops), a_gpu())
    assert "ask for torch.float16" in left_out["fp16 autocast"]


def test_an_optimizer_without_state_cannot_be_made_smaller():
    _, left_out = singles(a_profile(), a_gpu(peaks=BF16))
    assert left_out["8-bit optimizer"] == "the optimizer keeps no state"


def test_combinations_change_each_part_once():
    singles_made, _ = singles(in_fp32(a_transformer()), a_gpu(peaks=BF16))
    together = list(combinations(list(singles_made.values())))
    assert Changes(arithmetic="bf16 autocast", recompute="blocks") in together
    assert len(together) == len(set(together))
    assert all(not one.is_none for one in together)


# Ways


def test_smaller_passes_keep_gradients():
    # 2.4 GB of parameters and state, 0.1 GB a sample, 0.8 GB of gradients kept: 16 samples in
    # passes of 4 take 2.4 + 0.4 + 0.8
    way = variant_of(a_transformer(), Changes(accumulate=4), wish(batch_size=16), a_calibration())
    assert way.step.memory.allocated_bytes.likely == pytest.approx(3.6e9)
    assert (way.step.batch_size, way.step.micro_batches) == (4, 4)
    assert way.step.global_batch_size == 16
    assert way.kinds == ("smaller passes",)


def test_an_update_on_the_host_sends_gradients_and_parameters():
    alone = variant_of(a_transformer(), UNCHANGED, wish(batch_size=4), a_calibration())
    way = variant_of(
        a_transformer(), Changes(update="offloaded"), wish(batch_size=4), a_calibration()
    )
    # 0.8 GB each way / (31.52 GB/s x 0.5) = 102 ms, and 200e6 parameters x 3 ns = 0.6 s
    extra = way.step.step_time_s.likely - alone.step.step_time_s.likely
    assert extra == pytest.approx(1.6e9 / 15.76e9 + 0.6)


def test_selective_recomputing_takes_the_host_longer():
    plain = variant_of(a_transformer(), Changes(recompute="blocks"), wish(), a_calibration())
    way = variant_of(a_transformer(), Changes(recompute="selective"), wish(), a_calibration())
    assert way.step.host_time_s == pytest.approx(2 * plain.step.host_time_s)


def test_moments_are_what_the_optimizer_keeps():
    assert moments_of(a_transformer()) == pytest.approx(2)  # Adam


def test_a_step_that_does_not_fit_is_made_to():
    profile = in_fp32(a_transformer())
    # 64 samples take 8.8 GB, of 4 GiB
    found = fit_step(profile, wish(4, 64), a_calibration(), tracer(profile))
    assert not found.unchanged.step.fits
    fitting = [way for way in found.variants if way.step.fits]
    names = [way.name for way in fitting]
    assert "recompute blocks" in names  # 2.4 + 0.64 GB
    assert "pure bf16" not in names  # 2.4 + 3.2 GB
    costs = [way.usd_per_million_samples for way in fitting]
    # cheapest first; what costs the same within 3 % by how much it changes
    assert all(one <= 1.04 * other for one, other in pairwise(costs))
    assert all(way.step.global_batch_size == 64 for way in fitting)
    assert "There are none." in found.left_out["LoRA (rank 16)"]


def test_changes_one_at_a_time():
    profile = in_fp32(a_transformer())
    found = fit_step(profile, wish(10, 32), a_calibration(), tracer(profile), together=False)
    assert found.variants
    assert all(len(way.kinds) == 1 for way in found.variants)


def test_what_a_way_saves_is_against_the_same_batch():
    profile = in_fp32(a_transformer())
    found = fit_step(profile, wish(10, 32), a_calibration(), tracer(profile))
    way = next(way for way in found.variants if way.name == "recompute blocks")
    # 3.2 GB of activations become 0.32, reserved 1.1 times what is allocated
    assert way.saved_bytes == pytest.approx(1.1 * 2.88e9)
    assert way.time_ratio == pytest.approx(1.0)


def test_without_code_only_what_needs_no_trace():
    profile = in_fp32(a_transformer())
    found = fit_step(profile, wish(4, 64), a_calibration(), None)
    assert {kind for way in found.variants for kind in way.kinds} <= {
        "smaller passes",
        "DDP",
        "ZeRO-2",
        "FSDP",
        "tensor parallel",
        "pipeline parallel",
    }
    assert "needs the code" in found.left_out["recompute blocks"]


def test_a_change_that_changes_nothing_is_left_out():
    profile = in_fp32(a_transformer())
    found = fit_step(profile, wish(10, 32), a_calibration(), lambda _: profile)
    assert found.left_out["recompute blocks"] == "changes nothing here"
    assert not [way for way in found.variants if way.kinds]


def test_more_gpus_where_one_is_too_small():
    found = fit_step(a_transformer(), wish(4, 64), a_calibration(), None)
    spread = [way for way in found.variants if way.step.placement.gpus > 1]
    assert spread
    assert all(way.step.global_batch_size == 64 for way in spread)
    fits = fit_step(a_transformer(), wish(20, 64), a_calibration(), None)
    assert not any(way.step.placement.gpus > 1 for way in fits.variants)


# Money


def test_the_cheapest_offer_is_one_that_is_sold():
    offer = cheapest_offer(find_gpu("RTX 4090").gpu, 1)
    assert offer is not None
    assert offer.price_usd_per_hour
    assert not offer.cautions("on-demand")


def test_a_gpu_nobody_rents_out_costs_electricity():
    # 300 W and the host, at the assumed price of a kilowatt-hour
    from outlay.facts import assumed

    way = variant_of(a_transformer(), UNCHANGED, wish(batch_size=4), a_calibration())
    assert way.offer is None
    watts = 300 + assumed("desktop_host_power_w")
    assert way.usd_per_hour == pytest.approx(watts / 1000 * assumed("electricity_usd_per_kwh"))


def test_the_cheapest_gpu_that_takes_it_unchanged():
    found = fit_step(a_transformer(), wish(1, 64), a_calibration(), None)
    assert found.bigger is not None
    assert found.bigger.step.fits
    assert found.bigger.changes == UNCHANGED
