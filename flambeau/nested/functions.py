"""What functions of torch make of nested tensors: a table by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.nested.padding import back, from_padded, packed, rows_of, to_padded
from flambeau.nested.ragged import RaggedSize
from flambeau.nested.tensor import NestedTensor, inner, jagged, like, strided
from flambeau.ops.dispatch import DisableTorchFunctionSubclass
from flambeau.ops.pointwise_names import POINTWISE, plain_name, writes
from flambeau.tensor import Tensor

_WHOLE: Final = {  # reductions, with what padding leaves them as they are
    "sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf, "max": -math.inf, "min": math.inf, "argmax": -math.inf, "argmin": math.inf,
    "any": 0, "all": 1, "logsumexp": -math.inf,
}  # fmt: skip
_BOTH: Final = frozenset(("detach", "requires_grad"))
_PLAIN: Final = frozenset("__get__ __set__ is_floating_point is_complex element_size register_hook retain_grad is_leaf data_ptr untyped_storage".split())


def call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A public function that was given nested tensors."""
    name = getattr(func, "__name__", "")
    if name in _PLAIN:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    plain = plain_name(name)
    t = next((a for a in _flat((*args, *kwargs.values())) if isinstance(a, NestedTensor)), None)
    handler = _TABLE.get(plain)
    if t is not None and t._ragged is None and plain not in _BOTH:
        return _strided(plain, func, args, kwargs)
    if handler is not None:
        return handler(func, *args, **kwargs)
    if plain in POINTWISE:
        return _pointwise(plain, func, args, kwargs)
    if plain in _WHOLE:
        return _reduce(plain, func, *args, **kwargs)
    raise NotImplementedError(f"{name}(): not supported for nested tensors; use it on values(), unbind() or to_padded_tensor(padding)")


def _flat(xs: Any) -> list[Any]:
    return [b for a in xs for b in (a if isinstance(a, (list, tuple)) else (a,))]


def _shapes_do_not_fit(name: str, *ts: Any) -> RuntimeError:
    shapes = " and ".join([f"({', '.join(map(str, t.shape))})" for t in ts])
    return RuntimeError(f"cannot call binary pointwise function {name} with inputs of shapes {shapes}: ragged sizes are equal where the offsets are one tensor")


def _values_beside(t: NestedTensor, other: Any, name: str) -> Any:
    """An operand, broadcast to the values of `t`."""
    if isinstance(other, NestedTensor):
        if other._ragged is not t._ragged or other._ragged_idx != t._ragged_idx:
            raise _shapes_do_not_fit(name, t, other)
        return inner(other)
    if not isinstance(other, Tensor) or other.ndim == 0:
        return other
    if other.ndim > t.ndim:
        raise _shapes_do_not_fit(name, t, other)
    structure = t._jagged(name)
    wide = other.reshape((1,) * (t.ndim - other.ndim) + tuple(other.shape))
    if wide.shape[t._ragged_idx] != 1 or wide.shape[0] not in (1, structure.rows):
        raise _shapes_do_not_fit(name, t, other)
    if wide.shape[0] == 1:
        return wide.squeeze(0)
    along = t._ragged_idx - 1
    return wide.squeeze(t._ragged_idx).index_select(0, structure.row_of()).movedim(0, along)


