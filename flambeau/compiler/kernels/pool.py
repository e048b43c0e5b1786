"""Pooling over windows of the last two dims of (N, C, H, W), and its gradients. A unit of work is one plane (n, c).

Forward: vectors of output columns, from the top of the plane to its bottom; the source elements of a tap are neighbours
(stride 1), every second element (stride 2) or gathered. Lanes whose tap lies in the padding are masked out; in windows up
to 3x3 the masks of a column of taps are made once for the vectors from top to bottom. Sums and comparisons run over the
taps in row-major order, as PyTorch's do, so that results are equal bit for bit. Indices that nothing reads are not made.
Gradients: a plane of the result is zeroed and added to in the order of the output pixels by one thread: no atomics. The
average's adds vectors of windows to vectors of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import GATHER, PAIR, bit_mask, masked_read, read_kind
from flambeau.compiler.kernels.convolution_problem import numel, operand
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.runtime.target import Target
from flambeau.symbols import maximum

_UNROLLED_TAPS = 9  # windows up to 3x3 are unrolled: their size becomes a fact
# Pixels of a plane up to which an average's gradient has phases of whole vectors where these would be empty, mostly.
_MAX_SPARSE_PLANE: Final = 1 << 12
_SIZES = [
    "channels",
    "height",
    "width",
    "out_height",
    "out_width",
    "kernel_y",
    "kernel_x",
    "step_y",
    "step_x",
    "base_y",
    "base_x",
    "tap_y",
    "tap_x",
    "include_pad",
    "divisor",
    "scratch_bytes",
    "source_batch",
    "source_channel",
    "source_y",
    "source_x",
    "out_batch",
    "out_channel",
    "out_y",
    "out_x",
]


@dataclass(frozen=True, slots=True)
class Facts:
    """`inside`: no window reaches the padding. `kernel`: the window's size where it is unrolled, else (0, 0).

    `index`: the integers that count the elements of a plane, "" where no indices are wanted. `unit_step`: of an average's gradient, windows
    that move by one column.
    """

    op: str
    element: Element
    width: int
    vector_bits: int
    kind: str
    unit_out: bool
    inside: bool
    kernel: tuple[int, int]
    index: str
    unit_step: bool

    def key(self) -> str:
        return (
            f"pool:{self.op}:{self.element.name}:{self.width}:{self.vector_bits}:{self.kind}:"
            f"{'unit' if self.unit_out else 'strided'}:{'inside' if self.inside else 'edges'}:"
            f"{self.kernel[0]}x{self.kernel[1]}{f':{self.index}' * bool(self.index)}{':step' * self.unit_step}"
        )


def make_pool(graph: Graph, node_index: int) -> list[Kernel]:
    """The kernel of a `max_pool`, `max_pool_gradient`, `average_pool` or `average_pool_gradient` node."""
    node = graph.nodes[node_index]
    gradient = node.op.endswith("gradient")
    small = operand(graph, node.inputs[0] if gradient else node.outputs[0])  # the side of the windows
    large = operand(graph, node.outputs[0] if gradient else node.inputs[0])  # the side of the image
    if numel(large if gradient else small) == 0:
        return []
    host = graph.target
    dtype = graph.values[node.outputs[0]].dtype
    element = element_of(dtype)
    width = max(1, host.vector_bits // (8 * element.compute_bytes))
    (ky, kx), (sy, sx), (py, px), (dy, dx) = (tuple(node.attr(name)) for name in ("kernel", "stride", "padding", "dilation"))
    _, channels, height, image_width = large.shape
    _, _, out_height, out_width = small.shape
    average = node.op.startswith("average")
    whole = -(-image_width // sx)
    if average and gradient and 2 * whole < width and height * image_width > _MAX_SPARSE_PLANE:
        width = 1
    inside = (py, px) == (0, 0) and (out_height - 1) * sy + (ky - 1) * dy < height and (out_width - 1) * sx + (kx - 1) * dx < image_width
    source, out = (small, large) if gradient else (large, small)
    source_x = 1 if source.shape[3] == 1 else source.strides[3]
    facts = Facts(
        node.op, element, width, host.vector_bits, read_kind(1 if gradient else sx, source_x),
        unit_out=out.strides[3] == 1 or out.shape[3] == 1, inside=inside,
        kernel=(ky, kx) if ky * kx <= _UNROLLED_TAPS and not gradient else (0, 0),
        index=("i32" if height * image_width < 1 << 31 else "i64") if node.op == "max_pool" and _is_read(graph, node.outputs[1]) else "",
        unit_step=node.op == "average_pool_gradient" and sx == 1,
    )  # fmt: skip
    scratch = 0
    if gradient:  # the plane of sums, of the average by phases, and a row of shares with zeros around
        pitch = round_up(whole, width)
        row = round_up(kx, width) + maximum(out_width, pitch + px) + 2 * width
        numbers = height * pitch * min(sx, image_width) + row if average else height * image_width
        scratch = round_up(round_up(numbers, width) * element.compute_bytes, 64)
    sizes = (
        channels, height, image_width, out_height, out_width, ky, kx, sy, sx, -py, -px, dy, dx,
        int(average and bool(node.attr("count_include_pad"))), int(node.attr("divisor") or 0) if average else 0,
        scratch,
        *source.strides[:3], source_x, *out.strides,
    )  # fmt: skip
    words: list[Word] = [source.word, out.word, *sizes]
    reads, writes = [source.root], [out.root]
    if facts.index:
        indices = operand(graph, node.outputs[1])
        words += [indices.word, *indices.strides]
        writes.append(indices.root)
    elif node.op == "max_pool_gradient":
        indices = operand(graph, node.inputs[1])
        words += [indices.word, *indices.strides]
        reads.append(indices.root)
    if gradient:
        words.append(Scratch(scratch))
    units = large.shape[0] * channels
    traffic = (numel(large) + numel(small)) * dtype.itemsize + (numel(small) * 8 if facts.index or node.op == "max_pool_gradient" else 0)
    key = facts.key()
    return [
        Kernel(
            name=f"{node.op}_{element.name}", key=key, emit=partial(_emit, facts, key), words=words,
            reads=tuple(dict.fromkeys(reads)), writes=tuple(writes), units=units, bytes=traffic,
            operations=numel(small) * ky * kx, nodes=(node_index,),
            min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, traffic)),
        )
    ]  # fmt: skip


def _is_read(graph: Graph, value_id: int) -> bool:
    """Whether a node or the graph's user wants a value, or a view of it."""
    read = {graph.root(i) for n in graph.nodes for i in n.inputs}
    read |= {graph.root(i) for i in graph.outputs} | {graph.root(i) for _, i in graph.updates}
    return graph.root(value_id) in read


