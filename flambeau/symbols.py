"""Sizes as symbols: ints and floats that remember how they follow from the sizes of a program's inputs, and what was asked of them.

A `Sym` is an int with the value that it has this time, and the expression that gives it at any time. Bodies, shape rules, gradient rules and the passes of
the compiler compute with it as with any int. Each question whose answer depends on the value (`n < 32`, `n == m`, a key made of it) is noted in the
`Recording` that it belongs to: a *guard*. What was recorded holds for all sizes at which every guard gives the same answer.
Where C code takes the value without asking (`range(n)`, `0.5 * n`), nothing is noted. So what is recorded is compared once with what other sizes
give without symbols, before it is used (trace/classes.py).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import index
from types import CodeType, FunctionType
from typing import Any, Final
from weakref import WeakValueDictionary

from flambeau.python_code import compiled

MOST_GUARDS: Final = 20_000  # of one recording: then it is given up


class Expr:
    """A node of an expression: `op` of `a` and `b`, which are expressions, ints or floats. A symbol: op "size", `a` its number.

    Sums and products of ints are polynomials: op "sum", `a` None, and `terms` (products of other nodes -> how often). So equal ones are one node.
    """

    __slots__ = ("__weakref__", "a", "b", "op", "terms")

    def __init__(self, op: str, a: Any, b: Any = None, terms: Terms | None = None) -> None:
        self.op = op
        self.a = a
        self.b = b
        self.terms = terms

    def __repr__(self) -> str:
        if self.op == "sum":
            return f"({' + '.join(['*'.join(map(str, (*([c] if c != 1 or not m else []), *m))) for m, c in terms_of(self).items()])})"
        return f"s{self.a}" if self.op == "size" else f"({self.a} {self.op} {self.b})" if self.b is not None else f"{self.op}({self.a})"


Terms = dict[tuple[Expr, ...], int]
MOST_TERMS: Final = 16  # of a polynomial that is multiplied out


def terms_of(x: Any) -> Terms:
    """An expression or a number as a polynomial."""
    if x.__class__ is Expr:
        return x.terms if x.terms is not None else {(x,): 1}
    return {(): x} if x else {}


_SIZES: Final[dict[int, Expr]] = {}  # the symbols, by number
_EXPRESSIONS: Final[WeakValueDictionary[Any, Expr]] = WeakValueDictionary()  # all that are alive: equal ones are one object, in whichever table
_MAKING: Final = threading.RLock()  # two threads that make the same expression get one object; a finalizer may come in between
MOST_KNOWN: Final = 1 << 14  # expressions of a table


def _expression(key: Any, op: str, a: Any, b: Any, terms: Terms | None = None) -> Expr:
    """The one expression of this key. A path is recorded in one table and planned in another: what is the same must be so there, too."""
    with _MAKING:
        found = _EXPRESSIONS.get(key)
        if found is None:
            found = _EXPRESSIONS[key] = Expr(op, a, b, terms)
        return found


def _exactly(x: Any) -> Any:
    """What tells an operand apart: equal numbers of other types or signs are others."""
    cls = x.__class__
    return id(x) if cls is Expr else x.hex() if cls is float else (cls, x)


class Table:
    """Expressions that recordings share: most plans of small calls compute the same few from the sizes of their inputs."""

    __slots__ = ("exprs", "known")

    def __init__(self) -> None:
        self.exprs: dict[Any, Expr] = {}
        self.known: dict[Any, Any] = {}  # what `whole` has given


_table: list[Table] = [Table()]


def _shared() -> Table:
    """The table of the recordings that begin now. One that is full stays with those that have it, and its expressions live as long as somebody has them."""
    if len(_table[0].known) > MOST_KNOWN or len(_table[0].exprs) > MOST_KNOWN:
        _table[0] = Table()
    return _table[0]


class TooManyGuards(Exception):
    """A recording asks so much of its sizes that it is of no use for others."""


class Recording:
    """What is asked of symbols while something is recorded. `sizes`: the values of the symbols this time."""

    __slots__ = ("count", "entry", "exprs", "guards", "hints", "known", "open", "results", "sizes", "texts", "true")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.hints = sizes  # at which sizes it is decided what only costs time (`roughly_over`)
        self.count = len(sizes)  # symbols from this number on are no sizes (`more`)
        self.entry: Any = None  # where a plan that is made of it is on disk (compiler/stored_class_plan.py)
        self.texts = False  # whether a text of a symbol may decide something: of kernels' keys it does, in a body it is for an error's message
        table = _shared()
        self.exprs, self.known = table.exprs, table.known
        self.results: dict[Any, Any] = {}  # the symbols of what `whole` has given: (operator, left, right) -> a Sym or an int
        self.guards: dict[Any, tuple[str, Any, Any, bool]] = {}  # (operator, left, right, the answer)
        self.true: dict[Any, Any] = {}  # questions that have the same answer at any sizes, and what they are about
        self.open = True

    def whole(self, op: str, a: Any, b: Any) -> Any:
        """The expression of `a op b` of ints, as simple as it is found to be: it may be a number."""
        known = self.known.get((op, a, b))
        if known is None:
            known = self.known[op, a, b] = self._whole(op, a, b)
        return known

    def _whole(self, op: str, a: Any, b: Any) -> Any:
        if op in "+-":
            terms = dict(terms_of(a))
            for m, c in terms_of(b).items():
                total = terms.get(m, 0) + (c if op == "+" else -c)
                if total:
                    terms[m] = total
                else:
                    terms.pop(m, None)
            return self.polynomial(terms)
        if op == "*":
            left, right = terms_of(a), terms_of(b)
            if len(left) * len(right) <= MOST_TERMS:
                terms = {}
                for m, c in left.items():
                    for n, d in right.items():
                        product = tuple(sorted((*m, *n), key=id))
                        terms[product] = terms.get(product, 0) + c * d
                return self.polynomial({m: c for m, c in terms.items() if c})
        if op in ("//", "%"):
            quotient = self._quotient(terms_of(a), terms_of(b))
            if quotient is not None:
                return quotient if op == "//" else 0
        return self.expr(op, a, b)

    def _quotient(self, left: Terms, right: Terms) -> Any:
        """`left // right` if it leaves nothing over at any sizes; None where that is not seen."""
        if len(right) != 1:
            return 1 if left == right else None
        ((by, count),) = right.items()
        terms: Terms = {}
        for m, c in left.items():
            rest = list(m)
            if c % count:
                return None
            for factor in by:
                if factor not in rest:
                    return None
                rest.remove(factor)
            terms[tuple(rest)] = c // count
        return self.polynomial(terms)

    def polynomial(self, terms: Terms) -> Any:
        """The expression of a sum of products, each so often, as simple as it is: it may be a number."""
        if not terms:
            return 0
        if len(terms) == 1:
            ((m, c),) = terms.items()
            if not m:
                return c
            if c == 1 and len(m) == 1:
                return m[0]
        key = frozenset(terms.items())
        found = self.exprs.get(key)
        if found is None:
            found = self.exprs[key] = _expression(key, "sum", None, None, terms)
        return found

    def expr(self, op: str, a: Any, b: Any = None) -> Expr:
        """The one expression that is `op` of `a` and `b`."""
        key = (op, _exactly(a), _exactly(b))
        found = self.exprs.get(key)
        if found is None:
            found = self.exprs[key] = _expression(key, op, a, b)
        return found

    def size(self, number: int) -> Sym:
        """The symbol of this number."""
        symbol = _SIZES.get(number)
        if symbol is None:
            symbol = _SIZES.setdefault(number, Expr("size", number))  # two threads may meet here, and a symbol is one object
        return _sym(self.sizes[number], symbol, self)

    def more(self, values: Sequence[int]) -> list[Sym]:
        """Symbols for numbers that are found out beside the expressions."""
        first = len(self.sizes)
        self.sizes = (*self.sizes, *values)
        return [self.size(first + i) for i in range(len(values))]

    def guard(self, op: str, a: Any, b: Any, answer: bool) -> None:
        """Note a question and its answer."""
        if a is b or not self.open:
            return
        key = op, a, b
        if key in self.guards or key in self.true:
            return
        if a.__class__ is not float and b.__class__ is not float and not (_is_float(a) or _is_float(b)):
            left = self.whole("-", a, b)
            if left.__class__ is not Expr or (op == "==" and not answer and self._never_zero(left)) or (op != "==" and self._never_zero(left)):
                self.true[key] = a, b
                return
        if len(self.guards) >= MOST_GUARDS:
            raise TooManyGuards
        self.guards[key] = op, a, b, answer

    def close(self) -> None:
        """Nothing more is noted."""
        self.open = False
        self.exprs, self.guards, self.known, self.results, self.true = {}, {}, {}, {}, {}

    def _never_zero(self, e: Expr) -> bool:
        """Whether a polynomial has the same sign at any sizes: its symbols are sizes, which are positive, and all count the same way."""
        terms = terms_of(e)
        return len({c > 0 for c in terms.values()}) == 1 and all(x.op == "size" and x.a < self.count for m in terms for x in m)

    def again(self, x: Any) -> Any:
        """`x`, recorded at other sizes (a symbol, or a tuple with symbols in it), as it is at the sizes of this recording."""

        return mapped(x, lambda x: self.symbol(x.expr, _evaluated(x.expr, self.sizes, {})))

    def symbol(self, e: Expr, value: Any) -> Any:
        """The symbol of an expression that has this value this time."""
        return _sym(value, e, self) if value.__class__ is int else _sym_float(value, e, self)


OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "/": lambda a, b: a / b, "**": lambda a, b: a**b, "float": lambda a, b: float(a),
    "int": lambda a, b: int(a), "max": max, "min": min, "at_most": lambda a, b: int(a <= b),
    "==": lambda a, b: a == b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
}  # fmt: skip


def _told(x: Any) -> Any:
    """The expression of a symbol, the number itself of a plain one; NotImplemented of anything else."""
    cls = x.__class__
    if cls is Sym or cls is SymFloat:
        return x.expr
    return x if cls is int or cls is float else int(x) if cls is bool else NotImplemented


def _plain(x: Any) -> Any:
    cls = x.__class__
    return int.__int__(x) if cls is Sym else float.__float__(x) if cls is SymFloat else x


def _made(value: Any, op: str, a: Any, b: Any, rec: Recording) -> Any:
    if not rec.open:
        return value
    if value.__class__ is int:
        e = rec.whole(op, a, b) if op in _WHOLE else rec.expr(op, a, b)
        return _sym(value, e, rec) if e.__class__ is Expr else value
    return _sym_float(value, rec.expr(op, a, b), rec)


_WHOLE: Final = frozenset(("+", "-", "*", "//", "%"))
_FLOATS: Final = frozenset(("/", "float"))


def _is_float(e: Any) -> bool:
    """Whether an expression may be a float's."""
    pending = [e]
    while pending:
        x = pending.pop()
        if x.__class__ is float or (x.__class__ is Expr and x.op in _FLOATS):
            return True
        if x.__class__ is Expr and x.op not in ("size", "sum", "int", "//", "%", "at_most"):
            pending += (x.a, x.b)
    return False


