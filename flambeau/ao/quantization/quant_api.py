"""quantize_: weights of a model's dense layers as codes, by one call, with torchao's names of configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import flambeau as torch
from flambeau.ao.quantization.weight_layers import CodedLinear, Float8Linear, Int8DynamicLinear, group_codes
from flambeau.nn.modules.module import Module


class MappingType(Enum):
    """Whether codes lie around zero, or over the range of the weights."""

    SYMMETRIC = "symmetric"
    SYMMETRIC_NO_CLIPPING_ERR = "symmetric_no_clipping_err"
    ASYMMETRIC = "asymmetric"


@dataclass(frozen=True)
class PerGroup:
    """A scale for each `group_size` neighbours of a row."""

    group_size: int


@dataclass(frozen=True)
class PerAxis:
    """A scale for each index of a dim: of rows, axis 0."""

    axis: int = 0


@dataclass(frozen=True)
class PerRow:
    """A scale for each row."""


@dataclass(frozen=True)
class PerTensor:
    """One scale."""


class AOBaseConfig:
    """The base of configurations: `layer` makes the layer that stands for a dense one."""

    def layer(self, linear: Any) -> Module:
        """The layer with codes."""
        raise NotImplementedError(type(self).__name__)


@dataclass
class Int8WeightOnlyConfig(AOBaseConfig):
    """Weights of int8, around zero, with a scale for each row, or each `group_size` weights of one."""

    group_size: int | None = None

    def layer(self, linear: Any) -> Module:
        """CodedLinear of 8 bits."""
        return CodedLinear.from_float(linear, 8, self.group_size, symmetric=True)


@dataclass
class Int4WeightOnlyConfig(AOBaseConfig):
    """Weights of 4 bits over the range of each `group_size` neighbours of a row."""

    group_size: int = 128

    def layer(self, linear: Any) -> Module:
        """CodedLinear of 4 bits."""
        return CodedLinear.from_float(linear, 4, self.group_size)


@dataclass
class IntxWeightOnlyConfig(AOBaseConfig):
    """Weights of 1 to 8 bits (`weight_dtype`: torch.int4, ...), a scale for each row (PerAxis(0)) or group (PerGroup(32)); kept in 4 or 8 bits."""

    weight_dtype: Any = torch.int8
    granularity: Any = PerAxis(0)
    mapping_type: MappingType = MappingType.SYMMETRIC

    def layer(self, linear: Any) -> Module:
        """CodedLinear whose codes use as many bits as the dtype has."""
        name = self.weight_dtype.name
        if not name.startswith("int") or not 2 <= int(name[3:]) <= 8:
            raise ValueError(f"IntxWeightOnlyConfig: weight_dtype must be torch.int2 to torch.int8, got {self.weight_dtype}")
        if isinstance(self.granularity, PerAxis) and self.granularity.axis != 0:
            raise ValueError(f"IntxWeightOnlyConfig: only rows of a weight have scales, PerAxis(0), got {self.granularity}")
        bits, group = int(name[3:]), self.granularity.group_size if isinstance(self.granularity, PerGroup) else None
        kept = 4 if bits <= 4 else 8
        made = CodedLinear.from_float(linear, kept, group, symmetric=True)
        weight = torch.nn.functional.pad(linear.weight.detach(), (0, made.padded - linear.in_features))
        made.set_codes(*group_codes(weight, bits, made.group, self.mapping_type is not MappingType.ASYMMETRIC))
        return made


@dataclass
class Int8DynamicActivationInt8WeightConfig(AOBaseConfig):
    """Weights of int8 with a scale for each row; inputs are quantized row by row as they come."""

    def layer(self, linear: Any) -> Module:
        """Int8DynamicLinear."""
        return Int8DynamicLinear.from_float(linear)


@dataclass
class Float8WeightOnlyConfig(AOBaseConfig):
    """Weights of float8 with a scale for each row."""

    weight_dtype: Any = torch.float8_e4m3fn

    def layer(self, linear: Any) -> Module:
        """Float8Linear."""
        return Float8Linear.from_float(linear, self.weight_dtype)


@dataclass
class Float8DynamicActivationFloat8WeightConfig(AOBaseConfig):
    """Weights of float8 with a scale for each row; inputs become float8 row by row as they come."""

    activation_dtype: Any = torch.float8_e4m3fn
    weight_dtype: Any = torch.float8_e4m3fn

    def layer(self, linear: Any) -> Module:
        """Float8Linear with `dynamic`."""
        return Float8Linear.from_float(linear, self.weight_dtype, dynamic=True)


LINEARS: Final = (torch.nn.Linear, torch.nn.modules.linear.NonDynamicallyQuantizableLinear)


def _is_linear(module: Module, name: str) -> bool:
    return type(module) in LINEARS


def quantize_(model: Module, config: AOBaseConfig, filter_fn: Callable[[Module, str], bool] | None = None, device: Any = None) -> None:
    """Replace, in place, the dense layers of a model by layers with codes. `filter_fn(module, name)`: which (all torch.nn.Linear by default).

    TypeError for what is no configuration. A model that is itself a dense layer cannot be replaced in place: put it into a Sequential.
    """
    if not isinstance(config, AOBaseConfig):
        raise TypeError(f"quantize_: config must be a configuration such as Int4WeightOnlyConfig(), got {config!r}")
    chosen = filter_fn or _is_linear
    if type(model) in LINEARS and chosen(model, ""):
        raise TypeError("quantize_: the model is a single dense layer, which cannot become another in place; quantize_ a torch.nn.Sequential that holds it")
    made: dict[int, Module] = {}  # layers that stand in several places stay one
    for name, module in list(model.named_modules(remove_duplicate=False)):
        for key, child in list(module._modules.items()):
            if type(child) in LINEARS and chosen(child, f"{name}.{key}" if name else key):
                if id(child) not in made:
                    made[id(child)] = config.layer(child)
                setattr(module, key, made[id(child)])
