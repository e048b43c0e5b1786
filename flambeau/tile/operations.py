"""Operations of the tile language on blocks: Triton's rules of promotion and broadcasting over the IR's builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.compiler.tile.ir import Pointer, Region, Type, Value
from flambeau.dtypes import bfloat16, bool_, dtype, float16, float32, float64, int32, int64, uint32, uint64
from flambeau.tile import types
from flambeau.tile.values import build, tensor, unwrap

_PRIMITIVE: Final = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "div_trunc", "mod": "fmod", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "shift_left", "rshift": "shift_right", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip
_BITS: Final = ("and", "or", "xor", "lshift", "rshift")


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape: ints, constexprs, or a sequence of them."""
    shape = unwrap(shape)
    if isinstance(shape, int):
        return (shape,)
    found = tuple(unwrap(n) for n in shape)
    for n in found:
        if not isinstance(n, int):
            raise TypeError(f"the sizes of a block are constexpr ints, got {n!r}")
    return found


def number(x: Any) -> Value:
    """Anything as a value of the IR: Python numbers are int32 (int64, uint64 where they must be), float32 and bool."""
    x = unwrap(x)
    if isinstance(x, tensor):
        return x.handle
    if isinstance(x, bool):
        return build().constant(x, bool_)
    if isinstance(x, int):
        d = int32 if -(2**31) <= x < 2**31 else uint32 if 0 <= x < 2**32 else int64 if -(2**63) <= x < 2**63 else uint64
        if not -(2**63) <= x < 2**64:
            raise ValueError(f"the integer {x} does not fit in 64 bits")
        return build().constant(x, d)
    if isinstance(x, float):
        return build().constant(x, float64 if _needs_double(x) else float32)
    if hasattr(x, "handle"):
        return x.handle  # type: ignore[no-any-return]
    raise TypeError(f"a tensor or a number is wanted here, got {type(x).__name__}: {x!r}")


def _needs_double(x: float) -> bool:
    """float32 has numbers up to 3.4e38, and normal ones from 1.2e-38."""
    return not (x == 0 or x != x or abs(x) == float("inf") or 2.0**-126 <= abs(x) <= 3.4028234663852886e38)


def to_tensor(x: Any) -> tensor:
    return x if isinstance(x, tensor) else tensor(number(x))


def constant_of(x: Any) -> Any:
    """The Python number, if it is one."""
    x = unwrap(x)
    return x if isinstance(x, (bool, int, float)) else None


# -- dtypes -----------------------------------------------------------------------------------------------------------
def promoted(a: dtype, b: dtype, division: bool = False) -> dtype:
    """The dtype in which two blocks are computed."""
    if float64 in (a, b):
        return float64
    if float32 in (a, b):
        return float32
    if float16 in (a, b):
        return float32 if division else float16
    if bfloat16 in (a, b):
        return bfloat16 if a is b and not division else float32
    if a.category == 2 and b.category == 2:
        return a if a is b else float16
    if a.category == 2 or b.category == 2:
        return float32 if division else a if a.category == 2 else b
    if a.is_signed == b.is_signed:
        return a if a.itemsize >= b.itemsize else b
    unsigned, signed = (b, a) if a.is_signed else (a, b)
    return unsigned if unsigned.itemsize >= signed.itemsize and unsigned is not bool_ else signed


def _with_number(t: dtype, x: bool | int | float, division: bool) -> dtype:
    """A block and a Python number: the block's dtype, if the number is of no higher kind."""
    kind = 0 if isinstance(x, bool) else 1 if isinstance(x, int) else 2
    if kind <= t.category:
        return float32 if division and t.category == 2 and t.itemsize < 4 else t
    return number(x).type.dtype


def _dtype(v: Value) -> dtype:
    e = v.type.element
    if isinstance(e, Pointer):
        raise TypeError(f"numbers are wanted here, got {v.type}")
    return e


