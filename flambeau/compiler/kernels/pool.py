"""Pooling over windows of the last two dims of (N, C, H, W), and its gradients. A unit of work is one plane (n, c).

Forward: vectors of output columns, from the top of the plane to its bottom; the source elements of a tap are neighbours
(stride 1), every second element (stride 2) or gathered. Lanes whose tap lies in the padding are masked out; in windows up
to 3x3 the masks of a column of taps are made once for the vectors from top to bottom. Sums and comparisons run over the
taps in row-major order, as PyTorch's do, so that results are equal bit for bit. Indices that nothing reads are not made.
Gradients: a plane of the result is zeroed and added to in the order of the output pixels by one thread: no atomics. The
average's adds vectors of windows to vectors of pixels.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import masked_read, read_kind, store_lanes
from flambeau.compiler.kernels.convolution_problem import numel, operand, strides_of
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.pool_windows import Facts, averages, divide, divisors, maxima
from flambeau.symbols import maximum

_UNROLLED_TAPS = 9  # windows up to 3x3 are unrolled: their size becomes a fact
# Pixels of a plane up to which an average's gradient has phases of whole vectors where these would be empty, mostly.
_MAX_SPARSE_PLANE: Final = 1 << 12


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
    words: dict[str, Word] = {
        "source": source.word, "out": out.word, "channels": channels, "height": height, "width": image_width, "out_height": out_height,
        "out_width": out_width, "kernel_y": ky, "kernel_x": kx, "step_y": sy, "step_x": sx, "base_y": -py, "base_x": -px, "tap_y": dy, "tap_x": dx,
        "include_pad": int(average and bool(node.attr("count_include_pad"))), "divisor": int(node.attr("divisor") or 0) if average else 0,
        "scratch_bytes": scratch, **strides_of("source", (*source.strides[:3], source_x)), **strides_of("out", out.strides),
    }  # fmt: skip
    reads, writes = [source.root], [out.root]
    if facts.index or node.op == "max_pool_gradient":
        indices = operand(graph, node.outputs[1] if facts.index else node.inputs[1])
        words |= {"indices": indices.word, **strides_of("index", indices.strides)}
        (writes if facts.index else reads).append(indices.root)
    if gradient:
        words["scratch"] = Scratch(scratch)
    units = large.shape[0] * channels
    traffic = (numel(large) + numel(small)) * dtype.itemsize + (numel(small) * 8 if facts.index or node.op == "max_pool_gradient" else 0)
    return [
        describe(
            f"{node.op}_{element.name}", facts.key(), partial(_planes, facts), words,
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


def _planes(facts: Facts, b: Builder, w: dict[str, str]) -> None:
    if "scratch" in w:
        w["scratch"] = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    plane = {
        "max_pool": maxima, "average_pool": averages, "max_pool_gradient": maximum_gradient,
        "average_pool_gradient": average_gradient,
    }[facts.op]  # fmt: skip
    with b.for_("%begin", "%end") as u:
        n, c = b.op(f"udiv i64 {u}, {w['channels']}"), b.op(f"urem i64 {u}, {w['channels']}")
        memory = facts.element.memory
        source = b.gep(memory, w["source"], b.add(b.mul(n, w["source_batch"]), b.mul(c, w["source_channel"])))
        out = b.gep(memory, w["out"], b.add(b.mul(n, w["out_batch"]), b.mul(c, w["out_channel"])))
        indices = ""
        if "indices" in w:
            indices = b.gep("i64", w["indices"], b.add(b.mul(n, w["index_batch"]), b.mul(c, w["index_channel"])))
        plane(b, facts, w, source, out, indices)


# -- The gradients of a plane, added up in the order of the windows by one thread (pool.py) --------------------------
def maximum_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Add the gradients of all windows to a zeroed plane in scratch, then bring the plane out."""
    element = facts.element
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    plane = w["scratch"]
    pixels = b.mul(w["height"], w["width"])
    _clear(b, facts, plane, pixels)
    with b.for_(0, w["out_height"]) as oy:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))
        index_line = b.gep("i64", indices, b.mul(oy, w["index_y"]))
        with b.for_(0, w["out_width"]) as ox:
            at = b.load("i64", b.gep("i64", index_line, b.mul(ox, w["index_x"])), 8)
            value = element.widen(b, 1, b.load(memory, b.gep(memory, line, b.mul(ox, w["source_x"])), element.memory_bytes))
            # The indices come from max_pool, but a caller may hand in any: never write outside the plane.
            with b.if_(b.op(f"icmp ult i64 {at}, {pixels}")):
                place = b.gep(compute, plane, at)
                b.store(compute, element.add(b, 1, b.load(compute, place, size), value), place, size)
    with b.for_(0, w["height"]) as y:
        _bring_row(b, facts, w, b.gep(compute, plane, b.mul(y, w["width"])), out, y)


