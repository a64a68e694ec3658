"""NVIDIA's apex: fused norms, optimizers that update all parameters at once, and mixed precision.

Fused optimizers keep their states in fp32 and update in one kernel over many tensors. `apex.amp`
level O1 is torch's autocast to fp16; O2 trains a model of 16 bits whose optimizer has a copy of
every parameter in fp32, from which the model is copied after each step.

Source: NVIDIA/apex (apex/normalization, apex/optimizers, apex/amp, apex/contrib/xentropy).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from outlay.trace import traffic
from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.libraries.row_norms import NormLayer, RowNorm, row_norm

# Norms


class _FusedNorm(NormLayer):
    is_rms = False
    mixed = False
    """Whether the result has the weight's type, and autocast is left aside."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        **options: Any,
    ) -> None:
        affine = elementwise_affine
        options = {name: options[name] for name in ("device", "dtype") if name in options}
        super().__init__(
            normalized_shape, weight=affine, bias=affine and not self.is_rms, **options
        )
        self.eps, self.memory_efficient = eps, memory_efficient

    def forward(self, x: Tensor) -> Any:
        """The rows of `x`, normalised."""
        return _norm(
            x,
            self.weight,
            self.bias,
            is_rms=self.is_rms,
            mixed=self.mixed,
            dims=len(self.normalized_shape),
            keeps_output=self.memory_efficient,
        )


def _norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    is_rms: bool,
    mixed: bool = False,
    dims: int = 1,
    keeps_output: bool = False,
) -> Any:
    if torch.is_autocast_enabled("cuda") and not mixed:
        dtype = torch.get_autocast_dtype("cuda")
        x, weight, bias = (None if t is None else t.to(dtype) for t in (x, weight, bias))
    norm = RowNorm(
        library="apex",
        is_rms=is_rms,
        dims=dims,
        keeps_output=keeps_output,
        out_dtype=weight.dtype if mixed and weight is not None else None,
    )
    return row_norm(norm, x, weight, bias)


class _FusedRMSNorm(_FusedNorm):
    is_rms = True


class _MixedFusedLayerNorm(_FusedNorm):
    mixed = True


class _MixedFusedRMSNorm(_FusedRMSNorm):
    mixed = True


def _dims(shape: int | Sequence[int]) -> int:
    return 1 if isinstance(shape, int) else len(shape)


def _layer_norm_affine(
    x: Tensor, weight: Tensor, bias: Tensor, normalized_shape: Any, *_: object, **__: object
) -> Any:
    return _norm(x, weight, bias, is_rms=False, dims=_dims(normalized_shape))


def _rms_norm_affine(
    x: Tensor, weight: Tensor, normalized_shape: Any, *_: object, **__: object
) -> Any:
    return _norm(x, weight, None, is_rms=True, dims=_dims(normalized_shape))


def _layer_norm(x: Tensor, normalized_shape: Any, *_: object, **__: object) -> Any:
    return _norm(x, None, None, is_rms=False, dims=_dims(normalized_shape))


def _rms_norm(x: Tensor, normalized_shape: Any, *_: object, **__: object) -> Any:
    return _norm(x, None, None, is_rms=True, dims=_dims(normalized_shape))


# Optimizers


