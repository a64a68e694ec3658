"""Commands as lines of shell: figures filled in, torchrun where several GPUs need it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.errors import InputError
from outlay.files import json_text
from outlay.run.job import (
    Job,
    JobMachine,
    command_line,
    has_batch,
    is_one_process,
    job_from_json,
    machine_got,
    new_id,
)
from outlay.uncertainty import Estimate

ONE = JobMachine(gpu="RTX 3090", gpus=1)
EIGHT = JobMachine(gpu="RTX 3090", gpus=8)
TWO_MACHINES = JobMachine(gpu="A100 80GB", gpus=4, machines=2)
TORCHRUN = "torchrun --standalone --nproc-per-node 8"
AS_MODULE = "-m torch.distributed.run --standalone --nproc-per-node 8"


def line(command, machine=ONE, **given):
    return command_line(command, machine, **{"batch_size": 32, **given})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", f"{TORCHRUN} train.py"),
        ("python train.py --batch-size {batch}", f"{TORCHRUN} train.py --batch-size 32"),
        ("python -m pkg.train --x 1", f"{TORCHRUN} -m pkg.train --x 1"),
        ("python3 train.py", f"python3 {AS_MODULE} train.py"),
        ("python3.11 train.py", f"python3.11 {AS_MODULE} train.py"),
        ("/opt/env/bin/python train.py", f"/opt/env/bin/python {AS_MODULE} train.py"),
        ("python -u train.py", f"python -u {AS_MODULE} train.py"),
        ("python -W ignore -X dev -O t.py -u", f"python -W ignore -X dev -O {AS_MODULE} t.py -u"),
        ("A=1 B='x y' python train.py", f"A=1 B='x y' {TORCHRUN} train.py"),
        ("python train.py > log 2>&1", f"{TORCHRUN} train.py > log 2>&1"),
        ("python train.py | tee log", f"{TORCHRUN} train.py | tee log"),
        ("python train.py --x 'a;b&&c'", f"{TORCHRUN} train.py --x 'a;b&&c'"),
        ('python train.py --x "a;b"', f'{TORCHRUN} train.py --x "a;b"'),
        ("cd src && {python} train.py", f"cd src && {TORCHRUN} train.py"),
        ("nice {python} -m pkg", f"nice {TORCHRUN} -m pkg"),
    ],
)
def test_python_on_eight_gpus_is_started_by_torchrun(command, expected):
    assert line(command, EIGHT) == expected


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 8 train.py",
        "accelerate launch train.py",
        "deepspeed train.py",
        "python -m torch.distributed.run --nproc-per-node 8 train.py",
        "python -m torch.distributed.launch train.py",
        "python -m accelerate.commands.launch train.py",
        "python -m deepspeed.launcher.runner train.py",
        "mpirun -n 8 python train.py",
        "cd src && python train.py",
        "python prepare.py; python train.py",
        "python prepare.py && python train.py",
        "python a.py\npython b.py",
        "(python train.py)",
        "python train.py $(cat options)",
        "python -c 'import train'",
        "python -",
        "python",
        "pythonic train.py",
        "./train.sh",
        "bash -c 'python train.py'",
        "'python train.py",
    ],
)
def test_other_commands_are_left_alone(command):
    assert line(command, EIGHT) == command


@pytest.mark.parametrize("command", ["cd src && python train.py", "./train.sh", "python -c 'x'"])
def test_torchrun_that_is_asked_for_and_cannot_be_put_in_is_refused(command):
    with pytest.raises(InputError, match="torchrun cannot be put into") as caught:
        line(command, EIGHT, processes="torchrun")
    assert "{python}" in caught.value.fix


def test_one_gpu_needs_no_torchrun():
    assert line("python train.py") == "python train.py"
    assert line("cd x && {python} train.py") == "cd x && python train.py"
    asked = line("python train.py", processes="torchrun")
    assert asked == "torchrun --standalone --nproc-per-node 1 train.py"


def test_one_process_can_be_asked_for():
    assert line("python train.py", EIGHT, processes="one") == "python train.py"


def test_two_machines_meet_at_the_head():
    assert line("python train.py", TWO_MACHINES) == (
        "torchrun --nnodes 2 --nproc-per-node 4"
        ' --node-rank "$OUTLAY_NODE_RANK" --master-addr "$OUTLAY_HEAD_ADDRESS"'
        ' --master-port "${OUTLAY_HEAD_PORT:-29500}" train.py'
    )


def test_figures_are_filled_in():
    text = line("./x {batch} {gpus} {machines} {checkpoints}", TWO_MACHINES, checkpoints="out/c")
    assert text == "./x 32 4 2 out/c"
    listed = line(("./x", "--b={batch}", "{gpus}", "a b"), TWO_MACHINES)
    assert listed == "./x --b=32 4 'a b'"


def test_a_search_keeps_the_place_of_the_batch():
    assert line("./x {batch} {gpus}", keep_batch=True) == "./x {batch} 1"


@pytest.mark.parametrize(
    "command",
    [
        "./x ${HOME} ${batch} ${gpus}",
        """./x --json '{"a": {"b": 1}, "c": []}'""",
        "./x {1..5} {a,b} {}",
        "awk '{print}' x | awk '{ print $1 }'",
        """python -c "print(f'{value:.3f}')" """,
        "find . -exec rm {} +",
        "f() { echo; }; f",
    ],
)
def test_braces_that_are_not_ours_stay(command):
    assert line(command) == command


@pytest.mark.parametrize(
    ("word", "meant"),
    [("bath", "batch"), ("batch_size", "batch"), ("Batch", "batch"), ("gpu", "gpus"),
     ("num_gpus", "gpus"), ("machine", "machines"), ("checkpoint", "checkpoints")],
)  # fmt: skip
def test_a_place_that_is_nearly_one_is_named(word, meant):
    for command in (f"./x {{{word}}}", ("./x", f"--y={{{word}}}")):
        with pytest.raises(InputError) as caught:
            line(command)
        assert f"{{{word}}}" in caught.value.what
        assert f"{{{meant}}}" in caught.value.why


def test_a_figure_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="batch_size"):
        line("./x {batch}", batch_size=None)
    with pytest.raises(InputError, match=r"run\.checkpoints"):
        line("./x {checkpoints}")


@pytest.mark.parametrize("path", ["$(touch PWNED)", "a'b", "a b", "a;b", "a\nb", "`x`", 'a"b'])
@pytest.mark.parametrize("command", ["./x {checkpoints}", ("./x", "--o={checkpoints}")])
def test_a_path_that_is_more_than_a_word_gets_into_no_command(path, command):
    with pytest.raises(InputError, match=r"run\.checkpoints"):
        line(command, checkpoints=path)


def run_here(text):
    """The arguments that a line of shell gives to a program."""
    script = f"show() {{ for word; do printf '%s\\0' \"$word\"; done; }}\n{text}\n"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=20)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ODD = st.sampled_from(["", "'", '"', "$(touch PWNED)", "a\nb", "-n", "*", "~", "\\", ";", "#", "!"])


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS | ODD, max_size=6))
def test_any_list_of_arguments_arrives_exactly(words):
    try:
        text = line(("show", *words))
    except InputError:  # a name in braces that is nearly one of ours
        assert any("{" in word for word in words)
        return
    assert run_here(text) == [word.replace("{gpus}", "1") for word in words]


def test_has_batch_and_is_one_process():
    assert has_batch("./x {batch}")
    assert has_batch(("./x", "--b={batch}"))
    assert not has_batch("./x ${batch}")
    assert is_one_process("cd x && python train.py")
    assert not is_one_process("cd x && torchrun train.py")
    assert not is_one_process("python -m torch.distributed.run t.py")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("my training run", "my-training-run"),
        ("StyleNAT 256!", "stylenat-256"),
        ("3d", "r3d"),
        ("$(touch PWNED)", "touch-pwned"),
        ("", "run"),
        ("..", "run"),
        ("日本", "run"),
        ("a" * 50, "a" * 24),
    ],
)
def test_ids_are_plain_words_that_no_other_run_has(name, stem):
    first, second = new_id(name), new_id(name)
    assert first != second
    assert first.rpartition("-")[0] == stem
    assert len(first) <= 32
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_a_job_comes_back_from_its_json():
    import json

    job = Job(
        id="a-123456", name="a", engine="ssh", command="x", machine=EIGHT,
        environment=(("A", "'\n$"),), cost_usd=Estimate(low=1.0, likely=2.0, high=3.0),
        alternatives=(ONE,),
    )  # fmt: skip
    assert job_from_json(json.loads(json_text(job))) == job
    with pytest.raises(ValueError, match="id"):
        job_from_json({"name": "a"})


GOT = (
    JobMachine(provider="gcp", region="us-central1", price_usd_per_hour=1.0),
    JobMachine(provider="gcp", region="us-east1", price_usd_per_hour=1.5),
    JobMachine(provider="lambda", region="us-west-1", price_usd_per_hour=2.0),
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{"cloud": "GCP", "region": "us-central1", "zone": "a"}', 0),
        ('{"cloud": "GCP", "region": "us-east1"}', 1),
        ('{"cloud": "Lambda", "region": "us-west-1"}', 2),
        ('{"cloud": "GCP", "region": "europe-west4"}', 1),  # the dearer of both at gcp
        ('{"cloud": "AWS", "region": "us-east-1"}', 2),  # none of them: the dearest
        ("", 2),
        ("{", 2),
        ("[]", 2),
    ],
)
def test_the_machine_after_a_fail_over_is_the_one_that_skypilot_names(told, expected):
    job = Job(
        id="a-123456", name="a", engine="skypilot", command="a",
        machine=GOT[0], alternatives=GOT[1:],
    )  # fmt: skip
    assert machine_got(job, {"SKYPILOT_CLUSTER_INFO": told}) == GOT[expected]
    assert machine_got(replace(job, alternatives=()), {}) == GOT[0]
