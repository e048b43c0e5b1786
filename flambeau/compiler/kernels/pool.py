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

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import read_kind
from flambeau.compiler.kernels.convolution_problem import numel, operand, strides_of
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.pool_gradients import average_gradient, maximum_gradient
from flambeau.compiler.kernels.pool_windows import Facts, averages, maxima
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
