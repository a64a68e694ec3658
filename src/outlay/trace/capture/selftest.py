"""Whether this torch can be traced: one small training step on fake CUDA tensors.

`python -m outlay.trace.capture.selftest` ends with status 0 if it can; it may also abort.
"""

from __future__ import annotations

import torch

from outlay.trace.capture import fakecuda
from outlay.trace.capture.steps import Step, capture_steps


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
    if fakecuda.built_with_cuda():
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
