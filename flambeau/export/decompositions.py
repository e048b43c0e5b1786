"""What operators that are not core are made of: PyTorch's default table of decompositions, as far as exported programs need it.

Each entry has the operator's parameters, and calls operators of aten; NotImplemented leaves a call as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau
from flambeau.export.shapes import layout_of
from flambeau.symbols import Sym, same

aten: Final[Any] = flambeau.ops.aten


def _shape(x: Any) -> list[Any]:
    return list(layout_of(x).shape)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None or layout_of(x).dtype is dtype else aten._to_copy.default(x, dtype=dtype)


def _scalar(value: Any, dtype: Any) -> Any:
    return aten.full.default([], value, dtype=dtype)


def _permuted(x: Any, first: int, second: int) -> Any:
    dims = list(range(len(_shape(x))))
    dims[first], dims[second] = dims[second], dims[first]
    return aten.permute.default(x, dims) if dims != list(range(len(dims))) else aten.alias.default(x)


def _dim(x: Any, dim: int) -> int:
    return dim % max(len(_shape(x)), 1)


# -- shapes -------------------------------------------------------------------------------------------------------------
def reshape(x: Any, shape: Sequence[Any]) -> Any:
    """aten.reshape: a view, of a copy where the layout allows none."""
    if not layout_of(x).is_contiguous:
        x = aten.clone.default(x, memory_format=flambeau.contiguous_format)
    return aten.view.default(x, list(shape))


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """aten.flatten."""
    shape = _shape(x)
    if not shape:
        return reshape(x, [1])
    first, last = _dim(x, start_dim), _dim(x, end_dim)
    return aten.alias.default(x) if first == last else reshape(x, [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]])


def unflatten(x: Any, dim: int, sizes: Sequence[Any]) -> Any:
    """aten.unflatten."""
    shape, dim = _shape(x), _dim(x, dim)
    known = math.prod([s for s in sizes if isinstance(s, Sym) or s != -1])
    return reshape(x, [*shape[:dim], *[s if isinstance(s, Sym) or s != -1 else shape[dim] // known for s in sizes], *shape[dim + 1 :]])


def expand_as(x: Any, other: Any) -> Any:
    """aten.expand_as."""
    return aten.expand.default(x, _shape(other))


def unbind(x: Any, dim: int = 0) -> Any:
    """aten.unbind."""
    return tuple([aten.select.int(x, dim, i) for i in range(int(_shape(x)[dim]))])


def split(x: Any, split_size: int, dim: int = 0) -> Any:
    """aten.split, aten.chunk's pieces: one size, and the rest."""
    n = int(_shape(x)[dim])
    sizes = [min(split_size, n - at) for at in range(0, max(n, 1), split_size)]
    return aten.split_with_sizes.default(x, sizes, dim)


