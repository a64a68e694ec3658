"""A CUDA device that is not there: training code runs on fake CUDA tensors with a CPU-only torch.

`install` changes torch's C++ side. A torch built without CUDA has neither a device guard nor an
accelerator, and autograd asks for both. torch itself swaps in a guard that does nothing once it
finds one that counts zero devices; `install` gives it such a guard, and makes the hooks of the CPU
build answer "built". This depends on torch's binary layout: `python -m
outlay.trace.capture.self_test` tries it where an abort does no harm. A torch built with CUDA has a
guard; only the hooks are changed, as it has no GPU.

`patched_cuda` changes what user code finds in Python: `torch.cuda` answers, modules move, values
can be read. Every change is undone when its `with` block ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.optim import optimizer as optim
from torch.utils import _foreach_utils

from outlay.errors import TraceFailed
from outlay.trace.capture.constant_values import without_dispatch
from outlay.trace.capture.quantized import patch_bitsandbytes, patch_subclasses
from outlay.trace.capture.wrappers import AttributePatches, patch_wrappers
from outlay.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The device guard and the hooks


_CUDA = 1  # c10::DeviceType::CUDA
_DEVICE_TYPES = 21
_GUARD_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_VTABLE_SLOTS = 96
_VTABLE_HEADER = 2  # offset to top and type info stand before the first function
_IS_BUILT = 2
_HAS_PRIMARY_CONTEXT = 4

# Source: native_functions.yaml, the entries with both CUDA and CompositeImplicitAutograd.
_CUDA_KERNELS_WITH_COMPOSITION = ("silu_backward", "mish_backward", "native_channel_shuffle")

_OLDEST_TORCH = (2, 4)

_kept_alive: list[object] = []
_libraries: list[torch.library.Library] = []


def built_with_cuda() -> bool:
    """Whether this torch has CUDA kernels of its own."""
    return torch.version.cuda is not None or torch.version.hip is not None


def install() -> None:
    """Make fake CUDA tensors usable in this process. Does nothing the second time."""
    if _kept_alive:
        return
    if _version() < _OLDEST_TORCH:
        raise unsupported("It is older than 2.4, the oldest that fake tensors work with here.")
    try:
        _install_guard(_library("c10"))
        _install_hooks(_library("torch_cpu"))
        if not built_with_cuda():
            _declare_cuda_kernels()
    except (OSError, ValueError, AttributeError) as error:
        raise unsupported(str(error)) from error


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.partition("+")[0].split(".")[:2])


def _declare_cuda_kernels() -> None:
    """Keep operators whole that a CPU build would take apart on CUDA tensors.

    They have a kernel of their own on CUDA and a composition for other devices; without the
    kernel, torch runs the composition. Fake tensors never reach the kernel.
    """
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL")
    for name in _CUDA_KERNELS_WITH_COMPOSITION:
        library.impl(name, _never_run, "CUDA")
    _libraries.append(library)


def _never_run(*_args: object, **_kwargs: object) -> None:
    raise AssertionError("a fake tensor reached a kernel")


def unsupported(why: str) -> TraceFailed:
    """The error for a torch build this cannot work on."""
    return TraceFailed(
        f"torch {torch.__version__} cannot be made to trace CUDA code on this machine.",
        why=why,
        fix="Install another: pip install torch==2.13.0 (no GPU is needed for it).",
    )


def _library(name: str) -> ctypes.CDLL:
    folder = Path(torch.__file__).parent / "lib"
    for path in (folder / f"lib{name}.so", folder / f"lib{name}.dylib"):
        if path.exists():
            return ctypes.CDLL(str(path))
    raise OSError(f"lib{name} was not found in {folder}.")


def _install_guard(c10: ctypes.CDLL) -> None:
    """Register a guard whose every function returns 0; torch replaces it by its no-op guard."""
    registry = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(c10, _GUARD_REGISTRY)
    if registry[_CUDA] is None:
        vtable = (ctypes.c_void_p * _VTABLE_SLOTS)(*[_c_function_returning(0)] * _VTABLE_SLOTS)
        guard = (ctypes.c_void_p * 4)(ctypes.addressof(vtable))
        _kept_alive.extend((vtable, guard))
        registry[_CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()


def _install_hooks(torch_cpu: ctypes.CDLL) -> None:
    """Give the CUDA hooks object a copied table of functions with two of them replaced."""
    get_hooks = getattr(torch_cpu, _HOOKS)
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.cast(get_hooks(), ctypes.POINTER(ctypes.c_void_p))
    original = hooks[0]
    if original is None:
        raise ValueError("The CUDA hooks of this build have no table of functions.")
    start = original - _VTABLE_HEADER * ctypes.sizeof(ctypes.c_void_p)
    table = (ctypes.c_void_p * _VTABLE_SLOTS)()
    ctypes.memmove(table, start, ctypes.sizeof(table))
    table[_VTABLE_HEADER + _IS_BUILT] = _c_function_returning(1)
    table[_VTABLE_HEADER + _HAS_PRIMARY_CONTEXT] = _c_function_returning(0)
    _kept_alive.append(table)
    hooks[0] = ctypes.addressof(table) + _VTABLE_HEADER * ctypes.sizeof(ctypes.c_void_p)
    atexit.register(hooks.__setitem__, 0, original)


def _c_function_returning(value: int) -> int | None:
    """The address of a C function that takes anything and returns `value`."""
    function = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: value)
    _kept_alive.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value


# What user code finds


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
def patched_cuda(
    notes: set[str], values_of: Callable[[Tensor], Tensor] | None = None
) -> Iterator[AttributePatches]:
    """Let training code run as it would with one GPU; `notes` collects what was left out.

    `values_of` gives values to code that reads a whole tensor; zeros without it.
    """
    patches = AttributePatches()
    try:
        _patch_device(patches)
        _patch_memory_and_streams(patches)
        _patch_fake_tensors(patches)
        patch_wrappers(patches, notes)
        _patch_reads(patches, values_of or _zeros)
        yield patches
    finally:
        patches.restore()


def _returning(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _patch_device(patches: AttributePatches) -> None:
    cuda = torch.cuda
    results: dict[str, object] = {
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
    for name, value in results.items():
        patches.set(cuda, name, _returning(value))
    _patch_random_numbers(patches)
    _patch_accelerator(patches)
    # torch's compiler asks for it when it is imported where CUDA is available.
    patches.add(torch._C, "_cuda_getCurrentRawStream", _returning(0))


def _patch_accelerator(patches: AttributePatches) -> None:
    """The same by the names that do not say CUDA; before torch 2.6 there are none."""
    accelerator = getattr(torch, "accelerator", None)
    results: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_stream": _Stream(),
        "set_device_index": None,
        "set_device_idx": None,
        "synchronize": None,
        "empty_cache": None,
        "max_memory_allocated": 0,
        "memory_allocated": 0,
        "max_memory_reserved": 0,
        "memory_reserved": 0,
        "reset_peak_memory_stats": None,
    }
    for name, value in results.items():
        patches.set(accelerator, name, _returning(value))


class _Generator(torch.Generator):  # type: ignore[misc]
    """A generator of random numbers nobody draws: on the host, whatever it was made for."""

    def __new__(cls, device: object = None) -> _Generator:  # noqa: ARG004
        generator: _Generator = super().__new__(cls, torch.device("cpu"))
        return generator


def _patch_random_numbers(patches: AttributePatches) -> None:
    with without_dispatch():
        state = torch.zeros(16, dtype=torch.uint8, device="cpu")
    for owner in (torch.cuda, torch.cuda.random):
        patches.set(owner, "get_rng_state", _returning(state))
        patches.set(owner, "get_rng_state_all", _returning([state]))
        patches.set(owner, "initial_seed", _returning(0))
        for name in ("set_rng_state", "set_rng_state_all", "seed", "seed_all"):
            patches.set(owner, name, _returning(None))
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

    def is_capturing(self) -> bool:
        return False

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


def _patch_memory_and_streams(patches: AttributePatches) -> None:
    cuda = torch.cuda
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        patches.set(cuda, name, _returning(0))
    for name in ("max_memory_reserved", "memory_cached", "max_memory_cached", "utilization"):
        patches.set(cuda, name, _returning(0))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.set(cuda.nvtx, name, _returning(0))
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "ipc_collect"):
        patches.set(cuda, name, _returning(None))
    for name in ("reset_accumulated_memory_stats", "_exchange_device", "_maybe_exchange_device"):
        patches.set(cuda, name, _returning(0))
    for name in ("empty_cache", "reset_peak_memory_stats", "set_per_process_memory_fraction"):
        patches.set(cuda, name, _returning(None))
    patches.set(cuda, "memory_stats", _returning(defaultdict(int)))
    patches.set(cuda, "memory_stats_as_nested_dict", _returning({}))
    patches.set(cuda, "memory_summary", _returning(""))
    patches.set(cuda, "memory_snapshot", _returning([]))
    patches.set(cuda, "mem_get_info", _returning((_MEMORY_BYTES, _MEMORY_BYTES)))
    patches.set(cuda, "Event", _Event)
    patches.set(cuda, "Stream", _Stream)
    patches.set(cuda, "current_stream", _returning(_Stream()))
    patches.set(cuda, "default_stream", _returning(_Stream()))
    patches.set(cuda, "stream", _returning(contextlib.nullcontext()))


def _patch_fake_tensors(patches: AttributePatches) -> None:
    """Let modules and optimizers treat fake tensors as they treat real ones."""
    patches.set(fake_tensor, "init_gpu_context", _returning(None))
    patches.set(nn.Module, "_apply", _apply_in_place)
    patches.set(Tensor, "__deepcopy__", _deep_copy)
    patches.set(FakeTensor, "__reduce_ex__", _reduced)
    patches.extend(optim._foreach_supported_types, FakeTensor)
    patches.extend(_foreach_utils._foreach_supported_types, FakeTensor)
    patches.set(BackwardCFunction, "apply", _backward_on_the_host)
    patch_subclasses(patches)


_run_backward = BackwardCFunction.apply


def _backward_on_the_host(node: BackwardCFunction, *grads: Any) -> Any:
    """A backward function of one's own, in which `torch.tensor` makes its tensor on the host first.

    Fake tensors ask torch for that in the thread that enters them; backward runs in another.
    """
    torch._C._set_only_lift_cpu_tensors(True)
    return _run_backward(node, *grads)


_deep_copy_real = Tensor.__deepcopy__


def _deep_copy(tensor: Tensor, memo: dict[int, object]) -> Tensor:
    """`copy.deepcopy` of a fake tensor: what torch remembers of its values is not copied."""
    if not isinstance(tensor, FakeTensor):
        copied: Tensor = _deep_copy_real(tensor, memo)
        return copied
    if id(tensor) not in memo:
        with torch.no_grad():
            copy = tensor.detach().clone()
        if getattr(tensor, "_is_param", False):
            copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
        elif tensor.is_leaf:
            copy.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            copy.grad = _deep_copy(tensor.grad, memo)
        memo[id(tensor)] = copy
    result: Tensor = memo[id(tensor)]
    return result


def _reduced(tensor: FakeTensor, _protocol: object) -> tuple[object, ...]:
    """How a fake tensor is pickled: as one of its shape; there are no values to keep."""
    layout = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, str(tensor.device))
    is_parameter = bool(getattr(tensor, "_is_param", False))
    return _restored, (*layout, tensor.is_leaf and tensor.requires_grad, is_parameter)


def _restored(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    requires_grad: bool,
    is_parameter: bool,
) -> Tensor:
    """A fake tensor out of a pickle."""
    tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if is_parameter:
        return nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


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


def _patch_reads(patches: AttributePatches, values_of: Callable[[Tensor], Tensor]) -> None:
    """Reading values off the GPU as a list or an array: an array of the right shape."""

    def numpy(tensor: Tensor, *args: object, **kwargs: object) -> object:
        if not isinstance(tensor, FakeTensor):
            return original_numpy(tensor, *args, **kwargs)
        values = values_of(tensor)
        with without_dispatch():
            return original_numpy(values.detach().clone())

    def format_(tensor: Tensor, spec: str) -> str:
        if isinstance(tensor, FakeTensor) and tensor.dim() == 0:
            return format(tensor.item(), spec)  # as of a real tensor: f"expert_{number}"
        text: str = original_format(tensor, spec)
        return text

    original_numpy, original_format = Tensor.numpy, Tensor.__format__
    patches.set(Tensor, "numpy", numpy)
    patches.set(Tensor, "__format__", format_)
    patches.set(Tensor, "tolist", _tolist)
    patches.set(Tensor, "__format__", _format)
    patches.set(Tensor, "record_stream", _returning(None))
    patches.set(Tensor, "pin_memory", lambda tensor, *_, **__: tensor)


def _zeros(tensor: Tensor) -> Tensor:
    with without_dispatch():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")


_format_real = Tensor.__format__


def _format(tensor: Tensor, spec: str) -> str:
    """A number in a line that is printed, `f"{loss:.4f}"`."""
    if isinstance(tensor, FakeTensor) and tensor.dim() == 0:
        return format(tensor.item(), spec)
    text: str = _format_real(tensor, spec)
    return text


def _tolist(tensor: Tensor) -> object:
    if tensor.dim() == 0:
        return tensor.item()
    return [_tolist(part) for part in tensor.unbind(0)]


def patch_imported_libraries(patches: AttributePatches) -> None:
    """Patch libraries that behave differently with fake tensors; call after their import."""
    from outlay.trace.libraries.triton_kernels import patch_triton

    patch_triton(patches)
    patch_bitsandbytes(patches)
    transformers = sys.modules.get("transformers.utils.import_utils")
    if transformers is not None:
        patches.set(transformers, "is_fake_tensor", _returning(False))
