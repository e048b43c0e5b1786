"""Convolutions with 1x1 kernels and no stride, forward and input gradient: matrix products, one for each image.

    result[n] (rows of channels by pixels) = weights (rows by channels) @ source[n] (channels by pixels)

Of float32 where the matrix unit does them by halves (matmul_halves.py): a pixel is used too few times to pay for its three bfloat16 parts. Without a
matrix unit where there are more output channels than input channels: else convolution_direct.py, which reads pixels where they lie, is faster.
"""

from __future__ import annotations

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.compiler.kernels.description import Epilogue
from flambeau.compiler.kernels.matmul import Operand, Product, product_kernel
from flambeau.compiler.kernels.matmul_halves import HALVES, form_of
from flambeau.compiler.kernels.matmul_parts import parts_pay

_FEWEST_PIXELS = 32  # of an image: columns of a tile
_FEWEST_ROWS = 64  # uses of a packed pixel
# By multiply-adds. (Measured on Zen 4, times of convolution_direct.py's time: 24 to 144 and 64 to 256 channels of 56 x 56 1.5 and 1.3, 128 to 512 of
# 28 x 28 1.1, 64 to 64 of 32 x 32 1.0, 256 to 1024 of 14 x 14 0.9, 256 to 64 of 56 x 56 0.9.)
_MANY_PIXELS = 512
_MORE_ROWS = 2  # times as many output channels as input channels


def pointwise_applies(p: Problem, gradient: bool) -> bool:
    """Whether these kernels compute the problem, as convolution_problem.problem gives it: 1x1 images have become one row."""
    rows, channels = _rows_and_channels(p, gradient)
    pixels = p.y.shape[3]
    ones = p.dtype.name == "float32" and p.groups == 1 and p.w.shape[2:] == (1, 1) and p.stride == (1, 1) and p.padding == (0, 0) and p.x.shape[2] == 1
    if "bfloat16" not in p.target.matrix_dtypes:
        return ones and rows >= _MORE_ROWS * channels and rows >= _FEWEST_ROWS and pixels >= _MANY_PIXELS
    halves = ones and pixels >= _FEWEST_PIXELS and rows >= _FEWEST_ROWS and form_of(p.target, channels) is HALVES
    return halves and parts_pay(rows, pixels, channels)


def _rows_and_channels(p: Problem, gradient: bool) -> tuple[int, int]:
    return (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)


def make_pointwise_convolution(graph: Graph, p: Problem, gradient: bool, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """The kernel of `convolution`, or with `gradient` of `convolution_input_gradient`."""
    rows, channels = _rows_and_channels(p, gradient)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    along = p.w.strides[:2]
    a = Operand(p.w.word, p.w.root, *(reversed(along) if gradient else along))
    b, c = (Operand(o.word, o.root, o.strides[1], o.strides[3]) for o in (source, out))
    batch = [(p.batch, 0, source.strides[0], out.strides[0])]
    product = Product(rows, out.shape[3], channels, a, b, c, batch, rows, False)
    kernel = product_kernel(graph, product, p.dtype, node_index, epilogue)
    kernel.name = f"convolution_{p.dtype.name}"
    return [kernel]
