"""Accumulators of loop nests: their start, update, combination across copies and across lanes, for each reduction.

An accumulator is a list of registers, one for each output of the reduction: (value,), or (value, index) for argmax and
argmin, where NaN wins over numbers, then the better value, then the smaller index. An index that no element has yet
is the largest int64.
"""

from __future__ import annotations

from typing import Any

from flambeau.compiler.emit import scalar
from flambeau.compiler.emit.builder import Builder, vector
from flambeau.dtypes import dtype

Register = Any
_NO_INDEX = (1 << 63) - 1


def flatten(registers: list[Register]) -> list[str]:
    """The LLVM operands of registers (complex ones are pairs)."""
    out: list[str] = []
    for r in registers:
        out.extend(r) if isinstance(r, tuple) else out.append(r)
    return out


def unflatten(operands: list[str], like: list[Register]) -> list[Register]:
    """Registers of the shape of `like` from LLVM operands."""
    out: list[Register] = []
    at = 0
    for r in like:
        if isinstance(r, tuple):
            out.append(tuple(operands[at : at + len(r)]))
            at += len(r)
        else:
            out.append(operands[at])
            at += 1
    return out


def types(op: str, kinds: list[dtype], width: int) -> list[str]:
    """LLVM types of the flattened accumulator."""
    out: list[str] = []
    for kind in kinds:
        parts = scalar.register_type(kind.to_real(), width)
        out.extend([parts] * (2 if kind.is_complex else 1))
    return out


def start(b: Builder, op: str, kinds: list[dtype], width: int) -> list[Register]:
    """The accumulator before the first element."""
    name = {"argmax": "amax", "argmin": "amin"}.get(op, op)
    first = scalar.broadcast(b, kinds[0], scalar.reduce_identity(name, kinds[0]), width)
    if op in ("argmax", "argmin"):
        return [first, scalar.constant(b, kinds[1], _NO_INDEX, width)]
    return [first]


def update(b: Builder, op: str, kinds: list[dtype], held: list[Register], values: list[Register], width: int, mask: str | None) -> list[Register]:
    """The accumulator after one more element in every lane that `mask` has."""
    if mask is not None:
        neutral = start(b, op, kinds, width)
        values = [scalar.apply(b, "where", kind, [mask, v, n], width, {}) for kind, v, n in zip(kinds, values, neutral, strict=True)]
    return combine(b, op, kinds, held, values, width)


def combine(b: Builder, op: str, kinds: list[dtype], a: list[Register], c: list[Register], width: int) -> list[Register]:
    """The reduction of two accumulators, lane by lane."""
    if op not in ("argmax", "argmin"):
        return [scalar.reduce_combine(b, op, kinds[0], a[0], c[0], width)]
    kind = kinds[0]
    bits = vector("i1", width)
    better = scalar.apply(b, "gt" if op == "argmax" else "lt", kind, [c[0], a[0]], width, {})
    equal = scalar.apply(b, "eq", kind, [c[0], a[0]], width, {})
    earlier = b.op(f"icmp slt {vector('i64', width)} {c[1]}, {a[1]}")
    if kind.is_floating_point:
        nan_a = scalar.apply(b, "isnan", kind, [a[0]], width, {})
        nan_c = scalar.apply(b, "isnan", kind, [c[0]], width, {})
        equal = b.op(f"or {bits} {equal}, {b.op(f'and {bits} {nan_a}, {nan_c}')}")
        number_a = b.op(f"xor {bits} {nan_a}, {'true' if width == 1 else 'splat (i1 true)'}")
        better = b.op(f"or {bits} {better}, {b.op(f'and {bits} {nan_c}, {number_a}')}")
    tie = b.op(f"and {bits} {equal}, {earlier}")
    take = b.op(f"or {bits} {better}, {tie}")
    return [scalar.apply(b, "where", k, [take, y, x], width, {}) for k, x, y in zip(kinds, a, c, strict=True)]


def horizontal(b: Builder, op: str, kinds: list[dtype], held: list[Register], width: int) -> list[Register]:
    """The reduction of all lanes, as scalars, in a fixed tree (halves are combined)."""
    while width > 1:
        half = width // 2
        parts = [[_half(b, k, r, width, side) for k, r in zip(kinds, held, strict=True)] for side in (0, 1)]
        held = combine(b, op, kinds, parts[0], parts[1], half)
        width = half
    return held


def _half(b: Builder, kind: dtype, register: Register, width: int, side: int) -> Register:
    """The low (side 0) or high (side 1) half of the lanes."""
    if isinstance(register, tuple):
        return tuple(_half(b, kind.to_real(), part, width, side) for part in register)
    type_ = scalar.register_type(kind, width)
    half = width // 2
    if half == 1:
        return b.op(f"extractelement {type_} {register}, i32 {side}")
    lanes = ", ".join(f"i32 {side * half + i}" for i in range(half))
    return b.op(f"shufflevector {type_} {register}, {type_} poison, <{half} x i32> <{lanes}>")
