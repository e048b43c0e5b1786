"""Adafactor and Muon: optimizers that treat a parameter as a matrix."""

from __future__ import annotations

import math
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
    is_zero,
    number,
    update,
    zeros_like_all,
)  # fmt: skip


@update
def adafactor_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], rows: Sequence[Tensor], columns: Sequence[Tensor], step_size: Number,
    one_minus_beta2: Number, eps1: float | None, eps2: float, threshold: float, decay: Number = 0, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new row variances..., new column variances...); of a vector, `rows` has the whole variance."""
    new: tuple[list[Tensor], ...] = ([], [], [])
    columns_left = list(columns)
    for p, g, row in zip(params, grads, rows, strict=True):
        if maximize:
            g = -g
        small = torch.finfo(p.dtype).eps if eps1 is None else eps1
        alpha = (p.norm(2) / p.numel() ** 0.5).clamp(min=eps2) * step_size  # type: ignore[attr-defined]
        if not is_zero(decay):
            p = p * (1 - decay)
        if g.ndim > 1:
            column = columns_left.pop(0)
            row = row + ((g * g).mean(-1, keepdim=True) - row) * one_minus_beta2  # type: ignore[attr-defined]
            column = column + ((g * g).mean(-2, keepdim=True) - column) * one_minus_beta2  # type: ignore[attr-defined]
            variance = (row @ column) / row.mean(-2, keepdim=True).clamp(min=small)
            new[2].append(column)
        else:
            row = variance = row + (g * g - row) * one_minus_beta2
        change = variance.clamp(min=small * small).rsqrt() * g
        size = (change.norm(2) / (change.numel() ** 0.5 * threshold)).clamp(min=1.0)
        new[0].append(p - change * (alpha / size))
        new[1].append(row)
    return new[0] + new[1] + new[2]


class Adafactor(Optimizer):
    """Shazeer and Stern, 2018: the variance of a matrix from one of its rows and one of its columns, without a momentum."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
        })  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        if any(p.is_complex() for p in params):
            raise RuntimeError("Adafactor does not support complex parameters")

        def start(p: Tensor) -> dict[str, Any]:
            if p.is_complex():
                raise RuntimeError("Adafactor does not support complex parameters")
            if p.ndim < 2:
                return {"step": count(), "variance": torch.zeros_like(p, requires_grad=False)}
            row, column = [*p.shape[:-1], 1], [*p.shape[:-2], 1, p.shape[-1]]
            return {"step": count(), "row_var": torch.zeros(row, dtype=p.dtype), "col_var": torch.zeros(column, dtype=p.dtype)}

        lr, (eps1, eps2) = number(group["lr"]), group["eps"]
        for some, grads, states, (steps,) in self._cohorts(params, ("step",), start):
            t = steps.numbers[0] + 1
            rows = [s["variance"] if "variance" in s else s["row_var"] for s in states]
            columns = [s["col_var"] for s in states if "col_var" in s]
            new = adafactor_update(
                some, grads, rows, columns, min(lr, 1 / t**0.5), t ** group["beta2_decay"], eps1, eps2, group["d"],
                lr * group["weight_decay"], group["maximize"],
            )  # fmt: skip
            assign([*some, *rows, *columns], new)
            steps.set(t)


def orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Singular values towards 1 by quintic Newton-Schulz steps in bfloat16 (Jordan, https://kellerjordan.github.io/posts/muon/)."""
    a, b, c = coefficients
    y = x.to(torch.bfloat16)
    tall = x.shape[0] > x.shape[1]
    y = y.mT if tall else y
    y = y / y.norm().clamp(min=eps)
    for _ in range(steps):
        gram = y @ y.mT
        y = torch.addmm(y, torch.addmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.mT if tall else y


@update
def muon_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], buffers: Sequence[Tensor], keep: Number, momentum: Number, nesterov: bool,
    coefficients: tuple[float, float, float], steps: int, eps: float, lr: Number, factors: tuple[float, ...],
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new momentum buffers...); `factors` adjust the learning rate to each shape, `keep` is what decay leaves."""
    new: tuple[list[Tensor], ...] = ([], [])
    for p, g, m, factor in zip(params, grads, buffers, factors, strict=True):
        m = m + (g - m) * (1 - momentum)
        change = orthogonal(g + (m - g) * momentum if nesterov else m, coefficients, steps, eps)
        new[0].append(p * keep - change.to(p.dtype) * (lr * factor))
        new[1].append(m)
    return new[0] + new[1]


class Muon(Optimizer):
    """Jordan, 2024: momentum whose matrix is made orthogonal; for the 2-D parameters of hidden layers."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients,
            "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.ndim != 2:
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _update(self, group: Group, params: list[Tensor]) -> None:
        if any(p.is_complex() for p in params):
            raise RuntimeError("Muon does not support complex parameters")
        if any(p.is_complex() for p in params):
            raise RuntimeError("Muon does not support complex parameters")
        if group["ns_steps"] >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        lr = number(group["lr"])
        for some, grads, states, _ in self._cohorts(params, (), lambda p: {"momentum_buffer": zeros_like_all([p])[0]}):
            buffers = [s["momentum_buffer"] for s in states]
            if group["adjust_lr_fn"] == "match_rms_adamw":
                factors = [0.2 * math.sqrt(max(p.shape)) for p in some]
            else:
                factors = [math.sqrt(max(1, p.shape[0] / p.shape[1])) for p in some]
            new = muon_update(
                some, grads, buffers, 1 - lr * group["weight_decay"], group["momentum"], group["nesterov"],
                tuple(group["ns_coefficients"]), group["ns_steps"], group["eps"], lr, tuple(factors),
            )  # fmt: skip
            assign([*some, *buffers], new)
