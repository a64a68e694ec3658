"""Trains at a batch size; above a limit it runs out of memory, in the way it is told to."""

from __future__ import annotations

import sys
import time

import own_optimizer
import torch

way, limit, batch_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = own_optimizer.PlainSGD(model.parameters(), lr=0.1)
inputs = torch.randn(batch_size, 8)
for step in range(1000):
    if batch_size > limit and step == 2:
        if way == "raise":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if way == "exit":
            sys.stdout.write("cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n")
            sys.exit(3)
        raise ValueError("no such column")
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
