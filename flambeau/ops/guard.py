"""Public functions that are no operations say what is wrong with a call that has failed.

A function keeps its identity: its code is exchanged for code of the same signature that calls what it was, and looks at the arguments only where
that raises. So a call that works pays for one more Python call, and nothing else. Operations and remembered functions do the same where they are
slow anyway (ops/wrapper.py, ops/remembered.py).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

import numpy as np

from flambeau.dtypes import of_type
from flambeau.module_names import is_ours
from flambeau.ops.signatures import asks_for_dtype, overloads, problem, simple
from flambeau.trace.objects import _TENSOR
from flambeau.trace.place import PUBLIC
from flambeau.trace.recorder import name_operation
from flambeau.trace.wrong_calls import blame, explained, internal, nothing_given, of_users, unexpected, without_users
from flambeau.tracebacks import AT_END, shorten

_STARS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def better(error: Exception, name: str, names: tuple[str, ...], values: tuple[Any, ...], defaults: tuple[Any, ...]) -> Exception | None:
    """The error that a failed call of a public function should raise instead, or None."""
    cause = error.__cause__ if getattr(error, "_explained", False) else None  # what an inner public function has said of Python's error
    by_python = cause is not None or unexpected(error)
    if by_python and cause is None and isinstance(error, _OF_OBJECTS) and nothing_given(names, values, defaults):
        blame(error)
    if internal(error):
        return None
    if by_python or not (isinstance(error, OSError) or of_users(error)):
        told: Exception | None = problem(name, names, values, defaults)
        if told is None and by_python:
            told = explained(cause or error, name, names, values)
        if told is not None:
            if cause is not None:
                told.__cause__ = cause
            return told
        if (type(error) in _NAMED or type(error) is AssertionError) and _constructed(name, names, values):
            name_operation(error, name)
        texts_are_pytorchs = not overloads(name) and (names[:1] == ("self",) or name.startswith("distributions."))
        if unsupported(error) or (type(error) in _NAMED and (not texts_are_pytorchs or _INNER.match(str(error)))):
            name_operation(error, name)
    return None


def _constructed(name: str, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    """Whether a failed call is that of the constructor of the object's own class, or of the nearest one that is flambeau's."""
    if names[:1] != ("self",):
        return False
    nearest = next((c for c in type(values[0]).__mro__ if is_ours(c.__module__)), None)
    return nearest is not None and nearest.__name__ == name


def plain(error: Exception, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a call that Python's types have made fail, with NumPy's numbers and whole numbers in tensors as Python's, for another try.

    None if there are none: a function that needs an int must not each ask for all that stands for one in PyTorch.
    """
    if not (isinstance(error, TypeError) or unexpected(error)) or not without_users(error):
        return None
    found = tuple([_plain(v, i > 0) for i, v in enumerate(values)])
    return None if all(a is b for a, b in zip(found, values, strict=True)) else found


def _plain(value: Any, tensors: bool) -> Any:
    if isinstance(value, np.integer | np.floating) or (tensors and _is_whole(value)):
        return value.item()
    if type(value) in (list, tuple) and any(isinstance(v, np.integer | np.floating) or _is_whole(v) for v in value):
        whole = all(isinstance(v, int) or _is_whole(v) for v in value)  # else they may be data
        return type(value)([_plain(v, whole) for v in value])
    if type(value) is dict and value:
        found = {k: _plain(v, True) for k, v in value.items()}
        return value if all(found[k] is v for k, v in value.items()) else found
    return value


def _is_whole(value: Any) -> bool:
    """Whether it is a tensor without dims that holds a whole number."""
    return isinstance(value, _TENSOR[0]) and not value.ndim and value.dtype.category == 1 and not value.is_meta


_OF_OBJECTS: Final = (AttributeError, TypeError, AssertionError)  # look-ups and values may be those of the tensor's own dtype and shape
_INNER: Final = re.compile(r"\w+(\(\))?: ")  # what an inner function has said of itself


_OURS: Final = re.compile(r'"\w+" (is )?not implemented|Could not run|this needs a strided tensor')


def unsupported(error: Exception) -> bool:
    """Whether an operation has refused a dtype or a layout, in words of our own, which do not name who called it."""
    return isinstance(error, NotImplementedError) and _OURS.match(str(error)) is not None


# What a program expects by its text, or by what it carries, stays as it is.
_NAMED: Final = frozenset((TypeError, ValueError, RuntimeError, NotImplementedError, IndexError, OverflowError, ZeroDivisionError))


