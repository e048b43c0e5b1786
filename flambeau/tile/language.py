"""The names of the tile language (Triton's `tl`): what functions under @jit call."""

from __future__ import annotations

import builtins
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any, Final

from flambeau.compiler.tile.ir import Pointer
from flambeau.dtypes import bool_, dtype, float32, int32, int64, uint32
from flambeau.tile import mathematics as math
from flambeau.tile import types
from flambeau.tile.operations import (
    axis_of,
    binary,
    broadcast_pair,
    dims_of,
    logical,
    number,
    pair,
    permute,
    promoted,
    reduced,
    sizes,
    to_tensor,
    truth,
)
from flambeau.tile.operations import (
    cast as cast_value,
)
from flambeau.tile.types import (
    bfloat16,
    block_type,
    float8e4b8,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float64,
    int1,
    int8,
    int16,
    pointer_type,
    uint8,
    uint16,
    uint64,
)
from flambeau.tile.values import build, constexpr, tensor, unwrap

float32_, int32_, int64_, uint32_ = types.float32, types.int32, types.int64, types.uint32
METHODS: dict[str, Callable[..., Any]] = {}
_min, _max, _abs, _sum = builtins.min, builtins.max, builtins.abs, builtins.sum


class StaticAssertion(Exception):
    """A tl.static_assert that does not hold."""


def method(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function is a method of tensors, too."""
    METHODS[f.__name__] = f
    return f


# -- the grid, constants ----------------------------------------------------------------------------------------------
def program_id(axis: Any) -> tensor:
    """Which program of the grid this is, along an axis."""
    return tensor(build().one("program_id", axis=unwrap(axis)))


def num_programs(axis: Any) -> tensor:
    """How many programs the grid has along an axis."""
    return tensor(build().one("num_programs", axis=unwrap(axis)))


def arange(start: Any, end: Any) -> tensor:
    """int32: start, start + 1, ... up to end; end - start is a power of two."""
    start, end = unwrap(start), unwrap(end)
    if not isinstance(start, int) or not isinstance(end, int):
        raise ValueError("arange: start and end must be constexpr ints: " + f"got {start!r} and {end!r}")
    return tensor(build().one("iota", start=start, end=end))


def full(shape: Any, value: Any, dtype: Any) -> tensor:
    """A block of one number."""
    value, d = unwrap(value), _dtype_of(dtype)
    if isinstance(value, tensor):
        return tensor(build().broadcast(cast_value(value.handle, d), sizes(shape)))
    return tensor(build().constant(value, d, sizes(shape)))


def zeros(shape: Any, dtype: Any) -> tensor:
    """A block of zeros."""
    return full(shape, 0, dtype)


def zeros_like(input: tensor) -> tensor:
    """Zeros of a block's shape and dtype."""
    return full(input.shape, 0, input.dtype)


def full_like(input: tensor, value: Any) -> tensor:
    return full(input.shape, value, input.dtype)


def _dtype_of(d: Any) -> dtype:
    found = types.element(unwrap(d))
    if isinstance(found, Pointer):
        raise TypeError(f"a dtype of numbers is wanted here, got {d}")
    return found


def to_tensor_(x: Any) -> tensor:
    """A number as a scalar."""
    return to_tensor(x)


# -- memory -----------------------------------------------------------------------------------------------------------
def load(
    pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "", cache_modifier: Any = "",
    eviction_policy: Any = "", volatile: Any = False, _semantic: Any = None,
) -> tensor:  # fmt: skip
    """The elements at a pointer or a block of pointers. Where the mask is not set nothing is read, and the element is `other` (or 0)."""
    if hasattr(pointer, "advanced"):
        from flambeau.tile.descriptors import load_block

        return load_block(pointer, boundary_check, padding_option)
    p, mask, other = number(pointer), unwrap(mask), unwrap(other)
    if not p.type.is_pointer:
        raise ValueError(f"load: takes a pointer or a block of pointers, got {p.type}")
    if mask is None and other is not None:
        raise ValueError("load: `other` needs a mask")
    operands = [p]
    if mask is not None:
        p, m = _like_pointer("load", p, truth(mask))
        operands = [p, m]
    if other is not None:
        value = number(other)
        value = cast_value(value, p.type.element.to)  # type: ignore[union-attr]
        operands.append(build().broadcast(value, p.shape) if value.shape != p.shape else value)
    return tensor(build().one("load", operands, masks=len(operands) - 1))


def _like_pointer(what: str, p: Any, v: Any) -> tuple[Any, Any]:
    """The other operand in the pointer's shape."""
    if v.shape and not p.shape:
        raise ValueError(f"{what}: the pointer is a scalar, the other operand has shape {v.shape}")
    return broadcast_pair(p, v)


def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "", eviction_policy: Any = "") -> None:
    """Write elements to a pointer or a block of pointers, where the mask is set."""
    if hasattr(pointer, "advanced"):
        from flambeau.tile.descriptors import store_block

        store_block(pointer, value, boundary_check)
        return
    p, mask = number(pointer), unwrap(mask)
    if not isinstance(p.type.element, Pointer):
        raise ValueError(f"store: takes a pointer or a block of pointers, got {p.type}")
    to = p.type.element.to
    constant = unwrap(value)
    v = number(value) if isinstance(constant, tensor) or not isinstance(constant, (bool, int, float)) else build().constant(constant, to)
    if v.type.is_pointer:
        v = build().one("bitcast", (v,), element=int64)
    if v.shape and not p.shape:
        raise ValueError(f"store: the pointer is a scalar, the value has shape {v.shape}")
    v = build().broadcast(cast_value(v, to), p.shape) if len(v.shape) in (0, len(p.shape)) else broadcast_pair(p, cast_value(v, to))[1]
    operands = [p, v]
    if mask is not None:
        operands.append(_like_pointer("store", p, truth(mask))[1])
    build().op("store", operands, masks=len(operands) - 2)


