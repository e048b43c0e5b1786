"""Arguments that are one number or one for each dimension, and names in a state_dict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[int, ...], n: int) -> tuple[int, ...]:
    """(a, b), 2 -> (b, b, a, a): F.pad wants the last dimension first."""
    return tuple(x for x in reversed(t) for _ in range(n))


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """`device`, `dtype` and `memory_format` of keyword arguments, and what stands in their "factory_kwargs"; TypeError for any other."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    if not kwargs.keys() <= simple | {"factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {kwargs.keys() - simple - {'factory_kwargs'}}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in sorted(simple & kwargs.keys()):
        if key in result:
            raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
        result[key] = kwargs[key]
    return result


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the names that have it, in place, also in the metadata: `module.`, of what DistributedDataParallel has saved."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in [k for k in metadata if k and (k == prefix.replace(".", "") or k.startswith(prefix))]:
        metadata[key[len(prefix) :]] = metadata.pop(key)
