"""Shapes of results over symbols: a public function runs once over placeholders, in a recorder of its own, and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.compiler.graph import Value
from flambeau.tensor import Tensor
from flambeau.trace.fragment import Fragment
from flambeau.trace.meta import Meta, meta
from flambeau.trace.recorder import local, run_in
from flambeau.utils._pytree import tree_map


class _Empty:
    value_count = 0


class Nowhere:
    """What a fragment is a part of where there is no trace: all its values are its own."""

    state: Final = _Empty()

    def next_generation(self) -> int:
        return local.main.next_generation()

    def needs(self, slot: int) -> bool:
        return False

    def layout(self, slot: int, m: Meta) -> Meta:
        return m

    def value(self, slot: int) -> Value:
        raise AssertionError("there is no trace")


def metas(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What `function(*args, **kwargs)` returns, each tensor of it as its `Meta`. Nothing is computed or written."""
    fragment = Fragment(Nowhere(), False)  # type: ignore[arg-type]

    def placeholder(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        m = layout_of(x)
        root = fragment.add_value(Value((m.numel,), m.dtype, (1,), device=m.device))
        slot = fragment.add_value(Value(tuple(m.shape), m.dtype, m.strides, m.offset, root, (), m.device))
        fragment.roots.setdefault(root, fragment.given)
        fragment.entered.setdefault(slot, fragment.given)
        fragment.given += 1
        return fragment.placeholder(slot, m)

    given, named = tree_map(placeholder, (tuple(args), kwargs))
    result = run_in(fragment, lambda: function(*given, **named), ())
    return tree_map(lambda r: r._meta if isinstance(r, Tensor) else r, result)


_META: Final[Any] = vars(Tensor)["_meta"]


def layout_of(t: Tensor, history: bool = False) -> Meta:
    """The metadata of a tensor, whatever its class answers; without history, unless that is wanted."""
    m: Meta = _META.__get__(t)
    if history:
        return m
    return meta(m.shape, m.strides, m.dtype, m.offset, False, True, False, False, m.device, m.bits)
