"""Expressions of sizes as JavaScript: whole numbers, exact to 53 bits, with Python's floor division and remainder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flambeau.deploy.errors import BuildError
from flambeau.symbols import Expr, Sym, SymFloat, operands_first

_PLAIN: Final = frozenset("+-*/")
_CALLS: Final = {"//": "Math.floor({a} / {b})", "%": "({a} - {b} * Math.floor({a} / {b}))", "max": "Math.max({a}, {b})", "min": "Math.min({a}, {b})",
                 "at_most": "({a} <= {b} ? 1 : 0)", "float": "{a}", "int": "Math.trunc({a})", "**": "({a} ** {b})"}  # fmt: skip


class SizeScript:
    """Writes the lines that compute expressions of `s`, the array of sizes, each once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._held: list[Expr] = []  # so that no other gets the number of one of them

    def name(self, x: Any) -> str:
        """The text that stands for a number, a symbol or an expression once the lines have run."""
        e = x.expr if isinstance(x, Sym | SymFloat) else x
        if not isinstance(e, Expr):
            return repr(e) if isinstance(e, float) else str(int(e))
        for top in operands_first(e, self._names):
            self._held.append(top)
            self._names[id(top)] = f"s[{top.a}]" if top.op == "size" else self._line(top)
        return self._names[id(e)]

    def _line(self, e: Expr) -> str:
        name = f"t{len(self._held)}"
        self.lines.append(f"const {name} = {self._text(e)};")
        return name

    def _text(self, e: Expr) -> str:
        if e.op == "sum":
            return " + ".join([" * ".join([*([str(c)] if c != 1 or not m else []), *[self.name(f) for f in m]]) for m, c in (e.terms or {}).items()]) or "0"
        a, b = self.name(e.a), self.name(e.b) if e.b is not None else ""
        if e.op in _PLAIN:
            return f"({a} {e.op} {b})"
        if e.op in _CALLS:
            return _CALLS[e.op].format(a=a, b=b)
        raise BuildError(f"a plan has sizes that follow by {e.op!r}, which a module does not compute")

    def all_hold(self, guards: Iterable[tuple[str, Any, Any, bool]]) -> str:
        """Whether each guard gives its answer: an expression."""
        signs = {"==": ("!==", "==="), "<": (">=", "<"), "<=": (">", "<=")}
        return " && ".join([f"{self.name(a)} {signs[op][answer]} {self.name(b)}" for op, a, b, answer in guards]) or "true"


def function(arguments: str, lines: Iterable[str], result: str) -> str:
    """An arrow function."""
    body = " ".join([*lines, f"return {result};"])
    return f"({arguments}) => {{ {body} }}"
