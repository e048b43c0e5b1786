"""What float32 functions are measured against, and how far they may be off: shared by test_math.py and exhaustive.py.

The references are float64 functions of NumPy and SciPy, good to about 2^-50 of a float32 result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as special

Array = np.ndarray[Any, Any]


def _lgamma(x: Array) -> Array:
    return np.where(np.isinf(x), np.inf, special.gammaln(x))  # C's value at -inf


def _digamma(x: Array) -> Array:
    return np.where(x == 0, np.copysign(np.inf, -x), special.digamma(x))


REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": special.erf, "erfc": special.erfc, "erfinv": special.erfinv, "lgamma": _lgamma,
    "digamma": _digamma, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x,
}  # fmt: skip
# Units in the last place. Computed in float: at most 1. Through double: rounded once, give or take a near tie.
# rsqrt is 1 / sqrt(x), two roundings, as in PyTorch.
BOUND_FLOAT32: dict[str, float] = {
    **dict.fromkeys(REFERENCE, 0.51),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid"), 1.0),
    **dict.fromkeys(("lgamma", "digamma"), 1.0),
    "rsqrt": 1.5,
}
