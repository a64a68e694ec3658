"""Predictions of compiled steps against what torch.compile was measured to save.

`published_compile.csv` has speeds of PyTorch's own benchmarks on an A100 (PyTorch 2.0) and one step
of ours on an H200. `compiled_saving` was chosen on the three published steps; the H200's was not
looked at for it.
"""

from __future__ import annotations

import statistics

import pytest
from tests.tables import REFERENCE, rows_in

from outlay.hardware.gpu_names import find_gpu
from outlay.plan.placement import calibration
from outlay.predict.kernels import compiled_profile
from outlay.predict.step import Placement, StepPrediction, predict_step
from outlay.trace.profile import Profile
from outlay.trace.store import find_profile, read_profile

ROWS = rows_in(REFERENCE / "published_compile.csv")
STEPS = [row for row in ROWS if row["batch_size"]]
PUBLISHED = [row for row in STEPS if row["gpu"] != "H200"]


def eager_and_compiled(
    profile: Profile, gpu: str, batch_size: int, mode: str = "default"
) -> tuple[StepPrediction, StepPrediction]:
    placement = Placement(gpu=find_gpu(gpu).gpu)
    compiled = compiled_profile(profile, mode, calibration())  # type: ignore[arg-type]
    eager = predict_step(profile, placement, batch_size, calibration())
    return eager, predict_step(compiled, placement, batch_size, calibration())


def predicted(row: dict[str, str]) -> tuple[StepPrediction, StepPrediction]:
    profile = read_profile(REFERENCE / "compile" / f"{row['step']}.json.gz")
    return eager_and_compiled(profile, row["gpu"], int(row["batch_size"]), row["mode"])


def published_speedup(row: dict[str, str]) -> float:
    if row["speedup"]:
        return float(row["speedup"])
    return float(row["eager_s"]) / float(row["compiled_s"])


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['step']} {row['mode']}")
def test_what_compiling_saves_is_what_was_published(row: dict[str, str]) -> None:
    eager, compiled = predicted(row)
    # Times of the device: an A100's host of 2023 issued these in time, as equal speeds with and
    # without CUDA graphs say; transformers has changed since, so that 15 % are allowed.
    speedup = eager.device_time_s / compiled.device_time_s
    assert speedup == pytest.approx(published_speedup(row), rel=0.15)


def test_on_average_it_is_within_10_percent() -> None:
    errors = []
    for row in PUBLISHED:
        eager, compiled = predicted(row)
        speedup = eager.device_time_s / compiled.device_time_s
        errors.append(abs(speedup / published_speedup(row) - 1))
    assert statistics.mean(errors) < 0.10


def test_a_step_of_an_h200_that_nothing_was_chosen_on() -> None:
    (row,) = [row for row in STEPS if row["gpu"] == "H200"]
    measured_s = float(row["compiled_s"])
    eager, compiled = predicted(row)
    assert compiled.step_time_s.likely == pytest.approx(measured_s, rel=0.12)
    assert compiled.step_time_s.low < measured_s < compiled.step_time_s.high
    assert eager.step_time_s.likely > 1.4 * measured_s  # as it was predicted before


def test_resnet50_gains_about_what_models_of_images_gained() -> None:
    (timm,) = [row for row in ROWS if "timm" in row["step"]]
    eager, compiled = eager_and_compiled(find_profile("resnet50"), timm["gpu"], 32)
    # One model against a mean over 61, in bf16, whose batch norm is torch's own and slow, and in
    # images' usual order, which compiling changes: more than the mean, by less than half.
    speedup = eager.device_time_s / compiled.device_time_s
    assert float(timm["speedup"]) < speedup < 1.5 * float(timm["speedup"])


def test_fused_attention_and_eager_optimizers_leave_less_to_gain() -> None:
    (transformers,) = [row for row in ROWS if "transformers" in row["step"]]
    for name in ("bert-large", "gpt2-medium", "llama-1b"):
        eager, compiled = eager_and_compiled(find_profile(name), transformers["gpu"], 8)
        speedup = eager.device_time_s / compiled.device_time_s
        assert 1.05 < speedup < float(transformers["speedup"])
