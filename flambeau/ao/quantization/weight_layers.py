"""Dense layers whose weights are codes: of 4 or 8 bits by groups, of int8 with inputs quantized as they come, of float8."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.composed.coded import coded_linear, decoded, is_group, pack
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


def group_codes(weight: Tensor, bits: int, group: int, symmetric: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(integers uint8 (N, K), scales (N, K / group), zeros): the codes nearest to a weight (N, K), by the range of each group.

    Symmetric: the greatest size is 2^(bits - 1) - 1 steps, the zero point is the middle code. Else the range from the least to the greatest
    weight, which holds 0, is divided in 2^bits - 1 steps.
    """
    rows, count = weight.shape
    grouped = weight.detach().float().view(rows, count // group, group)  # type: ignore[attr-defined]
    most = 2**bits - 1
    tiny = 2.0**-100
    if symmetric:
        scales = (grouped.abs().amax(-1) / (2 ** (bits - 1) - 1)).clamp(min=tiny)
        zeros = torch.full_like(scales, float(2 ** (bits - 1)))
    else:
        low, high = grouped.amin(-1).clamp(max=0.0), grouped.amax(-1).clamp(min=0.0)
        scales = ((high - low) / most).clamp(min=tiny)
        zeros = (-low / scales).round()
    integers = ((grouped / scales.unsqueeze(-1)).round() + zeros.unsqueeze(-1)).clamp(0, most)
    return integers.view(rows, count).to(torch.uint8), scales, zeros


class CodedLinear(Module):
    """x W^T + b with a weight of 4- or 8-bit codes, a scale and a zero point for each `group` neighbours of a row; x stays a float.

    Buffers: codes (uint8), scales, zeros (float32); `weight` is the decoded weight. One row of x reads the codes as they lie (kernels/coded_matmul.py).
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, in_features: int, out_features: int, bits: int, group: int, bias: Any = None) -> None:
        super().__init__()
        if bits not in (4, 8) or not is_group(group):
            raise ValueError(f"CodedLinear: codes have 4 or 8 bits and groups 32, 64 or a multiple of 128 weights, got {bits} bits and groups of {group}")
        self.in_features, self.out_features, self.bits, self.group = in_features, out_features, bits, group
        self.padded = -(-in_features // group) * group
        self.register_buffer("codes", torch.zeros(out_features, self.padded * bits // 8, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(out_features, self.padded // group))
        self.register_buffer("zeros", torch.zeros(out_features, self.padded // group))
        self.bias = bias

    def set_codes(self, integers: Tensor, scales: Tensor, zeros: Tensor) -> None:
        """Other codes: integers (uint8, (N, padded K)), one a byte."""
        self.codes = pack(integers, self.group).contiguous() if self.bits == 4 else integers.contiguous()
        self.scales, self.zeros = scales.float().contiguous(), zeros.float().contiguous()  # type: ignore[attr-defined]

    @classmethod
    def from_float(cls, linear: Any, bits: int = 4, group: int | None = 128, symmetric: bool = False) -> CodedLinear:
        """Of a float layer; `group` None: one scale for each row."""
        count = linear.in_features
        size = (next((g for g in (32, 64) if count <= g), -(-count // 128) * 128)) if group is None else group
        made = cls(count, linear.out_features, bits, size, linear.bias)
        weight = torch.nn.functional.pad(linear.weight.detach(), (0, made.padded - count))
        made.set_codes(*group_codes(weight, bits, size, symmetric))
        return made.train(linear.training)  # type: ignore[return-value]

    @classmethod
    def from_blocks(cls, blocks: Any, bias: Any = None) -> CodedLinear:
        """Of a matrix of a GGUF file (io.gguf.CodedBlocks of Q4_0, Q4_1, Q4_K or Q8_0): the same codes, in groups of 32. ValueError for other types."""
        from flambeau.io.gguf_codes import group_parts

        integers, scales, zeros = group_parts(blocks.data, blocks.kind)
        rows, count = blocks.shape
        made = cls(count, rows, 8 if blocks.kind == "Q8_0" else 4, 32, bias)
        made.set_codes(torch.from_numpy(integers.reshape(rows, count)), torch.from_numpy(scales.reshape(rows, -1)), torch.from_numpy(zeros.reshape(rows, -1)))
        return made

    @property
    def weight(self) -> Tensor:
        """(N, K): the weight that the codes stand for."""
        return decoded(self.codes, self.scales, self.zeros, self.bits, self.group)[:, : self.in_features]  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[-1] != self.in_features:
            raise RuntimeError(f"CodedLinear: the input's last dim must be {self.in_features}, got {tuple(input.shape)}")
        if self.padded != self.in_features:
            input = torch.nn.functional.pad(input, (0, self.padded - self.in_features))
        return coded_linear(input, self.codes, self.scales, self.zeros, self.bits, self.group, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={self.bits}, group={self.group}, bias={self.bias is not None}"


class Int8DynamicLinear(Module):
    """x W^T + b with a weight of int8 and a scale for each row; each row of x is quantized as it comes, and products are of integers."""

    integers: Tensor
    scales: Tensor

    def __init__(self, in_features: int, out_features: int, bias: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = in_features, out_features, bias
        self.register_buffer("integers", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(out_features))

    @classmethod
    def from_float(cls, linear: Any) -> Int8DynamicLinear:
        """Of a float layer."""
        made = cls(linear.in_features, linear.out_features, linear.bias)
        weight = linear.weight.detach().float()
        made.scales = (weight.abs().amax(1) / 127).clamp(min=2.0**-100)
        made.integers = (weight / made.scales.unsqueeze(1)).round().to(torch.int8)
        return made.train(linear.training)  # type: ignore[return-value]

    @property
    def weight(self) -> Tensor:
        """(N, K): the weight that the integers stand for."""
        return self.integers.float() * self.scales.unsqueeze(1)  # type: ignore[attr-defined, no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        x = input.reshape(-1, self.in_features).float()  # type: ignore[attr-defined]
        scale = (x.abs().amax(1, keepdim=True) / 127).clamp(min=2.0**-100)
        integers = (x / scale).round().to(torch.int8)
        # One scale after the other: of their product ONNX Runtime's fusion of an exported layer takes the first row's for all.
        found = torch._int_mm(integers, self.integers.t()).float() * scale * self.scales
        if self.bias is not None:
            found = found + self.bias
        return found.view(*input.shape[:-1], self.out_features).to(input.dtype)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Float8Linear(Module):
    """x W^T + b with a weight of float8 and a scale for each row; with `dynamic`, each row of x becomes float8, too."""

    values: Tensor
    scales: Tensor

    def __init__(self, in_features: int, out_features: int, bias: Any = None, dtype: Any = torch.float8_e4m3fn, dynamic: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias, self.dynamic = in_features, out_features, bias, dynamic
        self.register_buffer("values", torch.zeros(out_features, in_features).to(dtype))
        self.register_buffer("scales", torch.ones(out_features, 1))

    @classmethod
    def from_float(cls, linear: Any, dtype: Any = torch.float8_e4m3fn, dynamic: bool = False) -> Float8Linear:
        """Of a float layer."""
        made = cls(linear.in_features, linear.out_features, linear.bias, dtype, dynamic)
        made.values, made.scales = _float8(linear.weight.detach().float(), dtype)
        return made.train(linear.training)  # type: ignore[return-value]

    @property
    def weight(self) -> Tensor:
        """(N, K): the weight that the numbers stand for."""
        return self.values.float() * self.scales  # type: ignore[attr-defined, no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        if not self.dynamic:
            return torch.nn.functional.linear(input, self.weight.to(input.dtype), self.bias)  # type: ignore[no-any-return]
        x = input.reshape(-1, self.in_features).float()  # type: ignore[attr-defined]
        values, scale = _float8(x, self.values.dtype)
        found = torch._scaled_mm(values, self.values.t(), scale, self.scales.t().contiguous(), self.bias, out_dtype=torch.float32)
        return found.view(*input.shape[:-1], self.out_features).to(input.dtype)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.values.dtype}, dynamic={self.dynamic}"


def _float8(x: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """(numbers, scales of rows): the greatest size of a row becomes the greatest number of the dtype."""
    scale = (x.abs().amax(1, keepdim=True) / torch.finfo(dtype).max).clamp(min=2.0**-100)
    return (x / scale).to(dtype), scale
