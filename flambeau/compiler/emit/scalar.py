"""What each pointwise primitive of `compiler/graph.py` is, in LLVM IR, for every dtype and any number of lanes.

`apply` is the dispatch; the arithmetic is in integer.py, floating.py, math.py (our own polynomials), complex.py,
convert.py (casts, memory) and philox.py. Register layouts are described in convert.py. The same instructions are made
for every width and nothing is fast-math: lane i of a result depends on lane i of the inputs alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from typing import cast as typed

from flambeau.compiler.emit import complex as cx
from flambeau.compiler.emit import convert, floating, integer
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.convert import (
    Value,
    gather,
    load,
    narrow,
    register_element,
    register_type,
    scatter,
    store,
)
from flambeau.compiler.emit.lanes import Lanes, literal
from flambeau.compiler.emit.lanes import constant as lane_constant
from flambeau.compiler.emit.philox import random_uniform
from flambeau.dtypes import bool_, dtype, held

__all__ = [
    "Value", "apply", "broadcast", "constant", "gather", "horizontal", "load", "random_uniform", "reduce_combine",
    "reduce_identity", "register_element", "register_type", "round_to", "scatter", "store",
]  # fmt: skip

# Binary operations whose float16/bfloat16 result is one of the operands, or already of the narrow type: no rounding.
_EXACT = frozenset(
    ("neg", "abs", "sgn", "floor", "ceil", "trunc", "round", "conj_physical", "maximum", "minimum", "fmax", "fmin",
     "copysign")
)  # fmt: skip
_PREDICATES = {
    "float": {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"},
    "signed": {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"},
    "unsigned": {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"},
}


def constant(b: Builder, d: dtype, number: complex, width: int) -> Value:
    """A Python number in every lane, converted to `d` (integers wrap, narrow floats round)."""
    element = register_element(d)
    if d.is_complex:
        value = complex(number)
        if d.itemsize == 4:
            value = complex(held(value.real, d.to_real()), held(value.imag, d.to_real()))
        return lane_constant(element, width, value.real), lane_constant(element, width, value.imag)
    if isinstance(number, complex):
        raise TypeError(f"constant: a complex number {number!r} has no {d.name} value; give a real number")
    if d.is_floating_point:
        return lane_constant(element, width, held(float(number), d) if d.itemsize <= 2 else float(number))
    return lane_constant(element, width, bool(number) if d is bool_ else int(number))


def broadcast(b: Builder, d: dtype, value: Value, width: int) -> Value:
    """A width-1 register value in every lane."""
    element = register_element(d)
    if d.is_complex:
        return b.splat(element, width, value[0]), b.splat(element, width, value[1])
    return b.splat(element, width, typed(str, value))


def round_to(b: Builder, d: dtype, value: Value, width: int) -> Value:
    """Round an accumulator of a narrow dtype (held in float lanes) to it; any other value comes back as it is."""
    if d.name not in convert.NARROW:
        return value
    return narrow(d, convert.lanes(b, d, value, width)).name


def _unknown(op: str, d: dtype) -> TypeError:
    return TypeError(f"{op}: no meaning for dtype {d.name}; cast the operands to a dtype that the operation takes")


def _apply_complex(b: Builder, op: str, d: dtype, values: Sequence[Value], width: int) -> Value:
    """A primitive of complex numbers; parts of 16 bits are rounded once, after it."""
    result = _in_wide_parts(b, op, d, values, width)
    if d.itemsize > 4 or op in ("isnan", "eq", "ne"):
        return result
    parts = [result] if isinstance(result, str) else list(result)
    held_parts = [narrow(d.to_real(), Lanes(b, register_element(d), width, part)).name for part in parts]
    return held_parts[0] if len(parts) == 1 else (held_parts[0], held_parts[1])


def _in_wide_parts(b: Builder, op: str, d: dtype, values: Sequence[Value], width: int) -> Value:
    element = register_element(d)
    pairs = [(Lanes(b, element, width, v[0]), Lanes(b, element, width, v[1])) for v in values]
    if op in cx.UNARY:
        re, im = cx.UNARY[op](pairs[0])
        return re.name, im.name
    if op in cx.BINARY:
        re, im = cx.BINARY[op](pairs[0], pairs[1])
        return re.name, im.name
    if op == "abs":
        return cx.absolute(pairs[0]).name
    if op == "real_part":
        return pairs[0][0].name
    if op == "imag_part":
        return pairs[0][1].name
    if op == "isnan":
        return (pairs[0][0].isnan() | pairs[0][1].isnan()).name
    if op == "eq":
        return (pairs[0][0].eq(pairs[1][0]) & pairs[0][1].eq(pairs[1][1])).name
    if op == "ne":
        return (pairs[0][0].ne(pairs[1][0]) | pairs[0][1].ne(pairs[1][1])).name
    raise _unknown(op, d)


def _where(b: Builder, d: dtype, values: Sequence[Value], width: int) -> Value:
    condition = Lanes(b, "i1", width, typed(str, values[0]))
    element = register_element(d)
    if d.is_complex:
        parts = [condition.select(Lanes(b, element, width, values[1][i]), Lanes(b, element, width, values[2][i])).name for i in (0, 1)]
        return parts[0], parts[1]
    return condition.select(convert.lanes(b, d, values[1], width), convert.lanes(b, d, values[2], width)).name


def apply(b: Builder, op: str, dtype_in: dtype, values: Sequence[Value], width: int, attrs: Mapping[str, Any] | None = None) -> Value:
    """One pointwise primitive on register values of dtype `dtype_in` (of `where`: the dtype of its last two inputs).

    Returns a register value: bool lanes for comparisons and `isnan`, `attrs["dtype"]` for `cast`, the real dtype for
    `abs`, `real_part` and `imag_part` of complex values, the complex dtype for `make_complex`, else `dtype_in`.
    Raises TypeError where the operation has no meaning for the dtype.
    """
    d = dtype_in
    if op == "cast":
        return convert.cast(b, d, (attrs or {})["dtype"], values[0], width)
    if op == "where":
        return _where(b, d, values, width)
    if op == "make_complex":
        return typed(str, values[0]), typed(str, values[1])
    if d.is_complex:
        return _apply_complex(b, op, d, values, width)
    xs = [convert.lanes(b, d, v, width) for v in values]
    if op in _PREDICATES["float"]:
        kind = "float" if d.is_floating_point else "signed" if d.is_signed else "unsigned"
        return xs[0].compare(_PREDICATES[kind][op], xs[1]).name
    if op == "isnan":
        return (xs[0].isnan() if d.is_floating_point else xs[0].like(0, "i1")).name
    if op == "real_part":
        return xs[0].name
    if op == "imag_part":
        return xs[0].like(0).name
    result = _fused(d, *xs) if op == "fma" else _apply_real(op, d, xs)
    if result is None:
        raise _unknown(op, d)
    return result.name


def _apply_real(op: str, d: dtype, xs: list[Lanes]) -> Lanes | None:
    if d is bool_:
        if op in integer.BOOL_UNARY:
            return integer.BOOL_UNARY[op](xs[0])
        return integer.BOOL_BINARY[op](xs[0], xs[1]) if op in integer.BOOL_BINARY else None
    if not d.is_floating_point:
        if op in integer.UNARY:
            return integer.UNARY[op](xs[0], d.is_signed)
        return integer.BINARY[op](xs[0], xs[1], d.is_signed) if op in integer.BINARY else None
    if d.name in convert.NARROW and op in _NARROW:
        return _NARROW[op](d, xs[0], xs[1])
    if op in floating.UNARY:
        result = floating.UNARY[op](xs[0])
    elif op in floating.BINARY:
        result = floating.BINARY[op](xs[0], xs[1])
    else:
        return None
    return result if op in _EXACT else narrow(d, result)


def _fused(d: dtype, x: Lanes, y: Lanes, z: Lanes) -> Lanes | None:
    """x * y + z: of floats rounded once (of narrow ones as float, then to their dtype)."""
    if d is bool_:
        return None
    return narrow(d, x.fma(y, z)) if d.is_floating_point else x * y + z


def _nextafter_narrow(d: dtype, a: Lanes, c: Lanes) -> Lanes:
    """The neighbour in a narrow type: a step of the narrow type's bits."""
    if d.name == "float16":
        return floating.nextafter(a.to("half", "fptrunc"), c.to("half", "fptrunc")).to("float", "fpext")
    bits = a.bits()
    away = a.lt(c).compare("eq", a.gt(0.0))
    moved = (bits + away.select(bits.like(1 << 16), -(1 << 16))).as_float()
    moved = a.eq(0.0).select(bits.like(1 << 16).as_float().copysign(c), moved)
    moved = a.eq(c).select(c, moved)
    return (a.isnan() | c.isnan()).select(a + c, moved)


