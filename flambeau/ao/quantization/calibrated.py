"""Codes of weights that are chosen by what a layer's inputs are: GPTQ and AWQ, as functions of one weight and its inputs.

GPTQ: Frantar et al., 2022, algorithm 1. AWQ: Lin et al., 2023, section 3.2.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.quantization.weight_layers import CodedLinear, group_codes
from flambeau.tensor import Tensor


def _second_moment(inputs: Tensor, count: int, name: str) -> Tensor:
    if inputs.shape[-1] != count:
        raise RuntimeError(f"{name}: the inputs' last dim must be {count}, as the weight's, got {tuple(inputs.shape)}")
    x = inputs.detach().reshape(-1, count).double()
    return x.t() @ x / max(x.shape[0], 1)  # type: ignore[no-any-return]


def gptq(weight: Tensor, inputs: Tensor, bits: int = 4, group: int = 128, damping: float = 0.01) -> tuple[Tensor, Tensor, Tensor]:
    """(integers uint8 (N, K), scales, zeros (N, K / group)) of a weight (N, K), given inputs (..., K) of the layer.

    Columns are rounded one after the other; what a column's rounding changes in the layer's results is made up for by the columns that follow, by the
    Cholesky factor of the inverse second moment of the inputs. `damping`: that part of the mean diagonal is added to the diagonal.
    """
    rows, count = weight.shape
    if count % group:
        raise RuntimeError(f"gptq: {count} inputs are not whole groups of {group}")
    import numpy as np

    h = _second_moment(inputs, count, "gptq").numpy().copy()
    dead = np.diag(h) == 0
    h[dead, dead] = 1.0
    h[np.diag_indices(count)] += damping * np.mean(np.diag(h))
    factor = np.linalg.cholesky(np.linalg.inv(h)).T  # upper: inverse = factor^T factor
    w = weight.detach().double().numpy().copy()
    w[:, dead] = 0.0
    integers = np.zeros((rows, count), np.uint8)
    scales, zeros = np.zeros((rows, count // group)), np.zeros((rows, count // group))
    most = 2**bits - 1
    for g in range(count // group):
        first, last = g * group, (g + 1) * group
        low, high = np.minimum(w[:, first:last].min(1), 0.0), np.maximum(w[:, first:last].max(1), 0.0)
        scale = np.maximum((high - low) / most, 2.0**-100)
        zero = np.round(-low / scale)
        scales[:, g], zeros[:, g] = scale, zero
        errors = np.zeros((rows, group))
        for j in range(first, last):
            q = np.clip(np.round(w[:, j] / scale) + zero, 0, most)
            integers[:, j] = q
            error = (w[:, j] - (q - zero) * scale) / factor[j, j]
            errors[:, j - first] = error
            w[:, j + 1 : last] -= np.outer(error, factor[j, j + 1 : last])
        w[:, last:] -= errors @ factor[first:last, last:]
    return torch.from_numpy(integers), torch.from_numpy(scales).float(), torch.from_numpy(zeros).float()


def awq(weight: Tensor, inputs: Tensor, bits: int = 4, group: int = 128, steps: int = 20) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(integers, scales, zeros, factors (K)): codes of weight * factors, for inputs divided by `factors`.

    Weights of features whose inputs are large are scaled up before they are rounded: factors = mean size of the inputs to a power, which is the one of
    `steps` between 0 and 1 with the least error of the layer's results.
    """
    rows, count = weight.shape
    if count % group:
        raise RuntimeError(f"awq: {count} inputs are not whole groups of {group}")
    h = _second_moment(inputs, count, "awq")
    size = inputs.detach().reshape(-1, count).abs().double().mean(0).clamp(min=1e-8)
    w = weight.detach().double()
    best: tuple[float, Any] | None = None
    for step in range(steps):
        factors = size ** (step / steps)
        factors = factors / (factors.max() * factors.min()).sqrt()
        codes = group_codes((w * factors).float(), bits, group, False)
        difference = _values(*codes, group).double() / factors - w
        error = float(((difference @ h) * difference).sum())
        if best is None or error < best[0]:
            best = error, (*codes, factors.float())
    assert best is not None
    return best[1]  # type: ignore[no-any-return]


def _values(integers: Tensor, scales: Tensor, zeros: Tensor, group: int) -> Tensor:
    rows, count = integers.shape
    return ((integers.float().view(rows, -1, group) - zeros.unsqueeze(-1)) * scales.unsqueeze(-1)).view(rows, count)  # type: ignore[attr-defined, no-any-return]


class ScaledLinear(torch.nn.Module):
    """A layer with codes behind a division of its inputs by factors: what AWQ makes of a dense layer that has nothing before it to take the factors."""

    factors: Tensor

    def __init__(self, factors: Tensor, layer: CodedLinear) -> None:
        super().__init__()
        self.register_buffer("factors", factors)
        self.layer = layer

    def forward(self, input: Tensor) -> Tensor:
        return self.layer(input / self.factors.to(input.dtype))  # type: ignore[no-any-return]


def gptq_linear(linear: Any, inputs: Tensor, bits: int = 4, group: int = 128, damping: float = 0.01) -> CodedLinear:
    """The layer with codes that `gptq` chooses for a dense layer."""
    made = CodedLinear(linear.in_features, linear.out_features, 4 if bits <= 4 else 8, group, linear.bias)
    made.set_codes(*gptq(linear.weight, inputs, bits, group, damping))
    return made


def awq_linear(linear: Any, inputs: Tensor, bits: int = 4, group: int = 128, steps: int = 20) -> ScaledLinear:
    """The layer with codes and factors that `awq` chooses for a dense layer."""
    made = CodedLinear(linear.in_features, linear.out_features, 4 if bits <= 4 else 8, group, linear.bias)
    integers, scales, zeros, factors = awq(linear.weight, inputs, bits, group, steps)
    made.set_codes(integers, scales, zeros)
    return ScaledLinear(factors, made)
