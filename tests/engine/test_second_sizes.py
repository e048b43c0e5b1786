"""What a piece costs at its second size and after: it is recorded and planned over symbols there, compared with its first size, and then known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau.statistics import counters
from flambeau.trace import class_plans, classes, tiers
from flambeau.trace.recorder import local
from tests.engine.nothing_known import forget_edges, forget_places

CALLS: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda x: x * 1.5 + 2,
    "activated": lambda x: ft.where(x > 0, x, x.exp() - 1),
    "reduced": lambda x: x.sum(0),
    "normalised": lambda x: (x - x.mean(0)) / x.std(0),
    "softmax": lambda x: x.softmax(-1),
    "product": lambda x: x @ x.T,
    "sorted": lambda x: x.sort(0)[0],
    "scanned": lambda x: x.cumprod(1),
    "joined": lambda x: ft.cat((x, x * 2)),
    "decomposed": lambda x: ft.linalg.svdvals(x.T @ x + ft.eye(6)),
    "factored": lambda x: ft.linalg.qr(x)[1],
    "eigenvalues": lambda x: ft.linalg.eigvalsh(x @ x.T + x.sum()),
}

# How high the panels of a product are is chosen for each size, where sizes are no symbols: a plan is compared with a second one over symbols.
PRODUCTS = ("product", "decomposed", "eigenvalues")


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "MODE", [tiers.PIECES])
    forget_places(monkeypatch)
    forget_edges()


def costs(function: Callable[[Any], Any], rows: int) -> tuple[int, int]:
    """How many edges were recorded, and how many plans made, for so many rows."""
    x = ft.ones(rows, 6)
    x.tolist()
    before = counters.slow_path_entries, counters.plans_made
    function(x).tolist()
    return counters.slow_path_entries - before[0], counters.plans_made - before[1]


@pytest.mark.parametrize("name", CALLS)
def test_the_third_size_is_neither_recorded_nor_planned(name: str) -> None:
    first, second = costs(CALLS[name], 11), costs(CALLS[name], 14)
    assert first[0] > 0
    assert first[1] > 0
    assert second[1] <= first[1], "one plan over symbols for each that was made, and none to compare it with"
    recorded, planned = costs(CALLS[name], 19)
    if name not in PRODUCTS:
        assert planned == 0
        assert recorded <= 1, "the input, where a path begins that may be one without pieces"
    # Products of more than 32 rows are another class where there is a matrix unit.
    for rows in (23, 27, 30, 34, 36) if name in PRODUCTS else (23,):
        costs(CALLS[name], rows)
    assert costs(CALLS[name], 37) == (0, 0)


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_are_those_without_classes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [ft.randn(rows, 6) for rows in (9, 12, 17, 31, 8)]
    found = [CALLS[name](x).tolist() for x in inputs]
    monkeypatch.setattr(classes, "ENABLED", [False])
    local.main.roots.clear()
    assert [CALLS[name](x).tolist() for x in inputs] == found


def test_a_plan_over_symbols_that_is_not_like_the_first_is_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(class_plans, "_agrees", lambda variant, met: False)
        costs(CALLS["sorted"], 11)
        costs(CALLS["sorted"], 14)
    assert costs(CALLS["sorted"], 19)[1] > 0
    assert costs(CALLS["sorted"], 23)[1] <= 1, "one program for all sizes"
    assert costs(CALLS["sorted"], 27)[1] == 0


@pytest.mark.parametrize("wrong", [False, True])
def test_a_model_that_is_not_like_the_first_edge_is_compared_again(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    agrees, compared = classes._agrees, []
    with monkeypatch.context() as patch:
        patch.setattr(classes, "_agrees", lambda variant, state, sizes: not wrong and agrees(variant, state, sizes))
        costs(CALLS["sorted"], 11)
        costs(CALLS["sorted"], 14)

    def noted(variant: Any, state: Any, sizes: tuple[int, ...]) -> bool:
        if "sort" in str(state.edge[0]):
            compared.append(sizes)
        return agrees(variant, state, sizes)

    monkeypatch.setattr(classes, "_agrees", noted)
    costs(CALLS["sorted"], 19)
    costs(CALLS["sorted"], 23)
    assert compared == ([(19,)] if wrong else [])


def test_sizes_that_were_alike_by_chance_are_two() -> None:
    def product(rows: int, columns: int) -> int:
        x, y = ft.ones(rows, 5), ft.ones(columns, 5)
        x.tolist()
        y.tolist()
        before = counters.slow_path_entries
        assert ft.mm(x, y.T).tolist() == [[5.0] * columns] * rows
        return counters.slow_path_entries - before

    recorded = [product(rows, columns) for rows, columns in ((7, 9), (8, 8), (10, 12), (11, 13), (15, 17), (21, 14), (18, 16))]
    assert recorded[-1] == 0
