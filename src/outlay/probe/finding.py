"""What holds a run back: where a step's time goes, who holds it, and why we think so."""

from __future__ import annotations

from outlay.measurement import Finding, Holder, Shares
from outlay.probe.cures import cures_for
from outlay.probe.observed import Observed

BUSY = 0.8
"""A GPU that works for more of a step than this holds it, whatever else takes its part."""
ASLEEP = 0.5
"""CPU seconds for each second of waiting, below which the process slept for most of it."""
CROWDED = 0.2
"""Of the time, waiting for a CPU, from where that is worth a line."""
_EXCHANGED = "in exchanges that nothing hides"
HEAVY_READING_BYTES_PER_S = 50e6
# Assumes: what logging, checkpoints and other programs read stays below 50 MB/s.


def shares_of(seen: Observed) -> Shares:
    """Where the time of a step goes.

    What the GPU does not work is idle: waiting for a batch up to the time that the loader was
    waited for, and the rest for the host. Where the process slept in that rest, it did not
    launch anything either: it is input where it reads a disk or has no DataLoader.
    """
    if seen.device == "cpu":
        return _on_the_cpu(seen)
    busy_s = _busy_s(seen)
    if busy_s is None:
        return Shares()
    exchange_s = min(seen.exchange_s or 0.0, seen.step_s - busy_s)
    idle_s = seen.step_s - busy_s - exchange_s
    input_s = min(seen.wait_s or 0.0, idle_s)
    if _slept(seen, idle_s - input_s) and _reads_by_itself(seen):
        input_s = idle_s
    is_network_known = seen.exchange_s is not None or seen.ranks == 1
    return Shares(
        compute=busy_s / seen.step_s,
        network=exchange_s / seen.step_s if is_network_known else None,
        input=input_s / seen.step_s,
        host=(idle_s - input_s) / seen.step_s,
    )


def _on_the_cpu(seen: Observed) -> Shares:
    if seen.wait_s is not None:
        waited = min(seen.wait_s / seen.step_s, 1.0)
    elif _sleeps(seen):
        waited = 1 - _awake(seen)  # a process cannot compute while it sleeps
    else:
        waited = 0.0
    asleep = max(1 - waited - _awake(seen), 0.0) if _sleeps(seen) else 0.0
    if seen.ranks == 1:
        return Shares(compute=1 - waited - asleep, input=waited, host=asleep or None)
    # Ranks that neither compute nor load sleep until the others have come as far.
    return Shares(compute=1 - waited - asleep, input=waited, network=asleep)


def _busy_s(seen: Observed) -> float | None:
    if seen.busy_s is not None:
        return min(seen.busy_s, seen.step_s)
    return None if seen.gpu_fraction is None else min(seen.gpu_fraction, 1.0) * seen.step_s


def _slept(seen: Observed, rest_s: float) -> bool:
    """Whether even all CPU time of a step would fill less than half of what is left of it."""
    return seen.cpus is not None and _awake(seen) * seen.step_s < ASLEEP * rest_s


def _sleeps(seen: Observed) -> bool:
    return seen.cpus is not None and _awake(seen) < ASLEEP


def _awake(seen: Observed) -> float:
    """Seconds in which the process computed, or would have if others had left it a CPU."""
    return (seen.cpus or 0.0) + seen.queued_fraction


def _reads_by_itself(seen: Observed) -> bool:
    is_reading = (seen.read_bytes_per_s or 0.0) > HEAVY_READING_BYTES_PER_S
    return seen.wait_s is None or is_reading or seen.is_disk_busy


def finding_of(seen: Observed) -> Finding | None:
    """What holds the run back, with evidence and cures; None where nothing tells."""
    shares = shares_of(seen)
    holder = holder_of(seen, shares)
    if holder is None:
        return None
    return Finding(
        holder=holder,
        evidence=(*_evidence(seen, shares), *_gain(holder, shares)),
        cures=cures_for(holder, seen),
    )


def holder_of(seen: Observed, shares: Shares) -> Holder | None:
    """The largest share; a GPU that works for most of a step always."""
    compute: Holder = "cpu" if seen.device == "cpu" else "gpu"
    if shares.compute is None:
        return None
    if shares.compute > BUSY:
        return compute
    of: dict[Holder, float | None] = {
        compute: shares.compute,
        "input": shares.input,
        "host": shares.host,
        "network": shares.network,
    }
    return max(of, key=lambda name: of[name] or 0.0)


def _evidence(seen: Observed, shares: Shares) -> list[str]:
    lines = [_work(seen, shares)]
    if shares.network:
        how = "asleep until the other ranks had come as far" if seen.device == "cpu" else _EXCHANGED
        lines.append(f"{_part(shares.network, seen)} went by {how}.")
    if shares.input:
        lines.append(f"{_part(shares.input, seen)} went by {_waiting(seen)}.")
    if shares.host:
        how = "went by asleep" if seen.device == "cpu" else "the GPU waited for the host"
        lines.append(f"{_part(shares.host, seen)} {how}.")
    return [*lines, *_sleep(seen, shares), *_crowd(seen), *_slowed(seen)]


def _waiting(seen: Observed) -> str:
    """What is known of a wait for input: without a DataLoader, only that the process slept."""
    if seen.wait_s is None:
        return "asleep, most likely waiting for data"
    return "waiting for the next batch"


def _work(seen: Observed, shares: Shares) -> str:
    what = "The CPU" if seen.device == "cpu" else "The GPU"
    coarse = seen.busy_s is None and seen.device != "cpu"
    by = ", by the driver's samples, which count any kernel however small" if coarse else ""
    return f"{what} worked {_part(shares.compute or 0.0, seen)}{by}."


def _sleep(seen: Observed, shares: Shares) -> list[str]:
    """A line where the process slept, as only that tells a slow host from a wait."""
    idle = (shares.input or 0.0) + (shares.host or 0.0)
    waited = 0.0 if seen.wait_s is None else min(seen.wait_s / seen.step_s, idle)
    if seen.cpus is None or not _slept(seen, (idle - waited) * seen.step_s):
        return []
    said = f"The process slept: it used {seen.cpus:.2g} CPU threads"
    if _reads_by_itself(seen):
        reading = seen.read_bytes_per_s or 0.0
        read = f" while {reading / 1e6:.0f} MB/s were read from disk" if reading else ""
        return [f"{said}{read}, and no DataLoader accounts for that time."]
    return [
        f"{said}. It waits for something that is neither input nor work: another process, a lock?"
    ]


def _crowd(seen: Observed) -> list[str]:
    if seen.queued_fraction < CROWDED:
        return []
    said = f"{seen.queued_fraction:.0%} of the time it waited for a CPU that other programs used"
    return [f"{said}: it would be faster alone."]


def _slowed(seen: Observed) -> list[str]:
    named = {"heat": "heat", "hardware": "a fault or the power supply", "power": "its power limit"}
    return [f"The GPU's clock is held down by {named.get(why, why)}." for why in seen.slowed_by]


def _gain(holder: Holder, shares: Shares) -> list[str]:
    """What there is to gain where all of the holder's share went away."""
    share = {"input": shares.input, "host": shares.host, "network": shares.network}.get(holder)
    if not share or share >= 1:
        return []
    return [f"Without that it would be at best {1 / (1 - share):.1f} times as fast."]


def _part(share: float, seen: Observed) -> str:
    return f"{share:.0%} of a step ({_time(share * seen.step_s)} of {_time(seen.step_s)})"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
