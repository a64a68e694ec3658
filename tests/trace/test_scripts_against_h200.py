"""Scripts as other people write them, traced whole, against their memory on an H200."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gpu.public_scripts import SCRIPTS
from tests.tables import rows_in

from outlay.trace.target import script_target
from outlay.trace.tracing import trace_step

pytestmark = pytest.mark.torch

REFERENCE = Path(__file__).parents[1] / "reference" / "data"
MIB = 2**20


@pytest.mark.parametrize("name", ["wgan_gp", "lstm_lm"])
def test_memory_of_a_whole_script_is_that_on_a_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five critic steps and one of the generator; a recurrent layer of cuDNN."""
    monkeypatch.chdir(tmp_path)
    rows = rows_in(REFERENCE / "h200_scripts_2026-11-16.csv")
    (measured_mib,) = (float(row["peak_mib"]) for row in rows if row["script"] == name)
    script = SCRIPTS[name]
    path, *arguments = script.command(script.gpu)
    report = trace_step(script_target(path, arguments))
    assert report.batch_size == script.gpu.samples
    assert report.peak.memory.peak_bytes / MIB == pytest.approx(measured_mib, rel=0.03)
