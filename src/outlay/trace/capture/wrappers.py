"""What a trace takes out of a step's way: compilers, graphs, several GPUs, loader processes.

Each is replaced by what it does to one step on one GPU in eager mode, with a note that says so;
what cannot be replaced raises `NotTraceable`. User code may bind such a name when it is imported:
`patch_decorators` can be called before that, and classes are changed rather than replaced. All
replacements are `AttributePatches`, which can be undone.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import DataLoader

from outlay.trace.profile import CompileMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.utils.hooks import RemovableHandle


# Attributes and hooks set for a while


class AttributePatches:
    """Attributes set for a while, each put back to what it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace `owner.name` until `restore`; nothing happens where there is no such name."""
        if not hasattr(owner, name):
            return
        original = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))

    def add(self, owner: object, name: str, value: object) -> None:
        """Give `owner` an attribute it does not have, until `restore`."""
        if not hasattr(owner, name):
            setattr(owner, name, value)
            self._undo.append(lambda: delattr(owner, name))

    def extend(self, names: list[type], value: type) -> None:
        """Append to a list until `restore`."""
        names.append(value)
        self._undo.append(lambda: names.remove(value))

    def on_restore(self, undo: Callable[[], object]) -> None:
        """Call this at `restore`, too."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Undo everything, last first."""
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def remove_at_end(hooks: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove hooks of torch when the `with` block ends."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# Code that is compiled


_MODES: dict[str | None, CompileMode] = {
    None: "default",
    "default": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "default",
}


@dataclass(slots=True)
class CompiledCode:
    """What the user's code gives to torch.compile, in this process."""

    mode: CompileMode | None = None
    """Of the first that was compiled; None: nothing was."""
    depth: int = 0
    """How many compiled functions deep the code is that runs."""
    calls: int = 0
    """Of compiled functions from code that is not."""

    def compile(self, function: Any, options: dict[str, Any]) -> tuple[Any, str]:
        """The function or module as it was, marked where Inductor is asked, and a note."""
        is_module = isinstance(function, nn.Module)
        name = type(function).__name__ if is_module else getattr(function, "__name__", "a function")
        left_out = f"torch.compile was left out of the trace, which ran {name} as it is written"
        backend = options.get("backend", "inductor")
        if options.get("disable") or backend != "inductor":
            return function, f"{left_out}; its times are those of eager code."
        mode = _MODES.get(options.get("mode"), "default")
        if (options.get("options") or {}).get("triton.cudagraphs"):
            mode = "reduce-overhead"
        self.mode = self.mode or mode
        note = f"{left_out} (mode {mode})."
        if is_module:
            self._mark_module(function)
            return function, note
        return (self._marked(function) if callable(function) else function), note

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what is compiled meanwhile, by the step that is traced."""
        before = self.mode, self.depth, self.calls
        try:
            yield
        finally:
            self.mode, self.depth, self.calls = before

    def enter(self) -> None:
        """Say that a compiled function begins."""
        self.calls += self.depth == 0
        self.depth += 1

    def exit(self) -> None:
        """Say that it has ended."""
        self.depth -= 1

    def _mark_module(self, module: nn.Module) -> None:
        if _enter_module not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_enter_module, prepend=True)
            module.register_forward_hook(_exit_module, always_call=True)

    def _marked(self, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            self.enter()
            try:
                return function(*args, **kwargs)
            finally:
                self.exit()

        return call


compiled_code = CompiledCode()
"""Of this process: torch.compile is called while the user's file is imported, and later."""


def _enter_module(*_: object) -> None:
    compiled_code.enter()


def _exit_module(*_: object) -> None:
    compiled_code.exit()


# What wraps a step


class NotTraceable(Exception):
    """The user's code does something that has no meaning without a GPU."""

    def __init__(self, what: str, *, fix: str) -> None:
        self.fix = fix
        super().__init__(what)


_GRAPHED = "CUDA graphs were left out: the step is counted as the host issues it."
_DISTRIBUTED = "torch.distributed was left out: the step is that of one GPU, with all of the model."
_FLEX = (
    "flex_attention is counted as fused attention over all blocks: what a block mask saves and "
    "what a score function costs is left out."
)


def patch_wrappers(patches: AttributePatches, notes: set[str]) -> None:
    """Replace what wraps a step; `notes` gets what was left out once it is used."""
    patch_decorators(patches, notes)
    _patch_graphs(patches, notes)
    _patch_loader(patches)
    _patch_saving(patches, notes)
    if dist.is_available():
        _patch_processes(patches, notes)


def patch_decorators(patches: AttributePatches, notes: set[str]) -> None:
    """Replace what code may already use, or bind a name to, while it is imported."""
    _patch_compilers(patches, notes)
    if dist.is_available():
        _patch_parallel_modules(patches, notes)
    _patch_flex_attention(patches, notes)


def _patch_compilers(patches: AttributePatches, notes: set[str]) -> None:
    def compile_(model: object = None, **options: object) -> object:
        if model is None:
            return lambda function: compile_(function, **options)
        compiled, note = compiled_code.compile(model, options)
        notes.add(note)
        return compiled

    def compile_in_place(module: nn.Module, **options: object) -> None:
        compile_(module, **options)

    patches.set(torch, "compile", compile_)
    patches.set(nn.Module, "compile", compile_in_place)


class _Graph:
    """A CUDA graph: what its replay runs is known to the GPU alone."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotTraceable(
            "A captured CUDA graph cannot be traced: its replay shows no operations.",
            fix="Let the step run the same code without the graph when it is traced: "
            "it does the same work.",
        )


def _patch_graphs(patches: AttributePatches, notes: set[str]) -> None:
    def graphed(callables: object, *_: object, **__: object) -> object:
        notes.add(_GRAPHED)
        return callables

    patches.set(torch.cuda, "make_graphed_callables", graphed)
    patches.set(torch.cuda, "CUDAGraph", _Graph)


def _patch_loader(patches: AttributePatches) -> None:
    initialise = DataLoader.__init__

    def without_workers(loader: DataLoader, *args: object, **kwargs: object) -> None:
        kwargs.update(num_workers=0, pin_memory=False, persistent_workers=False)
        kwargs.update(prefetch_factor=None, multiprocessing_context=None, timeout=0)
        # Positions after the dataset: batch_size, shuffle, sampler, batch_sampler, num_workers.
        initialise(loader, *args[:5], **kwargs)

    patches.set(DataLoader, "__init__", without_workers)


def _patch_saving(patches: AttributePatches, notes: set[str]) -> None:
    def save(*_: object, **__: object) -> None:
        notes.add("torch.save was left out: a trace has no values to save.")

    patches.set(torch, "save", save)


# Several GPUs


def _patch_processes(patches: AttributePatches, notes: set[str]) -> None:
    """One process that is all of them."""
    started: list[bool] = []

    def start(*_: object, **__: object) -> None:
        notes.add(_DISTRIBUTED)
        started.append(True)

    def nothing(*_: object, **__: object) -> None:
        """What all_reduce, broadcast and barrier do among one."""

    def first_of(outputs: list[Any], value: object, *_: object, **__: object) -> None:
        if outputs:
            outputs[0] = value

    def gather(outputs: list[Tensor], tensor: Tensor, *_: object, **__: object) -> None:
        if outputs:
            outputs[0].copy_(tensor)

    def copy_into(output: Tensor, tensor: Tensor, *_: object, **__: object) -> None:
        output.copy_(tensor)

    patches.set(dist, "init_process_group", start)
    patches.set(dist, "is_initialized", lambda: bool(started))
    patches.set(dist, "get_rank", lambda *_: 0)
    patches.set(dist, "get_world_size", lambda *_: 1)
    patches.set(dist, "get_backend", lambda *_: "nccl")
    patches.set(dist, "is_nccl_available", lambda: True)
    for name in ("destroy_process_group", "barrier", "all_reduce", "broadcast", "reduce"):
        patches.set(dist, name, nothing)
    for name in ("new_group", "broadcast_object_list", "monitored_barrier"):
        patches.set(dist, name, nothing)
    patches.set(dist, "all_gather", gather)
    patches.set(dist, "all_gather_object", first_of)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        patches.set(dist, name, copy_into)


def _patch_parallel_modules(patches: AttributePatches, notes: set[str]) -> None:
    """Modules that spread a model or its gradients: they only call the module they wrap."""
    from torch.distributed import fsdp

    for kind, name in (
        (nn.parallel.DistributedDataParallel, "module"),
        (nn.DataParallel, "module"),
        (fsdp.FullyShardedDataParallel, "_fsdp_wrapped_module"),
    ):
        patches.set(kind, "__init__", _init_storing(name, notes))
        patches.set(kind, "forward", _forward_calling(name))
        patches.set(kind, "no_sync", lambda _self: contextlib.nullcontext())
    for method in ("named_parameters", "named_buffers", "apply", "_apply", "train"):
        patches.set(fsdp.FullyShardedDataParallel, method, getattr(nn.Module, method))
    patches.set(fsdp.FullyShardedDataParallel, "clip_grad_norm_", _clip_grad_norm)

    def fully_shard(module: nn.Module, *_: object, **__: object) -> nn.Module:
        notes.add(_DISTRIBUTED)
        return module

    patches.set(fsdp, "fully_shard", fully_shard)


def _init_storing(name: str, notes: set[str]) -> Callable[..., None]:
    def initialise(wrapper: nn.Module, module: nn.Module, *_: object, **__: object) -> None:
        notes.add(_DISTRIBUTED)
        nn.Module.__init__(wrapper)
        setattr(wrapper, name, module)

    return initialise


def _forward_calling(name: str) -> Callable[..., object]:
    def forward(wrapper: nn.Module, *args: object, **kwargs: object) -> object:
        return wrapper._modules[name](*args, **kwargs)

    return forward


def _clip_grad_norm(module: nn.Module, max_norm: float, norm_type: float = 2.0) -> Tensor:
    total: Tensor = nn.utils.clip_grad_norm_(module.parameters(), max_norm, norm_type)
    return total


# flex_attention


def _patch_flex_attention(patches: AttributePatches, notes: set[str]) -> None:
    try:
        from torch.nn.attention import flex_attention as module
    except ImportError:  # before torch 2.5
        return

    def attend(
        query: Tensor, key: Tensor, value: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor, Tensor]:
        notes.add(_FLEX)
        scale = kwargs.get("scale", args[2] if len(args) > 2 else None)
        queries_per_key = query.shape[1] // key.shape[1]
        if queries_per_key > 1:
            key, value = (tensor.repeat_interleave(queries_per_key, 1) for tensor in (key, value))
        out = nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        return out, sums, sums

    patches.set(module, "flex_attention_hop", attend)
