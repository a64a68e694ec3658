"""What the agent sees of a training process, watched in this one."""

from __future__ import annotations

import pytest
from tests.probe.made import written_reports, written_steps

from outlay.probe.agent import step_watch
from outlay.probe.agent.batch import VIEWS
from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import (
    AgentRequest,
    LoaderInfo,
    Loss,
    ModuleInputs,
    OptimizerInfo,
    RecordedOperations,
)

pytestmark = pytest.mark.torch


@pytest.fixture
def watch(monkeypatch):
    import torch

    monkeypatch.setattr(step_watch, "_REPORT_S", -1.0)  # report after every step
    watch = step_watch.StepWatch(torch, Channel())
    watch.install()
    yield watch
    watch.uninstall()


def train(model, *batches):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        out = model(batch)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        optimizer.step()


def reports(watch, kind):
    return written_reports(watch.channel, kind)


def steps(watch):
    return written_steps(watch.channel)


def test_a_batch_that_grows_is_seen_to(watch):
    import torch

    train(torch.nn.Linear(2, 1), *(torch.ones(size, 2) for size in (4, 4, 4, 4, 4, 16, 16, 16)))
    assert reports(watch, ModuleInputs)[-1].samples == 16


@pytest.mark.parametrize("batch_first", [True, False])
def test_samples_come_second_where_time_comes_first(watch, batch_first):
    import torch

    train(torch.nn.LSTM(6, 3, batch_first=batch_first), *[torch.ones(10, 4, 6)] * 3)
    samples = {inputs.samples for inputs in reports(watch, ModuleInputs)}
    assert samples == {10 if batch_first else 4}


def of_tokens(layer, *, turned):
    """A model whose layer has positions first; `turned`, the model itself has samples first."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(9, 6)
            self.layer = layer

        def forward(self, tokens):
            hidden = self.embedding(tokens)
            return self.layer(hidden.transpose(0, 1) if turned else hidden)

    return Model()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "TransformerEncoderLayer"])
def test_tokens_may_have_positions_first(watch, kind, turned):
    """Told by what the layer itself gets: some models turn round what they are given."""
    import torch

    layer = torch.nn.LSTM(6, 3) if kind == "LSTM" else torch.nn.TransformerEncoderLayer(6, 2, 8)
    tokens = torch.zeros((10, 4), dtype=torch.long)
    train(of_tokens(layer, turned=turned), *[tokens] * 3)
    samples = {inputs.samples for inputs in reports(watch, ModuleInputs)}
    assert samples == {10 if turned else 4}


def inputs_of(watch, step, steps=3):
    """Batches, their samples and backward passes of each step whose inputs were read."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        step(model)
        optimizer.step()
    all_inputs = reports(watch, ModuleInputs)
    return {(inputs.inputs, inputs.rows, inputs.passes) for inputs in all_inputs}


# --- single samples, and what is no batch of the training ---


def learner(*layers):
    """Layers, an optimizer of theirs, and a function that learns from a loss."""
    import torch

    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def learn(loss):
        loss.backward()
        optimizer.step()

    return model, learn


def last_inputs(watch):
    return reports(watch, ModuleInputs)[-1]


def test_a_vector_of_features_is_one_sample(watch):
    import torch

    model, learn = learner(torch.nn.Linear(4, 4))
    for _ in range(3):
        learn(model(torch.ones(4)).sum())
    assert last_inputs(watch).samples == 1


@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d"])
def test_an_image_without_a_batch_is_one_sample(watch, kind):
    import torch

    dimensions = int(kind[4])
    model, learn = learner(getattr(torch.nn, kind)(3, 2, 3))
    for _ in range(3):
        learn(model(torch.ones(3, *[8] * dimensions)).sum())
    assert last_inputs(watch).samples == 1
    learn(model(torch.ones(5, 3, *[8] * dimensions)).sum())
    assert last_inputs(watch).samples == 5