class _FusedOptimizer(Optimizer):  # type: ignore[misc]
    """All parameters of a type in one update, with states in fp32."""

    kernel = "apex.multi_tensor_adam"
    states: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: Any, lr: float = 1e-3, *_: object, **options: Any) -> None:
        self.set_grad_none = options.get("set_grad_none", True)
        self.options = options
        super().__init__(params, {"lr": lr, **options})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or fill them with zeros where that was asked for."""
        super().zero_grad(set_to_none=set_to_none and self.set_grad_none)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, **_: object) -> Any:
        """Update every parameter that has a gradient."""
        loss = closure() if closure is not None else None
        parameters = [
            p for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            chosen = [p for p in parameters if p.dtype == dtype]
            self._update(chosen, [self._states_of(p) for p in chosen])
        return loss

    def _states_of(self, parameter: Tensor) -> list[Tensor]:
        state = self.state[parameter]
        for name in self.states:
            if name not in state:
                state[name] = torch.zeros_like(parameter, dtype=torch.float32)
        return [state[name] for name in self.states]

    def _update(self, parameters: list[Tensor], states: list[list[Tensor]]) -> None:
        kept = [parameter.detach() for parameter in parameters] + _all(states)
        update(self.kernel, [_gradient(parameter) for parameter in parameters], kept)


def _all(states: Iterable[list[Tensor]]) -> list[Tensor]:
    return list(itertools.chain.from_iterable(states))


def _gradient(parameter: Tensor) -> Tensor:
    gradient: Tensor = parameter.grad
    return gradient


def update(kernel: str, read: list[Tensor], changed: list[Tensor]) -> None:
    """One kernel over many tensors: some are read, the others read and written."""
    launch(
        kernel,
        [*read, *changed],
        changed,
        kind="optimizer",
        launches=traffic.foreach_launches(read or changed, changed),
    )


class _FusedSGD(_FusedOptimizer):
    kernel = "apex.multi_tensor_sgd"

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, *_: object, **options: Any
    ) -> None:
        self.states = ("momentum_buffer",) if momentum else ()
        super().__init__(params, lr, momentum=momentum, **options)


class _FusedAdagrad(_FusedOptimizer):
    kernel = "apex.multi_tensor_adagrad"
    states = ("sum",)


class _FusedLAMB(_FusedOptimizer):
    """Norms of gradients, the update in the gradients' place, norms of both, and the step."""

    kernel = "apex.multi_tensor_lamb"

    def _update(self, parameters: list[Tensor], states: list[list[Tensor]]) -> None:
        gradients = [_gradient(parameter) for parameter in parameters]
        weights = [parameter.detach() for parameter in parameters]
        norms = gradients[0].new_empty((1,), dtype=torch.float32)
        launch("apex.multi_tensor_l2norm", gradients, [norms], kind="optimizer")
        update("apex.multi_tensor_lamb_stage1", weights, gradients + _all(states))
        launch(
            "apex.multi_tensor_l2norm", weights + gradients, [norms], kind="optimizer", launches=2
        )
        update("apex.multi_tensor_lamb_stage2", gradients, weights)


class _FusedNovoGrad(_FusedOptimizer):
    """One second moment a tensor."""

    kernel = "apex.multi_tensor_novograd"
    states = ("exp_avg",)


class _LARC:
    """Rates of layers around another optimizer: one norm of weights and gradients each."""

    def __init__(self, optimizer: Optimizer, *_: object, **__: object) -> None:
        self.optim = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optim, name)

    def step(self) -> Any:
        """Scale the gradients of every layer, then let the optimizer step."""
        with torch.no_grad():
            for group in self.optim.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        rate = torch.norm(parameter.data) / torch.norm(parameter.grad.data)
                        parameter.grad.data *= rate
        return self.optim.step()


# Mixed precision


_NORM_LAYERS = (nn.modules.batchnorm._BatchNorm,)


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    *_: object,
    **__: object,
) -> Any:
    """Models and optimizers as a level of apex.amp has them."""
    del cast_model_type, patch_torch_functions
    if enabled and opt_level == "O1":
        _each(models, _with_autocast)
    elif enabled and opt_level in ("O2", "O3"):
        kept = (
            opt_level == "O2" if keep_batchnorm_fp32 is None else str(keep_batchnorm_fp32) == "True"
        )
        _each(models, lambda model: _halved(model, keeps_norms=kept))
        if opt_level == "O2" and master_weights is not False:
            _each(optimizers, _with_masters)
    return models if optimizers is None else (models, optimizers)


def _each(values: Any, function: Callable[[Any], object]) -> None:
    for value in values if isinstance(values, list | tuple) else [values]:
        if value is not None:
            function(value)


def _with_autocast(model: nn.Module) -> None:
    forward = model.forward

    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", torch.float16):
            return forward(*args, **kwargs)

    model.forward = cast


def _halved(model: nn.Module, *, keeps_norms: bool) -> None:
    for module in model.modules():
        if keeps_norms and isinstance(module, _NORM_LAYERS):
            continue
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.half() if _is_fp32(parameter) else parameter.data
        for name, buffer in module.named_buffers(recurse=False):
            if buffer is not None and _is_fp32(buffer):
                setattr(module, name, buffer.half())
    forward = model.forward

    def cast(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda value: _to(value, torch.float16), (args, kwargs))
        return tree_map(lambda value: _to(value, torch.float32), forward(*args, **kwargs))

    model.forward = cast


def _is_fp32(tensor: Tensor) -> bool:
    return bool(tensor.dtype == torch.float32)


