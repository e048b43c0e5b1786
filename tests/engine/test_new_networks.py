"""Networks of new widths, each trained for one step: what it costs is known from those before, whatever the optimizer."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau as ft
from flambeau.optim import optimizer as optimizer_module
from flambeau.statistics import counters
from tests.engine.nothing_known import forget_edges, forget_places

nn = ft.nn


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun: what other tests have done does not say which paths come back."""
    forget_places(monkeypatch)
    forget_edges()


OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")


def train_one(torch: Any, name: str, wide: int, rows: int) -> list[Any]:
    """One step of a new network; its parameters."""
    torch.manual_seed(wide)
    net = torch.nn.Sequential(torch.nn.Linear(7, wide), torch.nn.Tanh(), torch.nn.LayerNorm(wide), torch.nn.Linear(wide, 3))
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=1e-2)
    net(torch.randn(rows, 7)).square().mean().backward()
    optimizer.step()
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_networks_of_new_widths_make_no_new_plans(name: str) -> None:
    sizes = random.Random(0).sample(range(40, 400), 72)  # none comes twice
    made = []
    for i in range(36):
        before = counters.plans_made
        train_one(ft, name, sizes[i], sizes[36 + i])[0].sum().item()
        made.append(counters.plans_made - before)
    assert sum(made[20:]) <= 6, made  # of two kinds of a size that are rare; a list of parameters was a plan or two in each step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_one_by_one_have_the_bits_of_a_list(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = [p.tolist() for p in train_one(ft, name, 33, 9)]
    monkeypatch.setattr(ft.optim.Optimizer, "_steps_apart", 0)
    assert [p.tolist() for p in train_one(ft, name, 33, 9)] == apart


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_of_several_dtypes_step_as_in_torch(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")

    def run(module: Any) -> list[Any]:
        dtypes = (module.float32, getattr(module, kind), module.float64)
        params = [module.nn.Parameter(module.ones(3 + i, dtype=d)) for i, d in enumerate(dtypes)]
        optimizer = getattr(module.optim, name)(params, lr=1e-2)
        for _ in range(3):
            for i, p in enumerate(params):
                p.grad = module.full_like(p.detach(), 0.5 + i)
            optimizer.step()
        return [p.detach().to(module.complex128).tolist() for p in params]

    for mine, theirs, tolerance in zip(run(ft), run(torch), (1e-6, 1e-6 if kind == "complex64" else 2e-2, 1e-12), strict=True):
        assert mine == pytest.approx(theirs, rel=tolerance)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_long_lists_step_part_by_part_with_the_bits_of_a_list(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> list[Any]:
        ft.manual_seed(0)
        net = nn.Sequential(*[layer for n in range(6) for layer in (nn.Linear(4 + n, 5 + n), nn.Tanh())])
        optimizer = getattr(ft.optim, name)(net.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            net(ft.randn(3, 4)).square().mean().backward()
            optimizer.step()
        return [p.tolist() for p in net.parameters()]

    monkeypatch.setattr(ft.optim.Optimizer, "_steps_apart", 0)
    whole = train()
    monkeypatch.setattr(optimizer_module, "PART", 5)
    assert train() == whole


def test_layers_alike_share_the_plans_of_an_optimizers_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded for a step does not grow with the number of layers."""
    monkeypatch.setattr(optimizer_module, "PART", 8)
    recorded = []
    for parts in (4, 16):
        forget_edges()
        params = [nn.Parameter(ft.ones(3)) for _ in range(8 * parts)]
        for p in params:
            p.grad = ft.full((3,), 0.5)
        before = counters.slow_path_entries
        ft.optim.Adam(params).step()
        recorded.append(counters.slow_path_entries - before)
    assert recorded[1] == recorded[0], recorded
