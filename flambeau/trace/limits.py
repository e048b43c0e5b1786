"""Numbers that have no place in a dtype: RuntimeError in PyTorch's words, where the number is given.

An operation's body says which of its numbers must fit into which dtype (`fitted` in ops/promotion.py). The numbers are run-time words, so the edge
keeps it (`State.limits`), and whoever takes the edge checks the numbers of this call: two comparisons each in native code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf, isfinite, nextafter
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from flambeau.dtypes import dtype
from flambeau.runtime.untracked import record
from flambeau.small_floats import FORMATS, numbers
from flambeau.symbols import Sym

if TYPE_CHECKING:
    from flambeau.trace.state import State

# What PyTorch calls the C++ types of dtypes, in its errors.
_C_TYPES: Final = {
    "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    "float32": "float", "float64": "double", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
    "complex32": "c10::complex<c10::Half>", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    **{name: "c10::" + name.capitalize() for name in FORMATS},
}  # fmt: skip
_MOST_FLOAT: Final = {
    "float16": 65504.0, "bfloat16": 2.0**127 * (2 - 2.0**-7), "float32": 2.0**127 * (2 - 2.0**-23), "complex64": 2.0**127 * (2 - 2.0**-23),
    "complex32": 65504.0,
}  # fmt: skip
# Words of a limit in native code: which of the call's numbers, whether it is a float (2: one that must not be the least), the least, the greatest,
# whether infinities and NaN pass.
WORDS: Final = 5


@cache
def room(kind: type, d: dtype, single: bool = False) -> tuple[float, float] | None:
    """The least and the greatest finite number of a class (int or float) that has a place in dtype `d`; None: all have. `single`: see `fit`."""
    if d.name == "float4_e2m1fn_x2":
        return 0, 0  # an element is two numbers
    if d.category == 1:
        bits = 8 * d.itemsize
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if d.is_signed else ((1 - 2**bits) * (kind is int), 2**bits - 1)
    most = inf if d.category == 0 or (single and d.itemsize == 2) else _MOST_FLOAT.get(d.name, inf)
    if d.name in FORMATS:
        most = max(x for x in numbers(d.name) if isfinite(x))
    return None if most == inf else (-most, most)


def fit(x: Any, d: dtype, name: str, single: bool = False) -> Any:
    """A Python number as an element of dtype `d` is given it. RuntimeError in PyTorch's words if it overflows there (NaN and infinities in integers,
    too), OverflowError if it is an int of more than 64 bits. Unsigned integers take negative ints of their size, which wrap. `single`: of one
    element, which PyTorch fills in another way: floats of 16 bits overflow to infinities there."""
    if x.__class__ is Sym and (d.itemsize == 8 or d.category > 1):
        return x  # a size has a place there, whatever it is
    if isinstance(x, int) and not -(2**63) <= x < 2**64:
        what = "int too big to convert" if x > 0 else "can't convert negative int to unsigned"
        raise OverflowError(f"{name}(): {what}: {x} has more than 64 bits")
    if d.category == 0:
        return bool(x)
    fits = d.is_complex or not isinstance(x, complex) or not x.imag
    for part in [x.real, x.imag] if isinstance(x, complex) and d.is_complex else [x.real]:
        limits = room(int if isinstance(part, int) else float, d, single)
        fits = fits and (limits is None or (limits[0] <= part <= limits[1] if isfinite(part) else d.category >= 2))
    if not fits:
        raise RuntimeError(f"{name}(): value cannot be converted to type {_C_TYPES.get(d.name, d.name)} without overflow: got {x} for dtype {d.name}")
    made = x if d.is_complex or not isinstance(x, complex) else x.real
    if d.category == 1:
        return int(made) - 2**64 if made >= 2**63 else int(made)  # as int64, with the same bits
    return float(made) if isinstance(made, int) and made >= 2**63 else made


@record
class Limit:
    """One number of an edge: `position` among those of the call, the dtype that it must fit into (from `low` to `high`), the operation's name.

    `within`: other limits, between which a body's decisions are the same (looks.py); with `apart`, the one number for which they are not.
    """

    __slots__ = ("apart", "dtype", "float", "high", "low", "name", "passes", "position", "within")

    def __init__(self, position: int, is_float: bool, d: dtype, name: str, within: tuple[float, float] | None = None, apart: bool = False) -> None:
        self.position = position
        self.float = is_float
        self.dtype = d
        self.name = name
        self.apart = apart
        self.within = within is not None
        self.passes = is_float and within is None and d.category >= 2  # whether infinities and NaN do
        if within is not None:
            self.low, self.high = within
            return
        found = room(float if is_float else int, d)
        assert found is not None
        self.low, self.high = found
        if is_float:
            self.low, self.high = float(found[0]), float(found[1]) if float(found[1]) <= found[1] else nextafter(float(found[1]), 0.0)


def needed(kind: type, d: dtype, single: bool) -> bool:
    """Whether there are numbers of a class, of 64 bits, that have no place in a dtype."""
    found = room(kind, d, single)
    return found is not None and not (kind is int and (found[0] <= -(2**63) and found[1] >= 2**63 - 1))


def words(limits: Sequence[Limit]) -> bytes:
    """The limits of an edge for native code."""
    made = b""
    for limit in limits:
        low, high = limit.low, limit.high
        ends = pack("=2d", low, high) if limit.float else pack("=2q", max(int(low), -(2**63)), min(int(high), 2**63 - 1))
        made += pack("=2q", limit.position, 2 if limit.apart else limit.float) + ends + pack("=q", limit.passes)
    return made


def conditions(limits: Sequence[Limit], names: Sequence[str]) -> list[str]:
    """The same as Python: for each limit an expression that holds if the number, under its name, fits."""
    made = []
    for limit in limits:
        low, high, n = limit.low, limit.high, names[limit.position]
        passes = f" or {n} - {n} != 0" if limit.passes else ""
        made.append(f"{n} != {low!r}" if limit.apart else f"{low!r} <= {n} <= {high!r}{passes}")
    return made


def look_at_numbers(state: State, numbers: Sequence[Any]) -> None:
    """Before a trace takes the edge to `state`: RuntimeError if one of the call's numbers does not fit."""
    for limit in state.limits:
        number = numbers[limit.position]
        if limit.within:
            if (number == limit.low) if limit.apart else not limit.low <= number <= limit.high:
                raise AssertionError(f"the edge was made for other numbers than {number}: its key should not have led here")
        elif not limit.low <= number <= limit.high:
            fit(number, limit.dtype, limit.name)
