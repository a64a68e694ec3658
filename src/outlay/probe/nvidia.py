"""NVIDIA's GPUs, read through NVML (`pip install nvidia-ml-py`, which gives the module `pynvml`).

# Source: NVML API reference, https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.probe.gpu_driver import GpuDevice, GpuReading, Missing, Part, Vendor, read_or_none

# Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
SLOWED_BY = {
    0x04: "power",  # SwPowerCap
    0x08: "hardware",  # HwSlowdown
    0x20: "heat",  # SwThermalSlowdown
    0x40: "heat",  # HwThermalSlowdown
    0x80: "hardware",  # HwPowerBrakeSlowdown
}
"""Reasons that mean less speed than asked for; idle clocks and users' own settings are none."""
MHZ = 1e6
DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg")
"""The driver's own on Linux, and under Windows' Linux."""


def open_nvidia() -> NvidiaDriver | Missing:
    """The driver with its GPUs, or what is missing."""
    nvml = _module()
    if isinstance(nvml, Missing):
        return nvml
    try:
        nvml.nvmlInit()
    except Exception as error:
        return _not_started(error)
    driver = NvidiaDriver(nvml)
    if driver.devices:
        return driver
    driver.close()
    why = "NVIDIA's driver is here, but it shows no GPU."
    fix = "In a container, start it with `--gpus all`; else see what `nvidia-smi` says."
    return _missing("device", why, fix)


