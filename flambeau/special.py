"""torch.special: special functions. They are in ops/elementwise.py, ops/reductions.py and ops/special_*.py."""

from __future__ import annotations

from typing import Any

from flambeau.nn.functional import log_softmax as _log_softmax
from flambeau.nn.functional import softmax as _softmax
from flambeau.ops.elementwise import digamma, erf, erfc, erfinv, exp2, expm1, log1p, logit, sinc, xlogy
from flambeau.ops.elementwise import lgamma as gammaln
from flambeau.ops.elementwise import round_ as round
from flambeau.ops.elementwise import sigmoid as expit
from flambeau.ops.named import renamed
from flambeau.ops.numeric import mvlgamma as multigammaln
from flambeau.ops.reductions import logsumexp
from flambeau.ops.special_bessel import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    i0,
    i0e,
    i1,
    i1e,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from flambeau.ops.special_gamma import gammainc, gammaincc, polygamma, zeta
from flambeau.ops.special_normal import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py
from flambeau.ops.special_polynomials import POLYNOMIALS

psi = digamma
globals().update({name: renamed(function, input="x") for name, function in POLYNOMIALS.items()})
airy_ai, spherical_bessel_j0, scaled_modified_bessel_k0, scaled_modified_bessel_k1 = [
    renamed(f, input="x") for f in (airy_ai, spherical_bessel_j0, scaled_modified_bessel_k0, scaled_modified_bessel_k1)
]

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit",
    "expm1", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma",
    "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta", *POLYNOMIALS,
]  # fmt: skip


def softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along a dim."""
    return _softmax(input, dim, dtype=dtype)


def log_softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """log(softmax(x)) along a dim, without overflow."""
    return _log_softmax(input, dim, dtype=dtype)


def __getattr__(name: str) -> Any:
    from flambeau.names import otherwise

    return otherwise("torch.special", name, __all__)


from flambeau.documentation import document as _document  # noqa: E402
from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("special", globals())
_document("torch.special", globals())
