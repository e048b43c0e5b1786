"""Calls of a module with other parameters and buffers than its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from flambeau.trace.once import warn_here

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module
    from flambeau.tensor import Tensor

__all__ = ["functional_call"]


def _tied_names(module: Module) -> dict[str, set[str]]:
    """For each name of a parameter or buffer that has several, all of them."""
    names: dict[int, set[str]] = {}
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, t in named:
            names.setdefault(id(t), set()).add(name)
    return {name: group for group in names.values() if len(group) > 1 for name in group}


def _untied(module: Module, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under all names of theirs; ValueError if two names of one tensor get different ones."""
    tied = _tied_names(module)
    made = dict(given)
    for name, t in given.items():
        for other in tied.get(name, ()):
            if other in given and given[other] is not t:
                raise ValueError(f"functional_call got multiple values for keys {sorted(tied[name])}, which are tied. Consider using tie_weights=False")
            made[other] = t
    return made


def _owner(module: Module, name: str) -> tuple[Any, str]:
    path, _, last = name.rpartition(".")
    return (module.get_submodule(path) if path else module), last


def _swap(module: Module, tensors: dict[str, Any]) -> dict[str, Any]:
    """Put tensors in the places of these names; what was there: `_MISSING` where there was nothing. Nothing is changed where a name is wrong."""
    from flambeau.tensor import Tensor

    owners = {name: _owner(module, name) for name in tensors}
    for owner, last in owners.values():
        if last not in owner._parameters and last not in owner._buffers and last in owner.__dict__:
            value = owner.__dict__[last]
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"attribute `{last}`: {value} is not an instance of torch.Tensor")
    before: dict[str, Any] = {}
    for name, t in tensors.items():
        owner, last = owners[name]
        if t is _MISSING:
            delattr(owner, last)
            continue
        for place in (owner._parameters, owner._buffers, owner.__dict__):
            if last in place:
                before[name] = place[last]
                place[last] = t
                break
        else:
            if hasattr(type(owner), last):  # a parametrised tensor: the property gives way to a value of the instance's own class
                before[name] = _Property(type(owner), last, getattr(type(owner), last))
                setattr(type(owner), last, t)
            else:
                before[name] = _MISSING
                setattr(owner, last, t)
    return before


_MISSING: Final = object()


class _Property:
    """What a parametrisation has put on a module's class."""

    def __init__(self, cls: type, name: str, value: Any) -> None:
        self.cls = cls
        self.name = name
        self.value = value


def _check_keys(module: Module, given: dict[str, Any]) -> None:
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)} | {name for name, _ in module.named_buffers(remove_duplicate=False)}
    unexpected = [k for k in given if k not in known]
    missing = [k for k in known if k not in given]
    errors = []
    if unexpected:
        errors.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if missing:
        errors.append(f"Missing key(s): {', '.join(map(repr, sorted(missing)))}.")
    if errors:
        raise RuntimeError("Error(s) in reparametrizing for {}:\n\t{}".format(type(module).__name__, "\n\t".join(errors)))


@contextlib.contextmanager
def _reparametrize_module(module: Module, tensors: dict[str, Any], tie_weights: bool = False, strict: bool = False) -> Iterator[None]:
    """A block in which the module has other parameters and buffers. What it replaces inside is put into `tensors` at the end."""
    from flambeau.tensor import Tensor

    for t in tensors.values():
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(f"{t} is not an instance of torch.Tensor")
    untied = _untied(module, tensors) if tie_weights else tensors
    if strict:
        _check_keys(module, untied)
    before = _swap(module, untied)
    try:
        yield
    finally:
        for kept in before.values():
            if isinstance(kept, _Property):
                setattr(kept.cls, kept.name, kept.value)
        after = _swap(module, {k: v for k, v in reversed(before.items()) if not isinstance(v, _Property)})
        tensors.update({k: after[k] for k in tensors if k in after})


def _functional_call(
    module: Module, tensors: dict[str, Any], args: Any = None, kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    from flambeau.foreign import refuse
    from flambeau.nn.modules.module import Module

    given = () if args is None else args if isinstance(args, tuple) else (args,)
    refuse((module,), "functional_call()")
    scripts: Any = sys.modules.get("flambeau.jit.script")  # without it there is no such module
    if scripts is not None and isinstance(module, scripts.ScriptModule):
        raise RuntimeError("The stateless API can't be used with Jitted modules")
    named = {} if kwargs is None else kwargs
    for name, value, kind in (("module", module, Module), ("parameters_and_buffers", tensors, Mapping), ("kwargs", named, Mapping)):
        if not isinstance(value, kind):
            raise TypeError(f"functional_call(): argument '{name}' must be a {kind.__name__}, not {type(value).__name__}")
    with _reparametrize_module(module, tensors, tie_weights, strict):
        return module(*given, **named)


def functional_call(
    module: Module, parameters_and_buffers: dict[str, Tensor], args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """module(*args, **kwargs) with these parameters and buffers. Deprecated in PyTorch: use torch.func.functional_call."""
    warn_here(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of PyTorch. Please "
        "use `torch.func.functional_call` instead which is a drop-in replacement.", FutureWarning,
    )  # fmt: skip
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("nn.utils.stateless", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.nn.utils.stateless", globals())
