from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from outlay.errors import ExtraMissing, LaunchFailed, pip_command
from outlay.offers.catalog import snapshot_offers
from outlay.run.host_engine import HostEngine
from outlay.run.job import Job, JobMachine
from outlay.run.launch import interactive_command
from outlay.run.run_folder import JOB, RunFolder, engine_state
from outlay.run.shell import HereShell
from outlay.run.skypilot import (
    SkyPilotEngine,
    candidates,
    cautions,
    clouds,
    cluster_state,
    infra,
    is_managed,
    is_rentable,
    job_lines,
    job_state,
    keeps_disk,
    managed_state,
    resources,
    task_yaml,
)
from outlay.workload.workload import SkyPilotSettings

FAKE = Path(__file__).parent / "skypilot" / "fake_sky.py"
A100 = JobMachine(
    provider="gcp", instance="a2-highgpu-1g", gpu="A100 40GB SXM", region="us-central1",
    price_usd_per_hour=3.67,
)  # fmt: skip
LAMBDA = JobMachine(
    provider="lambda", instance="gpu_1x_a10", gpu="A10", region="any", price_usd_per_hour=1.29
)
SPOT = replace(A100, tenancy="spot", zone="us-central1-a", price_usd_per_hour=1.2)


def job(**changes):
    values = {
        "id": "small-1a2b3c",
        "name": "small",
        "engine": "skypilot",
        "command": "sh train.sh",
        "machine": A100,
        "outlay": "none",
    }
    return Job(**{**values, **changes})


def task(**changes):
    return yaml.safe_load(task_yaml(job(**changes)))


# The task file


def test_a_run_is_a_cluster_that_stops_by_itself():
    read = task(folder="/data/project", fetch=("out",))
    assert read["name"] == "outlay-small-1a2b3c"
    assert read["workdir"] == "/data/project"
    assert "num_nodes" not in read
    assert read["resources"] == {
        "infra": "gcp/us-central1",
        "instance_type": "a2-highgpu-1g",
        "accelerators": "A100:1",
        "autostop": {"idle_minutes": 10, "down": False, "wait_for": "jobs"},
    }
    assert "sh train.sh" in read["run"]


def test_a_run_that_leaves_nothing_behind_leaves_no_disk_to_pay_for():
    assert task()["resources"]["autostop"]["down"] is True
    kept = SkyPilotSettings(bucket="gs://mine")
    assert task(fetch=("out",), skypilot=kept)["resources"]["autostop"]["down"] is True
    assert task(checkpoints="ckpt")["resources"]["autostop"]["down"] is False


def test_a_cloud_that_cannot_stop_a_machine_deletes_it():
    read = task(machine=LAMBDA, fetch=("out",))
    assert read["resources"]["infra"] == "lambda"
    assert read["resources"]["instance_type"] == "gpu_1x_a10"
    assert read["resources"]["autostop"]["down"] is True
    assert "deleted 10 minutes after the run ends" in " ".join(
        cautions(job(machine=LAMBDA, fetch=("out",)))
    )


def test_a_cloud_without_a_timer_is_said_to_cost_until_it_is_stopped():
    verda = JobMachine(provider="verda", instance="1A100.22V", gpu="A100 80GB SXM", region="any")
    assert "autostop" not in task(machine=verda)["resources"]
    assert "costs until outlay stop" in cautions(job(machine=verda))[0]
    assert f"# {cautions(job(machine=verda))[0]}" in task_yaml(job(machine=verda))


def test_a_trial_is_deleted_even_where_it_could_be_stopped():
    assert task(kind="trial")["resources"]["autostop"]["down"] is True
    spot_trial = job(kind="trial", machine=SPOT)
    assert not is_managed(spot_trial)
    assert yaml.safe_load(task_yaml(spot_trial))["resources"]["use_spot"] is True


def test_a_spot_run_is_a_managed_job_with_its_checkpoints_in_a_bucket():
    spot = job(machine=SPOT, checkpoints="ckpt", resume="sh train.sh --resume")
    assert is_managed(spot)
    read = yaml.safe_load(task_yaml(spot))
    assert read["resources"]["infra"] == "gcp/us-central1/us-central1-a"
    assert read["resources"]["use_spot"] is True
    assert read["resources"]["job_recovery"] == {"max_restarts_on_errors": 0}
    assert "autostop" not in read["resources"]
    assert read["file_mounts"] == {
        "~/outlay-bucket": {"name": "outlay-small-1a2b3c", "mode": "MOUNT_CACHED"}
    }
    own = replace(spot, skypilot=SkyPilotSettings(bucket="s3://mine/runs/"))
    assert yaml.safe_load(task_yaml(own))["file_mounts"]["~/outlay-bucket"] == {
        "source": "s3://mine/runs/small-1a2b3c",
        "mode": "MOUNT_CACHED",
    }


