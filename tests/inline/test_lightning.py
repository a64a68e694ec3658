from __future__ import annotations

import subprocess
import sys

import pytest
from tests.probe.apart import documented, run_script

from outlay.measurement.file import read_measurement

SCRIPT = """
import json, logging, sys, warnings
import torch, outlay, training
from PACKAGE import Callback, LightningModule, Trainer
from PACKAGE.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)


class Small(LightningModule):
    def __init__(self, fails_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
        self.fails_at = fails_at

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise ZeroDivisionError("of the user")
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(8 * 200, 16)), batch_size=8)


def fit(module, *callbacks, **options):
    trainer = Trainer(
        accelerator="cpu", callbacks=list(callbacks), enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, logger=CSVLogger("logs", "it"),
        **options,
    )
    trainer.fit(module)
    return trainer


told = {"is_callback": issubclass(outlay.LightningProbe, Callback)}

# Stopped when enough was seen; each step has two batches.
probe = outlay.LightningProbe(steps=10, stop=True, json="probe.json")
trainer = fit(Small(), probe, max_epochs=3, accumulate_grad_batches=2)
told["stopped_at"] = trainer.global_step
before = training.torch_as_it_is()

DOCUMENTED
# Measured to its end; the same callback again.
whole = outlay.LightningProbe(steps=10, operations=False, report=False)
told["whole"] = [fit(Small(), whole, max_steps=20).global_step for _ in range(2)]
told["whole_seen"] = [whole.measurement.ending, whole.measurement.steps_seen]

# An error of the user's.
failed = outlay.LightningProbe(report=False)
try:
    fit(Small(fails_at=5), failed, max_steps=20)
except ZeroDivisionError:
    told["failed"] = [failed.measurement.ending, failed.measurement.steps_seen]
told["left"] = [name for name, x in training.torch_as_it_is().items() if x != before[name]]
with open(sys.argv[1], "w") as file:
    json.dump(told, file, default=str)
"""


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_fit_is_measured_and_stopped(tmp_path):
    example = documented("LightningProbe").replace("steps=200", "steps=20")
    example = f"import os; os.mkdir('docs'); os.chdir('docs'); module = Small()\n{example}"
    script = SCRIPT.replace("DOCUMENTED", f"{example}\nos.chdir('..')")
    result, page = run_script(script.replace("PACKAGE", "lightning.pytorch"), tmp_path)
    assert read_measurement(tmp_path / "docs" / "probe.json").steps_seen == 20
    measurement = read_measurement(tmp_path / "probe.json")
    assert result["is_callback"]
    assert measurement.ending == "stopped"
    assert measurement.steps_seen == 10
    assert 10 < result["stopped_at"] < 40  # the steps in which operations were recorded, no more
    # 200 batches, two a step, three epochs: 300 steps.
    assert measurement.total_steps == 300
    assert (measurement.passes_per_step, measurement.batch_size) == (2.0, 8)
    assert measurement.samples_per_step == 16.0
    assert measurement.profile is not None
    assert measurement.profile.trainable_parameters == 17  # Linear(16, 1)
    assert "a step" in page
    assert "probe.json" in page
    logged = (tmp_path / "logs" / "it" / "version_0" / "metrics.csv").read_text()
    assert "outlay/step_s" in logged
    assert "outlay/samples_per_s" in logged
    assert result["whole"] == [20, 20]
    assert result["whole_seen"] == ["finished", 10]
    assert result["failed"] == ["failed", 5]  # batches 0 to 4
    assert result["left"] == []


@pytest.mark.torch
@pytest.mark.frameworks
def test_the_other_package_will_do(tmp_path):
    script = SCRIPT.replace("PACKAGE", "pytorch_lightning").partition("DOCUMENTED")[0]
    end = 'with open(sys.argv[1], "w") as file:\n    json.dump(told, file, default=str)\n'
    result, _ = run_script(script + end, tmp_path)
    assert result["is_callback"]
    assert 10 < result["stopped_at"] < 40
    assert read_measurement(tmp_path / "probe.json").batch_size == 8


def test_without_lightning_it_says_what_to_install():
    hide = "import sys; sys.modules.update({'lightning': None, 'pytorch_lightning': None})"
    code = f"{hide}; import outlay; outlay.LightningProbe"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ExtraMissing: LightningProbe needs Lightning: pip install lightning." in done.stderr