def _emit(facts: Facts, key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    b = Builder(target)
    w = {"source": b.load("ptr", "%args", 8), "out": b.load("ptr", b.gep("i64", "%args", 1), 8)}
    for at, name in enumerate(_SIZES):
        w[name] = b.load("i64", b.gep("i64", "%args", 2 + at), 8)
    after = 2 + len(_SIZES)
    if facts.index or facts.op == "max_pool_gradient":
        w["indices"] = b.load("ptr", b.gep("i64", "%args", after), 8)
        for at, name in enumerate(("index_batch", "index_channel", "index_y", "index_x")):
            w[name] = b.load("i64", b.gep("i64", "%args", after + 1 + at), 8)
        after += 5
    if facts.op.endswith("gradient"):
        w["scratch"] = b.gep("i8", b.load("ptr", b.gep("i64", "%args", after), 8), b.mul("%worker", w["scratch_bytes"]))
    plane = {
        "max_pool": _maximum, "average_pool": _average, "max_pool_gradient": _maximum_gradient,
        "average_pool_gradient": _average_gradient,
    }[facts.op]  # fmt: skip

    def unit(u: str) -> None:
        n, c = b.op(f"udiv i64 {u}, {w['channels']}"), b.op(f"urem i64 {u}, {w['channels']}")
        memory = facts.element.memory
        source = b.gep(memory, w["source"], b.add(b.mul(n, w["source_batch"]), b.mul(c, w["source_channel"])))
        out = b.gep(memory, w["out"], b.add(b.mul(n, w["out_batch"]), b.mul(c, w["out_channel"])))
        indices = ""
        if "indices" in w:
            indices = b.gep("i64", w["indices"], b.add(b.mul(n, w["index_batch"]), b.mul(c, w["index_channel"])))
        plane(b, facts, w, source, out, indices)

    b.loop("%begin", "%end", 1, unit)
    return module([b.function(KERNEL_HEADER.format(name=symbol(key)), "ret i64 0")], b.declarations, target)


def _taps(b: Builder, count: str, fact: int, body: Any, carry: list[tuple[str, str]]) -> list[str]:
    """`body(tap, *carry) -> carry` for each tap: unrolled where their number is a fact."""
    if not fact:
        return b.loop(0, count, 1, body, carry)
    values = [value for _, value in carry]
    for t in range(fact):
        values = body(str(t), *values)
    return values


def _valid_range(b: Builder, facts: Facts, w: dict[str, str], x: str, left: str) -> tuple[str, str]:
    """Lanes low <= i < high whose source column x + i * step_x lies in the image; `left` lanes are wanted."""
    if facts.inside:
        return "0", left
    up = b.sub(w["step_x"], 1)
    low, high = (b.op(f"udiv i64 {b.add(b.max(v, 0), up)}, {w['step_x']}") for v in (b.sub(0, x), b.sub(w["width"], x)))
    return low, b.min(high, left)


def _windows(b: Builder, facts: Facts, w: dict[str, str], source: str, start: Any, tap: Any, finish: Any) -> None:
    """For each vector of windows: `start()` gives the carried values, `tap` updates them, `finish` stores them.

    `tap(values, mask, y, x, carry)`: lanes of source elements (y, x + i * step_x); `finish(ox, oy, left, carry)`.
    """
    element, width = facts.element, facts.width
    distance = b.mul(w["step_x"], w["source_x"])

    def chunk(ox: str) -> None:
        left = b.sub(w["out_width"], ox)
        x_first = b.add(b.mul(ox, w["step_x"]), w["base_x"])

        def column(tx: str, wanted: str) -> tuple[str, str, Callable[[str], str]]:
            """(x of lane 0, lanes in the image, their reading) of a column of taps."""
            x = b.add(x_first, b.mul(tx, w["tap_x"]))
            low, high = _valid_range(b, facts, w, x, wanted)
            read = masked_read(b, element.memory, width, element.memory_bytes, facts.kind, low, high, distance)
            return x, bit_mask(b, width, low, high), read

        columns = [column(str(tx), left) for tx in range(facts.kernel[1])]

        def fetch(ox: str, oy: str) -> None:
            """Fetch the same pixels of the next plane: from top to bottom, the processor does not foresee them."""
            for y in range(min(2, facts.kernel[0])):
                row = b.mul(b.add(b.mul(oy, w["step_y"]), y), w["source_y"])
                at = b.gep(element.memory, source, b.add(b.add(row, b.mul(ox, w["step_x"])), w["source_channel"]))
                for line in range(2 if facts.kind == PAIR else 1):
                    b.prefetch(b.gep("i8", at, 64 * line))

        def row(oy: str) -> None:
            y_first = b.add(b.mul(oy, w["step_y"]), w["base_y"])

            def tap_row(ty: str, *carry: str) -> list[str]:
                y = b.add(y_first, b.mul(ty, w["tap_y"]))
                inside = "true" if facts.inside else b.op(f"icmp ult i64 {y}, {w['height']}")

                def unrolled(values: list[str]) -> list[str]:
                    # A row of the padding: the first row of the plane is read instead, and no lane is taken.
                    line = b.gep(element.memory, source, b.mul(b.op(f"select i1 {inside}, i64 {y}, i64 0"), w["source_y"]))
                    type_, mask_type = vector(element.compute, width), vector("i1", width)
                    for x, lanes, read in columns:
                        found = element.widen(b, width, read(b.gep(element.memory, line, b.mul(x, w["source_x"]))))
                        if not facts.inside:
                            lanes = b.op(f"and {mask_type} {lanes}, {b.splat('i1', width, inside)}")
                            if facts.op == "average_pool":
                                found = b.op(f"select {mask_type} {lanes}, {type_} {found}, {type_} {element.zero(width)}")
                        values = tap(found, lanes, y, x, values)
                    return values

                if columns:
                    return unrolled(list(carry))
                line = b.gep(element.memory, source, b.mul(y, w["source_y"]))
                wanted = left if facts.inside else b.op(f"select i1 {inside}, i64 {left}, i64 0")

                def one(tx: str, *inner: str) -> list[str]:
                    x, lanes, read = column(tx, wanted)
                    values = element.widen(b, width, read(b.gep(element.memory, line, b.mul(x, w["source_x"]))))
                    return list(tap(values, lanes, y, x, list(inner)))

                types = [type_ for type_, _ in carry_types]
                return b.loop(0, w["kernel_x"], 1, one, list(zip(types, carry, strict=True)))

            if columns and facts.kind != GATHER:
                fetch(ox, oy)
            carry_types = start()
            finish(ox, oy, left, _taps(b, w["kernel_y"], facts.kernel[0], tap_row, carry_types))

        b.loop(0, w["out_height"], 1, row)

    b.loop(0, w["out_width"], width, chunk)


def _store(
    b: Builder, type_: str, itemsize: int, width: int, unit: bool, value: str, row: str, x: str, left: str, stride: str
) -> None:  # fmt: skip
    """Store the first `left` lanes of a vector in a row, at column x."""
    if unit and width > 1:
        b.masked_store(type_, width, value, b.gep(type_, row, x), bit_mask(b, width, 0, left), itemsize)
        return
    for lane in range(width):
        scalar = value if width == 1 else b.op(f"extractelement {vector(type_, width)} {value}, i32 {lane}")
        at = b.gep(type_, row, b.mul(b.add(x, lane), stride))
        b.when(b.op(f"icmp sgt i64 {left}, {lane}"), partial(b.store, type_, scalar, at, itemsize))


def _maximum(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Values and flat indices of the maxima. A NaN replaces anything, the first of equals stays (PyTorch's rule).

    A window without a pixel has the least of all values (PyTorch's too) and the index -1.
    """
    element, width = facts.element, facts.width
    values_type, mask_type = vector(element.compute, width), vector("i1", width)
    index_type = vector(facts.index or "i32", width)
    lanes = "<" + ", ".join(f"{facts.index} {i}" for i in range(width)) + ">" if width > 1 else "0"

    def index(value: str) -> str:
        return b.splat(facts.index, width, value if facts.index == "i64" else b.op(f"trunc i64 {value} to i32"))

    step = b.op(f"mul {index_type} {lanes}, {index(w['step_x'])}") if facts.index else ""
    every = "true" if width == 1 else "<" + ", ".join(["i1 true"] * width) + ">"

    def tap(values: str, mask: str, y: str, x: str, carry: list[str]) -> list[str]:
        best, seen, *places = carry
        if element.is_float:
            better = b.op(f"fcmp ogt {values_type} {values}, {best}")
            is_nan = b.op(f"fcmp uno {values_type} {values}, {values}")
            better = b.op(f"or {mask_type} {better}, {is_nan}")
        else:
            unsigned = element.name in ("uint8", "bool")
            better = b.op(f"icmp {'ugt' if unsigned else 'sgt'} {values_type} {values}, {best}")
        first = b.op(f"xor {mask_type} {seen}, {every}")
        take = b.op(f"and {mask_type} {b.op(f'or {mask_type} {better}, {first}')}, {mask}")
        found = [b.op(f"select {mask_type} {take}, {values_type} {values}, {values_type} {best}"), b.op(f"or {mask_type} {seen}, {mask}")]
        if facts.index:
            here = b.op(f"add {index_type} {step}, {index(b.add(b.mul(y, w['width']), x))}")
            found.append(b.op(f"select {mask_type} {take}, {index_type} {here}, {index_type} {places[0]}"))
        return found

    def finish(ox: str, oy: str, left: str, carry: list[str]) -> None:
        row = b.gep(element.memory, out, b.mul(oy, w["out_y"]))
        value = element.narrow(b, width, carry[0])
        _store(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, ox, left, w["out_x"])
        if facts.index:
            row = b.gep("i64", indices, b.mul(oy, w["index_y"]))
            found = carry[2] if facts.index == "i64" else b.op(f"sext {index_type} {carry[2]} to {vector('i64', width)}")
            _store(b, "i64", 8, width, facts.unit_out, found, row, ox, left, w["index_x"])

    def start() -> list[tuple[str, str]]:
        none = [(index_type, b.splat(facts.index, width, "-1"))] if facts.index else []
        return [(values_type, b.splat(element.compute, width, _least(element))), (mask_type, "false" if width == 1 else "zeroinitializer"), *none]

    _windows(b, facts, w, source, start, tap, finish)


def _least(element: Element) -> str:
    if element.is_float:
        return "0xFFF0000000000000"  # minus infinity
    return "0" if element.name in ("uint8", "bool") else str(-(1 << (8 * element.memory_bytes - 1)))


def _extent(b: Builder, w: dict[str, str], axis: str, start: str) -> str:
    """Number of elements of a window along an axis that the average counts. `start` may be a column of the padding."""
    size = w["height"] if axis == "y" else w["width"]
    end = b.min(b.add(start, w[f"kernel_{axis}"]), b.sub(size, w[f"base_{axis}"]))
    with_padding = b.sub(end, start)
    without = b.sub(b.min(end, size), b.max(start, 0))
    include = b.op(f"icmp ne i64 {w['include_pad']}, 0")
    return b.op(f"select i1 {include}, i64 {with_padding}, i64 {without}")


def _divisors(b: Builder, facts: Facts, w: dict[str, str], ox: str, oy: str) -> str:
    """The divisors of a vector of windows, in the compute type."""
    element, width = facts.element, facts.width
    tall = _extent(b, w, "y", b.add(b.mul(oy, w["step_y"]), w["base_y"]))
    given = b.op(f"icmp ne i64 {w['divisor']}, 0")
    if facts.inside:
        area = b.op(f"select i1 {given}, i64 {w['divisor']}, i64 {b.mul(w['kernel_y'], w['kernel_x'])}")
        return b.splat(element.compute, width, _from_integer(b, element, 1, area))
    counts = f"{vector('i64', width)}"
    lanes = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">" if width > 1 else "0"

    def splat(value: str) -> str:
        return b.splat("i64", width, value)

    def extreme(name: str, x: str, y: str) -> str:
        suffix = "i64" if width == 1 else f"v{width}i64"
        return b.call(counts, f"llvm.{name}.{suffix}", [(counts, x), (counts, y)])

    start = b.op(f"mul {counts} {lanes}, {splat(w['step_x'])}")
    start = b.op(f"add {counts} {start}, {splat(b.add(b.mul(ox, w['step_x']), w['base_x']))}")
    end = b.op(f"add {counts} {start}, {splat(w['kernel_x'])}")
    end = extreme("smin", end, splat(b.sub(w["width"], w["base_x"])))
    with_padding = b.op(f"sub {counts} {end}, {start}")
    without = b.op(f"sub {counts} {extreme('smin', end, splat(w['width']))}, {extreme('smax', start, splat('0'))}")
    include = b.op(f"icmp ne i64 {w['include_pad']}, 0")
    wide = b.op(f"select i1 {include}, {counts} {with_padding}, {counts} {without}")
    area = b.op(f"mul {counts} {wide}, {splat(tall)}")
    area = b.op(f"select i1 {given}, {counts} {splat(w['divisor'])}, {counts} {area}")
    return _from_integer(b, element, width, area)


def _from_integer(b: Builder, element: Element, width: int, value: str) -> str:
    source, target = vector("i64", width), vector(element.compute, width)
    if element.is_float:
        return b.op(f"sitofp {source} {value} to {target}")
    return value if element.compute == "i64" else b.op(f"trunc {source} {value} to {target}")


def _divide(b: Builder, facts: Facts, value: str, divisor: str) -> str:
    """Lanes beyond the row may have a divisor of 0: integers divide by 1 there."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    if element.is_float:
        return b.op(f"fdiv {type_} {value}, {divisor}")
    zero, one = element.zero(width), b.splat(element.compute, width, "1")
    is_zero = b.op(f"icmp eq {type_} {divisor}, {zero}")
    safe = b.op(f"select {vector('i1', width)} {is_zero}, {type_} {one}, {type_} {divisor}")
    return b.op(f"sdiv {type_} {value}, {safe}")


def _average(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)

    def tap(values: str, mask: str, y: str, x: str, carry: list[str]) -> list[str]:
        return [element.add(b, width, carry[0], values)]  # masked lanes are zero

    def finish(ox: str, oy: str, left: str, carry: list[str]) -> None:
        value = element.narrow(b, width, _divide(b, facts, carry[0], _divisors(b, facts, w, ox, oy)))
        row = b.gep(element.memory, out, b.mul(oy, w["out_y"]))
        _store(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, ox, left, w["out_x"])

    _windows(b, facts, w, source, lambda: [(type_, element.zero(width))], tap, finish)


def _maximum_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Add the gradients of all windows to a zeroed plane in scratch, then bring the plane out."""
    element = facts.element
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    plane = w["scratch"]
    pixels = b.mul(w["height"], w["width"])
    _clear(b, facts, plane, pixels)

    def row(oy: str) -> None:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))
        index_line = b.gep("i64", indices, b.mul(oy, w["index_y"]))

        def window(ox: str) -> None:
            at = b.load("i64", b.gep("i64", index_line, b.mul(ox, w["index_x"])), 8)
            value = element.widen(b, 1, b.load(memory, b.gep(memory, line, b.mul(ox, w["source_x"])), element.memory_bytes))

            def add() -> None:
                place = b.gep(compute, plane, at)
                b.store(compute, element.add(b, 1, b.load(compute, place, size), value), place, size)

            # The indices come from max_pool, but a caller may hand in any: never write outside the plane.
            b.when(b.op(f"icmp ult i64 {at}, {pixels}"), add)

        b.loop(0, w["out_width"], 1, window)

    b.loop(0, w["out_height"], 1, row)
    b.loop(0, w["height"], 1, lambda y: _bring_row(b, facts, w, b.gep(compute, plane, b.mul(y, w["width"])), out, y))


def _clear(b: Builder, facts: Facts, at: str, count: str) -> None:
    """Zeros, in whole vectors."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    b.loop(0, count, width, lambda i: b.store(type_, element.zero(width), b.gep(element.compute, at, i), element.compute_bytes))


def _bring_row(b: Builder, facts: Facts, w: dict[str, str], line: str, out: str, y: str) -> None:
    """Store row y of the result from a line of sums."""
    element, width = facts.element, facts.width
    row = b.gep(element.memory, out, b.mul(y, w["out_y"]))

    def chunk(x: str) -> None:
        sums = b.load(vector(element.compute, width), b.gep(element.compute, line, x), element.compute_bytes)
        value, left = element.narrow(b, width, sums), b.sub(w["width"], x)
        _store(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, x, left, w["out_x"])

    b.loop(0, w["width"], width, chunk)


def _average_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Add the shares of all windows to a zeroed plane in scratch, then bring the plane out.

    A row of the plane lies by phases, x = j step + p at p pitch + j: there, the windows that reach neighbours are neighbours, too,
    so that vectors of pixels take vectors of shares, in the order of the windows (PyTorch's). The row of shares has zeros on both
    sides, and a phase whole vectors, so nothing is masked.
    """
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    step = w["step_x"]

    def rounded_up(count: str) -> str:
        return b.mul(b.op(f"udiv i64 {b.add(count, width - 1)}, {width}"), width)

    whole = b.op(f"udiv i64 {b.add(w['width'], b.sub(step, 1))}, {step}")
    pitch = rounded_up(whole)
    phases = b.min(step, w["width"])
    row = b.mul(pitch, phases)
    # Taps of a phase: `taps` of them, or one less for those that begin at `full_taps`; and what the first phase begins with.
    taps = b.op(f"udiv i64 {b.add(w['kernel_x'], b.sub(step, 1))}, {step}")
    full_taps = b.sub(w["kernel_x"], b.mul(b.sub(taps, 1), step))
    padding = b.sub(0, w["base_x"])
    first_tap, last_window = b.op(f"urem i64 {padding}, {step}"), b.op(f"udiv i64 {padding}, {step}")
    full_columns = b.sub(w["width"], b.mul(b.sub(whole, 1), step))
    plane = w["scratch"]
    everything = b.op(f"udiv i64 {w['scratch_bytes']}, {size}")
    _clear(b, facts, plane, b.mul(b.op(f"udiv i64 {everything}, {width}"), width))
    shares = b.gep(compute, plane, b.add(b.mul(w["height"], row), rounded_up(w["kernel_x"])))

    def window_row(oy: str) -> None:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))

        def share(ox: str) -> None:
            left = b.sub(w["out_width"], ox)
            read = masked_read(b, memory, width, element.memory_bytes, facts.kind, "0", left, w["source_x"])
            value = element.widen(b, width, read(b.gep(memory, line, b.mul(ox, w["source_x"]))))
            value = _divide(b, facts, value, _divisors(b, facts, w, ox, oy))
            _store(b, compute, size, width, True, value, shares, ox, left, "1")

        b.loop(0, w["out_width"], width, share)
        y_first = b.add(b.mul(oy, w["step_y"]), w["base_y"])
        top, bottom = b.max(y_first, 0), b.min(b.add(y_first, w["kernel_y"]), w["height"])

        def phase(p: str, first: str, last: str) -> list[str]:
            # Column j is in the windows up to j + last, there by tap `first`, and in those before, each by a tap `step` further.
            full = b.op(f"icmp slt i64 {first}, {full_taps}")
            count = b.op(f"select i1 {full}, i64 {taps}, i64 {b.sub(taps, 1)}")

            def columns(j: str) -> None:
                start = b.gep(compute, shares, b.add(b.add(j, b.add(last, 1)), b.sub(0, count)))

                def pixel_row(y: str) -> None:
                    place = b.gep(compute, plane, b.add(b.add(b.mul(y, row), b.mul(p, pitch)), j))

                    def window(k: str, total: str) -> list[str]:
                        return [element.add(b, width, total, b.load(type_, b.gep(compute, start, k), size))]

                    (total,) = b.loop(0, count, 1, window, [(type_, b.load(type_, place, size))])
                    b.store(type_, total, place, size)

                b.loop(top, bottom, 1, pixel_row)

            b.loop(0, pitch, width, columns)
            following = b.add(first, 1)
            wraps = b.op(f"icmp eq i64 {following}, {step}")
            return [b.op(f"select i1 {wraps}, i64 0, i64 {following}"), b.add(last, b.op(f"zext i1 {wraps} to i64"))]

        b.loop(0, phases, 1, phase, [("i64", first_tap), ("i64", last_window)])

    b.loop(0, w["out_height"], 1, window_row)

    def bring(y: str) -> None:
        line = b.gep(compute, plane, b.mul(y, row))
        if facts.unit_step:
            _bring_row(b, facts, w, line, out, y)
            return
        to = b.gep(memory, out, b.mul(y, w["out_y"]))

        def phase(p: str) -> None:
            full = b.op(f"icmp slt i64 {p}, {full_columns}")
            columns = b.op(f"select i1 {full}, i64 {whole}, i64 {b.sub(whole, 1)}")

            def pixel(j: str) -> None:
                value = element.narrow(b, 1, b.load(compute, b.gep(compute, line, b.add(b.mul(p, pitch), j)), size))
                b.store(memory, value, b.gep(memory, to, b.mul(b.add(b.mul(j, step), p), w["out_x"])), element.memory_bytes)

            b.loop(0, columns, 1, pixel)

        b.loop(0, phases, 1, phase)

    b.loop(0, w["height"], 1, bring)
