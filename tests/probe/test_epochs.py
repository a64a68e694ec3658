"""How long an epoch is: by loaders as scripts use them, and by made-up uses of them."""

from __future__ import annotations

import itertools

import pytest
from tests.probe.made import a_log, table

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import LoaderInfo, LoaderUse, LoaderUses
from outlay.probe.epochs import epoch_of
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import StepStatistics, steps_of

STEPS = 130
"""Of each script below: 40 batches of 8 are three epochs and a part."""
TRAINED, BATCHES = 8, 40


class Loop:
    """A script's model, and what it trains and samples with."""

    def __init__(self, model):
        import torch

        self.model, self.steps = model, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        self.loader = loader_of(BATCHES * TRAINED, TRAINED)

    @property
    def batches(self):
        """Those of epoch after epoch, as long as there are steps to be made."""
        for _ in itertools.count():
            for batch in self.loader:
                if self.steps == STEPS:
                    return
                yield batch

    def step(self, *batches):
        import torch

        self.model(torch.cat(batches)).sum().backward()
        self.optimizer.step()
        self.steps += 1

    def evaluate(self, *batches):
        import torch

        with torch.no_grad():
            for batch in batches:
                self.model(batch)


def loader_of(samples, batch_size, **options):
    import torch

    return torch.utils.data.DataLoader(torch.ones(samples, 8), batch_size, shuffle=True, **options)


def run(script):
    """The statistics and the epoch of a script that was watched."""
    import torch

    from outlay.probe.agent.step_watch import StepWatch

    watch = StepWatch(torch, Channel())
    watch.install()
    try:
        script(Loop(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout())))
        watch.report_loaders()
    finally:
        watch.uninstall()
    log = ProcessLog()
    log.read_lines(watch.channel.lines)
    statistics = steps_of([log.table])
    return statistics, epoch_of(statistics, [log])


def evaluates_and_stays_in_its_mode(every, *, before=False):
    """`model.train()` stands in the loop's body: the next batch is loaded in evaluation mode."""

    def script(loop):
        small = loader_of(4, 4)
        if before:
            loop.model.eval()
        for batch in loop.batches:
            loop.model.train()
            loop.step(batch)
            if loop.steps % every == 0:
                loop.model.eval()
                loop.evaluate(*small)

    return script


def samples_from_a_loaded_batch(every, *, before=False):
    """The batch to sample from is loaded before the model is put into evaluation mode."""

    def script(loop):
        small = loader_of(12, 4)
        if before:
            next(iter(small))
            loop.model.eval()
        for batch in loop.batches:
            loop.model.train()
            loop.step(batch)
            if loop.steps % every == 0:
                first = next(iter(small))
                loop.model.eval()
                loop.evaluate(first)

    return script


def samples_before_its_step(every, size=12):
    """As above, between the batch to train on and its step; also with more data to sample from."""

    def script(loop):
        small = loader_of(size, 4)
        for batch in loop.batches:
            if loop.steps % every == 0:
                first = next(iter(small))
                loop.model.eval()
                loop.evaluate(first)
            loop.model.train()
            loop.step(batch)

    return script


def looks_at_a_batch(every):
    """No modes are changed: a copy of the model is shown a batch now and then."""

    def script(loop):
        small = iter_for_ever(loader_of(64, 32))
        for batch in loop.batches:
            if loop.steps % every == 0:
                loop.evaluate(next(small))
            loop.step(batch)

    return script


def iter_for_ever(loader):
    """An iterator that is made anew where it is at its end."""
    while True:
        yield from loader


@pytest.mark.torch
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(evaluates_and_stays_in_its_mode(10), id="evaluates every 10 steps"),
        pytest.param(evaluates_and_stays_in_its_mode(1), id="samples every step"),
        pytest.param(
            evaluates_and_stays_in_its_mode(3, before=True), id="evaluates before its first step"
        ),
        pytest.param(samples_from_a_loaded_batch(1), id="samples from a batch every step"),
        pytest.param(samples_from_a_loaded_batch(5), id="samples from a batch every 5 steps"),
        pytest.param(
            samples_from_a_loaded_batch(1, before=True), id="samples before its first step, too"
        ),
        pytest.param(samples_before_its_step(1), id="samples before each step"),
        pytest.param(samples_before_its_step(5), id="samples before every fifth"),
        pytest.param(samples_before_its_step(1, 4000), id="samples from more data than it has"),
        pytest.param(samples_before_its_step(7, 4000), id="now and then, from more data"),
        pytest.param(looks_at_a_batch(5), id="looks at a batch of another loader"),
    ],
)
def test_the_epoch_is_that_of_the_loader_that_is_trained_on(script):
    statistics, epoch = run(script)
    assert epoch.steps == BATCHES
    assert epoch.notes == ()
    assert statistics.samples_per_step == TRAINED
    # But for a few steps at the beginning, none has samples of the other loader.
    assert statistics.mean_samples_per_step == pytest.approx(TRAINED, rel=0.05)