def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    """aten.chunk."""
    return split(x, max(-(-int(_shape(x)[dim]) // chunks), 1), dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """aten.stack."""
    return aten.cat.default([aten.unsqueeze.default(t, dim) for t in tensors], dim % (len(_shape(tensors[0])) + 1))


def narrow(x: Any, dim: int, start: Any, length: Any) -> Any:
    """aten.narrow."""
    return aten.slice.Tensor(x, dim, start, start + length)


def movedim(x: Any, source: Any, destination: Any) -> Any:
    """aten.movedim."""
    n = len(_shape(x))
    sources, goals = ([d % n for d in (v if isinstance(v, (list, tuple)) else [v])] for v in (source, destination))
    order = [-1] * n
    for s, d in zip(sources, goals, strict=True):
        order[d] = s
    rest = iter([d for d in range(n) if d not in sources])
    return aten.permute.default(x, [next(rest) if d < 0 else d for d in order])


def tile(x: Any, dims: Sequence[Any]) -> Any:
    """aten.tile."""
    return aten.repeat.default(x, [*[1] * (len(_shape(x)) - len(dims)), *dims])


def squeeze(x: Any) -> Any:
    """aten.squeeze of all dims of size 1."""
    return aten.squeeze.dims(x, [d for d, s in enumerate(_shape(x)) if not isinstance(s, Sym) and s == 1])


def contiguous(x: Any, memory_format: Any = None) -> Any:
    """aten.contiguous."""
    return aten.clone.default(x, memory_format=memory_format or flambeau.contiguous_format)


def to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """aten.to in all its overloads."""
    named = {k: v for k, v in kwargs.items() if k in ("dtype", "memory_format") and v is not None}
    for a in args:
        if isinstance(a, flambeau.dtype):
            named["dtype"] = a
        elif isinstance(a, flambeau.Tensor):
            named["dtype"] = layout_of(a).dtype
    flags = [a for a in args if isinstance(a, bool)]
    if len(named) == 1 and named.get("dtype") is layout_of(x).dtype and not (kwargs.get("copy") or (len(flags) > 1 and flags[1])):
        return aten.alias.default(x)
    return aten._to_copy.default(x, **named)


# -- creation -------------------------------------------------------------------------------------------------------------
def _filled(value: Any) -> Callable[..., Any]:
    return lambda size, **named: aten.full.default(list(size), value, **{"dtype": flambeau.get_default_dtype(), **named})


def _filled_like(value: Any) -> Callable[..., Any]:
    return lambda x, **named: aten.full_like.default(x, value, **{k: v for k, v in named.items() if k != "memory_format"})


def _new(value: Any) -> Callable[..., Any]:
    def made(x: Any, size: Any, *given: Any, **named: Any) -> Any:
        told = {k: v for k, v in named.items() if v is not None}
        return aten.full.default(list(size), given[0] if value is None else value, **{"dtype": layout_of(x).dtype, **told})

    return made


def arange(*bounds: Any, **named: Any) -> Any:
    """aten.arange with a start and a step."""
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return aten.arange.start_step(start, end, 1, **named)


def _triangle(compare: str) -> Callable[..., Any]:
    def cut(x: Any, diagonal: int = 0) -> Any:
        rows, columns = _shape(x)[-2:]
        row = aten.unsqueeze.default(aten.arange.start_step(0, rows, 1), -1)
        gap = aten.sub.Tensor(aten.unsqueeze.default(aten.arange.start_step(0, columns, 1), 0), row)
        return aten.where.self(getattr(aten, compare).Scalar(gap, diagonal), x, _scalar(0, layout_of(x).dtype))

    return cut


def one_hot(x: Any, num_classes: int = -1) -> Any:
    """aten.one_hot."""
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(x, -1), aten.arange.start_step(0, num_classes, 1)), dtype=flambeau.int64)


# -- element by element ------------------------------------------------------------------------------------------------------
def rsub(x: Any, other: Any, alpha: Any = 1) -> Any:
    """aten.rsub: other - alpha * x."""
    if isinstance(other, flambeau.Tensor):
        return aten.sub.Tensor(other, x, alpha=alpha)
    return aten.add.Scalar(aten.neg.default(x) if alpha == 1 else aten.mul.Scalar(x, -alpha), other)


def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """aten.softplus."""
    scaled = aten.mul.Scalar(x, beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), x, aten.div.Scalar(aten.log1p.default(aten.exp.default(scaled)), beta))


def hardsigmoid(x: Any) -> Any:
    """aten.hardsigmoid."""
    return aten.div.Scalar(aten.clamp.default(aten.add.Scalar(x, 3), 0, 6), 6)


def hardswish(x: Any) -> Any:
    """aten.hardswish."""
    return aten.div.Scalar(aten.mul.Tensor(x, aten.clamp.default(aten.add.Scalar(x, 3), 0, 6)), 6)


def log_sigmoid(x: Any) -> Any:
    """aten.log_sigmoid."""
    part = aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(x))))
    return aten.sub.Tensor(aten.clamp.default(x, None, 0), part)


def prelu(x: Any, weight: Any) -> Any:
    """aten.prelu."""
    if len(_shape(weight)) and len(_shape(x)) > 1:
        weight = aten.view.default(weight, [1, _shape(weight)[0], *[1] * (len(_shape(x)) - 2)])
    return aten.where.self(aten.gt.Scalar(x, 0), x, aten.mul.Tensor(weight, x))


