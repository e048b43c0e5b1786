"""Quantized activations, normalisations, embeddings, and the modules at the ends of a quantized network."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn.quantized.linear import _set_result_scale
from flambeau.ao.nn.quantized.weights import result_scale
from flambeau.nn.modules.module import Module
from flambeau.quantized import operators
from flambeau.quantized.operators import embedding_bag, embedding_rows


class Quantize(Module):
    """Floats to a quantized tensor with one scale."""

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: Any = None) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([float(scale)]))
        self.register_buffer("zero_point", torch.tensor([int(zero_point)]))
        self.dtype = dtype
        self._known: tuple[float, int] | None = None

    def forward(self, X: Any) -> Any:
        return torch.quantize_per_tensor(X, *result_scale(self), self.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a QuantStub that was observed."""
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        return cls(float(scale), int(zero_point), mod.activation_post_process.dtype)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._known = None

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """A quantized tensor to floats."""

    def forward(self, Xq: Any) -> Any:
        return Xq.dequantize()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a DeQuantStub."""
        return cls()


class _Scaled(Module):
    """A module with a scale and a zero point of its result."""

    def __init__(self, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.register_buffer("zero_point", torch.tensor(int(zero_point)))
        self._known: tuple[float, int] | None = None

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._known = None

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float module that was observed."""
        made = cls._of(mod)
        _set_result_scale(made, mod)
        return made

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(1.0, 0)


class Hardswish(_Scaled):
    """hardswish."""

    def forward(self, input: Any) -> Any:
        return torch.ops.quantized.hardswish(input, *result_scale(self))


class ELU(_Scaled):
    """elu."""

    def __init__(self, scale: float = 1.0, zero_point: int = 0, alpha: float = 1.0) -> None:
        super().__init__(scale, zero_point)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        return operators.elu(input, *result_scale(self), self.alpha)

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(1.0, 0, mod.alpha)


