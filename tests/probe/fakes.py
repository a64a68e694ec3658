"""Stand-ins for `pynvml` and `amdsmi`: modules with the functions outlay calls, and no hardware."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

GIB = 1024**3


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801 - pynvml's own name
    pass


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
    pass


class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801
    pass


def nvml_gpu(number: int, **values) -> SimpleNamespace:
    """What one GPU answers: function name without `nvmlDeviceGet`, and the value."""
    answers = {
        "Name": "NVIDIA H200",
        "UUID": f"GPU-0000000{number}-aaaa-bbbb-cccc-dddddddddddd",
        "PciInfo": SimpleNamespace(busId=f"00000000:{number + 1}B:00.0".encode()),
        "MemoryInfo": SimpleNamespace(total=140 * GIB, used=20 * GIB, free=120 * GIB),
        "EnforcedPowerLimit": 700_000,
        "MaxClockInfo": 1980,
        "UtilizationRates": SimpleNamespace(gpu=87, memory=40),
        "PowerUsage": 412_500,
        "ClockInfo": 1485,
        "TemperatureV": 61,
        "CurrentClocksEventReasons": 0,
        "TotalEnergyConsumption": 5_000_000,
        "ComputeRunningProcesses": [],
        "MigMode": NVMLError_NotSupported("Not Supported"),
        "MaxMigDeviceCount": 0,
    }
    return SimpleNamespace(answers={**answers, **values})


def fake_pynvml(*gpus: SimpleNamespace, init: Exception | None = None) -> ModuleType:
    """A module `pynvml` with these GPUs; an answer that is an exception is raised."""
    module = ModuleType("pynvml")
    module.closed = 0
    module.nvmlInit = lambda: _answer(init)
    module.nvmlSystemGetDriverVersion = lambda: "580.82.07"
    module.nvmlDeviceGetCount = lambda: len(gpus)
    module.nvmlDeviceGetHandleByIndex = lambda index: _answer(gpus[index])
    module.nvmlDeviceGetMigDeviceHandleByIndex = lambda gpu, index: _answer(gpu.slices[index])
    module.nvmlShutdown = lambda: setattr(module, "closed", module.closed + 1)
    for name in {name for gpu in gpus if hasattr(gpu, "answers") for name in gpu.answers}:
        setattr(module, f"nvmlDeviceGet{name}", _asks(name))
    return module


def _asks(name: str):
    return lambda gpu, *_: _answer(gpu.answers[name])


def _answer(value):
    if callable(value):
        value = value()
    if isinstance(value, Exception):
        raise value
    return value


class AmdSmiLibraryException(Exception):
    pass


def amd_gpu(number: int, **values) -> SimpleNamespace:
    """What one GPU answers: function name without `amdsmi_get_`, and the value."""
    answers = {
        "gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
        "gpu_device_uuid": f"0000000{number}-0000-1000-8000-dddddddddddd",
        "gpu_device_bdf": f"0000:{number + 1}b:00.0",
        "gpu_memory_total": 192 * GIB,
        "gpu_memory_usage": 20 * GIB,
        "gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.12.12"},
        "power_cap_info": {"power_cap": 750},
        "power_info": {"current_socket_power": 412, "average_socket_power": "N/A"},
        "clock_info": {"clk": 1575, "max_clk": 2100},
        "gpu_activity": {"gfx_activity": 87, "umc_activity": 40},
        "temp_metric": 61,
        "gpu_metrics_info": {"ppt_residency_acc": 0, "socket_thm_residency_acc": 0},
        "energy_count": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3},
        "gpu_process_list": [],
    }
    return SimpleNamespace(answers={**answers, **values})


def fake_amdsmi(*gpus: SimpleNamespace, init: Exception | None = None) -> ModuleType:
    """A module `amdsmi` with these GPUs; an answer that is an exception is raised."""
    module = ModuleType("amdsmi")
    module.closed = 0
    module.AmdSmiClkType = SimpleNamespace(GFX=1)
    module.AmdSmiMemoryType = SimpleNamespace(VRAM=0)
    module.AmdSmiTemperatureType = SimpleNamespace(EDGE=0, HOTSPOT=1)
    module.AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    module.amdsmi_init = lambda: _answer(init)
    module.amdsmi_get_processor_handles = lambda: list(gpus)
    module.amdsmi_shut_down = lambda: setattr(module, "closed", module.closed + 1)
    for name in amd_gpu(0).answers:
        setattr(module, f"amdsmi_get_{name}", _asks(name))
    return module