def test_a_spot_run_that_loses_its_checkpoints_says_so():
    vast = JobMachine(provider="vast", gpu="RTX 3090", tenancy="spot", region="any")
    assert "file_mounts" not in task(machine=vast, checkpoints="ckpt")
    assert "cannot mount a bucket" in cautions(job(machine=vast, checkpoints="ckpt"))[0]
    assert "run.checkpoints is not given" in cautions(job(machine=SPOT))[0]


def test_several_machines_know_their_rank_and_the_first_address():
    read = task(machine=replace(A100, machines=4))
    assert read["num_nodes"] == 4
    assert 'OUTLAY_NODE_RANK="${SKYPILOT_NODE_RANK:-0}"' in read["run"]
    assert "SKYPILOT_NODE_IPS" in read["run"]


def test_values_of_passed_variables_are_not_in_the_file(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecretsecretsecret")
    text = task_yaml(job(pass_on=("HF_TOKEN",), environment=(("SEED", "07"), ("ON", "yes"))))
    assert yaml.safe_load(text)["secrets"] == {"HF_TOKEN": None}
    assert yaml.safe_load(text)["envs"] == {"SEED": "07", "ON": "yes"}
    assert "hf_secret" not in text
    assert "--secret HF_TOKEN" in text


def test_a_name_with_line_breaks_stays_in_its_comment():
    text = task_yaml(job(name="a\nrun: rm -rf /\n"))
    assert set(yaml.safe_load(text)) == {"name", "resources", "run"}


def test_a_disk_and_an_image():
    settings = SkyPilotSettings(disk_bytes=200 * 2**30 + 1, idle_minutes=3)
    read = task(image="nvcr.io/nvidia/pytorch:26.01-py3", skypilot=settings)["resources"]
    assert read["disk_size"] == 201  # 200 GiB and a byte
    assert read["image_id"] == "docker:nvcr.io/nvidia/pytorch:26.01-py3"
    assert read["autostop"]["idle_minutes"] == 3


def test_an_afternoon_has_no_job_that_would_keep_it_from_idling():
    waiting = job(kind="interactive", command=interactive_command(jupyter=False), setup=("id",))
    read = yaml.safe_load(task_yaml(waiting))
    assert "run" not in read
    assert read["setup"] == "set -e\nid\n"
    assert read["resources"]["autostop"] == {
        "idle_minutes": 10, "down": False, "wait_for": "jobs_and_ssh",
    }  # fmt: skip
    notebook = job(kind="interactive", command=interactive_command(jupyter=True))
    run = yaml.safe_load(task_yaml(notebook))["run"]
    assert "setsid nohup sh -c 'jupyter lab" in run
    assert run.endswith('> "$run/log" 2>&1 < /dev/null &\n')  # where outlay logs finds its token


# What can be rented


def test_a_provider_that_skypilot_lacks_names_the_next_one_and_other_engines():
    ovh = JobMachine(provider="ovhcloud", instance="t1-45", gpu="V100 16GB", region="GRA7")
    assert not is_rentable(ovh)
    with pytest.raises(LaunchFailed) as caught:
        task_yaml(job(machine=ovh, alternatives=(replace(ovh, region="BHS5"), LAMBDA)))
    assert "does not rent machines of ovhcloud" in caught.value.why
    assert "1x A10 at lambda" in caught.value.fix
    assert "--engine ssh" in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine": replace(LAMBDA, tenancy="spot")}, "rent spot machines at lambda"),
        ({"machine": replace(A100, tenancy="reserved")}, "not reserved"),
        (
            {"machine": JobMachine(provider="runpod", gpu="A40", machines=2)},
            "start several machines together at runpod",
        ),
        ({"machine": LAMBDA, "kind": "interactive"}, "keep its disk at lambda"),
        ({"machine": SPOT, "kind": "interactive"}, "spot machine cannot be stopped"),
        (
            {"machine": JobMachine(provider="oci", gpu="A10"), "image": "x"},
            "run a container image at oci",
        ),
    ],
)
def test_what_a_cloud_cannot_do_is_said_before_anything_is_rented(changes, words):
    with pytest.raises(LaunchFailed) as caught:
        candidates(job(**changes))
    assert words in caught.value.why