class LeakyReLU(_Scaled):
    """leaky_relu."""

    def __init__(self, scale: float = 1.0, zero_point: int = 0, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(scale, zero_point)
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Any) -> Any:
        return operators.leaky_relu(input, self.negative_slope, self.inplace, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(1.0, 0, mod.negative_slope, mod.inplace)


class Sigmoid(_Scaled):
    """sigmoid."""

    def forward(self, input: Any) -> Any:
        return torch.ops.quantized.sigmoid(input, *result_scale(self))


class Softmax(_Scaled):
    """softmax."""

    def __init__(self, dim: Any = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__(scale, zero_point)
        self.dim = dim

    def forward(self, input: Any) -> Any:
        return torch.ops.quantized.softmax(input, *result_scale(self), self.dim if self.dim is not None else -1)

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(mod.dim)


class ReLU6(Module):
    """min(max(x, 0), 6), with the input's scale."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        return torch.nn.functional.relu6(input, self.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of the float module."""
        return cls(mod.inplace)


class PReLU(_Scaled):
    """prelu with a quantized weight."""

    def __init__(self, output_scale: float = 1.0, output_zero_point: int = 0, num_parameters: int = 1) -> None:
        super().__init__(output_scale, output_zero_point)
        self.num_parameters = num_parameters
        self.weight = torch.quantize_per_tensor(torch.randn(num_parameters), 1.0, 0, torch.quint8)

    def forward(self, input: Any) -> Any:
        return operators.prelu(input, self.weight, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        made = cls(1.0, 0, mod.num_parameters)
        watcher = mod.qconfig.weight()
        watcher(mod.weight.detach())
        scale, zero_point = watcher.calculate_qparams()
        made.weight = torch.quantize_per_tensor(mod.weight.detach().float(), float(scale), int(zero_point), torch.quint8)
        return made


class Dropout(torch.nn.Dropout):
    """Passes what it is given: a quantized network is not trained."""

    def forward(self, input: Any) -> Any:
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of the float module."""
        return cls(mod.p, mod.inplace)


class MaxPool2d(torch.nn.MaxPool2d):
    """max_pool2d, with the input's scale."""

    def _get_name(self) -> str:
        return "QuantizedMaxPool2d"


class BatchNorm2d(_Scaled):
    """Normalisation by running statistics along dim 1."""

    _relu = False

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight, self.bias = torch.nn.Parameter(torch.ones(num_features)), torch.nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, input: Any) -> Any:
        operator = operators.OPERATORS["batch_norm_relu" if self._relu else "batch_norm"]
        return operator(input, self.weight, self.bias, self.running_mean, self.running_var, self.eps, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        source = mod if hasattr(mod, "running_mean") else mod[0]
        made = cls(source.num_features, source.eps)
        made.weight, made.bias = source.weight, source.bias
        made.running_mean, made.running_var = source.running_mean, source.running_var
        return made


class BatchNorm3d(BatchNorm2d):
    """Normalisation by running statistics along dim 1 of five dims."""


class LayerNorm(_Scaled):
    """layer_norm."""

    def __init__(self, normalized_shape: Any, weight: Any, bias: Any, scale: float = 1.0, zero_point: int = 0, eps: float = 1e-5) -> None:
        super().__init__(scale, zero_point)
        self.normalized_shape, self.weight, self.bias, self.eps = normalized_shape, weight, bias, eps

    def forward(self, input: Any) -> Any:
        return operators.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(mod.normalized_shape, mod.weight, mod.bias, eps=mod.eps)


class GroupNorm(_Scaled):
    """group_norm."""

    def __init__(self, num_groups: int, num_channels: int, weight: Any, bias: Any, scale: float = 1.0, zero_point: int = 0, eps: float = 1e-5) -> None:
        super().__init__(scale, zero_point)
        self.num_groups, self.num_channels, self.weight, self.bias, self.eps = num_groups, num_channels, weight, bias, eps

    def forward(self, input: Any) -> Any:
        return operators.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(mod.num_groups, mod.num_channels, mod.weight, mod.bias, eps=mod.eps)


class InstanceNorm2d(_Scaled):
    """instance_norm."""

    def __init__(self, num_features: int, weight: Any, bias: Any, scale: float = 1.0, zero_point: int = 0, eps: float = 1e-5) -> None:
        super().__init__(scale, zero_point)
        self.num_features, self.weight, self.bias, self.eps = num_features, weight, bias, eps

    def forward(self, input: Any) -> Any:
        return operators.instance_norm(input, self.weight, self.bias, self.eps, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls(mod.num_features, mod.weight, mod.bias, eps=mod.eps)


class InstanceNorm1d(InstanceNorm2d):
    """instance_norm of three dims."""


class InstanceNorm3d(InstanceNorm2d):
    """instance_norm of five dims."""


class Embedding(Module):
    """Rows of a table of quint8 with a scale for each row, in floats."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: Any = None, _weight: Any = None, dtype: Any = torch.quint8, **_: Any) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        if _weight is None:
            _weight = torch.quantize_per_channel(torch.zeros(num_embeddings, embedding_dim), torch.ones(num_embeddings), torch.zeros(num_embeddings), 0, dtype)
        self._weight = _weight

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def weight(self) -> Any:
        """The quantized table."""
        return self._weight

    def set_weight(self, w: Any) -> None:
        """Another table."""
        self._weight = w

    def rows(self, indices: Any) -> Any:
        """The rows that indices name, in floats."""
        return embedding_rows(self._weight, indices)

    def forward(self, indices: Any) -> Any:
        return self.rows(indices)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float embedding with a QConfig for weights only."""
        watcher = getattr(mod, "weight_fake_quant", None) or mod.qconfig.weight()
        if watcher.qscheme is not torch.per_channel_affine_float_qparams:
            raise AssertionError(f"Embedding quantization is only supported with float_qparams_weight_only_qconfig, got {watcher.qscheme}")
        weight = mod.weight.detach().float()
        watcher(weight)
        scale, zero_point = watcher.calculate_qparams()
        made = cls(mod.num_embeddings, mod.embedding_dim, dtype=watcher.dtype)
        made.set_weight(torch.quantize_per_channel(weight, scale, zero_point, 0, watcher.dtype))
        return cls._finish(made, mod)

    @classmethod
    def _finish(cls, made: Any, mod: Any) -> Any:
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "_packed_params.dtype"], destination[prefix + "_packed_params._packed_weight"] = self.dtype, self._weight

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        name = prefix + "_packed_params._packed_weight"
        if name not in state_dict:
            missing_keys.append(name)
            return
        self.dtype = state_dict.pop(prefix + "_packed_params.dtype", self.dtype)
        self.set_weight(state_dict.pop(name))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def extra_repr(self) -> str:
        return f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype}, qscheme={self._weight.qscheme()}"


class EmbeddingBag(Embedding):
    """Sums of rows of a quantized table, in floats."""

    mode = "sum"
    include_last_offset = False

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"

    @classmethod
    def _finish(cls, made: Any, mod: Any) -> Any:
        made.mode, made.include_last_offset = mod.mode, mod.include_last_offset
        return made

    def forward(self, indices: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return embedding_bag(self._weight, indices, offsets, self.mode, per_sample_weights, self.include_last_offset)


class FloatFunctional(Module):
    """Operations without a module, so that what they give can be observed."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Any = torch.nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self.activation_post_process(torch.add(x, y))

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + a number; not observed."""
        return torch.add(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """x * y."""
        return self.activation_post_process(torch.mul(x, y))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x * a number; not observed."""
        return torch.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Joined."""
        return self.activation_post_process(torch.cat(x, dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        """relu(x + y)."""
        return self.activation_post_process(torch.relu(torch.add(x, y)))

    def matmul(self, x: Any, y: Any) -> Any:
        """x @ y."""
        return self.activation_post_process(torch.matmul(x, y))


class QFunctional(_Scaled):
    """FloatFunctional of quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = torch.nn.Identity()

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        scale, zero_point = result_scale(self)
        return f"scale={scale}, zero_point={zero_point}"

    def forward(self, x: Any) -> Any:
        raise RuntimeError("Functional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return operators.add(x, y, *result_scale(self))

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + a number: the zero point moves."""
        return operators.add_scalar(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """x * y."""
        return operators.mul(x, y, *result_scale(self))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x * a number: the scale is multiplied."""
        return operators.mul_scalar(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Joined."""
        return operators.cat(x, dim, *result_scale(self))

    def add_relu(self, x: Any, y: Any) -> Any:
        """relu(x + y)."""
        return operators.add_relu(x, y, *result_scale(self))

    def matmul(self, x: Any, y: Any) -> Any:
        """x @ y."""
        return operators.matmul(x, y, *result_scale(self))

    @classmethod
    def _of(cls, mod: Any) -> Any:
        return cls()


FXFloatFunctional = FloatFunctional