@pytest.mark.torch
def test_iterators_for_ever_of_a_main_and_a_reference_loader():
    def script(loop):
        main = iter_for_ever(loop.loader)
        reference, small = (iter_for_ever(loader_of(rows, 8)) for rows in (64, 16))
        next(small)
        while loop.steps < STEPS:
            batches = next(main), next(reference), next(reference)
            if loop.steps % 10 == 0:
                loop.evaluate(next(small))
            loop.step(*batches)

    statistics, epoch = run(script)
    assert epoch.steps == BATCHES  # not 40 / 3, though each step has three batches
    assert statistics.samples_per_step == 3 * 8
    (note,) = epoch.notes
    assert note == (
        "It trains on DataLoaders of 40 and 8 batches side by side: an epoch is counted by the"
        " longest."
    )


@pytest.mark.torch
@pytest.mark.parametrize("each", [1, 4])
def test_a_loader_that_is_begun_anew_for_every_step_has_its_length_as_epoch(each):
    def script(loop):
        while loop.steps < STEPS:
            for batch in itertools.islice(loop.loader, each - 1):
                loop.model(batch).sum().backward()
            loop.step(next(iter(loop.loader)))

    _, epoch = run(script)
    assert epoch.steps == BATCHES / each
    (note,) = epoch.notes
    assert "is begun anew for every step" in note


@pytest.mark.torch
def test_a_loader_that_is_begun_anew_beside_one_that_is_sampled_from():
    """Both are, for every step; the one with its data in order gives the same batch each time."""
    import torch

    def script(loop):
        small = torch.utils.data.DataLoader(torch.ones(12, 8), 4)
        while loop.steps < STEPS:
            batch = next(iter(loop.loader))
            loop.model.train()
            loop.step(batch)
            first = next(iter(small))
            loop.model.eval()
            loop.evaluate(first)

    statistics, epoch = run(script)
    assert epoch.steps == BATCHES
    assert statistics.samples_per_step == TRAINED


@pytest.mark.torch
def test_a_loader_that_is_made_anew_for_every_step_has_its_length_as_epoch():
    def script(loop):
        while loop.steps < STEPS:
            loop.step(next(iter(loader_of(BATCHES * TRAINED, TRAINED))))

    _, epoch = run(script)
    assert epoch.steps == BATCHES
    assert "is begun anew for every step" in epoch.notes[0]


@pytest.mark.torch
def test_a_loader_that_is_made_anew_for_every_epoch():
    def script(loop):
        while loop.steps < STEPS:
            for batch in loader_of(BATCHES * TRAINED, TRAINED):
                loop.step(batch)

    assert run(script)[1].steps == BATCHES


@pytest.mark.torch
@pytest.mark.parametrize("lengths", [[15] * 20, [3, 25, 8, 31, 14, 22, 5, 30, 9, 20]])
def test_an_epoch_that_is_left_before_the_loaders_end_is_said(lengths):
    def script(loop):
        for length in lengths:
            for batch in itertools.islice(loop.loader, length):
                loop.step(batch)

    _, epoch = run(script)
    (note,) = epoch.notes
    assert f"has batches for {BATCHES}" in note
    is_regular = len(set(lengths)) == 1
    assert epoch.steps == (lengths[0] if is_regular else None)
    assert ("not known" in note) is not is_regular


# --- made-up uses ---


def use(number=1, *, length=100, steps=250, batches=None, started_at=(1,), **fields):
    """A loader that gives a batch to each of the first steps."""
    batches = steps if batches is None else batches
    return LoaderUse(
        number=number,
        length=length,
        is_trained_on=True,
        steps=steps,
        batches=batches,
        batches_before_last=batches - batches // steps,
        first_step=1,
        last_step=steps,
        starts=len(started_at),
        started_at=started_at,
    )._replace(**fields)


