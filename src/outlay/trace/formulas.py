"""Kind, FLOPs and moved bytes of every operator: one short formula each, on shapes and dtypes.

A multiply-add is 2 FLOPs. Only matrix products, convolutions, attention and recurrent layers have
FLOPs; everything else is bound by the bytes it moves and counts 0, as in torch.utils.flop_counter.
Moved bytes are those of the tensors read plus those written, each once, unless a formula says
otherwise: what caches save and what layout conversions add is left to the prediction.

Operators are named as torch names them, without the overload: `aten.mm`, `my_library.my_op`.
Nothing here needs torch: an argument is a tensor if it has a `shape` and a `dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from outlay.errors import InputError
from outlay.trace.trace import Kind

Amount = Callable[..., float]
"""A formula: called with the operator's arguments and `out=` its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """How one operator is counted; `moved_bytes=None` means every tensor read or written once."""

    kind: Kind
    flops: Amount | None = None
    moved_bytes: Amount | None = None
    launches: Amount | float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one call of an operator takes; `known` is false where no formula was found."""

    kind: Kind
    flops: float
    moved_bytes: float
    launches: float
    known: bool = True


_FORMULAS: dict[str, Formula] = {}


def register_op(
    name: str,
    *,
    flops: Amount,
    moved_bytes: Amount | None = None,
    kind: Kind = "other",
) -> None:
    """Teach outlay an operator of your own, or replace a formula.

    `name` is `library::operator` (or `library.operator`). The callables receive the operator's
    own arguments (tensors have `.shape` and `.dtype`) and `out`, its result:

        register_op("my_kernels::swiglu", kind="elementwise", flops=lambda x, out: 4 * out.numel())
    """
    if kind not in get_args(Kind):
        raise InputError(
            f"{kind!r} is not a kind of operation.",
            fix=f"Use one of: {', '.join(get_args(Kind))}.",
        )
    _FORMULAS[_plain(name)] = Formula(kind=kind, flops=flops, moved_bytes=moved_bytes)


def cost_of(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
    *,
    hint: Literal["view", "pointwise", "reduction", ""] = "",
) -> Cost:
    """The cost of one call. `hint` is what torch itself says of an operator without a formula."""
    plain = _plain(name)
    formula = _FORMULAS.get(plain) or _by_family(plain) or _HINTED.get(hint)
    if formula is None:
        bytes_ = read_and_written_bytes(*args, **kwargs, out=out)
        return Cost(kind="other", flops=0, moved_bytes=bytes_, launches=1, known=False)
    moved = formula.moved_bytes or read_and_written_bytes
    launches = formula.launches
    return Cost(
        kind=formula.kind,
        flops=float(formula.flops(*args, **kwargs, out=out)) if formula.flops else 0.0,
        moved_bytes=float(moved(*args, **kwargs, out=out)),
        launches=launches(*args, **kwargs, out=out) if callable(launches) else launches,
    )


def _plain(name: str) -> str:
    """`aten::mm.default` and `aten.mm.default` are both `aten.mm`."""
    return ".".join(name.replace("::", ".").split(".")[:2])


def _by_family(plain: str) -> Formula | None:
    """Formulas for the operators that share a prefix: foreach and fused updates."""
    operator = plain.removeprefix("aten.")
    if operator.startswith("_foreach_"):
        return _FOREACH_IN_PLACE if operator.endswith("_") else _FOREACH
    if operator.startswith("_fused_"):
        return _FUSED
    if operator.endswith("_") and not operator.endswith("__"):
        return _FORMULAS.get(plain[:-1])
    return None


# Tensors and their bytes


def tensors_in(*values: Any) -> Iterator[Any]:
    """Every tensor among the values, lists and tuples opened."""
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(*value)


def elements(tensor: Any) -> int:
    """Elements that exist in memory: an expanded dimension (stride 0) is there once."""
    strides = tensor.stride() if callable(getattr(tensor, "stride", None)) else None
    if strides is None:
        return math.prod(tensor.shape)
    return math.prod(n for n, stride in zip(tensor.shape, strides, strict=True) if stride or not n)


def tensor_bytes(*values: Any) -> int:
    """Bytes of every tensor among the values, the same tensor once."""
    seen = {id(tensor): tensor for tensor in tensors_in(*values)}
    return sum(elements(tensor) * int(tensor.dtype.itemsize) for tensor in seen.values())


def read_and_written_bytes(*args: Any, out: Any = None, **kwargs: Any) -> float:
    """Bytes of the tensors read plus those written. An in-place result is read and written."""
    return tensor_bytes(*args, *kwargs.values()) + tensor_bytes(out)


def _written_bytes(*_args: Any, out: Any = None, **_kwargs: Any) -> float:
    """Bytes written only: fills and random numbers."""
    return tensor_bytes(out)


def _nothing(*_args: Any, **_kwargs: Any) -> float:
    return 0.0


# Matrix products


def mm_flop(a: Any, b: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """(m, k) x (k, n)."""
    m, k = a.shape
    k2, n = b.shape
    assert k == k2
    return 2 * m * k * n


def addmm_flop(_bias: Any, a: Any, b: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """As mm: the bias is added on the way out."""
    return mm_flop(a, b)


def bmm_flop(a: Any, b: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """(batch, m, k) x (batch, k, n)."""
    batch, m, k = a.shape
    batch2, k2, n = b.shape
    assert (batch, k) == (batch2, k2)
    return 2 * batch * m * k * n


def baddbmm_flop(_bias: Any, a: Any, b: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """As bmm: the bias is added on the way out."""
    return bmm_flop(a, b)


def linear_flop(x: Any, weight: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """(..., k) x (n, k) transposed."""
    n, k = weight.shape
    assert x.shape[-1] == k
    return 2 * math.prod(x.shape) * n


def mv_flop(a: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """(m, k) x (k): two per element of the matrix."""
    return 2 * math.prod(a.shape)


def addmv_flop(_bias: Any, a: Any, *_: Any, out: Any = None, **_kwargs: Any) -> float:
    """As mv."""
    return mv_flop(a)


# Convolutions


def conv_flop(
    x: Any,
    weight: Any,
    _bias: Any = None,
    _stride: Any = None,
    _padding: Any = None,
    _dilation: Any = None,
    transposed: bool = False,
    *_: Any,
    out: Any,
    **_kwargs: Any,
) -> float:
    """Each weight meets each output position once (input position when transposed).

    A weight of a grouped convolution is (out, in / groups, ...), so groups need no term.
    """
    return _conv_flop(x.shape, weight.shape, out.shape, transposed)


def _conv_flop(
    x: Sequence[int], weight: Sequence[int], out: Sequence[int], transposed: bool
) -> float:
    batch, _channels, *positions = x if transposed else out
    return 2 * batch * math.prod(positions) * math.prod(weight)


def conv_backward_flop(grad_out: Any, x: Any, weight: Any, *args: Any, out: Any) -> float:
    """The gradients of input and weight take as much as the forward each; the bias counts 0.

    Arguments from the fourth: bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask (input, weight, bias).
    """
    transposed, (grad_input, grad_weight, _) = args[4], args[7]
    forward = _conv_flop(x.shape, weight.shape, grad_out.shape, transposed)
    return forward * (bool(grad_input) + bool(grad_weight))


def _conv_backward_launches(*args: Any, out: Any, **_kwargs: Any) -> float:
    """One kernel per gradient asked for; layout conversions are left to the prediction."""
    return sum(1 for gradient in out if gradient is not None)


# Attention: two products forward, five backward (one of them computes the scores again)


def attention_flop(
    q: Any, k: Any, v: Any, *args: Any, causal: bool = False, **_kwargs: Any
) -> float:
    """Scores and weighted values: (sq, d) x (d, sk), then (sq, sk) x (sk, dv), per head.

    A causal mask halves both: the kernels skip the blocks above the diagonal (the blocks on it
    are counted half).
    """
    batch, heads, sq, d = q.shape
    sk, dv = k.shape[-2], v.shape[-1]
    products = 2 * batch * heads * sq * sk * (d + dv)
    return products / 2 if causal else products


def attention_backward_flop(q: Any, k: Any, v: Any, *, causal: bool = False) -> float:
    """Scores again, gradients of values and of weights, then of query and of key."""
    batch, heads, sq, d = q.shape
    sk, dv = k.shape[-2], v.shape[-1]
    products = 2 * batch * heads * sq * sk * (3 * d + 2 * dv)
    return products / 2 if causal else products


def flash_flop(
    q: Any, k: Any, v: Any, _dropout: float = 0.0, causal: bool = False, *_: Any, **_kwargs: Any
) -> float:
    """aten._scaled_dot_product_flash_attention."""
    return attention_flop(q, k, v, causal=causal)


def flash_backward_flop(_grad: Any, q: Any, k: Any, v: Any, *args: Any, **_kwargs: Any) -> float:
    """From the fifth: out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal."""
    return attention_backward_flop(q, k, v, causal=args[7])


def efficient_flop(
    q: Any,
    k: Any,
    v: Any,
    _bias: Any = None,
    _compute_logsumexp: bool = False,
    _dropout: float = 0.0,
    causal: bool = False,
    **_kwargs: Any,
) -> float:
    """aten._scaled_dot_product_efficient_attention."""
    return attention_flop(q, k, v, causal=causal)


def efficient_backward_flop(
    _grad: Any, q: Any, k: Any, v: Any, *args: Any, **_kwargs: Any
) -> float:
    """From the fifth: bias, out, logsumexp, seed, offset, dropout_p, grad_input_mask, is_causal."""
    causal = args[7] if len(args) > 7 else False
    return attention_backward_flop(q, k, v, causal=causal)


def cudnn_flop(
    q: Any,
    k: Any,
    v: Any,
    _bias: Any = None,
    _compute_logsumexp: bool = False,
    _dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    **_kwargs: Any,
) -> float:
    """aten._scaled_dot_product_cudnn_attention."""
    return attention_flop(q, k, v, causal=causal)


# Recurrent layers


def rnn_flop(
    x: Any, weights: Sequence[Any], weight_stride0: int, *_: Any, out: Any, **_kwargs: Any
) -> float:
    """aten._cudnn_rnn: every weight matrix meets every position of every sequence once."""
    positions = math.prod(x.shape[:-1])
    return 2 * positions * sum(math.prod(w.shape) for w in weights if len(w.shape) == 2)


def rnn_backward_flop(
    x: Any, weights: Sequence[Any], weight_stride0: int, *_: Any, out: Any, **_kwargs: Any
) -> float:
    """Twice the forward: the gradients of inputs and of weights."""
    return 2 * rnn_flop(x, weights, weight_stride0, out=out)


# Bytes that are not "each tensor once"


def embedding_bytes(_weight: Any, indices: Any, *_: Any, out: Any, **_kwargs: Any) -> float:
    """Only the rows looked up are read."""
    return tensor_bytes(indices) + 2 * tensor_bytes(out)


def _gather_bytes(_source: Any, *args: Any, out: Any, **kwargs: Any) -> float:
    """The indices, and each picked element read and written."""
    return tensor_bytes(*args, *kwargs.values()) + 2 * tensor_bytes(out)


def _scatter_bytes(_target: Any, *args: Any, out: Any, **kwargs: Any) -> float:
    """The indices and values, and each value's place read and written."""
    values = tensor_bytes(*args, *kwargs.values())
    return min(2 * values, values + 2 * tensor_bytes(out))


