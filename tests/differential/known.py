"""What the comparison with PyTorch's database leaves out, operator by operator, with the reason."""

from __future__ import annotations

from typing import Any, NamedTuple


class Known(NamedTuple):
    """What is not compared of an operator. Its dtypes, shapes and errors always are."""

    reason: str
    values: bool = True
    gradients: int = 2  # the highest order that is compared
    strides: bool = True
    tolerance: float | None = None
    ties: bool = False  # whole numbers in results are indices among equal values: not compared where those may repeat


NOTHING = Known("nothing is left out")
_DROPOUT = Known("dropout draws from its own stream (docs/differences.md)", values=False)
_RANDOM = Known("random, and vectors are unique up to signs only", values=False)
_LAYOUT = Known("PyTorch's result is a view of what LAPACK or the transform left, in its order of dims", strides=False)
_ONE_TRIANGLE = Known("only one triangle is read: to the other ours gives zero, PyTorch the mirror image", gradients=0)
_HERMITIAN = Known("the gradient of a function of Hermitian matrices is unique up to an anti-Hermitian part", gradients=0)
_EXACT = Known("PyTorch's is off by up to 3e-6; ours agrees with SciPy's to 4e-16", tolerance=1e-5)
_PHASE = Known("imaginary parts are unique up to multiples of 2 pi", values=False)
_FIXED = Known("PyTorch's weights have 8 to 15 bits there: off by one at most", values=False)
_TIES = Known("of equal values any index may be given", ties=True)
_NAN_SECOND = Known("PyTorch's second gradient is NaN where ours is zero or has a value", gradients=1)