def check(name: str, names: tuple[str, ...], values: tuple[Any, ...], defaults: tuple[Any, ...]) -> None:
    """Raise PyTorch's error if the arguments fit none of a function's overloads."""
    wrong = problem(name, names, values, defaults)
    if wrong is not None:
        raise wrong


def refuse(name: str, unknown: dict[str, Any], names: tuple[str, ...]) -> NoReturn:
    """The TypeError of a keyword that a function has not."""
    from flambeau.names import meant

    given = next(iter(unknown))
    raise TypeError(f"{name.rsplit('.', 1)[-1]}() got an unexpected keyword argument {given!r}.{meant(given, [n for n in names if n != 'self'])}")


_UNEXPECTED: Final = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")


def suggest(error: BaseException) -> None:
    """Say which keyword was probably meant, where Python itself has refused one and nobody has caught that: a call that works pays nothing for it."""
    from flambeau.names import meant

    found = _UNEXPECTED.fullmatch(str(error)) if type(error) is TypeError else None
    if found is None:
        return
    for g in _guarded.values():
        if g.function.__name__ == found[1]:
            near = meant(found[2], [n for n in inspect.signature(g.inner).parameters if n != "self"])
            if near:
                error.args = (f"{error.args[0]}.{near}",)
                return


AT_END.append(suggest)


