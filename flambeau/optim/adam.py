"""Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019)."""

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
    number,
    update,
    zeros_like_all,
)  # fmt: skip


@update
def adam_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor], step_size: Number, root_correction: Number, one_minus_beta1: Number, beta2: Number,
    one_minus_beta2: Number, eps: Number, decay: Number = 0, decoupled: bool = False, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new exp_avgs..., new exp_avg_sqs..., new maxima...).

    step_size = lr / (1 - beta1^t), root_correction = sqrt(1 - beta2^t). `decay`: the weight decay, or with `decoupled` the
    factor 1 - lr * weight decay on the parameter.
    """
    new_params, new_m, new_v, new_max = [], [], [], []
    for i, (p, g, m, v) in enumerate(zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)):
        if maximize:
            g = -g
        if not is_zero(decay):
            if decoupled:
                p = p * decay
            else:
                g = g + p * decay
        m = m + (g - m) * one_minus_beta1
        v = v * beta2 + g * g * one_minus_beta2
        largest = v
        if max_exp_avg_sqs:
            largest = torch.maximum(max_exp_avg_sqs[i], v)
            new_max.append(largest)
        new_params.append(p - m / (torch.sqrt(largest) / root_correction + eps) * step_size)
        new_m.append(m)
        new_v.append(v)
    return new_params + new_m + new_v + new_max


class Adam(Optimizer):
    """Steps by the running mean of gradients over the root of the running mean of their squares."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check(lr=lr, eps=eps, betas=betas, weight_decay=weight_decay)
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor) and foreach and not capturable:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        amsgrad = group["amsgrad"]

        def start(p: Tensor) -> dict[str, Any]:
            state: dict[str, Any] = {"step": count(fused=group["fused"])}
            for name in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ())):
                state[name] = zeros_like_all([p])[0]
            return state

        lr = number(group["lr"])
        beta1, beta2 = (number(b) for b in group["betas"])
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        if decay and decoupled:
            decay = 1 - lr * decay
        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start):
            t = steps.numbers[0] + 1
            m = [s["exp_avg"] for s in states]
            v = [s["exp_avg_sq"] for s in states]
            largest = [s["max_exp_avg_sq"] for s in states] if amsgrad else []
            new = adam_update(
                some, grads, m, v, largest, lr / (1 - beta1**t), (1 - beta2**t) ** 0.5, 1 - beta1, beta2, 1 - beta2,
                group["eps"], decay, decoupled, group["maximize"],
            )  # fmt: skip
            assign([*some, *m, *v, *largest], new)
            steps.set(t)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