_NARROW: dict[str, Callable[[dtype, Lanes, Lanes], Lanes]] = {
    "nextafter": _nextafter_narrow,
    "div_trunc": lambda d, a, c: floating.div_trunc(a, c, lambda x: narrow(d, x)),
    "div_floor": lambda d, a, c: narrow(d, floating.div_floor(a, c, lambda x: narrow(d, x))),
}


# -- reductions -------------------------------------------------------------------------------------------------------
def reduce_combine(b: Builder, op: str, d: dtype, a: Value, c: Value, width: int) -> Value:
    """Two partial results of a reduction (sum, prod, amax, amin) as one. NaN wins in amax and amin.

    Sums and products of float16/bfloat16 are accumulated in float and not rounded: call `round_to` at the end.
    """
    name = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}[op]
    if d.is_floating_point and op in ("amax", "amin"):
        return floating.extreme(convert.lanes(b, d, a, width), convert.lanes(b, d, c, width), op == "amax").name
    if d.name in convert.NARROW:
        return floating.BINARY[name](convert.lanes(b, d, a, width), convert.lanes(b, d, c, width)).name
    return apply(b, name, d, [a, c], width)


def reduce_identity(op: str, d: dtype) -> Value:
    """The scalar LLVM constant that changes nothing when combined (a pair of them for complex dtypes)."""
    element = register_element(d)
    if d.is_complex:
        return literal(element, 1.0 if op == "prod" else 0.0), literal(element, 0.0)
    if op in ("sum", "prod"):
        return literal(element, 0 if op == "sum" else 1)
    low = op == "amax"
    if d.is_floating_point:
        return literal(element, float("-inf") if low else float("inf"))
    if d is bool_:
        return literal(element, not low)
    bits = 8 * d.itemsize
    if not d.is_signed:
        return literal(element, 0 if low else (1 << bits) - 1)
    return literal(element, -(1 << (bits - 1)) if low else (1 << (bits - 1)) - 1)


def horizontal(b: Builder, op: str, d: dtype, value: Value, width: int) -> Value:
    """The lanes of one value reduced to a scalar by halving: lane i with lane i + width / 2, and so on."""
    element = register_element(d)

    def half(part: str, count: int, start: int) -> str:
        if count == 1:
            return b.op(f"extractelement <2 x {element}> {part}, i32 {start}")
        order = ", ".join(f"i32 {start + i}" for i in range(count))
        whole = f"<{2 * count} x {element}>"
        return b.op(f"shufflevector {whole} {part}, {whole} poison, <{count} x i32> <{order}>")

    while width > 1:
        width //= 2
        if d.is_complex:
            low = half(value[0], width, 0), half(value[1], width, 0)
            high: Value = (half(value[0], width, width), half(value[1], width, width))
            value = reduce_combine(b, op, d, low, high, width)
        else:
            text = typed(str, value)
            value = reduce_combine(b, op, d, half(text, width, 0), half(text, width, width), width)
    return value
