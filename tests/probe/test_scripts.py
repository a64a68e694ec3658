"""Real scripts under `outlay probe`: what it says of them against what they do by themselves.

The script's own mean is over the very steps that outlay counted, so that a busy machine slows both
alike; what is left is the time between two readings of a clock, some microseconds of 8000.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest
from tests.probe.probed import (
    OUTLAY,
    PYTHON,
    SCRIPTS,
    Probed,
    at_a_terminal,
    environment,
    probe,
    probe_script,
)
from tests.probe.scripts.own_clock import STEP_S

from outlay.trace.profile import Profile, value_at

pytestmark = pytest.mark.torch
TOGETHER = 0.02
"""How far outlay's mean may be from the script's own: a clock read 100 us late at both ends of 40
steps of 8 ms is 0.03 %; the rest is for a machine that takes the CPU away in between."""


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def stopped(probed: Probed) -> None:
    """That outlay stopped it, as it should, after the steps asked for."""
    assert (probed.code, probed.measurement.ending, probed.measurement.status) == (0, "stopped", 0)
    assert probed.measurement.steps_seen >= 40
    assert probed.measurement.device == "cpu"


def timed(probed: Probed, sleep_s: float = STEP_S, *, each: int = 1) -> None:
    """That the mean is the script's own, and no less than it sleeps."""
    assert probed.step.mean_s == pytest.approx(probed.own_mean_s(each=each), rel=TOGETHER)
    assert probed.step.mean_s > sleep_s
    assert probed.step.low_s <= probed.step.mean_s <= probed.step.high_s


def matrix_flops(profile: Profile | None, batch_size: int) -> dict[str, float]:
    """FLOPs of the matrix products in a step, by phase."""
    assert profile is not None
    measurement: dict[str, float] = {}
    for op in profile.ops:
        if op.name in ("aten.addmm", "aten.mm"):
            flops = value_at(op.flops, batch_size) * op.count
            measurement[op.phase] = measurement.get(op.phase, 0.0) + flops
    return measurement


STEPS = ("--steps", 40)
PLAINLY = (*STEPS, "--no-operations")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return probe_script(tmp_path_factory.mktemp("plain"), "plain.py", options=STEPS)


def test_a_plain_loop(plain):
    stopped(plain)
    timed(plain)
    measurement = plain.measurement
    assert [
        (optimizer.name, optimizer.parameters, optimizer.per_step)
        for optimizer in measurement.optimizers
    ] == [("SGD", 32 * 16 + 16, 1.0)]
    assert (measurement.batch_size, measurement.samples_per_step, measurement.passes_per_step) == (
        8,
        8,
        1,
    )
    assert measurement.samples_per_s == pytest.approx(8 / plain.step.mean_s)
    assert (measurement.ranks, measurement.world_size) == (1, 1)
    assert measurement.steps_per_epoch == 80  # 640 samples in batches of 8
    # Weights of 4 bytes each; momentum takes as much again.
    assert measurement.memory.parameters_bytes == 528 * 4
    assert measurement.memory.optimizer_bytes == 528 * 4
    assert measurement.versions["torch"].startswith("2.")
    assert measurement.is_compiled is False


def test_what_is_frozen_is_not_what_grows_with_the_batch(tmp_path):
    measurement = probe_script(tmp_path, "adapters.py", options=STEPS)
    memory = measurement.measurement.memory
    assert memory.parameters_bytes == (128 * 4 + 4) * 4
    # A layer of 64 to 128 of 4 bytes each, and the same in 2 bytes.
    frozen = (64 * 128 + 128) * (4 + 2)
    assert memory.frozen_bytes == frozen
    assert {optimizer.inputs for optimizer in measurement.measurement.profile.memory.values()} == {
        frozen
    }


def test_its_operations(plain):
    # A layer of 32 to 16 on 8 samples is 2 x 8 x 32 x 16 FLOPs forward, and as many again for the
    # gradient of its weights; its input needs none.
    each = 2 * 8 * 32 * 16
    assert matrix_flops(plain.measurement.profile, 8) == {"forward": each, "backward": each}
    assert plain.measurement.profile.parameters == 528
    assert plain.measurement.notes == ()