def _arithmetic(op: str) -> tuple[Any, Any]:
    compute = OPERATORS[op]

    def forward(self: Any, other: Any) -> Any:
        b = _told(other)
        if b is NotImplemented:
            return b
        if b.__class__ is int:  # what changes nothing needs no expression
            if (b == 0 and op in "+-") or (b == 1 and op in ("*", "//")):
                return self
            if b == 0 and op == "*" and self.__class__ is Sym:
                return 0
        return _made(compute(_plain(self), _plain(other)), op, self.expr, b, self.rec)

    def backward(self: Any, other: Any) -> Any:
        a = _told(other)
        if a is NotImplemented:
            return a
        if a.__class__ is int and ((a == 0 and op == "+") or (a == 1 and op == "*")):
            return self
        if a.__class__ is int and a == 0 and op == "*" and self.__class__ is Sym:
            return 0
        return _made(compute(_plain(other), _plain(self)), op, a, self.expr, self.rec)

    return forward, backward


def _comparison(op: str, swap: bool, negate: bool) -> Any:
    compute = OPERATORS[op]

    def compare(self: Any, other: Any) -> Any:
        b = _told(other)
        if b is NotImplemented:
            return b
        left, right, a = _plain(self), _plain(other), self.expr
        if swap:
            left, right, a, b = right, left, b, a
        answer = compute(left, right)
        self.rec.guard(op, a, b, answer)
        return answer is not negate

    return compare


