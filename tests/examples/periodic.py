"""The profile of a whole period of iterations from two of them: the last, and the plain one before.

StyleNAT's penalty comes with every 16th iteration, all others are alike. Here each plain iteration
of a recorded period is the same one, counted as often as it comes. Two warm it up, as they do in
every trace; then its count is set to just before the next penalty, and the plain one and that with
the penalty are recorded. What the tracer makes of them is what it would make of the whole period.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.forked import call_forked

from outlay.trace.profile import Profile
from outlay.trace.store import profile_from_json, profile_to_json
from outlay.trace.target import load_function, parse_target


def profile_of_period(target: str, batch_size: int) -> Profile:
    """The profile of a step that has its `period`, and counts iterations in `iteration`."""
    return profile_from_json(call_forked("tests.examples.periodic:traced", target, batch_size))


def traced(target: str, batch_size: int) -> dict[str, Any]:
    """That profile as JSON; for a process of its own, as it changes the recorder."""
    from outlay.trace.batch_scaling import profile_of_captures
    from outlay.trace.capture import capture_steps
    from outlay.trace.capture.recorder import Recorder
    from outlay.trace.child import import_torch

    import_torch()
    build = load_function(parse_target(target))
    steps, starts, start_step = [], [], Recorder.start_step

    def built(size: int) -> Any:
        steps.append(build(size))
        return steps[-1]

    def start(recorder: Recorder) -> None:
        (step,) = steps
        if step.iteration == 2:  # warm; the one before the penalty is as plain as this one
            step.iteration = step.period - 1
        starts.append(len(recorder.ops))
        start_step(recorder)

    Recorder.start_step = start
    capture = capture_steps(built, batch_size, period=2)
    (step,) = steps
    # Iterations 0, 1, period - 1 and period; of the first two nothing is recorded.
    assert (len(starts), starts[2], step.iteration) == (4, 0, step.period + 1)
    plain, last = capture.ops[: starts[3]], capture.ops[starts[3] :]
    whole = replace(capture, ops=plain * (step.period - 1) + last, period=step.period)
    return profile_to_json(profile_of_captures([whole], name="", description="", sample=""))


class Iteration:
    """A small step of the kind: every fifth iteration does more, and needs more memory."""

    period = 5

    def __init__(self, batch_size: int) -> None:
        import torch

        self.model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.x = torch.randn(batch_size, 8)
        self.iteration = 0
        self.losses: dict[str, Any] = {}

    def __call__(self) -> None:
        """Run one iteration; losses outlive it."""
        loss = self.model(self.x).square().mean()
        if self.iteration % self.period == 0:
            self.losses["penalty"] = self.model(self.x).exp().sum()
            loss = loss + self.losses["penalty"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses["usual"] = loss.detach()
        self.iteration += 1