def _scatter_copy_bytes(target: Any, *args: Any, out: Any, **kwargs: Any) -> float:
    """A scatter into a fresh copy."""
    return 2 * tensor_bytes(out) + _scatter_bytes(target, *args, out=out, **kwargs)


def embedding_backward_bytes(grad: Any, indices: Any, *_: Any, out: Any, **_kwargs: Any) -> float:
    """A zeroed table, and the gradient rows read and added into it."""
    return tensor_bytes(out) + tensor_bytes(indices) + 3 * tensor_bytes(grad)


def _copy_into_bytes(target: Any, source: Any, *_: Any, out: Any, **_kwargs: Any) -> float:
    """The target is overwritten, not read."""
    return tensor_bytes(source) + tensor_bytes(target)


def _norm_bytes(x: Any, *args: Any, out: Any, **kwargs: Any) -> float:
    """The input is read twice: once for the statistics, once to normalise."""
    return tensor_bytes(x) + read_and_written_bytes(x, *args, out=out, **kwargs)


def _norm_backward_bytes(grad: Any, x: Any, *args: Any, out: Any, **kwargs: Any) -> float:
    """Gradient and input are read twice: once for the sums, once for the result."""
    return tensor_bytes(grad, x) + read_and_written_bytes(grad, x, *args, out=out, **kwargs)


