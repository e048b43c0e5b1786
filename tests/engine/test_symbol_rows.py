"""Expressions as rows: what they were comes back, in another recording and from JSON, and equal ones have equal texts."""

from __future__ import annotations

import json

from hypothesis import given

from flambeau import symbols
from flambeau.symbol_rows import SYMBOL, Rows, Texts, expressions_of, value_at, values_of
from flambeau.symbols import Recording, Sym, maximum
from tests.engine.test_symbols import SIZES, STEPS, compute


def _made(at: tuple[int, ...], steps: list[tuple[str, int, int]]) -> list[object]:
    rec = Recording(at)
    found = compute([rec.size(i) for i in range(3)], steps)
    return [*found, maximum(found[-1], found[0]), found[0] / 7, 2.5 * found[1]]


@given(SIZES, SIZES, STEPS)
def test_rows_come_back(at: tuple[int, ...], other: tuple[int, ...], steps: list[tuple[str, int, int]]) -> None:
    made = _made(at, steps)
    rows = Rows()
    plain = json.loads(json.dumps(rows.plain([made, (1, (made[-1], "x"))])))
    back = json.loads(json.dumps(rows.rows))
    assert plain[1] == [1, [plain[0][-1], "x"]]
    values, exprs = values_of(back, at), expressions_of(back, Recording(other))
    for x, told in zip(made, plain[0], strict=True):
        if isinstance(told, dict):
            assert values[told[SYMBOL]] == (int.__int__(x) if isinstance(x, Sym) else float.__float__(x))
            assert exprs[told[SYMBOL]] is x.expr
            assert value_at(rows.operand(x.expr), exprs) is x.expr
        else:
            assert told == x


@given(SIZES, SIZES, STEPS)
def test_equal_expressions_have_equal_texts(at: tuple[int, ...], other: tuple[int, ...], steps: list[tuple[str, int, int]]) -> None:
    """Also those of another process, whose products have their factors in another order."""
    made = _made(at, steps)
    texts = Texts()
    known = {texts.plain(x): x for x in made}
    for x in made:
        for y in made:
            same = x.expr is y.expr if hasattr(x, "expr") and hasattr(y, "expr") else not hasattr(x, "expr") and not hasattr(y, "expr") and x == y
            assert (texts.plain(x) == texts.plain(y)) is same
    symbols._table[0] = symbols.Table()
    assert {Texts().plain(x) for x in made} == set(known)


def test_the_order_of_factors_says_nothing() -> None:
    rec = Recording((3, 5, 7))
    a, b, c = [rec.size(i).expr for i in range(3)]
    one, other = symbols.Expr("sum", None, None, {(a, b, c): 2, (): 1}), symbols.Expr("sum", None, None, {(): 1, (c, a, b): 2})
    assert Texts().text(one) == Texts().text(other)
    assert Texts().text(one) != Texts().text(symbols.Expr("sum", None, None, {(a, b, c): 1, (): 1}))
    assert Texts().text(rec.expr("/", 1, a)) != Texts().text(rec.expr("/", 1.0, a))
