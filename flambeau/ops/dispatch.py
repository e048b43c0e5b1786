"""`__torch_function__`: calls with arguments that answer for themselves.

Plain tensors pay nothing for it. A Tensor subclass that has its own `__torch_function__` (or inherits Tensor's, which gives results of
the subclass) gets the class `Overridable` between itself and Tensor. There `_gen` and `_meta`, which the generated wrappers
(ops/wrapper.py) read first, are properties that raise `Overridden` when a wrapper reads them, so the call ends in `recover`, where
wrong arguments end, too; and Tensor's methods and properties have forms that ask `__torch_function__`. Objects that are no tensors have
no `_gen` at all. Functions that are not operations, and modes, which want every call, are reached by ops/instrument.py.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from types import FunctionType
from typing import Any

from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.foreign import called, is_foreign, is_theirs
from flambeau.module_names import under_torch
from flambeau.ops.subclass_names import part_of_level
from flambeau.tensor import Tensor, users_dict
from flambeau.trace import immediate
from flambeau.trace.meta import Size
from flambeau.trace.recorder import Fragment, local
from flambeau.trace.while_set import while_set
from flambeau.upward import upward

WRAPPER_FILES = "<flambeau operation"  # how the file names of generated wrappers start


class Overridden(AttributeError):
    """A wrapper met a tensor that answers for itself."""


class _State(threading.local):
    """Per thread: whether subclasses and modes are asked, and the modes, innermost last."""

    subclasses = True
    everything = True
    skipped = False  # the next question of has_torch_function is for a call that is redispatched

    def __init__(self) -> None:
        self.modes: list[Any] = []


state = _State()


class DisableTorchFunctionSubclass(AbstractContextManager[None]):
    """A block in which tensors of subclasses are treated as plain tensors; modes are still asked."""

    def __enter__(self) -> None:
        self.before = state.subclasses
        state.subclasses = False

    def __exit__(self, *_: Any) -> None:
        state.subclasses = self.before


class DisableTorchFunction(AbstractContextManager[None]):
    """A block in which neither subclasses nor modes are asked."""

    def __enter__(self) -> None:
        self.before = state.everything
        state.everything = False

    def __exit__(self, *_: Any) -> None:
        state.everything = self.before


def disabled_torch_function(func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The `__torch_function__` of classes that do not answer: the plain function."""
    if is_theirs(func):
        raise called(func)
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


_IGNORED = (disabled_torch_function,)


def overrides(a: Any) -> bool:
    """Whether an object's class answers for itself."""
    cls = type(a)
    if cls is Tensor or isinstance(a, type):
        return False
    found = getattr(cls, "__torch_function__", None)
    if found is None or found in _IGNORED:
        return isinstance(a, Dispatched)
    return not isinstance(a, Tensor) or isinstance(a, Overridable)


def overloaded(arguments: Iterable[Any]) -> list[Any]:
    """Those of the arguments (and of lists and tuples among them) that answer: one for each class, subclasses first."""
    found: list[Any] = []
    for a in arguments:
        for b in a if type(a) in (list, tuple) else (a,):
            cls = type(b)
            if cls in PLAIN or not overrides(b) or is_foreign(b) or any(type(f) is cls for f in found):
                continue
            place = next((i for i, f in enumerate(found) if issubclass(cls, type(f))), len(found))
            found.insert(place, b)
    return found


PLAIN = {Tensor, int, float, bool, complex, str, type(None), Device, dtype, Size}  # what never answers


