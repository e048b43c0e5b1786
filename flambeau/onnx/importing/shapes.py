"""Operators that change shapes and order: what is where, not what it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


def through(f: Any, x: Any) -> Any:
    """A change of shape of a tensor, or of what holds elements of 4 bits; strings are done by NumPy where `f` can."""
    if isinstance(x, values.Narrow):
        return values.Narrow(f(x.tensor), x.kind)
    return f(values.tensor(x))


@operator("Shape", raw=True)
def shape(n: Call, x: Any) -> Any:
    """The sizes, on the host."""
    return np.array(tuple(x.shape)[n.get("start", 0) : n.get("end")], np.int64)


@operator("Size", raw=True)
def size(n: Call, x: Any) -> Any:
    """The count of elements, on the host."""
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape", raw=True)
def reshape(n: Call, x: Any, sizes: Any = None) -> Any:
    """A 0 keeps a size, -1 is what is left."""
    new = n.ints("shape", sizes) or []
    if not n.get("allowzero", 0):
        new = [x.shape[i] if s == 0 else s for i, s in enumerate(new)]
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.reshape(new)
    return through(lambda t: t.reshape(new), x)


@operator("Flatten")
def flatten(n: Call, x: Any) -> Any:
    """Two dims: those before `axis` and those from it."""
    axis = n.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    first = math.prod(x.shape[:axis])
    return x.reshape(first, math.prod(x.shape[axis:]))


@operator("Transpose", raw=True)
def transpose(n: Call, x: Any) -> Any:
    """The dims in another order."""
    order = n.get("perm", list(range(len(x.shape)))[::-1])
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.transpose(order)
    return through(lambda t: t.permute(*order), x)


@operator("Squeeze", raw=True)
def squeeze(n: Call, x: Any, axes: Any = None) -> Any:
    """Without dims of size 1."""
    where = n.ints("axes", axes)
    if isinstance(x, np.ndarray) and x.dtype == object:
        return np.squeeze(x, None if where is None else tuple(where))
    return through(lambda t: t.squeeze() if where is None else t.squeeze(tuple(where)), x)


@operator("Unsqueeze", raw=True)
def unsqueeze(n: Call, x: Any, axes: Any = None) -> Any:
    """With dims of size 1."""
    where = n.ints("axes", axes) or []
    if isinstance(x, np.ndarray) and x.dtype == object:
        return np.expand_dims(x, tuple(where))
    rank = len(x.shape) + len(where)
    new = {a % rank for a in where}

    def change(t: Any) -> Any:
        for a in sorted(new):
            t = t.unsqueeze(a)
        return t

    return through(change, x)


@operator("Expand", raw=True)
def expand(n: Call, x: Any, sizes: Any) -> Any:
    """Broadcast to a shape, both ways."""
    wanted = np.broadcast_shapes(tuple(x.shape), tuple(values.ints(sizes)))
    if isinstance(x, np.ndarray) and x.dtype == object:
        return np.broadcast_to(x, wanted)
    return through(lambda t: t.expand(wanted), x)


@operator("Tile")
def tile(n: Call, x: Any, repeats: Any, axis: Any = None) -> Any:
    """x several times along each dim."""
    if axis is not None:  # opset 1
        times = [1] * x.ndim
        times[int(values.number(axis))] = int(values.number(repeats))
        return x.repeat(*times)
    return x.repeat(*values.ints(repeats)) if x.ndim else x


@operator("Concat", raw=True)
def concat(n: Call, *xs: Any) -> Any:
    """Tensors one after the other along a dim."""
    if all(isinstance(x, np.ndarray) and x.dtype == object for x in xs):
        return np.concatenate(xs, axis=n.get("axis", 1))
    return flambeau.cat([values.tensor(x) for x in xs], dim=n.get("axis", 1))


@operator("Split")
def split(n: Call, x: Any, sizes: Any = None) -> Any:
    """Parts of given sizes, or as many as there are outputs (the last may be smaller)."""
    axis = n.get("axis", 0)
    parts = n.ints("split", sizes)
    if parts is None:
        count = n.get("num_outputs", len(n.outputs))
        each = -(-x.shape[axis] // count)
        parts = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return tuple(x.split(parts, dim=axis))


@operator("Slice", raw=True)
def slice_(n: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    """From start to end by steps, which may go backwards."""
    first, last = n.ints("starts", starts) or [], n.ints("ends", ends) or []
    where = n.ints("axes", axes)
    by = n.ints("steps", steps) or [1] * len(first)
    index: list[Any] = [slice(None)] * len(x.shape)
    turned = []
    for axis, a, b, s in zip(where if where is not None else range(len(first)), first, last, by, strict=True):
        axis = axis % len(x.shape)
        count = x.shape[axis]
        a, b, s = slice(a, None if s < 0 and b < -count else b, s).indices(count)
        if s < 0 and not isinstance(x, np.ndarray):
            many = len(range(a, b, s))  # the same elements forwards, then turned round
            a, b, s = (a + (many - 1) * s, a + 1, -s) if many else (0, 0, 1)
            turned.append(axis)
        index[axis] = slice(a, None if b < 0 else b, s)
    if isinstance(x, np.ndarray):
        return x[tuple(index)]

    def change(t: Any) -> Any:
        t = t[tuple(index)]
        return t.flip(turned) if turned else t

    return through(change, x)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@operator("Pad")
def pad(n: Call, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """More elements before and after; negative counts take some away."""
    counts = n.ints("pads" if n.version > 1 else "paddings", pads) or []
    where = values.ints(axes) if axes is not None else list(range(x.ndim))
    half = len(where)
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(where):
        before[axis], after[axis] = counts[i], counts[i + half]
    mode = n.get("mode", "constant")
    if mode == "constant":
        fill = values.number(value) if value is not None else n.get("value", 0.0)
        flat = [v for pair in zip(before[::-1], after[::-1], strict=True) for v in pair]
        return functional.pad(x, flat, value=fill if x.is_floating_point() else bool(fill) if x.dtype is flambeau.bool else int(fill))
    for axis in range(x.ndim):  # dims that no function of PyTorch's pads are read by indices
        a, b = before[axis], after[axis]
        if a or b:
            places = np.arange(-a, x.shape[axis] + b)
            count = x.shape[axis]
            if mode == "edge":
                places = places.clip(0, count - 1)
            elif mode == "wrap":
                places = places % count
            else:
                period = max(2 * (count - 1), 1)
                places = np.abs((places + count - 1) % period - (count - 1)) if count > 1 else places * 0
            x = x.index_select(axis, values.own(places))
    return x


@operator("DepthToSpace")
def depth_to_space(n: Call, x: Any) -> Any:
    """Blocks of channels become blocks of pixels."""
    b, (many, c, h, w) = n.get("blocksize"), x.shape
    if n.get("mode", "DCR") == "DCR":
        x = x.reshape(many, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(many, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(many, c // (b * b), h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(n: Call, x: Any) -> Any:
    """Blocks of pixels become channels."""
    b, (many, c, h, w) = n.get("blocksize"), x.shape
    if n.get("mode", "DCR") == "CRD":
        return x.reshape(many, c, h // b, b, w // b, b).permute(0, 1, 3, 5, 2, 4).reshape(many, c * b * b, h // b, w // b)
    return x.reshape(many, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(many, c * b * b, h // b, w // b)


@operator("Trilu")
def trilu(n: Call, x: Any, k: Any = None) -> Any:
    """The triangle above or below a diagonal."""
    diagonal = int(values.number(k)) if k is not None else 0
    return flambeau.triu(x, diagonal) if n.get("upper", 1) else flambeau.tril(x, diagonal)


@operator("ConstantOfShape", raw=True)
def constant_of_shape(n: Call, sizes: Any) -> Any:
    """One number everywhere."""
    value = n.get("value")
    count = values.ints(sizes)
    if value is None:
        return flambeau.zeros(count)
    return through(lambda t: t.reshape(()).expand(count).clone(), value)


@operator("Range")
def range_(n: Call, start: Any, limit: Any, delta: Any) -> Any:
    """Numbers from start to before limit."""
    first, last, step = [values.number(v) for v in (start, limit, delta)]
    count = max(math.ceil((last - first) / step), 0)
    if start.is_floating_point():
        return start + flambeau.arange(count, dtype=start.dtype) * delta
    return flambeau.arange(first, first + count * step, step, dtype=start.dtype) if count else flambeau.zeros(0, dtype=start.dtype)


@operator("EyeLike")
def eye_like(n: Call, x: Any) -> Any:
    """Ones on a diagonal."""
    kind = n.dtype("dtype") or x.dtype
    k = n.get("k", 0)
    rows, columns = x.shape
    on = flambeau.arange(rows).unsqueeze(1) + k == flambeau.arange(columns)
    return on.to(kind)


@operator("ReverseSequence")
def reverse_sequence(n: Call, x: Any, lengths: Any) -> Any:
    """Each sequence of a batch backwards, as far as it is long."""
    time, batch = n.get("time_axis", 0), n.get("batch_axis", 1)
    steps = flambeau.arange(x.shape[time])
    places = flambeau.where(steps < lengths.unsqueeze(1), lengths.unsqueeze(1) - 1 - steps, steps)  # [batch, time]
    places = places if batch < time else places.t()
    index = places.reshape(*[x.shape[d] if d in (time, batch) else 1 for d in range(x.ndim)]).expand(x.shape)
    return x.gather(time, index)


@operator("CenterCropPad")
def center_crop_pad(n: Call, x: Any, sizes: Any) -> Any:
    """The middle of x, with zeros around it where it is too small."""
    axes = n.get("axes", list(range(x.ndim)))
    for axis, wanted in zip([a % x.ndim for a in axes], values.ints(sizes), strict=True):
        have = x.shape[axis]
        if have > wanted:
            x = x.narrow(axis, (have - wanted) // 2, wanted)
        elif have < wanted:
            first = (wanted - have) // 2
            flat = [0] * (2 * (x.ndim - 1 - axis)) + [first, wanted - have - first]
            x = functional.pad(x, flat)
    return x


@operator("Col2Im")
def col2im(n: Call, x: Any, image: Any, block: Any) -> Any:
    """Blocks added into an image, in any number of dims."""
    size, kernel = values.ints(image), values.ints(block)
    rank = len(size)
    dilation, stride = n.get("dilations", [1] * rank), n.get("strides", [1] * rank)
    pads = n.get("pads", [0] * 2 * rank)
    padded = [s + pads[i] + pads[i + rank] for i, s in enumerate(size)]
    counts = [(p - d * (k - 1) - 1) // s + 1 for p, d, k, s in zip(padded, dilation, kernel, stride, strict=True)]
    index: Any = 0
    for d in range(rank):
        at = np.arange(kernel[d])[:, None] * dilation[d] + np.arange(counts[d]) * stride[d]  # [kernel, count]
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = kernel[d], counts[d]
        index = index * padded[d] + at.reshape(shape)
    many, channels = x.shape[0], x.shape[1] // math.prod(kernel)
    flat = x.reshape(many, channels, -1)
    places = values.own(np.ascontiguousarray(np.broadcast_to(index, [*kernel, *counts])).reshape(-1))
    made = flambeau.zeros(many, channels, math.prod(padded), dtype=x.dtype).index_add(2, places, flat)
    made = made.reshape(many, channels, *padded)
    for d in range(rank):
        made = made.narrow(2 + d, pads[d], size[d])
    return made
