"""Epilogues: the pointwise nodes that follow a contraction, applied to a rectangle of its result while that is in
cache.

The domain is (batch, rows, columns): the leading dimensions of a matrix product, M, N; or N, C, H*W of a convolution.
The columns carry the vector, or the rows of a product that is laid out transposed; the other two are taken apart into
loops once for a vector loop.
"""

from __future__ import annotations

from flambeau.compiler.fuse import Group, vector_dims
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Word
from flambeau.compiler.lower import layout
from flambeau.compiler.lower.spec import Block, Compute, Nest, check, words_of
from flambeau.compiler.lower.statements import Body, Writer, weight
from flambeau.runtime.target import Target


class Epilogue:
    """`key`: what the text depends on. `words`: to be appended to the contraction's own. `in_place`: (output, read
    root) pairs that may share one buffer; with the head's result as the read root, the raw product is never stored
    apart."""

    def __init__(
        self, nest: Nest, groups: tuple[int, int], by_rows: bool, words: list[Word],
        in_place: tuple[tuple[int, int], ...], vector_bits: int,
    ) -> None:  # fmt: skip
        self.nest = nest
        self.groups = groups
        self.by_rows = by_rows
        self.words = words
        self.in_place = in_place
        self.key = f"epilogue:{vector_bits}:{groups[0]},{groups[1]},{int(by_rows)}:{layout.key_of(nest)}"
        self._declarations: dict[Target, list[str]] = {}

    def emit(self, name: str, first_word: int, target: Target) -> str:
        """Text of `define internal void @name(ptr %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1)`; the
        epilogue's words start at word `first_word` of %args."""
        from flambeau.compiler.emit.loops import emit_epilogue

        text, self._declarations[target] = emit_epilogue(self.nest, self.groups, self.by_rows, name, first_word, target)
        return text

    def declarations(self, target: Target) -> list[str]:
        """What the emitted text needs declared."""
        if target not in self._declarations:
            self.emit("unused", 0, target)
        return self._declarations[target]


def epilogue_body(graph: Graph, group: Group) -> Body:
    """The statements that follow a contraction, over the loops of the group's domain."""
    assert group.domain is not None and group.head is not None
    domain = group.domain
    head = graph.nodes[group.head].outputs[0]
    writer = Writer(graph, domain, tuple([i for i in group.nodes if i != group.head]))
    ready = [(v, writer.value(v, "row")) for v in group.outputs if v != head]
    for root, value in ready:
        writer.store(value, root, domain.where[root], "row")
    return writer.end()


def make_epilogue(graph: Graph, group: Group) -> Epilogue:
    """The epilogue of a contraction's group (its nodes but the head)."""
    assert group.domain is not None and group.head is not None
    domain = group.domain
    head = graph.nodes[group.head].outputs[0]
    body = epilogue_body(graph, group)
    sizes = dict(domain.sizes)
    lists = domain.where[head]
    last = vector_dims(graph, graph.nodes[group.head])
    by_rows = last == (-2,)
    columns = 1 if by_rows else len(last)
    axes = (lists[: -columns - 1], lists[-columns - 1 : -columns], lists[-columns:])
    if by_rows:
        axes = (axes[0], axes[2], axes[1])
    loops: list[int] = []
    counts = []
    for part in axes:
        joined = layout.join([x for dims in part for x in dims if sizes[x] != 1], sizes, body.accesses)
        counts.append(len(joined))
        loops += joined
    if counts[2] > 1:
        raise RuntimeError("an epilogue whose columns are several loops")
    if counts[2] == 0:  # one column
        column = max(sizes, default=-1) + 1
        sizes[column] = 1
        loops.append(column)
    total = sum(weight(s.op) for block in body.blocks for s in block.body if isinstance(s, Compute))
    width = layout.lanes_of(body.accesses, graph.target)
    nest = Nest(
        len(loops), 0, len(loops) - 1, width, 4 if total <= 6 else 2 if total <= 40 else 1,
        tuple(layout.access_class(a, loops, sizes) for a in body.accesses),
        tuple(Block(block.stage, tuple(block.body)) for block in body.blocks), tuple(d.name for d in body.dtypes),
    )  # fmt: skip
    if layout.CHECK[0]:
        check(nest, layout.sizes_of(graph, body, sizes, loops))
    words: list[Word] = []
    for word in words_of(nest):
        match word:
            case ("size", int(loop)):
                words.append(sizes[loops[loop]])
            case ("chunk",):
                words.append(1)
            case ("address", int(number)):
                a = body.accesses[number]
                size = a.dtype.itemsize
                if a.value is None:
                    words.append(a.offset)
                else:
                    words.append(Address(a.value, a.offset * size, tuple((p, m * size) for p, m in a.dynamic)))
            case ("stride", int(number), int(loop)):
                words.append(body.accesses[number].strides[loops[loop]])
            case _:
                raise RuntimeError(f"no word {word} in an epilogue")
    shared = _shared(graph, group, head, layout.in_place_pairs(graph, body))
    return Epilogue(nest, (counts[0], counts[1]), by_rows, words, shared, graph.target.vector_bits)


def _shared(graph: Graph, group: Group, head: int, pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The pairs that may really share a buffer: not over an operand of the contraction, which reads it until the end,
    nor over a result that others want. An output lies over another operand or over the raw result, never over both:
    the raw result is written while the operand is still to be read. A convolution's rectangles may overlap, so that
    its epilogue can see an element twice: over the raw result alone, which is written anew each time."""
    node = graph.nodes[group.head or 0]
    kept = {graph.root(v) for v in node.inputs} | set(group.outputs)
    over_operand = [pair for pair in pairs if pair[1] not in kept and pair[1] != head and node.op == "matmul"]
    taken = {write for write, _ in over_operand}
    over_head = [pair for pair in pairs if pair[1] == head and head not in kept and pair[0] not in taken]
    return (*over_operand, *over_head[:1])
