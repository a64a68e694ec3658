"""Both vendors' drivers through one contract, on modules that answer as theirs do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.probe.fakes import (
    GIB,
    AmdSmiLibraryException,
    NVMLError_DriverNotLoaded,
    NVMLError_LibraryNotFound,
    NVMLError_NotSupported,
    amd_gpu,
    fake_amdsmi,
    fake_pynvml,
    nvml_gpu,
)

from outlay.measurement.measurement import MeasuredGpu
from outlay.probe import amd, nvidia
from outlay.probe.gpu_driver import GpuReading, Missing, NoDriver, gpu_key
from outlay.probe.gpu_watch import open_driver


class DriverContract:
    """What every driver does; a vendor's class says how its module is faked."""

    module_name: str
    refusal: Exception

    def fake(self, *gpus, init=None):
        raise NotImplementedError

    def gpu(self, number, **values):
        raise NotImplementedError

    def open(self):
        raise NotImplementedError

    def process(self, pid, used_bytes):
        raise NotImplementedError

    process_key: str

    def install(self, monkeypatch, *gpus, init=None):
        module = self.fake(*gpus, init=init)
        monkeypatch.setitem(sys.modules, self.module_name, module)
        return module

    def test_two_gpus_are_listed_in_order(self, monkeypatch):
        self.install(monkeypatch, self.gpu(0), self.gpu(1))
        devices = self.open().devices
        assert [device.index for device in devices] == [0, 1]
        assert [gpu_key(device.bus_id) for device in devices] == ["0:1b:00.0", "0:2b:00.0"]
        assert devices[0].uuid != devices[1].uuid
        assert all(device.driver and device.memory_bytes >= 140 * GIB for device in devices)

    def test_a_reading_has_the_units_it_says(self, monkeypatch):
        self.install(monkeypatch, self.gpu(0))
        driver = self.open()
        reading = driver.read(driver.devices[0])
        assert reading.fraction == 0.87
        assert reading.used_bytes == 20 * GIB
        assert reading.power_w == pytest.approx(412.5, abs=0.5)
        assert reading.clock_fraction == pytest.approx(0.75)  # 1485 / 1980, 1575 / 2100
        assert reading.temperature_c == 61
        assert reading.slowed_by == ()

    def test_what_is_refused_is_none_and_the_rest_goes_on(self, monkeypatch):
        names = self.gpu(0).answers
        for name in names:
            self.install(monkeypatch, self.gpu(0, **{name: self.refusal}))
            driver = self.open()
            reading = driver.read(driver.devices[0])
            # each function is behind one reading at most
            values = [reading.fraction, reading.used_bytes, reading.power_w, reading.clock_fraction]
            values += [reading.temperature_c, reading.energy_j]
            assert sum(value is None for value in values) <= 1, name

    def test_a_gpu_that_refuses_everything_is_listed_and_read(self, monkeypatch):
        refuses = dict.fromkeys(self.gpu(0).answers, self.refusal)
        self.install(monkeypatch, self.gpu(0, **refuses), self.gpu(1))
        driver = self.open()
        assert driver.read(driver.devices[0]) == GpuReading()
        assert driver.processes(driver.devices[0]) is None
        assert driver.devices[0].name.endswith("GPU")
        assert driver.read(driver.devices[1]).fraction == 0.87

    def test_processes_have_their_memory(self, monkeypatch):
        processes = [self.process(4711, 3 * GIB), self.process(4712, 1 * GIB)]
        self.install(monkeypatch, self.gpu(0, **{self.process_key: processes}))
        driver = self.open()
        assert driver.processes(driver.devices[0]) == {4711: 3 * GIB, 4712: 1 * GIB}

    def test_no_gpu_is_a_value_and_lets_the_library_go(self, monkeypatch):
        module = self.install(monkeypatch)
        missing = self.open()
        assert isinstance(missing, Missing)
        assert missing.part == "device"
        assert module.closed == 1

    def test_a_driver_that_does_not_start_is_a_value(self, monkeypatch):
        self.install(monkeypatch, self.gpu(0), init=self.refusal)
        missing = self.open()
        assert isinstance(missing, Missing)
        assert missing.part == "driver"
        assert str(self.refusal) in missing.why

    def test_without_the_module_pip_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, self.module_name, None)  # import fails
        missing = self.open()
        assert isinstance(missing, Missing)
        assert missing.part == "module"
        assert "pip install" in missing.fix

    def test_close_lets_go(self, monkeypatch):
        module = self.install(monkeypatch, self.gpu(0))
        self.open().close()
        assert module.closed == 1


