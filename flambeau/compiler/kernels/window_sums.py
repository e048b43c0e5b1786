"""Shared windows of ranks: the functions that combine the ranks' slots, for each operator and dtype (see window.py)."""

from __future__ import annotations

from string import Template
from typing import Final

from flambeau.runtime.jit import symbol

_KINDS: Final = {
    "float32": ("float", 16), "float64": ("double", 8), "float16": ("half", 16), "bfloat16": ("i16", 16), "int8": ("i8", 64), "uint8": ("i8", 64),
    "int16": ("i16", 32), "uint16": ("i16", 32), "int32": ("i32", 16), "uint32": ("i32", 16), "int64": ("i64", 8), "uint64": ("i64", 8), "bool": ("i8", 64),
}  # fmt: skip
_INTEGER: Final = {"sum": "add", "product": "mul", "band": "and", "bor": "or", "bxor": "xor"}
_FLOATING: Final = {"sum": "fadd", "product": "fmul"}
_BOOL: Final = {"sum": "or", "max": "or", "bor": "or", "product": "and", "min": "and", "band": "and", "bxor": "xor"}

_REDUCE: Final = """
define void @$NAME(ptr %out, ptr %slots, i64 %stride, i64 %n, i64 %from, i64 %to, double %factor, ptr %own, i64 %rank, ptr %second) {
entry:
$FACTOR
  %some = icmp ult i64 %from, %to
  br i1 %some, label %block, label %end
block:
  %at = phi i64 [%from, %entry], [%at1, %store]
  %mine = getelementptr i8, ptr %own, i64 %at
  %zeroth = getelementptr i8, ptr %slots, i64 %at
  %is_first = icmp eq i64 %rank, 0
  %p0 = select i1 %is_first, ptr %mine, ptr %zeroth
$FIRST
  br label %each
each:
  %r = phi i64 [1, %block], [%r1, %more]
  %sum = phi $ACC [%first, %block], [%new, %more]
  %go = icmp ult i64 %r, %n
  br i1 %go, label %more, label %store
more:
  %offset = mul i64 %r, %stride
  %theirs = getelementptr i8, ptr %zeroth, i64 %offset
  %is_mine = icmp eq i64 %r, %rank
  %p1 = select i1 %is_mine, ptr %mine, ptr %theirs
$TERM
$COMBINE
  %r1 = add i64 %r, 1
  br label %each
store:
  %q = getelementptr i8, ptr %out, i64 %at
  %q2 = getelementptr i8, ptr %second, i64 %at
$STORE
  %at1 = add i64 %at, $BYTES
  %again = icmp ult i64 %at1, %to
  br i1 %again, label %block, label %end
end:
  ret void
}
"""


def _load(name: str, pointer: str, stem: str, scaled: bool) -> str:
    """Text that loads one vector of a dtype as the accumulator's type into `%stem`."""
    element, width = _KINDS[name]
    memory, raw = f"<{width} x {element}>", f"%{stem}raw" if scaled else f"%{stem}"
    if name == "bfloat16":
        text = (
            f"  %{stem}a = load {memory}, ptr {pointer}, align 1\n  %{stem}b = zext {memory} %{stem}a to <16 x i32>\n"
            f"  %{stem}c = shl <16 x i32> %{stem}b, splat (i32 16)\n  {raw} = bitcast <16 x i32> %{stem}c to <16 x float>\n"
        )
    elif name == "float16":
        text = f"  %{stem}a = load {memory}, ptr {pointer}, align 1\n  {raw} = fpext {memory} %{stem}a to <16 x float>\n"
    else:
        text = f"  {raw} = load {memory}, ptr {pointer}, align 1\n"
    if scaled:
        text += f"  %{stem} = fmul {_accumulator(name)} {raw}, %scale\n"
    return text


def _accumulator(name: str) -> str:
    element, width = _KINDS[name]
    return "<16 x float>" if name in ("float16", "bfloat16") else f"<{width} x {element}>"


def _store(name: str) -> str:
    element, width = _KINDS[name]
    if name == "float16":
        return "  %half = fptrunc <16 x float> %sum to <16 x half>\n  store <16 x half> %half, ptr %q, align 1\n  store <16 x half> %half, ptr %q2, align 1"
    if name == "bfloat16":  # to the nearest, ties to even; NaN stays NaN
        return """  %bits = bitcast <16 x float> %sum to <16 x i32>
  %high = lshr <16 x i32> %bits, splat (i32 16)
  %odd = and <16 x i32> %high, splat (i32 1)
  %bias = add <16 x i32> %odd, splat (i32 32767)
  %rounded = add <16 x i32> %bits, %bias
  %near = lshr <16 x i32> %rounded, splat (i32 16)
  %quiet = or <16 x i32> %high, splat (i32 64)
  %nan = fcmp uno <16 x float> %sum, %sum
  %chosen = select <16 x i1> %nan, <16 x i32> %quiet, <16 x i32> %near
  %narrow = trunc <16 x i32> %chosen to <16 x i16>
  store <16 x i16> %narrow, ptr %q, align 1
  store <16 x i16> %narrow, ptr %q2, align 1"""
    return f"  store <{width} x {element}> %sum, ptr %q, align 1\n  store <{width} x {element}> %sum, ptr %q2, align 1"


def can_reduce(operator: str, name: str, scaled: bool = False) -> bool:
    """Whether there is a sum of slots for this operator (in lower case) and dtype."""
    if name not in _KINDS or (scaled and "float" not in name):
        return False
    return operator in (("sum", "product", "min", "max") if "float" in name else ("min", "max", *_INTEGER))


def emit_reduce(key: str, operator: str, name: str, scaled: bool) -> str:
    """`void reduce(out, slots, stride, ranks, from, to, factor, own, rank, second)`: bytes `from` to `to` of the ranks' slots, combined in the ranks' order.

    What lies in `own` stands for the slot of `rank`; the result goes to `out` and to `second`.
    Narrow floats are combined in float32 and rounded once. `scaled`: each term is multiplied with the factor first.
    """
    accumulator, width = _accumulator(name), _KINDS[name][1]
    if name == "bool":
        combine = f"  %new = {_BOOL[operator]} {accumulator} %sum, %term"
    elif operator in ("min", "max"):
        test = {"min": "lt", "max": "gt"}[operator]
        comparison = f"fcmp o{test}" if "float" in name else f"icmp {'s' if name.startswith('int') else 'u'}{test}"
        combine = f"  %better = {comparison} {accumulator} %term, %sum\n  %new = select <{width} x i1> %better, {accumulator} %term, {accumulator} %sum"
    else:
        combine = f"  %new = {(_FLOATING if 'float' in name else _INTEGER)[operator]} {accumulator} %sum, %term"
    factor = ""
    if scaled:
        element = "double" if name == "float64" else "float"
        number = "%factor" if name == "float64" else "%single"
        factor = "" if name == "float64" else "  %single = fptrunc double %factor to float\n"
        factor += f"  %one = insertelement {accumulator} poison, {element} {number}, i64 0\n"
        factor += f"  %scale = shufflevector {accumulator} %one, {accumulator} poison, <{width} x i32> zeroinitializer"
    size = 32 if name in ("float16", "bfloat16") else 64
    return Template(_REDUCE).substitute(
        NAME=symbol(key), FACTOR=factor, FIRST=_load(name, "%p0", "first", scaled), ACC=accumulator, TERM=_load(name, "%p1", "term", scaled),
        COMBINE=combine, STORE=_store(name), BYTES=size,
    )  # fmt: skip
