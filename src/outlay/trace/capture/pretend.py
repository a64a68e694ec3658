"""What user code must find where there is no GPU: `torch.cuda` that answers, modules that move.

Every change is undone when the `with` block ends.
"""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as optim
from torch.utils import _foreach_utils

from outlay.trace.capture.patches import Patches
from outlay.trace.capture.wrappers import patch_wrappers
from outlay.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Assumes: code that asks the GPU what it is gets the answers of a large data-centre card.
_CAPABILITY = (9, 0)
_MEMORY_BYTES = 80 * GIB
_PROPERTIES = SimpleNamespace(
    name="traced GPU",
    major=_CAPABILITY[0],
    minor=_CAPABILITY[1],
    total_memory=_MEMORY_BYTES,
    multi_processor_count=132,
    is_integrated=0,
    is_multi_gpu_board=0,
)


class FakeMode(FakeTensorMode):  # type: ignore[misc]
    """Fake tensors that never touch a device, whatever `torch.cuda.is_available` answers."""

    @property
    def avoid_device_init(self) -> bool:
        """Always: nothing here may start a CUDA context."""
        return True


@contextlib.contextmanager
def pretended_cuda(
    notes: set[str], values_of: Callable[[Tensor], Tensor] | None = None
) -> Iterator[Patches]:
    """Let training code run as it would with one GPU; `notes` collects what was left out.

    `values_of` answers code that reads a whole tensor; zeros without it.
    """
    patches = Patches()
    try:
        _patch_device(patches)
        _patch_memory_and_streams(patches)
        _patch_fake_tensors(patches)
        patch_wrappers(patches, notes)
        _patch_reads(patches, notes, values_of or _zeros)
        yield patches
    finally:
        patches.restore()


def _answer(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _patch_device(patches: Patches) -> None:
    cuda = torch.cuda
    answers: dict[str, object] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_tf32_supported": True,
        "is_current_stream_capturing": False,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": _PROPERTIES.name,
        "get_device_capability": _CAPABILITY,
        "get_device_properties": _PROPERTIES,
        "_lazy_init": None,
        "init": None,
        "set_device": None,
        "synchronize": None,
        "manual_seed": None,
        "manual_seed_all": None,
        "can_device_access_peer": False,
    }
    for name, value in answers.items():
        patches.set(cuda, name, _answer(value))
    _patch_random_numbers(patches)
    # torch's compiler asks for it when it is imported where CUDA is available.
    patches.add(torch._C, "_cuda_getCurrentRawStream", _answer(0))


class _Generator(torch.Generator):  # type: ignore[misc]
    """A generator of random numbers nobody draws: on the host, whatever it was made for."""

    def __new__(cls, device: object = None) -> _Generator:  # noqa: ARG004
        made: _Generator = super().__new__(cls, torch.device("cpu"))
        return made


def _patch_random_numbers(patches: Patches) -> None:
    with torch._C._DisableTorchDispatch():
        state = torch.zeros(16, dtype=torch.uint8, device="cpu")
    for owner in (torch.cuda, torch.cuda.random):
        patches.set(owner, "get_rng_state", _answer(state))
        patches.set(owner, "get_rng_state_all", _answer([state]))
        patches.set(owner, "initial_seed", _answer(0))
        for name in ("set_rng_state", "set_rng_state_all", "seed", "seed_all"):
            patches.set(owner, name, _answer(None))
    patches.set(torch, "Generator", _Generator)


