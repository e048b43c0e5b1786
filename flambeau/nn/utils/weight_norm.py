"""Weight normalisation by a forward pre-hook: weight = g v / |v|. Salimans and Kingma, 2016."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, functional
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter, refuse_lazy
from flambeau.ops.signatures import whole
from flambeau.tensor import normalize_dim
from flambeau.trace.once import warn_here


def norm_except_dim(v: Tensor, pow: int = 2, dim: int | None = 0) -> Tensor:
    """The `pow`-norm over all dimensions but `dim`, which are kept with size 1; over all, as a 0-d tensor, for None or -1."""

    def norm(x: Tensor, *axes: Any, **options: Any) -> Tensor:
        return torch.sqrt((x * x).sum(*axes, **options)) if pow == 2 else x.abs().pow(pow).sum(*axes, **options).pow(1.0 / pow)

    if dim is None or whole("norm_except_dim", "dim", dim) == -1:
        return norm(v)
    axis = normalize_dim(whole("norm_except_dim", "dim", dim), v.ndim)
    return norm(v, tuple(d for d in range(v.ndim) if d != axis), keepdim=True)


@functional
def _weight_norm(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """The hook: recomputes the weight before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = dim

    def compute_weight(self, module: Module) -> Tensor:
        return _weight_norm(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replace the parameter `name` by `name_g` (its norm along `dim`) and `name_v` (its direction). Deprecated, as in PyTorch."""
    warn_here("`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.", FutureWarning)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, -1 if dim is None else dim)
    weight = getattr(module, name)
    refuse_lazy("WeightNorm", "weight", weight)
    del module._parameters[name]
    with torch.no_grad():
        g = norm_except_dim(weight.detach(), 2, hook.dim)
    module.register_parameter(name + "_g", Parameter(g))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module)
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            setattr(module, name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
