"""SparseAdam, and what optimizers share that update only the rows which a sparse gradient names."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.optim.optimizer import Group, Number, Optimizer, ParamsT, Tensor, number, update, zeros_like_all


def add_sparse(target: Tensor, like: Any, values: Tensor) -> None:
    """In place: target += the sparse tensor with the indices of `like` (COO) and these values."""
    if like.sparse_dim() == 1:
        target.index_add_(0, like._index[0], values)
    else:
        target.add_(like._with(values))


def values_at(target: Tensor, like: Any) -> Tensor:
    """The elements (rows) of `target` at the indices of `like` (COO)."""
    from flambeau.sparse.structure import at

    return at(target, like._index)


@update
def sparse_adam_update(
    g: Tensor, m: Tensor, v: Tensor, step_size: Number, one_minus_beta1: Number, one_minus_beta2: Number, eps: Number, maximize: bool
) -> list[Tensor]:
    """(change of the parameter's rows, of the means, of the mean squares) from the gradient's rows and those of the states."""
    if maximize:
        g = -g
    dm = (g - m) * one_minus_beta1
    dv = (g * g - v) * one_minus_beta2
    return [(dm + m) / (torch.sqrt(dv + v) + eps) * step_size * -1, dm, dv]


class SparseAdam(Optimizer):
    """Adam for sparse gradients: only the rows that a gradient names, and their moments, change."""

    _counts = ()  # its step is an int, as in PyTorch

    def __init__(self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i in (0, 1):
            if not 0.0 <= betas[i] < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        for wrong, text in (
            ([[i, k] for i, g in enumerate(self.param_groups) for k, p in enumerate(g["params"]) if p.is_sparse], "requires dense parameter tensors"),
            ([[i, k] for i, g in enumerate(self.param_groups) for k, p in enumerate(g["params"]) if p.is_complex()], "does not support complex parameters"),
        ):
            if wrong:
                raise ValueError(f"{'Sparse' if 'dense' in text else 'Complex'} params at indices {wrong}: SparseAdam {text}")

    def _update(self, group: Group, params: list[Tensor]) -> None:
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _update_sparse(self, group: Group, params: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        for p in params:
            state = self.state[p]
            if not state:
                state["step"] = 0
                state["exp_avg"], state["exp_avg_sq"] = zeros_like_all([p, p])
            state["step"] += 1
            g: Any = p.grad.coalesce()  # type: ignore[union-attr]
            if g._nnz() == 0:
                continue
            step_size = number(group["lr"]) * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
            old = values_at(state["exp_avg"], g), values_at(state["exp_avg_sq"], g)
            dp, dm, dv = sparse_adam_update(g._data, *old, step_size, 1 - beta1, 1 - beta2, group["eps"], group["maximize"])
            add_sparse(p, g, dp)
            add_sparse(state["exp_avg"], g, dm)
            add_sparse(state["exp_avg_sq"], g, dv)