def pair(a: Any, b: Any, division: bool = False, arithmetic: bool = False) -> tuple[Value, Value]:
    """Two operands in one dtype and one shape."""
    x, y = constant_of(a), constant_of(b)
    if x is not None and y is None:
        right = number(b)
        if not right.type.is_pointer:
            d = _with_number(_dtype(right), x, division)
            _fits(x, d)
            return broadcast_pair(build().constant(x, d), cast(right, d))
    if y is not None and x is None:
        left = number(a)
        if not left.type.is_pointer:
            d = _with_number(_dtype(left), y, division)
            _fits(y, d)
            return broadcast_pair(cast(left, d), build().constant(y, d))
    left, right = number(a), number(b)
    if left.type.is_pointer or right.type.is_pointer:
        return broadcast_pair(left, right)
    if division and {left.type.element, right.type.element} <= {*_SIGNED, *_UNSIGNED} and not arithmetic:
        p, q = _dtype(left), _dtype(right)
        if p.is_signed != q.is_signed:
            raise TypeError(f"cannot use // or % on {p.name} and {q.name}: they differ in signedness; cast one of them")
    d = promoted(_dtype(left), _dtype(right), division)
    return broadcast_pair(cast(left, d), cast(right, d))


_SIGNED: Final = tuple(d.of for d in (types.int8, types.int16, types.int32, types.int64))
_UNSIGNED: Final = tuple(d.of for d in (types.uint8, types.uint16, types.uint32, types.uint64))


def _fits(x: bool | int | float, d: dtype) -> None:
    if d.category == 1 and isinstance(x, int):
        bits = 8 * d.itemsize
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if d.is_signed else (0, (1 << bits) - 1)
        if not low <= x <= high:
            raise ValueError(f"the number {x} is out of range for {d.name}")


def cast(v: Value, d: dtype) -> Value:
    """The same numbers in another dtype."""
    return v if v.type.element is d else build().pointwise("cast", v, to=d)


def broadcast_pair(a: Value, b: Value) -> tuple[Value, Value]:
    """Two blocks of one shape: dims of size 1 are repeated, missing ones put in front."""
    if a.shape == b.shape:
        return a, b
    if not a.shape or not b.shape:
        shape = a.shape or b.shape
        return build().broadcast(a, shape), build().broadcast(b, shape)
    rank = max(len(a.shape), len(b.shape))
    p, q = ((1,) * (rank - len(v.shape)) + v.shape for v in (a, b))
    for i, (m, n) in enumerate(zip(p, q, strict=True)):
        if m != n and 1 not in (m, n):
            raise ValueError(f"cannot make blocks of shapes {a.shape} and {b.shape} one shape: incompatible dimensions at index {i}: {m} and {n}")
    shape = tuple(max(m, n) for m, n in zip(p, q, strict=True))
    b_ = build()
    return b_.broadcast(b_.reshape(a, p), shape), b_.broadcast(b_.reshape(b, q), shape)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def binary(name: str, a: Any, b: Any) -> Any:
    """An operator of Python on two operands of which one is a block."""
    x, y = number(a) if isinstance(unwrap(a), tensor) else None, number(b) if isinstance(unwrap(b), tensor) else None
    if name in ("add", "sub") and ((x is not None and x.type.is_pointer) or (y is not None and y.type.is_pointer)):
        return _moved(name, number(a), number(b))
    division = name in ("truediv", "floordiv", "mod")
    left, right = pair(a, b, division)
    if left.type.is_pointer != right.type.is_pointer:
        raise TypeError(f"{name}: a pointer and a number, {left.type} and {right.type}")
    if not left.type.is_pointer:
        d = _dtype(left)
        if name == "truediv" and d.category < 2:
            left, right = cast(left, float32), cast(right, float32)
        elif name in _BITS and d.category == 2:
            raise TypeError(f"{name}: takes integers, got {left.type} and {right.type}")
        elif name == "floordiv" and d.category == 2:
            raise TypeError(f"//: takes integers, got {left.type} and {right.type}")
        elif d is bool_ and name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift"):
            left, right = cast(left, int32), cast(right, int32)
    return tensor(build().pointwise(_PRIMITIVE[name], left, right))


def _moved(name: str, a: Value, b: Value) -> tensor:
    if b.type.is_pointer:
        if name == "sub" or a.type.is_pointer:
            raise TypeError(f"{name}: a pointer takes an integer to be added, got {a.type} and {b.type}")
        a, b = b, a
    a, b = broadcast_pair(a, b)
    if not b.type.is_pointer and _dtype(b) is bool_:
        b = cast(b, int32)
    if name == "sub":
        b = build().pointwise("neg", b)
    return tensor(build().one("offset", (a, b)))


