"""Kind, FLOPs and moved bytes of every operator: one short formula each, on shapes and dtypes.

A multiply-add is 2 FLOPs. Only matrix products, convolutions, attention and recurrent layers have
FLOPs; everything else is bound by the bytes it moves and counts 0, as in torch.utils.flop_counter.

Operators are named as torch names them, without the overload: `aten.mm`, `my_library.my_op`.
Nothing here needs torch: an argument is a tensor if it has a `shape` and a `dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from outlay.errors import InputError
from outlay.hardware.gpu_names import single_gpu
from outlay.trace import traffic
from outlay.trace.profile import Kind, Precision

if TYPE_CHECKING:
    from outlay.trace.traffic import Tensor

Amount = Callable[..., float]
"""A formula: called with the operator's arguments and `out=` its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """How one operator is counted."""

    kind: Kind
    flops: Amount | float | None = None
    moved_bytes: Amount = traffic.read_and_written_bytes
    launches: Amount | float = 1
    efficiency: Amount | float | None = None
    """The share of what a GPU can do at most that it reaches, where somebody has said so."""
    seconds: Amount | float | None = None
    """What a call took on the GPU `measured_on`, where somebody has measured it."""
    measured_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """What one call of an operator takes; `is_known` is false where there is no formula."""

    kind: Kind
    flops: float
    moved_bytes: float
    launches: float
    efficiency: float | None = None
    seconds: float | None = None
    measured_on: str = ""
    is_known: bool = True

    def efficiency_in(self, precision: Precision) -> float | None:
        """The share of what a GPU can do at most that it reaches: as said, or as measured."""
        if self.seconds is None:
            return self.efficiency
        gpu = single_gpu(self.measured_on).gpu
        peaks = gpu.peak_flops_per_s
        peak = peaks.get(precision, peaks["fp32"])
        bound_s = max(self.flops / peak, self.moved_bytes / gpu.memory_bytes_per_s)
        return min(bound_s / self.seconds, 1.0) if self.seconds > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegisteredFunction:
    """What a user has said of a Python function that only runs on a GPU."""

    formula: Formula
    shapes: Callable[..., object] | None = None
    backward_flops: Amount | None = None
    backward_bytes: Amount | None = None


_FUNCTIONS: dict[str, RegisteredFunction] = {}


def registered_functions() -> Mapping[str, RegisteredFunction]:
    """The Python functions that users have registered, by dotted name."""
    return _FUNCTIONS


def register_op(
    name: str,
    *,
    flops: Amount | None = None,
    moved_bytes: Amount | None = None,
    kind: Kind = "other",
    shapes: Callable[..., object] | None = None,
    backward_flops: Amount | None = None,
    backward_bytes: Amount | None = None,
    efficiency: float | None = None,
    seconds: Amount | float | None = None,
    on: str | None = None,
) -> None:
    """Teach outlay an operator of your own, or replace a formula.

    `name` is an operator of torch, `library::operator`, or the dotted name of a Python function
    that runs a kernel, such as one of a compiled extension: `my_ext.my_kernel`. The callables
    receive its own arguments (tensors have `.shape` and `.dtype`) and `out`, its result; without
    `moved_bytes`, every tensor counts as read or written once:

        register_op("my_kernels::swiglu", kind="elementwise", flops=lambda x, out: 4 * out.numel())
        register_op("my_ext.blur", shapes=lambda x, k: x.shape,
                    flops=lambda x, k, out: 2 * out.numel() * k.numel())

    A function that is registered is not run while a step is traced. `shapes` gets its arguments
    and returns the shape of its result or a list of shapes, on the device and of the dtype of its
    first tensor, or empty tensors; without it the result is like the first tensor. Its gradient
    is counted as one operator with `backward_flops` (twice `flops` without it) and
    `backward_bytes` (the gradients and all tensor arguments once).

    How fast it is: `efficiency`, the share it reaches of what a GPU can do at most (the slower of
    its FLOPs at peak and its bytes at full bandwidth), or `seconds` that a call took, measured
    `on` a GPU. A time is held as the efficiency it means on that GPU, and so carried to others.
    Without either, it is taken to be as fast as other operators of its kind.
    """
    if kind not in get_args(Kind):
        raise InputError(
            f"{kind!r} is not a kind of operation.",
            fix=f"Use one of: {', '.join(get_args(Kind))}.",
        )
    _check_speed(efficiency, seconds, on)
    formula = Formula(
        kind=kind,
        flops=flops,
        moved_bytes=moved_bytes or traffic.read_and_written_bytes,
        efficiency=efficiency,
        seconds=seconds,
        measured_on=on or "",
    )
    _FORMULAS[_plain(name)] = formula
    if "::" not in name:
        _FUNCTIONS[name] = RegisteredFunction(
            formula=formula,
            shapes=shapes,
            backward_flops=backward_flops,
            backward_bytes=backward_bytes,
        )