class TestNvidia(DriverContract):
    module_name = "pynvml"
    refusal = NVMLError_NotSupported("Not Supported")
    process_key = "ComputeRunningProcesses"

    def fake(self, *gpus, init=None):
        return fake_pynvml(*gpus, init=init)

    def gpu(self, number, **values):
        return nvml_gpu(number, **values)

    def open(self):
        return nvidia.open_nvidia()

    def process(self, pid, used_bytes):
        return SimpleNamespace(pid=pid, usedGpuMemory=used_bytes)

    def test_the_device_as_a_measurement_keeps_it(self, monkeypatch):
        self.install(monkeypatch, nvml_gpu(0))
        device = self.open().devices[0]
        assert device.max_clock_hz == 1.98e9
        assert device.measured == MeasuredGpu(
            name="NVIDIA H200",
            memory_bytes=140 * GIB,
            driver="580.82.07",
            power_limit_w=700,
            uuid="GPU-00000000-aaaa-bbbb-cccc-dddddddddddd",
        )

    def test_energy_is_in_joules(self, monkeypatch):
        self.install(monkeypatch, nvml_gpu(0))
        driver = self.open()
        assert driver.read(driver.devices[0]).energy_j == 5000  # 5 000 000 mJ

    @pytest.mark.parametrize(
        ("bits", "slowed_by"),
        [
            (0x1, ()),  # idle
            (0x2 | 0x10 | 0x100, ()),  # users' own settings
            (0x4, ("power",)),
            (0x20, ("heat",)),
            (0x40 | 0x8, ("hardware", "heat")),
            (0x80, ("hardware",)),
            (0x4 | 0x20 | 0x1, ("heat", "power")),
        ],
    )
    def test_why_a_clock_is_held_down(self, monkeypatch, bits, slowed_by):
        self.install(monkeypatch, nvml_gpu(0, CurrentClocksEventReasons=bits))
        driver = self.open()
        assert driver.read(driver.devices[0]).slowed_by == slowed_by

    def test_an_old_driver_has_the_same_under_older_names(self, monkeypatch):
        old = {"CurrentClocksThrottleReasons": 0x4, "Temperature": 70}
        new = {"CurrentClocksEventReasons": self.refusal, "TemperatureV": self.refusal}
        self.install(monkeypatch, nvml_gpu(0, **old, **new))
        driver = self.open()
        reading = driver.read(driver.devices[0])
        assert (reading.slowed_by, reading.temperature_c) == (("power",), 70)

    def test_an_old_pynvml_lacks_functions_and_gives_bytes(self, monkeypatch):
        module = self.install(monkeypatch, nvml_gpu(0, Name=b"Tesla T4"))
        del module.nvmlDeviceGetTotalEnergyConsumption
        del module.nvmlDeviceGetTemperatureV
        driver = self.open()
        reading = driver.read(driver.devices[0])
        assert driver.devices[0].name == "Tesla T4"
        assert (reading.energy_j, reading.temperature_c, reading.fraction) == (None, None, 0.87)

    def test_a_lost_gpu_is_left_out(self, monkeypatch):
        lost = NVMLError_NotSupported("GPU is lost")
        self.install(monkeypatch, lost, nvml_gpu(1))
        driver = self.open()
        assert [device.bus_id for device in driver.devices] == ["00000000:2B:00.0"]
        assert driver.read(driver.devices[0]).fraction == 0.87

    def test_mig_slices_stand_for_their_card(self, monkeypatch):
        own = {"UUID": "MIG-1", "MemoryInfo": SimpleNamespace(total=16 * GIB, used=5 * GIB)}
        shared = ("UtilizationRates", "PowerUsage", "TotalEnergyConsumption", "ClockInfo")
        refuses = dict.fromkeys(shared, self.refusal)
        card = nvml_gpu(0, MigMode=[1, 1], MaxMigDeviceCount=2)
        card.slices = [nvml_gpu(0, **own, **refuses), NVMLError_NotSupported("not there")]
        self.install(monkeypatch, card)
        driver = self.open()
        (device,) = driver.devices
        assert (device.uuid, device.memory_bytes) == ("MIG-1", 16 * GIB)
        reading = driver.read(device)
        assert reading.used_bytes == 5 * GIB
        assert (reading.fraction, reading.power_w, reading.energy_j) == (None, None, None)
        assert reading.clock_fraction == 0.75  # the whole card's

    def test_the_library_missing_is_told_apart(self, monkeypatch):
        error = NVMLError_LibraryNotFound("NVML Shared Library Not Found")
        self.install(monkeypatch, init=error)
        assert self.open().part == "library"
        self.install(monkeypatch, init=NVMLError_DriverNotLoaded("Driver Not Loaded"))
        assert self.open().part == "driver"


