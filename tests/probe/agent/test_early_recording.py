"""Operations of the first steps, so that every probe that saw a step has them."""

from __future__ import annotations

import gc
import types

import pytest
from tests.probe.made import letters, written_reports, written_steps

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import AgentRequest, StepOperations
from outlay.probe.agent.step_watch import StepWatch

pytestmark = pytest.mark.torch
MANY = AgentRequest(early_steps=16)


@pytest.fixture
def watched():
    """A channel that asks for the first steps, and a watch on it."""
    import torch

    gc.collect()  # optimizers of other tests
    channel = Channel()
    channel.request = MANY
    watch = StepWatch(torch, channel)
    watch.install()
    yield types.SimpleNamespace(channel=channel, watch=watch)
    watch.uninstall()


def recorded(watched):
    return [report.step for report in written_reports(watched.channel, StepOperations)]


def make(widths):
    """A model of one layer for each width, and its optimizer."""
    import torch

    models = [torch.nn.Linear(4, width) for width in widths]
    return models, [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]


def step(model, optimizer):
    import torch

    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_second_step_of_one_optimizer_is_recorded_and_not_timed(watched):
    (model,), (optimizer,) = make([2])
    for _ in range(5):
        step(model, optimizer)
    (operations,) = written_reports(watched.channel, StepOperations)
    assert operations.step == 2
    products = [op for op in operations.recording["ops"] if op["name"] == "aten.addmm"]
    assert [op["flops"] for op in products] == [2 * 3 * 4 * 2]
    assert operations.recording["parameters"] == 4 * 2 + 2
    # What follows has the time in it that reporting took.
    assert [s.recorded for s in written_steps(watched.channel)] == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("order", "until"),
    [
        pytest.param("DGDGDG", 3, id="by turns"),
        pytest.param("DDGMSGDDGMSG", 7, id="one of them twice"),
        pytest.param("DDDDDGDDDDDG", 7, id="a critic that trains more"),
        pytest.param("ABACABAC", 5, id="another between the same"),
    ],
)
def test_of_several_optimizers_a_whole_round_is_recorded(watched, order, until):
    turns = letters(order)
    models, optimizers = make([1] * (max(turns) + 1))
    for turn in turns:
        step(models[turn], optimizers[turn])
    assert recorded(watched) == list(range(2, until + 1))


def test_an_optimizer_that_never_steps_is_not_waited_for(watched):
    (model, _), (optimizer, _idle) = make([1, 1])
    for _ in range(20):
        step(model, optimizer)
    assert recorded(watched) == list(range(2, 10))


def test_updates_without_a_backward_pass_belong_to_the_step_before(watched):
    (model,), (optimizer,) = make([1])
    for _ in range(4):
        step(model, optimizer)
        optimizer.step()
    assert recorded(watched) == [2, 3]


@pytest.mark.parametrize("how", ["mode", "no gradients", "inference mode"])
def test_an_evaluation_is_not_recorded(watched, how):
    """One that comes after the first step, as samples of a new model do: the step after it is."""
    import torch

    (model,), (optimizer,) = make([1])
    step(model, optimizer)
    without = torch.inference_mode if how == "inference mode" else torch.no_grad
    with without():
        if how != "no gradients":
            model.eval()
        for _ in range(3000):  # two operations each
            model(torch.ones(2, 4))
        model.train()
    for _ in range(4):
        step(model, optimizer)
    assert recorded(watched) == [3]
    assert [s.recorded for s in written_steps(watched.channel)] == [0, 1, 1, 1, 0]
    torch.ops.profiler._record_function_enter_new("an operator without tensors")


def test_nothing_is_left_in_torch(watched):
    import torch

    original = torch.nn.Module._call_impl
    (model,), (optimizer,) = make([1])
    step(model, optimizer)
    assert torch.nn.Module._call_impl is not original
    watched.watch.uninstall()
    assert torch.nn.Module._call_impl is original
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


@pytest.mark.parametrize("early_steps", [0, 16])
def test_code_that_is_compiled_meanwhile_has_nothing_of_ours_in_it(watched, early_steps):
    """Modules are watched in the first steps; a model that is compiled then must be whole."""
    import torch

    watched.channel.request = AgentRequest(early_steps=early_steps)
    (model,), (optimizer,) = make([1])
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    step(model, optimizer)
    compiled = torch.compile(lambda batch: model(batch).sum(), backend=backend, fullgraph=True)
    for _ in range(4):
        compiled(torch.ones(3, 4)).backward()
        optimizer.step()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # by which others know that nothing is compiled
    # At most once more, after modules are no longer watched
    assert 1 <= len(graphs) <= 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_steps_within_compiled_code_are_left_to_the_end(watched):
    """A recorder that begins or ends there would be half on when it returns."""
    import torch

    (model,), (optimizer,) = make([1])

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward()
        update()
        optimizer.zero_grad()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert recorded(watched) == []
    assert watched.watch.steps == 3


def test_what_cannot_be_noted_does_not_stop_the_script(watched, monkeypatch):
    import torch

    import outlay.trace.capture.live_recorder as live_recorder

    def fail(*_):
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(live_recorder, "op_of", fail)
    (model,), (optimizer,) = make([1])
    for _ in range(3):
        step(model, optimizer)
    (operations,) = written_reports(watched.channel, StepOperations)
    assert operations.recording["ops"] == []
    assert operations.recording["unknown_ops"]["aten.addmm"] == 1
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
