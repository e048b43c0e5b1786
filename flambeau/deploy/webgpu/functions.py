"""What each pointwise primitive is in WGSL, and the functions that WGSL has not.

WGSL lets a device compute as if there were no NaN and no infinities. So both are told by their bits, and infinities are read from a variable: a constant would
be an error. Functions of the language are as exact as it promises (sums and products to half a place, `exp`, `log` to some places); those below are made of
them and of polynomials, with an error of some places of float32, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flambeau.compiler.kernel import REFUSED
from flambeau.deploy.errors import BuildError
from flambeau.dtypes import dtype, float32, held

_OUT: Final = REFUSED >> 32  # what has been added to an index that is refused
Helper = tuple[str, tuple[str, ...]]  # the text, and the functions that it calls


def _function(text: str, *below: str) -> Helper:
    return text.strip(), below


_EXTREME: Final = """
fn {name}_f32(a: f32, b: f32) -> f32 {{ return select(select(select(b, a, a {sign} b), b, is_nan(b)), a, is_nan(a)); }}
"""

HELPERS: Final[Mapping[str, Helper]] = {
    "infinity": _function("var<private> infinity_bits: u32 = 0x7f800000u;\nfn infinity() -> f32 { return bitcast<f32>(infinity_bits); }"),
    "nan": _function("var<private> nan_bits: u32 = 0x7fc00000u;\nfn nan() -> f32 { return bitcast<f32>(nan_bits); }"),
    "is_nan": _function("fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }"),
    "maximum": _function(_EXTREME.format(name="maximum", sign=">"), "is_nan"),
    "minimum": _function(_EXTREME.format(name="minimum", sign="<"), "is_nan"),
    "fmax": _function("fn fmax_f32(a: f32, b: f32) -> f32 { return select(select(select(b, a, a > b), a, is_nan(b)), b, is_nan(a)); }", "is_nan"),
    "fmin": _function("fn fmin_f32(a: f32, b: f32) -> f32 { return select(select(select(b, a, a < b), a, is_nan(b)), b, is_nan(a)); }", "is_nan"),
    "byte_1": _function("fn byte_1(i: i32) -> i32 { return i32((weights[i / 4] >> (u32(i % 4) * 8u)) & 255u); }\n"
                        "fn signed_1(x: i32) -> i32 { return (x << 24u) >> 24u; }"),
    "byte_2": _function("fn byte_2(i: i32) -> i32 { return i32((weights[i / 2] >> (u32(i % 2) * 16u)) & 65535u); }\n"
                        "fn signed_2(x: i32) -> i32 { return (x << 16u) >> 16u; }"),
    "refuse": _function(
        "fn refuse(index: i32, bound: i32) {\n"
        f"  let named = index + select(0, {_OUT}, index < -{_OUT // 2}) - select(0, {_OUT}, index >= {_OUT // 2});\n"
        "  if (atomicExchange(&errors[0], 1) == 0) { atomicStore(&errors[1], named); atomicStore(&errors[2], bound); }\n}"),
    "inside": _function(
        "fn inside(index: i32, bound: i32) -> i32 {\n"
        "  let at = select(index, index + bound, index < 0);\n"
        "  if (at < 0 || at >= bound) { refuse(index, bound); return 0; }\n  return at;\n}", "refuse"),
    # exp(x) - 1 by its series where the difference would lose places.
    "expm1": _function("""
fn expm1_f32(x: f32) -> f32 {
  let near = x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * (0.0083333333 + x * (0.0013888889 + x * (1.984127e-4 + x * 2.4801587e-5)))))));
  return select(exp(x) - 1.0, near, abs(x) < 0.5);
}"""),
    # log((1 + s) / (1 - s)) by its series in s = x / (2 + x).
    "log1p": _function("""
fn log1p_f32(x: f32) -> f32 {
  let s = x / (2.0 + x);
  let t = s * s;
  let near = 2.0 * s * (1.0 + t * (0.33333333 + t * (0.2 + t * (0.14285714 + t * 0.11111111))));
  return select(log(1.0 + x), near, abs(x) < 0.25);
}"""),
    # Devices may say something else of 0 than -infinity.
    "log": _function("fn log_f32(x: f32) -> f32 { return select(log(x), -infinity(), x == 0.0); }", "infinity"),
    "log2": _function("fn log2_f32(x: f32) -> f32 { return select(log2(x), -infinity(), x == 0.0); }", "infinity"),
    # The language promises three places of sines. These are of polynomials over [-pi/4, pi/4] (Cephes), to which x is brought in three steps.
    "quadrant": _function("""
