"""Paths by class that are made ahead: what was foreseen is what calls would have made, and a wrong guess costs nothing but time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.statistics import counters
from flambeau.trace import ahead

pytestmark = pytest.mark.usefixtures("whole")


def training(n: int, optimizer: Any, net: Any) -> list[float]:
    torch.manual_seed(n)
    x = torch.randn(n, 6)
    loss = torch.nn.functional.cross_entropy(net(x), torch.arange(n) % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return [loss.item(), *[p.sum().item() for p in net.parameters()]]


def network(kind: Callable[..., Any]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(7, 3))
    return kind(net.parameters(), lr=0.1), net


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_training_steps_of_new_sizes_have_the_same_bits(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (5, 9, 13, 21, 34, 8, 55, 17, 40)
    optimizer, net = network(kind)
    before = counters.made_ahead
    found = [training(n, optimizer, net) for n in sizes]
    assert counters.made_ahead > before + 20, "nothing was made ahead"
    monkeypatch.setattr(ahead, "_go_on", lambda variant, state: None)
    for further in (60, 0):  # at sizes that are new, one by one, and at those that are known
        optimizer, net = network(kind)
        before = counters.made_ahead
        again = [training(n + further, optimizer, net) for n in sizes]
        assert counters.made_ahead == before
    assert again == found


def test_a_new_size_asks_nothing_of_python_but_where_it_comes_in() -> None:
    optimizer, net = network(torch.optim.Adam)
    for n in (4, 6, 11, 15, 23, 31, 44, 52):
        training(n, optimizer, net)
    edges, made = counters.class_edges, counters.made_ahead
    training(61, optimizer, net)
    assert counters.class_edges - edges - (counters.made_ahead - made) <= 4


def test_a_backward_pass_has_its_short_name_only_where_it_follows() -> None:
    """The edges that came last from the loss lead elsewhere: what is made ahead over them is no pass."""

    def program(n: int, passes: bool) -> None:
        w = torch.ones(n, requires_grad=True)
        loss = (w * 2).sum()
        if passes:
            loss.backward()
            assert w.grad is not None and w.grad.tolist() == [2.0] * n
        else:
            for _ in range(8):
                loss = loss.tanh()
            loss.item()

    for n in range(103, 131):
        program(n, n < 112)
    for n in range(131, 141):
        program(n, bool(n % 2))


def test_another_branch_than_the_last_one() -> None:
    def program(n: int, branch: int) -> float:
        x = torch.ones(n, 19) * 2
        x = x.exp() if branch == 0 else x + 1 if branch == 1 else x[:, :18]
        return (x * 3).sum().item()

    wanted = [2.718281828459045**2 * 57, 171.0, 108.0]
    for n in range(5, 40):
        branch = (n * 7) % 5 % 3
        assert program(n, branch) == pytest.approx(wanted[branch] * n, rel=1e-5)


def test_a_guard_between() -> None:
    """The path at a size that is even is another one than at one that is odd, though both begin alike."""

    def program(n: int) -> Any:
        x = torch.ones(n, 23).cumsum(0) * 2
        return x.reshape(2, -1).sum(1).tolist() if n % 2 == 0 else x.reshape(-1).flip(0)[:3].tolist()

    for n in range(3, 30):
        numbers = [2.0 * (i + 1) for i in range(n) for _ in range(23)]
        wanted = [sum(numbers[: len(numbers) // 2]), sum(numbers[len(numbers) // 2 :])] if n % 2 == 0 else numbers[::-1][:3]
        assert program(n) == wanted


def test_writes_through_views_of_new_sizes() -> None:
    for n in (4, 7, 9, 14, 20, 33, 41):
        x = torch.zeros(n, 29)
        y = x[1:]
        with torch.no_grad():
            x.add_(1)
            y.mul_(2)
        x[0] = 5.0
        assert x.sum().item() == 29 * (5.0 + 2.0 * (n - 1)) and y[0].tolist() == [2.0] * 29


def test_the_reach_is_halved_where_a_guess_is_not_taken_to_its_end() -> None:
    model = torch.nn.Linear(31, 31)

    def program(n: int, stop: bool) -> None:
        x = torch.ones(n, 31) * 2
        if stop:
            x.sum().item()
            return
        for _ in range(12):
            x = model(x)
        x.sum().item()

    for n in range(5, 12):
        program(n, False)
    before = counters.made_ahead
    for n in range(20, 60):
        program(n, True)
    assert counters.made_ahead - before < 40 * 6
