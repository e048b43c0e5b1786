"""torch.nn.parallel on one device: the wrappers call the module that they hold."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module


class DataParallel(Module):
    """Holds `module` under the key "module" and calls it: there is one device to share a batch among."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(DataParallel):
    """Holds `module` under the key "module" and calls it: there is one process, whose gradients are the mean."""

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, **options: Any
    ) -> None:
        super().__init__(module, device_ids, output_device, dim)
        self.options = options


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """Call `module` on `inputs`."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
