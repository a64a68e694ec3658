"""What was told becomes a measurement, and what told nothing stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.measured import STEP
from tests.probe.made import a_log, table

from outlay.measurement.file import measurement_from_json, measurement_to_json
from outlay.measurement.measurement import OptimizerOrder, StepModes
from outlay.probe.agent.protocol import KernelTimes, ModuleInputs, OptimizerInfo
from outlay.probe.gpu_driver import GpuDevice
from outlay.probe.stages import ProbeLimits
from outlay.probe.steps import (
    NO_OVERRIDE,
    StepSizeOverride,
    StepStatistics,
    step_size,
    steps_of,
)
from outlay.probe.summary import (
    ProbeContext,
    measurement_of,
    notes_on_samples,
    notes_on_shared_batches,
    order_words,
)


class NoSampler:
    """A machine that nothing was read from."""

    samples = ()

    def describe_gpus(self):
        return ()

    def energy_j(self, begin_s, end_s):
        return None


def measured(
    ending="stopped",
    stopped_for=None,
    *,
    batch_size=None,
    samples_per_step=None,
    loader_s=None,
    passes=None,
    per_step=(1.0,),
    report=None,
):
    logs = [a_log() if report is None else a_log(report)]
    statistics = StepStatistics(
        step=STEP,
        steps_seen=100,
        per_step=per_step,
        skipped=(0,) * len(per_step),
        samples_per_step=loader_s,
        passes_per_step=passes,
    )
    override = StepSizeOverride(batch_size=batch_size, samples_per_step=samples_per_step)
    context = a_context(ending=ending, stopped_for=stopped_for, override=override)
    return measurement_of(statistics, logs, logs, NoSampler(), context)


def a_context(**changes):
    fields = {"ending": "stopped", "status": 0, "started_s": 0.0, "elapsed_s": 60.0} | changes
    return ProbeContext(command=("python", "train.py"), limits=ProbeLimits(), **fields)


@pytest.mark.parametrize(("busy_s", "known_s"), [(0.0, None), (0.8, 0.2)])
def test_a_profile_without_kernels_says_nothing_of_their_time(busy_s, known_s):
    # 0.8 s of kernels in 4 steps are 0.2 s each
    measurement = measured(report=KernelTimes(optimizer_steps=4, busy_s=busy_s, exchange_s=0.0))
    assert measurement.busy_s == known_s
    assert measurement_from_json(measurement_to_json(measurement)).busy_s == known_s


def test_a_batch_without_rows_is_no_batch():
    assert measured(report=ModuleInputs(samples=0)).samples_per_step is None
    assert measured(report=ModuleInputs(samples=8)).samples_per_step == 8


def inputs(rows, passes, *, batches=0, loaded=0):
    """What modules got in one step, the rows of each batch."""
    return ModuleInputs(
        samples=rows[0],
        inputs=len(rows),
        rows=sum(rows),
        passes=passes,
        batches=batches,
        loaded=loaded,
    )


@pytest.mark.parametrize(
    ("report", "passes", "samples", "in_passes"),
    [
        (inputs([64], 2), 2.0, 64, 1),  # SAM: one batch, two backward passes
        (inputs([512], 20), 20.4, 512, 1),  # L-BFGS, whose steps have more or fewer
        (inputs([16] * 4, 4), 4.0, 64, 4),  # accumulated
        (inputs([16] * 4, 4), 3.75, 60, 3.75),  # the last step of every epoch has fewer
        (inputs([16] * 4, 8), 8.0, 64, 4),  # SAM, accumulated
        (inputs([64], 2), 64.0, 2048, 32),  # 32 steps of SAM's that were said to be one
        (inputs([9], 0), None, 9, None),  # gradients by other ways than `backward`
    ],
)
def test_without_a_loader_batches_are_counted_and_not_backward_passes(
    report, passes, samples, in_passes
):
    measurement = measured(passes=passes, report=report)
    assert (measurement.samples_per_step, measurement.passes_per_step) == (samples, in_passes)
    assert measured(passes=passes, report=report, samples_per_step=77).samples_per_step == 77


def test_of_a_gan_those_of_a_pass_are_counted():
    measurement = measured(per_step=(1.0, 1.0), report=inputs([8, 8], 2))
    assert measurement.samples_per_step == 8


@pytest.mark.parametrize(
    ("report", "in_passes"),
    [
        (inputs([64] * 4, 4, batches=1, loaded=256), 4),  # a batch that is cut up
        (inputs([63, 63, 63, 61], 4, batches=1, loaded=250), 4),  # the last of an epoch
        (inputs([64] * 4, 4, batches=2, loaded=256), 2),  # two batches, each in two parts
        (inputs([256] * 2, 2, batches=1, loaded=256), 1),  # all of it twice, the second changed
        (inputs([256], 2, batches=1, loaded=256), 1),  # two losses
        (inputs([16] * 2, 2, batches=1, loaded=4), 1),  # something else that was made of it
    ],
)
def test_a_loaders_batch_that_is_cut_up_is_several_passes(report, in_passes):
    measurement = measured(loader_s=256.0, passes=1.0, report=report)
    assert (measurement.samples_per_step, measurement.passes_per_step) == (256, in_passes)


def test_evaluations_in_every_step_are_said():
    statistics = StepStatistics(step=STEP, steps_seen=100, per_step=(1.0,), skipped=(0,))

    def notes(batches):
        steps = table([0] * 100, batches=1, samples=5, evaluation_batches=batches)
        logs = [a_log(table=steps)]
        measurement = measurement_of(statistics, logs, logs, NoSampler(), a_context())
        return [note for note in measurement.notes if "evaluation" in note]

    assert len(notes(batches=3)) == 1
    assert notes(batches=0) == []


def of_several(orders, modes=None, *, parameters=(53_200_000, 43_500_000, 1_270_000, 20_900_000)):
    """A measurement of four optimizers that step in these orders."""
    infos = [OptimizerInfo(number, "Adam", count) for number, count in enumerate(parameters)]
    logs = [a_log(*infos)]
    statistics = StepStatistics(
        step=STEP,
        steps_seen=100,
        per_step=tuple(float(orders[0][0].count(info.number)) for info in infos),
        skipped=(0,) * len(infos),
        orders=orders,
        modes=modes,
    )
    return measurement_of(statistics, logs, logs, NoSampler(), a_context())


TURNS = ((0, 0, 1, 2, 3, 1), 1.0)


def test_the_order_that_counts_as_one_step_is_kept():
    measurement = of_several((TURNS,))
    assert measurement.optimizer_orders == (OptimizerOrder(optimizers=TURNS[0], fraction=1.0),)
    assert measurement_from_json(measurement_to_json(measurement)) == measurement
    assert order_words(measurement, measurement.optimizer_orders[0]) == (
        "Adam (53.2 M) twice, Adam (43.5 M), Adam (1.27 M), Adam (20.9 M), Adam (43.5 M)"
    )


def test_optimizers_of_one_kind_and_size_are_numbered():
    measurement = of_several((((0, 0, 0, 1, 2), 1.0),), parameters=(900, 2_000_000_000, 900))
    (order,) = measurement.optimizer_orders
    assert order_words(measurement, order) == "Adam (900) #1 3 times, Adam (2 B), Adam (900) #3"


def test_one_optimizer_has_no_order():
    measurement = of_several((((0, 0), 1.0),), parameters=(900,))
    assert measurement.optimizer_orders == ()


@pytest.mark.parametrize(
    ("period", "how", "steps"),
    [
        # An iteration may be two of what was counted as one: of six optimizer steps each.
        (2, "by turns", 12),
        (3, "in an order that repeats after 3", 18),
        (None, "in no order that repeats, 38 % of them the longer", 12),
    ],
)
def test_steps_of_two_lengths_are_said(period, how, steps):
    modes = StepModes(fast_s=0.124, slow_s=0.46, slow_fraction=0.38, period=period)
    measurement = of_several((TURNS,), modes)
    assert measurement.step_modes == modes
    assert measurement_from_json(measurement_to_json(measurement)).step_modes == modes
    (note,) = (note for note in measurement.notes if "Steps take" in note)
    assert note == (
        f"Steps take about 124 ms or about 460 ms, {how}. Counted as one: Adam (53.2 M) twice, Adam"
        " (43.5 M), Adam (1.27 M), Adam (20.9 M), Adam (43.5 M). If an iteration of the script has"
        f" more optimizer steps than that, say how many: --optimizer-steps {steps}."
    )


@pytest.mark.parametrize(
    ("pattern", "batches", "is_said"),
    [
        (2, None, True),
        (2, 1.0, False),  # a loader tells
        (16, None, False),  # a penalty now and then
        (1, None, False),
    ],
)
def test_orders_that_may_be_one_iteration_are_said_where_no_loader_tells(pattern, batches, is_said):
    infos = [OptimizerInfo(number, "Adam", count) for number, count in enumerate((700, 50))]
    logs = [a_log(*infos)]
    statistics = StepStatistics(
        step=STEP,
        per_step=(1.0, 0.5),
        skipped=(0, 0),
        orders=(((0, 1), 0.5), ((0,), 0.5)),
        pattern=pattern,
        batches_per_step=batches,
    )
    measurement = measurement_of(statistics, logs, logs, NoSampler(), a_context())
    notes = [note for note in measurement.notes if "one iteration" in note]
    # Three optimizer steps in two training steps.
    said = (
        "Its optimizers step in an order that repeats after 3 of their steps, counted as 2 training"
        " steps: Adam (700), Adam (50); or Adam (700). If they are one iteration of the script:"
        " --optimizer-steps 3."
    )
    assert notes == ([said] if is_said else [])


def test_steps_of_one_optimizer_that_are_of_two_lengths_are_said():
    modes = StepModes(fast_s=0.5, slow_s=1.25, slow_fraction=0.5, period=2)
    measurement = of_several((((0,), 1.0),), modes, parameters=(900,))
    (note,) = (note for note in measurement.notes if "Steps take" in note)
    assert "about 500 ms or about 1.25 s, by turns. Counted as one: one step of an opt" in note
    assert note.endswith("--optimizer-steps 2.")
    no_order = of_several((((0,), 1.0),), replace(modes, period=None), parameters=(900,))
    (note,) = (note for note in no_order.notes if "Steps take" in note)
    assert note.endswith("in no order that repeats, 50 % of them the longer.")


@pytest.mark.parametrize(
    ("batches", "per_step", "words"),
    [
        (0.5, (1.0,), "in 2 steps, as they are counted: --optimizer-steps 2 makes"),
        (0.1, (2.0, 1.0), "in 10 steps, as they are counted: --optimizer-steps 30 makes"),
        (0.7, (1.0,), None),  # in no number of steps
        (1.0, (1.0,), None),
        (0.97, (1.0,), None),
        (4.0, (1.0,), None),
        (0.001, (1.0,), None),  # all data at once
        (None, (1.0,), None),
    ],
)
def test_steps_that_share_a_batch_are_said(batches, per_step, words):
    statistics = StepStatistics(step=STEP, per_step=per_step, batches_per_step=batches)
    notes = list(notes_on_shared_batches(statistics))
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_samples_of_a_step_that_are_not_the_ones_seen_are_said():
    (note,) = (n for n in measured(samples_per_step=64, loader_s=128.0).notes if "given" in n)
    assert note == (
        "The given 64 samples of a step are what is counted; its DataLoader has 128 samples a step."
    )


@pytest.mark.parametrize(("told_w", "known_w"), [(0.0, None), (None, None), (450.0, 450.0)])
def test_a_power_limit_of_nothing_is_none(told_w, known_w):
    device = GpuDevice(index=0, name="NVIDIA L4", power_limit_w=told_w)
    assert device.measured.power_limit_w == known_w


def test_a_given_batch_size_that_is_not_the_one_seen_is_said():
    def notes(measurement):
        return [note for note in measurement.notes if "batch size" in note]

    other = measured(batch_size=7, loader_s=32.0)
    assert other.samples_per_step == 7
    assert notes(other) == [
        "The given batch size of 7 is what is counted; its DataLoader has 32 samples a pass."
    ]
    by_input = measured(batch_size=7, report=ModuleInputs(samples=8))
    assert "a module's input has 8 samples" in notes(by_input)[0]
    # 31.5 in the mean: a batch at the end of an epoch was cut short
    assert notes(measured(batch_size=32, loader_s=31.5)) == []
    assert notes(measured(batch_size=7)) == notes(measured(loader_s=32.0)) == []


@pytest.mark.parametrize(
    ("ending", "limit", "words"),
    [
        ("stopped", "time", "--optimizer-steps 32"),
        ("stopped", "cost", "Give a larger --max-cost"),
        ("finished", "time", "the command ended before"),
        ("interrupted", None, "you stopped the command before"),
    ],
)
def test_why_no_operations_were_recorded(ending, limit, words):
    measurement = measured(ending, limit)
    (note,) = (note for note in measurement.notes if note.startswith("The operations of a step"))
    assert words in note
    assert ("ended before" in note) is (ending == "finished")


def test_the_limit_is_told_only_where_it_ended_the_command():
    assert measured("stopped", "cost").stopped_for == "cost"
    assert measured("stopped").stopped_for is None
    assert measured("finished", "precision").stopped_for is None
    again = measurement_from_json(measurement_to_json(measured("stopped", "time")))
    assert again.stopped_for == "time"


# --- samples that are a guess ---


def said_of_samples(*inputs, override=NO_OVERRIDE, **steps_fields):
    log = a_log(*inputs, table=table([0] * 30, **steps_fields))
    size = step_size(steps_of([log.table]), log, override)
    return size.samples, notes_on_samples(override, size, log)


def test_samples_that_come_one_at_a_time_are_counted_by_their_mean_and_named():
    seen = [ModuleInputs(samples=n, inputs=1, rows=n, singles=n, passes=1) for n in (12, 30, 18)]
    samples, (note,) = said_of_samples(*seen, passes=1)
    assert samples == 20  # (12 + 30 + 18) / 3
    assert "12 to 30 of them made a training step" in note
    assert "20 on average" in note
    assert "--samples-per-step" in note
    given = StepSizeOverride(samples_per_step=64)
    assert said_of_samples(*seen, override=given, passes=1) == (64, [])


def test_many_inputs_for_one_backward_pass_are_named():
    inputs = ModuleInputs(samples=8, inputs=1, rows=8, passes=1, alike=5)
    samples, (note,) = said_of_samples(inputs, passes=1)
    assert samples == 8
    assert "5 inputs of 8 samples each" in note
    assert "--samples-per-step 40 counts each" in note  # 5 x 8
    # Two or three are views, as a GAN's critic gets; a DataLoader says it better.
    assert said_of_samples(inputs._replace(alike=3), passes=1) == (8, [])
    assert said_of_samples(inputs, passes=1, batches=1, samples=16) == (16, [])
