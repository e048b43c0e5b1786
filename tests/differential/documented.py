"""Variants of PyTorch's operators whose difference is documented: a table of operators and forms, each with the heading of docs/differences.md that says why.

A variant (variants.py) that differs in more of its samples than its entry allows is not the documented one any more, and counts as differing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple


class Documented(NamedTuple):
    """`share`: of the samples that may differ. `forms`: of the variants; none: all but wrong calls."""

    heading: str
    share: float
    forms: tuple[str, ...] = ()


_CALLED: Final = ("function", "method", "out", "reference")
_BESSEL: Final = "special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1"
_BYTES: Final = "nn.functional.interpolate/bilinear nn.functional.interpolate/bicubic nn.functional.upsample_bilinear"
_REFLECTED: Final = " ".join([f"__r{name}__" for name in "add div mul sub and or xor mod pow matmul".split()])
_FAULTS: Final = "Faults of PyTorch 2.13"
_EXACT: Final = "PyTorch's values are less exact"
_ORDER: Final = "Float32 sums in another order"

# Operators, by their names in the database, with the entry of each.
_TABLE: Final[tuple[tuple[str, Documented], ...]] = (
    ("kthvalue mode topk sort argsort msort", Documented("More than one answer is right", 0.5)),
    ("linalg.eig linalg.eigh svd_lowrank pca_lowrank", Documented("More than one answer is right", 0.75)),
    ("linalg.svd linalg.eigvals", Documented("More than one answer is right", 0.1)),
    ("logcumsumexp", Documented("More than one answer is right", 0.4)),
    (
        "cholesky linalg.cholesky linalg.cholesky_ex cholesky_inverse cholesky_solve",
        Documented("Gradients of decompositions are those of the triangle that is read", 0.6),
    ),
    (_BESSEL, Documented(_EXACT, 0.5)),
    ("special.i1 special.i1e", Documented(_EXACT, 0.3)),
    ("special.log_ndtr", Documented(_EXACT, 0.1)),
    ("signal.windows.kaiser", Documented(_EXACT, 0.35, _CALLED)),
    ("special.ndtr", Documented(_EXACT, 0.05, ("function", "out", "method"))),
    ("igamma igammac", Documented(_EXACT, 0.1, ("reference",))),
    ("add sub", Documented(_EXACT, 0.05, ("reference",))),
    ("native_group_norm", Documented(_EXACT, 0.05, ("function", "reference"))),
    ("matrix_exp histc nn.functional.local_response_norm logsumexp", Documented(_EXACT, 0.2, _CALLED)),
    (_BYTES, Documented(_EXACT, 0.2)),
    ("digamma polygamma/polygamma_n_0 special.polygamma/special_polygamma_n_0", Documented(_EXACT, 0.15)),
    ("polygamma/polygamma_n_4", Documented(_EXACT, 0.05)),
    ("native_batch_norm", Documented(_EXACT, 0.05, ("function", "reference"))),
    ("logaddexp xlogy special.xlog1py", Documented("Gradients where PyTorch's are NaN or lose a share", 0.1, ("reference",))),
    ("scatter_reduce/amax scatter_reduce/amin index_reduce/amax index_reduce/amin", Documented("Gradients where PyTorch's are NaN or lose a share", 0.1)),
    ("fft.irfft2 fft.irfftn fft.fftn fft.hfft2", Documented(_ORDER, 0.1)),
    ("masked.softmin masked.softmax nn.functional.scaled_dot_product_attention", Documented(_ORDER, 0.05)),
    ("nn.functional.multi_head_attention_forward", Documented(_ORDER, 0.25)),  # one of its four samples
    ("special.laguerre_polynomial_l", Documented(_EXACT, 0.05)),
    ("__rdiv__ cov nn.functional.normalize nn.functional.instance_norm nn.functional.triplet_margin_loss", Documented(_ORDER, 0.05)),
    ("nn.functional.softmin", Documented(_ORDER, 0.1)),
    ("logsumexp", Documented(_ORDER, 0.1, ("out",))),
    (
        "nn.functional.softshrink nn.functional.hardshrink nn.functional.hardtanh nn.functional.elu nn.functional.celu nn.functional.selu",
        Documented("By the place in a vector", 0.25),
    ),
    ("nn.functional.relu6", Documented("By the place in a vector", 0.1)),
    ("nn.functional.grid_sample", Documented(_FAULTS, 0.6, ("reference",))),
    ("as_strided_scatter", Documented(_FAULTS, 0.6)),
    ("polar", Documented(_FAULTS, 0.2, ("reference",))),
    ("fft.ihfft2 fft.ihfftn", Documented(_FAULTS, 0.5, ("out",))),
    ("nn.functional.gelu lerp linalg.lu nn.functional.linear matmul abs fft.ifft fft.ihfft any all", Documented(_FAULTS, 0.3, ("out",))),
    ("narrow_copy", Documented(_FAULTS, 0.5, ("out",))),
    ("narrow_copy", Documented(_FAULTS, 0.2, ("errors",))),
    ("addbmm", Documented(_FAULTS, 0.5, ("out", "inplace"))),
    ("linalg.tensorinv svd", Documented("Where the strides of a result differ", 0.2)),
    ("randn", Documented("Where the strides of a result differ", 0.5, ("out",))),
    ("float_power pow __rpow__ acosh sigmoid nn.functional.silu/complex", Documented("Poles and signed zeros of the larger set", 0.1, ("reference",))),
    ("polygamma/polygamma_n_2", Documented("Poles and signed zeros of the larger set", 0.1)),
    ("normal nanmean native_batch_norm diff", Documented("Other types of errors for a dtype of `out`", 0.45, ("out",))),
    ("nn.functional.dropout3d", Documented("Other types of errors for a dtype of `out`", 0.1, ("inplace",))),
    (_REFLECTED, Documented("Names that are called with a number first", 1.0, ("errors",))),
    (_REFLECTED, Documented("Names that are called with a number first", 0.05, ("reference",))),
    ("histogramdd", Documented("Edges that are not in order", 0.1)),
)


def entries() -> Iterator[tuple[str, Documented]]:
    """Each operator of the table with its entry."""
    for operators, entry in _TABLE:
        for label in operators.split():
            yield label, entry


def documented(label: str, form: str, differing: float) -> Documented | None:
    """The entry of a variant of which this share of the samples differs."""
    for name, entry in entries():
        if name == label and (form in entry.forms if entry.forms else form != "errors") and differing <= entry.share:
            return entry
    return None
