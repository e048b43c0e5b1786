"""Numbers that change: float arguments that stand in the key of an edge, until they have a second value; then they are given at run time.

The first value of such an argument is a constant of the edges and kernels. Once an operation meets another value, the argument's kind becomes
"changing": the key has its class in place of its value, and bodies get a placeholder, as for other run-time numbers. So a sweep over it
makes nothing anew. Bits are the same either way: arithmetic among numbers is in float64 as Python's, and a constant is rounded to a tensor's
dtype as a number is. What a body asks of the number limits the values for which that holds (trace/looks.py): others, infinities and NaN
stand in the key as before. Where a body asks for the value itself, the argument stays in the key for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nextafter
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from flambeau.ops.wrapper import equip_again
from flambeau.statistics import counters
from flambeau.trace.looks import MOST, Looked, hold

if TYPE_CHECKING:
    from flambeau.ops.registry import Operation
    from flambeau.trace.recorder import Fragment

ANNOTATIONS: Final = frozenset(("float", "float | None"))  # of the arguments that may change


class Changing:
    """What an operation knows of its float arguments: `first` values by position, those that are `fixed`, and by what limits the others are held."""

    __slots__ = ("first", "fixed", "limits", "op", "positions")

    def __init__(self, op: Operation, positions: Sequence[int]) -> None:
        self.op = op
        self.positions = tuple(positions)
        self.first: dict[int, float] = {}
        self.fixed: set[int] = set()
        self.limits: dict[int, tuple[float, float]] = {}

    def meets(self, key: Sequence[Any], args: Sequence[Any]) -> bool:
        """Asked where an edge is new: whether an argument has its second value. Then it is a run-time number from now on, and the key is another one."""
        found = False
        for i in self.positions:
            a = args[i]
            if a.__class__ is not float or i in self.fixed or i in self.limits or not -MOST <= a <= MOST:
                continue
            first = self.first.setdefault(i, a)
            if pack("d", first) != pack("d", a):
                self._set(i, "changing", (-MOST, MOST))
                found = True
        return found

    def kinds(self, key: Sequence[Any]) -> list[str]:
        """The kinds of the arguments as the key has them: another thread may have changed the operation's since it was made."""
        return [k if i not in self.positions else "changing" if key[i + 1] is float else "static" for i, k in enumerate(self.op.kinds)]

    def enter(self, fragment: Fragment, key: Sequence[Any], placeholders: Sequence[Any], args: Sequence[Any]) -> None:
        """Tell the fragment which of its parameters are such numbers."""
        for i in self.positions:
            if key[i + 1] is float:
                slot = placeholders[i]._slot
                fragment.changing[slot] = (i, args[i])
                hold(fragment, slot, (-MOST, MOST))

    def narrow(self, fragment: Fragment) -> None:
        """The edge has been made: its limits are the operation's from now on, so that no key leads to an edge that is not for the number."""
        for slot, (low, high) in fragment.within.items():
            i = fragment.changing[slot][0]
            if i in self.limits:
                self._set(i, "changing", (max(low, self.limits[i][0]), min(high, self.limits[i][1])))

    def otherwise(self, fragment: Fragment, error: BaseException) -> Callable[[Sequence[Any]], Any] | None:
        """After an error in a body that was given such numbers: how to call the operation again. None: the error is its own."""
        if not fragment.changing or not isinstance(error, Exception):
            return None
        if isinstance(error, Looked):
            positions = [fragment.changing[slot][0] for slot in error.slots]
            if error.equal is not None:
                for i in positions:
                    low, high = self.limits.get(i, (-MOST, MOST))
                    self._set(i, "changing", (low, nextafter(error.equal, -inf)) if self.first[i] < error.equal else (nextafter(error.equal, inf), high))
            else:
                self._fix(positions, "its body looks at the value")
            return self.op.call
        return lambda args: self._without([i for i, _ in fragment.changing.values()], args)

    def _without(self, positions: Sequence[int], args: Sequence[Any]) -> Any:
        """The call with constants. If it fails, too, that is the caller's error; else the body cannot take run-time numbers."""
        before = {i: self.limits[i] for i in positions if i in self.limits}
        self._fix(positions, "its body fails with a run-time number")
        try:
            return self.op.call(args)
        except BaseException:
            for i, limits in before.items():
                self.fixed.discard(i)
                self._set(i, "changing", limits)
            raise

    def _fix(self, positions: Sequence[int], reason: str) -> None:
        for i in positions:
            self.fixed.add(i)
            self.limits.pop(i, None)
            self._set(i, "static", (inf, -inf), reason)

    def _set(self, i: int, kind: str, limits: tuple[float, float], note: str = "") -> None:
        """Give an argument a kind. The wrapper looks at the limits last, so that another thread's key is one of the two at any time."""
        op = self.op
        scope = op.function.__globals__
        if kind == "static":
            scope[f"LOW{i}"], scope[f"HIGH{i}"] = limits
        else:
            self.limits[i] = limits
        if op.kinds[i] != kind:
            op.kinds = tuple([kind if j == i else k for j, k in enumerate(op.kinds)])
            equip_again(op)
        if kind != "static":
            scope[f"LOW{i}"], scope[f"HIGH{i}"] = limits
        counters.changing_numbers[f"{op.name}.{op.names[i]}"] = f"in the key: {note}" if note else f"at run time from {limits[0]:g} to {limits[1]:g}"
