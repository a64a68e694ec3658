"""A small layer learns on top of a larger one that is frozen, beside a teacher in 16 bits."""

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
base = torch.nn.Linear(64, 128).requires_grad_(False)
teacher = torch.nn.Linear(64, 128).bfloat16()
model = torch.nn.Sequential(base, torch.nn.ReLU(), torch.nn.Linear(128, 4))
optimizer = torch.optim.SGD(model[2].parameters(), lr=1e-6)
while True:
    own_clock.work()
    loss = model(torch.ones(12, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    clock.step()
