"""Groups to kernels: the stages of a fused reduction, split reductions, concatenation and writes through a view."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.domain import Domain
from flambeau.compiler.fuse import Group, describe
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.lower import layout
from flambeau.compiler.lower.spec import Load, Store
from flambeau.compiler.lower.statements import MAX_CACHED_ROW, Body, RawAccess, Writer, accumulator
from flambeau.compiler.pieces import is_placed
from flambeau.compiler.regions import covers, fill_value, reads_beside
from flambeau.dtypes import dtype
from flambeau.symbols import maximum, minimum

# A reduction is split into blocks if it has fewer units than this and at least so many points in all.
MIN_UNITS: Final = 16
MIN_POINTS: Final = 1 << 16
POINTS_PER_BLOCK: Final = 1 << 15
MAX_BLOCKS: Final = 128
COLUMNS_PER_UNIT: Final = 64  # about what a unit of a column reduction takes (4 vectors of float32)


@dataclass(slots=True)
class _Reduction:
    """A node's reduction as primitive ones: `parts` are (op, dtypes of the accumulator)."""

    index: int
    node: Node
    parts: list[tuple[str, tuple[dtype, ...]]]


def lower_loops(graph: Graph, group: Group) -> list[Kernel]:
    """The kernels of a loop-nest group, in order. May add values (partial results) to the graph.

    Normally one kernel; a reduction with few results is one kernel of partial results and one that combines them;
    a concatenation has one for each input, or none where they are written into it.
    """
    if group.head is not None:
        node = graph.nodes[group.head]
        kernels = _concatenate(graph, group, node) if node.op == "concatenate" else _scatter_view(graph, group)
    else:
        kernels = _Lowering(graph, group).kernels()
    if kernels:
        kernels[0].notes += group.notes
    return kernels


