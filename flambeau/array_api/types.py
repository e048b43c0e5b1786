"""Data types, their limits and kinds, and what this library offers."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor

_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_KINDS: dict[str, tuple[Any, ...]] = {
    "bool": (torch.bool,),
    "signed integer": _SIGNED,
    "unsigned integer": (torch.uint8,),
    "integral": (*_SIGNED, torch.uint8),
    "real floating": (torch.float32, torch.float64),
    "complex floating": (torch.complex64, torch.complex128),
    "numeric": (*_SIGNED, torch.uint8, torch.float32, torch.float64, torch.complex64, torch.complex128),
}
_DTYPES = {str(d).removeprefix("torch."): d for d in (torch.bool, *_KINDS["numeric"])}


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The values in another dtype; without `copy`, x itself if it has it."""
    if x.dtype.is_complex and not dtype.is_complex and dtype is not torch.bool:
        raise TypeError(f"astype: a complex array cannot become {dtype}; take its real or imaginary part")
    return x.to(dtype, copy=copy)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion leads from a dtype (or an array's) to another: no value of it is lost by kind."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    try:
        return torch.promote_types(source, to) is to
    except RuntimeError:
        return False


def finfo(type: Any, /) -> Any:
    """The limits of a floating dtype, or of an array's."""
    d = type.dtype if isinstance(type, Tensor) else type
    return torch.finfo(d.to_real() if d.is_complex else d)


def iinfo(type: Any, /) -> Any:
    """The limits of an integer dtype, or of an array's."""
    return torch.iinfo(type.dtype if isinstance(type, Tensor) else type)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of the standard, a dtype, or a tuple of them. ValueError for an unknown name."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}; there are {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return bool(dtype is kind)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that arrays, dtypes and Python numbers have in common."""
    kinds = [a.dtype if isinstance(a, Tensor) else a for a in arrays_and_dtypes if not isinstance(a, (bool, int, float, complex))]
    if not kinds:
        raise ValueError("result_type: one array or dtype at least is needed")
    found = kinds[0]
    for kind in kinds[1:]:
        found = torch.promote_types(found, kind)
    for number in arrays_and_dtypes:
        if isinstance(number, (bool, int, float, complex)):
            found = torch.result_type(torch.empty(1, dtype=found), number)
    return found


class Info:
    """What `__array_namespace_info__` gives."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indices and data-dependent shapes work; there are at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The CPU."""
        return torch.device("cpu")

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays made without one."""
        real = torch.get_default_dtype()
        return {
            "real floating": real, "complex floating": torch.complex128 if real is torch.float64 else torch.complex64,
            "integral": torch.int64, "indexing": torch.int64,
        }  # fmt: skip

    def devices(self) -> list[Any]:
        """The CPU."""
        return [torch.device("cpu")]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of a kind, by name."""
        return {name: d for name, d in _DTYPES.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """What this library offers: devices, dtypes, defaults."""
    return Info()


def array_namespace() -> ModuleType:
    """`Tensor.__array_namespace__()`."""
    return sys.modules[__name__.rpartition(".")[0]]


__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]
