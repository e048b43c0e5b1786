"""What each kind of operation of the tile IR takes and gives: the types of its results, or a TileError that says what is wrong.

The builder asks here when it makes an operation, and the checker asks again of every operation of a finished program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from flambeau.compiler.tile.ir import KINDS, Pointer, Region, TileError, Type
from flambeau.dtypes import bool_, dtype, float16, float32, float64, int32, int64

MOST_ELEMENTS: Final = 1 << 20  # of a block, as in Triton
COMPARISONS: Final = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
# Primitives of one, two and three operands; their meaning is that of compiler/graph.py.
UNARY: Final = frozenset(
    ("neg", "abs", "floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
     "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid",
     "bitwise_not", "sgn", "isnan", "cast")
)  # fmt: skip
BINARY: Final = frozenset(
    ("add", "sub", "mul", "div", "div_trunc", "div_floor", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "hypot",
     "copysign", "nextafter", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", *COMPARISONS)
)  # fmt: skip
TERNARY: Final = frozenset(("fma",))  # x * y + z, rounded once
ATOMICS: Final = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")


def fail(message: str) -> TileError:
    return TileError(message)


def infer(kind: str, types: Sequence[Type], attrs: dict[str, Any], regions: Sequence[Region] = ()) -> list[Type]:
    """The types of the results of an operation. TileError if it has no meaning."""
    if kind not in KINDS:
        raise fail(f"there is no operation {kind!r}")
    missing = [a for a in KINDS[kind] if a not in attrs]
    if missing:
        raise fail(f"{kind}: the attribute {missing[0]} is missing")
    results = _RULES[kind](list(types), attrs, regions)
    for t in results:
        check_shape(t.shape, kind)
    return results


def check_shape(shape: Sequence[int], what: str) -> None:
    """TileError unless every size is a power of two and the block is not too large."""
    for size in shape:
        if size < 1 or size & (size - 1):
            raise fail(f"{what}: the sizes of a block must be powers of two, got shape {tuple(shape)}")
    if prod(shape) > MOST_ELEMENTS:
        raise fail(f"{what}: a block has at most {MOST_ELEMENTS} elements, shape {tuple(shape)} has {prod(shape)}")


def _count(kind: str, types: Sequence[Type], low: int, high: int | None = None) -> None:
    if not low <= len(types) <= (low if high is None else high):
        raise fail(f"{kind}: takes {low if high in (None, low) else f'{low} to {high}'} operands, got {len(types)}")


def _same_shape(kind: str, types: Sequence[Type]) -> tuple[int, ...]:
    for t in types[1:]:
        if t.shape != types[0].shape:
            raise fail(f"{kind}: the operands must have one shape, got {types[0].shape} and {t.shape}")
    return types[0].shape


def _axis(kind: str, axis: int, t: Type) -> int:
    if not 0 <= axis < len(t.shape):
        raise fail(f"{kind}: axis {axis} is not an axis of shape {t.shape}")
    return axis


def _constant(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("constant", types, 0)
    t = attrs["type"]
    if t.is_pointer:
        raise fail("constant: there are no constant pointers")
    return [t]


def _iota(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    start, end = attrs["start"], attrs["end"]
    if end <= start:
        raise fail(f"arange: the end must be greater than the start, got {start} and {end}")
    return [Type(int32, (end - start,))]


def _program(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    if attrs["axis"] not in (0, 1, 2):
        raise fail(f"program_id: the axis must be 0, 1 or 2, got {attrs['axis']}")
    return [Type(int32)]


def _pointwise(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    op = attrs["op"]
    if op == "where":
        _count("where", types, 3)
        shape = _same_shape("where", types)
        if types[0].element is not bool_:
            raise fail(f"where: the condition must be bool, got {types[0]}")
        if types[1].element != types[2].element:
            raise fail(f"where: the two values must have one dtype, got {types[1]} and {types[2]}")
        return [types[1].of(shape)]
    if op in UNARY:
        _count(op, types, 1)
    elif op in BINARY:
        _count(op, types, 2)
    elif op in TERNARY:
        _count(op, types, 3)
    else:
        raise fail(f"there is no pointwise operation {op!r}")
    shape = _same_shape(op, types)
    if op in COMPARISONS and types[0].is_pointer and types[0] == types[1]:
        return [Type(bool_, shape)]
    for t in types:
        if t.is_pointer:
            raise fail(f"{op}: takes numbers, got {t}")
    for t in types[1:]:
        if t.element is not types[0].element:
            raise fail(f"{op}: {'both' if len(types) == 2 else 'all'} operands must have one dtype, got {types[0]} and {t}")
    if op == "cast":
        return [Type(attrs["dtype"], shape)]
    if op in COMPARISONS or op == "isnan":
        return [Type(bool_, shape)]
    return [types[0]]


def _bitcast(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("bitcast", types, 1)
    element, own = attrs["element"], types[0].element

    def size(e: Any) -> int:
        return 8 if isinstance(e, Pointer) else e.itemsize  # type: ignore[no-any-return]

    if size(element) != size(own):
        raise fail(f"bitcast: {types[0]} has elements of {size(own)} bytes, {element.name} has {size(element)}")
    return [Type(element, types[0].shape)]


def _integers(kind: str, t: Type) -> dtype:
    if t.is_pointer or t.dtype.category > 1:
        raise fail(f"{kind}: takes integers, got {t}")
    return t.dtype


def _pointer(kind: str, t: Type) -> dtype:
    if not isinstance(t.element, Pointer):
        raise fail(f"{kind}: takes a pointer or a block of pointers, got {t}")
    return t.element.to


def _mask(kind: str, t: Type) -> None:
    if t.element is not bool_:
        raise fail(f"{kind}: the mask must be bool, got {t}")


def _offset(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("offset", types, 2)
    _pointer("offset", types[0])
    _integers("offset", types[1])
    _same_shape("offset", types)
    return [types[0]]


def _load(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("load", types, 1, 3)
    element, shape = _pointer("load", types[0]), _same_shape("load", types)
    if len(types) > 1:
        _mask("load", types[1])
    if len(types) > 2 and types[2].element is not element:
        raise fail(f"load: `other` must be {element.name}, got {types[2]}")
    return [Type(element, shape)]


def _store(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("store", types, 2, 3)
    element = _pointer("store", types[0])
    _same_shape("store", types)
    if types[1].element is not element:
        raise fail(f"store: the pointer is to {element.name}, the value is {types[1]}")
    if len(types) > 2:
        _mask("store", types[2])
    return []


def _atomic(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    op = attrs["op"]
    if op not in ATOMICS:
        raise fail(f"there is no atomic operation {op!r}")
    _count(f"atomic_{op}", types, 2 + (op == "cas"), 3)
    element, shape = _pointer(f"atomic_{op}", types[0]), _same_shape(f"atomic_{op}", types)
    for t in types[1 : 2 + (op == "cas")]:
        if t.element is not element:
            raise fail(f"atomic_{op}: the pointer is to {element.name}, the value is {t}")
    if len(types) > 2 and op != "cas":
        _mask(f"atomic_{op}", types[2])
    if element.category == 2 and op in ("and", "or", "xor"):
        raise fail(f"atomic_{op}: takes integers, got pointers to {element.name}")
    return [Type(element, shape)]


def _broadcast(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("broadcast", types, 1)
    own, shape = types[0].shape, tuple(attrs["shape"])
    if own and (len(own) != len(shape) or any(a not in (1, b) for a, b in zip(own, shape, strict=True))):
        raise fail(f"broadcast: shape {own} does not broadcast to {shape}")
    return [types[0].of(shape)]


def _reshape(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("reshape", types, 1)
    if prod(attrs["shape"]) != types[0].numel:
        raise fail(f"reshape: shape {types[0].shape} has {types[0].numel} elements, {tuple(attrs['shape'])} has {prod(attrs['shape'])}")
    return [types[0].of(attrs["shape"])]


def _permute(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("permute", types, 1)
    dims = tuple(attrs["dims"])
    if sorted(dims) != list(range(len(types[0].shape))):
        raise fail(f"permute: {dims} is not a permutation of the dims of shape {types[0].shape}")
    return [types[0].of([types[0].shape[d] for d in dims])]


def _one_element(kind: str, types: Sequence[Type]) -> None:
    for t in types[1:]:
        if t.element != types[0].element:
            raise fail(f"{kind}: the operands must have one dtype, got {types[0]} and {t}")


def _join(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("join", types, 2)
    _one_element("join", types)
    return [types[0].of((*_same_shape("join", types), 2))]


def _split(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("split", types, 1)
    if types[0].shape[-1:] != (2,):
        raise fail(f"split: the last dim must have size 2, got shape {types[0].shape}")
    return [types[0].of(types[0].shape[:-1])] * 2


def _cat(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("cat", types, 2)
    _one_element("cat", types)
    shape, dim = _same_shape("cat", types), _axis("cat", attrs["dim"], types[0])
    return [types[0].of([2 * n if d == dim else n for d, n in enumerate(shape)])]


def _gather(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("gather", types, 2)
    _integers("gather", types[1])
    axis = _axis("gather", attrs["axis"], types[0])
    a, b = types[0].shape, types[1].shape
    if len(a) != len(b) or any(m != n for d, (m, n) in enumerate(zip(a, b, strict=True)) if d != axis):
        raise fail(f"gather: source and index must have the same sizes but along axis {axis}, got {a} and {b}")
    return [types[0].of(b)]


def _dot(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("dot", types, 3)
    a, b, acc = types
    _one_element("dot", types[:2])
    rank = len(a.shape)
    if rank not in (2, 3) or len(b.shape) != rank:
        raise fail(f"dot: takes two matrices, or two batches of them, got shapes {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise fail(f"dot: the last dim of the first block and the one before the last of the second must be equal, got shapes {a.shape} and {b.shape}")
    shape = (*a.shape[:-1], b.shape[-1])
    if acc.shape != shape:
        raise fail(f"dot: the accumulator must have shape {shape}, got {acc.shape}")
    allowed = (int32,) if a.dtype.category < 2 else (float64,) if a.dtype is float64 else (float32, float16)
    if acc.dtype not in allowed:
        raise fail(f"dot: operands of {a.dtype.name} are added up in {allowed[0].name}, the accumulator is {acc.dtype.name}")
    return [acc]


def _combine(kind: str, types: Sequence[Type], regions: Sequence[Region]) -> None:
    elements = [Type(t.element) for t in types]
    region = regions[0]
    if [p.type for p in region.params] != elements * 2:
        raise fail(f"{kind}: the function must take {2 * len(types)} elements of the operands' dtypes")
    if [v.type for v in region.results] != elements:
        given = ", ".join(str(v.type) for v in region.results)
        raise fail(f"{kind}: the function must give {', '.join(map(str, elements))}, it gives {given}")
    for op in region.ops:
        if op.kind not in ("pointwise", "constant", "bitcast"):
            raise fail(f"{kind}: the function may only compute, it has the operation {op.kind}")


def _reduce(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    axis = _axis("reduce", attrs["axis"], types[0])
    shape = _same_shape("reduce", types)
    _combine("reduce", types, regions)
    return [t.of(shape[:axis] + shape[axis + 1 :]) for t in types]


def _scan(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _axis("scan", attrs["axis"], types[0])
    _same_shape("scan", types)
    _combine("scan", types, regions)
    return types


def _sort(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("sort", types, 1)
    if not types[0].shape or types[0].is_pointer:
        raise fail(f"sort: takes a block of numbers, got {types[0]}")
    return types


def _histogram(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("histogram", types, 1, 2)
    _integers("histogram", types[0])
    if len(_same_shape("histogram", types)) != 1:
        raise fail(f"histogram: takes a block of one dim, got {types[0]}")
    if len(types) > 1:
        _mask("histogram", types[1])
    return [Type(int32, (attrs["bins"],))]


def _carried(kind: str, given: Sequence[Type], names: Sequence[str], results: Sequence[Type]) -> None:
    if len(given) != len(results):
        raise fail(f"{kind}: {len(given)} values are carried, the body gives {len(results)}")
    for before, after, name in zip(given, results, names, strict=True):
        if before != after:
            raise fail(f"{kind}: {name or 'a value'} is {before} before the loop and {after} after a round; it must keep its dtype and shape")


def _for(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    if len(types) < 3 or any(t.shape or t.is_pointer or t.dtype not in (int32, int64) for t in types[:3]):
        raise fail(f"range: takes int32 or int64 scalars, got {', '.join(map(str, types[:3]))}")
    _one_element("range", types[:3])
    body = regions[0]
    if [p.type for p in body.params] != [types[0], *types[3:]]:
        raise fail("for: the parameters of the body are the index and the carried values")
    _carried("for", types[3:], [p.name for p in body.params[1:]], [v.type for v in body.results])
    return types[3:]


def _condition(kind: str, types: Sequence[Type]) -> None:
    if len(types) != 1 or types[0] != Type(bool_):
        raise fail(f"{kind}: the condition must be one bool scalar, got {', '.join(map(str, types))}")


def _while(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    condition, body = regions
    _condition("while", [v.type for v in condition.results])
    for region in regions:
        if [p.type for p in region.params] != types:
            raise fail("while: the parameters of condition and body are the carried values")
    _carried("while", types, [p.name for p in body.params], [v.type for v in body.results])
    return types


def _if(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _condition("if", types)
    yes, no = ([v.type for v in r.results] for r in regions)
    if len(yes) != len(no):
        raise fail(f"if: one branch gives {len(yes)} values, the other {len(no)}")
    for a, b, v in zip(yes, no, regions[0].results, strict=True):
        if a != b:
            raise fail(f"if: {v.name or 'a value'} is {a} after one branch and {b} after the other; they must agree")
    return yes


def _print(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    return []


def _assert(types: list[Type], attrs: dict[str, Any], regions: Sequence[Region]) -> list[Type]:
    _count("device_assert", types, 1, 2)
    _same_shape("device_assert", types)
    for t in types:
        _mask("device_assert", t)
    return []


_RULES: Final[dict[str, Callable[[list[Type], dict[str, Any], Sequence[Region]], list[Type]]]] = {
    "constant": _constant, "iota": _iota, "program_id": _program, "num_programs": _program, "pointwise": _pointwise, "bitcast": _bitcast,
    "offset": _offset, "load": _load, "store": _store, "atomic": _atomic, "broadcast": _broadcast, "reshape": _reshape, "permute": _permute,
    "join": _join, "split": _split, "cat": _cat, "gather": _gather, "dot": _dot, "reduce": _reduce, "scan": _scan, "sort": _sort,
    "histogram": _histogram, "for": _for, "while": _while, "if": _if, "print": _print, "assert": _assert,
}  # fmt: skip