class TestAmd(DriverContract):
    module_name = "amdsmi"
    refusal = AmdSmiLibraryException("AMDSMI_STATUS_NOT_SUPPORTED")
    process_key = "gpu_process_list"

    def fake(self, *gpus, init=None):
        return fake_amdsmi(*gpus, init=init)

    def gpu(self, number, **values):
        return amd_gpu(number, **values)

    def open(self):
        return amd.open_amd()

    def process(self, pid, used_bytes):
        return {"pid": pid, "name": "python", "memory_usage": {"vram_mem": used_bytes}}

    def test_energy_is_ticks_of_so_many_microjoules(self, monkeypatch):
        self.install(monkeypatch, amd_gpu(0))
        driver = self.open()
        # 1 000 000 * 15.3 uJ
        assert driver.read(driver.devices[0]).energy_j == pytest.approx(15.3)

    def test_limits_slow_down_while_their_counters_grow(self, monkeypatch):
        metrics = {"ppt_residency_acc": 5, "socket_thm_residency_acc": 7, "vr_thm": "N/A"}
        self.install(monkeypatch, amd_gpu(0, gpu_metrics_info=metrics))
        driver = self.open()
        (device,) = driver.devices
        assert driver.read(device).slowed_by == ()  # since when is not known
        metrics["ppt_residency_acc"] = 6
        assert driver.read(device).slowed_by == ("power",)
        metrics["socket_thm_residency_acc"] = 9
        assert driver.read(device).slowed_by == ("heat",)
        assert driver.read(device).slowed_by == ()

    def test_not_available_is_none(self, monkeypatch):
        unknown = {"current_socket_power": "N/A", "average_socket_power": "N/A"}
        self.install(monkeypatch, amd_gpu(0, power_info=unknown))
        driver = self.open()
        assert driver.read(driver.devices[0]).power_w is None

    @pytest.mark.parametrize("power_cap", [750, 750_000_000])
    def test_a_power_limit_in_watts_or_microwatts(self, monkeypatch, power_cap):
        self.install(monkeypatch, amd_gpu(0, power_cap_info={"power_cap": power_cap}))
        assert self.open().devices[0].power_limit_w == pytest.approx(750)

    def test_the_module_without_its_library_prints_nothing(self, tmp_path, capsys, monkeypatch):
        # As amdsmi 7.0.2 does: it prints, then fails on a table without the library.
        text = "print('Unable to find libamd_smi.so')\n{}['libamd_smi.so']\n"
        (tmp_path / "amdsmi.py").write_text(text)
        monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        missing = self.open()
        assert missing.part == "library"
        assert capsys.readouterr().out == ""


def test_the_first_vendor_that_works_is_taken(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", fake_amdsmi(amd_gpu(0)))
    assert open_driver().vendor == "AMD"
    monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(nvml_gpu(0)))
    assert open_driver().vendor == "NVIDIA"


def test_without_any_both_parts_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    nothing = open_driver()
    assert isinstance(nothing, NoDriver)
    assert [part.vendor for part in nothing.missing] == ["NVIDIA", "AMD"]
    assert "pip install nvidia-ml-py" in str(nothing)


def test_where_a_vendor_is_likely_only_its_part_is_said():
    likely = Missing(vendor="NVIDIA", part="module", why="No pynvml.", fix="Do.", is_likely=True)
    other = Missing(vendor="AMD", part="module", why="No amdsmi.", fix="Do too.")
    assert str(NoDriver(missing=(likely, other))) == "No GPU is read. No pynvml. Do."


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00000000:3B:00.0", "3b:00"),
        ("GPU-8C9C-1", "8c9c-1"),
        ("MIG-8c9c-1", "8c9c-1"),
    ],
)
def test_spellings_of_the_same_gpu(first, other):
    assert gpu_key(first) == gpu_key(other)


def test_other_gpus_have_other_keys():
    assert gpu_key("0000:3b:00.0") != gpu_key("0001:3b:00.0")
    assert gpu_key("0000:3b:00.0") != gpu_key("0000:3c:00.0")


def test_the_real_pynvml_has_what_is_asked_of_it():
    """Its functions, and the constants that are written here as numbers."""
    pynvml = pytest.importorskip("pynvml")
    names = {f"nvmlDeviceGet{name}" for name in nvml_gpu(0).answers}
    names |= {name for name in dir(fake_pynvml()) if name.startswith("nvml")}
    assert {name for name in names if not hasattr(pynvml, name)} == set()
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU) == (1, 0)
    assert pynvml.NVML_DEVICE_MIG_ENABLE == 1
    assert pynvml.nvmlClocksEventReasonSwPowerCap == 0x04
    assert pynvml.nvmlClocksEventReasonHwSlowdown == 0x08
    assert pynvml.nvmlClocksEventReasonSwThermalSlowdown == 0x20
    assert pynvml.nvmlClocksEventReasonHwThermalSlowdown == 0x40
    assert pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown == 0x80


def test_on_this_machine_nothing_is_raised_or_printed():
    code = "from outlay.probe.gpu_watch import open_driver; open_driver()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(nvidia.__file__).parents[2])},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
