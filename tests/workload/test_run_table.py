"""The `[run]` table: every key arrives, and what cannot be meant is refused by line and key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from outlay.errors import InputError
from outlay.facts import DATA
from outlay.workload.file import parse_workload, read_workload
from outlay.workload.workload import (
    RunHost,
    RunSettings,
    SkyPilotSettings,
    SlurmSettings,
    WatchSettings,
)

SMALL = """\
[step]
profile = "resnet50"
[length]
samples = 1000
"""
FULL = """
[run]
command = "python train.py --batch-size {batch}"
resume = ["python", "train.py", "--resume", "{checkpoints}"]
setup = ["pip install -r requirements.txt", "make"]
folder = "code"
exclude = ["data", "*.ckpt"]
send = ["../tokenizer"]
fetch = ["results"]
checkpoints = "out/checkpoints"
environment = {WANDB_MODE = "offline", A = "$(touch PWNED)"}
pass = ["HF_TOKEN"]
engine = "slurm"
image = "docker:pytorch/pytorch"
processes = "one"
outlay = "none"
[[run.host]]
address = "me@192.0.2.7"
gpu = "RTX 3090:2"
price_per_hour = 0.6
[[run.host]]
address = "box"
[run.slurm]
login = "me@cluster.example"
partition = "gpu"
account = "lab-1"
qos = "high"
time = "12h"
gpu_types = {"A100 80GB" = "a100"}
options = ["--constraint=nvlink"]
price_per_gpu_hour = 0.25
[run.skypilot]
bucket = "s3://mine/run"
disk = "200GB"
idle_minutes = 20
[run.watch]
idle_below = 0.1
idle = "15m"
stall = "off"
stop_on_bad_loss = false
grace = "3m"
signal = "USR1"
loss_pattern = "loss ([0-9.]+)"
step_pattern = "step ([0-9]+)"
then = "shut down"
delete_after = "2d"
notify = ["slack://a/b/c"]
agent = false
"""


def test_every_key_arrives():
    run = parse_workload(SMALL + FULL, "w.toml").run
    assert run == RunSettings(
        command="python train.py --batch-size {batch}",
        resume=("python", "train.py", "--resume", "{checkpoints}"),
        setup=("pip install -r requirements.txt", "make"),
        folder="code",
        exclude=("data", "*.ckpt"),
        send=("../tokenizer",),
        fetch=("results",),
        checkpoints="out/checkpoints",
        environment=(("WANDB_MODE", "offline"), ("A", "$(touch PWNED)")),
        pass_on=("HF_TOKEN",),
        engine="slurm",
        image="docker:pytorch/pytorch",
        processes="one",
        outlay="none",
        hosts=(
            RunHost(address="me@192.0.2.7", gpu="RTX 3090:2", price_usd_per_hour=0.6),
            RunHost(address="box"),
        ),
        slurm=SlurmSettings(
            login="me@cluster.example",
            partition="gpu",
            account="lab-1",
            qos="high",
            time_s=12 * 3600.0,
            gpu_types=(("A100 80GB", "a100"),),
            options=("--constraint=nvlink",),
            price_usd_per_gpu_hour=0.25,
        ),
        skypilot=SkyPilotSettings(bucket="s3://mine/run", disk_bytes=200e9, idle_minutes=20),
        watch=WatchSettings(
            idle_below_fraction=0.1,
            idle_s=900.0,
            stall_s=None,
            stop_on_bad_loss=False,
            grace_s=180.0,
            signal="USR1",
            loss_pattern="loss ([0-9.]+)",
            step_pattern="step ([0-9]+)",
            then="shut down",
            delete_after_s=2 * 86_400.0,
            notify=("slack://a/b/c",),
            agent=False,
        ),
    )


@pytest.mark.parametrize(
    "kind", [RunSettings, RunHost, SlurmSettings, SkyPilotSettings, WatchSettings]
)
def test_the_file_above_leaves_no_key_out(kind):
    run = parse_workload(SMALL + FULL, "w.toml").run
    values = {RunSettings: run, RunHost: run.hosts[0], SlurmSettings: run.slurm,
              SkyPilotSettings: run.skypilot, WatchSettings: run.watch}  # fmt: skip
    usual = {field.name: field.default for field in fields(kind)}
    unchanged = [name for name, value in usual.items() if getattr(values[kind], name) == value]
    assert unchanged == []


def test_one_command_is_enough():
    run = parse_workload(SMALL + '[run]\ncommand = "python train.py"\n', "w.toml").run
    assert run == RunSettings(command="python train.py")
    assert parse_workload(SMALL, "w.toml").run is None


def test_one_line_of_set_up_is_a_list_of_one():
    run = parse_workload(SMALL + '[run]\ncommand = "x"\nsetup = "make"\n', "w.toml").run
    assert run.setup == ("make",)


def test_prices_of_hosts_are_in_the_files_currency():
    text = "usd_per_unit = 2.0\n" + SMALL + FULL
    run = parse_workload(text, "w.toml").run
    assert run.hosts[0].price_usd_per_hour == pytest.approx(1.2)  # 0.6 * 2
    assert run.slurm.price_usd_per_gpu_hour == pytest.approx(0.5)  # 0.25 * 2


def test_the_folder_is_looked_for_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    path = tmp_path / "w.toml"
    for folder, found in (("code", tmp_path / "code"), ("~/x", Path("/somewhere/x"))):
        path.write_text(SMALL + f'[run]\ncommand = "x"\nfolder = "{folder}"\n')
        assert Path(read_workload(path).run.folder) == found


REFUSED = {
    "no command": ('folder = "."', "run.command"),
    "an unknown key": ('comand = "x"', "comand"),
    "an empty command": ('command = ""', "run.command"),
    "a blank command": ('command = "  "', "run.command"),
    "a command of nothing": ("command = []", "run.command"),
    "a command of numbers": ('command = ["x", 1]', "run.command"),
    "a command with a zero byte": ('command = "x\\u0000"', "run.command"),
    "an unknown engine": ('engine = "kubernetes"', "run.engine"),
    "a variable's name that is none": ('environment = {"A B" = "x"}', "run.environment"),
    "a name that runs": ('environment = {"A=$(touch PWNED);B" = "x"}', "run.environment"),
    "a value with a zero byte": ('environment = {A = "\\u0000"}', "run.environment"),
    "a number for a variable": ("environment = {A = 1}", "run.environment"),
    "a variable to pass that is none": ('pass = ["HF TOKEN"]', "run.pass"),
    "checkpoints that run": ('checkpoints = "$(touch PWNED)"', "run.checkpoints"),
    "checkpoints with quotes": ('checkpoints = "a\'b"', "run.checkpoints"),
    "checkpoints on two lines": ('checkpoints = "a\\nb"', "run.checkpoints"),
    "checkpoints with a space": ('checkpoints = "a b"', "run.checkpoints"),
    "checkpoints like an option": ('checkpoints = "-rf"', "run.checkpoints"),
    "an empty folder": ('folder = ""', "run.folder"),
    "one that never ends": ('processes = "many"', "run.processes"),
    "an address like an option": (
        'host = [{address = "-oProxyCommand=touch PWNED"}]',
        "run.host",
    ),
    "an address with a space": ('host = [{address = "a b"}]', "run.host"),
    "an address on two lines": ('host = [{address = "a\\nb"}]', "run.host"),
    "no address": ('host = [{gpu = "T4"}]', "run.host"),
    "a price below zero": ('host = [{address = "a", price_per_hour = -1}]', "run.host"),
    "a login like an option": ('slurm = {login = "-oProxyCommand=x"}', "run.slurm.login"),
    "a partition that runs": ('slurm = {partition = "a;touch PWNED"}', "run.slurm.partition"),
    "an account on two lines": ('slurm = {account = "a\\nb"}', "run.slurm.account"),
    "an option on two lines": ('slurm = {options = ["--a\\n--b"]}', "run.slurm.options"),
    "a word for an option": ('slurm = {options = ["touch PWNED"]}', "run.slurm.options"),
    "a GPU's type that runs": ('slurm = {gpu_types = {T4 = "$(x)"}}', "run.slurm.gpu_types"),
    "a bucket that is none": ('skypilot = {bucket = "mine"}', "run.skypilot.bucket"),
    "a share over one": ("watch = {idle_below = 2}", "run.watch.idle_below"),
    "a time without a unit": ("watch = {idle = 600}", "run.watch.idle"),
    "a signal that runs": ('watch = {signal = "USR1;x"}', "run.watch.signal"),
    "a pattern without a group": ('watch = {loss_pattern = "loss"}', "run.watch.loss_pattern"),
    "a pattern that is none": ('watch = {loss_pattern = "("}', "run.watch.loss_pattern"),
    "an unknown end": ('watch = {then = "explode"}', "run.watch.then"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_by_line_and_key(case):
    line, key = REFUSED[case]
    command = "" if line.startswith(("command", 'folder = "."', "comand")) else 'command = "x"\n'
    text = SMALL + "[run]\n" + command + line + "\n"
    with pytest.raises(InputError) as caught:
        parse_workload(text, "w.toml")
    said = str(caught.value)
    assert caught.value.exit_code == 2
    assert "w.toml" in said
    assert key in said
    if case != "no command":
        number = text.splitlines().index(line) + 1
        assert re.search(rf"line {number}\b", said), said
    assert "\n" not in said.replace("\\n", "") or "PWNED" not in said


def test_the_template_shows_the_table_and_it_can_be_used():
    text = (DATA / "template.toml").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^# \[run\].*?(?=^$)", text, re.MULTILINE | re.DOTALL)
    table = "\n".join(line.removeprefix("# ") for line in shown.splitlines())
    run = parse_workload(SMALL + table, "w.toml").run
    assert run.pass_on == ("HF_TOKEN",)
    assert run.slurm.partition == "gpu"
    assert run.watch == WatchSettings(notify=("slack://...",))
