"""Values in registers and the ways in and out of them: register types, rounding to narrow types, casts, loads, stores.

Register layout of `width` lanes: bool is `i1`; integers are themselves; float16, bfloat16 and floats of one byte are `float` lanes that the
narrow type can represent exactly (`narrow` rounds after every operation, so a fused chain equals the unfused ones);
float32 is `float`, float64 is `double`; complex values are a Python pair (re, im) of float or double lanes.
In memory a bool is a byte (anything but 0 counts as true), and a complex number is its two parts, side by side.
"""

from __future__ import annotations

from typing import TypeAlias
from typing import cast as typed

from flambeau.compiler.emit import small_floats
from flambeau.compiler.emit.builder import MEMORY_TYPE, Builder, vector
from flambeau.compiler.emit.lanes import Lanes
from flambeau.dtypes import bool_, dtype, float4_e2m1fn_x2, int64
from flambeau.small_floats import FORMATS

Value: TypeAlias = "str | tuple[str, str]"

_FLOAT_ELEMENT = {
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
    "complex64": "float", "complex128": "double", "complex32": "float", **dict.fromkeys(FORMATS, "float"),
}  # fmt: skip
NARROW = frozenset(("float16", "bfloat16", *FORMATS))


def register_element(d: dtype) -> str:
    """LLVM type of one lane (of one part, for complex dtypes)."""
    if d is bool_:
        return "i1"
    return _FLOAT_ELEMENT.get(d.name) or MEMORY_TYPE[d.name]


def register_type(d: dtype, width: int) -> str:
    """LLVM type of a value in registers (of each part, for complex dtypes)."""
    return vector(register_element(d), width)


def lanes(b: Builder, d: dtype, value: Value, width: int) -> Lanes:
    """A real value as Lanes."""
    return Lanes(b, register_element(d), width, typed(str, value))


# -- float16 and bfloat16 ---------------------------------------------------------------------------------------------
def _bfloat16_bits(x: Lanes) -> Lanes:
    """float lanes -> i32 lanes whose high half is the nearest bfloat16, ties to even; a NaN stays a quiet NaN.

    In integers, because the x86 conversion (vcvtneps2bf16) flushes subnormals to zero.
    """
    bits = x.bits()
    rounded = bits + (bits.logical_right(16) & 1) + 0x7FFF
    return x.isnan().select(bits | 0x400000, rounded)


def narrow(d: dtype, x: Lanes) -> Lanes:
    """Round float lanes to what `d` can hold: the identity unless `d` is float16, bfloat16 or a float of one byte."""
    if d.name == "float16":
        return x.to("half", "fptrunc").to("float", "fpext")
    if d.name == "bfloat16":
        return (_bfloat16_bits(x) & 0xFFFF0000).as_float()
    if d.name in FORMATS:
        return small_floats.decode(d.name, small_floats.encode(d.name, x))
    return x


# -- casts ------------------------------------------------------------------------------------------------------------
def _float_to_integer(x: Lanes, target: dtype) -> Lanes:
    """C truncation. Out of range is what x86 gives: the least int32 or int64; narrower types keep its low bits.

    PyTorch converts to uint8 by way of int64; from float int32 has the same low bits there (zeros). To uint32 it is int64, too (what is outside of
    both types is another number in its vector code). To uint64, what int64 does not hold is converted without the sign's bit, which is set afterwards.
    """
    if target.name == "uint64":
        large = x.ge(2.0**63)
        low = _float_to_integer(large.select(x - 2.0**63, x), int64)
        return low ^ large.select(low.like(-(1 << 63)), 0)
    wide = target.itemsize == 8 or target.name == "uint32" or (x.element == "double" and target.name == "uint8")
    element = "i64" if wide else "i32"
    bound = 2.0 ** (63 if element == "i64" else 31)
    # A float just below -2^31 does not exist; a double does, and truncates to -2^31, which is the answer anyway.
    inside = x.ge(-bound) if x.element == "float" or element == "i64" else x.gt(-bound - 1.0)
    inside = inside & x.lt(bound)
    integer = inside.select(x, 0.0).to(element, "fptosi")
    integer = inside.select(integer, -(1 << (63 if element == "i64" else 31)))
    return integer.to(register_element(target), "trunc")


def _cast_real(x: Lanes, source: dtype, target: dtype) -> Lanes:
    if source is target:
        return x
    element = register_element(target)
    if target is bool_:
        return x.ne(0)
    if target is float4_e2m1fn_x2:  # a byte of two numbers: of zero
        return x.to(element, "fptosi" if source.is_floating_point else "zext" if x.element == "i1" else "trunc")
    if source is bool_:
        number = x.to(element, "uitofp" if target.is_floating_point else "zext")
        return narrow(target, number) if target.name in FORMATS else number  # there is a format without zero
    if target.is_floating_point:
        if source.is_floating_point:
            wider = element == "double" and x.element == "float"
            return narrow(target, x.to(element, "fpext" if wider else "fptrunc"))
        return narrow(target, x.to(element, "sitofp" if source.is_signed else "uitofp"))
    if source.is_floating_point:
        return _float_to_integer(x, target)
    if target.itemsize > source.itemsize:
        return x.to(element, "sext" if source.is_signed else "zext")
    return x.to(element, "trunc")


