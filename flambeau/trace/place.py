"""Where the program made a call: file and line of the frame that is not ours, and the modules around it."""

from __future__ import annotations

import os
import sys
import weakref
from types import CodeType, FrameType
from typing import Any, Final

from flambeau.python_code import GENERATED
from flambeau.runtime.untracked import record

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ours: dict[str, bool] = {}  # by file name
MODULE_CALLS: Final[set[CodeType]] = set()  # the code that runs a module's forward (nn/modules/module.py)


def is_ours(file: str) -> bool:
    """Whether code of this file name belongs to the package."""
    found = _ours.get(file)
    if found is None:
        found = _ours[file] = file.startswith(GENERATED) or os.path.abspath(file).startswith(_PACKAGE)
    return found


PUBLIC: Final[set[str]] = set()  # names of public functions and methods (ops/guard.py)
_INNER: Final = frozenset(("forward", "index"))  # what a program calls by `module(x)` and `x[i]`


@record
class Place:
    """A place in the user's program, and the public function that is called there (empty where it has no name of its own: `x[i]`).

    The modules are weakly held, from the inside out, and get their path when it is asked for.
    """

    __slots__ = ("file", "function", "line", "modules")

    def __init__(self, file: str, line: int, function: str, modules: tuple[weakref.ref[Any], ...]) -> None:
        self.file = file
        self.line = line
        self.function = function
        self.modules = modules

    def module(self) -> str | None:
        """The path of the innermost module from the outermost one, and its class; None outside of modules that still exist."""
        modules = [m for m in [ref() for ref in self.modules] if m is not None]
        if not modules:
            return None
        names = []
        for outer, inner in zip(modules[:0:-1], modules[-2::-1], strict=True):
            name = next((name for name, child in outer.named_modules() if child is inner and child is not outer), None)
            if name is not None:
                names.append(name)
        return f"{'.'.join(names)} ({type(modules[0]).__name__})" if names else type(modules[0]).__name__

    def told(self, operation: str) -> str:
        """The place of an operation, with the public function that has called it, if that is another."""
        module = self.module()
        called = self.function.strip("_")
        within = "" if not called or called in operation else f", in {self.function}()"
        return f"at {self.file}:{self.line}{within}" + ("" if module is None else f", in module {module}")


def line_here() -> tuple[str, int]:
    """File and line of the call that is under way in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_ours(name):
            return name, frame.f_lineno
        frame = frame.f_back
    return "<no Python frame>", 0


def stacklevel() -> int:
    """The `stacklevel` by which a warning that the function who asks gives is one of the program's line."""
    level, frame = 1, sys._getframe(1)
    while is_ours(frame.f_code.co_filename) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _name_of(operation: Any) -> str:
    name: str = operation.__name__ if hasattr(operation, "__name__") else operation.name  # a remembered function, or an operation's record
    return name.rsplit(".", 1)[-1]


def _function_here() -> str:
    """The outermost public function of ours that is under way in this thread. An operation that has not been called before is its stub there."""
    found = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        operation = frame.f_globals.get("OP")
        name = frame.f_code.co_name if operation is None else _name_of(operation)
        if name in PUBLIC and name not in _INNER:
            found = name
        frame = frame.f_back
    return found


def here() -> Place:
    """The place of the call that is under way in this thread."""
    file, line = line_here()
    modules: list[weakref.ref[Any]] = []
    walk: FrameType | None = sys._getframe(1)
    last: Any = None
    while walk is not None:
        if walk.f_code in MODULE_CALLS:
            module = walk.f_locals.get("self")
            if module is not None and module is not last:
                last = module
                modules.append(weakref.ref(module))
        walk = walk.f_back
    return Place(file, line, _function_here(), tuple(modules))