def test_it_ends_after_the_record_of_one_step(plain):
    """Three steps are left alone, one is recorded, and the script does no more."""
    own = len(plain.own_s())
    # 0.3 s ahead are at most 38 steps of 8 ms.
    assert plain.measurement.steps_seen < own <= plain.measurement.steps_seen + 60


def test_its_report_goes_to_stderr(plain):
    assert plain.out == ""
    assert "a step" in plain.err
    assert "outlay stopped it" in " ".join(plain.err.split())


@pytest.mark.parametrize("workers", [(2, "fork"), (1, "spawn")])
def test_loaders_with_workers(folder, workers):
    probed = probe_script(folder, "lean.py", *workers, options=PLAINLY)
    stopped(probed)
    timed(probed)
    assert probed.measurement.batch_size == 8
    assert probed.measurement.ranks == 1  # its workers train nothing
    assert probed.measurement.profile is None


def test_without_a_loader_the_batch_is_what_a_module_gets(folder):
    """Beside a `sitecustomize` of the user's own, which runs as ever."""
    (folder / "sitecustomize.py").write_text("open('own-sitecustomize', 'a').write('ran ')\n")
    command = ("--", PYTHON, SCRIPTS / "no_loader.py", "clock.json")
    probed = probe(folder, *STEPS, *command, PYTHONPATH=str(folder))
    stopped(probed)
    timed(probed)
    assert probed.measurement.batch_size == 12
    assert probed.measurement.passes_per_step == 1
    assert probed.measurement.steps_per_epoch is None
    # 2 x 12 x (32 x 16 + 16 x 4) forward; backward the same, and the gradient of what lies
    # between the layers, 2 x 12 x 16 x 4.
    first, second = 2 * 12 * 32 * 16, 2 * 12 * 16 * 4
    assert matrix_flops(probed.measurement.profile, 12) == {
        "forward": first + second,
        "backward": first + 2 * second,
    }
    assert (folder / "own-sitecustomize").read_text() == "ran ran "  # outlay's Python, and its


def test_updates_within_a_backward_pass_are_one_step(folder):
    probed = probe_script(folder, "within.py", options=STEPS)
    stopped(probed)
    timed(probed)
    measurement = probed.measurement
    (optimizer,) = measurement.optimizers
    assert (optimizer.name, optimizer.parameters, optimizer.per_step) == (
        "SGD",
        2 * (32 * 32 + 32),
        1,
    )
    # Backward within backward, by which layers compute again, is no pass of its own.
    assert (measurement.passes_per_step, measurement.batch_size, measurement.samples_per_step) == (
        1,
        12,
        12,
    )
    forward = 2 * 2 * 12 * 32 * 32
    assert matrix_flops(measurement.profile, 12) == {
        "forward": forward,
        "recompute": forward,
        "backward": 2 * forward,
    }
    assert not measurement.notes


def test_updates_of_one_group_after_the_other_are_one_step(folder):
    """As ZeRO makes them."""
    probed = probe_script(folder, "in_groups.py", options=STEPS)
    stopped(probed)
    timed(probed)
    (optimizer,) = probed.measurement.optimizers
    both = 32 * 16 + 16 + 16 * 4 + 4
    assert (optimizer.name, optimizer.parameters, optimizer.per_step) == ("Adam", both, 2)
    assert (probed.measurement.passes_per_step, probed.measurement.samples_per_step) == (1, 12)
    assert matrix_flops(probed.measurement.profile, 12)["forward"] == 2 * 12 * (32 * 16 + 16 * 4)


def test_without_an_optimizer_each_backward_pass_is_a_step(folder):
    probed = probe_script(folder, "by_hand.py", options=STEPS)
    assert probed.code == 0
    timed(probed)
    measurement = probed.measurement
    (optimizer,) = measurement.optimizers
    trained = 32 * 16 + 16 * 4 + 4  # a bias is frozen
    assert (optimizer.name, optimizer.parameters, optimizer.per_step) == ("Unseen", trained, 1)
    assert (measurement.passes_per_step, measurement.batch_size, measurement.samples_per_step) == (
        1,
        12,
        12,
    )
    assert matrix_flops(measurement.profile, 12)["forward"] == 2 * 12 * (32 * 16 + 16 * 4)
    (note,) = measurement.notes
    assert "each backward pass counts as a training step" in note