def epoch(*uses, per_step=(1.0,), steps=250, measured=None, **fields):
    log = a_log(
        LoaderUses(loaders=[each._asdict() for each in uses]), table=table([0] * steps, **fields)
    )
    return epoch_of(StepStatistics(per_step=per_step, steps_per_epoch=measured), [log])


def test_an_epoch_by_its_length_where_none_was_seen():
    assert epoch(use(length=5000)).steps == 5000
    # Four batches a step.
    assert epoch(use(length=5000, batches=1000)).steps == 1250


def test_accumulation_that_grows_at_first_counts_as_it_is_in_the_end():
    """One batch in each of the first 100 steps, four in each later one."""
    given = use(length=5000, batches=100 + 4 * 150)
    statistics = StepStatistics(per_step=(1.0,), batches_per_step=4.0)
    log = a_log(LoaderUses(loaders=[given._asdict()]), table=table([0] * 250))
    assert epoch_of(statistics, [log]).steps == 5000 / 4
    # With another beside it, which gives half as many: two thirds of six batches a step.
    other = use(2, length=10, batches=50 + 2 * 150)
    log = a_log(LoaderUses(loaders=[given._asdict(), other._asdict()]), table=table([0] * 250))
    statistics = StepStatistics(per_step=(1.0,), batches_per_step=6.0)
    assert epoch_of(statistics, [log]).steps == 5000 / 4


def test_optimizer_steps_are_not_training_steps():
    # A batch for each third of 240 optimizer steps, of which three are a training step.
    given = use(length=1000, steps=80, batches_before_last=79, last_step=238)
    assert epoch(given, per_step=(2.0, 1.0), steps=240).steps == 1000
    # Begun at the optimizer steps 1, 91 and 181: 30 training steps each.
    given = given._replace(length=30, started_at=(1, 91, 181))
    assert epoch(given, per_step=(2.0, 1.0), steps=240).steps == 30


def test_steps_that_a_scaler_left_out_are_steps():
    # 225 of 250 steps were made, and the loader gave a batch to all.
    given = use(length=1000, steps=225, batches=250, batches_before_last=249)
    marks = {place: {"skipped": 1} for place in range(8, 225, 9)}
    assert epoch(given, steps=225, marks=marks).steps == 1000


def test_seen_and_length_that_agree_are_said_nothing_of():
    seen = epoch(use(started_at=(1, 101, 202)))
    assert (seen.steps, seen.notes) == (101, ())


def test_a_loader_that_was_gone_through_has_its_length_however_late_it_was_seen():
    # The first start was seen late: 80 steps before the second.
    assert epoch(use(started_at=(21, 101), ends=1)).steps == 100
    late = epoch(use(started_at=(21, 101)))
    assert late.steps is None
    assert "80 were seen" in late.notes[0]


def test_a_loader_without_a_length_tells_by_its_starts():
    assert epoch(use(length=None, started_at=(1, 40, 140, 240))).steps == 100
    assert epoch(use(length=None), measured=77.0).steps == 77
    begun = epoch(use(length=None, started_at=tuple(range(200, 232))))
    assert begun.steps is None
    assert "not known" in begun.notes[0]


def test_one_seldom_used_makes_no_epoch():
    seldom = use(2, length=9999, steps=10, last_step=200)
    assert epoch(use(), seldom).steps == 100


def test_one_that_is_begun_each_step_makes_none_beside_one_that_is_not():
    fixed = use(2, length=9999, started_at=tuple(range(200, 232)))
    assert epoch(use(), fixed).steps == 100


def test_a_full_batch_is_an_epoch_of_one_step():
    whole = use(length=1, started_at=tuple(range(200, 232)))
    assert (epoch(whole).steps, epoch(whole).notes) == (1, ())


def test_without_uses_it_is_as_it_was_seen_or_by_length():
    logs = [a_log(LoaderInfo(8, 120, 0, False, False))]
    assert epoch_of(StepStatistics(steps_per_epoch=50.0), logs).steps == 50
    assert epoch_of(StepStatistics(passes_per_step=4.0), logs).steps == 30
    assert epoch_of(StepStatistics(), [a_log()]).steps is None
    assert epoch_of(StepStatistics(), []).steps is None


def test_of_several_ranks_the_longest_counts():
    logs = [
        a_log(LoaderUses(loaders=[use(length=length)._asdict()]), table=table([0] * 250))
        for length in (1000, 1200)
    ]
    assert epoch_of(StepStatistics(per_step=(1.0,)), logs).steps == 1200
