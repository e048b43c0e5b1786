"""Rprop and ASGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.optim.counts import count
from flambeau.optim.optimizer import (
    Group,
    Number,
    Optimizer,
    ParamsT,
    Tensor,
    assign,
    check,
    filled_like,
    is_zero,
    number,
    update,
    zeros_like_all,
)  # fmt: skip


@update
def rprop_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], previous: Sequence[Tensor], sizes: Sequence[Tensor], eta_minus: float,
    eta_plus: float, smallest: float, largest: float, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., gradients used..., new step sizes...)."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    for p, g, old, size in zip(params, grads, previous, sizes, strict=True):
        if maximize:
            g = -g
        product = g * old
        size = torch.where(product > 0, size * eta_plus, torch.where(product < 0, size * eta_minus, size)).clamp(smallest, largest)
        g = torch.where(product < 0, 0, g)
        new[0].append(p - torch.sign(g) * size)
        new[1].append(g)
        new[2].append(size)
    return new[0] + new[1] + new[2]


class Rprop(Optimizer):
    """Riedmiller and Braun, 1993: steps by the gradient's sign, with a size for each element."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        def start(p: Tensor) -> dict[str, Any]:
            size = filled_like(p, number(group["lr"]))
            return {"step": count(), "prev": zeros_like_all([p])[0], "step_size": size}

        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start, apart=False):
            previous, sizes = [s["prev"] for s in states], [s["step_size"] for s in states]
            (minus, plus), (smallest, largest) = group["etas"], group["step_sizes"]
            new = rprop_update(some, grads, previous, sizes, minus, plus, smallest, largest, group["maximize"])
            assign([*some, *previous, *sizes], new)
            steps.add_one()


@update
def asgd_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], averages: Sequence[Tensor], shrink: Number, eta: Number, mu: Number,
    weight_decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new averages...); shrink = 1 - lambd * eta."""
    new_params, new_averages = [], []
    for p, g, average in zip(params, grads, averages, strict=True):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        p = p * shrink - g * eta
        new_params.append(p)
        new_averages.append(average + (p - average) * mu)
    return new_params + new_averages


class ASGD(Optimizer):
    """Polyak and Juditsky, 1992: averaged stochastic gradient descent."""

    _counts = ("step", "eta", "mu")

    def __init__(
        self, params: ParamsT, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        lr = number(group["lr"])

        def start(p: Tensor) -> dict[str, Any]:
            return {"step": count(), "eta": count(lr), "mu": count(1.0), "ax": zeros_like_all([p])[0]}

        for some, grads, states, (steps, etas, mus) in self._cohorts(params, ("step", "eta", "mu"), start):
            averages = [s["ax"] for s in states]
            t, eta, mu = steps.numbers[0] + 1, etas.numbers[0], mus.numbers[0]
            new = asgd_update(some, grads, averages, 1 - group["lambd"] * eta, eta, mu, group["weight_decay"], group["maximize"])
            assign([*some, *averages], new)
            steps.set(t)
            etas.set(lr / (1 + group["lambd"] * lr * t) ** group["alpha"])
            mus.set(1 / max(1, t - group["t0"]))
