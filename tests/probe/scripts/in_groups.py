"""An optimizer that updates one group of its parameters after the other: in_groups.py CLOCK."""

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.Linear(16, 4))
groups = [{"params": list(layer.parameters())} for layer in model]
optimizer = torch.optim.Adam(groups)
whole = optimizer.param_groups
while True:
    own_clock.work()
    model(torch.ones(12, 32)).square().mean().backward()
    for group in whole:
        optimizer.param_groups = [group]
        optimizer.step()
    optimizer.param_groups = whole
    optimizer.zero_grad()
    clock.step()
