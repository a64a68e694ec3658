"""GPU drivers of any vendor: devices, readings, and what is missing where there is none.

`nvidia` and `amd` are the two drivers; `gpu_watch.open_driver` takes the first that works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from outlay.measurement.measurement import MeasuredGpu

Vendor = Literal["NVIDIA", "AMD"]
Part = Literal["module", "library", "driver", "device"]
"""What may be missing: Python's module, the driver's own library, the driver, a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A GPU (or a MIG slice of one) as its driver names it."""

    index: int
    """Its place in the driver's `devices`, in the order of PCI buses."""
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    memory_bytes: float | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    max_clock_hz: float | None = None

    def answers_to(self, name: str) -> bool:
        """Whether `name` is its UUID or its PCI bus id, in any usual spelling."""
        return gpu_key(name) in {gpu_key(own) for own in (self.uuid, self.bus_id) if own}

    @property
    def measured(self) -> MeasuredGpu:
        """The same, as a measurement keeps it."""
        return MeasuredGpu(
            name=self.name,
            memory_bytes=self.memory_bytes,
            driver=self.driver,
            power_limit_w=self.power_limit_w or None,  # 0 where a driver does not say
            uuid=self.uuid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The driver's figures of one GPU at one moment; None for those it does not have."""

    fraction: float | None = None
    """Time of the driver's last sample period in which some kernel ran."""
    used_bytes: float | None = None
    """Memory that nobody else can have now."""
    power_w: float | None = None
    clock_fraction: float | None = None
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()
    """`power`, `heat`, `hardware`, sorted."""
    energy_j: float | None = None
    """A counter: only differences mean anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Why one vendor's GPUs cannot be read, and what to do about it."""

    vendor: Vendor
    part: Part
    why: str
    fix: str
    is_likely: bool = False
    """Whether the machine seems to have such a GPU all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoDriver:
    """No GPU can be read: what is missing, for each vendor."""

    missing: tuple[Missing, ...]

    @property
    def likely(self) -> tuple[Missing, ...]:
        """Of the vendors whose GPUs seem to be here; of all, where none does."""
        return tuple(part for part in self.missing if part.is_likely) or self.missing

    @property
    def why(self) -> str:
        """What is missing, in sentences."""
        return " ".join(part.why for part in self.likely)

    @property
    def fix(self) -> str:
        """What to do about it."""
        return " ".join(part.fix for part in self.likely)

    def __str__(self) -> str:
        parts = (f"{part.why} {part.fix}" for part in self.likely)
        return " ".join(("No GPU is read.", *parts))


class Driver(Protocol):
    """One vendor's GPUs. Nothing here raises: a reading that fails is None."""

    vendor: Vendor
    devices: tuple[GpuDevice, ...]

    def read(self, device: GpuDevice) -> GpuReading:
        """All readings of a GPU, now."""

    def processes(self, device: GpuDevice) -> Mapping[int, float | None] | None:
        """Memory in bytes for each process that computes on it; None where that is not told.

        In a container the process ids may be the host's.
        """

    def close(self) -> None:
        """Let the driver go; reading afterwards gives None."""


def read_or_none(call: Callable[..., Any], *arguments: Any) -> Any | None:
    """What `call` gives; None where the driver refuses, has no such function, or lost the GPU."""
    try:
        return call(*arguments)
    except Exception:  # each library raises its own, and AttributeError where it is too old
        return None


_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")


def gpu_key(name: str) -> str:
    """A UUID or PCI bus id without what differs between spellings.

    NVML has 00000000:3B:00.0 and GPU-8c9c..., torch 0000:3b:00 and 8c9c....
    """
    plain = name.strip().lower()
    if match := _PCI.fullmatch(plain):
        domain, bus, device, function = match.groups()
        return f"{int(domain or '0', 16):x}:{bus}:{device}.{function or '0'}"
    return plain.removeprefix("gpu-").removeprefix("mig-")
