"""How fast a host issues operations: a tiny training step on its CPU, repeated for some seconds.

Nothing in that step takes time to compute, so what remains is what a training step on a GPU costs
the host as well: Python, autograd, the dispatcher. It runs on one thread, as issuing does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from outlay.errors import ExtraMissing

LAYERS = 16
STEPS_PER_SAMPLE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTest:
    """What the test found: seconds a step, and the speed against the reference host."""

    step_s: float
    spread: float
    """Half the distance between the 10th and the 90th percentile, over the median."""
    speed: float
    samples: int


def host_test(reference_s: float, seconds: float, say: Callable[[str], None]) -> HostTest:
    """Run the test for about so many seconds; `reference_s` is a step on the reference host."""
    step = _tiny_step()
    for _ in range(50):
        step()
    say(f"Issuing a tiny step over and over, for {seconds:.0f} seconds ...")
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < ends:
        started = time.perf_counter()
        for _ in range(STEPS_PER_SAMPLE):
            step()
        taken.append((time.perf_counter() - started) / STEPS_PER_SAMPLE)
    taken.sort()
    median_s = statistics.median(taken)
    low_s, high_s = taken[len(taken) // 10], taken[len(taken) * 9 // 10]
    return HostTest(
        step_s=median_s,
        spread=(high_s - low_s) / 2 / median_s,
        speed=reference_s / median_s,
        samples=len(taken),
    )


def _tiny_step() -> Callable[[], None]:
    try:
        import torch
    except ImportError as error:
        raise ExtraMissing('The test of a host needs torch: pip install "outlay[torch]".') from error
    torch.set_num_threads(1)
    layers = [
        module for _ in range(LAYERS) for module in (torch.nn.Linear(8, 8), torch.nn.ReLU())
    ]
    model = torch.nn.Sequential(*layers)
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    x = torch.randn(4, 8)

    def step() -> None:
        model(x).sum().backward()
        update.step()
        update.zero_grad(set_to_none=True)

    return step