def _check_speed(efficiency: float | None, seconds: object, on: str | None) -> None:
    """Raise where what was said of an operator's speed says nothing."""
    if efficiency is not None and not 0 < efficiency <= 1:
        raise InputError(
            f"An efficiency of {efficiency:g} cannot be: it is a share of the GPU's peak.",
            fix="Give a number above 0 and up to 1.",
        )
    if seconds is None:
        return
    if on is None or efficiency is not None:
        raise InputError(
            "A time in `seconds` needs the GPU it was measured on, and no efficiency beside it.",
            fix='Add the GPU: seconds=0.0021, on="RTX 3090".',
        )
    single_gpu(on)


def enter_formula(name: str, formula: Formula) -> None:
    """Enter how an operator of torch is counted."""
    _FORMULAS[_plain(name)] = formula


Hint = Literal["view", "pointwise", ""]
"""What torch itself says of an operator."""


def cost_of(
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
    *,
    hint: Hint = "",
) -> OpCost:
    """The cost of one call; `hint` decides where there is no formula."""
    formula = formula_for(name, hint)
    return evaluated_cost(
        formula or Formula(kind="other"), args, kwargs, out, is_known=formula is not None
    )


def evaluated_cost(
    formula: Formula,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
    *,
    is_known: bool = True,
) -> OpCost:
    """A formula's amounts for one call."""
    # An `.out` overload is given its result as an argument of that very name.
    rest = {key: value for key, value in kwargs.items() if key != "out"}

    def evaluated(amount: Amount | float | None) -> float:
        return float(amount(*args, **rest, out=out) if callable(amount) else amount or 0)

    return OpCost(
        kind=formula.kind,
        flops=evaluated(formula.flops),
        moved_bytes=evaluated(formula.moved_bytes),
        launches=evaluated(formula.launches),
        efficiency=evaluated(formula.efficiency) or None,
        seconds=evaluated(formula.seconds) or None,
        measured_on=formula.measured_on,
        is_known=is_known,
    )


def formula_for(name: str, hint: Hint = "") -> Formula | None:
    """The formula of an operator: its own, its family's, or that for what torch says of it."""
    plain = _plain(name)
    return _FORMULAS.get(plain) or _family(plain) or _HINTED.get(hint)


def _plain(name: str) -> str:
    """`aten::mm.default` and `aten.mm.default` are both `aten.mm`."""
    return ".".join(name.replace("::", ".").split(".")[:2])


def _family(plain: str) -> Formula | None:
    """Multi-tensor updates by prefix; an in-place operator is counted as its plain form."""
    operator = plain.removeprefix("aten.")
    if operator.startswith("_foreach_"):
        return _FOREACH_IN_PLACE if operator.endswith("_") else _FOREACH
    if operator.startswith(("_fused_ada", "_fused_sgd")):
        return _FUSED
    if operator.endswith("_") and not operator.endswith("__"):
        return _FORMULAS.get(plain[:-1])
    return None