_NEUTRAL: Final = {"+": 0, "-": 0, "*": 1, "//": 1, "%": None}  # on the right


def _arithmetic_of_ints(op: str, forward: Any, backward: Any) -> tuple[Any, Any]:
    """The same for a Sym: with an int or another Sym, which is nearly always so, in half the time."""
    name = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}[op]
    compute: Callable[[int, int], int] = getattr(int, f"__{name}__")
    right, left, times = _NEUTRAL[op], _NEUTRAL[op] if op in "+*" else None, op == "*"

    def of_ints(self: Any, other: Any) -> Any:
        if other.__class__ is int:
            if other == right:  # what changes nothing needs no expression
                return self
            if times and other == 0:
                return 0
            b = other
        elif other.__class__ is Sym:
            b = other.expr
        else:
            return forward(self, other)
        rec = self.rec
        found = rec.results.get((op, self.expr, b))
        if found is None:
            found = _made(compute(self, other), op, self.expr, b, rec)
            if rec.open:
                rec.results[op, self.expr, b] = found
        return found

    def of_int(self: Any, other: Any) -> Any:
        if other.__class__ is not int:
            return backward(self, other)
        if other == left:
            return self
        if times and other == 0:
            return 0
        rec = self.rec
        found = rec.results.get((op, other, self.expr))
        if found is None:
            found = _made(compute(other, self), op, other, self.expr, rec)
            if rec.open:
                rec.results[op, other, self.expr] = found
        return found

    return of_ints, of_int


