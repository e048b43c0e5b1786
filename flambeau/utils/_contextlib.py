"""torch.utils._contextlib: blocks that are decorators too, of functions and of generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.trace.once import warn_here


def _around(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose steps, and only they, run in a new block each."""

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Iterator[Any]:
        inner = function(*args, **kwargs)
        try:
            with make():
                value = inner.send(None)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with make():
                        inner.close()
                    raise
                except BaseException as error:
                    with make():
                        value = inner.throw(error)
                else:
                    with make():
                        value = inner.send(sent)
        except StopIteration as end:
            return end.value

    return steps


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a block: `ctx` is one that can be entered again and again, or a function that makes one.

    AssertionError if it could be either; RuntimeError for classes.
    """
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise AssertionError(
            f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it ambiguous which interface to use.  If you "
            "intended to pass a context manager factory, rewrite your call as context_decorator(lambda: ctx()); if you intended to pass a context "
            "manager directly, rewrite your call as context_decorator(lambda: ctx)"
        )
    if inspect.isclass(func):
        raise RuntimeError(
            "Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods should have the context manager applied; "
            "additionally, decorating a class at definition-site will prevent use of the identifier as a conventional type.  To specify which methods "
            "to decorate, decorate each of them individually."
        )
    make: Callable[[], Any] = ctx if callable(ctx) else lambda: ctx
    if inspect.isgeneratorfunction(func):
        return _around(make, func)

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return inside


class _DecoratorContextManager:
    """A block that is a decorator too: each call enters a `clone()` of it."""

    def __call__(self, orig_func: Any) -> Any:
        function = orig_func
        if inspect.isclass(orig_func):
            warn_here(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods. To preserve "
                "the current behavior of class decoration, you can directly decorate the `__init__` method and nothing else.", FutureWarning,
            )  # fmt: skip

            def function(*args: Any, **kwargs: Any) -> Any:
                return orig_func(*args, **kwargs)

        return context_decorator(self.clone, function)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another block like this one."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that is written as a decorator without parentheses too."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
