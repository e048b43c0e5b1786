"""Layers of networks as ONNX nodes: products, convolutions, pooling, normalisation, attention, images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.exporting.builder import FORMS, Builder, Val, form
from flambeau.onnx.exporting.reductions import variance

for _name in ("mm", "bmm", "matmul", "mv", "dot", "vdot"):
    FORMS[_name] = lambda b, self, **other: b.op("MatMul", self, *other.values())


@form("linear")
def linear(b: Builder, input: Any, weight: Any, bias: Any = None) -> Any:
    """x @ w.t() + bias."""
    if input.ndim == 2 and weight.ndim == 2:
        return b.op("Gemm", input, weight, bias, transB=1)
    made = b.op("MatMul", input, b.op("Transpose", weight, perm=[1, 0]) if weight.ndim == 2 else weight)
    return made if bias is None else b.op("Add", made, bias)


@form("addmm")
def addmm(b: Builder, self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * self + alpha * a @ b."""
    return b.op("Gemm", mat1, mat2, self, beta=float(beta), alpha=float(alpha))


@form("baddbmm", "addbmm", "addmv")
def baddbmm(b: Builder, self: Any, beta: Any = 1, alpha: Any = 1, **factors: Any) -> Any:
    """The same of batches."""
    kind = b.dtype()
    made: Any = b.op("MatMul", *factors.values())
    if "addbmm" in b.where and "baddbmm" not in b.where:
        made = b.op("ReduceSum", made, b.ints([0]), keepdims=0)
    made = made if alpha == 1 else b.op("Mul", made, b.number(alpha, kind))
    return b.op("Add", self if beta == 1 else b.op("Mul", self, b.number(beta, kind)), made)


@form("einsum")
def einsum(b: Builder, equation: str, tensors: Any, path: Any = None) -> Any:
    """Einstein's sums."""
    return b.op("Einsum", *tensors, equation=equation.replace(" ", ""))


@form("outer", "ger")
def outer(b: Builder, self: Any, vec2: Any) -> Any:
    """All products of two vectors' elements."""
    return b.op("Mul", b.op("Unsqueeze", self, b.ints([1])), vec2)


FORMS["linalg_det"] = FORMS["det"] = lambda b, self=None, A=None: b.op("Det", self if self is not None else A)


def _list(v: Any, rank: int) -> list[int]:
    return [int(x) for x in v] * (rank if isinstance(v, (list, tuple)) and len(v) == 1 else 1) if isinstance(v, (list, tuple)) else [int(v)] * rank


@form("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolution(
    b: Builder, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, transposed: Any = None,
    output_padding: Any = 0, groups: int = 1,
) -> Any:  # fmt: skip
    """Convolutions, plain and transposed."""
    rank = weight.ndim - 2
    single = input.ndim == rank + 1
    x = b.op("Unsqueeze", input, b.ints([0])) if single else input
    kernel = [int(s) for s in weight.shape[2:]]
    options: dict[str, Any] = {"strides": _list(stride, rank), "dilations": _list(dilation, rank), "group": groups, "kernel_shape": kernel}
    if isinstance(padding, str):
        options["pads"] = [0] * (2 * rank)
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(options["dilations"], kernel, strict=True)]
            options["pads"] = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        options["pads"] = _list(padding, rank) * 2
    if transposed or "conv_transpose" in b.where:
        made = b.op("ConvTranspose", x, weight, bias, output_padding=_list(output_padding, rank), **options)
    else:
        made = b.op("Conv", x, weight, bias, **options)
    return b.op("Squeeze", made, b.ints([0])) if single else made


def _pool(b: Builder, x: Any, rank: int, kernel_size: Any, stride: Any, padding: Any, write: Any, ceil_mode: bool = False) -> Any:
    single = x.ndim == rank + 1
    given = b.op("Unsqueeze", x, b.ints([0])) if single else x
    kernel = _list(kernel_size, rank)
    steps = _list(stride, rank) if stride is not None and stride != [] else kernel
    made = write(given, {"kernel_shape": kernel, "strides": steps, "pads": _list(padding, rank) * 2, "ceil_mode": int(ceil_mode)})
    return b.op("Squeeze", made, b.ints([0])) if single else made