def explained_call(error: Exception, holder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """`better` for a call of an object of flambeau's own (a module), whose class names it."""
    if not is_ours(type(holder).__module__):
        return None
    if not unexpected(error):
        if unsupported(error) and not hasattr(error, "_module"):
            error._module = type(holder).__name__  # type: ignore[attr-defined]  # the innermost one says so
            name_operation(error, type(holder).__name__)
        return None
    return explained(error, type(holder).__name__, ["input", *["" for _ in args[1:]], *kwargs], [*args, *kwargs.values()])


class Guarded:
    """A function with a guard: what it was, and the code that it gets at its first call."""

    __slots__ = ("constructor", "function", "inner", "name", "stub")

    def __init__(self, function: FunctionType, name: str) -> None:
        self.function = function
        self.constructor = function.__name__ == "__init__"
        self.name = name
        self.inner = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.inner.__kwdefaults__ = function.__kwdefaults__
        functools.update_wrapper(self.inner, function)
        self.inner.__dict__.pop("__wrapped__")
        self.inner.__dict__.update(function.__dict__)
        self.stub = handing(self, function.__code__)
        function.__wrapped__ = self.inner  # type: ignore[attr-defined]  # for its signature: the new code takes any keyword
        function.__code__ = self.stub

    def settle(self) -> None:
        """Give the function the code that it will have from now on."""
        function, inner = self.function, self.inner
        if function.__code__ is self.stub:
            bare = FunctionType(inner.__code__, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
            bare.__kwdefaults__ = inner.__kwdefaults__  # without what decorators have put beside the code
            function.__code__ = _compiled(self, list(inspect.signature(bare).parameters.values()))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.settle()
        return self.function(*args, **kwargs)


def settle(function: FunctionType) -> None:
    """Before somebody else exchanges the code of a function (ops/instrument.py): it gets the code that it will have."""
    guarded = _guarded.get(function)
    if guarded is not None:
        guarded.settle()


@functools.cache
def _template(free: tuple[str, ...]) -> CodeType:
    return nested(f"def f(*args, **kwargs):\n try:\n  taker_ = '@TAKER'\n  return taker_(args, kwargs)\n{_SHORTENED}", free)


# A public function's own frames are not in the traceback of what it raises (tracebacks.py).
_SHORTENED = " except BaseException as error_:\n  shorten_ = '@SHORTEN'\n  shorten_(error_)\n  raise"


def nested(source: str, free: tuple[str, ...]) -> CodeType:
    """The code of the function `f` of a source text, as it is inside of a function whose variables `free` it sees and does not use.

    Code that takes the place of another must copy as many cells: a debugger that lists a frame's variables reads them.
    """
    if free:
        inside = "\n".join(["  " + line for line in [*source.splitlines(), *[f" {name}" for name in free]]])  # behind the last `return` or `raise`
        source = f"def outer_():\n  {' = '.join(free)} = None\n{inside}\n  return f\nf = outer_()"
    made: dict[str, Any] = {}
    exec(compile(source, "<flambeau guard>", "exec", dont_inherit=True), made)
    code: CodeType = made["f"].__code__
    return code


def exchanged(code: CodeType, constants: dict[str, Any], original: CodeType) -> CodeType:
    """Code with objects in the place of constants, under the name and the place of `original`."""
    return code.replace(
        co_consts=tuple([constants.get(c, c) if isinstance(c, str) else c for c in code.co_consts]), co_name=original.co_name,
        co_qualname=original.co_qualname, co_filename=original.co_filename, co_firstlineno=original.co_firstlineno,
    )  # fmt: skip


def handing(taker: Any, original: CodeType) -> CodeType:
    """Code in the place of `original` that hands all arguments to `taker`, as (args, kwargs)."""
    return exchanged(_template(original.co_freevars), {"@TAKER": taker, "@SHORTEN": shorten}, original)


def _compiled(guarded: Guarded, parameters: list[inspect.Parameter]) -> CodeType:
    """The code of a guarded function: its parameters, a call of what it was, and what comes of an error."""
    head: list[str] = []
    passed: list[str] = []
    star = False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not star:
            head.append("*")
        star = star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        mark = _STARS.get(p.kind, "")
        head.append(f"{mark}{p.name}" + ("" if p.default is p.empty else "=None"))
        passed.append(f"{mark}{p.name}" if p.kind is not p.KEYWORD_ONLY else f"{p.name}={p.name}")
        if p.kind is p.POSITIONAL_ONLY and (i + 1 == len(parameters) or parameters[i + 1].kind is not p.POSITIONAL_ONLY):
            head.append("/")
    names = tuple([p.name for p in parameters])
    look = Look.of(guarded, parameters)
    open_ = any(p.kind is p.VAR_KEYWORD for p in parameters)
    closed = not open_ and guarded.constructor  # elsewhere it would cost each call a dictionary
    if closed:
        head.append("**unknown_")
    values = "".join([f"{n}, " for n in names])
    defaults = tuple([p.default for p in parameters])
    refusal = ["if unknown_:", " refuse_ = '@REFUSE'; refuse_('@NAME', unknown_, '@NAMES')"]
    quick = simple(guarded.name, marked(parameters), defaults)
    if guarded.name.startswith("nn.functional."):  # these call operations, which look at all their arguments where an edge is new
        quick = tuple([(i, classes) for i, classes in quick if bool in classes])
    asked = f" check_ = '@CHECK'; check_('@NAME', '@NAMES', ({values}), '@DEFAULTS')"
    checks = []
    for i, classes in quick:
        n, d = names[i], defaults[i]
        usual = f"{n} is not {d} and " if d is None or d is True or d is False else ""  # a comparison that costs less
        usual += f"{n} is not {not d} and " if usual and bool in classes and d is not None else ""
        usual += "not former and " if "former" in names else ""  # numbers stand before tensors there (ops/former_orders.py)
        checks += [f"if {usual}{n}.__class__ not in '@CLASSES{i}':", asked]
        if asks_for_dtype(guarded.name, names[i]):
            checks.append(f" of_type_ = '@OF_TYPE'; {names[i]} = of_type_({names[i]})")
    if look is not None:
        more, stars = (next(p.name for p in parameters if p.kind is kind) for kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD))
        checks += [f"if {stars} or len({more}) > 1:", f" look_ = '@LOOK'; look_({more}, {stars})"]
    lines = [
        *(refusal if closed else []), *checks, "inner_ = '@INNER'", "try:", f" return inner_({', '.join(passed)})", "except Exception as error_:",
        f" plain_ = '@PLAIN'; plain_ = plain_(error_, ({values}))", " if plain_ is not None:",
        f"  try: ({values}) = plain_; return inner_({', '.join(passed)})", "  except Exception as again_: error_ = again_",
        f" better_ = '@BETTER'; better_ = better_(error_, '@NAME', '@NAMES', ({values}), '@DEFAULTS')", " if better_ is None: raise",
        " raise better_ from (better_.__cause__ or error_)",
    ]  # fmt: skip
    source = "\n".join([f"def f({', '.join(head)}):", " try:", *[f"  {line}" for line in lines], _SHORTENED])
    original = guarded.inner.__code__
    constants = {
        "@INNER": guarded.inner, "@BETTER": better, "@NAME": guarded.name, "@NAMES": marked(parameters), "@DEFAULTS": defaults,
        "@CHECK": check, "@SHORTEN": shorten, "@PLAIN": plain, "@OF_TYPE": of_type,
        "@REFUSE": refuse, "@LOOK": look,
        **{f"@CLASSES{i}": classes for i, classes in quick},
    }  # fmt: skip
    return exchanged(nested(source, original.co_freevars), constants, original)


class Look:
    """What looks at the arguments of a function that a decorator has given any signature, by the one of the function itself."""

    __slots__ = ("by_name", "by_place", "defaults", "name", "names")

    def __init__(self, name: str, shown: list[inspect.Parameter], quick: tuple[tuple[int, frozenset[type]], ...]) -> None:
        self.name = name
        self.names = tuple([p.name for p in shown])
        self.defaults = tuple([p.default for p in shown])
        found = dict(quick)
        self.by_place = tuple([found.get(i) for i in range(len(shown))])
        self.by_name = {p.name: found[i] for i, p in enumerate(shown) if i in found}

    @classmethod
    def of(cls, guarded: Guarded, parameters: list[inspect.Parameter]) -> Look | None:
        """None for a function whose signature is its own, or of which nothing is known."""
        kinds = [p.kind for p in parameters]
        if inspect.Parameter.VAR_POSITIONAL not in kinds or inspect.Parameter.VAR_KEYWORD not in kinds:
            return None
        shown = list(inspect.signature(guarded.inner).parameters.values())
        if any(p.kind in _STARS for p in shown):
            return None
        quick = simple(guarded.name, marked(shown), tuple([p.default for p in shown]))
        return cls(guarded.name, shown, quick) if quick else None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for v, classes in zip(args, self.by_place, strict=False):
            if classes is not None and v.__class__ not in classes:
                return self._check(args, kwargs)
        for n, v in kwargs.items():
            classes = self.by_name.get(n)
            if classes is not None and v.__class__ not in classes:
                return self._check(args, kwargs)
        return None

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) > len(self.names):
            return  # Python says so
        values = [kwargs.get(n, d) for n, d in zip(self.names, self.defaults, strict=True)]
        check(self.name, self.names, (*args, *values[len(args) :]), self.defaults)


