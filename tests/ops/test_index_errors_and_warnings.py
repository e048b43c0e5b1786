"""Indices that are wrong, deprecated or empty: the errors name the dim, the warnings and their number are PyTorch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_collections")


def outcome(call: Callable[[Any, Any], Any], m: Any) -> tuple[Any, list[str]]:
    """The values or the error of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = call(m, m.arange(12).reshape(3, 4))
            result = found.tolist() if hasattr(found, "tolist") else found
        except Exception as e:
            result = next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")
    return result, [str(w.message).split(" (Triggered")[0] for w in told]


def written(m: Any, x: Any, index: Any, value: Any) -> Any:
    y = x.clone()
    y[index] = value
    return y


def deleted(x: Any) -> None:
    del x[0]


CALLS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda m, x: x[m.tensor([1, 0, 1], dtype=m.uint8)],
    lambda m, x: x[m.tensor([1, 0, 1], dtype=m.uint8), m.tensor([1, 0, 0, 1], dtype=m.uint8)],
    lambda m, x: x[:, m.tensor([1, 0, 0, 1], dtype=m.uint8)],
    lambda m, x: x[m.tensor(1, dtype=m.uint8)],
    lambda m, x: x[m.tensor([True, False, True])],
    lambda m, x: written(m, x, m.tensor([1, 0, 1], dtype=m.uint8), m.tensor([[1], [2]])),
    lambda m, x: written(m, x, m.tensor([1, 0, 1], dtype=m.uint8), 5),
    lambda m, x: written(m, x, m.tensor(1, dtype=m.uint8), 5),
    lambda m, x: written(m, x, m.tensor(0, dtype=m.uint8), 5),
    lambda m, x: x["0":"1"],  # type: ignore[misc]
    lambda m, x: x[0.0:1],  # type: ignore[misc]
    lambda m, x: x[::0],
    lambda m, x: x[::-1],
    lambda m, x: written(m, x, slice("a", "b"), 1),
    lambda m, x: deleted(x),
    lambda m, x: m.zeros(()).index_put([], m.tensor([1.0]), True),
    lambda m, x: m.zeros(3).index_put_((), m.tensor([2.0, 3.0])),
    lambda m, x: m.empty(10, 0)[[0], [1]],
    lambda m, x: m.empty(10, 0)[[0, 1], []],
    lambda m, x: m.zeros(0)[[1]],
    lambda m, x: m.unravel_index(m.tensor([1.0]), (2, 2)),
    lambda m, x: m.unravel_index(m.tensor([1]), m.tensor([2, 2])),
    lambda m, x: m.unravel_index(m.tensor([1]), 2.0),
)


@pytest.mark.parametrize("call", CALLS)
def test_results_errors_and_warnings(call: Callable[[Any, Any], Any]) -> None:
    for _ in range(3):  # a warning is given each time, whatever is known of the call
        assert outcome(call, ft) == outcome(call, torch)


def test_a_warning_is_one_of_the_programs_line() -> None:
    x, mask = ft.arange(3), ft.tensor([1, 0, 1], dtype=ft.uint8)
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated") as told:
        x[mask].tolist()
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated") as also:
        x.index_put((mask,), ft.tensor([1, 2]), accumulate=True)
    assert {w.filename for w in (*told, *also)} == {__file__}


def test_numbers_out_of_range_name_the_dim_that_they_index() -> None:
    indices: tuple[Any, ...] = ((0, 5), (4, 5), (slice(None), 5), (..., 5), (None, 5), ([0], 5), (0, None, 1, 7), (0, 1, 5), (1, slice(None), -9))
    for shape in ((2, 5), (2, 3, 4)):
        for index in indices:
            said = []
            for m in (ft, torch):
                try:
                    said.append(m.zeros(shape)[index].shape)
                except IndexError as e:
                    said.append(str(e).split(" (got")[0])
            assert said[0] == said[1] or (len(shape) > 2 and index == (..., 5)), (shape, index)  # PyTorch counts an ellipsis as one dim


def test_without_an_index_all_is_written() -> None:
    x = ft.zeros(3)
    assert x.index_put((), ft.tensor([1.0, 2.0, 3.0])).tolist() == [1, 2, 3]
    assert x.index_put_([], ft.tensor(2.0)).index_put_((), ft.tensor([1.0]), accumulate=True).tolist() == [3, 3, 3]
    assert x.tolist() == [3, 3, 3]


def test_negative_indices_at_sizes_that_were_not_seen_before() -> None:
    for n in (3, 5, 4, 7, 11, 8, 20, 13, 33, 6):
        for low in (-n, -n + 1, -1):
            i = ft.tensor([low, n - 1])
            x = ft.zeros(n)
            expected = [float((k == low + n) + (k == n - 1)) for k in range(n)]
            assert x.index_put((i,), ft.ones(2), accumulate=True).tolist() == expected, (n, low)
            assert ft.arange(n)[i].tolist() == [low + n, n - 1]
            assert ft.arange(n).take(i).tolist() == [low + n, n - 1]
        with pytest.raises(IndexError, match=f"at least -{n} and less than {n}"):
            ft.arange(n)[ft.tensor([-n - 1])].tolist()
