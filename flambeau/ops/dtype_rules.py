"""Dtypes for which PyTorch has no kernel, where the mathematics would have a meaning: the errors of such calls.

PyTorch has no rule for these: they are what 2.13 does on the CPU (`python -m tests.errors.dtypes` compares). Asked where an edge is new, and by
public functions that are no operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from flambeau import dtypes
from flambeau.dtypes import C_NAMES, LIMITED, dtype, of_type
from flambeau.ops.promotion import result_type
from flambeau.trace.looks import NO_TENSORS
from flambeau.trace.recorder import local

_LETTERS: Final = {
    "i": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64), "j": (dtypes.int8, dtypes.int16, dtypes.int32), "u": (dtypes.uint8,), "b": (dtypes.bool_,),
    "h": (dtypes.float16,), "B": (dtypes.bfloat16,), "f": (dtypes.float32, dtypes.float64), "c": (dtypes.complex64, dtypes.complex128),
    "U": dtypes.UNSIGNED, "e": (*dtypes.FLOATS8, dtypes.float4_e2m1fn_x2), "C": (dtypes.complex32,), "4": (dtypes.float4_e2m1fn_x2,),
}  # fmt: skip
_POLYNOMIALS: Final = " ".join([
    f"special_{name}" for name in (
        "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
        "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
        "shifted_chebyshev_polynomial_w"
    ).split()
])  # fmt: skip
# By letters of dtypes: operations and functions that are NotImplementedErrors.
_NOT_IMPLEMENTED: Final = {
    "b": (
        "conv1d conv2d reflect_pad replicate_pad abs addmm addmv addbmm baddbmm dot vdot bmm mv mm matmul inner trace tensordot linalg.multi_dot "
        "ceil floor trunc round kthvalue clamp pow addcmul conv3d linear bilinear softsign threshold cross stft linspace logspace"
    ),
    "hB": (
        "cdist histogram histogramdd pdist special_zeta special_ndtri special_log_ndtr special_erfcx special_airy_ai special_bessel_j0 "
        "special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
        "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0 lu_solve "
        "linalg_qr linalg_svd linalg_det linalg_cholesky_ex linalg_cond linalg_eig linalg_eigvals linalg_ldl_factor_ex linalg_ldl_solve linalg_solve "
        "linalg_svdvals"
    ),
    "hBc": (
        "avg_pool3d " + _POLYNOMIALS
    ),
    "iubhB": (
        "cholesky cholesky_inverse cholesky_solve geqrf ormqr linalg_eigh linalg_eigvalsh linalg_householder_product linalg_lu_factor linalg_lu "
        "linalg_solve_triangular multi_margin_loss multilabel_margin_loss"
    ),
    "iubc": (
        "frac max_unpool1d max_unpool2d max_unpool3d glu igamma igammac hardshrink gelu bernoulli cross_entropy layer_norm group_norm instance_norm "
        "instance_norm_eval batch_norm_train batch_norm_eval hypot nextafter mse_values smooth_l1_values huber_values nll_loss fractional_max_pool2d"
    ),
    "iub": (
        "logaddexp logaddexp2 hardswish leaky_relu elu scaled_elu celu selu prelu silu hardsigmoid mish lerp logcumsumexp softplus grid_sample "
        "softmax log_softmax rms_norm interpolate_linear interpolate_trilinear round_decimals segment_reduce binary_cross_entropy_with_logits "
        "multilabel_soft_margin_loss logsigmoid binary_cross_entropy softshrink"
    ),
    "bc": "median_all median_over index_reduce searchsorted_values bucketize searchsorted arange",
    "c": (
        "log_normal scatter_reduce_amin scatter_reduce_amax atan2 sign adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d "
        "max_pool1d max_pool1d_values max_pool2d max_pool2d_values max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "fractional_max_pool3d logit hardtanh multi_margin_loss multilabel_margin_loss"
    ),
    "iu": "nn.functional.unfold",
    "ibc": "interpolate_nearest interpolate_nearest-exact",
    "jub": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "ib": "interpolate_bilinear interpolate_bicubic",
    "jubc": "local_response_norm",
    "h": "rrelu polar",
    "bhBcf": "bincount", "UeC": "arange linspace logspace reflect_pad replicate_pad multinomial isin cdist bincount argwhere cross histogram gradient",
    "Ue": "nonzero unique", "U": "masked_select round_decimals div_floor div_trunc eye index_put", "e": "div_floor div_trunc bmm", "C": "eye",
    "eC": "random", "4": "fill",
}  # fmt: skip
# The same, of RuntimeErrors.
_REFUSED: Final = {
    "iub": "renorm", "iubc": "cdist embedding_bag", "b": "relu topk hardtanh relu6 special_multigammaln mvlgamma argmax argmin corrcoef cov",
    "c": "deg2rad rad2deg isposinf isneginf pdist heaviside multinomial", "bc": "isin", "iu": "soft_margin_loss", "iuc": "kl_div",
    "bhB": "linalg.vander", "hB": "linalg_slogdet", "u": "gradient",
}  # fmt: skip
# Where there is nothing to compute, PyTorch does not look for their kernels: any dtype passes.
_UNLESS_EMPTY: Final = frozenset(
    "softmax log_softmax addmm addmv addbmm baddbmm bmm mm mv matmul linear bilinear tensordot cdist "
    "searchsorted_values conv_transpose1d conv_transpose2d conv_transpose3d".split()
)
# Of whose operands the common dtype decides; elsewhere it is that of the first.
_COMMON: Final = frozenset("clamp pow addcmul logaddexp logaddexp2 hypot nextafter atan2 igamma igammac prelu mse_values smooth_l1_values huber_values".split())


# What PyTorch has for dtypes of `LIMITED`; of other operations there is no kernel.
_MOVED: Final = (
    "all any as_strided bitcast broadcast_tensors cast cat clone conj conj_physical contiguous contiguous_in copy detach_view diag diag_embed diagonal eq "
    "expand expand_as fill flatten flip full_like_values full_values index isclose isnan isreal kron linalg_diagonal mH mT movedim mul narrow ne "
    "nn.functional.embedding nn.functional.pad_by_index nn.functional.pad_constant numpy_T outer permute positive ravel real repeat repeat_interleave_by "
    "reshape roll select slice slice_step split squeeze stack swapaxes t tensor_split transpose unbind unbind_one unflatten unfold "
    "unsafe_split unsqueeze view view_as where zero"
)
_PRODUCTS: Final = "abs addbmm addmm matmul mm nn.functional.linear tensordot"
_HAVE: Final = {
    "unsigned": (
        "acos acosh angle argsort asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh cumprod cumsum deg2rad digamma div "
        "einsum erf erfc erfinv exp exp2 expm1 floor hypot isclose isfinite isinf isneginf isposinf ldexp lgamma log log10 log1p log2 logit "
        "logsumexp msort mvlgamma nan_to_num nansum nn.functional.cosine_embedding_loss nn.functional.poisson_nll_loss nn.functional.tanhshrink polygamma "
        "prod rad2deg reciprocal round rsqrt sigmoid signbit sin sinc sinh sort_values sqrt sum sum_to_size_op tan tanh true_divide trunc xlogy"
    ),
    "float8": f"{_PRODUCTS} index_select index_put_value",
    "float8_e5m2": f"{_PRODUCTS} index_select index_put_value isfinite isinf",
    "float8_e8m0fnu": "index_select isfinite",
    "complex32": (
        "abs add addcmul count_nonzero imag index_add index_copy index_fill index_put_value index_select isclose isfinite isinf masked_fill neg "
        "rsub sgn std_mean_op std_op sub "
        "sum_to_size_op tril triu var_mean_op var_op vector_norm view_as_real view_as_complex linalg_unit_like complex polar"
    ),
}  # fmt: skip


@functools.cache
def _have(d: dtype) -> frozenset[str]:
    """The operations that there are for a dtype of `LIMITED`."""
    if d is dtypes.float4_e2m1fn_x2:
        return frozenset(_MOVED.split()) - frozenset("all any cast eq ne fill full_like_values index isclose isreal kron mul nan outer positive flip".split())
    kind = d.name if d.name in _HAVE else "unsigned" if d.category == 1 else "float8"
    return frozenset([*_MOVED.split(), *_HAVE[kind].split()])


def _has(name: str, d: dtype) -> bool:
    """Whether an operation is there for a dtype of `LIMITED`. Unsigned integers are made floats by all of torch.special and torch.fft."""
    return name in _have(d) or (d.category == 1 and name.startswith(("special_", "fft_")))


def refuse_limited(name: str, kinds: Sequence[str], args: Sequence[Any]) -> None:
    """NotImplementedError if an operation is given tensors of a dtype that PyTorch stores and converts, but has not this operation for.

    RuntimeError if such a dtype meets another one and there is no common dtype.
    """
    if any(isinstance(a, dtype) and a not in LIMITED for a in args):
        return  # cast before anything else
    for a, kind in zip(args, kinds, strict=True):
        for t in a if isinstance(a, (list, tuple)) else (a,):
            if hasattr(t, "_meta") and t._meta.dtype in LIMITED:
                d = t._meta.dtype
                if kind in ("operand", "exponent"):
                    d = result_type(*[b for b, k in zip(args, kinds, strict=True) if k == kind and b is not None])
                if d not in LIMITED or _has(name, d):
                    continue
                raise NotImplementedError(
                    f"\"{name.removeprefix('nn.functional.')}_cpu\" not implemented for '{C_NAMES[d.name]}': {name}() does not take tensors of dtype {d.name}, "
                    "which are for storage; convert them first, with .float()"
                )


def _table(rows: dict[str, str]) -> dict[str, frozenset[dtype]]:
    table: dict[str, frozenset[dtype]] = {}
    for letters, names in rows.items():
        kinds = frozenset([d for letter in letters.strip() for d in _LETTERS[letter]])
        for name in names.split():
            table[name] = table.get(name, frozenset()) | kinds
    return table


_errors: Final = ((NotImplementedError, _table(_NOT_IMPLEMENTED)), (RuntimeError, _table(_REFUSED)))


def _is_cast_first(name: str) -> bool:
    """Whether autocast is on and gives the function's tensors another dtype before they are used."""
    if local.main.autocast is None:
        return False
    from flambeau.ops.autocast_lists import LISTED

    plain = name.replace(".", "_")
    return not LISTED.isdisjoint((plain, plain + "_values", f"linalg_{plain}_ex"))  # by the names of our operations


