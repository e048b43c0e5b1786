"""Methods of Optimizer with an underscore that packages' own optimizers call."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft


def test_an_optimizer_of_a_package_steps() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for m in (ft, torch):

        class Own(m.optim.Optimizer):  # type: ignore[name-defined,misc]
            def __init__(self, params: Any) -> None:
                super().__init__(params, {"lr": 0.5})

            def step(self, closure: Any = None) -> None:
                self._accelerator_graph_capture_health_check()
                self._cuda_graph_capture_health_check()
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.sub_(p.grad, alpha=group["lr"])

        weight = m.nn.Parameter(m.ones(2))
        (weight * 3).sum().backward()
        Own([weight]).step()
        found.append(weight.tolist())
    assert found == [[-0.5, -0.5]] * 2
