"""The bases of data pipes, the decorators, and what is applied to a whole pipeline: shuffling, seeds, sharding."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar, get_type_hints

import flambeau as torch
from flambeau.trace.once import warn_here
from flambeau.utils.data.dataset import Dataset, IterableDataset

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DataChunk(list[T]):
    """A batch of a pipe: a list that remembers what it was made of."""

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(items)
        self.items = list(self)

    def as_str(self, indent: str = "") -> str:
        """The items as text."""
        return indent + "[" + ", ".join(str(i) for i in self) + "]"

    def raw_iterator(self) -> Iterator[T]:
        """The items."""
        return iter(self.items)


class _Functional:
    """Pipes as methods: `pipe.batch(3)` is `Batcher(pipe, 3)`."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make `function(pipe, ...)` a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False) -> None:
        """Make a class a method of all pipes of this kind."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __getattr__(self, name: str) -> Any:
        function = type(self).functions.get(name)
        if function is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(function, self)

    def __repr__(self) -> str:
        return type(self).__qualname__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]


class IterDataPipe(_Functional, IterableDataset[T_co]):
    """A pipe by iteration. A new iterator calls `reset()` and makes an older one of the same pipe invalid."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    _passes = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__iter__")
        if own is not None and not getattr(own, "_resets", False):
            cls.__iter__ = _resetting(own)  # type: ignore[method-assign]

    def reset(self) -> None:
        """Called when an iterator begins."""


def _resetting(own: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    @functools.wraps(own)
    def begin(self: Any) -> Iterator[Any]:
        self._passes = this = self._passes + 1
        self.reset()
        return watched(self, own(self), this)

    def watched(pipe: Any, items: Iterator[Any], this: int) -> Iterator[Any]:
        for item in items:
            yield item
            if pipe._passes != this:
                raise RuntimeError(
                    "This iterator has been invalidated because another iterator has been created from the same IterDataPipe: "
                    f"{pipe!r}\nThis may be caused multiple references to the same IterDataPipe. We recommend using `.fork()` if that is "
                    "necessary."
                )

    begin._resets = True  # type: ignore[attr-defined]
    return begin


class DFIterDataPipe(IterDataPipe[Any]):
    """A pipe of data frames; here only its name."""


class MapDataPipe(_Functional, Dataset[T_co]):
    """A pipe by index."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class functional_datapipe:
    """Decorator: make a pipe class a method of all pipes of its kind."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        base = MapDataPipe if isinstance(cls, type) and issubclass(cls, MapDataPipe) else IterDataPipe
        base.register_datapipe_as_function(self.name, cls)
        return cls


# -- determinism and validation ---------------------------------------------------------------------------------------
_determinism = False
_validation = True


class guaranteed_datapipes_determinism:
    """From now on (or inside a `with` block) pipes that are marked as not deterministic cannot be made."""

    def __init__(self) -> None:
        global _determinism
        self.prev = _determinism
        _determinism = True

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        global _determinism
        _determinism = self.prev


class non_deterministic:
    """Decorator: mark a pipe class as not deterministic, always or where a function of its arguments says so."""

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        self.deterministic_fn: Any = None
        if isinstance(arg, type):
            self._check(arg)
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    @staticmethod
    def _check(cls: Any) -> None:
        if not (isinstance(cls, type) and issubclass(cls, IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {cls.__name__} is found")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            self._check(args[0])
            self.cls = args[0]
            return self.deterministic_wrapper_fn
        return self._make(True, args, kwargs)

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pipe, if it may be made."""
        answer = self.deterministic_fn(*args, **kwargs)
        if not isinstance(answer, bool):
            raise TypeError(f"deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but {type(answer)} is found")
        return self._make(answer, args, kwargs)

    def _make(self, random: bool, args: Any, kwargs: Any) -> Any:
        if _determinism and random:
            raise TypeError(
                f"{self.cls.__name__} is non-deterministic with the inputs, but you set 'guaranteed_datapipes_determinism'. You can turn off "
                "determinism for this DataPipe if that is acceptable for your application"
            )
        return self.cls(*args, **kwargs)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: arguments annotated as IterDataPipe must be one."""
    signature = inspect.signature(f)
    hints = get_type_hints(f)

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = hints.get(name)
            hint = getattr(hint, "__origin__", hint)
            if isinstance(hint, type) and issubclass(hint, IterDataPipe) and not isinstance(value, IterDataPipe):
                raise TypeError(f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}")
        return f(*args, **kwargs)

    return wrapper


class runtime_validation_disabled:
    """From now on (or inside a `with` block) runtime_validation checks nothing."""

    def __init__(self) -> None:
        global _validation
        self.prev = _validation
        _validation = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        global _validation
        _validation = self.prev


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of `__iter__`: every item must be of the class with which the pipe is parametrised (IterDataPipe[int])."""
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def wrapper(self: Any) -> Iterator[Any]:
        kinds = [a for base in getattr(type(self), "__orig_bases__", ()) for a in getattr(base, "__args__", ()) if isinstance(a, type)]
        for item in f(self):
            if _validation and kinds and not isinstance(item, kinds[0]):
                raise RuntimeError(f"Expected an instance as subtype of {kinds[0]}, but found {item}({type(item)})")
            yield item

    return wrapper


# -- whole pipelines --------------------------------------------------------------------------------------------------
def pipes_of(pipe: Any) -> list[Any]:
    """A pipe and all that it reads from, each once, from the end to the beginning."""
    found: dict[int, Any] = {}

    def visit(value: Any) -> None:
        if isinstance(value, (IterDataPipe, MapDataPipe)):
            if id(value) not in found:
                found[id(value)] = value
                for inner in value.__dict__.values():
                    visit(inner)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                visit(inner)

    visit(pipe)
    return list(found.values())


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Turn the shufflers of a pipeline on or off; with shuffle=True and none, one is added."""
    if shuffle is None:
        return datapipe
    shufflers = [p for p in pipes_of(datapipe) if hasattr(p, "set_shuffle")]
    if not shufflers and shuffle:
        warn_here(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. Be aware that the default buffer "
            "size might not be sufficient for your task.",
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for shuffler in shufflers:
        shuffler.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Draw a seed for every random pipe of a pipeline."""
    for pipe in pipes_of(datapipe):
        if hasattr(pipe, "set_seed"):
            pipe.set_seed(int(torch.empty((), dtype=torch.int64).random_(generator=rng).item()))
    return datapipe


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int) -> Any:
    """Tell the sharding filters of a pipeline which share is theirs."""
    for pipe in pipes_of(datapipe):
        if hasattr(pipe, "apply_sharding"):
            pipe.apply_sharding(num_of_instances, instance_id)
    return datapipe