def glu(x: Any, dim: int = -1) -> Any:
    """aten.glu."""
    half = _shape(x)[dim] // 2
    return aten.mul.Tensor(aten.slice.Tensor(x, dim, 0, half), aten.sigmoid.default(aten.slice.Tensor(x, dim, half, 2 * half)))


def where(condition: Any, x: Any, y: Any) -> Any:
    """aten.where with numbers."""

    def tensor(v: Any, other: Any) -> Any:
        if isinstance(v, flambeau.Tensor):
            return v
        return _scalar(v, layout_of(other).dtype if isinstance(other, flambeau.Tensor) else None)

    kind = flambeau.result_type(x, y) if isinstance(x, flambeau.Tensor) or isinstance(y, flambeau.Tensor) else None
    return aten.where.self(condition, _cast(tensor(x, y), kind), _cast(tensor(y, x), kind))


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """aten.masked_fill."""
    kind = layout_of(x).dtype
    return aten.where.self(mask, _cast(value, kind) if isinstance(value, flambeau.Tensor) else _scalar(value, kind), x)


def _bits(name: str) -> Callable[..., Any]:
    return lambda x, other: getattr(getattr(aten, f"bitwise_{name}"), "Tensor" if isinstance(other, flambeau.Tensor) else "Scalar")(x, other)


def _divided(mode: str | None) -> Callable[..., Any]:
    def call(x: Any, other: Any) -> Any:
        if isinstance(other, flambeau.Tensor):
            return aten.div.Tensor(x, other) if mode is None else aten.div.Tensor_mode(x, other, rounding_mode=mode)
        return aten.div.Scalar(x, other) if mode is None else aten.div.Scalar_mode(x, other, rounding_mode=mode)

    return call


def _clamped(low: bool) -> Callable[..., Any]:
    def call(x: Any, bound: Any) -> Any:
        bounds = (bound, None) if low else (None, bound)
        return (aten.clamp.Tensor if isinstance(bound, flambeau.Tensor) else aten.clamp.default)(x, *bounds)

    return call


def lerp(x: Any, end: Any, weight: Any) -> Any:
    """aten.lerp: from the nearer end, as PyTorch."""
    if isinstance(weight, flambeau.Tensor):
        return NotImplemented
    gap = aten.sub.Tensor(end, x)
    if abs(weight) < 0.5:
        return aten.add.Tensor(x, aten.mul.Scalar(gap, weight))
    return aten.sub.Tensor(end, aten.mul.Scalar(gap, 1 - weight))


# -- reductions -----------------------------------------------------------------------------------------------------------
def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """aten.softmax."""
    return aten._softmax.default(_cast(x, dtype), dim, False)


def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """aten.log_softmax."""
    return aten._log_softmax.default(_cast(x, dtype), dim, False)


def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    """aten.logsumexp."""
    dims = [dim] if isinstance(dim, int) else list(dim)
    top = aten.amax.default(x, dims, True)
    top = masked_fill(top, aten.eq.Scalar(aten.abs.default(top), math.inf), 0)
    total = aten.log.default(aten.sum.dim_IntList(aten.exp.default(aten.sub.Tensor(x, top)), dims, True))
    total = aten.add.Tensor(total, top)
    return total if keepdim else aten.squeeze.dims(total, dims)


def _all(x: Any, *args: Any) -> Any:
    negated = aten.logical_not.default(x)
    found = aten.any.default(negated) if not args else (aten.any.dim if isinstance(args[0], int) else aten.any.dims)(negated, *args)
    return aten.logical_not.default(found)


def _extreme(reduce: str, pairs: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any) -> Any:
        if not args:
            return getattr(aten, reduce).default(x, [])
        return getattr(aten, pairs).default(x, args[0]) if isinstance(args[0], flambeau.Tensor) else NotImplemented

    return call


