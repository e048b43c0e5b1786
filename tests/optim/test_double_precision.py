"""Every optimizer on float64 and complex128 parameters beside PyTorch's, at the precision of double: nothing goes through float32 on the way."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

# Optimizer, settings that are no exact float32 numbers.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.013, "momentum": 0.87, "dampening": 0.11, "weight_decay": 0.07}),
    "SGD nesterov": ("SGD", {"lr": 0.013, "momentum": 0.87, "nesterov": True}),
    "SGD plain": ("SGD", {"lr": 0.013, "weight_decay": 0.07, "maximize": True}),
    "Adam": ("Adam", {"lr": 0.013, "betas": (0.87, 0.983), "eps": 1e-7, "weight_decay": 0.07}),
    "Adam amsgrad": ("Adam", {"lr": 0.013, "amsgrad": True}),
    "AdamW": ("AdamW", {"lr": 0.013, "betas": (0.87, 0.983), "weight_decay": 0.07}),
    "AdamW amsgrad": ("AdamW", {"lr": 0.013, "amsgrad": True, "maximize": True}),
    "Adamax": ("Adamax", {"lr": 0.013, "betas": (0.87, 0.983), "weight_decay": 0.07}),
    "NAdam": ("NAdam", {"lr": 0.013, "momentum_decay": 0.0043, "weight_decay": 0.07, "decoupled_weight_decay": True}),
    "NAdam coupled": ("NAdam", {"lr": 0.013, "weight_decay": 0.07}),
    "RAdam": ("RAdam", {"lr": 0.013, "betas": (0.87, 0.983), "weight_decay": 0.07}),
    "RAdam decoupled": ("RAdam", {"lr": 0.013, "weight_decay": 0.07, "decoupled_weight_decay": True}),
    "Adagrad": ("Adagrad", {"lr": 0.013, "lr_decay": 0.03, "weight_decay": 0.07, "initial_accumulator_value": 0.3}),
    "Adadelta": ("Adadelta", {"lr": 0.7, "rho": 0.87, "weight_decay": 0.07}),
    "RMSprop": ("RMSprop", {"lr": 0.013, "alpha": 0.87, "momentum": 0.3, "centered": True, "weight_decay": 0.07}),
    "RMSprop plain": ("RMSprop", {"lr": 0.013}),
    "Rprop": ("Rprop", {"lr": 0.013, "etas": (0.47, 1.23), "step_sizes": (1e-5, 7.3)}),
    "ASGD": ("ASGD", {"lr": 0.013, "lambd": 0.003, "alpha": 0.73, "t0": 2.0, "weight_decay": 0.07}),
    "LBFGS": ("LBFGS", {"lr": 0.13, "max_iter": 3, "history_size": 3}),
    "LBFGS wolfe": ("LBFGS", {"lr": 0.13, "max_iter": 3, "line_search_fn": "strong_wolfe"}),
    "Adafactor": ("Adafactor", {"lr": 0.013, "weight_decay": 0.07}),
}
REAL_ONLY = ("Adafactor", "LBFGS", "LBFGS wolfe")
COMPLEX = tuple(name for name in CASES if name not in REAL_ONLY)
STEPS = 6


def trained(module: Any, name: str, settings: dict[str, Any], dtype: str) -> list[Any]:
    """Parameters after some steps, and all that the optimizer keeps."""
    generator = np.random.default_rng(3)
    values = [generator.standard_normal(shape) + (1j * generator.standard_normal(shape) if "complex" in dtype else 0) for shape in ((3, 4), (5,))]
    params = [module.nn.Parameter(module.tensor(v, dtype=getattr(module, dtype))) for v in values]
    goals = [p.detach() * 0.3 + 0.1 for p in params]
    optimizer = getattr(module.optim, name)(params, **settings)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum(((p - g).abs() ** 3 + (p - g).abs() ** 2 * 0.3).sum() for p, g in zip(params, goals, strict=True))
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    found = [p.detach().numpy() for p in params]
    if name == "LBFGS":  # keeps its past otherwise
        return found
    for state in optimizer.state_dict()["state"].values():
        found += [np.asarray(v.detach().numpy()) for v in state.values() if isinstance(v, module.Tensor) and v.numel()]
    return found


@pytest.mark.parametrize("case", [(name, "float64") for name in CASES] + [(name, "complex128") for name in COMPLEX], ids="-".join)
def test_steps_are_those_of_doubles(case: tuple[str, str]) -> None:
    name, settings = CASES[case[0]]
    ours, theirs = (trained(module, name, settings, case[1]) for module in (ft, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("name", ["NAdam", "ASGD", "Adam"])
def test_a_resumed_run_goes_on_with_the_same_numbers(name: str) -> None:
    settings = CASES[name][1]

    def step(p: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        ((p - 0.3) ** 4).sum().backward()
        optimizer.step()

    p = ft.nn.Parameter(ft.linspace(-1, 2, 7, dtype=ft.float64))
    optimizer = getattr(ft.optim, name)([p], **settings)
    for _ in range(3):
        step(p, optimizer)
    q = ft.nn.Parameter(p.detach().clone())
    resumed = getattr(ft.optim, name)([q], **settings)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as in PyTorch, it would share the tensors of the dict
    for _ in range(3):
        step(p, optimizer)
        step(q, resumed)
    assert p.tolist() == q.tolist()
