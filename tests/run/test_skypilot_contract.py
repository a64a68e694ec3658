"""SkyPilot itself takes what we write, and says what we read: version 0.14, without any cloud."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from outlay.errors import LaunchFailed
from outlay.run import skypilot
from outlay.run.job import Job, JobMachine
from outlay.run.launch import interactive_command
from outlay.run.skypilot import SkyPilotEngine, task_yaml
from outlay.workload.workload import SkyPilotSettings

pytestmark = pytest.mark.skypilot

HERE = Path(__file__).parent
CATALOGUES = HERE / "data" / "skypilot"
INSTANCES = (
    "a2-highgpu-1g", "a2-ultragpu-1g", "a3-highgpu-1g", "g2-standard-4", "n1-standard-4+1xT4",
    "n1-standard-8+1xV100", "gpu_1x_a10", "gpu_1x_a100_sxm4", "gpu_1x_h100_pcie",
    "gpu_1x_h100_sxm5", "gpu_1x_a6000", "gpu-h100-sxm_1gpu-16vcpu-200gb", "1x_RTX3090_SECURE",
    "1x_RTX4090_SECURE", "1x_A100-80GB_SECURE",
)  # fmt: skip
CONSIDER = f"""
[consider]
providers = ["gcp", "lambda", "nebius", "runpod"]
instances = {json.dumps(INSTANCES)}
regions = ["us-central1", "eu-north1"]
"""
ON_DEMAND = 'tenancies = ["on-demand"]\n'
WORKLOADS = {
    "stylenat": '[step]\nprofile = "stylenat"\n[length]\nsamples = 400_000\n'
    + CONSIDER
    + ON_DEMAND,
    "gpt2": '[step]\nprofile = "gpt2-medium"\n[length]\nsamples = 2_000_000\n'
    + CONSIDER
    + ON_DEMAND,
    "resnet50": '[step]\nprofile = "resnet50"\n[length]\nsamples = 100_000_000\n' + CONSIDER,
    "vit": '[step]\nprofile = "vit-b16"\n[length]\nsamples = 200_000_000\n' + CONSIDER,
}
"""With spot machines, two whose costs are no tie: of those the plan takes what is less trouble."""
A100 = JobMachine(
    provider="gcp", instance="a2-highgpu-1g", gpu="A100 40GB SXM", region="us-central1",
    price_usd_per_hour=3.67,
)  # fmt: skip
H100 = JobMachine(
    provider="nebius", instance="gpu-h100-sxm_1gpu-16vcpu-200gb", gpu="H100 SXM",
    region="eu-north1", price_usd_per_hour=2.95,
)  # fmt: skip
A10 = JobMachine(provider="lambda", instance="gpu_1x_a10", gpu="A10", region="any")
RUN = Job(
    id="small-1a2b3c", name="small", engine="skypilot", command="python train.py", machine=A100,
    alternatives=(H100,), setup=("pip install -r requirements.txt",), outlay="none", fetch=("out",),
    environment=(("SEED", "07"),), pass_on=("HF_TOKEN",),
)  # fmt: skip
SPOT = replace(A100, tenancy="spot", zone="us-central1-a")
JOBS = {
    "run": RUN,
    "deleted": replace(RUN, machine=A10, alternatives=()),
    "trial": replace(RUN, kind="trial", machine=SPOT),
    "managed": replace(RUN, machine=SPOT, checkpoints="ckpt", fetch=("out",)),
    "bucket": replace(
        RUN, machine=SPOT, checkpoints="ckpt", skypilot=SkyPilotSettings(bucket="gs://mine/x")
    ),
    "nodes": replace(RUN, machine=replace(A100, machines=4), alternatives=()),
    "by name": replace(
        RUN,
        machine=JobMachine(provider="runpod", gpu="RTX 3090", gpus=1, price_usd_per_hour=0.5),
        alternatives=(),
    ),
    "image": replace(
        RUN, image="nvcr.io/nvidia/pytorch:26.01", skypilot=SkyPilotSettings(disk_bytes=3e11)
    ),
    "afternoon": replace(
        RUN, kind="interactive", command=interactive_command(jupyter=True), alternatives=()
    ),
}


OPTIONS = {
    "launch": ("-c", "--yes", "--detach-run", "--workdir", "--secret"),
    "jobs launch": ("-n", "--yes", "--detach-run", "--workdir", "--secret"),
    "jobs queue": ("--all", "--verbose", "--refresh", "-o"),
    "jobs logs": ("--name", "--no-follow", "--tail"),
    "jobs cancel": ("--yes",),
    "status": ("--refresh", "-o"),
    "queue": ("-o",),
    "api status": ("--verbose", "-o"),
    "api cancel": ("--yes",),
    "check": ("-o",),
    "start": ("--yes", "--idle-minutes-to-autostop"),
    "stop": ("--yes",),
    "down": ("--yes",),
    "storage delete": ("--yes",),
}
"""What the engine calls."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with catalogues: SkyPilot reads them as they are, and asks nobody."""
    folder = tmp_path_factory.mktemp("home")
    for path in CATALOGUES.glob("*.csv"):
        place = folder / ".sky" / "catalogs" / "v8" / path.stem
        place.mkdir(parents=True)
        shutil.copy(path, place / "vms.csv")
    common = folder / ".sky" / "catalogs" / "v8" / "common_accelerators"
    common.rename(common.with_name("common"))
    (common.with_name("common") / "vms.csv").rename(common.with_name("common") / "accelerators.csv")
    return folder


