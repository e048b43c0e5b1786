"""DataParallel and its parts, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.devices import check
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


class DataParallel(Module):
    """Holds `module` under the key "module" and calls it: there is one device to share a batch among."""

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """Call `module` on `inputs`."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


def _on_cpu(devices: Sequence[Any]) -> int:
    for device in devices:
        check(device)
    return len(devices)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors in any nesting cut into as many chunks as there are devices (all of them the CPU): one structure for each."""
    count = _on_cpu(target_gpus)

    def cut(x: Any) -> list[Any]:
        if isinstance(x, Tensor):
            return list(x.chunk(count, dim))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return [type(x)(*parts) for parts in zip(*map(cut, x), strict=False)]
        if isinstance(x, tuple) and x:
            return list(zip(*map(cut, x), strict=False))
        if isinstance(x, list) and x:
            return [list(parts) for parts in zip(*map(cut, x), strict=False)]
        if isinstance(x, dict) and x:
            return [type(x)(parts) for parts in zip(*map(cut, x.items()), strict=False)]
        return [x] * count

    made = cut(inputs)
    return tuple(made) if isinstance(inputs, Tensor) else made


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The inverse of scatter: tensors of the structures joined along `dim`; numbers become vectors."""
    _on_cpu([target_device])
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat([t.reshape(1) if t.ndim == 0 else t for t in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([part[key] for part in outputs], target_device, dim)) for key in first)
    joined = (gather(column, target_device, dim) for column in zip(*outputs, strict=True))
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The module once for each device: on one device they are the same."""
    return [network] * _on_cpu(devices)


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """Each module of its inputs (a tuple or list of arguments, or one argument), one after the other."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    kwargs_tup = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    if len(modules) != len(kwargs_tup):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of kwargs_tup {len(kwargs_tup)}")
    calls = zip(modules, inputs, kwargs_tup, strict=True)
    return [module(*(x if isinstance(x, (list, tuple)) else (x,)), **kwargs) for module, x, kwargs in calls]
