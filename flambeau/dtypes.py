"""Element types: PyTorch's dtype objects, and the three-category promotion rule.

Bottom of the house: imports nothing of flambeau, so that every layer, the compiler included, can name a dtype.
"""

from __future__ import annotations

from math import inf
from struct import pack, unpack
from typing import Any, Final


class dtype:
    """An element type. One object exists per type, so `is` compares.

    Attributes: `name` ("float32"), `itemsize` (bytes an element), `numpy_name` (None where NumPy has no such type),
    `category` (0 bool, 1 integer, 2 floating, 3 complex), `is_floating_point`, `is_complex`, `is_signed`.
    """

    __slots__ = ("category", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy_name")

    name: str
    itemsize: int
    category: int
    numpy_name: str | None
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __init__(self, name: str, itemsize: int, category: int, numpy_name: str | None, is_signed: bool | None = True) -> None:
        self.name = name
        self.itemsize = itemsize
        self.category = category
        self.numpy_name = numpy_name
        self.is_floating_point = category == 2
        self.is_complex = category == 3
        if is_signed is not None:
            self.is_signed = is_signed

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        # The name of the object in the module that the class says: in this one `bool` is Python's, in torch (as_torch.py) it is the dtype.
        return "bool_" if self.name == "bool" and type(self).__module__ == __name__ else self.name

    def __getattr__(self, name: str) -> Any:
        if name == "is_signed":  # left out of the quantized ones
            raise RuntimeError("is_signed() is not supported for quantized dtypes: their integers are " + repr(INTEGER_OF[self]))
        raise AttributeError(f"'torch.dtype' object has no attribute {name!r}")

    def to_real(self) -> dtype:
        """The dtype of the real part of a complex dtype; any other dtype is its own."""
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        """The complex dtype whose parts have this floating dtype."""
        return _COMPLEX.get(self, self)


bool_: Final = dtype("bool", 1, 0, "bool", is_signed=False)
uint8: Final = dtype("uint8", 1, 1, "uint8", is_signed=False)
int8: Final = dtype("int8", 1, 1, "int8")
int16: Final = dtype("int16", 2, 1, "int16")
int32: Final = dtype("int32", 4, 1, "int32")
int64: Final = dtype("int64", 8, 1, "int64")
float16: Final = dtype("float16", 2, 2, "float16")
bfloat16: Final = dtype("bfloat16", 2, 2, None)
float32: Final = dtype("float32", 4, 2, "float32")
float64: Final = dtype("float64", 8, 2, "float64")
complex64: Final = dtype("complex64", 8, 3, "complex64")
complex128: Final = dtype("complex128", 16, 3, "complex128")

uint16: Final = dtype("uint16", 2, 1, "uint16", is_signed=False)
uint32: Final = dtype("uint32", 4, 1, "uint32", is_signed=False)
uint64: Final = dtype("uint64", 8, 1, "uint64", is_signed=False)
complex32: Final = dtype("complex32", 4, 3, None)
float8_e4m3fn: Final = dtype("float8_e4m3fn", 1, 2, None)
float8_e5m2: Final = dtype("float8_e5m2", 1, 2, None)
float8_e4m3fnuz: Final = dtype("float8_e4m3fnuz", 1, 2, None)
float8_e5m2fnuz: Final = dtype("float8_e5m2fnuz", 1, 2, None)
float8_e8m0fnu: Final = dtype("float8_e8m0fnu", 1, 2, None, is_signed=False)
float4_e2m1fn_x2: Final = dtype("float4_e2m1fn_x2", 1, 2, None)

ALL: Final = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128)
UNSIGNED: Final = (uint16, uint32, uint64)
FLOATS8: Final = (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu)
# Dtypes that PyTorch stores and converts, and for which it has few functions (ops/dtype_rules.py).
LIMITED: Final = frozenset((*UNSIGNED, *FLOATS8, float4_e2m1fn_x2, complex32))
HELD: Final = (*ALL, *UNSIGNED, *FLOATS8, float4_e2m1fn_x2, complex32)
BY_NAME: Final = {d.name: d for d in HELD}

# What quantized tensors say of themselves (quantized/tensor.py): integers of `INTEGER_OF`, with a scale and a zero point beside them.
QUANTIZED: Final = tuple(
    [dtype(n, size, 1, None, is_signed=None) for n, size in (("quint8", 1), ("qint8", 1), ("qint32", 4), ("quint4x2", 1), ("quint2x4", 1))]
)
quint8, qint8, qint32, quint4x2, quint2x4 = QUANTIZED
INTEGER_OF: Final = {quint8: uint8, qint8: int8, qint32: int32, quint4x2: uint8, quint2x4: uint8}

# Dtypes that programs name (in tables of formats, in checks of what a file holds) and of which no tensor can be made here.
NAMED: Final = (
    *[dtype(f"uint{bits}", 1, 1, None, is_signed=False) for bits in range(1, 8)],
    *[dtype(f"int{bits}", 1, 1, None) for bits in range(1, 8)],
    *[dtype(f"bits{name}", size, 1, None, is_signed=False) for name, size in (("1x8", 1), ("2x4", 1), ("4x2", 1), ("8", 1), ("16", 2))],
    *QUANTIZED,
)  # fmt: skip
NAMED_BY_NAME: Final = {d.name: d for d in NAMED}


