"""What a probe saw, in sentences: the answer first, and why a part of it is missing."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator

from outlay.measurement.measurement import Finding, Measurement, StepTime
from outlay.probe.whole_run import WholeRun, whole_run
from outlay.report.text import (
    clock,
    count,
    counted,
    duration,
    duration_range,
    percent,
    rate,
    step_time,
    usd,
    usd_range,
)
from outlay.units import GIB, HOUR_S

COMMAND_SHOWN = 60
_ROUND_STEPS = 1000
_SIGKILL = (-9, 137)
"""As Python and as a shell tell of it."""
_UNSTEADY = (
    "Step times still drift or swing: the mean is of what there is. Probe longer ({}), "
    "or trust the range first."
)
_UNSTEADY_TO_THE_END = (
    "It ended before its step times were steady: the mean is of what there is. Give it more work, "
    "or trust the range first."
)
_AT_LIMIT = {
    "steps": "at the number of steps asked for",
    "time": "when its time was up",
    "precision": "once its step time was known well enough",
    "cost": "when the money for it (--max-cost) was spent",
}
HELD_BY = {
    "gpu": "the GPU itself",
    "input": "the input (steps wait for data)",
    "host": "the host (the GPU waits for Python)",
    "asleep": "a wait for something that is no data (the process sleeps)",
    "network": "the network (GPUs wait for each other)",
    "cpu": "the CPU it computes on",
    "unknown": "not known (the GPU waits, and so does the process)",
}


def answer(measurement: Measurement) -> str:
    """The step time and what goes with it, as far as it was seen."""
    parts = [_step_words(measurement), *_beside(measurement)]
    return " · ".join(parts)


def _step_words(measurement: Measurement) -> str:
    step = measurement.step
    if step is None:
        after = f" in {clock(measurement.elapsed_s)}"
        if measurement.steps_seen:
            few = counted(measurement.steps_seen, "training step")
            return f"Only {few} seen{after}: too few for a step time"
        return f"No training step seen{after}"
    basis = f"by {counted(step.steps, 'step')} after {count(step.warm_up_steps)} of warm-up"
    if not step.is_steady:
        most = f"most {step_time(step.p10_s)} to {step_time(step.p90_s)}"
        return f"About {step_time(step.mean_s)} a step, not steady yet ({most}, {basis})"
    return f"{step_time(step.mean_s)} a step ({_sure(step)}, {basis})"


def _sure(step: StepTime) -> str:
    """`± 1.3 % at 95 % confidence`."""
    part = 100 * step.precision
    return f"{'± ' + format(part, '.1f') if part >= 0.05 else 'within 0.1'} % at 95 % confidence"


def _beside(measurement: Measurement) -> Iterator[str]:
    if measurement.samples_per_s is not None:
        yield f"{rate(measurement.samples_per_s)} samples/s"
    if measurement.device == "cpu":
        yield "on the CPU"
    busy = _gpu_busy(measurement)
    if busy is not None:
        yield f"GPU {percent(busy)}"
    memory = _memory_words(measurement)
    if memory:
        yield memory
    if measurement.power is not None:
        yield f"{measurement.power.mean_w:,.0f} W"


def _gpu_busy(measurement: Measurement) -> float | None:
    """How busy the GPU is, by a profile as in the checks; else by the driver's samples."""
    is_profiled = measurement.busy_s is not None and measurement.device != "cpu"
    compute = measurement.shares.compute if is_profiled else None
    return measurement.gpu_fraction if compute is None else compute


def _memory_words(measurement: Measurement) -> str:
    """`18.2 of 24.0 GiB`; torch's own figure where the driver gave none, and said so."""
    memory, has_bytes = measurement.memory, gpu_memory_bytes(measurement)
    of = "" if has_bytes is None else f" of {has_bytes / GIB:.1f}"
    if memory.used_bytes is not None:
        return f"{memory.used_bytes / GIB:.1f}{of} GiB"
    if memory.reserved_bytes is not None:
        return f"{memory.reserved_bytes / GIB:.1f}{of} GiB reserved"
    if measurement.device == "cpu" and memory.host_bytes is not None:
        return f"{memory.host_bytes / GIB:.1f} GiB of host memory"
    return ""


def gpu_memory_bytes(measurement: Measurement) -> float | None:
    """What the smallest of the GPUs used has."""
    sizes = [gpu.memory_bytes for gpu in measurement.machine.gpus if gpu.memory_bytes is not None]
    return min(sizes, default=None)