def _comparison_of_ints(op: str, swap: bool, negate: bool, compare: Any) -> Any:
    """The same for a Sym with an int or another Sym."""
    compute: Callable[[int, int], bool] = getattr(int, {"==": "__eq__", "<": "__lt__", "<=": "__le__"}[op])

    def of_ints(self: Any, other: Any) -> Any:
        if other.__class__ is int:
            b = other
        elif other.__class__ is Sym:
            b = other.expr
        else:
            return compare(self, other)
        rec, a = self.rec, self.expr
        if swap:
            answer, a, b = compute(other, self), b, a
        else:
            answer = compute(self, other)
        if (op, a, b) not in rec.guards and (op, a, b) not in rec.true:
            rec.guard(op, a, b, answer)
        return answer is not negate

    return of_ints


def _asked(convert: Callable[[Any], Any]) -> Any:
    """A method that gives the value away: what comes of it holds for this value only."""

    def method(self: Any, *args: Any) -> Any:
        value = _plain(self)
        self.rec.guard("==", self.expr, value, True)
        return convert(value, *args)  # type: ignore[call-arg]

    return method


def _shown(convert: Callable[..., str]) -> Any:
    def method(self: Any, *args: Any) -> str:
        value = _plain(self)
        if self.rec.texts:
            self.rec.guard("==", self.expr, value, True)
        return convert(value, *args)

    return method


def _negative(self: Any) -> Any:
    return _made(-_plain(self), "*", self.expr, -1, self.rec)


def _absolute(self: Any) -> Any:
    return self if self >= 0 else -self