def test_alternatives_are_tried_in_the_plans_order():
    nebius = JobMachine(
        provider="nebius", instance="gpu-h100-sxm_1gpu-16vcpu-200gb", gpu="H100 SXM",
        region="eu-north1", price_usd_per_hour=2.95,
    )  # fmt: skip
    others = (
        nebius,
        replace(nebius, gpus=8),  # the command is for one GPU
        replace(nebius, machines=2),
        SPOT,  # would not be replaced when it is taken away
        LAMBDA,  # cannot be stopped with its disk kept
        JobMachine(provider="ovhcloud", gpu="V100 16GB"),
    )
    assert candidates(job(alternatives=others, fetch=("out",))) == (A100, nebius)
    ordered = task(alternatives=others, fetch=("out",))["resources"]["ordered"]
    assert [one["infra"] for one in ordered] == ["gcp/us-central1", "nebius/eu-north1"]
    assert candidates(job(machine=SPOT, alternatives=(nebius,))) == (SPOT, nebius)
    dear = replace(nebius, price_usd_per_hour=3.68)  # the guard counts by what it is on
    unknown = replace(nebius, price_usd_per_hour=None)
    assert candidates(job(budget_usd=100.0, alternatives=(dear, unknown))) == (A100, dear)
    # the batch in the command is for 40 GB: an L4 has 24
    small = JobMachine(provider="gcp", instance="g2-standard-4", gpu="L4", region="us-central1")
    assert candidates(job(alternatives=(small,))) == (A100,)
    assert candidates(job(machine=small, alternatives=(A100,))) == (small, A100)


def test_names_are_those_of_skypilots_catalogue():
    n1 = JobMachine(provider="gcp", instance="n1-standard-8+2xT4", gpu="T4", gpus=2, region="any")
    assert resources(n1) == {
        "infra": "gcp", "instance_type": "n1-standard-8", "accelerators": "T4:2",
    }  # fmt: skip
    mega = JobMachine(provider="gcp", instance="a3-megagpu-8g", gpu="H100 SXM", gpus=8)
    assert resources(mega)["accelerators"] == "H100-MEGA:8"
    # a host of the marketplace by its own number: not a type of the catalogue
    live = JobMachine(
        provider="vast", instance="host 8213", gpu="RTX 3090", gpus=8, region="US, NA",
        price_usd_per_hour=1.6,
    )  # fmt: skip
    # 1.6 * 1.25 = 2.0
    assert resources(live) == {
        "infra": "vast", "accelerators": "RTX3090:8", "max_hourly_cost": 2.0,
    }  # fmt: skip
    pair = replace(live, provider="azure", gpu="A100 80GB", region="eastus", machines=2, gpus=1)
    # $1.6 is of both: 0.8 * 1.25 = 1.0
    assert resources(pair) == {
        "infra": "azure/eastus", "accelerators": "A100-80GB:1", "max_hourly_cost": 1.0,
    }  # fmt: skip


def test_zones_that_aws_numbers_are_left_to_skypilot():
    spot = JobMachine(provider="aws", region="us-east-1", zone="use1-az4", tenancy="spot")
    assert infra(spot) == "aws/us-east-1"
    assert infra(replace(spot, zone="us-east-1b")) == "aws/us-east-1/us-east-1b"
    assert infra(replace(spot, region="nowhere-9")) == "aws"


def test_a_gpu_that_a_cloud_does_not_list_is_an_error():
    with pytest.raises(LaunchFailed, match="no GB300 at lambda"):
        resources(JobMachine(provider="lambda", gpu="GB300"))


def test_every_bundled_offer_can_be_asked_for_or_is_refused():
    asked, refused = 0, set()
    for offer in snapshot_offers():
        for tenancy in offer.tenancies:
            machine = JobMachine(
                provider=offer.provider, instance=offer.instance, gpu=offer.gpu, gpus=offer.gpus,
                region=offer.region, tenancy=tenancy, price_usd_per_hour=offer.hourly_usd(tenancy),
            )  # fmt: skip
            if not is_rentable(machine):
                refused.add(offer.provider)
                continue
            given = resources(machine)
            by_gpu = resources(replace(machine, instance="not in the catalogue"))
            assert given["infra"].split("/")[0] == offer.provider
            assert ("instance_type" in given) == (offer.provider != "shadeform")
            assert by_gpu["accelerators"].endswith(f":{offer.gpus}")
            asked += 1
    assert asked > 3_000
    # some offers of aws are in local zones, some of lambda and others are spot, which it lacks
    assert {"hyperstack", "ovhcloud", "scaleway", "aws"} <= refused