def _clear(b: Builder, facts: Facts, at: str, count: str) -> None:
    """Zeros, in whole vectors."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    with b.for_(0, count, width) as i:
        b.store(type_, element.zero(width), b.gep(element.compute, at, i), element.compute_bytes)


def _bring_row(b: Builder, facts: Facts, w: dict[str, str], line: str, out: str, y: str) -> None:
    """Store row y of the result from a line of sums."""
    element, width = facts.element, facts.width
    row = b.gep(element.memory, out, b.mul(y, w["out_y"]))
    with b.for_(0, w["width"], width) as x:
        sums = b.load(vector(element.compute, width), b.gep(element.compute, line, x), element.compute_bytes)
        value, left = element.narrow(b, width, sums), b.sub(w["width"], x)
        store_lanes(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, x, left, w["out_x"])


def average_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
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
    with b.for_(0, w["out_height"]) as oy:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))
        with b.for_(0, w["out_width"], width) as ox:
            left = b.sub(w["out_width"], ox)
            read = masked_read(b, memory, width, element.memory_bytes, facts.kind, "0", left, w["source_x"])
            value = element.widen(b, width, read(b.gep(memory, line, b.mul(ox, w["source_x"]))))
            value = divide(b, facts, value, divisors(b, facts, w, ox, oy))
            store_lanes(b, compute, size, width, True, value, shares, ox, left, "1")
        y_first = b.add(b.mul(oy, w["step_y"]), w["base_y"])
        top, bottom = b.max(y_first, 0), b.min(b.add(y_first, w["kernel_y"]), w["height"])

        def phase(p: str, first: str, last: str) -> list[str]:
            # Column j is in the windows up to j + last, there by tap `first`, and in those before, each by a tap `step` further.
            full = b.op(f"icmp slt i64 {first}, {full_taps}")
            count = b.op(f"select i1 {full}, i64 {taps}, i64 {b.sub(taps, 1)}")
            with b.for_(0, pitch, width) as j:
                start = b.gep(compute, shares, b.add(b.add(j, b.add(last, 1)), b.sub(0, count)))
                with b.for_(top, bottom) as y:
                    place = b.gep(compute, plane, b.add(b.add(b.mul(y, row), b.mul(p, pitch)), j))

                    def window(k: str, total: str) -> list[str]:
                        return [element.add(b, width, total, b.load(type_, b.gep(compute, start, k), size))]

                    (total,) = b.loop(0, count, 1, window, [(type_, b.load(type_, place, size))])
                    b.store(type_, total, place, size)
            following = b.add(first, 1)
            wraps = b.op(f"icmp eq i64 {following}, {step}")
            return [b.op(f"select i1 {wraps}, i64 0, i64 {following}"), b.add(last, b.op(f"zext i1 {wraps} to i64"))]

        b.loop(0, phases, 1, phase, [("i64", first_tap), ("i64", last_window)])
    with b.for_(0, w["height"]) as y:
        line = b.gep(compute, plane, b.mul(y, row))
        if facts.unit_step:
            _bring_row(b, facts, w, line, out, y)
        else:
            to = b.gep(memory, out, b.mul(y, w["out_y"]))
            with b.for_(0, phases) as p:
                full = b.op(f"icmp slt i64 {p}, {full_columns}")
                columns = b.op(f"select i1 {full}, i64 {whole}, i64 {b.sub(whole, 1)}")
                with b.for_(0, columns) as j:
                    value = element.narrow(b, 1, b.load(compute, b.gep(compute, line, b.add(b.mul(p, pitch), j)), size))
                    b.store(memory, value, b.gep(memory, to, b.mul(b.add(b.mul(j, step), p), w["out_x"])), element.memory_bytes)
