"""Whole steps in a CUDA graph, on a stand-in for torch's."""

from __future__ import annotations

import pytest
from tests.probe.made import written_reports, written_steps

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.protocol import AgentRequest, PhaseFailed
from outlay.probe.agent.recording import Recording
from outlay.probe.agent.step_watch import StepWatch

pytestmark = pytest.mark.torch


@pytest.fixture
def torch(monkeypatch):
    import torch

    class CUDAGraph:
        """Captures what is called between its ends, without running it a second time."""

        capturing = False

        def capture_begin(self):
            CUDAGraph.capturing = True

        def capture_end(self):
            CUDAGraph.capturing = False

        def replay(self):
            pass

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: CUDAGraph.capturing)
    return torch


@pytest.fixture
def watch(torch, monkeypatch):
    watch = StepWatch(torch, Channel())
    monkeypatch.setattr(watch.device, "install", lambda _: None)
    watch.install()
    yield watch
    watch.uninstall()


def steps(watch):
    """Optimizer and backward passes of each step."""
    return [(step.optimizer, step.passes) for step in written_steps(watch.channel)]


def trained(torch, passes=1):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        for _ in range(passes):
            model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    return step


def captured(torch, *calls):
    """A graph of steps that have run before, as one warms up."""
    for call in calls:
        call()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    for call in calls:
        call()
    graph.capture_end()
    return graph


def test_a_step_that_is_captured_counts_when_it_is_replayed(torch, watch):
    graph = captured(torch, trained(torch, passes=2))
    assert steps(watch) == [(0, 2)]
    for _ in range(4):
        graph.replay()
    assert steps(watch) == [(0, 2)] * 5


def test_several_optimizers_in_one_graph_keep_their_order(torch, watch):
    critic, generator = trained(torch), trained(torch, passes=3)
    captured(torch, critic, generator).replay()
    assert steps(watch) == [(0, 1), (1, 3)] * 2


def test_graphs_without_a_step_count_for_nothing(torch, watch):
    trained(torch)()
    captured(torch, lambda: torch.ones(2).sum()).replay()
    assert len(steps(watch)) == 1
    assert not watch.graphs.are_replayed


def test_operations_of_a_replayed_graph_are_not_guessed(torch, watch):
    captured(torch, trained(torch)).replay()
    Recording(watch).after_step(9, AgentRequest(record_from=9, record_until=10))
    failures = written_reports(watch.channel, PhaseFailed)
    assert [failed.phase for failed in failures] == ["record"]
    assert "CUDA graph" in failures[0].why


def test_a_graph_that_is_gone_is_not_kept(torch, watch):
    graph = captured(torch, trained(torch))
    assert len(watch.graphs._steps) == 1
    del graph
    assert len(watch.graphs._steps) == 0


def test_torch_is_left_as_it_was(torch):
    before = dict(vars(torch.cuda.CUDAGraph))
    watch = StepWatch(torch, Channel())
    watch.device.install = lambda _: None
    watch.install()
    assert vars(torch.cuda.CUDAGraph)["replay"] is not before["replay"]
    watch.uninstall()
    assert dict(vars(torch.cuda.CUDAGraph)) == before
