from __future__ import annotations

import time

import numpy as np
import pytest
from tests.probe.made import finish, letters, steps, table

from outlay.probe.cycles import cycles_of, share_pauses
from outlay.probe.messages import OptimizerStepTable


def cycles(text, each_s=0.1, **fields):
    return cycles_of(table(letters(text), each_s, **fields))


def test_every_step_of_one_optimizer_is_a_training_step():
    result = cycles("A" * 30)
    assert len(result) == 30
    assert result.per_step == (1.0,)
    assert result.period == 1
    assert np.isnan(result.length_s[0])
    assert result.length_s[1:] == pytest.approx([0.1] * 29)


@pytest.mark.parametrize(
    ("cycle", "optimizers", "per_step"),
    [
        ("DG", 2, (1, 1)),
        ("DDDDDG", 2, (5, 1)),
        ("ABC", 3, (1, 1, 1)),
        ("CCA", 2, (2, 1)),
        ("DDGG", 2, (2, 2)),
        ("GDDDDDDDDDDDDDDDD", 2, (1, 16)),
    ],
)
def test_cycles_of_several_optimizers(cycle, optimizers, per_step):
    # The last of 40 is not over before its leader steps again.
    result = cycles(cycle * 40)
    assert len(result) == 39
    assert result.per_step == pytest.approx(per_step)
    assert result.length_s[1:] == pytest.approx([0.1 * len(cycle)] * 38)
    assert result.period == 1


def test_a_penalty_now_and_then_stays_within_its_cycle_and_shows_as_a_period():
    # Both networks step twice in every 16th cycle: 2 * 15 + 4 optimizer steps in 16 cycles.
    result = cycles(("DDGG" + "DG" * 15) * 6)
    assert len(result) == 6 * 16 - 1
    assert result.period == 16
    # Of the later 48 cycles (47 .. 94), three have two steps of each: 1 + 3 / 48.
    assert result.per_step == pytest.approx((1 + 3 / 48, 1 + 3 / 48))


def test_two_critics_and_an_actor_every_other_time():
    result = cycles("PQPQA" * 40)
    assert len(result) == 79
    assert result.period == 2
    assert result.per_step == pytest.approx((1, 1, 0.5), abs=0.02)


@pytest.mark.parametrize(
    ("order", "per_step", "stage_from"),
    [
        pytest.param("A" * 30 + "B" * 30 + "C" * 12, (0, 0, 1), 60, id="folds"),
        pytest.param("A" * 30 + "B" * 3, (0, 1), 30, id="a stage that has just begun"),
        pytest.param("A" * 30 + "B" * 300, (0, 1), 30, id="a stage long ago"),
        # 40 of each in the end: two whole turns.
        pytest.param(("A" * 20 + "B" * 20) * 2, (0.5, 0.5), 0, id="by turns"),
    ],
)
def test_optimizers_that_step_many_times_in_a_row_make_a_step_each(order, per_step, stage_from):
    result = cycles(order)
    assert len(result) == len(order)
    assert result.are_blocks
    assert result.is_regular
    assert result.per_step == pytest.approx(per_step)
    assert result.stage_from == stage_from
    assert result.length_s[1:] == pytest.approx([0.1] * (len(order) - 1))


def test_a_critic_that_trains_ahead_is_no_stage():
    result = cycles("D" * 25 + "G" + "DG" * 30)
    assert not result.are_blocks
    assert result.per_step == pytest.approx((1, 1))


def passes(text):
    """One optimizer's steps: a pass before each x, a batch before each b, none before each dot."""
    fields = {"x": {"passes": 1}, "b": {"batches": 1}, ".": {}}
    marks = {place: fields[letter] for place, letter in enumerate(text)}
    return cycles("A" * len(text), marks=marks)


def test_updates_with_no_pass_between_are_one_step():
    result = passes("x.." * 20)
    assert len(result) == 19  # the last is not over before the next begins
    assert result.per_step == (3.0,)
    assert result.passes.tolist() == [1.0] * 19
    assert result.length_s[1:] == pytest.approx([0.3] * 18)
    # As long as only one has begun, nothing is known of it.
    assert len(passes("x..")) == 3


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("." * 40, id="gradients by other ways"),
        pytest.param("b...b..." * 6, id="the same, several for a batch of a loader"),
        pytest.param("xxx" + "." * 40, id="as it warms up, then a graph is replayed"),
        pytest.param("x...x.x......x..x" * 4, id="now and then"),
        pytest.param(("x" + "." * 99) * 5, id="a penalty every 100 steps"),
        pytest.param("x.x.x.x.x.x." + "." * 30, id="no more"),
    ],
)
def test_where_passes_are_not_seen_every_update_is_a_step(text):
    result = passes(text)
    assert len(result) == len(text)
    assert result.per_step == (1.0,)


