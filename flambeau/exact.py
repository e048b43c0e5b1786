"""Keys of values that are equal only where type and bits are: to Python 1, True and 1.0 are one, 0.0 and -0.0 too, and no NaN is itself."""

from __future__ import annotations

from struct import pack, unpack
from typing import Any, Final

from flambeau.symbols import Sym, SymFloat

_PLAIN: Final = frozenset((int, float, bool, complex))
_others: Final[set[type]] = set()  # classes whose objects stand in keys as they are: they are no numbers, and hold none


def number(x: Any) -> tuple[type, Any]:
    """(class, what tells x from others of its class): of floats and complex numbers their bits."""
    cls = x.__class__
    if cls is float:
        return cls, pack("d", x)
    if cls is complex:
        return cls, pack("2d", x.real, x.imag)
    return cls, x


def exact(x: Any) -> Any:
    """A key that equals another one only where the values have equal types and bits. Ints, strings and None, and tuples of ints, are themselves."""
    cls = x.__class__
    if cls is int or cls is str or x is None:
        return x
    if isinstance(x, tuple):
        for y in x:
            if y.__class__ is not int:
                return tuple([exact(y) for y in x])
        return x
    if cls is Sym or cls is SymFloat:
        return x
    if isinstance(x, (float, complex)) and cls not in _PLAIN:
        return cls, exact(complex(x) if isinstance(x, complex) else float(x))
    return number(x) if isinstance(x, (int, float, complex)) else x


def static(x: Any) -> Any:
    """`exact` of a static argument. TypeError if a body must not see it so: lists, and numbers that are not of Python's own classes."""
    cls = x.__class__
    if cls is float:
        return cls, pack("d", x)
    if cls is not tuple:
        if cls is int or cls is str or x is None or cls in _others:
            return x
        if cls in _PLAIN:
            return number(x)
        if cls is Sym or cls is SymFloat:
            return x
    if isinstance(x, tuple):
        for y in x:
            if y.__class__ is not int:
                return tuple([static(y) for y in x])
        return x
    if isinstance(x, (int, float, complex, list)) or hasattr(x, "item") or hasattr(x, "__index__"):
        raise TypeError(f"a static argument must be made of Python's own numbers, not {cls.__name__}")
    if not isinstance(x, type):  # of classes some have their instances' attributes
        _others.add(cls)
    return x


def static_number(x: Any) -> Any:
    """`static` of an argument that takes a float, whose class means in a key that it is given at run time."""
    if x.__class__ is type:
        raise TypeError(f"must be a number, not the class {x.__name__}")
    return static(x)


def value_of(key: Any) -> Any:
    """What `static` has made a key of."""
    if key.__class__ is not tuple:
        return key
    if len(key) == 2 and key[0] in _PLAIN:
        cls, told = key
        return unpack("d", told)[0] if cls is float else complex(*unpack("2d", told)) if cls is complex else told
    return tuple([value_of(k) for k in key])


def plain_number(x: Any) -> Any:
    """`number` of a Python number, None of None. TypeError for anything else."""
    if x is None or x.__class__ is Sym or x.__class__ is SymFloat:
        return x
    if x.__class__ not in _PLAIN:
        raise TypeError(f"must be Number, not {x.__class__.__name__}")
    if x.__class__ is int and not -(2**63) <= x < 2**63:
        raise TypeError("must have 64 bits at most")
    return number(x)


def text(x: Any) -> str:
    """`repr` of numbers and tuples of them that tells NaNs apart, too."""
    shown = repr(x)
    return shown if "nan" not in shown else repr(exact(x)).encode().hex()