def power_limit_w(measurement: Measurement) -> float | None:
    """What the GPUs used may draw together; None where that of one is not known."""
    limits = [gpu.power_limit_w for gpu in measurement.machine.gpus]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None


def ran(measurement: Measurement) -> str:
    """What ran, on what, for how long, and how it ended."""
    torch = measurement.versions.get("torch")
    with_torch = f" with torch {torch}" if torch else ""
    command = _cut(shlex.join(measurement.command), COMMAND_SHOWN)
    return (
        f"{command} ran {clock(measurement.elapsed_s)} on {_place(measurement)}{with_torch}; "
        f"{ended(measurement)}."
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _place(measurement: Measurement) -> str:
    machine = measurement.machine
    names = [gpu.name for gpu in machine.gpus]
    gpus = " + ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
    place = gpus or machine.cpu or machine.system
    if measurement.world_size > max(measurement.ranks, 1):
        return f"{place} ({measurement.ranks} of {measurement.world_size} processes are here)"
    return f"{place} ({measurement.ranks} processes)" if measurement.ranks > 1 else place


def ended(measurement: Measurement) -> str:
    """How the command ended, as a clause."""
    status, limit = measurement.status, measurement.stopped_for
    return {
        "stopped": "outlay stopped it" + (f" {_AT_LIMIT[limit]}" if limit else ""),
        "finished": "it ended by itself",
        "failed": "it failed" if _is_cell(measurement) else f"it failed with status {status}",
        "killed": f"it was killed{_signal_words(status)}",
        "interrupted": "you stopped it",
    }[measurement.ending]


def _is_cell(measurement: Measurement) -> bool:
    """Whether it is of a notebook's cell, which has no status."""
    return any(word.startswith("%") for word in measurement.command[:1])


def _signal_words(status: int) -> str:
    """` by SIGKILL`, of a status as Python (-9) or as a shell (137) has it."""
    number = -status if status < 0 else status - 128
    try:
        return f" by {signal.Signals(number).name}"
    except ValueError:
        return ""


def why_incomplete(measurement: Measurement) -> list[str]:
    """What is missing or not to rely on, why, and what to do; nothing where all is well."""
    step = measurement.step
    if step is None:
        return [_why_no_step_time(measurement)]
    sentences = []
    if measurement.ending in ("failed", "killed"):
        sentences.append(f"The figures are of what ran until then: {ended(measurement)}.")
    if not step.is_steady:
        sentences.append(_unsteady(measurement))
    unseen = list(_unseen(measurement))
    if unseen:
        why = " The notes say why." if measurement.notes else ""
        sentences.append(f"Not seen: {', '.join(unseen)}.{why}")
    return sentences


def _unsteady(measurement: Measurement) -> str:
    if measurement.ending == "finished":
        return _UNSTEADY_TO_THE_END
    more = "a larger --max-cost" if measurement.stopped_for == "cost" else "--for 10m"
    return _UNSTEADY.format(more)


def _unseen(measurement: Measurement) -> Iterator[str]:
    """Parts of the answer that are missing; a run on the CPU misses none of a GPU's."""
    if measurement.samples_per_s is None:
        yield "samples/s"
    if measurement.device == "cpu":
        return
    if _gpu_busy(measurement) is None:
        yield "GPU use"
    if not _memory_words(measurement):
        yield "GPU memory"
    if measurement.power is None:
        yield "power"


def _why_no_step_time(measurement: Measurement) -> str:
    first = "before its first step" if not measurement.steps_seen else "after so few steps"
    if measurement.ending == "failed":
        return f"It failed {first}: its own output says why."
    if measurement.ending == "killed":
        memory = " The system does that where memory runs out: `dmesg` tells."
        return f"It was killed {first}.{memory * (measurement.status in _SIGKILL)}"
    if measurement.ending == "finished" and not measurement.steps_seen and measurement.ranks:
        return (
            "It ended before its optimizers had made one whole training step: give it more work, "
            "or a smaller --optimizer-steps."
        )
    if measurement.ending == "finished" and not measurement.steps_seen:
        return (
            "It ended without a step of a torch optimizer. Probe what trains: behind the -- the "
            "command that does (what it starts is watched as well), in a block the loop itself."
        )
    if measurement.ending == "finished":
        return "It ended after so few steps: give it more work, and probe again."
    if measurement.ending == "interrupted":
        return f"You stopped it {first}: give it longer."
    return f"outlay stopped it {first}, {_why_so_soon(measurement)}"


def _why_so_soon(measurement: Measurement) -> str:
    """Which limit was too tight, and what to give instead."""
    limit = measurement.stopped_for
    if limit == "cost":
        price = usd(measurement.price_usd_per_hour)
        return f"{_AT_LIMIT[limit]}: at {price} an hour it needs a larger --max-cost."
    when = f"{_AT_LIMIT[limit]}: " if limit else ""
    return f"{when}give it longer, with --for 10m or --steps 200."


def holds_back(finding: Finding, device: str | None) -> str:
    """The heading over what holds a run back."""
    is_asleep = (finding.holder, device) == ("host", "cpu")
    return f"What holds it back: {HELD_BY['asleep' if is_asleep else finding.holder]}"


def to_finish(measurement: Measurement, total_steps: int | None) -> list[str]:
    """Time and cost of the whole run, or of a round number of steps where its length is unknown."""
    steps = total_steps or measurement.total_steps
    whole = whole_run(measurement, steps or _ROUND_STEPS)
    if whole is None:
        return []
    if steps is None:
        every = f"Every {count(_ROUND_STEPS)} steps: {_every(measurement, whole)}"
        if measurement.ending != "finished":
            return [f"{every}; how many steps the whole run has was not seen."]
        # How many it made in all is not known: steps are counted until the timing ends.
        return [f"It ran to its end in {clock(measurement.elapsed_s)}. {every}."]
    price = measurement.price_usd_per_hour
    cost = "" if whole.usd is None else f", {_ranged(usd(whole.usd.likely), usd_range(whole.usd))}"
    at = "" if price is None else f" at {usd(price)} an hour"
    time = _ranged(duration(whole.time_s.likely), duration_range(whole.time_s))
    words = f"All {count(steps)} steps from the start: {time}{cost}{at}."
    return [f"{words} {_pauses_words(measurement, whole)}"]


def _every(measurement: Measurement, whole: WholeRun) -> str:
    """A thousand steps in the steady state: without the pauses, and with those that were seen."""
    step = measurement.step
    assert step is not None
    time_s, price = _ROUND_STEPS * step.mean_s, measurement.price_usd_per_hour
    alone = _priced(time_s, price)
    among = _priced(time_s + whole.pauses_s.likely, price)
    if among == alone:
        return f"{alone}, pauses apart"
    return f"{alone}, pauses apart; {among} with pauses as often as they came here"


def _priced(time_s: float, usd_per_hour: float | None) -> str:
    cost = "" if usd_per_hour is None else f", {usd(usd_per_hour * time_s / HOUR_S)}"
    return f"{duration(time_s)}{cost}"


def _ranged(likely: str, between: str) -> str:
    return f"{likely} ({between})" if between else likely


def _pauses_words(measurement: Measurement, whole: WholeRun) -> str:
    if not measurement.pauses:
        return "No evaluation or checkpoint was seen; theirs would come on top."
    return f"Of that {duration(whole.pauses_s.likely)} are pauses, as often as they came here."


def cost(measurement: Measurement) -> list[str]:
    """What the probe itself cost, where a price is known."""
    if measurement.usd is None or measurement.price_usd_per_hour is None:
        return []
    price = usd(measurement.price_usd_per_hour)
    return [
        f"This probe: {usd(measurement.usd)} ({clock(measurement.elapsed_s)} at {price} an hour)."
    ]


def _length_words(measurement: Measurement) -> str:
    """The option that `outlay plan` needs where the script did not say how long it goes on."""
    if measurement.total_steps:
        return ""
    return ' --length "90 epochs"' if measurement.steps_per_epoch else ' --length "100000 steps"'


def next_step(
    measurement: Measurement, saved_as: str | None, saved_by: str = "--json OUT.json"
) -> str | None:
    """What to do with it; None where there is nothing to carry anywhere."""
    if measurement.step is None and measurement.profile is None:
        return None
    name = shlex.quote(saved_as) if saved_as else "OUT.json"
    how_to_keep = "" if saved_as else f"Keep it with {saved_by}. "
    if measurement.profile is None:  # predict and plan would have nothing to carry
        longer = "" if measurement.ending == "stopped" else "probe a longer run, or "
        return (
            f"{how_to_keep}It has no operations of a step to carry to other GPUs: {longer}"
            f"trace the step: outlay predict train.py:training_step --measured {name} "
            '--gpu "RTX 4090".'
        )
    return (
        f'{how_to_keep}Carry it to other GPUs: outlay predict {name} --gpu "RTX 4090"; price it '
        f"everywhere: outlay plan {name}{_length_words(measurement)}."
    )