def test_an_occasional_optimizer_defines_no_cycles():
    # One in 40 is less often than one in 32: 40 steps of A are 40 training steps.
    result = cycles(("A" * 40 + "X") * 10)
    assert len(result) == 400
    assert result.per_step[1] == pytest.approx(1 / 40, rel=0.1)
    # X's own tenth of a second is in the interval of the step that follows it.
    assert result.length_s[40] == pytest.approx(0.2)


def test_a_first_phase_of_one_optimizer_is_one_step_before_the_first_interval():
    result = cycles("G" * 300 + "DG" * 200)
    assert result.per_step == pytest.approx((1, 1))
    assert result.length_s[2:] == pytest.approx([0.2] * (len(result) - 2))
    assert 199 <= len(result) <= 200


def test_an_optimizer_of_an_earlier_phase_leads_nothing_later():
    result = cycles("P" * 100 + "A" * 200)
    assert (len(result), result.stage_from) == (300, 100)
    assert result.per_step == (0.0, 1.0)


def test_a_cycle_begins_with_the_optimizer_a_batch_is_loaded_for():
    order = letters("G" * 50 + "DG" * 100)
    loads = {place: {"batches": 1, "samples": 4} for place in range(50)}
    loads |= {place: {"batches": 1, "samples": 4} for place in range(50, 250, 2)}
    result = cycles_of(OptimizerStepTable(steps(order, marks=loads)))
    assert result.batches[1:].tolist() == [1.0] * (len(result) - 1)
    assert result.samples[1:].tolist() == [4.0] * (len(result) - 1)


def test_a_given_number_of_optimizer_steps_overrides_all():
    result = cycles_of(table(letters("DG" * 30)), optimizer_steps_per_step=4)
    assert len(result) == 15
    assert result.length_s[1:] == pytest.approx([0.4] * 14)


def test_accumulation_that_varies_with_a_period_is_seen():
    marks = {place: {"passes": 3 if place % 5 == 4 else 4} for place in range(100)}
    assert cycles_of(table([0] * 100, marks=marks)).period == 5


# --- iterations in which an optimizer has several turns ---


def iterations(pattern, times=40, **letters_to_fields):
    """Cycles of a pattern like `Dpb D Gp`: optimizers, a pass (p) and a batch (b) before each."""
    words = pattern.split() * times
    marks = {
        place: {"passes": word.count("p"), "batches": word.count("b"), "samples": word.count("b")}
        for place, word in enumerate(words)
    }
    return cycles("".join(word[0] for word in words), marks=marks, **letters_to_fields)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("D D G M S G", id="order alone"),
        pytest.param("Dpb Dp Gp M S Gp", id="one batch"),
        pytest.param("Dpbbb Dp Gp M S Gp", id="three batches at once"),
        pytest.param("Dpb Dpb Gpb M S Gp", id="three batches, one after the other"),
        pytest.param("Dpb D Gp M S G", id="two passes"),
        pytest.param("Dpb Dp Gpb M S Gpb", id="a batch for each of the generator's as well"),
    ],
)
def test_an_optimizer_with_two_turns_in_an_iteration_does_not_cut_it(pattern):
    result = iterations(pattern)
    assert len(result) == 39
    assert result.per_step == (2, 2, 1, 1)
    assert result.length_s[1:] == pytest.approx([0.6] * 38)
    assert (result.period, result.is_regular) == (1, True)
    # D D G M S G by their numbers, in all of them.
    assert result.orders == (((0, 0, 1, 2, 3, 1), 1.0),)
    assert result.batches[1:].tolist() == [pattern.count("b")] * 38
    assert result.passes[1:].tolist() == [pattern.count("p")] * 38


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        ("G D G D M", None),  # as critics and an actor: an extra one, every other time
        ("G A B", (0, 1, 2)),  # CycleGAN, an optimizer for each discriminator
        ("G D G", (0, 0, 1)),  # begins anew within a turn: G of the one before, G, D
        ("G D G E", (0, 1, 0, 2)),
        ("A B A C B D", None),
        ("E D C E", (0, 0, 1, 2)),  # adversarial autoencoder
        ("G M G S G T", (0, 1, 0, 2, 0, 3)),
    ],
)
def test_orders_of_other_shapes(pattern, order):
    result = iterations(pattern, 60)
    if order is None:  # the shorter cycle is in the longer
        assert result.period == 2
    else:
        assert sum(result.per_step) == pytest.approx(len(order))
        assert result.period == 1
        assert result.orders[0][0] == order


