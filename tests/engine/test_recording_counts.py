"""What the counters must show of a training loop: nothing new after the second step."""

from __future__ import annotations

import pytest

import flambeau as ft

pytestmark = pytest.mark.usefixtures("whole")

F = ft.nn.functional
WATCHED = ("slow_path_entries", "plans_made", "kernels_compiled")


def _watch(before: dict[str, int]) -> list[int]:
    now = ft.stats()
    return [now[name] - before[name] for name in WATCHED]


def test_a_training_loop_settles() -> None:
    """With a schedule, and a Python number in the loss that changes at every step; a smaller batch compiles no kernel."""
    ft.manual_seed(0)
    model = ft.nn.Sequential(ft.nn.Linear(6, 8), ft.nn.Tanh(), ft.nn.Linear(8, 3))
    optimizer = ft.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = ft.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    x, y = ft.randn(10, 6), ft.randint(0, 3, (10,))

    def step(weight: float, rows: int = 10) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[:rows]), y[:rows]) * weight
        loss.backward()
        optimizer.step()
        scheduler.step()

    for i in range(3):
        step(1.0 + i)
    before = ft.stats()
    for i in range(5):
        step(7.5 + i)
    assert _watch(before) == [0, 0, 0]
    before = ft.stats()
    step(3.5, rows=9)  # (7 rows would be other tiles of a matrix product)
    _, plans, kernels = _watch(before)
    assert plans == 1 and kernels == 0


def test_changing_indices_make_no_plans() -> None:
    x = ft.randn(200, 4)
    for i in range(3):
        x[i].sum().item()
    before = ft.stats()
    for i in range(200):
        x[i].sum().item()
    assert _watch(before) == [0, 0, 0]


def test_a_loop_that_never_observes_settles() -> None:
    a, b = ft.rand(8) * 0.1, ft.rand(8)
    y = ft.zeros(8)
    for _ in range(20_000):
        y = y * a + b
    before = ft.stats()
    for _ in range(20_000):
        y = y * a + b
    assert ft.stats()["plans_made"] - before["plans_made"] <= 2
    assert bool((y - b / (1 - a)).abs().max() < 1e-5)


def test_an_operation_is_seen_through_every_view() -> None:
    base = ft.zeros(3, 4)
    row, column = base[1], base[:, 2]
    base.add_(1)
    row.mul_(5)
    column += 10
    assert base.tolist() == [[1, 1, 11, 1], [5, 5, 15, 5], [1, 1, 11, 1]]
    array = base.numpy()
    base[0, 0] = 7
    assert array[0, 0] == 7
    array[2, 3] = -1
    assert base[2, 3].item() == -1
