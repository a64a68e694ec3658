"""Updates by hand: by_hand.py CLOCK [passes before torch's own optimizer steps, if it does]."""

import sys

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
accumulated = int(sys.argv[2]) if len(sys.argv) > 2 else None
model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model[0].bias.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
passes = 0
while True:
    own_clock.work(1 if accumulated is None else 1 / accumulated)
    model(torch.ones(12, 32)).square().mean().backward()
    passes += 1
    if accumulated is None:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
        if passes >= 64:  # from there on they are seen
            clock.step()
    elif passes % accumulated == 0:
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