def environment(home, root):
    """Nothing of ours but the program's place; the test's home, and no telemetry."""
    return {
        "HOME": str(home),
        "PATH": f"{root / '.venv-skypilot' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "OUTLAY_DATA": str(home / "outlay"),
        "OUTLAY_PRICES": "bundled",
        "PYTHONPATH": str(root / "src"),
    }


@pytest.fixture(scope="module")
def inside(home, root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workloads")
    for name, text in WORKLOADS.items():
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n{text}')
    asked = {
        "tasks": {name: task_yaml(job) for name, job in JOBS.items()},
        "workloads": [str(folder / f"{name}.toml") for name in WORKLOADS],
        "enabled": ["gcp", "lambda", "nebius", "runpod"],
        "commands": list(OPTIONS),
    }
    done = subprocess.run(
        [root / ".venv-skypilot" / "bin" / "python", HERE / "skypilot" / "inside.py"],
        input=json.dumps(asked), env=environment(home, root), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout[done.stdout.index('{"version"') :])


def test_the_version_is_the_one_that_is_written_for(inside):
    assert inside["version"].startswith("0.14.")


def test_what_clouds_lack_is_what_skypilot_says(inside):
    ours = {name: sorted(skypilot._LACKS[name]) for name in skypilot.clouds()}
    assert ours == inside["clouds"]
    assert set(inside["nameless"]) == skypilot._BY_GPU_ALONE


@pytest.mark.parametrize("name", OPTIONS)
def test_commands_have_the_options_that_are_used(inside, name):
    assert set(OPTIONS[name]) <= set(inside["options"][name])


@pytest.mark.parametrize("name", JOBS)
def test_skypilot_reads_each_task(inside, name):
    read = inside["tasks"][name]
    assert read["config"]["name"] == "outlay-small-1a2b3c"
    assert read["secrets"] == ["HF_TOKEN"]
    assert read["envs"]["SEED"] == "07"


def test_resources_are_what_was_meant(inside):
    def of(name):
        return inside["tasks"][name]["config"]["resources"]

    first, second = of("run")["ordered"]
    assert (first["infra"], first["instance_type"]) == ("gcp/us-central1", "a2-highgpu-1g")
    assert first["accelerators"] == {"A100": 1}
    assert second["infra"] == "nebius/eu-north1"
    assert first["autostop"] == second["autostop"]
    assert first["autostop"] == {"idle_minutes": 10, "down": False, "wait_for": "jobs"}
    assert of("deleted")["autostop"]["down"] is True
    assert of("trial")["ordered"][0]["use_spot"] is True
    assert of("managed")["ordered"][0]["job_recovery"]["max_restarts_on_errors"] == 0
    assert of("by name")["max_hourly_cost"] == 0.62  # 0.5 * 1.25 = 0.625, rounded to even
    # 3e11 / 2**30 = 279.4
    assert of("image")["ordered"][0]["disk_size"] == 280
    assert "docker:nvcr.io/nvidia/pytorch:26.01" in json.dumps(of("image")["ordered"][0])
    assert of("afternoon")["autostop"]["wait_for"] == "jobs_and_ssh"
    assert inside["tasks"]["nodes"]["config"]["num_nodes"] == 4
    assert inside["tasks"]["managed"]["recovery"] == {
        "strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 0,
    }  # fmt: skip
    assert inside["tasks"]["managed"]["mounts"] == ["~/outlay-bucket"]
    assert inside["tasks"]["bucket"]["mounts"] == ["~/outlay-bucket"]


def test_every_status_of_skypilot_is_known(inside):
    records = inside["records"]
    assert set(records["job_statuses"]) == set(skypilot._JOB_STATES)
    assert set(records["managed_statuses"]) == set(skypilot._MANAGED_STATES)
    assert set(records["cluster_statuses"]) == {"INIT", "UP", "STOPPED", "AUTOSTOPPING", "PENDING"}


def test_rows_are_read_as_skypilot_prints_them(inside):
    records = inside["records"]
    cluster = skypilot.cluster_state(RUN, records["cluster"], is_launching=False)
    assert (cluster.state, cluster.held_since_s) == ("running", 1794892647)
    assert records["cluster"]["name"] == "outlay-a"
    assert skypilot.job_state(records["job"]).state == "running"
    assert records["job"]["job_name"] == "outlay-a"
    managed = skypilot.managed_state(records["managed"])
    assert (managed.state, managed.place) == ("queued", "gcp/us-central1")


@pytest.mark.parametrize("name", WORKLOADS)
def test_skypilots_optimizer_chooses_the_job_that_the_plan_chooses(inside, name):
    found = inside["choices"][name]
    assert found["options"] >= 8
    by_job = found["by_job"]
    assert by_job["cloud"] == found["chosen"]["infra"].split("/")[0]
    assert by_job["instance_type"] == found["chosen"]["instance_type"]
    assert by_job["use_spot"] == found["chosen"].get("use_spot", False)


def test_by_the_hour_it_would_have_chosen_another(inside):
    found = inside["choices"]["stylenat"]
    assert found["by_hour"]["usd_per_hour"] < found["by_job"]["usd_per_hour"]
    # 0.50 an hour against 0.74, as the catalogue has them
    assert found["by_hour"]["instance_type"] == "1x_RTX3090_SECURE"
    assert found["by_job"]["instance_type"] == "1x_RTX4090_SECURE"


# Its server, on loopback


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def server(home, root):
    """SkyPilot's server on a free port, with a cloud that counts as set up; stopped at the end,
    with all that it started."""
    variables = environment(home, root) | {"SKYPILOT_API_SERVER_LOCAL_PORT": str(free_port())}
    if shutil.which("rsync") is None:  # asked for its version, in a dry run
        (home / "bin").mkdir()
        (home / "bin" / "rsync").write_text("#!/bin/sh\nexit 0\n")
        (home / "bin" / "rsync").chmod(0o755)
        variables["PATH"] = f"{home / 'bin'}{os.pathsep}{variables['PATH']}"
    python = root / ".venv-skypilot" / "bin" / "python"
    port = variables["SKYPILOT_API_SERVER_LOCAL_PORT"]
    subprocess.run(
        ["sky", "api", "start", "--host", "127.0.0.1", "--port", port],
        env=variables, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    try:
        subprocess.run([python, "-c", ENABLE], env=variables, check=True, timeout=60)
        yield variables
    finally:
        done = subprocess.run(
            ["sky", "api", "stop"], env=variables, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert left_running(home) == []


ENABLE = """
import time
from sky import check, global_user_state as state
from sky.server.requests import requests
while True:  # the server looks for clouds when it starts
    boot = requests.get_request("skypilot-server-on-boot-check")
    if boot is not None and boot.status.value not in ("PENDING", "RUNNING"):
        break
    time.sleep(0.2)
from sky.clouds.cloud import CloudCapability
state.set_enabled_clouds(["lambda"], CloudCapability.COMPUTE, "default")
state.set_allowed_clouds(check._get_workspace_allowed_clouds("default"), "default")
"""


def left_running(home):
    """Processes that have the test's home for theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            has_home = f"HOME={home}\0".encode() in path.read_bytes() + b"\0"
            state = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if has_home and state != "Z":
            found.append((path.parent / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.fixture
def engine(server, monkeypatch):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return SkyPilotEngine(pause=lambda _: None)


def test_a_server_without_managed_jobs_is_understood(engine):
    assert engine._managed_rows(JOBS["managed"], restart_controller=False) == []


def test_a_dry_run_is_accepted(server, tmp_path):
    a100 = JobMachine(provider="lambda", instance="gpu_1x_a100_sxm4", gpu="A100 40GB SXM")
    pair = replace(
        RUN,
        machine=replace(A10, machines=2),
        alternatives=(replace(a100, machines=2),),
        folder=str(tmp_path),
    )
    (tmp_path / "task.yaml").write_text(task_yaml(pair))
    done = subprocess.run(
        ["sky", "launch", "-c", RUN.engine_name, "--dryrun", "--yes", "--secret", "HF_TOKEN",
         str(tmp_path / "task.yaml")],
        env=server | {"HF_TOKEN": "x"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Considered resources (2 nodes)" in done.stdout
    assert done.stdout.index("gpu_1x_a10 ") < done.stdout.index("gpu_1x_a100_sxm4 ")


def test_what_skypilot_refuses_is_one_clear_message(engine, tmp_path):
    job = replace(RUN, alternatives=(), folder=str(tmp_path), pass_on=())
    with pytest.raises(LaunchFailed) as caught:
        engine.submit(job, engine.render(job), {})
    assert "requires gcp which is not enabled" in caught.value.why
    assert "sky check" in caught.value.fix
    with pytest.raises(LaunchFailed, match="SkyPilot has no access to gcp"):
        engine.check(job)
