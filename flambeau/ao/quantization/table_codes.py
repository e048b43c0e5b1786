"""Weights as codes of a table of numbers: NF4 (the quantiles of a normal distribution), and int8 with outliers kept apart; as bitsandbytes has them.

Dettmers et al., 2023 (QLoRA) for NF4: the table is in appendix E. Dettmers et al., 2022 (LLM.int8) for the outliers.
"""

from __future__ import annotations

from typing import Any, Final

import flambeau as torch
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_FP4: Final = (0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)  # a sign, two bits of exponent and one of fraction, over 12
FP4: Final = (*_FP4, *[-v for v in _FP4])
TABLES: Final = {"nf4": NF4, "fp4": FP4}


def _table(quant_type: str) -> Tensor:
    if quant_type not in TABLES:
        raise ValueError(f"quant_type must be one of {sorted(TABLES)}, got {quant_type!r}")
    return torch.tensor(TABLES[quant_type])


def quantize_4bit(weight: Tensor, quant_type: str = "nf4", blocksize: int = 64) -> tuple[Tensor, Tensor]:
    """(codes uint8 (n / 2), absmax (n / blocksize)): each block of elements divided by its greatest size, then the nearest number of the table.

    Two codes a byte, the first in the high half, as bitsandbytes keeps them. RuntimeError where the elements are not whole blocks.
    """
    flat = weight.detach().float().reshape(-1)  # type: ignore[attr-defined]
    if flat.numel() % blocksize or blocksize % 2:
        raise RuntimeError(f"quantize_4bit: {flat.numel()} elements are not whole blocks of {blocksize}")
    blocks = flat.view(-1, blocksize)
    absmax = blocks.abs().amax(1)
    table = _table(quant_type)
    order = table.argsort()
    ordered = table[order]
    middles = (ordered[1:] + ordered[:-1]) / 2
    place = torch.bucketize((blocks / absmax.clamp(min=2.0**-100).unsqueeze(1)).reshape(-1), middles)
    codes = order[place].to(torch.uint8).view(-1, 2)
    return (codes[:, 0] << 4) | codes[:, 1], absmax


def dequantize_4bit(codes: Tensor, absmax: Tensor, quant_type: str = "nf4", blocksize: int = 64, shape: Any = None) -> Tensor:
    """The numbers that codes stand for, in float32, of a shape (by default flat)."""
    table = _table(quant_type)
    both = torch.stack([codes >> 4, codes & 15], 1).reshape(-1)
    found = (table[both.long()].view(-1, blocksize) * absmax.unsqueeze(1)).view(-1)
    return found if shape is None else found.view(shape)  # type: ignore[no-any-return]


class Linear4bit(Module):
    """x W^T + b with a frozen weight of 4-bit codes of a table; gradients go to x and the bias (so that adapters can be trained beside it)."""

    codes: Tensor
    absmax: Tensor

    def __init__(
        self, input_features: int, output_features: int, bias: bool = True, compute_dtype: Any = None, quant_type: str = "nf4", blocksize: int = 64
    ) -> None:
        super().__init__()
        _table(quant_type)
        self.in_features, self.out_features, self.quant_type, self.blocksize = input_features, output_features, quant_type, blocksize
        self.compute_dtype = compute_dtype
        count = -(-input_features * output_features // blocksize) * blocksize
        self.register_buffer("codes", torch.zeros(count // 2, dtype=torch.uint8))
        self.register_buffer("absmax", torch.zeros(count // blocksize))
        self.bias: Any = torch.nn.Parameter(torch.zeros(output_features)) if bias else None

    @classmethod
    def from_float(cls, linear: Any, quant_type: str = "nf4", blocksize: int = 64) -> Linear4bit:
        """Of a float layer."""
        made = cls(linear.in_features, linear.out_features, False, None, quant_type, blocksize)
        flat = linear.weight.detach().reshape(-1)
        made.codes, made.absmax = quantize_4bit(torch.nn.functional.pad(flat, (0, -flat.numel() % blocksize)), quant_type, blocksize)
        made.bias = linear.bias
        return made

    @property
    def weight(self) -> Tensor:
        """(N, K): the weight that the codes stand for."""
        flat = dequantize_4bit(self.codes, self.absmax, self.quant_type, self.blocksize)
        return flat[: self.in_features * self.out_features].view(self.out_features, self.in_features)  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        kind = self.compute_dtype or input.dtype
        bias = None if self.bias is None else self.bias.to(kind)
        return torch.nn.functional.linear(input.to(kind), self.weight.to(kind), bias).to(input.dtype)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, quant_type={self.quant_type!r}"


class Linear8bit(Module):
    """x W^T + b by integers of 8 bits, a scale for each row of x and of W; features of x beyond `threshold` are multiplied as floats (LLM.int8)."""

    integers: Tensor
    scales: Tensor

    def __init__(self, input_features: int, output_features: int, bias: bool = True, threshold: float = 6.0) -> None:
        super().__init__()
        self.in_features, self.out_features, self.threshold = input_features, output_features, threshold
        self.register_buffer("integers", torch.zeros(output_features, input_features, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(output_features))
        self.bias: Any = torch.nn.Parameter(torch.zeros(output_features)) if bias else None

    @classmethod
    def from_float(cls, linear: Any, threshold: float = 6.0) -> Linear8bit:
        """Of a float layer."""
        made = cls(linear.in_features, linear.out_features, False, threshold)
        weight = linear.weight.detach().float()
        made.scales = (weight.abs().amax(1) / 127).clamp(min=2.0**-100)
        made.integers = (weight / made.scales.unsqueeze(1)).round().to(torch.int8)
        made.bias = linear.bias
        return made

    @property
    def weight(self) -> Tensor:
        """(N, K): the weight that the integers stand for."""
        return self.integers.float() * self.scales.unsqueeze(1)  # type: ignore[attr-defined, no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        x = input.reshape(-1, self.in_features).float()  # type: ignore[attr-defined]
        outlier = torch.zeros(self.in_features, dtype=torch.bool)
        if self.threshold > 0:
            outlier = x.detach().abs().amax(0) > self.threshold
        inside = torch.where(outlier, 0.0, x)
        scale = (inside.abs().amax(1, keepdim=True) / 127).clamp(min=2.0**-100)
        found = torch._int_mm((inside / scale).round().to(torch.int8), self.integers.t()).float() * (scale * self.scales)
        places = outlier.nonzero().view(-1) if self.threshold > 0 else None
        if places is not None and places.numel():
            rest = self.integers.index_select(1, places).float() * self.scales.unsqueeze(1)  # type: ignore[attr-defined]
            found = found + x.index_select(1, places) @ rest.t()
        if self.bias is not None:
            found = found + self.bias
        return found.view(*input.shape[:-1], self.out_features).to(input.dtype)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, threshold={self.threshold}"
