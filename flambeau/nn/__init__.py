"""torch.nn: modules, parameters, functional, init, utils."""

from flambeau.nn import attention, functional, grad, init, modules, parallel, utils
from flambeau.nn.modules import *
from flambeau.nn.modules.adaptive import LinearCrossEntropyOptions
from flambeau.nn.modules.utils import factory_kwargs
from flambeau.nn.parallel import DataParallel
from flambeau.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer", "DataParallel", "LinearCrossEntropyOptions", "Parameter", "UninitializedBuffer", "UninitializedParameter", "attention",
    "factory_kwargs", "functional", "grad", "init",
    "modules", "parallel", "utils", *modules.__all__,
]  # fmt: skip

functional.grad = grad  # type: ignore[attr-defined]

from flambeau.names import answering as _answering
from flambeau.ops.guard import guard as _guard

_guard("nn", globals())
__getattr__ = _answering("torch.nn", globals())
