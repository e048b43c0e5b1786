"""Products that share an operand: one packing for all, and the same results as from products by themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.kernels import matmul_prepacked
from flambeau.runtime import tiles
from flambeau.trace import evaluate

pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")
USES = matmul_prepacked.FEWEST_USES


@pytest.fixture
def plans() -> Iterator[list[Any]]:
    """The plans that are made meanwhile."""
    made: list[Any] = []

    def observer(plan: Any, reason: str) -> None:
        made.append(plan.plan)

    evaluate.OBSERVERS.append(observer)
    threads = ft.get_num_threads()
    yield made
    evaluate.OBSERVERS.remove(observer)
    ft.set_num_threads(threads)


def packings(plans: list[Any]) -> int:
    """How many operands the plans pack once."""
    return sum(kernel.name.startswith("matmul_pack_") for plan in plans for kernel in plan.kernels)


def shared_products(xs: list[np.ndarray], w: np.ndarray, left: bool, transposed: bool, bias: bool = False) -> list[np.ndarray]:
    """x @ w for each x (w @ x.T for `left`), recorded in one trace."""
    weight, given = ft.from_numpy(w).clone(), [ft.from_numpy(x).clone() for x in xs]  # calls on NumPy's memory run at once
    if transposed:
        weight = weight.t().contiguous().t()
    ft.stack([x.sum() for x in [weight, *given]]).tolist()
    results = [weight @ x.t() if left else x @ weight for x in given]
    if bias:
        results = [ft.relu(y + 1.0) for y in results]
    ft.stack([y.sum() for y in results]).tolist()
    return [y.numpy().copy() for y in results]


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("size", [(40, 24, 600), (32, 100, 171), (33, 400, 90), (130, 64, 128)], ids=str)
def test_sizes(size: tuple[int, int, int], left: bool, transposed: bool, plans: list[Any]) -> None:
    m, k, n = size
    rng = np.random.default_rng(0)
    w = rng.standard_normal((n, k) if left else (k, n), np.float32)
    xs = [rng.standard_normal((m, k), np.float32) for _ in range(USES)]
    by_threads = []
    for threads in (1, 2):
        ft.set_num_threads(threads)
        by_threads.append(shared_products(xs, w, left, transposed))
    assert packings(plans) == 2
    for x, one, two in zip(xs, *by_threads, strict=True):
        np.testing.assert_array_equal(one, two)
        a, b = (w, x.T) if left else (x, w)
        exact, sizes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
        assert (np.abs(one - exact) <= (k + 2) * 2.0**-24 * sizes).all()


def test_fewer_products_pack_by_themselves(plans: list[Any]) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 128), np.float32)
    shared_products([rng.standard_normal((32, 64), np.float32) for _ in range(USES - 1)], w, False, False)
    shared_products([rng.standard_normal((128, 64), np.float32)], w, False, False)
    shared_products([rng.standard_normal((8, 64), np.float32) for _ in range(USES)], w, False, False)
    assert packings(plans) == 0


def test_what_follows_a_product(plans: list[Any]) -> None:
    rng = np.random.default_rng(1)
    w = rng.standard_normal((64, 250), np.float32)
    xs = [rng.standard_normal((40, 64), np.float32) for _ in range(USES)]
    for x, y in zip(xs, shared_products(xs, w, False, False, bias=True), strict=True):
        np.testing.assert_allclose(y, np.maximum(x @ w + 1, 0), rtol=1e-5, atol=1e-4)
    assert packings(plans) == 1


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e-42, -1e-38, 3e38], ids=str)
def test_special_values(value: float, plans: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the shared operand and in others: what products by themselves give; both blocks of K, on one thread and on two."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((500, 100), np.float32)
    xs = [rng.standard_normal((48, 500), np.float32) for _ in range(USES)]
    w[3, 7] = w[490, 99] = value
    xs[1][5, 400] = value
    results = []
    with np.errstate(invalid="ignore", over="ignore"):
        for threads in (1, 2):
            ft.set_num_threads(threads)
            results.append(shared_products(xs, w, False, False))
        monkeypatch.setattr(matmul_prepacked, "FEWEST_USES", 100)
        monkeypatch.setattr(matmul_prepacked, "_FEWEST_ROWS", 10_000)
        plans.clear()
        alone = shared_products([*xs, xs[0]], w, False, False)
    assert packings(plans) == 0
    for one, two, single in zip(*results, alone, strict=False):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, single)


def test_bfloat16(plans: list[Any]) -> None:
    ft.manual_seed(0)
    w, xs = ft.randn(96, 130).bfloat16(), [ft.randn(32, 96).bfloat16() for _ in range(USES)]
    ft.stack([w.sum(), *[x.sum() for x in xs]]).float().tolist()
    results = [x @ w for x in xs]
    ft.stack([y.sum() for y in results]).float().tolist()
    assert packings(plans) == 1
    exact = [x.float().numpy().astype(np.float64) @ w.float().numpy() for x in xs]
    for y, z in zip(results, exact, strict=True):
        np.testing.assert_allclose(y.float().numpy(), z, rtol=2.0**-8, atol=1e-4)


def test_an_update_after_the_products(plans: list[Any]) -> None:
    """The panels hold the weight as it was, also where its memory is overwritten by the same run."""
    ft.manual_seed(0)
    w, xs = ft.randn(64, 128), [ft.randn(80, 64) for _ in range(USES)]
    ft.stack([w.sum(), *[x.sum() for x in xs]]).tolist()
    before = w.numpy().copy()
    w = w + 0.0
    w.sum().item()
    results = [x @ w for x in xs[: USES // 2]]
    total = sum(y.sum() for y in results) + 0.0
    results += [x @ w for x in xs[USES // 2 :]]
    w.mul_(0.5)
    ft.stack([total, w.sum()]).tolist()
    assert packings(plans) == 1
    np.testing.assert_array_equal(w.numpy(), before * 0.5)
    for x, y in zip(xs, results, strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy() @ before, rtol=1e-4, atol=1e-4)


def test_two_products_of_many_rows_share(plans: list[Any]) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 128), np.float32)
    xs = [rng.standard_normal((rows, 64), np.float32) for rows in (100, 80)]
    for x, y in zip(xs, shared_products(xs, w, False, False), strict=True):
        exact, sizes = x.astype(np.float64) @ w, np.abs(x).astype(np.float64) @ np.abs(w)
        assert (np.abs(y - exact) <= 66 * 2.0**-24 * sizes).all()
    assert packings(plans) == 1


@pytest.mark.parametrize("seed", range(12))
def test_bits_do_not_tell_what_was_planned_together(seed: int, plans: list[Any]) -> None:
    """Each product has the bits that it has by itself, whichever side of it is shared, and however few rows it has."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    left, transposed = chance.random() < 0.5, chance.random() < 0.5
    k, n = chance.choice((24, 40, 96, 130, 400)), chance.choice((33, 64, 150, 600))
    w = rng.standard_normal((n, k) if left else (k, n), np.float32)
    xs = [rng.standard_normal((chance.choice((16, 20, 32, 40, 64, 100, 300)), k), np.float32) for _ in range(USES + 2)]
    together = shared_products(xs, w, left, transposed)
    for x, y in zip(xs, together, strict=True):
        np.testing.assert_array_equal(y, shared_products([x], w, left, transposed)[0])
    if seed == 0:
        assert packings(plans) == 1, "nothing was packed for several products"