def test_an_optimizer_that_steps_late_counts_all_the_same(folder):
    """Gradients of 80 passes are accumulated: the first 64 look as if there were none."""
    probed = probe_script(folder, "by_hand.py", 80, options=("--steps", 120, "--no-operations"))
    timed(probed)
    measurement = probed.measurement
    assert [(optimizer.name, optimizer.per_step) for optimizer in measurement.optimizers] == [
        ("SGD", 1)
    ]
    assert (measurement.passes_per_step, measurement.samples_per_step) == (80, 80 * 12)
    assert not any("backward pass" in note for note in measurement.notes)


def test_models_that_are_trained_one_after_the_other(folder):
    """Folds of a cross-validation, say: each step of each counts."""
    probed = probe_script(folder, "stages.py", 30, options=("--steps", 85))
    stopped(probed)
    timed(probed)
    assert probed.measurement.samples_per_step == 12
    assert [optimizer.per_step for optimizer in probed.measurement.optimizers][-1] == 1
    (note,) = probed.measurement.notes
    assert "each of their steps counts as a training step" in note


def test_a_gan(folder):
    probed = probe_script(folder, "gan.py", options=PLAINLY)
    stopped(probed)
    timed(probed)
    measurement = probed.measurement
    assert [(optimizer.name, optimizer.per_step) for optimizer in measurement.optimizers] == [
        ("RMSprop", 1),
        ("Adam", 1),
    ]
    assert (measurement.batch_size, measurement.samples_per_step) == (10, 10)


def test_a_gan_with_five_steps_of_its_critic(folder):
    probed = probe_script(folder, "gan.py", 5, options=STEPS)
    stopped(probed)
    timed(probed, 3 * STEP_S)  # half a sleep for each of six
    measurement = probed.measurement
    assert [
        (optimizer.name, optimizer.parameters, optimizer.per_step)
        for optimizer in measurement.optimizers
    ] == [
        ("RMSprop", 33, 5.0),
        ("Adam", 8 * 32 + 32, 1.0),
    ]
    assert (measurement.batch_size, measurement.samples_per_step) == (10, 50)
    # Forward: the generator (8 to 32) six times, the critic (32 to 1) eleven times, on 10 each.
    assert matrix_flops(measurement.profile, 50)["forward"] == 2 * 10 * (6 * 8 * 32 + 11 * 32)


def test_a_gan_whose_generator_steps_twice_in_an_iteration(folder):
    """D D G M S G: counted as one training step, and its epoch by its main loader."""
    probed = probe_script(folder, "turns.py", options=STEPS)
    stopped(probed)
    measurement = probed.measurement
    # Each sleeps 0.2 + 0.2 + 0.1 + 0.5 of what is slept in a step, and is counted once.
    assert probed.step.mean_s > STEP_S
    assert measurement.steps_seen <= len(probed.own_s())
    # D, G, M and S, with a bias each
    parameters = [16 + 1, 20 * 16 + 16, 3 * 4 + 4, 16 * 4 + 4]
    assert [
        (optimizer.name, optimizer.parameters, optimizer.per_step)
        for optimizer in measurement.optimizers
    ] == [("Adam", count, each) for count, each in zip(parameters, (2, 2, 1, 1), strict=True)]
    assert [order.optimizers for order in measurement.optimizer_orders] == [(0, 0, 1, 2, 3, 1)]
    assert measurement.samples_per_step == 8 + 8  # of the main loader and the other
    assert measurement.steps_per_epoch == 480 / 8
    assert any("DataLoaders of 60 and 40 batches" in note for note in measurement.notes)
    assert "Adam (17) twice, Adam (336), Adam (16), Adam (68), Adam (336)" in " ".join(
        probed.err.split()
    )
    # Forward: G four times on eight samples, D twice on each of two, and once on each of two.
    products = 4 * 20 * 16 + 6 * 16 * 1 + 2 * 3 * 4 + 2 * 16 * 4
    assert matrix_flops(measurement.profile, 16)["forward"] == 2 * 8 * products


