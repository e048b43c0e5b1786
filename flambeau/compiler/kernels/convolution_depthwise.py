"""Convolutions whose groups have one input channel (depthwise): direct, one plane at a time in a thread's scratch.

Every case becomes a sum over taps of shifted copies of one flat, zero-padded plane:

    result[q] = sum over taps t of coefficient[t] * plane[q + shift[t]],       q = row * pitch + column

with all columns of the pitch computed, those beyond the result's width thrown away. So no inner loop has an edge.
A stride becomes part of how the plane is laid out: rows and columns are dealt to `stride` sub-planes by their residue
(an input gradient instead spreads g out with zeros between). The weight's gradient is the product of two planes:

    w[t] = sum over q of result_gradient[q] * plane[q + shift[t]]              (zeros beyond the result's width)

Each result is summed in the order of the taps, each weight in the order of images and lanes, whatever the split.
"""

from __future__ import annotations

from dataclasses import astuple
from functools import partial

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_depthwise_planes import VECTORS, Facts, Plane, emit_planes
from flambeau.compiler.kernels.convolution_depthwise_weight import emit_weight
from flambeau.compiler.kernels.convolution_patches import read_kind
from flambeau.compiler.kernels.convolution_problem import Operand, Problem, numel
from flambeau.compiler.kernels.description import Epilogue
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.symbols import maximum


def _plane(
    o: Operand, spread: tuple[int, int], before: tuple[int, int], reach: tuple[int, int], deal: tuple[int, int],
    result: tuple[int, int], width: int,
) -> Plane:  # fmt: skip
    """The plane of `o` for a result of that size whose taps lie up to `reach` places after its pixel (times deal)."""
    rows = result[0] + ceil_div(reach[0], deal[0])
    pitch = result[1] + ceil_div(reach[1], deal[1])
    # The last vectors read past the result's last row, shifted by up to the reach.
    total = round_up(deal[0] * deal[1] * rows * pitch + ceil_div(reach[1], deal[1]) + (VECTORS + 1) * width, width)
    stride_x = 1 if o.shape[3] == 1 else o.strides[3]
    return Plane(o.shape[2], o.shape[3], o.strides[2], stride_x, *spread, *before, *deal, rows, pitch, total)


def _forward_plane(p: Problem, width: int) -> tuple[Plane, list[int]]:
    """x laid out for the output, and the shift of each tap."""
    kernel = p.w.shape[2:]
    reach = tuple((k - 1) * d for k, d in zip(kernel, p.dilation, strict=True))
    plane = _plane(p.x, (1, 1), p.padding, (reach[0], reach[1]), p.stride, (p.y.shape[2], p.y.shape[3]), width)
    shifts = [plane.shift(ty * p.dilation[0], tx * p.dilation[1]) for ty in range(kernel[0]) for tx in range(kernel[1])]
    return plane, shifts


def _gradient_plane(p: Problem, width: int) -> tuple[Plane, list[int]]:
    """y's gradient laid out for x, and the shift of each tap: place i + padding - k * dilation, moved by the reach."""
    kernel = p.w.shape[2:]
    reach = tuple((k - 1) * d for k, d in zip(kernel, p.dilation, strict=True))
    before = tuple(r - q for r, q in zip(reach, p.padding, strict=True))
    plane = _plane(p.y, p.stride, (before[0], before[1]), (reach[0], reach[1]), (1, 1), (p.x.shape[2], p.x.shape[3]), width)
    shifts = [plane.shift(reach[0] - ty * p.dilation[0], reach[1] - tx * p.dilation[1]) for ty in range(kernel[0]) for tx in range(kernel[1])]
    return plane, shifts


def make_depthwise(graph: Graph, p: Problem, op: str, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of any of the three convolution nodes, for groups with one input channel."""
    host = graph.target
    element = element_of(p.dtype)
    width = max(1, host.vector_bits // (8 * element.compute_bytes))
    size = element.compute_bytes
    gradient = op == "convolution_input_gradient"
    plane, shifts = _gradient_plane(p, width) if gradient else _forward_plane(p, width)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    multiplier = p.group_outputs
    taps = len(shifts)
    itemsize = p.dtype.itemsize
    elements = numel(p.x) + numel(p.w) + numel(p.y)
    kind = read_kind(1, plane.stride_x) if plane.spread_x == 1 and plane.deal_x == 1 else "scalar"
    facts = Facts(element, width, host.vector_bits, kind, out.strides[3] == 1 or out.shape[3] == 1)
    plane_bytes = round_up(plane.total * size, 64)
    if op == "convolution_weight_gradient":
        spread = round_up(plane.pitch * p.y.shape[2] + width, width)
        scratch = plane_bytes + round_up(spread * size, 64)
        g_kind = read_kind(1, 1 if p.y.shape[3] == 1 else p.y.strides[3])
        words: list[Word] = [
            p.y.word, p.x.word, p.w.word, Scratch(scratch), scratch, plane_bytes, p.batch, multiplier, p.x.strides[0],
            p.x.strides[1], p.y.strides[0], p.y.strides[1], p.w.strides[0], p.w.strides[2], p.w.strides[3],
            p.w.shape[3],
            p.y.shape[2], p.y.shape[3], p.y.strides[2], 1 if p.y.shape[3] == 1 else p.y.strides[3], spread, taps,
            *astuple(plane), *shifts,
        ]  # fmt: skip
        key = f"convolution:depthwise_weight:{facts.key()}:{g_kind}"
        return [
            Kernel(
                name=f"convolution_depthwise_weight_{element.name}", key=key,
                emit=partial(emit_weight, facts, g_kind, key), words=words,
                reads=tuple(dict.fromkeys((p.y.root, p.x.root))), writes=(p.w.root,), units=p.y.shape[1],
                bytes=elements * itemsize, operations=p.operations, nodes=(node_index,),
                min_units_per_thread=maximum(1, (64 << 10) * p.y.shape[1] // maximum(1, elements * itemsize)),
            )
        ]  # fmt: skip
    result = round_up(plane.pitch * out.shape[2] + VECTORS * width, width)
    scratch = plane_bytes + round_up(result * size, 64) + round_up(taps * size, 64)
    units = out.shape[0] * out.shape[1]
    # A unit is a plane of the result. The gradient of an input plane sums over the `multiplier` planes made from it.
    planes = multiplier if gradient else 1
    words = [
        source.word, p.w.word, out.word, Scratch(scratch), scratch, plane_bytes,
        plane_bytes + round_up(result * size, 64),
        out.shape[1], planes, 1 if gradient else multiplier, *source.strides[:2], *out.strides, *out.shape[2:],
        p.w.strides[0], p.w.strides[2], p.w.strides[3], *p.w.shape[2:], taps, *astuple(plane), 0,
    ]  # fmt: skip
    first_word = len(words)
    key = f"convolution:depthwise:{facts.key()}"
    if epilogue is not None:
        words += epilogue.words
        key += f":{epilogue.key}"
    words[first_word - 1] = len(words)
    words += shifts
    return [
        Kernel(
            name=f"convolution_depthwise_{element.name}", key=key,
            emit=partial(emit_planes, facts, epilogue, first_word, key),
            words=words, reads=tuple(dict.fromkeys((source.root, p.w.root))), writes=(out.root,), units=units,
            bytes=elements * itemsize, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, elements * itemsize)),
        )
    ]  # fmt: skip
