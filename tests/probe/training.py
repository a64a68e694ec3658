"""A small training loop that the tests probe from inside, and what torch looks like around it."""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 8


def train(steps, *, each=None, pause_s=0.0, ends=None):
    """Train so many steps; `each(step)` is called after every one, `ends` gets their times."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = DataLoader(TensorDataset(torch.randn(SAMPLES * steps, 16)), batch_size=SAMPLES)
    for step, (batch,) in enumerate(batches, start=1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        time.sleep(pause_s)
        optimizer.step()
        if ends is not None:
            ends.append(time.perf_counter())
        if each is not None:
            each(step)
    return steps


def torch_as_it_is():
    """Everything of torch and of Python that watching changes, to compare before and after."""
    optim = sys.modules["torch.optim.optimizer"]
    loaders = sys.modules["torch.utils.data.dataloader"]
    modules = torch.nn.modules.module
    dispatch = sys.modules["torch.utils._python_dispatch"]
    return {
        "save": (torch.save, torch.serialization.save),
        "backward": torch.autograd.backward,
        "scaler": [
            sys.modules["torch.amp.grad_scaler"].GradScaler.__dict__[name]
            for name in ("scale", "step")
        ],
        "train": torch.nn.Module.__dict__["train"],
        "iter": loaders.DataLoader.__dict__["__iter__"],
        "next": loaders._BaseDataLoaderIter.__dict__["__next__"],
        "optimizer hooks": (
            dict(optim._global_optimizer_pre_hooks),
            dict(optim._global_optimizer_post_hooks),
        ),
        "module hooks": (
            dict(modules._global_forward_pre_hooks),
            dict(modules._global_forward_hooks),
        ),
        "modes": list(dispatch._get_current_dispatch_mode_stack()),
        "finders": list(sys.meta_path),
    }