class _Lowering:
    def __init__(self, graph: Graph, group: Group) -> None:
        assert group.domain is not None
        self.graph = graph
        self.group = group
        self.domain: Domain = group.domain
        self.name = describe(graph, group)
        self.depth: dict[int, int] = {}
        self.reductions: list[_Reduction] = []
        for index in group.nodes:
            node = graph.nodes[index]
            depth = max((self.depth.get(graph.root(v), 0) for v in node.inputs), default=0)
            if node.op in g.REDUCE or node.op in g.REDUCE_PAIR:
                self.reductions.append(_Reduction(index, node, _parts(graph, node)))
                depth += 1
            for value in node.outputs:
                self.depth[value] = depth
        reduced = self.domain.reduced
        self.full = [v for v in group.outputs if self.domain.loops_of(self.domain.where[v]) & reduced]
        self.rows = [v for v in group.outputs if v not in self.full]

    def kernels(self) -> list[Kernel]:
        blocks = self._blocks()
        if blocks is not None:
            return self._split(blocks)
        return [layout.make_kernel(self.graph, self.body(), self.domain.sizes, self.name, self.group.nodes)]

    def body(self, row_bytes_limit: int = MAX_CACHED_ROW) -> Body:
        """The statements of one nest that computes all of the group."""
        writer = Writer(self.graph, self.domain, self.group.nodes, row_bytes_limit)
        stages = {self.depth.get(self._source(r), 0) for r in self.reductions}
        if self.domain.reduced:
            stages |= {self.depth[v] for v in self.full}
        for stage in sorted(stages):
            self._stage(writer, stage)
        self._store_rows(writer)
        return writer.end()

    def _source(self, r: _Reduction) -> int:
        return self.graph.root(r.node.inputs[0])

    def _stage(self, writer: Writer, stage: int) -> None:
        writer.begin_stage()
        results = []
        for r in self.reductions:
            if self.depth.get(self._source(r), 0) == stage:
                results.append((r, [writer.reduce(op, s) for op, s in self._sources(writer, r)]))
        self._store_full(writer, stage)
        writer.end_stage()
        for r, outs in results:
            self._finish(writer, r, outs)

    def _store_full(self, writer: Writer, stage: int) -> None:
        ready = [(v, writer.value(v, "stage")) for v in self.full if self.depth[v] == stage]
        for root, value in ready:
            writer.store(value, root, self.domain.where[root], "stage")

    def _store_rows(self, writer: Writer) -> None:
        ready = [(v, writer.value(v, "row")) for v in self.rows]
        for root, value in ready:
            writer.store(value, root, self.domain.where[root], "row")

    # -- what the reductions are --------------------------------------------------------------------------------
    def _sources(self, writer: Writer, r: _Reduction) -> list[tuple[str, tuple[int, ...]]]:
        """The primitive reductions of a node: (op, stage values)."""
        assert writer.stage is not None
        value = r.node.inputs[0]
        lists = self.domain.where[-1 - r.index]
        shape = self.graph.values[value].shape
        x = writer.operand(value, lists, shape, "stage")
        if r.node.op in ("argmax", "argmin"):
            (dim,) = r.node.attr("dims")
            steps = [int(axis == dim) for axis in range(len(shape))]
            strides = {loop: s for loop, _, s in self.domain.factors(lists, steps) if s}
            index = writer.load(RawAccess("index", dtypes.int64, None, 0, (), strides), "stage")
            return [(r.node.op, (x, index))]
        d = r.parts[0][1][0]
        x = writer.cast(writer.stage, x, d)
        if r.node.op != "var_mean":
            return [(r.node.op, (x,))]
        first = self._first(writer, r, d)
        shifted = writer.compute(writer.stage, "sub", d, (x, first))
        square = writer.compute(writer.stage, "mul", d, (shifted, shifted))
        return [("sum", (shifted,)), ("sum", (square,))]

    def _first(self, writer: Writer, r: _Reduction, d: dtype) -> int:
        """The row's first element (0 if there is none), as the accumulator's dtype, at row level."""
        key = ("first of", r.index)
        if key not in writer.row_values:
            value = r.node.inputs[0]
            shape = self.graph.values[value].shape
            if prod(shape) == 0:
                writer.row_values[key] = writer.compute(writer.row, "constant", d, (), value=0.0)
            else:
                x = writer.operand(value, self.domain.where[-1 - r.index], shape, "first")
                writer.row_values[key] = writer.cast(writer.row, x, d)
        return writer.row_values[key]

    def _finish(self, writer: Writer, r: _Reduction, outs: list[tuple[int, ...]]) -> None:
        """Row-level results of a node from its primitive reductions."""
        row = writer.row
        values = self.graph.values
        if r.node.op in ("argmax", "argmin"):
            writer.row_values[r.node.outputs[0]] = outs[0][1]
            return
        if r.node.op != "var_mean":
            out = r.node.outputs[0]
            writer.row_values[out] = writer.cast(row, outs[0][0], values[out].dtype)
            return
        d = r.parts[0][1][0]
        first = self._first(writer, r, d)
        count = prod(values[r.node.inputs[0]].shape[axis] for axis in r.node.attr("dims"))
        n = writer.cast(row, writer.number(count), d)
        shift = writer.compute(row, "div", d, (outs[0][0], n))
        mean = writer.compute(row, "add", d, (first, shift))
        square = writer.compute(row, "sub", d, (outs[1][0], writer.compute(row, "mul", d, (outs[0][0], shift))))
        if values[r.node.inputs[0]].dtype is dtypes.float64:  # squares of finite numbers may overflow: infinite, not the NaN of two infinities
            infinite = writer.compute(row, "constant", d, (), value=float("inf"))
            finite = writer.compute(row, "lt", dtypes.bool_, (writer.compute(row, "abs", d, (outs[0][0],)), infinite))
            over = writer.compute(row, "eq", dtypes.bool_, (outs[1][0], infinite))
            over = writer.compute(row, "bitwise_and", dtypes.bool_, (over, finite))
            square = writer.compute(row, "where", d, (over, infinite, square))
        zero = writer.compute(row, "constant", d, (), value=0.0)
        square = writer.compute(row, "maximum", d, (square, zero))
        correction = writer.compute(row, "constant", d, (), value=float(r.node.attr("correction")))
        degrees = writer.compute(row, "maximum", d, (writer.compute(row, "sub", d, (n, correction)), zero))
        variance = writer.compute(row, "div", d, (square, degrees))
        for out, value in zip(r.node.outputs, (variance, mean), strict=True):
            writer.row_values[out] = writer.cast(row, value, values[out].dtype)

    # -- split reductions ---------------------------------------------------------------------------------------
    def _blocks(self) -> int | None:
        """The number of blocks to reduce apart, if the rows are too few and long.

        A function of sizes alone: the tree of a sum must not depend on the machine."""
        sizes, reduced = self.domain.sizes, self.domain.reduced
        if not self.reductions or any(self.depth.get(self._source(r), 0) for r in self.reductions):
            return None
        if any(self.depth[v] for v in self.full):
            return None
        length = prod(sizes[loop] for loop in reduced)
        rows = prod(size for loop, size in sizes.items() if loop not in reduced)
        if length * rows < MIN_POINTS or length < 256:
            return None
        units = -(-rows // COLUMNS_PER_UNIT) if self._by_columns() else rows
        if units >= MIN_UNITS:
            return None
        count = minimum(MAX_BLOCKS, length * rows // POINTS_PER_BLOCK, length // 64, maximum(*[sizes[loop] for loop in reduced]))
        return count if count >= 2 else None

    def _by_columns(self) -> bool:
        """Whether the first reduction's input is contiguous along a row loop."""
        r = self.reductions[0]
        v = self.graph.values[r.node.inputs[0]]
        factors = self.domain.factors(self.domain.where[-1 - r.index], v.strides)
        unit = [loop for loop, size, stride in factors if stride == 1 and size != 1]
        return bool(unit) and not set(unit) & self.domain.reduced

    def _split(self, count: int) -> list[Kernel]:
        sizes = dict(self.domain.sizes)
        blocks_loop = max(sizes) + 1
        sizes[blocks_loop] = count
        # Partial results: the blocks outermost, then the rows in the order of the result.
        result = self.reductions[0].node.outputs[0]
        strides = {x: s for x, _, s in self.domain.factors(self.domain.where[result], self.graph.values[result].strides)}
        rows = sorted((x for x in sizes if x not in self.domain.reduced and x != blocks_loop),
                      key=lambda x: -strides.get(x, 0))  # fmt: skip
        shape = (count, *[sizes[x] for x in rows])
        steps = dict(zip((blocks_loop, *rows), contiguous_strides(shape), strict=True))
        steps = {x: s for x, s in steps.items() if sizes[x] != 1}

        writer = Writer(self.graph, self.domain, self.group.nodes, 0)
        writer.body.row_loops.add(blocks_loop)
        writer.begin_stage()
        results = [(r, [writer.reduce(op, s) for op, s in self._sources(writer, r)]) for r in self.reductions]
        self._store_full(writer, 0)
        writer.end_stage()
        partials: list[list[list[int]]] = []
        for r, outs in results:
            partials.append([])
            for (_, kinds), registers in zip(r.parts, outs, strict=True):
                roots = []
                for kind, register in zip(kinds, registers, strict=True):
                    root = self.graph.add_value(Value(shape, kind, contiguous_strides(shape)))
                    access = writer.access(RawAccess("store", kind, root, 0, (), dict(steps)))
                    writer.row.body.append(Store(access, register))
                    roots.append(root)
                partials[-1].append(roots)
        body = writer.end()
        first = layout.make_kernel(self.graph, body, sizes, self.name + "_blocks", self.group.nodes, blocks_loop)
        return [first, self._combine(sizes, blocks_loop, steps, partials)]

    def _combine(self, sizes: dict[int, int], blocks_loop: int, steps: dict[int, int], partials: list[list[list[int]]]) -> Kernel:
        writer = Writer(self.graph, self.domain, self.group.nodes, 0)
        writer.body.reduced_loops = {blocks_loop}
        writer.begin_stage()
        assert writer.stage is not None
        results = []
        for r, parts in zip(self.reductions, partials, strict=True):
            outs = []
            for (op, kinds), roots in zip(r.parts, parts, strict=True):
                loaded = []
                for kind, root in zip(kinds, roots, strict=True):
                    access = writer.access(RawAccess("load", kind, root, 0, (), dict(steps)))
                    value = writer.fresh(kind)
                    writer.stage.body.append(Load(value, access))
                    loaded.append(value)
                outs.append(writer.reduce(op, tuple(loaded)))
            results.append((r, outs))
        writer.end_stage()
        for r, outs in results:
            self._finish(writer, r, outs)
        self._store_rows(writer)
        return layout.make_kernel(self.graph, writer.end(), sizes, self.name + "_combine", self.group.nodes)


def _parts(graph: Graph, node: Node) -> list[tuple[str, tuple[dtype, ...]]]:
    d = graph.values[node.inputs[0]].dtype
    if node.op in ("argmax", "argmin"):
        return [(node.op, (d, dtypes.int64))]
    if node.op == "var_mean":
        wide = accumulator("sum", d)
        return [("sum", (wide,)), ("sum", (wide,))]
    return [(node.op, (accumulator(node.op, d),))]


def nest_body(graph: Graph, group: Group) -> tuple[Body, dict[int, int]]:
    """The statements of a group of pointwise nodes and reductions as one nest without row caches, and the sizes of its loops: for who writes other code."""
    lowering = _Lowering(graph, group)
    return lowering.body(0), lowering.domain.sizes


# -- movement -----------------------------------------------------------------------------------------------------
def _region(
    graph: Graph, group: Group, source: int, root: int, strides: tuple[int, ...], offset: int,
    dynamic: tuple[tuple[int, int], ...], name: str,
) -> Kernel:  # fmt: skip
    """Copy the value `source` into the elements (its shape, strides, offset) of the buffer of `root`."""
    body, sizes = region_body(graph, source, root, strides, offset, dynamic)
    kernel = layout.make_kernel(graph, body, sizes, name, group.nodes)
    kernel.in_place = ()  # the rest of the buffer is another kernel's, or there already
    return kernel


def region_body(
    graph: Graph, source: int, root: int, strides: tuple[int, ...], offset: int, dynamic: tuple[tuple[int, int], ...] = ()
) -> tuple[Body, dict[int, int]]:  # fmt: skip
    """The statements that copy a value into elements of a root's buffer, and the sizes of their loops."""
    domain = Domain()
    v = graph.values[source]
    lists = domain.new_lists(v.shape)
    writer = Writer(graph, domain, ())
    value = writer.operand(source, lists, v.shape, "row")
    writer.store(value, root, lists, "row", strides=strides, offset=offset, dynamic=dynamic)
    return writer.end(), domain.sizes


def _concatenate(graph: Graph, group: Group, node: Node) -> list[Kernel]:
    if is_placed(graph, node):
        return []
    root = node.outputs[0]
    strides = graph.values[root].strides
    dim = node.attr("dim")
    kernels, start = [], 0
    for source in node.inputs:
        if graph.values[source].numel:
            kernel = _region(graph, group, source, root, strides, start * strides[dim], (), "concatenate")
            kernel.moves = _piece(graph, source, root, dim, start * strides[dim])
            kernels.append(kernel)
        start += graph.values[source].shape[dim]
    return kernels or [_region(graph, group, node.inputs[0], root, strides, 0, (), "concatenate")]


def _piece(graph: Graph, source: int, root: int, dim: int, start: int) -> tuple[int, int, int] | None:
    """`Kernel.moves` of an input of a concatenation: if all of a root becomes neighbours, and starts at a cache line as roots do."""
    from_root = graph.root(source)
    part, value, out = graph.values[source], graph.values[from_root], graph.values[root]
    whole = part.numel == value.numel and part.offset == 0 and not part.dynamic and part.dtype is value.dtype is out.dtype
    at = start * out.dtype.itemsize
    if whole and part.is_contiguous and value.is_contiguous and out.is_contiguous and prod(out.shape[:dim]) == 1 and at % 64 == 0:
        return from_root, root, at
    return None


def _scatter_view(graph: Graph, group: Group) -> list[Kernel]:
    """Writes of disjoint regions, over the first one's base: in its buffer, over a copy, over a number, or over nothing
    where the regions cover the result.

    What a write reads of the base is copied before the first write changes it, or the base is copied and left as it is.
    """
    nodes = [graph.nodes[i] for i in group.nodes]
    root = nodes[-1].outputs[0]
    out = graph.values[root]
    base = nodes[0].inputs[0]
    under = graph.root(base)
    value = fill_value(graph, under)
    b, held = graph.values[base], graph.values[under]
    same = b.strides == out.strides and not b.offset and not b.dynamic and (held.numel, held.dtype) == (out.numel, out.dtype)
    covered = covers(graph, nodes) and any(graph.values[node.inputs[1]].numel for node in nodes)
    in_base = [graph.root(node.inputs[1]) == under for node in nodes]
    meets = any(in_base) and not (len(nodes) == 1 and reads_beside(graph, nodes[0]))
    shares = not covered and value is None and same and not (meets and _outlives(graph, under, group))
    first: list[Kernel] = []
    writes = []
    for node, reads_base in zip(nodes, in_base, strict=True):
        source = node.inputs[1]
        v = graph.values[source]
        if not v.numel:
            continue
        if reads_base and meets and shares:
            copied = graph.add_value(Value(v.shape, v.dtype, contiguous_strides(v.shape)))
            first.append(_region(graph, group, source, copied, contiguous_strides(v.shape), 0, (), "copy"))
            source = copied
        dynamic = tuple(zip(node.inputs[2:], node.attr("multipliers"), strict=True))
        writes.append(_region(graph, group, source, root, tuple(node.attr("strides")), node.attr("offset"), dynamic, "scatter_view"))
    if covered:
        return writes
    if shares and writes:
        writes[0].starts_as = ((root, under),)
        writes[0].reads = tuple(dict.fromkeys((*writes[0].reads, under)))
        later = writes[1:]
    else:
        first = [_fill(graph, group, root, value) if value is not None
                 else _region(graph, group, base, root, out.strides, 0, (), "copy")]  # fmt: skip
        later = writes
    for write in later:
        write.reads = (*write.reads, root)  # after what the others lie upon
    return first + writes


def _outlives(graph: Graph, root: int, group: Group) -> bool:
    """Whether a value is still read after the group: what is made of it there needs a buffer of its own anyway."""
    if root in graph.inputs:
        position = graph.inputs.index(root)
        if all(at != position or value == root for at, value in graph.updates):
            return True
    later = graph.nodes[max(group.nodes) + 1 :]
    return root in graph.outputs or any(node.op not in g.VIEWS and graph.root(value) == root for node in later for value in node.inputs)


def _fill(graph: Graph, group: Group, root: int, value: complex) -> Kernel:
    """Every element of the root is `value`."""
    body, sizes = fill_body(graph, root, value)
    return layout.make_kernel(graph, body, sizes, "fill", group.nodes)


def fill_body(graph: Graph, root: int, value: complex) -> tuple[Body, dict[int, int]]:
    """The statements that make every element of a root a number, and the sizes of their loops."""
    domain = Domain()
    out = graph.values[root]
    lists = domain.new_lists(out.shape)
    writer = Writer(graph, domain, ())
    number = writer.compute(writer.row, "constant", out.dtype, (), value=value)
    writer.store(number, root, lists, "row")
    return writer.end(), domain.sizes
