"""Adamax, NAdam and RAdam: Adam's relatives."""

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
    is_zero,
    kept,
    number,
    update,
    zeros_like_all,
)  # fmt: skip


@update
def adamax_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_infs: Sequence[Tensor],
    step_size: Number, one_minus_beta1: Number, beta2: Number, eps: Number, weight_decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new exp_avgs..., new infinity norms...)."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    for p, g, m, u in zip(params, grads, exp_avgs, exp_infs, strict=True):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        m = m + (g - m) * one_minus_beta1
        u = torch.maximum(u * beta2, torch.abs(g) + eps)
        new[0].append(p - m / u * step_size)
        new[1].append(m)
        new[2].append(u)
    return new[0] + new[1] + new[2]


class Adamax(Optimizer):
    """Kingma and Ba, 2015, section 7.1."""

    def __init__(
        self, params: ParamsT, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        def start(p: Tensor) -> dict[str, Any]:
            m, u = zeros_like_all([p, p])
            return {"step": count(), "exp_avg": m, "exp_inf": u}

        beta1, beta2 = group["betas"]
        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start):
            t = steps.numbers[0] + 1
            m, u = [s["exp_avg"] for s in states], [s["exp_inf"] for s in states]
            new = adamax_update(
                some, grads, m, u, number(group["lr"]) / (1 - beta1**t), 1 - beta1, beta2, group["eps"],
                group["weight_decay"], group["maximize"],
            )  # fmt: skip
            assign([*some, *m, *u], new)
            steps.set(t)


@update
def nadam_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    grad_step: Number, mean_step: Number, correction2: Number, one_minus_beta1: Number, beta2: Number, one_minus_beta2: Number,
    eps: Number, decay: Number = 0, decoupled: bool = False, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new exp_avgs..., new exp_avg_sqs...)."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        if maximize:
            g = -g
        if not is_zero(decay):
            if decoupled:
                p = p * decay
            else:
                g = g + p * decay
        m = m + (g - m) * one_minus_beta1
        v = v * beta2 + g * g * one_minus_beta2
        root = torch.sqrt(v / correction2) + eps
        new[0].append(p - g / root * grad_step - m / root * mean_step)
        new[1].append(m)
        new[2].append(v)
    return new[0] + new[1] + new[2]


class NAdam(Optimizer):
    """Dozat, 2016: Adam with Nesterov momentum; the 0.96 is its section 3."""

    _counts = ("step", "mu_product")

    def __init__(
        self, params: ParamsT, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        def start(p: Tensor) -> dict[str, Any]:
            m, v = zeros_like_all([p, p])
            return {"step": count(), "mu_product": count(1.0), "exp_avg": m, "exp_avg_sq": v}

        beta1, beta2 = group["betas"]
        lr = number(group["lr"])
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        if decay and decoupled:
            decay = 1 - lr * decay
        for some, grads, states, (steps, products) in self._cohorts(params, ("step", "mu_product"), start):
            t = steps.numbers[0] + 1
            mu = beta1 * (1.0 - 0.5 * 0.96 ** (t * group["momentum_decay"]))
            mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((t + 1) * group["momentum_decay"]))
            product = kept(products.numbers[0] * kept(mu))
            m, v = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
            new = nadam_update(
                some, grads, m, v, lr * (1 - mu) / (1 - product), lr * mu_next / (1 - product * mu_next), 1 - beta2**t,
                1 - beta1, beta2, 1 - beta2, group["eps"], decay, decoupled, group["maximize"],
            )  # fmt: skip
            assign([*some, *m, *v], new)
            steps.set(t)
            products.set(product)


@update
def radam_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    step_size: Number, one_minus_beta1: Number, beta2: Number, one_minus_beta2: Number, eps: Number, decay: Number = 0,
    decoupled: bool = False, rectified: bool = False, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new exp_avgs..., new exp_avg_sqs...); not `rectified`: the variance is not yet tractable."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        if maximize:
            g = -g
        if not is_zero(decay):
            if decoupled:
                p = p * decay
            else:
                g = g + p * decay
        m = m + (g - m) * one_minus_beta1
        v = v * beta2 + g * g * one_minus_beta2
        step = m * step_size
        new[0].append(p - (step / (torch.sqrt(v) + eps) if rectified else step))
        new[1].append(m)
        new[2].append(v)
    return new[0] + new[1] + new[2]


class RAdam(Optimizer):
    """Liu et al., 2020."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        def start(p: Tensor) -> dict[str, Any]:
            m, v = zeros_like_all([p, p])
            return {"step": count(), "exp_avg": m, "exp_avg_sq": v}

        beta1, beta2 = group["betas"]
        lr = number(group["lr"])
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        if decay and decoupled:
            decay = 1 - lr * decay
        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start):
            t = steps.numbers[0] + 1
            correction2 = 1 - beta2**t
            longest = 2 / (1 - beta2) - 1  # rho_infinity and rho_t of the paper's algorithm 2
            rho = longest - 2 * t * beta2**t / correction2
            step_size = lr / (1 - beta1**t)
            if rho > 5.0:
                rect = (rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho)
                step_size *= (rect * correction2) ** 0.5
            m, v = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
            new = radam_update(
                some, grads, m, v, step_size, 1 - beta1, beta2, 1 - beta2, group["eps"], decay, decoupled, rho > 5.0,
                group["maximize"],
            )  # fmt: skip
            assign([*some, *m, *v], new)
            steps.set(t)