def test_local_zones_of_aws_are_refused():
    zone = JobMachine(provider="aws", instance="g4dn.xlarge", gpu="T4", region="us-west-2-lax-1")
    with pytest.raises(LaunchFailed, match="local zone of aws"):
        task_yaml(job(machine=zone))
    for region in ("us-west-2", "ap-southeast-3", "us-gov-west-1", "any"):
        assert is_rentable(replace(zone, region=region))


def test_every_provider_of_the_catalogue_is_known_or_refused():
    assert {"aws", "gcp", "azure", "lambda", "runpod", "vast", "nebius"} <= set(clouds())
    assert not {"hyperstack", "ovhcloud", "scaleway", "coreweave", "colab"} & set(clouds())


# The script, really run


def script_run(job, home, workdir, **variables):
    """The task's `run` as SkyPilot runs it: by bash, in the folder that was sent."""
    read = yaml.safe_load(task_yaml(job))
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    return subprocess.run(
        ["bash", "-c", read["run"]],
        cwd=workdir, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def test_the_script_runs_once_and_keeps_its_log(tmp_path):
    work = tmp_path / "sky_workdir"
    (work / ".outlay-run").mkdir(parents=True)
    (work / ".outlay-run" / JOB).write_text("{}")
    small = job(command="echo hello $OUTLAY_NODE_RANK $OUTLAY_HEAD_ADDRESS; pwd -P; exit 7")
    done = script_run(small, tmp_path / "home", work, SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2")
    run = tmp_path / "home" / ".outlay" / "runs" / "small-1a2b3c"
    assert done.returncode == 7
    assert done.stdout == f"hello 0 10.0.0.1\n{work}\n"
    assert (run / "log").read_text() == done.stdout
    assert (run / "exit").read_text() == "7\n"
    assert (run / JOB).read_text() == "{}"
    again = script_run(small, tmp_path / "home", work)
    assert again.returncode == 0
    assert again.stdout == "outlay: this run was started before.\n"
    assert (run / "exit").read_text() == "7\n"


def test_a_run_is_seen_and_ended_while_it_runs(tmp_path, monkeypatch):
    work = tmp_path / "sky_workdir"
    work.mkdir()
    small = job(command="echo on; sleep 60")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OUTLAY_RUNS", raising=False)
    (tmp_path / "home").mkdir()
    # as SkyPilot starts it: a file of another name, in a session of its own
    (tmp_path / "sky_app_1").write_text(yaml.safe_load(task_yaml(small))["run"])
    with subprocess.Popen(
        ["bash", "-i", tmp_path / "sky_app_1"],
        cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        folder = RunFolder(HereShell(), small.id)
        ends_s = time.monotonic() + 20
        while folder.state().phase != "training" and time.monotonic() < ends_s:
            time.sleep(0.05)
        assert engine_state(folder.state()).state == "running"
        HostEngine(HereShell(), name="ssh").stop(small, "", grace_s=10)
        assert process.wait(timeout=20) != 0
    assert engine_state(folder.state()).state == "stopped"
    assert folder.read("log").startswith(b"on\n")


def test_the_next_machine_goes_on_from_the_bucket(tmp_path):
    spot = job(
        machine=SPOT,
        checkpoints="a/my ckpt",
        fetch=("out/*.txt", "it's; touch evil"),
        command='echo first > "$OUTLAY_CHECKPOINTS/last"; exit 1',
        resume='cat "$OUTLAY_CHECKPOINTS/last"; mkdir out; echo 1 > out/a.txt; echo 2 > out/b.bin',
    )
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "home").mkdir(parents=True)
        (tmp_path / name / "work").mkdir()
        (tmp_path / name / "home" / "outlay-bucket").symlink_to(bucket)
    (tmp_path / "one" / "work" / "a" / "my ckpt").mkdir(parents=True)
    # the first machine has none yet, for an empty folder is sent
    first = script_run(spot, tmp_path / "one" / "home", tmp_path / "one" / "work")
    assert first.returncode == 1
    assert (bucket / "checkpoints" / "last").read_text() == "first\n"
    second = script_run(spot, tmp_path / "two" / "home", tmp_path / "two" / "work")
    assert (second.returncode, second.stdout) == (0, "first\n")
    assert (bucket / "results" / "out" / "a.txt").read_text() == "1\n"
    assert not (bucket / "results" / "out" / "b.bin").exists()
    assert (bucket / "exit").read_text() == "0\n"
    assert not list(tmp_path.rglob("evil"))


# By the sky command


class FakeSky:
    """The folder of a fake `sky`: what there is, what was called, what fails."""

    def __init__(self, folder):
        self.folder = folder
        self.change(clusters={}, jobs={}, managed=[], requests=[], enabled=["GCP", "Lambda"])

    def change(self, **values):
        path = self.folder / "state.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **values}))

    @property
    def state(self):
        return json.loads((self.folder / "state.json").read_text())

    @property
    def calls(self):
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def called(self, *start):
        return [one for one in self.calls if tuple(one["words"][: len(start)]) == start]

    def fail(self, start, **how):
        (self.folder / "fault.json").write_text(json.dumps({start: how}))

    def mend(self):
        (self.folder / "fault.json").unlink()


@pytest.fixture
def sky(tmp_path, monkeypatch):
    folder = tmp_path / "sky"
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "sky"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SKY", str(folder))
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "runs"))
    return FakeSky(folder)


