"""The interpreter: what every operation of the tile IR computes, in NumPy. It is the specification, and the oracle of the lowering's tests.

It runs one program of the grid after the other, and it looks at each access: an address outside of the tensors that the kernel was given is an
error with the user's line. Sums have a defined order, which the lowering follows: along the last axis 64 partial sums (element i goes to sum
i mod 64), then halves onto halves; along another axis one element after the other. The order inside of `dot` is not defined.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

import numpy

from flambeau.compiler.tile import numeric
from flambeau.compiler.tile.ir import Op, Pointer, Program, Region, TileError
from flambeau.compiler.tile.numeric import Array, apply, array_type

PARTIALS: Final = 64


class Memory:
    """The memory that a kernel may touch: (address, bytes) of each of its tensors."""

    def __init__(self, extents: Sequence[tuple[int, int]]) -> None:
        self.blocks = [(address, numpy.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))) for address, nbytes in extents if nbytes]

    def _each(self, addresses: Array, mask: Array, size: int, what: str) -> list[tuple[Array, Array, Array]]:
        """(bytes of a tensor, which elements lie there, their byte indices) for all elements that the mask leaves."""
        found, left = [], mask.copy()
        for base, raw in self.blocks:
            inside = left & (addresses >= base) & (addresses + size <= base + len(raw))
            if inside.any():
                found.append((raw, inside, (addresses[inside] - base)[:, None] + numpy.arange(size)))
                left &= ~inside
        if left.any():
            at = tuple(int(i) for i in numpy.argwhere(left)[0])
            which = f"element {at} of the block" if at else "the address"
            raise TileError(f"{what}: {which} is outside of every tensor that the kernel was given; is a mask missing?")
        return found

    def load(self, addresses: Array, mask: Array, e: Any, other: Array) -> Array:
        result = numpy.array(other)
        size = 8 if isinstance(e, Pointer) else e.itemsize
        for raw, inside, at in self._each(addresses, mask, size, "load"):
            result[inside] = numeric.from_bytes(raw[at], e)
        return result

    def store(self, addresses: Array, mask: Array, e: Any, value: Array) -> None:
        size = 8 if isinstance(e, Pointer) else e.itemsize
        content = numeric.to_bytes(value, e)
        for raw, inside, at in self._each(addresses, mask, size, "store"):
            raw[at] = content[inside]


def run(program: Program, arguments: Sequence[int | float | bool], grid: tuple[int, int, int], memory: Memory) -> None:
    """Run all programs of a grid, in order. Pointer arguments are addresses. TileError and AssertionError say what a program did wrong."""
    for z, y, x in product(range(grid[2]), range(grid[1]), range(grid[0])):
        machine = _Machine((x, y, z), grid, memory)
        for p, a in zip(program.params, arguments, strict=True):
            machine.values[id(p)] = numpy.array(a).astype(array_type(p.type.element))
        machine.region(program.body)


class _Machine:
    """One program of the grid."""

    def __init__(self, at: tuple[int, int, int], grid: tuple[int, int, int], memory: Memory) -> None:
        self.at, self.grid, self.memory = at, grid, memory
        self.values: dict[int, Array] = {}

    def region(self, region: Region, arguments: Sequence[Array] = ()) -> list[Array]:
        for p, a in zip(region.params, arguments, strict=False):
            self.values[id(p)] = a
        for op in region.ops:
            try:
                results = getattr(self, "_" + op.kind)(op, *[self.values[id(v)] for v in op.operands])
            except (TileError, AssertionError) as error:
                if getattr(error, "where", None) is None:
                    error.where = op.where  # type: ignore[union-attr]
                raise
            if results is None:
                continue
            for r, v in zip(op.results, results if isinstance(results, list) else [results], strict=True):
                self.values[id(r)] = v
        return [self.values[id(v)] for v in region.results]

    # -- values ---------------------------------------------------------------------------------------------------
    def _constant(self, op: Op) -> Array:
        t = op.attrs["type"]
        if t.dtype.category == 1:
            bits = 8 * t.dtype.itemsize
            wrapped = int(op.attrs["value"]) & ((1 << bits) - 1)
            wrapped -= (1 << bits) if t.dtype.is_signed and wrapped >> (bits - 1) else 0
            return numpy.full(t.shape, wrapped, array_type(t.element))
        from flambeau.dtypes import held

        value = held(float(op.attrs["value"]), t.dtype) if t.dtype.category == 2 else bool(op.attrs["value"])
        return numpy.full(t.shape, value, array_type(t.element))

    def _iota(self, op: Op) -> Array:
        return numpy.arange(op.attrs["start"], op.attrs["end"], dtype=numpy.int32)

    def _program_id(self, op: Op) -> Array:
        return numpy.array(self.at[op.attrs["axis"]], numpy.int32)

    def _num_programs(self, op: Op) -> Array:
        return numpy.array(self.grid[op.attrs["axis"]], numpy.int32)

    def _pointwise(self, op: Op, *xs: Array) -> Array:
        return apply(op.attrs["op"], op.operands[-1].type.element, list(xs), op.attrs["dtype"])

    def _bitcast(self, op: Op, x: Array) -> Array:
        return numeric.bitcast(x, op.operands[0].type.element, op.attrs["element"])

    def _offset(self, op: Op, pointer: Array, by: Array) -> Array:
        e = op.operands[0].type.element
        assert isinstance(e, Pointer)
        return pointer + by.astype(numpy.int64) * e.to.itemsize

    # -- memory ---------------------------------------------------------------------------------------------------
    def _load(self, op: Op, pointer: Array, mask: Array | None = None, other: Array | None = None) -> Array:
        t = op.results[0].type
        mask = numpy.ones(t.shape, bool) if mask is None else mask
        return self.memory.load(pointer, mask, t.element, numpy.zeros(t.shape, array_type(t.element)) if other is None else other)

    def _store(self, op: Op, pointer: Array, value: Array, mask: Array | None = None) -> None:
        t = op.operands[1].type
        self.memory.store(pointer, numpy.ones(t.shape, bool) if mask is None else mask, t.element, value)

    def _atomic(self, op: Op, pointer: Array, *rest: Array) -> Array:
        t, name = op.results[0].type, op.attrs["op"]
        mask = rest[1] if name != "cas" and len(rest) > 1 else numpy.ones(t.shape, bool)
        result = numpy.zeros(t.shape, array_type(t.element))
        for at in numpy.ndindex(*t.shape):
            if not mask[at]:
                continue
            one, yes = pointer[at], numpy.array(True)
            old = self.memory.load(numpy.array(one), yes, t.element, numpy.zeros((), result.dtype))
            given = numpy.array(rest[0][at])
            if name == "cas":
                new = numpy.array(rest[1][at]) if old == given else old
            elif name == "xchg":
                new = given
            else:
                primitive = {"add": "add", "max": "fmax", "min": "fmin", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}[name]
                new = apply(primitive, t.element, [old, given], None)
            self.memory.store(numpy.array(one), yes, t.element, numpy.array(new))
            result[at] = old
        return result

    # -- shapes ---------------------------------------------------------------------------------------------------
    def _broadcast(self, op: Op, x: Array) -> Array:
        return numpy.broadcast_to(x, op.attrs["shape"])

    def _reshape(self, op: Op, x: Array) -> Array:
        return numpy.reshape(x, op.attrs["shape"])

    def _permute(self, op: Op, x: Array) -> Array:
        return numpy.transpose(x, op.attrs["dims"])

    def _join(self, op: Op, a: Array, b: Array) -> Array:
        return numpy.stack([a, b], -1)

    def _split(self, op: Op, x: Array) -> list[Array]:
        return [x[..., 0], x[..., 1]]

    def _cat(self, op: Op, a: Array, b: Array) -> Array:
        return numpy.concatenate([a, b], op.attrs["dim"])

    def _gather(self, op: Op, x: Array, index: Array) -> Array:
        size = x.shape[op.attrs["axis"]]
        if ((index < 0) | (index >= size)).any():
            raise TileError(f"gather: an index is not in [0, {size})")
        return numpy.take_along_axis(x, index.astype(numpy.int64), op.attrs["axis"])

    # -- many into one --------------------------------------------------------------------------------------------
    def _dot(self, op: Op, a: Array, b: Array, acc: Array) -> Array:
        d = op.results[0].type.dtype
        with numpy.errstate(all="ignore"):
            if d.category == 1:
                return (acc + numpy.matmul(a.astype(numpy.int32), b.astype(numpy.int32))).astype(numpy.int32)
            wide = acc.astype(numpy.float64) + numpy.matmul(a.astype(numpy.float64), b.astype(numpy.float64))
            return numeric.rounded(wide.astype(array_type(d)), d)

    def _combined(self, op: Op, left: list[Array], right: list[Array]) -> list[Array]:
        return self.region(op.regions[0], [*left, *right])

    def _reduce(self, op: Op, *xs: Array) -> list[Array]:
        axis, n = op.attrs["axis"], xs[0].shape[op.attrs["axis"]]
        last = axis == xs[0].ndim - 1
        parts = [numpy.moveaxis(x, axis, 0) for x in xs]
        width = min(n, PARTIALS) if last else 1
        total = [p[:width] for p in parts]
        for i in range(width, n, width):
            total = self._combined(op, total, [p[i : i + width] for p in parts])
        while width > 1:
            width //= 2
            total = self._combined(op, [t[:width] for t in total], [t[width:] for t in total])
        return [t[0] for t in total]

    def _scan(self, op: Op, *xs: Array) -> list[Array]:
        axis, back = op.attrs["axis"], op.attrs["reverse"]
        parts = [numpy.moveaxis(x, axis, 0) for x in xs]
        n = len(parts[0])
        order = range(n - 1, -1, -1) if back else range(n)
        results = [numpy.empty_like(p) for p in parts]
        now: list[Array] = []
        for i in order:
            here = [p[i] for p in parts]
            now = self._combined(op, now, here) if now else here
            for r, v in zip(results, now, strict=True):
                r[i] = v
        return [numpy.moveaxis(r, 0, axis) for r in results]

    def _sort(self, op: Op, x: Array) -> Array:
        up = numpy.sort(x, -1)
        return up[..., ::-1] if op.attrs["descending"] else up

    def _histogram(self, op: Op, x: Array, mask: Array | None = None) -> Array:
        bins = op.attrs["bins"]
        counted = (x >= 0) & (x < bins) & (True if mask is None else mask)
        return numpy.bincount(x[counted].astype(numpy.int64), minlength=bins).astype(numpy.int32)

    # -- control --------------------------------------------------------------------------------------------------
    def _for(self, op: Op, low: Array, high: Array, step: Array, *carried: Array) -> list[Array]:
        if int(step) == 0:
            raise TileError("range: the step is 0")
        values = list(carried)
        for i in range(int(low), int(high), int(step)):
            values = self.region(op.regions[0], [numpy.array(i, low.dtype), *values])
        return values

    def _while(self, op: Op, *carried: Array) -> list[Array]:
        values = list(carried)
        while self.region(op.regions[0], values)[0]:
            values = self.region(op.regions[1], values)
        return values

    def _if(self, op: Op, condition: Array) -> list[Array]:
        return self.region(op.regions[0] if condition else op.regions[1])

    # -- words ----------------------------------------------------------------------------------------------------
    def _print(self, op: Op, *xs: Array) -> None:
        show: Callable[[Any], str] = (lambda v: f"0x{int(v):x}") if op.attrs["hex"] else str
        for number, x in enumerate(xs):
            for at in numpy.ndindex(*x.shape):
                index = f" idx ({', '.join(map(str, at))})" if at else ""
                operand = f" (operand {number})" if len(xs) > 1 else ""
                print(f"pid ({', '.join(map(str, self.at))}){index}{op.attrs['prefix']}{operand} {show(x[at])}")
        if not xs:
            print(f"pid ({', '.join(map(str, self.at))}){op.attrs['prefix']}")

    def _assert(self, op: Op, condition: Array, mask: Array | None = None) -> None:
        if not (condition | (False if mask is None else ~mask)).all():
            error: Any = AssertionError(op.attrs["message"])
            error.where = op.where
            raise error