# Matrix products


def mm_flop(a: Tensor, b: Tensor, *_: object, **__: object) -> float:
    """(m, k) x (k, n)."""
    m, k = a.shape
    k2, n = b.shape
    assert k == k2
    return 2 * m * k * n


def addmm_flop(_bias: Tensor, a: Tensor, b: Tensor, *_: object, **__: object) -> float:
    """As mm: the bias is added on the way out."""
    return mm_flop(a, b)


def packed_product_flop(
    x: Tensor, _packed: Tensor, weight_shape: Sequence[int], *_: object, **__: object
) -> float:
    """(..., inputs) x (outputs, inputs), whose values are packed into 4 bits."""
    outputs, inputs = weight_shape
    return 2 * math.prod(x.shape[:-1]) * inputs * outputs


def bmm_flop(a: Tensor, b: Tensor, *_: object, **__: object) -> float:
    """(batch, m, k) x (batch, k, n)."""
    batch, m, k = a.shape
    batch2, k2, n = b.shape
    assert (batch, k) == (batch2, k2)
    return 2 * batch * m * k * n


def baddbmm_flop(_bias: Tensor, a: Tensor, b: Tensor, *_: object, **__: object) -> float:
    """As bmm: the bias is added on the way out."""
    return bmm_flop(a, b)


def grouped_mm_flop(a: Tensor, b: Tensor, *_: object, **__: object) -> float:
    """Each row of `a` meets the one matrix of `b` that its group says; as often as mm or bmm."""
    if len(a.shape) == 3 and len(b.shape) == 3:
        return bmm_flop(a, b)
    m, k = a.shape[-2:]
    return 2 * m * k * b.shape[-1]


def linear_flop(x: Tensor, weight: Tensor, *_: object, **__: object) -> float:
    """(..., k) x (n, k) transposed."""
    n, k = weight.shape
    assert x.shape[-1] == k
    return 2 * math.prod(x.shape) * n


def mv_flop(a: Tensor, *_: object, **__: object) -> float:
    """(m, k) x (k): two per element of the matrix."""
    return 2 * math.prod(a.shape)


def addmv_flop(_bias: Tensor, a: Tensor, *_: object, **__: object) -> float:
    """As mv."""
    return mv_flop(a)


# Convolutions


def conv_flop(x: Tensor, weight: Tensor, *args: object, out: Tensor, **__: object) -> float:
    """Each weight meets each output position once (input position when transposed).

    A weight of a grouped convolution is (out, in / groups, ...), so groups need no term.
    Arguments from the third: bias, stride, padding, dilation, transposed, output_padding, groups.
    """
    return _conv_flop(x, weight, out, transposed=bool(args[4]))


def conv_backward_flop(
    grad_out: Tensor, x: Tensor, weight: Tensor, *args: object, **__: object
) -> float:
    """The gradients of input and weight take as much as the forward each; the bias counts 0.

    Arguments from the fourth: bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask (input, weight, bias).
    """
    output_mask = args[7]
    assert isinstance(output_mask, Sequence)
    forward = _conv_flop(x, weight, grad_out, transposed=bool(args[4]))
    return forward * (bool(output_mask[0]) + bool(output_mask[1]))


