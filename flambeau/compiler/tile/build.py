"""The builder of tile programs: appends operations to the current region, infers their types, makes equal ones once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.compiler.tile.infer import check_shape, infer
from flambeau.compiler.tile.ir import Op, Program, Region, TileError, Type, Value, Where, has_effects
from flambeau.dtypes import dtype

_ORDERED = frozenset(("load", "store", "atomic", "print", "assert", "for", "while", "if"))  # never made once for two


class Build:
    """A program in the making. `where` is the place in the user's source that operations are made for."""

    def __init__(self, name: str, params: Sequence[tuple[str, Type]]) -> None:
        self.program = Program(name, Region([Value(t, None, n) for n, t in params]))
        self.region = self.program.body
        self.where: Where | None = None
        self._known: list[dict[Any, list[Value]]] = [{}]

    @contextmanager
    def inside(self, region: Region, alone: bool = False) -> Iterator[Region]:
        """Operations go to `region` within. `alone`: it may not use values from outside."""
        before, known = self.region, self._known
        self.region, self._known = region, [{}] if alone else [*known, {}]
        try:
            yield region
        finally:
            self.region, self._known = before, known

    def op(self, kind: str, operands: Sequence[Value] = (), regions: Sequence[Region] = (), **attrs: Any) -> list[Value]:
        """Append an operation; its results. TileError, with the user's line, if it has no meaning."""
        key = None
        if kind not in _ORDERED and not regions:
            key = (kind, tuple(map(id, operands)), tuple((k, repr(v) if isinstance(v, float) else v) for k, v in attrs.items()))
            for known in self._known:
                if key in known:
                    return known[key]
        try:
            types = infer(kind, [v.type for v in operands], attrs, regions)
        except TileError as error:
            error.where = error.where or self.where
            raise
        op = Op(kind, tuple(operands), attrs, [], tuple(regions), self.where)
        op.results = [Value(t, op) for t in types]
        self.region.ops.append(op)
        if key is not None:
            self._known[-1][key] = op.results
        return op.results

    def one(self, kind: str, operands: Sequence[Value] = (), regions: Sequence[Region] = (), **attrs: Any) -> Value:
        return self.op(kind, operands, regions, **attrs)[0]

    def constant(self, value: Any, d: dtype, shape: Sequence[int] = ()) -> Value:
        check_shape(shape, "full")
        scalar = self.one("constant", type=Type(d), value=value)
        return self.broadcast(scalar, shape) if shape else scalar

    def pointwise(self, op: str, *operands: Value, to: dtype | None = None) -> Value:
        if to is not None and to is operands[0].type.element:
            return operands[0]
        return self.one("pointwise", operands, op=op, dtype=to)

    def broadcast(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.shape == tuple(shape) else self.one("broadcast", (v,), shape=tuple(shape))

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.shape == tuple(shape) else self.one("reshape", (v,), shape=tuple(shape))


def without_dead(program: Program) -> None:
    """Take out what nobody uses, in place: results, and values that loops carry for nothing stay."""
    used: set[int] = set()

    def mark(region: Region) -> None:
        used.update(id(v) for v in region.results)
        for op in reversed(region.ops):
            if has_effects(op) or any(id(r) in used for r in op.results):
                for inner in op.regions:
                    mark(inner)
                used.update(id(v) for v in op.operands)
                kept.add(id(op))

    def sweep(region: Region) -> None:
        region.ops = [op for op in region.ops if id(op) in kept]
        for op in region.ops:
            for inner in op.regions:
                sweep(inner)

    kept: set[int] = set()
    mark(program.body)
    sweep(program.body)