def _to(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


class _Masters:
    """The copies in fp32 that an optimizer updates in the place of parameters of 16 bits."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.models: list[Tensor] = []
        self.copies: list[Tensor] = []
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                if parameter.dtype == torch.float16:
                    copy = nn.Parameter(parameter.detach().clone().float())
                    group["params"][index] = copy
                    self.models.append(parameter)
                    self.copies.append(copy)

    def take_gradients(self) -> None:
        """Copies of the gradients, without their scale."""
        for model, copy in zip(self.models, self.copies, strict=True):
            if model.grad is not None and copy.grad is None:
                copy.grad = torch.empty_like(copy)
        pairs = [
            (m.grad, c.grad)
            for m, c in zip(self.models, self.copies, strict=True)
            if m.grad is not None
        ]
        _copy([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def give_weights(self) -> None:
        """Copies of the weights into the model."""
        _copy([c.detach() for c in self.copies], [m.detach() for m in self.models])


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    launches = traffic.foreach_launches(sources, targets)
    launch("apex.multi_tensor_scale", sources, targets, kind="optimizer", launches=launches)


def _with_masters(optimizer: Optimizer) -> None:
    masters = _Masters(optimizer)
    optimizer._outlay_masters = masters
    step, zero_grad = optimizer.step, optimizer.zero_grad

    def stepped(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        masters.give_weights()
        return result

    def zeroed(*args: Any, **kwargs: Any) -> None:
        zero_grad(*args, **kwargs)
        for model in masters.models:
            model.grad = None

    optimizer.step, optimizer.zero_grad = stepped, zeroed


@contextlib.contextmanager
def scale_loss(loss: Tensor, optimizers: Any, *_: object, **__: object) -> Iterator[Tensor]:
    """The loss times its scale; the gradients are divided by it at the end."""
    yield loss.float() * 65536.0
    for optimizer in optimizers if isinstance(optimizers, list | tuple) else [optimizers]:
        masters = getattr(optimizer, "_outlay_masters", None)
        if masters is not None:
            masters.take_gradients()
        own = [p.grad for p in master_params(optimizer) if p.grad is not None]
        copied = {id(copy.grad) for copy in masters.copies} if masters is not None else set()
        rest = [gradient for gradient in own if id(gradient) not in copied]
        if rest:
            _copy(rest, rest)


def master_params(optimizer: Optimizer) -> Iterator[Tensor]:
    """What the optimizer updates."""
    return (p for group in optimizer.param_groups for p in group["params"])


def _decorator(function: Any, *_: object) -> Any:
    """`half_function` and the like: what is computed stays the same."""
    return function


# Distributed training


class _DistributedDataParallel(nn.Module):  # type: ignore[misc]
    """Only the module: the step is that of one GPU."""

    def __init__(self, module: nn.Module, *_: object, **__: object) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        return self.module(*args, **kwargs)


class _SyncBatchNorm(nn.modules.batchnorm._BatchNorm):  # type: ignore[misc]
    """A batch norm over one GPU's samples."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *_: object,
        **__: object,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, _input: Tensor) -> None:
        """Any number of dimensions."""


def _same_module(module: nn.Module, *_: object, **__: object) -> nn.Module:
    """`convert_syncbn_model`: batch norms over one GPU's samples stay what they are."""
    return module


# Losses and dense layers


class _SoftmaxCrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, *_: object) -> Tensor:
        rows = logits.shape[0]
        losses, sums = (logits.new_empty((rows,), dtype=torch.float32) for _ in range(2))
        launch("apex.xentropy", [logits, labels], [losses, sums], kind="softmax")
        ctx.save_for_backward(logits, sums, labels)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, sums, labels = ctx.saved_tensors
        result = torch.empty_like(logits)
        launch("apex.xentropy_backward", [grad, logits, sums, labels], [result], kind="softmax")
        return result, *(None for _ in range(4))


class _SoftmaxCrossEntropyLoss:
    """Called as a function of autograd is."""

    @staticmethod
    def apply(
        logits: Tensor,
        labels: Tensor,
        smoothing: float = 0.0,
        padding_idx: int = 0,
        half_to_float: bool = False,
    ) -> Tensor:
        """The loss of each row."""
        result: Tensor = _SoftmaxCrossEntropy.apply(
            logits, labels, smoothing, padding_idx, half_to_float
        )
        return result