def nll_loss_bytes(scores: Any, target: Any, *_: Any, out: Any, **_kwargs: Any) -> float:
    """One score per target."""
    picked = elements(target) * int(scores.dtype.itemsize)
    return tensor_bytes(target) + picked + tensor_bytes(out)


def nll_loss_backward_bytes(
    _grad: Any, _scores: Any, target: Any, *_: Any, out: Any, **_kwargs: Any
) -> float:
    """A zeroed gradient of the scores; one element per target is set."""
    return tensor_bytes(target) + tensor_bytes(out)


def _sort_bytes(x: Any, *_: Any, out: Any, **_kwargs: Any) -> float:
    """Assumes a radix sort in four passes over keys and values."""
    return 4 * (tensor_bytes(x) + tensor_bytes(out))


# Multi-tensor updates

# Source: aten/src/ATen/native/cuda/MultiTensorApply.cuh: chunks of 65536 elements, at most 320
# chunks a launch, and as many tensors as the kernel's arguments hold (by number of lists).
_CHUNK_ELEMENTS = 65_536
_CHUNKS_PER_LAUNCH = 320
_TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}


def foreach_launches(*args: Any, out: Any = None, **_kwargs: Any) -> float:
    """Kernels one multi-tensor operator starts."""
    lists = [list(tensors_in(arg)) for arg in (*args, out) if isinstance(arg, list | tuple)]
    lists = [tensors for tensors in lists if tensors]
    if not lists:
        return 1
    tensors = lists[0]
    chunks = sum(math.ceil(elements(tensor) / _CHUNK_ELEMENTS) for tensor in tensors)
    per_launch = _TENSORS_PER_LAUNCH.get(len(lists), 30)
    return max(math.ceil(chunks / _CHUNKS_PER_LAUNCH), math.ceil(len(tensors) / per_launch), 1)


