"""What an operation's body may ask of a number that is given at run time: how it compares with numbers that it knows.

The body of an edge runs once, and the edge is taken with other numbers later. So an answer is kept as limits: between them every number has the
same answer, and who takes the edge compares (limits.py). What cannot be told so ends in `Looked`: such an argument is not given at run time.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping
from math import inf, nextafter
from sys import float_info
from typing import TYPE_CHECKING, Any, Final

from flambeau import dtypes
from flambeau.runtime import buffers
from flambeau.trace.limits import Limit
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Fragment

NO_TENSORS: Final = frozenset(("static", "changing", "number"))  # kinds of arguments that are never tensors (ops/registry.py)
MOST: Final = float_info.max  # infinities and NaN are no run-time numbers where a body may look
MOST_INT: Final = 1 << 31  # products of two have 64 bits, as those that Python computes have any number
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
_SWAPPED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class Looked(Exception):
    """A body has asked for the values of run-time numbers, in `slots`. `equal`: it asked whether the number is this one, and it is."""

    def __init__(self, slots: tuple[int, ...], equal: float | None = None) -> None:
        super().__init__("an operation's body looks at a number")
        self.slots = slots
        self.equal = equal


def answer(fragment: Fragment, t: Tensor) -> Storage:
    """The storage of a comparison's answer, whose value a body asks for; its limits go to the fragment. Looked, if there are none."""
    numbers = fragment.changing
    if not numbers:
        raise RuntimeError("an operation's body must not look at the values of tensors (item, bool, numpy, print, ...)")
    made = next((node for node in fragment.nodes if t._slot in node.outputs), None)
    if made is None or made.op not in _COMPARISONS:
        raise Looked(behind(fragment, t._slot) or tuple(numbers))
    (a, x), (b, y) = (_source(fragment, slot) for slot in made.inputs)
    op = made.op
    if a is not None and b is not None:
        return _compared(fragment, a, b, _COMPARISONS[op])
    if a is None:
        a, y, op = b, x, _SWAPPED[op]
    if a is None or y is None or y != y:
        raise Looked(behind(fragment, t._slot) or tuple(numbers))
    number = numbers[a][1]
    found = _COMPARISONS[op](number, y)
    if number.__class__ is int:
        raise Looked((a,))
    if op in ("eq", "ne"):
        if number == y:
            raise Looked((a,), y)
        fragment.limits.append(Limit(fragment.parameters.index(a), True, dtypes.float64, "", (y, y), True))
        fragment.apart.setdefault(a, set()).add(y)
        return _stored(found)
    least, most = (y, nextafter(y, -inf)) if op in ("lt", "ge") else (nextafter(y, inf), y)
    hold(fragment, a, (least, MOST) if number >= least else (-MOST, most))
    return _stored(found)


def _compared(fragment: Fragment, a: int, b: int, compare: Callable[[float, float], bool]) -> Storage:
    """The answer to how two run-time numbers compare: between them is a number that neither may pass."""
    x, y = fragment.changing[a][1], fragment.changing[b][1]
    if a != b:  # no NaN is given at run time
        if x.__class__ is int or y.__class__ is int:
            raise Looked((a, b))
        if x == y:
            raise Looked((a,), y)
        (low, less), (high, _) = ((a, x), (b, y)) if x < y else ((b, y), (a, x))
        cut = 0.0 if less <= 0.0 < max(x, y) else less + (max(x, y) - less) / 2
        if not less <= cut < max(x, y):
            cut = less
        hold(fragment, low, (-MOST, cut))
        hold(fragment, high, (nextafter(cut, inf), MOST))
    return _stored(compare(x, y))


def _stored(found: bool) -> Storage:
    buffer = buffers.allocate(8)
    ctypes.c_bool.from_address(buffer.address).value = found
    return Storage(buffer)


def refuse_numbers(fragment: Fragment, attrs: Mapping[str, Any]) -> None:
    """Looked, if a run-time number is an attribute of a primitive: what is compiled depends on it."""
    if _holds(tuple(attrs.values())):
        raise Looked(tuple(fragment.changing))


def _holds(x: Any) -> bool:
    """Whether there is a tensor in an attribute."""
    if isinstance(x, (tuple, list)):
        return any(_holds(y) for y in x)
    return _holds(tuple(x.items())) if isinstance(x, dict) else hasattr(x, "_slot")


def hold(fragment: Fragment, slot: int, limits: tuple[float, float]) -> None:
    """What is recorded is right for a run-time number within these limits."""
    is_float = limits[0].__class__ is float
    fragment.limits.append(Limit(fragment.parameters.index(slot), is_float, dtypes.float64 if is_float else dtypes.int64, "", limits))
    low, high = fragment.within.get(slot, limits)
    fragment.within[slot] = max(low, limits[0]), min(high, limits[1])


def _source(fragment: Fragment, slot: int) -> tuple[int | None, float | None]:
    """(a run-time number's slot, a constant of the body): one of them, where the value is such, or a cast to float64 of such a number."""
    for node in fragment.nodes:
        if slot in node.outputs:
            if node.op == "constant" and node.attr("dtype") is dtypes.float64:
                return None, float(node.attr("value"))  # type: ignore[arg-type]
            if node.op == "cast" and node.attr("dtype") is dtypes.float64:
                slot = node.inputs[0]
    return (slot if slot in fragment.changing else None), None


def behind(fragment: Fragment, slot: int) -> tuple[int, ...]:
    """The slots of the run-time numbers that a value is computed from."""
    wanted = {slot}
    for node in reversed(fragment.nodes):
        if wanted & set(node.outputs):
            wanted.update(node.inputs)
    return tuple([s for s in fragment.changing if s in wanted])
