"""Our own vector mathematics, by primitive name: functions of float or double `Lanes`.

Every function is branch-free (but for the reduction of huge circular arguments) and gives the same bits for every
number of lanes. Errors in units in the last place, measured over all inputs: docs/accuracy.md. The families are in
math_exp.py, math_log.py, math_trig.py, math_erf.py and math_gamma.py.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.emit.math_erf import erf, erf_plus_one, erfc, erfinv
from flambeau.compiler.emit.math_exp import cosh, exp, exp2, exp_weight, expm1, sigmoid, sinh, tanh
from flambeau.compiler.emit.math_gamma import digamma, lgamma
from flambeau.compiler.emit.math_log import acosh, asinh, atanh, log, log1p, log2, log10, pow
from flambeau.compiler.emit.math_trig import acos, asin, atan, atan2, cos, hypot, sin, tan

__all__ = [
    "BINARY",
    "UNARY",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erf_plus_one",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "exp_weight",
    "expm1",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "pow",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
]  # fmt: skip

UNARY: dict[str, Callable[[Lanes], Lanes]] = {
    "exp": exp, "exp_weight": exp_weight, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p, "sin": sin,
    "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "tanh": tanh,
    "asinh": asinh, "acosh": acosh, "atanh": atanh, "erf": erf, "erfc": erfc, "erfinv": erfinv, "erf_plus_one": erf_plus_one, "lgamma": lgamma,
    "digamma": digamma, "sigmoid": sigmoid,
}  # fmt: skip
BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {"atan2": atan2, "hypot": hypot, "pow": pow}
