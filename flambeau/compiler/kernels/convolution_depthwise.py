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

from dataclasses import asdict
from functools import partial

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_depthwise_planes import VECTORS, Facts, Plane, planes_body
from flambeau.compiler.kernels.convolution_depthwise_weight import weight_body
from flambeau.compiler.kernels.convolution_patches import read_kind
from flambeau.compiler.kernels.convolution_problem import Operand, Problem, numel, strides_of
from flambeau.compiler.kernels.description import Epilogue, describe
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
        words: dict[str, Word] = {
            "g": p.y.word, "x": p.x.word, "out": p.w.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "spread_at": plane_bytes,
            "batch": p.batch, "multiplier": multiplier, "x_batch": p.x.strides[0], "x_channel": p.x.strides[1], "g_batch": p.y.strides[0],
            "g_channel": p.y.strides[1], "weight_channel": p.w.strides[0], "weight_y": p.w.strides[2], "weight_x": p.w.strides[3],
            "taps_x": p.w.shape[3], "g_height": p.y.shape[2], "g_width": p.y.shape[3], "g_y": p.y.strides[2],
            "g_x": 1 if p.y.shape[3] == 1 else p.y.strides[3], "spread": spread, "taps": taps, **asdict(plane),
        }  # fmt: skip
        key = f"convolution:depthwise_weight:{facts.key()}:{g_kind}"
        return [
            describe(
                f"convolution_depthwise_weight_{element.name}", key, partial(weight_body, facts, g_kind), words, {"shifts": shifts},
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
    words = {
        "source": source.word, "weights": p.w.word, "out": out.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "result_at": plane_bytes,
        "coefficients_at": plane_bytes + round_up(result * size, 64), "channels": out.shape[1], "planes": planes,
        "per_source": 1 if gradient else multiplier, "source_batch": source.strides[0], "source_channel": source.strides[1],
        **strides_of("out", out.strides), "out_height": out.shape[2], "out_width": out.shape[3], "weight_channel": p.w.strides[0],
        "weight_y": p.w.strides[2], "weight_x": p.w.strides[3], "taps_y": p.w.shape[2], "taps_x": p.w.shape[3], "taps": taps, **asdict(plane),
    }  # fmt: skip
    words["shifts_at"] = len(words) + 1 + (0 if epilogue is None else len(epilogue.words))
    return [
        describe(
            f"convolution_depthwise_{element.name}", f"convolution:depthwise:{facts.key()}", partial(planes_body, facts, epilogue is not None), words,
            rest=shifts, epilogue=epilogue, reads=tuple(dict.fromkeys((source.root, p.w.root))), writes=(out.root,), units=units,
            bytes=elements * itemsize, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, elements * itemsize)),
        )
    ]  # fmt: skip
