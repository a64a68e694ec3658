"""A CUDA device that is not there: lets fake tensors run forward and backward on a CPU-only torch.

A torch built without CUDA has neither a device guard nor an accelerator, and autograd asks for
both. torch itself swaps in a guard that does nothing once it finds one that counts zero devices;
`install` gives it such a guard, and makes the hooks of the CPU build answer "built". This
depends on torch's binary layout: `python -m outlay.trace.capture.selftest` tries it where an abort
does no harm. A torch built with CUDA has a guard; only the hooks are changed, as it has no GPU.
"""

from __future__ import annotations

import atexit
import ctypes
from pathlib import Path

import torch

from outlay.errors import TraceFailed

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
_declared: list[torch.library.Library] = []


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
    if _declared:
        return
    library = torch.library.Library("aten", "IMPL")
    for name in _CUDA_KERNELS_WITH_COMPOSITION:
        library.impl(name, _never_run, "CUDA")
    _declared.append(library)


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
        vtable = (ctypes.c_void_p * _VTABLE_SLOTS)(*[_returning(0)] * _VTABLE_SLOTS)
        guard = (ctypes.c_void_p * 4)(ctypes.addressof(vtable))
        _kept_alive.extend((vtable, guard))
        registry[_CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()


def _install_hooks(torch_cpu: ctypes.CDLL) -> None:
    """Give the CUDA hooks object a copied table of functions with two answers changed."""
    hooks_of = getattr(torch_cpu, _HOOKS)
    hooks_of.restype = ctypes.c_void_p
    hooks = ctypes.cast(hooks_of(), ctypes.POINTER(ctypes.c_void_p))
    original = hooks[0]
    if original is None:
        raise ValueError("The CUDA hooks of this build have no table of functions.")
    start = original - _VTABLE_HEADER * ctypes.sizeof(ctypes.c_void_p)
    table = (ctypes.c_void_p * _VTABLE_SLOTS)()
    ctypes.memmove(table, start, ctypes.sizeof(table))
    table[_VTABLE_HEADER + _IS_BUILT] = _returning(1)
    table[_VTABLE_HEADER + _HAS_PRIMARY_CONTEXT] = _returning(0)
    _kept_alive.append(table)
    hooks[0] = ctypes.addressof(table) + _VTABLE_HEADER * ctypes.sizeof(ctypes.c_void_p)
    atexit.register(hooks.__setitem__, 0, original)


def _returning(value: int) -> int | None:
    """The address of a C function that takes anything and returns `value`."""
    function = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: value)
    _kept_alive.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value