def test_an_epoch_is_not_that_of_the_loader_it_samples_from(folder):
    probed = probe_script(folder, "sampling.py", options=(*PLAINLY, "--length", "200 epochs"))
    stopped(probed)
    measurement = probed.measurement
    assert measurement.steps_per_epoch == 200 / 8
    assert measurement.total_steps == 200 * 25
    assert measurement.samples_per_step == 8


def test_gradient_accumulation(folder):
    probed = probe_script(folder, "accumulate.py", options=STEPS)
    stopped(probed)
    timed(probed)
    measurement = probed.measurement
    assert (measurement.batch_size, measurement.passes_per_step, measurement.samples_per_step) == (
        6,
        4,
        24,
    )
    assert measurement.steps_per_epoch == pytest.approx(667 / 4)  # 4000 samples in batches of 6
    each = 4 * 2 * 6 * 32 * 16
    assert matrix_flops(measurement.profile, 24) == {"forward": each, "backward": each}


def test_steps_that_a_gradient_scaler_leaves_out(folder):
    probed = probe_script(folder, "accumulate.py", "scaler", options=STEPS)
    stopped(probed)
    timed(probed)  # a step that is left out takes its time, too
    measurement = probed.measurement
    (optimizer,) = measurement.optimizers
    # Each tenth; of those since the last step seen nothing is known yet.
    assert optimizer.skipped == pytest.approx(measurement.steps_seen / 10, abs=1)
    assert (measurement.passes_per_step, measurement.samples_per_step) == (4, 24)
    each = 4 * 2 * 6 * 32 * 16  # also where the recorded step comes after one left out
    assert matrix_flops(measurement.profile, 24) == {"forward": each, "backward": each}


@pytest.mark.parametrize("how", ["eval", "copy"])
def test_evaluations_and_checkpoints_are_told_apart(folder, how):
    options = ("--steps", 62, "--no-operations")
    probed = probe_script(folder, "evaluate.py", "spent.json", how, options=options)
    measurement, own_s = probed.measurement, probed.own_s()
    pauses = {pause.kind: pause for pause in measurement.pauses}
    # where other work holds the machine up, the start of an epoch may count as a pause, too
    assert set(pauses) - {"epoch start"} == {"evaluation", "checkpoint"}
    # In n steps: after each 15th an evaluation, after each 20th a checkpoint, seen at the next;
    # evaluations also in those that the script makes after the timing, to its end.
    assert pauses["evaluation"].times == len(own_s) // 15
    assert pauses["checkpoint"].times == (measurement.steps_seen - 1) // 20
    # How often is told by the steps between them, wherever the probe ended.
    assert (pauses["evaluation"].every_steps, pauses["checkpoint"].every_steps) == (15, 20)
    if (
        max(measurement.steps_seen, len(own_s)) < 75
    ):  # else there were more than the script has summed up
        spent_s = json.loads((folder / "spent.json").read_text())
        for kind in ("evaluation", "checkpoint"):
            # What is above the usual step, which itself may be slower just then.
            assert pauses[kind].total_s == pytest.approx(spent_s[kind], rel=0.3)
    # An evaluation takes 64 ms, a checkpoint 40 ms or more: none of them is in the mean.
    each_s = [later - before for before, later in itertools.pairwise(own_s[:60])]
    usual_s = [s for steps, s in enumerate(each_s, 1) if steps > 3 and steps % 15 and steps % 20]
    assert probed.step.mean_s == pytest.approx(sum(usual_s) / len(usual_s), rel=0.1)
    assert measurement.steps_per_epoch == 100  # not what the evaluation's loader has