def ask(function: Any, relevant: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the first of the arguments answers that does not decline (NotImplemented); TypeError where all do.

    A function's `asked_as` makes of the arguments those that PyTorch asks with.
    """
    spelled = getattr(function, "asked_as", None)
    if spelled is not None:
        args = spelled(args)
    types = tuple(type(a) for a in relevant)
    for a in relevant:
        if isinstance(a, Dispatched) and (type(a).__torch_function__ in _IGNORED or getattr(type(a).__torch_function__, "__func__", None) is _OWN):
            from flambeau.ops.below import redispatch

            return redispatch(function, args, kwargs)
        result = a.__torch_function__(function, types, tuple(args), kwargs)
        if result is not NotImplemented:
            return result
    name = resolve_name(function) or f"{under_torch(getattr(function, '__module__', ''))}.{getattr(function, '__name__', function)}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}")


@upward
def resolve_name(f: Any) -> str | None:
    """ "torch.nn.functional.relu" for that function (overrides.py)."""
    raise NotImplementedError


def ask_mode(function: Any, relevant: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the innermost mode answers, itself not being asked meanwhile; then the arguments."""
    mode = state.modes.pop()
    try:
        result = mode.__torch_function__(function, tuple(type(a) for a in relevant), tuple(args), kwargs)
    finally:
        state.modes.append(mode)
    if result is NotImplemented:
        raise TypeError(f"no implementation found for '{getattr(function, '__name__', function)}': the mode {type(mode).__name__} answered NotImplemented")
    return result


def ask_mode_of_operator(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the innermost mode answers to a call of an operator of torch.library; NotImplemented if there is none that functions ask."""
    if not state.modes or not state.everything or getattr(state.modes[-1], "sees_operators_itself", False):
        return NotImplemented
    return ask_mode(operator, overloaded((*args, *kwargs.values())), args, kwargs)


def dispatch(public: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a public function, where modes and arguments are asked; `original` is what it does by itself."""
    if state.everything and not isinstance(local.trace, Fragment):
        if state.modes:
            return ask_mode(public, overloaded((*args, *kwargs.values())), args, kwargs)
        if state.subclasses:
            relevant = overloaded((*args, *kwargs.values()))
            if relevant:
                return ask(public, relevant, args, kwargs)
        if Dispatched.__subclasses__() and any_dispatched((*args, *kwargs.values())):
            from flambeau.ops.below import redispatch

            return redispatch(public, args, kwargs)
    return original(*args, **kwargs)


_GEN: Any = vars(Tensor)["_gen"]
_META: Any = vars(Tensor)["_meta"]


# -- Tensor subclasses --------------------------------------------------------------------------------------------------
class Overridable(Tensor):
    """Between Tensor and a subclass that answers for itself: every public attribute of Tensor in a form that asks."""

    __dict__: Any = users_dict

    @property  # type: ignore[misc]
    def _gen(self) -> int:  # type: ignore[override]
        if state.subclasses and state.everything and sys._getframe(1).f_code.co_filename.startswith(WRAPPER_FILES):
            raise Overridden("a tensor that answers for itself")
        return _GEN.__get__(self)  # type: ignore[no-any-return]

    @_gen.setter
    def _gen(self, value: int) -> None:
        _GEN.__set__(self, value)

    @property  # type: ignore[misc]
    def _meta(self) -> Any:  # type: ignore[override]
        if state.subclasses and state.everything and sys._getframe(1).f_code.co_filename.startswith(WRAPPER_FILES):
            raise Overridden("a tensor that answers for itself")
        return _META.__get__(self)

    @_meta.setter
    def _meta(self, value: Any) -> None:
        _META.__set__(self, value)


class Dispatched(Overridable):
    """Between Tensor and a subclass with `__torch_dispatch__`: a tensor without elements of its own, of which no wrapper can take any."""

    @property
    def _gen(self) -> int:  # type: ignore[override]
        if sys._getframe(1).f_code.co_filename.startswith(WRAPPER_FILES):
            raise Overridden("a tensor that answers for itself below autograd")
        return _GEN.__get__(self)  # type: ignore[no-any-return]

    @_gen.setter
    def _gen(self, value: int) -> None:
        _GEN.__set__(self, value)

    @property
    def _meta(self) -> Any:  # type: ignore[override]
        if sys._getframe(1).f_code.co_filename.startswith(WRAPPER_FILES):
            raise Overridden("a tensor that answers for itself below autograd")
        return _META.__get__(self)

    @_meta.setter
    def _meta(self, value: Any) -> None:
        _META.__set__(self, value)

    @property
    def device(self) -> Device:  # type: ignore[override]
        """Where its class says that it is."""
        return self._where or _META.__get__(self).device  # type: ignore[no-any-return]

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """Whether its class says that it is on `meta`."""
        return self.device.type == "meta"


def any_dispatched(arguments: Iterable[Any]) -> bool:
    """Whether there is a tensor with `__torch_dispatch__` among arguments, or in a list or tuple of them."""
    return any(isinstance(b, Dispatched) for a in arguments for b in (a if type(a) in (list, tuple) else (a,)))


# Attributes that say what an object is, or how Python makes and finds it: never asked.
_UNASKED = frozenset(
    "__class__ __dict__ __doc__ __module__ __new__ __init__ __init_subclass__ __subclasshook__ __getattribute__ __setattr__ __delattr__ __hash__ "
    "__sizeof__ __dir__ __weakref__ __torch_function__ __annotations__ __reduce__ __getstate__ __array_priority__ as_subclass __firstlineno__ "
    "__static_attributes__ __getattr__ __slots__".split()
)


def _method(public: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return dispatch(public, public, (self, *args), kwargs)

    method.__name__ = getattr(public, "__name__", "method")
    method.__doc__ = public.__doc__
    return method


class _Property:
    """A property of Tensor that asks. `__get__` is what `__torch_function__` is told, as PyTorch tells it."""

    def __init__(self, name: str, plain: Any) -> None:
        self.name = name
        self.plain = plain
        self.get = _Getter(plain)
        self.__doc__ = getattr(plain, "__doc__", None)

    def __get__(self, t: Any, owner: Any = None) -> Any:
        if t is None:
            return self.plain
        return dispatch(self.get, self.get, (t,), {})

    def __set__(self, t: Any, value: Any) -> None:
        self.plain.__set__(t, value)

    def __delete__(self, t: Any) -> None:
        self.plain.__delete__(t)


class _Getter:
    """`Tensor.shape.__get__` and its like: equal for equal properties."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self.__name__ = "__get__"
        self.__self__ = plain

    def __call__(self, t: Any, owner: Any = None) -> Any:
        return self.plain.__get__(t, type(t))

    def __eq__(self, other: object) -> bool:
        return getattr(other, "__name__", None) == "__get__" and getattr(other, "__self__", None) is self.plain

    def __hash__(self) -> int:
        return hash(self.plain.__get__)


_Getter.__name__ = "method-wrapper"  # what `__torch_function__` of programs knows properties by


class _Constant:
    """A class attribute of Tensor (`layout`, `is_cuda`) as a property that can be asked."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __get__(self, t: Any, owner: Any = None) -> Any:
        return self.value


def _fill() -> None:
    """Give Overridable its attributes: once, when the first such subclass is made."""
    for name, value in list(vars(Tensor).items()):
        if name in _UNASKED or name in vars(Overridable) or (name.startswith("_") and not name.startswith("__")):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            continue
        if isinstance(value, property):
            setattr(Overridable, name, _Property(name, value))
        elif isinstance(value, FunctionType) or callable(value):
            if getattr(value, "__name__", name) in ("<lambda>", "operator", "getitem", "setitem", "method", name + "_"):
                value.__name__ = value.__qualname__ = name  # what __torch_function__ is told
            setattr(Overridable, name, _method(value))
        else:
            setattr(Overridable, name, _Property(name, _Constant(value)))


def _plainly(function: Callable[..., Any], args: Any) -> Any:
    return while_set(state, "subclasses", False, function, args)


def admit(cls: type) -> None:
    """Called for every new subclass of Tensor: put Overridable before Tensor where the class answers for itself."""
    found = getattr(cls, "__torch_function__", None)
    below = getattr(cls, "__torch_dispatch__", None) is not None
    if (found in _IGNORED and not below) or cls.__module__ == __name__:
        return
    if not Overridable.__dict__.get("_filled", False):
        _fill()
        Overridable._filled = True  # type: ignore[attr-defined]
        from flambeau.ops import instrument

        instrument.functions()
        immediate.plainly[0] = _plainly
    base: type = Dispatched if below else Overridable
    if below:
        from flambeau.ops.wrapper import BELOW

        BELOW.append(cls)
    if not issubclass(cls, base):
        bases = tuple(base if b is Tensor else b for b in cls.__bases__)
        cls.__bases__ = bases if base in bases else (*bases, base)


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same memory and history as a tensor of another class."""
    from flambeau.ops.indexing import _alias

    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError(f"as_subclass(): argument 'cls' must be a subclass of Tensor, not {cls!r}")
    with DisableTorchFunctionSubclass():
        made = _alias(self)
        if made is self:
            made = self.view(self.shape)
        wanted, level = cls, type(made)  # type: Any, Any
        made.__class__ = leveled(wanted, level) if getattr(level, "_is_level", False) else wanted
    return made


@cache
def leveled(cls: Any, level: Any) -> type:
    """The class of a transform's tensors that are of a subclass, too: what the level's class has of its own comes first, and the wrappers are told to ask."""
    if issubclass(level, cls):
        return level  # type: ignore[no-any-return]
    if issubclass(cls, Dispatched):
        raise NotImplementedError(f"as_subclass(): {cls.__name__} has a __torch_dispatch__, and the tensor belongs to a transform ({level.__name__})")
    inside: dict[str, Any] = {"_subclass": cls}
    for above in reversed(level.__mro__[: level.__mro__.index(Tensor)]):
        inside |= {name: value for name, value in vars(above).items() if name not in _OF_CLASSES}
    if issubclass(cls, Overridable):

        def answer(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return cls.__torch_function__(func, tuple(cls if t is made else t for t in types), args, kwargs)

        inside |= {"__torch_function__": staticmethod(answer), "_gen": property(_asked_gen), "_meta": property(partial(_asked_meta, level))}
    made = type(cls.__name__, (cls, level), inside)
    part_of_level(made, level)
    made.__module__ = cls.__module__
    return made


_OF_CLASSES = frozenset("__dict__ __weakref__ __doc__ __module__ __torch_function__ __annotations__ __firstlineno__ __static_attributes__".split())


def _by_wrapper() -> bool:
    """Whether a generated wrapper reads the property that calls this, and has to ask."""
    return state.subclasses and state.everything and sys._getframe(2).f_code.co_filename.startswith(WRAPPER_FILES)


def _asked_gen(t: Any) -> int:
    if _by_wrapper():
        raise Overridden("a tensor that answers for itself")
    return -1  # no trace has it


def _asked_meta(level: Any, t: Any) -> Any:
    if _by_wrapper():
        raise Overridden("a tensor that answers for itself")
    return level._meta.fget(t)


def convert(result: Any, cls: type, given: Sequence[Any], fresh: bool) -> Any:
    """The plain tensors of a result as tensors of `cls`. `fresh`: nobody else has them, unless they are among `given`."""
    if isinstance(result, Tensor):
        if isinstance(result, cls):
            return result
        if fresh and type(result) is Tensor and not any(result is g for g in given):
            result.__class__ = cls
            return result
        return as_subclass(result, cls)
    if isinstance(result, (tuple, list)):
        parts = [convert(r, cls, given, fresh) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def torch_function(cls: type, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Tensor's own `__torch_function__`: the plain function, its results as tensors of the subclass."""
    kwargs = kwargs or {}
    if is_theirs(func):
        raise called(func)
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
        if isinstance(func, _Getter) and func.plain in _no_wrap():
            return result
        if getattr(func, "__name__", "") in _UNCONVERTED:
            return result
        given = [b for a in (*args, *kwargs.values()) for b in (a if isinstance(a, (list, tuple)) else (a,))]
        return convert(result, cls, given, not isinstance(func, _Getter))


_OWN: Any = vars(Tensor)["__torch_function__"].__func__

# PyTorch's get_default_nowrap_functions: results of these stay as they are.
_UNCONVERTED = frozenset(("backward", "register_hook", "register_post_accumulate_grad_hook", "tolist", "item", "numpy"))


def _no_wrap() -> list[Any]:
    return [vars(Tensor).get(n) for n in ("_base", "grad", "_grad")]


@cache
def parameter_of(cls: type, parameter: type) -> type:
    """The class of parameters that are tensors of a subclass: both at once; functions of them give tensors of the subclass."""

    def answer(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.__torch_function__(func, tuple(cls if t is made else t for t in types), args, kwargs)  # type: ignore[attr-defined]

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        if not getattr(self, "_is_param", False):  # what Parameter() gives is begun, and of the subclass's arguments it knows nothing
            cls.__init__(self, *args, **kwargs)  # type: ignore[misc]

    own: Any = getattr(cls, "__torch_function__", None)
    below = issubclass(cls, Dispatched) and (own in _IGNORED or getattr(own, "__func__", None) is _OWN)  # it answers by __torch_dispatch__ alone
    inside = {"__torch_function__": own if below else staticmethod(answer), "__module__": cls.__module__, "__init__": begin, "_subclass": cls}
    made = type(cls.__name__, (cls, parameter), inside)
    return made


def named_class(t: Any) -> type:
    """The class of a tensor by which files name it: of a parameter of a subclass the subclass, as in PyTorch, which marks the tensor (`_is_param`)."""
    return vars(type(t)).get("_subclass", type(t))  # type: ignore[no-any-return]


def marked(t: Any, parameter: type) -> Any:
    """A tensor of a subclass that a file has made, as the parameter that it was if it is marked as one."""
    if t.__dict__.get("_is_param") is True and not isinstance(t, parameter):
        cls: Any = type(t)
        t.__class__ = parameter_of(cls, parameter)
    return t


def from_wrapper(op: Any, args: tuple[Any, ...]) -> Any:
    """The call of an operation whose arguments (all of them, by position) answer for themselves; NotImplemented: none does.

    How the call was written is not known any more: positional arguments up to the last that is not its default, then keywords.
    """
    if isinstance(local.trace, Fragment) or (not (state.subclasses and state.everything) and not any_dispatched(args)):
        return NotImplemented
    relevant = overloaded(args)
    if not relevant:
        return NotImplemented
    from flambeau.ops import instrument

    instrument.functions()  # from now on functions that are no operations ask, too
    count = len(args) - op.keywords
    given = [not (a is d or (type(a) is type(d) and type(a) in PLAIN and a == d)) for a, d in zip(args, op.defaults, strict=True)]
    last = max([i + 1 for i in range(count) if given[i]], default=0)
    named = {op.names[i]: args[i] for i in range(count, len(args)) if given[i]}
    if not (state.subclasses and state.everything):  # inside of a `__torch_function__`: what is below is asked
        from flambeau.ops.below import redispatch

        return redispatch(op.function, args[:last], named)
    return ask(op.function, relevant, args[:last], named)