def marked(parameters: list[inspect.Parameter]) -> tuple[str, ...]:
    """The names, those of several arguments with their stars."""
    return tuple([_STARS.get(p.kind, "") + p.name for p in parameters])


_REFUSED = frozenset(("_getframe", "currentframe", "f_back"))  # they look at who calls them
_guarded: dict[FunctionType, Guarded] = {}


def guard(space: str, members: Mapping[str, Any], underscored: bool = False) -> None:
    """Guard the public functions of a namespace, or the methods of a class; `space`: what their names begin with ("nn.functional", "").

    `underscored`: those whose names begin with an underscore, too.
    Of the classes in a namespace the constructors and public methods are guarded; `nn.Module.__call__` does it for their forwards.
    """
    for name, member in list(members.items()):
        if name.startswith("_") and not underscored and name not in (_SPECIAL if not space else ("__init__",)):
            continue  # a container's KeyError is what a program waits for
        if type(member) is FunctionType:
            PUBLIC.add(name)
            if member not in _guarded and _suits(member):
                if name in _SPECIAL:
                    called = member.__qualname__.rpartition(".")[0] if name == "__init__" else name
                else:
                    called = f"{space}.{name}" if space else name
                _guarded[member] = Guarded(member, called)
        elif isinstance(member, type) and is_ours(member.__module__) and not issubclass(member, (Exception, tuple, _TENSOR[0])):
            _own_constructor(member)
            guard(member.__name__, vars(member))


def _own_constructor(cls: type) -> None:
    """Give a class the constructor that it has from another class as its own: Python's errors name it then."""
    inherited = cls.__init__  # type: ignore[misc]
    if type(inherited) is not FunctionType or "__init__" in vars(cls) or inherited.__qualname__ == "Module.__init__" or not _suits(inherited):
        return
    guarded = _guarded.get(inherited)
    code = inherited if guarded is None else guarded.inner
    own = FunctionType(code.__code__, code.__globals__, "__init__", code.__defaults__, code.__closure__)
    own.__kwdefaults__ = code.__kwdefaults__
    functools.update_wrapper(own, code, updated=())
    own.__dict__.pop("__wrapped__", None)
    own.__qualname__ = f"{cls.__name__}.__init__"
    cls.__init__ = own  # type: ignore[misc]


# Methods of Python's protocols with arguments of the user's.
_SPECIAL = frozenset("__getitem__ __setitem__ __delitem__ __contains__ __init__".split())
_UNGUARDED = frozenset("forward detach size stride dim is_contiguous numel".split())  # called in each step, and quick


def _suits(function: FunctionType) -> bool:
    code = function.__code__
    if code.co_name in _UNGUARDED:
        return False
    if "target_" in function.__globals__ or not is_ours(function.__module__):
        return False  # a generated one, which does this by itself, or another's
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) or not _REFUSED.isdisjoint(code.co_names):
        return False
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)) > 0
