"""A tiny training step on the CPU, repeated for some seconds: what issuing operations costs a host.

Nothing in that step takes time to compute, so what remains is what a training step on a GPU costs
the host as well: Python, autograd, the dispatcher. It runs on one thread, as issuing does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

LAYERS = 16
STEPS_PER_SAMPLE = 10
WARM_UP = 50


def step_times_s(seconds: float) -> list[float]:
    """Seconds of a step, sample after sample, for about so long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _sampled(_tiny_step(), seconds)
    finally:
        torch.set_num_threads(threads)


def _sampled(step: Callable[[], None], seconds: float) -> list[float]:
    for _ in range(WARM_UP):
        step()
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < ends:
        started = time.perf_counter()
        for _ in range(STEPS_PER_SAMPLE):
            step()
        taken.append((time.perf_counter() - started) / STEPS_PER_SAMPLE)
    return taken


def _tiny_step() -> Callable[[], None]:
    layers = [module for _ in range(LAYERS) for module in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    x = torch.randn(4, 8)

    def step() -> None:
        model(x).sum().backward()
        update.step()
        update.zero_grad(set_to_none=True)

    return step