class _MLP(nn.Module):  # type: ignore[misc]
    """Products with an activation after each but the last."""

    def __init__(
        self, mlp_sizes: Sequence[int], bias: bool = True, activation: str = "relu"
    ) -> None:
        super().__init__()
        pairs = itertools.pairwise(mlp_sizes)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairs)
        activations = {"relu": functional.relu, "sigmoid": torch.sigmoid}
        self.activation = activations.get(activation, lambda x: x)

    def forward(self, x: Tensor) -> Tensor:
        """The last product, activated as all of them are."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


class _FusedDenseGeluDense(nn.Module):  # type: ignore[misc]
    def __init__(
        self, in_features: int, intermediate_features: int, out_features: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, intermediate_features, bias=bias)
        self.second = nn.Linear(intermediate_features, out_features, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Two products with a GELU between them."""
        result: Tensor = self.second(functional.gelu(self.first(x)))
        return result


def _clip_grad_norm(
    parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2.0, *_: object, **__: object
) -> Tensor:
    total: Tensor = nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, foreach=True)
    return total


_NORMS: Mapping[str, object] = {
    "FusedLayerNorm": _FusedNorm,
    "FusedRMSNorm": _FusedRMSNorm,
    "MixedFusedLayerNorm": _MixedFusedLayerNorm,
    "MixedFusedRMSNorm": _MixedFusedRMSNorm,
}
_OPTIMIZERS: Mapping[str, object] = {
    "FusedAdam": _FusedOptimizer,
    "FusedSGD": _FusedSGD,
    "FusedLAMB": _FusedLAMB,
    "FusedMixedPrecisionLamb": _FusedLAMB,
    "FusedNovoGrad": _FusedNovoGrad,
    "FusedAdagrad": _FusedAdagrad,
}
_AMP: Mapping[str, object] = {
    "initialize": initialize,
    "scale_loss": scale_loss,
    "master_params": master_params,
    "state_dict": dict,
    "load_state_dict": lambda *_: None,
    "disable_casts": contextlib.nullcontext,
    "half_function": _decorator,
    "float_function": _decorator,
    "promote_function": _decorator,
    "register_half_function": lambda *_: None,
    "register_float_function": lambda *_: None,
    "register_promote_function": lambda *_: None,
}
_PARALLEL: Mapping[str, object] = {
    "DistributedDataParallel": _DistributedDataParallel,
    "SyncBatchNorm": _SyncBatchNorm,
    "convert_syncbn_model": _same_module,
    "LARC": _LARC,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "apex": {"__version__": "0.1"},
    "apex.normalization": _NORMS,
    "apex.normalization.fused_layer_norm": {
        **_NORMS,
        "fused_layer_norm": _layer_norm,
        "fused_layer_norm_affine": _layer_norm_affine,
        "mixed_dtype_fused_layer_norm_affine": _layer_norm_affine,
        "fused_rms_norm": _rms_norm,
        "fused_rms_norm_affine": _rms_norm_affine,
        "mixed_dtype_fused_rms_norm_affine": _rms_norm_affine,
    },
    "apex.contrib.layer_norm": {"FastLayerNorm": _FusedNorm},
    "apex.contrib.layer_norm.layer_norm": {"FastLayerNorm": _FusedNorm},
    "apex.optimizers": _OPTIMIZERS,
    **{
        f"apex.optimizers.{module}": {name: _OPTIMIZERS[name]}
        for module, name in (
            ("fused_adam", "FusedAdam"),
            ("fused_sgd", "FusedSGD"),
            ("fused_lamb", "FusedLAMB"),
        )
    },
    "apex.amp": _AMP,
    "apex.parallel": _PARALLEL,
    "apex.parallel.LARC": {"LARC": _LARC},
    "apex.contrib.xentropy": {"SoftmaxCrossEntropyLoss": _SoftmaxCrossEntropyLoss},
    "apex.contrib.clip_grad": {"clip_grad_norm_": _clip_grad_norm},
    "apex.mlp": {"MLP": _MLP},
    "apex.fused_dense": {"FusedDense": nn.Linear, "FusedDenseGeluDense": _FusedDenseGeluDense},
}
REPLACED_CLASSES = tuple(
    f"{module}.{name}"
    for module, names in STAND_INS.items()
    for name, value in names.items()
    if isinstance(value, type)
)
"""All of its classes: they call compiled functions themselves."""