def cast(b: Builder, source: dtype, target: dtype, value: Value, width: int) -> Value:
    """`value` of dtype `source` as `target`: C's rules, with no trap and no undefined result."""
    if source is target:
        return value
    if source.is_complex:
        re, im = (Lanes(b, register_element(source), width, part) for part in value)
        if target.is_complex:
            part = target.to_real()
            return tuple(_cast_real(p, source.to_real(), part).name for p in (re, im))  # type: ignore[return-value]
        if target is bool_:
            return (re.ne(0) | im.ne(0)).name
        return _cast_real(re, source.to_real(), target).name
    x = lanes(b, source, value, width)
    if target.is_complex:
        real = _cast_real(x, source, target.to_real())
        return real.name, real.like(0.0).name
    return _cast_real(x, source, target).name


# -- contiguous memory ------------------------------------------------------------------------------------------------
def memory_element(d: dtype) -> str:
    """What loads and stores move: bfloat16 as its bits, complex as its parts."""
    return "i16" if d.name == "bfloat16" else MEMORY_TYPE[d.to_real().name]


def from_memory(x: Lanes, d: dtype) -> Lanes:
    if d is bool_:
        return x.ne(0)
    if d.name == "float16":
        return x.to("float", "fpext")
    if d.name == "bfloat16":
        return (x.to("i32", "zext") << 16).as_float()
    return small_floats.decode(d.name, x) if d.name in FORMATS else x


def to_memory(x: Lanes, d: dtype) -> Lanes:
    if d is bool_:
        return x.to("i8", "zext")
    if d.name == "float16":
        return x.to("half", "fptrunc")
    if d.name == "bfloat16":
        return _bfloat16_bits(x).logical_right(16).to("i16", "trunc")
    return small_floats.encode(d.name, x) if d.name in FORMATS else x


def _indices(values: list[int]) -> str:
    return f"<{len(values)} x i32> <" + ", ".join(f"i32 {v}" for v in values) + ">"


