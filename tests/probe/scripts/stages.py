"""Models trained one after the other, all kept: stages.py CLOCK [steps of each]."""

import sys

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 30
kept = []
while True:
    model = torch.nn.Linear(32, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept.append((model, optimizer))
    for _ in range(steps):
        own_clock.work()
        model(torch.ones(12, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