fn quadrant(x: f32) -> vec2<f32> {
  let n = round(x * 0.63661977);
  return vec2<f32>(((x - n * 1.5703125) - n * 4.8375129e-4) - n * 7.5497899e-8, n);
}
fn sine(r: f32) -> f32 {
  let t = r * r;
  return r + r * t * (-0.16666655 + t * (8.3321609e-3 - t * 1.9515296e-4));
}
fn cosine(r: f32) -> f32 {
  let t = r * r;
  return 1.0 - 0.5 * t + t * t * (4.1666646e-2 + t * (-1.3887316e-3 + t * 2.4433157e-5));
}
fn turned(r: f32, n: i32) -> f32 {
  let y = select(sine(r), cosine(r), (n & 1) == 1);
  return select(y, -y, (n & 2) == 2);
}"""),
    "sin": _function("fn sin_f32(x: f32) -> f32 { let q = quadrant(x); return turned(q.x, i32(q.y)); }", "quadrant"),
    "cos": _function("fn cos_f32(x: f32) -> f32 { let q = quadrant(x); return turned(q.x, i32(q.y) + 1); }", "quadrant"),
    "tan": _function("fn tan_f32(x: f32) -> f32 { let q = quadrant(x); return turned(q.x, i32(q.y)) / turned(q.x, i32(q.y) + 1); }", "quadrant"),
    "atan": _function("""
fn atan_f32(x: f32) -> f32 {
  let a = abs(x);
  let far = a > 2.4142135;
  let some = a > 0.41421356;
  let z = select(select(a, (a - 1.0) / (a + 1.0), some), -1.0 / a, far);
  let t = z * z;
  let y = select(select(0.0, 0.78539816, some), 1.5707963, far) + z + z * t * (-0.33332950 + t * (0.19977711 + t * (-0.13877686 + t * 0.080537445)));
  return select(y, -y, x < 0.0);
}"""),
    "atan2": _function("""
fn atan2_f32(y: f32, x: f32) -> f32 {
  let below = (bitcast<u32>(y) >> 31u) == 1u;
  let left = (bitcast<u32>(x) >> 31u) == 1u;
  let near = select(atan_f32(y / x), select(0.0, select(1.5707963, -1.5707963, below), y != 0.0), x == 0.0);
  return select(near, near + select(3.1415927, -3.1415927, below), left && (x != 0.0 || y == 0.0));
}""", "atan"),
    "asin": _function("fn asin_f32(x: f32) -> f32 { return atan2_f32(x, sqrt((1.0 - x) * (1.0 + x))); }", "atan2"),
    "acos": _function("fn acos_f32(x: f32) -> f32 { return atan2_f32(sqrt((1.0 - x) * (1.0 + x)), x); }", "atan2"),
    "tanh": _function("""
fn tanh_f32(x: f32) -> f32 {
  let e = expm1_f32(2.0 * clamp(abs(x), 0.0, 10.0));
  return select(select(e / (e + 2.0), -e / (e + 2.0), x < 0.0), x, is_nan(x));
}""", "expm1", "is_nan"),
    "sigmoid": _function("fn sigmoid_f32(x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }"),
    # A Chebyshev approximation of erfc with a relative error below 1.2e-7; near 0 the series of erf.
    "erfc": _function("""