@form("max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(b: Builder, self: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    """The largest of each window; its place in the image, if that is asked for."""
    rank = int(b.where.split("max_pool")[1][0])
    both = "_with_indices" in b.where

    def write(x: Any, options: dict[str, Any]) -> Any:
        return b.several("MaxPool", 2 if both else 1, x, dilations=_list(dilation, rank), **options)

    if not both:
        return _pool(b, self, rank, kernel_size, stride, padding, lambda x, o: write(x, o)[0], ceil_mode)
    if self.ndim != rank + 2:
        raise b.refuse("places in an image without a batch have no form")
    found: list[str] = []

    def keep(x: Any, options: dict[str, Any]) -> str:
        found.extend(write(x, options))
        return found[0]

    value = _pool(b, self, rank, kernel_size, stride, padding, keep, ceil_mode)
    # ONNX counts through the whole tensor, PyTorch through each image.
    image = b.op("ReduceProd", b.op("Shape", self, start=2), b.ints([0]), keepdims=0)
    return [value, b.op("Mod", found[1], image)]


@form("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    b: Builder, self: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """The mean of each window."""
    rank = int(b.where.split("avg_pool")[1][0])
    if divisor_override is not None:
        raise b.refuse("divisor_override has no form")
    return _pool(b, self, rank, kernel_size, stride, padding, lambda x, o: b.op("AveragePool", x, count_include_pad=int(count_include_pad), **o), ceil_mode)


@form("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
      "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")  # fmt: skip
def adaptive_pool(b: Builder, self: Any, output_size: Any) -> Any:
    """Windows of such sizes that so many come out."""
    largest = "max" in b.where
    rank = int(b.where.split("_pool")[1][0])
    wanted = _list(output_size, rank)
    single = self.ndim == rank + 1
    x: Any = b.op("Unsqueeze", self, b.ints([0])) if single else self
    if all(w == 1 for w in wanted) and not largest:
        made = b.op("GlobalAveragePool", x)
    else:
        sizes = [self.shape[self.ndim - rank + d] for d in range(rank)]
        if any(type(s) is not int or s % w for s, w in zip(sizes, wanted, strict=True)):
            raise b.refuse(f"from {list(sizes)} to {wanted} has no form: windows of one size do not do it")
        steps = [s // w for s, w in zip(sizes, wanted, strict=True)]
        if largest:
            raise b.refuse("its places have no form; use max_pool")
        made = b.op("AveragePool", x, kernel_shape=steps, strides=steps)
    return b.op("Squeeze", made, b.ints([0])) if single else made


# -- normalisation ----------------------------------------------------------------------------------------------------
def _or(b: Builder, x: Any, value: float, like: Any, kind: Any) -> Any:
    """A parameter, or a constant vector in its place."""
    return (
        x
        if x is not None
        else b.array(np.full(int(like), value, np.float32))
        if kind is flambeau.float32
        else b.op("Expand", b.number(value, kind), b.ints([int(like)]))
    )


@form("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    b: Builder, input: Any, weight: Any = None, bias: Any = None, running_mean: Any = None, running_var: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """With the running statistics, or with the batch's."""
    channels, kind = input.shape[1], input.dtype
    weight, bias = _or(b, weight, 1.0, channels, kind), _or(b, bias, 0.0, channels, kind)
    several = "native" in b.where  # with means and deviations, which nothing needs outside of training
    if not training and running_mean is not None:
        made = b.op("BatchNormalization", input, weight, bias, running_mean, running_var, epsilon=float(eps))
        return [made] if several else made
    dims = [d for d in range(input.ndim) if d != 1]
    spread, mean = variance(b, input, dims, 0, True)
    view = b.ints([-1] + [1] * (input.ndim - 2))
    made = b.op("Div", b.op("Sub", input, mean), b.op("Sqrt", b.op("Add", spread, b.number(eps, kind))))
    made = b.op("Add", b.op("Mul", made, b.op("Reshape", weight, view)), b.op("Reshape", bias, view))
    return [made] if several else made


@form("instance_norm")
def instance_norm(
    b: Builder, input: Any, weight: Any = None, bias: Any = None, running_mean: Any = None, running_var: Any = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """Each channel of each sample."""
    if not use_input_stats:
        return batch_norm(b, input, weight, bias, running_mean, running_var, False, momentum, eps)
    channels, kind = input.shape[1], input.dtype
    return b.op("InstanceNormalization", input, _or(b, weight, 1.0, channels, kind), _or(b, bias, 0.0, channels, kind), epsilon=float(eps))


@form("layer_norm", "native_layer_norm")
def layer_norm(b: Builder, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = False) -> Any:
    """The last dims."""
    rank, kind = len(normalized_shape), input.dtype
    scale = weight if weight is not None else b.op("Expand", b.number(1.0, kind), b.ints(normalized_shape))
    if "native" in b.where:
        return b.several("LayerNormalization", 3, input, scale, bias, axis=-rank, epsilon=float(eps))
    return b.op("LayerNormalization", input, scale, bias, axis=-rank, epsilon=float(eps))


@form("rms_norm")
def rms_norm(b: Builder, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """By the root mean square."""
    kind = input.dtype
    dims = b.ints(range(-len(normalized_shape), 0))
    by = flambeau.finfo(kind).eps if eps is None else eps
    mean = b.op("ReduceMean", b.op("Mul", input, input), dims, keepdims=1)
    made = b.op("Div", input, b.op("Sqrt", b.op("Add", mean, b.number(by, kind))))
    return made if weight is None else b.op("Mul", made, weight)


@form("group_norm", "native_group_norm")
def group_norm(
    b: Builder, input: Any, num_groups: int = 0, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = False, group: int = 0, **_: Any
) -> Any:
    """Groups of channels: as instances of one channel for each group."""
    if group:  # the native one, whose means and deviations nothing here needs
        return [group_norm(b, input, group, weight, bias, eps)]
    kind = input.dtype
    ones, zeros = b.op("Expand", b.number(1.0, kind), b.ints([num_groups])), b.op("Expand", b.number(0.0, kind), b.ints([num_groups]))
    flat = b.op("Reshape", input, b.ints([0, num_groups, -1]))
    made = b.op("Reshape", b.op("InstanceNormalization", flat, ones, zeros, epsilon=float(eps)), b.op("Shape", input))
    view = b.ints([-1] + [1] * (input.ndim - 2))
    made = made if weight is None else b.op("Mul", made, b.op("Reshape", weight, view))
    return made if bias is None else b.op("Add", made, b.op("Reshape", bias, view))


# -- attention --------------------------------------------------------------------------------------------------------
@form("scaled_dot_product_attention")
def attention(
    b: Builder, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v. Rows that see nothing give 0, as in PyTorch."""
    if dropout_p:
        raise b.refuse("it drops elements: export the module after eval()")
    kind, rank = query.dtype, query.ndim
    size = query.shape[-1]
    if type(size) is not int and scale is None:
        raise b.refuse("heads whose size is not known need a scale")
    factor = float(scale) if scale is not None else 1.0 / math.sqrt(size)
    k, v = _grouped(b, query, key, enable_gqa), _grouped(b, query, value, enable_gqa)
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores: Any = b.op("MatMul", b.op("Mul", query, b.number(factor, kind)), b.op("Transpose", k, perm=order))
    least, zero = b.number(-math.inf, kind), b.number(0.0, kind)
    hides = False
    if is_causal:
        rows, columns = b.op("Shape", query, start=rank - 2, end=rank - 1), b.op("Shape", key, start=key.ndim - 2, end=key.ndim - 1)
        square = b.op("Expand", b.number(1, flambeau.int32), b.op("Concat", rows, columns, axis=0))
        seen = b.op("Cast", b.op("Trilu", square, upper=0), to=9)
        scores = b.op("Where", seen, scores, least)
    if attn_mask is not None:
        if attn_mask.dtype is flambeau.bool:
            scores = b.op("Where", attn_mask, scores, least)
        else:
            scores = b.op("Add", scores, b.cast(attn_mask, kind))
        hides = True
    weights: Any = b.op("Softmax", scores, axis=-1)
    if hides:
        weights = b.op("Where", b.op("IsNaN", weights), zero, weights)
    return b.op("MatMul", weights, v)


def _grouped(b: Builder, query: Val, x: Val, grouped: bool) -> Any:
    """Keys or values with as many heads as the query."""
    if not grouped or query.shape is None or x.shape is None or query.shape[-3] == x.shape[-3]:
        return x
    many = int(query.shape[-3]) // int(x.shape[-3])
    rank = x.ndim
    wide = b.op("Tile", b.op("Unsqueeze", x, b.ints([rank - 2])), b.ints([1] * (rank - 2) + [many, 1, 1]))
    sizes: list[Any] = [b.size(x, d) for d in range(rank)]
    sizes[rank - 3] = int(query.shape[-3])
    return b.op("Reshape", wide, b.ints(sizes))


# -- images -----------------------------------------------------------------------------------------------------------
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@form(*[f"upsample_{n}" for n in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d")])
def upsample(b: Builder, input: Any = None, output_size: Any = None, align_corners: bool = False, scale_factors: Any = None, self: Any = None, **_: Any) -> Any:
    """Images in another size."""
    x = input if input is not None else self
    kind = _MODES["".join(c for c in b.where.split("upsample_")[1].split(".")[0] if not c.isdigit())[:-1]]
    options: dict[str, Any] = {"mode": kind}
    if kind == "nearest":
        options |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        options["coordinate_transformation_mode"] = "align_corners" if align_corners else "pytorch_half_pixel"
        options |= {"cubic_coeff_a": -0.75} if kind == "cubic" else {}
    if scale_factors is not None:
        return b.op("Resize", x, None, b.array(np.array([1.0, 1.0, *scale_factors], np.float32)), **options)
    batch = b.op("Shape", x, start=0, end=2)
    return b.op("Resize", x, None, None, b.op("Concat", batch, b.ints(output_size), axis=0), **options)


@form("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(b: Builder, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Images at places of a grid."""
    modes, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return b.op("GridSample", input, grid, mode=modes[interpolation_mode], padding_mode=paddings[padding_mode], align_corners=int(align_corners))


@form("col2im")
def col2im(b: Builder, self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Blocks added into an image."""
    return b.op("Col2Im", self, b.ints(output_size), b.ints(kernel_size), dilations=list(dilation), pads=list(padding) * 2, strides=list(stride))


@form("im2col")
def im2col(b: Builder, self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Blocks of an image as columns."""
    x: Any = b.op("Pad", self, b.ints([0, 0, *padding, 0, 0, *padding])) if any(padding) else self
    for d in (0, 1):
        size = self.shape[2 + d]
        if type(size) is not int:
            raise b.refuse("images whose sizes are not known have no form")
        count = (size + 2 * padding[d] - dilation[d] * (kernel_size[d] - 1) - 1) // stride[d] + 1
        places = np.arange(kernel_size[d])[:, None] * dilation[d] + np.arange(count) * stride[d]
        x = b.op("Gather", x, b.array(places), axis=2 + 2 * d)  # [n, c, kh, oh, kw, ow] at the end
    x = b.op("Transpose", x, perm=[0, 1, 2, 4, 3, 5])
    channels = self.shape[1]
    count = 1
    for k in kernel_size:
        count *= k
    return b.op("Reshape", x, b.ints([b.size(self, 0), channels * count, -1]))
