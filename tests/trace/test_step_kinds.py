"""Of a step that tells which of its iterations are alike, only those that differ are run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.forked import call_forked

pytestmark = pytest.mark.torch

PERIOD = 8


class Iteration:
    """Adam, losses that outlive an iteration, one dropped late, and a penalty in every eighth."""

    period = PERIOD
    kinds = ("with penalty", *["plain"] * (PERIOD - 1))

    def __init__(self, batch_size: int) -> None:
        import torch

        self.model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.x = torch.randn(batch_size, 8)
        self.iteration = self.runs = 0
        self.kept: dict[str, Any] = {}

    def __call__(self) -> None:
        self.runs += 1
        self.kept["late"], self.kept["before"] = self.kept.get("before"), self.x + 1
        loss = self.model(self.x).square().mean()
        if self.iteration % PERIOD == 0:
            self.kept["penalty"] = self.model(self.x).exp().sum()
            loss = loss + self.kept["penalty"]
        self.optimizer.zero_grad()
        loss.backward()
        if bool((loss > 1).item()):
            self.kept["read"] = loss * 2
        self.optimizer.step()
        self.kept["usual"] = loss.detach()
        self.iteration += 1

    def skip(self, iterations: int) -> None:
        self.iteration += iterations


class Growing(Iteration):
    """Keeps a little more from each iteration to the end."""

    def __call__(self) -> None:
        super().__call__()
        self.kept[str(self.iteration)] = self.x * 2


class Unlike(Iteration):
    """Tells that iterations are alike, and makes more in each."""

    def __call__(self) -> None:
        super().__call__()
        for _ in range(self.iteration):
            self.x + 1


def traced(name: str, *, with_lines: bool, told: bool) -> Any:
    """Profile and report of a step at two sizes, and how many iterations were run at each."""
    from outlay.trace.batch_scaling import profile_of_captures
    from outlay.trace.capture import capture_steps
    from outlay.trace.child import import_torch
    from outlay.trace.step_report import report_of, report_to_json
    from outlay.trace.store import profile_to_json

    import_torch()
    steps = []

    def build(batch_size: int) -> Any:
        step = globals()[name](batch_size)
        step.kinds = step.kinds if told else ()
        steps.append(step)
        return step

    captures = [
        capture_steps(build, size, own_file=__file__, with_lines=with_lines) for size in (2, 4)
    ]
    profile = profile_of_captures(captures, name="", description="", sample="")
    starts = [capture.memory.step_starts for capture in captures]
    report = report_of(captures[-1], name="", target="") if with_lines else None
    return json.loads(
        json.dumps(
            {
                "profile": profile_to_json(profile),
                "history": [capture.memory.history for capture in captures],
                "live": [capture.memory.live_bytes() for capture in captures],
                "gradients": [capture.gradients for capture in captures],
                "starts": starts,
                "report": None if report is None else report_to_json(report),
                "runs": [step.runs for step in steps],
                "counted": [step.iteration for step in steps],
            }
        )
    )


def both(name: str, **options: Any) -> Any:
    """With what the step tells, and without; for a process of its own."""
    return [traced(name, told=told, **options) for told in (True, False)]


@pytest.mark.parametrize(
    ("name", "with_lines"), [("Iteration", False), ("Iteration", True), ("Growing", False)]
)
def test_the_trace_is_the_same_to_the_last_byte(name, with_lines):
    told, untold = call_forked("tests.trace.test_step_kinds:as_asked", name, with_lines)
    # Warm-up 0 and 1; 2 and 3, which are alike; 4 to 7 are as 3 is; 8 with the penalty, and 9.
    assert told.pop("runs") == [6, 6]
    assert untold.pop("runs") == [2 + PERIOD] * 2
    assert told.pop("counted") == untold.pop("counted") == [10, 10]
    assert told == untold


def test_a_step_that_tells_wrong_is_run_in_full():
    told, untold = call_forked("tests.trace.test_step_kinds:as_asked", "Unlike", False)
    assert told["runs"] == [2 + PERIOD] * 2
    assert told == untold


def as_asked(name: str, with_lines: bool) -> Any:
    return both(name, with_lines=with_lines)
