"""Matrix products, convolutions and pooling. Shapes and attributes are described in compiler/graph.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import WIDER, Value
from flambeau.ops.primitive import dense, primitive, same_dtype
from flambeau.ops.primitives.pointwise import cast
from flambeau.trace.meta import Meta


def _matmul_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    a, b = metas
    kind = same_dtype("matmul", metas)
    return dense((*a.shape[:-1], b.shape[-1]), WIDER[kind] if attrs.get("wide") else kind)


def _t(x: Any) -> Any:
    return x.transpose(-1, -2)


def _conj(x: Any) -> Any:
    return x.conj() if x._meta.dtype.is_complex else x


@primitive("matmul", _matmul_rule)
def matmul(c, g):
    if c.attrs.get("wide"):  # the gradient of a float32 result of 16-bit operands is rounded to their dtype, as what follows the result is
        g = cast(g, dtype=c.dtype(0))
    return (
        matmul(g, _conj(_t(c.input(1)))) if c.needs(0) else None,
        matmul(_conj(_t(c.input(0))), g) if c.needs(1) else None,
    )


# -- convolution: y = x * w, and its two gradients, each the derivative of another ---------------------------------

_WINDOW = ("stride", "padding", "dilation", "groups")


def _window(c: Any) -> dict[str, Any]:
    return {k: c.attrs[k] for k in _WINDOW}


def convolution_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Length of one output dimension (PyTorch's Conv2d formula)."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _convolution_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    x, w = metas
    spatial = [convolution_size(x.shape[2 + i], w.shape[2 + i], attrs["stride"][i], attrs["padding"][i], attrs["dilation"][i]) for i in range(2)]
    return dense((x.shape[0], w.shape[0], *spatial), same_dtype("convolution", metas))


@primitive("convolution", _convolution_rule)
def convolution(c, g):
    return (
        convolution_input_gradient(g, c.input(1), shape=tuple(c.shape(0)), **_window(c)) if c.needs(0) else None,
        convolution_weight_gradient(g, c.input(0), shape=tuple(c.shape(1)), **_window(c)) if c.needs(1) else None,
    )


def _shape_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(attrs["shape"], metas[0].dtype)


def _cropped(x: Any, shape: Sequence[int]) -> Any:
    """x without the windows that only the padding of a transposed convolution's output makes room for."""
    for d in (2, 3):
        if x.shape[d] > shape[d]:
            x = x.narrow(d, 0, shape[d])
    return x


@primitive("convolution_input_gradient", _shape_rule)
def convolution_input_gradient(c, g):
    return (
        _cropped(convolution(g, c.input(1), **_window(c)), c.shape(0)) if c.needs(0) else None,
        convolution_weight_gradient(c.input(0), g, shape=tuple(c.shape(1)), **_window(c)) if c.needs(1) else None,
    )


@primitive("convolution_weight_gradient", _shape_rule)
def convolution_weight_gradient(c, g):
    return (
        _cropped(convolution(c.input(1), g, **_window(c)), c.shape(0)) if c.needs(0) else None,
        convolution_input_gradient(c.input(0), g, shape=tuple(c.shape(1)), **_window(c)) if c.needs(1) else None,
    )


# -- pooling ------------------------------------------------------------------------------------------------------


def _max_pool_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(attrs["shape"], metas[0].dtype) + dense(attrs["shape"], dtypes.int64)


@primitive("max_pool", _max_pool_rule)
def max_pool(c, g, _):
    if g is None:
        return None
    attrs = {**c.attrs, "shape": tuple(c.shape(0))}
    return max_pool_gradient(g, c.output(1), **attrs)


@primitive("max_pool_gradient", _shape_rule)
def max_pool_gradient(c, g):
    flat = g.reshape(*g.shape[:-2], -1)
    indices = c.input(1)
    picked = flat.gather(-1, indices.reshape(*indices.shape[:-2], -1))
    return picked.reshape(indices.shape), None


@primitive("average_pool", _shape_rule)
def average_pool(c, g):
    return average_pool_gradient(g, **{**c.attrs, "shape": tuple(c.shape(0))})


@primitive("average_pool_gradient", _shape_rule)
def average_pool_gradient(c, g):
    return average_pool(g, **{**c.attrs, "shape": tuple(c.shape(0))})
