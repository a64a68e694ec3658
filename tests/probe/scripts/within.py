"""Updates within the backward pass, and layers that recompute: within.py CLOCK.

Each parameter has an optimizer of its own, in a hook; two layers call backward once more each.
"""

import own_clock
import torch
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
clock = own_clock.OwnClock()
layers = [torch.nn.Linear(32, 32) for _ in range(2)]
optimizers = {p: torch.optim.SGD([p], lr=0.01) for layer in layers for p in layer.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in optimizers:
    parameter.register_post_accumulate_grad_hook(update)
while True:
    own_clock.work()
    x = torch.ones(12, 32, requires_grad=True)
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=True)
    x.square().mean().backward()
    clock.step()