def _interleave(b: Builder, re: Lanes, im: Lanes) -> Lanes:
    order = [i // 2 + (i % 2) * re.width for i in range(2 * re.width)]
    name = b.op(f"shufflevector {re.type} {re.name}, {im.type} {im.name}, {_indices(order)}")
    return Lanes(b, re.element, 2 * re.width, name)


def _part(b: Builder, pair: Lanes, which: int) -> str:
    width = pair.width // 2
    order = [2 * i + which for i in range(width)]
    return b.op(f"shufflevector {pair.type} {pair.name}, {pair.type} poison, {_indices(order)}")


def _pair_mask(b: Builder, mask: str, width: int) -> str:
    """Every mask bit twice: lane i of a complex vector is lanes 2i and 2i + 1 of its memory."""
    order = [i // 2 for i in range(2 * width)]
    return b.op(f"shufflevector <{width} x i1> {mask}, <{width} x i1> poison, {_indices(order)}")


def _load_elements(b: Builder, element: str, pointer: str, width: int, mask: str | None, align: int) -> Lanes:
    type_ = vector(element, width)
    if mask is None:
        return Lanes(b, element, width, b.load(type_, pointer, align))
    if width > 1:
        return Lanes(b, element, width, b.masked_load(element, width, pointer, mask, align))
    before, then, after = b.block, b.new_label("then"), b.new_label("after")
    b.emit(f"br i1 {mask}, label %{then}, label %{after}")
    b.label(then)
    loaded = b.load(type_, pointer, align)
    b.branch(after)
    b.label(after)
    return Lanes(b, element, 1, b.op(f"phi {type_} [zeroinitializer, %{before}], [{loaded}, %{then}]"))


def _store_elements(b: Builder, x: Lanes, pointer: str, mask: str | None, align: int) -> None:
    if mask is None:
        b.store(x.type, x.name, pointer, align)
    elif x.width > 1:
        b.masked_store(x.element, x.width, x.name, pointer, mask, align)
    else:
        with b.if_(mask):
            b.store(x.type, x.name, pointer, align)


def load(b: Builder, d: dtype, pointer: str, width: int, mask: str | None = None) -> Value:
    """`width` consecutive elements at `pointer`; lanes whose mask bit is clear read nothing and hold zero."""
    element = memory_element(d)
    align = d.to_real().itemsize
    if not d.is_complex:
        return from_memory(_load_elements(b, element, pointer, width, mask, align), d).name
    if width == 1:
        re = _load_elements(b, element, pointer, 1, mask, align)
        im = _load_elements(b, element, b.gep(element, pointer, 1), 1, mask, align)
        return from_memory(re, d.to_real()).name, from_memory(im, d.to_real()).name
    wide = None if mask is None else _pair_mask(b, mask, width)
    pair = from_memory(_load_elements(b, element, pointer, 2 * width, wide, align), d.to_real())
    return _part(b, pair, 0), _part(b, pair, 1)


def store(b: Builder, d: dtype, value: Value, pointer: str, width: int, mask: str | None = None) -> None:
    """Write `width` consecutive elements at `pointer`; lanes whose mask bit is clear write nothing."""
    align = d.to_real().itemsize
    if not d.is_complex:
        _store_elements(b, to_memory(lanes(b, d, value, width), d), pointer, mask, align)
        return
    re, im = (to_memory(Lanes(b, register_element(d), width, part), d.to_real()) for part in value)
    if width == 1:
        _store_elements(b, re, pointer, mask, align)
        _store_elements(b, im, b.gep(re.element, pointer, 1), mask, align)
        return
    wide = None if mask is None else _pair_mask(b, mask, width)
    _store_elements(b, _interleave(b, re, im), pointer, wide, align)


# -- indexed memory ---------------------------------------------------------------------------------------------------
def _addresses(b: Builder, element: str, base: str, index: str, width: int) -> str:
    return b.op(f"getelementptr {element}, ptr {base}, {vector('i64', width)} {index}")


def _all_set(width: int) -> str:
    return "splat (i1 true)" if width > 1 else "true"


def gather_elements(b: Builder, element: str, addresses: str, width: int, mask: str | None, align: int) -> Lanes:
    if width == 1:
        return _load_elements(b, element, addresses, 1, mask, align)
    x = Lanes(b, element, width, "")
    name = f"llvm.masked.gather.{x.suffix}.v{width}p0"
    arguments = [
        (vector("ptr", width), addresses), ("i32", str(align)), (vector("i1", width), mask or _all_set(width)),
        (x.type, "zeroinitializer"),
    ]  # fmt: skip
    return Lanes(b, element, width, b.call(x.type, name, arguments))


def scatter_elements(b: Builder, x: Lanes, addresses: str, mask: str | None, align: int) -> None:
    if x.width == 1:
        _store_elements(b, x, addresses, mask, align)
        return
    name = f"llvm.masked.scatter.{x.suffix}.v{x.width}p0"
    b.call("void", name, [
        (x.type, x.name), (vector("ptr", x.width), addresses), ("i32", str(align)),
        (vector("i1", x.width), mask or _all_set(x.width)),
    ])  # fmt: skip


def gather(b: Builder, d: dtype, base: str, index: str, width: int, mask: str | None = None) -> Value:
    """Elements `base[index[lane]]`; `index` holds i64 lanes, in elements. Masked-off lanes read nothing, hold zero."""
    element = memory_element(d)
    align = d.to_real().itemsize
    if not d.is_complex:
        addresses = _addresses(b, element, base, index, width)
        return from_memory(gather_elements(b, element, addresses, width, mask, align), d).name
    addresses = _addresses(b, f"[2 x {element}]", base, index, width)
    second = b.op(f"getelementptr {element}, {vector('ptr', width)} {addresses}, i64 1")
    re = gather_elements(b, element, addresses, width, mask, align)
    im = gather_elements(b, element, second, width, mask, align)
    return from_memory(re, d.to_real()).name, from_memory(im, d.to_real()).name


def scatter(b: Builder, d: dtype, value: Value, base: str, index: str, width: int, mask: str | None = None) -> None:
    """`base[index[lane]] = value[lane]`, lowest lane first; masked-off lanes write nothing."""
    element = memory_element(d)
    align = d.to_real().itemsize
    if not d.is_complex:
        addresses = _addresses(b, element, base, index, width)
        scatter_elements(b, to_memory(lanes(b, d, value, width), d), addresses, mask, align)
        return
    addresses = _addresses(b, f"[2 x {element}]", base, index, width)
    second = b.op(f"getelementptr {element}, {vector('ptr', width)} {addresses}, i64 1")
    for part, where in zip(value, (addresses, second), strict=True):
        scatter_elements(b, to_memory(Lanes(b, register_element(d), width, part), d.to_real()), where, mask, align)


# -- memory at addresses ----------------------------------------------------------------------------------------------
def gather_at(b: Builder, d: dtype, addresses: str, width: int, mask: str | None = None) -> Value:
    """The real elements at addresses (pointer lanes). Masked-off lanes read nothing, hold zero."""
    return from_memory(gather_elements(b, memory_element(d), addresses, width, mask, d.itemsize), d).name


def scatter_at(b: Builder, d: dtype, value: Value, addresses: str, width: int, mask: str | None = None) -> None:
    """Write the real lanes of `value` to addresses (pointer lanes), lowest lane first; masked-off lanes write nothing."""
    scatter_elements(b, to_memory(lanes(b, d, value, width), d), addresses, mask, d.itemsize)
