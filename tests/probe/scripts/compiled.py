"""A compiled model and a compiled optimizer step: compiled.py CLOCK BACKEND."""

import sys

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
model = torch.compile(torch.nn.Linear(32, 16), backend=sys.argv[2])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)


@torch.compile(backend=sys.argv[2])
def update():
    optimizer.step()


data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
while True:
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=8):
        own_clock.work()
        model(inputs).square().mean().backward()
        update()
        optimizer.zero_grad()
        clock.step()
