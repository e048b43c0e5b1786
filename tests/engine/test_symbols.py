"""Sizes as symbols: they compute as ints, note what is asked, and their code gives the same at other sizes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau import symbols
from flambeau.symbols import Code, Recording, Sym, SymFloat, as_float, as_int, at_most, at_sizes, least, maximum, minimum, whole

SIZES = st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(2, 40))
STEPS = st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min", "at_most", "neg"]), st.integers(0, 9), st.integers(0, 9)), max_size=12)
CONSTANTS = (1, 2, 3, 16)


def compute(start: list[Any], steps: list[tuple[str, int, int]]) -> list[Any]:
    """A chain of arithmetic over numbers or symbols."""
    found = [*start, *CONSTANTS]
    for op, i, j in steps:
        a, b = found[i % len(found)], found[j % len(found)]
        if op in ("//", "%") and b == 0:
            continue
        if op == "+":
            r: Any = a + b
        elif op == "-":
            r = a - b
        elif op == "*":
            r = a * b
        elif op == "//":
            r = a // b
        elif op == "%":
            r = a % b
        elif op == "neg":
            r = -a
        else:
            r = {"max": maximum, "min": minimum, "at_most": at_most}[op](a, b)
        if abs(r) > 1 << 40:
            continue
        found.append(r)
    return found


@given(SIZES, SIZES, STEPS)
def test_code_of_expressions_computes_what_ints_do(at: tuple[int, ...], other: tuple[int, ...], steps: list[tuple[str, int, int]]) -> None:
    rec = Recording(at)
    made = compute([rec.size(i) for i in range(3)], steps)
    plain = compute(list(at), steps)
    assert [int.__int__(x) for x in made] == plain
    code = Code()
    code.check(rec.guards.values())
    function = code.function(code.structure(tuple(made)))
    assert function(at) == tuple(plain)
    assert at_sizes(at)(tuple(made)) == tuple(plain)
    found = function(other)
    if found is not None:  # the guards hold there: no division by zero was left out, no number too large
        assert found == tuple(compute(list(other), steps))
        assert at_sizes(other)(tuple(made)) == found


@given(SIZES, SIZES, STEPS)
def test_equal_expressions_of_two_tables_are_one(at: tuple[int, ...], other: tuple[int, ...], steps: list[tuple[str, int, int]]) -> None:
    """A path is recorded in one table and planned in another: `same` looks at which object an expression is."""
    tables = []
    for sizes in (at, other):
        symbols._table[0] = symbols.Table()
        rec = Recording(sizes)
        length = rec.size(0).expr
        tables.append([rec.expr("max", rec.whole("+", compute_one(rec, steps), 1), 7), rec.expr("/", 1.0, length), rec.expr("/", 1, length)])
    assert all(a is b for a, b in zip(*tables, strict=True))
    assert tables[0][1] is not tables[0][2], "numbers of two types"


def compute_one(rec: Recording, steps: list[tuple[str, int, int]]) -> Any:
    """One expression: the same steps on the same symbols, whatever they are worth."""
    found: list[Any] = [*[rec.size(i).expr for i in range(3)], *CONSTANTS]
    for op, i, j in steps:
        a, b = found[i % len(found)], found[j % len(found)]
        if op in ("+", "-", "*"):
            found.append(rec.whole(op, a, b))
        elif op != "neg":
            found.append(rec.expr(op, a, b))
    return found[-1]


@given(SIZES, SIZES, st.integers(-4, 50), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.integers(0, 3))
def test_a_guard_gives_the_same_answer_or_does_not_hold(at: tuple[int, ...], other: tuple[int, ...], number: int, op: str, kind: int) -> None:
    def ask(a: Any, b: Any) -> bool:
        left = a * 2 + b if kind == 0 else a * b if kind == 1 else a - b if kind == 2 else a
        right = number if kind else b
        return bool({"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])

    rec = Recording(at)
    a, b = rec.size(0), rec.size(1)
    left = a * 2 + b if kind == 0 else a * b if kind == 1 else a - b if kind == 2 else a
    right: Any = number if kind else b
    answer = {"==": lambda: left == right, "!=": lambda: left != right, "<": lambda: left < right, "<=": lambda: left <= right,
              ">": lambda: left > right, ">=": lambda: left >= right}[op]()  # fmt: skip
    assert answer is ask(*at[:2])
    code = Code()
    code.check(rec.guards.values())
    assert bool(code.function("True")(other)) == (ask(*other[:2]) == answer)


def test_equal_expressions_are_one() -> None:
    rec = Recording((5, 7))
    a, b = rec.size(0), rec.size(1)
    assert (a * b + a).expr is (a + b * a).expr
    assert (a * 4 // 4).expr is a.expr
    assert ((a + 2) - 2).expr is a.expr
    assert (a * b // b).expr is a.expr
    assert a % a == 0 and type(a % a) is int
    assert type(a - a) is int
    _ = a * 4 == 4 * a, a + 1 == a, a < a * 3  # true or false at any sizes
    assert not rec.guards


TAKES: dict[str, Any] = {
    "hash": hash, "bool": bool, "int": int, "float": float, "bits": lambda x: x.bit_length(), "and": lambda x: x & 3, "key": lambda x: {}.get(x),
    "shift": lambda x: 1 << x,
}  # fmt: skip


@pytest.mark.parametrize("name", TAKES)
def test_what_gives_a_value_away_is_guarded_or_harmless(name: str) -> None:
    rec = Recording((5,))
    TAKES[name](rec.size(0))
    code = Code()
    code.check(rec.guards.values())
    assert code.function("True")((5,)) is True
    assert bool(rec.guards) == (name not in ("hash", "bool", "key"))  # a size is not 0 at any sizes; a key is compared when it is found


def test_texts_decide_only_where_they_are_keys() -> None:
    rec = Recording((5,))
    assert f"{rec.size(0)} {rec.size(0)!r}" == "5 5" and not rec.guards
    rec.texts = True
    assert str(rec.size(0)) == "5" and len(rec.guards) == 1


def test_conversions_keep_symbols() -> None:
    rec = Recording((5,))
    n = rec.size(0)
    assert type(as_float(n)) is SymFloat and as_float(n) == 5.0 and as_float(3) == 3.0
    assert type(as_int(as_float(n))) is Sym and as_int(as_float(n)).expr is n.expr
    assert type(whole(n)) is Sym and whole(True) == 1 and type(whole(True)) is int
    assert type(1 / n) is SymFloat and type(n / 2.0) is SymFloat and copy.deepcopy(n) is n
    assert type(as_int(n / 2.0)) is Sym and as_int(n / 2.0) == 2
    assert least(range(1, 4), lambda k: (n - 2 * k) * (n - 2 * k)) == 2
    assert rec.guards.keys() and all(op == "==" for op, *_ in rec.guards.values())


def test_nothing_is_noted_after_the_end() -> None:
    rec = Recording((5,))
    n = rec.size(0)
    rec.close()
    assert n == 5 and n < 7 and type(n + 1) is int and not rec.guards


@given(st.lists(st.one_of(st.integers(-(2**40), 2**40), st.sampled_from(["n", "m", "n*m+1", "n//3"])), max_size=12), st.integers(2, 99), st.integers(2, 99))
def test_arrays_are_copied_and_what_depends_on_sizes_is_put_in(entries: list[Any], n: int, m: int) -> None:
    rec = Recording((7, 5))
    x, y = rec.size(0), rec.size(1)
    symbols = {"n": (x, n), "m": (y, m), "n*m+1": (x * y + 1, n * m + 1), "n//3": (x // 3, n // 3)}
    code = Code()
    function = code.function(code.structure((code.array([symbols[e][0] if e in symbols else e for e in entries]), [x])))
    first, _ = function((n, m))
    second, sizes = function((n, m))
    assert first.tolist() == second.tolist() == [symbols[e][1] if e in symbols else e for e in entries] and sizes == [n]
    first.extend([1])
    assert len(second) == len(entries) and function((n, m))[0].tolist() == second.tolist()
