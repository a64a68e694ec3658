"""A step as torch.compile runs it: what stays, what is spared, what the host has left to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_gpu, a_profile
from tests.rows import for_every

from outlay.hardware.gpu_names import find_gpu
from outlay.plan.from_measurement import compile_mode, profile_for
from outlay.plan.placement import calibration
from outlay.predict.host_time import host_time_s
from outlay.predict.kernel_time import device_time, kernels_of
from outlay.predict.kernels import Pass, compiled_profile
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import Placement, predict_step
from outlay.trace.profile import Compilable, CompiledOp, CompileMode, Fused, Profile, ProfileOp
from outlay.trace.store import bundled_profiles, find_profile, profile_from_json, profile_to_json
from outlay.workload.workload import Step

GPUS = ("H200", "A100-40GB SXM", "V100 16GB", "RTX 4090", "T4", "GTX 1080 Ti")
MODES: tuple[CompileMode, ...] = ("default", "reduce-overhead", "max-autotune")


def a_pass(name: str = "aten.gelu", fused: Fused | None = None, **changes: object) -> ProfileOp:
    """An element-wise operator on 2**20 elements of 2 bytes a sample, read and written."""
    shape = ((0.0, 2.0**20),)
    op = ProfileOp(
        name=name,
        kind="elementwise",
        phase="forward",
        precision="fp16",
        count=1,
        flops=(0.0,),
        moved_bytes=(0.0, 2.0**22),
        shapes=(shape, shape),
        fused=fused,
    )
    return replace(op, **changes)  # type: ignore[arg-type]


def a_chain() -> Profile:
    """GELU and dropout as one kernel, beside a product and an update."""
    head = a_pass(fused=Fused(moved_bytes=(0.0, 2.0**21), launches=1))
    rest = a_pass("aten.mul", fused=Fused(moved_bytes=(0.0, 2.0**21), launches=0))
    product = replace(a_profile().ops[0], fused=Fused())
    update = a_pass("aten._foreach_add_", kind="optimizer", phase="optimizer")
    profile = replace(a_profile(), ops=(head, rest, product, update))
    return replace(profile, compilable=Compilable())


def compiled(profile: Profile, mode: CompileMode = "default") -> Profile:
    return compiled_profile(profile, mode, calibration())


def device_s(profile: Profile, gpu: str, batch_size: int = 32) -> float:
    roofline = roofline_of(find_gpu(gpu).gpu, calibration())
    return device_time(trace_at(profile, batch_size), roofline, calibration()).total_s


def host_s(profile: Profile) -> float:
    return host_time_s(trace_at(profile, 8), calibration())


@for_every("name", bundled_profiles())
def test_compiled_code_is_never_slower_on_the_device(name: str) -> None:
    profile = find_profile(name)
    for gpu in GPUS:
        for batch_size in (1, 8, 64):
            assert device_s(compiled(profile), gpu, batch_size) <= device_s(
                profile, gpu, batch_size
            )


@for_every("name", bundled_profiles())
def test_arithmetic_and_memory_stay(name: str) -> None:
    profile = find_profile(name)
    fused = compiled(profile)
    assert trace_at(fused, 8).flops == pytest.approx(trace_at(profile, 8).flops, rel=1e-12)
    assert (fused.memory, fused.history) == (profile.memory, profile.history)


def test_products_and_the_optimizer_are_the_same() -> None:
    profile = a_chain()
    before, after = trace_at(profile, 4), trace_at(compiled(profile), 4)
    (product,) = [op for op in after.ops if op.kind == "gemm"]
    assert kernels_of(product, tensor_cores=True) == kernels_of(before.ops[2], tensor_cores=True)
    assert after.ops[-1] == before.ops[-1]


def test_what_fusing_reaches_of_what_it_could_spare() -> None:
    profile = a_chain()
    reached = calibration().number("compiled_saving")
    after = trace_at(compiled(profile), 1)
    passes = [op for op in after.ops if op.kind == "elementwise"]
    # Of two operators that move 2**22 bytes each alone, and half of that fused.
    fused = [op for op in passes if isinstance(op, CompiledOp) and op.is_fused]
    alone = [op for op in passes if op not in fused]
    assert sum(op.count * op.moved_bytes for op in fused) == pytest.approx(reached * 2**22)
    assert sum(op.count * op.moved_bytes for op in alone) == pytest.approx((1 - reached) * 2**23)
    assert sum(op.count * op.launches for op in fused) == pytest.approx(reached)


def test_a_kernel_that_was_generated_goes_over_data_like_the_librarys_fastest() -> None:
    after = trace_at(compiled(a_chain()), 1)
    fused = next(op for op in after.ops if isinstance(op, CompiledOp) and op.is_fused)
    (kernel,) = kernels_of(fused, tensor_cores=True)
    assert isinstance(kernel, Pass)
    assert (kernel.family, kernel.moved_bytes, kernel.launches) == ("alike", 2.0**21, 1)
    assert kernel.elements == 2**19  # as many bytes as that many elements read and written


def test_the_host_launches_kernels_and_checks_guards() -> None:
    profile = a_chain()
    number = calibration().number
    kernels = number("compiled_saving") + 2 * (1 - number("compiled_saving")) + 1  # and the product
    expected_s = kernels * number("host_compiled_kernel_s") + number("host_compiled_call_s")
    assert host_s(compiled(profile)) == pytest.approx(expected_s + number("host_update_s"))
    twice = replace(profile, compilable=Compilable(calls=2))
    more_s = host_s(compiled(twice)) - host_s(compiled(profile))
    assert more_s == pytest.approx(number("host_compiled_call_s"))


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_graphs_start_their_kernels_themselves(mode: CompileMode) -> None:
    number = calibration().number
    left_s = number("host_compiled_call_s") + number("host_update_s")
    assert host_s(compiled(a_chain(), mode)) == pytest.approx(left_s)
    assert device_s(compiled(a_chain(), mode), "H200") == device_s(compiled(a_chain()), "H200")


def test_it_says_so_and_its_range_is_wider() -> None:
    placement = Placement(gpu=find_gpu("H200").gpu)
    profile = find_profile("bert-large")
    eager = predict_step(profile, placement, 64, calibration())
    step = predict_step(compiled(profile), placement, 64, calibration())
    assert (eager.compiled, step.compiled) == (None, "default")
    assert step.step_time_s.high / step.step_time_s.low > (
        eager.step_time_s.high / eager.step_time_s.low
    )
    assert step.memory == eager.memory
    assert any("Predicted as compiled by torch.compile" in note for note in compiled(profile).notes)


def test_without_a_trace_of_what_shares_data_averages_are_taken() -> None:
    profile = find_profile("bert-large")
    blind = replace(
        profile, compilable=None, ops=tuple(replace(op, fused=None) for op in profile.ops)
    )
    assert any("an average over other steps" in note for note in compiled(blind).notes)
    eager_s, known_s = device_s(profile, "H200"), device_s(compiled(profile), "H200")
    assert device_s(compiled(blind), "H200") == pytest.approx(known_s, rel=0.1)
    assert device_s(compiled(blind), "H200") < eager_s


def test_images_are_put_in_channels_last_where_inductor_does() -> None:
    convs = [
        op
        for op in trace_at(compiled(find_profile("resnet50")), 8).ops
        if isinstance(op, CompiledOp) and op.kind == "conv"
    ]
    assert all(op.is_turned for op in convs)
    unet = trace_at(compiled(find_profile("latent-diffusion-unet")), 8)  # has 3x3 that narrow
    assert not any(isinstance(op, CompiledOp) and op.is_turned for op in unet.ops)


def test_a_profile_on_disk_has_what_compiling_leaves_and_older_readers_skip_it() -> None:
    profile = a_chain()
    content = profile_to_json(profile)
    assert profile_from_json(content | {"ops": [dict(op) for op in content["ops"]]}) == profile
    assert content["compile"] == {
        "mode": None,
        "calls": 1,
        "fused": [[[0, 2**21], 1], [[0, 2**21], 0], [], None],
    }
    older = profile_to_json(profile)
    del older["compile"]
    assert profile_from_json(older).compilable is None
    assert "compile" not in profile_to_json(a_profile())


def test_the_mode_is_what_is_asked_for_then_what_the_code_says() -> None:
    profile = a_profile()
    own = replace(profile, compilable=Compilable(mode="reduce-overhead"))
    assert compile_mode(Step(profile="x"), profile) is None
    assert compile_mode(Step(profile="x"), own) == "reduce-overhead"
    assert compile_mode(Step(profile="x", compiled="default"), own) == "default"
    assert compile_mode(Step(profile="x", compiled="eager"), own) is None


def test_every_command_gets_the_compiled_step() -> None:
    profile = profile_for(Step(profile="resnet50", compiled="max-autotune"))
    assert profile.compiled == "max-autotune"
    assert profile.eager is find_profile("resnet50")
    assert compiled(profile) is profile  # compiled once


def test_a_made_up_gpu_has_it_too() -> None:
    step = predict_step(compiled(a_chain()), Placement(gpu=a_gpu()), 4, calibration())
    assert step.device_time_s > 0
