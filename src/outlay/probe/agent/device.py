"""The device's own clock and memory: CUDA events that are read when they have passed.

Nothing here waits for the GPU. An event is recorded after each step; later, when the GPU has gone
past it, the time between it and the one before is told.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections import deque
from typing import Any

from .channel import Channel, complain

_READ_AT_ONCE = 64


class Device:
    """What the steps of a process compute on."""

    def __init__(self, torch: Any, channel: Channel) -> None:
        self._torch = torch
        self._channel = channel
        self.kind = "cpu"
        self.torch_kind = "cpu"
        """As torch calls it: ROCm goes by the name of CUDA."""
        self.index: int | None = None
        self._passed: Any = None
        self._pending: deque[tuple[int, Any]] = deque()
        self._spare: list[Any] = []
        self._elapsed_s = 0.0
        self._values: deque[tuple[int, Any, Any]] = deque()
        self._oom_told = False

    def install(self, watch: Any) -> None:
        """See memory run out, and limits that are set; set our own where outlay was told to."""
        cuda = self._torch.cuda
        if not self._torch.version.cuda and not self._torch.version.hip:
            return
        original = cuda.set_per_process_memory_fraction

        def set_fraction(fraction: float, device: Any = None) -> Any:
            result = original(fraction, device)
            self._channel.tell_values("limit", {"fraction": float(fraction)})
            return result

        watch.patches.replace(cuda, "set_per_process_memory_fraction", set_fraction)
        cap_mib = float(os.environ.get("OUTLAY_PROBE_MEMORY_CAP_MIB", 0) or 0)

        def begin() -> None:
            self._torch._C._cuda_attach_out_of_memory_observer(self._ran_out)
            if cap_mib:
                for index in range(cuda.device_count()):
                    total = cuda.get_device_properties(index).total_memory
                    set_fraction(min(cap_mib * 2**20 / total, 1.0), index)

        try:
            cuda._lazy_call(begin)
        except Exception as error:
            complain(error)

    def _ran_out(self, *args: Any) -> None:
        """Torch could not get memory; the script may catch the error and go on."""
        if not self._oom_told:
            self._oom_told = True
            self._channel.tell_values("oom", {"asked": int(args[1]) if len(args) > 1 else None})
            self._channel.flush()

    def introduced(self, parameter: Any) -> dict[str, Any]:
        """What the optimizer's first parameter lies on."""
        device: Any = getattr(parameter, "device", None)
        kind = self.torch_kind = getattr(device, "type", "cpu")
        version = self._torch.version
        self.kind = "rocm" if kind == "cuda" and version.hip else kind
        if kind != "cuda":
            return {"device": self.kind}
        self.index = device.index if device.index is not None else self._torch.cuda.current_device()
        found = self._torch.cuda.get_device_properties(self.index)
        return {
            "device": self.kind,
            "gpu": found.name,
            "gpu_bytes": int(found.total_memory),
            "uuid": _text(getattr(found, "uuid", None)),
            "bus": _bus(found),
            "available": self._available(),
            "cuda": str(version.cuda or version.hip),
            "cudnn": self._cudnn(),
        }

    def _available(self) -> int | None:
        """What the allocator has and what is free on its GPU."""
        try:
            free, _ = self._torch.cuda.mem_get_info(self.index)
            return int(free + self._torch.cuda.memory_reserved(self.index))
        except Exception:
            return None

    def _cudnn(self) -> int | None:
        try:
            found: int = self._torch.backends.cudnn.version()
        except Exception:
            return None
        return found

    @property
    def place(self) -> tuple[str, int | None]:
        """Where the tensors of the steps lie, as torch names it."""
        return self.torch_kind, self.index

    # The clock

    def mark(self, step: int) -> None:
        """Note where on the GPU's own time a step ends."""
        if self.index is None:
            return
        cuda = self._torch.cuda
        event = self._spare.pop() if self._spare else cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self.index))
        self._pending.append((step, event))
        self.read()

    def read(self) -> None:
        """Tell of the marks that the GPU has passed."""
        for _ in range(min(len(self._pending), _READ_AT_ONCE)):
            step, event = self._pending[0]
            if not event.query():
                return
            self._pending.popleft()
            if self._passed is not None:
                self._elapsed_s += self._passed.elapsed_time(event) / 1e3
                self._spare.append(self._passed)
            self._passed = event
            self._channel.tell(b'["g",%d,%.7f]' % (step, self._elapsed_s))
        while self._values and self._values[0][2].query():
            self._tell_value(*self._values.popleft()[:2])

    def finish(self) -> None:
        """Wait for what is pending, and tell it."""
        if self.index is not None:
            self._torch.cuda.synchronize(self.index)
            while self._pending:
                self.read()
        for step, value, _ in self._values:
            self._tell_value(step, value)
        self._values.clear()

    # Memory and values

    def look(self) -> None:
        """Tell how much memory torch has taken."""
        if self.index is None:
            return
        cuda, index = self._torch.cuda, self.index
        self._channel.tell(
            b'["m",%d,%d,%d,%d]'
            % (
                cuda.memory_allocated(index),
                cuda.memory_reserved(index),
                cuda.max_memory_allocated(index),
                cuda.max_memory_reserved(index),
            )
        )

    def keep_value(self, step: int, value: Any) -> None:
        """Tell a tensor's value without waiting for it."""
        torch = self._torch
        if value.device.type != "cuda":
            if value.device.type == "cpu":
                self._tell_value(step, value)
            return
        copy = torch.empty((), dtype=torch.float32, pin_memory=True)
        copy.copy_(value.reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._values.append((step, copy, event))

    def _tell_value(self, step: int, value: Any) -> None:
        number = float(value)
        self._channel.tell(
            b'["l",%d,%.9g]' % (step, number) if math.isfinite(number) else b'["l",%d,null]' % step
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _bus(found: Any) -> str | None:
    numbers = [
        getattr(found, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")
    ]
    if any(number is None for number in numbers):
        return None
    domain, bus, device = numbers
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


# What the allocator was asked for from the start on: for the search of the largest batch.
#
# Recorded by torch itself (`torch.cuda.memory._record_memory_history`, without call stacks) up to
# the end of a few steps. Two of these, at two batch sizes, say what a third will ask for.


WANTED = "OUTLAY_PROBE_ALLOCATIONS"
"""The variable that asks for it."""
STEPS = 4
"""Optimizer steps until it is told: the first makes states, those after are alike."""


class Allocations:
    """Records from the start of CUDA to the end of `STEPS` steps."""

    def __init__(self, torch: Any, channel: Any) -> None:
        self._torch = torch
        self._channel = channel
        self._is_on = False

    def install(self) -> None:
        """Begin as soon as CUDA does, where it is wanted."""
        if os.environ.get(WANTED) and self._torch.version.cuda:
            self._torch.cuda._lazy_call(self._begin)

    def _begin(self) -> None:
        try:
            self._torch.cuda.memory._record_memory_history(
                enabled="all", context=None, stacks="python"
            )
            self._is_on = True
        except Exception as error:
            complain(error)

    def tell(self, index: int | None) -> None:
        """Tell what was seen on a GPU, and stop recording."""
        if not self._is_on or index is None:
            return
        self._is_on = False
        memory = self._torch.cuda.memory
        traces = memory._snapshot().get("device_traces", [])
        memory._record_memory_history(enabled=None)
        if index < len(traces):
            self._channel.tell_values("allocations", {"events": events_of(traces[index])})


def events_of(trace: list[dict[str, Any]]) -> list[int]:
    """Sizes in the order they were asked for; minus n where the n-th of them ended, from 1 on."""
    events: list[int] = []
    numbers: dict[int, int] = {}
    made = 0
    for entry in trace:
        if entry["action"] == "alloc":
            made += 1
            numbers[entry["addr"]] = made
            events.append(int(entry["size"]))
        elif entry["action"] == "free_completed" and entry["addr"] in numbers:
            events.append(-numbers.pop(entry["addr"]))
    return events


# How long the thread that trains waited for a CPU that others used, by Linux's own count.
#
# # Source: https://docs.kernel.org/scheduler/sched-stats.html, /proc/PID/schedstat


class CpuQueue:
    """Tells now and then what part of the time went by waiting for a turn."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._thread = 0
        self._from: tuple[float, float] | None = None

    def look(self) -> None:
        """Tell of the time since the first look of this thread; nothing where it is not counted."""
        queued_s, now_s = _queued_s(), time.perf_counter()
        if queued_s is None:
            return
        if self._from is None or self._thread != self._watch.thread:
            self._thread, self._from = self._watch.thread, (now_s, queued_s)
            return
        fraction = (queued_s - self._from[1]) / (now_s - self._from[0])
        self._watch.channel.tell_values("queue", {"fraction": min(max(fraction, 0.0), 1.0)})


def _queued_s() -> float | None:
    """Nanoseconds on a CPU, waiting for one, and turns: the second."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


# What a training process says of itself at its first step.


def process_values(torch: Any) -> dict[str, Any]:
    """The process, its place among the ranks, and its versions."""
    return {
        "pid": os.getpid(),
        "argv": sys.argv,
        "local_rank": int(os.environ.get("LOCAL_RANK", 0) or 0),
        **_rank(torch),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _rank(torch: Any) -> dict[str, int]:
    """Which of how many: as torch has it, or as the launcher set it."""
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return {"rank": int(group.get_rank()), "world_size": int(group.get_world_size())}
    return {
        "rank": int(os.environ.get("RANK", 0) or 0),
        "world_size": int(os.environ.get("WORLD_SIZE", 1) or 1),
    }
