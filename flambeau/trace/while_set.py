"""A call during which something is otherwise: the recorder of a thread, whether a trace is held, whether gradients are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final


def while_set(owner: Any, name: str, value: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)` while the attribute `name` of `owner` is `value`.

    Whatever is raised, an interrupt at any line included, the attribute is afterwards what it was: a `finally` would not do,
    because what arrives in it skips the rest of it.
    """
    before = getattr(owner, name)
    try:
        setattr(owner, name, value)
        result = function(*args, **kwargs)
        setattr(owner, name, before)
        return result
    except BaseException:
        setattr(owner, name, before)
        raise


def while_switched(switch: Callable[[Any], None], before: Any, value: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The same for what a function switches: `switch(value)`, the call, `switch(before)`."""
    try:
        switch(value)
        result = function(*args, **kwargs)
        switch(before)
        return result
    except BaseException:
        surely(switch, before)
        raise


def while_locked(lock: Any, function: Callable[..., Any], /, *args: Any) -> Any:
    """`function(*args)` while this thread has the lock (an RLock), which it has not afterwards: a `with` that is interrupted at its end keeps it."""
    try:
        lock.acquire()
        result = function(*args)
        lock.release()
        return result
    except BaseException:
        with suppress(RuntimeError):  # it was not acquired yet, or is released already
            lock.release()
        raise


def begun(begin: Callable[[], None], undo: Callable[[], None]) -> None:
    """`begin()`, the beginning of a block; what is raised in the middle of it leaves no half of it behind: `undo` takes back what there is."""
    try:
        begin()
    except BaseException:
        surely(undo)
        raise


_ROOM: Final = 64  # nested calls


def surely(function: Callable[..., Any], *args: Any) -> None:
    """Call what puts something back, with more room on the stack where there is too little: to go back may take more calls than to begin did."""
    try:
        function(*args)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _ROOM)
        function(*args)
        sys.setrecursionlimit(limit)
