"""A progress bar where there is a terminal, as tqdm draws it; without a terminal nothing."""

import os
import sys

import own_clock
import own_optimizer
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
weight = torch.nn.Parameter(torch.ones(10))
optimizer = own_optimizer.PlainSGD([weight], lr=1e-3)
width, height = os.get_terminal_size(2)
os.write(1, f"terminals {sys.stdout.isatty()} {sys.stderr.isatty()} {width} {height}\n".encode())
for step in range(10**9):
    own_clock.work()
    weight.square().sum().backward()
    optimizer.step()
    clock.step()
    if sys.stderr.isatty() and step % 10 == 0:
        sys.stderr.write(f"\r{step} steps |####    |")
        sys.stderr.flush()
