"""Each 15 steps an evaluation, each 20 a checkpoint, by turns of torch and of safetensors.

The third argument says how it evaluates: a copy of the model is in evaluation mode for good.
"""

import copy
import json
import sys
import time

import own_clock
import own_optimizer
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
clock = own_clock.OwnClock()
model = torch.nn.Linear(32, 16)
optimizer = own_optimizer.PlainSGD(model.parameters(), lr=1e-6)
data = torch.utils.data.TensorDataset(torch.ones(400, 32))
train = torch.utils.data.DataLoader(data, batch_size=4)
large = {"large": torch.ones(20, 2**20)}
check = torch.utils.data.DataLoader(data, batch_size=100)


how = sys.argv[3] if sys.argv[3:] else "eval"
evaluated = copy.deepcopy(model).eval() if how == "copy" else model


def evaluate():
    if how == "eval":
        model.eval()
    with torch.no_grad():
        for (inputs,) in check:
            own_clock.work(2)
            evaluated(inputs)
    model.train()


class Slow:
    """Takes its time to be written, as a large model does."""

    def __reduce__(self):
        own_clock.work(5)
        return (Slow, ())


steps, spent_s = 0, {"evaluation": 0.0, "checkpoint": 0.0}


def timed(kind, action):
    before_s = time.perf_counter()
    action()
    spent_s[kind] += time.perf_counter() - before_s


while True:
    for (inputs,) in train:
        own_clock.work()
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        clock.step()
        if steps % 15 == 0:
            timed("evaluation", evaluate)
        if steps % 40 == 0:
            timed("checkpoint", lambda: torch.save({"slow": Slow()}, "checkpoint.pt"))
        elif steps % 20 == 0:
            timed("checkpoint", lambda: save_file(large, "model.safetensors"))
        if steps == 62:
            with open(sys.argv[2], "w") as file:
                json.dump(spent_s, file)