def not_held(d: dtype) -> NotImplementedError:
    """The error of making a tensor of a dtype that has only a name, or of making a quantized one from nothing."""
    if d in QUANTIZED:
        return NotImplementedError(f"{d!r}: tensors of this dtype are made by torch.quantize_per_tensor and torch.quantize_per_channel")
    return NotImplementedError(f"{d!r}: flambeau has no tensors of this dtype; keep the bytes in a tensor of uint8")


def __getattr__(name: str) -> dtype:
    if name in NAMED_BY_NAME:  # as pickles name them
        return NAMED_BY_NAME[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_REAL = {complex32: float16, complex64: float32, complex128: float64}
_COMPLEX = {float16: complex32, bfloat16: complex64, float32: complex64, float64: complex128}

# Order within a category: the wider type wins; the mixed pairs that have no wider member are listed apart.
_RANK = {d: rank for rank, d in enumerate((*ALL[:-2], complex32, *ALL[-2:]))}
_MIXED = {
    frozenset((uint8, int8)): int16,
    frozenset((float16, bfloat16)): float32,
}
_DEFAULT: list[dtype] = [float32]


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype to which both can be cast, as `torch.promote_types`."""
    a, b = of_type(type1), of_type(type2)
    if a is b and isinstance(a, dtype):
        return a
    if not (isinstance(a, dtype) and isinstance(b, dtype)):
        raise TypeError(f"promote_types(): arguments must be torch.dtype, not {type(a).__name__} and {type(b).__name__}")
    for d in (a, b):
        if d in NAMED:
            raise not_held(d)
    if a.category < b.category:
        a, b = b, a
    if a in LIMITED or b in LIMITED:
        _promote_limited(a, b)
    if a.category != b.category:
        if a.is_complex and b.category == 2:
            b = b.to_complex()
            return a if _RANK[a] >= _RANK[b] else b
        return a
    mixed = _MIXED.get(frozenset((a, b)))
    if mixed is not None:
        return mixed
    return a if _RANK[a] >= _RANK[b] else b


# What PyTorch calls dtypes in its errors.
C_NAMES: Final = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble", "complex32": "ComplexHalf",
    **{d.name: "UInt" + d.name[4:] for d in UNSIGNED}, **{d.name: d.name.capitalize() for d in (*FLOATS8, float4_e2m1fn_x2)},
}  # fmt: skip


def _promote_limited(a: dtype, b: dtype) -> None:
    """RuntimeError if PyTorch has no common dtype of two different ones, `a` of the higher category."""
    pair = f"attempted to promote {C_NAMES[a.name]} and {C_NAMES[b.name]}"
    if (a.itemsize == 1 and a.category == 2) or (b.itemsize == 1 and b.category == 2):
        raise RuntimeError(f"Promotion for Float8 Types is not supported, {pair}: convert one of them first with .to(dtype)")
    if a in UNSIGNED or (b in UNSIGNED and a.category != 2):
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, {pair}: convert one of them first with .to(dtype)")


def get_default_dtype() -> dtype:
    """The dtype of new floating tensors: float32 unless `set_default_dtype` changed it."""
    return _DEFAULT[0]


def set_default_dtype(d: dtype) -> None:
    """Make `d` (a floating dtype) the dtype of new floating tensors."""
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"set_default_dtype: only floating-point types can be the default type, got {d!r}")
    if d in LIMITED or d in NAMED:
        raise TypeError(f"set_default_dtype(): couldn't find storage object {C_NAMES.get(d.name, d.name)}Storage: {d!r} cannot be the dtype of new tensors")
    _DEFAULT[0] = d


_OF_TYPE = {bool: bool_, int: int64, float: float64, complex: complex128}


def of_type(value: object) -> object:
    """The dtype that one of Python's classes of numbers stands for, where a dtype is asked for; anything else as it is."""
    return _OF_TYPE.get(value, value) if value.__class__ is type else value  # type: ignore[call-overload]


def of_number(value: object) -> dtype:
    """The dtype of a Python number as PyTorch's promotion sees it."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return get_default_dtype()
    if isinstance(value, complex):
        return get_default_dtype().to_complex()
    raise TypeError(f"not a Python number: {type(value).__name__}")


def held(number: float, d: dtype) -> float:
    """A Python float as a floating dtype holds it: rounded to it, to 16 and 8 bits by way of float32, as PyTorch does."""
    if d.itemsize == 8:
        return number
    try:
        single: float = unpack("<f", pack("<f", number))[0]
    except OverflowError:
        single = inf if number > 0 else -inf
    if d is float16:
        try:
            return float(unpack("<e", pack("<e", single))[0])
        except OverflowError:
            return inf if single > 0 else -inf
    if d in FLOATS8:
        from flambeau.small_floats import rounded

        return rounded(single, d.name)
    if d is bfloat16 and single == single:
        bits = unpack("<I", pack("<f", single))[0]
        return float(unpack("<f", pack("<I", (bits + ((bits >> 16) & 1) + 0x7FFF) & 0xFFFF0000))[0])
    return single