def _foreach_in_place_bytes(targets: Any, *args: Any, out: Any = None, **kwargs: Any) -> float:
    """Everything read once, the first list written as well."""
    return tensor_bytes(targets, *args, *kwargs.values()) + tensor_bytes(targets)


def _fused_bytes(parameters: Any, grads: Any, *states: Any, out: Any = None, **kw: Any) -> float:
    """Everything read once; parameters and states written as well."""
    return tensor_bytes(parameters, grads, *states) + tensor_bytes(parameters, *states)


_FOREACH = Formula(kind="optimizer", launches=foreach_launches)
_FOREACH_IN_PLACE = Formula(
    kind="optimizer", moved_bytes=_foreach_in_place_bytes, launches=foreach_launches
)
_FUSED = Formula(kind="optimizer", moved_bytes=_fused_bytes, launches=foreach_launches)
_VIEW = Formula(kind="copy", moved_bytes=_nothing, launches=0)
_HINTED: dict[str, Formula] = {
    "view": _VIEW,
    "pointwise": Formula(kind="elementwise"),
    "reduction": Formula(kind="reduction"),
}


# The registry


def _register(formula: Formula, names: str) -> None:
    for name in names.split():
        _FORMULAS[f"aten.{name}"] = formula


def _register_arithmetic() -> None:
    _register(Formula(kind="gemm", flops=mm_flop), "mm _int_mm _scaled_mm")
    _register(Formula(kind="gemm", flops=addmm_flop), "addmm _addmm_activation")
    _register(Formula(kind="gemm", flops=bmm_flop), "bmm")
    _register(Formula(kind="gemm", flops=baddbmm_flop), "baddbmm")
    _register(Formula(kind="gemm", flops=linear_flop), "linear")
    _register(Formula(kind="gemm", flops=mv_flop), "mv dot vdot")
    _register(Formula(kind="gemm", flops=addmv_flop), "addmv")
    _register(
        Formula(kind="conv", flops=conv_flop),
        "convolution _convolution cudnn_convolution convolution_overrideable",
    )
    _register(
        Formula(kind="conv", flops=conv_backward_flop, launches=_conv_backward_launches),
        "convolution_backward",
    )
    _register(Formula(kind="rnn", flops=rnn_flop, launches=4), "_cudnn_rnn")
    _register(
        Formula(kind="rnn", flops=rnn_backward_flop, launches=8),
        "_cudnn_rnn_backward",
    )
    _register(
        Formula(kind="rnn"),
        "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl "
        "_thnn_fused_gru_cell _thnn_fused_gru_cell_backward",
    )


