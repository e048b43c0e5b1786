"""torch.nn: modules, parameters, functional, init, utils."""

from flambeau.nn import attention, functional, init, modules, parallel, utils
from flambeau.nn.modules import *
from flambeau.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "attention", "functional", "init", "modules", "parallel",
    "utils", *modules.__all__,
]  # fmt: skip