def _conv_flop(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> float:
    batch, _channels, *positions = x.shape if transposed else out.shape
    return 2 * batch * math.prod(positions) * math.prod(weight.shape)


def deform_conv_flop(x: Tensor, weight: Tensor, *_: object, out: Tensor, **__: object) -> float:
    """As a convolution whose positions are looked up; the looking up counts 0."""
    return _conv_flop(x, weight, out, transposed=False)


def deform_conv_backward_flop(
    grad_out: Tensor, x: Tensor, weight: Tensor, *_: object, **__: object
) -> float:
    """Twice the forward: input and offsets share a product, the weight has the other."""
    return 2 * _conv_flop(x, weight, grad_out, transposed=False)


# Attention: two products forward, five backward (one of them computes the scores again)


def attention_flop(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> float:
    """Scores and weighted values: (sq, d) x (d, sk), then (sq, sk) x (sk, dv), per head.

    A causal mask halves both: the kernels skip the blocks above the diagonal. The blocks on the
    diagonal, which they compute in full, are counted half.
    """
    batch, heads, sq, d = query.shape
    sk, dv = key.shape[-2], value.shape[-1]
    return 2 * batch * heads * sq * sk * (d + dv) / (2 if causal else 1)


def attention_backward_flop(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> float:
    """Scores again, gradients of values and of weights, then of query and of key."""
    batch, heads, sq, d = query.shape
    sk, dv = key.shape[-2], value.shape[-1]
    return 2 * batch * heads * sq * sk * (3 * d + 2 * dv) / (2 if causal else 1)


def flash_flop(q: Tensor, k: Tensor, v: Tensor, *args: object, **__: object) -> float:
    """From the fourth: dropout_p, is_causal, return_debug_mask."""
    return attention_flop(q, k, v, causal=_flag(args, 1))


def flash_backward_flop(
    _grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *args: object, **__: object
) -> float:
    """From the fifth: out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal."""
    return attention_backward_flop(q, k, v, causal=_flag(args, 7))


def efficient_flop(q: Tensor, k: Tensor, v: Tensor, *args: object, **__: object) -> float:
    """From the fourth: attn_bias, compute_log_sumexp, dropout_p, is_causal."""
    return attention_flop(q, k, v, causal=_flag(args, 3))


def efficient_backward_flop(
    _grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *args: object, **__: object
) -> float:
    """From the fifth: bias, out, logsumexp, seed, offset, dropout_p, grad_input_mask, is_causal."""
    return attention_backward_flop(q, k, v, causal=_flag(args, 7))


def encoder_layer_flop(x: Tensor, *args: object, **__: object) -> float:
    """The fused layers of torch's inference path: every matrix meets every row, and attention."""
    rows, dim = math.prod(x.shape[:-1]), x.shape[-1]
    matrices = [tensor for tensor in traffic.tensors_in(*args) if len(tensor.shape) == 2]
    weights = sum(math.prod(matrix.shape) for matrix in matrices if dim in matrix.shape)
    return 2 * rows * weights + 4 * rows * x.shape[-2] * dim


def _flag(args: Sequence[object], position: int) -> bool:
    """An argument that may be left out; torch leaves out those that have their default."""
    return bool(args[position]) if len(args) > position else False


# Recurrent layers


def rnn_flop(x: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> float:
    """aten._cudnn_rnn: every weight matrix meets every position of every sequence once."""
    positions = math.prod(x.shape[:-1])
    return 2 * positions * sum(math.prod(w.shape) for w in weights if len(w.shape) == 2)


def rnn_backward_flop(x: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> float:
    """Twice the forward: the gradients of inputs and of weights."""
    return 2 * rnn_flop(x, weights)


# Optimizers of other libraries


def update_bytes(_name: str, gradient: Tensor, *others: object, **__: object) -> float:
    """The gradient is read; parameters, states and their scales are read and written."""
    return traffic.tensor_bytes(gradient) + 2 * traffic.tensor_bytes(*others)


# The registry

_FOREACH = Formula(kind="optimizer", launches=traffic.foreach_launches)
_FOREACH_IN_PLACE = Formula(
    kind="optimizer", moved_bytes=traffic.foreach_in_place_bytes, launches=traffic.foreach_launches
)
_FUSED = Formula(
    kind="optimizer", moved_bytes=traffic.fused_bytes, launches=traffic.foreach_launches
)
_VIEW = Formula(kind="copy", moved_bytes=traffic.no_bytes, launches=0)
_HINTED: Mapping[str, Formula] = {"view": _VIEW, "pointwise": Formula(kind="elementwise")}

_ARITHMETIC: Mapping[str, Formula] = {
    "mm _int_mm _scaled_mm": Formula(kind="gemm", flops=mm_flop),
    "addmm _addmm_activation": Formula(kind="gemm", flops=addmm_flop),
    "bmm": Formula(kind="gemm", flops=bmm_flop),
    "baddbmm": Formula(kind="gemm", flops=baddbmm_flop),
    "_grouped_mm": Formula(kind="gemm", flops=grouped_mm_flop),
    "linear": Formula(kind="gemm", flops=linear_flop),
    "mv dot vdot": Formula(kind="gemm", flops=mv_flop),
    "addmv": Formula(kind="gemm", flops=addmv_flop),
    "convolution _convolution": Formula(kind="conv", flops=conv_flop),
    "convolution_backward": Formula(
        kind="conv",
        flops=conv_backward_flop,
        launches=traffic.conv_backward_launches,
    ),
    "_scaled_dot_product_flash_attention": Formula(kind="attention", flops=flash_flop),
    "_scaled_dot_product_flash_attention_backward": Formula(
        kind="attention", flops=flash_backward_flop, launches=3
    ),
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention": Formula(
        kind="attention", flops=efficient_flop
    ),
    "_scaled_dot_product_efficient_attention_backward": Formula(
        kind="attention", flops=efficient_backward_flop, launches=2
    ),
    "_transformer_encoder_layer_fwd _native_multi_head_attention": Formula(
        kind="gemm", flops=encoder_layer_flop, launches=8
    ),
    "_cudnn_rnn": Formula(kind="rnn", flops=rnn_flop, launches=4),
    "_cudnn_rnn_backward": Formula(kind="rnn", flops=rnn_backward_flop, launches=8),
    "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell "
    "_thnn_fused_gru_cell_backward": Formula(kind="rnn"),
}

_NORMS: Mapping[str, Formula] = {
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm _batch_norm_with_update": Formula(
        kind="norm", moved_bytes=traffic.norm_bytes
    ),
    "native_group_norm": Formula(kind="norm", moved_bytes=traffic.norm_bytes, launches=3),
    "native_batch_norm_backward batch_norm_backward": Formula(
        kind="norm", moved_bytes=traffic.norm_backward_bytes
    ),
    "native_group_norm_backward": Formula(
        kind="norm", moved_bytes=traffic.norm_backward_bytes, launches=5
    ),
    "native_layer_norm _fused_rms_norm _native_batch_norm_legit_no_training": Formula(kind="norm"),
    "native_layer_norm_backward _fused_rms_norm_backward": Formula(kind="norm", launches=2),
    "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data logsumexp "
    "_masked_softmax _safe_softmax": Formula(kind="softmax"),
}

_REDUCTIONS: Mapping[str, Formula] = {
    "sum mean amax amin max min any all prod var var_mean std std_mean norm linalg_vector_norm "
    "argmax argmin nansum count_nonzero cumsum cumprod aminmax bincount histc mse_loss "
    "binary_cross_entropy smooth_l1_loss huber_loss _amp_update_scale_ _weight_norm_interface "
    "_weight_norm_interface_backward _cdist_forward _cdist_backward _ctc_loss _ctc_loss_backward "
    "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward "
    "max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d avg_pool3d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d "
    "_adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward": Formula(
        kind="reduction"
    ),
    "nll_loss_forward nll_loss2d_forward": Formula(
        kind="reduction", moved_bytes=traffic.nll_loss_bytes
    ),
    "nll_loss_backward nll_loss2d_backward": Formula(
        kind="reduction", moved_bytes=traffic.nll_loss_backward_bytes, launches=2
    ),
    "sort topk argsort kthvalue median _unique2 unique_consecutive multinomial": Formula(
        kind="reduction", moved_bytes=traffic.sort_bytes, launches=4
    ),
}

# Those torch does not tag as pointwise; the others are found by their tag.
_ELEMENTWISE: Mapping[str, Formula] = {
    "add sub rsub mul div floor_divide neg abs exp log sqrt rsqrt pow tanh sigmoid relu gelu silu "
    "where clamp maximum minimum masked_fill addcmul addcdiv lerp log_sigmoid_forward "
    "log_sigmoid_backward hardswish hardsigmoid hardtanh leaky_relu elu softplus mish celu selu "
    "softshrink hardshrink softshrink_backward hardshrink_backward rrelu_with_noise "
    "rrelu_with_noise_backward "
    "glu glu_backward native_dropout native_dropout_backward _fused_dropout masked_scatter tril "
    "triu threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward "
    "elu_backward leaky_relu_backward hardtanh_backward hardswish_backward hardsigmoid_backward "
    "softplus_backward mish_backward mse_loss_backward smooth_l1_loss_backward "
    "huber_loss_backward binary_cross_entropy_backward binary_cross_entropy_with_logits "
    "_prelu_kernel _prelu_kernel_backward upsample_nearest1d upsample_nearest1d_backward "
    "upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d "
    "upsample_nearest3d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward "
    "upsample_linear1d upsample_linear1d_backward upsample_bilinear2d "
    "upsample_bilinear2d_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward "
    "upsample_bicubic2d upsample_bicubic2d_backward upsample_trilinear3d "
    "upsample_trilinear3d_backward reflection_pad1d reflection_pad1d_backward reflection_pad2d "
    "reflection_pad2d_backward replication_pad2d replication_pad2d_backward": Formula(
        kind="elementwise"
    ),
}

_INDEXING: Mapping[str, Formula] = {
    "embedding": Formula(kind="embedding", moved_bytes=traffic.embedding_bytes),
    "embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward": Formula(
        kind="embedding", moved_bytes=traffic.embedding_backward_bytes, launches=6
    ),
    "index gather index_select take masked_select _embedding_bag _embedding_bag_forward_only "
    "grid_sampler_2d grid_sampler_3d": Formula(kind="embedding", moved_bytes=traffic.gather_bytes),
    "index_put_ _index_put_impl_ scatter_ scatter_add_ index_add_ index_copy_ index_fill_ "
    "masked_scatter_ scatter_reduce_": Formula(kind="embedding", moved_bytes=traffic.scatter_bytes),
    "index_put scatter scatter_add index_add index_copy index_fill scatter_reduce "
    "_unsafe_index_put": Formula(
        kind="embedding", moved_bytes=traffic.scatter_copy_bytes, launches=2
    ),
    "nonzero searchsorted bucketize grid_sampler_2d_backward": Formula(kind="embedding"),
}

_COPIES: Mapping[str, Formula] = {
    "copy_ copy": Formula(kind="copy", moved_bytes=traffic.copy_into_bytes),
    "_to_copy clone contiguous cat stack constant_pad_nd slice_backward select_backward repeat "
    "repeat_interleave roll flip im2col col2im slice_scatter select_scatter as_strided_scatter "
    "diagonal_backward unfold_backward pixel_shuffle pixel_unshuffle native_channel_shuffle "
    "_pin_memory as_strided_copy unfold_copy": Formula(kind="copy"),
    "zeros ones full zeros_like ones_like full_like zero_ zero fill_ fill new_zeros new_ones "
    "new_full arange linspace eye scalar_tensor rand randn rand_like randn_like randint "
    "randint_like randperm bernoulli normal_ uniform_ normal exponential_ random_ log_normal_ "
    "geometric_ tril_indices triu_indices": Formula(kind="copy", moved_bytes=traffic.written_bytes),
}

_VIEWS: Mapping[str, Formula] = {
    "view _unsafe_view reshape _reshape_alias t transpose permute expand select slice unsqueeze "
    "squeeze alias detach as_strided split split_with_sizes unbind chunk diagonal lift lift_fresh "
    "narrow view_as_real view_as_complex _conj unfold movedim real imag set_ empty empty_like "
    "empty_strided new_empty new_empty_strided empty_permuted resize_ is_same_size "
    "record_stream requires_grad_ _linalg_check_errors sparse_coo_tensor "
    "_sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_unsafe _indices _values "
    "indices values _coalesced_ is_coalesced": _VIEW,
}

_OTHERS: Mapping[str, Formula] = {
    "_amp_foreach_non_finite_check_and_unscale_": Formula(
        kind="optimizer",
        moved_bytes=traffic.foreach_in_place_bytes,
        launches=traffic.foreach_launches,
    ),
    "_fft_r2c _fft_c2r _fft_c2c linalg_qr linalg_inv_ex linalg_cholesky_ex _linalg_svd "
    "_linalg_eigh _linalg_det _linalg_slogdet linalg_lu_factor_ex _linalg_solve_ex "
    "linalg_lu linalg_lu_solve linalg_solve_triangular linalg_ldl_factor_ex linalg_ldl_solve "
    "linalg_lstsq linalg_eig _linalg_eigvals linalg_householder_product linalg_matrix_exp "
    "cholesky_solve cholesky_inverse triangular_solve geqrf ormqr diag_embed linalg_cross "
    "_pack_padded_sequence": Formula(kind="other"),
}

_TABLES = (_ARITHMETIC, _NORMS, _REDUCTIONS, _ELEMENTWISE, _INDEXING, _COPIES, _VIEWS, _OTHERS)
_FORMULAS: dict[str, Formula] = {
    f"aten.{name}": formula
    for table in _TABLES
    for names, formula in table.items()
    for name in names.split()
}
_FORMULAS |= {
    f"bitsandbytes.optimizer_update_{name}": Formula(kind="optimizer", moved_bytes=update_bytes)
    for name in ("32bit", "8bit", "8bit_blockwise")
}
_FORMULAS |= {
    "bitsandbytes.gemm_4bit": Formula(kind="gemm", flops=packed_product_flop),
    "bitsandbytes.dequantize_4bit": Formula(kind="elementwise"),
    "bitsandbytes.dequantize_blockwise": Formula(kind="elementwise"),
    "bitsandbytes.quantize_4bit": Formula(kind="elementwise"),
    "bitsandbytes.quantize_blockwise": Formula(kind="elementwise"),
}
_FORMULAS["outlay.update_8bit"] = Formula(kind="optimizer", moved_bytes=update_bytes)
_FORMULAS |= {
    "torchvision.nms": Formula(kind="reduction", launches=4),
    "torchvision.roi_align": Formula(kind="embedding", moved_bytes=traffic.gather_bytes),
    "torchvision.roi_pool": Formula(kind="embedding", moved_bytes=traffic.gather_bytes),
    "torchvision.ps_roi_align": Formula(kind="embedding", moved_bytes=traffic.gather_bytes),
    "torchvision.ps_roi_pool": Formula(kind="embedding", moved_bytes=traffic.gather_bytes),
    "torchvision._roi_align_backward": Formula(kind="embedding", launches=2),
    "torchvision._roi_pool_backward": Formula(kind="embedding", launches=2),
    "torchvision._ps_roi_align_backward": Formula(kind="embedding", launches=2),
    "torchvision._ps_roi_pool_backward": Formula(kind="embedding", launches=2),
    "torchvision.deform_conv2d": Formula(kind="conv", flops=deform_conv_flop),
    "torchvision._deform_conv2d_backward": Formula(
        kind="conv", flops=deform_conv_backward_flop, launches=4
    ),
}
_FORMULAS |= {  # RMS norm as one kernel each way: see capture/cuda_ops.py
    "outlay.rms_norm": Formula(kind="norm"),
    "outlay.rms_norm_backward": Formula(kind="norm", launches=2),
}