@pytest.fixture
def engine():
    return SkyPilotEngine(reach=lambda _: HereShell(), pause=lambda _: None)


NAME = "outlay-small-1a2b3c"


def submit(engine, job, secrets=None):
    return engine.submit(job, engine.render(job), secrets or {})


def test_submitting_twice_launches_once(sky, engine):
    assert engine.find(job()) is None
    assert submit(engine, job()) == NAME
    assert submit(engine, job()) == NAME
    assert engine.find(job()) == NAME
    [launch] = sky.called("launch")
    assert launch["words"][:5] == ["launch", "-c", NAME, "--yes", "--detach-run"]
    assert launch["variables"]["SKYPILOT_DISABLE_USAGE_COLLECTION"] == "1"


def test_what_is_sent_is_laid_ready_without_what_is_excluded(sky, engine, tmp_path, own_folder):
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "big").write_text("x")
    (project / "train.sh").write_text("true")
    (project / ".gitignore").write_text("train.sh")
    (tmp_path / "extra.txt").write_text("e")
    small = job(folder=str(project), exclude=("data",), send=("../extra.txt",), outlay="")
    submit(engine, small)
    [launch] = sky.called("launch")
    sent = Path(launch["words"][launch["words"].index("--workdir") + 1])
    assert own_folder in sent.parents
    names = {path.relative_to(sent).as_posix() for path in sent.rglob("*") if path.is_file()}
    wheel = next(name for name in names if name.endswith(".whl"))
    assert names == {
        "train.sh", ".gitignore", "extra.txt", ".skyignore", ".outlay-run/job.json", wheel,
    }  # fmt: skip
    kept = Path(launch["words"][-1])
    assert kept.read_text() == task_yaml(small)
    engine.delete(small, NAME)
    assert not sent.exists()


