"""Spectral normalisation by a forward pre-hook: weight / (its largest singular value). Miyato et al., 2018."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter, refuse_lazy
from flambeau.tensor import Tensor


class SpectralNorm:
    """The hook: one or more power iterations in training, then weight = weight_orig / sigma. `_version` is noted in checkpoints."""

    _version = 1

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix with `dim` first."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.ndim) if d != self.dim])
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        if do_power_iteration:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(torch.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(torch.mv(matrix, v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def save_version(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        """The hook of state_dict."""
        versions = local_metadata.setdefault("spectral_norm", {})
        key = f"{self.name}.version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self._version

    def read_older(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], *_: Any
    ) -> None:  # fmt: skip
        """The hook of load_state_dict: files of version 0 have the weight, and no v, which is solved from W v = sigma u."""
        version = local_metadata.get("spectral_norm", {}).get(f"{self.name}.version")
        key = prefix + self.name
        if version is not None and version >= 1:
            return
        if version is None and key not in state_dict and all(key + suffix in state_dict for suffix in ("_orig", "_u", "_v")):
            return
        lacking = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if lacking:
            if strict:
                missing_keys.extend(lacking)
            return
        with torch.no_grad():
            original, u = state_dict[key + "_orig"], state_dict[key + "_u"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = self.matrix(original)
            v = torch.linalg.multi_dot([matrix.t().mm(matrix).pinverse(), matrix.t(), u.unsqueeze(1)]).squeeze(1)
            state_dict[key + "_v"] = v * (sigma / torch.dot(u, torch.mv(matrix, v)))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Replace the parameter `name` by `name_orig` and buffers `name_u`, `name_v`; the output axis is found if dim is None."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    refuse_lazy("SpectralNorm", "spectral", weight)
    with torch.no_grad():
        rows, columns = hook.matrix(weight).shape
        u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
        v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    module._register_state_dict_hook(hook.save_version)
    module._register_load_state_dict_pre_hook(hook.read_older)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the normalised weight a parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            with torch.no_grad():
                weight = hook.compute_weight(module, do_power_iteration=False)
            delattr(module, name)
            del module._parameters[name + "_orig"], module._buffers[name + "_u"], module._buffers[name + "_v"]
            module.register_parameter(name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            for table in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
                for other, function in list(table.items()):
                    if getattr(function, "__self__", None) is hook:
                        del table[other]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
