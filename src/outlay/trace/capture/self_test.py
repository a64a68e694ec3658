"""Whether this torch can be traced: one small training step on fake CUDA tensors.

`python -m outlay.trace.capture.self_test` ends with status 0 if it can; it may also abort.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from outlay.trace.capture import fake_cuda
from outlay.trace.capture.capture import Step, capture_steps


def small_step(batch_size: int) -> Step:
    """A convolution, a norm and an optimizer."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(batch_size, 3, 8, 8)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def road() -> str:
    """How fake CUDA tensors are made usable with this torch."""
    if fake_cuda.built_with_cuda():
        return "a CUDA build of torch, no GPU used: its CUDA hooks are changed"
    return "a CPU build of torch: a device guard is added and its CUDA hooks are changed"


def main() -> None:
    """Say which torch this is and which road is taken, then try it."""
    print(f"torch {torch.__version__}; {road()}", flush=True)  # noqa: T201
    capture = capture_steps(small_step, 2)
    # 4 * 3 * 3 * 3 + 4 weights, and two of 4
    if capture.parameters != 120 or capture.ledger.peak().peak_bytes <= 0:
        raise SystemExit("The step was traced, but not rightly.")
    print("ok: a small training step was traced")  # noqa: T201


if __name__ == "__main__":
    main()


# A tiny training step on the CPU, repeated for some seconds: what issuing operations costs a host.
#
# Nothing in that step takes time to compute, so what remains is what a training step on a GPU costs
# the host as well: Python, autograd, the dispatcher. It runs on one thread, as issuing does.


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
