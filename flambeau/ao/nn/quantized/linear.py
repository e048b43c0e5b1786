"""A quantized dense layer."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn.quantized.weights import quantized_weight, result_scale
from flambeau.nn.modules.module import Module
from flambeau.quantized.operators import linear, linear_relu
from flambeau.quantized.packed import LinearPackedParams as Packed


class LinearPackedParams(Module):
    """A quantized weight and a bias, as they stand in files."""

    def __init__(self, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self._packed_params: Any = None

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        """Keep a weight: of qint8, or a float one to be rounded to float16."""
        self._packed_params = Packed(weight, bias) if self.dtype is torch.qint8 else (weight.detach().half(), bias)

    def _weight_bias(self) -> tuple[Any, Any]:
        """(weight, bias)."""
        if self.dtype is torch.qint8:
            return self._packed_params.unpack()  # type: ignore[no-any-return]
        weight, bias = self._packed_params
        return weight.float(), bias

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        if prefix + "_packed_params" in state_dict:
            self.dtype = state_dict.pop(prefix + "dtype", self.dtype)
            self.set_weight_bias(*state_dict.pop(prefix + "_packed_params"))
        else:
            missing_keys.append(prefix + "_packed_params")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def extra_repr(self) -> str:
        return repr(self._weight_bias())


class Linear(Module):
    """x W^T + b of quantized tensors, with a scale and a zero point of the result; `weight()` and `bias()` are methods."""

    _FLOAT_MODULE = torch.nn.Linear
    _relu = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("scale", torch.tensor(1.0))
        self.register_buffer("zero_point", torch.tensor(0))
        self._packed_params = LinearPackedParams(dtype)
        self._known: tuple[float, int] | None = None
        empty = torch._make_per_tensor_quantized_tensor(torch.zeros(out_features, in_features, dtype=torch.int8), 1.0, 0)
        self._packed_params.set_weight_bias(empty if dtype is torch.qint8 else empty.dequantize(), torch.zeros(out_features) if bias_ else None)

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def forward(self, x: Any) -> Any:
        return (linear_relu if self._relu else linear)(x, self._packed_params._packed_params, *result_scale(self))

    def weight(self) -> Any:
        """(out, in): quantized."""
        return self._packed_params._weight_bias()[0]

    def bias(self) -> Any:
        """(out,): float, or None."""
        return self._packed_params._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Other weights."""
        self._packed_params.set_weight_bias(w, b)

    def extra_repr(self) -> str:
        scale, zero_point = result_scale(self)
        return f"in_features={self.in_features}, out_features={self.out_features}, scale={scale}, zero_point={zero_point}, qscheme={self.weight().qscheme()}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float module that was observed (`prepare`), or trained with rounding (`prepare_qat`)."""
        from flambeau.ao.nn.intrinsic.folding import folded_linear

        source = folded_linear(mod)
        made = cls(source.in_features, source.out_features, source.bias is not None)
        made.set_weight_bias(quantized_weight(mod, source.weight), None if source.bias is None else source.bias.detach())
        _set_result_scale(made, mod)
        return made

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._known = None


def _set_result_scale(made: Any, observed: Any) -> None:
    scale, zero_point = observed.activation_post_process.calculate_qparams()
    made.scale, made.zero_point = torch.tensor(float(scale)), torch.tensor(int(zero_point))
    made._known = None