def test_a_cycle_begins_with_its_batch_whoever_leads_it():
    result = iterations("Gpb Dp Gp E", 60)
    assert result.orders == (((0, 1, 0, 2), 1.0),)
    # E is the last of each: its end is that of the iteration, 0.4 s apart.
    assert result.end_s[1:4] == pytest.approx([100 + 0.4 * n for n in (2, 3, 4)])


def test_many_optimizers_that_step_once_each_are_one_step():
    """One for each layer, all after one backward pass."""
    result = iterations("Apb " + " ".join("BCDEFGHIJKLMNOPQRST"))
    assert len(result) == 39
    assert result.per_step == (1,) * 20


def test_a_slip_costs_one_cycle_only():
    """A gradient scaler leaves the second step of G out, once."""
    order = "DDGMSG" * 20 + "DDGMS" + "DDGMSG" * 20
    result = cycles(order, marks={20 * 6 + 5: {"skipped": 1}})
    assert len(result) == 40
    assert np.isnan(result.length_s).sum() <= 2
    assert np.nanmedian(result.length_s) == pytest.approx(0.6)


def test_an_order_that_one_in_fifteen_strays_from_repeats_all_the_same():
    result = cycles(("DDGMSG" * 14 + "DDGMS") * 4)
    assert result.is_regular
    assert sum(result.per_step) == pytest.approx(6, rel=0.02)


def test_an_extra_optimizer_now_and_then_stays_within_the_iteration():
    result = cycles(("DDGMSG" * 3 + "DDGMSGX") * 15)
    assert len(result) == 59
    assert result.period == 4
    assert [order for order, _ in result.orders] == [(0, 0, 1, 2, 3, 1), (0, 0, 1, 2, 3, 1, 4)]


def test_a_first_phase_of_one_before_iterations_with_two_turns():
    result = cycles("M" * 200 + "DDGMSG" * 60)
    assert result.per_step == pytest.approx((1, 2, 2, 1))
    assert result.length_s[3:] == pytest.approx([0.6] * (len(result) - 3))


def test_cycles_that_differ_and_share_a_batch_are_one():
    # D G D D G: a penalty every other time, or one iteration. A batch of its own tells them apart.
    apart = iterations("Db G Db D G", 60)
    assert apart.period == 2
    assert apart.batches[1:].tolist() == [1.0] * (len(apart) - 1)
    one = iterations("Db G D D G", 60)
    assert len(one) == 59
    assert one.per_step == (3, 2)
    assert one.length_s[1:] == pytest.approx([0.5] * 58)


def test_cycles_that_are_the_same_stay_apart_where_they_share_a_batch():
    result = iterations("Db G D G", 60)
    assert result.per_step == (1, 1)
    assert len(result) == 119


def test_tasks_by_turns_with_a_batch_each_are_steps_of_their_own():
    """An optimizer that both share, and one for the head of each; else they are one iteration."""
    result = iterations("Spb A Spb B", 60)
    assert result.per_step == pytest.approx((1, 0.5, 0.5), abs=0.02)
    assert result.period == 2
    assert iterations("Spb A Sp B", 60).per_step == pytest.approx((2, 1, 1), abs=0.02)


def test_without_a_leader_the_period_of_the_order_counts():
    # Each of the three has two turns, and no cycle of any is within the others of it.
    result = cycles("ABCACB" * 40)
    assert result.length_s[1:] == pytest.approx([0.6] * (len(result) - 1))
    assert result.per_step == pytest.approx((2, 2, 2))


