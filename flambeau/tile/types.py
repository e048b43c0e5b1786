"""Dtypes of the tile language, under Triton's names, and blocks' and pointers' types."""

from __future__ import annotations

from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler.tile.ir import Element, Pointer


class dtype:
    """A dtype of the language: `tl.float32`. `name` is Triton's ("fp32")."""

    def __init__(self, name: str, of: dtypes.dtype) -> None:
        self.name, self.of = name, of
        self.primitive_bitwidth = 1 if of is dtypes.bool_ else 8 * of.itemsize
        self.int_bitwidth = self.primitive_bitwidth
        self.itemsize = of.itemsize

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def element_ty(self) -> dtype:
        return self

    def is_floating(self) -> bool:
        return self.of.category == 2

    def is_int(self) -> bool:
        return self.of.category < 2

    def is_bool(self) -> bool:
        return self.of is dtypes.bool_

    is_int1 = is_bool

    def is_int_signed(self) -> bool:
        return self.of.category == 1 and self.of.is_signed

    def is_int_unsigned(self) -> bool:
        return self.of.category < 2 and not self.of.is_signed

    def is_ptr(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_fp16(self) -> bool:
        return self.of is dtypes.float16

    def is_bf16(self) -> bool:
        return self.of is dtypes.bfloat16

    def is_fp32(self) -> bool:
        return self.of is dtypes.float32

    def is_fp64(self) -> bool:
        return self.of is dtypes.float64

    def is_fp8(self) -> bool:
        return self.of in dtypes.FLOATS8

    def is_int8(self) -> bool:
        return self.of is dtypes.int8

    def is_int32(self) -> bool:
        return self.of is dtypes.int32

    def is_int64(self) -> bool:
        return self.of is dtypes.int64

    def is_uint8(self) -> bool:
        return self.of is dtypes.uint8

    def is_standard_floating(self) -> bool:
        return self.of in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)

    def is_dtype(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{self.name}"


class pointer_type(dtype):
    """The type of pointers to elements of a dtype."""

    def __init__(self, element_ty: dtype, address_space: int = 1) -> None:
        super().__init__(f"pointer<{element_ty.name}>", dtypes.int64)
        self._element_ty = element_ty

    @property
    def element_ty(self) -> dtype:
        return self._element_ty

    def is_ptr(self) -> bool:
        return True

    def is_floating(self) -> bool:
        return False

    def is_int(self) -> bool:
        return False


class block_type(dtype):
    """The type of a block: a dtype and a shape."""

    def __init__(self, element_ty: dtype, shape: Any) -> None:
        super().__init__(f"<{list(shape)}, {element_ty.name}>", element_ty.of)
        self._element_ty, self.shape = element_ty, tuple(shape)

    @property
    def scalar(self) -> dtype:
        return self._element_ty

    @property
    def element_ty(self) -> dtype:
        return self._element_ty

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape


int1: Final = dtype("int1", dtypes.bool_)
int8, int16, int32, int64 = (dtype(d.name, d) for d in (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64))
uint8, uint16, uint32, uint64 = (dtype(d.name, d) for d in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64))
float8e5, float8e5b16 = dtype("fp8e5", dtypes.float8_e5m2), dtype("fp8e5b16", dtypes.float8_e5m2fnuz)
float8e4nv, float8e4b8 = dtype("fp8e4nv", dtypes.float8_e4m3fn), dtype("fp8e4b8", dtypes.float8_e4m3fnuz)
float16, bfloat16 = dtype("fp16", dtypes.float16), dtype("bf16", dtypes.bfloat16)
float32, float64 = dtype("fp32", dtypes.float32), dtype("fp64", dtypes.float64)
ALL: Final = (
    int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float8e5, float8e5b16, float8e4nv, float8e4b8, float16, bfloat16, float32, float64,
)  # fmt: skip
_OF: Final = {d.of: d for d in ALL}
BY_NAME: Final = {**{d.name: d for d in ALL}, **{d.of.name: d for d in ALL}}


def of(e: Element) -> dtype:
    """The language's dtype of an element of the IR."""
    return pointer_type(_OF[e.to]) if isinstance(e, Pointer) else _OF[e]


def element(d: Any) -> Element:
    """The IR's element of a dtype of the language (or of torch)."""
    if isinstance(d, pointer_type):
        return Pointer(d.element_ty.of)
    if isinstance(d, dtype):
        return d.of
    if isinstance(d, dtypes.dtype):
        return d
    raise TypeError(f"a dtype such as tl.float32 is wanted here, got {d!r}")
