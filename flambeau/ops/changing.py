"""Numbers that change: float arguments that stand in the key of an edge, until they have a second value; then they are given at run time.

The first value of such an argument is a constant of the edges and kernels. Once an operation meets another value of the same class (float or
int), the argument's kind becomes "changing": the key has the class in place of the value, and bodies get a placeholder, as for other run-time
numbers. So a sweep over it makes nothing anew. Bits are the same either way: arithmetic among numbers is in float64 as Python's, and a constant
is rounded to a tensor's dtype as a number is. What a body asks of the number limits the values for which that holds (trace/looks.py): others,
infinities and NaN stand in the key as before. Where a body asks for the value itself, the argument stays in the key for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from flambeau.ops.wrapper import equip_again
from flambeau.statistics import counters
from flambeau.trace.looks import MOST, MOST_INT, Looked, hold

if TYPE_CHECKING:
    from flambeau.ops.registry import Operation
    from flambeau.trace.recorder import Fragment

ANNOTATIONS: Final = frozenset(("float", "float | None", "Whole"))  # of the arguments that may change

_CHANGED: Final = {"static": "changing", "exponent": "operand"}  # the kinds of arguments that do

Kind = tuple[int, type]  # an argument's position, and the class of its numbers


class Limits:
    """Between what the numbers of one argument and class are given at run time, and which are not, although they are between."""

    __slots__ = ("apart", "high", "low")

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high
        self.apart: frozenset[float] = frozenset()

    def __str__(self) -> str:
        among = "finite floats" if (self.low, self.high) == (-MOST, MOST) else f"floats from {self.low:g} to {self.high:g}"
        return among + (f" but {', '.join(map(str, sorted(self.apart)))}" if self.apart else "")


class Changing:
    """What an operation knows of its float arguments: `first` values, those that are `fixed`, and by what `limits` the others are held."""

    __slots__ = ("first", "fixed", "limits", "op", "own", "positions")

    def __init__(self, op: Operation, positions: Sequence[int]) -> None:
        self.op = op
        self.positions = tuple(positions)
        self.own = {i: op.kinds[i] for i in positions}  # their kinds as long as they do not change
        self.first: dict[Kind, Any] = {}
        self.fixed: set[Kind] = set()
        self.limits: dict[Kind, Limits] = {}

    def meets(self, key: Sequence[Any], args: Sequence[Any]) -> bool:
        """Asked where an edge is new: whether an argument has its second value. Then it is a run-time number from now on, and the key is another one."""
        found = False
        for i in self.positions:
            a = args[i]
            kind = i, a.__class__
            most: float = MOST if kind[1] is float else MOST_INT if kind[1] is int and self.own[i] == "static" else -inf
            if kind in self.fixed or kind in self.limits or most < 0 or not -most <= a <= most:
                continue
            first = self.first.setdefault(kind, a)
            if pack("d", first) != pack("d", a):
                self.limits[kind] = Limits(-most, most)
                self._tell(i)
                found = True
        return found

    def kinds(self, key: Sequence[Any]) -> list[str]:
        """The kinds of the arguments as the key has them: another thread may have changed the operation's since it was made."""
        kinds = list(self.op.kinds)
        for i in self.positions:
            kinds[i] = _CHANGED[self.own[i]] if key[i + 1] is float or key[i + 1] is int else self.own[i]
        return kinds

    def enter(self, fragment: Fragment, key: Sequence[Any], placeholders: Sequence[Any], args: Sequence[Any]) -> None:
        """Tell the fragment which of its parameters are such numbers."""
        for i in self.positions:
            if key[i + 1] is float or key[i + 1] is int:
                slot = placeholders[i]._slot
                fragment.changing[slot] = (i, args[i])
                hold(fragment, slot, (-MOST, MOST) if key[i + 1] is float else (-MOST_INT, MOST_INT))

    def narrow(self, fragment: Fragment) -> None:
        """Before an edge is made: its limits are the operation's from now on, so that no key leads to an edge that is not for the number."""
        for slot, (low, high) in fragment.within.items():
            i, number = fragment.changing[slot]
            limits = self.limits.get((i, number.__class__))
            if limits is not None:
                limits.low, limits.high = max(low, limits.low), min(high, limits.high)
                limits.apart |= fragment.apart.get(slot, frozenset())
                self._tell(i)  # whether or not they are others: an interrupt may have come before they were told

    def otherwise(self, fragment: Fragment, error: BaseException) -> Callable[[Sequence[Any]], Any] | None:
        """After an error in a body that was given such numbers: how to call the operation again. None: the error is its own."""
        if not fragment.changing or not isinstance(error, Exception):
            return None
        given = fragment.changing if not isinstance(error, Looked) else {slot: fragment.changing[slot] for slot in error.slots}
        kinds = [(i, number.__class__) for i, number in given.values()]
        if not isinstance(error, Looked):
            return lambda args: self._without(kinds, args)
        if error.equal is None:
            self._fix(kinds, "its body looks at the value")
        else:
            for kind in kinds:
                if kind in self.limits:
                    self.limits[kind].apart |= {error.equal}
                    self._tell(kind[0])
        return self.op.call

    def _without(self, kinds: Sequence[Kind], args: Sequence[Any]) -> Any:
        """The call with constants. If it fails, too, that is the caller's error; else the body cannot take run-time numbers."""
        before = {kind: self.limits[kind] for kind in kinds if kind in self.limits}
        self._fix(kinds, "its body fails with a run-time number")
        try:
            return self.op.call(args)
        except BaseException:
            for kind, limits in before.items():
                self.fixed.discard(kind)
                self.limits[kind] = limits
                self._tell(kind[0])
            raise

    def _fix(self, kinds: Sequence[Kind], reason: str) -> None:
        for kind in kinds:
            self.fixed.add(kind)
            self.limits.pop(kind, None)
            self._tell(kind[0], reason)

    def _tell(self, i: int, reason: str = "") -> None:
        """Let the wrapper and native code know of an argument's limits."""
        op = self.op
        floats, whole = self.limits.get((i, float)), self.limits.get((i, int))
        kind = self.own[i] if floats is None and whole is None else _CHANGED[self.own[i]]
        scope = op.function.__globals__
        scope[f"APART{i}"] = frozenset() if floats is None else floats.apart
        scope[f"LOW{i}"], scope[f"HIGH{i}"] = (inf, -inf) if floats is None else (floats.low, floats.high)
        scope[f"INT{i}"] = -1 if whole is None else MOST_INT
        if op.kinds[i] != kind:
            op.kinds = tuple([kind if j == i else k for j, k in enumerate(op.kinds)])
            equip_again(op)
        notes = [str(floats)] * (floats is not None) + ["ints"] * (whole is not None)
        counters.changing_numbers[f"{op.name}.{op.names[i]}"] = f"at run time: {', '.join(notes)}" if notes else f"in the key: {reason}"