fn erfc_f32(x: f32) -> f32 {
  let z = abs(x);
  let t = 1.0 / (1.0 + 0.5 * z);
  let y = t * exp(-z * z - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807
    + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
  return select(y, 2.0 - y, x < 0.0);
}"""),
    "erf": _function("""
fn erf_f32(x: f32) -> f32 {
  let t = x * x;
  let near = x * (1.1283792 + t * (-0.37612639 + t * (0.11283792 + t * (-0.026866171 + t * (0.0052239776 + t * (-8.5483270e-4 + t * 1.2055333e-4))))));
  return select(1.0 - erfc_f32(x), near, abs(x) < 0.5);
}""", "erfc"),
    "remainder": _function("fn remainder_f32(a: f32, b: f32) -> f32 { return a - b * floor(a / b); }\n"
                           "fn remainder_i32(a: i32, b: i32) -> i32 { let r = a % b; return select(r, r + b, r != 0 && ((r < 0) != (b < 0))); }"),
    "div_floor": _function("fn div_floor_i32(a: i32, b: i32) -> i32 { let q = a / b; return select(q, q - 1, a % b != 0 && ((a < 0) != (b < 0))); }"),
    "pow": _function("""
fn pow_f32(a: f32, b: f32) -> f32 {
  let whole = floor(b) == b;
  let odd = whole && floor(b * 0.5) * 2.0 != b;
  let size = select(exp2(b * log2(abs(a))), 0.0, a == 0.0 && b > 0.0);
  let y = select(size, -size, a < 0.0 && odd);
  return select(select(y, nan(), a < 0.0 && !whole), 1.0, b == 0.0 || a == 1.0);
}
fn pow_i32(a: i32, b: i32) -> i32 {
  var r = 1; var x = a; var n = b;
  while (n > 0) { if ((n & 1) == 1) { r *= x; } x *= x; n = n >> 1u; }
  return r;
}""", "nan"),
}  # fmt: skip

_BINARY: Final = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS: Final = {"bitwise_and": "&", "bitwise_or": "|"}
_BUILT_IN: Final = {
    "exp": "exp", "exp_weight": "exp", "exp2": "exp2", "sqrt": "sqrt", "rsqrt": "inverseSqrt",
    "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "sgn": "sign",
}  # fmt: skip
_BOOLS: Final = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "bitwise_xor": "({0} != {1})", "bitwise_not": "(!{0})", "maximum": "({0} | {1})", "minimum": "({0} & {1})",
    "add": "({0} | {1})", "mul": "({0} & {1})", "lt": "(!{0} & {1})", "le": "(!{0} | {1})", "gt": "({0} & !{1})", "ge": "({0} | !{1})",
}  # fmt: skip
_INTEGERS: Final = {
    "neg": "(-{0})", "abs": "abs({0})", "sgn": "sign({0})", "maximum": "max({0}, {1})", "minimum": "min({0}, {1})", "fmax": "max({0}, {1})",
    "fmin": "min({0}, {1})", "div_trunc": "({0} / {1})", "fmod": "({0} % {1})", "bitwise_and": "({0} & {1})", "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})", "bitwise_not": "(~{0})", "shift_left": "({0} << u32({1}))", "shift_right": "({0} >> u32({1}))",
    "floor": "{0}", "ceil": "{0}", "trunc": "{0}", "round": "{0}", "isnan": "false", "conj_physical": "{0}",
}  # fmt: skip
_FLOATS: Final = {
    "neg": "(-{0})", "abs": "abs({0})", "reciprocal": "(1.0 / {0})", "div": "({0} / {1})", "div_floor": "floor({0} / {1})",
    "div_trunc": "trunc({0} / {1})", "fmod": "({0} % {1})", "hypot": "length(vec2<f32>({0}, {1}))", "conj_physical": "{0}", "real_part": "{0}",
    "copysign": "bitcast<f32>((bitcast<u32>({0}) & 0x7fffffffu) | (bitcast<u32>({1}) & 0x80000000u))",
}  # fmt: skip
_OWN: Final = frozenset("log log2 sin cos tan asin acos atan expm1 log1p tanh sigmoid erf erfc".split())


def literal(number: Any, kind: str) -> tuple[str, tuple[str, ...]]:
    """A constant of a type, and the functions that it calls. BuildError for a whole number that needs more than 32 bits."""
    if kind == "bool":
        return ("true" if number else "false"), ()
    if kind == "i32":
        n = int(number)
        if abs(n) in (REFUSED, REFUSED // 2):  # what takes an index out of every range does so with 32 bits, too
            n = (n >> 32) if n > 0 else -(-n >> 32)
        if not -(1 << 31) < n < 1 << 31:
            raise BuildError(f"the number {n} needs more than the 32 bits that integers have in shaders")
        return f"i32({n})", ()
    x = float(number)
    if math.isnan(x):
        return "nan()", ("nan",)
    if math.isinf(x) or abs(x) > 3.4028234e38:
        return ("infinity()" if x > 0 else "-infinity()"), ("infinity",)
    return f"f32({held(x, float32)!r})", ()


def apply(op: str, d: dtype, kind: str, xs: Sequence[str], attrs: Mapping[str, Any], to: str) -> tuple[str, tuple[str, ...]]:
    """A primitive of operands of dtype `d` (shader type `kind`; of `where`: of its last two), with a result of type `to`; the functions that it calls."""
    if op == "where":
        return f"select({xs[2]}, {xs[1]}, {xs[0]})", ()
    if op == "cast":
        return _cast(xs[0], d, kind, attrs["dtype"], to)
    if kind == "bool":
        return _of_bools(op, xs), ()
    if kind == "i32" and d.name not in ("int64", "int32") and op not in _BINARY.keys() - {"add", "sub", "mul"}:
        raise BuildError(f"{op} of {d}: shaders compute with float32, int32 and int64; convert it in the model")
    if op in _BINARY:
        return f"({xs[0]} {_BINARY[op]} {xs[1]})", ()
    found = _of_integers(op, xs) if kind == "i32" else _of_floats(op, xs)
    if found is None:
        raise BuildError(f"{op} of {d} is not there in WGSL yet: take it out of the model, or build it for wasm32")
    return found


def _of_bools(op: str, xs: Sequence[str]) -> str:
    if op in _BITS:
        return f"({xs[0]} {_BITS[op]} {xs[1]})"
    found = _BOOLS.get(op)
    if found is None:
        raise BuildError(f"{op} of bool is not there in WGSL yet")
    return found.format(*xs)


def _of_integers(op: str, xs: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    if op in _INTEGERS:
        return _INTEGERS[op].format(*xs), ()
    if op in ("remainder", "div_floor", "pow"):
        return f"{op}_i32({xs[0]}, {xs[1]})", (op,)
    return None


def _of_floats(op: str, xs: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    if op in _BUILT_IN:
        return f"{_BUILT_IN[op]}({xs[0]})", ()
    if op in _OWN:
        return f"{op}_f32({xs[0]})", (op,)
    if op in _FLOATS:
        return _FLOATS[op].format(*xs), ()
    if op == "isnan":
        return f"is_nan({xs[0]})", ("is_nan",)
    if op == "log10":
        return f"(log2_f32({xs[0]}) * 0.30103)", ("log2",)
    if op == "erf_plus_one":
        return f"erfc_f32(-{xs[0]})", ("erfc",)
    if op in ("maximum", "minimum", "fmax", "fmin", "pow", "remainder", "atan2"):
        return f"{op}_f32({xs[0]}, {xs[1]})", (op,)
    return None


def _cast(x: str, d: dtype, kind: str, target: dtype, to: str) -> tuple[str, tuple[str, ...]]:
    if target.name in ("uint8", "int8", "int16") and d.name != target.name and kind != "bool":
        raise BuildError(f"a cast from {d} to {target} is not there in WGSL yet; shaders compute with float32, int32 and int64")
    if kind == to:
        return x, ()
    if to == "bool":
        return f"({x} != {'0.0' if kind == 'f32' else '0'})", ()
    if kind == "bool":
        return f"select({to}(0), {to}(1), {x})", ()
    return f"{to}({x})", ()


Combine = Callable[[str, str], tuple[str, tuple[str, ...]]]


def identity(op: str, kind: str) -> tuple[str, tuple[str, ...]]:
    """Where a reduction begins."""
    if kind == "bool":
        return ("false" if op in ("amax", "sum") else "true"), ()
    if op in ("sum", "prod"):
        return f"{kind}({int(op == 'prod')})", ()
    least = op in ("amax", "argmax")
    if kind == "i32":
        return ("i32(-2147483647 - 1)" if least else "i32(2147483647)"), ()
    return literal(-math.inf if least else math.inf, kind)


def combine(op: str, kind: str, a: str, b: str) -> tuple[str, tuple[str, ...]]:
    """Two partial results of sum, prod, amax or amin as one."""
    if kind == "bool":
        return f"({a} {'|' if op in ('amax', 'sum') else '&'} {b})", ()
    if op in ("sum", "prod"):
        return f"({a} {'+' if op == 'sum' else '*'} {b})", ()
    name = "maximum" if op == "amax" else "minimum"
    return (f"{name}_f32({a}, {b})", (name,)) if kind == "f32" else (f"{name[:3]}({a}, {b})", ())