def _register_attention() -> None:
    _register(
        Formula(kind="attention", flops=flash_flop), "_scaled_dot_product_flash_attention"
    )
    _register(
        Formula(kind="attention", flops=efficient_flop), "_scaled_dot_product_efficient_attention"
    )
    _register(Formula(kind="attention", flops=cudnn_flop), "_scaled_dot_product_cudnn_attention")
    _register(
        Formula(kind="attention", flops=flash_backward_flop, launches=3),
        "_scaled_dot_product_flash_attention_backward",
    )
    _register(
        Formula(kind="attention", flops=efficient_backward_flop, launches=2),
        "_scaled_dot_product_efficient_attention_backward",
    )


def _register_norms() -> None:
    _register(
        Formula(kind="norm", moved_bytes=_norm_bytes),
        "native_batch_norm _native_batch_norm_legit cudnn_batch_norm _batch_norm_with_update",
    )
    _register(Formula(kind="norm", moved_bytes=_norm_bytes, launches=3), "native_group_norm")
    _register(
        Formula(kind="norm", moved_bytes=_norm_backward_bytes),
        "native_batch_norm_backward batch_norm_backward",
    )
    _register(
        Formula(kind="norm", moved_bytes=_norm_backward_bytes, launches=5),
        "native_group_norm_backward",
    )
    _register(
        Formula(kind="norm"),
        "native_layer_norm _fused_rms_norm _native_batch_norm_legit_no_training",
    )
    _register(
        Formula(kind="norm", launches=2), "native_layer_norm_backward _fused_rms_norm_backward"
    )
    _register(
        Formula(kind="softmax"),
        "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data logsumexp "
        "_masked_softmax _safe_softmax",
    )


def _register_reductions() -> None:
    _register(
        Formula(kind="reduction"),
        "sum mean amax amin max min any all prod var var_mean std std_mean norm linalg_vector_norm "
        "argmax argmin nansum count_nonzero cumsum cumprod aminmax bincount histc "
        "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward "
        "max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d avg_pool3d_backward "
        "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d "
        "adaptive_max_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward "
        "mse_loss binary_cross_entropy smooth_l1_loss huber_loss _amp_update_scale_ "
        "_weight_norm_interface _weight_norm_interface_backward _cdist_forward _cdist_backward "
        "_ctc_loss _ctc_loss_backward",
    )
    _register(
        Formula(kind="reduction", moved_bytes=nll_loss_bytes), "nll_loss_forward nll_loss2d_forward"
    )
    _register(
        Formula(kind="reduction", moved_bytes=nll_loss_backward_bytes, launches=2),
        "nll_loss_backward nll_loss2d_backward",
    )
    _register(
        Formula(kind="reduction", moved_bytes=_sort_bytes, launches=4),
        "sort topk argsort kthvalue median _unique2 unique_consecutive multinomial",
    )


def _register_elementwise() -> None:
    _register(
        Formula(kind="elementwise"),
        "add sub rsub mul div neg abs exp log log2 log1p expm1 sqrt rsqrt pow sin cos tan tanh "
        "sigmoid relu gelu silu mish elu leaky_relu hardtanh hardswish hardsigmoid softplus "
        "log_sigmoid_forward glu erf reciprocal square sign floor ceil round clamp clamp_min "
        "clamp_max maximum minimum where masked_fill addcmul addcdiv lerp eq ne lt le gt ge "
        "logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not bitwise_xor isnan "
        "isinf isfinite remainder fmod floor_divide atan2 native_dropout native_dropout_backward "
        "_fused_dropout masked_scatter tril triu threshold threshold_backward gelu_backward "
        "silu_backward tanh_backward sigmoid_backward elu_backward leaky_relu_backward "
        "hardtanh_backward hardswish_backward hardsigmoid_backward softplus_backward mish_backward "
        "log_sigmoid_backward glu_backward mse_loss_backward smooth_l1_loss_backward "
        "huber_loss_backward binary_cross_entropy_backward binary_cross_entropy_with_logits "
        "_prelu_kernel _prelu_kernel_backward nan_to_num polar angle complex "
        "upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d "
        "upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward "
        "upsample_bilinear2d upsample_bilinear2d_backward upsample_bicubic2d "
        "upsample_bicubic2d_backward _upsample_bilinear2d_aa _upsample_nearest_exact2d "
        "_upsample_nearest_exact2d_backward upsample_linear1d upsample_linear1d_backward "
        "upsample_trilinear3d upsample_trilinear3d_backward reflection_pad2d "
        "reflection_pad2d_backward reflection_pad1d reflection_pad1d_backward replication_pad2d "
        "replication_pad2d_backward",
    )