def test_the_order_is_not_that_of_blocks():
    assert cycles("A" * 30 + "B" * 30).orders == ()
    assert cycles("A" * 30).orders == (((0,), 1.0),)
    assert passes("x.." * 20).orders == (((0, 0, 0), 1.0),)
    assert cycles_of(OptimizerStepTable()).orders == ()


def test_the_orders_are_those_of_a_penalty_now_and_then():
    # Every fourth has two steps of D: a quarter.
    result = cycles(("DDG" + "DG" * 3) * 20)
    orders = dict(result.orders)
    assert orders[0, 1] == pytest.approx(3 / 4, abs=0.03)
    assert orders[0, 0, 1] == pytest.approx(1 / 4, abs=0.03)


def test_a_look_at_many_records_of_several_optimizers_is_quick():
    made = table(letters("DDGMSG" * 16_000))
    cycles_of(made)
    began = time.process_time()
    cycles_of(made)
    # 40 ms here; the rest is for slower machines.
    assert time.process_time() - began < 0.3


# --- steps left out by a gradient scaler ---


def test_an_interval_with_steps_left_out_is_divided():
    # Two left out and one that ran took 0.3 s.
    apart_s = [0.1] * 20 + [0.3] + [0.1] * 20
    result = cycles_of(table([0] * 41, apart_s, marks={20: {"skipped": 2}}))
    assert result.steps.sum() == 43
    assert result.length_s[20] == pytest.approx(0.1)
    assert result.skipped == (2,)


def test_a_cycle_left_out_as_a_whole_is_divided():
    # Both of D and G were left out once: the cycle took 0.4 s instead of 0.2 s.
    apart_s = [0.1] * 20 + [0.3] + [0.1] * 19
    result = cycles_of(table(letters("DG" * 20), apart_s, marks={20: {"skipped": 2}}))
    assert result.steps.tolist() == [1] * 10 + [2] + [1] * 8
    assert result.length_s[10] == pytest.approx(0.2)


def test_a_cycle_in_which_one_of_two_was_left_out_is_not_counted():
    result = cycles(
        "DG" * 10 + "G" + "DG" * 10,
        marks={20: {"skipped": 1}},
        each_s=[0.1] * 20 + [0.2] * 1 + [0.1] * 20,
    )
    assert np.isnan(result.length_s[9])
    assert np.isfinite(result.length_s[1:9]).all()


# --- clocks ---


def test_the_gpus_own_clock_counts_where_it_is_known():
    marks = {place: {"host_s": 7.0 + 0.01 * place} for place in range(40)}
    made = table([0] * 40, marks=marks)
    finish(made, *(0.2 * place for place in range(40)))
    result = cycles_of(made)
    assert result.length_s[1:] == pytest.approx([0.2] * 39)
    assert result.host_length_s[1:] == pytest.approx([0.01] * 39)
    assert result.end_s[-1] == pytest.approx(7.39)


def test_records_whose_time_on_the_gpu_is_to_come_are_not_used_until_it_comes():
    made = table([0] * 20)
    times_s = made.column("host_s") - 50
    finish(made, *times_s[:15])
    assert len(cycles_of(made)) == 15
    finish(made, *times_s[15:18], after=15)
    assert len(made) == 20
    assert len(cycles_of(made)) == 18


def test_an_interval_with_records_missing_in_it_is_not_known():
    made = steps([0] * 20)
    result = cycles_of(OptimizerStepTable([*made[:8], *made[10:]]))
    assert np.flatnonzero(np.isnan(result.length_s)).tolist() == [0, 8]


def test_nothing_gives_nothing():
    assert len(cycles_of(OptimizerStepTable())) == 0
    assert len(cycles_of(OptimizerStepTable(), 3)) == 0
    assert len(cycles_of(table([0, 0]), 3)) == 0


# --- ranks ---


def test_ranks_share_what_all_of_them_wait_for():
    first = cycles_of(table([0] * 12, marks={5: {"saves": 1, "saved_s": 2.0}}))
    second = cycles_of(table([0] * 10, marks={7: {"evaluated": True}}))
    first_rank, second_rank = share_pauses([first, second])
    assert np.flatnonzero(first_rank.evaluated).tolist() == [7]
    assert np.flatnonzero(second_rank.saves).tolist() == [5]
    assert second_rank.saved_s[5] == 2.0
    assert (len(first_rank), len(second_rank)) == (12, 10)