def _equip(cls: Any) -> Any:
    for op, name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("//", "floordiv"), ("%", "mod"), ("/", "truediv"), ("**", "pow")):
        forward, backward = _arithmetic(op)
        if op in _WHOLE and issubclass(cls, int):
            forward, backward = _arithmetic_of_ints(op, forward, backward)
        setattr(cls, f"__{name}__", forward)
        setattr(cls, f"__r{name}__", backward)
    for name, op, swap, negate in (
        ("eq", "==", False, False), ("ne", "==", False, True), ("lt", "<", False, False), ("le", "<=", False, False),
        ("gt", "<", True, False), ("ge", "<=", True, False),
    ):  # fmt: skip
        compare = _comparison(op, swap, negate)
        setattr(cls, f"__{name}__", _comparison_of_ints(op, swap, negate, compare) if issubclass(cls, int) else compare)
    cls.__neg__, cls.__abs__, cls.__pos__ = _negative, _absolute, lambda self: self
    cls.__bool__ = lambda self: self != 0
    for name, convert in (
        ("int", int), ("trunc", int), ("reduce_ex", lambda x, protocol: x.__reduce_ex__(protocol)), ("round", round),
    ):  # fmt: skip
        setattr(cls, f"__{name}__", _asked(convert))
    cls.__repr__, cls.__str__, cls.__format__ = _shown(repr), _shown(str), _shown(format)
    return cls


@_equip
class Sym(int):
    """An int that follows from sizes: `expr` says how, `rec` notes what is asked of it."""

    expr: Expr
    rec: Recording
    __hash__ = int.__hash__
    __index__ = _asked(int)
    __float__ = _asked(float)
    __floor__ = __ceil__ = lambda self: self
    __and__, __or__, __xor__ = _asked(int.__and__), _asked(int.__or__), _asked(int.__xor__)
    __rand__, __ror__, __rxor__ = _asked(int.__rand__), _asked(int.__ror__), _asked(int.__rxor__)
    __rlshift__, __rrshift__, __invert__ = _asked(int.__rlshift__), _asked(int.__rrshift__), _asked(int.__invert__)
    bit_length = _asked(int.bit_length)

    def __lshift__(self, other: int) -> Any:
        return self * (1 << other)

    def __rshift__(self, other: int) -> Any:
        return self // (1 << other)

    def __deepcopy__(self, memo: Any) -> Sym:
        return self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self


@_equip
class SymFloat(float):
    """A float that follows from sizes."""

    expr: Expr
    rec: Recording
    __hash__ = float.__hash__
    __float__ = _asked(float)
    hex = _asked(float.hex)

    def __deepcopy__(self, memo: Any) -> SymFloat:
        return self

    def is_whole(self) -> bool:
        """Whether it is an int's float, at any sizes."""
        return self.expr.op == "float"

    is_integer = _asked(float.is_integer)
    __floor__, __ceil__ = _asked(lambda x: x.__floor__()), _asked(lambda x: x.__ceil__())


def _sym(value: int, e: Expr, rec: Recording) -> Sym:
    made = int.__new__(Sym, value)
    made.expr, made.rec = e, rec
    return made


def _sym_float(value: float, e: Expr, rec: Recording) -> SymFloat:
    made = float.__new__(SymFloat, value)
    made.expr, made.rec = e, rec
    return made


def as_float(x: Any) -> Any:
    """`float(x)`, of a symbol too."""
    if x.__class__ is Sym:
        return _made(float(int.__int__(x)), "float", x.expr, None, x.rec)
    return x if x.__class__ is SymFloat else float(x)


def as_int(x: Any) -> Any:
    """`int(x)`, of a symbol too."""
    if x.__class__ is SymFloat:
        if x.is_whole():
            return _sym(int(float.__float__(x)), x.expr.a, x.rec)
        return _made(int(float.__float__(x)), "int", x.expr, None, x.rec)
    return x if x.__class__ is Sym else int(x)


def is_whole(x: Any) -> bool:
    """Whether a number is an int's; of a symbol, at any sizes."""
    return x.is_whole() if x.__class__ is SymFloat else x.__class__ is Sym or bool(x == int(x))