def _pointwise(name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    t = next(a for a in _flat((*args, *kwargs.values())) if isinstance(a, NestedTensor))
    plain = [_values_beside(t, a, name) for a in args]
    named = {k: _values_beside(t, a, name) for k, a in kwargs.items()}
    if named.get("layout") is torch.jagged:
        del named["layout"]
    result = func(*plain, **named)
    if isinstance(args[0] if args else None, NestedTensor) and result is plain[0]:
        return args[0]
    return args[0] if writes(getattr(func, "__name__", "")) else like(t, result)


def _inner(a: Any) -> Any:
    return inner(a) if isinstance(a, NestedTensor) else a


# -- strided layout -------------------------------------------------------------------------------------------------------
def _strided(name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of nested tensors of layout strided: of all elements at once, or of one component after another."""
    nested = [a for a in (*args, *kwargs.values()) if isinstance(a, NestedTensor)]
    t = nested[0]
    if any(n._ragged is not None or (n._sizes != t._sizes and name in POINTWISE) for n in nested):
        raise RuntimeError(f"{name}(): the nested tensors must have one layout, and components of the same sizes")
    others = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and not isinstance(a, NestedTensor) and a.ndim]
    if name in POINTWISE and not others:
        result = func(*[_inner(a) for a in args], **{k: _inner(a) for k, a in kwargs.items()})
        return args[0] if writes(getattr(func, "__name__", "")) else like(t, result)
    if name == "getitem" and isinstance(args[1], int):
        return t.unbind()[args[1]]
    if name in ("sum", "mean") and len(args) == 1 and not kwargs:
        return func(inner(t))
    if name in _TRANSPOSING:
        args = (args[0], *[_component_dim(name, d, t.ndim) for d in args[1:]])
    elif name in _BY_DIM or name in ("sum", "mean"):
        args = (args[0], *[_component_dim(name, d, t.ndim) if isinstance(d, int) and not isinstance(d, bool) else d for d in args[1:]])
        if "dim" in kwargs:
            kwargs = {**kwargs, "dim": _component_dim(name, kwargs["dim"], t.ndim)}
    elif name not in _BY_COMPONENT:
        raise NotImplementedError(f"{name}(): not supported for nested tensors of layout strided; use it on the tensors of unbind(), or layout=torch.jagged")
    parts = {id(n): n.unbind() for n in nested}
    made = [
        func(*[parts[id(a)][i] if isinstance(a, NestedTensor) else a for a in args],
             **{k: parts[id(a)][i] if isinstance(a, NestedTensor) else a for k, a in kwargs.items()})
        for i in range(len(t))
    ]  # fmt: skip
    return strided(made)


_BY_DIM: Final = frozenset("softmax log_softmax".split())
_TRANSPOSING: Final = frozenset(("transpose",))
_BY_COMPONENT: Final = frozenset("linear matmul bmm layer_norm rms_norm embedding scaled_dot_product_attention add mul".split())


def _component_dim(name: str, d: int, ndim: int) -> int:
    if d % ndim == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0: components are apart")
    return d % ndim - 1


# -- layout jagged: dims --------------------------------------------------------------------------------------------------
def _dim(t: NestedTensor, d: int, name: str) -> int:
    """A dim of the batch, from 0; IndexError if it is none."""
    if not -t.ndim <= d < t.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-t.ndim}, {t.ndim - 1}], but got {d})")
    return d % t.ndim


def _inside(t: NestedTensor, d: int, name: str, ragged_too: bool = False) -> int:
    """A dim of the batch as one of the values; RuntimeError for the batch's own, and for the ragged one unless `ragged_too`."""
    d = _dim(t, d, name)
    if d == 0 or (d == t._ragged_idx and not ragged_too):
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim={d}" + (": the rows are apart" if d == 0 else ", which is ragged"))
    return d - 1


def _reduce(name: str, func: Callable[..., Any], input: NestedTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    t = packed(input)
    structure = t._jagged(name)
    values = inner(t)
    if dim is None or dim == ():
        return func(values, **kwargs)
    dims = sorted(_dim(t, d, name) for d in (dim if isinstance(dim, (tuple, list)) else (dim,)))
    at = t._ragged_idx
    if 0 in dims:
        if at not in dims:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0: the rows are apart")
        result = func(values, tuple([d - 1 for d in dims if d]), keepdim, **kwargs)
        return result.unsqueeze(0) if keepdim else result
    if at not in dims:
        within = [d - 1 for d in dims]
        result = func(values, tuple(within) if isinstance(dim, (tuple, list)) else within[0], keepdim, **kwargs)
        moved = at if keepdim else at - sum(d < at for d in dims)
        if isinstance(result, Tensor):
            return jagged(result, structure, moved)
        return type(result)([jagged(r, structure, moved) for r in result])
    neutral = _WHOLE[name]
    if not values.dtype.is_floating_point and math.isinf(neutral):
        neutral = values.dtype.category and (torch.iinfo(values.dtype).min if neutral < 0 else torch.iinfo(values.dtype).max)
    padded = rows_of(values.movedim(at - 1, 0), structure, neutral).movedim(1, at)
    where = tuple(dims) if isinstance(dim, (tuple, list)) else dims[0]
    if name != "mean":
        return func(padded, where, keepdim, **kwargs)
    total = padded.sum(where, keepdim, **kwargs)
    count = torch.tensor(structure.sizes(), dtype=total.dtype)
    others = math.prod([values.shape[d - 1] for d in dims if d != at])
    return total / (count * others).reshape(-1, *[1] * (total.ndim - 1))


def _softmax(func: Callable[..., Any], input: NestedTensor, dim: int, *args: Any, **kwargs: Any) -> Any:
    name = getattr(func, "__name__", "softmax")
    if _dim(input, dim, name) != input._ragged_idx:
        return like(input, func(inner(input), _inside(input, dim, name), *args, **kwargs))
    t = packed(input)
    structure = t._jagged(name)
    filled = rows_of(inner(t).movedim(t._ragged_idx - 1, 0), structure, -math.inf)
    rows = back(func(filled, 1, *args, **kwargs), structure)
    return jagged(rows.movedim(0, t._ragged_idx - 1), structure, t._ragged_idx)


def _with_last_dims(count: int, name: str, t: NestedTensor) -> None:
    if t.ndim - count <= t._ragged_idx:
        raise RuntimeError(f"{name}(): the last {count} dims of the nested tensor of shape {tuple(t.shape)} must not be ragged")


def _linear(func: Callable[..., Any], input: Any, weight: Tensor, bias: Any = None) -> Any:
    _with_last_dims(1, "linear", input)
    return like(input, func(inner(input), weight, bias))


def _norm(func: Callable[..., Any], input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    _with_last_dims(len(normalized_shape), getattr(func, "__name__", "layer_norm"), input)
    return like(input, func(inner(input), normalized_shape, *args, **kwargs))


def _matmul(func: Callable[..., Any], a: Any, b: Any) -> Any:
    if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor) and a._ragged_idx < a.ndim - 1:
        if b.ndim <= 2:
            return like(a, func(inner(a), b))
        return from_padded(func(to_padded(a, 0.0), b), packed(a)._jagged("matmul"), a._ragged_idx)
    if isinstance(a, NestedTensor) and isinstance(b, NestedTensor):
        if a._ragged is not b._ragged:
            raise _shapes_do_not_fit("matmul", a, b)
        product = func(to_padded(a, 0.0), to_padded(b, 0.0))
        inner_dims = a._ragged_idx == a.ndim - 1 and b._ragged_idx == b.ndim - 2
        return product if inner_dims else from_padded(product, packed(a)._jagged("matmul"), a._ragged_idx)
    raise NotImplementedError(f"matmul(): not supported for inputs of shapes {tuple(a.shape)} and {tuple(b.shape)}; use to_padded_tensor(0.0)")


def _attention(
    func: Callable[..., Any], query: NestedTensor, key: NestedTensor, value: NestedTensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention within each row: (rows, heads, j, features)."""
    if attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: attn_mask should not be set when nested tensors are given: a row attends to itself")
    if not all(isinstance(t, NestedTensor) for t in (query, key, value)) or key._ragged is not value._ragged:
        raise ValueError("scaled_dot_product_attention: query, key and value must all be nested, key and value with the same offsets")
    q, k, v = (to_padded(t, 0.0) for t in (query, key, value))
    structure = packed(query)._jagged("scaled_dot_product_attention")
    mask = packed(key)._jagged("scaled_dot_product_attention").mask(int(k.shape[-2]))[:, None, None, :]
    if is_causal:
        mask = mask & torch.ones(int(q.shape[-2]), int(k.shape[-2]), dtype=torch.bool).tril()
    made = func(q, k, v, attn_mask=mask, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa)
    return from_padded(made, structure, query._ragged_idx)


def _embedding(func: Callable[..., Any], input: NestedTensor, weight: Tensor, *args: Any, **kwargs: Any) -> Any:
    return jagged(func(inner(input), weight, *args, **kwargs), input._jagged("embedding"), input._ragged_idx)


# -- layout jagged: shapes ------------------------------------------------------------------------------------------------
def _transpose(func: Callable[..., Any], input: NestedTensor, dim0: int, dim1: int) -> Any:
    a, b = (_inside(input, d, "transpose", ragged_too=True) for d in (dim0, dim1))
    at = input._ragged_idx - 1
    moved = b if at == a else a if at == b else at
    return jagged(inner(input).transpose(a, b), input._jagged("transpose"), moved + 1)


def _permute(func: Callable[..., Any], input: NestedTensor, *dims: Any) -> Any:
    order = [_dim(input, d, "permute") for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)]
    if sorted(order) != list(range(input.ndim)) or order[0] != 0:
        raise RuntimeError(f"permute(): dims {order} of a nested tensor of {input.ndim} dims must be all of them, dim 0 first: the rows are apart")
    return jagged(inner(input).permute([d - 1 for d in order[1:]]), input._jagged("permute"), order.index(input._ragged_idx))


def _view(func: Callable[..., Any], input: NestedTensor, *shape: Any) -> Any:
    name = getattr(func, "__name__", "view")
    sizes = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    if sizes and isinstance(sizes[0], torch.dtype):
        return like(input, func(inner(input), *sizes))
    structure = input._jagged(name)
    at = input._ragged_idx
    fits = len(sizes) > at and sizes[0] in (-1, structure.rows) and (sizes[at] == structure.size or sizes[at] == -1)
    outer = tuple(input.shape)[1:at]
    if not fits or tuple(sizes[1:at]) != outer or any(isinstance(n, RaggedSize) for i, n in enumerate(sizes) if i != at):
        raise RuntimeError(
            f"{name}(): cannot view shape {tuple(input.shape)} as {tuple(sizes)}: the rows and the ragged dim must stay, as {structure.size} or -1"
        )
    return jagged(func(inner(input), (*outer, input.values().shape[at - 1], *sizes[at + 1 :])), structure, at)


def _flatten(func: Callable[..., Any], input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = _inside(input, start_dim, "flatten"), _inside(input, end_dim, "flatten")
    if first < input._ragged_idx:
        raise RuntimeError("flatten(): not supported for NestedTensor over the ragged dim")
    return like(input, inner(input).flatten(first, last))


def _unflatten(func: Callable[..., Any], input: NestedTensor, dim: int, sizes: Any) -> Any:
    at = _inside(input, dim, "unflatten")
    made = inner(input).unflatten(at, sizes)
    return jagged(made, input._jagged("unflatten"), input._ragged_idx + (len(sizes) - 1 if at < input._ragged_idx - 1 else 0))


def _unsqueeze(func: Callable[..., Any], input: NestedTensor, dim: int) -> Any:
    at = dim % (input.ndim + 1)
    if at == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0: the rows are apart")
    return jagged(inner(input).unsqueeze(at - 1), input._jagged("unsqueeze"), input._ragged_idx + (at <= input._ragged_idx))


def _squeeze(func: Callable[..., Any], input: NestedTensor, dim: Any = None) -> Any:
    if dim is None:
        raise RuntimeError("squeeze(): for NestedTensors, dim must be set")
    at = _inside(input, dim, "squeeze")
    if input.values().shape[at] != 1:
        return input
    return jagged(inner(input).squeeze(at), input._jagged("squeeze"), input._ragged_idx - (at < input._ragged_idx - 1))


def _select(func: Callable[..., Any], input: NestedTensor, dim: int, index: int) -> Any:
    if _dim(input, dim, "select") == 0:
        return input.unbind()[index]
    at = _inside(input, dim, "select")
    return jagged(inner(input).select(at, index), input._jagged("select"), input._ragged_idx - (at < input._ragged_idx - 1))


def _getitem(func: Callable[..., Any], input: NestedTensor, index: Any) -> Any:
    given = list(index) if isinstance(index, tuple) else [index]
    if given and isinstance(given[0], int):
        row = input.unbind()[given[0]]
        return row[tuple(given[1:])] if len(given) > 1 else row
    if Ellipsis in [g for g in given if not isinstance(g, Tensor)]:
        gap = next(i for i, g in enumerate(given) if g is Ellipsis)
        missing = input.ndim - sum(g is not None and g is not Ellipsis for g in given)
        given[gap : gap + 1] = [slice(None)] * missing
    at = input._ragged_idx
    if len(given) <= at or any(g != slice(None) for g in given[: at + 1] if not isinstance(g, Tensor)) or any(isinstance(g, Tensor) for g in given[: at + 1]):
        if all(g == slice(None) for g in given if not isinstance(g, Tensor)) and not any(isinstance(g, Tensor) for g in given):
            return input
        raise RuntimeError("slice(): not supported for NestedTensor on dim=0 and on the ragged dim; index rows by an int, or use unbind()")
    return jagged(inner(input)[tuple(given[1:])], input._jagged("__getitem__"), at)


def _narrow(func: Callable[..., Any], input: NestedTensor, dim: int, start: int, length: int) -> Any:
    return like(input, inner(input).narrow(_inside(input, dim, "narrow"), start, length))


def _pieces(func: Callable[..., Any], input: NestedTensor, count: Any, dim: int = 0) -> Any:
    name = getattr(func, "__name__", "split")
    if _dim(input, dim, name) == 0 and name == "chunk":
        rows = input.unbind()
        step = -(-len(rows) // count)
        from flambeau.nested import as_nested_tensor

        return tuple([as_nested_tensor(list(rows[i : i + step]), layout=torch.jagged) for i in range(0, len(rows), step)])
    return tuple([like(input, part) for part in func(inner(input), count, dim=_inside(input, dim, name))])


def _cat(func: Callable[..., Any], tensors: Sequence[Any], dim: int = 0) -> Any:
    t = next(x for x in tensors if isinstance(x, NestedTensor))
    name = getattr(func, "__name__", "cat")
    at = dim % (t.ndim + 1) - 1 if name == "stack" else _inside(t, dim, name)
    if at < 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    made = func([_values_beside(t, x, name) for x in tensors], dim=at)
    return jagged(made, t._jagged(name), t._ragged_idx + (name == "stack" and at < t._ragged_idx))


def _detach(func: Callable[..., Any], input: NestedTensor) -> Any:
    return like(input, inner(input).detach())


def _requires_grad(func: Callable[..., Any], input: NestedTensor, requires_grad: bool = True) -> Any:
    with DisableTorchFunctionSubclass():
        func(input, requires_grad)
    return input


def _is_same_size(func: Callable[..., Any], input: Any, other: Any) -> bool:
    return bool(input.shape == other.shape)


def _equal(func: Callable[..., Any], input: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
    both = isinstance(input, NestedTensor) and isinstance(other, NestedTensor)
    return both and input.shape == other.shape and func(inner(input), inner(other), *args, **kwargs)


_TABLE: Final[dict[str, Callable[..., Any]]] = {
    "softmax": _softmax, "log_softmax": _softmax, "linear": _linear, "layer_norm": _norm, "rms_norm": _norm, "matmul": _matmul, "bmm": _matmul,
    "scaled_dot_product_attention": _attention, "embedding": _embedding, "transpose": _transpose, "swapaxes": _transpose, "permute": _permute,
    "view": _view, "reshape": _view, "flatten": _flatten, "unflatten": _unflatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "select": _select,
    "getitem": _getitem, "narrow": _narrow, "chunk": _pieces, "split": _pieces, "cat": _cat, "concat": _cat, "concatenate": _cat, "stack": _cat,
    "detach": _detach, "requires_grad": _requires_grad, "is_same_size": _is_same_size, "equal": _equal, "allclose": _equal,
}  # fmt: skip
