"""Quantized convolutions."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn.quantized.linear import _set_result_scale
from flambeau.ao.nn.quantized.weights import quantized_weight, result_scale
from flambeau.nn.modules.module import Module
from flambeau.quantized.packed import ConvPackedParams


def _tuple(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)


class _Conv(Module):
    """What the convolutions share: a packed weight, and the scale and zero point of the result."""

    _dims = 2
    _transposed = False
    _relu = False
    _FLOAT_MODULE: Any = torch.nn.Conv2d

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        names = ("output_padding", "groups", "bias", "dilation") if self._transposed else ("dilation", "groups", "bias")
        given = {"output_padding": 0, "dilation": 1, "groups": 1, "bias": True, "padding_mode": "zeros", **dict(zip(names, args, strict=False)), **kwargs}
        dims = self._dims
        if given["padding_mode"] not in ("zeros", "reflect"):
            raise NotImplementedError(f"{type(self).__name__}: padding_mode {given['padding_mode']!r} is not supported; use 'zeros' or 'reflect'")
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, given["groups"], given["padding_mode"]
        self.kernel_size, self.stride, self.padding = _tuple(kernel_size, dims), _tuple(stride, dims), _tuple(padding, dims)
        self.dilation, self.output_padding = _tuple(given["dilation"], dims), _tuple(given["output_padding"], dims)
        self.scale, self.zero_point = 1.0, 0
        self._known: tuple[float, int] | None = None
        outer = (in_channels, out_channels // self.groups) if self._transposed else (out_channels, in_channels // self.groups)
        integers = torch.zeros(*outer, *self.kernel_size, dtype=torch.int8)
        self.set_weight_bias(torch._make_per_tensor_quantized_tensor(integers, 1.0, 0), torch.zeros(out_channels) if given["bias"] else None)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Other weights."""
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._dims
        self._packed_params = ConvPackedParams(w, b, self.stride, padding, self.dilation, self.groups, self._transposed, self.output_padding)

    def weight(self) -> Any:
        """The quantized weight."""
        return self._packed_params.weight

    def bias(self) -> Any:
        """(out,): float, or None."""
        return self._packed_params.bias

    def forward(self, input: Any) -> Any:
        if self.padding_mode != "zeros":
            around = [p for p in reversed(self.padding) for _ in range(2)]
            input = torch.nn.functional.pad(input, around, mode=self.padding_mode)
        return self._packed_params.static(input, *result_scale(self), relu=self._relu)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float module that was observed (`prepare`), or trained with rounding (`prepare_qat`)."""
        made = cls._of(mod)
        _set_result_scale(made, mod)
        made.scale, made.zero_point = float(made.scale), int(made.zero_point)
        return made

    @classmethod
    def _of(cls, mod: Any) -> Any:
        from flambeau.ao.nn.intrinsic.folding import folded_conv

        source = folded_conv(mod)
        owner = mod if hasattr(mod, "in_channels") else source
        kwargs = {"output_padding": owner.output_padding} if cls._transposed else {}
        made = cls(
            owner.in_channels, owner.out_channels, owner.kernel_size, owner.stride, owner.padding, dilation=owner.dilation, groups=owner.groups,
            bias=source.bias is not None, padding_mode=owner.padding_mode, **kwargs,
        )  # fmt: skip
        weight = quantized_weight(mod, source.weight, 1 if cls._transposed else None)
        made.set_weight_bias(weight, None if source.bias is None else source.bias.detach())
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self.weight(), self.bias()
        destination[prefix + "scale"], destination[prefix + "zero_point"] = torch.tensor(float(self.scale)), torch.tensor(int(self.zero_point))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        names = [prefix + n for n in ("weight", "bias", "scale", "zero_point")]
        missing = [n for n in names if n not in state_dict]
        if missing:
            missing_keys.extend(missing)
            return
        weight, bias, scale, zero_point = (state_dict.pop(n) for n in names)
        self.set_weight_bias(weight, bias)
        self.scale, self.zero_point, self._known = float(scale), int(zero_point), None
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", scale={self.scale}, zero_point={self.zero_point}"
        for name, plain in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if any(v != plain for v in getattr(self, name)):
                text += f", {name}={getattr(self, name)}"
        return text + (f", groups={self.groups}" if self.groups != 1 else "") + ("" if self.bias() is not None else ", bias=False")


def _class(name: str, dims: int, transposed: bool) -> Any:
    kind = getattr(torch.nn, name)
    text = f"torch.nn.{name} of quantized tensors, with a scale and a zero point of the result."
    return type(name, (_Conv,), {"_dims": dims, "_transposed": transposed, "_FLOAT_MODULE": kind, "__doc__": text, "__module__": __name__})


Conv1d, Conv2d, Conv3d = (_class(f"Conv{d}d", d, False) for d in (1, 2, 3))
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = (_class(f"ConvTranspose{d}d", d, True) for d in (1, 2, 3))
