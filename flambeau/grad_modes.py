"""Whether operations record gradients: no_grad, enable_grad, set_grad_enabled, inference_mode."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau.trace.blocks import Block
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Fragment, local

F = TypeVar("F", bound=Callable[..., Any])


def is_grad_enabled() -> bool:
    """Whether operations are recorded for gradients in this thread."""
    return bool(local.trace.grad_enabled)


def switch(mode: bool) -> None:
    """Let operations of this thread be recorded for gradients from now on, or not."""
    tr = local.trace
    if isinstance(tr, Fragment):
        tr.grad_enabled = mode
    else:
        tr.set_grad_enabled(mode)


class _Mode(Block):
    """A context manager that is also a decorator (of functions and of generators)."""

    gives_itself = False

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = mode

    def _now(self) -> bool:
        return is_grad_enabled()

    def _begin(self) -> None:
        switch(self.mode)

    def _end(self, before: bool) -> None:
        switch(before)

    def _fresh(self) -> _Mode:
        return _Mode(self.mode)

    def __call__(self, function: F) -> F:
        if inspect.isclass(function):
            warn_here(
                f"Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods. To preserve the "
                f"current behavior of class decoration, you can directly decorate the `__init__` method of {function.__name__} and nothing else.",
                FutureWarning,
            )  # fmt: skip
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                inner = function(*args, **kwargs)
                step: Callable[[], Any] = functools.partial(inner.send, None)
                while True:
                    with self._fresh():
                        try:
                            item = step()
                        except StopIteration as stop:
                            return stop.value
                    try:
                        step = functools.partial(inner.send, (yield item))
                    except GeneratorExit:
                        with self._fresh():
                            inner.close()
                        raise
                    except BaseException as error:
                        step = functools.partial(inner.throw, error)

            return generator  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_Mode):
    """Operations inside are not recorded for gradients."""

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        if function is not None:
            made.__init__()  # type: ignore[misc]
            return made(function)
        return made

    def __init__(self, function: Any = None) -> None:
        super().__init__(False)


class enable_grad(_Mode):
    """Operations inside are recorded for gradients."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        if orig_func is not None:
            made.__init__()  # type: ignore[misc]
            return made(orig_func)
        return made

    def __init__(self, orig_func: Any = None) -> None:
        super().__init__(True)


class inference_mode(_Mode):
    """Like no_grad, and `inference_mode(False)` like enable_grad. Tensors made inside may be used later as any others (see docs/differences.md)."""

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if callable(mode):
            made.__init__()  # type: ignore[misc]
            return made(mode)
        return made

    def __init__(self, mode: Any = True) -> None:
        super().__init__(not mode if isinstance(mode, bool) else False)

    def _now(self) -> Any:
        return is_grad_enabled(), local.main.inference

    def _begin(self) -> None:
        local.main.inference = not self.mode
        switch(self.mode)

    def _end(self, before: Any) -> None:
        local.main.inference = before[1]
        switch(before[0])

    def _fresh(self) -> _Mode:
        return inference_mode(not self.mode)


class set_grad_enabled(_Mode):
    """Switch recording for gradients at once; as a context manager, restore it at the end."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}")
        super().__init__(mode)
        self.at_start = is_grad_enabled()
        switch(mode)

    def _now(self) -> bool:
        return self.at_start

    def __call__(self, function: F) -> F:
        switch(self.at_start)
        return super().__call__(function)


class _ViewReplay(threading.local):
    enabled = False


_view_replay = _ViewReplay()


class _force_original_view_tracking(_Mode):
    """Whether views that were written to are always made anew by the calls that made them, which they are here, whatever this says. At once, as
    set_grad_enabled."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self.at_start = _view_replay.enabled
        _view_replay.enabled = mode

    def _now(self) -> bool:
        return self.at_start

    def _begin(self) -> None:
        _view_replay.enabled = self.mode

    def _end(self, before: bool) -> None:
        _view_replay.enabled = before

    def _fresh(self) -> _Mode:
        return _force_original_view_tracking(self.mode)

    def __call__(self, function: F) -> F:
        _view_replay.enabled = self.at_start
        return super().__call__(function)


def is_view_replay_enabled() -> bool:
    """What `_force_original_view_tracking` has set in this thread."""
    return _view_replay.enabled


for _mode in (no_grad, enable_grad, inference_mode, set_grad_enabled, _force_original_view_tracking):
    _mode.__module__ = "flambeau.autograd.grad_mode"  # where programs find them
