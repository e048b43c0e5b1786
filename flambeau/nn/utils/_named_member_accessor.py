"""torch.nn.utils._named_member_accessor: another tensor under the name of a parameter, a buffer or an attribute."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor (None, or `_MISSING`: nothing) under a name, as it is, and return what was there.

    TypeError for what is no tensor, KeyError for a name that is empty or has a dot, AttributeError for one that is not there.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    for entries in (module._parameters, module._buffers):
        if name in entries:
            before: Any = entries[name]
            if tensor is _MISSING:
                del entries[name]
            else:
                entries[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before
