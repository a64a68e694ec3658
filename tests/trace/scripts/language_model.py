"""No loader, settings as globals, micro-batches, and two hundred batches of evaluation at first."""

import sys

import torch
from torch import nn

batch_size = 6
micro_batches = 4
length = 16
for argument in sys.argv[1:]:
    name, value = argument.lstrip("-").split("=")
    globals()[name] = int(value)
tokens = torch.randint(100, (5000,))
model = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batch():
    starts = torch.randint(len(tokens) - length, (batch_size,))
    return torch.stack([tokens[start : start + length] for start in starts]).cuda()


@torch.no_grad()
def estimate():
    model.eval()
    losses = torch.zeros(200)
    for k in range(200):
        losses[k] = model(batch()).mean().item()
    model.train()
    return losses.mean()


for step in range(100):
    if step % 50 == 0:
        print(f"{estimate():.3f}")
    for _ in range(micro_batches):
        inputs = batch()
        logits = model(inputs)
        (
            nn.functional.cross_entropy(logits.flatten(0, 1), inputs.flatten()) / micro_batches
        ).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