def std(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False, *, unbiased: Any = None) -> Any:
    """aten.std.correction; the other overloads stay."""
    if isinstance(dim, bool) or isinstance(correction, bool) or unbiased is not None:
        return NotImplemented
    return aten.sqrt.default(aten.var.correction(x, dim, correction=correction, keepdim=keepdim))


def var_mean(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """aten.var_mean.correction."""
    if isinstance(dim, bool) or isinstance(correction, bool):
        return NotImplemented
    dims = list(range(len(_shape(x)))) if dim is None else dim
    return aten.var.correction(x, dim, correction=correction, keepdim=keepdim), aten.mean.dim(x, dims, keepdim)


def linalg_vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """aten.linalg_vector_norm."""
    x = _cast(x, dtype)
    dims = list(range(len(_shape(x)))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if layout_of(x).dtype.is_complex or ord == 0:
        return NotImplemented
    if abs(ord) == math.inf:
        return (aten.amax if ord > 0 else aten.amin).default(aten.abs.default(x), dims, keepdim)
    if ord == 2:
        return aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(x, x), dims, keepdim))
    if ord == 1:
        return aten.sum.dim_IntList(aten.abs.default(x), dims, keepdim)
    return aten.pow.Tensor_Scalar(aten.sum.dim_IntList(aten.pow.Tensor_Scalar(aten.abs.default(x), ord), dims, keepdim), 1 / ord)


def norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """aten.norm."""
    return linalg_vector_norm(x, 2 if p is None else p, None if dim in ([], ()) else dim, keepdim, dtype=dtype)


# -- products ---------------------------------------------------------------------------------------------------------------
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """aten.linear: rows in one matrix, times the transposed weight."""
    shape = _shape(x)
    rows = x if len(shape) == 2 else reshape(x, [math.prod(shape[:-1]), shape[-1]])
    turned = aten.permute.default(weight, [1, 0])
    made = aten.mm.default(rows, turned) if bias is None else aten.addmm.default(bias, rows, turned)
    return made if len(shape) == 2 else aten.view.default(made, [*shape[:-1], _shape(weight)[0]])


def matmul(a: Any, b: Any) -> Any:
    """aten.matmul."""
    left, right = _shape(a), _shape(b)
    if len(left) == 1 or len(right) == 1:
        made = matmul(aten.unsqueeze.default(a, 0) if len(left) == 1 else a, aten.unsqueeze.default(b, 1) if len(right) == 1 else b)
        return aten.squeeze.dims(made, [-2] * (len(left) == 1) + [-1] * (len(right) == 1))
    if len(left) == len(right) == 2:
        return aten.mm.default(a, b)
    if len(right) == 2:
        made = aten.mm.default(reshape(a, [math.prod(left[:-1]), left[-1]]), b)
        return aten.view.default(made, [*left[:-1], right[1]])
    outer = list(flambeau.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2])))
    count = math.prod(outer)
    a = reshape(aten.expand.default(a, [*outer, *left[-2:]]), [count, *left[-2:]])
    b = reshape(aten.expand.default(b, [*outer, *right[-2:]]), [count, *right[-2:]])
    return aten.view.default(aten.bmm.default(a, b), [*outer, left[-2], right[-1]])


def baddbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """aten.baddbmm."""
    made = aten.bmm.default(a, b)
    made = made if alpha == 1 else aten.mul.Scalar(made, alpha)
    return made if beta == 0 else aten.add.Tensor(made, x if beta == 1 else aten.mul.Scalar(x, beta))


def einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    """aten.einsum of two tensors, as one product of matrices. Others stay: of more tensors, with an ellipsis, or with an index twice in one tensor."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(tensors) != 2 or "." in equation or not arrow or any(len(set(n)) != len(n) for n in names):
        return NotImplemented
    sizes: dict[str, Any] = {}
    for letters, t in zip(names, tensors, strict=True):
        for letter, size in zip(letters, _shape(t), strict=True):
            if not same(sizes.setdefault(letter, size), size):
                return NotImplemented
    first, second = names
    alone = [[c for c in mine if c not in other and c not in out] for mine, other in ((first, second), (second, first))]
    a, b = (aten.sum.dim_IntList(t, [n.index(c) for c in gone]) if gone else t for t, n, gone in zip(tensors, names, alone, strict=True))
    first, second = ("".join([c for c in n if c not in gone]) for n, gone in zip(names, alone, strict=True))
    both = [c for c in first if c in second and c in out]
    summed = [c for c in first if c in second and c not in out]
    rows, columns = [c for c in first if c not in second], [c for c in second if c not in first]

    def matrices(t: Any, letters: str, *groups: list[str]) -> Any:
        turned = aten.permute.default(t, [letters.index(c) for g in groups for c in g])
        return reshape(turned, [math.prod([sizes[c] for c in g]) for g in groups])

    made = aten.bmm.default(matrices(a, first, both, rows, summed), matrices(b, second, both, summed, columns))
    order = [*both, *rows, *columns]
    return aten.permute.default(aten.view.default(made, [sizes[c] for c in order]), [order.index(c) for c in out])


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """softmax(query @ key' * scale + mask) @ value. Dropout and groups of queries stay."""
    if dropout_p or enable_gqa:
        return NotImplemented
    kind, width = layout_of(query).dtype, _shape(query)[-1]
    scores = matmul(query, _permuted(key, -2, -1))
    scores = aten.mul.Scalar(scores, 1 / math.sqrt(int(width)) if scale is None else scale)
    if is_causal:
        steps, others = _shape(query)[-2], _shape(key)[-2]
        gap = aten.sub.Tensor(aten.unsqueeze.default(aten.arange.start_step(0, others, 1), 0), aten.unsqueeze.default(aten.arange.start_step(0, steps, 1), 1))
        attn_mask = aten.le.Scalar(gap, 0)
    if attn_mask is not None and layout_of(attn_mask).dtype is flambeau.bool:
        scores = aten.where.self(attn_mask, scores, _scalar(-math.inf, kind))
    elif attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    weights = aten._softmax.default(scores, -1, False)
    if attn_mask is not None and not is_causal and layout_of(attn_mask).dtype is flambeau.bool:  # rows that see nothing give zeros
        weights = aten.where.self(aten.any.dims(attn_mask, [-1], True), weights, _scalar(0.0, kind))
    return matmul(weights, value)


# -- networks ---------------------------------------------------------------------------------------------------------------
def _convolution(dims: int, transposed: bool) -> Callable[..., Any]:
    def several(v: Any) -> list[Any]:
        return list(v) if isinstance(v, (list, tuple)) and len(v) == dims else [v[0] if isinstance(v, (list, tuple)) else v] * dims

    def call(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, *rest: Any, **named: Any) -> Any:
        if len(_shape(x)) != dims + 2:
            return NotImplemented
        keys = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
        given = dict(zip(keys, rest, strict=False)) | named
        dilation = several(given.get("dilation", 1))
        if isinstance(padding, str):
            spread = [d * (int(k) - 1) for d, k in zip(dilation, _shape(weight)[2:], strict=True)]
            if padding == "same" and any(s % 2 for s in spread):
                return NotImplemented
            padding = [s // 2 for s in spread] if padding == "same" else [0] * dims
        return aten.convolution.default(x, weight, bias, several(stride), several(padding), dilation, transposed, several(given.get("output_padding", 0)),
                                        given.get("groups", 1))  # fmt: skip

    return call


def batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float, cudnn_enabled: bool = False
) -> Any:
    """aten.batch_norm: with the running statistics, or with the batch's, of which the running ones become new values."""
    if not training:
        return aten._native_batch_norm_legit_no_training.default(x, weight, bias, running_mean, running_var, momentum, eps)[0]
    if running_mean is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)[0]
    made = aten._native_batch_norm_legit_functional.default(x, weight, bias, running_mean, running_var, True, momentum, eps)
    aten.copy_.default(running_mean, made[3])
    aten.copy_.default(running_var, made[4])
    return made[0]


def layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True) -> Any:
    """aten.layer_norm."""
    return aten.native_layer_norm.default(x, list(normalized_shape), weight, bias, eps)[0]


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True) -> Any:
    """aten.group_norm."""
    n, c, *rest = _shape(x)
    x, weight, bias = (t if t is None or layout_of(t).is_contiguous else contiguous(t) for t in (x, weight, bias))  # PyTorch's kernel takes no strides
    return aten.native_group_norm.default(x, weight, bias, n, c, math.prod(rest), num_groups, eps)[0]


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """aten.rms_norm."""
    dims = [-1 - d for d in range(len(normalized_shape))]
    small = flambeau.finfo(layout_of(x).dtype).eps if eps is None else eps
    made = aten.mul.Tensor(x, aten.rsqrt.default(aten.add.Scalar(aten.mean.dim(aten.pow.Tensor_Scalar(x, 2), dims, True), small)))
    return made if weight is None else aten.mul.Tensor(made, weight)


def dropout(x: Any, p: float, train: bool) -> Any:
    """aten.dropout."""
    return aten.native_dropout.default(x, p, True)[0] if train and p else aten.alias.default(x)


def _max_pool(dims: int) -> Callable[..., Any]:
    return lambda x, *args: getattr(aten, f"max_pool{dims}d_with_indices").default(x, *args)[0] if len(_shape(x)) == dims + 2 else NotImplemented


def _adaptive(dims: int) -> Callable[..., Any]:
    def call(x: Any, size: Any) -> Any:
        if all(not isinstance(s, Sym) and s == 1 for s in size):
            return aten.mean.dim(x, [-1 - d for d in range(dims)][::-1], True)
        return getattr(aten, f"_adaptive_avg_pool{dims}d").default(x, size) if dims > 1 else NotImplemented

    return call


_PADDINGS: Final = {"reflect": "reflection", "replicate": "replication"}


def pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """aten.pad."""
    if mode == "constant":
        return aten.constant_pad_nd.default(x, list(pad), 0 if value is None else value)
    return NotImplemented if mode not in _PADDINGS else getattr(aten, f"{_PADDINGS[mode]}_pad{len(pad) // 2}d").default(x, list(pad))


# -- losses -------------------------------------------------------------------------------------------------------------------
def _reduced(x: Any, reduction: int) -> Any:
    return x if reduction == 0 else aten.mean.default(x) if reduction == 1 else aten.sum.dim_IntList(x, [])


def mse_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    """aten.mse_loss."""
    gap = aten.sub.Tensor(x, target)
    return _reduced(aten.mul.Tensor(gap, gap), reduction)


def l1_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    """aten.l1_loss."""
    return _reduced(aten.abs.default(aten.sub.Tensor(x, target)), reduction)


