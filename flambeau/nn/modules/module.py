"""Module: the base of every layer. Registration of parameters, buffers and children; the call; traversal; conversion; repr.

Data of an instance: the dicts `_parameters`, `_buffers`, `_modules` by attribute name, the set
`_non_persistent_buffers_set`, `training`, and the tables of hooks (hooks.py). state_dict and load_state_dict are in state.py.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final, Self

import flambeau as torch
from flambeau import __future__ as conversions
from flambeau.compiler.kernel import IndexRangeError
from flambeau.dtypes import of_type
from flambeau.foreign import refuse
from flambeau.nn.modules import state
from flambeau.nn.modules.hooks import (
    EVERY,
    HookMixin,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)  # fmt: skip
from flambeau.nn.modules.state import IncompatibleKeys, StateMixin
from flambeau.nn.parameter import Buffer, Parameter, is_lazy
from flambeau.ops.guard import explained_call
from flambeau.queries import typename
from flambeau.tensor import Tensor
from flambeau.trace.place import MODULE_CALLS
from flambeau.tracebacks import shorten

_HOOK_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)

# The tables of hooks of every module, under PyTorch's names: packages that build modules on their own call these hooks.
_TABLES = {
    "_global_forward_hooks": "forward", "_global_forward_pre_hooks": "forward_pre", "_global_backward_hooks": "backward",
    "_global_backward_pre_hooks": "backward_pre", "_global_buffer_registration_hooks": "buffers", "_global_module_registration_hooks": "modules",
    "_global_parameter_registration_hooks": "parameters", "_global_forward_hooks_with_kwargs": "with_kwargs", "_global_forward_hooks_always_called": "always",
}  # fmt: skip
globals().update({name: getattr(EVERY, table) for name, table in _TABLES.items()})


class _WithTables(ModuleType):
    """This file as a module, in which a program may put another table in the place of one."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TABLES:
            setattr(EVERY, _TABLES[name], value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _WithTables


def _unimplemented(self: Module, *args: Any) -> Any:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip


class Module(HookMixin, StateMixin):
    """Base class of all neural network modules. A subclass defines `forward`; calling the module runs it and the hooks."""

    training: bool
    call_super_init = False
    dump_patches = False
    _version = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    forward: Callable[..., Any] = _unimplemented

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            given = (
                f"got an unexpected keyword argument '{next(iter(kwargs))}'" if kwargs
                else f"takes 1 positional argument but {len(args) + 1} were given"
            )  # fmt: skip
            raise TypeError(f"{type(self).__name__}.__init__() {given}")
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_is_full_backward_hook"] = None
        for table in _HOOK_TABLES:
            own[table] = OrderedDict()
        own["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- the call -------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._call_hooks:
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except BaseException as error:
            told = None
            if isinstance(error, (RuntimeError, ValueError, IndexError, TypeError, AttributeError)):
                refuse((*args, *kwargs.values()), f"the module {type(self).__name__}")
            if isinstance(error, Exception):
                told = explained_call(error, self, args, kwargs)
                _locate(told or error, self)
            shorten(told or error)
            if told is None:
                raise
            raise told from error

    # -- attributes -----------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        members = own.get("_modules")  # a name is in one table only
        if members is not None and name in members:
            return members[name]
        members = own.get("_parameters")
        if members is not None and name in members:
            return members[name]
        members = own.get("_buffers")
        if members is not None and name in members:
            return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, own, own["_buffers"], own["_modules"], own["_non_persistent_buffers_set"])
            self.register_parameter(name, value)
            return
        if isinstance(value, Module):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name in own["_parameters"]:
                raise TypeError(f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            self._forget(name, own, own["_buffers"], own["_parameters"], own["_non_persistent_buffers_set"])
            own["_modules"][name] = registered(EVERY.modules, self, name, value) if EVERY.modules else value
            return
        if name in own:
            own[name] = value
            return
        for table, what, kind in (("_parameters", "parameter", "Parameter"), ("_modules", "child module", "Module")):
            members = own.get(table)
            if members is not None and name in members:
                if value is not None:
                    refuse((value,), f"the module {type(self).__name__} (as its {what} '{name}')")
                    raise TypeError(f"cannot assign '{typename(value)}' as {what} '{name}' (torch.nn.{kind} or None expected)")
                members[name] = None
                return
        buffers = own.get("_buffers")
        if isinstance(value, Buffer) or (buffers is not None and name in buffers):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)")
            if buffers is None:
                raise AttributeError("cannot assign buffers before Module.__init__() call")
            if isinstance(value, Buffer):
                _register_buffer(self, name, value)
            else:
                buffers[name] = registered(EVERY.buffers, self, name, value) if EVERY.buffers else value
            return
        refuse((value,), f"the module {type(self).__name__} (as its attribute '{name}')")
        object.__setattr__(self, name, value)

    @staticmethod
    def _forget(name: str, *tables: Any) -> None:
        for table in tables:
            if name in table:
                if isinstance(table, dict):
                    del table[name]
                else:
                    table.discard(name)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        keys = itertools.chain(dir(type(self)), self.__dict__, self._parameters, self._modules, self._buffers)
        return sorted(key for key in set(keys) if not key[0].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:  # files of older versions may lack some
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under an attribute name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            refuse((param,), f"the module {type(self).__name__} (as its parameter '{name}')")
            raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                f"express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = registered(EVERY.parameters, self, name, param) if EVERY.parameters else param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the module's state, but no parameter; saved in state_dict if `persistent`."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            refuse((tensor,), f"the module {type(self).__name__} (as its buffer '{name}')")
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = registered(EVERY.buffers, self, name, tensor) if EVERY.buffers else tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under an attribute name."""
        if module is not None and not isinstance(module, Module):
            refuse((module,), f"the module {type(self).__name__} (as its part '{name}')")
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = registered(EVERY.modules, self, name, module) if EVERY.modules else module

    def register_module(self, name: str, module: Module | None) -> None:
        """Another name of add_module."""
        self.add_module(name, module)

    def _check_name(self, what: str, name: str, table: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def _member(self, target: str, kind: str, table: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in getattr(module, table):
            raise AttributeError(f"`{name}` is not {kind}")
        return getattr(module, table)[name]

    def get_submodule(self, target: str) -> Module:
        """The descendant with this dotted path; AttributeError if there is none."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at this dotted path; with `strict`, only where one stands already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with this dotted path."""
        return self._member(target, "an nn.Parameter", "_parameters")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with this dotted path."""
        return self._member(target, "a buffer", "_buffers")  # type: ignore[no-any-return]

    # -- traversal ------------------------------------------------------------------------------------------------
    def named_modules(self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all its descendants, each with its path."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # -- changing all of it ---------------------------------------------------------------------------------------
    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every descendant, children first, then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode (`mode=False`: evaluation mode) here and in all descendants."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Say of every parameter whether it wants a gradient."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget (or set to zero) the gradient of every parameter."""
        for p in self.parameters():
            clear_grad(p, set_to_none)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Replace every tensor by `fn` of it; Parameter objects stay the same objects, unless torch.__future__ says otherwise."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with torch.no_grad():
            for name, p in self._parameters.items():
                if p is None:
                    continue
                grad = p.grad
                new = fn(p)
                if conversions._overwrite:
                    p = self._parameters[name] = Parameter(new, p.requires_grad)
                elif conversions._swap and new is not p:
                    p.grad = None
                    torch.utils.swap_tensors(p, Parameter(new, p.requires_grad))
                elif new is not p and new.device != p.device:  # other memory altogether, as in PyTorch
                    p = self._parameters[name] = Parameter(new, p.requires_grad)
                elif new is not p:
                    p.data = new
                if grad is not None:
                    new_grad = fn(grad)
                    if new_grad is not grad:
                        p.grad = new_grad
        for name, buffer in self._buffers.items():
            if buffer is not None:
                new = fn(buffer)
                self._buffers[name] = type(buffer)(dtype=new.dtype) if is_lazy(buffer) else new
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast parameters and buffers: `to(device)`, `to(dtype)`, `to(tensor)`. Casts only floating tensors."""
        device, dtype, non_blocking, memory_format = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t: Any) -> Any:
            cast = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, cast, non_blocking, memory_format=memory_format)
            if device is None:
                return t if cast is None else t.to(cast)
            try:
                return t.to(device, cast, non_blocking)
            except NotImplementedError as error:
                if not t.is_meta:
                    raise
                raise NotImplementedError(
                    f"{error} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to a different device."
                ) from None

        return self._apply(convert)

    def _cast(self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def type(self, dst_type: Any) -> Self:
        """Cast all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Self:
        return self._cast(torch.float32)

    def double(self) -> Self:
        return self._cast(torch.float64)

    def half(self) -> Self:
        return self._cast(torch.float16)

    def bfloat16(self) -> Self:
        return self._cast(torch.bfloat16)

    def cpu(self) -> Self:
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """RuntimeError if there is a tensor to move: this build has no CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self, *, device: Any = None, recurse: bool = True) -> Self:
        """New storage with undefined values for every parameter and buffer."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse)

    def share_memory(self) -> Self:
        """Move all parameters and buffers, in place, to memory that processes share."""
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: every program is recorded and compiled as it runs."""

    # -- text -----------------------------------------------------------------------------------------------------
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text between the brackets of repr; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): {_indent(repr(module))}" for name, module in self._modules.items()]
        if not lines and (not extra or "\n" not in extra):
            return f"{self._get_name()}({extra})"
        if extra:
            lines = extra.split("\n") + lines
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


def clear_grad(p: Tensor, set_to_none: bool) -> None:
    """Forget the gradient of `p`, or set it to zero in place."""
    grad = p._grad
    if grad is None:
        return
    if set_to_none:
        p._grad = None
        return
    if grad.grad_fn is not None:
        grad.detach_()
    else:
        grad.requires_grad_(False)
    grad.zero_()


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the argument forms of `to`: (device, dtype, ...), (dtype, ...) and (tensor, ...)."""
    args, given = tuple([of_type(a) for a in args]), {n: of_type(v) for n, v in kwargs.items()}  # Python's classes of numbers are dtypes
    first = args[0] if args else None
    head = ("tensor",) if isinstance(first, Tensor) else ("dtype",) if isinstance(first, torch.dtype) else ("device", "dtype")
    names = (*(("tensor",) if "tensor" in given else head), "non_blocking", "copy")
    repeated = [n for n in names[: len(args)] if n in given]
    if len(args) > len(names) or repeated or any(n not in (*names, "dtype", "memory_format") for n in given):
        raise _no_form_of_to(args, kwargs)
    given |= dict(zip(names, args, strict=False))
    kinds: dict[str, Any] = {
        "device": (str, int, torch.device, type(None)), "dtype": (torch.dtype, type(None)), "tensor": Tensor, "non_blocking": bool, "copy": bool,
        "memory_format": (torch.memory_format, type(None)),
    }  # fmt: skip
    if any(not isinstance(v, kinds[n]) or (n == "device" and isinstance(v, bool)) for n, v in given.items()):
        raise _no_form_of_to(args, kwargs)
    if given.get("copy"):
        raise RuntimeError(".to() does not accept copy argument")
    if (other := given.get("tensor")) is not None:
        given |= {"device": other.device, "dtype": other.dtype}
    return given.get("device"), given.get("dtype"), given.get("non_blocking", False), given.get("memory_format")


def _no_form_of_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    got = ", ".join([type(a).__name__ for a in args] + [f"{n}={type(v).__name__}" for n, v in kwargs.items()])
    return TypeError(
        f"to() received an invalid combination of arguments - got ({got}), but expected (device, dtype, non_blocking), (dtype, non_blocking) or "
        "(tensor, non_blocking), and memory_format="
    )


state.Module = Module  # type: ignore[attr-defined]  # annotations there name it, and programs read them
_IncompatibleKeys = IncompatibleKeys
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
MODULE_CALLS.add(Module.__call__.__code__)


def _register_buffer(module: Module, name: str, value: Buffer) -> None:
    """By the module's own method, which may be from before there were buffers that are not in `state_dict`."""
    if type(module).register_buffer is Module.register_buffer or "persistent" in inspect.signature(module.register_buffer).parameters:
        module.register_buffer(name, value, value.persistent)
    elif value.persistent:
        module.register_buffer(name, value)
    else:
        raise RuntimeError(
            f"{type(module).__name__}.register_buffer() takes no argument 'persistent', so '{name}' cannot be registered as a buffer that is not persistent"
        )


_LOCATED: Final = frozenset((RuntimeError, ValueError, IndexError, TypeError, IndexRangeError, NotImplementedError, AssertionError))


def _locate(error: Exception, module: Module) -> None:
    """Add the module's path, from the outermost module that the error passes, as the last line of its message.

    Runs only while an exception unwinds: each module prepends the path under which it holds the module below. Only plain
    exceptions with one text are changed, so that a user's own exception classes keep their arguments.
    """
    if type(error) not in _LOCATED or getattr(error, "located", False):
        return
    found = error.__dict__.get("_flambeau_path")
    if found is None:
        if len(error.args) != 1 or not isinstance(error.args[0], str):
            return
        text, origin, below, path = error.args[0], module, module, ""
    else:
        text, origin, below, path = found
        name = next((name for name, child in module.named_modules() if child is below and child is not module), None)
        if name is not None:
            path = f"{name}.{path}" if path else name
        below = module
    error._flambeau_path = (text, origin, below, path)  # type: ignore[attr-defined]
    kind = type(origin).__name__
    place = f"{path!r} ({kind}) of {type(module).__name__}" if path else kind
    error.args = (f"{text}\n[in module {place}]",)
