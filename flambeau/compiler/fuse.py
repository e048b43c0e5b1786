"""Fusion: which nodes of a graph become one kernel.

One pass in execution order. Each pointwise node tries to join the groups that compute its inputs (and to join them to
one another), then a group that reads the same memory; each reduction tries to join the group that computes its input.
A contraction starts a group whose epilogue are the pointwise nodes that follow it. A join must leave the groups without
cycles (`_Ancestry`), the node's loops must be the group's (`domain.py`), and the result must stay within `LIMITS`.
Every refusal is written down: `explain` prints the notes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Final

from flambeau.compiler import graph as g
from flambeau.compiler.apart import MAX_STREAMED_BYTES, MAX_STREAMS, products_apart
from flambeau.compiler.domain import Domain, Lists, Mismatch, broadcast_strides
from flambeau.compiler.graph import Graph, Node
from flambeau.compiler.orient import orient
from flambeau.compiler.regions import are_disjoint, needs_base
from flambeau.compiler.summation import as_alone
from flambeau.symbols import roughly_over

# A kernel's instructions and live pointers: beyond these the register file spills and compile time grows without gain
# (16 integer and 32 vector registers; measured on 100-operation chains, where halving the chain costs little).
MAX_NODES: Final = 96
MAX_OPERANDS: Final = 40
# Values after a reduction are fused back over the row only while the row stays in a core's cache, and while there
# are rows enough for the threads (or the whole work is small).
MAX_ROW_BYTES: Final = 1 << 20
MIN_ROWS: Final = 8
SMALL_WORK_BYTES: Final = 1 << 17

EPILOGUE_KINDS: Final = frozenset(("matmul", "convolution"))
LOOPS: Final = "loops"
# Sources that cost less to compute again than to load: every consumer computes its own. So are scalars made of run-time
# parameters and constants (a learning rate divided by a bias correction): a kernel computes them once at its entry.
_LEAVES: Final = frozenset(("constant", "iota"))
_NO_LEAVES: Final = frozenset(("take", "searchsorted", "random_uniform"))


@dataclass(slots=True)
class Group:
    """Nodes that become one kernel (see `fuse`). `domain` gives the loops of a loop nest or an epilogue."""

    kind: str
    nodes: tuple[int, ...]
    head: int | None
    outputs: tuple[int, ...]
    notes: list[str] = field(default_factory=list)
    domain: Domain | None = None


@dataclass(slots=True, eq=False)
class _Open:
    """A group that is being built. `bits`: the numbers it has, also those of groups merged into it; `ancestors`: bits of
    all groups it depends on, directly or not. `depth`: reductions a value needs before it, inside the group."""

    number: int
    kind: str
    bits: int
    ancestors: int = 0
    nodes: list[int] = field(default_factory=list)
    head: int | None = None
    notes: list[str] = field(default_factory=list)
    domain: Domain = field(default_factory=Domain)
    reads: set[int] = field(default_factory=set)
    depth: dict[int, int] = field(default_factory=dict)
    late: bool = False  # it computes values again: see recompute.py
    feeds: int = 0  # the groups that must have run before its contraction starts


def fuse(graph: Graph) -> list[Group]:
    """Group the nodes of `graph` (views excepted: they need no kernel), in an order in which they can run. Products
    that are read transposed are laid out so (`orient`): this changes the strides of temporary values of `graph`."""
    orient(graph)
    return as_alone(graph, [part for group in _Fusion(graph).run() for part in _without_streams(graph, group)])


def _without_streams(graph: Graph, group: Group) -> list[Group]:
    """The group; or, if its epilogue walks many arrays, the product alone and a kernel that walks them in long rows.

    Measured (Adam's update after the product 784 x 32 x 256, 2 threads): 162 us as an epilogue, 43 + 64 us as two kernels;
    (384 x 2048 x 1536) 8.05 against 7.34 + 0.28 ms. A product too large for the caches gains by its epilogue all the same.
    """
    if group.kind != "matmul" or group.head is None:
        return [group]
    result = graph.nodes[group.head].outputs[0]
    value = graph.values[result]
    followers = tuple([index for index in group.nodes if index != group.head])
    made = {value for index in group.nodes for value in graph.nodes[index].outputs}
    roots = {graph.root(value) for index in followers for value in graph.nodes[index].inputs} - made
    outputs = tuple([value for value in group.outputs if value != result])
    streams = sum([graph.values[root].numel >= value.numel for root in (*roots, *outputs)])
    if streams <= MAX_STREAMS or value.numel * value.dtype.itemsize > MAX_STREAMED_BYTES:
        return [group]
    note = f"the epilogue would walk {streams} arrays; at most {MAX_STREAMS} do not slow a product down"
    return [
        Group(group.kind, (group.head,), group.head, (result,), group.notes, group.domain),
        Group(LOOPS, followers, None, outputs, [note], group.domain),
    ]


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.apart = products_apart(graph)
        self.values = graph.values
        self.root = [number if value.base is None else value.base for number, value in enumerate(graph.values)]
        self.groups: list[_Open] = []
        self.living: dict[int, _Open] = {}  # those of them that have not become part of another, by number
        self.needed = 0  # bits of all groups that another one depends on
        self.home: dict[int, _Open] = {}  # root value -> the group that computes it
        self.producer: dict[int, int] = {}  # root value -> node
        self.readers: dict[int, list[_Open]] = {}  # root value read from memory -> groups
        self.parameters = frozenset(graph.parameters)
        self.uses: dict[int, int] = {}  # root value -> nodes that read it, two if it must outlive the plan
        self.leaves: dict[int, int] = {}  # root value of a leaf -> node, while no group computes it
        self.goes_on: dict[int, bool] = {}  # root value -> whether pointwise nodes read it
        for index, node in enumerate(graph.nodes):
            for value in node.outputs:
                self.producer[value] = index
                self.goes_on[value] = False
            if node.op in g.POINTWISE:
                for value in node.inputs:
                    self.goes_on[graph.root(value)] = True

    def run(self) -> list[Group]:
        wanted = {self.root[v] for v in self.graph.outputs} | {v for _, v in self.graph.updates}
        self.uses = dict.fromkeys(wanted, 2)
        for node in self.graph.nodes:
            if node.op not in g.VIEWS:
                for value in node.inputs:
                    root = self.root[value]
                    self.uses[root] = self.uses.get(root, 0) + 1
        for index, node in enumerate(self.graph.nodes):
            if node.op in g.VIEWS:
                continue
            if self._is_leaf(node):
                self.leaves[node.outputs[0]] = index
                if node.outputs[0] in wanted:
                    self._demand(node.outputs[0])
            elif node.op in g.POINTWISE or node.op == "copy":
                self._pointwise(index, node)
            elif node.op in g.REDUCE or node.op in g.REDUCE_PAIR:
                self._reduction(index, node)
            else:
                self._other(index, node)
        return self._finish(wanted)

    # -- bookkeeping --------------------------------------------------------------------------------------------
    def _new(self, kind: str) -> _Open:
        group = _Open(len(self.groups), kind, 1 << len(self.groups))
        self.groups.append(group)
        self.living[group.number] = group
        return group

    def _sources(self, node: Node) -> list[_Open]:
        """Groups that compute inputs of the node (offset parameters of views have none)."""
        seen: dict[int, _Open] = {}
        for value in node.inputs:
            group = self.home.get(self.root[value])
            if group is not None:
                seen[group.number] = group
        return list(seen.values())

    def _depend(self, group: _Open, on: Iterable[_Open]) -> None:
        added = 0
        for other in on:
            if other is not group:
                added |= other.bits | other.ancestors
        if added & ~group.ancestors:
            group.ancestors |= added
            self._spread_order(group)

    def _spread_order(self, group: _Open) -> None:
        """Tell everybody below a group what is newly above it."""
        bits, above = group.bits, group.bits | group.ancestors
        self.needed |= group.ancestors
        if self.needed & bits:
            for other in self.living.values():
                if other.ancestors & bits and other is not group:
                    other.ancestors |= above

    def _cycle(self, members: list[_Open], node: Node) -> bool:
        """Whether making `members` and the node one group would close a cycle through a group outside.

        Everybody's `ancestors` are complete: one source that depends on a member tells of all groups between them.
        """
        bits = 0
        for member in members:
            bits |= member.bits
        for source in self._sources(node):
            if source.ancestors & bits and not source.bits & bits:
                return True
        if len(members) == 1:
            return False
        above = 0
        for member in members:
            above |= member.ancestors
        return any(other.ancestors & bits and other.bits & above and not other.bits & bits for other in self.living.values())

    def _add(self, group: _Open, index: int, node: Node) -> None:
        """Make the node a member, its loops being known."""
        group.nodes.append(index)
        for value in node.outputs:
            self.home[value] = group
        depth = max((group.depth.get(self.root[value], 0) for value in node.inputs), default=0)
        self._read(group, node)
        if node.op in g.REDUCE or node.op in g.REDUCE_PAIR:
            depth += 1
        for value in node.outputs:
            group.depth[value] = depth
        self._depend(group, self._sources(node))

    def _read(self, group: _Open, node: Node) -> None:
        """Note the arrays and parameters that the node reads from memory."""
        for value in node.inputs:
            root = self.root[value]
            if self.home.get(root) is not group and root not in self.leaves and root not in group.reads:
                group.reads.add(root)
                self.readers.setdefault(root, []).append(group)

    def _lives(self, group: _Open) -> bool:
        """Whether it has not become part of another, whose number it then has."""
        return self.living.get(group.number) is group

    def _merge(self, group: _Open, other: _Open) -> None:
        """Move the nodes of `other` (its loops are translated already) into `group`."""
        del self.living[other.number]
        other.number = group.number
        group.late |= other.late
        group.bits |= other.bits
        group.ancestors = (group.ancestors | other.ancestors) & ~group.bits
        self._spread_order(group)
        group.nodes = sorted({*group.nodes, *other.nodes})
        group.notes += other.notes
        for index in other.nodes:
            for value in self.graph.nodes[index].outputs:
                if self.home.get(value) is other:
                    self.home[value] = group
        for root in other.reads:
            if self.home.get(root) is not group:
                group.reads.add(root)
                self.readers.setdefault(root, []).append(group)

    # -- leaves -------------------------------------------------------------------------------------------------
    def _is_leaf(self, node: Node) -> bool:
        """Whether every consumer computes the node's value for itself."""
        if node.op in _LEAVES:
            return True
        if node.op not in g.POINTWISE or node.op in _NO_LEAVES or self._shape(node) != ():
            return False
        return all(value in self.leaves or value in self.parameters for value in node.inputs)

    def _demand(self, root: int) -> None:
        """A leaf that must be in memory after all gets a group of its own."""
        if root in self.leaves:
            index = self.leaves.pop(root)
            group = self._new(LOOPS)
            node = self.graph.nodes[index]
            self._place(group, index, node, group.domain.new_lists(self._shape(node)), self._shape(node))

    def _pull_leaves(self, group: _Open, node: Node, lists: Lists, shape: tuple[int, ...]) -> None:
        """Compute the node's leaf inputs inside `group`, in the node's loops; those that cannot be go to memory."""
        for value in node.inputs:
            root = self.root[value]
            if root not in self.leaves:
                continue
            leaf = self.graph.nodes[self.leaves[root]]
            v, r = self.values[value], self.values[root]
            try:
                if v.dtype is not r.dtype:
                    raise Mismatch("its bits are read as another dtype")
                if not r.shape:
                    where: Lists = ()
                    self._pull_leaves(group, leaf, (), ())
                else:
                    if v.offset or v.dynamic:
                        raise Mismatch("a slice of a computed value")
                    strides = broadcast_strides(v, shape)
                    known = [f for f in group.domain.factors(lists, strides) if f[2] != 0]
                    found = group.domain.align(known, r.shape, r.strides)
                    lists = group.domain.where.get(node.outputs[0], lists)
                    if None in found:
                        raise Mismatch("a slice of a computed value")
                    where = tuple(dims or () for dims in found)
                if group.domain.where.setdefault(root, where) != where:
                    raise Mismatch("it is read in two patterns")
                if self.leaves[root] not in group.nodes:
                    group.nodes.append(self.leaves[root])
                    group.depth[root] = 0
                    self._read(group, leaf)
            except Mismatch:
                self._demand(root)

    # -- pointwise ----------------------------------------------------------------------------------------------
    def _shape(self, node: Node) -> tuple[int, ...]:
        return self.values[node.outputs[0]].shape

    def _pointwise(self, index: int, node: Node) -> None:
        shape = self._shape(node)
        direct = node.inputs[1:] if node.op == "take" else node.inputs[1:] if node.op == "searchsorted" else node.inputs
        if len(direct) != len(node.inputs):
            self._demand(self.root[node.inputs[0]])
        sources = [s for s in self._sources(node) if s.kind == LOOPS or s.kind in EPILOGUE_KINDS]
        # The group with the most loops first: its values fix the most of the node's loops.
        late = index in self.graph.late
        if late:  # never back into the kernel that computed the value first
            sources = [s for s in sources if s.late]
        if len(sources) > 1:
            sources.sort(key=lambda s: (s.kind == LOOPS, -prod(s.domain.sizes.values()), s.number))
        home: _Open | None = None
        notes = []
        for source in sources:
            reason = self._try_join(source, index, node, shape)
            if not reason:
                home = source
                break
            notes.append(f"{node.op} (node {index}) is not fused into group {source.number}: {reason}")
        if home is None and not late:
            home = self._join_sibling(index, node, shape)
        if home is None:
            home = self._new(LOOPS)
            home.late = late
            home.notes += notes
            lists = home.domain.new_lists(shape)
            self._place(home, index, node, lists, shape)
        for source in sources:
            if self._lives(source) and source is not home and source.kind == LOOPS:
                reason = self._try_merge(home, source, node, shape)
                if reason:
                    home.notes.append(f"group {source.number} is not fused with {node.op} (node {index}): {reason}")

    def _place(self, group: _Open, index: int, node: Node, lists: Lists, shape: tuple[int, ...]) -> None:
        output = node.outputs[0]
        group.domain.where[output] = lists
        self._pull_leaves(group, node, lists, shape)
        self._add(group, index, node)

    def _full(self, group: _Open) -> str:
        if len(group.nodes) >= MAX_NODES:
            return f"the group has {MAX_NODES} nodes already"
        if len(group.reads) >= MAX_OPERANDS:
            return f"the group reads {MAX_OPERANDS} arrays already"
        return ""

    def _try_join(self, group: _Open, index: int, node: Node, shape: tuple[int, ...]) -> str:
        """Add a pointwise node to the group that computes some of its inputs; returns the reason if that is
        impossible."""
        reason = self._full(group)
        if reason:
            return reason
        if self._cycle([group], node):
            return "it needs a kernel that needs this group"
        if node.op in ("take", "searchsorted") and self.home.get(self.root[node.inputs[0]]) is group:
            return "it looks up elements of a value of this group"
        try:
            lists = self._lists_for(group, node, shape)
            self._check_level(group, node, lists)
        except Mismatch as reason_:
            return str(reason_)
        if group.kind != LOOPS:
            reason = self._epilogue_refuses(group, node, lists, shape)
            if reason:
                return reason
        self._place(group, index, node, lists, shape)
        return ""

    def _epilogue_refuses(self, group: _Open, node: Node, lists: Lists, shape: tuple[int, ...], merged: _Open | None = None) -> str:
        """Why the node cannot follow the contraction on rectangles of (batch, rows, columns), or ""."""
        domain = group.domain
        if group.head in self.apart:
            return "what follows the product is reduced, which an epilogue cannot do"
        if domain.loops_of(lists) != domain.sizes.keys():
            return "an epilogue runs over the whole of the contraction's result"
        if node.op in ("take", "searchsorted", "random_uniform"):
            return f"an epilogue has no {node.op}"
        if node.op == "cast" and 8 == self.values[node.outputs[0]].dtype.itemsize > self.values[node.inputs[0]].dtype.itemsize:
            return "what follows reads fewer bytes than an epilogue would write"  # a batch norm, which computes in float64
        assert group.head is not None
        head = self.graph.nodes[group.head]
        if self.values[head.outputs[0]].dtype.is_complex:
            return "a complex contraction has no epilogue"
        lists_of_head = domain.where[head.outputs[0]]
        order = [loop for dim in vector_dims(self.graph, head) for loop in lists_of_head[dim]]
        accesses = [domain.factors(lists, self.values[node.outputs[0]].strides)]
        for value in node.inputs:
            root = self.root[value]
            if root in self.leaves:
                if self.values[root].shape:
                    return "an epilogue has no iota"
            elif root not in self.home or self.home[root] not in (group, merged):
                accesses.append(domain.factors(lists, broadcast_strides(self.values[value], shape)))
        for factors in accesses:
            strides = {loop: stride for loop, _, stride in factors}
            for outer, inner in pairwise(order):
                if strides.get(outer, 0) != strides.get(inner, 0) * domain.sizes[inner]:
                    return "it does not run through the columns of the contraction's result in one stride"
        return ""

    def _lists_for(self, group: _Open, node: Node, shape: tuple[int, ...]) -> Lists:
        """The loops of a pointwise node from its inputs that the group computes. Raises Mismatch."""
        domain = group.domain
        plain = self._plain_lists(group, node, shape)
        if plain is not None:
            return plain
        found: list[tuple[int, ...] | None] = [() if size == 1 else None for size in shape]
        inputs = []
        for value in node.inputs:
            root = self.root[value]
            if self.home.get(root) is group:
                inputs.append((self._access_of(value, root, shape), root))
        inputs.sort(key=lambda item: -prod(self.values[item[1]].shape))
        for strides, root in inputs:
            # Twice: the second look sees the loops as the splits of the first have left them.
            before = set(domain.sizes)
            some = self._align_root(domain, root, shape, strides)
            if set(domain.sizes) != before:
                found = [() if size == 1 else None for size in shape]
                for strides_, root_ in inputs:
                    if root_ == root:
                        break
                    self._combine(found, self._align_root(domain, root_, shape, strides_))
                some = self._align_root(domain, root, shape, strides)
            self._combine(found, some)
        missing = [axis for axis, dims in enumerate(found) if dims is None]
        if missing:
            used = {loop for dims in found if dims for loop in dims}
            self._spread(group, found, missing, shape, used)
        loops = [loop for dims in found if dims for loop in dims]
        if len(set(loops)) != len(loops):  # v[:, None] op v: one loop cannot be two axes
            raise Mismatch("it reads one value of the group along two axes")
        lists = tuple(dims or () for dims in found)
        if not self._reads_as_computed(domain, domain.where, node, lists, shape, (group,)):
            raise Mismatch("it reads values of the group in another order")
        return lists

    def _plain_lists(self, group: _Open, node: Node, shape: tuple[int, ...]) -> Lists | None:
        """The usual case of `_lists_for`: every input that the group computes is read whole, just as it is computed."""
        domain = group.domain
        lists: Lists | None = None
        for value in node.inputs:
            if self.home.get(self.root[value]) is group:
                where = domain.where.get(value)  # none of a view
                if where is None or self.values[value].shape != shape or (lists is not None and where != lists):
                    return None
                lists = where
        if lists is not None and all(domain.sizes[loop] > 1 for dims in lists for loop in dims):
            return lists
        return None

    def _reads_as_computed(
        self, domain: Domain, where: dict[int, Lists], node: Node, lists: Lists, shape: tuple[int, ...], homes: tuple[_Open, ...]
    ) -> bool:  # fmt: skip
        """Whether at every point of its loops the node reads the very element that the group computes there."""
        for value in node.inputs:
            root = self.root[value]
            if root not in where or self.home.get(root) not in homes:
                continue
            if value == root and where[root] == lists and self.values[root].shape == shape:
                continue
            v, r = self.values[value], self.values[root]
            if v.dtype is not r.dtype or v.offset or v.dynamic:  # its bits, or a slice of it
                return False
            mine = {loop: s for loop, n, s in domain.factors(lists, broadcast_strides(v, shape)) if s and n != 1}
            own = {loop: s for loop, n, s in domain.factors(where[root], r.strides) if s and n != 1}
            if mine != own:
                return False
        return True

    def _access_of(self, value: int, root: int, shape: tuple[int, ...]) -> list[int]:
        v = self.values[value]
        if v.dtype is not self.values[root].dtype:
            raise Mismatch("its bits are read as another dtype")
        if v.offset or v.dynamic:
            raise Mismatch("it reads a slice of the value")
        return broadcast_strides(v, shape)

    def _align_root(self, domain: Domain, root: int, shape: tuple[int, ...], strides: list[int]) -> list[tuple[int, ...] | None]:
        r = self.values[root]
        return domain.align(domain.factors(domain.where[root], r.strides), shape, strides)

    @staticmethod
    def _combine(found: list[tuple[int, ...] | None], more: list[tuple[int, ...] | None]) -> None:
        for axis, dims in enumerate(more):
            if dims is None:
                continue
            if found[axis] is None:
                found[axis] = dims
            elif found[axis] != dims:
                raise Mismatch("it reads values of the group in different orders")

    def _spread(
        self, group: _Open, found: list[tuple[int, ...] | None], missing: list[int], shape: tuple[int, ...],
        used: set[int],
    ) -> None:  # fmt: skip
        """A row's value meets whole rows again: the missing dimensions are the reduced loops, in order."""
        domain = group.domain
        if used & domain.reduced or not domain.reduced:
            raise Mismatch("it repeats the value over a larger shape")
        order = [loop for loop in sorted(domain.sizes) if loop in domain.reduced]
        for lists in domain.where.values():  # in the order of a value that has them all
            dims = [loop for axis in lists for loop in axis if loop in domain.reduced]
            if len(dims) == len(order):
                order = dims
                break
        strides, step = {}, 1
        for loop in reversed(order):
            strides[loop] = step
            step *= domain.sizes[loop]
        wanted = [shape[axis] for axis in missing]
        if prod(wanted) != step:
            raise Mismatch("it repeats the value over another shape than the one reduced")
        known = [(loop, domain.sizes[loop], strides[loop]) for loop in order]
        dims_of = domain.align(known, wanted, g.contiguous_strides(tuple(wanted)))
        for axis, dims_found in zip(missing, dims_of, strict=True):
            found[axis] = dims_found

    def _check_level(self, group: _Open, node: Node, lists: Lists) -> None:
        """Refuse to run over whole rows after a reduction if the row does not stay in the cache. Raises Mismatch."""
        domain = group.domain
        if not domain.reduced & domain.loops_of(lists):
            return
        depth = max((group.depth.get(self.root[v], 0) for v in node.inputs), default=0)
        if depth:
            self._check_group_row(group, node)

    def _check_group_row(self, group: _Open, node: Node) -> None:
        sizes, reduced = group.domain.sizes, group.domain.reduced
        rows = prod(size for loop, size in sizes.items() if loop not in reduced)
        self._check_row(prod(sizes[loop] for loop in reduced), rows, node)

    def _check_row(self, row: int, rows: int, node: Node) -> None:
        """Raises Mismatch unless a row of `row` elements can be read again by the kernel that reduces it."""
        size = max(self.values[v].dtype.itemsize for v in node.inputs)
        if not roughly_over(row * rows * size, SMALL_WORK_BYTES):
            return
        if roughly_over(row * size, MAX_ROW_BYTES):
            raise Mismatch(f"a row of {row * size} bytes does not stay in the cache until its reduction is known")
        if not roughly_over(rows, MIN_ROWS - 1):
            raise Mismatch(f"{rows} rows are too few to share among threads")

    def _join_sibling(self, index: int, node: Node, shape: tuple[int, ...]) -> _Open | None:
        """Join a group that reads the same memory over the same loops (the moments of one parameter, for instance)."""
        tried: set[int] = set()
        for value in node.inputs:
            root = self.root[value]
            for group in reversed(self.readers.get(root, [])[-4:]):
                if not self._lives(group) or group.kind != LOOPS or group.number in tried or self._full(group):
                    continue
                tried.add(group.number)
                if self.home.get(root) is group or self._cycle([group], node):
                    continue
                if group.domain.reduced and self.goes_on[node.outputs[0]]:
                    continue  # what follows may be reduced along other dims
                lists = self._same_access(group, value, shape)
                if lists is None or any(self.home.get(self.root[v]) is group for v in node.inputs):
                    continue
                if group.domain.loops_of(lists) & group.domain.reduced or not group.domain.reduced:
                    self._place(group, index, node, lists, shape)
                    return group
        return None

    def _same_access(self, group: _Open, value: int, shape: tuple[int, ...]) -> Lists | None:
        """The loops of a member of the same shape that reads `value` or another view just like it, if there is one."""
        v = self.values[value]
        if prod(v.shape) != prod(shape):
            return None
        for member in group.nodes:
            node = self.graph.nodes[member]
            reduces = node.op in g.REDUCE or node.op in g.REDUCE_PAIR
            for other in node.inputs:
                o = self.values[other]
                if (o.base if o.base is not None else other) != self.root[value]:
                    continue
                if (o.shape, o.strides, o.offset, o.dynamic) != (v.shape, v.strides, v.offset, v.dynamic):
                    continue
                if reduces:
                    lists = group.domain.where.get(-1 - member)
                else:
                    lists = group.domain.where[node.outputs[0]]
                if lists is not None and len(lists) == len(shape) and self._sizes_of(group, lists) == shape:
                    return lists
        return None

    @staticmethod
    def _sizes_of(group: _Open, lists: Lists) -> tuple[int, ...]:
        return tuple(prod(group.domain.sizes[loop] for loop in dims) for dims in lists)

    def _try_merge(self, group: _Open, other: _Open, node: Node, shape: tuple[int, ...]) -> str:
        """Join `other`, which computes another input of `node` (a member of `group`), to the group."""
        if len(group.nodes) + len(other.nodes) > MAX_NODES or len(group.reads | other.reads) > MAX_OPERANDS:
            return "together they are too large"
        if other.bits & group.feeds:
            return "the contraction itself needs a value of it"
        if self._cycle([group, other], node):
            return "a kernel between them needs one and is needed by the other"
        if any(self.graph.nodes[i].op in ("take", "searchsorted") and self._looks_up(i, group, other)
               for i in (*group.nodes, *other.nodes)):  # fmt: skip
            return "one looks up elements of the other"
        output = node.outputs[0]
        try:
            translation: dict[int, int] = {}
            for _ in range(8):  # every round may split a loop; sizes have few factors
                before = (set(group.domain.sizes), set(other.domain.sizes))
                translation = self._translate(group, other, node, shape, output)
                if before == (set(group.domain.sizes), set(other.domain.sizes)):
                    break
        except Mismatch as mismatch:
            return str(mismatch)
        unmapped = set(other.domain.sizes) - set(translation)
        mapped = set(translation.values())
        if group.kind != LOOPS:
            if unmapped or other.domain.reduced or mapped != set(group.domain.sizes):
                return "an epilogue runs over the whole of the contraction's result, once"
            for index in other.nodes:
                member = self.graph.nodes[index]
                lists = tuple(tuple(translation[loop] for loop in dims) for dims in other.domain.where[member.outputs[0]])
                if index in self.leaves.values() and not lists:
                    continue
                reason = self._epilogue_refuses(group, member, lists, self._shape(member), other)
                if reason:
                    return reason
        rest = set(group.domain.sizes) - mapped
        if unmapped and rest:
            # A row's value of `other` meets whole rows of the group: the rows that both run over may be the same.
            if unmapped != other.domain.reduced or (group.domain.reduced and group.domain.reduced != rest):
                return "each has loops that the other has not"
            pairs = self._pair_rows(group, other, rest)
            if pairs is None:
                return "they reduce rows of different sizes"
            translation |= pairs
            unmapped, rest = set(), set()
        if unmapped and (unmapped != other.domain.reduced or group.domain.reduced):
            return "it repeats a value of the group over a larger shape"
        if rest and (rest != group.domain.reduced or other.domain.reduced):
            return "it repeats a value over a larger shape"
        theirs = {translation[loop] for loop in other.domain.reduced if loop in translation}
        if theirs and group.domain.reduced and theirs != group.domain.reduced:
            return "they reduce different dimensions"
        for loop in unmapped:
            translation[loop] = group.domain.new_loop(other.domain.sizes[loop])
        moved = {value: tuple(tuple(translation[loop] for loop in dims) for dims in lists) for value, lists in other.domain.where.items()}
        reduced = group.domain.reduced | {translation[loop] for loop in other.domain.reduced}
        reason = "a shared source is read in two patterns"
        together = group.domain.where | moved
        members = [(node, together[output], shape)]
        for index in (*group.nodes, *other.nodes):
            n = self.graph.nodes[index]
            if n.op in g.REDUCE or n.op in g.REDUCE_PAIR:  # its loops are those of its input: x.sum(0) + x.sum(1)
                members.append((n, together[-1 - index], self.values[n.inputs[0]].shape))
            elif (n.op in g.POINTWISE or n.op == "copy") and n.outputs[0] in together:
                members.append((n, together[n.outputs[0]], self._shape(n)))
        if all(group.domain.where.get(value, lists) == lists for value, lists in moved.items()) and all(
            self._reads_as_computed(group.domain, together, n, lists, sizes, (group, other)) for n, lists, sizes in members
        ):
            reason = self._row_refuses(group, other, group.domain.where | moved, reduced, node)
        if reason:
            for loop in unmapped:
                del group.domain.sizes[translation[loop]]
            return reason
        group.domain.reduced = frozenset(reduced)
        group.domain.where |= moved
        self._merge(group, other)
        return ""

    def _pair_rows(self, group: _Open, other: _Open, rest: set[int]) -> dict[int, int] | None:
        """The reduced loops of `other` -> the loops `rest` of the group, in the order in which values run over them;
        None if their sizes differ. (Any one-to-one mapping would be right; this one makes both read memory in one
        order.)"""
        theirs, mine = self._in_order(other.domain, other.domain.reduced), self._in_order(group.domain, frozenset(rest))
        if theirs is None or mine is None:
            return None
        sizes = [other.domain.sizes[loop] for loop in theirs], [group.domain.sizes[loop] for loop in mine]
        return dict(zip(theirs, mine, strict=True)) if sizes[0] == sizes[1] else None

    @staticmethod
    def _in_order(domain: Domain, loops: frozenset[int]) -> list[int] | None:
        for lists in domain.where.values():
            found = [loop for dims in lists for loop in dims if loop in loops]
            if len(found) == len(loops):
                return found
        return None

    def _row_refuses(self, group: _Open, other: _Open, where: dict[int, Lists], reduced: frozenset[int], node: Node) -> str:
        """Why whole rows cannot follow the reductions of both groups together, or "". Finds the members' depths."""
        depth: dict[int, int] = {}
        deepest = 0
        for index in sorted({*group.nodes, *other.nodes}):
            member = self.graph.nodes[index]
            before = max((depth.get(self.root[v], 0) for v in member.inputs), default=0)
            reduces = member.op in g.REDUCE or member.op in g.REDUCE_PAIR
            for value in member.outputs:
                depth[value] = before + reduces
            lists = where[-1 - index] if reduces else where[member.outputs[0]]
            if reduced & {loop for dims in lists for loop in dims}:
                deepest = max(deepest, before)
        if deepest:
            sizes = group.domain.sizes
            row = prod(sizes[loop] for loop in reduced)
            try:
                self._check_row(row, prod(size for loop, size in sizes.items() if loop not in reduced), node)
            except Mismatch as mismatch:
                return str(mismatch)
        group.depth = depth
        return ""

    def _looks_up(self, index: int, group: _Open, other: _Open) -> bool:
        home = self.home.get(self.root[self.graph.nodes[index].inputs[0]])
        return home is group or home is other

    def _translate(self, group: _Open, other: _Open, node: Node, shape: tuple[int, ...], output: int) -> dict[int, int]:
        """Loops of `other` -> loops of `group`, as far as the node's inputs tell. Splits loops on both sides."""
        translation: dict[int, int] = {}
        for value in node.inputs:
            root = self.root[value]
            if self.home.get(root) is not other:
                continue
            strides = self._access_of(value, root, shape)
            theirs = self._align_root(other.domain, root, shape, strides)
            mine = group.domain.where[output]
            for axis, dims in enumerate(theirs):
                if dims is None:
                    continue
                left, right = list(reversed(mine[axis])), list(reversed(dims))
                while left and right:
                    a, b = left.pop(0), right.pop(0)
                    x, y = group.domain.sizes[a], other.domain.sizes[b]
                    if x == y:
                        if translation.setdefault(b, a) != a:
                            raise Mismatch("it reads values of the group in different orders")
                    elif x > y and x % y == 0:
                        group.domain.split(a, y)
                        return {}
                    elif y > x and y % x == 0:
                        other.domain.split(b, x)
                        return {}
                    else:
                        raise Mismatch("a reshape cuts the value's dimensions where they do not divide")
        if len(set(translation.values())) != len(translation):
            raise Mismatch("it reads values of the group in different orders")
        return translation

    # -- reductions ---------------------------------------------------------------------------------------------
    def _reduction(self, index: int, node: Node) -> None:
        value = node.inputs[0]
        root = self.root[value]
        self._demand(root)
        shape = self.values[value].shape
        dims = tuple(node.attr("dims"))
        source = self.home.get(root)
        note = ""
        if source is not None and source.kind == LOOPS:
            note = self._try_reduce(source, index, node, value, root, shape, dims)
            if not note:
                return
            note = f"{node.op} (node {index}) is not fused into group {source.number}: {note}"
        for group in reversed(self.readers.get(root, [])[-4:]):
            if self._lives(group) and group.kind == LOOPS and not self._full(group) and not self._cycle([group], node):
                lists = self._same_access(group, value, shape)
                if lists is not None and not self._set_reduced(group, node, lists, dims):
                    self._place_reduction(group, index, node, lists, dims)
                    return
        group = self._new(LOOPS)
        if note:
            group.notes.append(note)
        lists = group.domain.new_lists(shape)
        self._set_reduced(group, node, lists, dims)
        self._place_reduction(group, index, node, lists, dims)

    def _try_reduce(self, group: _Open, index: int, node: Node, value: int, root: int, shape: tuple[int, ...], dims: tuple[int, ...]) -> str:
        reason = self._full(group)
        if reason:
            return reason
        try:
            strides = self._access_of(value, root, shape)
            found = self._align_root(group.domain, root, shape, strides)
        except Mismatch as reason_:
            return str(reason_)
        if None in found:
            return "it repeats the value over a larger shape"
        lists = tuple(d or () for d in found)
        if self._cycle([group], node):
            return "it needs a kernel that needs this group"
        reason = self._set_reduced(group, node, lists, dims)
        if not reason:
            self._place_reduction(group, index, node, lists, dims)
        return reason

    def _set_reduced(self, group: _Open, node: Node, lists: Lists, dims: tuple[int, ...]) -> str:
        """Make the node's loops the reduced loops of the group; returns the reason if that is impossible."""
        loops = frozenset(loop for axis in dims for loop in lists[axis])
        domain = group.domain
        if not loops:
            loops = frozenset((domain.new_loop(1),)) if not domain.reduced else domain.reduced
            if any(domain.sizes[loop] != 1 for loop in loops):
                return "it reduces other dimensions"
        if node.op in ("argmax", "argmin") and len(lists[dims[0]]) > 1:
            return "the index of an arg-reduction would run over several loops"
        if not domain.reduced:
            if domain.loops_of(lists) | loops != domain.sizes.keys():
                return "it reduces a value that does not run over all loops of the group"
            domain.reduced = loops
        elif domain.reduced != loops:
            return "it reduces other dimensions than the group"
        elif domain.loops_of(lists) | loops != domain.sizes.keys():
            return "it reduces a value that does not run over all loops of the group"
        elif group.depth.get(self.root[node.inputs[0]], 0):
            try:
                self._check_group_row(group, node)
            except Mismatch as reason:
                return str(reason)
        return ""

    def _place_reduction(self, group: _Open, index: int, node: Node, lists: Lists, dims: tuple[int, ...]) -> None:
        kept = tuple(axis for i, axis in enumerate(lists) if i not in dims)
        group.domain.where[-1 - index] = lists  # of the input, for later readers of the same memory and for `lower`
        for output in node.outputs:
            group.domain.where[output] = kept
        self._add(group, index, node)

    # -- the rest -----------------------------------------------------------------------------------------------
    def _other(self, index: int, node: Node) -> None:
        for value in node.inputs:
            self._demand(self.root[value])
        if node.op == "scatter_view" and self._extend_writes(index, node):
            return
        group = self._new(node.op)
        group.head = index
        if node.op in EPILOGUE_KINDS:
            output = node.outputs[0]
            group.domain.where[output] = group.domain.new_lists(self.values[output].shape)
        self._add(group, index, node)
        group.feeds = group.ancestors

    def _extend_writes(self, index: int, node: Node) -> bool:
        """Join a write of a region to the writes of other regions that it lies upon, if nobody sees the value
        between."""
        root = node.inputs[0]
        group = self.home.get(root)
        if group is None or group.kind != "scatter_view" or self.uses[root] > 1 or self._cycle([group], node):
            return False
        if any(self.home.get(self.root[value]) is group for value in node.inputs[1:]):
            return False
        if not all(are_disjoint(self.graph.nodes[other], node) for other in group.nodes):
            return False
        self._add(group, index, node)
        return True

    def _finish(self, wanted: set[int]) -> list[Group]:
        users: dict[int, set[int]] = {}
        for group in self.living.values():
            unread = -1  # the base that a chain of writes covers
            if group.kind == "scatter_view":
                members = [self.graph.nodes[index] for index in group.nodes]
                if not needs_base(self.graph, members):
                    unread = group.nodes[0]
            for index in group.nodes:
                for value in self.graph.nodes[index].inputs[index == unread :]:
                    users.setdefault(self.root[value], set()).add(group.number)
        ordered = self._order([*self.living.values()])
        result = []
        for group in ordered:
            nodes = sorted(set(group.nodes))
            outputs = []
            for index in nodes:
                for value in self.graph.nodes[index].outputs:
                    outside = users.get(value, set()) - {group.number}
                    if self.home.get(value) is group and (value in wanted or outside):
                        outputs.append(value)
            kind = LOOPS if group.kind in ("concatenate", "scatter_view") else group.kind
            if not outputs:
                continue
            result.append(Group(kind, tuple(nodes), group.head, tuple(outputs), group.notes, group.domain))
        return result

    def _order(self, groups: list[_Open]) -> list[_Open]:
        """An order in which every group follows those it depends on; else the order of their first nodes."""
        return sorted(groups, key=lambda group: (group.ancestors.bit_count(), group.nodes[0]))


def vector_dims(graph: Graph, head: Node) -> tuple[int, ...]:
    """The dims of a contraction's result that its epilogue's vectors run along: the columns N, or H and W; the rows
    of a product that is laid out transposed."""
    if head.op != "matmul":
        return (-2, -1)
    value = graph.values[head.outputs[0]]
    return (-2,) if value.strides[-2] == 1 and value.strides[-1] != 1 and value.shape[-2] > 1 else (-1,)


def describe(graph: Graph, group: Group) -> str:
    """A name for people: the operations in order, or the name of a well-known pattern."""
    ops = [graph.nodes[i].op for i in group.nodes if graph.nodes[i].op not in _LEAVES] or [graph.nodes[i].op for i in group.nodes]
    if "amax" in ops and not {"exp", "exp_weight"}.isdisjoint(ops) and "sum" in ops:
        return "log_softmax" if "log" in ops else "softmax" if "div" in ops else "sum_of_exponentials"
    if "var_mean" in ops and len(ops) > 2:
        return "normalize"
    unique = list(dict.fromkeys(ops))
    text = "_".join(unique[:6])
    return text + (f"_and_{len(unique) - 6}_more" if len(unique) > 6 else "")


__all__ = ["EPILOGUE_KINDS", "LOOPS", "Group", "describe", "fuse", "vector_dims"]
