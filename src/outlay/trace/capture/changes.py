"""A user's step with changes made to it, as a few lines in their code would make them.

The user's function is called as it is; what it builds is changed where torch lets one in: the
default precision, autocast around forward, the forward of blocks, the optimizers it makes. Works
on fake and on real tensors alike. Everything is undone when the `with` block of `with_changes`
ends. Blocks, which can be recomputed, gathered or placed one by one, are found by `blocks_of`.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module
from torch.optim import Optimizer
from torch.optim import optimizer as optim
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from outlay.errors import TraceFailed
from outlay.trace.capture.cuda_ops import update_8bit
from outlay.trace.capture.wrappers import AttributePatches
from outlay.trace.target import Changes, Recompute, StepBuilder, StepFunction

_AUTOCAST = {"bf16 autocast": torch.bfloat16, "fp16 autocast": torch.float16}
_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)
_aten = torch.ops.aten
_SAVED_OPERATORS = frozenset(
    getattr(_aten, name)
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "convolution",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
)
"""Operators whose results are saved when the rest of a block is computed again."""


@contextlib.contextmanager
def with_changes(build: StepBuilder, changes: Changes) -> Iterator[StepBuilder]:
    """The function with the changes made to the step it returns."""
    patches = AttributePatches()
    try:
        yield partial(_build, build, changes, patches)
    finally:
        patches.restore()


def _build(
    build: StepBuilder, changes: Changes, patches: AttributePatches, batch_size: int
) -> StepFunction:
    if changes.update == "fused":
        _fuse_optimizers(patches)
    if changes.update in ("8-bit", "offloaded") or changes.lora_rank or changes.accumulate > 1:
        _change_optimizers(patches, changes)
    with _default_precision(changes):
        step = build(batch_size)
    built, period = step, getattr(step, "period", 1)
    if changes.recompute is not None:
        _recompute_blocks(patches, changes.recompute)
    dtype = _AUTOCAST.get(changes.arithmetic or "")
    if dtype is not None:
        step = _autocast(step, dtype, patches)
    changed = _with_period(step, period, changes)
    if changes.accumulate == 1 and hasattr(built, "kinds") and hasattr(built, "skip"):
        changed.kinds, changed.skip = built.kinds, built.skip  # type: ignore[attr-defined]
    return changed


def _with_period(step: StepFunction, period: int, changes: Changes) -> StepFunction:
    """The step in the right default precision, with a period that ends with an update."""

    def run() -> object:
        with _default_precision(changes):
            return step()

    run.period = period * changes.accumulate  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def _default_precision(changes: Changes) -> Iterator[None]:
    """bf16 as the precision of whatever is made, where the changes say so."""
    before = torch.get_default_dtype()
    if changes.arithmetic == "bf16":
        torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# Autocast


def _autocast(step: StepFunction, dtype: torch.dtype, patches: AttributePatches) -> StepFunction:
    """The step with its forward under autocast; in fp16 with a gradient scaler."""
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    off = _AutocastOff()

    def outside(function: Callable[..., Any], *, scaled: bool) -> Callable[..., Any]:
        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            torch.clear_autocast_cache()
            if scaled and isinstance(first, Tensor):
                first = scaler.scale(first)
            with off:
                return function(first, *args, **kwargs)

        return call

    patches.set(Tensor, "backward", outside(Tensor.backward, scaled=True))
    patches.set(torch.autograd, "grad", outside(torch.autograd.grad, scaled=False))
    _enable_disabled(patches, dtype, off)

    def before(optimizer: Optimizer, *_: object) -> None:
        if scaler.is_enabled():
            scaler.unscale_(optimizer)
        off.__enter__()

    def after(*_: object) -> None:
        off.__exit__(None, None, None)
        if scaler.is_enabled():
            scaler.update()

    patches.on_restore(optim.register_optimizer_step_pre_hook(before).remove)
    patches.on_restore(optim.register_optimizer_step_post_hook(after).remove)

    def run() -> object:
        with torch.autocast("cuda", dtype):
            return step()

    return run


class _AutocastOff:
    """Autocast turned off for a while, as deep as it is entered."""

    def __init__(self) -> None:
        self._contexts: list[Any] = []

    @property
    def is_entered(self) -> bool:
        """Whether it is off now."""
        return bool(self._contexts)

    def __enter__(self) -> None:
        context = torch.autocast("cuda", enabled=False)
        self._contexts.append(context)
        context.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._contexts[-1].__exit__(None, None, None)
        self._contexts.pop()


def _enable_disabled(patches: AttributePatches, dtype: torch.dtype, off: _AutocastOff) -> None:
    """Enable autocast that the user's loop has disabled: that is the switch to turn on.

    Only around modules: one within a module's forward keeps a part of it in fp32 on purpose.
    """
    running = 0

    def before(*_: object) -> None:
        nonlocal running
        running += 1

    def after(*_: object) -> None:
        nonlocal running
        running -= 1

    patches.on_restore(module.register_module_forward_pre_hook(before).remove)
    patches.on_restore(module.register_module_forward_hook(after, always_call=True).remove)
    kind = torch.amp.autocast_mode.autocast
    enter = kind.__enter__

    def entered(context: Any) -> Any:
        is_switch = not context._enabled and context.device == "cuda"
        if is_switch and not running and not off.is_entered:
            context._enabled, context.fast_dtype = True, dtype
        return enter(context)

    patches.set(kind, "__enter__", entered)


# Recomputing


def _recompute_blocks(patches: AttributePatches, how: Recompute) -> None:
    """Let the blocks of every living model keep their input only, or their products too."""
    blocks = [block for model in living_models() for block in blocks_of(model)]
    if not blocks:
        raise TraceFailed(
            "No blocks to recompute were found.",
            why="The model has no list of modules of one class.",
            fix="Wrap a part of its forward in torch.utils.checkpoint.checkpoint yourself.",
        )
    options: dict[str, Any] = {"use_reentrant": False}
    if how == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    for block in blocks:
        patches.set(block, "forward", _recomputed(block, block.forward, options))


def _recomputed(
    block: nn.Module, forward: Callable[..., object], options: dict[str, Any]
) -> Callable[..., object]:
    def run(*args: object, **kwargs: object) -> object:
        if not (block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, **options, **kwargs)

    return run


def _policy(_context: object, operator: Any, *_: object, **__: object) -> CheckpointPolicy:
    packet = getattr(operator, "overloadpacket", None)
    return (
        CheckpointPolicy.MUST_SAVE
        if packet in _SAVED_OPERATORS
        else CheckpointPolicy.PREFER_RECOMPUTE
    )


# Optimizers


def _fuse_optimizers(patches: AttributePatches) -> None:
    for kind in _FUSED:
        patches.set(kind, "__init__", _fused(kind.__init__))


def _fused(initialise: Callable[..., None]) -> Callable[..., None]:
    def made(optimizer: Optimizer, *args: object, **kwargs: Any) -> None:
        kwargs.pop("foreach", None)
        initialise(optimizer, *args, **{**kwargs, "fused": True})

    return made


def _change_optimizers(patches: AttributePatches, changes: Changes) -> None:
    """Change every optimizer as it is made: what it trains, and how and when it updates."""
    initialise = Optimizer.__init__

    def made(optimizer: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        if changes.lora_rank:
            params = _adapters(_flat(params), changes.lora_rank, patches)
        initialise(optimizer, params, defaults)
        if changes.update == "8-bit":
            optimizer.step = types.MethodType(optimizer.profile_hook_step(_update_8bit), optimizer)
        elif changes.update == "offloaded":
            optimizer.step = types.MethodType(
                optimizer.profile_hook_step(_update_on_host), optimizer
            )
        if changes.accumulate > 1:
            _accumulate_gradients(optimizer, changes.accumulate)

    patches.set(Optimizer, "__init__", made)
    if changes.accumulate > 1:
        patches.set(nn.Module, "zero_grad", lambda *_, **__: None)


def _flat(params: Any) -> list[Tensor]:
    """All parameters given to an optimizer, out of groups, names or plain."""
    flat: list[Tensor] = []
    for item in params:
        if isinstance(item, dict):
            flat += _flat(item["params"])
        else:
            flat.append(item[1] if isinstance(item, tuple) else item)
    return flat


def _accumulate_gradients(optimizer: Optimizer, accumulate: int) -> None:
    """Let an optimizer update, and clear its gradients, every so many calls."""
    update, clear = optimizer.step, optimizer.zero_grad
    calls = 0

    def step(_self: Optimizer, *args: Any, **kwargs: Any) -> object:
        nonlocal calls
        calls += 1
        if calls % accumulate:
            return None
        result = update(*args, **kwargs)
        clear(set_to_none=True)
        return result

    optimizer.step = types.MethodType(step, optimizer)
    optimizer.zero_grad = types.MethodType(lambda *_, **__: None, optimizer)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _update_8bit(optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """An update with 8-bit state: small parameters in 32 bits, as the libraries do."""
    loss = closure() if closure is not None else None
    moments = 1 if isinstance(optimizer, torch.optim.SGD) else 2
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                update_8bit(parameter, optimizer.state[parameter], moments)
    return loss


@torch.no_grad()  # type: ignore[untyped-decorator]
def _update_on_host(_optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """An update on the host: nothing of it happens on the GPU but copies, counted apart."""
    return closure() if closure is not None else None


# LoRA


def _adapters(params: Sequence[Tensor], rank: int, patches: AttributePatches) -> list[nn.Parameter]:
    """Freeze the models that own the parameters; train a low-rank pair beside each linear."""
    ids = {id(parameter) for parameter in params}
    models = [m for m in living_models() if any(id(p) in ids for p in m.parameters())]
    linears = [
        linear
        for model in models
        for block in blocks_of(model)
        for linear in block.modules()
        if _is_linear(linear)
    ]
    if not linears:
        raise TraceFailed(
            "No linear layers in blocks were found to put adapters beside.",
            why="LoRA trains small matrices beside the linear layers of a transformer.",
            fix="Leave LoRA out.",
        )
    for model in models:
        model.requires_grad_(False)
    return [adapter for linear in linears for adapter in _adapt(linear, rank, patches)]


def _is_linear(module: nn.Module) -> bool:
    """nn.Linear, or what else holds one matrix and a bias at most (transformers' Conv1D)."""
    if isinstance(module, nn.Linear):
        return True
    return type(module).__name__ == "Conv1D" and getattr(module, "weight", None) is not None


def _adapt(linear: nn.Module, rank: int, patches: AttributePatches) -> Iterable[nn.Parameter]:
    weight = linear.weight
    outs, ins = weight.shape if isinstance(linear, nn.Linear) else weight.shape[::-1]
    down = nn.Parameter(torch.zeros(rank, ins, dtype=weight.dtype, device=weight.device))
    up = nn.Parameter(torch.zeros(outs, rank, dtype=weight.dtype, device=weight.device))
    forward = linear.forward

    def run(x: Tensor, *args: object, **kwargs: object) -> Tensor:
        adapted = nn.functional.linear(nn.functional.linear(x, down), up)
        result: Tensor = forward(x, *args, **kwargs) + adapted * 2.0
        return result

    patches.set(linear, "forward", run)
    linear.register_parameter("outlay_down", down)
    linear.register_parameter("outlay_up", up)
    return down, up


# Blocks. A block is a module with modules of its own and parameters, in a list or sequence of a
# model, of a class that the model has at least twice: an encoder layer, a bottleneck, a stage of a
# U-Net.


_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def living_models() -> list[nn.Module]:
    """Modules on the GPU that are no part of another one, in the order they were made."""
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    parts = {id(child) for module in modules for child in module.children()}
    return [module for module in modules if id(module) not in parts and _is_on_gpu(module)]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The outermost blocks of a model, in order."""
    candidates = list(_in_lists(model))
    counts = Counter(type(block) for block in candidates)
    return [block for block in candidates if counts[type(block)] > 1]


def _in_lists(module: nn.Module) -> Iterator[nn.Module]:
    listed = isinstance(module, _LISTS)
    for child in module.children():
        if listed and not isinstance(child, _LISTS) and _is_composed(child):
            yield child
        else:
            yield from _in_lists(child)


def _is_composed(module: nn.Module) -> bool:
    """Whether it has modules and parameters of its own."""
    return next(module.children(), None) is not None and any(True for _ in module.parameters())


def _is_on_gpu(module: nn.Module) -> bool:
    return any(parameter.device.type == "cuda" for parameter in module.parameters())


def parameters_of(module: nn.Module) -> int:
    """How many parameters a module has."""
    return sum(parameter.numel() for parameter in module.parameters())


def first_tensor(value: object) -> Tensor | None:
    """The first tensor in what a module returns."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        return _first(value.values())
    if isinstance(value, (tuple, list)):
        return _first(value)
    return None


def _first(values: Iterable[object]) -> Tensor | None:
    return next((t for t in map(first_tensor, values) if t is not None), None)