class _Event:
    """A CUDA event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, _stream: object = None) -> None:
        pass

    def wait(self, _stream: object = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: _Event) -> float:
        return 1.0


class _Stream(_Event):
    """A CUDA stream on which everything is done at once."""

    device = torch.device("cuda:0")
    cuda_stream = 0

    def wait_stream(self, _stream: object) -> None:
        pass

    def wait_event(self, _event: object) -> None:
        pass

    def record_event(self, _event: object = None) -> _Event:
        return _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _patch_memory_and_streams(patches: Patches) -> None:
    cuda = torch.cuda
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        patches.set(cuda, name, _answer(0))
    for name in ("max_memory_reserved", "memory_cached", "max_memory_cached", "utilization"):
        patches.set(cuda, name, _answer(0))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.set(cuda.nvtx, name, _answer(0))
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "ipc_collect"):
        patches.set(cuda, name, _answer(None))
    for name in ("reset_accumulated_memory_stats", "_exchange_device", "_maybe_exchange_device"):
        patches.set(cuda, name, _answer(0))
    for name in ("empty_cache", "reset_peak_memory_stats", "set_per_process_memory_fraction"):
        patches.set(cuda, name, _answer(None))
    patches.set(cuda, "memory_stats", _answer(defaultdict(int)))
    patches.set(cuda, "memory_stats_as_nested_dict", _answer({}))
    patches.set(cuda, "memory_summary", _answer(""))
    patches.set(cuda, "memory_snapshot", _answer([]))
    patches.set(cuda, "mem_get_info", _answer((_MEMORY_BYTES, _MEMORY_BYTES)))
    patches.set(cuda, "Event", _Event)
    patches.set(cuda, "Stream", _Stream)
    patches.set(cuda, "current_stream", _answer(_Stream()))
    patches.set(cuda, "default_stream", _answer(_Stream()))
    patches.set(cuda, "stream", _answer(contextlib.nullcontext()))


def _patch_fake_tensors(patches: Patches) -> None:
    """Let modules and optimizers treat fake tensors as they treat real ones."""
    patches.set(fake_tensor, "init_gpu_context", _answer(None))
    patches.set(nn.Module, "_apply", _apply_in_place)
    patches.set(Tensor, "__deepcopy__", _deep_copy)
    patches.extend(optim._foreach_supported_types, FakeTensor)
    patches.extend(_foreach_utils._foreach_supported_types, FakeTensor)


_deep_copy_of_real = Tensor.__deepcopy__


def _deep_copy(tensor: Tensor, memo: dict[int, object]) -> Tensor:
    """`copy.deepcopy` of a fake tensor: what torch remembers of its values is not copied."""
    if not isinstance(tensor, FakeTensor):
        copied: Tensor = _deep_copy_of_real(tensor, memo)
        return copied
    if id(tensor) not in memo:
        with torch.no_grad():
            made = tensor.detach().clone()
        if getattr(tensor, "_is_param", False):
            made = nn.Parameter(made, requires_grad=tensor.requires_grad)
        elif tensor.is_leaf:
            made.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            made.grad = _deep_copy(tensor.grad, memo)
        memo[id(tensor)] = made
    result: Tensor = memo[id(tensor)]
    return result


def _apply_in_place(
    module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True
) -> nn.Module:
    """`nn.Module._apply` for fake tensors: parameters keep their identity, as real ones do."""
    for child in module.children() if recurse else ():
        _apply_in_place(child, fn)
    for parameter in module._parameters.values():
        if parameter is not None:
            _convert(parameter, fn)
            if parameter.grad is not None:
                _convert(parameter.grad, fn)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def _convert(tensor: Tensor, fn: Callable[[Tensor], Tensor]) -> None:
    with torch.no_grad():
        converted = fn(tensor)
    if converted is not tensor:
        tensor.data = converted
        if isinstance(tensor, FakeTensor):
            tensor.fake_device = converted.device


def _patch_reads(patches: Patches, notes: set[str], values_of: Callable[[Tensor], Tensor]) -> None:
    """Reading values off the GPU as a list or an array: an array of the right shape."""

    def numpy(tensor: Tensor, *args: object, **kwargs: object) -> object:
        if not isinstance(tensor, FakeTensor):
            return original_numpy(tensor, *args, **kwargs)
        notes.add("Tensors read as arrays were answered with zeros where values are unknown.")
        values = values_of(tensor)
        with torch._C._DisableTorchDispatch():
            return original_numpy(values.detach().clone())

    original_numpy = Tensor.numpy
    patches.set(Tensor, "numpy", numpy)
    patches.set(Tensor, "tolist", _tolist)
    patches.set(Tensor, "record_stream", _answer(None))
    patches.set(Tensor, "pin_memory", lambda tensor, *_, **__: tensor)


def _zeros(tensor: Tensor) -> Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")


def _tolist(tensor: Tensor) -> object:
    if tensor.dim() == 0:
        return tensor.item()
    return [_tolist(part) for part in tensor.unbind(0)]


def patch_imported_libraries(patches: Patches) -> None:
    """Libraries that behave differently once they notice fake tensors; call after their import."""
    transformers = sys.modules.get("transformers.utils.import_utils")
    if transformers is not None:
        patches.set(transformers, "is_fake_tensor", _answer(False))
