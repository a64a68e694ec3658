"""A measurement, printed: made-up ones with round figures, whole and incomplete."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import pytest
from tests.measured import GPU, a_measurement, a_step_time, on_the_cpu, without_steps

from outlay.measurement.measurement import (
    Finding,
    MeasuredGpu,
    MeasuredMachine,
    MeasuredMemory,
    MeasuredOptimizer,
    MeasuredPause,
    OptimizerOrder,
    Sample,
    TimeShares,
)
from outlay.report.console import Page
from outlay.report.probe import buckets, figures, print_probe, sparkline
from outlay.report.probe_words import answer, ended, next_step, ran, to_finish, why_incomplete
from outlay.units import GIB

UNSEEN = a_measurement(
    gpu_fraction=None,
    busy_s=None,
    power=None,
    samples=(),
    memory=MeasuredMemory(),
    notes=("No driver was found.",),
)
ALL = {
    "full": a_measurement(),
    "cpu": on_the_cpu(),
    "no steps": without_steps(),
    "no driver": UNSEEN,
    "unsteady": a_measurement(step=a_step_time(is_steady=False)),
    "bare": without_steps(ending="finished", status=0, elapsed_s=0.0, notes=()),
}


def printed(measurement, width=80, **options):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_probe(Page(width), measurement, **options)
    return out.getvalue()


def rows(measurement):
    return {what: (seen, how) for what, seen, how in figures(measurement)}


def test_answer_comes_first_with_its_basis():
    # 10 samples / 0.5 s; (0.51 - 0.49) / 2 / 0.5 = 2 %
    assert answer(a_measurement()) == (
        "0.500 s a step (± 2.0 % at 95 % confidence, by 100 steps after 10 of warm-up) · "
        "20.0 samples/s · GPU 60 % · 18.0 of 24.0 GiB · 100 W"
    )
    assert printed(a_measurement(), 200).splitlines()[0] == answer(a_measurement())
    # By the profile, as in what holds it back; without one by the driver's samples.
    assert "GPU 62 %" in answer(a_measurement(busy_s=None))


def test_samples_of_all_processes_count():
    assert "160 samples/s" in answer(a_measurement(ranks=4, world_size=8))  # 8 x 20


def test_what_ran_where_and_how_it_ended():
    assert ran(a_measurement()) == (
        "python train.py --batch-size 10 ran 2:00 min on 1x NVIDIA GeForce RTX 4090 with "
        "torch 2.13.0; outlay stopped it."
    )
    two = MeasuredMachine(system="Linux", gpus=(GPU, GPU, MeasuredGpu(name="Tesla T4")))
    many = a_measurement(machine=two, ranks=3, world_size=6, command=("python", "x" * 99))
    assert "on 2x NVIDIA GeForce RTX 4090 + 1x Tesla T4 (3 of 6 processes are here)" in ran(many)
    assert "x…  " not in ran(many)
    assert "x… ran" in ran(many)
    assert "(2 processes)" in ran(a_measurement(ranks=2, world_size=2))


@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("finished", 0, "it ended by itself"),
        ("failed", 3, "it failed with status 3"),
        ("killed", -9, "it was killed by SIGKILL"),
        ("killed", 137, "it was killed by SIGKILL"),
        ("killed", 1, "it was killed"),
        ("interrupted", 130, "you stopped it"),
    ],
)
def test_endings(ending, status, words):
    assert ended(a_measurement(ending=ending, status=status)) == words


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("steps", "at the number of steps asked for"),
        ("time", "when its time was up"),
        ("precision", "once its step time was known well enough"),
        ("cost", "when the money for it (--max-cost) was spent"),
    ],
)
def test_the_limit_that_ended_it_is_named(limit, words):
    assert ran(a_measurement(stopped_for=limit)).endswith(f"; outlay stopped it {words}.")


def test_what_money_ended_is_not_told_to_take_longer():
    (said,) = why_incomplete(
        without_steps(ending="stopped", status=0, stopped_for="cost", price_usd_per_hour=100.0)
    )
    assert said == (
        "outlay stopped it before its first step, when the money for it (--max-cost) was spent: "
        "at $100.00 an hour it needs a larger --max-cost."
    )
    swings = a_measurement(step=a_step_time(is_steady=False), stopped_for="cost")
    assert "Probe longer (a larger --max-cost)" in why_incomplete(swings)[0]


def test_what_the_user_ended_before_its_first_step():
    (said,) = why_incomplete(without_steps(ending="interrupted", status=130))
    assert said == "You stopped it before its first step: give it longer."


def test_counts_a_step_have_three_figures():
    uneven = a_measurement(
        samples_per_step=30.0,
        passes_per_step=3.00092,
        optimizers=(
            MeasuredOptimizer(name="Adam", parameters=900, per_step=2.93638),
            MeasuredOptimizer(name="SGD", parameters=900, per_step=0.0198437),
        ),
    )
    hows = [how for _, _, how in figures(uneven)]
    assert "900 parameters, 2.94 a step" in hows
    assert "900 parameters, 0.0198 a step" in hows
    assert "samples of a pass, 3 passes a step" in hows
    assert "passes" not in rows(a_measurement(passes_per_step=1.0004))["batch"][1]


def test_steps_of_microseconds():
    tiny = a_step_time(
        mean_s=20.4e-6, low_s=20.1e-6, high_s=20.7e-6, median_s=2e-5, p10_s=9e-6, p90_s=3e-5
    )
    seen = rows(a_measurement(step=tiny, busy_s=None))
    assert seen["step, mean"] == ("20.4 µs", "20.1 µs to 20.7 µs at 95 % confidence")
    assert seen["step, median"] == ("20.0 µs", "a tenth under 9.00 µs, a tenth over 30.0 µs")
    assert answer(a_measurement(step=tiny)).startswith("20.4 µs a step")


def test_figures_by_hand():
    seen = rows(a_measurement())
    assert seen["step, median"] == ("0.495 s", "a tenth under 0.480 s, a tenth over 0.530 s")
    assert seen["evaluations"] == ("8.0 s", "2 times, 4.00 s each")
    assert seen["waits for data"] == ("0.150 s", "30 % of a step")  # 0.3 x 0.5 s
    assert seen["waits for Python"] == ("50.0 ms", "10 % of a step")
    assert "waits for network" not in seen
    assert seen["power"] == ("100 W", "at most 130 W; limit 450 W; GPUs alone")
    # 100 W x 0.5 s = 50 J; 50 J / 10 samples x 1000 = 5 kJ
    assert seen["energy"] == ("50.0 J", "a step; 5.00 kJ for 1,000 samples")
    assert seen["memory used"][0] == "18.0 GiB"
    assert seen["optimizer"] == ("AdamW", "21.3 M parameters, 1 a step")
    assert seen["loss"] == ("1.25", "at step 200; 2.5 at step 1")


def test_energy_is_of_this_machine_only():
    # 50 J for the 4 x 10 samples that were trained here, of 80 on both machines
    assert rows(a_measurement(ranks=4, world_size=8))["energy"][1].endswith(
        "1.25 kJ for 1,000 samples"
    )
    assert rows(a_measurement(samples_per_step=None))["energy"] == ("50.0 J", "a step")


def test_accumulation_and_scaler_are_told():
    measurement = a_measurement(
        samples_per_step=40.0,
        passes_per_step=4.0,
        world_size=2,
        optimizers=(MeasuredOptimizer(name="Adam", parameters=900, per_step=2.0, skipped=3),),
    )
    assert rows(measurement)["batch"] == (
        "10",
        "samples of a pass, 4 passes a step, on 2 processes",
    )
    how = "900 parameters, 2 a step, 3 steps left out by the gradient scaler"
    assert rows(measurement)["optimizer"] == ("Adam", how)


def test_what_counts_as_one_step_is_shown_where_several_optimizers_step():
    several = a_measurement(
        optimizers=(
            MeasuredOptimizer(name="Adam", parameters=2000, per_step=1.25),
            MeasuredOptimizer(name="SGD", parameters=900, per_step=1.0),
        ),
        optimizer_orders=(
            OptimizerOrder(optimizers=(0, 1), fraction=0.75),
            OptimizerOrder(optimizers=(0, 0, 1), fraction=0.25),
        ),
    )
    shown = [row[1:] for row in figures(several) if row[0] == "one step"]
    assert shown == [
        ("2 optimizer steps", "75 % of steps: Adam (2 k), SGD (900)"),
        ("3 optimizer steps", "25 % of steps: Adam (2 k) twice, SGD (900)"),
    ]
    always = replace(several, optimizer_orders=(OptimizerOrder(optimizers=(0, 1), fraction=1.0),))
    assert rows(always)["one step"] == ("2 optimizer steps", "Adam (2 k), SGD (900)")
    assert "one step" not in rows(a_measurement())


def test_holder_its_evidence_and_its_cures():
    said = printed(a_measurement())
    assert "What holds it back: the input (steps wait for data)\n" in said
    assert "  - Loader workers are 98 % busy.\n" in said
    assert "  What usually helps:\n  - More workers: DataLoader(num_workers=8).\n" in said
    # 0.6 of 40 bars
    assert f"  computing           60 %  {'█' * 24}\n" in said
    assert "waiting for other GPUs" not in said


def test_checklist_marks_each_line():
    said = printed(a_measurement())
    assert "  ✔ ok       Loss finite         All 200 seen are finite.\n" in said
    assert "  ! look     GPU busy" in said
    assert "  ✘ bad      No throttling" in said
    assert "  ? unknown  Disk not saturated" in said


def test_time_and_cost():
    said = printed(a_measurement(), 120)
    # 120 s at $0.60 an hour
    assert "This probe: $0.020 (2:00 min at $0.60 an hour)." in said
    # 18 + 4995 + 400 s = 1.5 h, $0.90; 100 evaluations of 4 s = 400 s = 7 min
    assert "All 10,000 steps from the start: 1.5 h (" in said
    assert "$0.90" in said
    assert "Of that 7 min are pauses" in said


def test_total_steps_given_count_more_than_those_seen():
    said = to_finish(a_measurement(pauses=(), price_usd_per_hour=None), 72_010)
    # 18 s + 72,000 x 0.5 s
    assert said[0].startswith("All 72,010 steps from the start: 10.0 h (9.9 h - 10.1 h).")
    assert "No evaluation or checkpoint was seen; theirs would come on top." in said[0]


def test_unknown_length_is_told_by_the_thousand():
    (said,) = to_finish(a_measurement(total_steps=None), None)
    # 1000 x 0.5 s = 500 s, $0.0833 at $0.60 an hour; 8 s of pauses in 200 steps are 40 s in 1000
    assert said == (
        "Every 1,000 steps: 8 min, $0.083, pauses apart; 9 min, $0.090 with pauses as often as "
        "they came here; how many steps the whole run has was not seen."
    )
    (said,) = to_finish(a_measurement(total_steps=None, pauses=()), None)
    assert said == (
        "Every 1,000 steps: 8 min, $0.083, pauses apart; how many steps the whole run has was not "
        "seen."
    )


def test_no_price_no_cost():
    assert "$" not in printed(a_measurement(price_usd_per_hour=None))


def test_unsteady_means_are_no_confident_figures():
    measurement = ALL["unsteady"]
    assert answer(measurement).startswith(
        "About 0.500 s a step, not steady yet (most 0.480 s to 0.530 s, by 100 steps"
    )
    assert "95 %" not in printed(measurement)
    assert any("Probe longer" in line for line in why_incomplete(measurement))


def test_without_a_driver_the_missing_is_named():
    assert answer(UNSEEN).endswith("· 20.0 samples/s")
    assert why_incomplete(UNSEEN) == ["Not seen: GPU use, GPU memory, power. The notes say why."]
    assert "- No driver was found." in printed(UNSEEN)
    reserved = replace(UNSEEN, memory=MeasuredMemory(reserved_bytes=3.0 * GIB))
    assert "3.0 of 24.0 GiB reserved" in answer(reserved)
    assert why_incomplete(replace(reserved, notes=())) == ["Not seen: GPU use, power."]


def test_on_the_cpu_nothing_of_a_gpu_is_missed():
    measurement = on_the_cpu()
    assert answer(measurement).endswith("20.0 samples/s · on the CPU · 2.0 GiB of host memory")
    assert why_incomplete(measurement) == []
    said = printed(measurement)
    assert "on EPYC 9354" in said
    use = "CPU use of the whole machine over 2:00 min: after its start (10 s) 90 % on average"
    assert use in " ".join(said.split())


def test_use_is_that_of_the_training_not_of_compiling_before_it():
    samples = [Sample(time_s=t, gpu_fraction=0.0 if t < 60 else 0.9) for t in range(0, 121, 10)]
    compiled = a_measurement(start_up_s=59.0, elapsed_s=120.0, samples=tuple(samples))
    use = "GPU use over 2:00 min: after its start (59 s) 90 % on average, 90 % at least"
    assert use in printed(compiled)
    never = replace(compiled, start_up_s=None)
    assert "GPU use over 2:00 min: 48 % on average, 0 % at least\n" in printed(never)


def test_a_cell_has_no_status():
    cell = a_measurement(command=("%%probe",), ending="failed", status=1)
    assert ended(cell) == "it failed"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "failed before its first step: its own output says why"),
        ({"steps_seen": 3}, "failed after so few steps"),
        ({"ending": "killed", "status": -9}, "where memory runs out: `dmesg` tells"),
        ({"ending": "killed", "status": -15}, "It was killed before its first step."),
        ({"ending": "finished", "status": 0}, "without a step of a torch optimizer"),
        ({"ending": "finished", "status": 0, "ranks": 1}, "a smaller --optimizer-steps"),
        ({"ending": "finished", "status": 0, "steps_seen": 2}, "give it more work"),
        ({"ending": "stopped", "status": 0}, "--for 10m"),
    ],
)
def test_no_step_time_says_what_was_seen_and_why(changes, words):
    measurement = without_steps(**changes)
    assert any(words in line for line in why_incomplete(measurement))
    said = printed(measurement)
    few = f"Only {changes.get('steps_seen')} training steps seen in 3 s: too few for a step time"
    assert said.startswith(few if measurement.steps_seen else "No training step seen in 3 s\n")
    assert "Carry it" not in said
    assert "a step (" not in said
    assert "- No NVIDIA driver was found" in said


def test_failed_after_it_was_measured():
    died = a_measurement(ending="failed", status=1)
    assert why_incomplete(died) == [
        "The figures are of what ran until then: it failed with status 1."
    ]


def test_a_run_that_ended_by_itself_needs_more_work_and_no_longer_probe():
    short = a_measurement(ending="finished", step=a_step_time(is_steady=False))
    assert "Give it more work" in why_incomplete(short)[0]
    assert "Probe longer" in why_incomplete(a_measurement(step=a_step_time(is_steady=False)))[0]


def test_a_run_to_its_end_says_how_long_it_was():
    # 1000 steps of 0.5 s are 500 s, 8 min; made measurements run for 120 s.
    whole = a_measurement(ending="finished", total_steps=None)
    (said,) = to_finish(whole, None)
    assert said.startswith("It ran to its end in 2:00 min")
    assert "8 min" in said
    assert "not seen" not in said


def test_one_loss_is_said_once_and_one_step_is_no_plural():
    seen = {
        name: (value, how)
        for name, value, how in figures(a_measurement(losses=((1, 2.5),), steps_per_epoch=1.0))
    }
    assert seen["loss"] == ("2.5", "at step 1")
    assert seen["epoch"] == ("1 step", "")


def test_losses_of_a_gan_are_counted_by_optimizer_steps():
    twice = MeasuredOptimizer(name="Adam", parameters=1000, per_step=2.0)
    seen = {name: how for name, _, how in figures(a_measurement(optimizers=(twice,)))}
    assert seen["loss"] == "at optimizer step 200; 2.5 at step 1"


def test_of_several_passes_a_step_the_loss_is_that_of_one():
    """Scripts may divide it by their number, or not."""
    seen = {name: how for name, _, how in figures(a_measurement(passes_per_step=4.0))}
    assert seen["loss"] == "of a backward pass, at step 200; 2.5 at step 1"


def test_what_cannot_be_carried_is_not_said_to_be():
    said = next_step(a_measurement(profile=None), "probe.json")
    assert "outlay plan" not in said
    assert "--measured probe.json" in said
    assert "longer" not in said  # outlay stopped it: its note says what helps
    assert "longer" in next_step(a_measurement(profile=None, ending="finished"), "probe.json")


def test_epochs_are_offered_as_a_length_where_they_are_known():
    known = a_measurement(total_steps=None, steps_per_epoch=50.0)
    assert '--length "90 epochs"' in next_step(known, "probe.json")
    unknown = a_measurement(total_steps=None, steps_per_epoch=None)
    assert '--length "100000 steps"' in next_step(unknown, "probe.json")


def test_what_to_do_next_names_the_file():
    said = next_step(a_measurement(), "my probe.json")
    assert said.startswith("Carry it to other GPUs: outlay predict 'my probe.json' --gpu")
    assert next_step(a_measurement(), None).startswith("Keep it with --json OUT.json.")
    assert "outlay plan probe.json" in printed(a_measurement(), 120, saved_as="probe.json")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("measurement", ALL.values(), ids=ALL)
def test_fits_the_width_and_is_plain_in_pipes(measurement, width):
    said = printed(measurement, width)
    assert max(map(len, said.splitlines())) <= width
    assert "\x1b" not in said
    assert "None" not in said
    assert "nan" not in said
    assert not any(line != line.rstrip() for line in said.splitlines())


def test_brackets_are_no_markup():
    finding = Finding(holder="host", evidence=("[bold]x[/bold]",), cures=())
    assert "[bold]x[/bold]" in printed(a_measurement(finding=finding, shares=TimeShares()))


def test_pauses_of_every_kind_have_words():
    kinds = ("evaluation", "checkpoint", "epoch start", "other")
    pauses = tuple(MeasuredPause(kind=kind, times=1, total_s=2.0) for kind in kinds)
    seen = rows(a_measurement(pauses=pauses))
    for name in ("evaluations", "checkpoints", "new epochs", "other pauses"):
        assert seen[name] == ("2.0 s", "1 time, 2.00 s each")


def test_sparkline_has_a_bar_for_each_stretch():
    # eight bars from 0 to 1: 0 is the first, 0.5 the fifth, 1 the last
    assert sparkline([0.0, 0.5, 1.0, None, 1.5]) == "▁▅█·█"
    assert buckets([(0.0, 1.0), (4.9, 3.0), (10.0, 5.0)], 10.0, 2) == [2.0, 5.0]
    assert buckets([(1.0, 1.0)], 10.0, 3) == [1.0, None, None]
    assert buckets([(0.0, 1.0)], 0.0, 1) == [1.0]


def test_an_epoch_of_less_than_a_step_is_no_epoch_of_none():
    """Batches of 8 are accumulated to 64, of 32 samples."""
    (value,) = [row[1] for row in figures(a_measurement(steps_per_epoch=0.5)) if row[0] == "epoch"]
    assert value == "0.5 of a step"


def test_optimizers_that_are_alike_have_one_row():
    blocks = (MeasuredOptimizer(name="SGD", parameters=528, per_step=0.0),) * 11
    last = MeasuredOptimizer(name="SGD", parameters=528, per_step=1.0)
    shown = [
        how
        for what, _, how in figures(a_measurement(optimizers=(*blocks, last)))
        if what == "optimizer"
    ]
    assert shown == ["528 parameters, 0 a step; 11 such", "528 parameters, 1 a step"]


def test_what_cudnn_took_once_stands_beside_what_steps_need():
    memory = MeasuredMemory(allocated_bytes=27 * GIB, reserved_bytes=28.1 * GIB)
    assert "taken once" not in rows(a_measurement(memory=memory))
    searched = replace(memory, search_bytes=56.8 * GIB)
    seen, how = rows(a_measurement(memory=searched))["taken once"]
    assert seen == "56.8 GiB"
    assert "while cuDNN tried algorithms" in how
    assert "28.1 of 24.0 GiB reserved" in answer(a_measurement(memory=searched))


def test_the_arithmetic_of_products_is_shown_by_precision():
    mixed = a_measurement(arithmetic={"tf32": 0.6, "fp32": 0.4})
    assert rows(mixed)["arithmetic"][0] == "TF32 60 %, fp32 40 %"
    assert "arithmetic" not in rows(a_measurement())


def test_one_process_does_not_wait_for_others():
    alone = TimeShares(compute=0.7, input=0.1, host=0.2, network=0.0)
    assert "waits for network" not in rows(a_measurement(shares=alone))
    assert "waiting for other GPUs" not in printed(a_measurement(shares=alone))
    two = a_measurement(shares=alone, ranks=2, world_size=2)
    assert "waits for network" in rows(two)
    assert "waiting for other GPUs" in printed(two)
