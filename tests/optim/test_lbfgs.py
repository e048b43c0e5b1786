"""LBFGS beside PyTorch's: steps, counts and state with few evaluations left, no way down, complex and sparse gradients."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def valley(m: Any, x: Any) -> Any:
    """Rosenbrock's function, on which line searches need many evaluations."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def numbers(x: Any) -> Any:
    if hasattr(x, "tolist"):
        return x.tolist()
    return [numbers(y) for y in x] if isinstance(x, (list, tuple)) else x


def steps(m: Any, adds: bool, **options: Any) -> list[Any]:
    """The losses of four steps, and what is in the state after each. `adds`: gradients are never set back, so that they lead anywhere."""
    x = m.tensor([-1.5, 2.0, 0.25], dtype=m.float64, requires_grad=True)
    optimizer = m.optim.LBFGS([x], **options)

    def closure() -> Any:
        if not adds:
            optimizer.zero_grad()
        loss = valley(m, x)
        loss.backward()
        return loss

    seen = []
    for _ in range(4):
        seen.append(optimizer.step(closure).item())
        state = optimizer.state[x]
        seen.append({key: numbers(value) for key, value in state.items() if key != "al"})
    return seen


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
def test_few_evaluations(line_search_fn: str | None, adds: bool) -> None:
    for most, lr in ((1, 1.0), (2, 0.01), (3, 1.0), (5, 0.1), (8, 1.0), (30, 1.0)):
        options = {"line_search_fn": line_search_fn, "max_iter": 4, "max_eval": most, "lr": lr if line_search_fn or not adds else 1e-4}
        for ours, theirs in zip(steps(flambeau, adds, **options), steps(torch, adds, **options), strict=True):
            if not isinstance(ours, dict):
                assert ours == pytest.approx(theirs, rel=1e-8), options
                continue
            assert [*ours] == sorted(theirs, key=[*ours].index), options
            for key, value in ours.items():
                if key in ("old_dirs", "old_stps"):
                    assert len(value) == len(theirs[key]) and all(a == pytest.approx(b, rel=1e-6) for a, b in zip(value, theirs[key], strict=True)), options
                else:
                    assert value == pytest.approx(theirs[key], rel=1e-6, abs=1e-9, nan_ok=True), (key, options)


@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
def test_complex_parameters(line_search_fn: str | None) -> None:
    found = []
    for m in (flambeau, torch):
        z = m.tensor([1 + 2j, 3 - 1j], dtype=m.complex128, requires_grad=True)
        y = m.tensor([1.0, 2.0], dtype=m.float64, requires_grad=True)
        optimizer = m.optim.LBFGS([z, y], lr=0.5, max_iter=4, line_search_fn=line_search_fn)

        def closure(m: Any = m, z: Any = z, y: Any = y, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((z - 1j).abs() ** 4).sum() + (y**2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.step(closure)
        found.append(m.view_as_real(z.detach()).flatten().tolist() + y.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_sparse_gradients() -> None:
    found = []
    for m in (flambeau, torch):
        m.manual_seed(3)
        table = m.nn.Embedding(5, 2, sparse=True, dtype=m.float64)
        optimizer = m.optim.LBFGS(table.parameters(), lr=0.1, max_iter=3)

        def closure(m: Any = m, table: Any = table, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((table(m.tensor([0, 2, 2])) - 1) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append(table.weight.flatten().tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-9)
