"""Four batches for each step; with "scaler", a gradient scaler that leaves each tenth step out."""

import sys

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
scaler = torch.amp.GradScaler("cpu", enabled=sys.argv[2:] == ["scaler"], init_scale=4.0)
model = torch.nn.Linear(32, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
batches = 0
while True:
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=6):
        own_clock.work(0.25)
        loss = model(inputs).square().mean() / 4
        batches += 1
        if scaler.is_enabled() and batches % 40 == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if batches % 4 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            clock.step()
