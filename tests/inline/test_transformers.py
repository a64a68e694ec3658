from __future__ import annotations

import subprocess
import sys

import pytest
from tests.probe.apart import documented, run_script

from outlay.measurement.file import read_measurement

SCRIPT = """
import json, sys, warnings
import mlflow, torch, outlay, training
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

warnings.simplefilter("ignore")
torch.set_num_threads(1)
mlflow.set_tracking_uri("file:mlruns")
config = GPT2Config(vocab_size=50, n_positions=8, n_embd=8, n_layer=1, n_head=1)
ids = torch.arange(8)
rows = [{"input_ids": ids, "labels": ids} for _ in range(400)]


def train(probe, **options):
    args = TrainingArguments(
        output_dir="out", per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True,
        use_cpu=True, logging_steps=1000, **options,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config), args=args, train_dataset=rows, callbacks=[probe]
    )
    trainer.train()
    return trainer


told = {}
# Stopped when enough was seen; each step has two batches.
probe = outlay.TrainerProbe(steps=10, stop=True, json="probe.json")
trainer = train(probe, max_steps=60, gradient_accumulation_steps=2, report_to=["mlflow"])
told["stopped_at"] = trainer.state.global_step
told["history"] = trainer.state.log_history
(run,) = mlflow.search_runs(output_format="list", search_all_experiments=True)
told["mlflow"] = run.data.metrics
before = training.torch_as_it_is()

DOCUMENTED
# Measured to its end; the same callback again.
whole = outlay.TrainerProbe(steps=10, operations=False, report=False)
told["whole"] = [train(whole, max_steps=20, report_to=[]).state.global_step for _ in range(2)]
told["whole_seen"] = [whole.measurement.ending, whole.measurement.steps_seen]

# An error of the user's, which callbacks are not told of.
failed = outlay.TrainerProbe(report=False)
forward = GPT2LMHeadModel.forward


def fail(model, **batch):
    if failed.is_running and len(calls) == 5:
        raise ZeroDivisionError
    calls.append(1)
    return forward(model, **batch)


calls = []
GPT2LMHeadModel.forward = fail
try:
    train(failed, max_steps=20, report_to=[], remove_unused_columns=False)
except ZeroDivisionError:
    failed.close()
    told["failed"] = [failed.measurement.ending, failed.measurement.steps_seen]
told["left"] = [name for name, x in training.torch_as_it_is().items() if x != before[name]]
with open(sys.argv[1], "w") as file:
    json.dump(told, file, default=str)
"""


@pytest.mark.torch
@pytest.mark.frameworks
def test_training_is_measured_and_stopped(tmp_path):
    example = documented("TrainerProbe").replace("steps=200", "steps=20")
    example = (
        f"import os; os.mkdir('docs'); os.chdir('docs'); model = GPT2LMHeadModel(config)\n{example}"
    )
    script = SCRIPT.replace("DOCUMENTED", f"{example}\nos.chdir('..')")
    result, page = run_script(script, tmp_path)
    assert read_measurement(tmp_path / "docs" / "probe.json").steps_seen == 20
    measurement = read_measurement(tmp_path / "probe.json")
    assert measurement.ending == "stopped"
    assert measurement.steps_seen == 10
    assert 10 < result["stopped_at"] < 40  # the steps in which operations were recorded, no more
    assert measurement.total_steps == 60
    assert (measurement.passes_per_step, measurement.batch_size) == (2.0, 4)
    assert measurement.profile is not None
    assert "transformers" in measurement.versions
    assert "a step" in page
    assert result["mlflow"]["outlay/step_s"] == pytest.approx(measurement.step.mean_s)
    history = [row for row in result["history"] if "outlay/step_s" in row]
    assert [row["step"] for row in history] == [result["stopped_at"]]
    assert result["whole"] == [20, 20]
    assert result["whole_seen"] == ["finished", 10]
    assert result["failed"] == ["failed", 5]
    assert result["left"] == []


def test_without_transformers_it_says_what_to_install():
    code = "import sys; sys.modules['transformers'] = None; import outlay; outlay.TrainerProbe"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ExtraMissing: TrainerProbe needs transformers" in done.stderr
