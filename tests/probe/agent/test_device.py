"""What is reported of a GPU, on a stand-in for torch's CUDA."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.probe.made import a_log, written_reports

from outlay.probe.agent.channel import Channel
from outlay.probe.agent.device import (
    AllocationRecorder,
    Device,
    MemoryNeed,
    math_settings,
    process_info,
)
from outlay.probe.agent.patches import FunctionPatches
from outlay.probe.agent.protocol import (
    ALLOCATIONS_VARIABLE,
    AllocationEvents,
    MemoryExhausted,
    MemoryLimit,
    MemoryPeaks,
    OptimizerStep,
    step_values,
)
from outlay.probe.summary import measured_memory


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
        accelerator=SimpleNamespace(),
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


# --- what steps need, and what cuDNN takes once ---


class Allocator:
    """A stand-in for torch's on GPU 0: what tensors have, what is cached beside, and their peaks.

    The functions of `torch.cuda.memory` have its names, and call each other as there.
    """

    def __init__(self):
        self.kinds = {name: {"current": 0, "peak": 0} for name in ("allocated", "reserved")}

    def _set(self, kind, size):
        self.kinds[kind]["current"] = size
        self.kinds[kind]["peak"] = max(self.kinds[kind]["peak"], size)

    def take(self, size):
        self._set("allocated", self.kinds["allocated"]["current"] + size)
        needed = max(self.kinds["reserved"]["current"], self.kinds["allocated"]["current"])
        self._set("reserved", needed)

    def free(self, size):
        self._set("allocated", self.kinds["allocated"]["current"] - size)

    def empty_cache(self):
        self._set("reserved", self.kinds["allocated"]["current"])

    def memory_stats_as_nested_dict(self, device=None):
        return {f"{kind}_bytes": {"all": dict(stat)} for kind, stat in self.kinds.items()}

    def reset_peak_memory_stats(self, device=None):
        for stat in self.kinds.values():
            stat["peak"] = stat["current"]


def step_of(allocator, activations, workspace, search=0):
    """Forward and backward of a convolution; the first of its shape, with a search before it."""
    allocator.take(activations)
    if search:
        allocator.take(search)
        allocator.free(search)
        allocator.empty_cache()
    allocator.take(workspace)
    allocator.free(workspace)
    allocator.free(activations)


@pytest.fixture
def searching(torch, device):
    """A device whose script has `cudnn.benchmark` on, with a model of 3 on it."""
    allocator = Allocator()
    memory = torch.cuda.memory
    for name in ("memory_stats_as_nested_dict", "reset_peak_memory_stats"):
        setattr(memory, name, getattr(allocator, name))
        setattr(torch.cuda, name, getattr(allocator, name))
    torch.backends.cudnn.benchmark = True
    device.install(SimpleNamespace(patches=FunctionPatches()))
    allocator.take(3)
    return device, allocator


def reported(device):
    """What outlay makes of all reports of memory so far."""
    log = a_log(*written_reports(device._channel, MemoryPeaks))
    memory = measured_memory([log], [], [])
    return memory.allocated_bytes, memory.reserved_bytes, memory.search_bytes


def test_what_cudnn_takes_once_to_try_algorithms_is_no_need(searching):
    device, allocator = searching
    step_of(allocator, activations=20, workspace=5, search=34)
    device.report_memory()
    for _ in range(3):
        step_of(allocator, activations=20, workspace=5)
        device.report_memory()
    # A step: 3 + 20 + 5; the search: 3 + 20 + 34.
    assert reported(device) == (28, 28, 57)


def test_a_search_for_a_new_shape_later_on_is_no_need_either(searching):
    device, allocator = searching
    for search in (34, 0, 0, 60, 0):
        step_of(allocator, activations=20, workspace=5, search=search)
        device.report_memory()
    assert reported(device) == (28, 28, 3 + 20 + 60)


def test_an_evaluation_that_needs_more_is_need(searching):
    device, allocator = searching
    for search, activations in ((34, 20), (0, 20), (0, 40), (0, 20)):
        step_of(allocator, activations=activations, workspace=5, search=search)
        device.report_memory()
    assert reported(device) == (3 + 40 + 5, 3 + 40 + 5, 57)


def test_a_script_that_empties_the_cache_in_every_step_needs_its_least_peak(searching):
    device, allocator = searching
    for search in (34, 0, 0):
        step_of(allocator, activations=20, workspace=5, search=search)
        allocator.empty_cache()
        device.report_memory()
    assert reported(device) == (28, 28, 57)


def test_a_script_still_reads_its_own_peaks_and_may_reset_them(torch, searching):
    device, allocator = searching
    step_of(allocator, activations=20, workspace=5, search=34)
    device.report_memory()
    step_of(allocator, activations=20, workspace=5)

    def peak():
        return torch.cuda.memory.memory_stats_as_nested_dict(device=0)["allocated_bytes"]["all"]

    assert peak()["peak"] == 57
    torch.cuda.reset_peak_memory_stats()
    assert peak()["peak"] == 3
    step_of(allocator, activations=20, workspace=5)
    assert peak()["peak"] == 28
    device.report_memory()
    assert reported(device) == (28, 28, 57)


def test_without_a_search_no_peak_is_reset(torch, searching):
    device, allocator = searching
    torch.backends.cudnn.benchmark = False
    resets = []
    torch.cuda.memory.reset_peak_memory_stats = resets.append
    for search in (34, 0):
        step_of(allocator, activations=20, workspace=5, search=search)
        device.report_memory()
    assert resets == []
    assert reported(device) == (300, 400, None)  # as the stand-in for torch.cuda has them


# --- how products are computed ---


def settings_with(torch, *, major=9, matmul=False, cudnn=True, precision="none"):
    """The switches; one that is an exception is refused, as torch does with the older ones."""

    def switch(value):
        def read(_):
            if isinstance(value, Exception):
                raise value
            return value

        return property(read)

    kind = type("Switch", (), {"allow_tf32": switch(matmul), "fp32_precision": precision})
    cudnn_kind = type("Cudnn", (), {"allow_tf32": switch(cudnn), "benchmark": True})
    torch.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=kind()), cudnn=cudnn_kind())
    torch.backends.cudnn.conv = SimpleNamespace(fp32_precision=precision)
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(major=major)
    return math_settings(torch, 0)


def test_products_by_the_older_switches(torch):
    settings = settings_with(torch)
    assert (settings.has_tf32, settings.matmul_tf32, settings.conv_tf32) == (True, False, True)
    assert settings.cudnn_benchmark is True
    assert settings_with(torch, matmul=True).matmul_tf32 is True


def test_products_by_the_newer_switches(torch):
    refused = RuntimeError("mix of the legacy and new APIs")
    settings = settings_with(torch, matmul=refused, cudnn=refused, precision="tf32")
    assert (settings.matmul_tf32, settings.conv_tf32) == (True, True)
    settings = settings_with(torch, matmul=refused, cudnn=refused, precision="ieee")
    assert (settings.matmul_tf32, settings.conv_tf32) == (False, False)


def test_a_gpu_before_ampere_has_no_tf32(torch):
    assert settings_with(torch, major=7, matmul=True).has_tf32 is False
    torch.version = SimpleNamespace(cuda=None, hip="6.4")
    assert settings_with(torch, major=9, matmul=True).has_tf32 is False


@pytest.mark.torch
def test_torch_itself_reads_peaks_through_what_is_put_together(monkeypatch):
    """By the functions of `torch.cuda` and `torch.accelerator` that scripts call."""
    import torch

    allocator = Allocator()
    for owner in (torch.cuda.memory, torch.cuda):
        for name in ("memory_stats_as_nested_dict", "reset_peak_memory_stats"):
            monkeypatch.setattr(owner, name, getattr(allocator, name))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        torch.accelerator.memory,
        "memory_stats",
        lambda _=None: {"allocated_bytes.all.peak": allocator.kinds["allocated"]["peak"]},
    )
    patches = FunctionPatches()
    need = MemoryNeed(torch, 0, patches)
    allocator.take(3)
    step_of(allocator, activations=20, workspace=5, search=34)
    need.peaks()
    step_of(allocator, activations=20, workspace=5)
    assert need.peaks() == MemoryPeaks(28, 28, 57, 57)
    for device in (None, 0, "cuda", "cuda:0", torch.device("cuda", 0)):
        assert torch.cuda.max_memory_allocated(device) == 57
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 57
    assert torch.accelerator.max_memory_allocated(0) == 57
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 3
    patches.undo()
    assert torch.cuda.memory.memory_stats_as_nested_dict == allocator.memory_stats_as_nested_dict
