"""Samples after every step from a batch of a small loader: sampling.py CLOCK.

The model is put back to train in the body of the loop, when the next batch is loaded already.
"""

import own_clock
import own_optimizer
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.Dropout())
optimizer = own_optimizer.PlainSGD(model.parameters(), lr=1e-6)
data = torch.utils.data.TensorDataset(torch.ones(200, 32))
train = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
small = torch.utils.data.DataLoader(data, batch_size=100)
model.eval()
while True:
    for (inputs,) in train:
        model.train()
        own_clock.work()
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
        (noise,) = next(iter(small))
        model.eval()
        with torch.no_grad():
            model(noise)