def test_compiled_models_and_steps(folder):
    probed = probe_script(folder, "compiled.py", "eager", options=STEPS)
    stopped(probed)
    timed(probed)
    assert [optimizer.name for optimizer in probed.measurement.optimizers] == ["SGD"]
    assert probed.measurement.is_compiled is True
    assert probed.measurement.batch_size == 8
    each = 2 * 8 * 32 * 16
    assert matrix_flops(probed.measurement.profile, 8) == {"forward": each, "backward": each}
    assert "Warning" not in probed.err


def test_a_shell_script_that_runs_a_module_elsewhere(folder):
    probed = probe(folder, *PLAINLY, "--", SCRIPTS / "train.sh", PYTHON, folder / "clock.json")
    stopped(probed)
    timed(probed)
    assert probed.out == f"training in {SCRIPTS}\npython ended with 0\n"
    assert [optimizer.name for optimizer in probed.measurement.optimizers] == ["PlainSGD"]
    assert probed.measurement.batch_size is None  # a lone parameter: nothing tells


def test_surroundings_are_left_as_they_are(folder):
    """No torch, either: nothing is seen, and that is said."""
    command = [PYTHON, str(SCRIPTS / "surroundings.py"), "seen.json", "--steps", "7"]
    plain = {"OUTLAY_DATA": str(folder / "own")}
    subprocess.run(
        command, cwd=folder, env=environment(**plain), stdin=subprocess.DEVNULL, check=True
    )
    without = json.loads((folder / "seen.json").read_text())
    probed = probe(folder, *command)  # without the two dashes: what follows is the command's
    within = json.loads((folder / "seen.json").read_text())
    assert (probed.code, probed.measurement.ending) == (0, "finished")
    for name in ("argv", "path", "cwd", "stdin"):
        assert within[name] == without[name]
    ours = {"PYTHONPATH", "OUTLAY_PROBE_FOLDER"}
    changed = {
        name
        for name in {**within["environ"], **without["environ"]}
        if within["environ"].get(name) != without["environ"].get(name)
    }
    assert changed == ours
    assert within["environ"]["PYTHONPATH"].endswith(os.pathsep + without["environ"]["PYTHONPATH"])
    assert "torch" not in within["modules"]
    assert probed.measurement.step is None
    assert any("imported torch" in note for note in probed.measurement.notes)


@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of Linux")
def test_at_a_terminal(folder):
    """The script has a terminal as ever, a line of ours stands below, the report comes last."""
    text = at_a_terminal(
        folder,
        *(*OUTLAY, "--steps", 60, "--no-operations", "--price", 3.60, "--json", "probe.json"),
        *("--", PYTHON, SCRIPTS / "terminal.py", "clock.json"),
        size=(30, 100),
    )
    assert "terminals True True 100 30" in text
    assert "10 steps |####    |" in text
    # Ours is written on the row below the bar, and the cursor goes back into the bar.
    below = text.split("\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K")[1:]
    shown = [part.split("\x1b8")[0] for part in below]
    assert any("it/s" in line and "$" in line for line in shown)
    lines = text.split("outlay stopped it")
    assert len(lines) == 2
    assert "step" in lines[1]


# --- reinforcement learning ---


def test_a_policy_that_acts_between_updates_has_the_samples_of_its_updates(folder):
    for _ in range(3):  # one that has to share its CPU with other tests seems to wait for something
        probed = probe_script(folder, "acting.py", "dqn", options=("--steps", "60"))
        measurement = probed.measurement
        assert (measurement.samples_per_step, measurement.batch_size) == (32, 32)
        assert measurement.optimizers[0].parameters == 4 * 128 + 128 + 128 * 2 + 2  # 898
        cures = " ".join(measurement.finding.cures)
        if "No DataLoader was seen" not in cures:
            break
    assert "too small to gain from a GPU" in cures
    assert "times as fast" not in cures
    assert "outlay plan" not in cures


def test_an_episode_has_as_many_samples_as_moves(folder):
    probed = probe_script(folder, "acting.py", "reinforce", options=("--steps", "60"))
    measurement = probed.measurement
    assert 20 <= measurement.samples_per_step <= 39
    note = next(note for note in measurement.notes if "one at a time" in note)
    assert "--samples-per-step" in note
    assert measurement.profile is not None
