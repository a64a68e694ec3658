"""`outlay probe` on scripts in the style of public repositories, against their own log's clock.

Deselected where there is no GPU; on one:
`OUTLAY_TEST_GPU=1 python -m pytest -n0 -s tests/gpu/test_public.py`. One line for each script goes
to stderr, and all to `public.json` in the folder that OUT names, if any. Some 20 s a script:
`-k "nanogpt or dit"` takes some of them, `-k "not td3"` all but one.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.gpu.public_clock import WARM_UP_STEPS, OwnClock, own_clock, run_lines
from tests.gpu.public_scripts import SCRIPTS, Preset, Script

from outlay.measurement.file import read_measurement
from outlay.measurement.measurement import Measurement

pytestmark = pytest.mark.gpu
PRECISION = 0.02
TRAIN_FOR = os.environ.get("TRAIN_FOR", "10s")
LONGEST_S = 180.0
SUMMARY: dict[str, object] = {}


def wrong(script: Script, preset: Preset, measurement: Measurement, own: OwnClock) -> list[str]:
    """What the measurement has otherwise than it is, in words."""
    found = []
    if (measurement.ending, measurement.status) != ("stopped", 0):
        found.append(f"ended {measurement.ending} with {measurement.status}")
    per_step = sorted((optimizer.per_step for optimizer in measurement.optimizers), reverse=True)
    if per_step != pytest.approx(sorted(script.per_step, reverse=True), abs=0.05):
        found.append(f"optimizers step {per_step} times, not {script.per_step}")
    samples = measurement.samples_per_step
    if samples != preset.samples and not (script.is_reinforcement and samples is None):
        found.append(f"{samples} samples a step, not {preset.samples}")
    # An epoch that did not end while it was watched need not be known.
    is_seen = script.has_loader and own.last_step > (preset.steps_per_epoch or 0)
    epoch = measurement.steps_per_epoch
    if epoch != preset.steps_per_epoch and (is_seen or epoch is not None):
        found.append(f"{epoch} steps an epoch, not {preset.steps_per_epoch}")
    if measurement.step is None or own.step_s is None:
        found.append("no step time")
    elif measurement.step.mean_s != pytest.approx(own.step_s, rel=PRECISION):
        found.append(f"a step takes {measurement.step.mean_s:.4f} s, not {own.step_s:.4f}")
    return found


def span(measurement: Measurement) -> dict[str, float]:
    """The steps that outlay timed, or more: it may leave out half of them as a warm-up, at most."""
    warm_up = measurement.step.warm_up_steps if measurement.step else 0
    from_step = max(WARM_UP_STEPS, min(warm_up, measurement.steps_seen / 2))
    return {"from_step": from_step, "until_step": measurement.steps_seen}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_public_style_script_against_its_own_clock(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    preset = script.gpu
    probe = (sys.executable, "-m", "outlay", "probe", "--for", TRAIN_FOR, "--json", "probe.json")
    with (tmp_path / "err").open("w") as err:
        lines = run_lines(
            [*probe, "--", sys.executable, *script.command(preset)],
            LONGEST_S,
            cwd=tmp_path,
            stderr=err,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "OUTLAY_DATA": str(tmp_path / "own"),
                # Not shared: a build that was killed leaves a lock that others wait for.
                "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions"),
            },
        )
    printed = (tmp_path / "err").read_text()
    assert (tmp_path / "probe.json").exists(), printed[-3000:]
    measurement = read_measurement(tmp_path / "probe.json")
    own = own_clock(script, preset, lines, **span(measurement))
    found = wrong(script, preset, measurement, own)
    _report(name, measurement, own, found)
    assert lines.status == 0, printed[-3000:]
    assert found == []


def _report(name: str, measurement: Measurement, own: OwnClock, found: list[str]) -> None:
    step = measurement.step
    mean_s = step.mean_s if step else None
    ratio = mean_s / own.step_s if mean_s and own.step_s else None
    allocated_bytes = measurement.memory.allocated_bytes
    SUMMARY[name] = {
        "own": asdict(own),
        "mean_s": mean_s,
        "ratio": ratio,
        "steps_seen": measurement.steps_seen,
        "samples_per_step": measurement.samples_per_step,
        "steps_per_epoch": measurement.steps_per_epoch,
        "per_step": [optimizer.per_step for optimizer in measurement.optimizers],
        "allocated_mib": allocated_bytes and allocated_bytes / 2**20,
        "pauses": [(pause.kind, pause.times, pause.every_steps) for pause in measurement.pauses],
        "holder": measurement.finding and measurement.finding.holder,
        "has_profile": measurement.profile is not None,
        "notes": measurement.notes,
        "wrong": found,
    }
    if folder := os.environ.get("OUT"):
        (Path(folder) / "public.json").write_text(json.dumps(SUMMARY, indent=1))
    sys.stderr.write(
        f"\n{name}: own {(own.step_s or 0) * 1e3:.2f} ms over {own.steps_timed} steps "
        f"({own.stretches_left_out} of {own.stretches} stretches left out), probed "
        f"{(mean_s or 0) * 1e3:.2f} ms, ratio {ratio or 0:.4f}, own peak {own.peak_mib} MiB, "
        f"probed {(allocated_bytes or 0) / 2**20:.0f} MiB; {'; '.join(found) or 'all right'}\n"
    )
