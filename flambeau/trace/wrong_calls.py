"""Errors of calls that nobody expected: Python's own, raised where a function's code met an argument of another kind than it is written for.

Not every error of Python's own inside flambeau says so of the call. It is our fault where no argument can be the cause: a name that does not exist,
whatever is raised while recorded calls run or are differentiated (their arguments have been looked at by then), and a call that was given nothing.
Such an error keeps its type, its words and its frames, and says in a note that the call was right.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from opcode import opmap
from types import TracebackType
from typing import Any, Final

from flambeau.python_code import GENERATED


class Missing:
    """The class of what stands for a required argument that may come under another name."""

    def __repr__(self) -> str:
        return "<required>"


_RAISE: Final = opmap["RAISE_VARARGS"]
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} | {"<__array_function__", "<frozen"})
_NUMPY: Final = os.sep + "numpy" + os.sep
_OF_VALUES: Final = (IndexError, ValueError, OverflowError, ArithmeticError)
_OF_TEXT: Final = ("invalid literal for int", "could not convert string", "complex() arg is a malformed")  # a text where a number should be
_BY_PYTHON: Final = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, AssertionError, NameError)  # RecursionError says enough
# Where a call's own arguments play no part any more: file, and function (None: any).
_MACHINERY: Final[tuple[tuple[str, str | None], ...]] = (
    ("trace/evaluate.py", "flush"), ("compiler/pipeline.py", None), ("compiler/plan.py", None), ("autograd/differentiate.py", None),
)  # fmt: skip
_IN_MACHINERY: Final = {os.path.join(_OURS, *file.split("/")): function for file, function in _MACHINERY}
_NOTE: Final = "This is an error inside of flambeau, not one of the call. Please report it with the lines above."


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, GENERATED))


def unexpected(error: BaseException) -> bool:
    """Whether Python raised an error inside of flambeau's code, which has no `raise` there, and the call's arguments may be the reason.

    Not one of a user's function, and none that is our own fault (`internal`).
    """
    if not isinstance(error, _BY_PYTHON) or type(error).__module__ != "builtins" or getattr(error, "_shortened", False) or internal(error):
        return False
    place: TracebackType | None = error.__traceback__
    last = None
    running = False
    while place is not None:
        code = place.tb_frame.f_code
        file = code.co_filename
        if _is_ours(file):
            last = place
            running = running or _IN_MACHINERY.get(file, "") in (None, code.co_name)
        elif last is not None and not (_NUMPY in file or (file.startswith(_LIBRARIES) and "site-packages" not in file)):
            return False  # a user's function, which flambeau called
        place = place.tb_next
    if last is None:
        return False
    if isinstance(error, AssertionError):
        found = not error.args  # one with words is meant for users
    elif isinstance(error, AttributeError) and last.tb_frame.f_code.co_name == "__getattr__":
        found = True  # of an object that is not what the code expected
    else:
        found = last.tb_next is not None or last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE
    if found and (running or isinstance(error, NameError)):
        blame(error)
        return False
    return found


def blame(error: BaseException) -> None:
    """Say of an error that it is flambeau's own."""
    error._internal = True  # type: ignore[attr-defined]
    error.add_note(_NOTE)


def internal(error: BaseException) -> bool:
    """Whether an error has been found to be flambeau's own."""
    return getattr(error, "_internal", False)


def nothing_given(names: Sequence[str], values: Sequence[Any], defaults: Sequence[Any]) -> bool:
    """Whether a call has no argument but the object whose method it is: then none can be wrong. Which layouts a method is for is another question."""
    if names[:1] != ("self",) or _is_sparse(values[0]):
        return False
    return all(v is d or (n.startswith("*") and not v) for n, v, d in zip(names[1:], values[1:], defaults[1:], strict=True))


def of_users(error: BaseException) -> bool:
    """Whether the innermost frame of an error is not flambeau's."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is None or not _is_ours(place.tb_frame.f_code.co_filename)


def without_users(error: BaseException) -> bool:
    """Whether an error has come out of flambeau's code, and NumPy's, alone: no function of the user's has been called on the way."""
    place = error.__traceback__
    while place is not None:
        file = place.tb_frame.f_code.co_filename
        if not _is_ours(file) and _NUMPY not in file:
            return False
        place = place.tb_next
    return True


def explained(error: BaseException, name: str, names: Sequence[str], values: Sequence[Any]) -> Exception:
    """An error that Python raised, as one that says which function was given what."""
    title = name.rsplit(".", 1)[-1]
    given: list[tuple[str, Any]] = []
    for n, v in zip(names, values, strict=False):
        if n.startswith("**") and isinstance(v, dict):
            given += v.items()
        elif n.startswith("*") and isinstance(v, tuple):
            given += [("", x) for x in v]
        else:
            given.append((n, v))
    told = [(n, v) for n, v in given if n != "self" and (not n or not n.strip("*").startswith("_")) and not isinstance(v, Missing)]
    got = ", ".join([f"{n}={_shown(v)}" if n else _shown(v) for n, v in told])
    kind: type[Exception] = IndexError if isinstance(error, IndexError) else RuntimeError if isinstance(error, _OF_VALUES) else TypeError
    if isinstance(error, ValueError) and str(error).startswith(_OF_TEXT):
        kind = TypeError
    layout = next((v.layout for v in values if _is_sparse(v)), None)
    if layout is not None:
        kind = NotImplementedError
        made: Exception = kind(f"{title}(): flambeau has no form of it for arguments of layout {layout}, got ({got}); use its values or to_dense()")
    else:
        made = kind(f"{title}() received an invalid combination of arguments - got ({got}), which it cannot use together")
    made._explained = True  # type: ignore[attr-defined]
    return made


def _is_sparse(v: Any) -> bool:
    return not isinstance(v, type) and hasattr(v, "_meta") and "strided" not in repr(v.layout)


def _shown(v: Any) -> str:
    """A value in a message: numbers and short texts themselves, tensors by shape, of others the type."""
    if v is None or isinstance(v, (bool, int, float, complex)):
        return repr(v)
    if isinstance(v, str):
        return repr(v if len(v) <= 40 else v[:37] + "...")
    found = getattr(v, "_meta", None)
    if found is not None and not isinstance(v, type):  # the class Tensor has the attribute, too
        return f"Tensor{list(found.shape)} {found.dtype.name}"
    if isinstance(v, (tuple, list)) and not hasattr(v, "_fields"):
        inside = ", ".join([_shown(x) for x in v[:4]]) + (", ..." if len(v) > 4 else "")
        return f"({inside})" if isinstance(v, tuple) else f"[{inside}]"
    return f"the class {v.__name__}" if isinstance(v, type) else type(v).__name__