def refuse_dtype(name: str, d: dtype, *tensors: Any) -> None:
    """NotImplementedError or RuntimeError if PyTorch's function `name` has no kernel for a dtype. `tensors`: those that it is given, where it may be
    that none is needed, as they are empty."""
    plain = name.removeprefix("nn.functional.")
    if plain in _UNLESS_EMPTY and not all(t._meta.numel for t in tensors):
        return
    for error, table in _errors:
        if d in table.get(name, table.get(plain, ())) and not _is_cast_first(plain):
            kind, shown = C_NAMES.get(d.name, d.name), name.replace("linalg_", "linalg.")
            raise error(
                f"\"{plain}_cpu\" not implemented for '{kind}': {shown}() does not take tensors of dtype {d.name}; convert them first, to a "
                "floating dtype with .float()"
            )


def has_rules(name: str) -> bool:
    """Whether there are dtypes for which PyTorch's function `name` has no kernel."""
    return any(name in table or name.removeprefix("nn.functional.") in table for _, table in _errors)


def refuse_dtypes(name: str, kinds: Sequence[str], args: Sequence[Any]) -> None:
    """The same of an operation's call. `kinds`: of its arguments (ops/registry.py)."""
    plain = name.removeprefix("nn.functional.")
    given: list[Any] = []
    for kind, a in zip(kinds, args, strict=True):
        if kind == "tensors":
            given.extend([t for t in a if t is not None])
        elif kind not in NO_TENSORS and a is not None:
            given.append(a)
    tensors = [t for t in given if hasattr(t, "_meta")]
    if not tensors:
        return
    if plain in _UNLESS_EMPTY and not all(t._meta.numel for t in tensors):
        return
    for a in args:  # cast before anything else: it is the dtype that counts
        wanted = of_type(a)
        if isinstance(wanted, dtype):
            return refuse_dtype(name, wanted)
    common = plain in _COMMON or all(kind == "operand" for kind in kinds)
    d = result_type(*given) if common else tensors[0]._meta.dtype
    if plain == "clamp" and len(given) == 2 and not any(t._meta.wrapped for t in tensors) and len(tensors) == 2:
        name = "clamp_min"  # one bound, a tensor: a maximum or a minimum, which has a kernel for more dtypes
    refuse_dtype(name, d)
