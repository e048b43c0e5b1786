"""torch.nn: modules, parameters, functional, init, utils."""

from typing import get_type_hints as _get_type_hints

from flambeau.module_names import is_ours as _is_ours
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

for _cls in {c for _name in modules.__all__ if isinstance(_found := getattr(modules, _name), type) for c in _found.__mro__}:
    # As objects: of an instance nobody can find the module in whose names the text is written.
    if _is_ours(_cls.__module__) and "__annotations__" in vars(_cls):
        _cls.__annotations__ = {n: t for n, t in _get_type_hints(_cls).items() if n in vars(_cls)["__annotations__"]}
del _cls

functional.grad = grad  # type: ignore[attr-defined]

from flambeau.documentation import document as _document
from flambeau.names import answering as _answering
from flambeau.ops.guard import guard as _guard

_guard("nn", globals())
_document("torch.nn", globals())
__getattr__ = _answering("torch.nn", globals())
