"""torch.overrides: `__torch_function__` for subclasses of Tensor, for objects that are no tensors, and for modes.

The machinery is in ops/dispatch.py and ops/instrument.py; this is what programs import.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import flambeau
from flambeau.ops import dispatch, instrument
from flambeau.tensor import Tensor

__all__ = [
    "enable_reentrant_dispatch", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "handle_torch_function",
    "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip
_disabled_torch_function_impl = dispatch.disabled_torch_function
DisableTorchFunctionSubclass = dispatch.DisableTorchFunctionSubclass


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments answers for itself, or a mode wants every call."""
    if dispatch.state.skipped:
        dispatch.state.skipped = False
        return False
    if not dispatch.state.everything:
        return False
    return bool(dispatch.state.modes) or (dispatch.state.subclasses and any(dispatch.overrides(a) for a in relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """has_torch_function of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """has_torch_function of several arguments."""
    return has_torch_function(relevant_args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """What a mode, or the first of the relevant arguments that does not decline, makes of a call of `public_api`.

    TypeError where all decline.
    """
    relevant = dispatch.overloaded(relevant_args)
    if dispatch.state.modes:
        return dispatch.ask_mode(public_api, relevant, args, kwargs)
    return dispatch.ask(public_api, relevant, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function asks those arguments that `dispatcher`, called with all of them, returns."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def redispatch_function(func: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call the function without asking for this call itself; calls inside of it are asked for, where it is not one of torch's own."""
    if func.__module__.split(".")[0] in ("flambeau", "torch"):
        with dispatch.DisableTorchFunction():
            return func(*args, **(kwargs or {}))
    dispatch.state.skipped = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        dispatch.state.skipped = False


@cache
def get_ignored_functions() -> set[Any]:
    """The public functions that never ask: they take no tensors, or make them of nothing."""
    ignored = instrument.IGNORED | instrument.CREATION
    found = {value for name, value in list(vars(flambeau).items()) if name in ignored and callable(value)}
    return found | {Tensor.__new__, Tensor.__init__, Tensor.__hash__, Tensor.__setattr__, Tensor.__getattribute__, Tensor.__init_subclass__, Tensor.as_subclass}


def _tensor_attributes() -> Iterator[tuple[str, Any]]:
    dispatch._fill()
    for name, value in list(vars(Tensor).items()):
        if name in dispatch._UNASKED or (name.startswith("_") and not name.startswith("__")) or isinstance(value, (staticmethod, classmethod)):
            continue
        yield name, value


@cache
def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """{module or class: its functions that ask}."""
    import importlib

    found: dict[Any, list[Callable[..., Any]]] = {}
    for namespace, _, function in instrument.overridable():
        found.setdefault(importlib.import_module(namespace), []).append(function)
    methods: list[Callable[..., Any]] = []
    for name, value in _tensor_attributes():
        if isinstance(value, property):
            methods.append(vars(dispatch.Overridable)[name].get)
        elif callable(value):
            methods.append(value)
    found[Tensor] = methods
    return found


@cache
def _names() -> dict[Any, str]:
    names: dict[Any, str] = {}
    for namespace, name, function in instrument.overridable(creation=True):
        if namespace != "flambeau" and function in names and not function.__module__.startswith(namespace):
            continue  # torch.sigmoid rather than torch.special.expit; but nn.functional's own functions by their name there
        names[function] = f"{namespace.replace('flambeau', 'torch', 1)}.{name}"
    for name, value in _tensor_attributes():
        key = vars(dispatch.Overridable)[name].get if isinstance(value, property) else value
        if isinstance(value, property) or callable(value):
            names.setdefault(key, f"torch.Tensor.{name}.__get__" if isinstance(value, property) else f"torch.Tensor.{name}")
    return names


def resolve_name(f: Any) -> str | None:
    """ "torch.nn.functional.relu" for that function; None for one that is not overridable."""
    try:
        return _names().get(f)
    except TypeError:
        return None


@cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """{function: one that takes the same parameters and returns -1}, to test `__torch_function__` with."""
    found: dict[Callable[..., Any], Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            try:
                found[function] = _dummy(inspect.signature(function))
            except (TypeError, ValueError):
                found[function] = lambda *args, **kwargs: -1
    return found


def _dummy(signature: inspect.Signature) -> Callable[..., int]:
    def dummy(*args: Any, **kwargs: Any) -> int:
        signature.bind(*args, **kwargs)
        return -1

    dummy.__signature__ = signature  # type: ignore[attr-defined]
    return dummy


@cache
def _tensor_members() -> set[Any]:
    members: set[Any] = set()
    for name, value in _tensor_attributes():
        if isinstance(value, property):
            members.add(vars(dispatch.Overridable)[name].get)
        elif callable(value):
            members.add(value)
    return members


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is one of Tensor's methods, or the `__get__` of one of its properties."""
    return func in _tensor_members() or getattr(func, "__name__", "") == "__get__"


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or answers for itself."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A block inside an answer in which tensors and modes are asked again."""
    before = dispatch.state.subclasses, dispatch.state.everything
    dispatch.state.subclasses = dispatch.state.everything = True
    try:
        yield
    finally:
        dispatch.state.subclasses, dispatch.state.everything = before


class TorchFunctionMode:
    """A block in which `__torch_function__` of this object is asked by every public function.

    Functions are given their stubs when the first block is entered and lose them after the last: outside, calls cost nothing more.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        before = list(dispatch.state.modes)
        if "_stubs" not in self.__dict__:
            self._stubs = instrument.everything()
        self._stubs.__enter__()
        try:
            dispatch.state.modes.append(self)
            return self
        except BaseException:  # an interrupt: no `__exit__` will come
            dispatch.state.modes[:] = before
            self._stubs.__exit__()
            raise

    def __exit__(self, *exception: Any) -> None:
        try:
            dispatch.state.modes.pop()
        finally:
            self._stubs.__exit__()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An object of the mode: the older name of its constructor."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    """The innermost mode."""
    return dispatch.state.modes[-1] if dispatch.state.modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    """All modes, innermost last."""
    return list(dispatch.state.modes)


def _get_overloaded_args(relevant_args: Iterable[Any], get_type_fn: Callable[[Any], type] | None = None) -> list[Any]:
    """Those arguments that answer, one for each class, subclasses first."""
    return dispatch.overloaded(relevant_args)


def get_default_nowrap_functions() -> set[Any]:
    """Getters whose results are never made into a subclass: a tensor's base and its gradients."""
    return {found.__get__ for name in ("_base", "grad") if isinstance(found := vars(Tensor).get(name), property)}


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.overrides", globals())
