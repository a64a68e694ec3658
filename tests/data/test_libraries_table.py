"""What CUDA, cuBLAS and torch take and choose, by compute capability."""

from __future__ import annotations

from tests.rows import for_every

from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import gpus
from outlay.units import MIB

ROWS = rows_of("libraries.csv")
PARAMETERS = {
    "context",
    "cublas_workspace",
    "attention_fp16",
    "attention_bf16",
    "threads_per_sm",
}
BACKENDS = {"cudnn", "flash", "efficient", "math"}


def test_every_row_has_a_source_and_a_date():
    for row in ROWS:
        assert row["parameter"] in PARAMETERS
        assert row["as_of"].startswith("20")
        assert row["source"]
        assert ("guess" in row["note"]) == (row["source"] == "guess")


def test_no_row_is_there_twice():
    keys = [(r["vendor"], r["target"], r["from"], r["below"], r["parameter"]) for r in ROWS]
    assert len(set(keys)) == len(keys)


@for_every("gpu", gpus().values())
def test_every_gpu_has_plausible_values(gpu):
    libraries = gpu.libraries
    assert 200 * MIB <= libraries.context_bytes <= 1500 * MIB
    assert 8 * MIB <= libraries.cublas_bytes <= 128 * MIB
    assert {libraries.attention_fp16, libraries.attention_bf16} <= BACKENDS
    assert libraries.threads_per_sm in (1024, 1536, 2048)


def test_the_h200_is_as_measured():
    libraries = find_gpu("H200").gpu.libraries
    assert libraries.context_bytes == 767 * MIB
    assert libraries.cublas_bytes == 32 * MIB
    assert libraries.attention_bf16 == "cudnn"


def test_attention_by_generation():
    # flash from Ampere on; before, no fused kernel takes bf16
    assert find_gpu("RTX 4090").gpu.libraries.attention_bf16 == "flash"
    assert find_gpu("T4").gpu.libraries.attention_fp16 == "efficient"
    assert find_gpu("T4").gpu.libraries.attention_bf16 == "math"
    assert find_gpu("RTX 4090").gpu.libraries.cublas_bytes == 8_519_680
