"""Stochastic gradient descent, with momentum (Sutskever et al., 2013, for Nesterov's form)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.optim.optimizer import Group, Number, Optimizer, ParamsT, Tensor, assign, check, is_zero, number, update


@update
def sgd_update(
    params: Sequence[Tensor], grads: Sequence[Tensor], buffers: Sequence[Tensor], lr: Number, momentum: Number,
    dampening: Number = 0, weight_decay: Number = 0, with_momentum: bool = False, nesterov: bool = False, maximize: bool = False,
) -> list[Tensor]:  # fmt: skip
    """(new parameters..., new momentum buffers...); without `buffers` they start as the gradients."""
    new_params, new_buffers = [], []
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        if maximize:
            g = -g
        if not is_zero(weight_decay):
            g = g + p * weight_decay
        if with_momentum:
            b = buffers[i] * momentum + g * (1 - dampening) if buffers else g * 1
            new_buffers.append(b)
            g = g + b * momentum if nesterov else b
        new_params.append(p - g * lr)
    return new_params + new_buffers


class SGD(Optimizer):
    """p -= lr * (gradient, or momentum buffer)."""

    _differentiable_lists = True

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        check(lr=lr, momentum=momentum, weight_decay=weight_decay, takes_nan=True)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def _update_sparse(self, group: Group, params: list[Tensor]) -> None:
        from flambeau.optim.sparse_adam import add_sparse

        if group["weight_decay"] != 0:
            raise RuntimeError("SGD: weight_decay is not possible with sparse gradients: set it to 0 for these parameters")
        for p in params:
            g: Any = p.grad
            if group["momentum"] == 0:
                add_sparse(p, g, g._data * (group["lr"] if group["maximize"] else -group["lr"]))
            else:  # the momentum of all rows decays, so the buffer is dense
                p.grad = g.to_dense()
                try:
                    self._update(group, [p])
                finally:
                    p.grad = g

    def _update(self, group: Group, params: list[Tensor]) -> None:
        lr, options = number(group["lr"]), (group["momentum"] != 0, group["nesterov"], group["maximize"])
        numbers = (lr, group["momentum"], group["dampening"], group["weight_decay"])
        if group["momentum"] == 0:
            assign(params, sgd_update(params, [p.grad for p in params], (), *numbers, *options))  # type: ignore[misc]
            return

        table = self.state
        with_buffer = [p for p in params if table[p].get("momentum_buffer") is not None]
        if with_buffer:
            if len(with_buffer) < len(params):
                without = [p for p in params if table[p].get("momentum_buffer") is None]
                self._update(group, without)
            buffers = [table[p]["momentum_buffer"] for p in with_buffer]
            assign([*with_buffer, *buffers], sgd_update(with_buffer, [p.grad for p in with_buffer], buffers, *numbers, *options))  # type: ignore[misc]
            return
        new = sgd_update(params, [p.grad for p in params], (), *numbers, *options)  # type: ignore[misc]
        assign(params, new[: len(params)])
        for p, buffer in zip(params, new[len(params) :], strict=True):
            table[p]["momentum_buffer"] = buffer
