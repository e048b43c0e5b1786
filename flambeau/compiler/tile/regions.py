"""The functions of reductions and scans in lanes: a region applied to values, and what leaves its operand as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from flambeau.compiler.emit.lanes import Lanes, literal
from flambeau.compiler.tile.forms import Uniform, element_of
from flambeau.compiler.tile.ir import Region
from flambeau.compiler.tile.reading import Reading
from flambeau.dtypes import bool_, dtype

_LEAST: Final = ("maximum", "fmax")
_MOST: Final = ("minimum", "fmin")


def identity(region: Region) -> str | None:
    """The LLVM constant that changes nothing in a region of one associative operation on its two parameters; None for any other."""
    if len(region.ops) != 1 or len(region.params) != 2 or region.ops[0].kind != "pointwise":
        return None
    op = region.ops[0]
    if set(map(id, op.operands)) != set(map(id, region.params)) or region.results != op.results:
        return None
    d = region.params[0].type.dtype
    name, element = op.attrs["op"], element_of(d)
    if d is bool_:
        known = {"bitwise_or": False, "bitwise_and": True, "bitwise_xor": False, "maximum": False, "minimum": True, "add": False, "mul": True}
        return None if name not in known else literal(element, known[name])
    if name in ("add", "mul", "bitwise_or", "bitwise_xor", "bitwise_and"):
        number = -0.0 if d.category == 2 else 0
        return literal(element, {"mul": 1, "bitwise_and": -1}.get(name, number))
    if name in _LEAST or name in _MOST:
        return literal(element, _extreme(d, name in _LEAST))
    return None


def _extreme(d: dtype, least: bool) -> int | float:
    if d.category == 2:
        return -math.inf if least else math.inf
    bits = 8 * d.itemsize
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if d.is_signed else (0, (1 << bits) - 1)
    return low if least else high


def combined(reading: Reading, region: Region, left: Sequence[Lanes], right: Sequence[Lanes]) -> list[Lanes]:
    """What a region makes of two values (or tuples of them)."""
    width = left[0].width
    known = {id(p): x for p, x in zip(region.params, [*left, *right], strict=True)}
    for op in region.ops:
        if op.kind == "constant":
            form = reading.at(op.results[0], ())
            assert isinstance(form, Uniform)
            known[id(op.results[0])] = reading.spread(form, op.results[0].type.element, width)
            continue
        values = [known[id(o)] for o in op.operands]
        last = op.operands[-1].type.element
        if op.kind == "bitcast":
            result = reading.bitcast(values[0], last, op.attrs["element"])
        else:
            result = reading.apply(op.attrs["op"], last, values, width, op.attrs["dtype"])
        known[id(op.results[0])] = result
    return [known[id(v)] for v in region.results]