def _register_indexing() -> None:
    _register(Formula(kind="embedding", moved_bytes=embedding_bytes), "embedding")
    _register(
        Formula(kind="embedding", moved_bytes=embedding_backward_bytes, launches=6),
        "embedding_dense_backward _embedding_bag_dense_backward",
    )
    _register(
        Formula(kind="embedding", moved_bytes=_gather_bytes),
        "index gather index_select take masked_select _embedding_bag _embedding_bag_forward_only "
        "grid_sampler_2d grid_sampler_3d",
    )
    _register(
        Formula(kind="embedding", moved_bytes=_scatter_bytes),
        "index_put_ _index_put_impl_ scatter_ scatter_add_ index_add_ index_copy_ index_fill_ "
        "masked_scatter_ scatter_reduce_",
    )
    _register(
        Formula(kind="embedding", moved_bytes=_scatter_copy_bytes, launches=2),
        "index_put scatter scatter_add index_add index_copy index_fill scatter_reduce "
        "_unsafe_index_put",
    )
    _register(Formula(kind="embedding"), "nonzero searchsorted bucketize grid_sampler_2d_backward")


def _register_copies() -> None:
    _register(Formula(kind="copy", moved_bytes=_copy_into_bytes), "copy_ copy set_data")
    _register(
        Formula(kind="copy"),
        "_to_copy clone contiguous cat stack constant_pad_nd slice_backward select_backward "
        "repeat repeat_interleave roll flip im2col col2im slice_scatter select_scatter "
        "as_strided_scatter diagonal_backward unfold_backward pixel_shuffle pixel_unshuffle "
        "_pin_memory channel_shuffle as_strided_copy unfold_copy",
    )
    _register(
        Formula(kind="copy", moved_bytes=_written_bytes),
        "zeros ones full zeros_like ones_like full_like zero_ fill_ fill new_zeros new_ones "
        "new_full arange linspace eye scalar_tensor rand randn rand_like randn_like randint "
        "randint_like randperm bernoulli bernoulli_ normal_ uniform_ normal exponential_ "
        "random_ log_normal_ geometric_ tril_indices triu_indices one_hot",
    )
    _register(
        Formula(kind="other"),
        "_fft_r2c _fft_c2r _fft_c2c linalg_qr linalg_inv_ex linalg_cholesky_ex _linalg_svd "
        "_linalg_eigh _linalg_det _linalg_slogdet linalg_lu_factor_ex",
    )
    _register(
        Formula(kind="optimizer", moved_bytes=_foreach_in_place_bytes, launches=foreach_launches),
        "_amp_foreach_non_finite_check_and_unscale_",
    )


def _register_views() -> None:
    _register(
        _VIEW,
        "view _unsafe_view reshape _reshape_alias t transpose permute expand expand_as select "
        "slice unsqueeze squeeze alias detach detach_ as_strided split split_with_sizes unbind "
        "chunk diagonal lift lift_fresh narrow view_as_real view_as_complex _conj unfold movedim "
        "real imag set_ empty empty_like empty_strided new_empty new_empty_strided empty_permuted "
        "resize_ t_ transpose_ squeeze_ unsqueeze_ swapaxes is_same_size _local_scalar_dense "
        "record_stream requires_grad_ _version as_strided_ swapdims",
    )


def _register_all() -> None:
    _register_arithmetic()
    _register_attention()
    _register_norms()
    _register_reductions()
    _register_elementwise()
    _register_indexing()
    _register_copies()
    _register_views()


_register_all()
