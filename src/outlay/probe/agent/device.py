"""What a training process runs on: its GPU's clock and memory, waiting for CPUs, its own details.

Nothing here waits for the GPU. A CUDA event is recorded after each step; later, when the GPU has
gone past it, the time between it and the one before is reported.

Device              clock, memory and limits of the GPU; the loss, which is copied from it
MemoryNeed          the most memory that steps take, apart from what cuDNN's search takes once
math_settings       which products of fp32 may run in TF32, and whether cuDNN tries algorithms
AllocationRecorder  what the allocator was asked for in the first steps
CpuQueue            how long the training thread waited for a CPU
process_info        what a process says of itself at its first step
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from .channel import Channel, log_error
from .patches import hide_frames
from .protocol import (
    ALLOCATIONS_VARIABLE,
    MEMORY_CAP_VARIABLE,
    AllocationEvents,
    CpuQueueTime,
    GpuFinishTime,
    Loss,
    MathSettings,
    MemoryExhausted,
    MemoryLimit,
    MemoryPeaks,
    ProcessInfo,
    device_time_line,
)

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
        """The event that the GPU has passed last."""
        self._pending: deque[tuple[int, Any]] = deque()
        """Steps, and the events at their ends."""
        self._spare: list[Any] = []
        self._elapsed_s = 0.0
        self._losses: deque[tuple[int, Any, Any]] = deque()
        """Steps, their losses, and the events after which they have been copied."""
        self._has_run_out = False
        self._patches: Any = None
        self._need: MemoryNeed | None = None

    def install(self, watch: Any) -> None:
        """Report memory that runs out and limits that are set; set our own cap, if there is one."""
        cuda = self._torch.cuda
        self._patches = watch.patches
        if not self._torch.version.cuda and not self._torch.version.hip:
            return
        original = cuda.set_per_process_memory_fraction

        def set_fraction(fraction: float, device: Any = None) -> Any:
            try:
                result = original(fraction, device)
            except BaseException as error:
                hide_frames(error)
                raise
            self._channel.report(MemoryLimit(fraction=float(fraction)))
            return result

        watch.patches.replace(cuda, "set_per_process_memory_fraction", set_fraction)
        cap_mib = float(os.environ.get(MEMORY_CAP_VARIABLE, 0) or 0)

        def begin() -> None:
            self._torch._C._cuda_attach_out_of_memory_observer(self._ran_out)
            if cap_mib:
                for index in range(cuda.device_count()):
                    total = cuda.get_device_properties(index).total_memory
                    set_fraction(min(cap_mib * 2**20 / total, 1.0), index)

        try:
            cuda._lazy_call(begin)
        except Exception as error:
            log_error(error)

    def _ran_out(self, *args: Any) -> None:
        """Torch could not get memory; the script may catch the error and go on."""
        if not self._has_run_out:
            self._has_run_out = True
            requested_bytes = int(args[1]) if len(args) > 1 else None
            self._channel.report(MemoryExhausted(requested_bytes=requested_bytes))
            self._channel.flush()

    def identify(self, parameter: Any) -> None:
        """Take the device that an optimizer's first parameter lies on."""
        device: Any = getattr(parameter, "device", None)
        kind = self.torch_kind = getattr(device, "type", "cpu")
        self.kind = "rocm" if kind == "cuda" and self._torch.version.hip else kind
        if kind == "cuda":
            current = self._torch.cuda.current_device
            self.index = device.index if device.index is not None else current()

    def gpu_fields(self) -> dict[str, Any]:
        """The fields of `ProcessInfo` that are of its GPU; none on a CPU."""
        if self.index is None:
            return {}
        version = self._torch.version
        properties = self._torch.cuda.get_device_properties(self.index)
        return {
            "gpu": properties.name,
            "gpu_bytes": int(properties.total_memory),
            "uuid": _text(getattr(properties, "uuid", None)),
            "bus": _pci_bus(properties),
            "available_bytes": self._available_bytes(),
            "cuda": str(version.cuda or version.hip),
            "cudnn": self._cudnn(),
        }

    def _available_bytes(self) -> int | None:
        """What the allocator has and what is free on its GPU."""
        try:
            free, _ = self._torch.cuda.mem_get_info(self.index)
            return int(free + self._torch.cuda.memory_reserved(self.index))
        except Exception:
            return None

    def _cudnn(self) -> int | None:
        try:
            version: int = self._torch.backends.cudnn.version()
        except Exception:
            return None
        return version

    @property
    def place(self) -> tuple[str, int | None]:
        """Where the tensors of the steps lie, as torch names it."""
        return self.torch_kind, self.index

    # The clock

    def mark(self, step: int) -> None:
        """Record an event on the GPU where a step ends."""
        if self.index is None:
            return
        cuda = self._torch.cuda
        event = self._spare.pop() if self._spare else cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self.index))
        self._pending.append((step, event))
        self._report_passed()

    def _report_passed(self) -> None:
        """Report the times of events that the GPU has passed, and the losses copied."""
        for _ in range(min(len(self._pending), _READ_AT_ONCE)):
            step, event = self._pending[0]
            if not event.query():
                return
            self._pending.popleft()
            if self._passed is not None:
                self._elapsed_s += self._passed.elapsed_time(event) / 1e3
                self._spare.append(self._passed)
            self._passed = event
            self._channel.write_line(device_time_line(GpuFinishTime(step, self._elapsed_s)))
        self.report_copied()

    def report_copied(self) -> None:
        """Report the losses that have been copied by now."""
        while self._losses and self._losses[0][2].query():
            self._write_loss(*self._losses.popleft()[:2])

    def finish(self) -> None:
        """Wait for what is pending, and report it."""
        if self.index is not None:
            self._torch.cuda.synchronize(self.index)
            while self._pending:
                self._report_passed()
        for step, loss, _ in self._losses:
            self._write_loss(step, loss)
        self._losses.clear()

    # Memory and losses

    def report_memory(self) -> None:
        """Report the most memory that torch has taken."""
        if self.index is None:
            return
        cuda, index = self._torch.cuda, self.index
        if self._need is None and _has_benchmark(self._torch) and self._patches is not None:
            self._need = MemoryNeed(self._torch, index, self._patches)
        if self._need is not None:
            self._channel.report(self._need.peaks())
            return
        self._channel.report(
            MemoryPeaks(
                allocated_bytes=int(cuda.max_memory_allocated(index)),
                reserved_bytes=int(cuda.max_memory_reserved(index)),
            )
        )

    def report_math(self) -> None:
        """Report how products are computed on the GPU."""
        if self.index is not None:
            self._channel.report(math_settings(self._torch, self.index))

    def report_loss(self, step: int, loss: Any) -> None:
        """Report the value of a tensor without waiting for it."""
        torch = self._torch
        if loss.device.type != "cuda":
            if loss.device.type == "cpu":
                self._write_loss(step, loss)
            return
        copy = torch.empty((), dtype=torch.float32, pin_memory=True)
        copy.copy_(loss.reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._losses.append((step, copy, event))

    def _write_loss(self, step: int, loss: Any) -> None:
        value = float(loss)
        is_finite = math.isfinite(value)
        self._channel.report(Loss(step=step, value=float(f"{value:.9g}") if is_finite else None))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _pci_bus(properties: Any) -> str | None:
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    numbers = [getattr(properties, name, None) for name in names]
    if any(number is None for number in numbers):
        return None
    domain, bus, device = numbers
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


# Memory that steps need: with `cudnn.benchmark`, cuDNN tries algorithms for each new shape of a
# convolution, with as much memory as the hungriest of them takes. torch empties its cache after
# each search, so that the peak is above what is reserved then: that peak is none that steps need,
# and the next ones are looked at from there on. A script that reads the peaks itself still gets
# those of the whole run.


class MemoryNeed:
    """The peaks of the allocator on one GPU, those of cuDNN's search apart."""

    def __init__(self, torch: Any, index: int, patches: Any) -> None:
        self._torch = torch
        self._index = index
        self._patches = patches
        self._read: Callable[..., Any] = torch.cuda.memory.memory_stats_as_nested_dict
        self._reset: Callable[..., Any] = torch.cuda.memory.reset_peak_memory_stats
        self._hidden: Any = None
        """Statistics from before the last reset of ours, for the script."""
        self._kept: list[tuple[int, int]] = []
        """Of stretches after which the cache still had all: allocated and reserved at most."""
        self._given_back: list[tuple[int, int]] = []
        """Of those in which it was emptied."""

    def peaks(self) -> MemoryPeaks:
        """The most that steps took, and what was given back, from the beginning until now."""
        stats = self._read(device=self._index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        peaks = int(allocated["peak"]), int(reserved["peak"])
        if allocated["peak"] > reserved["current"]:
            self._given_back = _ends([*self._given_back, peaks])
            self._begin_anew(stats)
        else:
            self._kept = _ends([*self._kept, (peaks[0], int(reserved["current"]))])
        # A script that empties the cache in every step keeps nothing: then the least of its peaks.
        need = self._kept[-1] if self._kept else self._given_back[0]
        most = self._given_back[-1] if self._given_back else (0, 0)
        return MemoryPeaks(*need, *(most if most != need else (0, 0)))

    def _begin_anew(self, stats: Any) -> None:
        """Reset the peaks, but for the script."""
        if self._hidden is None:
            memory, cuda = self._torch.cuda.memory, self._torch.cuda
            for owner in (memory, cuda):
                if hasattr(owner, "memory_stats_as_nested_dict"):
                    self._patches.wrap(owner, "memory_stats_as_nested_dict", self._with_hidden)
                self._patches.wrap(owner, "reset_peak_memory_stats", self._reset_by_script)
            accelerator = getattr(self._torch, "accelerator", None)
            inner = getattr(accelerator, "memory", None)
            for owner in (inner, accelerator):
                if hasattr(owner, "reset_peak_memory_stats"):
                    self._patches.wrap(owner, "memory_stats", self._with_hidden)
                    self._patches.wrap(owner, "reset_peak_memory_stats", self._reset_by_script)
        self._hidden = _with_highest_peaks(stats, self._hidden)
        self._reset(self._index)

    def _with_hidden(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """What the script reads: with the peaks from before our resets."""
        stats = original(*args, **kwargs)
        try:
            if self._is_ours(args, kwargs):
                return _with_highest_peaks(stats, self._hidden)
        except Exception as error:
            log_error(error)
        return stats

    def _reset_by_script(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_ours(args, kwargs):
            self._hidden = {}
        return original(*args, **kwargs)

    def _is_ours(self, args: Any, kwargs: Any) -> bool:
        """Whether a call is of the GPU that is watched: by number, as a device, or by default."""
        device = next(iter((*args, *kwargs.values())), None)
        if isinstance(device, str):
            device = int(device.partition(":")[2] or -1)
        index = getattr(device, "index", device)
        if index is None or index == -1:
            index = self._torch.cuda.current_device()
        return bool(index == self._index)


def _ends(peaks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The least and the most of them."""
    ordered = sorted(peaks)
    most = ordered[-1][0], max(reserved for _, reserved in ordered)
    return [ordered[0], most]


def _with_highest_peaks(stats: Any, earlier: Any, path: str = "") -> Any:
    """The statistics, nested or with joined keys, with each peak no lower than it was earlier."""
    made = type(stats)()
    for key, value in stats.items():
        joined = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            made[key] = _with_highest_peaks(value, earlier, joined)
        elif joined.endswith(".peak"):
            made[key] = max(value, _at(earlier, joined) or 0)
        else:
            made[key] = value
    return made


def _at(stats: Any, joined: str) -> Any:
    for key in joined.split("."):
        stats = stats.get(key) if isinstance(stats, dict) else None
    return stats


# How products are computed


def _has_benchmark(torch: Any) -> bool:
    return bool(getattr(torch.backends.cudnn, "benchmark", False))


def math_settings(torch: Any, index: int) -> MathSettings:
    """The switches of the process for a GPU; None of them where they cannot be read."""
    backends = torch.backends
    is_nvidia = bool(torch.version.cuda)
    major = getattr(torch.cuda.get_device_properties(index), "major", None)
    with warnings.catch_warnings():  # of the older of two kinds of switches
        warnings.simplefilter("ignore")
        return MathSettings(
            has_tf32=None if major is None else is_nvidia and major >= _FIRST_WITH_TF32,
            matmul_tf32=_allows(
                lambda: backends.cuda.matmul.allow_tf32, lambda: backends.cuda.matmul
            ),
            conv_tf32=_allows(lambda: backends.cudnn.allow_tf32, lambda: backends.cudnn.conv),
            cudnn_benchmark=_has_benchmark(torch),
        )


_FIRST_WITH_TF32 = 8
# Source: CUDA C++ Programming Guide, compute capability 8.0 (Ampere) and above


def _allows(old_switch: Callable[[], Any], new_owner: Callable[[], Any]) -> bool | None:
    """Whether TF32 is allowed: torch refuses to read the old switch once the new one is used."""
    try:
        return bool(old_switch())
    except Exception:
        try:
            return bool(new_owner().fp32_precision == "tf32")
        except Exception:
            return None


# Allocations: what two batch sizes ask for says what a third will ask for

RECORDED_STEPS = 4
"""Optimizer steps until they are reported: the first makes states, those after are alike."""


class AllocationRecorder:
    """Has torch itself record them, from the start of CUDA to the end of `RECORDED_STEPS` steps."""

    def __init__(self, torch: Any, channel: Any) -> None:
        self._torch = torch
        self._channel = channel
        self._is_on = False

    def install(self) -> None:
        """Begin as soon as CUDA does, where outlay asks for it."""
        if os.environ.get(ALLOCATIONS_VARIABLE) and self._torch.version.cuda:
            self._torch.cuda._lazy_call(self._begin)

    def _begin(self) -> None:
        try:
            self._torch.cuda.memory._record_memory_history(
                enabled="all", context=None, stacks="python"
            )
            self._is_on = True
        except Exception as error:
            log_error(error)

    def report(self, index: int | None) -> None:
        """Report those on a GPU, and stop recording."""
        if not self._is_on or index is None:
            return
        self._is_on = False
        memory = self._torch.cuda.memory
        traces = memory._snapshot().get("device_traces", [])
        memory._record_memory_history(enabled=None)
        # What cuDNN asks for while it tries algorithms, it does without where there is less.
        if index < len(traces) and not _has_benchmark(self._torch):
            self._channel.report(AllocationEvents(events=allocation_events(traces[index])))


def allocation_events(trace: list[dict[str, Any]]) -> list[int]:
    """Sizes in the order they were asked for; minus n where the n-th of them ended, from 1 on."""
    events: list[int] = []
    numbers: dict[int, int] = {}
    allocated = 0
    for entry in trace:
        if entry["action"] == "alloc":
            allocated += 1
            numbers[entry["addr"]] = allocated
            events.append(int(entry["size"]))
        elif entry["action"] == "free_completed" and entry["addr"] in numbers:
            events.append(-numbers.pop(entry["addr"]))
    return events


# Waiting for CPUs


class CpuQueue:
    """The share of the time that the training thread waited for a CPU that others used."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._thread = 0
        self._first: tuple[float, float] | None = None
        """When this thread was first looked at, and its time in the queue by then."""

    def restart(self) -> None:
        """Begin anew: what was until now is no training."""
        self._first = None

    def report(self) -> None:
        """Report the share since the first time; nothing where Linux does not count it."""
        queued_s, now_s = _queued_s(), time.perf_counter()
        if queued_s is None:
            return
        if self._first is None or self._thread != self._watch.training_thread:
            self._thread, self._first = self._watch.training_thread, (now_s, queued_s)
            return
        fraction = (queued_s - self._first[1]) / (now_s - self._first[0])
        self._watch.channel.report(CpuQueueTime(fraction=min(max(fraction, 0.0), 1.0)))


def _queued_s() -> float | None:
    """The second of Linux's three numbers: nanoseconds on a CPU, waiting for one, time slices."""
    # Source: https://docs.kernel.org/scheduler/sched-stats.html, /proc/PID/schedstat
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


# The process


def process_info(torch: Any, device: Device) -> ProcessInfo:
    """The process, its place among the ranks, its versions and its GPU."""
    rank, world_size = _rank_and_size(torch)
    return ProcessInfo(
        pid=os.getpid(),
        argv=sys.argv,
        rank=rank,
        local_rank=int(os.environ.get("LOCAL_RANK", 0) or 0),
        world_size=world_size,
        python=platform.python_version(),
        torch=str(torch.__version__),
        device=device.kind,
        **device.gpu_fields(),
    )


def _rank_and_size(torch: Any) -> tuple[int, int]:
    """Which of how many: as torch has it, or as the launcher set it."""
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return int(os.environ.get("RANK", 0) or 0), int(os.environ.get("WORLD_SIZE", 1) or 1)
