"""The loop IR: what `lower` makes of a group and `emit/loops.py` turns into LLVM IR, and the proof that a nest is
legal.

A `Nest` is a perfect nest of `outer` loops (the last one innermost) around a sequence of blocks. A block either
stands at the level of one point of the outer loops ("row level"), or is a *stage*: it runs through the `reduced`
loops, and its reductions give row-level values. A stage runs the reduced loops from the start again, so a softmax is
one nest of three stages. Loops are numbered outer first: 0 .. outer-1, then outer .. outer+reduced-1.

One loop carries the vector: the last outer one (every lane is a point of its own) or the last reduced one (lanes are
combined at the end of a stage). A nest holds *facts* only: sizes, addresses and strides are run-time words (`Sizes`),
in the order of `words_of`. Equal nests are equal machine code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.runtime.untracked import record

ZERO: Final = 0  # the operand does not move along this loop
ONE: Final = 1  # neighbours along this loop are neighbours in memory
OTHER: Final = 2  # the stride is a run-time word

REDUCTIONS: Final = frozenset(["sum", "prod", "amax", "amin", "argmax", "argmin"])
ROLES: Final = frozenset(["load", "store", "index", "base", "cache"])


class NestError(Exception):
    """A nest that breaks the specification: a bug of the lowering."""


@record
@dataclass(slots=True, frozen=True)
class Access:
    """An array and how the loops move in it; `strides` has a class (ZERO, ONE, OTHER) for each loop.

    role: "load" / "store" of elements; "index": no array, the int64 value offset + sum(stride * index);
    "base": only the address is used (take, searchsorted); "cache": a row kept between stages, private to a worker.
    """

    role: str
    dtype: str
    strides: tuple[int, ...]


@record
@dataclass(slots=True, frozen=True)
class Load:
    """`out` = the element of `access` at the current point (for role "index", the index itself)."""

    out: int
    access: int


@record
@dataclass(slots=True, frozen=True)
class Compute:
    """`out` = op(inputs), one of graph.POINTWISE. `base`: the array of take / searchsorted.

    Inputs beyond the primitive's: take has (index, bound), searchsorted (values, n), both a stride of the base where
    it is not 1, random_uniform (seed, offset, index).
    """

    out: int
    op: str
    inputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    base: int = -1


@record
@dataclass(slots=True, frozen=True)
class Store:
    """The element of `access` at the current point = `value`."""

    access: int
    value: int


@record
@dataclass(slots=True, frozen=True)
class Reduce:
    """`outs` = the reduction of `sources` over the stage. sum, prod, amax, amin: one source, one out of the same dtype.
    argmax, argmin: sources (value, int64 index), outs (value, index); NaN wins, then the smallest index."""

    outs: tuple[int, ...]
    op: str
    sources: tuple[int, ...]


Statement = Load | Compute | Store | Reduce


@record
@dataclass(slots=True, frozen=True)
class Block:
    """`stage`: the statements run at every point of the reduced loops; else once for a row."""

    stage: bool
    body: tuple[Statement, ...]


@record
@dataclass(slots=True, frozen=True)
class Nest:
    """`dtypes[v]` is the dtype of value v. `vector`: the loop of the lanes (-1: none). `split`: the reduced loop of
    which the last-but-vector outer loop `split_by` gives blocks (-1: none). `transposed`: accesses that are
    contiguous along loop `tile` and not along the vector loop: they are read through a transposing tile. `stream`:
    stores bypass the cache. `far`: what is read comes from memory, and is asked for some time before."""

    outer: int
    reduced: int
    vector: int
    width: int
    unroll: int
    accesses: tuple[Access, ...]
    blocks: tuple[Block, ...]
    dtypes: tuple[str, ...]
    split: int = -1
    split_by: int = -1
    tile: int = -1
    transposed: tuple[int, ...] = ()
    stream: bool = False
    far: bool = False

    @property
    def loops(self) -> int:
        return self.outer + self.reduced

    @property
    def can_fail(self) -> bool:
        return any(isinstance(s, Compute) and s.op == "take" for block in self.blocks for s in block.body)


@dataclass(slots=True, frozen=True)
class Layout:
    """The numbers of one access of one use of a nest: elements of the buffer (bound), offset, stride of each loop."""

    numel: int
    offset: int
    strides: tuple[int, ...]
    dynamic: bool = False  # the offset has a run-time part: bounds cannot be proved here


@dataclass(slots=True, frozen=True)
class Sizes:
    """One use of a nest: the size of each loop, and the layout of each access."""

    loops: tuple[int, ...]
    layouts: tuple[Layout, ...]


def inputs_of(statement: Statement) -> tuple[int, ...]:
    """The values that a statement reads."""
    match statement:
        case Compute(inputs=inputs):
            return inputs
        case Store(value=value):
            return (value,)
        case Reduce(sources=sources):
            return sources
    return ()


def outputs_of(statement: Statement) -> tuple[int, ...]:
    """The values that a statement defines."""
    match statement:
        case Load(out=out) | Compute(out=out):
            return (out,)
        case Reduce(outs=outs):
            return outs
    return ()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise NestError(message)


def _check_compute(nest: Nest, s: Compute) -> None:
    kinds = [nest.dtypes[v] for v in s.inputs]
    out = nest.dtypes[s.out]
    _require(s.op in g.POINTWISE, f"{s.op} is not a pointwise primitive")
    _require((s.base >= 0) == (s.op in ("take", "searchsorted")), f"{s.op}: base {s.base}")
    if s.op in g.COMPARE or s.op in g.UNARY_TO_BOOL:
        _require(out == "bool" and len(set(kinds)) == 1, f"{s.op}: {kinds} -> {out}")
    elif s.op == "where":
        _require(kinds[0] == "bool" and kinds[1] == kinds[2] == out, f"where: {kinds} -> {out}")
    elif s.op == "cast":
        _require(out == dict(s.attrs)["dtype"].name, f"cast: {kinds} -> {out}")
    elif s.op == "take":
        _require(set(kinds) == {"int64"} and out == nest.accesses[s.base].dtype, f"take: {kinds} -> {out}")
    elif s.op == "searchsorted":
        wanted = [nest.accesses[s.base].dtype, "int64"]
        _require(out == "int64" and kinds[:2] == wanted, f"searchsorted: {kinds} -> {out}")
    elif s.op == "random_uniform":
        _require(kinds == ["int64"] * 3 and out == "float32", f"random_uniform: {kinds} -> {out}")
    elif s.op in ("real_part", "imag_part", "make_complex") or (s.op == "abs" and kinds[0].startswith("complex")):
        parts, whole = (kinds, out) if s.op == "make_complex" else ([out], kinds[0])
        _require({dtypes.BY_NAME[whole].to_real().name} == set(parts), f"{s.op}: {kinds} -> {out}")
    elif s.op != "constant":
        _require(set(kinds) == {out}, f"{s.op}: {kinds} -> {out}")


def check(nest: Nest, sizes: Sizes | None = None) -> None:
    """Prove that `nest` is legal: values defined once and before use, in a block that sees them; dtypes agree; the
    vector loop is an innermost one; and, for `sizes`, every load and store stays inside its buffer. Raises
    NestError."""
    _require(nest.vector in (-1, nest.outer - 1, nest.loops - 1), f"vector loop {nest.vector} is not an innermost loop")
    _require(nest.width >= 1 and nest.unroll >= 1, "width and unroll are at least 1")
    if nest.tile >= 0:
        last_two = nest.tile == nest.outer - 2 == nest.vector - 1
        _require(last_two and not nest.reduced, "a tile is the last two outer loops")
        for number in nest.transposed:
            access = nest.accesses[number]
            _require(access.role == "load" and access.strides[nest.tile] == ONE, f"{access} is not transposed")
    for access in nest.accesses:
        _require(access.role in ROLES, f"role {access.role!r}")
        _require(len(access.strides) == nest.loops, f"{access} has not a stride for each of {nest.loops} loops")
    seen: set[int] = set()  # row-level values
    written: set[int] = set()
    for block in nest.blocks:
        local: set[int] = set()
        later: set[int] = set()  # the results of reductions: known after the stage
        for s in block.body:
            for value in inputs_of(s):
                _require(value in seen or value in local, f"{s} reads value {value} before it is defined")
            for value in outputs_of(s):
                _require(value not in seen | local | later, f"value {value} is defined twice")
                (later if isinstance(s, Reduce) else local).add(value)
            if isinstance(s, Load | Store):
                access = nest.accesses[s.access]
                _require(access.role != "base", f"{s} of an access that is only a base")
                _require(isinstance(s, Load) or access.role in ("store", "cache"), f"{s}: role {access.role}")
                value = s.out if isinstance(s, Load) else s.value
                _require(nest.dtypes[value] == access.dtype, f"{s}: {nest.dtypes[value]} through {access.dtype}")
                if isinstance(s, Store):
                    written.add(s.access)
                elif access.role == "cache":
                    _require(s.access in written, f"{s} reads a row cache that was never written")
            elif isinstance(s, Compute):
                _check_compute(nest, s)
            else:
                _require(block.stage, "a reduction outside of a stage")
                _require(s.op in REDUCTIONS, f"reduction {s.op}")
                _require([nest.dtypes[v] for v in s.sources] == [nest.dtypes[v] for v in s.outs], f"{s}: dtypes differ")
                _require(len(s.sources) == (2 if s.op.startswith("arg") else 1), f"{s}: number of sources")
        if block.stage:
            seen |= later
        else:
            seen |= local
    if sizes is not None:
        check_bounds(nest, sizes)


def check_bounds(nest: Nest, sizes: Sizes) -> None:
    """Prove by intervals that no access leaves its buffer, and that the stride classes say the truth. Raises
    NestError."""
    _require(len(sizes.loops) == nest.loops and len(sizes.layouts) == len(nest.accesses), "sizes of another nest")
    for access, layout in zip(nest.accesses, sizes.layouts, strict=True):
        for kind, stride, size in zip(access.strides, layout.strides, sizes.loops, strict=True):
            truth = stride == 0 if kind == ZERO else stride == 1 if kind == ONE else True
            _require(truth or size <= 1, f"{access}: stride {stride} is not of class {kind}")
        if access.role in ("index", "base", "cache") or layout.dynamic or 0 in sizes.loops:
            continue
        low = high = layout.offset
        for stride, size in zip(layout.strides, sizes.loops, strict=True):
            low += min(0, stride * (size - 1))
            high += max(0, stride * (size - 1))
        _require(low >= 0 and high < layout.numel, f"{access} touches {low} .. {high} of a buffer of {layout.numel}")


def words_of(nest: Nest) -> list[tuple[str | int, ...]]:
    """The argument words of a nest, in order: ("size", loop), ("chunk",) points of the vector loop in one unit,
    ("block",) points of the split loop in one block, ("address", access), ("stride", access, loop) in elements,
    ("pitch", access) bytes of a worker's row cache, ("tile",) scratch of the transposing tiles,
    ("error",) the error record."""
    words: list[tuple[str | int, ...]] = [("size", loop) for loop in range(nest.loops)]
    if nest.vector == nest.outer - 1:
        words.append(("chunk",))
    if nest.split >= 0:
        words.append(("block",))
    for number, access in enumerate(nest.accesses):
        words.append(("address", number))
        words.extend(("stride", number, loop) for loop, kind in enumerate(access.strides) if kind == OTHER)
        if access.role == "cache":
            words.append(("pitch", number))
    if nest.transposed:
        words.append(("tile",))
    if nest.can_fail:
        words.append(("error",))
    return words
