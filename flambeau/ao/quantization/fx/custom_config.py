"""PrepareCustomConfig, FuseCustomConfig, ConvertCustomConfig: what of a model is not traced, is kept, or comes and goes quantized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn


def _refused(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not supported in flambeau's graph mode quantization; {instead}")


class FuseCustomConfig:
    """Attributes of the model (`preserved_attributes`) that the GraphModule keeps."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: Sequence[str]) -> Any:
        """Names of attributes that are kept even if no node uses them."""
        self.preserved_attributes = list(attributes)
        return self


class ConvertCustomConfig(FuseCustomConfig):
    """As FuseCustomConfig; custom modules are refused."""

    def set_observed_to_quantized_mapping(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refused("set_observed_to_quantized_mapping", "convert such modules in eager mode (torch.ao.quantization.convert)")


class PrepareCustomConfig(FuseCustomConfig):
    """Modules that are leaves though they could be traced, and inputs and outputs that are quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[Any] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []

    def set_non_traceable_module_names(self, module_names: Sequence[str]) -> PrepareCustomConfig:
        """Modules by name whose forward is not traced; they stay in floats."""
        self.non_traceable_module_names = list(module_names)
        return self

    def set_non_traceable_module_classes(self, module_classes: Sequence[Any]) -> PrepareCustomConfig:
        """Modules by class whose forward is not traced; they stay in floats."""
        self.non_traceable_module_classes = list(module_classes)
        return self

    def set_input_quantized_indexes(self, indexes: Sequence[int]) -> PrepareCustomConfig:
        """Inputs of the converted model that are quantized tensors already."""
        self.input_quantized_indexes = list(indexes)
        return self

    def set_output_quantized_indexes(self, indexes: Sequence[int]) -> PrepareCustomConfig:
        """Outputs of the converted model that stay quantized tensors."""
        self.output_quantized_indexes = list(indexes)
        return self

    def set_standalone_module_name(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refused("set_standalone_module_name", "prepare and convert that module by itself and put it in")

    def set_standalone_module_class(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refused("set_standalone_module_class", "prepare and convert those modules by themselves and put them in")

    def set_float_to_observed_mapping(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refused("set_float_to_observed_mapping", "prepare such modules in eager mode (torch.ao.quantization.prepare)")


def taken(given: Any, kind: Any, name: str) -> Any:
    """A configuration, or the empty one for None; TypeError for anything else."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TypeError(f"{name}: expected a {kind.__name__} or None, got {type(given).__name__}")
    return given
