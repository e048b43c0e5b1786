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


_DROPOUT = Known("dropout draws from its own stream (docs/differences.md)", values=False)
_RANDOM = Known("random, and vectors are unique up to signs only", values=False)
_LAYOUT = Known("PyTorch's result is a view of what LAPACK or the transform left, in its order of dims", strides=False)
_ONE_TRIANGLE = Known("only one triangle is read: to the other ours gives zero, PyTorch the mirror image", gradients=0)
_HERMITIAN = Known("the gradient of a function of Hermitian matrices is unique up to an anti-Hermitian part", gradients=0)
_EXACT = Known("PyTorch's is off by up to 3e-6; ours agrees with SciPy's to 4e-16", tolerance=1e-5)
_PHASE = Known("imaginary parts are unique up to multiples of 2 pi", values=False)
_NAN_SECOND = Known("PyTorch's second gradient is NaN where ours is zero or has a value", gradients=1)

KNOWN: dict[str, Known] = {
    **dict.fromkeys(
        ("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
         "nn.functional.feature_alpha_dropout/with_train", "nn.functional.rrelu", "nn.functional.multi_head_attention_forward"), _DROPOUT,
    ),
    **dict.fromkeys(("svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh"), _RANDOM._replace(strides=False)),
    **dict.fromkeys(("svd", "linalg.svd", "linalg.tensorinv", "contiguous"), _LAYOUT),
    **dict.fromkeys(("cholesky_inverse", "cholesky_solve"), _ONE_TRIANGLE),
    **dict.fromkeys(("cholesky", "linalg.cholesky", "linalg.cholesky_ex"), _HERMITIAN),
    "linalg.eigvalsh": Known("its second gradient asks for derivatives of eigenvectors of the triangle that is read", gradients=1),
    **{f"special.{name}": _EXACT for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")},
    "logcumsumexp": _PHASE._replace(values=True, reason="complex: " + _PHASE.reason),
    "masked.logaddexp": _NAN_SECOND,
    "linalg.norm/subgradients_at_zero": _NAN_SECOND,
    "index_reduce/prod": Known("the second gradient where factors are zero", gradients=1),
    "scatter_reduce/prod": Known("the second gradient where factors are zero", gradients=1),
    "as_strided_scatter": Known("PyTorch's gradient to the base is that of other places (a fault of 2.13)", gradients=0),
    "kthvalue": Known("of equal values any index may be given", values=False),
    "topk": Known("of equal values any index may be given", values=False),
    "nextafter": Known("PyTorch's gradient of a step function", gradients=0),
    "unravel_index": _LAYOUT,
    "nn.functional.avg_pool3d": Known("means of whole numbers are rounded in another way", values=False),
    "normal": Known("zeros in PyTorch, no gradient here", gradients=0),
    "normal/number_mean": Known("zeros in PyTorch, no gradient here", gradients=0),
}  # fmt: skip

# By form and operator: what holds in this form only.
FORMS_KNOWN: dict[tuple[str, str], Known] = {}

# Errors whose text does not name the operation, with a reason.
UNNAMED: dict[str, str] = {}

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
        or any(type(v).__name__ == "PairwiseDistance" for v in kwargs.values())  # a module of PyTorch's as an argument
        or (label == "logcumsumexp" and dtype.startswith("complex"))
        or (label == "gather" and any(getattr(a, "dtype", "") == "uint8" for a in args))  # an empty index of any dtype and shape
    )
