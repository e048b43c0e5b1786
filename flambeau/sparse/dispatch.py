"""What each operation does where an argument is sparse: (operation's name) -> handler with the operation's arguments by position.

An operation that is not in the table raises NotImplementedError, as PyTorch does for backends that lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import flambeau as torch
from flambeau.sparse import products, reductions, structure
from flambeau.sparse.tensor import CompressedTensor, CooTensor, SparseTensor, coo
from flambeau.tensor import Tensor

HANDLERS: dict[str, Callable[..., Any]] = {}

# Functions that map 0 to 0, of one argument: applied to the values of the coalesced tensor (as PyTorch's SparseUnaryOps does).
ZERO_PRESERVING = (
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac log1p neg rad2deg relu round sgn sign signbit sin sinh sqrt "
    "square tan tanh trunc isnan isinf isneginf isposinf nan_to_num conj conj_physical positive"
).split()
_LINEAR = frozenset(("neg", "conj", "conj_physical", "positive"))  # these may be applied to duplicates


Handler = TypeVar("Handler", bound=Callable[..., Any])


def handler(*names: str) -> Callable[[Handler], Handler]:
    """Put a function into the table."""

    def add(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return add


def dispatch(name: str, args: Sequence[Any]) -> Any:
    """The call of an operation of which an argument is sparse."""
    function = HANDLERS.get(name)
    if function is None:
        refuse_layouts(name, args)
    return function(*args)


def refuse_layouts(name: str, args: Sequence[Any]) -> NoReturn:
    """The error of a call that has no sparse form."""
    kinds = ", ".join(sorted({str(t.layout) for t in _all(args)}))
    raise NotImplementedError(
        f"Could not run '{name}' with arguments of layout {kinds}: flambeau has no sparse form of it. Apply it to the values "
        "(torch.sparse_coo_tensor(t.indices(), f(t.values()), t.size())) or to t.to_dense()"
    )


def _all(args: Sequence[Any]) -> list[SparseTensor]:
    found = []
    for a in args:
        if isinstance(a, SparseTensor):
            found.append(a)
        elif isinstance(a, (tuple, list)):
            found += _all(a)
    return found


def _on_values(name: str) -> Any:
    def call(input: SparseTensor, *args: Any) -> Any:
        t = input if name in _LINEAR or isinstance(input, CompressedTensor) else structure.coalesce(input)
        if name == "round":
            return t._with(torch.round(t._data, decimals=args[0]))
        return t._with(getattr(torch, name)(t._data, *args))

    return call


for _name in ZERO_PRESERVING:
    HANDLERS[_name] = _on_values(_name)


@handler("pow")
def _pow(input: Any, exponent: Any) -> Any:
    if not isinstance(input, SparseTensor) or isinstance(exponent, Tensor) or exponent == 0:
        raise RuntimeError("pow: of a sparse tensor to a number that is not zero only")
    t = input if isinstance(input, CompressedTensor) else structure.coalesce(input)
    return t._with(t._data**exponent)


@handler("add")
def _add(input: Any, other: Any, alpha: Any = 1) -> Any:
    if not isinstance(input, Tensor) or not isinstance(other, SparseTensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(input.shape)} while other has size "
            f"{list(other.shape)} (FYI: op2-sparse addition does not currently support broadcasting)"
        )
    if not isinstance(input, SparseTensor):
        return _dense_plus(input, structure.as_coo(other), alpha)
    if input.layout is not other.layout:
        raise RuntimeError(f"add: expected both to have the same layout, got {input.layout} and {other.layout}")
    a, b = structure.as_coo(input), structure.as_coo(other)
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(f"add: expected equal numbers of sparse dims, got {a.sparse_dim()} and {b.sparse_dim()}")
    d = torch.promote_types(a.dtype, b.dtype)
    second = _times(b._data.to(d), alpha)
    if a._index is b._index and input.layout is other.layout and isinstance(input, CooTensor):
        return coo(a._index, a._data.to(d) + second, tuple(input.shape), a._coalesced)
    index, data = torch.cat((a._index, b._index), 1), torch.cat((a._data.to(d), second))
    if isinstance(input, CompressedTensor):
        return structure.as_compressed(structure.merge(index, data, tuple(input.shape), 2), input.layout)
    if a._coalesced and b._coalesced:
        return structure.merge(index, data, tuple(input.shape), a.sparse_dim())
    return coo(index, data, tuple(input.shape))


def _times(values: Tensor, alpha: Any) -> Tensor:
    """Values that are added alpha times, in the dtype of the sum."""
    return values if alpha == 1 else (values * alpha).to(values.dtype)


def _dense_plus(dense: Tensor, sparse: CooTensor, alpha: Any) -> Any:
    """The dense tensor with the elements of the sparse one added at their places."""
    d = torch.promote_types(dense.dtype, sparse.dtype)
    n = sparse.sparse_dim()
    data = _times(sparse._data.to(d), alpha)
    flat = dense.to(d).reshape((-1, *dense.shape[n:]))
    keys = structure.keys_of(sparse._index, tuple(dense.shape)[:n])
    return flat.index_add(0, keys, data).reshape(dense.shape)


@handler("sub")
def _sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    if any(isinstance(t, Tensor) and t.dtype is torch.bool for t in (input, other)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` "
            f"operator instead; got {input.dtype} and {other.dtype}"
        )
    return _add(input, other, -alpha)


@handler("nn.functional.tanhshrink")
def _tanhshrink(input: Any) -> Any:
    return _sub(input, HANDLERS["tanh"](input))


@handler("rsub")
def _rsub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return _add(other, input, -alpha)


@handler("mul")
def _mul(input: Any, other: Any) -> Any:
    if not isinstance(input, Tensor):
        input, other = other, input
    if not isinstance(other, Tensor):
        return input._with(input._data * other)
    return products.hadamard(input, other)


@handler("div")
def _div(input: Any, other: Any, rounding_mode: Any = None) -> Any:
    if not isinstance(input, SparseTensor):
        raise NotImplementedError("div: a number or a dense tensor by a sparse one would be infinite almost everywhere; use the values")
    if isinstance(other, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
        raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {list(other.shape)} for divisor)")
    t = structure.coalesce(input) if rounding_mode is not None and isinstance(input, CooTensor) else input
    return t._with(torch.div(t._data, other, rounding_mode=rounding_mode))


@handler("true_divide")
def _true_divide(input: Any, other: Any) -> Any:
    return _div(input, other)


@handler("floor_divide")
def _floor_divide(input: Any, other: Any) -> Any:
    return _div(input, other, "floor")


@handler("mm", "matmul", "mv", "bmm")
def _matmul(input: Any, other: Any) -> Any:
    return products.matmul(input, other)


HANDLERS["nn.functional.relu"] = HANDLERS["relu"]
HANDLERS["addmm"] = products.addmm
HANDLERS["nn.functional.linear"] = products.linear
HANDLERS["sum"] = lambda input, dim=None, keepdim=False, dtype=None: reductions.summed(input, dim, keepdim, dtype)


@handler("clone")
def _clone(input: SparseTensor, memory_format: Any = None) -> Any:
    if isinstance(input, CompressedTensor):
        made: Any = input._with(input._data.clone())
        made._crow, made._col = input._crow.clone(), input._col.clone()
        return made
    assert isinstance(input, CooTensor)
    return coo(input._index.clone(), input._data.clone(), tuple(input.shape), input._coalesced)


@handler("transpose", "swapaxes", "swapdims")
def _transpose(input: SparseTensor, dim0: int, dim1: int) -> Any:
    from flambeau import layouts
    from flambeau.sparse.tensor import compressed

    if isinstance(input, CompressedTensor):
        if input.dense_dim():
            raise RuntimeError("transpose(): hybrid sparse compressed tensors with dense dimensions are not supported")
        if dim0 % 2 == dim1 % 2:
            return input
        layout = layouts.sparse_csc if input.layout is layouts.sparse_csr else layouts.sparse_csr
        made = compressed(layout, input._crow, input._col, input._data, (input.shape[1], input.shape[0]))
        made._rows = input._rows
        return made
    assert isinstance(input, CooTensor)
    return structure.transposed(input, dim0, dim1)


@handler("t")
def _t(input: SparseTensor) -> Any:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but self is {input.ndim}D")
    return input if input.ndim < 2 else _transpose(input, 0, 1)


@handler("index_select")
def _index_select(input: SparseTensor, dim: int, index: Tensor) -> Any:
    if isinstance(index, SparseTensor):
        raise TypeError("index_select(): the index must be strided")
    return structure.picked(structure.as_coo(input), dim, index)


@handler("unsqueeze")
def _unsqueeze(input: SparseTensor, dim: int) -> Any:
    return structure.with_dim(structure.as_coo(input), dim)


@handler("cat")
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return structure.joined(tensors, dim)


@handler("stack")
def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return structure.joined([structure.with_dim(structure.as_coo(t), dim) for t in tensors], dim)


@handler("any")
def _any(input: SparseTensor, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None:
        raise NotImplementedError("any: of a sparse tensor over all dims only; use to_dense()")
    return torch.ne(input._data, 0).any()
