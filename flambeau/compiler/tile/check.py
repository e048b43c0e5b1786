"""The checker of the tile IR: `check` proves that a whole program is legal, or raises a TileError that names the operation."""

from __future__ import annotations

from flambeau.compiler.tile.infer import infer
from flambeau.compiler.tile.ir import Op, Program, Region, TileError, Type, Value


def check(program: Program) -> None:
    """Every value is defined before it is used, every operation gets what it takes and gives what it says."""
    for p in program.params:
        if p.type.shape:
            raise TileError(f"{program.name}: the parameter {p.name} is a block, {p.type}; a kernel takes scalars and pointers")
    _region(program.body, set())
    if program.body.results:
        raise TileError(f"{program.name}: a kernel gives nothing back")


def _region(region: Region, outer: set[int]) -> None:
    known = outer | {id(p) for p in region.params}
    for op in region.ops:
        try:
            _op(op, known)
        except TileError as error:
            error.where = error.where or op.where
            raise
        known |= {id(r) for r in op.results}
    for v in region.results:
        if id(v) not in known:
            raise TileError("a region gives a value that is not defined in it or around it")


def _op(op: Op, known: set[int]) -> None:
    for v in op.operands:
        if id(v) not in known:
            raise TileError(f"{op.kind}: an operand ({v.type}) is used before it is defined")
    combines = op.kind in ("reduce", "scan")
    for inner in op.regions:
        _region(inner, set() if combines else known)
    types: list[Type] = infer(op.kind, [v.type for v in op.operands], op.attrs, op.regions)
    given: list[Value] = op.results
    if [r.type for r in given] != types:
        raise TileError(f"{op.kind}: gives {', '.join(map(str, types))}, but its results say {', '.join(str(r.type) for r in given)}")
    for r in given:
        if r.op is not op:
            raise TileError(f"{op.kind}: a result says that another operation makes it")
