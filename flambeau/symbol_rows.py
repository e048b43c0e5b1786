"""Expressions over sizes (symbols.py) as rows of numbers, strings and lists, which JSON can hold, and as texts that are the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from flambeau.symbols import OPERATORS, Expr, Recording, Sym, SymFloat, mapped, operands_first, terms_of

SYMBOL = "symbol"  # the key of an object that stands for a symbol: its value is a row's number


class Rows:
    """The rows of some expressions, each after those that it names.

    A size is ["size", its number], a polynomial ["sum", [[how often, [rows]], ...]], all else [operator, a, b]. Of `a` and `b` a list is a row's number,
    all else a number, or None where there is no second one.
    """

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._at: dict[int, int] = {}
        self._held: list[Expr] = []  # so that no other gets the number of one of them

    def row(self, e: Expr) -> int:
        """The number of an expression's row."""
        at = self._at
        for top in operands_first(e, at):
            row: list[Any]
            if top.op == "size":
                row = ["size", top.a]
            elif top.op == "sum":
                row = ["sum", [[count, [at[id(x)] for x in product]] for product, count in terms_of(top).items()]]
            else:
                row = [top.op, self.operand(top.a), self.operand(top.b)]
            at[id(top)] = len(self.rows)
            self.rows.append(row)
            self._held.append(top)
        return at[id(e)]

    def operand(self, x: Any) -> Any:
        """An expression as a list of its row's number; anything else as it is."""
        return [self.row(x)] if x.__class__ is Expr else x

    def plain(self, x: Any) -> Any:
        """Nested lists and tuples in which objects stand for symbols."""
        cls = x.__class__
        if cls is Sym or cls is SymFloat:
            return {SYMBOL: self.row(x.expr)}
        return [self.plain(y) for y in x] if cls is list or cls is tuple else x


def values_of(rows: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """What rows are at given sizes. ArithmeticError where there is no such number, IndexError where there are too few sizes."""
    values: list[Any] = []
    for op, a, *rest in rows:
        if op == "size":
            values.append(sizes[a])
        elif op == "sum":
            total = 0
            for count, product in a:
                for factor in product:
                    count *= values[factor]
                total += count
            values.append(total)
        else:
            (b,) = rest
            values.append(OPERATORS[op](value_at(a, values), value_at(b, values)))
    return values


def value_at(operand: Any, values: Sequence[Any]) -> Any:
    """What an operand of a row (`Rows.operand`) is among the rows' values or expressions."""
    return values[operand[0]] if operand.__class__ is list else operand


def expressions_of(rows: Sequence[Any], rec: Recording) -> list[Expr]:
    """The expressions of rows: those objects that a recording has for them."""
    made: list[Any] = []
    for op, a, *rest in rows:
        if op == "size":
            made.append(rec.size(a).expr)
        elif op == "sum":
            made.append(rec.polynomial({tuple(sorted([made[i] for i in product], key=id)): count for count, product in a}))
        else:
            made.append(rec.expr(op, value_at(a, made), value_at(rest[0], made)))
    return made


class Texts:
    """Texts of expressions. Equal ones have the same in every process; the factors of a product have no order."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._held: list[Expr] = []

    def text(self, e: Expr) -> str:
        """A short text that tells an expression from all others."""
        known = self._known
        for top in operands_first(e, known):
            if top.op == "sum":
                facts: Any = sorted([(sorted([known[id(x)] for x in product]), count) for product, count in terms_of(top).items()])
            else:
                facts = [known[id(x)] if x.__class__ is Expr else (type(x).__name__, x) for x in (top.a, top.b)]
            known[id(top)] = blake2b(repr((top.op, facts)).encode(), digest_size=16).hexdigest()
            self._held.append(top)
        return known[id(e)]

    def plain(self, x: Any) -> Any:
        """A number or nested tuples of numbers, in which texts stand for symbols."""
        return mapped(x, lambda symbol: (SYMBOL, self.text(symbol.expr)))