def maximum(*xs: Any) -> Any:
    """`max` of numbers; of symbols without asking which."""
    return reduce(partial(_of_two, "max"), xs)


def minimum(*xs: Any) -> Any:
    """`min` of numbers; of symbols without asking which."""
    return reduce(partial(_of_two, "min"), xs)


def _of_two(op: str, a: Any, b: Any) -> Any:
    over = a if a.__class__ in _SYMBOLS else b if b.__class__ in _SYMBOLS else None
    if over is None:
        return OPERATORS[op](a, b)
    return _made(OPERATORS[op](_plain(a), _plain(b)), op, _told(a), _told(b), over.rec)


_NEAR: Final = 64  # what only costs time is decided anew for sizes that are so many times as large, or as small


def roughly_over(x: Any, limit: int) -> bool:
    """`x > limit`, where nothing but time depends on it: of a symbol, the answer for the hints, until it is far from true."""
    if x.__class__ is not Sym:
        return bool(x > limit)
    over = bool(at_hints(x) > limit)
    holds = x * _NEAR > limit if over else x <= limit * _NEAR
    return over if holds else bool(x > limit)


def roughly_less(a: Any, b: Any) -> bool:
    """`a < b`, where nothing but time depends on it (see `roughly_over`)."""
    if a.__class__ is not Sym and b.__class__ is not Sym:
        return bool(a < b)
    less = bool(at_hints(a) < at_hints(b))
    holds = a < b * _NEAR if less else b <= a * _NEAR
    return less if holds else bool(a < b)


def roughly(x: Any) -> int:
    """About `x`, where nothing but time depends on it: of a symbol, its value for the hints."""
    if x.__class__ is not Sym:
        return int(x)
    hint = int(at_hints(x))
    return hint if hint <= x * _NEAR and x <= hint * _NEAR else int(x)


