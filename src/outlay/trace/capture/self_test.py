"""Tests of this torch and this host: whether steps can be traced, and what issuing one takes.

`python -m outlay.trace.capture.self_test` traces one small training step on fake CUDA tensors and
ends with status 0 if it can; it may also abort. `step_times_s` times a tiny step on the CPU.
"""

from __future__ import annotations

import time

import torch

from outlay.trace.capture import fake_cuda
from outlay.trace.capture.capture import capture_steps
from outlay.trace.target import StepFunction


def small_step(batch_size: int) -> StepFunction:
    """A convolution, a norm and an optimizer."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(batch_size, 3, 8, 8)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def patch_summary() -> str:
    """How fake CUDA tensors are made usable with this torch."""
    if fake_cuda.built_with_cuda():
        return "a CUDA build of torch, no GPU used: its CUDA hooks are changed"
    return "a CPU build of torch: a device guard is added and its CUDA hooks are changed"


def main() -> None:
    """Print which torch this is and what is changed in it, then try it."""
    print(f"torch {torch.__version__}; {patch_summary()}", flush=True)  # noqa: T201
    capture = capture_steps(small_step, 2)
    # 4 * 3 * 3 * 3 + 4 weights, and two of 4
    if capture.parameters != 120 or capture.memory.peak().peak_bytes <= 0:
        raise SystemExit("The step was traced, but not rightly.")
    print("ok: a small training step was traced")  # noqa: T201


# What issuing operations costs a host: a tiny training step on the CPU, repeated for some seconds.
# Nothing in it takes time to compute, so what remains is what a training step on a GPU costs the
# host as well: Python, autograd, the dispatcher. It runs on one thread, as issuing does.


_LAYERS = 16
_STEPS_PER_SAMPLE = 10
_WARM_UP_STEPS = 50


def step_times_s(seconds: float) -> list[float]:
    """Seconds of a step, sample after sample, for about so long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _sampled(_tiny_step(), seconds)
    finally:
        torch.set_num_threads(threads)


def _sampled(step: StepFunction, seconds: float) -> list[float]:
    """At least five samples, each the mean of several steps."""
    for _ in range(_WARM_UP_STEPS):
        step()
    samples_s: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples_s) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(_STEPS_PER_SAMPLE):
            step()
        samples_s.append((time.perf_counter() - start) / _STEPS_PER_SAMPLE)
    return samples_s


def _tiny_step() -> StepFunction:
    layers = [module for _ in range(_LAYERS) for module in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    x = torch.randn(4, 8)

    def step() -> None:
        model(x).sum().backward()
        update.step()
        update.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
