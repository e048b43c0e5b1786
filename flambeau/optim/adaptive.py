"""RMSprop, Adagrad, Adadelta: a learning rate for each element from its squared gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.optim.counts import Counts, count
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
def rmsprop_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], squares: Sequence[Tensor], means: Sequence[Tensor],
    buffers: Sequence[Tensor], lr: Number, alpha: Number, one_minus_alpha: Number, eps: Number, momentum: Number,
    weight_decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new squares..., new means..., new momentum buffers...)."""
    new: tuple[list[Tensor], ...] = ([], [], [], [])
    for i, (p, g, v) in enumerate(zip(params, grads, squares, strict=True)):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        v = v * alpha + g * g * one_minus_alpha
        new[1].append(v)
        if means:
            mean = means[i] + (g - means[i]) * one_minus_alpha
            new[2].append(mean)
            v = v - mean * mean
        step = g / (torch.sqrt(v) + eps)
        if buffers:
            step = buffers[i] * momentum + step
            new[3].append(step)
        new[0].append(p - step * lr)
    return new[0] + new[1] + new[2] + new[3]


class RMSprop(Optimizer):
    """Hinton, 2012 (lecture 6e); centered as in Graves, 2013."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")

        def start(p: Tensor) -> dict[str, Any]:
            return {"step": count(), **{name: zeros_like_all([p])[0] for name in names}}

        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start, apart=False):
            squares = [s["square_avg"] for s in states]
            means = [s["grad_avg"] for s in states] if group["centered"] else []
            buffers = [s["momentum_buffer"] for s in states] if group["momentum"] > 0 else []
            new = rmsprop_update(
                some, grads, squares, means, buffers, number(group["lr"]), group["alpha"], 1 - group["alpha"], group["eps"],
                group["momentum"], group["weight_decay"], group["maximize"],
            )  # fmt: skip
            assign([*some, *squares, *means, *buffers], new)
            steps.add_one()


@update
def adagrad_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], sums: Sequence[Tensor], lr: Number, eps: Number,
    weight_decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new sums of squares...)."""
    new_params, new_sums = [], []
    for p, g, s in zip(params, grads, sums, strict=True):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        s = s + g * g
        new_sums.append(s)
        new_params.append(p - g / (torch.sqrt(s) + eps) * lr)
    return new_params + new_sums


class Adagrad(Optimizer):
    """Duchi et al., 2011. The states are made with the optimizer."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._start(group, p)

    @staticmethod
    def _start(group: Group, p: Tensor) -> dict[str, Any]:
        return {"step": count(fused=group["fused"]), "sum": filled_like(p, group["initial_accumulator_value"])}

    def share_memory(self) -> None:
        """Nothing to do: see docs/differences.md."""

    def _update_sparse(self, group: Group, params: list[Tensor]) -> None:
        from flambeau.optim.sparse_adam import add_sparse, values_at

        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        for p in params:
            state = self.state[p] or self._start(group, p)
            g: Any = p.grad.coalesce()  # type: ignore[union-attr]
            rows = -g._data if group["maximize"] else g._data
            steps = Counts([state], "step")
            lr = number(group["lr"]) / (1 + steps.numbers[0] * group["lr_decay"])
            add_sparse(state["sum"], g, rows * rows)
            add_sparse(p, g, rows / (values_at(state["sum"], g).sqrt() + group["eps"]) * -lr)
            steps.add_one()

    def _update(self, group: Group, params: list[Tensor]) -> None:
        for some, grads, states, (steps,) in self._cohorts(params, ("step",), lambda p: self._start(group, p)):
            sums = [s["sum"] for s in states]
            lr = number(group["lr"]) / (1 + steps.numbers[0] * group["lr_decay"])
            new = adagrad_update(some, grads, sums, lr, group["eps"], group["weight_decay"], group["maximize"])
            assign([*some, *sums], new)
            steps.add_one()


@update
def adadelta_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], squares: Sequence[Tensor], deltas: Sequence[Tensor], lr: Number,
    rho: Number, one_minus_rho: Number, eps: Number, weight_decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new mean squares..., new mean squared steps...)."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    for p, g, v, d in zip(params, grads, squares, deltas, strict=True):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        v = v * rho + g * g * one_minus_rho
        step = torch.sqrt(d + eps) / torch.sqrt(v + eps) * g
        new[0].append(p - step * lr)
        new[1].append(v)
        new[2].append(d * rho + step * step * one_minus_rho)
    return new[0] + new[1] + new[2]


class Adadelta(Optimizer):
    """Zeiler, 2012."""

    def __init__(
        self, params: ParamsT, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable,
            "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        def start(p: Tensor) -> dict[str, Any]:
            square, delta = zeros_like_all([p, p])
            return {"step": count(), "square_avg": square, "acc_delta": delta}

        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start, apart=False):
            squares = [s["square_avg"] for s in states]
            deltas = [s["acc_delta"] for s in states]
            new = adadelta_update(
                some, grads, squares, deltas, number(group["lr"]), group["rho"], 1 - group["rho"], group["eps"],
                group["weight_decay"], group["maximize"],
            )  # fmt: skip
            assign([*some, *squares, *deltas], new)
            steps.add_one()
