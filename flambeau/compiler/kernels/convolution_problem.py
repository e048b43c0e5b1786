"""Convolutions: what a graph node says, with sizes, strides and addresses spelled out; temporaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph, Value
from flambeau.compiler.kernel import Address
from flambeau.dtypes import dtype
from flambeau.runtime.target import Target

# LLVM type of an accumulator -> dtype of packed weights and partial sums.
COMPUTE_DTYPE = {"float": "float32", "double": "float64", "i32": "int32", "i64": "int64"}


@dataclass(frozen=True, slots=True)
class Operand:
    """A value as a kernel sees it. Strides in elements, of (batch, channel, row, column)."""

    word: Address
    root: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def numel(o: Operand) -> int:
    return prod(o.shape)


def operand(graph: Graph, value_id: int) -> Operand:
    value = graph.values[value_id]
    itemsize = value.dtype.itemsize
    dynamic = tuple((parameter, multiplier * itemsize) for parameter, multiplier in value.dynamic)
    root = graph.root(value_id)
    return Operand(Address(root, value.offset * itemsize, dynamic), root, value.shape, value.strides)


def strides_of(name: str, strides: Sequence[int]) -> dict[str, int]:
    """Words with an operand's strides."""
    return {f"{name}_{axis}": stride for axis, stride in zip(("batch", "channel", "y", "x"), strides, strict=True)}


def temporary(graph: Graph, elements: int, kind: dtype) -> int:
    """A new flat value of the graph that only kernels know: written by one, read by the next."""
    return graph.add_value(Value((elements,), kind, (1,)))


@dataclass(frozen=True, slots=True)
class Problem:
    """One convolution node. x: (N, C, H, W), w: (O, C / groups, KH, KW), y: (N, O, OH, OW), one of them the output."""

    x: Operand
    w: Operand
    y: Operand
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    dtype: dtype
    target: Target

    @property
    def batch(self) -> int:
        return self.x.shape[0]

    @property
    def group_inputs(self) -> int:
        return self.x.shape[1] // self.groups

    @property
    def group_outputs(self) -> int:
        return self.y.shape[1] // self.groups

    @property
    def operations(self) -> int:
        """Multiplications and additions, those with the padding included."""
        n, o, oh, ow = self.y.shape
        return 2 * n * o * oh * ow * self.group_inputs * self.w.shape[2] * self.w.shape[3]

    @property
    def is_depthwise(self) -> bool:
        return self.group_inputs == 1 and self.groups > 1


def problem(graph: Graph, node_index: int) -> Problem:
    node = graph.nodes[node_index]
    first, second, out = operand(graph, node.inputs[0]), operand(graph, node.inputs[1]), operand(graph, node.outputs[0])
    if node.op == "convolution":
        x, w, y = first, second, out
    elif node.op == "convolution_input_gradient":
        x, w, y = out, second, first
    else:
        x, w, y = second, out, first
    pairs = [tuple(node.attr(name)) for name in ("stride", "padding", "dilation")]
    (sy, sx), (py, px), (dy, dx) = pairs
    kind = graph.values[node.outputs[0]].dtype
    if kind.is_complex:
        raise TypeError(f"{node.op}: the kernels are real, got {kind!r}; split a complex convolution into its real parts")
    return _simplified(Problem(x, w, y, (sy, sx), (py, px), (dy, dx), node.attr("groups"), kind, graph.target))


def _simplified(p: Problem) -> Problem:
    """The same convolution with longer rows, where that is a mere change of names.

    A 1x1 kernel with stride 1 has no rows: all pixels become one. Images one column wide are turned on their side.
    """
    operands = (p.x, p.w, p.y)
    images = (p.x, p.y)
    if p.w.shape[2:] == (1, 1) and p.stride == (1, 1) and p.padding == (0, 0) and all(i.strides[2] == i.shape[3] * i.strides[3] for i in images):
        x, y = (_reshaped(i, (1, i.shape[2] * i.shape[3]), (0, i.strides[3])) for i in images)
        return Problem(x, p.w, y, p.stride, p.padding, p.dilation, p.groups, p.dtype, p.target)
    if p.y.shape[3] == 1 and p.x.shape[3] == 1 and (p.y.shape[2] > 1 or p.x.shape[2] > 1):
        x, w, y = (_reshaped(i, (i.shape[3], i.shape[2]), (i.strides[3], i.strides[2])) for i in operands)
        return Problem(x, w, y, p.stride[::-1], p.padding[::-1], p.dilation[::-1], p.groups, p.dtype, p.target)
    return p


def _reshaped(o: Operand, size: tuple[int, int], strides: tuple[int, int]) -> Operand:
    return Operand(o.word, o.root, (*o.shape[:2], *size), (*o.strides[:2], *strides))


def load_record(b: Builder, start: str, names: Sequence[str], pointers: int = 0) -> dict[str, str]:
    """Load the words at `start`, by name; the first `pointers` are addresses."""
    return {name: b.load("ptr" if at < pointers else "i64", b.gep("i64", start, at), 8) for at, name in enumerate(names)}


def decode_unit(b: Builder, w: dict[str, str], u: str) -> tuple[str, str, str, str, str]:
    """(range of channels, block column, block row, group, first image) of a unit."""
    digits = []
    for name in ("splits", "blocks_x", "blocks_y", "groups"):
        digits.append(b.op(f"urem i64 {u}, {w[name]}"))
        u = b.op(f"udiv i64 {u}, {w[name]}")
    part, bx, by, g = digits
    return part, bx, by, g, b.mul(u, w["images"])


def call_epilogue(b: Builder, first_image: str, images: str, rows: tuple[str, str], pixels: tuple[str, str]) -> None:
    """Call the epilogue on output channels `rows` and neighbouring `pixels` (each from, to) of some images."""
    with b.for_(0, images) as i:
        b.call("void", "epilogue", [
            ("ptr", "%args"), ("i64", b.add(first_image, i)), *(("i64", value) for value in (*rows, *pixels)),
        ], declare=False)  # fmt: skip
