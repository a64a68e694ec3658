"""Single recurrent cells on CUDA: one fused kernel after the two products."""

from __future__ import annotations

import pytest

from outlay.trace.tracing import profile_of

pytestmark = pytest.mark.torch

CODE = """
import torch
from torch import nn

STEPS = 6


def step_of(cell, state):
    head = nn.Linear(32, 4)
    update = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    batch_size = state[0].shape[0] if isinstance(state, tuple) else state.shape[0]
    x = torch.randn(batch_size, STEPS, 16)

    def step():
        now = state
        for place in range(STEPS):
            now = cell(x[:, place], now)
        out = now[0] if isinstance(now, tuple) else now
        head(out).sum().backward()
        update.step()
        update.zero_grad()

    return step


def gru(batch_size):
    return step_of(nn.GRUCell(16, 32), torch.zeros(batch_size, 32))


def lstm(batch_size):
    state = torch.zeros(batch_size, 32)
    return step_of(nn.LSTMCell(16, 32), (state, state.clone()))
"""


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        ("gru", "aten._thnn_fused_gru_cell", "aten._thnn_fused_gru_cell_backward"),
        ("lstm", "aten._thnn_fused_lstm_cell", "aten._thnn_fused_lstm_cell_backward_impl"),
    ],
)
def test_each_position_runs_one_fused_cell_forward_and_backward(
    tmp_path, function, forward, backward
):
    path = tmp_path / "cells.py"
    path.write_text(CODE)
    profile = profile_of(f"{path}:{function}")
    counts = {forward: 0.0, backward: 0.0}
    for op in profile.ops:
        if op.name in counts:
            counts[op.name] += op.count
    assert counts == {forward: 6, backward: 6}
    # The two products of a cell, forward: 2 * batch * (16 + 32) * gates * 32 FLOPs, six times.
    gates = 3 if function == "gru" else 4
    forward_flops = sum(op.count * op.flops for op in profile.at(8).ops if op.phase == "forward")
    head = 2 * 8 * 32 * 4
    assert forward_flops == 6 * 2 * 8 * (16 + 32) * gates * 32 + head