class NvidiaDriver:
    """GPUs of NVML; where MIG is on, the slices stand for the GPU they are cut from."""

    vendor: Vendor = "NVIDIA"

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        version = read_or_none(nvml.nvmlSystemGetDriverVersion)
        self._handles = tuple(_handles(nvml))
        self.devices = tuple(
            _device(nvml, index, handle, _text(version))
            for index, handle in enumerate(self._handles)
        )

    def read(self, device: GpuDevice) -> GpuReading:
        """All readings of a GPU, now; a MIG slice has no power or utilisation of its own."""
        nvml, own = self._nvml, self._handles[device.index]
        # Ignores MemoryInfo_v2, which leaves out what the driver keeps: nobody can have that.
        memory = read_or_none(_call(nvml, "nvmlDeviceGetMemoryInfo"), own.handle)
        rates = read_or_none(_call(nvml, "nvmlDeviceGetUtilizationRates"), own.handle)
        milliwatts = read_or_none(_call(nvml, "nvmlDeviceGetPowerUsage"), own.handle)
        millijoules = read_or_none(_call(nvml, "nvmlDeviceGetTotalEnergyConsumption"), own.handle)
        return GpuReading(
            fraction=None if rates is None else rates.gpu / 100,
            used_bytes=None if memory is None else float(memory.used),
            power_w=_thousandth(milliwatts),
            clock_fraction=_clock_fraction(nvml, own.card, device.max_clock_hz),
            temperature_c=_temperature_c(nvml, own.card),
            slowed_by=_slowed_by(nvml, own.card),
            energy_j=_thousandth(millijoules),
        )

    def processes(self, device: GpuDevice) -> Mapping[int, float | None] | None:
        """Memory in bytes for each process that computes on it."""
        handle = self._handles[device.index].handle
        listed = read_or_none(_call(self._nvml, "nvmlDeviceGetComputeRunningProcesses"), handle)
        return None if listed is None else {each.pid: each.usedGpuMemory for each in listed}

    def close(self) -> None:
        """Let NVML go."""
        read_or_none(self._nvml.nvmlShutdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handle:
    """NVML's handles of a GPU: a MIG slice has its own, clocks and heat are the whole card's."""

    handle: Any
    card: Any


def _handles(nvml: Any) -> Iterator[_Handle]:
    for index in range(read_or_none(nvml.nvmlDeviceGetCount) or 0):
        card = read_or_none(nvml.nvmlDeviceGetHandleByIndex, index)
        if card is None:  # lost, or not allowed for this user: the others count all the same
            continue
        slices = list(_mig_slices(nvml, card))
        yield from slices or [_Handle(handle=card, card=card)]


def _mig_slices(nvml: Any, card: Any) -> Iterator[_Handle]:
    """None where MIG is off, or not a feature of this card."""
    modes = read_or_none(_call(nvml, "nvmlDeviceGetMigMode"), card)
    if not modes or modes[0] != 1:  # NVML_DEVICE_MIG_ENABLE
        return
    for index in range(read_or_none(_call(nvml, "nvmlDeviceGetMaxMigDeviceCount"), card) or 0):
        handle = read_or_none(_call(nvml, "nvmlDeviceGetMigDeviceHandleByIndex"), card, index)
        if handle is not None:
            yield _Handle(handle=handle, card=card)


def _device(nvml: Any, index: int, own: _Handle, version: str | None) -> GpuDevice:
    memory = read_or_none(_call(nvml, "nvmlDeviceGetMemoryInfo"), own.handle)
    limit_mw = read_or_none(_call(nvml, "nvmlDeviceGetEnforcedPowerLimit"), own.handle)
    clock_mhz = read_or_none(_call(nvml, "nvmlDeviceGetMaxClockInfo"), own.card, 1)  # NVML_CLOCK_SM
    pci = read_or_none(_call(nvml, "nvmlDeviceGetPciInfo"), own.card)
    return GpuDevice(
        index=index,
        name=_text(read_or_none(_call(nvml, "nvmlDeviceGetName"), own.handle)) or "NVIDIA GPU",
        uuid=_text(read_or_none(_call(nvml, "nvmlDeviceGetUUID"), own.handle)),
        bus_id=None if pci is None else _text(pci.busId),
        memory_bytes=None if memory is None else float(memory.total),
        driver=version,
        power_limit_w=_thousandth(limit_mw),
        max_clock_hz=None if clock_mhz is None else clock_mhz * MHZ,
    )


def _clock_fraction(nvml: Any, card: Any, max_clock_hz: float | None) -> float | None:
    clock_mhz = read_or_none(_call(nvml, "nvmlDeviceGetClockInfo"), card, 1)  # NVML_CLOCK_SM
    if clock_mhz is None or not max_clock_hz:
        return None
    return float(clock_mhz * MHZ / max_clock_hz)


def _temperature_c(nvml: Any, card: Any) -> float | None:
    """The older function goes away with CUDA 14, the newer one needs a driver of 2025."""
    for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
        degrees = read_or_none(_call(nvml, name), card, 0)  # NVML_TEMPERATURE_GPU
        if degrees is not None:
            return float(degrees)
    return None


def _slowed_by(nvml: Any, card: Any) -> tuple[str, ...]:
    """Drivers before 535 know the reasons as "throttle reasons" alone."""
    for name in (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ):
        bits = read_or_none(_call(nvml, name), card)
        if bits is not None:
            return tuple(sorted({why for bit, why in SLOWED_BY.items() if bits & bit}))
    return ()


def _call(nvml: Any, name: str) -> Any:
    """The function of that name; one that gives None where this version of pynvml has none."""
    return getattr(nvml, name, lambda *_: None)


def _text(value: str | bytes | None) -> str | None:
    """Versions of pynvml differ in whether names are bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _thousandth(value: float | None) -> float | None:
    """Milliwatts as watts, millijoules as joules."""
    return None if value is None else value / 1000


def _module() -> Any:
    try:
        return importlib.import_module("pynvml")
    except Exception as error:
        is_absent = isinstance(error, ModuleNotFoundError)
        state = "is not installed" if is_absent else f"could not be loaded ({error})"
        why = f"The Python module pynvml, which reads NVIDIA GPUs, {state}."
        return _missing("module", why, "Where there is one: `pip install nvidia-ml-py`.")


def _not_started(error: Exception) -> Missing:
    """NVML without its library, or without a running driver."""
    if type(error).__name__ == "NVMLError_LibraryNotFound":
        why = "NVIDIA's driver is not installed: its library (libnvidia-ml.so.1) was not found."
        fix = "Where there is an NVIDIA GPU, install its driver (in a container: `--gpus all`)."
        return _missing("library", why, fix)
    why = f"NVIDIA's driver does not answer ({error})."
    return _missing("driver", why, "See what `nvidia-smi` says; a reboot helps after an update.")


def _missing(part: Part, why: str, fix: str) -> Missing:
    is_likely = any(Path(node).exists() for node in DEVICE_NODES)
    return Missing(vendor="NVIDIA", part=part, why=why, fix=fix, is_likely=is_likely)
