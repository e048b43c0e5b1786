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


def _erfinv(x: Array) -> Array:
    inside = np.abs(x) <= 1  # SciPy is a thousand times slower outside
    return np.where(inside, special.erfinv(np.where(inside, x, 0)), np.nan)


REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp_weight": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": special.erf, "erfc": special.erfc, "erfinv": _erfinv, "lgamma": _lgamma,
    "digamma": _digamma, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x,
}  # fmt: skip
# Units in the last place. Computed in float: at most 1. Through double: rounded once, give or take a near tie.
# rsqrt is more exact than PyTorch's 1 / sqrt(x).
BOUND_FLOAT32: dict[str, float] = {
    **dict.fromkeys(REFERENCE, 0.51),
    **dict.fromkeys(("exp", "exp2", "exp_weight", "sigmoid"), 1.0),  # exp: subnormal results are rounded twice; others 0.56
    **dict.fromkeys(("log", "log1p", "sin", "cos", "erf"), 0.7),
    **dict.fromkeys(("expm1", "tanh"), 0.6),
    **dict.fromkeys(("lgamma", "digamma"), 1.0),
    "rsqrt": 0.51,
}
# float64, checked on samples against long double or mpmath. Of lgamma and digamma the error near their roots is
# absolute: see test_math.py::test_gamma_in_double.
BOUND_FLOAT64: dict[str, float] = {
    "exp": 1, "exp_weight": 1, "exp2": 1, "expm1": 1.5, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1, "cos": 1, "tan": 1.1,
    "asin": 1.5, "acos": 1.5, "atan": 1.5, "sinh": 2, "cosh": 2, "tanh": 2, "asinh": 2, "acosh": 2.5, "atanh": 2,
    "erf": 1.5, "erfc": 3, "erfinv": 3, "sigmoid": 1,
}  # fmt: skip
BOUND_BINARY: dict[str, dict[str, float]] = {
    "float32": {"pow": 0.51, "atan2": 0.51, "hypot": 0.51},
    "float64": {"pow": 1, "atan2": 1.5, "hypot": 1},
}