METHODS["store"] = store


def _atomic(op: str) -> Callable[..., tensor]:
    def function(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
        p = number(pointer)
        if not isinstance(p.type.element, Pointer):
            raise ValueError(f"atomic_{op}: takes a pointer or a block of pointers, got {p.type}")
        if unwrap(sem) not in (None, "acquire", "release", "acq_rel", "relaxed"):
            raise ValueError(f"Memory semantic {unwrap(sem)} not supported")
        v = build().broadcast(cast_value(number(val), p.type.element.to), p.shape) if not number(val).shape else cast_value(number(val), p.type.element.to)
        p, v = broadcast_pair(p, v)
        operands = [p, v] if unwrap(mask) is None else [p, v, _like_pointer(f"atomic_{op}", p, truth(mask))[1]]
        return tensor(build().one("atomic", operands, op=op, masks=len(operands) - 2))

    function.__name__ = f"atomic_{op}"
    function.__doc__ = f"What was at the pointers; there is then the result of `{op}` with the value, in one step that nothing comes between."
    METHODS[function.__name__] = function
    return function


atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg = map(_atomic, ("add", "max", "min", "and", "or", "xor", "xchg"))


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    """What was at the pointers; where that is `cmp`, there is `val` then."""
    p = number(pointer)
    if not isinstance(p.type.element, Pointer):
        raise ValueError(f"atomic_cas: takes a pointer or a block of pointers, got {p.type}")
    a, b = (build().broadcast(cast_value(number(x), p.type.element.to), p.shape) for x in (cmp, val))
    return tensor(build().one("atomic", (p, a, b), op="cas", masks=0))


METHODS["atomic_cas"] = atomic_cas


# -- dtypes and shapes ------------------------------------------------------------------------------------------------
@method
def cast(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """The numbers in another dtype; `bitcast`: the same bits."""
    v, to = number(input), types.element(unwrap(dtype))
    if unwrap(bitcast) or (isinstance(to, Pointer) and isinstance(v.type.element, Pointer)):
        return tensor(v if v.type.element == to else build().one("bitcast", (v,), element=to))
    if isinstance(to, Pointer) or isinstance(v.type.element, Pointer):
        if not isinstance(to, Pointer) and to.itemsize < 8:
            return tensor(cast_value(build().one("bitcast", (v,), element=int64), to))
        if not isinstance(v.type.element, Pointer):
            v = cast_value(v, int64)
        return tensor(build().one("bitcast", (v,), element=to))
    return tensor(cast_value(v, to))


METHODS["to"] = cast


@method
def reshape(input: tensor, *shape: Any, can_reorder: Any = False) -> tensor:
    """The elements, in row-major order, in another shape."""
    return tensor(build().reshape(input.handle, dims_of(shape)))


view = reshape
METHODS["view"] = reshape


@method
def expand_dims(input: Any, axis: Any) -> tensor:
    """A dim of size 1 at an axis (or several)."""
    x = to_tensor(input)
    axes = unwrap(axis)
    axes = [axes] if isinstance(axes, int) else [unwrap(a) for a in axes]
    rank = len(x.shape) + len(axes)
    places = {axis_of(a, rank, "expand_dims") for a in axes}
    if len(places) != len(axes):
        raise ValueError(f"expand_dims: axes {axes} name one twice")
    rest = iter(x.shape)
    return tensor(build().reshape(x.handle, [1 if d in places else next(rest) for d in builtins.range(rank)]))


@method
def broadcast_to(input: Any, *shape: Any) -> tensor:
    """Repeated along dims of size 1."""
    x, to = number(input), dims_of(shape)
    if x.shape and len(x.shape) < len(to):
        x = build().reshape(x, (1,) * (len(to) - len(x.shape)) + x.shape)
    return tensor(build().broadcast(x, to))


def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    """Two blocks in one shape."""
    a, b = broadcast_pair(number(input), number(other))
    return tensor(a), tensor(b)


@method
def trans(input: tensor, *dims: Any) -> tensor:
    """The dims in another order; without one, the last two exchanged."""
    rank = len(input.shape)
    if not dims:
        if rank < 2:
            raise ValueError(f"trans: takes a block of two dims or more, got shape {input.shape}")
        dims = (*builtins.range(rank - 2), rank - 1, rank - 2)
    return permute(input, *dims)


METHODS["permute"] = permute


@method
def ravel(x: tensor, can_reorder: Any = False) -> tensor:
    """In one dim."""
    return reshape(x, x.numel)


def join(a: Any, b: Any) -> tensor:
    """Side by side along a new last dim of size 2."""
    x, y = broadcast_pair(number(a), number(b))
    if x.type.element != y.type.element:
        d = promoted(x.type.dtype, y.type.dtype)
        x, y = cast_value(x, d), cast_value(y, d)
    return tensor(build().one("join", (x, y)))


@method
def split(a: tensor) -> tuple[tensor, tensor]:
    """The two halves along a last dim of size 2."""
    x, y = build().op("split", (a.handle,))
    return tensor(x), tensor(y)


def interleave(a: tensor, b: tensor) -> tensor:
    """The elements of two blocks in turn, along the last dim."""
    c = join(a, b)
    return c if len(c.shape) == 1 else reshape(c, (*c.shape[:-2], 2 * c.shape[-2]))


def cat(input: tensor, other: tensor, can_reorder: Any = False, dim: Any = 0) -> tensor:
    """The second block after the first."""
    return tensor(build().one("cat", (input.handle, other.handle), dim=axis_of(dim, len(input.shape), "cat")))


@method
def gather(src: tensor, index: tensor, axis: Any) -> tensor:
    """The elements at the indices, along an axis."""
    return tensor(build().one("gather", (src.handle, index.handle), axis=axis_of(axis, len(src.shape), "gather")))


def flip(x: tensor, dim: Any = None) -> tensor:
    """The elements in the opposite order along a dim (the last)."""
    axis = axis_of(-1 if unwrap(dim) is None else dim, len(x.shape), "flip")
    n = x.shape[axis]
    shape = [n if d == axis else 1 for d in builtins.range(len(x.shape))]
    index = binary("sub", n - 1, arange(0, n))
    return gather(x, broadcast_to(reshape(index, shape), x.shape), axis)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def where(condition: Any, x: Any, y: Any) -> tensor:
    """x where the condition holds, else y."""
    c = truth(condition)
    if number(x).type.is_pointer:
        a, b = broadcast_pair(number(x), number(y))
    else:
        a, b = pair(x, y)
    c, a = broadcast_pair(c, a)
    c, b = broadcast_pair(c, b)
    a = broadcast_pair(a, b)[0]
    return tensor(build().pointwise("where", c, a, b))


def _chosen(name: str, a: Any, b: Any, propagate_nan: Any) -> Any:
    if not isinstance(unwrap(a), tensor) and not isinstance(unwrap(b), tensor):
        return (_max if name == "maximum" else _min)(unwrap(a), unwrap(b))
    x, y = pair(a, b)
    floats = x.type.dtype.category == 2 and unwrap(propagate_nan) != PropagateNan.ALL
    return tensor(build().pointwise({"maximum": "fmax", "minimum": "fmin"}[name] if floats else name, x, y))


class PropagateNan:
    """Whether a NaN wins in maximum and minimum."""

    NONE, ALL = 0, 0xFFFF


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The greater one; of a NaN and a number the number, unless NaN propagates."""
    return _chosen("maximum", x, y, propagate_nan)


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The smaller one."""
    return _chosen("minimum", x, y, propagate_nan)


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The nearest number between two."""
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


def cdiv(x: Any, div: Any) -> Any:
    """The quotient, rounded up."""
    x, div = unwrap(x), unwrap(div)
    if not isinstance(x, tensor) and not isinstance(div, tensor):
        return (x + div - 1) // div
    return binary("floordiv", binary("sub", binary("add", x, div), 1), div)


METHODS["cdiv"] = cdiv


@method
def sigmoid(x: tensor) -> tensor:
    """1 / (1 + exp(-x))."""
    return math.floating("sigmoid", x)


def softmax(x: tensor, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> tensor:
    """exp(x) over its sum, along a dim (the first)."""
    d = 0 if unwrap(dim) is None else unwrap(dim)
    shifted = binary("sub", x, max(x, d, keep_dims=True))
    e = math.exp(shifted)
    return binary("truediv", e, sum(e, d, keep_dims=True))


METHODS["softmax"] = softmax


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """Places of a matrix in row-major order as places in groups of `size_g` rows."""
    ij = i * size_j + j
    size_gj = size_g * size_j
    group = ij // size_gj
    off = group * size_g
    here = minimum(size_i - off, size_g)
    ij = ij % size_gj
    return off + ij % here, ij // here


def dot(
    input: tensor, other: tensor, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None, max_num_imprecise_acc: Any = None,
    out_dtype: Any = types.float32,
) -> tensor:  # fmt: skip
    """The matrix product, added to `acc`: float32 for floats (float64 of those), int32 for integers of 8 bits."""
    a, b = number(input), number(other)
    if a.type.dtype is not b.type.dtype:
        raise ValueError(f"dot: both blocks must have one dtype, got {a.type} and {b.type}")
    d = int32 if a.type.dtype.category < 2 else a.type.dtype if a.type.dtype.itemsize == 8 else float32
    if d is float32 and unwrap(out_dtype) is not None and _dtype_of(out_dtype).name == "float16":
        d = _dtype_of(out_dtype)
    start = unwrap(acc)
    if start is None:
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise ValueError(f"dot: takes matrices, got shapes {a.shape} and {b.shape}")
        c = build().constant(0, d, (*a.shape[:-1], b.shape[-1]))
    else:
        c = number(start)
    return tensor(build().one("dot", (a, b, c)))


# -- reductions, scans ------------------------------------------------------------------------------------------------
def _function(f: Any) -> Callable[..., Any]:
    return f.expand if hasattr(f, "expand") else f  # type: ignore[no-any-return]


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """Blocks along an axis by a function of two elements; of a tuple of blocks, of two tuples."""
    x = unwrap(input)
    several = isinstance(x, tuple)
    values = [number(v) for v in (x if several else (x,))]
    results = reduced(values, unwrap(axis), _function(unwrap(combine_fn)), unwrap(keep_dims))
    return tuple(results) if several else results[0]


def _simple(primitive: str) -> Callable[[tensor, tensor], tensor]:
    return lambda a, b: tensor(build().pointwise(primitive, a.handle, b.handle))


def _widened(x: tensor, dtype: Any) -> tensor:
    d = unwrap(dtype)
    own = x.handle.type.dtype
    if d is not None:
        return cast(x, d)
    if own.category < 2 and own.itemsize < 4:
        return tensor(cast_value(x.handle, int32 if own.is_signed or own is bool_ else uint32))
    return x


@method
def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> tensor:
    """The sum along an axis (None: of all)."""
    return reduced([_widened(to_tensor(input), dtype).handle], unwrap(axis), _simple("add"), unwrap(keep_dims))[0]


def _index_pair(name: str, first: bool) -> Callable[..., tuple[tensor, tensor]]:
    def combine(a: tensor, i: tensor, b: tensor, j: tensor) -> tuple[tensor, tensor]:
        better = binary("gt" if name == "max" else "lt", a, b)
        if first:
            better = logical("or", better, logical("and", binary("eq", a, b), binary("lt", i, j)))
        if a.dtype.is_floating():
            number_only = logical("and", binary("eq", a, a), binary("ne", b, b))
            better = logical("or", better, number_only)
        return where(better, a, b), where(better, i, j)

    return combine


def _extreme(name: str, x: tensor, axis: Any, return_indices: Any, left: Any, keep_dims: Any) -> Any:
    x = to_tensor(x)
    own = x.handle.type.dtype
    if own.category < 2 and own.itemsize < 4:
        x = tensor(cast_value(x.handle, int32 if own.is_signed else uint32)) if own is not bool_ else tensor(cast_value(x.handle, int32))
    axis = unwrap(axis)
    if not unwrap(return_indices):
        floats = x.dtype.is_floating()
        primitive = ("fmax" if name == "max" else "fmin") if floats else "maximum" if name == "max" else "minimum"
        return reduced([x.handle], axis, _simple(primitive), unwrap(keep_dims))[0]
    at = 0 if axis is None else axis_of(axis, len(x.shape), name)
    y = ravel(x) if axis is None else x
    n = y.shape[at]
    index = broadcast_to(reshape(arange(0, n), [n if d == at else 1 for d in builtins.range(len(y.shape))]), y.shape)
    if axis is None:
        found = reduced([y.handle, index.handle], None, _index_pair(name, unwrap(left)), unwrap(keep_dims))
    else:
        found = reduced([y.handle, index.handle], at, _index_pair(name, unwrap(left)), unwrap(keep_dims))
    return tuple(found)


@method
def max(input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """The greatest along an axis; NaN only where all are."""
    return _extreme("max", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


@method
def min(input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """The least along an axis."""
    return _extreme("min", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


@method
def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """Where the greatest is along an axis."""
    return _extreme("max", input, axis, True, tie_break_left, keep_dims)[1]  # type: ignore[no-any-return]


@method
def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """Where the least is along an axis."""
    return _extreme("min", input, axis, True, tie_break_left, keep_dims)[1]  # type: ignore[no-any-return]


@method
def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> tensor:
    """The exclusive or along an axis."""
    x = to_tensor(input)
    if x.dtype.is_floating():
        raise ValueError("xor_sum only supported for integers")
    return reduced([_widened(x, None).handle], unwrap(axis), _simple("bitwise_xor"), unwrap(keep_dims))[0]


@method
def reduce_or(input: Any, axis: Any, keep_dims: Any = False) -> tensor:
    """The or of the bits along an axis."""
    return reduced([to_tensor(input).handle], unwrap(axis), _simple("bitwise_or"), unwrap(keep_dims))[0]


@method
def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Each element combined with all before it, along an axis."""
    x = unwrap(input)
    several = isinstance(x, tuple)
    values = [number(v) for v in (x if several else (x,))]
    from flambeau.tile.operations import combining

    at = axis_of(axis, len(values[0].shape), "associative_scan")
    results = build().op("scan", values, [combining(values, _function(unwrap(combine_fn)))], axis=at, reverse=bool(unwrap(reverse)))
    found = tuple(map(tensor, results))
    return found if several else found[0]


@method
def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> tensor:
    """Running sums along an axis."""
    return associative_scan(_widened(to_tensor(input), dtype), axis, _simple("add"), reverse)  # type: ignore[no-any-return]


@method
def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> tensor:
    """Running products along an axis."""
    return associative_scan(to_tensor(input), axis, _simple("mul"), reverse)  # type: ignore[no-any-return]


@method
def sort(x: tensor, dim: Any = None, descending: Any = False) -> tensor:
    """In order along the last dim."""
    axis = axis_of(-1 if unwrap(dim) is None else dim, len(x.shape), "sort")
    if axis != len(x.shape) - 1:
        raise ValueError(f"sort: only along the last dim, got dim {axis} of shape {x.shape}")
    return tensor(build().one("sort", (x.handle,), descending=bool(unwrap(descending))))


def topk(x: tensor, k: Any, dim: Any = None) -> tensor:
    """The k greatest along the last dim, in order."""
    n, count = x.shape[-1], unwrap(k)
    if not 1 <= count <= n:
        raise ValueError(f"topk: k is {count}, the last dim has {n} elements")
    ordered = sort(x, dim, True)
    shape = (*x.shape[:-1], count)
    index = broadcast_to(reshape(arange(0, count), (1,) * (len(shape) - 1) + (count,)), shape)
    return _taken(ordered, index)


def _taken(x: tensor, index: tensor) -> tensor:
    return tensor(build().one("gather", (x.handle, index.handle), axis=len(x.shape) - 1))


@method
def histogram(input: tensor, num_bins: Any, mask: Any = None) -> tensor:
    """How often each of 0, 1, ... num_bins - 1 occurs."""
    operands = [input.handle] if unwrap(mask) is None else list(broadcast_pair(input.handle, truth(mask)))
    return tensor(build().one("histogram", operands, bins=unwrap(num_bins)))


# -- loops ------------------------------------------------------------------------------------------------------------
class range:
    """A loop of the kernel; the options say how a GPU shall pipeline it, and change nothing here."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, **_: Any) -> None:
        self.start: Any
        self.stop: Any
        self.start, self.stop = (0, arg1) if arg2 is None else (arg1, arg2)
        self.step = 1 if step is None else step

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("tl.range is the head of a `for` in a kernel, nothing else")


class static_range:
    """A loop that is unrolled when the kernel is compiled."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        first, last = (0, arg1) if arg2 is None else (arg1, arg2)
        parts = [unwrap(x) for x in (first, last, 1 if step is None else step)]
        if not all(isinstance(x, int) for x in parts):
            raise TypeError(f"static_range: takes constexpr ints, got {', '.join(map(repr, parts))}")
        self.parts: list[int] = parts

    def __iter__(self) -> Iterator[int]:
        return iter(builtins.range(*self.parts))


class condition:
    """The head of a `while`: the condition itself; the options change nothing here."""

    def __new__(cls, arg1: Any, **_: Any) -> Any:
        return arg1


# -- assertions, prints, hints ----------------------------------------------------------------------------------------
def static_assert(cond: Any, msg: Any = "") -> None:
    """An error when the kernel is compiled, unless the condition holds."""
    if not unwrap(cond):
        raise StaticAssertion(str(unwrap(msg)))


def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """Print when the kernel is compiled."""
    print(*map(unwrap, values), sep=sep, end=end, file=file, flush=flush)


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print each element when the kernel runs. A kernel that prints is run by the NumPy interpreter, in the order of the grid."""
    build().op("print", [number(a) for a in args], prefix=str(unwrap(prefix)), hex=bool(unwrap(hex)))


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """AssertionError at the launch, unless the condition holds for all elements (where the mask is set)."""
    operands = [truth(cond)] if unwrap(mask) is None else list(broadcast_pair(truth(cond), truth(mask)))
    build().op("assert", operands, message=str(unwrap(msg)))


def _hint(input: Any, *_: Any) -> Any:
    """The block itself: what is said of it changes nothing here."""
    return input


multiple_of = max_contiguous = max_constancy = _hint


def assume(cond: Any) -> None:
    """Nothing: what is said changes nothing here."""


def debug_barrier() -> None:
    """Nothing: a program of the grid runs in one thread."""


def inline_asm_elementwise(*_: Any, **__: Any) -> Any:
    """RuntimeError: assembly is a GPU's."""
    raise RuntimeError("inline_asm_elementwise: the assembly is a GPU's; write the formula in tl functions")


# Functions of Python that mean those of the language in a kernel.
BUILTINS: Final[dict[Any, Any]] = {
    builtins.range: range, builtins.min: minimum, builtins.max: maximum, builtins.sum: sum, builtins.print: device_print,
    builtins.abs: math.abs,
}  # fmt: skip
METHODS.update({n: f for n, f in vars(math).items() if isinstance(f, python_types.FunctionType) and n in math.METHODS})
exp, exp2, log, log2, sqrt, sqrt_rn, rsqrt, sin, cos, floor, ceil, erf, fma, abs, umulhi, fdiv, div_rn = (
    math.exp, math.exp2, math.log, math.log2, math.sqrt, math.sqrt_rn, math.rsqrt, math.sin, math.cos, math.floor, math.ceil, math.erf, math.fma,
    math.abs, math.umulhi, math.fdiv, math.div_rn,
)  # fmt: skip
_ = (float8e4b8, float8e4nv, float8e5, float8e5b16, float16, bfloat16, block_type, float64, int1, int8, int16, pointer_type, uint8, uint16, uint64, constexpr)
