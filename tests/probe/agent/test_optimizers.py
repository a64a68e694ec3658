"""What tensors take in a process: of sharded ones a part, of modules what no optimizer updates."""

from __future__ import annotations

import copy
import types

import pytest
from tests.probe.made import written_reports

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.optimizers import Optimizers, frozen_bytes, tensor_bytes
from outlay.probe.agent.protocol import PersistentMemory

pytestmark = pytest.mark.torch

CPU = ("cpu", None)


def test_modules_that_no_optimizer_updates_are_counted_once_and_alone():
    import torch

    around = frozen_bytes(torch, CPU, [])
    base = torch.nn.Sequential(torch.nn.Linear(100, 50), torch.nn.BatchNorm1d(50))
    head = torch.nn.Linear(50, 10)
    tied = torch.nn.Linear(50, 10, bias=False)
    tied.weight = head.weight
    teacher = copy.deepcopy(base).half()
    # Linear 100 * 50 + 50, BatchNorm 4 * 50 (two of them buffers) and a count of 8 bytes.
    base_bytes = 4 * (5050 + 200) + 8
    teacher_bytes = 2 * (5050 + 200) + 8
    expected = around + base_bytes + teacher_bytes
    assert frozen_bytes(torch, CPU, list(head.parameters())) == expected
    assert frozen_bytes(torch, ("cuda", 0), []) == 0
    assert tied.weight is head.weight  # alive until here
    assert teacher is not base


def test_pieces_of_one_storage_are_told_apart():
    import torch

    around = frozen_bytes(torch, CPU, [])
    flat = torch.zeros(100)
    module = torch.nn.Module()
    module.trained = torch.nn.Parameter(flat[:30])
    module.frozen = torch.nn.Parameter(flat[30:], requires_grad=False)
    assert frozen_bytes(torch, CPU, [module.trained]) == around + 4 * 70


def test_a_module_that_is_not_made_yet_does_no_harm():
    import torch

    around = frozen_bytes(torch, CPU, [])
    lazy = torch.nn.LazyLinear(10)
    assert frozen_bytes(torch, CPU, []) == around
    assert lazy.has_uninitialized_params()


def test_of_a_sharded_tensor_the_part_that_lies_here_counts(tmp_path):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        whole = DTensor.from_local(
            torch.zeros(8, 4), mesh, [Shard(0)], shape=torch.Size([32, 4]), stride=(4, 1)
        )
        assert whole.numel() == 32 * 4
        assert tensor_bytes(whole) == 8 * 4 * 4
    finally:
        dist.destroy_process_group()


def test_what_is_frozen_between_its_turns_has_gradients():
    import torch

    turns, fixed = torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(8, 2, bias=False)
    fixed.requires_grad_(False)
    optimizer = torch.optim.Adam([*turns.parameters(), *fixed.parameters()])
    turns(torch.ones(3, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    turns.requires_grad_(False)
    channel = Channel()
    place = types.SimpleNamespace(place=CPU)
    optimizers = Optimizers(types.SimpleNamespace(channel=channel, torch=torch, device=place))
    optimizers.number((optimizer,))
    optimizers.report_memory()
    (memory,) = written_reports(channel, PersistentMemory)
    assert memory.parameters == 4 * (8 * 4 + 8 * 2)
    assert memory.gradients == 4 * 8 * 4