def of_vectors(turn):
    """A model of its own kind, whose layer gets what `turn` makes of a vector."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(features, 2))

        def forward(self, values):
            return turn(values) @ self.weight

    return Model


def test_a_vector_that_a_model_of_its_own_kind_takes_whole_is_one_sample(watch):
    import torch

    model, learn = learner(of_vectors(lambda values: values)(4))
    for _ in range(3):
        learn(model(torch.ones(4)).sum())
    assert last_inputs(watch).samples == 1


def test_a_vector_of_samples_with_one_number_each_is_a_batch(watch):
    import torch

    model, learn = learner(of_vectors(lambda values: values[:, None])(1))
    for _ in range(3):
        learn(model(torch.ones(16)).sum())
    assert last_inputs(watch).samples == 16


@pytest.mark.parametrize("moves", [1, 7])
def test_acting_with_gradients_between_updates_is_no_batch(watch, moves):
    """As in deep Q-learning: observations of 4 features, one at a time, and batches of 32."""
    import torch

    model, learn = learner(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    for _ in range(4):
        for _ in range(moves):
            int(model(torch.rand(4)).argmax())
        learn(model(torch.rand(32, 4)).square().mean())
    inputs = last_inputs(watch)
    assert (inputs.samples, inputs.inputs, inputs.rows, inputs.singles) == (32, 1, 32, 0)


def test_an_actor_that_acts_is_no_batch_of_its_critic(watch):
    import torch

    actor, learn_to_act = learner(torch.nn.Linear(4, 2))
    critic, learn_to_judge = learner(torch.nn.Linear(6, 1))
    for _ in range(3):
        states = torch.rand(64, 4)
        actor(torch.rand(1, 4)).detach()
        learn_to_judge(critic(torch.rand(64, 6)).square().mean())
        learn_to_act(-critic(torch.cat([states, actor(states)], 1)).mean())
    samples = [inputs.samples for inputs in reports(watch, ModuleInputs)]
    assert set(samples) == {64}


def test_an_episode_that_is_learned_from_at_once_is_a_batch_of_its_moves(watch):
    import torch

    model, learn = learner(torch.nn.Linear(4, 2))
    for moves in (12, 30):
        chosen = [model(torch.rand(4)).log_softmax(0)[0] for _ in range(moves)]
        learn(-torch.stack(chosen).sum())
    # Of the step before the first nothing is read: it begins to watch when one has returned.
    inputs = last_inputs(watch)
    assert (inputs.samples, inputs.rows, inputs.singles) == (30, 30, 30)


def test_a_sequence_that_is_read_one_by_one_is_one_sample(watch):
    import torch

    cell = torch.nn.RNNCell(3, 5)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    for _ in range(3):
        state = torch.zeros(1, 5)
        for _ in range(9):
            state = cell(torch.rand(1, 3), state)
        state.sum().backward()
        optimizer.step()
    inputs = last_inputs(watch)
    assert (inputs.samples, inputs.singles) == (1, 0)


def test_many_inputs_of_as_many_samples_may_be_views_or_batches(watch):
    """Of eight environments side by side, or eight crops of each of eight images."""
    import torch

    model, learn = learner(torch.nn.Linear(4, 2))
    for _ in range(3):
        learn(sum(model(torch.rand(8, 4)).sum() for _ in range(5)))
    inputs = last_inputs(watch)
    assert (inputs.samples, inputs.rows, inputs.alike) == (8, 8, 5)
    assert inputs.alike > VIEWS


def test_real_and_fake_are_views_of_one_sample(watch):
    import torch

    model, learn = learner(torch.nn.Linear(4, 1))
    for _ in range(3):
        learn(model(torch.rand(1, 4)).sum() - model(torch.rand(1, 4)).sum())
    assert last_inputs(watch).samples == 1


def test_what_is_not_learned_from_is_not_kept(watch):
    """Else an evaluation that forgot to switch gradients off would fill the memory."""
    import gc
    import weakref

    import torch

    model, learn = learner(torch.nn.Linear(4, 2))
    learn(model(torch.rand(3, 4)).sum())
    assert watch.batch.is_on
    out = model(torch.rand(5, 4))
    kept = weakref.ref(out)
    del out
    gc.collect()
    assert kept() is None


def test_one_batch_may_have_several_backward_passes(watch):
    import torch

    data = torch.ones(100, 2)

    def again(model):
        for _ in range(2):  # another view of the same rows each time, as in SAM
            model(data[10:15]).sum().backward()

    assert inputs_of(watch, again) == {(1, 5, 2)}


def test_several_losses_of_one_forward_pass_are_one_batch(watch):
    import torch

    head = torch.nn.Linear(1, 1)

    def losses(model):
        out = model(torch.ones(5, 2))
        for left in (True, False):
            head(out).sum().backward(retain_graph=left)

    assert inputs_of(watch, losses) == {(1, 5, 2)}


def test_batches_that_are_made_on_the_spot_are_all_counted(watch):
    import torch

    def accumulate(model):
        for rows in (4, 4, 4, 2):  # memory that was freed is used again
            model(torch.ones(rows, 2)).sum().backward()

    assert inputs_of(watch, accumulate) == {(4, 14, 4)}


def test_a_buffer_that_is_filled_anew_is_another_batch(watch):
    import torch

    buffer = torch.ones(5, 2)

    def refill(model):
        for value in (1.0, 2.0, 3.0):
            buffer.fill_(value)
            model(buffer).sum().backward()

    assert inputs_of(watch, refill) == {(3, 15, 3)}


def test_what_is_recomputed_is_no_batch(watch):
    import torch
    from torch.utils.checkpoint import checkpoint

    def accumulate(model):
        for _ in range(2):
            hidden = model[0](torch.ones(5, 2))
            checkpoint(model[1], hidden, use_reentrant=True).sum().backward()

    assert inputs_of(watch, accumulate) == {(2, 10, 2)}


def test_what_runs_without_gradients_is_no_batch(watch):
    import torch

    def distil(model):
        with torch.no_grad():
            model(torch.ones(50, 2))
        model(torch.ones(5, 2)).sum().backward()

    assert inputs_of(watch, distil) == {(1, 5, 1)}


def evaluated(watch):
    """Whether there was an evaluation before each step."""
    return [bool(step.evaluated or step.mostly_no_grad) for step in steps(watch)]


def test_time_without_gradients_is_an_evaluation_where_it_is_most_of_it(watch):
    import time

    import torch

    model = torch.nn.Linear(2, 1)
    train(model, torch.ones(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for gradless_s, trained_s in ((0.0, 0.02), (0.03, 0.002), (0.002, 0.03)):
        with torch.no_grad(), torch.inference_mode():
            time.sleep(gradless_s)
        time.sleep(trained_s)
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    assert evaluated(watch) == [False, False, True, False]


@pytest.mark.parametrize("switch", ["function", "block", "nested"])
def test_gradients_that_are_switched_off_are_off(watch, switch):
    import time

    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 2 and switch == "function":
            torch.set_grad_enabled(False)
            time.sleep(0.03)
            torch.set_grad_enabled(True)
        elif step == 2 and switch == "block":
            with torch.set_grad_enabled(False):
                time.sleep(0.03)
        elif step == 2:
            with torch.no_grad():
                with torch.enable_grad():
                    model(torch.ones(3, 2))
                time.sleep(0.03)
        time.sleep(0.002)
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    assert evaluated(watch)[1:] == [False, True, False]


def test_a_teacher_hides_no_evaluation(watch):
    """Most of each step is without gradients; the student is evaluated now and then."""
    import time

    import torch

    student, teacher = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for step in range(6):
        if step == 4:
            student.eval()
            student(torch.ones(3, 2))
            student.train()
        with torch.no_grad():
            teacher(torch.ones(3, 2))
            time.sleep(0.01)
        student(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    made = steps(watch)
    assert [bool(step.evaluated) for step in made] == [False, False, False, False, True, False]
    assert all(step.mostly_no_grad for step in made[1:])


def test_a_checkpoint_that_another_thread_writes_is_no_pause(watch, tmp_path):
    import threading

    import torch

    model = torch.nn.Linear(2, 1)
    for step in range(4):
        train(model, torch.ones(3, 2))
        if step == 1:
            saving = threading.Thread(target=torch.save, args=[model, tmp_path / "model.pt"])
            saving.start()
            saving.join()
    assert (tmp_path / "model.pt").exists()
    assert [step.saves for step in steps(watch)] == [0] * 4
    assert not any(evaluated(watch))


def test_layers_that_stay_in_evaluation_mode_are_no_evaluation(watch):
    import torch

    frozen = torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(frozen, torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        if epoch == 2:  # without `no_grad`, and over before the step
            model.eval()
            model(torch.ones(3, 2))
        model.train()
        frozen.eval()
        for _ in range(2):
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
    assert evaluated(watch) == [False, False, False, False, True, False]


@pytest.mark.parametrize("seldom", [True, False])
def test_what_runs_without_gradients_alone_is_recorded_where_it_is_part_of_the_step(watch, seldom):
    """An evaluation that says nothing of itself; or a teacher that runs in every step."""
    import time

    import torch

    left = []
    watch.on_stop = lambda: left.append(watch.steps)
    watch.channel.request = AgentRequest(record_from=10, record_until=11, stop_at=11)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 12):
        if step == 11 or not seldom:
            with torch.no_grad():
                model(torch.ones(300, 2))
                time.sleep(0.02)
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    (operations,) = reports(watch, RecordedOperations)
    shapes = [shape for op in operations.recording["ops"] for shape in op["shapes"]]
    rows = {size for shape in shapes for size in shape}
    assert left == [11]
    assert evaluated(watch)[1:] == [not seldom] * 9 + [True]
    assert (300 in rows) is not seldom
    assert operations[0]["rows"] == 3


def test_what_an_optimizer_does_without_gradients_is_its_step(watch):
    import time

    import torch

    class Slow(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            time.sleep(0.02)
            return super().step(closure)

    model = torch.nn.Linear(2, 1)
    optimizer = Slow(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    assert not any(evaluated(watch))


def test_the_first_steps_are_told_at_once(watch, monkeypatch):
    import torch

    flushed = []
    monkeypatch.setattr(watch.channel, "flush", lambda: flushed.append(watch.steps))
    train(torch.nn.Linear(2, 1), *[torch.ones(3, 2)] * 6)
    assert flushed == [1, 2, 3]


def test_optimizers_made_anew_for_every_task_are_one(watch):
    import torch

    model = torch.nn.Linear(2, 1)
    outer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(optimizer):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    for _ in range(4):
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            step(inner)
        del inner
        step(outer)
    names = [(optimizer.number, optimizer.name) for optimizer in reports(watch, OptimizerInfo)]
    assert names == [(0, "SGD"), (1, "Adam")]
    assert [step.optimizer for step in steps(watch)] == [0, 0, 1] * 4


@pytest.mark.parametrize(("requested_at", "recorded"), [(2, 5), (7, 8)])
def test_what_is_heard_of_too_late_is_done_later(watch, requested_at, recorded):
    """Steps in bursts: outlay asks for the fourth when the seventh has been made."""
    import torch

    left = []
    watch.on_stop = lambda: left.append(watch.steps)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 12):
        if step == requested_at:
            watch.channel.request = AgentRequest(
                profile_from=4, profile_until=4, record_from=4, record_until=5, stop_at=5
            )
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        if left:
            break
    (operations,) = reports(watch, RecordedOperations)
    assert operations.optimizer_steps == 1
    assert left == [recorded]


def test_the_rest_of_an_epoch_is_not_what_is_recorded(watch):
    """Nine samples in batches of 4: outlay asks for the third step, which has one."""
    import torch

    left = []
    watch.on_stop = lambda: left.append(watch.steps)
    watch.channel.request = AgentRequest(
        profile_from=1, profile_until=1, record_from=2, record_until=3, stop_at=3
    )
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(9, 2), 4)
    for _ in range(2):
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
    assert left[0] == 4
    (operations,) = reports(watch, RecordedOperations)
    assert (operations.first_step, operations.last_step) == (4, 4)
    assert operations.inputs["rows"] == 4


def test_whole_graphs_count_as_compiled_and_are_left_alone(watch):
    import torch

    from outlay.probe.agent.shutdown import compiled_frames

    torch._dynamo.utils.counters.clear()
    model = torch.nn.Linear(2, 1)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda batch: model(batch).sum(), backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        compiled(torch.ones(3, 2)).backward()
        optimizer.step()
    assert compiled_frames() >= 1
    assert len(graphs) == 1
    assert reports(watch, ModuleInputs) == []


def test_nothing_of_ours_is_compiled(watch):
    import torch

    def graphs():
        """Compile a whole step, and count what was compiled for it."""
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend="eager")
        def step(batch):
            model(batch).sum().backward()

        for _ in range(3):
            step(torch.ones(3, 2))
            optimizer.step()
        return dict(torch._dynamo.utils.counters["stats"])

    counters = graphs()
    assert watch.steps == 3
    watch.uninstall()
    assert graphs() == counters


def test_waiting_for_a_cpu_is_told(watch, monkeypatch):
    """Told by the kernel in nanoseconds: 300 of the 1000 ms between two looks."""
    from outlay.probe.agent import device

    reported = []
    monkeypatch.setattr(watch.channel, "report", reported.append)
    for queued_s, now_s in ((2.0, 50.0), (2.3, 51.0)):
        monkeypatch.setattr(device, "_queued_s", lambda queued_s=queued_s: queued_s)
        monkeypatch.setattr(device.time, "perf_counter", lambda now_s=now_s: now_s)
        watch._cpu_queue.report()
    (queue,) = reported
    assert queue.fraction == pytest.approx(0.3)


@pytest.mark.parametrize("changes", [False, True])
def test_the_loss_is_the_one_before_a_gradient_scaler(watch, changes):
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    losses = []
    for _ in range(4):  # the scale doubles with each
        loss = model(torch.ones(3, 2)).square().mean() + 2.5
        scaled = scaler.scale(loss)
        (scaled / 2 if changes else scaled).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item() / (2 if changes else 1))
    assert [loss.value for loss in reports(watch, Loss)] == pytest.approx(losses)


def test_the_longest_of_loaders_side_by_side_makes_the_epoch(watch):
    """A source of 10 batches; a target of 4 is started again wherever it is at its end."""
    import torch

    source = torch.utils.data.DataLoader(torch.ones(20, 2), batch_size=2)
    target = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    others = iter(target)
    for _ in range(3):
        for batch in source:
            other = next(others, None)
            if other is None:
                others = iter(target)
                other = next(others)
            (model(batch).sum() + model(other).sum()).backward()
            optimizer.step()
    epochs = [step.number for step in steps(watch) if step.new_epoch]
    assert epochs == [1, 11, 21]
    assert sorted(loader.batches for loader in reports(watch, LoaderInfo)) == [4, 10]
