"""torch._jit_internal: decorators of TorchScript's compiler, which mark functions; flambeau runs the Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.futures import Future as Future
from flambeau.jit.script import export as export
from flambeau.jit.script import ignore as ignore
from flambeau.jit.script import is_scripting as is_scripting
from flambeau.jit.script import unused as unused


class FunctionModifiers:
    """What the decorators mark a function with."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from a exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"
    _DROP = "_drop (function is fully ignored, declaration can be unscriptable)"


def _copy_to_script_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, marked."""
    fn._torchscript_modifier = FunctionModifiers.COPY_TO_SCRIPT_WRAPPER  # type: ignore[attr-defined]
    return fn


def _drop(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, marked."""
    fn._torchscript_modifier = FunctionModifiers._DROP  # type: ignore[attr-defined]
    return fn


def get_torchscript_modifier(fn: Any) -> str:
    """What a function was marked with."""
    return getattr(getattr(fn, "__func__", fn), "_torchscript_modifier", FunctionModifiers.DEFAULT)


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any], if_false: Callable[..., Any], module_name: str, func_name: str
) -> Callable[..., Any]:
    """One of two functions, by the value of an argument."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    fn.__name__, fn.__module__, fn.__doc__ = func_name, module_name, if_true.__doc__
    return fn


def _overload(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function: a declaration for TorchScript's compiler."""
    return func


_overload_method = _overload