def nll_loss(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    """aten.nll_loss_nd of rows of classes. With factors of classes, and of pictures, it stays."""
    if weight is not None or len(_shape(x)) != 2:
        return NotImplemented
    kind = layout_of(x).dtype
    counts = aten.ne.Scalar(target, ignore_index)
    safe = aten.where.self(counts, target, _scalar(0, layout_of(target).dtype))
    found = aten.neg.default(aten.squeeze.dims(aten.gather.default(x, 1, aten.unsqueeze.default(safe, 1)), [1]))
    found = aten.where.self(counts, found, _scalar(0.0, kind))
    if reduction != 1:
        return _reduced(found, reduction)
    return aten.div.Tensor(aten.sum.dim_IntList(found, []), aten._to_copy.default(aten.sum.dim_IntList(counts, []), dtype=kind))


def cross_entropy_loss(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """aten.cross_entropy_loss of rows of classes. With factors, smoothing or probabilities it stays."""
    if label_smoothing or weight is not None or len(_shape(x)) != 2 or not _same(_shape(target), _shape(x)[:1]):
        return NotImplemented
    return nll_loss(aten._log_softmax.default(x, 1, False), target, None, reduction, ignore_index)


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    **{f.__name__: f for f in (
        reshape, flatten, expand_as, unbind, chunk, stack, narrow, movedim, tile, contiguous, to,
        one_hot, rsub, softplus, hardsigmoid, hardswish, log_sigmoid, prelu,
        glu, where, masked_fill, lerp, logsumexp, std, var_mean, linalg_vector_norm, norm, linear, matmul, baddbmm, einsum, scaled_dot_product_attention,
        batch_norm, layer_norm, group_norm, rms_norm, dropout, pad, mse_loss, l1_loss, cross_entropy_loss,
    )},
    "squeeze.default": squeeze, "split.Tensor": split, "softmax.int": softmax, "log_softmax.int": log_softmax, "unflatten.int": unflatten,
    "nll_loss_nd": nll_loss, "_unsafe_view": reshape, "transpose.int": _permuted,
    "t": lambda x: _permuted(x, 0, 1) if len(_shape(x)) == 2 else aten.alias.default(x),
    "numpy_T": lambda x: aten.permute.default(x, list(range(len(_shape(x))))[::-1]), "mT": lambda x: _permuted(x, -2, -1),
    "view_as": lambda x, other: reshape(x, _shape(other)), "type_as": lambda x, other: _cast(x, layout_of(other).dtype),
    "detach": aten.alias.default, "lift_fresh_copy": aten.clone.default, "lift_fresh": aten.alias.default, "broadcast_to": aten.expand.default,
    "zeros": _filled(0), "ones": _filled(1), "zeros_like": _filled_like(0), "ones_like": _filled_like(1), "new_zeros": _new(0), "new_ones": _new(1),
    "new_full": _new(None), "zero": _filled_like(0), "fill.Scalar": lambda x, value: aten.full_like.default(x, value),
    "arange.default": arange, "arange.start": arange, "tril": _triangle("le"), "triu": _triangle("ge"),
    "square": lambda x: aten.mul.Tensor(x, x), "silu": lambda x: aten.mul.Tensor(x, aten.sigmoid.default(x)),
    "relu6": lambda x: aten.hardtanh.default(x, 0, 6), "mish": lambda x: aten.mul.Tensor(x, aten.tanh.default(softplus(x))),
    "selu": lambda x: aten.elu.default(x, 1.6732632423543772, 1.0507009873554805),  # Klambauer et al. 2017
    "celu": lambda x, alpha=1.0: aten.elu.default(x, alpha, 1, 1 / alpha),
    "__and__": _bits("and"), "__or__": _bits("or"), "__xor__": _bits("xor"), "floor_divide": _divided("floor"), "true_divide": _divided(None),
    "clamp_min": _clamped(True), "clamp_max": _clamped(False), "threshold": lambda x, t, value: masked_fill(x, aten.le.Scalar(x, t), value),
    "addcmul": lambda x, a, b, value=1: aten.add.Tensor(x, aten.mul.Scalar(aten.mul.Tensor(a, b), value)),
    "addcdiv": lambda x, a, b, value=1: aten.add.Tensor(x, aten.mul.Scalar(aten.div.Tensor(a, b), value)),
    "sum.default": lambda x, dtype=None: aten.sum.dim_IntList(x, [], dtype=dtype), "all": _all,
    "max.default": _extreme("amax", "maximum"), "max.other": _extreme("amax", "maximum"), "min.default": _extreme("amin", "minimum"),
    "min.other": _extreme("amin", "minimum"), "argsort": lambda x, *args, **named: aten.sort.default(x, *args)[1] if not named else NotImplemented,
    "mv": matmul, "dot": lambda a, b: aten.sum.dim_IntList(aten.mul.Tensor(a, b), []),
    **{f"conv{d}d": _convolution(d, False) for d in (1, 2, 3)}, **{f"conv_transpose{d}d": _convolution(d, True) for d in (1, 2, 3)},
    "max_pool2d": _max_pool(2), "max_pool3d": _max_pool(3), **{f"adaptive_avg_pool{d}d": _adaptive(d) for d in (1, 2, 3)},
}  # fmt: skip
