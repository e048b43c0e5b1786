"""From the nodes of a group to the statements of a nest, over the group's own loops (`layout.py` orders and joins
them).

Demand-driven: a stage computes what its reductions and stores need and nothing else. A value of the whole domain is
computed again in every stage that needs it, from memory that is still in the cache, unless it is expensive: then the
first stage keeps it in a row cache. Sums and products of float32 and narrower run in float64 (measured free: loads
bound such loops), which beats PyTorch's cascade summation in accuracy and makes the result nearly independent of the
order.

var_mean in one pass: with K the row's first element, mean = K + s1/n and M2 = s2 - s1*s1/n of s1 = sum(x-K),
s2 = sum((x-K)^2), the shifted-data algorithm of Chan, Golub, LeVeque, "Algorithms for computing the sample variance",
1983: as (K-mean)^2 <= M2, cancellation costs at most log2(n) bits of float64's 53.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.domain import Domain, Lists, broadcast_strides
from flambeau.compiler.graph import Graph, Node
from flambeau.compiler.lower.spec import Compute, Load, Reduce, Statement, Store
from flambeau.dtypes import dtype
from flambeau.symbols import as_int, is_whole, roughly_over

# Rough weight of an operation: vector instructions on AVX-512 (counted in emitted code), 1 where not named.
WEIGHTS: Final = {
    "exp": 20, "exp_weight": 12, "exp2": 12, "expm1": 32, "log": 24, "log2": 18, "log10": 18, "log1p": 32, "sin": 25, "cos": 25,
    "tan": 35, "asin": 25, "acos": 25, "atan": 25, "sinh": 25, "cosh": 25, "tanh": 44, "asinh": 30,
    "acosh": 30, "atanh": 30, "erf": 44, "erf_plus_one": 20, "erfc": 30, "erfinv": 30, "lgamma": 60, "digamma": 60, "sigmoid": 20,
    "pow": 50, "atan2": 35, "div": 6, "sqrt": 6, "rsqrt": 10, "reciprocal": 6, "remainder": 12, "fmod": 12,
    "div_floor": 12, "div_trunc": 12, "hypot": 12, "random_uniform": 60, "take": 12, "searchsorted": 100,
}  # fmt: skip
EXPENSIVE: Final = 10  # from this weight on a value is kept between stages
MAX_CACHED_ROW: Final = 1 << 18  # bytes: a part of the L2 cache


def weight(op: str) -> int:
    return WEIGHTS.get(op, 1)


def accumulator(op: str, d: dtype) -> dtype:
    """The dtype that a reduction of `d` runs in."""
    if op in ("sum", "prod"):
        if d.is_floating_point:
            return dtypes.float64
        if d.is_complex:
            return dtypes.complex128
    return d


# Whole numbers of this size among floats may be counts (the divisor of a mean): they are run-time words, so that another size
# is no other kernel. Smaller ones are constants of formulas, of which the compiler makes use.
LEAST_COUNT: Final = 3
MOST_COUNT: Final = 1 << 24


@dataclass(slots=True)
class RawAccess:
    """An access over the group's loops: `strides` by loop (absent: 0). `value`: root or parameter (None: index,
    cache)."""

    role: str
    dtype: dtype
    value: int | None
    offset: int
    dynamic: tuple[tuple[int, int], ...]
    strides: dict[int, int]
    blocks: set[int] = field(default_factory=set)  # where it is used


@dataclass(slots=True)
class RawBlock:
    stage: bool
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Body:
    """Statements of one nest over raw loops, and the loops it runs over."""

    accesses: list[RawAccess] = field(default_factory=list)
    blocks: list[RawBlock] = field(default_factory=list)
    dtypes: list[dtype] = field(default_factory=list)
    row_loops: set[int] = field(default_factory=set)
    reduced_loops: set[int] = field(default_factory=set)


class Writer:
    """Writes the statements of one nest. `domain` gives sizes and loops of the group's values; `nodes` the members."""

    def __init__(self, graph: Graph, domain: Domain, nodes: tuple[int, ...], row_bytes_limit: int = MAX_CACHED_ROW) -> None:
        self.graph = graph
        self.domain = domain
        self.body = Body(reduced_loops=set(domain.reduced), row_loops=set(domain.sizes) - domain.reduced)
        self.producer: dict[int, tuple[int, Node]] = {}
        for index in nodes:
            for value in graph.nodes[index].outputs:
                self.producer[value] = (index, graph.nodes[index])
        self.row: RawBlock = RawBlock(False)
        self.stage: RawBlock | None = None
        self.row_values: dict[Any, int] = {}
        self.stage_values: dict[Any, int] = {}
        self.kept: list[tuple[RawBlock, dict[Any, int]]] = []  # earlier stages and their values
        self.caches: dict[int, int] = {}  # root -> access
        self.row_elements = 1
        for loop in domain.reduced:
            self.row_elements *= domain.sizes[loop]
        self.limit = row_bytes_limit
        self._weights: dict[int, int] = {}
        self._access: dict[Any, int] = {}

    # -- small parts --------------------------------------------------------------------------------------------
    def fresh(self, d: dtype) -> int:
        self.body.dtypes.append(d)
        return len(self.body.dtypes) - 1

    def access(self, raw: RawAccess) -> int:
        strides = tuple(sorted((k, v) for k, v in raw.strides.items() if v))
        key = (raw.role, raw.dtype, raw.value, raw.offset, raw.dynamic, strides)
        if raw.role == "cache" or key not in self._access:
            raw.strides = dict(strides)
            self.body.accesses.append(raw)
            self._access[key] = len(self.body.accesses) - 1
        return self._access[key]

    def compute(self, block: RawBlock, op: str, d: dtype, inputs: tuple[int, ...], base: int = -1, **attrs: Any) -> int:
        out = self.fresh(d)
        block.body.append(Compute(out, op, inputs, tuple(sorted(attrs.items())), base))
        return out

    def cast(self, block: RawBlock, value: int, d: dtype) -> int:
        if self.body.dtypes[value] is d:
            return value
        return self.compute(block, "cast", d, (value,), dtype=d)

    def number(self, value: int) -> int:
        """A run-time integer (a size), at row level."""
        key = ("number", value)
        if key not in self.row_values:
            self.row_values[key] = self._load(self.row, RawAccess("index", dtypes.int64, None, value, (), {}))
        return self.row_values[key]

    def _load(self, block: RawBlock, raw: RawAccess) -> int:
        access = self.access(raw)
        out = self.fresh(raw.dtype)
        block.body.append(Load(out, access))
        return out

    def is_full(self, root: int) -> bool:
        """Whether a computed value varies along the reduced loops."""
        reduced = self.domain.reduced
        return bool(reduced) and any(loop in reduced for dims in self.domain.where[root] for loop in dims)

    def weight_of(self, root: int) -> int:
        """Weight of computing a value again from memory (row-level values are there already)."""
        if root not in self.producer:
            return 1
        if root not in self._weights:
            node = self.producer[root][1]
            total = weight(node.op)
            if node.op not in g.REDUCE and node.op not in g.REDUCE_PAIR:
                for value in node.inputs:
                    source = self.graph.root(value)
                    if source not in self.producer or self.is_full(source):
                        total += self.weight_of(source)
            self._weights[root] = min(total, 1000)
        return self._weights[root]

    # -- values -------------------------------------------------------------------------------------------------
    def operand(self, value: int, lists: Lists, shape: tuple[int, ...], at: str) -> int:
        """A node's input at "stage" (every point), "row" or "first" (the row's first point): a value number.

        `lists` are the loops of the node's iteration space, of `shape`."""
        root = self.graph.root(value)
        producer = self.producer.get(root)
        if producer is not None and producer[1].op != "iota":
            return self.value(root, at)
        v = self.graph.values[value]
        strides = {loop: s for loop, _, s in self.domain.factors(lists, broadcast_strides(v, shape)) if s}
        if producer is not None and self._is_read_as_computed(root, strides):
            return self.value(root, at)
        return self.load(RawAccess("load", v.dtype, root, v.offset, v.dynamic, strides), at)

    def _is_read_as_computed(self, root: int, strides: dict[int, int]) -> bool:
        """A leaf (iota) may be read in a second pattern, for which it stands in memory."""
        r = self.graph.values[root]
        sizes = self.domain.sizes
        factors = self.domain.factors(self.domain.where[root], r.strides)
        own = {loop: s for loop, n, s in factors if s and n != 1}
        return own == {loop: s for loop, s in strides.items() if sizes[loop] != 1}

    def load(self, raw: RawAccess, at: str) -> int:
        raw.strides = {loop: s for loop, s in raw.strides.items() if self.domain.sizes[loop] != 1}
        moves = bool(raw.strides.keys() & self.domain.reduced)
        if at == "first" and moves:
            raw.strides = {loop: s for loop, s in raw.strides.items() if loop not in self.domain.reduced}
            moves = False
        access = self.access(raw)
        in_stage = moves and at == "stage"
        values = self.stage_values if in_stage else self.row_values
        key = ("load", access)
        if key not in values:
            block = self.row
            if in_stage:
                assert self.stage is not None
                block = self.stage
            out = self.fresh(raw.dtype)
            block.body.append(Load(out, access))
            values[key] = out
        return values[key]

    def value(self, root: int, at: str) -> int:
        """A value that a node of the group computes."""
        full = self.is_full(root)
        if at == "stage" and full:
            if root not in self.stage_values:
                self.stage_values[root] = self._cached(root)
            return self.stage_values[root]
        key: Any = ("first", root) if full else root
        if key not in self.row_values:
            self.row_values[key] = self._node(root, "first" if full else "row")
        return self.row_values[key]

    def _cached(self, root: int) -> int:
        """Reload an expensive value that an earlier stage had, else compute it."""
        d = self.graph.values[root].dtype
        if self.kept and self.weight_of(root) >= EXPENSIVE and not roughly_over(self.row_elements * d.itemsize, self.limit):
            for block, values in self.kept:
                if root in values:
                    if root not in self.caches:
                        self.caches[root] = self.access(RawAccess("cache", d, None, 0, (), {}))
                        block.body.append(Store(self.caches[root], values[root]))
                    assert self.stage is not None
                    out = self.fresh(d)
                    self.stage.body.append(Load(out, self.caches[root]))
                    return out
        return self._node(root, "stage")

    def _node(self, root: int, at: str) -> int:
        node = self.producer[root][1]
        if node.op in g.REDUCE or node.op in g.REDUCE_PAIR:
            raise RuntimeError(f"value %{root} of {node.op} is needed before its stage")
        lists = self.domain.where[node.outputs[0]]
        shape = self.graph.values[node.outputs[0]].shape
        d = self.graph.values[root].dtype
        block = self.row
        if at == "stage":
            assert self.stage is not None
            block = self.stage
        if node.op == "constant":
            number = node.attr("value")
            if d.name in ("float32", "float64") and LEAST_COUNT <= abs(number) < MOST_COUNT and is_whole(number):
                return self.cast(self.row, self.number(as_int(number)), d)
            return self.compute(block, "constant", d, (), value=node.attr("value"))
        if node.op == "iota":
            steps = [int(axis == node.attr("dim")) for axis in range(len(shape))]
            return self._index(lists, steps, at)
        if node.op in ("take", "searchsorted"):
            return self._lookup(node, d, lists, shape, at)
        inputs = tuple([self.operand(v, lists, shape, at) for v in node.inputs])
        block = self.row if at != "stage" else block
        if node.op == "copy":
            return inputs[0]
        if node.op == "random_uniform":
            inputs = (*inputs, self._index(lists, list(g.contiguous_strides(shape)), at))
        attrs: dict[str, Any] = {"dtype": d} if node.op == "cast" else {}
        return self.compute(block, node.op, d, inputs, **attrs)

    def _index(self, lists: Lists, steps: list[int], at: str) -> int:
        strides = {loop: s for loop, _, s in self.domain.factors(lists, steps) if s}
        return self.load(RawAccess("index", dtypes.int64, None, 0, (), strides), at)

    def _lookup(self, node: Node, d: dtype, lists: Lists, shape: tuple[int, ...], at: str) -> int:
        table = self.graph.values[node.inputs[0]]
        root = self.graph.root(node.inputs[0])
        strides: dict[int, int] = {}
        if node.op == "searchsorted" and len(table.shape) > 1:
            leading = (*table.strides[:-1], 0)
            strides = {loop: s for loop, _, s in self.domain.factors(lists, leading) if s}
        if at == "first":
            strides = {loop: s for loop, s in strides.items() if loop not in self.domain.reduced}
        base = self.access(RawAccess("base", table.dtype, root, table.offset, table.dynamic, strides))
        sought = self.operand(node.inputs[1], lists, shape, at)
        inputs = [sought, self.number(table.shape[-1])]
        if table.strides[-1] != 1 and table.shape[-1] > 1:
            inputs.append(self.number(table.strides[-1]))
        block = self.row
        if at == "stage":
            assert self.stage is not None
            block = self.stage
        attrs = {"right": node.attr("right")} if node.op == "searchsorted" else {}
        return self.compute(block, node.op, d, tuple(inputs), base, **attrs)

    # -- stages and stores --------------------------------------------------------------------------------------
    def begin_stage(self) -> None:
        self.stage = RawBlock(True)
        self.stage_values = {}

    def end_stage(self) -> None:
        """Close the row block and the stage after it; row-level values of the stage belong to a new row block."""
        assert self.stage is not None
        self.body.blocks += [self.row, self.stage]
        self.kept.append((self.stage, self.stage_values))
        self.row, self.stage = RawBlock(False), None

    def end(self) -> Body:
        """Close the last row block; gives the finished body without empty blocks, blocks of each access filled in."""
        self.body.blocks.append(self.row)
        self.body.blocks = [block for block in self.body.blocks if block.body]
        for number, block in enumerate(self.body.blocks):
            for s in block.body:
                if isinstance(s, Load | Store):
                    self.body.accesses[s.access].blocks.add(number)
                elif isinstance(s, Compute) and s.base >= 0:
                    self.body.accesses[s.base].blocks.add(number)
        return self.body

    def reduce(self, op: str, sources: tuple[int, ...]) -> tuple[int, ...]:
        """Reduce stage values; the results are row-level."""
        assert self.stage is not None
        outs = tuple(self.fresh(self.body.dtypes[v]) for v in sources)
        self.stage.body.append(Reduce(outs, op, sources))
        return outs

    def store(self, value: int, root: int, lists: Lists, at: str, **place: Any) -> None:
        """Store a value number into a root's buffer (or, with strides/offset/dynamic, a part of it), or into the whole whose
        piece the root is (pieces.py)."""
        r = self.graph.values[root]
        strides = place.get("strides", r.strides)
        by_loop = {loop: s for loop, n, s in self.domain.factors(lists, strides) if n != 1}
        offset, dynamic = place.get("offset", r.offset), place.get("dynamic", ())
        access = self.access(RawAccess("store", r.dtype, self.graph.root(root), offset, dynamic, by_loop))
        block = self.row
        if at == "stage":
            assert self.stage is not None
            block = self.stage
        block.body.append(Store(access, value))
