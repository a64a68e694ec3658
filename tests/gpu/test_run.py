"""Launching, watching and trying for real on a GPU: an unchanged script, here.

Deselected where there is no GPU; on one: `OUTLAY_TEST_GPU=1 python -m pytest tests/gpu -s`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlay.probe.gpu_driver import NoDriver
from outlay.probe.gpu_watch import open_driver

pytestmark = pytest.mark.gpu

PUBLIC = Path(__file__).parent / "public"
STEPS = int(os.environ.get("OUTLAY_TEST_GPU_STEPS", "400"))
PRICE_USD_PER_HOUR = 3.6  # a tenth of a cent a second
WORKLOAD = """\
name = "a small GPT"
[step]
profile = "gpt2-medium"
{batch}
[length]
iterations = {steps}
[limits]
budget = {budget}
[consider]
bundled = false
[[offer]]
provider = "here"
gpu = "{gpu}"
price_per_hour = {price}
[run]
command = "{python} {command}"
folder = "{folder}"
[run.watch]
{watch}
"""
GPT = (
    "nanogpt.py --max_iters={steps} --eval_interval=100 --log_interval=20 --out_dir={out}"
    " --data_dir={data} --batch_size={{batch}}"
)


def note(name: str, figures: object) -> None:
    """Keep what was measured, where OUTLAY_TEST_GPU_OUT names a folder."""
    folder = os.environ.get("OUTLAY_TEST_GPU_OUT")
    if folder:
        Path(folder, f"{name}.json").write_text(json.dumps(figures, indent=1))


@pytest.fixture
def here(tmp_path):
    driver = open_driver()
    assert not isinstance(driver, NoDriver)
    return Here(tmp_path, driver.devices[0].name)


class Here:
    """A workload on this machine, and outlay as a user calls it."""

    def __init__(self, folder: Path, gpu: str) -> None:
        self.folder = folder
        self.file = folder / "outlay.toml"
        self._gpu = gpu
        self._environment = {
            **os.environ,
            "OUTLAY_DATA": str(folder / "data"),
            "OUTLAY_RUNS": str(folder / "runs"),
        }

    def write(self, command: str, *, batch="batch_size = 12", budget=100.0, watch="", code=PUBLIC):
        figures = {"steps": STEPS, "out": self.folder / "out", "data": self.folder / "tokens"}
        text = WORKLOAD.format(
            batch=batch, steps=STEPS, budget=budget, gpu=self._gpu, price=PRICE_USD_PER_HOUR,
            python=sys.executable, command=command.format(**figures), folder=code, watch=watch,
        )  # fmt: skip
        self.file.write_text(text)

    def outlay(self, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "outlay", *map(str, arguments)],
            env=self._environment, capture_output=True, text=True, timeout=540, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout[-2000:]
        return done.stdout

    def json(self, *arguments: object) -> dict:
        return json.loads(self.outlay(*arguments, "--json"))

    def launched(self) -> str:
        return self.json("launch", self.file, "--engine", "local", "--yes")["run"]

    def ended(self, run: str) -> dict:
        (document,) = self.json("runs", run)["runs"]
        return document


def test_a_run_is_launched_watched_and_its_cost_known_halfway(here):
    here.write(GPT)
    run = here.launched()
    lines = [json.loads(line) for line in here.outlay("watch", run, "--json").splitlines()]
    ended = here.ended(run)
    note("launch", {"run": ended, "lines": lines[::10]})
    assert ended["state"] == "done", here.outlay("logs", run)[-2000:]
    halfway = next(line for line in lines if (line.get("steps_done") or 0) >= STEPS / 2)
    final_usd = ended["spent_usd"]
    forecast = halfway["final_cost_usd"]
    note("halfway", {"forecast": forecast, "final_usd": final_usd})
    assert forecast["likely"] == pytest.approx(final_usd, rel=0.05)
    assert max(line.get("gpu_fraction") or 0 for line in lines) > 0.5


RESNET = """\
import sys, torch, torchvision
batch = int(sys.argv[1])
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images = torch.randn(batch, 3, 224, 224, device="cuda")
labels = torch.randint(0, 1000, (batch,), device="cuda")
while True:
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_bench_finds_the_batch_and_narrows_the_plan(here):
    (here.folder / "resnet.py").write_text(RESNET)
    here.write("resnet.py {{batch}}", batch="max_batch_size = 256", code=here.folder)
    text = here.file.read_text().replace('profile = "gpt2-medium"', 'profile = "resnet50"')
    here.file.write_text(text)
    plan = here.json("plan", here.file)
    bench = here.json(
        "bench", here.file, "--on", here._gpu, "--engine", "local", "--for", "20s",
        "--cap-usd", "2", "--yes",
    )  # fmt: skip
    note("bench", {"trials": bench["trials"], "before": plan["chosen"]["step_time_s"]})
    (trial,) = bench["trials"]
    assert trial["state"] == "done", trial["reason"]
    assert trial["batch_size"] == 256
    assert trial["step_time_s"] > 0
    assert trial["gpu_fraction"] > 0.5
    seconds_usd = PRICE_USD_PER_HOUR / 3600
    assert trial["usd_per_1000_iterations"] == pytest.approx(
        1000 * trial["step_time_s"] * seconds_usd
    )
    assert 0 < trial["trial_cost_usd"] < 2
    before, after = plan["chosen"]["step_time_s"], bench["plan"]["chosen"]["step_time_s"]
    width = {name: (one["high"] - one["low"]) / one["likely"] for name, one in
             {"before": before, "after": after}.items()}  # fmt: skip
    assert width["after"] < width["before"]
    assert after["likely"] == pytest.approx(trial["step_time_s"], rel=0.1)


IDLES = """\
import time, torch
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.time()
while time.time() - began < 15:
    model(torch.randn(4096, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print("idle from now on", flush=True)
time.sleep(10_000)
"""


def test_a_gpu_that_idles_is_stopped_within_its_window(here):
    (here.folder / "idles.py").write_text(IDLES)
    here.write("idles.py", watch='idle = "20s"\ngrace = "5s"', code=here.folder)
    began_s = time.monotonic()
    run = here.launched()
    while (ended := here.ended(run))["state"] == "running":
        assert time.monotonic() - began_s < 150
        time.sleep(2)
    note("idle", ended)
    assert ended["state"] == "stopped"
    assert ended["reason"].startswith("GPUs below 5%")
    assert 15 + 20 <= ended["held_s"] <= 15 + 20 + 60  # start of torch, the window, the grace


def test_a_budget_is_kept_within_a_step(here):
    budget_usd = 0.06  # a minute
    here.write(GPT, budget=budget_usd, watch='grace = "5s"')
    run = here.launched()
    began_s = time.monotonic()
    while (ended := here.ended(run))["state"] == "running":
        assert time.monotonic() - began_s < 150
        time.sleep(2)
    note("budget", ended)
    assert ended["state"] == "stopped"
    step_usd = 1.0 * PRICE_USD_PER_HOUR / 3600  # a step takes far less than a second
    assert 0.8 * budget_usd < ended["spent_usd"] <= budget_usd + step_usd
