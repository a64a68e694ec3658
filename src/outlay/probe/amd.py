"""AMD's GPUs, read through AMD SMI (`pip install amdsmi`, or the one that comes with ROCm).

# Source: https://rocm.docs.amd.com/projects/amdsmi/en/latest/reference/amdsmi-py-api.html
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlay.probe.gpu_driver import GpuDevice, GpuReading, Missing, Part, Vendor, read_or_none

# Source: amdsmi's CHANGELOG, "GPU metrics 1.6": each counts the time a limit was active.
SLOWED_BY = {
    "ppt_residency_acc": "power",
    "socket_thm_residency_acc": "heat",
    "vr_thm_residency_acc": "heat",
    "hbm_thm_residency_acc": "heat",
    "prochot_residency_acc": "hardware",
}
MHZ = 1e6
MICRO = 1e-6
MOST_W = 10_000
"""No GPU takes more; a figure above it is in microwatts, as some versions have limits."""


def open_amd() -> AmdDriver | Missing:
    """The driver with its GPUs, or what is missing."""
    smi = _module()
    if isinstance(smi, Missing):
        return smi
    try:
        smi.amdsmi_init()
    except Exception as error:
        text = " ".join(str(error).split())
        return _missing("driver", f"AMD's driver does not answer ({text}).", "Try `amd-smi list`.")
    driver = AmdDriver(smi)
    if driver.devices:
        return driver
    driver.close()
    fix = "In a container, give it `--device /dev/kfd --device /dev/dri`."
    return _missing("device", "AMD's driver is here, but it shows no GPU.", fix)


class AmdDriver:
    """GPUs of AMD SMI."""

    vendor: Vendor = "AMD"

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        self._handles = tuple(read_or_none(smi.amdsmi_get_processor_handles) or ())
        self.devices = tuple(_device(smi, *numbered) for numbered in enumerate(self._handles))
        self._limits: dict[int, dict[str, float]] = {}

    def read(self, device: GpuDevice) -> GpuReading:
        """All readings of a GPU, now."""
        smi, handle = self._smi, self._handles[device.index]
        used_bytes = read_or_none(lambda: smi.amdsmi_get_gpu_memory_usage(handle, _vram(smi)))
        busy_percent = _number(_call(smi, "amdsmi_get_gpu_activity", handle), "gfx_activity")
        return GpuReading(
            fraction=None if busy_percent is None else busy_percent / 100,
            used_bytes=_number({"used": used_bytes}, "used"),
            power_w=_power_w(smi, handle),
            clock_fraction=_clock_fraction(smi, handle, device.max_clock_hz),
            temperature_c=_temperature_c(smi, handle),
            slowed_by=self._slowed_by(device),
            energy_j=_energy_j(smi, handle),
        )

    def processes(self, device: GpuDevice) -> Mapping[int, float | None] | None:
        """Memory in bytes for each process that computes on it."""
        listed = read_or_none(self._smi.amdsmi_get_gpu_process_list, self._handles[device.index])
        if listed is None:
            return None
        return {
            int(process["pid"]): _number(process.get("memory_usage", {}), "vram_mem")
            for process in listed
            if isinstance(process, Mapping) and "pid" in process
        }

    def close(self) -> None:
        """Let AMD SMI go."""
        read_or_none(self._smi.amdsmi_shut_down)

    def _slowed_by(self, device: GpuDevice) -> tuple[str, ...]:
        """Limits that were active since the last reading.

        `amdsmi_get_violation_status` tells the same, but waits a tenth of a second in each call.
        """
        metrics = _call(self._smi, "amdsmi_get_gpu_metrics_info", self._handles[device.index])
        now = {name: value for name in SLOWED_BY if (value := _number(metrics, name)) is not None}
        before = self._limits.get(device.index, {})
        self._limits[device.index] = now
        grown = (name for name, value in now.items() if value > before.get(name, value))
        return tuple(sorted({SLOWED_BY[name] for name in grown}))


def _device(smi: Any, index: int, handle: Any) -> GpuDevice:
    memory_bytes = read_or_none(lambda: smi.amdsmi_get_gpu_memory_total(handle, _vram(smi)))
    clock_mhz = _number(_gfx_clock(smi, handle), "max_clk")
    return GpuDevice(
        index=index,
        name=_text(_call(smi, "amdsmi_get_gpu_asic_info", handle), "market_name") or "AMD GPU",
        uuid=read_or_none(smi.amdsmi_get_gpu_device_uuid, handle),
        bus_id=read_or_none(smi.amdsmi_get_gpu_device_bdf, handle),
        memory_bytes=_number({"total": memory_bytes}, "total"),
        driver=_text(_call(smi, "amdsmi_get_gpu_driver_info", handle), "driver_version"),
        power_limit_w=_power_limit_w(smi, handle),
        max_clock_hz=None if clock_mhz is None else clock_mhz * MHZ,
    )


def _power_w(smi: Any, handle: Any) -> float | None:
    """Newer cards tell the power of the moment, older ones a short mean."""
    power = _call(smi, "amdsmi_get_power_info", handle)
    for name in ("current_socket_power", "average_socket_power", "socket_power"):
        watts = _number(power, name)
        # 0 comes from the second half of a two-part card, whose first half tells for both
        if watts and watts <= MOST_W:
            return watts
    return None


def _power_limit_w(smi: Any, handle: Any) -> float | None:
    limit = _number(_call(smi, "amdsmi_get_power_cap_info", handle), "power_cap")
    if not limit:
        return None
    return limit if limit <= MOST_W else limit * MICRO


def _clock_fraction(smi: Any, handle: Any, max_clock_hz: float | None) -> float | None:
    clock = _gfx_clock(smi, handle)
    clock_mhz = _number(clock, "clk") or _number(clock, "cur_clk")  # cur_clk before ROCm 6.2
    if clock_mhz is None or not max_clock_hz:
        return None
    return clock_mhz * MHZ / max_clock_hz


def _temperature_c(smi: Any, handle: Any) -> float | None:
    """The hottest spot, which is what slows a card down; its edge where only that is told."""
    for sensor in ("HOTSPOT", "EDGE"):
        degrees = read_or_none(
            lambda sensor=sensor: smi.amdsmi_get_temp_metric(
                handle,
                getattr(smi.AmdSmiTemperatureType, sensor),
                smi.AmdSmiTemperatureMetric.CURRENT,
            )
        )
        if degrees is not None:
            return float(degrees)
    return None


def _energy_j(smi: Any, handle: Any) -> float | None:
    """The accumulator times its resolution, which is in microjoules."""
    counter = _call(smi, "amdsmi_get_energy_count", handle)
    # `power` is the accumulator's name before ROCm 6.2
    ticks = _number(counter, "energy_accumulator") or _number(counter, "power")
    resolution = _number(counter, "counter_resolution")
    return ticks * resolution * MICRO if ticks and resolution else None


def _call(smi: Any, name: str, handle: Any) -> Mapping[str, Any]:
    """What the function of that name gives; nothing where it is not supported."""
    return read_or_none(getattr(smi, name, lambda _: None), handle) or {}


def _gfx_clock(smi: Any, handle: Any) -> Mapping[str, Any]:
    return read_or_none(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)) or {}


def _vram(smi: Any) -> Any:
    return smi.AmdSmiMemoryType.VRAM


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """The value where it is a number: AMD SMI has "N/A" for what it does not know."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else None


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value != "N/A" else None


def _module() -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where its library is missing
            return importlib.import_module("amdsmi")
    except ModuleNotFoundError:
        why = "The Python module amdsmi, which reads AMD GPUs, is not installed."
        return _missing("module", why, "Where there is one: `pip install amdsmi`.")
    except Exception as error:  # KeyError or OSError without the library, AttributeError if old
        why = f"AMD's library libamd_smi.so was not found, or does not fit amdsmi ({error!r})."
        fix = "Where there is an AMD GPU, install ROCm, and an amdsmi of the same version."
        return _missing("library", why, fix)


def _missing(part: Part, why: str, fix: str) -> Missing:
    is_likely = Path("/dev/kfd").exists()
    return Missing(vendor="AMD", part=part, why=why, fix=fix, is_likely=is_likely)
