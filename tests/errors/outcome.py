"""What came of a call: a result or an error; and in which ways flambeau's may not differ from PyTorch's."""

from __future__ import annotations

import re
import warnings
from typing import Any, Final, NamedTuple

import flambeau
from tests.errors.calls import Scope, Wrong


class Outcome(NamedTuple):
    """`kinds`: the error's types, the nearest first; empty if there was none. `text`: its words, or what the result is."""

    kinds: tuple[str, ...]
    text: str

    @property
    def failed(self) -> bool:
        return bool(self.kinds)


def outcome(wrong: Wrong, module: Any, read: bool = False) -> Outcome:
    """Make a call. `read`: look at the values of its result, too, so that what is found late is found."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = wrong.run(module)
            text = _described(result, module)
            if read:
                _look(result, module)
    except Exception as error:
        kinds = tuple(k.__name__ for k in type(error).__mro__ if k.__name__ not in ("object", "BaseException"))
        return Outcome(kinds, str(error))
    return Outcome((), text)


def _described(x: Any, module: Any) -> str:
    """Dtypes, shapes and plain values, as text that is the same in both packages."""
    if isinstance(x, module.Tensor):
        return f"{x.dtype} {list(x.shape)} {x.layout}".replace("flambeau.", "torch.")
    if isinstance(x, (tuple, list)):
        return "[" + ", ".join([_described(y, module) for y in x]) + "]"
    return repr(x) if isinstance(x, (int, float, complex, str, bool, type(None))) else type(x).__name__


def _look(x: Any, module: Any) -> None:
    if isinstance(x, module.Tensor):
        x.detach().to_dense().tolist()
    elif isinstance(x, (tuple, list)):
        for y in x:
            _look(y, module)


# Words of errors that Python raises inside of code that did not expect its arguments.
_INTERNAL: Final = re.compile(
    r"resulted in the unexpected exception above|"
    r"object has no attribute|has no attribute|index out of range$|values to unpack|is not iterable|not subscriptable|unhashable|"
    r"not supported between|unsupported operand type|bad operand type|cannot be interpreted as an integer|must be real number|"
    r"is not callable|has no len\(\)|zip\(\) argument|can't multiply sequence|object is not reversible|cannot unpack|"
    r"does not support (item|slice)|invalid literal|could not convert|must be an iterable|'Missing'|<lambda>|_wrap|"
    r"can only concatenate|not all arguments converted|can't convert complex|must be a number, not|cannot convert float|"
    r"int too large to convert|division by zero|Python int too large|argument must be a string"
)
_KINDS: Final = ("AttributeError", "KeyError", "AssertionError", "UnboundLocalError", "NameError", "RecursionError", "StopIteration", "ZeroDivisionError")


def internal(o: Outcome) -> bool:
    """Whether an error came from code that did not expect its arguments."""
    return o.failed and (o.kinds[0] in _KINDS or not o.text or _INTERNAL.search(o.text) is not None)


def names(wrong: Wrong, text: str) -> bool:
    """Whether a message names the function: by its name, by that of the one that it is another name of (`clip` is `clamp`), or by what a lazy module
    is from its first call on."""
    function = wrong.call.function(Scope(flambeau))
    found = text.lower().replace("_", "")
    called = {wrong.call.name.removeprefix("Lazy"), getattr(function, "__name__", ""), type(getattr(function, "__self__", None)).__name__}
    return any(name and name.strip("_").lower().replace("_", "") in found for name in called)


def unlike(wrong: Wrong, theirs: Outcome, ours: Outcome) -> str | None:
    """The class of the difference, or None."""
    if ours.kinds[:1] == ("Hang",) or ours.kinds[:1] == ("Crash",):
        return ours.kinds[0].lower() if theirs.kinds[:1] != ours.kinds[:1] else None
    if theirs.kinds[:1] in (("Hang",), ("Crash",)):
        return "internal" if internal(ours) else None
    if not theirs.failed:
        if ours.failed:
            return "refused"
        return None if ours.text == theirs.text else "result"
    if not ours.failed:
        return "accepted"
    same = ours.text[:60] == theirs.text[:60] and theirs.kinds[0] in ours.kinds
    if not same and internal(ours) and not (internal(theirs) and (ours.kinds[0] == theirs.kinds[0] or ours.kinds[0] not in _KINDS)):
        return "internal"
    if theirs.kinds[0] not in ours.kinds and not internal(theirs):
        return "type"
    if not names(wrong, ours.text) and ours.text.split("\n")[0][:40] != theirs.text.split("\n")[0][:40] and not internal(theirs):
        return "unnamed"
    return None