def at_hints(x: Any) -> Any:
    """The value of a symbol for the hints, without a guard: for what only costs time, whatever the sizes are."""
    return _evaluated(x.expr, x.rec.hints, {}) if x.__class__ is Sym else x


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are equal at any sizes; of symbols without asking whether they are equal this time."""
    return bool(_told(a) is _told(b)) if a.__class__ is Sym or b.__class__ is Sym else bool(a == b)


def at_most(a: Any, b: Any) -> Any:
    """1 if `a <= b`, else 0; of symbols without asking which."""
    return _of_two("at_most", a, b)


def least(options: Sequence[int], cost: Callable[[int], Any]) -> Any:
    """The first of the options whose cost is least; where costs are symbols, without asking which."""
    best, price = options[0], cost(options[0])
    for option in options[1:]:
        other = cost(option)
        keep = at_most(price, other)
        best, price = option + keep * (best - option), minimum(price, other)
    return best


def by_expression(x: Any) -> Any:
    """A key of nested tuples for what is the same at any sizes: two symbols are one if their expressions are."""
    if x.__class__ is Sym or x.__class__ is SymFloat:
        return x.expr
    return tuple([by_expression(y) for y in x]) if isinstance(x, tuple) and _may_have_symbols(x) else x


def _may_have_symbols(x: tuple[Any, ...]) -> bool:
    """Whether there are symbols or tuples in a tuple."""
    for y in x:
        cls = y.__class__
        if cls is Sym or cls is SymFloat or (cls is not int and isinstance(y, tuple)):
            return True
    return False


def mapped(x: Any, symbol: Callable[[Any], Any]) -> Any:
    """A number as it is, a symbol as `symbol` gives it, and a tuple of such; one without symbols is the same object."""
    cls = x.__class__
    if cls is Sym or cls is SymFloat:
        return symbol(x)
    if isinstance(x, tuple):
        if not _may_have_symbols(x):
            return x
        parts = [mapped(y, symbol) for y in x]
        if all(p is y for p, y in zip(parts, x, strict=True)):
            return x
        return tuple(parts) if cls is tuple else cls(*parts) if hasattr(cls, "_fields") else cls(parts)
    return x


def at_sizes(sizes: Sequence[int]) -> Callable[[Any], Any]:
    """A function that gives numbers and tuples of numbers over symbols as they are at given sizes, which may be symbols of another recording."""
    memo: dict[int, Any] = {}
    return partial(mapped, symbol=lambda x: _evaluated(x.expr, sizes, memo))


def _evaluated(e: Any, sizes: Sequence[int], memo: dict[int, Any]) -> Any:
    """An expression at given sizes. `memo`: what is known of parts of it, by their ids."""
    if e.__class__ is not Expr:
        return e
    if e.op == "size":
        return sizes[e.a]
    found = memo.get(id(e))
    if found is None and e.op == "sum":
        found = 0
        for m, c in terms_of(e).items():
            product: Any = c
            for factor in m:
                product = product * _evaluated(factor, sizes, memo)
            found = found + product
        memo[id(e)] = found
    elif found is None:
        compute = _OF_SYMBOLS.get(e.op) or OPERATORS[e.op]
        found = memo[id(e)] = compute(_evaluated(e.a, sizes, memo), _evaluated(e.b, sizes, memo))
    return found


_OF_SYMBOLS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "float": lambda a, b: as_float(a), "int": lambda a, b: as_int(a), "max": maximum, "min": minimum, "at_most": at_most,
}  # fmt: skip


def whole(x: Any) -> Any:
    """`int(operator.index(x))`, of a symbol itself."""
    return x if x.__class__ is Sym else int(index(x))


def symbolic(xs: Iterable[Any]) -> bool:
    """Whether there are symbols among the numbers."""
    for x in xs:  # noqa: SIM110 - a generator would be an object that the garbage collector walks
        if x.__class__ is Sym or x.__class__ is SymFloat:
            return True
    return False


_SYMBOLS: Final = frozenset((Sym, SymFloat))


def operands(e: Expr) -> list[Any]:
    """What an expression is made of: expressions, numbers, and None where there is no second one."""
    if e.op == "sum":
        return [f for m in terms_of(e) for f in m]
    return [] if e.op == "size" else [e.a, e.b]


def operands_first(e: Expr, known: Container[int]) -> Iterator[Expr]:
    """An expression and what it is made of, each after its own operands, but for those whose ids are `known`. Each that is given must be known then."""
    pending = [e]
    while pending:
        top = pending[-1]
        if id(top) in known:
            pending.pop()
            continue
        below = [x for x in operands(top) if x.__class__ is Expr and id(x) not in known]
        if below:
            pending += below
        else:
            yield top


def symbols_in(e: Any) -> Iterator[int]:
    """The numbers of the symbols in an expression; a number has none."""
    pending, seen = [e], set()
    while pending:
        x = pending.pop()
        if x.__class__ is Expr and id(x) not in seen:
            seen.add(id(x))
            if x.op == "size":
                yield x.a
            pending += operands(x)


def reaches(e: Any, number: int) -> bool:
    """Whether an expression has a symbol of this number or a greater one."""
    return any(n >= number for n in symbols_in(e))


class Text(str):
    """What stands in the text of a function as it is."""

    __slots__ = ()


class Code:
    """Writes the Python function that computes expressions from a tuple of sizes.

    `sizes`: the tuple's name; `prefix`: how the names of what the lines compute begin.
    """

    def __init__(self, sizes: str = "s", prefix: str = "t") -> None:
        self.sizes, self.prefix = sizes, prefix
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.held: list[Expr] = []  # so that no other gets the number of one of them
        self.scope: dict[str, Any] = {}  # what the lines name

    def name(self, e: Any) -> str:
        """The text that stands for an expression (or a number), once the lines have run."""
        if e.__class__ is not Expr:
            return repr(e) if e.__class__ is not float or (e == e and abs(e) != float("inf")) else f"float('{e!r}')"
        names = self.names
        known = names.get(id(e))
        if known is not None:
            return known
        if e.op == "size":
            self.held.append(e)
            names[id(e)] = known = f"{self.sizes}[{e.a}]"
            return known
        for top in operands_first(e, names):
            if top.op == "size":
                names[id(top)] = f"{self.sizes}[{top.a}]"
                self.held.append(top)
                continue
            if top.op == "sum":
                self.held.append(top)
                names[id(top)] = name = f"{self.prefix}{len(self.held)}"
                products = ["*".join([*([str(c)] if c != 1 or not m else []), *[names[id(f)] for f in m]]) for m, c in terms_of(top).items()]
                self.lines.append(f"{name} = {' + '.join(products)}")
                continue
            a, b = self.name(top.a), self.name(top.b)
            self.held.append(top)
            names[id(top)] = name = f"{self.prefix}{len(self.held)}"
            call = f"{top.op}({a})" if top.b is None else f"{top.op}({a}, {b})"
            text = f"int({a} <= {b})" if top.op == "at_most" else call if top.op.isalpha() else f"{a} {top.op} {b}"
            self.lines.append(f"{name} = {text}")
        return names[id(e)]

    def check(self, guards: Iterable[tuple[str, Any, Any, bool]], otherwise: str = "return None") -> None:
        """Lines that return None, or do something else instead, where a guard does not give its answer."""
        for op, a, b, answer in guards:
            left, right = self.name(a), self.name(b)
            wrong = {"==": ("!=", "=="), "<": (">=", "<"), "<=": (">", "<=")}[op][not answer]
            self.lines.append(f"if {left} {wrong} {right}: {otherwise}")

    def array(self, xs: Sequence[Any]) -> Text:
        """The name of an array of these ints: one that is there is copied, and what depends on sizes is put into it."""
        name = f"a{len(self.scope)}"
        self.scope[f"{name}_"] = array("q", [0 if x.__class__ is Sym else x for x in xs])
        self.put(name, xs)
        return Text(name)

    def put(self, name: str, xs: Sequence[Any]) -> None:
        """Lines that copy the array of this name and put into it what depends on sizes."""
        changing = [(i, self.name(x.expr)) for i, x in enumerate(xs) if x.__class__ is Sym]
        self.lines += [f"{name} = {name}_[:]", *[f"{name}[{i}] = {text}" for i, text in changing]]

    def given(self, x: Any) -> Text:
        """The name of something that stands in no text, so that functions which differ by it share their code."""
        name = f"g{len(self.scope)}"
        self.scope[name] = x
        return Text(name)

    def structure(self, x: Any) -> str:
        """The text of nested tuples and lists of numbers and symbols."""
        if x.__class__ is Text:
            return str(x)
        if x.__class__ is Sym or x.__class__ is SymFloat:
            return self.name(x.expr)
        if isinstance(x, tuple):
            return f"({''.join([self.structure(y) + ', ' for y in x])})"
        if isinstance(x, list):
            return f"[{', '.join([self.structure(y) for y in x])}]"
        return self.name(x)

    def function(self, result: str, **scope: Any) -> Callable[[tuple[int, ...]], Any]:
        """The function of the sizes that runs the lines and returns `result`; `scope`: what the lines call."""
        body = "\n".join([f"    {line}" for line in [*self.lines, f"return {result}"]])
        scope |= self.scope
        exec(compiled(f"def sizes(s):\n{body}", "<flambeau sizes>"), scope)
        return scope["sizes"]  # type: ignore[no-any-return]


class KnownCode(Code):
    """The same where an earlier process has written and compiled the function: what the lines name is gathered, and no line is written."""

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.code = code

    def name(self, e: Any) -> str:
        return ""

    def check(self, guards: Iterable[tuple[str, Any, Any, bool]], otherwise: str = "return None") -> None:
        pass

    def put(self, name: str, xs: Sequence[Any]) -> None:
        pass

    def structure(self, x: Any) -> str:
        return ""

    def function(self, result: str, **scope: Any) -> Callable[[tuple[int, ...]], Any]:
        return FunctionType(self.code, scope | self.scope)
