"""What is reported of a GPU, on a stand-in for torch's CUDA."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.probe.made import a_log, written_reports

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.device import AllocationRecorder, Device, process_info
from outlay.probe.agent.protocol import (
    ALLOCATIONS_VARIABLE,
    AllocationEvents,
    MemoryExhausted,
    MemoryLimit,
    MemoryPeaks,
    OptimizerStep,
    step_values,
)


class Event:
    """An event that the GPU passes at a time of its own, in milliseconds."""

    gpu_ms = 0.0
    made_ms = 0.0

    def __init__(self, enable_timing=False):
        self.at_ms = None

    def record(self, stream=None):
        Event.made_ms += 100.0
        self.at_ms = Event.made_ms

    def query(self):
        return Event.gpu_ms >= self.at_ms

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr(Event, "gpu_ms", 0.0)
    monkeypatch.setattr(Event, "made_ms", 0.0)
    started, trace = [], [{"action": "alloc", "addr": 7, "size": 512}]
    memory = SimpleNamespace(
        _record_memory_history=lambda **_: None, _snapshot=lambda: {"device_traces": [trace]}
    )
    properties = SimpleNamespace(
        name="NVIDIA H200",
        total_memory=1000 * 2**20,
        uuid="8c9c",
        pci_domain_id=0,
        pci_bus_id=59,
        pci_device_id=0,
    )

    def synchronize(_):
        Event.gpu_ms = Event.made_ms

    cuda = SimpleNamespace(
        Event=Event,
        memory=memory,
        current_device=lambda: 0,
        current_stream=lambda _: None,
        device_count=lambda: 1,
        get_device_properties=lambda _: properties,
        max_memory_allocated=lambda _: 300,
        max_memory_reserved=lambda _: 400,
        mem_get_info=lambda _: (600, 1000),
        memory_reserved=lambda _: 100,
        set_per_process_memory_fraction=lambda *_: None,
        synchronize=synchronize,
        _lazy_call=started.append,
    )
    return SimpleNamespace(
        __version__="2.13.0",
        cuda=cuda,
        started=started,
        version=SimpleNamespace(cuda="13.0", hip=None),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91200)),
        _C=SimpleNamespace(_cuda_attach_out_of_memory_observer=lambda _: None),
    )


@pytest.fixture
def device(torch):
    device = Device(torch, Channel())
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda", index=None))
    device.identify(on_gpu)
    return device


def test_times_come_once_the_gpu_has_passed_them(device):
    log = a_log()
    log.table.extend(step_values(OptimizerStep(number=number)) for number in (1, 2, 3))
    device.mark(1)
    device.mark(2)
    assert device._channel.lines == []  # nothing waits for the GPU
    Event.gpu_ms = 200.0
    device.mark(3)
    assert len(device._channel.lines) == 2
    device.finish()
    log.read_lines(device._channel.lines)
    assert log.table.column("device_s").tolist() == pytest.approx([0.0, 0.1, 0.2])


def test_the_process_and_its_gpu(torch, device):
    info = process_info(torch, device)
    assert (info.device, info.gpu, info.gpu_bytes) == ("cuda", "NVIDIA H200", 1000 * 2**20)
    assert (info.uuid, info.bus) == ("8c9c", "00000000:3B:00.0")  # 59 is 3B
    assert info.available_bytes == 600 + 100
    assert (info.cuda, info.cudnn) == ("13.0", 91200)
    assert a_log(info).gpu_name == "8c9c"


def test_memory_its_limit_and_its_end(torch, device, monkeypatch):
    monkeypatch.setenv("OUTLAY_PROBE_MEMORY_CAP_MIB", "250")
    patches = SimpleNamespace(replace=lambda *_: None)
    device.install(SimpleNamespace(patches=patches))
    for start in torch.started:
        start()
    device.report_memory()
    for _ in range(2):
        device._ran_out(0, 4096)
    channel = device._channel
    assert written_reports(channel, MemoryLimit) == [MemoryLimit(fraction=0.25)]
    assert written_reports(channel, MemoryExhausted) == [MemoryExhausted(requested_bytes=4096)]
    assert written_reports(channel, MemoryPeaks) == [
        MemoryPeaks(allocated_bytes=300, reserved_bytes=400)
    ]


def test_allocations_are_recorded_where_outlay_asks_for_them(torch, monkeypatch):
    recorder = AllocationRecorder(torch, Channel())
    recorder.install()
    assert torch.started == []
    monkeypatch.setenv(ALLOCATIONS_VARIABLE, "1")
    recorder.install()
    for start in torch.started:
        start()
    for _ in range(2):  # once is enough
        recorder.report(0)
    assert written_reports(recorder._channel, AllocationEvents) == [AllocationEvents(events=[512])]
