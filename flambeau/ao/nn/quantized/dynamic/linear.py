"""A dense layer with a quantized weight and float inputs."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn.quantized.linear import Linear as Static
from flambeau.ao.nn.quantized.linear import LinearPackedParams
from flambeau.ao.nn.quantized.weights import quantize_by
from flambeau.nn.modules.module import Module
from flambeau.quantized.operators import linear_dynamic_fp16


class Linear(Module):
    """x W^T + b of a float x, quantized by its least and greatest value: in 7 bits, as for fbgemm. With dtype float16: of a weight rounded to it."""

    _relu = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        empty = torch._make_per_tensor_quantized_tensor(torch.zeros(out_features, in_features, dtype=torch.int8), 1.0, 0)
        self._packed_params.set_weight_bias(empty if dtype is torch.qint8 else empty.dequantize(), torch.zeros(out_features) if bias_ else None)

    weight, bias, set_weight_bias = Static.weight, Static.bias, Static.set_weight_bias

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def forward(self, x: Any) -> Any:
        packed = self._packed_params._packed_params
        if self._packed_params.dtype is torch.float16:
            made = linear_dynamic_fp16(x, packed)
            return made.relu() if self._relu else made  # type: ignore[attr-defined]
        return packed.dynamic(x, True, self._relu)

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return text + (f", qscheme={self.weight().qscheme()}" if self._packed_params.dtype is torch.qint8 else "")

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float layer with a QConfig."""
        from flambeau.ao.nn.intrinsic.folding import folded_linear
        from flambeau.ao.quantization.qconfig import default_dynamic_qconfig

        source = folded_linear(mod)
        watcher = (getattr(mod, "qconfig", None) or default_dynamic_qconfig).weight()
        if watcher.dtype not in (torch.qint8, torch.float16):
            raise AssertionError(f"The only supported dtypes for dynamic quantized linear are qint8 and float16 got: {watcher.dtype}")
        made = cls(source.in_features, source.out_features, source.bias is not None, watcher.dtype)
        weight = source.weight.detach().float()
        watcher(weight)
        kept = quantize_by(watcher, weight) if watcher.dtype is torch.qint8 else weight
        made.set_weight_bias(kept, None if source.bias is None else source.bias.detach())
        return made