def test_secrets_go_by_name(sky, engine, own_folder):
    passing = job(pass_on=("HF_TOKEN",))
    submit(engine, passing, {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"})
    [launch] = sky.called("launch")
    assert "HF_TOKEN" in launch["words"]
    assert launch["variables"]["HF_TOKEN"] == "hf_abcdefghijklmnopqrstuvwxyz"
    assert not any("hf_abc" in " ".join(one["words"]) for one in sky.calls)
    # SkyPilot's server outlives us: what starts it must not have them
    others = [one for one in sky.calls if one["words"][0] != "launch"]
    assert others
    assert not any("HF_TOKEN" in one["variables"] for one in others)
    files = [path for path in own_folder.rglob("*") if path.is_file()]
    assert files
    assert not any(b"hf_abc" in path.read_bytes() for path in files)


def test_a_launch_that_fails_gives_its_machine_back_and_says_why(sky, engine):
    passing = job(pass_on=("HF_TOKEN",))
    # the cluster came up, and no job was put into its queue
    fake = {"name": NAME, "status": "UP", "cloud": "GCP", "region": "us-central1"}
    sky.change(clusters={NAME: fake})
    sky.fail("launch", error="\x1b[31mrsync error, TOKEN=hf_abcdefghijklmnopqrstuvwxyz")
    with pytest.raises(LaunchFailed) as caught:
        submit(engine, passing, {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"})
    assert "hf_abc" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "install it here" in caught.value.fix
    assert sky.state["clusters"] == {}


def test_a_launch_that_fails_after_the_job_was_started_is_a_launch(sky, engine):
    sky.fail("launch", after=True, error="connection lost")
    assert submit(engine, job()) == NAME
    assert sky.called("down") == []


def test_a_machine_without_a_job_is_taken_by_the_next_submission(sky, engine):
    sky.change(clusters={NAME: {"name": NAME, "status": "INIT"}})
    assert engine.find(job()) is None
    assert submit(engine, job()) == NAME
    assert len(sky.called("launch")) == 1


def test_a_launch_that_is_still_going_on_is_not_repeated(sky, engine):
    request = {
        "request_id": "r1", "name": "sky.launch", "status": "RUNNING", "cluster_name": NAME,
    }  # fmt: skip
    sky.change(requests=[{**request, "cluster_name": "other"}])
    assert engine.find(job()) is None
    sky.change(requests=[request])
    assert submit(engine, job()) == NAME
    assert sky.called("launch") == []
    assert engine.state(job(), NAME).state == "queued"
    engine.stop(job(), NAME, grace_s=0)
    assert sky.called("api", "cancel")[0]["words"][-1] == "r1"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "sky.exceptions.NoCloudAccessError: Cloud access is not set up. Run: sky check",
            "sky check",
        ),
        ("sky.exceptions.ResourcesUnavailableError: Failed to provision all", "try again later"),
        ("Catalog does not contain any instances satisfying the request", "outlay prices refresh"),
        ("something nobody has seen", "nothing is started twice"),
    ],
)
def test_failures_say_what_to_do(sky, engine, error, words):
    sky.fail("launch", error=error)
    with pytest.raises(LaunchFailed) as caught:
        submit(engine, job())
    assert error in caught.value.why
    assert words in caught.value.fix


def test_without_sky_the_extra_is_named(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert task_yaml(job())
    for act in (
        lambda: engine.check(job()),
        lambda: engine.find(job()),
        lambda: submit(engine, job()),
        lambda: engine.state(job(), NAME),
        lambda: engine.delete(job(), NAME),
    ):
        with pytest.raises(ExtraMissing, match=re.escape(pip_command("skypilot"))):
            act()


@pytest.mark.parametrize(
    "fault",
    [
        {"exit": 1, "error": "API server is not reachable"},
        {"exit": 0, "output": '[{"name": "outlay-sm'},
        {"exit": 0, "output": "no JSON at all"},
    ],
)
def test_a_question_is_asked_twice_then_the_message_is_clear(sky, engine, fault):
    sky.fail("status", times=1, **fault)
    assert engine.find(job()) is None
    sky.fail("status", times=9, **fault)
    with pytest.raises(LaunchFailed, match="SkyPilot could not be asked: sky status") as caught:
        submit(engine, job())
    assert "sky api status" in caught.value.fix
    assert sky.called("launch") == []


def test_a_question_that_nobody_answers_ends(sky, engine, monkeypatch):
    monkeypatch.setattr("outlay.run.skypilot.ASK_S", 0.2)
    sky.fail("status", sleep=20, times=9)
    with pytest.raises(LaunchFailed, match="has not answered"):
        engine.find(job())


def test_a_cloud_that_is_not_set_up_is_found_before_anything_is_submitted(sky, engine):
    engine.check(job())
    sky.change(enabled=["AWS"])
    with pytest.raises(LaunchFailed, match="no access to gcp") as caught:
        engine.check(job())
    assert "sky check gcp" in caught.value.fix


def test_a_state_is_what_the_runs_folder_says(sky, engine, tmp_path):
    submit(engine, job())
    assert engine.state(job(), NAME).state == "running"  # by SkyPilot's queue
    run = tmp_path / "runs" / "small-1a2b3c"
    (run / "started").mkdir(parents=True)
    (run / "exit").write_text("3\n")
    found = engine.state(job(), NAME)
    assert (found.state, found.exit_status) == ("failed", 3)
    assert found.held_since_s == 1794892647
    assert found.place == ""  # where it was asked for


def test_a_failover_tells_its_place_and_price(sky, engine):
    other = replace(A100, provider="nebius", region="eu-north1", price_usd_per_hour=2.5)
    both = job(alternatives=(other,))
    record = {"status": "UP", "cloud": "Nebius", "region": "eu-north1", "launched_at": 5}
    found = cluster_state(both, record, is_launching=False)
    assert (found.place, found.price_usd_per_hour) == ("nebius/eu-north1", 2.5)
    unknown = cluster_state(both, {**record, "cloud": "AWS"}, is_launching=False)
    assert (unknown.place, unknown.price_usd_per_hour) == ("aws/eu-north1", None)


@pytest.mark.parametrize(
    ("record", "kind", "state"),
    [
        ({"status": "INIT", "init_kind": "launching"}, "run", "queued"),
        ({"status": "INIT", "init_kind": "unhealthy"}, "run", "lost"),
        ({"status": "STOPPED"}, "run", "lost"),
        ({"status": "STOPPED"}, "interactive", "stopped"),
        ({"status": "UP"}, "interactive", "running"),
    ],
)
def test_states_of_a_cluster(record, kind, state):
    found = cluster_state(job(kind=kind), record, is_launching=False)
    assert found.state == state
    assert found.reason or state in ("queued", "running")


def test_states_of_jobs():
    assert job_state({"status": "SETTING_UP"}).phase == "set-up"
    assert job_state({"status": "SUCCEEDED", "end_at": 9.0}).exit_status == 0
    assert job_state({"status": "FAILED_SETUP"}).reason == "failed setup"
    recovering = managed_state({"status": "RECOVERING", "start_at": 5.0, "end_at": None})
    assert recovering.state == "queued"
    assert "taken away" in recovering.reason
    assert recovering.held_since_s == 5.0
    failed = managed_state({"status": "FAILED", "failure_reason": "exit 1", "end_at": 8.0})
    assert (failed.state, failed.reason, failed.ended_s) == ("failed", "exit 1", 8.0)
    # a status that a newer SkyPilot may have is no end
    assert managed_state({"status": "NEW_ONE"}).state == "running"
    assert job_state({"status": "NEW_ONE"}).state == "running"


def test_stopping_keeps_log_and_results_then_gives_the_machine_back(sky, engine, tmp_path):
    small = job(fetch=("out",))
    submit(engine, small)
    run = tmp_path / "runs" / "small-1a2b3c"
    (run / "work" / "out").mkdir(parents=True)
    (run / "work" / "out" / "model").write_text("m")
    (run / "started").mkdir()
    (run / "pid").write_text("4194999\n")  # of nobody
    (run / "log").write_text("one\ntwo\n")
    assert engine.logs(small, NAME, 4) == b"two\n"
    engine.stop(small, NAME, grace_s=0.1)
    assert sky.state["clusters"] == {}
    assert engine.state(small, NAME).state == "stopped"
    RunFolder(HereShell(), small.id).remove()  # the disk is gone
    assert engine.logs(small, NAME, 4) == b"two\n"
    to = tmp_path / "here"
    assert engine.fetch(small, NAME, to) == [to / "out" / "model"]
    assert (to / "out" / "model").read_text() == "m"
    engine.delete(small, NAME)
    assert engine.state(small, NAME).state == "lost"


def test_a_machine_that_cannot_be_reached_is_given_back_all_the_same(sky, tmp_path):
    class NoWay:
        name = "gone"

        def run(self, *arguments, **options):
            raise LaunchFailed("no way")

    engine = SkyPilotEngine(reach=lambda _: NoWay(), pause=lambda _: None)
    submit(engine, job())
    assert engine.state(job(), NAME).state == "running"
    engine.stop(job(), NAME, grace_s=0.1)
    assert sky.state["clusters"] == {}


def test_an_interactive_machine_is_stopped_with_its_disk_and_deleted_later(sky, engine):
    afternoon = job(kind="interactive", command="")
    submit(engine, afternoon)
    assert keeps_disk(afternoon)
    engine.stop(afternoon, NAME, grace_s=0)
    assert sky.state["clusters"][NAME]["status"] == "STOPPED"
    assert engine.state(afternoon, NAME).state == "stopped"
    engine.delete(afternoon, NAME)
    assert sky.state["clusters"] == {}


def test_a_machine_that_could_not_be_deleted_is_not_passed_over(sky, engine):
    submit(engine, job())
    sky.fail("down", error="403 forbidden")
    with pytest.raises(LaunchFailed, match="sky down of run small-1a2b3c") as caught:
        engine.delete(job(), NAME)
    assert "may still cost money" in caught.value.fix


def test_results_of_a_stopped_machine_are_fetched_by_starting_it(sky, engine, tmp_path):
    small = job(fetch=("out",))
    submit(engine, small)
    state = sky.state["clusters"]
    state[NAME]["status"] = "STOPPED"
    sky.change(clusters=state)
    (tmp_path / "runs" / "small-1a2b3c" / "work").mkdir(parents=True)
    (tmp_path / "runs" / "small-1a2b3c" / "work" / "out").write_text("o")
    assert [path.name for path in engine.fetch(small, NAME, tmp_path / "here")] == ["out"]
    [start] = sky.called("start")
    assert start["words"] == ["start", "--yes", "--idle-minutes-to-autostop", "10", NAME]


# Managed jobs

MANAGED = job(machine=SPOT, checkpoints="ckpt")


def test_a_managed_job_is_submitted_once(sky, engine):
    assert engine.find(MANAGED) is None
    assert submit(engine, MANAGED) == NAME
    assert submit(engine, MANAGED) == NAME
    [launch] = sky.called("jobs", "launch")
    assert launch["words"][:4] == ["jobs", "launch", "-n", NAME]
    assert engine.state(MANAGED, NAME).state == "queued"


def test_a_managed_job_that_is_being_submitted_is_waited_for(sky, tmp_path):
    request = {"request_id": "r", "name": "sky.jobs.launch", "status": "RUNNING"}
    sky.change(requests=[request])
    waits = []

    def pause(seconds):
        waits.append(seconds)
        row = {"job_id": 3, "job_name": NAME, "status": "PENDING"}
        sky.change(requests=[], managed=[row])

    engine = SkyPilotEngine(pause=pause)
    assert submit(engine, MANAGED) == NAME
    assert len(waits) == 1
    assert sky.called("jobs", "launch") == []


def test_a_submission_that_never_ends_is_not_doubled(sky, engine, monkeypatch):
    monkeypatch.setattr("outlay.run.skypilot._MOST_POLLS", 2)
    sky.change(requests=[{"request_id": "r", "name": "sky.jobs.launch", "status": "RUNNING"}])
    with pytest.raises(LaunchFailed, match="may be it"):
        submit(engine, MANAGED)
    assert sky.called("jobs", "launch") == []


def test_a_managed_job_is_cancelled_once_and_its_lines_are_its_log(sky, engine):
    submit(engine, MANAGED)
    assert engine.logs(MANAGED, NAME) == b"step 1\nstep 2\n"
    assert engine.logs(MANAGED, NAME, 7) == b"step 2\n"
    engine.stop(MANAGED, NAME, grace_s=0)
    assert engine.state(MANAGED, NAME).reason == "cancelling"
    sky.change(managed=[{"job_id": 1, "job_name": NAME, "status": "CANCELLED"}])
    engine.stop(MANAGED, NAME, grace_s=0)
    assert len(sky.called("jobs", "cancel")) == 1
    assert engine.state(MANAGED, NAME).state == "stopped"


def test_what_a_finished_managed_job_came_to_is_asked_of_its_stopped_controller(sky, engine):
    row = {"job_id": 1, "job_name": NAME, "status": "SUCCEEDED"}
    sky.change(managed=[row])
    sky.fail("jobs queue", times=1, error="ClusterNotUpError: No in-progress managed jobs.")
    assert engine.state(MANAGED, NAME).state == "done"
    assert sky.called("jobs", "queue")[1]["words"][-1] == "--refresh"


def test_results_of_a_managed_job_are_in_its_bucket(sky, engine, tmp_path, monkeypatch):
    with pytest.raises(LaunchFailed, match=f"the bucket {NAME}"):
        engine.fetch(MANAGED, NAME, tmp_path)
    aws = tmp_path / "sky" / "bin" / "aws"
    aws.write_text('#!/bin/sh\necho "$@" > "$5/was-called"\n')
    aws.chmod(0o755)
    own = replace(MANAGED, skypilot=SkyPilotSettings(bucket="s3://mine"))
    [came] = engine.fetch(own, NAME, tmp_path / "here")
    place = "s3://mine/small-1a2b3c/results"
    assert came.read_text() == f"s3 cp --recursive {place} {tmp_path / 'here'}\n"
    with pytest.raises(LaunchFailed, match="it had no bucket"):
        engine.fetch(job(fetch=("out",)), NAME, tmp_path)


def test_lines_of_several_machines_are_those_of_the_job():
    raw = (
        b"\x1b[2m\xe2\x94\x94\xe2\x94\x80\xe2\x94\x80 Job started\x1b[0m\n"
        b"(head, rank=0, pid=7) loss 1\n(worker1, rank=1, pid=8, ip=10.0.0.2) (x) loss 2\n"
        b"(setup pid=9) pip\nShared connection closed\n"
    )
    assert job_lines(raw) == b"loss 1\n(x) loss 2\npip\n"