KNOWN: dict[str, Known] = {
    **dict.fromkeys(
        ("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
         "nn.functional.feature_alpha_dropout/with_train", "nn.functional.rrelu", "nn.functional.multi_head_attention_forward"), _DROPOUT,
    ),
    **dict.fromkeys(("svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh"), _RANDOM._replace(strides=False)),
    "contiguous": _LAYOUT,
    **dict.fromkeys(("cholesky_inverse", "cholesky_solve"), _ONE_TRIANGLE),
    **dict.fromkeys(("cholesky", "linalg.cholesky", "linalg.cholesky_ex"), _HERMITIAN),
    "special.ndtr": Known("PyTorch's float32 is zero in the tail, where ours has all digits", tolerance=1e-7),
    "linalg.eigvalsh": Known("its second gradient asks for derivatives of eigenvectors of the triangle that is read", gradients=1),
    **{f"special.{name}": _EXACT for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")},
    "logcumsumexp": _PHASE._replace(values=True, reason="complex: " + _PHASE.reason),
    "masked.logaddexp": _NAN_SECOND,
    "linalg.norm/subgradients_at_zero": _NAN_SECOND,
    "index_reduce/prod": Known("the second gradient where factors are zero", gradients=1),
    "scatter_reduce/prod": Known("the second gradient where factors are zero", gradients=1),
    "as_strided_scatter": Known("PyTorch's gradient to the base is that of other places (a fault of 2.13)", gradients=0),
    **dict.fromkeys(("kthvalue", "topk", "mode", "sort", "argsort", "msort"), _TIES),
    **dict.fromkeys(("special.i1", "special.i1e"), Known("PyTorch's float32 at 8 is off by 1e-6: i1(8) = 399.873137", tolerance=1e-5)),
    "signal.windows.kaiser": Known("NaN in PyTorch for a large beta, whose Bessel function overflows", values=False),
    "nn.functional.avg_pool3d": Known("means of whole numbers are rounded in another way", values=False),
    **{f"nn.functional.{n}:uint8": _FIXED for n in ("interpolate/bilinear", "interpolate/bicubic", "upsample_bilinear")},
    **{f"histc:{n}": Known("counts of PyTorch's bins with 16-bit borders, ours with float32's", values=False) for n in ("float16", "bfloat16")},
    "nn.functional.local_response_norm:int64": Known("means of whole numbers are rounded in another way", values=False),
    "logsumexp:complex64": Known("PyTorch's gradient in complex64 is 1% off its own in complex128", gradients=0),
    "linalg.vector_norm:complex64": Known("the second gradient of a sixth power's root has lost some digits", gradients=1),
    "matrix_exp:bfloat16": Known("NaN in PyTorch, whose Taylor terms overflow", values=False),
    "matrix_exp:float16": Known("NaN in PyTorch, whose Taylor terms overflow", values=False),
}  # fmt: skip

_NO_MATRIX = "answers for matrices without elements that are not square"
_NO_SENSE = "answers for shapes that do not fit"
_NO_ORDER = "NaN, zeros of two signs or equal values in an order that is not told"
_LAPACK = (
    "cholesky_inverse cholesky_solve lu lu_solve lu_unpack geqrf ormqr pinverse svd symeig matrix_exp lstsq triangular_solve logdet qr inverse "
    "linalg.cholesky_ex linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.svd linalg.svdvals linalg.lstsq linalg.lu linalg.lu_factor "
    "linalg.lu_factor_ex linalg.lu_solve linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.qr linalg.pinv linalg.pinv/singular "
    "linalg.pinv/hermitian linalg.cond linalg.matrix_rank linalg.matrix_rank/hermitian linalg.matrix_norm linalg.norm linalg.inv linalg.inv_ex "
    "linalg.solve linalg.solve_ex linalg.solve_triangular linalg.det linalg.slogdet linalg.tensorinv linalg.tensorsolve linalg.householder_product "
    "linalg.matrix_power linalg.norm/subgradients_at_zero linalg.multi_dot norm/nuc svd_lowrank pca_lowrank".split()
)
_RESAMPLING = (
    *[f"nn.functional.interpolate/{n}" for n in "linear bilinear bicubic trilinear area".split()], "nn.functional.upsample_bilinear",
    *[f"nn.functional.adaptive_avg_pool{d}d" for d in (1, 2, 3)], *[f"nn.functional.conv_transpose{d}d" for d in (1, 2, 3)],
)  # fmt: skip
_TRANSFORMS = ("stft", "istft", *[f"fft.{a}{b}fft{c}" for a in ("", "i") for b in ("", "r", "h") for c in ("", "2", "n")])
_HIDDEN = (
    "polygamma/polygamma_n_0 polygamma/polygamma_n_1 polygamma/polygamma_n_2 polygamma/polygamma_n_3 polygamma/polygamma_n_4 igamma igammac cdist "
    "var_mean std_mean native_batch_norm nn.functional.instance_norm nn.functional.embedding_bag nn.functional.grid_sample grid_sampler_2d "
    "grid_sampler_3d nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss nn.functional.fractional_max_pool2d "
    "nn.functional.fractional_max_pool3d nn.functional.hardswish special.polygamma/special_polygamma_n_0".split()
)
_POLYNOMIALS = (
    *[f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"], "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p",
)  # fmt: skip
_REFLECTED = "Tensor.__radd__ and its like take numbers first: they are the functions themselves"
# By form and operator: what is not called in this form at all, and why (what PyTorch does there, where it is PyTorch's).
FORMS_KNOWN: dict[tuple[str, str], str] = {
    ("inplace", "addbmm"): "resizes the tensor that it writes",
    ("out", "addbmm"): "gives back another tensor than `out` where it resizes that",
    **dict.fromkeys([("out", n) for n in "fft.ihfft2 fft.ihfftn".split()], "leaves `out` as it was where the transform is of one dim"),
    ("out", "nn.functional.linear"): "warns of a resized `out` that it has resized itself (vectors)",
    ("out", "nn.functional.gelu"): "leaves an `out` that is not contiguous as it was",
    ("out", "randn"): "complex numbers are drawn in the order of addresses",
    ("inplace", "as_strided"): "loses places that overlap from the gradient",
    ("inplace", "as_strided/partial_views"): "loses places that overlap from the gradient",
    ("inplace", "nn.functional.dropout3d"): "p=0 writes nothing here, so that a leaf passes",
    ("out", "normal"): "another type of error for whole numbers",
    **dict.fromkeys([("out", n) for n in "logspace logspace/tensor_overload linspace linspace/tensor_overload".split()], "empty results do not resize"),
    **dict.fromkeys([("out", n) for n in "zeros ones full normal/number_mean".split()], "resizes without a warning"),
    **dict.fromkeys([("out", n) for n in "abs fft.ifft".split()], "casts from some dtypes only"),
    ("out", "narrow_copy"): "wrong values where out is not contiguous, and writes past the end of one that is expanded",
    **dict.fromkeys([("size", n) for n in "cholesky cond linalg.cond linalg.tensorsolve linalg.pinv/hermitian lu_unpack ormqr".split()], _NO_MATRIX),
    **dict.fromkeys([("size", n) for n in "linalg.matrix_rank/hermitian linalg.ldl_solve".split()], _NO_MATRIX),
    **dict.fromkeys([("size", n) for n in "native_batch_norm addmv nn.functional.multilabel_margin_loss nn.functional.bilinear".split()], _NO_SENSE),
    ("size", "nn.functional.dropout3d"): _NO_SENSE,
    ("size", "nn.functional.ctc_loss"): _NO_SENSE,
    ("layout", "nanmedian"): "reads beyond expanded memory",
    ("layout", "ormqr"): "answers for matrices without elements",
    ("size", "resize_"): "uninitialised memory",
    **{("special", f"special.{n}"): "an order that is not finite is refused" for n in _POLYNOMIALS},
    ("special", "special.zeta"): "NaN at infinity, where the limit is 0",
    **dict.fromkeys([("special", n) for n in _LAPACK], "LAPACK's answers to NaN and infinities depend on its build, or do not come at all"),
    **dict.fromkeys([("special", n) for n in _RESAMPLING], "a product with a matrix: what is not finite spreads (docs/differences.md)"),
    **dict.fromkeys([("special", n) for n in _TRANSFORMS], "transforms of NaN: which parts are NaN depends on the algorithm"),
    **dict.fromkeys([("special", n) for n in "mode unique unique_consecutive sort argsort msort bucketize searchsorted topk kthvalue".split()], _NO_ORDER),
    **dict.fromkeys([("special", n) for n in _HIDDEN], "drops NaN by the order of its comparisons, or gives NaN where a limit exists"),
    **dict.fromkeys([("errors", f"__r{n}__") for n in "add div mul and or xor".split()], _REFLECTED),
    ("numbers", "__rsub__"): "takes no alpha there",
    ("errors", "narrow_copy"): "an internal assertion, where ours is narrow's IndexError",
    **dict.fromkeys([("errors", f"jiterator_{n}") for n in "binary binary_return_by_ref".split()], "GPUs only"),
}

# Names of the dispatcher rather than of the interface: nobody writes them in a program.
INTERNAL = frozenset(
    "_softmax_backward_data _native_batch_norm_legit _batch_norm_with_update _upsample_bilinear2d_aa torch.ops.aten._safe_softmax.default "
    "_unsafe_masked_index _unsafe_masked_index_put_accumulate _chunk_cat native_dropout_backward max_pool2d_with_indices_backward slice "
    "hash_tensor chalf linalg.lstsq/grad_oriented nn.functional.linear_cross_entropy/chunked nn.functional.linear_cross_entropy/chunked_none".split()
)


def skipped(label: str, dtype: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Cases in which a whole call is beside the point."""
    return bool(
        kwargs.get("dropout_p")  # attention with dropout
        or (label == "logcumsumexp" and dtype.startswith("complex"))
        or (dtype == "uint8" and label == "scalar_tensor")  # of a negative number, which is refused
        or (label == "gather" and any(getattr(a, "dtype", "") == "uint8" for a in args))  # an empty index of any dtype and shape
    )