def unary(name: str, x: tensor) -> tensor:
    if name == "pos":
        return x
    v = number(x)
    if name == "neg":
        return tensor(build().pointwise("neg", v))
    if _dtype(v).category == 2:
        raise TypeError(f"~: takes integers, got {v.type}")
    return tensor(build().pointwise("bitwise_not", v))


def truth(x: Any) -> Value:
    """A scalar or block as bool."""
    v = number(x)
    if v.type.is_pointer:
        return build().pointwise("ne", build().one("bitcast", (v,), element=int64), build().constant(0, int64, v.shape))
    return cast(v, bool_)


def logical(name: str, a: Any, b: Any) -> tensor:
    """`and`, `or` of blocks."""
    x, y = broadcast_pair(truth(a), truth(b))
    return tensor(build().pointwise("bitwise_and" if name == "and" else "bitwise_or", x, y))


def negated(x: Any) -> tensor:
    """`not` of a block."""
    return tensor(build().pointwise("bitwise_not", truth(x)))


def floating(name: str, x: Any, *, least: dtype = float32) -> tensor:
    """A function of floats: integers are an error."""
    v = number(x)
    if _dtype(v).category != 2:
        raise TypeError(f"{name}: takes floats, got {v.type}; convert it by .to(tl.float32)")
    return tensor(build().pointwise(name, v))


# -- shapes -----------------------------------------------------------------------------------------------------------
def indexed(x: tensor, index: Any) -> tensor:
    """x[:, None] and its like: only new dims and whole ones."""
    if not isinstance(index, tuple):
        index = (index,)
    shape, old = [], iter(x.shape)
    for i in index:
        i = unwrap(i)
        if i is None:
            shape.append(1)
        elif isinstance(i, slice) and i == slice(None):
            shape.append(next(old))
        else:
            raise TypeError(f"a block is indexed by : and None only, got {i!r}; tl.gather and tl.where choose elements")
    return tensor(build().reshape(x.handle, [*shape, *old]))


def dims_of(dims: Any) -> tuple[int, ...]:
    return sizes(dims[0]) if len(dims) == 1 and not isinstance(unwrap(dims[0]), int) else tuple(unwrap(d) for d in dims)


def permute(x: tensor, *dims: Any) -> tensor:
    """The dims in another order."""
    found = dims_of(dims)
    rank = len(x.shape)
    return tensor(build().one("permute", (x.handle,), dims=tuple(d % rank if rank else d for d in found)))


def axis_of(axis: Any, rank: int, what: str) -> int:
    axis = unwrap(axis)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(f"{what}: axis {axis!r} is not an axis of a block of {rank} dims")
    return axis % rank


# -- functions over axes ----------------------------------------------------------------------------------------------
def combining(values: Sequence[Value], function: Callable[..., Any]) -> Region:
    """The region of a function of elements: of two tuples of them."""
    b = build()
    params = [Value(Type(v.type.element), None) for v in (*values, *values)]
    region = Region(params)
    with b.inside(region, alone=True):
        result = function(*[tensor(p) for p in params])
        results = result if isinstance(result, (tuple, list)) else (result,)
        region.results = [cast(number(r), _dtype(v)) for r, v in zip(results, values, strict=True)]
    return region


def reduced(values: Sequence[Value], axis: int | None, function: Callable[..., Any], keep_dims: bool = False) -> list[tensor]:
    """Blocks reduced along an axis (None: all) by a function of two elements (or tuples)."""
    b = build()
    shape = values[0].shape
    if not shape:
        return [tensor(v) for v in values]
    if axis is None:
        values = [b.reshape(v, (v.type.numel,)) for v in values]
    at = axis_of(0 if axis is None else axis, len(values[0].shape), "reduce")
    results = b.op("reduce", values, [combining(values, function)], axis=at)
    if keep_dims:
        kept = (1,) * len(shape) if axis is None else tuple(1 if d == at else n for d, n in enumerate(shape))
        results = [b.reshape(b.broadcast(r, (1,)), kept) if not r.shape else b.reshape(r, kept) for r in results]
    return [tensor(r) for r in results]
