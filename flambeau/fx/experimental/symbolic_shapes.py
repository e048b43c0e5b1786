"""torch.fx.experimental.symbolic_shapes: questions about sizes that may be unknown; here every size that a program sees is a number."""

from __future__ import annotations

from typing import Any


class GuardOnDataDependentSymNode(RuntimeError):
    """A question about a size that is not known; never raised here."""


def free_symbols(val: Any) -> set[Any]:
    """The unknowns of a value: none."""
    return set()


def free_unbacked_symbols(val: Any) -> set[Any]:
    """The unknowns of a value: none."""
    return set()


def guard_or_false(a: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(x)


guard_size_oblivious = statically_known_true


def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number: it is."""
    return isinstance(a, int)


def has_static_value(a: Any) -> bool:
    """True: every size is a number."""
    return True
