"""Writes whose source shares memory with what is written: as if the source had been copied first, whatever copies the compiler has dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.engine import overlapping_writes


@pytest.mark.parametrize("seed", range(0, 120, 20))
def test_random_programs_are_as_numpy_on_copies(seed: int) -> None:
    for number in range(seed, seed + 20):
        overlapping_writes.run(number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000, 100))
def test_many_random_programs(seed: int) -> None:
    for number in range(seed, seed + 100):
        overlapping_writes.run(number)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "complex64"])
@pytest.mark.parametrize("observed", [False, True])
def test_moves_along_a_vector(dtype: str, observed: bool) -> None:
    for n in (2, 5, 16, 17, 31, 64, 100, 1000, 70000):
        for by in (1, 2, 3, 15, 16, 17, 40):
            if by >= n:
                continue
            for forward in (True, False):
                t = ft.arange(n).to(getattr(ft, dtype))
                a = np.arange(n).astype(dtype)
                if observed:
                    t.sum().item()
                low, high = (slice(by, None), slice(None, -by))
                to, source = (low, high) if forward else (high, low)
                t[to] = t[source].clone()
                a[to] = a[source].copy()
                assert np.array_equal(t.numpy(), a), (n, by, forward)


def test_rows_columns_and_turned_blocks() -> None:
    for rows, columns in ((9, 40), (40, 9), (33, 33), (300, 70)):
        whole = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        n = min(rows, columns) - 1
        for to, source, turned in (
            (np.s_[1:], np.s_[:-1], False), (np.s_[:, 1:], np.s_[:, :-1], False), (np.s_[1:, 1:], np.s_[:-1, :-1], False),
            (np.s_[1:, :-1], np.s_[:-1, 1:], False), (np.s_[:n, :n], np.s_[1 : n + 1, :n], True), (np.s_[:n, :n], np.s_[:n, :n], True),
            (np.s_[1::2], np.s_[: rows // 2], False), (np.s_[: rows // 2], np.s_[1::2], False),
        ):  # fmt: skip
            a, t = whole.copy(), ft.tensor(whole)
            for _ in range(3):  # again, on what the first has written
                a[to] = a[source].T.copy() if turned else a[source].copy()
                t[to] = t[source].T.clone() if turned else t[source].clone()
            assert np.array_equal(t.numpy(), a), (rows, columns, to, source)


def test_a_copy_that_outlives_the_write_is_the_old_value() -> None:
    for n in (40, 5000):
        t = ft.arange(float(n))
        before = t.clone()
        after = t.clone()
        after[1:] = t[:-1]
        t[2:] = t[:-2].clone()
        assert before.tolist() == list(range(n))
        assert after.tolist() == [0, *range(n - 1)]
        assert t.tolist() == [0, 1, *range(n - 2)]


VIEWS = {
    "first row": lambda v: v[:1].expand(6, 6), "a row": lambda v: v[2:3].expand(6, 6), "a column": lambda v: v[:, 1:2].expand(6, 6), "turned": lambda v: v.T,
    "one element": lambda v: v[:1, :1].expand(6, 6), "first of a row": lambda v: v[0].expand(6, 6), "the diagonal": lambda v: v.diagonal().expand(6, 6),
    "windows": lambda v: v.view(-1)[:11].unfold(0, 6, 1), "shifted": lambda v: v.view(-1).as_strided((6, 6), (5, 1), 3), "all": lambda v: v[:],
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_copies_of_parts_of_a_pending_value_beside_the_value(name: str) -> None:
    """A value, and a copy of another view of it, in one kernel or not: the copy is of the elements that the view names."""
    view = VIEWS[name]
    part = np.array(view(ft.arange(36.0).view(6, 6)).tolist(), dtype=np.float32)
    whole = np.arange(36, dtype=np.float32).reshape(6, 6)
    expressions: list[tuple[Any, Any]] = [
        (lambda a: a + view(a).clone(), whole + part), (lambda a: a.add_(view(a).clone()), whole + part), (lambda a: a * 2 - view(a).clone(), whole * 2 - part),
        (lambda a: ft.maximum(view(a).contiguous(), a), np.maximum(part, whole)), (lambda a: (view(a).clone() * a).sum(0), (part * whole).sum(0)),
        (lambda a: view(a).clone() + view(a), part + part), (lambda a: a.mul(3).add(view(a).clone()).sub(a), whole * 2 + part),
        (lambda a: a.copy_(view(a).clone()), part), (lambda a: view(a.mul(2)).clone() + a, 2 * part + whole),
    ]  # fmt: skip
    for expression, expected in expressions:
        for pending in (True, False):
            a = ft.arange(36.0).view(6, 6)
            if not pending:
                a.sum().item()
            found = expression(a).numpy()
            assert np.array_equal(found, expected), (name, pending, found, expected)
