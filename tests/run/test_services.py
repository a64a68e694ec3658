from __future__ import annotations

import subprocess
import time

import pytest
from tests.run.services import PrivateSlurm, PrivateSshd, processes_with, wait_for


@pytest.mark.service("sshd")
def test_sshd_runs_commands_in_its_own_home_and_refuses_a_wrong_host_key(sshd: PrivateSshd):
    ssh = ["ssh", "-F", str(sshd.config), "-o", "BatchMode=yes"]

    answer = subprocess.run([*ssh, sshd.host, "pwd; command -v outlay"], capture_output=True)
    refused = subprocess.run([*ssh, sshd.imposter, "true"], capture_output=True, text=True)

    assert answer.stdout.decode().split() == [str(sshd.home), str(sshd.bin / "outlay")]
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


@pytest.mark.service("slurm")
def test_slurm_gives_a_job_the_gpu_type_it_asks_for(slurm: PrivateSlurm):
    line = slurm.command(
        "sbatch", "--parsable", "--gpus=rtx3090:1", f"--output={slurm.folder}/out",
        "--wrap=echo $CUDA_VISIBLE_DEVICES; command -v outlay",
    )  # fmt: skip
    job = line.strip()
    out = slurm.folder / "out"
    wait_for(lambda: out.exists() and len(out.read_text().split()) == 2)

    assert slurm.jobs() == [job]
    # The RTX 3090 is the second device of the node (/dev/tty1), hence index 1.
    assert out.read_text().split() == ["1", str(slurm.bin / "outlay")]


@pytest.mark.service("slurm")
def test_slurm_stops_with_all_its_jobs(tmp_path):
    before = time.monotonic()
    cluster = PrivateSlurm(tmp_path)
    started_s = time.monotonic() - before
    cluster.command("sbatch", f"--output={tmp_path}/out", "--wrap=echo up; sleep 600")
    wait_for(lambda: (tmp_path / "out").exists())

    cluster.stop()

    assert not list(processes_with(str(tmp_path)))
    assert started_s < 30
